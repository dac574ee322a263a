// Submission to and from schemas/submission.capnp.
#include "schemas/submission.capnp.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "common/contract/completion_layout.h"
#include "common/wire/codec.h"
#include "common/wire/message_reader.h"

namespace helios {
namespace {

using namespace wire;

constexpr int64_t kMaxTokens = kMaxInt32;  // an id, a position, a count: never negative on the wire
constexpr unsigned kFirstSegmentWords = 256;  // holds a step of some 50 streams; they are zeroed for every message

// One number for one operation: in the schema, in records, in manifests.
constexpr bool same(schema::Operation a, Operation b) { return static_cast<int>(a) == static_cast<int>(b); }
static_assert(same(schema::Operation::ADMISSION, Operation::kAdmission));
static_assert(same(schema::Operation::PREFILL, Operation::kPrefill));
static_assert(same(schema::Operation::DECODE, Operation::kDecode));
static_assert(same(schema::Operation::MIXED, Operation::kMixed));
static_assert(same(schema::Operation::VERIFY, Operation::kVerify));
static_assert(same(schema::Operation::DRAFT, Operation::kDraft));
static_assert(same(schema::Operation::MAINTENANCE, Operation::kMaintenance));
static_assert(same(schema::Operation::VISION, Operation::kVision));
static_assert(same(schema::Operation::CACHE_RESTORE, Operation::kCacheRestore));
static_assert(same(schema::Operation::CACHE_PUBLISH, Operation::kCachePublish));
static_assert(same(schema::Operation::RESERVED11, Operation::kReserved));
static_assert(same(schema::Operation::SCORED_PREFILL, Operation::kScoredPrefill));  // R44: 12
static_assert(static_cast<int>(LaneRole::kPrefill) == static_cast<int>(schema::LaneRole::PREFILL));
static_assert(static_cast<int>(LaneRole::kDecode) == static_cast<int>(schema::LaneRole::DECODE));

void write(const LogitBias& from, schema::LogitBias::Builder to) {
  to.setId(from.id);
  to.setBias(from.bias);
}

LogitBias read(schema::LogitBias::Reader from) {
  return {static_cast<TokenId>(in_range("logit_bias", int64_t{from.getId()}, 0, kMaxTokens)),
          static_cast<float>(in_range("logit_bias", double{from.getBias()}, -kMaxBias, kMaxBias))};
}

void write(const TokenCount& from, schema::TokenCount::Builder to) {
  to.setId(from.id);
  to.setCount(from.count);
}

TokenCount read(schema::TokenCount::Reader from) {
  return {static_cast<TokenId>(in_range("output_counts", int64_t{from.getId()}, 0, kMaxTokens)),
          static_cast<int32_t>(in_range("output_counts", int64_t{from.getCount()}, 1, kMaxInt32))};
}

SlotIndex read_slot(int32_t slot) { return SlotIndex(in_range("slot", int64_t{slot}, 0, kMaxSlots - 1)); }

void write(const BlockTableUpdate& from, schema::BlockTableUpdate::Builder to) {
  to.setSlot(from.slot.value);
  to.setFirst(from.first);
  set_words(to.initBlocks(from.blocks.size()), from.blocks);
}

BlockTableUpdate read(schema::BlockTableUpdate::Reader from) {
  BlockTableUpdate to;
  to.slot = read_slot(from.getSlot());
  to.first = in_range("first", int64_t{from.getFirst()}, 0, kMaxInt32);
  to.blocks = words_in_range<int32_t>("blocks", from.getBlocks(), kAnyLength, 0, kMaxInt32);
  return to;
}

void write(const Lane& from, schema::Lane::Builder to) {
  to.setSlot(from.slot.value);
  to.setEpoch(from.epoch.value);
  to.setRole(static_cast<schema::LaneRole>(from.role));
  to.setStart(from.start);
  to.setSamples(from.samples);
  set_words(to.initTokens(from.tokens.size()), from.tokens);
  set_words(to.initMask(from.mask.size()), from.mask);
}

Lane read(schema::Lane::Reader from) {
  Lane to;
  to.slot = read_slot(from.getSlot());
  to.epoch = Epoch(from.getEpoch());
  to.role = static_cast<LaneRole>(in_range("role", enum_number(from.getRole()), 0, 1));
  to.start = in_range("start", int64_t{from.getStart()}, -1, kMaxInt32);
  to.samples = from.getSamples();
  to.tokens = words_in_range<TokenId>("tokens", from.getTokens(), kAnyLength, 0, kMaxTokens);
  to.mask = words<uint32_t>("mask", from.getMask(), kAnyLength);
  if (!to.mask.empty() && !to.samples) throw Malformed{"mask: expected none in a lane that samples nothing"};
  return to;
}

void write(const SelectedIds& from, schema::SelectedIds::Builder to) {
  to.setSlot(from.slot.value);
  set_words(to.initIds(from.ids.size()), from.ids);
}

SelectedIds read(schema::SelectedIds::Reader from) {
  SelectedIds to;
  to.slot = read_slot(from.getSlot());
  to.ids = words_in_range<TokenId>("logprob_token_ids", from.getIds(), kMaxSelectedIds, 0, kMaxTokens);
  if (to.ids.empty()) throw Malformed{"logprob_token_ids: expected 1..128 ids, found 0"};
  return to;
}

void write(const BlockCopy& from, schema::BlockCopy::Builder to) {
  to.setBlock(from.block);
  to.setHostBlock(from.host_block);
}

BlockCopy read(schema::BlockCopy::Reader from) {
  return {static_cast<int32_t>(in_range("block", int64_t{from.getBlock()}, 0, kMaxInt32)),
          static_cast<int32_t>(in_range("host_block", int64_t{from.getHostBlock()}, 0, kMaxInt32))};
}

// The one kind of list element that holds lists of its own.
void write(const SlotAdmission& from, schema::SlotAdmission::Builder to);
SlotAdmission read(schema::SlotAdmission::Reader from);

template <class List, class Values>
void write_all(List list, const Values& values) {
  for (uint32_t i = 0; i < values.size(); ++i) write(values[i], list[i]);
}

template <class List>
auto read_all(std::string_view name, List list, int64_t limit) {
  std::vector<decltype(read(list[0]))> out;
  out.reserve(list_size(name, list.size(), limit));
  for (const auto item : list) out.push_back(read(item));
  return out;
}

TokenId id_of(TokenId id) { return id; }
TokenId id_of(const LogitBias& bias) { return bias.id; }
TokenId id_of(const TokenCount& count) { return count.id; }

/// An id twice would be applied twice on one device and once on another.
template <class Items>
Items distinct(std::string_view name, Items items) {
  std::vector<TokenId> ids;
  ids.reserve(items.size());
  for (const auto& item : items) ids.push_back(id_of(item));
  std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  if (twice != ids.end()) throw Malformed{fmt::format("{}: expected distinct ids, found {} twice", name, *twice)};
  return items;
}

void write(const SamplingParams& from, schema::SamplingParams::Builder to) {
  to.setTemperature(from.temperature);
  to.setTopP(from.top_p);
  to.setTopK(from.top_k);
  to.setMinP(from.min_p);
  to.setSeed(from.seed);
  to.setMaxTokens(from.max_tokens);
  to.setMinTokens(from.min_tokens);
  to.setIgnoreEos(from.ignore_eos);
  to.setEosId(from.eos_id);
  set_words(to.initStopIds(from.stop_ids.size()), from.stop_ids);
  write_all(to.initLogitBias(from.logit_bias.size()), from.logit_bias);
  set_words(to.initAllowedIds(from.allowed_ids.size()), from.allowed_ids);
  to.setRepetitionPenalty(from.repetition_penalty);
  to.setFrequencyPenalty(from.frequency_penalty);
  to.setPresencePenalty(from.presence_penalty);
  set_words(to.initPromptIds(from.prompt_ids.size()), from.prompt_ids);
  write_all(to.initOutputCounts(from.output_counts.size()), from.output_counts);
  to.setMasks(from.masks);
}

std::vector<TokenId> read_distinct_ids(std::string_view name, capnp::List<int32_t>::Reader from) {
  return distinct(name, words_in_range<TokenId>(name, from, kAnyLength, 0, kMaxTokens));
}

void read_transformations(schema::SamplingParams::Reader from, SamplingParams* to) {
  constexpr double kMaxFloat = std::numeric_limits<float>::max();
  to->logit_bias = distinct("logit_bias", read_all("logit_bias", from.getLogitBias(), kMaxLogitBias));
  to->allowed_ids = read_distinct_ids("allowed_ids", from.getAllowedIds());
  to->masks = from.getMasks();
  if (to->masks && !to->allowed_ids.empty()) throw Malformed{"allowed_ids: expected none beside masks"};
  to->repetition_penalty =
      static_cast<float>(in_range("repetition_penalty", double{from.getRepetitionPenalty()}, 0.0, kMaxFloat));
  to->frequency_penalty =
      static_cast<float>(in_range("frequency_penalty", double{from.getFrequencyPenalty()}, -2.0, 2.0));
  to->presence_penalty = static_cast<float>(in_range("presence_penalty", double{from.getPresencePenalty()}, -2.0, 2.0));
  to->prompt_ids = read_distinct_ids("prompt_ids", from.getPromptIds());
  to->output_counts = distinct("output_counts", read_all("output_counts", from.getOutputCounts(), kAnyLength));
  if (to->repetition_penalty == 0.0f) throw Malformed{"repetition_penalty: expected more than 0, found 0"};
  if (!to->prompt_ids.empty() && to->repetition_penalty == 1.0f)
    throw Malformed{"prompt_ids: expected none without a repetition penalty"};
  if (!to->output_counts.empty() && !has_penalty(*to))
    throw Malformed{"output_counts: expected none without a penalty"};
}

SamplingParams read(schema::SamplingParams::Reader from) {
  constexpr double kMaxFloat = std::numeric_limits<float>::max();
  SamplingParams to;
  to.temperature = static_cast<float>(in_range("temperature", double{from.getTemperature()}, 0.0, kMaxFloat));
  to.top_p = static_cast<float>(in_range("top_p", double{from.getTopP()}, 0.0, 1.0));
  to.top_k = in_range("top_k", int64_t{from.getTopK()}, 0, kMaxInt32);
  to.min_p = static_cast<float>(in_range("min_p", double{from.getMinP()}, 0.0, 1.0));
  to.seed = from.getSeed();
  to.max_tokens = in_range("max_tokens", int64_t{from.getMaxTokens()}, 0, kMaxInt32);
  to.min_tokens = in_range("min_tokens", int64_t{from.getMinTokens()}, 0, kMaxInt32);
  to.ignore_eos = from.getIgnoreEos();
  to.eos_id = in_range("eos_id", int64_t{from.getEosId()}, -1, kMaxTokens);
  to.stop_ids = words_in_range<TokenId>("stop_ids", from.getStopIds(), kMaxStopIds, 0, kMaxTokens);
  if (to.top_p == 0.0f) throw Malformed{"top_p: expected more than 0, found 0"};
  read_transformations(from, &to);
  return to;
}

void write(const SlotAdmission& from, schema::SlotAdmission::Builder to) {
  to.setSlot(from.slot.value);
  to.setEpoch(from.epoch.value);
  write(from.sampling, to.initSampling());
  to.setGenerated(from.generated);
}

SlotAdmission read(schema::SlotAdmission::Reader from) {
  return {read_slot(from.getSlot()), Epoch(from.getEpoch()), read(from.getSampling()),
          static_cast<int32_t>(in_range("generated", int64_t{from.getGenerated()}, 0, kMaxInt32))};
}

Submission read(schema::Submission::Reader from) {
  Submission to;
  to.incarnation = from.getIncarnation();
  to.sequence = Sequence(from.getSequence());
  to.frame = FrameIndex(in_range("frame", int64_t{from.getFrame()}, 0, kNumFrames - 1));
  to.operation = static_cast<Operation>(
      in_range("operation", enum_number(from.getOperation()), 1, static_cast<int64_t>(Operation::kScoredPrefill)));
  to.blocks_out = read_all("blocks_out", from.getBlocksOut(), kMaxBlockUpdates);
  to.blocks_in = read_all("blocks_in", from.getBlocksIn(), kMaxBlockUpdates);
  to.admissions = read_all("admissions", from.getAdmissions(), kMaxSlots);
  to.block_updates = read_all("block_updates", from.getBlockUpdates(), kMaxBlockUpdates);
  to.lanes = read_all("lanes", from.getLanes(), kMaxSlots);
  to.logprob_requested = words_in_range<int32_t>("logprob_requested", from.getLogprobRequested(), kMaxSlots, 0, 1);
  to.logprob_token_id_counts =
      words_in_range<int32_t>("logprob_token_id_counts", from.getLogprobTokenIdCounts(), kMaxSlots, 0, kMaxSelectedIds);
  to.logprob_token_ids = read_all("logprob_token_ids", from.getLogprobTokenIds(), kMaxSlots);
  to.prompt_target_tokens =
      words_in_range<TokenId>("prompt_target_tokens", from.getPromptTargetTokens(), kAnyLength, kNoTarget, kMaxTokens);
  return to;
}

}  // namespace

std::string encode_submission(const Submission& submission) {
  capnp::MallocMessageBuilder builder(kFirstSegmentWords);
  auto to = builder.initRoot<schema::Submission>();
  to.setIncarnation(submission.incarnation);
  to.setSequence(submission.sequence.value);
  to.setFrame(submission.frame.value);
  to.setOperation(static_cast<schema::Operation>(submission.operation));
  write_all(to.initBlocksOut(submission.blocks_out.size()), submission.blocks_out);
  write_all(to.initBlocksIn(submission.blocks_in.size()), submission.blocks_in);
  write_all(to.initAdmissions(submission.admissions.size()), submission.admissions);
  write_all(to.initBlockUpdates(submission.block_updates.size()), submission.block_updates);
  write_all(to.initLanes(submission.lanes.size()), submission.lanes);
  set_words(to.initLogprobRequested(submission.logprob_requested.size()), submission.logprob_requested);
  set_words(to.initLogprobTokenIdCounts(submission.logprob_token_id_counts.size()), submission.logprob_token_id_counts);
  write_all(to.initLogprobTokenIds(submission.logprob_token_ids.size()), submission.logprob_token_ids);
  set_words(to.initPromptTargetTokens(submission.prompt_target_tokens.size()), submission.prompt_target_tokens);
  return to_bytes(MessageKind::kSubmission, builder);
}

Result<Submission> decode_submission(std::span<const std::byte> bytes) {
  return read_message<schema::Submission>(MessageKind::kSubmission, "submission", bytes,
                                          [](schema::Submission::Reader reader) { return read(reader); });
}

}  // namespace helios
