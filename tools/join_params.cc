#include <coracle/edit/join_parameters.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/io/tensor_archive.h>
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <filesystem>

#include "command_limits.h"
#include "commands.h"
#include "flags.h"
#include "model_files.h"
#include "program_input.h"

DECLARE_string(params);

namespace coracle::tools {
namespace {

namespace fs = std::filesystem;

// Whether the directory holds a program, which gives the names of the parameters.
bool HasProgram(const std::string& directory) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    if (entry.path().filename() == "__model__" || entry.path().extension() == ".pdmodel")
      return true;
  }
  return false;
}

size_t JoinOfModel(const std::string& path) {
  const bool among_files =
      FLAGS_params.empty() && IsDirectory(path) && ParametersBeside(ProgramFile(path)).empty();
  const ModelFiles model = ReadModel(path, among_files ? path : FLAGS_params);
  const std::vector<std::string> names = PersistableNames(model.program);
  if (names.empty())
    throw Error(ErrorCode::kNotFound, "the program has no persistable variables to join");
  if (!model.has_values) {
    throw Error(ErrorCode::kNotFound,
                "the program came without parameters; --params=DIR gives them");
  }
  SaveParameters(model.values, names, FLAGS_out);
  return names.size();
}

int RunJoinParams(const std::vector<std::string>& args) {
  RequireArgs(args, 1, 1, "one DIR or MODEL");
  if (FLAGS_out.empty()) throw UsageError("--out=FILE is missing: where the parameters go");
  RequireParametersName("--out", FLAGS_out);
  const CommandLimits limits(CommandLimits::Time::kCommand);
  const bool files_alone = IsDirectory(args[0]) && !HasProgram(args[0]);
  const size_t joined =
      files_alone ? JoinParameters(args[0], FLAGS_out).size() : JoinOfModel(args[0]);
  if (FLAGS_out == "-") return 0;
  Print(fmt::format("{}: {}\n", Shown(FLAGS_out), Counted(joined, "persistable variable")));
  return 0;
}

}  // namespace

Command JoinParamsCommand() {
  return {"join-params",
          "joins parameters in files of their own to one combined file, in the order of names",
          "join-params DIR|MODEL -o FILE.pdiparams [--params=DIR]",
          "  coracle join-params params -o inference.pdiparams\n"
          "  coracle join-params inference.pdmodel --params=params -o inference.pdiparams\n",
          WithLimitFlags({"out", "params"}),
          RunJoinParams};
}

}  // namespace coracle::tools
