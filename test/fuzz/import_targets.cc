// Targets that read models in other formats.

#include <coracle/convert/caffe/weights.h>
#include <coracle/convert/onnx_import.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/test/fuzz/any_program.h>
#include <coracle/test/fuzz/targets.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace coracle {
namespace {

std::shared_ptr<ResourceLimits> SmallLimits() {
  return std::make_shared<ResourceLimits>(
      ResourceOptions{.memory = uint64_t{64} << 20, .seconds = 2});
}

// What is imported must be a program that runs.
void RequireSound(const ProgramDesc& program) {
  for (const VerifyProblem& problem : Verify(program, DefaultOps())) {
    if (problem.severity == VerifyProblem::Severity::kError)
      throw std::logic_error("imported, but " + problem.ToString());
  }
}

// Inputs of zeros; 2 stands for a dim that is not known.
std::vector<Tensor> ZerosFor(const InferenceModel& model) {
  std::vector<Tensor> feeds;
  for (const std::string& name : model.feed_names) {
    const VarDesc& var = *model.program.Root().FindVar(name);
    Shape shape = var.shape();
    for (int i = 0; i < shape.rank(); ++i) shape[i] = shape[i] < 0 ? 2 : shape[i];
    feeds.push_back(Tensor::Zeros(var.dtype(), shape));
  }
  return feeds;
}

}  // namespace

void FuzzOnnx(std::string_view bytes) {
  SetLogSink([](MessageLevel, const std::string&) {});
  const ScopedLimits limits(SmallLimits());
  Refusable([&] {
    Scope scope;
    const InferenceModel model = ParseOnnx(bytes, "input", scope);
    RequireSound(model.program);
    UseProgram(model.program);
    PreparedProgram prepared = Executor().PrepareOwning(model.program, scope);
    prepared.Run(scope, ZerosFor(model));
  });
}

void FuzzCaffeWeights(std::string_view bytes) {
  const ScopedLimits limits(SmallLimits());
  Refusable([&] { caffe::ParseCaffeModel(bytes, "input"); });
}

}  // namespace coracle
