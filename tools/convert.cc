#include <coracle/framework/io/tensor_io.h>

#include "commands.h"
#include "program_input.h"

namespace coracle::tools {
namespace {

int RunConvert(const std::vector<std::string>& args) {
  RequireArgs(args, 2, 2, "IN and OUT");
  RequireProgramName("OUT", args[1]);
  WriteProgram(ReadAnyProgram(args[0]), args[1]);
  return 0;
}

}  // namespace

Command ConvertCommand() {
  return {"convert",
          "rewrites a program as binary (.pb, .pdmodel) or text (.pbtxt, .txt)",
          "convert IN OUT",
          "  coracle convert inference.pdmodel model.pbtxt\n"
          "  coracle convert model.pbtxt model.pb      # text when OUT ends in .pbtxt or .txt\n",
          {},
          RunConvert};
}

}  // namespace coracle::tools
