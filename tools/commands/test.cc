#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/tools/command_limits.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/process_ranks.h>
#include <coracle/tools/test_rows.h>
#include <coracle/train/run/run.h>

#include <filesystem>
#include <iostream>

namespace coracle::tools {
namespace {

struct TestFlags {
  std::string data_dir = {};
  std::string test_set = {};
  std::string data = {};
  CompileFlags compile = {};
};

Fields<TestFlags> TestFields() {
  return Fields<TestFlags>("")
      .Add("data_dir", &TestFlags::data_dir,
           "`DIR` that contains the data files with relative names")
      .Add("test_set", &TestFlags::test_set, "only that test set: `NAME`")
      .Add(
          "data", &TestFlags::data,
          "without a job: a csv `FILE` of raw rows with labels, for a model that `coracle predict` "
          "takes")
      .Inline(&TestFlags::compile, CompileFields());
}

// The model that measures loss and metrics in a run's output directory.
std::string ModelFile(const std::string& path) {
  const std::filesystem::path eval = std::filesystem::path(path) / "eval.pdmodel";
  return IsDirectory(path) && FileExists(eval.string()) ? eval.string() : path;
}

int TestOnRows(const Args& args, const TestFlags& flags) {
  RequireArgs(args, 1, 1, "MODEL, as --data gives the rows");
  for (const std::string& other : {flags.data_dir, flags.test_set})
    if (!other.empty()) throw UsageError("--data_dir and --test_set are for a JOB.pbtxt");
  const CommandLimits limits(flags.compile.limits, CommandLimits::Time::kRuns);
  Print("test: " + MeasureRows(args[0], flags.data, CompileOptionsOf(flags.compile)) + "\n");
  return 0;
}

int RunTest(const Args& args, const TestFlags& flags) {
  if (!flags.data.empty()) return TestOnRows(args, flags);
  RequireArgs(args, 2, 2, "MODEL and JOB.pbtxt");
  if (args[1].ends_with(".pdmodel"))
    throw UsageError("MODEL comes before JOB.pbtxt, got " + Quote(args[1], 300) + " as the job");
  RequireOneProcess("test", "`coracle train` evaluates its test sets on all of them");
  const CommandLimits limits(flags.compile.limits, CommandLimits::Time::kRuns);
  JobConfig job = ReadJob(args[1]);
  if (!flags.data_dir.empty()) job.data_dir = flags.data_dir;
  EvaluateOptions options;
  options.test_set = flags.test_set;
  options.compile = CompileOptionsOf(flags.compile);
  const int code = TestAndReport(ModelFile(args[0]), job, options, std::cout);
  std::cout.flush();
  return code;
}

}  // namespace

Command TestCommand() {
  return MakeCommand(
      {"test", "evaluates a saved model on the test sets of a job",
       "test MODEL JOB.pbtxt [--test_set=NAME] [--data_dir=DIR], or test MODEL --data=rows.csv",
       "  coracle test output/digits_lenet/eval.pdmodel examples/digits/lenet_job.pbtxt\n"
       "  coracle test output/iris --data=iris.csv\n"},
      TestFields(), RunTest);
}

}  // namespace coracle::tools
