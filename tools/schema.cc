#include <coracle/layers/model_text.h>

#include "commands.h"

namespace coracle::tools {
namespace {

int RunSchema(const std::vector<std::string>& args) {
  RequireArgs(args, 0, 0, "no arguments");
  Print(ModelSchema(DefaultOps()));
  return 0;
}

}  // namespace

Command SchemaCommand() {
  return {"schema", "prints the schema of model text as a .proto file",
          "schema", "  coracle schema > model.proto\n",
          {},       RunSchema};
}

}  // namespace coracle::tools
