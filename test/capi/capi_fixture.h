#pragma once
// What the tests of the C interface share: the models, and tensors of the caller.

#include <coracle/coracle_c.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace coracle {

struct ShellOutput {
  int status = 0;
  std::string text;
};

inline ShellOutput Shell(const std::string& command) {
  ShellOutput output;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  char buffer[4096];
  while (const size_t count = std::fread(buffer, 1, sizeof buffer, pipe))
    output.text.append(buffer, count);
  output.status = pclose(pipe);
  return output;
}

inline std::string FileBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// A tensor of the caller.
struct Values {
  std::vector<int64_t> dims;
  std::vector<float> elements;

  coracle_tensor View() {
    coracle_tensor tensor = {};
    tensor.struct_size = sizeof tensor;
    tensor.dtype = CORACLE_FLOAT32;
    tensor.rank = static_cast<int32_t>(dims.size());
    tensor.dims = dims.data();
    tensor.data = elements.data();
    tensor.bytes = elements.size() * sizeof(float);
    return tensor;
  }
};

inline coracle_tensor Empty() {
  coracle_tensor tensor = {};
  tensor.struct_size = sizeof tensor;
  return tensor;
}

inline std::vector<float> FloatsOf(const coracle_tensor& tensor) {
  const auto* data = static_cast<const float*>(tensor.data);
  return {data, data + tensor.bytes / sizeof(float)};
}

class Capi : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    char name[] = "/tmp/capi_test.XXXXXX";
    directory_ = mkdtemp(name);
    const ShellOutput made = Shell(CORACLE_MODELS " " + directory_);
    ASSERT_EQ(made.status, 0) << made.text;
    expected_.clear();
    std::istringstream numbers(made.text);
    for (float value = 0; numbers >> value;) expected_.push_back(value);
    ASSERT_EQ(expected_.size(), 4u);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(directory_); }

  void TearDown() override { Free(); }

  void Free() {
    coracle_session_free(session_);
    coracle_model_free(model_);
    session_ = nullptr, model_ = nullptr;
  }

  void Load(const std::string& name, const coracle_options* options = nullptr) {
    ASSERT_EQ(coracle_model_load((directory_ + "/" + name).c_str(), options, &model_), CORACLE_OK)
        << coracle_last_error();
    ASSERT_EQ(coracle_session_new(model_, &session_), CORACLE_OK) << coracle_last_error();
  }
  void ExpectCircle(coracle_session* session) {
    Values points = {{2, 2}, {0, 0, 0.5f, -1}};
    coracle_tensor in = points.View(), out = Empty();
    ASSERT_EQ(coracle_session_run(session, &in, 1, &out, 1), CORACLE_OK) << coracle_last_error();
    ASSERT_EQ(out.rank, 2);
    EXPECT_EQ(out.dims[0], 2);
    EXPECT_EQ(out.dims[1], 2);
    const std::vector<float> got = FloatsOf(out);
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(got[i], expected_[i], 1e-5f);
  }

  static inline std::string directory_;
  static inline std::vector<float> expected_;
  coracle_model* model_ = nullptr;
  coracle_session* session_ = nullptr;
};

}  // namespace coracle
