#include <coracle/backward/backward.h>
#include <coracle/convert/models.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/inspect/inspect.h>
#include <coracle/operators/operators.h>
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
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <algorithm>
#include <filesystem>
#include <memory>

namespace coracle::tools {
namespace {

constexpr const char* kDefaultWith = "--kernels=reference --disabled_passes=all";

struct CompareFlags {
  bool json = false;
  std::string feed = {};
  std::vector<std::string> fetch = {};
  bool fetch_all = false;
  std::string params = {};
  std::optional<std::string> run = {};
  std::optional<std::string> with = {};
  ToleranceFlags tolerance = {};
  LimitFlags limits = {};
};

Fields<CompareFlags> CompareFields() {
  return Fields<CompareFlags>("")
      .Add("json", &CompareFlags::json, "print JSON")
      .Add("feed", &CompareFlags::feed, kFeedDoc)
      .Add("fetch", &CompareFlags::fetch,
           "`NAMES` of the variables to compare; none: those of the program's fetch ops")
      .Add("fetch_all", &CompareFlags::fetch_all,
           "fetch and compare every variable in both runs, which keeps passes from fusing ops")
      .Add("params", &CompareFlags::params, kParamsDoc)
      .Add("run", &CompareFlags::run,
           "how A is run: `FLAGS` of run, such as '--kernels=reference --threads=1'")
      .Add("with", &CompareFlags::with,
           fmt::format(
               "how B is run: `FLAGS` of run, or the npz file that run --save_all wrote (default: "
               "{})",
               kDefaultWith))
      .Inline(&CompareFlags::tolerance, ToleranceFields())
      .Inline(&CompareFlags::limits, RunLimitFields());
}

// The flags of a run in --run and --with.
struct WayFlags {
  std::optional<std::string> params = {};
  CompileFlags compile = {};
};

Fields<WayFlags> WayFields() {
  return Fields<WayFlags>("")
      .Add("params", &WayFlags::params, kParamsDoc)
      .Inline(&WayFlags::compile, CompileFields());
}

namespace fs = std::filesystem;

// --- files ---

// Parameter files without names have tensors called #0, #1, ...
bool HasNoNames(const NamedTensors& tensors) {
  return !tensors.empty() && (tensors[0].first.empty() || tensors[0].first == "#0");
}

// Reads a parameter file whose names are unknown.
NamedTensors ReadStreams(const std::string& path) {
  const std::string bytes = ReadFile(path);
  NamedTensors tensors;
  size_t offset = 0;
  while (offset < bytes.size())
    tensors.emplace_back(fmt::format("#{}", tensors.size()), ParseTensor(bytes, &offset, path));
  if (tensors.empty()) throw Error(ErrorCode::kDataLoss, path + ": the file is empty");
  return tensors;
}

NamedTensors ReadSavedModel(const std::string& path) {
  const std::string program = ProgramFile(path), params = ParametersNextTo(program);
  if (params.empty())
    throw Error(ErrorCode::kNotFound,
                fmt::format("{} has no parameters next to it to compare; `coracle diff` compares "
                            "programs, and --feed compares their runs",
                            Quote(path, 300)));
  return ParametersOf(ReadAnyProgram(program), params);
}

NamedTensors ReadSide(const std::string& path) {
  const fs::path file = path;
  const std::string ending = file.extension();
  if (IsDirectory(path) || ending == ".pdmodel" || file.filename() == "__model__" || IsOnnx(path) ||
      IsPirFile(path))
    return ReadSavedModel(path);
  if (ending == ".pb" || ending == ".pbtxt" || ending == ".txt") {
    throw UsageError(
        fmt::format("{} is a program without parameters: `coracle diff` compares "
                    "programs, and --feed compares their runs",
                    Quote(path, 300)));
  }
  if (!ending.empty() && ending != ".pdiparams" && ending != ".params") return ReadTensorFile(path);
  const std::string program = ProgramNextTo(path);
  return program.empty() ? ReadStreams(path) : ParametersOf(ReadAnyProgram(program), path);
}

// Gives tensors without names the names of the other side, in sorted order: the order in which a
// parameter file stores them.
void AdoptNames(const NamedTensors& from, NamedTensors* to) {
  if (!HasNoNames(*to) || HasNoNames(from) || from.size() != to->size()) return;
  std::vector<std::string> names;
  for (const auto& entry : from) names.push_back(entry.first);
  std::sort(names.begin(), names.end());
  for (size_t i = 0; i < names.size(); ++i) (*to)[i].first = names[i];
}

int CompareFiles(const CompareFlags& flags, const std::vector<std::string>& args,
                 Tolerance tolerance) {
  const CommandLimits limits(flags.limits, CommandLimits::Time::kCommand);
  NamedTensors a = ReadSide(args[0]), b = ReadSide(args[1]);
  AdoptNames(a, &b);
  AdoptNames(b, &a);
  if (IsCsvName(args[0]) || IsCsvName(args[1])) tolerance.same_dtype = false;
  if (IsCsvName(args[0])) AdoptDTypes(b, &a);
  if (IsCsvName(args[1])) AdoptDTypes(a, &b);
  const std::vector<TensorDifference> differences = CompareNamed(a, b, tolerance);
  if (differences.empty())
    ThrowInvalid(fmt::format("neither {} nor {} holds a tensor", Quote(args[0]), Quote(args[1])));
  const Sides sides{args[0], args[1]};
  flags.json ? PrintData(CompareJson(differences, tolerance, sides))
             : Print(CompareText(differences, tolerance, sides));
  return AnyDiffers(differences) ? 1 : 0;
}

// --- runs ---

// Sets the way's options from text such as "--kernels=reference --threads=1"; `flag` names it.
// Limits and parameters are those of the command, unless the text gives others.
void ParseWay(const CompareFlags& own, const std::string& flag, const std::string& text,
              const std::string& file, RunWay* way) {
  const gflags::FlagSaver restore;  // of --threads
  const Command command = MakeCommand<WayFlags>({flag, "", "", ""}, WayFields(), nullptr);
  std::vector<std::string> words;
  for (const std::string& word : Split(text, ' ')) {
    if (!word.empty()) words.push_back(word);
  }
  const ParsedLine line = ParseFlags(words, &command);
  if (line.help || !line.args.empty())
    throw UsageError(fmt::format("{} takes flags of run, such as --kernels=reference, got {}", flag,
                                 Quote(text)));
  WayFlags flags;
  flags.compile.limits = own.limits;
  SetFlags(*command.flags, line.given, &flags);
  way->options = CompileOptionsOf(flags.compile);
  const std::vector<int> threads = ThreadsFromFlag();
  if (threads.size() != 1) throw UsageError(flag + ": --threads takes one number");
  way->threads = threads[0];
  const std::string params = flags.params.value_or(own.params);
  way->parameters = [program = way->program, params, file] {
    Scope scope;
    const std::string path = params.empty() ? ParametersNextTo(ProgramFile(file)) : params;
    if (!path.empty()) ReadParameters(*program, path, scope);
    return scope;
  };
}

// Whether a value may be missing from a run because parameters were not given.
bool LacksParameters(const RunWay& way) {
  if (way.saved) return false;
  const Scope scope = way.parameters();
  const std::vector<std::string> names = PersistableNames(*way.program);
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return !scope.Find(name); });
}

RunsDifference CompareWays(const CompareFlags& flags, const RunWay& a, const RunWay& b,
                           const Tolerance& tolerance) {
  try {
    return CompareRuns(a, b, tolerance);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kNotFound || !flags.params.empty()) throw;
    if (!LacksParameters(a) && !LacksParameters(b)) throw;
    throw e.WithDetail("--params=DIR or --params=FILE gives the parameters");
  }
}

void SetFeeds(const CompareFlags& flags, const ProgramDesc& program, RunWay* way) {
  for (auto& [name, tensor] : ReadFeeds(flags.feed, program)) way->feeds[name] = tensor;
  if (!HasOpOfKind(program.Root(), OpKind::kFeed, DefaultOps())) return;
  NamedTensors given(way->feeds.begin(), way->feeds.end());
  InOrder(flags.feed, given, InputNames(program, DefaultOps()));  // throws for a missing one
}

// The variables to fetch. For selected rows, adds ops to the program that make dense copies.
std::vector<std::string> FetchesFromFlags(const CompareFlags& flags, ProgramDesc& program,
                                          const std::string& file) {
  if (flags.fetch_all) return WrittenNames(program);
  const std::vector<std::string> names = flags.fetch;
  for (const std::string& name : names) {
    if (program.Root().FindVar(name)) continue;
    throw Error(ErrorCode::kNotFound,
                fmt::format("--fetch: {} has no variable {}", Quote(file, 300), Quote(name)));
  }
  return DenseNames(program.Root(), names);
}

int CompareProgramRuns(const CompareFlags& flags, const std::vector<std::string>& args,
                       const Tolerance& tolerance) {
  RequireOneProcess("compare",
                    "`coracle run --check=FILE` compares what a program computes on all of them");
  const CommandLimits limits(flags.limits, CommandLimits::Time::kRuns);
  const std::string with = flags.with.value_or(kDefaultWith);
  const bool saved = IsTensorArchive(with) && !with.starts_with('-');
  if (args.size() == 2 && saved)
    throw UsageError("--with=FILE replaces the run of the second program: give one PROGRAM");
  const std::string &file_a = args.front(), &file_b = args.back();
  ProgramDesc program_a = ReadAnyProgram(file_a);
  ProgramDesc program_b = args.size() == 2 ? ReadAnyProgram(file_b) : ProgramDesc();
  RunWay a, b;
  a.program = &program_a;
  b.program = args.size() == 2 ? &program_b : &program_a;
  ParseWay(flags, "--run", flags.run.value_or(""), file_a, &a);
  if (saved)
    b.saved = std::make_shared<WrittenTensors>(FromArrays(ReadTensorArchive(with)));
  else
    ParseWay(flags, "--with", with, file_b, &b);
  for (RunWay* way : {&a, &b}) {
    if (!way->saved) SetFeeds(flags, *way->program, way);
  }
  a.fetches = FetchesFromFlags(flags, program_a, file_a);
  b.fetches = args.size() == 2 ? FetchesFromFlags(flags, program_b, file_b) : a.fetches;
  a.fetches_all = b.fetches_all = flags.fetch_all;
  const RunsDifference runs = CompareWays(flags, a, b, tolerance);
  if (runs.compared.empty() && runs.other_results.empty())
    ThrowInvalid(
        "the two runs write no variable that could be compared: see --fetch and --fetch_all");
  const auto side = [](const std::string& file, const std::string& flags) {
    return flags.empty() ? file : file + " " + flags;
  };
  const Sides sides{side(file_a, flags.run.value_or("")), b.saved ? with : side(file_b, with)};
  flags.json ? PrintData(RunsJson(runs, tolerance, sides))
             : Print(RunsText(runs, tolerance, sides));
  return runs.Differs() ? 1 : 0;
}

int RunCompare(const Args& args, const CompareFlags& flags) {
  FailAsTrouble();
  RequireArgs(args, 1, 2, "A and B, or one PROGRAM to run in two ways");
  for (const std::string& arg : args) {
    if (arg == "-") throw UsageError("takes names of files, not standard input");
  }
  const Tolerance tolerance = ToleranceOf(flags.tolerance);
  if (flags.fetch_all && !flags.fetch.empty())
    throw UsageError("--fetch and --fetch_all exclude each other");
  const bool runs = args.size() == 1 || flags.run || flags.with || !flags.feed.empty();
  if (runs) return CompareProgramRuns(flags, args, tolerance);
  for (const auto& [flag, given] : {std::pair{"params", !flags.params.empty()},
                                    {"fetch", !flags.fetch.empty()},
                                    {"fetch_all", flags.fetch_all}}) {
    if (given)
      throw UsageError(fmt::format("--{} is for runs of a PROGRAM, not for two files", flag));
  }
  return CompareFiles(flags, args, tolerance);
}

}  // namespace

Command CompareCommand() {
  return MakeCommand(
      {"compare", "compares the tensors of two files, or finds where two runs of a program diverge",
       "compare A B | compare PROGRAM [PROGRAM2] --feed=in.npz [--run=FLAGS] [--with=FLAGS|FILE]",
       "  coracle compare out.npz golden.npz --rtol=1e-3\n"
       "  coracle compare model_a/ model_b.pdiparams --json\n"
       "  coracle compare inference.pdmodel --feed=in.npz --with='--disabled_passes=nhwc'\n"
       "  coracle run inference.pdmodel --feed=in.npz --save_all=values.npz  # with another build\n"
       "  coracle compare inference.pdmodel --feed=in.npz --with=values.npz\n"},
      CompareFields(), RunCompare);
}

}  // namespace coracle::tools
