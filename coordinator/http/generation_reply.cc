#include "coordinator/http/generation_reply.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "coordinator/tokenizer/utf8.h"

namespace helios {
namespace {

/// What one write may hold: enough to amortise it, little enough that a slow client holds back the engine and not
/// memory.
constexpr size_t kMaxPumpBytes = 32 * 1024;

/// What one chunk may gather, however large the interval: streams keep no histories.
constexpr int64_t kMaxTokensPerChunk = 1024;

void append(OutputDelta& to, OutputDelta delta) {
  std::move(delta.prompt.begin(), delta.prompt.end(), std::back_inserter(to.prompt));
  to.text += delta.text;
  std::move(delta.entries.begin(), delta.entries.end(), std::back_inserter(to.entries));
  to.token_starts.insert(to.token_starts.end(), delta.token_starts.begin(), delta.token_starts.end());
  to.token_ids.insert(to.token_ids.end(), delta.token_ids.begin(), delta.token_ids.end());
  to.finish = std::move(delta.finish);
}

OutputDelta length_delta() {
  OutputDelta delta;
  delta.finish = OutputFinish{.reason = "length", .stop_string = {}, .stop_token = {}};
  return delta;
}

}  // namespace

GenerationReply::GenerationReply(std::unique_ptr<GenerationPlan> plan, std::unique_ptr<ReplyFormat> format,
                                 const Tokenizer& tokenizer, std::vector<std::shared_ptr<SequenceStream>> streams,
                                 ServerMetrics& metrics, bool prompt_tokens_details)
    : plan_(std::move(plan)),
      format_(std::move(format)),
      metrics_(metrics),
      prompt_tokens_details_(prompt_tokens_details),
      choices_(plan_->num_choices()),
      num_running_(choices_.size()) {
  const size_t n = static_cast<size_t>(plan_->n);
  const size_t stride = streams.size() == choices_.size() ? 1 : n;  // a zero budget: the first choices alone
  HELIOS_CHECK(streams.empty() || streams.size() * stride == choices_.size(), streams.size(), choices_.size());
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    choice.prompt = static_cast<int64_t>(i / n);
    if (streams.empty()) continue;
    choice.awaits_scores = plan_->scores_in_every_choice && i % n != 0;
    if (i % stride != 0) continue;
    choice.stream = std::move(streams[i / stride]);
    const PlannedPrompt& prompt = plan_->prompts[static_cast<size_t>(choice.prompt)];
    OutputOptions options = plan_->output;
    if (plan_->prompt_scoring.any() && i % n == 0) {
      choice.prompt_output.emplace(tokenizer, options.tokens_as_token_ids, prompt.ids, prompt.text_offsets);
    }
    if (plan_->prompt_scoring.echo_alternatives) options.text_offset_base = count_code_points(prompt.echo_text);
    choice.output.emplace(tokenizer, std::move(options), prompt.ids);
  }
}

GenerationReply::~GenerationReply() { cancel_running(); }

void GenerationReply::cancel_running() {
  for (Choice& choice : choices_) {
    if (choice.finished) continue;
    choice.finished = true;
    if (choice.stream) choice.stream->cancel();
    metrics_.on_choice_finished(error_ ? "error" : "abort");
  }
  num_running_ = 0;
}

void GenerationReply::fail(Error error) {
  if (!error_) error_ = std::move(error);
}

PendingReply::State GenerationReply::pump(std::string& events) {
  if (plan_->stream && !begun_ && !error_) format_->begin_stream(events);
  begun_ = true;
  // One event of each choice in turn, so that the choices of a stream advance together.
  size_t idle_choices = 0;
  while (num_running_ > 0 && !error_ && idle_choices < choices_.size()) {
    const size_t index = next_;
    next_ = (next_ + 1) % choices_.size();
    idle_choices = advance(static_cast<int64_t>(index), events) ? 0 : idle_choices + 1;
    if (events.size() >= kMaxPumpBytes && num_running_ > 0 && !error_) {
      streamed_ = true;
      return State::kMore;
    }
  }
  if (error_) return conclude_with_error(events);
  if (num_running_ == 0) {
    if (!plan_->stream) return State::kReply;
    format_->end_stream(usage(), events);
    return State::kStreamed;
  }
  streamed_ |= !events.empty();
  return State::kWaiting;
}

bool GenerationReply::advance(int64_t index, std::string& events) {
  Choice& choice = choices_[index];
  if (choice.finished || choice.awaits_scores) return false;
  if (!choice.stream) {
    deliver(index, length_delta(), events);
    return true;
  }
  std::optional<SequenceEvent> event = choice.stream->try_pop();
  if (!event) return false;
  if (Error* error = std::get_if<Error>(&*event)) {
    fail(std::move(*error));
    return true;
  }
  if (const auto* scores = std::get_if<PromptScores>(&*event)) {
    take_scores(index, *scores, events);
    return true;
  }
  const TokenEvent& token = std::get<TokenEvent>(*event);
  if (token.finish == FinishCode::kError) {
    fail({Errc::kInternal, "the model failed on this request", ""});
    return true;
  }
  OutputDelta delta = choice.output->push(token);
  if (choice.prompt_output) end_scores(index);
  delta.prompt = std::exchange(choice.prompt_held, {});
  choice.num_generated = choice.output->num_generated();
  choice.cached_tokens = choice.stream->cached_tokens();
  deliver(index, std::move(delta), events);
  return true;
}

int64_t GenerationReply::end_of_sharers(int64_t index) const {
  return index + (plan_->scores_in_every_choice ? plan_->n : 1);
}

void GenerationReply::take_scores(int64_t index, const PromptScores& scores, std::string& events) {
  std::vector<OutputEntry> entries;
  choices_[index].prompt_output->push(scores, &entries);
  const bool last = scores.finish != FinishCode::kNone;
  for (int64_t i = index; i < end_of_sharers(index); ++i) show_scores(i, entries, last, events);
}

/// A stream's last chunk of scores rides with what follows it: with the first token, or with the end.
void GenerationReply::show_scores(int64_t index, std::vector<OutputEntry> entries, bool last, std::string& events) {
  Choice& choice = choices_[index];
  OutputDelta delta;
  if (last) {
    delta = length_delta();
    delta.prompt = std::exchange(choice.prompt_held, {});
  }
  std::move(entries.begin(), entries.end(), std::back_inserter(delta.prompt));
  if (!plan_->stream || delta.finish) return deliver(index, std::move(delta), events);
  OutputDelta before;
  before.prompt = std::exchange(choice.prompt_held, std::move(delta.prompt));
  if (!before.prompt.empty()) deliver(index, std::move(before), events);
}

/// The choice has its first token. A prompt of one token has no scores, but its position is shown.
void GenerationReply::end_scores(int64_t index) {
  std::vector<OutputEntry> entries;
  choices_[index].prompt_output->begin(&entries);
  for (int64_t i = index; i < end_of_sharers(index); ++i) {
    Choice& choice = choices_[i];
    choice.awaits_scores = false;
    choice.prompt_held.insert(choice.prompt_held.end(), entries.begin(), entries.end());
  }
}

void GenerationReply::deliver(int64_t index, OutputDelta&& delta, std::string& events) {
  Choice& choice = choices_[index];
  if (delta.finish) {
    choice.finished = true;
    --num_running_;
    if (choice.stream) choice.stream->cancel();  // a string stop is ours: the engine does not know of it
    metrics_.on_choice_finished(delta.finish->reason);
  }
  if (plan_->stream) {
    stream_delta(index, std::move(delta), events);
  } else {
    present(index, delta, events);
  }
}

void GenerationReply::stream_delta(int64_t index, OutputDelta&& delta, std::string& events) {
  Choice& choice = choices_[index];
  if (plan_->stream_interval == 1) return present(index, delta, events);
  const bool at_once = !choice.started || delta.finish || !delta.prompt.empty();
  append(choice.held, std::move(delta));
  const auto held = static_cast<int64_t>(choice.held.token_ids.size());
  if (!at_once && held < std::min(plan_->stream_interval, kMaxTokensPerChunk)) return;
  present(index, std::exchange(choice.held, {}), events);
}

void GenerationReply::present(int64_t index, const OutputDelta& delta, std::string& events) {
  Choice& choice = choices_[index];
  choice.started = true;
  const auto prompt_tokens = static_cast<int64_t>(plan_->prompts[choice.prompt].ids.size());
  const ChoiceProgress progress{.usage = {prompt_tokens, choice.num_generated, cached_tokens(choice)},
                                .last = num_running_ == 0};
  if (Status status = format_->take(index, delta, progress, events); !status) fail(std::move(status).error());
}

PendingReply::State GenerationReply::conclude_with_error(std::string& events) {
  cancel_running();
  if (!plan_->stream || (!streamed_ && events.empty())) return State::kReply;  // still time for a real status
  format_->fail_stream(*error_, events);
  return State::kStreamed;
}

HttpReply GenerationReply::reply() { return error_ ? error_reply(*error_) : json_reply(200, format_->reply(usage())); }

std::optional<int64_t> GenerationReply::cached_tokens(const Choice& choice) const {
  return prompt_tokens_details_ ? std::optional(choice.cached_tokens) : std::nullopt;
}

/// A prompt counts once however many choices it has; what it found in the cache is what its first choice found.
Usage GenerationReply::usage() const {
  Usage usage;
  for (const PlannedPrompt& prompt : plan_->prompts) usage.prompt_tokens += static_cast<int64_t>(prompt.ids.size());
  for (const Choice& choice : choices_) usage.completion_tokens += choice.num_generated;
  for (size_t i = 0; i < choices_.size(); i += static_cast<size_t>(plan_->n)) {
    if (const auto cached = cached_tokens(choices_[i])) usage.cached_tokens = usage.cached_tokens.value_or(0) + *cached;
  }
  return usage;
}

}  // namespace helios
