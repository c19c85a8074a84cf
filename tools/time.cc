#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/train/run/trainer.h>

#include "command_limits.h"
#include "commands.h"
#include "flags.h"
#include "program_input.h"

DECLARE_string(loss);
DECLARE_int32(batch_size);
DEFINE_int32(iterations, 50, "`N` timed runs");

namespace coracle::tools {
namespace {

std::string TimesOfJob(const std::string& file, const TimeOptions& options, bool batch_given) {
  if (!FLAGS_loss.empty()) throw UsageError("--loss is for a model: a job names its loss");
  JobConfig job = ReadJob(file);
  if (batch_given) job.batch_size = options.batch_size;
  return TimeJob(job, options).ToString();
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
  return TimeModel(model, options).ToString();
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
  const CommandLimits limits(CommandLimits::Time::kRuns);
  const std::string file = ProgramFile(args[0]);
  const bool job = file.ends_with(".pbtxt") && LooksLikeJob(ReadFile(file, kMaxProgramBytes));
  const bool saved = FLAGS_loss.empty() && !ParametersBeside(file).empty();
  Print(job     ? TimesOfJob(file, options, given)
        : saved ? TimeSavedModel(file, options).ToString()
                : TimesOfModel(file, options));
  return 0;
}

}  // namespace

Command TimeCommand() {
  return {"time",
          "times a model, saved or as text, or a job's step: forward, backward and update of each "
          "layer",
          "time MODEL|JOB.pbtxt [--batch_size=64] [--iterations=50] [--loss=loss]",
          "  coracle time examples/digits/lenet.pbtxt --batch_size=64\n"
          "  coracle time examples/mnist/lenet_bfloat16.pbtxt\n"
          "  coracle time inference.pdmodel --batch_size=1\n",
          WithCompileFlags({"batch_size", "iterations", "loss"}),
          RunTime};
}

}  // namespace coracle::tools
