// Quantised checkpoints whose files do not hold what their config.json says, by name and by seeded damage: a clear
// LoadError, never a crash, never a number that is none.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "tests/support/test_device.h"
#include "tests/support/tiny_quantised.h"
#include "worker/model/weights.h"

namespace helios {
namespace {

using testing::TinyQuantised;
using testing::TinyTensor;

class QuantisedCheckpoint : public ::testing::Test {
 protected:
  /// Loads one rank's part; the refusal, or "".
  std::string load(int rank = 0, int world = 1) {
    try {
      const ModelConfig config = read_model_config(directory_.path());
      Checkpoint checkpoint = Checkpoint::open(directory_.path());
      const RankShape shape = rank_shape(config, Rank(rank), world);
      weights_bytes_ = load_weights(checkpoint, config, shape, round_to_, *device_.backend, nullptr).bytes;
      return "";
    } catch (const LoadError& e) {
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << "one line";
      return e.what();
    }
  }
  std::string load_changed(const testing::TinyScheme& scheme, const std::function<void(TinyQuantised&)>& change) {
    TinyQuantised tiny(scheme);
    change(tiny);
    tiny.write(directory_.path());
    return load();
  }
  static TinyTensor& tensor(TinyQuantised& tiny, const std::string& name) {
    for (TinyTensor& t : tiny.tensors) {
      if (t.name == name) return t;
    }
    throw std::runtime_error("no tensor " + name);
  }

  const testing::TemporaryDirectory directory_;
  Device device_ = testing::test_device(1, 1);
  int64_t weights_bytes_ = 0;
  DType round_to_ = DType::kFloat32;
};

TEST_F(QuantisedCheckpoint, EverySchemeLoadsAtEveryDegreeInABitMoreThanItsBytes) {
  for (const testing::TinyScheme& scheme : testing::tiny_schemes()) {
    TinyQuantised(scheme).write(directory_.path());
    for (const int world : {1, 2, 4, 8}) {
      for (int rank = 0; rank < world; ++rank) ASSERT_EQ(load(rank, world), "") << scheme.quantization;
    }
  }
  TinyQuantised(testing::tiny_schemes()[0]).write(directory_.path());
  ASSERT_EQ(load(), "");
  const int64_t quantised = weights_bytes_;
  testing::write_tiny_checkpoint(directory_.path());
  ASSERT_EQ(load(), "");
  EXPECT_LT(quantised, weights_bytes_ / 2);
}

// A weight beyond F16 is named by the ranks that own it, with its place in the file.
TEST_F(QuantisedCheckpoint, F16RefusesWhatItCannotHoldWhereItIs) {
  round_to_ = DType::kFloat16;
  const std::string p = "model.layers.1.self_attn.";
  for (const auto& [name, row, column, owner] :
       {std::tuple{p + "q_proj.weight", 40, 5, 1}, {p + "k_proj.weight", 3, 47, 0}, {p + "o_proj.weight", 7, 46, 1}}) {
    std::vector<TinyTensor> tensors = testing::tiny_tensors();
    const float large = 1e5f;
    for (TinyTensor& t : tensors) {
      if (t.name == name) std::memcpy(&t.bytes[static_cast<size_t>(row * 48 + column) * 4], &large, sizeof large);
    }
    testing::write_tiny_checkpoint(directory_.path());
    testing::write_file(directory_.path() + "/model.safetensors", testing::safetensors_bytes(tensors));
    const std::string says =
        "tensor " + name + ": 100000 at [" + std::to_string(row) + ", " + std::to_string(column) + "] does not fit F16";
    EXPECT_NE(load().find(says), std::string::npos) << load();
    EXPECT_NE(load(owner, 2).find(says), std::string::npos) << load(owner, 2);
    EXPECT_EQ(load(1 - owner, 2), "");
  }
}

// --dtype rounds what is not quantised, and leaves bytes as they are.
TEST_F(QuantisedCheckpoint, BytesStayUnderEveryDtype) {
  TinyQuantised(testing::tiny_schemes()[1]).write(directory_.path());  // its head is FP32
  ASSERT_EQ(load(), "");
  const int64_t exact = weights_bytes_;
  for (const DType round : {DType::kBFloat16, DType::kFloat16}) {
    round_to_ = round;
    ASSERT_EQ(load(), "");
    EXPECT_LE(weights_bytes_, exact - 300 * 48 * 2) << "half the head";
    EXPECT_GE(weights_bytes_, exact - 320 * 48 * 2) << "padded to whole panels, and nothing else";
  }
}

TEST_F(QuantisedCheckpoint, WhatTheFilesDoNotHoldIsNamed) {
  const auto schemes = testing::tiny_schemes();
  const std::string down = "model.layers.1.mlp.down_proj", q = "model.layers.0.self_attn.q_proj";
  const auto put = [&](const std::string& name, float value) {
    return [=](TinyQuantised& tiny) { std::memcpy(tensor(tiny, name).bytes.data() + 12, &value, sizeof value); };
  };
  const float nan = std::nanf("");
  for (const float scale : {0.0f, -0.01f, nan, INFINITY, 1e-40f, 1e38f}) {
    const std::string said = load_changed(schemes[0], put(down + ".weight_scale", scale));
    EXPECT_NE(said.find("tensor " + down + ".weight_scale: expected scales from"), std::string::npos) << said;
    EXPECT_NE(said.find("at [3, 0]"), std::string::npos) << said;
  }
  for (const uint8_t code : {0x7f, 0xff}) {
    const std::string said = load_changed(schemes[2], [&](TinyQuantised& tiny) {
      tensor(tiny, q + ".weight").bytes[5 * 48 + 47] = std::byte{code};
    });
    EXPECT_NE(said.find("tensor " + q + ".weight: NaN in row 5"), std::string::npos) << said;
  }
  const auto refused = [&](const std::function<void(TinyQuantised&)>& change, const std::string& says) {
    const std::string said = load_changed(schemes[0], change);
    EXPECT_NE(said.find(says), std::string::npos) << said << "\n  expected: " << says;
  };
  refused([&](TinyQuantised& t) { tensor(t, q + ".weight_scale").name = q + ".scale"; },
          "tensor " + q + ".weight_scale: expected [48, 1], found none");
  refused([&](TinyQuantised& t) { tensor(t, q + ".weight").dtype = "F8_E4M3"; }, "makes it I8, found F8_E4M3");
  refused([&](TinyQuantised& t) { tensor(t, q + ".weight_scale").shape = {1, 48}; }, "expected [48, 1], found [1, 48]");
  refused([&](TinyQuantised& t) { tensor(t, q + ".weight_scale").dtype = "I32"; }, "expected F32, BF16 or F16");
  refused(
      [&](TinyQuantised& t) {
        t.tensors.push_back({.name = q + ".weight_zero_point", .shape = {1}, .dtype = "I8", .bytes = {std::byte{0}}});
      },
      "weight_zero_point");
  // Activations stay FP32: their scales are known, and unused. A scale a row may come without its last extent.
  EXPECT_EQ(load_changed(schemes[0],
                         [&](TinyQuantised& t) {
                           t.tensors.push_back({.name = q + ".input_scale", .shape = {1}, .bytes = {4, std::byte{0}}});
                           tensor(t, q + ".weight_scale").shape = {48};
                         }),
            "");
}

TEST_F(QuantisedCheckpoint, DamageIsRefusedOrLoads) {
  std::mt19937 random(11);
  int refused = 0;
  for (const testing::TinyScheme& scheme : testing::tiny_schemes()) {
    const TinyQuantised tiny(scheme);
    const std::string file = testing::safetensors_bytes(tiny.tensors);
    uint64_t header = 0;
    std::memcpy(&header, file.data(), sizeof header);
    for (int i = 0; i < 100; ++i) {
      std::string config = tiny.config, tensors = file;
      const size_t begin = config.find("quantization_config");
      for (int n = 0; n < 1 + i % 2; ++n) {
        if (i % 3 == 0) {
          config[begin + random() % (config.size() - begin)] = static_cast<char>(32 + random() % 95);
        } else {
          tensors[8 + random() % (i % 3 == 1 ? header : tensors.size() - 8)] = static_cast<char>(random());
        }
      }
      testing::write_file(directory_.path() + "/config.json", config);
      testing::write_file(directory_.path() + "/model.safetensors", tensors);
      refused += load() != "";
    }
  }
  EXPECT_GT(refused, 150);
}

}  // namespace
}  // namespace helios
