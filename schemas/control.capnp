# Everything that coordinator and ranks say besides submissions and completions: how a rank set forms, lives and ends.
#
#   rank -> coordinator   hello, ready, heartbeat, fault, storeSet, storeGet
#   coordinator -> rank   welcome, heartbeat (echo), drain, abort, storeValue
#
# A rank says hello until it is welcomed. When the whole set has said hello, the coordinator numbers the incarnation and
# welcomes all of them; each rank builds its communicator (over the store messages where the transport needs them), loads,
# prepares, and says ready with its manifest. Heartbeats go both ways from the first hello to the last breath.
#
# Text fields are UTF-8 without control characters, bounded where they are decoded; store keys and values are bytes.
#
# Ordinals and ids are never reused.
@0x9e57d1b8463af20c;

using Cxx = import "/capnp/c++.capnp";
using Submission = import "submission.capnp";
$Cxx.namespace("helios::schema");

struct Hello {
  rank @0 :Int32;
  worldSize @1 :Int32;   # 1, 2, 4 or 8
  life @2 :UInt64;       # random, drawn by the process at start
  pid @3 :Int64;
  hostKey @4 :Text;      # kernel and pid namespace: may the pid be watched?
  hostName @5 :Text;     # reachable by the other ranks
  device @6 :Text;       # "cpu" or "cuda"
  statusUrl @7 :Text;    # empty: none
}

struct Welcome {
  incarnation @0 :UInt32;
  worldSize @1 :Int32;
  groupKey @2 :Text;
  collective @3 :Text;   # "shm", "gloo" or "nccl"
}

# Where a graph input's value comes from. Numbers without a name are free for later sources and refused until then.
enum ValueSource {
  none @0;
  laneSlots @1;
  laneEpochs @2;
  laneRoles @3;
  laneSamples @4;
  rowTokens @5;
  rowLanes @6;
  rowPositions @7;
  rowCount @8;
  laneCount @9;
  blockTables @10;
  slotStates @11;
  frame @12;
  sequence @13;
  reserved14 @14;
  reserved15 @15;
  reserved16 @16;
  reserved17 @17;
  reserved18 @18;
  reserved19 @19;
  logprobRequested @20;
  logprobTokenIds @21;
  logprobTokenIdCounts @22;
  reserved23 @23;
  reserved24 @24;
  reserved25 @25;
  reserved26 @26;
  reserved27 @27;
  reserved28 @28;
  reserved29 @29;
  reserved30 @30;
  reserved31 @31;
  reserved32 @32;
  reserved33 @33;
  reserved34 @34;
  reserved35 @35;
  reserved36 @36;
  reserved37 @37;
  reserved38 @38;
  promptTargetToken @39;  # prompt scoring: PROMPT_TARGET_TOKEN = 39
}

enum BufferDtype {
  int32 @0;
  int64 @1;
  float32 @2;
  bfloat16 @3;
  float16 @4;
}

struct BufferDeclaration {
  name @0 :Text;
  dtype @1 :BufferDtype;
  shape @2 :List(Int64);
}

struct GraphDeclaration {
  operation @0 :Submission.Operation;
  rowCapacity @1 :Int32;
  bindings @2 :List(ValueSource);
  outputs @3 :List(Text);  # buffer names
}

# Bytes.
struct MemoryReport {
  weightsBytes @0 :Int64;
  kvCacheBytes @1 :Int64;
  bundleBytes @2 :Int64;
  workspaceBytes @3 :Int64;
  pinnedBytes @4 :Int64;         # staging and read-back; without the host tier
  hostTierBytes @5 :Int64;
  scoringBytes @6 :Int64;        # prompt scoring's workspace; its output is part of the bundle
  deviceAllocatedBytes @7 :Int64;
  deviceReservedBytes @8 :Int64;
}

struct CoreManifest {
  modelType @0 :Text;
  device @1 :Text;
  dtype @2 :Text;
  vocabSize @3 :Int64;
  maxModelLen @4 :Int32;
  slotCapacity @5 :Int32;
  tokenCapacity @6 :Int32;
  prefillChunk @7 :Int32;
  kvBlockSize @8 :Int32;
  kvNumBlocks @9 :Int32;
  buffers @10 :List(BufferDeclaration);
  graphs @11 :List(GraphDeclaration);
  memory @12 :MemoryReport;
  hostNumBlocks @13 :Int32;      # KV cache blocks that the host tier holds; 0: none
  kvCacheDtype @14 :Text;        # what keys and values are stored as
}

struct Ready {
  incarnation @0 :UInt32;
  manifest @1 :CoreManifest;
}

enum RankState {
  starting @0;
  loading @1;
  ready @2;
  draining @3;
  lost @4;
}

# One of a rank's own counters, as its /metrics names it.
struct CounterValue {
  name @0 :Text;            # helios_..., at most 64 of a-z, 0-9 and _
  value @1 :Float64;        # finite
}

struct Heartbeat {
  incarnation @0 :UInt32;
  state @1 :RankState;
  lastSequence @2 :UInt64;
  busyForMs @3 :Int64;      # 0 when idle
  residentBytes @4 :Int64;
  loadProgress @5 :Float64; # 0 to 1
  counters @6 :List(CounterValue);  # at most 64; empty in the coordinator's echo
}

struct Fault {
  incarnation @0 :UInt32;
  message @1 :Text;         # one line
}

struct Drain {}

struct Abort {
  reason @0 :Text;          # one line
}

struct StoreSet {
  key @0 :Data;
  value @1 :Data;
}

struct StoreGet {
  key @0 :Data;
}

struct StoreValue {
  key @0 :Data;
  value @1 :Data;
}

struct Control {
  union {
    none @0 :Void;          # an empty message is no message
    hello @1 :Hello;
    welcome @2 :Welcome;
    ready @3 :Ready;
    heartbeat @4 :Heartbeat;
    fault @5 :Fault;
    drain @6 :Drain;
    abort @7 :Abort;
    storeSet @8 :StoreSet;
    storeGet @9 :StoreGet;
    storeValue @10 :StoreValue;
  }
}
