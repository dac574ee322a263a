// Completion to and from schemas/completion.capnp.
#include "schemas/completion.capnp.h"

#include <limits>

#include "common/wire/codec.h"
#include "common/wire/message_reader.h"

namespace helios {
namespace {

using namespace wire;

CompletionPayload read(schema::CompletionPayload::Reader from, int32_t width) {
  CompletionPayload to;
  to.slot = SlotIndex(in_range("payload slot", int64_t{from.getSlot()}, 0, kMaxSlots - 1));
  to.words = words<int32_t>("payload words", from.getWords(), kAnyLength);
  if (to.words.size() % packed_words(width) != 0) {
    throw Malformed{"payload words of slot " + std::to_string(to.slot.value) + ": expected a multiple of " +
                    std::to_string(packed_words(width)) + ", found " + std::to_string(to.words.size())};
  }
  return to;
}

Completion read(schema::Completion::Reader from) {
  Completion to;
  to.incarnation = from.getIncarnation();
  to.sequence = Sequence(from.getSequence());
  to.frame = FrameIndex(in_range("frame", int64_t{from.getFrame()}, 0, kNumFrames - 1));
  to.rank = Rank(in_range("rank", int64_t{from.getRank()}, 0, kMaxSlots));
  to.token_capacity = in_range("token_capacity", int64_t{from.getTokenCapacity()}, 0, kMaxTokenCapacity);
  to.record_digest = from.getRecordDigest();
  to.records = words<int64_t>("records", from.getRecords(), kAnyLength);
  if (to.records.size() % record_words(to.token_capacity) != 0) {
    throw Malformed{"records: expected a multiple of " + std::to_string(record_words(to.token_capacity)) +
                    " words, found " + std::to_string(to.records.size())};
  }
  to.width = in_range("width", int64_t{from.getWidth()}, 0, kMaxSelectedIds);
  const auto payloads = from.getPayloads();
  to.payloads.reserve(list_size("payloads", payloads.size(), kMaxSlots));
  for (const auto payload : payloads) to.payloads.push_back(read(payload, to.width));
  to.prompt_rows = words<int32_t>("prompt_rows", from.getPromptRows(), kAnyLength);
  if (to.prompt_rows.size() % kPromptScoreWords != 0) {
    throw Malformed{"prompt_rows: expected a multiple of " + std::to_string(kPromptScoreWords) + " words, found " +
                    std::to_string(to.prompt_rows.size())};
  }
  to.bytes_copied = in_range("bytes_copied", from.getBytesCopied(), 0, std::numeric_limits<int64_t>::max());
  return to;
}

}  // namespace

std::string encode_completion(const Completion& completion) {
  capnp::MallocMessageBuilder builder;
  auto to = builder.initRoot<schema::Completion>();
  to.setIncarnation(completion.incarnation);
  to.setSequence(completion.sequence.value);
  to.setFrame(completion.frame.value);
  to.setRank(completion.rank.value);
  to.setTokenCapacity(completion.token_capacity);
  to.setRecordDigest(completion.record_digest);
  set_words(to.initRecords(completion.records.size()), completion.records);
  to.setWidth(completion.width);
  auto payloads = to.initPayloads(completion.payloads.size());
  for (uint32_t i = 0; i < completion.payloads.size(); ++i) {
    payloads[i].setSlot(completion.payloads[i].slot.value);
    set_words(payloads[i].initWords(completion.payloads[i].words.size()), completion.payloads[i].words);
  }
  set_words(to.initPromptRows(completion.prompt_rows.size()), completion.prompt_rows);
  to.setBytesCopied(completion.bytes_copied);
  return to_bytes(MessageKind::kCompletion, builder);
}

Result<Completion> decode_completion(std::span<const std::byte> bytes) {
  return read_message<schema::Completion>(MessageKind::kCompletion, "completion", bytes,
                                          [](schema::Completion::Reader reader) { return read(reader); });
}

}  // namespace helios
