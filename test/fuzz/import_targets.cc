// Targets that read models in other formats.

#include <coracle/convert/caffe/weights.h>
#include <coracle/convert/models.h>
#include <coracle/executor/drawn_values.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/test/fuzz/any_program.h>
#include <coracle/test/fuzz/memory_file.h>
#include <coracle/test/fuzz/small_limits.h>
#include <coracle/test/fuzz/targets.h>
#include <coracle/train/data/data_source.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

namespace coracle {
namespace {

// An imported program must run.
void RequireSound(const ProgramDesc& program) {
  for (const VerifyProblem& problem : Verify(program, DefaultOps())) {
    if (problem.severity == VerifyProblem::Severity::kError)
      throw std::logic_error("imported, but " + problem.ToString());
  }
}

// Inputs of zeros; 2 replaces an unknown dim.
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

// What is accepted need not verify: an op that the file describes may be one that cannot run.
void FuzzPir(std::string_view bytes) {
  SetLogSink([](MessageLevel, const std::string&) {});
  const ScopedLimits limits(SmallLimits());
  Refusable([&] {
    InferenceModel model;
    model.program = ParsePir(bytes, "input");
    model.feed_names = FeedNames(model.program);
    UseProgram(model.program);
    Scope scope;
    DrawMissingParameters(model.program, scope);
    PreparedProgram prepared = Executor().PrepareOwning(model.program, scope);
    prepared.Run(scope, ZerosFor(model));
  });
}

void FuzzCaffeWeights(std::string_view bytes) {
  const ScopedLimits limits(SmallLimits());
  Refusable([&] { caffe::ParseCaffeModel(bytes, "input"); });
}

void FuzzImageDatabase(std::string_view bytes) {
  const MemoryFile file(bytes);
  const ScopedLimits limits(SmallLimits());
  Refusable([&] {
    const DataSourcePtr source = MakeDatumSource({.file = file.path()});
    const int64_t rows = std::min<int64_t>(source->size(), 50);
    const Shape& image = source->columns()[0].shape;
    std::vector<Tensor> out = {Tensor(DType::kFloat32, {1, image[0], image[1], image[2]}),
                               Tensor(DType::kInt64, {1, 1})};
    for (int64_t row = 0; row < rows; ++row) source->Get(std::vector<int64_t>{row}, out);
  });
}

}  // namespace coracle
