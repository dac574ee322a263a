// Hostile and awkward checkpoint files: a clear LoadError that names file and tensor, never a crash.
#include "worker/model/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "tests/support/tiny_checkpoint.h"

namespace helios {
namespace {

using testing::TemporaryDirectory;
using testing::TinyTensor;

std::string file_with_header(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string out(reinterpret_cast<const char*>(&length), 8);
  return out + header + std::string(data_bytes, '\0');
}

/// The error's text, or "" when the file is accepted.
std::string error_of(const std::string& bytes) {
  // An exact heap copy, so that a sanitizer sees any read past the end.
  std::vector<char> copy(bytes.begin(), bytes.end());
  try {
    parse_safetensors_header(reinterpret_cast<const std::byte*>(copy.data()), copy.size(), "x.safetensors");
    return "";
  } catch (const LoadError& e) {
    EXPECT_EQ(std::string(e.what()).rfind("x.safetensors: ", 0), 0u) << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << "one line";
    return e.what();
  }
}

TEST(SafetensorsHeader, ReadsWhatTheFormatSays) {
  const std::string bytes = file_with_header(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
      R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"e":{"dtype":"F16","shape":[0,7],"data_offsets":[16,16]}}  )",
      16);
  const auto entries = parse_safetensors_header(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), "x");
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].name, "a");
  EXPECT_EQ(entries[1].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(entries[1].end, static_cast<int64_t>(bytes.size()));
}

struct HeaderFault {
  std::string header;
  size_t data_bytes;
  const char* says;
};

TEST(SafetensorsHeader, FaultsAreNamed) {
  const HeaderFault faults[] = {
      {"", 0, "incomplete JSON"},
      {"nonsense", 0, "not JSON"},
      {"[]", 0, "out of place"},
      {"{}{}", 0, "bytes after its JSON"},
      {R"({"a":1})", 4, "out of place"},
      {R"({"a":null})", 4, "out of place"},
      {R"({"a":{}})", 4, "expected dtype, found none"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "expected data_offsets, found none"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "expected two data_offsets, found 1"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 4, "expected two data_offsets, found 3"},
      {R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", 4, "unknown dtype F33"},
      {R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})", 4, "out of place"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "expected a number >= 0"},
      {R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4, "expected an integer"},
      {R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4, "out of place"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4, "unknown field x"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4, "dtype given twice"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "tensor a: named twice"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", 4, "outside the file's 4 data bytes"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "outside"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "needs 8 bytes, data_offsets hold 4"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4, "overflows"},
      {R"({"a":{"dtype":"F32","shape":[9223372036854775807],"data_offsets":[0,4]}})", 4, "overflows"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4, "too large"},
      {R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", 4, "more than 8 numbers"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
       6, "overlaps"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[6,10]}})",
       10, "belong to no tensor"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 9, "belong to no tensor"},
      {R"({")" + std::string(5000, 'n') + R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4,
       "longer than 1024"},
      {"{\"a\":" + std::string(5000, '['), 4, "out of place"},
  };
  for (const HeaderFault& fault : faults) {
    EXPECT_NE(error_of(file_with_header(fault.header, fault.data_bytes)).find(fault.says), std::string::npos)
        << fault.header.substr(0, 120) << "\n  says: " << error_of(file_with_header(fault.header, fault.data_bytes))
        << "\n  expected: " << fault.says;
  }
}

TEST(SafetensorsHeader, AbsurdLengthsAreRefusedBeforeReading) {
  for (const uint64_t length : {uint64_t{1} << 62, uint64_t{200} << 20, ~uint64_t{0}, uint64_t{9}}) {
    std::string bytes(reinterpret_cast<const char*>(&length), 8);
    bytes += "{}      ";
    EXPECT_NE(error_of(bytes), "") << length;
  }
  for (size_t size = 0; size < 8; ++size) EXPECT_NE(error_of(std::string(size, '\0')), "") << size;
}

TEST(SafetensorsHeader, AnyCutAndAnyFlippedByteIsAnErrorOrAValidHeader) {
  std::vector<TinyTensor> tensors = testing::tiny_tensors();
  tensors.resize(12);
  for (TinyTensor& t : tensors) t.bytes.resize(8), t.shape = {2};
  const std::string good = testing::safetensors_bytes(tensors);
  ASSERT_EQ(error_of(good), "");
  for (size_t cut = 0; cut < good.size(); ++cut) ASSERT_NE(error_of(good.substr(0, cut)), "") << cut;
  std::mt19937 random(7);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good;
    for (int n = 1 + static_cast<int>(random() % 3); n > 0; --n) {
      const size_t at = random() % (random() % 4 == 0 ? 16 : bytes.size());
      bytes[at] = random() % 2 ? static_cast<char>(random()) : "{}[]\",:0123456789eE-.\\u"[random() % 23];
    }
    refused += error_of(bytes) != "";
  }
  EXPECT_GT(refused, 10000) << "the flips must reach the checks";
}

class CheckpointTest : public ::testing::Test {
 protected:
  std::string load_error() {
    try {
      Checkpoint::open(directory_.path());
      return "";
    } catch (const LoadError& e) {
      return e.what();
    }
  }
  void write(const std::string& name, const std::string& bytes) {
    testing::write_file(directory_.path() + "/" + name, bytes);
  }
  static std::string one_tensor(const std::string& name) {
    return testing::safetensors_bytes({{.name = name, .shape = {1}, .bytes = std::vector<std::byte>(4)}});
  }
  const TemporaryDirectory directory_;
};

TEST_F(CheckpointTest, AnEmptyDirectoryOrFileIsNamed) {
  EXPECT_NE(load_error().find("found neither"), std::string::npos);
  write("model.safetensors", "");
  EXPECT_NE(load_error().find("model.safetensors: 0 bytes"), std::string::npos);
}

TEST_F(CheckpointTest, ShardsMustAgreeWithTheIndex) {
  const std::string index = "model.safetensors.index.json";
  write("1.safetensors", one_tensor("a"));
  write("2.safetensors", one_tensor("b"));
  write(index, R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  EXPECT_EQ(load_error(), "");
  EXPECT_EQ(Checkpoint::open(directory_.path()).tensors().size(), 2u);
  write(index, R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors","c":"1.safetensors"}})");
  EXPECT_NE(load_error().find("tensor c: the index lists it"), std::string::npos) << load_error();
  write(index, R"({"weight_map":{"a":"1.safetensors"}})");
  EXPECT_EQ(load_error(), "") << "a file that no tensor needs is not opened";
  write(index, R"({"weight_map":{"a":"2.safetensors"}})");
  EXPECT_NE(load_error().find("tensor b: the index does not list it"), std::string::npos) << load_error();
  write(index, R"({"weight_map":{"a":"3.safetensors"}})");
  EXPECT_NE(load_error().find("3.safetensors: No such file"), std::string::npos) << load_error();
  for (const char* bad : {"../1.safetensors", "/etc/passwd", ".", "", "a/b", "a\\u0000b"}) {
    write(index, std::string(R"({"weight_map":{"a":")") + bad + "\"}}");
    EXPECT_NE(load_error().find("not a plain file name"), std::string::npos) << bad << ": " << load_error();
  }
  for (const char* bad :
       {"", "{", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})", R"({"weight_map":{"a":1}})"}) {
    write(index, bad);
    EXPECT_NE(load_error(), "") << bad;
  }
}

TEST_F(CheckpointTest, FloatsChecksShapeAndType) {
  const float value = 1.5f;
  TinyTensor f{.name = "f", .shape = {1, 1}, .bytes = std::vector<std::byte>(4)};
  std::memcpy(f.bytes.data(), &value, 4);
  TinyTensor i{.name = "i", .shape = {1}, .dtype = "I32", .bytes = std::vector<std::byte>(4)};
  write("model.safetensors", testing::safetensors_bytes({f, i}));
  Checkpoint checkpoint = Checkpoint::open(directory_.path());
  EXPECT_EQ(*static_cast<const float*>(checkpoint.floats("f", {1, 1}).data), 1.5f);
  EXPECT_THROW(checkpoint.floats("f", {1}), LoadError);
  EXPECT_THROW(checkpoint.floats("i", {1}), LoadError);
  EXPECT_THROW(checkpoint.floats("g", {1}), LoadError);
  checkpoint.release("f");
  EXPECT_EQ(*static_cast<const float*>(checkpoint.floats("f", {1, 1}).data), 1.5f) << "released pages come back";
  float copied = 0;
  checkpoint.copy(checkpoint.floats("f", {1, 1}).data, sizeof copied, &copied);
  EXPECT_EQ(copied, 1.5f);
  checkpoint.copy(&value, sizeof copied, &copied);
  EXPECT_EQ(copied, 1.5f) << "what is in no file is read from memory";
}

TEST_F(CheckpointTest, ATensorAtAnOddAddressIsReadAligned) {
  const float value = -2.25f;
  std::string data(4, '\0');
  std::memcpy(data.data(), &value, 4);
  std::string bytes = file_with_header(R"({"f":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}} )", 0);
  while (bytes.size() % 4 != 1) {
    bytes = file_with_header(bytes.substr(8) + " ", 0);
  }
  write("model.safetensors", bytes + data);
  Checkpoint checkpoint = Checkpoint::open(directory_.path());
  const TensorView view = checkpoint.floats("f", {1});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data) % 4, 0u);
  EXPECT_EQ(*static_cast<const float*>(view.data), -2.25f);
}

}  // namespace
}  // namespace helios
