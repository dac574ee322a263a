// Entries on their way out: each waits for the place of its first byte, then for the text of that byte.
//
// Both waits end in generation order, so the entries are one queue with a mark. It holds what belongs to held-back text
// and nothing else (R30, R31). Thread: the connection's strand.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "coordinator/output/sequence_output.h"
#include "coordinator/tokenizer/incremental_decoder.h"

namespace helios {

class TextSpans {
 public:
  /// The next generated token; nothing when it has no entry.
  void push(std::optional<OutputEntry> entry) { spans_.push_back({std::move(entry), {}}); }

  /// The next token in order whose place was unknown starts here.
  void place(const TextStart& start);

  /// Moves to `out` the entries and the starts of tokens whose first byte is within the first `released` bytes of the
  /// text, and of tokens without text that no such byte stands before.
  void release(int64_t released, OutputDelta* out);

  /// The end of the text, when no stop string removed any: every entry that is left.
  void release_all(OutputDelta* out);

  size_t held() const { return spans_.size() - first_; }

 private:
  struct Span {
    std::optional<OutputEntry> entry;
    TextStart start;
  };
  void pop(OutputDelta* out);

  std::vector<Span> spans_;
  size_t first_ = 0;   // of spans_, that is still here: as a rule all of them leave together
  size_t placed_ = 0;  // of spans_, before which all have their place
};

}  // namespace helios
