// Builds a net with the builder, clips its errors, trains, saves, reloads, and uses an op
// of its own.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "double_op.h"

using namespace coracle;

namespace {

// As docs/executor.md states, results with frozen parameters differ only in their last bits.
bool DifferInLastBits(const Tensor& a, const Tensor& b) {
  if (!(a.shape() == b.shape())) return false;
  float largest = 0, difference = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    const float x = a.data<float>()[i], y = b.data<float>()[i];
    if (std::isnan(x - y)) return false;
    largest = std::max(largest, std::abs(x));
    difference = std::max(difference, std::abs(x - y));
  }
  return difference <= 1e-6f * largest;
}

// This program is not linked to the library that reads other formats.
bool RefusesOnnx() {
  std::fclose(std::fopen("other.onnx", "w"));
  Scope scope;
  try {
    LoadInferenceModel("other.onnx", scope);
    return false;
  } catch (const Error& e) {
    return e.message().find("coracle_convert") != std::string::npos;
  }
}

struct Points {
  Tensor x{DType::kFloat32, {64, 2}}, y{DType::kInt64, {64, 1}};
};

// Inside or outside of a circle.
Points MakePoints(uint64_t seed) {
  Points points;
  Philox random(seed, 1, 0);
  for (int64_t i = 0; i < 64; ++i) {
    float a = 2 * random.UniformFloat(static_cast<uint64_t>(2 * i)) - 1;
    float b = 2 * random.UniformFloat(static_cast<uint64_t>(2 * i + 1)) - 1;
    points.x.data<float>()[2 * i] = a;
    points.x.data<float>()[2 * i + 1] = b;
    points.y.data<int64_t>()[i] = a * a + b * b < 0.5f;
  }
  return points;
}

int Fail(const char* what) {
  std::fprintf(stderr, "consumer: %s\n", what);
  return 1;
}

int Run() {
  RegisterDouble(DefaultOps());
  ProgramDesc main, startup;
  Builder net(main, startup);
  Variable x = net.Data("x", {-1, 2});
  Variable y = net.Data("y", {-1, 1}, DType::kInt64);
  Variable hidden = net.Fc(net.Unary("my_double", x),
                           {.size = 32, .act = "tanh", .error_clip = ErrorClipByValue(0.5)});
  Variable logits = net.Fc(hidden, {.size = 2, .output = "logits"});
  Variable loss = net.Mean(net.SoftmaxWithCrossEntropy(logits, y));
  Adam({.learning_rate = 0.02}).Minimize(loss, startup);

  Scope scope;
  Executor exe;
  exe.Run(startup, scope);
  PreparedProgram step = exe.Prepare(main, {"x", "y"}, {loss.name()});
  float first = 0, last = 0;
  for (uint64_t i = 0; i < 300; ++i) {
    Points batch = MakePoints(i + 1);
    last = step.Run(scope, {batch.x, batch.y})[0].Item<float>();
    if (i == 0) first = last;
  }
  std::printf("loss %.4f -> %.4f\n", static_cast<double>(first), static_cast<double>(last));
  if (!(last < 0.5f * first)) return Fail("the loss did not fall to half");

  SaveInferenceModel("circle", {"x"}, {"logits"}, main, scope);
  Scope loaded;
  InferenceModel model = LoadInferenceModel("circle", loaded);
  Points test = MakePoints(12345);
  Tensor before = exe.Run(main.CloneForTest(), scope, {{"x", test.x}}, {"logits"})[0];
  Tensor after =
      exe.Run(model.program, loaded, {{model.feed_names[0], test.x}}, model.fetch_names)[0];
  if (!BitEqual(before, after)) return Fail("the reloaded model computes something else");
  PreparedProgram frozen = exe.PrepareOwning(model.program, loaded);
  // Products of packed constants may be added up in another order; measured: 2.8e-7 of the largest.
  if (!DifferInLastBits(before, frozen.Run(loaded, {test.x})[0]))
    return Fail("the model with frozen parameters computes something else");

  if (!RefusesOnnx()) return Fail("an ONNX model was read without the library for it");
  try {
    net.Fc(Variable::Of(main.Root(), "no_such_var"), {.size = 1});
    return Fail("an unknown variable was accepted");
  } catch (const Error& e) {
    std::printf("as expected: %s\n", e.message().c_str());
  }
  std::puts("consumer: all is well");
  return 0;
}

}  // namespace

int main() {
  try {
    return Run();
  } catch (const Error& e) {
    return Fail(e.what());
  }
}
