#include "coordinator/template/chat_template.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "coordinator/template/chat_messages.h"
#include "coordinator/template/jinja_template.h"
#include "coordinator/template/json_input.h"
#include "coordinator/template/python_text.h"
#include "coordinator/template/template_traits.h"
#include "coordinator/template/unicode.h"

namespace helios {

using jinja::cat;
using jinja::Dict;
using jinja::Fault;
using jinja::Kind;
using jinja::NamedValue;
using jinja::Sandbox;
using jinja::Value;

struct ChatTemplate::Named {
  std::string source;
  std::shared_ptr<const jinja::JinjaTemplate> parsed;
  jinja::TemplateTraits traits;
};

namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kMaxFileBytes = 64u << 20;
constexpr std::string_view kDefault = "default";
constexpr std::string_view kToolUse = "tool_use";

Result<std::string> read_file(const std::string& path) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  if (error) return Error{Errc::kNotFound, cat(path, ": ", error.message()), {}};
  if (size > kMaxFileBytes) return Error{Errc::kCorruptFile, cat(path, ": larger than 64 MiB"), {}};
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (in.bad() || text.size() != size) return Error{Errc::kCorruptFile, cat(path, ": cannot be read"), {}};
  return text;
}

Error in_file(const std::string& path, Error error) {
  if (error.code == Errc::kInvalidArgument || error.code == Errc::kTooLarge) error.code = Errc::kCorruptFile;
  error.message = cat(path, ": ", error.message);
  return error;
}

// A special token of tokenizer_config.json: text, or an object with its content.
std::optional<Value> token_text(Sandbox& box, Value token) {
  if (token.is_text()) return token;
  if (!token.is(Kind::kDict)) return std::nullopt;
  const Value* content = token.dict->find(box, "content");
  return content && content->is_text() ? std::optional(*content) : std::nullopt;
}

// What transformers hands to templates as special_tokens_map.
std::string special_tokens_of(Sandbox& box, const Dict& config) {
  Dict* out = box.make<Dict>();
  const auto keep = [&](std::string_view name, Value token) {
    if (const auto text = token_text(box, token)) out->set(box, borrow_text(box, name), *text);
  };
  for (const std::string_view name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    if (const Value* token = config.find(box, name)) keep(name, *token);
  }
  if (const Value* more = config.find(box, "additional_special_tokens"); more && more->is(Kind::kList)) {
    jinja::ListBuilder texts(box);
    for (const Value token : more->list->items) {
      if (const auto text = token_text(box, token)) texts.push(*text);
    }
    out->set(box, borrow_text(box, "additional_special_tokens"), texts.finish());
  }
  if (const Value* named = config.find(box, "extra_special_tokens"); named && named->is(Kind::kDict)) {
    for (const Dict::Entry& entry : named->dict->entries()) keep(entry.key.str(), entry.value);
  }
  jinja::TextBuilder json(box);
  append_json(box, &json, Value::from(out), {});
  return std::string(json.view());
}

bool absent(std::string_view json) { return json.empty() || json == "null"; }

std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

// The variables of one render, in the order in which later ones win.
class Variables {
 public:
  Variables(Sandbox& box, const ChatTemplateInput& input, const jinja::TemplateTraits& traits)
      : box_(box), input_(input), traits_(traits) {}

  /// Errors: Fault (kInvalidArgument), and param() names the field.
  void read(std::string_view special_tokens) {
    add_object(special_tokens, "special tokens");
    read_kwargs();
    add("add_generation_prompt", Value::from(input_.add_generation_prompt));
    add("tools", array(input_.tools, "tools"));
    add("documents", array(input_.documents, "documents"));
    // A kwarg stands behind the request's own fields of its name.
    named_.insert(named_.end(), kwargs_.begin(), kwargs_.end());
    read_messages();
  }

  const std::string& param() const { return param_; }
  const std::string& mark() const { return mark_; }  // empty: nothing to continue
  std::span<const NamedValue> all() const { return named_; }

 private:
  void add(std::string_view name, Value value) { named_.push_back({name, value}); }

  void add_object(std::string_view json, std::string_view what) {
    const Value object = read_json(box_, json, what);
    if (!object.is(Kind::kDict)) return;
    for (const Dict::Entry& entry : object.dict->entries()) add(entry.key.str(), entry.value);
  }

  void read_kwargs() {
    param_ = "chat_template_kwargs";
    bool has_effort = false, has_thinking = false;
    if (!absent(input_.kwargs)) {
      const Value object = read_json(box_, input_.kwargs, param_);
      if (!object.is(Kind::kDict)) refuse("expected an object");
      for (const Dict::Entry& entry : object.dict->entries()) {
        const std::string_view name = entry.key.str();
        for (const std::string_view reserved : {"messages", "tools", "documents", "continue_final_message"}) {
          if (name == reserved) refuse(cat("'", name, "' is a field of the request, not of chat_template_kwargs"));
        }
        has_effort |= name == "reasoning_effort";
        has_thinking |= name == "enable_thinking";
        kwargs_.push_back({name, entry.value});
      }
    }
    if (input_.reasoning_effort.empty()) return;
    if (!has_effort) add("reasoning_effort", borrow_text(box_, input_.reasoning_effort));
    if (!has_thinking) add("enable_thinking", Value::from(input_.reasoning_effort != "none"));
  }

  Value array(std::string_view json, std::string_view field) {
    if (absent(json)) return Value::none();
    param_ = field;
    const Value value = read_json(box_, json, field);
    if (!value.is(Kind::kList) && !value.is(Kind::kNone)) refuse("expected an array");
    return value;
  }

  void read_messages() {
    param_ = "messages";
    Value messages = read_json(box_, input_.messages, param_);
    if (!messages.is(Kind::kList)) refuse("expected an array");
    if (input_.from_chat_api) messages = normalized_messages(box_, messages, traits_, &param_);
    if (input_.continue_final_message) {
      // As transformers marks the place; a mark that the messages hold already would be found in the wrong one.
      mark_ = "CONTINUE_FINAL_MESSAGE_TAG ";
      while (input_.messages.find(mark_.substr(0, mark_.size() - 1)) != std::string_view::npos) mark_.insert(0, "_");
      param_ = "continue_final_message";
      messages = with_mark(box_, messages, mark_);
    }
    add("messages", messages);
  }

  [[noreturn]] void refuse(std::string_view why) { throw Fault{Errc::kInvalidArgument, cat(param_, ": ", why)}; }

  Sandbox& box_;
  const ChatTemplateInput& input_;
  const jinja::TemplateTraits& traits_;
  std::vector<NamedValue> named_, kwargs_;
  std::string param_, mark_;
};

// Cuts the text where the final message ends; what the template wrote behind it is not wanted.
Result<std::string> continued(std::string text, std::string_view mark) {
  const std::string_view word = mark.substr(0, mark.size() - 1);
  const size_t at = text.rfind(word);
  if (at == text.npos) {
    return Error{Errc::kInvalidArgument, "continue_final_message: the chat template does not write the final message",
                 "continue_final_message"};
  }
  const bool space_kept = std::string_view(text).substr(at).starts_with(mark);
  text.resize(at);
  if (!space_kept) text.resize(jinja::strip(text, false, true).size());  // the template trims: so do we
  return text;
}

}  // namespace

ChatTemplate::ChatTemplate() = default;
ChatTemplate::~ChatTemplate() = default;

Status ChatTemplate::add(std::string name, std::string_view source) {
  auto parsed = jinja::JinjaTemplate::parse(source);
  if (!parsed.ok()) return parsed.error();
  const auto traits = jinja::find_traits(**parsed, special_tokens_);
  templates_[std::move(name)] = std::make_unique<const Named>(Named{std::string(source), *parsed, traits});
  return Ok{};
}

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::from_source(std::string_view source,
                                                                      std::string_view special_tokens) {
  std::shared_ptr<ChatTemplate> out(new ChatTemplate);
  try {
    if (!absent(special_tokens)) {
      Sandbox box({});
      if (!read_json(box, special_tokens, "special tokens").is(Kind::kDict)) {
        return Error{Errc::kInvalidArgument, "special tokens: expected an object", {}};
      }
      out->special_tokens_ = special_tokens;
    }
    if (const Status added = out->add(std::string(kDefault), source); !added.ok()) return added.error();
  } catch (const Fault& fault) {
    return to_error(fault);
  }
  return std::shared_ptr<const ChatTemplate>(std::move(out));
}

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::load(const std::string& model_dir, const std::string& file) {
  std::shared_ptr<ChatTemplate> out(new ChatTemplate);
  std::map<std::string, std::pair<std::string, std::string>> sources;  // name: path, source
  Sandbox box({});
  try {
    const std::string config_path = model_dir + "/tokenizer_config.json";
    const auto take_config = [&](const std::string& path, bool tokens) -> Status {
      const auto text = read_file(path);
      if (!text.ok()) return text.error().code == Errc::kNotFound ? Status(Ok{}) : Status(text.error());
      try {
        const Value config = read_json(box, box.copy(*text), path);
        if (!config.is(Kind::kDict)) return Error{Errc::kCorruptFile, cat(path, ": not a JSON object"), {}};
        if (tokens) out->special_tokens_ = special_tokens_of(box, *config.dict);
        const Value* found = config.dict->find(box, "chat_template");
        if (!found || found->is(Kind::kNone)) return Ok{};
        if (found->is_text()) {
          sources[std::string(kDefault)] = {path, std::string(found->str())};
          return Ok{};
        }
        if (!found->is(Kind::kList))
          return Error{Errc::kCorruptFile, cat(path, ": chat_template is neither text nor a list"), {}};
        for (const Value item : found->list->items) {
          const Value* name = item.is(Kind::kDict) ? item.dict->find(box, "name") : nullptr;
          const Value* source = item.is(Kind::kDict) ? item.dict->find(box, "template") : nullptr;
          if (!name || !source || !name->is_text() || !source->is_text()) {
            return Error{Errc::kCorruptFile, cat(path, ": an item of chat_template without name and template"), {}};
          }
          sources[std::string(name->str())] = {path, std::string(source->str())};
        }
        return Ok{};
      } catch (const Fault& fault) {
        return Error{Errc::kCorruptFile, fault.message, {}};
      }
    };
    if (const Status taken = take_config(model_dir + "/chat_template.json", false); !taken.ok()) return taken.error();
    if (const Status taken = take_config(config_path, true); !taken.ok()) return taken.error();

    // Files of their own win over what the configuration holds.
    std::map<std::string, std::string> files;
    std::error_code error;
    for (const char* folder : {"/chat_templates", "/additional_chat_templates"}) {
      for (const auto& entry : fs::directory_iterator(model_dir + folder, error)) {
        if (entry.path().extension() == ".jinja") files[entry.path().stem().string()] = entry.path().string();
      }
    }
    if (fs::exists(model_dir + "/chat_template.jinja", error)) {
      files[std::string(kDefault)] = model_dir + "/chat_template.jinja";
    }
    if (!file.empty()) {  // it alone: a tool_use template of the model's would otherwise still take its tools
      sources.clear();
      files = {{std::string(kDefault), file}};
    }
    for (const auto& [name, path] : files) {
      auto text = read_file(path);
      if (!text.ok()) return text.error();
      sources[name] = {path, std::move(*text)};
    }
    if (sources.empty()) return Error{Errc::kNotFound, cat(model_dir, ": the model has no chat template"), {}};
    for (const auto& [name, source] : sources) {
      const Status added = out->add(name, source.second);
      if (!added.ok()) return in_file(cat(source.first, name == kDefault ? "" : cat(" (", name, ")")), added.error());
    }
  } catch (const Fault& fault) {
    return to_error(fault);
  }
  return std::shared_ptr<const ChatTemplate>(std::move(out));
}

Result<const ChatTemplate::Named*> ChatTemplate::choose(const ChatTemplateInput& input) const {
  std::string_view name = input.template_name;
  if (name.empty()) name = !absent(input.tools) && templates_.contains(kToolUse) ? kToolUse : kDefault;
  const auto at = templates_.find(name);
  if (at != templates_.end()) return at->second.get();
  std::string known;
  for (const auto& [other, unused] : templates_) known += cat(known.empty() ? "" : ", ", other);
  return Error{Errc::kInvalidArgument,
               cat("the model has no chat template named '", name.substr(0, 80), "', only ", known), "chat_template"};
}

Result<std::string> ChatTemplate::render(const ChatTemplateInput& input) const {
  const auto chosen = choose(input);
  if (!chosen.ok()) return chosen.error();
  Sandbox box({});
  Variables variables(box, input, (*chosen)->traits);
  try {
    variables.read(special_tokens_);
  } catch (const Fault& fault) {
    return Error{fault.code, one_line(fault.message), variables.param()};
  }
  auto text = (*chosen)->parsed->render(box, variables.all(), input.now);
  if (!text.ok()) {
    Error error = text.error();
    // Whatever the template stumbles over came with the request: 400, as other servers answer.
    if (error.code == Errc::kMismatch || error.code == Errc::kUnsupported) {
      error = {Errc::kInvalidArgument, cat("the chat template cannot render this conversation: ", error.message), {}};
    }
    error.message = one_line(std::move(error.message));
    error.param = "messages";
    return error;
  }
  if (variables.mark().empty()) return text;
  return continued(std::move(*text), variables.mark());
}

std::string_view ChatTemplate::source() const {
  const auto at = templates_.find(kDefault);
  return at != templates_.end() ? at->second->source : templates_.begin()->second->source;
}

std::string_view ChatTemplate::tool_source() const {
  const auto at = templates_.find(kToolUse);
  return at != templates_.end() ? at->second->source : source();
}

std::vector<std::string_view> ChatTemplate::names() const {
  std::vector<std::string_view> out;
  for (const auto& [name, unused] : templates_) out.push_back(name);
  return out;
}

std::string_view raw_json_member(std::string_view body, std::string_view name) {
  std::string_view found, key;
  int depth = 0;
  size_t value_begin = 0;
  bool in_key = true;  // at depth 1: what comes next is a key
  const auto trimmed = [&](size_t begin, size_t end) {
    while (begin < end && std::string_view(" \t\r\n").find(body[begin]) != std::string_view::npos) ++begin;
    while (end > begin && std::string_view(" \t\r\n").find(body[end - 1]) != std::string_view::npos) --end;
    return body.substr(begin, end - begin);
  };
  const auto is_name = [&] {
    if (key.find('\\') == key.npos) return key == name;
    try {
      Sandbox box({});
      return read_json(box, cat("\"", key, "\""), "a name").str() == name;
    } catch (const Fault&) {
      return false;  // no JSON, then
    }
  };
  for (size_t at = 0; at < body.size(); ++at) {
    const char c = body[at];
    if (c == '"') {
      const size_t begin = at + 1;
      for (++at; at < body.size() && body[at] != '"'; ++at) {
        if (body[at] == '\\') ++at;
      }
      if (depth == 1 && in_key && at < body.size()) key = body.substr(begin, at - begin);
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == ':' && depth == 1) {
      in_key = false;
      value_begin = at + 1;
    } else if ((c == ',' && depth == 1) || ((c == '}' || c == ']') && depth-- == 1)) {
      if (!in_key && is_name()) found = trimmed(value_begin, at);
      in_key = true;
    }
  }
  return found;
}

}  // namespace helios
