// ONNX's own node cases: each is a model with its inputs and outputs, either in its own folder or
// in test_data_set_0 and so on. Prints a table by op type. ONNX_NODE_CASES names another directory
// of cases. ONNX_CASE=test_add runs one case and prints its differences.
#include <coracle/convert/models.h>
#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/tensors.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/proto/onnx.pb.h>
#include <coracle/test/convert/onnx_cases.h>
#include <coracle/test/test_data.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>

namespace coracle::onnx::onnx_node_test {

namespace fs = std::filesystem;

proto::onnx::TensorProto ReadTensorProto(const std::string& path) {
  proto::onnx::TensorProto tensor;
  EXPECT_TRUE(tensor.ParseFromString(ReadFile(path))) << path;
  return tensor;
}

// input_0.pb, input_1.pb, ... of a case.
std::vector<Tensor> ReadTensors(const std::string& folder, const std::string& what) {
  std::vector<Tensor> tensors;
  for (int i = 0;; ++i) {
    const std::string path = fmt::format("{}/{}_{}.pb", folder, what, i);
    if (!FileExists(path)) return tensors;
    tensors.push_back(ParseTensorProto(ReadTensorProto(path), TensorSource()));
  }
}

// Rank 0 is [1] in a program.
Tensor Stored(const Tensor& tensor) {
  return tensor.shape().rank() == 0 ? tensor.Reshaped({1}) : tensor;
}

proto::onnx::ModelProto ReadModel(const std::string& folder) {
  proto::onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(ReadFile(folder + "/model.onnx"))) << folder;
  return model;
}

std::map<std::string, Tensor> ReadInputs(const std::string& folder, const std::string& values) {
  std::map<std::string, Tensor> inputs;
  const proto::onnx::ModelProto model = ReadModel(folder);
  const std::vector<Tensor> tensors = ReadTensors(values, "input");
  for (size_t i = 0; i < tensors.size(); ++i)
    inputs[model.graph().input(static_cast<int>(i)).name()] = Stored(tensors[i]);
  return inputs;
}

bool Near(const complex128& a, const complex128& b) {
  const auto near = [](double x, double y) {
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
    return x == y || std::abs(x - y) <= 1e-7 + 1e-3 * std::abs(y);
  };
  return near(a.real(), b.real()) && near(a.imag(), b.imag());
}

std::string Values(const Tensor& tensor) {
  std::string text;
  const Tensor wide = tensor.Cast(DType::kFloat64);
  for (int64_t i = 0; i < std::min<int64_t>(wide.numel(), 8); ++i)
    text += fmt::format(" {}", wide.data<double>()[i]);
  return text;
}

// The differences; "" if there are none.
std::string Difference(const Tensor& got, const Tensor& wanted) {
  if (got.dtype() != wanted.dtype() || got.shape() != wanted.shape())
    return fmt::format("got {}, wanted {}", got.ToString(), wanted.ToString());
  if (got.dtype() == DType::kString) {
    return BitEqual(got, wanted) ? ""
                                 : fmt::format("got '{}', wanted '{}'", Join(got.Strings(), "', '"),
                                               Join(wanted.Strings(), "', '"));
  }
  if (got.dtype() == DType::kUInt64) return BitEqual(got, wanted) ? "" : "the elements differ";
  const Tensor a = got.Cast(DType::kComplex128), b = wanted.Cast(DType::kComplex128);
  for (int64_t i = 0; i < a.numel(); ++i) {
    if (Near(a.data<complex128>()[i], b.data<complex128>()[i])) continue;
    return fmt::format("element {} differs; got{}, wanted{}", i, Values(got), Values(wanted));
  }
  return "";
}

// Why the model of a case does not give the outputs in `values` for the inputs there; "" if
// it does.
std::string RunValues(const std::string& folder, const std::string& values) {
  try {
    Scope scope;
    const std::map<std::string, Tensor> inputs = ReadInputs(folder, values);
    const InferenceModel model = ImportOnnxFor(folder + "/model.onnx", inputs, scope);
    if (std::getenv("ONNX_CASE")) std::cout << PrintProgram(model.program);
    PreparedProgram prepared = Executor().Prepare(model.program);
    std::vector<Tensor> feeds;
    for (const std::string& name : prepared.feed_names()) feeds.push_back(inputs.at(name));
    const std::vector<Tensor>& results = prepared.Run(scope, feeds);
    const std::vector<Tensor> outputs = ReadTensors(values, "output");
    if (results.size() != outputs.size())
      return fmt::format("{} results, wanted {}", results.size(), outputs.size());
    for (size_t i = 0; i < results.size(); ++i) {
      const std::string difference = Difference(results[i], Stored(outputs[i]));
      if (!difference.empty()) return fmt::format("output {}: {}", i, difference);
    }
    return "";
  } catch (const Error& e) {
    return std::string(e.what());
  }
}

std::string RunCase(const std::string& folder) {
  if (!IsDirectory(folder + "/test_data_set_0")) return RunValues(folder, folder);
  for (int i = 0;; ++i) {
    const std::string values = fmt::format("{}/test_data_set_{}", folder, i);
    if (!IsDirectory(values)) return "";
    const std::string problem = RunValues(folder, values);
    if (!problem.empty()) return problem;
  }
}

// The op type that a case is about.
std::string OpTypeOf(const std::string& folder) {
  const proto::onnx::ModelProto model = ReadModel(folder);
  return model.graph().node_size() > 0 ? model.graph().node(model.graph().node_size() - 1).op_type()
                                       : "none";
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

// $ONNX_NODE_CASES, or the cases of the test data.
std::string CasesDirectory() {
  if (const char* given = std::getenv("ONNX_NODE_CASES")) return given;
  const std::string data = TestDataDirectory();
  return !data.empty() && IsDirectory(data + "/onnx/node") ? data + "/onnx/node" : "";
}

TEST(OnnxNodeCases, GiveTheirOutputs) {
  const std::string cases = CasesDirectory();
  if (cases.empty()) GTEST_SKIP() << "ONNX's node cases are not here";
  const char* only = std::getenv("ONNX_CASE");
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(cases)) {
    const std::string name = entry.path().filename();
    if (!only || name == only) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  std::map<std::string, std::pair<int, int>> table;  // passed, all
  int passed = 0;
  for (const std::string& name : names) {
    const std::string folder = cases + "/" + name;
    const std::string problem = RunCase(folder);
    auto& [good, all] = table[OpTypeOf(folder)];
    ++all;
    good += problem.empty();
    passed += problem.empty();
    const bool pending = problem.find("the op type has no counterpart") != std::string::npos;
    const auto known = KnownFailures().find(name);
    if (pending)
      continue;
    else if (known == KnownFailures().end())
      EXPECT_EQ(problem, "") << name;
    else
      EXPECT_NE(problem, "") << name << " passes; take it out of the list of known failures";
    if (!problem.empty()) std::cout << name << ": " << FirstLine(problem) << "\n";
  }
  for (const auto& [type, counts] : table)
    std::cout << fmt::format("{:<28}{:>4} of {}\n", type, counts.first, counts.second);
  std::cout << fmt::format("{} of {} node cases pass\n", passed, names.size());
}
}  // namespace coracle::onnx::onnx_node_test
