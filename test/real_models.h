#pragma once
// The models that Paddle exported, with values for what they read.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/program.h>
#include <coracle/test/test_data.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace coracle {

// Values for what a program without its parameters reads: of the size at which activations keep
// theirs, and positive where they may be variances.
inline void DrawParameters(const ProgramDesc& program, Scope& scope) {
  uint64_t state = 1;
  const auto draw = [&](double low, double high) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<float>(low + (high - low) * static_cast<double>(state >> 40) / (1 << 24));
  };
  for (const std::string& name : PersistableNames(program)) {
    const VarMeta& meta = program.Root().FindVar(name)->meta();
    ASSERT_EQ(meta.dtype, DType::kFloat32) << name;
    Tensor value(meta.dtype, meta.shape);
    const int64_t outputs = meta.shape.rank() > 1 ? std::max<int64_t>(meta.shape[0], 1) : 1;
    const double limit = 0.5 * std::sqrt(6.0 * static_cast<double>(outputs) /
                                         static_cast<double>(std::max<int64_t>(value.numel(), 1)));
    for (float& v : value.span<float>())
      v = meta.shape.rank() > 1 ? draw(-limit, limit) : draw(0.5, 1.5);
    scope.Set(name, std::move(value));
  }
}

// The input of a program: dims that it leaves open are of this size.
inline Tensor DrawInput(const VarMeta& meta, int64_t size) {
  Shape shape;
  for (int i = 0; i < meta.shape.rank(); ++i)
    shape.Append(meta.shape[i] >= 0 ? meta.shape[i] : i == 0 ? 1 : size);
  if (meta.lod_level > 0) {  // ids of two sentences
    Tensor ids(meta.dtype, {7, 1});
    for (int64_t i = 0; i < 7; ++i) ids.data<int64_t>()[i] = 11 * i % 17;
    ids.lod() = {{0, 3, 7}};
    return ids;
  }
  Tensor x(meta.dtype, shape);
  if (meta.dtype == DType::kInt64) {  // lengths
    for (int64_t& n : x.span<int64_t>()) n = 7;
    return x;
  }
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] = static_cast<float>((i * 37) % 101) / 50 - 1;
  return x;
}

// A model with values for all that it reads: drawn ones where the saved ones are not there.
struct DrawnModel {
  std::string path;  // of its program
  ProgramDesc program;
  Scope scope;
  std::map<std::string, Tensor> feeds;
  std::vector<std::string> fetches;
};

// f(model) for each of the twelve; unknown dims of what they are fed are of that size.
template <class F>
void ForEachModel(int64_t size, const F& f) {
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TestDataDirectory() + "/paddle")) {
    const std::string path = entry.path().string() + "/inference.pdmodel";
    if (!std::filesystem::exists(path)) continue;
    SCOPED_TRACE(path);
    ++models;
    DrawnModel model;
    model.path = path;
    model.program = ReadProgram(path);
    if (std::filesystem::exists(entry.path() / "inference.pdiparams")) {
      LoadParameters(model.program, entry.path().string() + "/inference.pdiparams", model.scope);
    } else {
      DrawParameters(model.program, model.scope);
    }
    const BlockDesc& root = model.program.Root();
    root.ForEachOp([&](const OpDesc& op) {
      if (op.type() == "feed")
        model.feeds[op.Output("Out")[0]] =
            DrawInput(root.FindVar(op.Output("Out")[0])->meta(), size);
      if (op.type() == "fetch") model.fetches.push_back(op.Input("X")[0]);
    });
    f(model);
  }
  EXPECT_EQ(models, 12);
}

}  // namespace coracle
