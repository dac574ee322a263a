// The forward pass of a whole model, captured once and replayed, on the device that the test is linked for: logits
// against a float64 transformer written from its definition, the same bits at every tensor-parallel degree, in any
// chunks and in a graph of any size (X1).
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>

#include "tests/support/in_process_ranks.h"
#include "tests/support/test_device.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/support/tiny_quantised.h"
#include "worker/model/lm_head.h"
#include "worker/model/transformer.h"

namespace helios {
namespace {

constexpr int kSlots = 2, kMaxBlocks = 3, kMaxRows = 48, kMaxSampling = 70;
constexpr float kUntouched = -77.0f;

/// Rows of one step; logits are wanted of `sampling`.
struct Step {
  std::vector<int32_t> tokens, positions, slots, sampling;
  int64_t graph_rows = kMaxRows;

  void add(int32_t slot, const std::vector<int32_t>& sequence, int32_t begin, int32_t end) {
    for (int32_t p = begin; p < end; ++p) {
      tokens.push_back(sequence[static_cast<size_t>(p)]), positions.push_back(p), slots.push_back(slot);
    }
  }
  void sample_all() {
    sampling.resize(tokens.size());
    std::iota(sampling.begin(), sampling.end(), 0);
  }
};

using Logits = std::vector<std::vector<float>>;  // of each sampling row, the whole vocabulary

/// One rank's model: graphs of two sizes over the same buffers.
class RankModel {
 public:
  RankModel(const std::string& directory, DType round_to, int threads, Communicator& group, bool fast)
      : device_(testing::test_device(group.world_size(), threads)),
        config_(read_model_config(directory)),
        shape_(rank_shape(config_, group.rank(), group.world_size())),
        checkpoint_(Checkpoint::open(directory)),
        weights_(load_weights(checkpoint_, config_, shape_, round_to, *device_.backend, nullptr)),
        cache_(*device_.backend, config_.num_layers, shape_.num_kv(), config_.head_dim, DType::kFloat32,
               kSlots * kMaxBlocks),
        inputs_(device_.backend->device_memory(kInputWords * sizeof(int32_t))),
        counters_(device_.backend->device_memory(sizeof(StepCounters))),
        communicator_(captured(group, fast)),
        transformer_(config_, shape_, weights_, cache_, rows(), kMaxRows, kMaxBlocks * kKvBlockSize, round_to,
                     *communicator_, counters_.as<StepCounters>(), *device_.backend),
        head_(config_, shape_, weights_, transformer_.residual(), rows(), kMaxSampling, round_to, *device_.backend) {
    for (const int64_t max_rows : {int64_t{kMaxRows}, int64_t{2}}) {
      device_.compute->begin_capture();
      transformer_.record(*device_.compute, max_rows);
      head_.record(*device_.compute, kMaxSampling);
      graphs_[max_rows] = device_.compute->end_capture();
    }
  }

  /// This rank's columns of the sampling rows, and a row behind them.
  std::vector<float> run(const Step& step) {
    Memory staging = device_.backend->pinned_memory(kInputWords * sizeof(int32_t));
    auto* words = staging.as<int32_t>();
    words[0] = static_cast<int32_t>(step.tokens.size());
    words[1] = static_cast<int32_t>(step.sampling.size());
    std::copy(step.tokens.begin(), step.tokens.end(), words + 2);
    std::copy(step.positions.begin(), step.positions.end(), words + 2 + kMaxRows);
    std::copy(step.slots.begin(), step.slots.end(), words + 2 + 2 * kMaxRows);
    std::copy(step.sampling.begin(), step.sampling.end(), words + 2 + 3 * kMaxRows);
    constexpr std::array<int32_t, kSlots* kMaxBlocks> kBlocks = {4, 0, 3, 2, 5, 1};
    std::copy(kBlocks.begin(), kBlocks.end(), words + 2 + 3 * kMaxRows + kMaxSampling);
    device_.compute->copy(inputs_.data(), staging.data(), staging.bytes());
    device_.compute->replay(*graphs_.at(step.graph_rows));
    return read((step.sampling.size() + 1) * static_cast<size_t>(head_.logits_stride()), head_.logits());
  }
  /// Marks logits that no step has written.
  void fill_logits(float value) {
    Memory staging =
        device_.backend->pinned_memory(kMaxSampling * static_cast<size_t>(head_.logits_stride()) * sizeof(float));
    std::fill_n(staging.as<float>(), staging.bytes() / sizeof(float), value);
    device_.compute->copy(head_.logits(), staging.data(), staging.bytes());
    device_.compute->synchronize();
  }
  int64_t words_sent() { return std::bit_cast<StepCounters>(read_counters()).partial_sum_words; }
  int64_t stride() const { return head_.logits_stride(); }
  const RankShape& shape() const { return shape_; }

 private:
  static constexpr size_t kInputWords = 2 + 3 * kMaxRows + kMaxSampling + kSlots * kMaxBlocks;

  Communicator* captured(Communicator& group, bool fast) {
    owned_ = testing::captured_exchanges(group, device_, fast);
    return owned_ ? owned_.get() : &group;
  }
  StepRows rows() const {
    const auto* words = inputs_.as<int32_t>();
    return {.num_rows = words,
            .num_sampling = words + 1,
            .tokens = words + 2,
            .positions = words + 2 + kMaxRows,
            .slots = words + 2 + 2 * kMaxRows,
            .sampling_rows = words + 2 + 3 * kMaxRows,
            .block_tables = words + 2 + 3 * kMaxRows + kMaxSampling,
            .max_blocks = kMaxBlocks};
  }
  std::vector<float> read(size_t count, const float* from) {
    Memory staging = device_.backend->pinned_memory(count * sizeof(float));
    device_.compute->copy(staging.data(), from, staging.bytes());
    device_.compute->synchronize();
    return {staging.as<float>(), staging.as<float>() + count};
  }
  std::array<std::byte, sizeof(StepCounters)> read_counters() {
    Memory staging = device_.backend->pinned_memory(sizeof(StepCounters));
    device_.compute->copy(staging.data(), counters_.data(), staging.bytes());
    device_.compute->synchronize();
    std::array<std::byte, sizeof(StepCounters)> bytes;
    std::memcpy(bytes.data(), staging.data(), bytes.size());
    return bytes;
  }

  Device device_;
  std::unique_ptr<Communicator> owned_;
  const ModelConfig config_;
  const RankShape shape_;
  Checkpoint checkpoint_;
  const ModelWeights weights_;
  KvCache cache_;
  Memory inputs_, counters_;
  Communicator* const communicator_;
  Transformer transformer_;
  LmHead head_;
  std::map<int64_t, std::unique_ptr<Graph>> graphs_;
};

/// Logits of each step's sampling rows over all ranks, of the checkpoint in `directory`.
std::vector<Logits> run_steps_of(const std::string& directory, int world, const std::vector<Step>& steps,
                                 DType round_to, int threads, bool fast) {
  std::vector<Logits> out;
  for (const Step& step : steps) out.emplace_back(step.sampling.size(), std::vector<float>(testing::kTinyVocab));
  int64_t rows = 0;
  for (const Step& step : steps) rows += static_cast<int64_t>(step.tokens.size());
  testing::run_ranks(world, [&](Communicator& group) {
    RankModel model(directory, round_to, threads, group, fast);
    model.fill_logits(kUntouched);
    size_t most = 0;
    for (size_t s = 0; s < steps.size(); ++s) {
      const std::vector<float> own = model.run(steps[s]);
      const size_t sampled = steps[s].sampling.size(), columns = static_cast<size_t>(model.shape().vocab.size());
      for (size_t r = 0; r < sampled; ++r) {
        std::copy_n(&own[r * static_cast<size_t>(model.stride())], columns,
                    &out[s][r][static_cast<size_t>(model.shape().vocab.begin)]);
      }
      most = std::max(most, sampled);
      if (sampled == most) {
        EXPECT_EQ(own[sampled * static_cast<size_t>(model.stride())], kUntouched) << "a row past the step's";
      }
    }
    // Two exchanges a layer, of 48 words a row. What a library adds, it alone counts.
    EXPECT_EQ(model.words_sent(), world > 1 && !fast ? rows * 48 * 2 * 2 : 0);
  });
  return out;
}

std::vector<Logits> run_steps(int world, const std::vector<Step>& steps, DType round_to = DType::kFloat32,
                              int threads = 1, bool fast = false) {
  testing::TemporaryDirectory directory;
  testing::write_tiny_checkpoint(directory.path());
  return run_steps_of(directory.path(), world, steps, round_to, threads, fast);
}

/// The tiny model in float64: Qwen3 with RMS-normed queries and keys. Logits after each token.
class Definition {
 public:
  Definition() {
    for (testing::TinyTensor& t : tensors_) {
      std::vector<double>& values = weights_[t.name];
      for (size_t i = 0; i < t.bytes.size(); i += sizeof(float)) {
        float value;
        std::memcpy(&value, &t.bytes[i], sizeof value);
        values.push_back(value);
      }
    }
  }

  explicit Definition(std::map<std::string, std::vector<double>> weights) : weights_(std::move(weights)) {}

  std::vector<std::vector<double>> logits(const std::vector<int32_t>& tokens) const {
    std::vector<std::vector<double>> x;
    for (const int32_t token : tokens) {
      const auto from = weight("model.embed_tokens.weight").begin() + token * kHidden;
      x.emplace_back(from, from + kHidden);
    }
    for (int layer = 0; layer < 2; ++layer) {
      const std::string p = "model.layers." + std::to_string(layer) + ".";
      attend(p, x);
      for (std::vector<double>& row : x) {
        const std::vector<double> h = norm(row, weight(p + "post_attention_layernorm.weight"));
        std::vector<double> gate = product(p + "mlp.gate_proj.weight", h);
        const std::vector<double> up = product(p + "mlp.up_proj.weight", h);
        for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1.0 + std::exp(-gate[i])) * up[i];
        add(row, product(p + "mlp.down_proj.weight", gate));
      }
    }
    for (std::vector<double>& row : x) row = product("lm_head.weight", norm(row, weight("model.norm.weight")));
    return x;
  }

 private:
  static constexpr int kHidden = 48, kHeads = 6, kKvHeads = 2, kDim = 8;

  const std::vector<double>& weight(const std::string& name) const { return weights_.at(name); }
  static void add(std::vector<double>& to, const std::vector<double>& what) {
    for (size_t i = 0; i < to.size(); ++i) to[i] += what[i];
  }
  static std::vector<double> norm(std::vector<double> x, const std::vector<double>& w) {
    double squares = 0;
    for (const double v : x) squares += v * v;
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + static_cast<double>(1e-6f));
    for (size_t i = 0; i < x.size(); ++i) x[i] *= scale * w[i];
    return x;
  }
  std::vector<double> product(const std::string& name, const std::vector<double>& x) const {
    const std::vector<double>& w = weight(name);
    std::vector<double> out(w.size() / x.size());
    for (size_t n = 0; n < out.size(); ++n) out[n] = std::inner_product(x.begin(), x.end(), &w[n * x.size()], 0.0);
    return out;
  }
  /// Head `h` of a projection at a position, normed and rotated.
  std::vector<double> rotated(const std::vector<double>& all, int h, const std::vector<double>& w,
                              size_t position) const {
    std::vector<double> x = norm({all.begin() + h * kDim, all.begin() + (h + 1) * kDim}, w);
    for (int i = 0; i < kDim / 2; ++i) {
      const double angle = static_cast<double>(position) * std::pow(10000.0, -2.0 * i / kDim);
      const double a = x[i], b = x[i + kDim / 2];
      x[i] = a * std::cos(angle) - b * std::sin(angle);
      x[i + kDim / 2] = b * std::cos(angle) + a * std::sin(angle);
    }
    return x;
  }
  void attend(const std::string& p, std::vector<std::vector<double>>& x) const {
    std::vector<std::vector<double>> keys, values;  // of each position, both KV heads
    for (size_t t = 0; t < x.size(); ++t) {
      const std::vector<double> h = norm(x[t], weight(p + "input_layernorm.weight"));
      const std::vector<double> q = product(p + "self_attn.q_proj.weight", h),
                                k = product(p + "self_attn.k_proj.weight", h);
      values.push_back(product(p + "self_attn.v_proj.weight", h));
      keys.emplace_back();
      for (int kv = 0; kv < kKvHeads; ++kv) {
        const std::vector<double> key = rotated(k, kv, weight(p + "self_attn.k_norm.weight"), t);
        keys[t].insert(keys[t].end(), key.begin(), key.end());
      }
      std::vector<double> out(kHidden, 0.0);
      for (int head = 0; head < kHeads; ++head) {
        const int kv = head / (kHeads / kKvHeads);
        const std::vector<double> query = rotated(q, head, weight(p + "self_attn.q_norm.weight"), t);
        std::vector<double> weights;
        double mass = 0;
        for (size_t s = 0; s <= t; ++s) {
          const double score =
              std::inner_product(query.begin(), query.end(), &keys[s][static_cast<size_t>(kv * kDim)], 0.0);
          weights.push_back(std::exp(score / std::sqrt(static_cast<double>(kDim))));
          mass += weights.back();
        }
        for (size_t s = 0; s <= t; ++s) {
          for (int d = 0; d < kDim; ++d)
            out[head * kDim + d] += weights[s] / mass * values[s][static_cast<size_t>(kv * kDim + d)];
        }
      }
      // The residual of this position is done with as an input: later positions read keys and values alone.
      add(x[t], product(p + "self_attn.o_proj.weight", out));
    }
  }

  std::vector<testing::TinyTensor> tensors_ = testing::tiny_tensors();
  std::map<std::string, std::vector<double>> weights_;
};

std::vector<int32_t> sequence(int length, int32_t seed) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < length; ++i) tokens.push_back((seed + i * 97 + i * i * 31) % testing::kTinyVocab);
  return tokens;
}

const std::vector<int32_t> kLong = sequence(40, 5), kShort = sequence(6, 211);

/// Both sequences: a prefill over a KV block's end, a chunk beside a decode, decodes in a small graph, an empty step.
std::vector<Step> mixed_steps() {
  std::vector<Step> steps(5);
  steps[0].add(1, kLong, 0, 34);
  steps[0].add(0, kShort, 0, 3);
  steps[0].sample_all();
  for (int32_t r = 0; r < 31; ++r) steps[0].sampling.push_back(r + 6);  // more than a block of the head
  steps[1].add(0, kShort, 3, 4);
  steps[1].add(1, kLong, 34, 38);
  steps[1].sampling = {0, 4};
  steps[2].add(1, kLong, 38, 39);
  steps[2].add(0, kShort, 4, 5);
  steps[2].graph_rows = 2;
  steps[2].sample_all();
  steps[4].add(0, kShort, 5, 6);
  steps[4].graph_rows = 2;
  steps[4].sample_all();
  return steps;
}

/// Everything in one prefill.
std::vector<Step> whole_steps() {
  std::vector<Step> steps(1);
  steps[0].add(0, kLong, 0, 40);
  steps[0].add(1, kShort, 0, 6);
  steps[0].sample_all();
  return steps;
}

std::vector<uint32_t> bits(const std::vector<float>& values) {
  std::vector<uint32_t> out;
  for (const float value : values) out.push_back(std::bit_cast<uint32_t>(value));
  return out;
}

// Logits are of size 3; FP32 through two layers of sums of 48 terms.
constexpr double kTolerance = 2e-5;

TEST(Forward, X1_LogitsMeetFloat64AndAreTheSameBitsAtEveryDegreeAndChunking) {
  const Definition definition;
  const std::vector<std::vector<double>> of_long = definition.logits(kLong), of_short = definition.logits(kShort);
  const Logits whole = run_steps(1, whole_steps())[0];
  const auto bits_at = [&](int32_t slot, int32_t position) {
    return bits(whole[static_cast<size_t>(slot == 1 ? position : 40 + position)]);
  };
  for (size_t r = 0; r < whole.size(); ++r) {
    const std::vector<double>& expected = r < 40 ? of_long[r] : of_short[r - 40];
    for (size_t id = 0; id < expected.size(); ++id)
      ASSERT_NEAR(whole[r][id], expected[id], kTolerance) << r << " id " << id;
  }
  const std::vector<Step> steps = mixed_steps();
  for (const int world : {1, 2, 4, 8}) {
    const std::vector<Logits> got = run_steps(world, steps, DType::kFloat32, world == 1 ? 2 : 1);
    for (size_t s = 0; s < steps.size(); ++s) {
      for (size_t r = 0; r < steps[s].sampling.size(); ++r) {
        const auto row = static_cast<size_t>(steps[s].sampling[r]);
        ASSERT_EQ(bits(got[s][r]), bits_at(steps[s].slots[row], steps[s].positions[row]))
            << "TP " << world << " step " << s << " sampling row " << r;
      }
    }
  }
}

// Quantised weights are what they say they are, in blocks that end where no segment and no shard does too.
TEST(Forward, X1_QuantisedWeightsMeetFloat64AndAreTheSameBitsAtEveryDegreeAndChunking) {
  for (const testing::TinyScheme& scheme : testing::tiny_schemes()) {
    SCOPED_TRACE(scheme.quantization);
    testing::TemporaryDirectory directory;
    const testing::TinyQuantised tiny(scheme);
    tiny.write(directory.path());
    if (testing::kGpuKernels) {
      testing::run_ranks(1, [&](Communicator& group) {
        EXPECT_THROW(RankModel(directory.path(), DType::kFloat32, 1, group, false), LoadError);
      });
      continue;
    }
    const std::vector<std::vector<double>> expected = Definition(tiny.values).logits(kLong);
    const Logits whole = run_steps_of(directory.path(), 1, whole_steps(), DType::kFloat32, 1, false)[0];
    for (size_t r = 0; r < 40; ++r) {
      for (size_t id = 0; id < expected[r].size(); ++id)
        ASSERT_NEAR(whole[r][id], expected[r][id], kTolerance) << r << " id " << id;
    }
    const std::vector<Step> steps = mixed_steps();
    for (const int world : {1, 2, 4, 8}) {
      const std::vector<Logits> got = run_steps_of(directory.path(), world, steps, DType::kFloat32, 1, false);
      for (size_t s = 0; s < steps.size(); ++s) {
        for (size_t r = 0; r < steps[s].sampling.size(); ++r) {
          const auto row = static_cast<size_t>(steps[s].sampling[r]);
          const int32_t at = steps[s].positions[row] + (steps[s].slots[row] == 1 ? 0 : 40);
          ASSERT_EQ(bits(got[s][r]), bits(whole[static_cast<size_t>(at)])) << "TP " << world << " step " << s;
        }
      }
    }
  }
}

// Of F16 weights a GPU takes every input in three scaled pieces. Exact products on every device.
TEST(Forward, X1_AnF16CheckpointMeetsFloat64AtEveryDegree) {
  std::map<std::string, std::vector<double>> weights;
  std::vector<testing::TinyTensor> tensors = testing::tiny_tensors();
  for (testing::TinyTensor& t : tensors) {
    std::vector<std::byte> halves;
    for (size_t i = 0; i < t.bytes.size(); i += sizeof(float)) {
      float value;
      std::memcpy(&value, &t.bytes[i], sizeof value);
      const uint16_t half = float_to_f16(value);
      weights[t.name].push_back(f16_to_float(half));
      const auto* from = reinterpret_cast<const std::byte*>(&half);
      halves.insert(halves.end(), from, from + sizeof half);
    }
    t.dtype = "F16";
    t.bytes = std::move(halves);
  }
  testing::TemporaryDirectory directory;
  testing::write_file(directory.path() + "/config.json", testing::tiny_config_json());
  testing::write_file(directory.path() + "/model.safetensors", testing::safetensors_bytes(tensors));
  const std::vector<std::vector<double>> expected = Definition(weights).logits(kLong);
  const auto run = [&](int world, const std::vector<Step>& steps) {
    return run_steps_of(directory.path(), world, steps, DType::kFloat32, 1, false);
  };
  const Logits whole = run(1, whole_steps())[0];
  for (size_t r = 0; r < expected.size(); ++r) {
    for (size_t id = 0; id < expected[r].size(); ++id)
      ASSERT_NEAR(whole[r][id], expected[r][id], kTolerance) << "row " << r << " id " << id;
  }
  for (const int world : {2, 8}) {  // of eight ranks, two have no head
    const Logits found = run(world, mixed_steps())[0];
    for (size_t r = 0; r < 34; ++r) ASSERT_EQ(bits(found[r]), bits(whole[r])) << "TP " << world << " row " << r;
  }
}

// --tp-reduce fast: another order of the ranks' sums, and nothing else.
TEST(Forward, SumsOfTheGroupsLibraryMeetFloat64) {
  if (!testing::kGpuKernels) GTEST_SKIP() << "groups of CPU ranks gather";
  const std::vector<std::vector<double>> expected = Definition().logits(kLong);
  for (const int world : {2, 8}) {  // of eight ranks, two have no head
    const Logits found = run_steps(world, whole_steps(), DType::kFloat32, 1, true)[0];
    for (size_t r = 0; r < expected.size(); ++r) {
      for (size_t id = 0; id < expected[r].size(); ++id)
        ASSERT_NEAR(found[r][id], expected[r][id], kTolerance) << world << " ranks, row " << r << " id " << id;
    }
  }
}

TEST(Forward, X1_RoundedInputsAreRoundedOnceAndStayTheSameBits) {
  const std::vector<std::vector<double>> expected = Definition().logits(kLong);
  // BF16 keeps 8 bits, F16 11 of these magnitudes: an eighth of the difference.
  for (const auto& [type, most, least] :
       {std::tuple{DType::kBFloat16, 0.3, 0.002}, {DType::kFloat16, 0.3 / 8, 0.0002}}) {
    const Logits rounded = run_steps(1, whole_steps(), type)[0];
    double largest = 0;
    for (size_t r = 0; r < 40; ++r) {
      for (size_t id = 0; id < expected[r].size(); ++id) {
        largest = std::max(largest, std::fabs(rounded[r][id] - expected[r][id]));
      }
    }
    EXPECT_LT(largest, most);
    EXPECT_GT(largest, least) << "nothing was rounded";
    const Logits two = run_steps(2, whole_steps(), type)[0];
    for (size_t r = 0; r < rounded.size(); ++r) ASSERT_EQ(bits(two[r]), bits(rounded[r])) << r;
  }
}

}  // namespace
}  // namespace helios
