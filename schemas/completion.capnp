# What a rank answers when a submission's frame has reached host memory.
#
# Every rank answers every submission, so that the coordinator knows that no rank is behind; only rank 0 sends records and
# payloads. The others send a digest of their records: ranks must agree on what was emitted.
#
# Values travel as the bits that the device wrote: records are int64 words, packed logprobs are int32 words of which some
# are FP32 bit patterns. Nothing is converted on the way.
#
# After a scored prefill rank 0 also sends one row for each prompt token: id of the token behind it, FP32 logprob bits,
# rank, then twenty (id, bits) pairs.
#
# Ordinals and ids are never reused.
@0xb3c94e6a10d2f785;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("helios::schema");

# One requesting slot: [emitted][2 + 2*width] words, row-major.
struct CompletionPayload {
  slot @0 :Int32;
  words @1 :List(Int32);
}

struct Completion {
  incarnation @0 :UInt32;
  sequence @1 :UInt64;
  frame @2 :UInt8;
  rank @3 :Int32;
  tokenCapacity @4 :Int32;   # T
  recordDigest @5 :UInt64;
  records @6 :List(Int64);   # [lanes, 16 + T]
  width @7 :Int32;           # W, 0 to 128
  payloads @8 :List(CompletionPayload);
  bytesCopied @9 :Int64;
  promptRows @10 :List(Int32);  # scored prefill: [prompt tokens, 43], lane order
}
