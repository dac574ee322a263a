// POST /tokenize, POST /detokenize, GET /tokenizer_info. Thread: the connection's strand.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "coordinator/protocol/conversation.h"
#include "coordinator/protocol/identity.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace helios {

/// A prompt, or messages as chat would read them. Errors: kInvalidArgument with the field, kNotFound (model).
Result<std::string> tokenize_reply(std::string_view body, const Tokenizer& tokenizer, const ChatTemplates& templates,
                                   const ServedModel& model, std::optional<int64_t> max_model_len);
/// Ids in [0, vocab_size) without a token decode to nothing; others are kInvalidArgument.
Result<std::string> detokenize_reply(std::string_view body, const Tokenizer& tokenizer, const ServedModel& model,
                                     int64_t vocab_size);
std::string tokenizer_info_reply(const Tokenizer& tokenizer, const ChatTemplates& templates);

}  // namespace helios
