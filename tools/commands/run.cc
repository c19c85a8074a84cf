#include <coracle/backward/backward.h>
#include <coracle/communication/communicator.h>
#include <coracle/convert/models.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/operators/collective/exchange.h>
#include <coracle/tools/command_limits.h>
#include <coracle/tools/command_line.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/compare_text.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/process_ranks.h>
#include <coracle/tools/program_input.h>
#include <coracle/tools/run_input.h>
#include <coracle/tools/tensor_csv.h>
#include <coracle/tools/tensor_file.h>
#include <coracle/tools/trace_file.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <unordered_set>

namespace coracle::tools {
namespace {

struct RunFlags {
  std::string feed = {};
  std::vector<std::string> fetch = {};
  std::string out = {};
  std::string params = {};
  std::string save_params = {};
  std::string save_all = {};
  std::string check = {};
  int32_t repeat = 1;
  ToleranceFlags tolerance = {};
  ExchangeFlags exchange = {};
  CompileFlags compile = {};
  TraceFlags trace = {};
};

Fields<RunFlags> RunFields() {
  return Fields<RunFlags>("")
      .Add("feed", &RunFlags::feed, kFeedDoc)
      .Add("fetch", &RunFlags::fetch,
           "`NAMES` of the variables to fetch; none: those of the program's fetch ops")
      .Add("out", &RunFlags::out, "`FILE` of the results (npz, npy, safetensors, csv or json)")
      .Add("params", &RunFlags::params, kParamsDoc)
      .Add("save_params", &RunFlags::save_params,
           "`FILE` for the final values of the persistable variables")
      .Add("save_all", &RunFlags::save_all,
           "npz `FILE` for every tensor that the ops of the root block write in the last run, "
           "for compare --with; a tensor x that is written several times is x@WRITE@0, ..., x")
      .Add("check", &RunFlags::check,
           "`FILE` with expected results (npz, npy, csv or json); differences beyond the "
           "tolerance are listed and the exit code is 1")
      .Add("repeat", &RunFlags::repeat, "number of runs; the results are those of the last one",
           LimitedRange(1, INT32_MAX))
      .Inline(&RunFlags::tolerance, ToleranceFields())
      .Inline(&RunFlags::exchange, ExchangeFields())
      .Inline(&RunFlags::compile, CompileFields())
      .Inline(&RunFlags::trace, TraceFields());
}

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

// Formats the first texts: "a" "b" ...
std::string TextsText(const Tensor& tensor) {
  std::string text = ":";
  for (int64_t i = 0; i < std::min<int64_t>(tensor.numel(), 8); ++i)
    text += " " + Quote(tensor.data<StringRef>()[i].view());
  return text + (tensor.numel() > 8 ? " ...\n" : "\n");
}

// Formats integers with all digits, because they may be ids.
template <class T>
std::string IntegersText(const Tensor& tensor) {
  const Tensor wide = tensor.Cast(DTypeOf<T>());
  const auto values = wide.span<T>();
  std::string text;
  if (tensor.numel() > 1) {
    const auto [min, max] = std::minmax_element(values.begin(), values.end());
    double sum = 0;
    for (const T value : values) sum += static_cast<double>(value);
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
  if (tensor.dtype() == DType::kString) return text + TextsText(tensor);
  if (tensor.dtype() == DType::kUInt64) return text + IntegersText<uint64_t>(tensor);
  if (IsInteger(tensor.dtype())) return text + IntegersText<int64_t>(tensor);
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

void CheckFlags(const RunFlags& flags, const std::vector<std::string>& args) {
  RequireArgs(args, 1, 1, "one PROGRAM");
  RequireTensorEnding("--out", flags.out);
  RequireParametersName("--save_params", flags.save_params);
  RequireEnding("--save_all", flags.save_all, {".npz", ".safetensors"});
  if (args[0] == "-" && flags.feed == "-")
    throw UsageError("PROGRAM and --feed cannot both be standard input");
  int streams = 0;
  for (const std::string& out : {flags.out, flags.save_params, flags.save_all})
    streams += out == "-";
  if (streams > 1) throw UsageError("only one output can be standard output");
  const ToleranceFlags& tolerance = flags.tolerance;
  if (flags.check.empty() && (tolerance.rtol || tolerance.atol || !tolerance.same_dtype))
    throw UsageError("--rtol, --atol and --nosame_dtype need --check=FILE");
}

PreparedProgram Prepare(const RunFlags& flags, ProgramDesc program, const NamedTensors& given,
                        Scope& scope) {
  const std::vector<std::string> feeds = FeedNames(program, given);
  std::vector<std::string> names = flags.fetch;
  // Without a fetch, passes would remove the tensors to be saved.
  if (names.empty() && !flags.save_all.empty()) names = FetchesOf({.program = &program});
  const std::vector<std::string> fetches = DenseNames(program.Root(), names);
  const Executor executor(CompileOptionsOf(flags.compile));
  return flags.save_params.empty() ? executor.PrepareOwning(program, scope, feeds, fetches)
                                   : executor.PrepareFrozen(program, scope, feeds, fetches);
}

std::vector<std::string> ResultNames(const RunFlags& flags, const PreparedProgram& prepared) {
  const std::vector<std::string> names = flags.fetch;
  return names.empty() ? prepared.fetch_names() : names;
}

// Checks before the run that the output file can hold the results.
void CheckOutputs(const RunFlags& flags, const PreparedProgram& prepared) {
  const std::vector<std::string> names = ResultNames(flags, prepared);
  if (names.empty() && !flags.out.empty())
    throw UsageError("--out: the program fetches nothing; --fetch=NAMES says what to write");
  RequireTensorCount("--out", flags.out,
                     std::unordered_set<std::string>(names.begin(), names.end()).size());
}

NamedTensors Run(const RunFlags& flags, PreparedProgram& prepared, const std::vector<Tensor>& feeds,
                 Scope& scope, WrittenTensors* written) {
  const std::vector<Tensor>* results = nullptr;
  try {
    for (int i = 1; i < flags.repeat; ++i) prepared.Run(scope, feeds);
    std::optional<ScopedValueObserver> observer;
    if (!flags.save_all.empty()) observer.emplace(KeepInto(written));
    results = &prepared.Run(scope, feeds);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kNotFound || !flags.params.empty()) throw;
    throw e.WithDetail("--params=DIR or --params=FILE gives the parameters");
  }
  NamedTensors named;
  const std::vector<std::string> names = ResultNames(flags, prepared);
  for (size_t i = 0; i < results->size(); ++i) named.emplace_back(names[i], (*results)[i]);
  return named;
}

// Compares the results with stored ones. The array of an npy file gets the name of the only result.
// Returns the exit code.
int Check(const RunFlags& flags, const NamedTensors& results, NamedTensors stored, bool quiet) {
  if (stored.size() == 1 && stored[0].first.empty() && results.size() == 1)
    stored[0].first = results[0].first;
  Tolerance tolerance = ToleranceOf(flags.tolerance);
  if (IsCsvName(flags.check)) {
    tolerance.same_dtype = false;
    AdoptDTypes(results, &stored);
  }
  const auto differences = CompareNamed(results, stored, tolerance);
  const std::string text = CompareText(differences, tolerance, {"this run", flags.check});
  quiet ? LogMessage(MessageLevel::kInfo, text) : Print(text);
  return AnyDiffers(differences) ? 1 : 0;
}

std::string ReportOf(const RunFlags& flags, const NamedTensors& results,
                     const PreparedProgram& prepared) {
  std::string report;
  for (const auto& entry : results) report += Describe(Shown(entry.first), entry.second);
  if (flags.compile.profile) report += prepared.ProfileTable();
  if (report.empty() && flags.save_params.empty() && flags.save_all.empty())
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
Subject ReadOnnxSubject(const RunFlags& flags, const std::string& file) {
  Subject subject;
  NamedTensors given = ReadFeeds(flags.feed, OnnxInputs(file));
  for (auto& entry : given) {  // ONNX's rank 0 becomes shape [1]
    if (entry.second.shape().rank() == 0) entry.second = entry.second.Reshaped({1});
  }
  InferenceModel model =
      ImportOnnxFor(file, std::map<std::string, Tensor>(given.begin(), given.end()), subject.scope,
                    ImportOptions());
  for (const auto& entry : given) {
    const auto& names = model.feed_names;
    if (std::find(names.begin(), names.end(), entry.first) != names.end())
      subject.feeds.push_back(entry);
  }
  subject.program = std::move(model.program);
  if (!flags.params.empty()) ReadParameters(subject.program, flags.params, subject.scope);
  return subject;
}

Subject ReadSubject(const RunFlags& flags, const std::string& file) {
  if (IsOnnx(file)) return ReadOnnxSubject(flags, file);
  Subject subject;
  subject.program = ReadAnyProgram(file);
  LoadParametersFor(flags.params, subject.program, file, subject.scope);
  subject.feeds = ReadFeeds(flags.feed, subject.program);
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

int RunRun(const Args& args, const RunFlags& flags) {
  if (!flags.check.empty()) FailAsTrouble();
  CheckFlags(flags, args);
  CompileOptionsOf(flags.compile);  // reports invalid flags before it reads files
  TraceFile trace(flags.trace);
  const CommandLimits limits(flags.compile.limits, CommandLimits::Time::kRuns);
  Subject subject = ReadSubject(flags, args[0]);
  const ProgramDesc& program = subject.program;
  Scope& scope = subject.scope;
  const NamedTensors& given = subject.feeds;
  NamedTensors stored;
  if (!flags.check.empty()) stored = ReadTensorFile(flags.check, TextNames(program));
  PreparedProgram prepared = Prepare(flags, program, given, scope);
  CheckOutputs(flags, prepared);
  const auto communicator =
      ExchangesWithRanks(program) ? CommunicatorOfProcess(flags.exchange) : nullptr;
  prepared.SetCommunicator(communicator);
  WrittenTensors written;
  const NamedTensors results = Distinct(
      Run(flags, prepared, InOrder(flags.feed, given, prepared.feed_names()), scope, &written));
  trace.Write();
  if (communicator && communicator->rank() > 0) return 0;
  if (!flags.out.empty()) WriteOutput([&] { WriteTensorFile(results, flags.out); });
  if (!flags.save_all.empty())
    WriteOutput([&] { WriteTensorArchive(ToArrays(written, program), flags.save_all); });
  if (!flags.save_params.empty())
    WriteOutput([&] { SaveParameters(scope, PersistableNames(program), flags.save_params); });
  const bool quiet = flags.out == "-" || flags.save_all == "-" || flags.save_params == "-";
  if (!quiet) Print(ReportOf(flags, results, prepared));
  return flags.check.empty() ? 0 : Check(flags, results, std::move(stored), quiet);
}

}  // namespace

Command RunCommand() {
  return MakeCommand(
      {"run", "runs a program",
       "run PROGRAM [--feed=in.npz] [--fetch=a,b] [--out=out.npz] [--check=golden.npz]\n"
       "           [--params=DIR|FILE] [FLAGS]",
       "  coracle run inference.pdmodel --feed=in.npz --out=out.npz\n"
       "  coracle run startup.pb --save_params=params\n"
       "  coracle run inference.pdmodel --feed=in.npy --check=golden.npy --rtol=1e-3\n"
       "  coracle run model.onnx --feed=in.npz\n"
       "  coracle run train.pb --params=params --feed=in.npz --fetch=loss,fc_0.w_0@GRAD\n"},
      RunFields(), RunRun);
}

}  // namespace coracle::tools
