#include <coracle/convert/models.h>
#include <coracle/edit/paddle_fields.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/tools/command_limits.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/convert_caffe.h>
#include <coracle/tools/convert_tensors.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/model_files.h>
#include <coracle/tools/preprocess_files.h>
#include <coracle/tools/program_input.h>
#include <coracle/tools/run_input.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::tools {
namespace {

struct ConvertFlags {
  std::string out = {};
  std::string to = {};
  std::string compat = {};
  std::string params = {};
  int32_t opset = 0;
  bool one_sequence = false;
  LimitFlags limits = {};
  CaffeFlags caffe = {};
};

Fields<ConvertFlags> ConvertFields() {
  return Fields<ConvertFlags>("")
      .Add("out", &ConvertFlags::out, "`FILE` of the result, instead of the argument OUT")
      .Add("to", &ConvertFlags::to,
           "`FORMAT` of the result, where the ending of OUT does not decide: pir for a program of "
           "Paddle 3 (.json)")
      .Add("compat", &ConvertFlags::compat,
           "`paddle`: removes everything that only Coracle understands, and lists it")
      .Add("params", &ConvertFlags::params,
           "`PATH` of the parameters: a directory, a combined file or a training snapshot")
      .Add("opset", &ConvertFlags::opset,
           fmt::format("`NUMBER` of the opset of an ONNX model; 0: the lowest one from {} on that "
                       "has what the program needs",
                       kDefaultOnnxOpset))
      .Add("one_sequence", &ConvertFlags::one_sequence,
           "an ONNX model takes one sequence a run: all rows of a tensor that has LoD")
      .Inline(&ConvertFlags::caffe, CaffeFields())
      .Inline(&ConvertFlags::limits, LimitFields());
}

constexpr size_t kMaxNames = 8;

// Prints to standard error what the conversion dropped, and what Paddle cannot run.
void TellLosses(const std::vector<LeftOut>& left_out, const ProgramDesc& program) {
  for (const LeftOut& lost : left_out) {
    const std::string of = lost.of.empty() ? "" : " of " + ShownNames(lost.of, kMaxNames);
    LogMessage(lost.matters ? MessageLevel::kWarning : MessageLevel::kInfo,
               fmt::format("left out: {}{}", lost.what, of));
  }
  std::vector<std::string> types;
  for (const auto& [type, count] : OpsUnknownToPaddle(program))
    types.push_back(fmt::format("{} ({})", type, count));
  if (types.empty()) return;
  LogMessage(MessageLevel::kWarning,
             "Paddle has no op of these types and cannot run the program: " +
                 ShownNames(types, kMaxNames));
}

// Writes the program and its parameters, from --params or next to the program, as an ONNX model.
void WriteOnnx(const ConvertFlags& flags, const std::string& in, const std::string& out) {
  if (!flags.compat.empty()) throw UsageError("--compat is for programs, and OUT is an ONNX model");
  const ModelFiles model = ReadModel(in, flags.params);
  if (!model.has_values) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("{} has no parameters next to it, but an ONNX model holds them; "
                            "--params=DIR or --params=FILE gives them",
                            Shown(in)));
  }
  RefuseOwnFiles(model.read, {out});
  OnnxExportOptions options;
  options.opset = flags.opset;
  options.one_sequence = flags.one_sequence;
  options.metadata = PreprocessMetadata(in);
  ExportOnnx(out, model.program, model.values, options);
}

// Whether ops set all persistable variables and read none, as in a startup program.
bool SetsItsParameters(const ProgramDesc& program) {
  const std::vector<std::string> names = PersistableNames(program);
  return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    const VarUses uses = program.Root().Uses(name);
    return !uses.writers.empty() && uses.readers.empty();
  });
}

// Writes the program as one of Paddle 3, and its parameters, from --params or next to the program,
// to the .pdiparams file of the same name.
void WritePir(const ConvertFlags& flags, const std::string& in, const std::string& given) {
  if (!flags.compat.empty())
    throw UsageError("--compat is for programs of Paddle 2, and --to=pir writes one of Paddle 3");
  const std::string out = given.ends_with('/') ? given + "inference.json" : given;
  if (!out.ends_with(".json"))
    throw UsageError("--to=pir: OUT ends in .json, or is a directory (DIR/), got " + Quote(given));
  const ModelFiles model = ReadModel(in, flags.params);
  const std::string params = out.substr(0, out.size() - 5) + ".pdiparams";
  RefuseOwnFiles(model.read, {out, params});
  if (given.ends_with('/')) MakeDirectories(given.substr(0, given.size() - 1));
  if (model.has_values || SetsItsParameters(model.program)) {
    ExportPir(out, model.program, model.values);
  } else {
    const std::string text = ProgramToPir(model.program);
    WriteOutput([&] { WriteFileAtomic(out, text); });
    LogMessage(MessageLevel::kWarning,
               fmt::format("{} is written without parameters, since none are next to {}; --params "
                           "names them",
                           Quote(out, 300), Shown(in)));
  }
  CopyPreprocess(in, out);
}

// Saves the parameters of a model in another format, where readers of OUT look for them.
void SaveValues(const ModelFiles& model, const std::string& out) {
  const std::vector<std::string> names = PersistableNames(model.program);
  const std::string path = ParametersFileOf(out);
  if (names.empty()) return;
  if (path.empty()) {
    LogMessage(MessageLevel::kWarning,
               fmt::format("{} is written without parameters; a .pdmodel file has them next to it",
                           Quote(out, 300)));
    return;
  }
  SaveCombined(model.values, names, path);
}

int RunConvertTensors(const ConvertFlags& flags, const std::string& in, const std::string& out) {
  if (!IsTensorFileName(out)) {
    throw UsageError(
        fmt::format("{} holds tensors: OUT must be a file of tensors too (.npz, .safetensors, "
                    ".pdiparams, ...), got {}",
                    Quote(in, 300), Quote(out, 300)));
  }
  if (!flags.compat.empty()) throw UsageError("--compat is for programs");
  ConvertTensors(in, out, flags.params);
  return 0;
}

int RunConvert(const Args& words, const ConvertFlags& flags) {
  Args args = words;
  if (!flags.out.empty()) args.push_back(flags.out);
  if (!args.empty() && IsCaffeText(args[0])) return ConvertCaffe(args, flags.caffe);
  RequireArgs(args, 2, 2, "IN and OUT");
  if (flags.opset != 0 && (flags.opset < kLeastOnnxOpset || flags.opset > kLatestOnnxOpset)) {
    throw UsageError(fmt::format("--opset lies between {} and {}, got {}", kLeastOnnxOpset,
                                 kLatestOnnxOpset, flags.opset));
  }
  const CommandLimits limits(flags.limits, CommandLimits::Time::kCommand);
  if (!flags.to.empty() && flags.to != "pir")
    throw UsageError("--to is pir, got " + Quote(flags.to) + "; OUT's ending says other formats");
  if (!flags.to.empty()) return WritePir(flags, args[0], args[1]), 0;
  const bool to_directory = args[1].ends_with('/');
  // Any other OUT needs a program: reading the directory says that it holds none.
  const bool joins = IsParameterDirectory(args[0]) && IsParametersName(args[1]);
  if ((to_directory || joins) && !flags.compat.empty())
    throw UsageError("--compat is for programs, and OUT holds parameters");
  if (joins) return JoinParameterFiles(args[0], flags.params, args[1]), 0;
  if (to_directory) {
    SplitParameters(args[0], flags.params, args[1].substr(0, args[1].size() - 1));
    return 0;
  }
  if (IsOnnx(args[1])) return WriteOnnx(flags, args[0], args[1]), 0;
  const bool holds_tensors = IsTensorFileName(args[0]) && !IsPirFile(args[0]);
  if (holds_tensors || IsTensorFileName(args[1])) return RunConvertTensors(flags, args[0], args[1]);
  if (!flags.params.empty()) throw UsageError("--params needs an OUT of tensors or ONNX");
  RequireProgramName("OUT", args[1]);
  if (!flags.compat.empty() && flags.compat != "paddle")
    throw UsageError("--compat is paddle, got " + Quote(flags.compat));
  ModelFiles model;
  if (IsOnnx(args[0]) || IsPirFile(ProgramFile(args[0])))
    model = ReadModel(args[0], "");
  else
    model.program = ReadAnyProgram(args[0]);
  ProgramDesc& program = model.program;
  if (flags.compat == "paddle") TellLosses(KeepPaddleFields(program), program);
  if (model.has_values) SaveValues(model, args[1]);
  WriteProgram(program, args[1]);
  CopyPreprocess(args[0], args[1]);
  return 0;
}

}  // namespace

Command ConvertCommand() {
  return MakeCommand(
      {"convert",
       "rewrites a program as binary (.pb, .pdmodel), text (.pbtxt, .txt), ONNX (.onnx) or for "
       "Paddle 3 (--to=pir), and files of tensors",
       "convert IN OUT [--to=pir] [--compat=paddle] [--params=PATH] [--opset=NUMBER], or convert "
       "TEXT.prototxt "
       "[WEIGHTS.caffemodel] OUT",
       "  coracle convert inference.pdmodel model.pbtxt\n"
       "  coracle convert model.pbtxt model.pb      # text when OUT ends in .pbtxt or .txt\n"
       "  coracle convert train.pb train.pdmodel --compat=paddle   # for Paddle and Netron\n"
       "  coracle convert inference.pdmodel model.onnx   # with the parameters next to it\n"
       "  coracle convert model.onnx model.pdmodel       # and model.pdiparams\n"
       "  coracle convert inference.json model.pdmodel   # from Paddle 3 to the format of Paddle "
       "2\n"
       "  coracle convert inference.pdmodel inference.json --to=pir   # to the format of Paddle 3\n"
       "  coracle convert inference.pdmodel inference.safetensors   # its parameters by name\n"
       "  coracle convert values.npz values.safetensors\n"
       "  coracle convert inference.pdmodel params/      # a file for each parameter\n"
       "  coracle convert params inference.pdiparams     # and back to one file\n"
       "  coracle convert lenet_train_test.prototxt lenet.pbtxt      # from Caffe to model text\n"
       "  coracle convert deploy.prototxt net.caffemodel net.pdmodel\n"
       "  coracle convert lenet_solver.prototxt job.pbtxt --data_dir=mnist\n"},
      ConvertFields(), RunConvert);
}

}  // namespace coracle::tools
