#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/inspect/inspect.h>
#include <coracle/operators/operators.h>
#include <coracle/tools/command_limits.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/process_ranks.h>
#include <coracle/tools/program_input.h>
#include <coracle/train/run/feeder.h>
#include <coracle/train/run/time_model.h>
#include <coracle/train/run/timed_step.h>
#include <fmt/format.h>

namespace coracle::tools {
namespace {

struct TimeFlags {
  std::optional<int32_t> batch_size = {};
  std::vector<std::string> shape = {};
  int32_t iterations = 50;
  std::string loss = {};
  CompileFlags compile = {};
};

Fields<TimeFlags> TimeFields() {
  return Fields<TimeFlags>("")
      .Add("batch_size", &TimeFlags::batch_size,
           "`N` for the unknown dimensions of drawn feeds (default: 64, or a job's own batch "
           "size)",
           LimitedRange(1, INT32_MAX))
      .Add("shape", &TimeFlags::shape, kShapeDoc)
      .Add("iterations", &TimeFlags::iterations, "`N` timed runs", ClosedRange(1, 1000000))
      .Add("loss", &TimeFlags::loss, "`NAME` of the loss of a model (default: loss)")
      .Inline(&TimeFlags::compile, CompileFields());
}

std::string TimesOfJob(const TimeFlags& flags, const std::string& file,
                       const TimeOptions& options) {
  if (!flags.loss.empty()) throw UsageError("--loss is for a model: a job names its loss");
  JobConfig job = ReadJob(file);
  if (flags.batch_size) job.batch_size = options.batch_size;
  return TimeJob(job, options).ToString();
}

// Sets the shapes of the inputs. Without --batch_size, the batch size is the size given by --shape
// for an unknown first dim; for an input of sequences, all its rows are one sequence.
void SetShapesOf(const TimeFlags& flags, const ProgramDesc& program,
                 const std::vector<std::string>& inputs, TimeOptions* options) {
  const NamedShapes given = ShapesOf(flags.shape);
  for (const auto& [name, shape] : given) {
    const VarDesc* var = program.Root().FindVar(name);
    if (flags.batch_size) break;
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

std::string TimesOfModel(const TimeFlags& flags, const std::string& file, TimeOptions options) {
  const BuiltModel model = ReadModelText(file);
  if (!flags.loss.empty()) options.loss = flags.loss;
  if (!flags.loss.empty() && !model.main.Root().FindVar(flags.loss))
    throw Error(ErrorCode::kNotFound, "--loss: the model has no variable " + Quote(flags.loss));
  if (model.startup.Root().NumOps() == 0 && !model.main.Parameters().empty()) {
    throw Error(ErrorCode::kInvalidArgument, "nothing initialises the parameters of " +
                                                 Quote(file, 300) + ": give a model text");
  }
  SetShapesOf(flags, model.main, model.inputs.empty() ? FindInputs(model.main) : model.inputs,
              &options);
  return WithInputs(model.main, TimeModel(model, options), options.shapes);
}

std::string TimesOfSavedModel(const TimeFlags& flags, const std::string& file,
                              TimeOptions options) {
  const ProgramDesc program = ReadAnyProgram(file);
  SetShapesOf(flags, program, InputNames(program, DefaultOps()), &options);
  return WithInputs(program, TimeSavedModel(file, options), options.shapes);
}

int RunTime(const Args& args, const TimeFlags& flags) {
  RequireArgs(args, 1, 1, "one MODEL or JOB.pbtxt");
  TimeOptions options;
  options.compile = CompileOptionsOf(flags.compile);
  if (flags.batch_size) options.batch_size = *flags.batch_size;
  options.iterations = flags.iterations;
  RequireOneProcess("time", "`coracle train JOB --profile` measures a job on all of them");
  const CommandLimits limits(flags.compile.limits, CommandLimits::Time::kRuns);
  const std::string file = ProgramFile(args[0]);
  const bool job = IsJob(file);
  if (job && !flags.shape.empty())
    throw UsageError("--shape is for a model: a job takes its shapes from its data");
  const bool saved = flags.loss.empty() && !ParametersNextTo(file).empty();
  Print(job     ? TimesOfJob(flags, file, options)
        : saved ? TimesOfSavedModel(flags, file, options)
                : TimesOfModel(flags, file, options));
  return 0;
}

}  // namespace

Command TimeCommand() {
  return MakeCommand(
      {"time",
       "times a model, saved or as text, or a job's step: forward, backward and update of each "
       "layer",
       "time MODEL|JOB.pbtxt [--batch_size=64] [--shape=VAR:1x3x640x640,...] [--iterations=50] "
       "[--loss=loss]",
       "  coracle time examples/digits/lenet.pbtxt --batch_size=64\n"
       "  coracle time examples/mnist/lenet_bfloat16.pbtxt\n"
       "  coracle time inference.pdmodel --shape=x:1x3x640x640\n"},
      TimeFields(), RunTime);
}

}  // namespace coracle::tools
