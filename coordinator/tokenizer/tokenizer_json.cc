// One of this room's two includers of Boost.JSON. Field by field: what changes results and is not known here is
// refused.
#include "coordinator/tokenizer/tokenizer_json.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <unordered_set>

#include "coordinator/tokenizer/added_tokens.h"
#include "coordinator/tokenizer/utf8.h"

namespace helios {
namespace {

namespace json = boost::json;

constexpr size_t kMaxSteps = 64;           // of a normalizer, pre-tokenizer or post-processor
constexpr size_t kMaxPrependBytes = 64;    // a text cannot grow past reason
constexpr int64_t kIdSlack = 1 << 16;      // ids may exceed twice the number of tokens by this much
constexpr std::string_view kGpt2Pattern =  // what ByteLevel cuts with
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct Refused {
  Errc code;
  std::string reason;
};

[[noreturn]] void corrupt(std::string reason) { throw Refused{Errc::kCorruptFile, std::move(reason)}; }
[[noreturn]] void unsupported(std::string reason) { throw Refused{Errc::kUnsupported, std::move(reason)}; }

// A name out of the file, short enough for a one-line message.
std::string quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text.substr(0, 60)) out += static_cast<uint8_t>(c) < 0x20 || c == 0x7F ? '?' : c;
  while (!valid_utf8(out)) out.pop_back();
  return out + (text.size() > 60 ? "...'" : "'");
}

// A JSON object with the name that messages give it.
class Object {
 public:
  Object(const json::value& value, std::string name) : name_(std::move(name)) {
    if (!value.is_object()) corrupt(fmt::format("{} is not an object", name_));
    object_ = &value.get_object();
  }

  const std::string& name() const { return name_; }
  std::string path(std::string_view key) const { return fmt::format("{}.{}", name_, key); }

  /// Null when absent or null.
  const json::value* find(std::string_view key) const {
    const json::value* value = object_->if_contains(key);
    return value && !value->is_null() ? value : nullptr;
  }
  const json::value& at(std::string_view key) const {
    const json::value* value = find(key);
    if (!value) corrupt(fmt::format("{} is missing", path(key)));
    return *value;
  }
  std::string_view string(std::string_view key) const {
    const json::value& value = at(key);
    if (!value.is_string()) corrupt(fmt::format("{} is not a string", path(key)));
    return value.get_string();
  }
  bool boolean(std::string_view key, bool absent) const {
    const json::value* value = find(key);
    if (!value) return absent;
    if (!value->is_bool()) corrupt(fmt::format("{} is not true or false", path(key)));
    return value->get_bool();
  }
  int64_t integer(std::string_view key) const { return as_integer(at(key), path(key)); }
  const json::array& array(std::string_view key) const {
    const json::value& value = at(key);
    if (!value.is_array()) corrupt(fmt::format("{} is not a list", path(key)));
    return value.get_array();
  }
  const json::object& members() const { return *object_; }

  /// Refuses members that this build does not know: they might change results.
  void only(std::initializer_list<std::string_view> known) const {
    for (const auto& member : *object_) {
      if (std::find(known.begin(), known.end(), std::string_view(member.key())) == known.end() &&
          !member.value().is_null()) {
        unsupported(fmt::format("{} has the unknown member {}", name_, quoted(member.key())));
      }
    }
  }

  static int64_t as_integer(const json::value& value, const std::string& path) {
    if (const auto* number = value.if_int64()) return *number;
    corrupt(fmt::format("{} is not an integer in range", path));
  }

 private:
  std::string name_;
  const json::object* object_;
};

std::string element(const std::string& name, size_t index) { return fmt::format("{}[{}]", name, index); }

void check_step_count(size_t count, const std::string& name) {
  if (count > kMaxSteps) unsupported(fmt::format("{} has {} steps, more than {}", name, count, kMaxSteps));
}

// {"String": "..."}, as Replace has it. An empty pattern would match everywhere.
ReplaceStep parse_replace(const Object& step) {
  step.only({"type", "pattern", "content"});
  const Object pattern(step.at("pattern"), step.path("pattern"));
  if (pattern.find("Regex")) unsupported(fmt::format("{} replaces by a pattern; only strings are known", step.name()));
  ReplaceStep replace{std::string(pattern.string("String")), std::string(step.string("content"))};
  if (replace.pattern.empty()) unsupported(fmt::format("{} replaces the empty string", step.name()));
  if (replace.content.size() > kMaxPrependBytes) unsupported(fmt::format("{} inserts a long string", step.name()));
  return replace;
}

void parse_normalizer(const json::value& value, const std::string& name, std::vector<NormalizerStep>* steps) {
  const Object step(value, name);
  const std::string_view type = step.string("type");
  if (type == "Sequence") {
    step.only({"type", "normalizers"});
    const json::array& list = step.array("normalizers");
    check_step_count(list.size(), name);
    for (size_t i = 0; i < list.size(); ++i) parse_normalizer(list[i], element(name, i), steps);
  } else if (type == "NFC") {
    step.only({"type"});
    steps->push_back(NfcStep{});
  } else if (type == "Prepend") {
    step.only({"type", "prepend"});
    if (step.string("prepend").size() > kMaxPrependBytes) unsupported(fmt::format("{} prepends a long string", name));
    steps->push_back(PrependStep{std::string(step.string("prepend"))});
  } else if (type == "Replace") {
    steps->push_back(parse_replace(step));
  } else {
    unsupported(fmt::format("{} is of type {}; known: NFC, Prepend, Replace, Sequence", name, quoted(type)));
  }
}

SplitRegex compile(std::string_view pattern, const std::string& name) {
  Result<SplitRegex> regex = SplitRegex::compile(pattern);
  if (!regex.ok()) unsupported(fmt::format("{}: {}", name, regex.error().message));
  return std::move(regex).value();
}

SplitBehavior parse_behavior(const Object& step) {
  const std::string_view behavior = step.string("behavior");
  if (behavior == "Removed") return SplitBehavior::kRemoved;
  if (behavior == "Isolated") return SplitBehavior::kIsolated;
  if (behavior == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (behavior == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (behavior == "Contiguous") return SplitBehavior::kContiguous;
  unsupported(fmt::format("{} is {}", step.path("behavior"), quoted(behavior)));
}

SplitStep parse_split(const Object& step) {
  step.only({"type", "pattern", "behavior", "invert"});
  SplitStep split;
  split.behavior = parse_behavior(step);
  split.invert = step.boolean("invert", false);
  const Object pattern(step.at("pattern"), step.path("pattern"));
  if (pattern.find("Regex")) {
    split.regex = compile(pattern.string("Regex"), step.name());
  } else {
    split.literal = pattern.string("String");
    if (split.literal.empty()) unsupported(fmt::format("{} splits at the empty string", step.name()));
  }
  return split;
}

// ByteLevel's own cut, and whether it is followed by anything: after it the text is in another alphabet.
void parse_byte_level(const Object& step, std::vector<SplitStep>* steps) {
  step.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  SplitStep split;
  split.add_prefix_space = step.boolean("add_prefix_space", true);
  if (step.boolean("use_regex", true)) split.regex = compile(kGpt2Pattern, step.name());
  if (split.add_prefix_space || split.regex) steps->push_back(std::move(split));
}

void parse_pre_tokenizer(const json::value& value, const std::string& name, TokenizerSpec* spec) {
  const Object step(value, name);
  const std::string_view type = step.string("type");
  if (spec->model.byte_level) unsupported(fmt::format("{} comes after ByteLevel", name));
  if (type == "Sequence") {
    step.only({"type", "pretokenizers"});
    const json::array& list = step.array("pretokenizers");
    check_step_count(list.size(), name);
    for (size_t i = 0; i < list.size(); ++i) parse_pre_tokenizer(list[i], element(name, i), spec);
  } else if (type == "Split") {
    spec->pre_tokenizer.push_back(parse_split(step));
  } else if (type == "Digits") {
    step.only({"type", "individual_digits"});
    SplitStep split;
    split.regex = compile("\\p{N}", name);
    split.behavior = step.boolean("individual_digits", false) ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
    spec->pre_tokenizer.push_back(std::move(split));
  } else if (type == "ByteLevel") {
    parse_byte_level(step, &spec->pre_tokenizer);
    spec->model.byte_level = true;
  } else {
    unsupported(fmt::format("{} is of type {}; known: Split, Digits, ByteLevel, Sequence", name, quoted(type)));
  }
}

void parse_vocabulary(const Object& model, Vocabulary* vocabulary) {
  const Object vocab(model.at("vocab"), model.path("vocab"));
  const auto limit = static_cast<int64_t>(vocab.members().size()) * 2 + kIdSlack;
  std::unordered_set<TokenId> seen;
  vocabulary->reserve(vocab.members().size());
  seen.reserve(vocab.members().size());
  for (const auto& member : vocab.members()) {
    const std::string_view piece = member.key();
    const int64_t id = Object::as_integer(member.value(), fmt::format("the id of {}", quoted(piece)));
    if (id < 0 || id >= limit) {
      corrupt(fmt::format("{} has id {}, out of range for {} tokens", quoted(piece), id, vocab.members().size()));
    }
    if (!seen.insert(static_cast<TokenId>(id)).second)
      corrupt(fmt::format("{} and another token share id {}", quoted(piece), id));
    vocabulary->emplace(piece, static_cast<TokenId>(id));
  }
}

TokenId piece_id(const Vocabulary& vocabulary, const std::string& piece, const std::string& where) {
  const auto it = vocabulary.find(piece);
  if (it == vocabulary.end()) corrupt(fmt::format("{} names {}, which is not in the vocabulary", where, quoted(piece)));
  return it->second;
}

BpeMerge make_merge(const Vocabulary& vocabulary, std::string_view left, std::string_view right, size_t index) {
  const std::string where = fmt::format("merge {}", index);
  return {piece_id(vocabulary, std::string(left), where), piece_id(vocabulary, std::string(right), where),
          piece_id(vocabulary, std::string(left) + std::string(right), where)};
}

// "a b" strings or ["a", "b"] pairs.
void parse_merges(const Object& model, TokenizerSpec* spec) {
  const json::array& list = model.array("merges");
  spec->merges.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const json::value& value = list[i];
    if (value.is_string()) {
      const std::string_view line = value.get_string();
      if (line.starts_with("#version")) continue;
      const size_t space = line.find(' ');
      if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
        corrupt(fmt::format("merge {} is {}, not two pieces with a space between", i, quoted(line)));
      }
      spec->merges.push_back(make_merge(spec->vocabulary, line.substr(0, space), line.substr(space + 1), i));
    } else if (value.is_array() && value.get_array().size() == 2 && value.get_array()[0].is_string() &&
               value.get_array()[1].is_string()) {
      const json::array& pair = value.get_array();
      spec->merges.push_back(make_merge(spec->vocabulary, pair[0].get_string(), pair[1].get_string(), i));
    } else {
      corrupt(fmt::format("merge {} is neither a string nor a pair of strings", i));
    }
  }
}

void parse_model(const json::value& value, TokenizerSpec* spec) {
  const Object model(value, "model");
  // Old files leave the type out; only BPE has merges.
  const std::string_view type = model.find("type") ? model.string("type") : model.find("merges") ? "BPE" : "unnamed";
  if (type != "BPE") unsupported(fmt::format("model is of type {}; only BPE is known", quoted(type)));
  model.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
              "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (const json::value* dropout = model.find("dropout"); dropout && dropout->to_number<double>() != 0) {
    unsupported("model.dropout is not 0: results would be random");
  }
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (model.find(key) && !model.string(key).empty()) unsupported(fmt::format("model.{} is not empty", key));
  }
  spec->model.fuse_unk = model.boolean("fuse_unk", false);
  spec->model.byte_fallback = model.boolean("byte_fallback", false);
  spec->model.ignore_merges = model.boolean("ignore_merges", false);
  if (spec->model.byte_level && spec->model.byte_fallback)
    unsupported("model.byte_fallback with a ByteLevel pre-tokenizer");
  parse_vocabulary(model, &spec->vocabulary);
  parse_merges(model, spec);
  if (model.find("unk_token")) {
    spec->model.unk = piece_id(spec->vocabulary, std::string(model.string("unk_token")), "model.unk_token");
  }
}

AddedTokenSpec parse_added_token(const json::value& value, const std::string& name) {
  const Object token(value, name);
  token.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  AddedTokenSpec added;
  added.content = token.string("content");
  if (added.content.empty()) unsupported(fmt::format("{} is empty", name));
  if (added.content.size() > kMaxAddedTokenBytes) {
    unsupported(fmt::format("{} has {} bytes, more than {}", name, added.content.size(), kMaxAddedTokenBytes));
  }
  if (token.boolean("single_word", false))
    unsupported(fmt::format("{} ({}) is a single_word token", name, quoted(added.content)));
  added.lstrip = token.boolean("lstrip", false);
  added.rstrip = token.boolean("rstrip", false);
  added.special = token.boolean("special", false);
  added.normalized = token.boolean("normalized", !added.special);
  const int64_t id = token.integer("id");
  if (id < 0 || id > INT32_MAX) corrupt(fmt::format("{} ({}) has id {}", name, quoted(added.content), id));
  added.id = static_cast<TokenId>(id);
  return added;
}

// The reference gives an added token the vocabulary's id, or the next free one: the file must say the same.
void parse_added_tokens(const Object& root, TokenizerSpec* spec) {
  if (!root.find("added_tokens")) return;
  const json::array& list = root.array("added_tokens");
  const auto model_size = static_cast<int64_t>(spec->vocabulary.size());
  std::unordered_set<std::string> seen;
  std::unordered_set<TokenId> model_ids;
  for (const auto& [piece, id] : spec->vocabulary) model_ids.insert(id);
  int64_t largest = -1;
  for (size_t i = 0; i < list.size(); ++i) {
    AddedTokenSpec token = parse_added_token(list[i], element("added_tokens", i));
    if (!seen.insert(token.content).second)
      corrupt(fmt::format("added token {} is listed twice", quoted(token.content)));
    const auto known = spec->vocabulary.find(token.content);
    const int64_t expected = known != spec->vocabulary.end() ? known->second
                             : largest >= model_size         ? largest + 1
                                                             : model_size;
    if (token.id != expected) {
      corrupt(fmt::format("added token {} has id {}, expected {}", quoted(token.content), token.id, expected));
    }
    if (known == spec->vocabulary.end() && model_ids.contains(token.id)) {
      corrupt(fmt::format("added token {} takes id {} from the vocabulary", quoted(token.content), token.id));
    }
    largest = std::max<int64_t>(largest, token.id);
    spec->added_tokens.push_back(std::move(token));
  }
}

bool id_exists(const TokenizerSpec& spec, int64_t id) {
  for (const AddedTokenSpec& token : spec.added_tokens) {
    if (token.id == id) return true;
  }
  for (const auto& [piece, model_id] : spec.vocabulary) {
    if (model_id == id) return true;
  }
  return false;
}

void append_template_ids(const Object& processor, std::string_view token, std::vector<TokenId>* ids,
                         const TokenizerSpec& spec) {
  const Object tokens(processor.at("special_tokens"), processor.path("special_tokens"));
  const Object entry(tokens.at(token), tokens.path(token));
  const json::array& list = entry.array("ids");
  if (list.size() > kMaxSteps) unsupported(fmt::format("{} has {} ids", entry.name(), list.size()));
  for (const json::value& value : list) {
    const int64_t id = Object::as_integer(value, entry.path("ids"));
    if (!id_exists(spec, id)) corrupt(fmt::format("{} holds id {}, which is no token", entry.path("ids"), id));
    ids->push_back(static_cast<TokenId>(id));
  }
}

void parse_template(const Object& processor, TokenizerSpec* spec) {
  processor.only({"type", "single", "pair", "special_tokens"});
  const json::array& single = processor.array("single");
  check_step_count(single.size(), processor.path("single"));
  bool text_seen = false;
  std::vector<TokenId> prefix, suffix;
  for (size_t i = 0; i < single.size(); ++i) {
    const Object item(single[i], element(processor.path("single"), i));
    if (item.find("Sequence")) {
      const Object sequence(item.at("Sequence"), item.path("Sequence"));
      if (text_seen || sequence.string("id") != "A") unsupported(fmt::format("{} is not the one text", item.name()));
      text_seen = true;
    } else {
      const Object special(item.at("SpecialToken"), item.path("SpecialToken"));
      append_template_ids(processor, special.string("id"), text_seen ? &suffix : &prefix, *spec);
    }
  }
  if (!text_seen) unsupported(fmt::format("{} leaves the text out", processor.path("single")));
  // An outer template wraps what an earlier one made.
  spec->prefix.insert(spec->prefix.begin(), prefix.begin(), prefix.end());
  spec->suffix.insert(spec->suffix.end(), suffix.begin(), suffix.end());
}

void parse_post_processor(const json::value& value, const std::string& name, TokenizerSpec* spec) {
  const Object processor(value, name);
  const std::string_view type = processor.string("type");
  if (type == "Sequence") {
    processor.only({"type", "processors"});
    const json::array& list = processor.array("processors");
    check_step_count(list.size(), name);
    for (size_t i = 0; i < list.size(); ++i) parse_post_processor(list[i], element(name, i), spec);
  } else if (type == "TemplateProcessing") {
    parse_template(processor, spec);
  } else if (type == "ByteLevel") {
    // Moves offsets, not ids.
    processor.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  } else {
    unsupported(fmt::format("{} is of type {}; known: TemplateProcessing, ByteLevel, Sequence", name, quoted(type)));
  }
}

// Strip { content " ", start 1, stop 0 }, after Fuse: one leading space of the whole text.
void parse_strip(const Object& step, DecoderSpec* decoder) {
  step.only({"type", "content", "start", "stop"});
  if (step.string("content") != " " || step.integer("start") > 1 || step.integer("start") < 0 ||
      step.integer("stop") != 0) {
    unsupported(fmt::format("{} strips other than one leading space", step.name()));
  }
  decoder->strip_leading_space = step.integer("start") == 1;
}

void parse_decoder_sequence(const json::array& list, DecoderSpec* decoder) {
  bool fused = false;
  bool stripped = false;
  for (size_t i = 0; i < list.size(); ++i) {
    const Object step(list[i], element("decoder", i));
    const std::string_view type = step.string("type");
    const bool per_token = !fused && !decoder->byte_fallback;
    if (type == "ByteLevel" && list.size() == 1) {
      decoder->byte_level = true;
      fused = true;
    } else if (type == "Replace" && per_token) {
      decoder->replacements.push_back(parse_replace(step));
    } else if (type == "ByteFallback" && per_token) {
      step.only({"type"});
      decoder->byte_fallback = true;
    } else if (type == "Fuse" && !fused) {
      step.only({"type"});
      fused = true;
    } else if (type == "Strip" && fused && !stripped) {
      parse_strip(step, decoder);
      stripped = true;
    } else {
      unsupported(fmt::format("{} is {} at this place; known: Replace, ByteFallback, Fuse, Strip in this order",
                              step.name(), quoted(type)));
    }
  }
  // The pieces that come out are joined without anything between, fused or not.
}

void parse_decoder(const Object& root, TokenizerSpec* spec) {
  if (!root.find("decoder")) unsupported("there is no decoder: tokens would be joined with spaces");
  const Object decoder(root.at("decoder"), "decoder");
  const std::string_view type = decoder.string("type");
  if (type == "ByteLevel") {
    spec->decoder.byte_level = true;
  } else if (type == "Sequence") {
    decoder.only({"type", "decoders"});
    check_step_count(decoder.array("decoders").size(), "decoder");
    parse_decoder_sequence(decoder.array("decoders"), &spec->decoder);
  } else {
    unsupported(fmt::format("decoder is of type {}; known: ByteLevel, Sequence", quoted(type)));
  }
  if (spec->decoder.byte_level != spec->model.byte_level) {
    unsupported("only one of pre_tokenizer and decoder is ByteLevel");
  }
}

TokenizerSpec parse_root(const json::value& value) {
  const Object root(value, "tokenizer");
  // Truncation and padding are the caller's to ask for; the file's are leftovers of training, which clients reset.
  root.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
             "decoder", "model"});
  if (root.find("version") && root.string("version") != "1.0") {
    unsupported(fmt::format("version is {}, expected '1.0'", quoted(root.string("version"))));
  }
  TokenizerSpec spec;
  if (const json::value* normalizer = root.find("normalizer"))
    parse_normalizer(*normalizer, "normalizer", &spec.normalizer);
  if (const json::value* cut = root.find("pre_tokenizer")) parse_pre_tokenizer(*cut, "pre_tokenizer", &spec);
  parse_model(root.at("model"), &spec);
  parse_added_tokens(root, &spec);
  if (const json::value* processor = root.find("post_processor")) {
    parse_post_processor(*processor, "post_processor", &spec);
  }
  parse_decoder(root, &spec);
  return spec;
}

json::value parse_json(std::string_view text) {
  json::error_code error;
  json::value value = json::parse(text, error);  // depth at most 32, UTF-8 checked
  if (error) corrupt(fmt::format("not valid JSON: {}", error.message()));
  return value;
}

// A string, or an object with `content`, or null.
std::string token_content(const Object& config, std::string_view key) {
  const json::value* value = config.find(key);
  if (!value) return {};
  if (value->is_string()) return std::string(value->get_string());
  return std::string(Object(*value, config.path(key)).string("content"));
}

// A string, or a list of {"name", "template"}, of which "default" counts.
std::string default_chat_template(const Object& config) {
  const json::value* value = config.find("chat_template");
  if (!value) return {};
  if (value->is_string()) return std::string(value->get_string());
  const json::array& list = config.array("chat_template");
  for (size_t i = 0; i < list.size(); ++i) {
    const Object item(list[i], element(config.path("chat_template"), i));
    if (item.string("name") == "default") return std::string(item.string("template"));
  }
  return {};
}

// Runs a parser; every way to refuse becomes an Error with the path.
template <class Parse>
auto guarded(const std::string& path, Parse parse) -> Result<decltype(parse())> {
  try {
    return parse();
  } catch (const Refused& refused) {
    return Error{refused.code, fmt::format("{}: {}", path, refused.reason)};
  } catch (const std::exception& e) {
    return Error{Errc::kCorruptFile, fmt::format("{}: {}", path, e.what())};
  }
}

}  // namespace

Result<TokenizerSpec> parse_tokenizer_json(std::string_view text, const std::string& path) {
  return guarded(path, [&] { return parse_root(parse_json(text)); });
}

Result<TokenizerConfig> parse_tokenizer_config(std::string_view text, const std::string& path) {
  return guarded(path, [&] {
    const json::value value = parse_json(text);
    const Object config(value, "tokenizer_config");
    return TokenizerConfig{token_content(config, "bos_token"), token_content(config, "eos_token"),
                           token_content(config, "pad_token"), default_chat_template(config),
                           config.find("tokenizer_class") ? std::string(config.string("tokenizer_class")) : ""};
  });
}

Result<std::string> read_text_file(const std::string& path, size_t max_bytes) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) {
    return Error{errno == ENOENT ? Errc::kNotFound : Errc::kCorruptFile,
                 fmt::format("{}: {}", path, std::strerror(errno))};
  }
  std::string text;
  char buffer[1 << 16];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, file.get())) {
    text.append(buffer, got);
    if (text.size() > max_bytes) {
      return Error{Errc::kCorruptFile, fmt::format("{}: larger than {} bytes", path, max_bytes)};
    }
  }
  if (std::ferror(file.get())) return Error{Errc::kCorruptFile, fmt::format("{}: cannot be read", path)};
  return text;
}

}  // namespace helios
