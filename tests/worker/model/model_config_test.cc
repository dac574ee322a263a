// config.json: what is understood, in its published spellings, and what is refused with its reason.
#include "worker/model/model_config.h"

#include <gtest/gtest.h>

#include <cmath>

#include "worker/model/rank_shape.h"

namespace helios {
namespace {

std::string config(const std::string& architecture, const std::string& more) {
  return R"({"architectures": [")" + architecture + R"("], "hidden_size": 64, "intermediate_size": 100,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300,
    "max_position_embeddings": 512, "hidden_act": "silu")" +
         (more.empty() ? "" : ", " + more) + "}";
}
ModelConfig parse(const std::string& architecture, const std::string& more) {
  return parse_model_config(config(architecture, more), "config.json");
}
std::string refusal(const std::string& text) {
  try {
    parse_model_config(text, "config.json");
    return "";
  } catch (const LoadError& e) {
    return e.what();
  }
}

TEST(ModelConfig, DefaultsFollowTheClasses) {
  const ModelConfig llama = parse("LlamaForCausalLM", "");
  EXPECT_EQ(llama.head_dim, 16);
  EXPECT_EQ(llama.rms_eps, 1e-6f);
  EXPECT_EQ(llama.rope.theta, 10000.0);
  EXPECT_FALSE(llama.tied_embeddings || llama.qk_norm || llama.qkv_bias || llama.o_bias || llama.mlp_bias);
  const ModelConfig qwen2 = parse("Qwen2ForCausalLM", "");
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.o_bias);
  EXPECT_TRUE(parse("Qwen3ForCausalLM", "").qk_norm);
  const ModelConfig biased = parse("LlamaForCausalLM", R"("attention_bias": true, "mlp_bias": true)");
  EXPECT_TRUE(biased.qkv_bias && biased.o_bias && biased.mlp_bias);
  EXPECT_EQ(parse("LlamaForCausalLM", R"("head_dim": 24)").head_dim, 24);
}

TEST(ModelConfig, WindowsFollowTheClasses) {
  EXPECT_EQ(parse("MistralForCausalLM", R"("sliding_window": 16)").windows, (std::vector<int32_t>{16, 16, 16}));
  EXPECT_EQ(parse("MistralForCausalLM", R"("sliding_window": null)").windows, (std::vector<int32_t>{0, 0, 0}));
  EXPECT_EQ(
      parse("Qwen2ForCausalLM", R"("sliding_window": 8, "use_sliding_window": false, "max_window_layers": 1)").windows,
      (std::vector<int32_t>{0, 0, 0}));
  EXPECT_EQ(
      parse("Qwen2ForCausalLM", R"("sliding_window": 8, "use_sliding_window": true, "max_window_layers": 1)").windows,
      (std::vector<int32_t>{0, 8, 8}));
  EXPECT_EQ(parse("Qwen3ForCausalLM", R"("sliding_window": 8, "use_sliding_window": true,
                                         "layer_types": ["full_attention", "sliding_attention", "full_attention"])")
                .windows,
            (std::vector<int32_t>{0, 8, 0}));
}

TEST(ModelConfig, RopeHasAnOlderAndANewerSpelling) {
  const RopeConfig older = parse("LlamaForCausalLM", R"("rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3",
      "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64})")
                               .rope;
  const RopeConfig newer =
      parse("LlamaForCausalLM", R"("rope_parameters": {"rope_theta": 500000.0, "rope_type": "llama3",
      "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64})")
          .rope;
  EXPECT_EQ(inverse_frequencies(older, 16), inverse_frequencies(newer, 16));
  EXPECT_NE(inverse_frequencies(older, 16), inverse_frequencies({.theta = 500000.0}, 16));
  const RopeConfig linear = parse("LlamaForCausalLM", R"("rope_scaling": {"type": "linear", "factor": 2.0})").rope;
  EXPECT_DOUBLE_EQ(inverse_frequencies(linear, 16)[3], std::pow(10000.0, -6.0 / 16.0) / 2.0);
}

TEST(ModelConfig, WhatWouldChangeTheNumbersIsRefused) {
  const std::pair<const char*, const char*> faults[] = {
      {R"("hidden_act": "gelu")", "hidden_act: expected silu, found gelu"},
      {R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0})", "found yarn"},
      {R"("rope_scaling": {"type": "dynamic", "factor": 4.0})", "found dynamic"},
      {R"("rope_scaling": {"type": "linear"})", "factor: expected a number"},
      {R"("rope_scaling": 4)", "rope_scaling: expected an object"},
      {R"("rope_parameters": {"full_attention": {"rope_theta": 1.0}})", "by layer type"},
      {R"("quantization_config": {"quant_method": "gptq"})",
       "quantization_config: quant_method: expected compressed-tensors or fp8, found \"gptq\""},
      {R"("quantization_config": 4)", "quantization_config: expected an object"},
      {R"("partial_rotary_factor": 0.5)", "partial_rotary_factor"},
      {R"("final_logit_softcapping": 30.0)", "final_logit_softcapping"},
      {R"("num_local_experts": 8)", "num_local_experts"},
      {R"("sliding_window": 8)", "sliding_window: not supported for LlamaForCausalLM"},
      {R"("head_dim": 15)", "head_dim: expected an even number"},
      {R"("head_dim": -2)", "head_dim"},
      {R"("vocab_size": 1e18)", "vocab_size"},
      {R"("vocab_size": 0)", "vocab_size"},
      {R"("num_hidden_layers": 100000000)", "num_hidden_layers"},
      {R"("num_key_value_heads": 3)", "multiple of num_key_value_heads"},
      {R"("hidden_size": "64")", "hidden_size: expected an integer"},
      {R"("rms_norm_eps": -1.0)", "rms_norm_eps"},
      {R"("rope_theta": 0)", "rope_theta"},
      {R"("tie_word_embeddings": 1)", "tie_word_embeddings: expected true or false"},
      {R"("model_type": "gemma")", "model_type: expected llama"},
      {R"("layer_types": ["full_attention"])", "layer_types: expected 3 entries"},
  };
  for (const auto& [more, says] : faults) {
    // JSON keeps the last of two equal keys, so `more` overrides.
    EXPECT_NE(refusal(config("LlamaForCausalLM", more)).find(says), std::string::npos)
        << more << "\n  says: " << refusal(config("LlamaForCausalLM", more));
  }
  for (const char* text : {"", "{", "[]", "null", "{}", R"({"architectures": []})", R"({"architectures": ["A", "B"]})",
                           R"({"architectures": [7]})", R"({"architectures": ["GPT2LMHeadModel"]})"}) {
    EXPECT_NE(refusal(text), "") << text;
  }
  EXPECT_NE(refusal(config("MistralForCausalLM", R"("attention_bias": true)")), "");
  EXPECT_NE(refusal(config("Qwen3ForCausalLM", R"("mlp_bias": true)")), "");
}

/// A compressed-tensors object: its own fields, its group's, its weights'.
std::string compressed(const std::string& own, const std::string& group, const std::string& weights) {
  return R"("quantization_config": {"quant_method": "compressed-tensors", "format": "int-quantized")" + own +
         R"(, "config_groups": {"group_0": {"targets": ["Linear"])" + group + R"(, "weights": {"num_bits": 8)" +
         weights + "}}}}";
}

TEST(QuantizationConfig, SchemesReachTheMatricesThatTheyAreFor) {
  const std::string layer = "model.layers.1.mlp.down_proj";
  const QuantisedMatrices all =
      parse("LlamaForCausalLM", compressed("", "", R"(, "type": "float", "strategy": "channel")")).quantised;
  EXPECT_EQ(all.size(), 3u * 7 + 1);
  EXPECT_EQ(all.at(layer), (MatrixScheme{DType::kFloat8E4M3, 1, 0}));
  const QuantisedMatrices some =
      parse("LlamaForCausalLM",
            compressed(R"(, "ignore": ["lm_head", "re:.*layers\\.0\\..*", "down_proj", "re:mlp"])", "", ""))
          .quantised;
  EXPECT_EQ(some.size(), 2u * 7);  // an exact name is no part of one, and an expression starts where the name does
  EXPECT_EQ(some.at(layer), (MatrixScheme{DType::kInt8, 0, 0}));
  const QuantisedMatrices two = parse("LlamaForCausalLM", R"("quantization_config": {
      "quant_method": "compressed-tensors", "format": "naive-quantized", "config_groups": {
      "a": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "group_size": -1}},
      "b": {"targets": ["re:.*mlp.*"], "weights": {"num_bits": 8, "type": "float", "strategy": "block",
                                                   "block_structure": "128x64"}}}})")
                                    .quantised;
  EXPECT_EQ(two.at("lm_head"), (MatrixScheme{DType::kInt8, 1, 0}));
  EXPECT_EQ(two.at(layer), (MatrixScheme{DType::kFloat8E4M3, 128, 64}));
  const QuantisedMatrices own = parse("Qwen3ForCausalLM", R"("quantization_config": {"quant_method": "fp8",
      "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
      "modules_to_not_convert": ["lm_head", "model.layers.0.mlp", "k_proj"]})")
                                    .quantised;
  EXPECT_EQ(own.size(), 3u * 7 - 3 - 3);
  EXPECT_EQ(own.at(layer), (MatrixScheme{DType::kFloat8E4M3, 128, 128, ".weight_scale_inv"}));
}

TEST(QuantizationConfig, WhatIsNotReadIsRefusedByFieldAndValue) {
  const auto group = [](const std::string& more) { return compressed("", more, ""); };
  const auto weights = [](const std::string& more) { return compressed("", "", more); };
  const auto own = [](const std::string& more) { return compressed(more, "", ""); };
  const std::pair<std::string, const char*> faults[] = {
      {R"("quantization_config": {"quant_method": "awq"})", "quant_method: expected"},
      {R"("quantization_config": {"load_in_4bit": true, "quant_method": "bitsandbytes"})", "found \"bitsandbytes\""},
      {R"("quantization_config": {})", "quant_method"},
      {own(R"(, "format": "pack-quantized")"), "format: expected float-quantized or int-quantized or"},
      {own(R"(, "format": null)"), "format: expected"},
      {own(R"(, "kv_cache_scheme": {"num_bits": 8})"), "kv_cache_scheme: not supported, found"},
      {own(R"(, "sparsity_config": {"format": "sparse-24-bitmask"})"), "sparsity_config: format: expected dense"},
      {own(R"(, "transform_config": {"config_groups": {}})"), "transform_config: not supported"},
      {own(R"(, "quantization_status": "frozen")"), "quantization_status: expected compressed, found \"frozen\""},
      {own(R"(, "ignore": "lm_head")"), "ignore: expected a list"},
      {own(R"(, "ignore": ["re:("])"), "ignore: no regular expression"},
      {own(R"(, "zeal": 1)"), "\"zeal\": not supported, found 1"},
      {group(R"(, "output_activations": {"num_bits": 8})"), "output_activations: not supported"},
      {group(R"(, "format": "nvfp4-pack-quantized")"), "group_0\": format: expected"},
      {group(R"(, "targets": ["LlamaAttention"])"), "targets: none of this model's matrices"},
      {weights(R"(, "num_bits": 4)"), "weights: num_bits: expected 8, found 4"},
      {weights(R"(, "symmetric": false)"), "symmetric: expected true, found false"},
      {weights(R"(, "actorder": "group")"), "actorder: expected weight or static, found \"group\""},
      {weights(R"(, "actorder": true)"), "actorder: not supported"},
      {weights(R"(, "type": "nf")"), "type: expected int or float"},
      {weights(R"(, "strategy": "tensor_group", "group_size": 16)"), "strategy: expected"},
      {weights(R"(, "strategy": "group", "group_size": 1024)"), "group_size: expected an integer from -1 to 256"},
      {weights(R"(, "strategy": "block")"), "block_structure: expected two extents"},
      {weights(R"(, "strategy": "block", "block_structure": [0, 128])"), "block_structure: expected two extents"},
      {weights(R"(, "strategy": "block", "block_structure": [1, 512])"), "of columns to 256, found [1,512]"},
      {weights(R"(, "dynamic": true)"), "dynamic: expected false"},
      {R"("quantization_config": {"quant_method": "fp8", "fmt": "e5m2"})", "fmt: expected e4m3"},
      {R"("quantization_config": {"quant_method": "fp8", "activation_scheme": "x"})", "activation_scheme: expected"},
      {R"("quantization_config": {"quant_method": "fp8", "kv_cache_dtype": "fp8"})", "kv_cache_dtype"},
      {R"("quantization_config": {"quant_method": "compressed-tensors", "format": "int-quantized"})",
       "config_groups: expected"},
  };
  for (const auto& [more, says] : faults) {
    const std::string said = refusal(config("LlamaForCausalLM", more));
    EXPECT_NE(said.find(says), std::string::npos) << more << "\n  says: " << said << "\n  expected: " << says;
    EXPECT_EQ(said.find('\n'), std::string::npos) << "one line";
  }
}

TEST(RankShape, ShardsCoverEverythingOnceAndReplicateSharedKvHeads) {
  ModelConfig model = parse("LlamaForCausalLM", R"("num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8)");
  for (const int world : {1, 2, 4, 8}) {
    int64_t q = 0, inner = 0, vocab = 0;
    for (int r = 0; r < world; ++r) {
      const RankShape s = rank_shape(model, Rank(r), world);
      EXPECT_EQ(s.q_heads.begin, q);
      EXPECT_EQ(s.inner.begin, inner);
      EXPECT_EQ(s.vocab.begin, vocab);
      q = s.q_heads.end, inner = s.inner.end, vocab = s.vocab.end;
      ASSERT_EQ(s.kv_of_q.size(), static_cast<size_t>(s.num_q()));
      for (int h = 0; h < s.num_q(); ++h) {
        EXPECT_EQ(s.kv_heads.begin + s.kv_of_q[static_cast<size_t>(h)], (s.q_heads.begin + h) / 3);
      }
      EXPECT_EQ(s.o_segments.size(), static_cast<size_t>(8 / world + 1));
      EXPECT_EQ(s.o_segments.front(), 0);
      EXPECT_EQ(s.o_segments.back(), s.num_q() * 8);
      EXPECT_TRUE(std::is_sorted(s.o_segments.begin(), s.o_segments.end()));
      EXPECT_EQ(s.down_segments.back(), s.inner.size());
    }
    EXPECT_EQ(q, 6);
    EXPECT_EQ(inner, 100);
    EXPECT_EQ(vocab, 300);
  }
  EXPECT_EQ(rank_shape(model, Rank(0), 8).num_q(), 0) << "six heads leave two of eight ranks without one";
}

}  // namespace
}  // namespace helios
