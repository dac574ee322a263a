// Contract structs to and from Cap'n Proto bytes. The only room that sees generated Cap'n Proto headers.
//
// On the socket a message is two frames: one byte of MessageKind, then the encoded message. Decoders trust nothing:
// they check the checksum, alignment, traversal limits, list sizes, enum numbers and ranges, and answer kTruncatedFrame
// or kInvalidArgument. They cannot know a core's capacity; the executor and the engine check against it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "common/base/result.h"
#include "common/contract/completion.h"
#include "common/contract/control.h"
#include "common/contract/submission.h"

namespace helios {

enum class MessageKind : uint8_t { kControl = 1, kSubmission = 2, kCompletion = 3 };

inline constexpr size_t kMaxMessageBytes = size_t{64} << 20;

/// The last word of an encoded message, over those before it. ZeroMQ does not check what a network or a buffer did to a
/// message, and a bit of a logprob that flips would be a wrong value and no error.
uint64_t message_checksum(MessageKind kind, std::span<const std::byte> words);

std::string encode_control(const ControlMessage& message);
std::string encode_submission(const Submission& submission);
std::string encode_completion(const Completion& completion);

Result<ControlMessage> decode_control(std::span<const std::byte> bytes);
Result<Submission> decode_submission(std::span<const std::byte> bytes);
Result<Completion> decode_completion(std::span<const std::byte> bytes);

}  // namespace helios
