#include <coracle/convert/onnx_export.h>
#include <coracle/edit/paddle_fields.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <algorithm>

#include "commands.h"
#include "convert_caffe.h"
#include "convert_tensors.h"
#include "flags.h"
#include "model_files.h"
#include "program_input.h"
#include "run_input.h"

DEFINE_int32(opset, 17, "`NUMBER` of the opset of an ONNX model");

namespace coracle::tools {
namespace {

constexpr size_t kMaxNames = 8;

// Lists names, cut to the first ones: "h, fc_0.w_0 and 3 more".
std::string Names(const std::vector<std::string>& names) {
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(names.size(), kMaxNames); ++i) shown.push_back(Shown(names[i]));
  const size_t more = names.size() - shown.size();
  return Join(shown, ", ") + (more > 0 ? fmt::format(" and {} more", more) : "");
}

// Prints to standard error what the conversion dropped, and what Paddle cannot run.
void TellLosses(const std::vector<LeftOut>& left_out, const ProgramDesc& program) {
  for (const LeftOut& lost : left_out) {
    const std::string of = lost.of.empty() ? "" : " of " + Names(lost.of);
    LogMessage(lost.matters ? MessageLevel::kWarning : MessageLevel::kInfo,
               fmt::format("left out: {}{}", lost.what, of));
  }
  std::vector<std::string> types;
  for (const auto& [type, count] : OpsUnknownToPaddle(program))
    types.push_back(fmt::format("{} ({})", type, count));
  if (types.empty()) return;
  LogMessage(MessageLevel::kWarning,
             "Paddle has no op of these types and cannot run the program: " + Names(types));
}

// Writes the program and its parameters, from --params or next to the program, as an ONNX model.
void WriteOnnx(const std::string& in, const std::string& out) {
  if (!FLAGS_compat.empty()) throw UsageError("--compat is for programs, and OUT is an ONNX model");
  const ModelFiles model = ReadModel(in, FLAGS_params);
  if (!model.has_values) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("{} has no parameters next to it, but an ONNX model holds them; "
                            "--params=DIR or --params=FILE gives them",
                            Shown(in)));
  }
  RefuseOwnFiles(model.read, {out});
  OnnxExportOptions options;
  options.opset = FLAGS_opset;
  ExportOnnx(out, model.program, model.values, options);
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

int RunConvertTensors(const std::string& in, const std::string& out) {
  if (!IsTensorFileName(out)) {
    throw UsageError(
        fmt::format("{} holds tensors: OUT must be a file of tensors too (.npz, .safetensors, "
                    ".pdiparams, ...), got {}",
                    Quote(in, 300), Quote(out, 300)));
  }
  if (!FLAGS_compat.empty()) throw UsageError("--compat is for programs");
  ConvertTensors(in, out, FLAGS_params);
  return 0;
}

int RunConvert(const std::vector<std::string>& args) {
  if (!args.empty() && IsCaffeText(args[0])) return ConvertCaffe(args);
  RequireArgs(args, 2, 2, "IN and OUT");
  if (FLAGS_opset < kLeastOnnxOpset || FLAGS_opset > kLatestOnnxOpset) {
    throw UsageError(fmt::format("--opset lies between {} and {}, got {}", kLeastOnnxOpset,
                                 kLatestOnnxOpset, FLAGS_opset));
  }
  if (IsOnnx(args[1])) return WriteOnnx(args[0], args[1]), 0;
  if (IsTensorFileName(args[0]) || IsTensorFileName(args[1]))
    return RunConvertTensors(args[0], args[1]);
  if (!FLAGS_params.empty()) throw UsageError("--params needs an OUT of tensors or ONNX");
  RequireProgramName("OUT", args[1]);
  if (!FLAGS_compat.empty() && FLAGS_compat != "paddle")
    throw UsageError("--compat is paddle, got " + Quote(FLAGS_compat));
  ModelFiles model;
  if (IsOnnx(args[0]))
    model = ReadModel(args[0], "");
  else
    model.program = ReadAnyProgram(args[0]);
  ProgramDesc& program = model.program;
  if (FLAGS_compat == "paddle") TellLosses(KeepPaddleFields(program), program);
  if (model.has_values) SaveValues(model, args[1]);
  WriteProgram(program, args[1]);
  return 0;
}

}  // namespace

Command ConvertCommand() {
  return {
      "convert",
      "rewrites a program as binary (.pb, .pdmodel), text (.pbtxt, .txt) or ONNX (.onnx), and "
      "files of tensors",
      "convert IN OUT [--compat=paddle] [--params=PATH] [--opset=17], or convert TEXT.prototxt "
      "[WEIGHTS.caffemodel] OUT",
      "  coracle convert inference.pdmodel model.pbtxt\n"
      "  coracle convert model.pbtxt model.pb      # text when OUT ends in .pbtxt or .txt\n"
      "  coracle convert train.pb train.pdmodel --compat=paddle   # for Paddle and Netron\n"
      "  coracle convert inference.pdmodel model.onnx   # with the parameters next to it\n"
      "  coracle convert model.onnx model.pdmodel       # and model.pdiparams\n"
      "  coracle convert inference.pdmodel inference.safetensors   # its parameters by name\n"
      "  coracle convert values.npz values.safetensors\n"
      "  coracle convert lenet_train_test.prototxt lenet.pbtxt      # from Caffe to model text\n"
      "  coracle convert deploy.prototxt net.caffemodel net.pdmodel\n"
      "  coracle convert lenet_solver.prototxt job.pbtxt --data_dir=mnist\n",
      {"compat", "params", "opset", "data", "data_dir", "shape", "stage"},
      RunConvert};
}

}  // namespace coracle::tools
