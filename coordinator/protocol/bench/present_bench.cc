// What presenting tokens with logprobs costs one core: from a decoded token to the bytes of a stream, and the JSON of
// it alone, for each API and number of alternatives.
//
//   helios-present-bench DIR    DIR holds tokenizer.json and tokenizer_config.json
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "coordinator/output/sequence_output.h"
#include "coordinator/protocol/chat_response.h"
#include "coordinator/protocol/completions_response.h"
#include "coordinator/protocol/responses_response.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace helios {
namespace {

constexpr int kPositions = 4000;
constexpr int kRounds = 5;  // the best counts

std::vector<TokenEvent> random_events(const Tokenizer& tokenizer, int alternatives) {
  std::mt19937 random(1);
  // Small ids are common tokens, and come more often.
  std::uniform_real_distribution<double> unit(0.0, 1.0);
  const auto token = [&] {
    return static_cast<TokenId>(std::pow(unit(random), 3) * static_cast<double>(tokenizer.vocab_size()));
  };
  std::uniform_real_distribution<float> step(0.001f, 1.0f);
  std::vector<TokenEvent> events;
  while (events.size() < kPositions) {
    TokenEvent event{.token = token()};
    if (!tokenizer.contains(event.token) || tokenizer.is_special(event.token)) continue;
    PositionLogprobs logprobs{.chosen = -step(random), .alternatives = {}};
    float value = logprobs.chosen;
    for (int i = 0; i < alternatives; ++i, value -= step(random)) {
      logprobs.alternatives.push_back({i == 0 ? event.token : token(), value});
    }
    event.logprobs = std::move(logprobs);
    events.push_back(std::move(event));
  }
  return events;
}

std::unique_ptr<ReplyFormat> format_of(const std::string& api, const GenerationPlan& plan, const Tokenizer& tokenizer) {
  ReplyHeader header{.id = "0123456789abcdef0123456789abcdef", .created = 1767225600, .model = "m", .fingerprint = "f"};
  if (api == "completions") return std::make_unique<CompletionsFormat>(plan, std::move(header));
  if (api == "chat") return std::make_unique<ChatFormat>(plan, std::move(header), tokenizer);
  return std::make_unique<ResponsesFormat>(plan, std::move(header), ResponsesEcho(), tokenizer);
}

/// Of this thread: others on the machine do not count.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Cost {
  double text = 1e30, whole = 1e30;  // seconds: to the delta, and to its JSON
  size_t bytes = 0;
};

Cost measure(const std::string& api, const Tokenizer& tokenizer, const std::vector<TokenEvent>& events) {
  GenerationPlan plan;
  plan.prompts.push_back({.ids = {1}});
  plan.stream = true;
  plan.logprobs = true;
  Cost cost;
  for (int round = 0; round < 2 * kRounds; ++round) {
    const bool with_json = round % 2 == 1;
    const std::unique_ptr<ReplyFormat> format = format_of(api, plan, tokenizer);
    SequenceOutput output(tokenizer, plan.output, plan.prompts[0].ids);
    std::string bytes;
    size_t total = 0;
    const double begin = cpu_seconds();
    for (const TokenEvent& event : events) {
      const OutputDelta delta = output.push(event);
      if (!with_json) continue;
      bytes.clear();
      if (!format->take(0, delta, {.usage = {1, 1, {}, {}}}, bytes)) return {};
      total += bytes.size();
    }
    double& best = with_json ? cost.whole : cost.text;
    best = std::min(best, cpu_seconds() - begin);
    cost.bytes = std::max(cost.bytes, total);
  }
  return cost;
}

int run(const char* dir) {
  const auto tokenizer = Tokenizer::load(dir);
  if (!tokenizer) {
    std::fprintf(stderr, "helios-present-bench: %s\n", tokenizer.error().message.c_str());
    return 1;
  }
  std::printf("api          K   positions/s   of them JSON alone   bytes/position\n");
  for (const char* api : {"completions", "chat", "responses"}) {
    for (const int alternatives : {0, 5, 20}) {
      const Cost cost = measure(api, **tokenizer, random_events(**tokenizer, alternatives));
      std::printf("%-11s %2d %13.0f %20.0f %16.0f\n", api, alternatives, kPositions / cost.whole,
                  kPositions / (cost.whole - cost.text), static_cast<double>(cost.bytes) / kPositions);
    }
  }
  return 0;
}

}  // namespace
}  // namespace helios

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: helios-present-bench DIR\n");
    return 1;
  }
  return helios::run(argv[1]);
}
