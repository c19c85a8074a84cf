#include <coracle/framework/base/file.h>
#include <coracle/tools/command_limits.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/process_ranks.h>
#include <coracle/tools/program_input.h>
#include <coracle/tools/raw_rows.h>
#include <coracle/tools/report_rows.h>
#include <fmt/format.h>

namespace coracle::tools {
namespace {

struct ReportFlags {
  std::string data = {};
  std::string label = {};
  std::string job = {};
  std::string test_set = {};
  std::string data_dir = {};
  std::string out = {};
  int64_t top = 5;
  int64_t worst = 10;
  bool scores = false;
  std::optional<int64_t> decode_mb = {};
  CompileFlags compile = {};
};

Fields<ReportFlags> ReportFields() {
  using O = ReportFlags;
  return Fields<O>("")
      .Add("data", &O::data,
           "labelled rows as `coracle predict` takes them: a csv or jsonl `FILE`, or a directory "
           "that has a folder of pictures for each class")
      .Add("label", &O::label,
           "`COLUMN` of --data that has the label; default: that of the training data")
      .Add("job", &O::job, "instead of --data: the test set of a job `JOB.pbtxt`")
      .Add("test_set", &O::test_set, "of --job: the test set `NAME`; default: the first")
      .Add("data_dir", &O::data_dir,
           "of --job: `DIR` that contains the data files with relative names")
      .Add("out", &O::out,
           "`FILE` for the report: .html (a page with drawings), .json or .txt; default: text on "
           "standard output")
      .Add("top", &O::top, "the `K` of the top-K accuracy")
      .Add("worst", &O::worst, "the `NUMBER` of worst rows to show")
      .Add("scores", &O::scores,
           "the first output holds a score for each class, which the model's description does not "
           "say")
      .Add("decode_mb", &O::decode_mb, kDecodeDoc, LimitedRange(1, 1 << 24))
      .Inline(&O::compile, CompileFields());
}

void CheckFlags(const ReportFlags& flags) {
  if (flags.data.empty() == flags.job.empty())
    throw UsageError("needs --data=ROWS, with a label in each row, or --job=JOB.pbtxt");
  if (flags.job.empty() && !(flags.test_set.empty() && flags.data_dir.empty()))
    throw UsageError("--test_set and --data_dir are for --job");
  if (!flags.job.empty() && !flags.label.empty())
    throw UsageError("--label is for --data: the job names its label");
  if (flags.top < 1) throw UsageError(fmt::format("--top must be at least 1, got {}", flags.top));
  if (flags.worst < 0 || flags.worst > 10000)
    throw UsageError(fmt::format("--worst lies between 0 and 10000, got {}", flags.worst));
  if (!flags.out.empty() && flags.out != "-")
    RequireEnding("--out", flags.out, {".html", ".json", ".txt"});
}

int RunReport(const Args& args, const ReportFlags& flags) {
  RequireArgs(args, 1, 1, "MODEL");
  CheckFlags(flags);
  RequireOneProcess("report", "one process measures all rows");
  const CommandLimits limits(flags.compile.limits, CommandLimits::Time::kRuns);
  ReportRequest request;
  request.model = args[0];
  request.data = flags.data;
  request.job = flags.job;
  request.data_dir = flags.data_dir;
  request.test_set = flags.test_set;
  request.label = flags.label;
  request.top = flags.top;
  request.worst = flags.worst;
  request.scores = flags.scores;
  request.decode_mb = flags.decode_mb;
  request.compile = CompileOptionsOf(flags.compile);
  const QualityReport report = flags.job.empty() ? ReportOnRows(request) : ReportOnTestSet(request);
  if (flags.out.empty() || flags.out == "-") {
    Print(ReportText(report));
    return 0;
  }
  WriteFileAtomic(flags.out, flags.out.ends_with(".html")   ? ReportPage(report)
                             : flags.out.ends_with(".json") ? ReportJson(report)
                                                            : ReportText(report));
  Print(Shown(flags.out) + "\n");
  return 0;
}

}  // namespace

Command ReportCommand() {
  return MakeCommand(
      {"report", "measures a model on labelled rows: by class, curves, the worst rows",
       "report MODEL --data=ROWS|--job=JOB.pbtxt [-o FILE.html|FILE.json|FILE.txt] "
       "[--label=COLUMN]\n"
       "               [--test_set=NAME] [--data_dir=DIR] [--top=K] [--worst=N] [FLAGS]",
       "  coracle report output/iris --data=iris.csv\n"
       "  coracle report output/housing --data=rows.csv -o report.html\n"
       "  coracle report output/digits_lenet --data=pictures/ -o report.html --worst=30\n"
       "  coracle report output/iris --job=examples/iris/iris.pbtxt --data_dir=data\n"},
      ReportFields(), RunReport);
}

}  // namespace coracle::tools
