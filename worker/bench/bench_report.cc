#include "worker/bench/bench_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace helios {
namespace {

const char* work_name(const BenchWork& work) { return work.scored ? "scored" : work.prefill ? "prefill" : "decode"; }

const char* sampling_name(const BenchWork& work) { return work.sampled ? "filtered" : "greedy"; }

/// Ratios of the ranks to one process, lowest first.
std::vector<double> ratios_of(const BenchPairs& pairs) {
  std::vector<double> ratios;
  for (size_t i = 0; i < pairs.ranks.size(); ++i) ratios.push_back(pairs.ranks[i] / pairs.one[i]);
  std::sort(ratios.begin(), ratios.end());
  return ratios;
}

}  // namespace

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

BenchFigure bench_figure(const BenchWork& work, const BenchCost& cost, const MachineLimits& limits,
                         std::vector<double> seconds, const BenchWords& words) {
  const double time = median_of(std::move(seconds));
  return {.work = work,
          .tokens_per_s = work.tokens / time,
          .bytes_per_token = cost.bytes / work.tokens,
          .share_of_bandwidth = cost.bytes / time / (limits.read_gb_per_s * 1e9),
          .share_of_fma = cost.flops / time / (limits.fma_gflop_per_s * 1e9),
          .words_per_token = words.all / work.tokens,
          .sampler_words_per_token = words.sampler / work.tokens};
}

void print_table(std::FILE* out, const BenchOptions& options, const MachineLimits& limits, const BenchMemory& memory,
                 const std::vector<BenchFigure>& figures) {
  fmt::print(out, "{}: {} rank{}, {} thread{} each, medians of {} rounds\n", options.model_dir, options.ranks,
             options.ranks == 1 ? "" : "s", options.threads, options.threads == 1 ? "" : "s", options.rounds);
  fmt::print(out, "limits of this machine with {} threads: {:.1f} GB/s read, {:.0f} GFLOP/s FP32 FMA\n",
             options.ranks * options.threads, limits.read_gb_per_s, limits.fma_gflop_per_s);
  fmt::print(out, "memory of a rank: {:.0f} MB of weights, {:.0f} MB of KV cache, {:.0f} MB resident at most\n\n",
             memory.weights_bytes * 1e-6, memory.kv_cache_bytes * 1e-6, memory.peak_bytes * 1e-6);
  fmt::print(out, "{:<8} {:>6} {:>6} {:>9} {:>9} {:>10} {:>10} {:>14} {:>12} {:>13} {:>12}\n", "work", "tokens",
             "batch", "sampling", "logprobs", "tokens/s", "MB/token", "of bandwidth", "of FMA peak", "words/token",
             "sampler's");
  for (const BenchFigure& f : figures) {
    fmt::print(out, "{:<8} {:>6} {:>6} {:>9} {:>9} {:>10.1f} {:>10.1f} {:>13.1f}% {:>11.1f}% {:>13.0f} {:>12.1f}\n",
               work_name(f.work), f.work.tokens, f.work.batch, sampling_name(f.work), f.work.logprobs, f.tokens_per_s,
               f.bytes_per_token * 1e-6, f.share_of_bandwidth * 100, f.share_of_fma * 100, f.words_per_token,
               f.sampler_words_per_token);
  }
  for (size_t i = 1; i < figures.size(); ++i) {  // each scored prefill follows the ordinary one
    if (!figures[i].work.scored) continue;
    fmt::print(out, "{}scored prefill of {} tokens: {:.2f} of ordinary prefill\n", i == 1 ? "\n" : "",
               figures[i].work.tokens, figures[i].tokens_per_s / figures[i - 1].tokens_per_s);
  }
  fmt::print(out,
             "\nwords: of 32 bits, sent by each rank to its peers; filtered: temperature 1, top-k 50, top-p 0.9, "
             "min-p 0.01\n");
}

void print_json(std::FILE* out, const BenchOptions& options, const MachineLimits& limits, const BenchMemory& memory,
                const std::vector<BenchFigure>& figures) {
  for (const BenchFigure& f : figures) {
    fmt::print(
        out,
        "{{\"work\":\"{}\",\"tokens\":{},\"batch\":{},\"ranks\":{},\"threads\":{},\"logprobs\":{},"
        "\"tokens_per_s\":{:.3f},\"bytes_per_token\":{:.0f},\"share_of_bandwidth\":{:.4f},\"share_of_fma\":{:.4f},"
        "\"sampling\":\"{}\",\"words_per_token\":{:.1f},\"sampler_words_per_token\":{:.1f},\"peak_bytes\":{:.0f},"
        "\"peak_bytes_all_ranks\":{:.0f},\"weights_bytes\":{:.0f},\"kv_cache_bytes\":{:.0f},\"read_gb_per_s\":{:.2f},"
        "\"fma_gflop_per_s\":{:.1f}}}\n",
        work_name(f.work), f.work.tokens, f.work.batch, options.ranks, options.threads, f.work.logprobs, f.tokens_per_s,
        f.bytes_per_token, f.share_of_bandwidth, f.share_of_fma, sampling_name(f.work), f.words_per_token,
        f.sampler_words_per_token, memory.peak_bytes, memory.peak_bytes_all_ranks, memory.weights_bytes,
        memory.kv_cache_bytes, limits.read_gb_per_s, limits.fma_gflop_per_s);
  }
}

void print_pairs(std::FILE* out, const BenchOptions& options, const std::vector<BenchWork>& plan,
                 const std::vector<BenchPairs>& pairs) {
  if (!options.json) {
    fmt::print(out, "{}: one process of {} threads and {} ranks of {}, in turn, medians of {} pairs\n\n",
               options.model_dir, options.ranks * options.threads, options.ranks, options.threads, options.rounds);
    fmt::print(out, "{:<8} {:>6} {:>6} {:>9} {:>9} {:>14} {:>14} {:>8}  {}\n", "work", "tokens", "batch", "sampling",
               "logprobs", "one: tokens/s", "ranks: tokens/s", "ratio", "half of the pairs between");
  }
  for (size_t i = 0; i < plan.size(); ++i) {
    const BenchWork& work = plan[i];
    const std::vector<double> ratios = ratios_of(pairs[i]);
    const double one = median_of(pairs[i].one), ranks = median_of(pairs[i].ranks), ratio = median_of(ratios);
    const double low = ratios[ratios.size() / 4], high = ratios[ratios.size() - 1 - ratios.size() / 4];
    if (options.json) {
      fmt::print(out,
                 "{{\"work\":\"{}\",\"tokens\":{},\"batch\":{},\"sampling\":\"{}\",\"logprobs\":{},\"ranks\":{},"
                 "\"threads\":{},\"pairs\":{},\"one_tokens_per_s\":{:.3f},\"ranks_tokens_per_s\":{:.3f},"
                 "\"ratio\":{:.4f},\"ratio_low_quartile\":{:.4f},\"ratio_high_quartile\":{:.4f}}}\n",
                 work_name(work), work.tokens, work.batch, sampling_name(work), work.logprobs, options.ranks,
                 options.threads, ratios.size(), one, ranks, ratio, low, high);
    } else {
      fmt::print(out, "{:<8} {:>6} {:>6} {:>9} {:>9} {:>14.1f} {:>14.1f} {:>8.3f}  {:.3f} to {:.3f}\n", work_name(work),
                 work.tokens, work.batch, sampling_name(work), work.logprobs, one, ranks, ratio, low, high);
    }
  }
}

}  // namespace helios
