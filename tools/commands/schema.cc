#include <coracle/layers/layer.h>
#include <coracle/tools/commands.h>
#include <coracle/train/job/job.h>
#include <fmt/format.h>

namespace coracle::tools {
namespace {

int RunSchema(const Args& args) {
  RequireArgs(args, 0, 1, "at most one of model and job");
  const std::string what = args.empty() ? "model" : args[0];
  if (what != "model" && what != "job")
    throw UsageError(fmt::format("there is no schema {}; use model or job", what));
  Print(what == "model" ? ModelSchema(DefaultOps()) : JobSchema());
  return 0;
}

}  // namespace

Command SchemaCommand() {
  return MakeCommand(
      {"schema", "prints the schema of model text or of job text as a .proto file",
       "schema [model|job]", "  coracle schema > model.proto\n  coracle schema job > job.proto\n"},
      RunSchema);
}

}  // namespace coracle::tools
