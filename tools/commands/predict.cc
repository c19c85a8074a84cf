#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/tools/answer_writer.h>
#include <coracle/tools/command_limits.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/print.h>
#include <coracle/tools/process_ranks.h>
#include <coracle/tools/raw_rows.h>
#include <coracle/tools/request_lines.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

namespace coracle::tools {
namespace {

enum class BadRows { kStop, kSkip, kMark };

struct PredictFlags {
  std::string out = {};
  std::string format = {};
  int64_t top = 1;
  std::vector<std::string> columns = {};
  bool probabilities = false;
  int64_t batch = 0;
  BadRows bad_rows = BadRows::kStop;
  std::optional<int64_t> decode_mb = {};
  CompileFlags compile = {};
};

Fields<PredictFlags> PredictFields() {
  using O = PredictFlags;
  return Fields<O>("")
      .Add("out", &O::out,
           "`FILE` for the answers: .csv, .jsonl or .npz; default: csv to standard output")
      .Add("format", &O::format,
           "of the rows, and of the answers on standard output: `csv`, `jsonl` or `text`; or "
           "requests, lines of JSON as `coracle serve` takes them; default: by the name of ROWS; "
           "for "
           "\"-\" requests if it begins with {, else csv")
      .Add("top", &O::top, "the `NUMBER` of best classes to show")
      .Add("columns", &O::columns, "columns of ROWS to repeat before the answers: `a,b`")
      .Add("probabilities", &O::probabilities, "the score of each class, in the classes' order")
      .Add("batch", &O::batch,
           "the `NUMBER` of rows to run together; default: 64, and 1 where rows come from a pipe, "
           "so that each is answered at once")
      .Add("bad_rows", &O::bad_rows,
           "what happens with a row that cannot be read: `stop` (the default), `skip`, or `mark`: "
           "its error is in the column error",
           OneOf{"BadRows",
                 {{"stop", BadRows::kStop}, {"skip", BadRows::kSkip}, {"mark", BadRows::kMark}}})
      .Add("decode_mb", &O::decode_mb, kDecodeDoc, LimitedRange(1, 1 << 24))
      .Inline(&O::compile, CompileFields());
}

// Collects rows until a batch is full, and writes the answers in the order of the rows.
class Batches {
 public:
  Batches(const PredictorCore& core, AnswerWriter& writer, int64_t top, size_t size, bool flush)
      : core_(core), writer_(writer), top_(top), size_(size), flush_(flush) {}

  void Add(SourceRow row) {
    rows_.push_back(std::move(row));
    if (rows_.size() >= size_) Run();
  }
  void Run() {
    std::vector<DecodedRow> decoded;
    for (SourceRow& row : rows_)
      if (row.row) decoded.push_back(std::move(*row.row));
    const auto answers = core_.Run(decoded, top_);
    size_t next = 0;
    for (const SourceRow& row : rows_)
      writer_.Write(row, row.row ? answers[next++] : std::vector<RowAnswer>());
    if (flush_) Flush();
    rows_.clear();
  }

 private:
  const PredictorCore& core_;
  AnswerWriter& writer_;
  int64_t top_;
  size_t size_;
  bool flush_;  // standard output
  std::vector<SourceRow> rows_;
};

void CheckFlags(const PredictFlags& flags) {
  if (flags.top < 1) throw UsageError(fmt::format("--top must be at least 1, got {}", flags.top));
  if (flags.top != 1 && flags.probabilities)
    throw UsageError("--probabilities shows all classes, --top=N the best N: give one of them");
  if (flags.batch < 0 || flags.batch > 1 << 20)
    throw UsageError(fmt::format("--batch lies between 1 and {}, got {}", 1 << 20, flags.batch));
  if (!flags.out.empty() && flags.out != "-") AnswerFormatOf(flags.out);
  const std::vector<std::string> known = {"", "csv", "jsonl", "text", "requests"};
  if (std::find(known.begin(), known.end(), flags.format) == known.end())
    throw UsageError("--format is csv, jsonl, text or requests, got " + Quote(flags.format));
}

// The answers would replace the rows.
void RequireOtherFile(const std::string& out, const std::string& rows) {
  std::error_code ignored;
  if (std::filesystem::equivalent(out, rows, ignored))
    throw UsageError("--out is the file of the rows: " + Quote(out, 300));
}

bool ToStandardOutput(const PredictFlags& flags) { return flags.out.empty() || flags.out == "-"; }

void RequireNoRowFlags(const PredictFlags& flags) {
  const bool some = flags.top != 1 || !flags.columns.empty() || flags.probabilities ||
                    flags.batch != 0 || flags.bad_rows != BadRows::kStop || flags.decode_mb ||
                    !ToStandardOutput(flags);
  if (some)
    throw UsageError(
        "requests are answered line by line on standard output: --out, --top, --columns, "
        "--probabilities, --batch, --bad_rows and --decode_mb are for rows; a request has its own "
        "\"top\", and no picture");
}

AnswerOptions AnswersOf(const PredictFlags& flags, const RawRows& rows) {
  AnswerOptions options;
  options.format = !ToStandardOutput(flags) ? AnswerFormatOf(flags.out)
                   : rows.format == "jsonl" ? "jsonl"
                                            : "csv";
  options.npz = flags.out;
  options.kept = rows.source->kept();
  options.marks_errors = flags.bad_rows == BadRows::kMark;
  options.all_scores = flags.probabilities;
  if (options.marks_errors && options.format == "npz")
    throw UsageError("--bad_rows=mark: an npz file has no place for errors");
  return options;
}

// Reads all rows, and answers them batch by batch.
void AnswerRows(const PredictFlags& flags, RowSource& source, Batches& batches) {
  int64_t all = 0, bad = 0;
  for (SourceRow row; source.Next(&row);) {
    ++all;
    bad += row.error.has_value();
    if (row.error && flags.bad_rows == BadRows::kStop) {
      batches.Run();
      throw Error(*row.error);
    }
    if (row.error && flags.bad_rows == BadRows::kSkip)
      LogMessage(MessageLevel::kWarning, "left out: " + row.error->message());
    else
      batches.Add(std::move(row));
  }
  batches.Run();
  if (bad > 0)
    LogMessage(MessageLevel::kWarning, fmt::format("{} of {} rows could not be read", bad, all));
}

int RunPredict(const Args& args, const PredictFlags& flags) {
  RequireArgs(args, 2, 2, "MODEL and ROWS");
  CheckFlags(flags);
  RequireOneProcess("predict", "each process can predict its own rows");
  const CommandLimits limits(flags.compile.limits, CommandLimits::Time::kRuns);
  PredictOptions options;
  options.compile = CompileOptionsOf(flags.compile);
  if (AreRequests(args[1], flags.format)) {
    RequireNoRowFlags(flags);
    return AnswerRequestLines(args[0], options.compile);
  }
  const Predictor predictor(args[0], options);
  const PredictorCore& core = predictor.core();
  const RawRows rows = OpenRawRows(core, args[1], flags.format, flags.columns, flags.decode_mb);
  const AnswerOptions answers = AnswersOf(flags, rows);
  const size_t batch = flags.batch > 0 ? static_cast<size_t>(flags.batch)
                       : rows.waits    ? size_t{1}
                                       : size_t{64};
  const bool print = ToStandardOutput(flags);
  if (!print) RequireOtherFile(flags.out, args[1]);
  const auto answer = [&](const WritePieceFn& write) {
    const std::unique_ptr<AnswerWriter> writer = MakeAnswerWriter(core, answers, write);
    Batches batches(core, *writer, flags.probabilities ? 0 : flags.top, batch, print);
    AnswerRows(flags, *rows.source, batches);
    writer->Finish();
  };
  if (print || answers.format == "npz")
    answer(PrintData);
  else
    WriteFileInPieces(flags.out, answer);
  return 0;
}

}  // namespace

Command PredictCommand() {
  return MakeCommand(
      {"predict", "answers raw rows with a model that a job has trained",
       "predict MODEL ROWS.csv|ROWS.jsonl|TEXTS.txt|ROWS.npz|PICTURES|- [--out=FILE] [--top=N]\n"
       "               [--columns=a,b] [--probabilities] [--bad_rows=stop|skip|mark] [FLAGS]",
       "  coracle predict output/iris iris.csv\n"
       "  coracle predict output/housing/model.pdmodel rows.csv --columns=ocean --out=prices.csv\n"
       "  coracle predict output/digits_lenet pictures/ --top=3\n"
       "  tail -f rows.jsonl | coracle predict model.onnx - --format=jsonl\n"
       "  coracle predict model.onnx - < requests.jsonl  # {\"inputs\": [...]}, as in serve\n"},
      PredictFields(), RunPredict);
}

}  // namespace coracle::tools
