#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/inspect/program_ends.h>
#include <coracle/operators/operators.h>
#include <coracle/train/data/feeder.h>
#include <coracle/train/run/forecast.h>
#include <coracle/train/run/timed_step.h>
#include <coracle/train/run/trainer.h>
#include <fmt/format.h>

#include <cmath>

#include "command_limits.h"
#include "commands.h"
#include "flags.h"
#include "process_ranks.h"
#include "program_input.h"

DECLARE_string(data_dir);
DECLARE_string(loss);
DECLARE_int32(batch_size);
DEFINE_int32(iterations, 50, "`N` timed runs");
DEFINE_double(latency_us, 2, "with --ranks: `MICROSECONDS` that an empty message takes");
DEFINE_double(gbps, 100, "with --ranks: `GBIT` per second between two machines");

namespace coracle::tools {
namespace {

std::string TimesOfJob(const std::string& file, const TimeOptions& options, bool batch_given) {
  if (!FLAGS_loss.empty()) throw UsageError("--loss is for a model: a job names its loss");
  JobConfig job = ReadJob(file);
  if (batch_given) job.batch_size = options.batch_size;
  return TimeJob(job, options).ToString();
}

// Forecasts the time of a job's step on many ranks.
std::string Forecast(const std::string& file, const TimeOptions& options, bool batch_given,
                     const std::vector<int>& ranks) {
  if (!FLAGS_loss.empty()) throw UsageError("--loss is for a model: a job names its loss");
  if (!(FLAGS_latency_us >= 0) || !(FLAGS_gbps > 0) || std::isinf(FLAGS_latency_us))
    throw UsageError("--latency_us takes a number that is not negative, --gbps one above 0");
  if (!(FLAGS_bucket_mb >= 0) || std::isinf(FLAGS_bucket_mb))
    throw UsageError("--bucket_mb takes a number that is not negative");
  JobConfig job = ReadJob(file);
  if (!FLAGS_data_dir.empty()) job.data_dir = FLAGS_data_dir;
  if (batch_given) job.batch_size = options.batch_size;
  return ForecastJob(
      job, {.time = options,
            .ranks = ranks,
            .bucket_mb = IsGiven("bucket_mb") ? FLAGS_bucket_mb : job.distribute.bucket_mb,
            .network = {FLAGS_latency_us * 1e-6, FLAGS_gbps * 1e9 / 8}});
}

// Sets the shapes of the inputs. Without --batch_size, the batch size is the size given by --shape
// for an unknown first dim; for an input of sequences, all its rows are one sequence.
void SetShapesOf(const ProgramDesc& program, const std::vector<std::string>& inputs,
                 TimeOptions* options) {
  const NamedShapes given = ShapesFromFlag();
  for (const auto& [name, shape] : given) {
    const VarDesc* var = program.Root().FindVar(name);
    if (IsGiven("batch_size")) break;
    if (!var || var->shape().rank() == 0 || var->shape()[0] >= 0 || shape.rank() == 0) continue;
    options->batch_size = var->lod_level() > 0 ? 1 : shape[0];
    if (var->lod_level() == 0) break;
  }
  options->shapes = FeedShapes(program, inputs, options->batch_size, given);
}

// The table of times, preceded by the drawn inputs.
std::string WithInputs(const ProgramDesc& program, const ModelTimes& times,
                       const NamedShapes& shapes) {
  std::string text;
  for (const auto& [name, shape] : shapes) {
    const DType dtype = program.Root().FindVar(name)->dtype();
    text += fmt::format("input {} {}{}\n", Shown(name), ToString(dtype), shape.ToString());
  }
  return text + times.ToString();
}

std::string TimesOfModel(const std::string& file, TimeOptions options) {
  const BuiltModel model = ReadModelText(file);
  if (!FLAGS_loss.empty()) options.loss = FLAGS_loss;
  if (!FLAGS_loss.empty() && !model.main.Root().FindVar(FLAGS_loss))
    throw Error(ErrorCode::kNotFound, "--loss: the model has no variable " + Quote(FLAGS_loss));
  if (model.startup.Root().NumOps() == 0 && !model.main.Parameters().empty()) {
    throw Error(ErrorCode::kInvalidArgument, "nothing initialises the parameters of " +
                                                 Quote(file, 300) + ": give a model text");
  }
  SetShapesOf(model.main, model.inputs.empty() ? FindInputs(model.main) : model.inputs, &options);
  return WithInputs(model.main, TimeModel(model, options), options.shapes);
}

std::string TimesOfSavedModel(const std::string& file, TimeOptions options) {
  const ProgramDesc program = ReadAnyProgram(file);
  SetShapesOf(program, InputNames(program, DefaultOps()), &options);
  return WithInputs(program, TimeSavedModel(file, options), options.shapes);
}

int RunTime(const std::vector<std::string>& args) {
  RequireArgs(args, 1, 1, "one MODEL or JOB.pbtxt");
  const bool given = IsGiven("batch_size");
  TimeOptions options;
  options.compile = CompileOptionsFromFlags();
  if (given) options.batch_size = FLAGS_batch_size;
  options.iterations = FLAGS_iterations;
  if (options.batch_size < 1) throw UsageError("--batch_size must be at least 1");
  if (options.iterations < 1 || options.iterations > 1'000'000)
    throw UsageError("--iterations must lie in [1, 1000000]");
  const std::vector<int> ranks = RanksFromFlag();
  RequireOneProcess("time", "`coracle train JOB --profile` measures a job on all of them");
  const CommandLimits limits(CommandLimits::Time::kRuns);
  const std::string file = ProgramFile(args[0]);
  const bool job = IsJob(file);
  if (!ranks.empty() && !job) {
    ReadFileOrStdin(file, kMaxProgramBytes);  // throws if the file does not exist
    throw UsageError("--ranks is for a job, but " + Quote(file, 300) + " is not a job");
  }
  if (ranks.empty() && IsGiven("data_dir"))
    throw UsageError("--data_dir needs --ranks: without it, time draws the data");
  if (job && IsGiven("shape"))
    throw UsageError("--shape is for a model: a job takes its shapes from its data");
  const bool saved = FLAGS_loss.empty() && !ParametersBeside(file).empty();
  Print(!ranks.empty() ? Forecast(file, options, given, ranks)
        : job          ? TimesOfJob(file, options, given)
        : saved        ? TimesOfSavedModel(file, options)
                       : TimesOfModel(file, options));
  return 0;
}

}  // namespace

Command TimeCommand() {
  return {"time",
          "times a model, saved or as text, or a job's step: forward, backward and update of each "
          "layer",
          "time MODEL|JOB.pbtxt [--batch_size=64] [--shape=VAR:1x3x640x640,...] [--iterations=50] "
          "[--loss=loss] [--ranks=8,64 [--data_dir=DIR]]",
          "  coracle time examples/digits/lenet.pbtxt --batch_size=64\n"
          "  coracle time examples/mnist/lenet_bfloat16.pbtxt\n"
          "  coracle time inference.pdmodel --shape=x:1x3x640x640\n"
          "  coracle time job.pbtxt --ranks=8,64,1024 --latency_us=5 --gbps=25\n",
          WithCompileFlags({"batch_size", "data_dir", "shape", "iterations", "loss", "ranks",
                            "bucket_mb", "latency_us", "gbps"}),
          RunTime};
}

}  // namespace coracle::tools
