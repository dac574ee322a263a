// One accepted request on its way back: token events of all its choices to a reply, or to a stream's chunks.
//
// Owns the choices' streams: destroying it cancels those that still run. It takes events only when the connection asks
// (pump), so a slow client makes the streams fill and the engine pause, and nothing piles up here. Thread: the
// connection's strand.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/engine/engine_client.h"
#include "coordinator/http/message.h"
#include "coordinator/http/metrics.h"
#include "coordinator/output/prompt_output.h"
#include "coordinator/output/sequence_output.h"
#include "coordinator/protocol/generation_plan.h"
#include "coordinator/protocol/reply_format.h"

namespace helios {

class GenerationReply final : public PendingReply {
 public:
  /// `format` may borrow `*plan`. `streams`: of the plan's sequences, in their order. `tokenizer` and `metrics` outlive
  /// this.
  GenerationReply(std::unique_ptr<GenerationPlan> plan, std::unique_ptr<ReplyFormat> format, const Tokenizer& tokenizer,
                  std::vector<std::shared_ptr<SequenceStream>> streams, ServerMetrics& metrics,
                  bool prompt_tokens_details = false);
  ~GenerationReply() override;

  State pump(std::string& events) override;
  HttpReply reply() override;
  void fail(Error error) override;

 private:
  struct Choice {
    std::shared_ptr<SequenceStream> stream;
    std::optional<SequenceOutput> output;       // with a stream
    std::optional<PromptOutput> prompt_output;  // of the choice that scores the prompt
    std::vector<OutputEntry> prompt_held;       // streams: the latest chunk of scores, for the next delta's chunk
    bool awaits_scores = false;                 // another choice of this prompt scores it: first that, then its tokens
    int64_t prompt = 0;                         // index
    int64_t num_generated = 0;
    int64_t cached_tokens = 0;
    OutputDelta held;      // stream_interval: released, not yet sent
    bool started = false;  // its first chunk is out
    bool finished = false;
  };

  /// Takes one event of this choice; false when there is none.
  bool advance(int64_t index, std::string& events);
  /// The choices that show the scores of choice `index`: one past the last.
  int64_t end_of_sharers(int64_t index) const;
  void take_scores(int64_t index, const PromptScores& scores, std::string& events);
  /// `last`: the prompt's scores are all that this choice shows.
  void show_scores(int64_t index, std::vector<OutputEntry> entries, bool last, std::string& events);
  void end_scores(int64_t index);
  void deliver(int64_t index, OutputDelta&& delta, std::string& events);
  /// Holds the delta until stream_interval tokens are together; a choice's first and last go out at once.
  void stream_delta(int64_t index, OutputDelta&& delta, std::string& events);
  void present(int64_t index, const OutputDelta& delta, std::string& events);
  State conclude_with_error(std::string& events);
  void cancel_running();
  std::optional<int64_t> cached_tokens(const Choice& choice) const;
  Usage usage() const;

  const std::unique_ptr<GenerationPlan> plan_;
  const std::unique_ptr<ReplyFormat> format_;
  ServerMetrics& metrics_;
  const bool prompt_tokens_details_;
  std::vector<Choice> choices_;
  std::optional<Error> error_;
  size_t next_ = 0;  // the choice whose turn it is
  size_t num_running_ = 0;
  bool begun_ = false;     // the stream has said that its request is accepted
  bool streamed_ = false;  // some bytes of the stream are out
};

}  // namespace helios
