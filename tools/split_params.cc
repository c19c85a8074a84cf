#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <filesystem>

#include "command_limits.h"
#include "commands.h"
#include "flags.h"
#include "model_files.h"

DECLARE_string(params);

namespace coracle::tools {
namespace {

namespace fs = std::filesystem;

int RunSplitParams(const std::vector<std::string>& args) {
  RequireArgs(args, 1, 1, "one MODEL");
  if (FLAGS_out.empty()) throw UsageError("--out=DIR is missing: where the files go");
  std::error_code ignored;
  if (FileExists(FLAGS_out) && !fs::is_empty(FLAGS_out, ignored)) {
    throw Error(ErrorCode::kAlreadyExists,
                fmt::format("--out: {} is there and not empty; name a new directory",
                            Quote(FLAGS_out, 300)));
  }
  const CommandLimits limits(CommandLimits::Time::kCommand);
  const ModelFiles model = ReadModel(args[0], FLAGS_params);
  const std::vector<std::string> names = PersistableNames(model.program);
  if (names.empty())
    throw Error(ErrorCode::kNotFound, "the program has no persistable variables to split");
  if (!model.has_values) {
    throw Error(ErrorCode::kNotFound,
                "the program came without parameters; --params=FILE gives them");
  }
  SaveSeparate(model.values, names, FLAGS_out);
  Print(fmt::format("{}: {}\n", Shown(FLAGS_out), Counted(names.size(), "file")));
  return 0;
}

}  // namespace

Command SplitParamsCommand() {
  return {"split-params",
          "writes each parameter of a model to a file of its own, in Paddle's format",
          "split-params MODEL -o DIR [--params=FILE]",
          "  coracle split-params inference.pdmodel -o params\n"
          "  coracle run inference.pdmodel --params=params --feed=in.npz\n",
          WithLimitFlags({"out", "params"}),
          RunSplitParams};
}

}  // namespace coracle::tools
