// Declarations read from a file: every way in which one can be malformed is refused, and by name.
#include "worker/catalog/manifest_file.h"

#include <gtest/gtest.h>

#include <functional>

#include "common/contract/completion_layout.h"
#include "tests/support/tiny_checkpoint.h"
#include "worker/catalog/core_catalog.h"

namespace helios {
namespace {

constexpr int32_t kCapacity = 4, kT = 3;

CoreShape shape(int32_t alternatives, bool token_ids) {
  return {.model_type = "qwen3",
          .device = "cpu",
          .dtype = "float32",
          .kv_cache_dtype = "bfloat16",
          .vocab_size = 300,
          .max_model_len = 128,
          .slot_capacity = kCapacity,
          .token_capacity = kT,
          .prefill_chunk = 32,
          .kv_block_size = 32,
          .kv_num_blocks = 16,
          .host_num_blocks = 3,
          .alternatives = alternatives,
          .token_ids = token_ids};
}

CoreManifest core(int32_t alternatives, bool token_ids, bool prompt_scoring = false, int32_t prefill_chunk = 32) {
  CoreShape core = shape(alternatives, token_ids);
  core.prompt_scoring = prompt_scoring;
  core.prefill_chunk = prefill_chunk;
  return build_manifest(core).value();
}

/// What reading such a file gives.
Result<CoreManifest> read(const std::string& text) {
  const testing::TemporaryDirectory directory;
  const std::string path = directory.path() + "/manifest.json";
  testing::write_file(path, text);
  return read_manifest_file(path);
}

BufferDeclaration& buffer(CoreManifest& m, std::string_view name) {
  return *std::find_if(m.buffers.begin(), m.buffers.end(), [&](const auto& b) { return b.name == name; });
}
void drop(CoreManifest& m, std::string_view name) {
  std::erase_if(m.buffers, [&](const auto& b) { return b.name == name; });
  for (GraphDeclaration& g : m.graphs) std::erase(g.outputs, name);
}
void unbind(CoreManifest& m, Operation operation, ValueSource source) {
  for (GraphDeclaration& g : m.graphs) {
    if (g.operation == operation) std::erase(g.bindings, source);
  }
}

// R34, R35, R36: the three kinds of core survive the way through a file.
TEST(ManifestFile, R34_R35_R36_EveryKindOfCoreIsReadAsItWasWritten) {
  for (const auto& [alternatives, ids] : {std::pair{0, false}, {1, false}, {20, false}, {20, true}}) {
    const CoreManifest written = core(alternatives, ids);
    const auto found = read(manifest_json(written));
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_TRUE(check_same_core(written, *found).ok());
    const auto capabilities = derive_capabilities(*found);
    EXPECT_EQ(capabilities->max_logprobs, alternatives);
    EXPECT_EQ(capabilities->logprob_token_ids, ids);
  }
}

// R39: 128, then fourfold below the chunk limit, which always ends the list; the ordinary catalog stays as it is.
TEST(ManifestFile, R39_R44_R47_ScoredGraphsFollowAnUnchangedCatalog) {
  using Capacities = std::vector<int32_t>;
  EXPECT_EQ(scored_capacities(1), Capacities({1}));
  EXPECT_EQ(scored_capacities(128), Capacities({128}));
  EXPECT_EQ(scored_capacities(129), Capacities({128, 129}));
  EXPECT_EQ(scored_capacities(512), Capacities({128, 512}));
  EXPECT_EQ(scored_capacities(2000), Capacities({128, 512, 2000}));
  for (const int32_t chunk : {32, 600}) {
    const CoreManifest plain = core(20, true, false, chunk), scored = core(20, true, true, chunk);
    const auto found = read(manifest_json(scored));
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_TRUE(check_same_core(scored, *found).ok());
    const Capabilities can = derive_capabilities(*found).value();
    EXPECT_TRUE(can.prompt_scoring);
    EXPECT_EQ(can.scored_capacities, scored_capacities(chunk));
    EXPECT_FALSE(derive_capabilities(plain)->prompt_scoring);
    const size_t buffers = plain.buffers.size(), graphs = plain.graphs.size();
    ASSERT_EQ(scored.buffers.size(), buffers + 2);
    ASSERT_EQ(scored.graphs.size(), graphs + can.scored_capacities.size());
    EXPECT_TRUE(std::equal(plain.buffers.begin(), plain.buffers.end(), scored.buffers.begin()));
    EXPECT_TRUE(std::equal(plain.graphs.begin(), plain.graphs.end(), scored.graphs.begin()));
    for (size_t i = graphs; i < scored.graphs.size(); ++i) {
      EXPECT_EQ(static_cast<int>(scored.graphs[i].operation), 12);
      EXPECT_EQ(static_cast<int>(scored.graphs[i].bindings.back()), 39);
      EXPECT_EQ(scored.graphs[i].row_capacity, can.scored_capacities[i - graphs]);
    }
  }
  EXPECT_TRUE(derive_capabilities(core(20, false, true))->prompt_scoring);  // K = 20 without the id inputs
}

// R3: a core with speculation declares one graph more, behind an unchanged catalog: rows for every slot and for its
// proposals, 128 together at most, and no prompt's.
TEST(ManifestFile, R3_TheVerifyGraphFollowsAnUnchangedCatalog) {
  const auto speculative = [](int32_t slots, int32_t proposals) {
    CoreShape core = shape(20, true);
    core.slot_capacity = slots;
    core.num_speculative_tokens = proposals;
    return build_manifest(core).value();
  };
  const CoreManifest plain = core(20, true), found = speculative(kCapacity, kT - 1);
  ASSERT_EQ(found.graphs.size(), plain.graphs.size() + 1);
  EXPECT_TRUE(std::equal(plain.graphs.begin(), plain.graphs.end(), found.graphs.begin()));
  EXPECT_EQ(found.buffers, plain.buffers);
  const GraphDeclaration& verify = found.graphs.back();
  EXPECT_EQ(verify.operation, Operation::kVerify);
  EXPECT_EQ(verify.row_capacity, kCapacity + kCapacity * (kT - 1));
  const auto decode = std::find_if(plain.graphs.begin(), plain.graphs.end(),
                                   [](const GraphDeclaration& g) { return g.operation == Operation::kDecode; });
  EXPECT_EQ(verify.bindings, decode->bindings);
  EXPECT_EQ(verify.outputs, decode->outputs);
  EXPECT_TRUE(check_same_core(found, read(manifest_json(found)).value()).ok());
  EXPECT_EQ(speculative(300, kT - 1).graphs.back().row_capacity, 300 + 128);
  EXPECT_EQ(speculative(1, kT - 1).graphs.back().row_capacity, kT);
}

struct Malformation {
  std::string name;
  std::vector<std::string> says;  // parts of the message: the buffer, what was expected, what was found
  std::function<void(CoreManifest&)> make;
  int32_t alternatives = kMaxNaturalAlternatives;
  bool token_ids = true;
  bool prompt_scoring = false;
};

/// Every dtype but its own, every rank, every extent one more and one less, of every buffer.
std::vector<Malformation> geometry() {
  std::vector<Malformation> out;
  const CoreManifest good = core(kMaxNaturalAlternatives, true, true);
  const auto text = [](const BufferDeclaration& b) {
    std::string shape;
    for (const int64_t extent : b.shape) shape += (shape.empty() ? "" : ", ") + std::to_string(extent);
    return std::string(to_string(b.dtype)) + "[" + shape + "]";
  };
  const auto add = [&](const BufferDeclaration& wrong, const std::string& name) {
    const BufferDeclaration& right = buffer(const_cast<CoreManifest&>(good), wrong.name);
    out.push_back({wrong.name + " " + name,
                   {"buffer " + wrong.name, "expected " + text(right), "found " + text(wrong)},
                   [wrong](CoreManifest& m) { buffer(m, wrong.name) = wrong; },
                   kMaxNaturalAlternatives,
                   true,
                   true});
  };
  for (const BufferDeclaration& right : good.buffers) {
    for (const BufferDtype dtype : {BufferDtype::kInt32, BufferDtype::kInt64, BufferDtype::kFloat32,
                                    BufferDtype::kBFloat16, BufferDtype::kFloat16}) {
      if (dtype == right.dtype) continue;
      BufferDeclaration wrong = right;
      wrong.dtype = dtype;
      add(wrong, std::string(to_string(dtype)));
    }
    BufferDeclaration longer = right, shorter = right, none = right;
    longer.shape.push_back(1);
    shorter.shape.pop_back();
    none.shape.clear();
    add(longer, "of higher rank");
    if (!shorter.shape.empty()) add(shorter, "of lower rank");
    add(none, "without a shape");
    for (size_t i = 0; i < right.shape.size(); ++i) {
      for (const int64_t by : {-1, 1}) {
        BufferDeclaration wrong = right;
        wrong.shape[i] += by;
        add(wrong, "extent " + std::to_string(i) + (by > 0 ? " larger" : " smaller"));
      }
    }
  }
  return out;
}

/// A missing buffer of the bundle, a missing binding of each sampling graph, a graph that names what is not there.
std::vector<Malformation> absences() {
  std::vector<Malformation> out;
  for (const std::string_view name : {buffer_name::kRecords, buffer_name::kLogprobs, buffer_name::kRequested,
                                      buffer_name::kTokenIds, buffer_name::kTokenIdCounts}) {
    out.push_back({std::string(name) + " absent", {std::string(name)}, [name](CoreManifest& m) { drop(m, name); }});
    out.push_back({std::string(name) + " twice",
                   {"buffer " + std::string(name), "expected one declaration"},
                   [name](CoreManifest& m) { m.buffers.push_back(buffer(m, name)); }});
  }
  const std::pair<ValueSource, std::string_view> inputs[] = {
      {ValueSource::kLogprobRequested, buffer_name::kRequested},
      {ValueSource::kLogprobTokenIds, buffer_name::kTokenIds},
      {ValueSource::kLogprobTokenIdCounts, buffer_name::kTokenIdCounts}};
  for (const Operation operation : {Operation::kPrefill, Operation::kDecode, Operation::kMixed}) {
    for (const auto& [source, name] : inputs) {
      out.push_back(
          {std::string(to_string(operation)) + " without " + std::string(name),
           {"graph " + std::string(to_string(operation)), "expected a binding of " + std::string(name), "none"},
           [operation = operation, source = source](CoreManifest& m) { unbind(m, operation, source); }});
    }
  }
  out.push_back({"flags bound without the buffers",
                 {"graph decode", "logprob_requested", "found none"},
                 [](CoreManifest& m) { m.graphs[2].bindings.push_back(ValueSource::kLogprobRequested); },
                 0,
                 false});
  out.push_back({"ids bound without the inputs",
                 {"graph decode", "logprob_token_ids", "found none"},
                 [](CoreManifest& m) { m.graphs[2].bindings.push_back(ValueSource::kLogprobTokenIds); },
                 20,
                 false});
  out.push_back({"unknown output", {"graph decode", "raw_logits", "found none"}, [](CoreManifest& m) {
                   m.graphs[2].outputs.emplace_back("raw_logits");
                 }});
  return out;
}

/// R45: prompt scoring in part, with another K, in another operation, in other capacities.
std::vector<Malformation> partial_scoring() {
  std::vector<Malformation> out;
  const auto add = [&](std::string name, std::vector<std::string> says, std::function<void(CoreManifest&)> make) {
    out.push_back({std::move(name), std::move(says), std::move(make), kMaxNaturalAlternatives, true, true});
  };
  const auto scored = [](CoreManifest& m) -> GraphDeclaration& {
    return *std::find_if(m.graphs.begin(), m.graphs.end(),
                         [](const auto& g) { return g.operation == Operation::kScoredPrefill; });
  };
  const auto no_graphs = [](CoreManifest& m) {
    std::erase_if(m.graphs, [](const auto& g) { return g.operation == Operation::kScoredPrefill; });
  };
  for (const std::string_view name : {buffer_name::kPromptTargets, buffer_name::kPromptLogprobs}) {
    add(std::string(name) + " alone", {"prompt scoring", "found none"}, [name, no_graphs](CoreManifest& m) {
      no_graphs(m);
      drop(m, name == buffer_name::kPromptTargets ? buffer_name::kPromptLogprobs : buffer_name::kPromptTargets);
    });
    add("graphs without " + std::string(name), {std::string(name), "found none"},
        [name](CoreManifest& m) { drop(m, name); });
  }
  add("buffers without graphs", {"prompt scoring", "expected scored_prefill graphs"}, no_graphs);
  add("graphs without buffers", {"prompt_target_tokens", "found none"}, [](CoreManifest& m) {
    drop(m, buffer_name::kPromptTargets);
    drop(m, buffer_name::kPromptLogprobs);
  });
  add("a scored graph without targets", {"graph scored_prefill[32]", "expected a binding of prompt_target_tokens"},
      [](CoreManifest& m) { unbind(m, Operation::kScoredPrefill, ValueSource::kPromptTargetToken); });
  add("a scored graph without flags", {"graph scored_prefill[32]", "expected a binding of logprob_requested"},
      [](CoreManifest& m) { unbind(m, Operation::kScoredPrefill, ValueSource::kLogprobRequested); });
  for (const std::string_view name : {buffer_name::kRecords, buffer_name::kLogprobs, buffer_name::kPromptLogprobs}) {
    add("a scored graph that does not write " + std::string(name),
        {"graph scored_prefill[32]", "expected an output " + std::string(name), "none"},
        [name, scored](CoreManifest& m) { std::erase(scored(m).outputs, name); });
  }
  add("targets in a decode", {"graph decode", "expected no prompt scoring"},
      [](CoreManifest& m) { m.graphs[2].bindings.push_back(ValueSource::kPromptTargetToken); });
  add("rows from a mixed graph", {"graph mixed", "expected no prompt scoring"},
      [](CoreManifest& m) { m.graphs[3].outputs.emplace_back(buffer_name::kPromptLogprobs); });
  add("another capacity", {"expected capacities [32]", "found [31]"},
      [scored](CoreManifest& m) { scored(m).row_capacity = 31; });
  add("a second capacity", {"expected capacities [32]", "found [32, 32]"},
      [scored](CoreManifest& m) { m.graphs.push_back(scored(m)); });
  out.push_back({"scoring with K = 5", {"prompt_logprobs", "K = 20", "found K = 5"},
                 [](CoreManifest& m) { buffer(m, buffer_name::kLogprobs).shape.back() = packed_words(5); },
                 20, false, true});
  out.push_back({"scoring without logprobs", {"prompt_logprobs", "K = 20", "found K = 0"}, [](CoreManifest& m) {
                   for (const auto name : {buffer_name::kLogprobs, buffer_name::kRequested}) drop(m, name);
                   for (GraphDeclaration& g : m.graphs) std::erase(g.bindings, ValueSource::kLogprobRequested);
                 }, 20, false, true});
  return out;
}

/// R35: 2 + 2K words with K from 1 to 20; R45: no scoring without its graphs; counts that no core can have.
std::vector<Malformation> ranges() {
  std::vector<Malformation> out;
  for (const int64_t last : {0, 2, 3, 43, 44, 258}) {
    out.push_back({"last extent " + std::to_string(last),
                   {"completion_logprobs", "2 + 2*K with 1 <= K <= 20", std::to_string(last) + "]"},
                   [last](CoreManifest& m) { buffer(m, buffer_name::kLogprobs).shape.back() = last; },
                   5,
                   false});
  }
  out.push_back({"scoring without graphs", {"prompt_logprobs"}, [](CoreManifest& m) {
                   m.buffers.push_back({std::string(buffer_name::kPromptLogprobs), BufferDtype::kInt32, {2, 32, 43}});
                 }});
  const auto count = [&](const char* name, auto member) {
    for (const int wrong : {0, -1}) {
      out.push_back({std::string(name) + " " + std::to_string(wrong),
                     {name, "must be positive", std::to_string(wrong)},
                     [member, wrong](CoreManifest& m) { m.*member = wrong; }});
    }
  };
  count("vocab_size", &CoreManifest::vocab_size);
  count("max_model_len", &CoreManifest::max_model_len);
  count("slot_capacity", &CoreManifest::slot_capacity);
  count("token_capacity", &CoreManifest::token_capacity);
  count("prefill_chunk", &CoreManifest::prefill_chunk);
  count("kv_block_size", &CoreManifest::kv_block_size);
  count("kv_num_blocks", &CoreManifest::kv_num_blocks);
  out.push_back({"host_num_blocks", {"host_num_blocks", "at least 0", "-1"}, [](CoreManifest& m) {
                   m.host_num_blocks = -1;
                 }});
  return out;
}

void expect_refused(const std::vector<Malformation>& table) {
  for (const Malformation& malformation : table) {
    CoreManifest m = core(malformation.alternatives, malformation.token_ids, malformation.prompt_scoring);
    malformation.make(m);
    const auto found = read(manifest_json(m));
    ASSERT_FALSE(found.ok()) << malformation.name;
    EXPECT_EQ(found.error().code, Errc::kMismatch) << malformation.name;
    EXPECT_NE(found.error().message.find("manifest.json: "), std::string::npos);
    for (const std::string& part : malformation.says) {
      EXPECT_NE(found.error().message.find(part), std::string::npos)
          << malformation.name << ": " << found.error().message << " does not say " << part;
    }
  }
}

TEST(ManifestFile, R36_EveryOtherGeometryIsRefusedByName) { expect_refused(geometry()); }
TEST(ManifestFile, R12_R36_WhatIsMissingIsNamed) { expect_refused(absences()); }
TEST(ManifestFile, R39_R40_R45_PartOfPromptScoringIsRefusedByName) { expect_refused(partial_scoring()); }
TEST(ManifestFile, R35_R45_WhatIsOutOfRangeIsNamed) { expect_refused(ranges()); }

// Files that are no manifest at all.
TEST(ManifestFile, AFileThatIsNoManifestIsRefusedByField) {
  const std::string good = manifest_json(core(20, true));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const std::pair<std::string, std::string> cases[] = {
      {"", "not JSON"},
      {"[]", "expected an object"},
      {good.substr(0, good.size() / 2), "not JSON"},
      {with("\"vocab_size\":300", "\"vocab_size\":\"300\""), "vocab_size: expected an integer"},
      {with("\"vocab_size\":300", "\"vocab_size\":300.5"), "vocab_size: expected an integer"},
      {with("\"slot_capacity\":4", "\"slot_capacity\":5000000000"), "slot_capacity: expected an integer of 4 bytes"},
      {with("\"vocab_size\":300,", ""), "vocab_size: expected, found none"},
      {with("\"vocab_size\"", "\"vocabulary\":1,\"vocab_size\""), "vocabulary: unknown field"},
      {with("\"int64\"", "\"int63\""), "completion_records: unknown dtype int63"},
      {with("[2,4,19]", "[2,4,\"19\"]"), "completion_records: shape"},
      {with("[2,4,19]", "19"), "buffers[0].shape: expected a list"},
      {with("\"operation\":3", "\"operation\":99"), "graphs[2].operation: no operation has the number 99"},
  };
  for (const auto& [text, says] : cases) {
    const auto found = read(text);
    ASSERT_FALSE(found.ok()) << says;
    EXPECT_EQ(found.error().code, Errc::kCorruptFile) << says;
    EXPECT_NE(found.error().message.find(says), std::string::npos) << found.error().message;
  }
  EXPECT_EQ(read_manifest_file("/nonexistent/manifest.json").error().code, Errc::kNotFound);
}

}  // namespace
}  // namespace helios
