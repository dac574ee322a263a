# What the coordinator asks of the ranks: one batch, sent byte for byte to every rank of the set.
#
# A rank knows slots, epochs, positions and token ids; it knows nothing of requests, users or text. A submission first
# moves blocks between the KV cache and the host tier, then hands slots to new tenants (admissions), then changes block
# tables, then runs one graph over its lanes. Submissions are
# numbered without gaps: a rank that misses one reports a fault instead of entering an exchange that others will not.
#
# Readers trust nothing: enum numbers, signs and list sizes are checked where the message is decoded, and what only a
# loaded core can know (slot capacity, vocabulary, block count) is checked by the executor.
#
# Ordinals and ids are never reused. A field that goes out of use keeps its ordinal and says so here.
@0xd8a1f0c27be54931;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("helios::schema");

# What a graph does. The numbers stand in completion records too (word 3).
enum Operation {
  invalid @0;
  admission @1;
  prefill @2;
  decode @3;
  mixed @4;
  verify @5;
  draft @6;
  maintenance @7;
  vision @8;
  cacheRestore @9;
  cachePublish @10;
  reserved11 @11;
  scoredPrefill @12;  # prompt scoring: SCORED_PREFILL = 12
}

struct LogitBias {
  id @0 :Int32;
  bias @1 :Float32;  # finite, in [-100, 100]
}

struct TokenCount {
  id @0 :Int32;
  count @1 :Int32;  # >= 1
}

# How one sequence chooses its tokens, already validated by the coordinator. Readers refuse NaN, out-of-range values and
# an id that is listed twice.
struct SamplingParams {
  temperature @0 :Float32;  # finite, >= 0; 0 is greedy
  topP @1 :Float32;         # (0, 1]
  topK @2 :Int32;           # >= 0; 0 is off
  minP @3 :Float32;         # [0, 1]
  seed @4 :UInt64;          # Philox key
  maxTokens @5 :Int32;      # >= 0; 0: nothing is generated
  minTokens @6 :Int32;      # >= 0
  ignoreEos @7 :Bool;
  eosId @8 :Int32;          # -1: none
  stopIds @9 :List(Int32);  # at most 64
  logitBias @10 :List(LogitBias);       # distinct ids, at most 1024
  allowedIds @11 :List(Int32);          # distinct; empty: every id
  repetitionPenalty @12 :Float32 = 1;   # finite, > 0; 1 is off
  frequencyPenalty @13 :Float32;        # [-2, 2]
  presencePenalty @14 :Float32;         # [-2, 2]
  promptIds @15 :List(Int32);           # distinct ids of the prompt; only with a repetition penalty
  outputCounts @16 :List(TokenCount);   # distinct ids generated before a readmission; only with a penalty
  masks @17 :Bool;                      # lanes bring masks; then allowedIds is empty
}

struct SlotAdmission {
  slot @0 :Int32;
  epoch @1 :UInt32;
  sampling @2 :SamplingParams;
  generated @3 :Int32;      # tokens emitted before a readmission, >= 0
}

# block_table[slot][first + i] = blocks[i]
struct BlockTableUpdate {
  slot @0 :Int32;
  first @1 :Int32;
  blocks @2 :List(Int32);
}

enum LaneRole {
  prefill @0;
  decode @1;
}

struct Lane {
  slot @0 :Int32;
  epoch @1 :UInt32;
  role @2 :LaneRole;
  start @3 :Int32;          # absolute position of tokens[0]; -1 for decode
  samples @4 :Bool;
  tokens @5 :List(Int32);   # prompt ids; empty for decode
  mask @6 :List(UInt32);    # [ceil(V / 32)] bit i % 32 of word i / 32: id i may be sampled; empty: no mask
}

# A selecting slot's ids, in the caller's order: only the prefix that is used travels.
struct SelectedIds {
  slot @0 :Int32;
  ids @1 :List(Int32);      # 1 to 128
}

# A KV cache block's keys and values of all layers, between the cache and the host tier behind it.
struct BlockCopy {
  block @0 :Int32;          # of the KV cache
  hostBlock @1 :Int32;      # of the host tier
}

struct Submission {
  incarnation @0 :UInt32;
  sequence @1 :UInt64;      # the first of an incarnation is 1
  frame @2 :UInt8;          # 0 or 1
  operation @3 :Operation;
  admissions @4 :List(SlotAdmission);
  blockUpdates @5 :List(BlockTableUpdate);
  lanes @6 :List(Lane);
  logprobRequested @7 :List(Int32);      # [capacity], 0 or 1
  logprobTokenIdCounts @8 :List(Int32);  # [capacity], 0 to 128
  logprobTokenIds @9 :List(SelectedIds);
  promptTargetTokens @10 :List(Int32);   # scored prefill: [prompt tokens], lane order; -1: no target
  blocksOut @11 :List(BlockCopy);        # before the step: cache to host tier
  blocksIn @12 :List(BlockCopy);         # behind blocksOut, before the step: host tier to cache
}
