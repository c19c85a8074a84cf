#include <coracle/edit/paddle_fields.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <algorithm>

#include "commands.h"
#include "flags.h"
#include "program_input.h"

namespace coracle::tools {
namespace {

constexpr size_t kMaxNames = 8;

// "h, fc_0.w_0 and 3 more".
std::string Names(const std::vector<std::string>& names) {
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(names.size(), kMaxNames); ++i) shown.push_back(Shown(names[i]));
  const size_t more = names.size() - shown.size();
  return Join(shown, ", ") + (more > 0 ? fmt::format(" and {} more", more) : "");
}

// Says on standard error what the program has lost, and what Paddle cannot run.
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

void RequireOut(const std::string& out) {
  if (out.ends_with(".onnx")) {
    throw UsageError(
        fmt::format("OUT must end in .pb or .pdmodel (binary) or in .pbtxt or .txt (text), got {}; "
                    "no ONNX is written: convert to .pdmodel with --compat=paddle, and that with "
                    "paddle2onnx",
                    Quote(out, 300)));
  }
  RequireProgramName("OUT", out);
}

int RunConvert(const std::vector<std::string>& args) {
  RequireArgs(args, 2, 2, "IN and OUT");
  RequireOut(args[1]);
  if (!FLAGS_compat.empty() && FLAGS_compat != "paddle")
    throw UsageError("--compat is paddle, got " + Quote(FLAGS_compat));
  ProgramDesc program = ReadAnyProgram(args[0]);
  if (FLAGS_compat == "paddle") TellLosses(KeepPaddleFields(program), program);
  WriteProgram(program, args[1]);
  return 0;
}

}  // namespace

Command ConvertCommand() {
  return {"convert",
          "rewrites a program as binary (.pb, .pdmodel) or text (.pbtxt, .txt)",
          "convert IN OUT [--compat=paddle]",
          "  coracle convert inference.pdmodel model.pbtxt\n"
          "  coracle convert model.pbtxt model.pb      # text when OUT ends in .pbtxt or .txt\n"
          "  coracle convert train.pb train.pdmodel --compat=paddle   # for Paddle and Netron\n",
          {"compat"},
          RunConvert};
}

}  // namespace coracle::tools
