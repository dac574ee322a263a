// PCRE2 with UTF, UCP and the JIT; see split_pattern.cc for what of a pattern is let through.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "coordinator/tokenizer/split_regex.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <utility>

namespace helios {
namespace {

constexpr size_t kJitStackBytes = 1 << 20;
constexpr uint32_t kHeapLimitKib = 64 << 10;  // of the interpreter, used where the JIT's stack does not suffice
constexpr uint64_t kMatchLimitBase = 1'000'000;
constexpr uint64_t kMatchLimitPerByte = 64;

struct Pcre2Deleter {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
  void operator()(pcre2_jit_stack* p) const { pcre2_jit_stack_free(p); }
};
template <class T>
using Pcre2Ptr = std::unique_ptr<T, Pcre2Deleter>;

std::string pcre2_message(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct SplitRegex::Code {
  Pcre2Ptr<pcre2_code> code;
};

struct SplitRegex::Matcher::Scratch {
  const pcre2_code* code;
  Pcre2Ptr<pcre2_match_data> data;
  Pcre2Ptr<pcre2_match_context> context;
  Pcre2Ptr<pcre2_jit_stack> jit_stack;
};

SplitRegex::SplitRegex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
SplitRegex::~SplitRegex() = default;
SplitRegex::SplitRegex(SplitRegex&&) noexcept = default;
SplitRegex& SplitRegex::operator=(SplitRegex&&) noexcept = default;

Result<SplitRegex> SplitRegex::compile(std::string_view pattern) {
  Result<std::string> translated = translate_split_pattern(pattern);
  if (!translated.ok()) return translated.error();
  Pcre2Ptr<pcre2_compile_context> context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 50);
  int error = 0;
  PCRE2_SIZE offset = 0;
  Pcre2Ptr<pcre2_code> code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated->data()), translated->size(),
                                          PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                                          context.get()));
  if (!code) return Error{Errc::kUnsupported, fmt::format("pattern does not compile: {}", pcre2_message(error))};
  uint32_t matches_empty = 0;
  pcre2_pattern_info(code.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty) return Error{Errc::kUnsupported, "pattern can match the empty string"};
  // Without the JIT (an unusual CPU, or no executable memory) the interpreter gives the same matches.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return SplitRegex(std::make_unique<Code>(Code{std::move(code)}));
}

SplitRegex::Matcher::Matcher(const SplitRegex& regex) : scratch_(std::make_unique<Scratch>()) {
  const pcre2_code* code = regex.code_->code.get();
  scratch_->code = code;
  scratch_->data.reset(pcre2_match_data_create_from_pattern(code, nullptr));
  scratch_->context.reset(pcre2_match_context_create(nullptr));
  pcre2_set_heap_limit(scratch_->context.get(), kHeapLimitKib);
  scratch_->jit_stack.reset(pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr));
  pcre2_jit_stack_assign(scratch_->context.get(), nullptr, scratch_->jit_stack.get());
}
SplitRegex::Matcher::~Matcher() = default;
SplitRegex::Matcher::Matcher(Matcher&&) noexcept = default;

Result<SplitRegex::Match> SplitRegex::Matcher::next(std::string_view text, size_t from) {
  const uint64_t limit = kMatchLimitBase + kMatchLimitPerByte * (text.size() - from);
  pcre2_set_match_limit(scratch_->context.get(), static_cast<uint32_t>(std::min<uint64_t>(limit, UINT32_MAX)));
  const auto match = [&](uint32_t options) {
    return pcre2_match(scratch_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, options,
                       scratch_->data.get(), scratch_->context.get());
  };
  int rc = match(PCRE2_NO_UTF_CHECK);
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = match(PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);
  if (rc == PCRE2_ERROR_NOMATCH) return Match{};
  if (rc < 0) {
    return Error{Errc::kInvalidArgument,
                 fmt::format("the tokenizer's pattern gives up on this text: {}", pcre2_message(rc))};
  }
  const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(scratch_->data.get());
  return Match{offsets[0], offsets[1], true};
}

}  // namespace helios
