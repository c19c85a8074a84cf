#include <coracle/backward/backward.h>
#include <coracle/convert/models.h>
#include <coracle/executor/drawn_values.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/inspect/inspect.h>
#include <coracle/layers/layer.h>
#include <coracle/tools/bench_subject.h>
#include <coracle/tools/command.h>
#include <coracle/tools/program_input.h>
#include <coracle/train/job/job.h>
#include <coracle/train/run/timed_step.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace coracle::tools {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

BenchSubject ReadJobSubject(const std::string& file, const SubjectFlags& flags, int64_t batch_size,
                            ProgramDesc* startup) {
  if (!flags.params.empty() || !flags.fetch.empty())
    throw UsageError(
        "--params and --fetch are for programs: a job names what it loads and fetches");
  JobConfig job = ReadJob(file);
  if (batch_size > 0) job.batch_size = batch_size;
  TimedStep step = StepOfJob(job);
  *startup = std::move(step.startup);
  BenchSubject subject{"job", std::move(step.main), std::move(step.inputs),
                       std::move(step.fetches)};
  subject.trains = true;
  subject.batch_size = step.batch_size;
  subject.batches = step.batches;
  return subject;
}

// Reads a program, or the forward pass of a model text, as it would be deployed.
BenchSubject ReadModelSubject(const std::string& file, const SubjectFlags& flags,
                              ProgramDesc* startup) {
  FLAGS_shape = Join(flags.shape, ",");
  BuiltModel model;
  if (IsOnnx(file) || IsPirFile(file))
    model.main = ReadAnyProgram(file);
  else
    model = ReadModelText(file);
  const bool text = model.startup.Root().NumOps() > 0;
  *startup = std::move(model.startup);
  BenchSubject subject{text ? "model text" : "program",
                       text ? model.main.CloneForTest() : std::move(model.main),
                       {},
                       {}};
  subject.feeds = InputNames(subject.program, DefaultOps());
  subject.fetches = DenseNames(subject.program.Root(), flags.fetch);
  if (subject.fetches.empty()) subject.fetches = OutputNames(subject.program, DefaultOps());
  if (HasOpOfKind(subject.program.Root(), OpKind::kFetch, DefaultOps()))
    subject.kind = "saved model";
  return subject;
}

// Returns the source of the parameters.
std::string LoadWeights(const std::string& file, const SubjectFlags& flags,
                        const ProgramDesc& startup, BenchSubject* subject) {
  if (flags.draw || PersistableNames(subject->program).empty()) return "none";
  const std::string path =
      flags.params.empty() ? ParametersNextTo(file, subject->program) : flags.params;
  if (!path.empty()) {
    ReadParameters(subject->program, path, subject->scope);
    return "file";
  }
  if (startup.Root().NumOps() == 0) return "none";
  Executor(CompileOptionsOf(flags.compile)).Run(startup, subject->scope);
  return "startup program";
}

int64_t SamplesOf(const BenchSubject& subject, const VarDesc& var, const Tensor& value) {
  return var.lod_level() > 0 ? subject.batch_size : value.shape()[0];
}

}  // namespace

Fields<SubjectFlags> SubjectFields() {
  return Fields<SubjectFlags>("")
      .Add("shape", &SubjectFlags::shape, kShapeDoc)
      .Add("fetch", &SubjectFlags::fetch,
           "`NAMES` of the variables to fetch; none: those of the fetch ops, or the outputs")
      .Add("params", &SubjectFlags::params, kParamsDoc)
      .Add("draw", &SubjectFlags::draw, "draw all parameters, not only those that no file provides")
      .Inline(&SubjectFlags::compile, CompileFields(/*with_profile=*/false));
}

BenchSubject LoadSubject(const std::string& path, const SubjectFlags& flags, int64_t batch_size,
                         double* seconds) {
  if (flags.draw && !flags.params.empty())
    throw UsageError("--draw and --params exclude each other");
  const Clock::time_point begin = Clock::now();
  const std::string file = ProgramFile(path);
  ProgramDesc startup;
  BenchSubject subject = IsJob(file) ? ReadJobSubject(file, flags, batch_size, &startup)
                                     : ReadModelSubject(file, flags, &startup);
  if (!subject.trains) subject.batch_size = std::max<int64_t>(batch_size, 1);
  subject.weights = LoadWeights(file, flags, startup, &subject);
  *seconds = SecondsSince(begin);
  const bool drawn = !DrawMissingParameters(subject.program, subject.scope).empty();
  if (drawn)
    subject.weights = subject.weights == "none" ? "drawn" : subject.weights + ", rest drawn";
  return subject;
}

BenchFeeds DrawFeeds(const BenchSubject& subject, const SubjectFlags& flags,
                     const std::vector<std::string>& names) {
  const BlockDesc& root = subject.program.Root();
  const NamedShapes shapes =
      FeedShapes(subject.program, names, subject.batch_size, ShapesOf(flags.shape));
  BenchFeeds feeds{names, {}, 0};
  for (size_t i = 0; i < names.size(); ++i) {
    const VarDesc& var = *root.FindVar(names[i]);
    feeds.values.push_back(
        DrawFeed(subject.program, names[i], shapes[i].second, subject.batch_size));
    const bool batch = var.shape().rank() > 0 && var.shape()[0] < 0 && shapes[i].second.rank() > 0;
    if (feeds.samples == 0 && batch) feeds.samples = SamplesOf(subject, var, feeds.values.back());
  }
  feeds.samples = std::max<int64_t>(feeds.samples, 1);
  return feeds;
}

}  // namespace coracle::tools
