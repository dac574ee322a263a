// Reasoning first; what it leaves as content goes on to the tool calls.
#include "coordinator/parser/output_parser.h"

#include <optional>

#include "coordinator/parser/reasoning_parser.h"
#include "coordinator/parser/tool_parser.h"

namespace helios {

struct OutputParser::Impl {
  Impl(const OutputFormat& format, bool in_reasoning) : reasoning(format.reasoning, in_reasoning) {
    if (format.tools != ToolFormat::kNone) tools.emplace(format.tools);
  }

  void hand_on(std::vector<OutputPiece>& from, std::vector<OutputPiece>* out) {
    for (OutputPiece& piece : from) {
      if (piece.kind == OutputPiece::Kind::kContent) {
        tools->push(piece.text, piece.begin, out);
      } else {
        out->push_back(std::move(piece));
      }
    }
    from.clear();
  }

  ReasoningParser reasoning;
  std::optional<ToolParser> tools;
  std::vector<OutputPiece> scratch;
};

OutputParser::OutputParser(const OutputFormat& format, bool in_reasoning)
    : impl_(std::make_unique<Impl>(format, in_reasoning)) {}
OutputParser::~OutputParser() = default;
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser& OutputParser::operator=(OutputParser&&) noexcept = default;

void OutputParser::push(std::string_view text, std::vector<OutputPiece>* out) {
  if (!impl_->tools) return impl_->reasoning.push(text, out);
  impl_->reasoning.push(text, &impl_->scratch);
  impl_->hand_on(impl_->scratch, out);
}

void OutputParser::finish(std::vector<OutputPiece>* out) {
  if (!impl_->tools) return impl_->reasoning.finish(out);
  impl_->reasoning.finish(&impl_->scratch);
  impl_->hand_on(impl_->scratch, out);
  impl_->tools->finish(out);
}

int64_t OutputParser::decided() const {
  return impl_->tools && impl_->tools->undecided() ? impl_->tools->decided() : impl_->reasoning.decided();
}

bool OutputParser::in_reasoning() const { return impl_->reasoning.in_reasoning(); }
int64_t OutputParser::reasoning_begin() const { return impl_->reasoning.begin(); }
int64_t OutputParser::reasoning_end() const { return impl_->reasoning.end(); }

}  // namespace helios
