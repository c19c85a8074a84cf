#include <coracle/backward/backward.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "command_limits.h"
#include "commands.h"
#include "flags.h"
#include "program_input.h"

DEFINE_string(feed, "",
              "npz `FILE`, its keys are names of variables, x@LOD@0 has the offsets of x's "
              "sequences; or npy file for the only input");
DEFINE_string(fetch, "",
              "`NAMES` of the variables to fetch; none: those of the program's fetch ops");
DEFINE_string(params, "", "parameters: `PATH` of a directory or of a combined file");
DEFINE_string(save_params, "", "`FILE` for the persistable variables after the run");
DEFINE_int32(repeat, 1, "number of runs; the last one's results count");

namespace coracle::tools {
namespace {

// The arrays of --feed. A single array (npy) has the name "".
NamedTensors ReadFeeds() {
  if (FLAGS_feed.empty()) return {};
  const std::string bytes = ReadFileOrStdin(FLAGS_feed);
  const std::string source = FLAGS_feed == "-" ? "standard input" : FLAGS_feed;
  if (bytes.starts_with("\x93NUMPY")) return {{"", ParseNpy(bytes, source)}};
  if (bytes.starts_with("PK")) return ParseNpz(bytes, source);
  throw Error(ErrorCode::kDataLoss, source + ": neither an npz nor an npy file");
}

// The results with each name once, for a file.
NamedTensors Distinct(const NamedTensors& named) {
  NamedTensors distinct;
  std::unordered_set<std::string_view> seen;
  for (const auto& entry : named) {
    if (seen.insert(entry.first).second) distinct.push_back(entry);
  }
  return distinct;
}

// "nan" whatever its sign, which says nothing.
std::string NumberText(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{:.6g}", value);
}

// ", LoD [0, 1, 3]": the offsets of each level, the first eight.
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

// "1+2i".
std::string NumberText(const complex128& value) {
  const std::string imaginary = NumberText(value.imag());
  return NumberText(value.real()) + (imaginary[0] == '-' ? "" : "+") + imaginary + "i";
}

// The mean of complex numbers and the first eight.
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

std::string Describe(const std::string& name, const Tensor& tensor) {
  std::string text = fmt::format("{}: {}{}", name, tensor.ToString(), LodText(tensor.lod()));
  if (tensor.numel() == 0) return text + "\n";
  if (IsComplex(tensor.dtype())) return text + ComplexText(tensor);
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

// The variables that the program's own feed ops fill.
std::vector<std::string> OwnFeeds(const ProgramDesc& program) {
  std::vector<std::string> names;
  const BlockDesc& root = program.Root();
  for (size_t i = 0; i < root.NumOps(); ++i) {
    const OpSpec* def = DefaultOps().Find(root.op(i).type());
    if (!def || def->kind != OpKind::kFeed) continue;
    const auto& fed = root.op(i).Output("Out");
    names.insert(names.end(), fed.begin(), fed.end());
  }
  return names;
}

std::vector<Tensor> InOrder(const NamedTensors& given, const std::vector<std::string>& names) {
  if (given.size() == 1 && given[0].first.empty() && names.size() == 1) return {given[0].second};
  std::vector<Tensor> feeds;
  std::vector<std::string> keys;
  for (const auto& entry : given) keys.push_back(entry.first);
  for (const std::string& name : names) {
    const auto it = std::find(keys.begin(), keys.end(), name);
    if (it == keys.end()) {
      throw Error(ErrorCode::kNotFound,
                  FLAGS_feed.empty()
                      ? fmt::format("the program reads {}; give it with --feed=FILE", Quote(name))
                      : fmt::format("--feed has no {}, which the program reads; it has {}",
                                    Quote(name), Join(keys, ", ")));
    }
    feeds.push_back(given[static_cast<size_t>(it - keys.begin())].second);
  }
  return feeds;
}

void CheckFlags(const std::vector<std::string>& args) {
  RequireArgs(args, 1, 1, "one PROGRAM");
  RequireEnding("--out", FLAGS_out, {".npz"});
  RequireEnding("--save_params", FLAGS_save_params, {".pdiparams", ".params", ""});
  if (FLAGS_repeat < 1) throw UsageError("--repeat must be at least 1");
  if (args[0] == "-" && FLAGS_feed == "-")
    throw UsageError("PROGRAM and --feed cannot both be standard input");
}

PreparedProgram Prepare(ProgramDesc program, const NamedTensors& given, Scope& scope) {
  std::vector<std::string> feed_names;
  if (OwnFeeds(program).empty()) {
    for (const auto& entry : given) feed_names.push_back(entry.first);
    if (feed_names == std::vector<std::string>{""})
      throw UsageError("an npy file feeds a program with one feed op; this has none: use npz");
  }
  const std::vector<std::string> fetches = DenseNames(program.Root(), ListFlag(FLAGS_fetch));
  const Executor executor(CompileOptionsFromFlags());
  return FLAGS_save_params.empty() ? executor.PrepareOwning(program, scope, feed_names, fetches)
                                   : executor.PrepareFrozen(program, scope, feed_names, fetches);
}

NamedTensors Run(PreparedProgram& prepared, const std::vector<Tensor>& feeds, Scope& scope) {
  const std::vector<Tensor>* results = nullptr;
  try {
    for (int i = 0; i < FLAGS_repeat; ++i) results = &prepared.Run(scope, feeds);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kNotFound || !FLAGS_params.empty()) throw;
    throw e.WithDetail("--params=DIR or --params=FILE gives the parameters");
  }
  NamedTensors named;
  std::vector<std::string> names = ListFlag(FLAGS_fetch);
  if (names.empty()) names = prepared.fetch_names();
  for (size_t i = 0; i < results->size(); ++i) named.emplace_back(names[i], (*results)[i]);
  return named;
}

int RunRun(const std::vector<std::string>& args) {
  CheckFlags(args);
  CompileOptionsFromFlags();  // wrong ones are noticed before files are read
  const CommandLimits limits(CommandLimits::Time::kRuns);
  const ProgramDesc program = ReadAnyProgram(args[0]);
  Scope scope;
  const std::string params =
      FLAGS_params.empty() ? ParametersBeside(ProgramFile(args[0])) : FLAGS_params;
  if (!params.empty()) LoadParameters(program, params, scope);
  const NamedTensors given = ReadFeeds();
  PreparedProgram prepared = Prepare(program, given, scope);
  const NamedTensors results = Run(prepared, InOrder(given, prepared.feed_names()), scope);
  if (!FLAGS_out.empty()) WriteNpz(Distinct(results), FLAGS_out);
  if (!FLAGS_save_params.empty()) SaveCombined(scope, PersistableNames(program), FLAGS_save_params);
  if (FLAGS_out == "-") return 0;
  std::string report;
  for (const auto& entry : results) report += Describe(Shown(entry.first), entry.second);
  if (FLAGS_profile) report += prepared.ProfileTable();
  if (report.empty() && FLAGS_save_params.empty())
    report = "done; nothing was fetched: --fetch=NAMES shows values\n";
  Print(report);
  return 0;
}

}  // namespace

Command RunCommand() {
  return {"run",
          "runs a program",
          "run PROGRAM [--feed=in.npz] [--fetch=a,b] [--out=out.npz] [--params=DIR|FILE] [FLAGS]",
          "  coracle run inference.pdmodel --feed=in.npz --out=out.npz\n"
          "  coracle run startup.pb --save_params=params\n"
          "  coracle run train.pb --params=params --feed=in.npz --fetch=loss,fc_0.w_0@GRAD\n",
          WithCompileFlags({"feed", "fetch", "out", "params", "save_params", "repeat"}),
          RunRun};
}

}  // namespace coracle::tools
