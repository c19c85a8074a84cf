#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/run/run.h>

#include <filesystem>
#include <iostream>

#include "command_limits.h"
#include "commands.h"
#include "flags.h"
#include "process_ranks.h"

DECLARE_string(data_dir);
DEFINE_string(test_set, "", "only that test set: `NAME`");

namespace coracle::tools {
namespace {

// The model that measures loss and metrics in a run's output directory.
std::string ModelFile(const std::string& path) {
  const std::filesystem::path eval = std::filesystem::path(path) / "eval.pdmodel";
  return IsDirectory(path) && FileExists(eval.string()) ? eval.string() : path;
}

int RunTest(const std::vector<std::string>& args) {
  RequireArgs(args, 2, 2, "MODEL and JOB.pbtxt");
  if (args[1].ends_with(".pdmodel"))
    throw UsageError("MODEL comes before JOB.pbtxt, got " + Quote(args[1], 300) + " as the job");
  RequireOneProcess("test", "`coracle train` evaluates its test sets on all of them");
  const CommandLimits limits(CommandLimits::Time::kRuns);
  JobConfig job = ReadJob(args[1]);
  if (!FLAGS_data_dir.empty()) job.data_dir = FLAGS_data_dir;
  EvaluateOptions options;
  options.test_set = FLAGS_test_set;
  options.compile = CompileOptionsFromFlags();
  const int code = TestAndReport(ModelFile(args[0]), job, options, std::cout);
  std::cout.flush();
  return code;
}

}  // namespace

Command TestCommand() {
  return {"test",
          "evaluates a saved model on the test sets of a job",
          "test MODEL JOB.pbtxt [--test_set=NAME] [--data_dir=DIR]",
          "  coracle test output/digits_lenet/eval.pdmodel examples/digits/lenet_job.pbtxt\n",
          WithCompileFlags({"data_dir", "test_set"}),
          RunTest};
}

}  // namespace coracle::tools
