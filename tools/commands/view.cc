// `coracle view`: programs as one page for a browser.

#include <coracle/edit/edit.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/inspect/page.h>
#include <coracle/operators/operators.h>
#include <coracle/tools/command_limits.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/program_input.h>
#include <coracle/tools/tensor_file.h>
#include <coracle/train/job/job.h>
#include <coracle/train/run/programs.h>
#include <coracle/train/run/snapshot/snapshot.h>
#include <fmt/format.h>

#include <deque>
#include <filesystem>

namespace coracle::tools {
namespace {

struct ViewFlags {
  std::string out = {};
  std::vector<std::string> shape = {};
  std::string params = {};
  std::string arrays = {};
  std::string times = {};
  std::string of = {};
  bool memory = true;
  std::string data_dir = {};
  LimitFlags limits = {};
};

Fields<ViewFlags> ViewFields() {
  return Fields<ViewFlags>("")
      .Add("out", &ViewFlags::out, "`FILE` of the page")
      .Add("shape", &ViewFlags::shape, kShapeDoc)
      .Add("params", &ViewFlags::params, kParamsDoc)
      .Add("arrays", &ViewFlags::arrays,
           "`FILE` with values of variables (npz, safetensors, csv or json), to show their "
           "statistics")
      .Add("times", &ViewFlags::times,
           "`FILE` with the measured times of ops, written by --trace of run, bench or train")
      .Add("of", &ViewFlags::of, "`NAME` of the variable whose gradient the page explains")
      .Add("memory", &ViewFlags::memory, "plan the memory of each program")
      .Add("data_dir", &ViewFlags::data_dir,
           "`DIR` that contains the data files of a job with relative names")
      .Inline(&ViewFlags::limits, LimitFields());
}

namespace fs = std::filesystem;

constexpr uint64_t kMaxTraceBytes = uint64_t{1} << 30;

struct Input {
  std::string name, what;
  ProgramDesc program;
  Scope values;
  bool has_values = false;
};

void ReadSnapshotInput(const std::string& path, Input* input) {
  SavedSnapshot snapshot = ReadSnapshot(path);
  input->what = fmt::format("training program of the job {} after {} steps",
                            Quote(snapshot.state.job), snapshot.state.step);
  input->program = std::move(snapshot.main);
  input->values = std::move(snapshot.variables);
  input->has_values = true;
}

void ReadJobInput(const ViewFlags& flags, const std::string& file, Input* input) {
  JobConfig job = ReadJob(file);
  if (!flags.data_dir.empty()) job.data_dir = flags.data_dir;
  input->what = "training program of the job " + Quote(job.name);
  input->program = std::move(BuildPrograms(job, {}).train.program);
}

void ReadProgramInput(const ViewFlags& flags, const std::string& path, const std::string& file,
                      bool only_one, Input* input) {
  input->program = ReadAnyProgram(path);
  input->what = path == "-" ? "from standard input" : "";
  const bool given = only_one && !flags.params.empty();
  const std::string params = given ? flags.params : ParametersNextTo(file, input->program);
  if (params.empty()) return;
  ReadParameters(input->program, params, input->values);
  input->has_values = true;
}

// The name of a file on the page. Common file names are preceded by the name of their directory.
std::string NameOf(const std::string& path) {
  if (path == "-") return "standard input";
  fs::path file = fs::path(path).lexically_normal();
  if (!file.has_filename()) file = file.parent_path();
  const std::string name = file.filename().string();
  const std::string stem = file.stem().string();
  if (stem != "inference" && stem != "model" && stem != "__model__" && stem != "main") return name;
  const std::string directory = fs::absolute(file).parent_path().filename().string();
  return directory.empty() ? name : directory + "/" + name;
}

void ReadInput(const ViewFlags& flags, const std::string& path, bool only_one, Input* input) {
  input->name = NameOf(path);
  const std::string snapshot = path != "-" && IsDirectory(path) ? FindSnapshot(path) : "";
  if (!snapshot.empty()) {
    if (!flags.params.empty())
      throw UsageError("--params is for a program: a snapshot has its own values");
    return ReadSnapshotInput(snapshot, input);
  }
  const std::string file = ProgramFile(path);
  const bool is_job =
      file != "-" && file.ends_with(".pbtxt") && LooksLikeJob(ReadFile(file, kMaxProgramBytes));
  if (is_job) {
    if (!flags.params.empty()) throw UsageError("--params is for a program, not for a job");
    return ReadJobInput(flags, file, input);
  }
  if (only_one && !flags.data_dir.empty())
    throw UsageError("--data_dir is for a job: a program names no data files");
  ReadProgramInput(flags, path, file, only_one, input);
}

// Adds the arrays of a file to the values of the input, by name.
void AddValues(const std::string& file, Input* input) {
  if (file.ends_with(".npy")) throw UsageError("--arrays: an npy file names no variable; npz does");
  for (auto& [name, tensor] : ReadTensorFile(file)) input->values.Set(name, std::move(tensor));
  input->has_values = true;
}

int RunView(const Args& args, const ViewFlags& flags) {
  RequireArgs(args, 1, 2, "one FILE or two");
  if (flags.out.empty()) throw UsageError("-o FILE.html is missing: where the page goes");
  RequireEnding("--out", flags.out, {".html"});
  if (args.size() == 2 && !flags.params.empty())
    throw UsageError("--params is for one program; two programs are read with those next to them");
  const CommandLimits limits(flags.limits, CommandLimits::Time::kCommand);
  const auto shapes = ShapesOf(flags.shape);
  std::deque<Input> inputs(args.size());
  std::vector<PageProgram> programs;
  const std::string trace = flags.times.empty() ? "" : ReadFile(flags.times, kMaxTraceBytes);
  if (trace.empty() && !flags.times.empty())
    throw Error(ErrorCode::kDataLoss,
                Quote(flags.times, 300) + " is not a trace of ops: it is empty");
  for (size_t i = 0; i < args.size(); ++i) {
    Input& input = inputs[i];
    ReadInput(flags, args[i], args.size() == 1, &input);
    if (!shapes.empty()) SetShapes(input.program, shapes, DefaultOps());
    if (!flags.arrays.empty()) AddValues(flags.arrays, &input);
    programs.push_back({input.name, input.what, input.program,
                        input.has_values ? &input.values : nullptr, flags.of, trace,
                        trace.empty() ? "" : fs::path(flags.times).filename().string()});
  }
  PageOptions options;
  options.title = args.size() == 1 ? inputs[0].name : inputs[0].name + " → " + inputs[1].name;
  options.plan_memory = flags.memory;
  const std::string page = ProgramPage(programs, DefaultOps(), options);
  WriteFileAtomic(flags.out, page);
  if (flags.out != "-") {
    size_t ops = 0;
    for (const Input& input : inputs) input.program.ForEachOp([&](const OpDesc&) { ++ops; });
    Print(
        fmt::format("{}: {}, {}\n", Shown(flags.out), Counted(ops, "op"), HumanBytes(page.size())));
  }
  return 0;
}

}  // namespace

Command ViewCommand() {
  return MakeCommand(
      {"view",
       "makes a web page of a program, model text, job or snapshot, or of the differences of "
       "two",
       "view FILE [FILE2] -o model.html [--shape=x:1x3x640x640] [--params=DIR|FILE] "
       "[--arrays=FILE] [--times=FILE.json] [--of=loss] [--nomemory] [--data_dir=DIR]",
       "  coracle view inference.pdmodel -o model.html --shape=x:1x3x640x640\n"
       "  coracle view examples/digits/lenet.pbtxt -o lenet.html\n"
       "  coracle view output/digits_lenet/snapshots -o trained.html\n"
       "  coracle view before.pb after.pb -o difference.html\n"},
      ViewFields(), RunView);
}

}  // namespace coracle::tools
