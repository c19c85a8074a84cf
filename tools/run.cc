#include <coracle/backward/backward.h>
#include <coracle/communication/launched.h>
#include <coracle/convert/onnx_import.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_archive.h>
#include <coracle/operators/collective/exchange.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <unordered_set>

#include "command_limits.h"
#include "command_line.h"
#include "commands.h"
#include "compare_text.h"
#include "flags.h"
#include "process_ranks.h"
#include "program_input.h"
#include "run_input.h"
#include "tensor_csv.h"
#include "tensor_file.h"
#include "trace_file.h"

DEFINE_string(save_params, "", "`FILE` for the final values of the persistable variables");
DEFINE_int32(repeat, 1, "number of runs; the results are those of the last one");
DEFINE_string(
    save_all, "",
    "npz `FILE` for every tensor that the ops of the root block write in the last run, for "
    "compare --with; a tensor x that is written several times is x@WRITE@0, ..., x");
DEFINE_string(check, "",
              "`FILE` with expected results (npz, npy, csv or json); differences beyond the "
              "tolerance are listed and the exit code is 1");

namespace coracle::tools {
namespace {

// The results without repeated names, which a file cannot hold.
NamedTensors Distinct(const NamedTensors& named) {
  NamedTensors distinct;
  std::unordered_set<std::string_view> seen;
  for (const auto& entry : named) {
    if (seen.insert(entry.first).second) distinct.push_back(entry);
  }
  return distinct;
}

// Omits the sign of nan, which has no meaning.
std::string NumberText(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{:.6g}", value);
}

// Formats the offsets of each level, at most eight: ", LoD [0, 1, 3]".
std::string LodText(const LoD& lod) {
  std::string text;
  for (const std::vector<uint64_t>& level : lod) {
    const size_t shown = std::min<size_t>(level.size(), 8);
    text +=
        fmt::format("{}[{}{}]", text.empty() ? ", LoD " : " ",
                    fmt::join(level.begin(), level.begin() + static_cast<ptrdiff_t>(shown), ", "),
                    shown < level.size() ? ", ..." : "");
  }
  return text;
}

// Formats a complex number: "1+2i".
std::string NumberText(const complex128& value) {
  const std::string imaginary = NumberText(value.imag());
  return NumberText(value.real()) + (imaginary[0] == '-' ? "" : "+") + imaginary + "i";
}

// Formats the mean and the first eight numbers.
std::string ComplexText(const Tensor& tensor) {
  const Tensor wide = tensor.Cast(DType::kComplex128);
  std::string text;
  if (tensor.numel() > 1) {
    complex128 sum = 0;
    for (const complex128& v : wide.span<complex128>()) sum += v;
    text = ", mean " + NumberText(sum / static_cast<double>(tensor.numel()));
  }
  text += ":";
  for (int64_t i = 0; i < std::min<int64_t>(tensor.numel(), 8); ++i)
    text += " " + NumberText(wide.data<complex128>()[i]);
  return text + (tensor.numel() > 8 ? " ...\n" : "\n");
}

// Formats integers with all digits, because they may be ids.
std::string IntegersText(const Tensor& tensor) {
  const Tensor wide = tensor.Cast(DType::kInt64);
  const auto values = wide.span<int64_t>();
  std::string text;
  if (tensor.numel() > 1) {
    const auto [min, max] = std::minmax_element(values.begin(), values.end());
    double sum = 0;
    for (const int64_t value : values) sum += static_cast<double>(value);
    text = fmt::format(", min {}, mean {}, max {}", *min,
                       NumberText(sum / static_cast<double>(tensor.numel())), *max);
  }
  text += ":";
  for (size_t i = 0; i < std::min<size_t>(values.size(), 8); ++i)
    text += fmt::format(" {}", values[i]);
  return text + (values.size() > 8 ? " ...\n" : "\n");
}

std::string Describe(const std::string& name, const Tensor& tensor) {
  std::string text = fmt::format("{}: {}{}", name, tensor.ToString(), LodText(tensor.lod()));
  if (tensor.numel() == 0) return text + "\n";
  if (IsComplex(tensor.dtype())) return text + ComplexText(tensor);
  if (IsInteger(tensor.dtype())) return text + IntegersText(tensor);
  const Tensor wide = tensor.Cast(DType::kFloat64);
  double min = wide.data<double>()[0], max = min, sum = 0;
  for (double v : wide.span<double>()) {
    min = std::fmin(min, v);
    max = std::fmax(max, v);
    sum += v;
  }
  if (tensor.numel() > 1) {
    text += fmt::format(", min {}, mean {}, max {}", NumberText(min),
                        NumberText(sum / static_cast<double>(tensor.numel())), NumberText(max));
  }
  text += ":";
  for (int64_t i = 0; i < std::min<int64_t>(tensor.numel(), 8); ++i)
    text += " " + NumberText(wide.data<double>()[i]);
  return text + (tensor.numel() > 8 ? " ...\n" : "\n");
}

void CheckFlags(const std::vector<std::string>& args) {
  RequireArgs(args, 1, 1, "one PROGRAM");
  RequireTensorEnding("--out", FLAGS_out);
  RequireParametersName("--save_params", FLAGS_save_params);
  RequireEnding("--save_all", FLAGS_save_all, {".npz", ".safetensors"});
  if (FLAGS_repeat < 1) throw UsageError("--repeat must be at least 1");
  if (args[0] == "-" && FLAGS_feed == "-")
    throw UsageError("PROGRAM and --feed cannot both be standard input");
  int streams = 0;
  for (const std::string& out : {FLAGS_out, FLAGS_save_params, FLAGS_save_all})
    streams += out == "-";
  if (streams > 1) throw UsageError("only one output can be standard output");
}

PreparedProgram Prepare(ProgramDesc program, const NamedTensors& given, Scope& scope) {
  const std::vector<std::string> feeds = FeedNames(program, given);
  std::vector<std::string> names = ListFlag(FLAGS_fetch);
  // Without a fetch, passes would remove the tensors to be saved.
  if (names.empty() && !FLAGS_save_all.empty()) names = FetchesOf({.program = &program});
  const std::vector<std::string> fetches = DenseNames(program.Root(), names);
  const Executor executor(CompileOptionsFromFlags());
  return FLAGS_save_params.empty() ? executor.PrepareOwning(program, scope, feeds, fetches)
                                   : executor.PrepareFrozen(program, scope, feeds, fetches);
}

std::vector<std::string> ResultNames(const PreparedProgram& prepared) {
  const std::vector<std::string> names = ListFlag(FLAGS_fetch);
  return names.empty() ? prepared.fetch_names() : names;
}

// Checks before the run that the output file can hold the results.
void CheckOutputs(const PreparedProgram& prepared) {
  const std::vector<std::string> names = ResultNames(prepared);
  if (names.empty() && !FLAGS_out.empty())
    throw UsageError("--out: the program fetches nothing; --fetch=NAMES says what to write");
  RequireTensorCount("--out", FLAGS_out,
                     std::unordered_set<std::string>(names.begin(), names.end()).size());
}

NamedTensors Run(PreparedProgram& prepared, const std::vector<Tensor>& feeds, Scope& scope,
                 WrittenTensors* written) {
  const std::vector<Tensor>* results = nullptr;
  try {
    for (int i = 1; i < FLAGS_repeat; ++i) prepared.Run(scope, feeds);
    std::optional<ScopedValueObserver> observer;
    if (!FLAGS_save_all.empty()) observer.emplace(KeepInto(written));
    results = &prepared.Run(scope, feeds);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kNotFound || !FLAGS_params.empty()) throw;
    throw e.WithDetail("--params=DIR or --params=FILE gives the parameters");
  }
  NamedTensors named;
  const std::vector<std::string> names = ResultNames(prepared);
  for (size_t i = 0; i < results->size(); ++i) named.emplace_back(names[i], (*results)[i]);
  return named;
}

// Compares the results with stored ones. The array of an npy file gets the name of the only result.
// Returns the exit code.
int Check(const NamedTensors& results, NamedTensors stored, bool quiet) {
  if (stored.size() == 1 && stored[0].first.empty() && results.size() == 1)
    stored[0].first = results[0].first;
  Tolerance tolerance = ToleranceFromFlags();
  if (IsCsvName(FLAGS_check)) {
    tolerance.same_dtype = false;
    AdoptDTypes(results, &stored);
  }
  const auto differences = CompareNamed(results, stored, tolerance);
  const std::string text = CompareText(differences, tolerance, {"this run", FLAGS_check});
  quiet ? LogMessage(MessageLevel::kInfo, text) : Print(text);
  return AnyDiffers(differences) ? 1 : 0;
}

std::string ReportOf(const NamedTensors& results, const PreparedProgram& prepared) {
  std::string report;
  for (const auto& entry : results) report += Describe(Shown(entry.first), entry.second);
  if (FLAGS_profile) report += prepared.ProfileTable();
  if (report.empty() && FLAGS_save_params.empty() && FLAGS_save_all.empty())
    report = "done; nothing was fetched: --fetch=NAMES shows values\n";
  return report;
}

struct Subject {
  ProgramDesc program;
  Scope scope;
  NamedTensors feeds;
};

// Imports an ONNX model for the given feeds, because some models can be converted only for known
// input values; the program is then valid only for these.
Subject ReadOnnxSubject(const std::string& file) {
  Subject subject;
  NamedTensors given = ReadFeeds(OnnxInputs(file));
  for (auto& entry : given) {  // ONNX's rank 0 becomes shape [1]
    if (entry.second.shape().rank() == 0) entry.second = entry.second.Reshaped({1});
  }
  InferenceModel model =
      ImportOnnxFor(file, std::map<std::string, Tensor>(given.begin(), given.end()), subject.scope);
  for (const auto& entry : given) {
    const auto& names = model.feed_names;
    if (std::find(names.begin(), names.end(), entry.first) != names.end())
      subject.feeds.push_back(entry);
  }
  subject.program = std::move(model.program);
  if (!FLAGS_params.empty()) ReadParameters(subject.program, FLAGS_params, subject.scope);
  return subject;
}

Subject ReadSubject(const std::string& file) {
  if (IsOnnx(file)) return ReadOnnxSubject(file);
  Subject subject;
  subject.program = ReadAnyProgram(file);
  LoadParametersFor(subject.program, file, subject.scope);
  subject.feeds = ReadFeeds(subject.program);
  return subject;
}

bool ExchangesWithRanks(const ProgramDesc& program) {
  if (FindLaunched().size == 1) return false;
  bool exchanges = false;
  program.ForEachOp([&](const OpDesc& op) {
    const OpSpec* spec = DefaultOps().Find(op.type());
    exchanges |= spec && IsForRanks(*spec);
  });
  return exchanges;
}

int RunRun(const std::vector<std::string>& args) {
  if (!FLAGS_check.empty()) FailAsTrouble();
  CheckFlags(args);
  CompileOptionsFromFlags();  // reports invalid flags before it reads files
  ToleranceFromFlags();
  ExchangeTimeout();
  TraceFile trace;
  const CommandLimits limits(CommandLimits::Time::kRuns);
  Subject subject = ReadSubject(args[0]);
  const ProgramDesc& program = subject.program;
  Scope& scope = subject.scope;
  const NamedTensors& given = subject.feeds;
  NamedTensors stored;
  if (!FLAGS_check.empty()) stored = ReadTensorFile(FLAGS_check);
  PreparedProgram prepared = Prepare(program, given, scope);
  CheckOutputs(prepared);
  const auto communicator = ExchangesWithRanks(program) ? CommunicatorOfProcess() : nullptr;
  prepared.SetCommunicator(communicator);
  WrittenTensors written;
  const NamedTensors results =
      Distinct(Run(prepared, InOrder(given, prepared.feed_names()), scope, &written));
  trace.Write();
  if (communicator && communicator->rank() > 0) return 0;
  if (!FLAGS_out.empty()) WriteOutput([&] { WriteTensorFile(results, FLAGS_out); });
  if (!FLAGS_save_all.empty())
    WriteOutput([&] { WriteTensorArchive(ToArrays(written, program), FLAGS_save_all); });
  if (!FLAGS_save_params.empty())
    WriteOutput([&] { SaveParameters(scope, PersistableNames(program), FLAGS_save_params); });
  const bool quiet = FLAGS_out == "-" || FLAGS_save_all == "-" || FLAGS_save_params == "-";
  if (!quiet) Print(ReportOf(results, prepared));
  return FLAGS_check.empty() ? 0 : Check(results, std::move(stored), quiet);
}

}  // namespace

Command RunCommand() {
  return {"run",
          "runs a program",
          "run PROGRAM [--feed=in.npz] [--fetch=a,b] [--out=out.npz] [--check=golden.npz]\n"
          "           [--params=DIR|FILE] [FLAGS]",
          "  coracle run inference.pdmodel --feed=in.npz --out=out.npz\n"
          "  coracle run startup.pb --save_params=params\n"
          "  coracle run inference.pdmodel --feed=in.npy --check=golden.npy --rtol=1e-3\n"
          "  coracle run model.onnx --feed=in.npz\n"
          "  coracle run train.pb --params=params --feed=in.npz --fetch=loss,fc_0.w_0@GRAD\n",
          WithTraceFlags(WithCompileFlags({"feed", "fetch", "out", "params", "save_params",
                                           "save_all", "check", "rtol", "atol", "same_dtype",
                                           "repeat", "exchange_timeout"})),
          RunRun};
}

}  // namespace coracle::tools
