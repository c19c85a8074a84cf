#include <coracle/operators/operators.h>
#include <coracle/tools/commands.h>
#include <fmt/format.h>

namespace coracle::tools {
namespace {

int RunVersion(const Args& args) {
  RequireArgs(args, 0, 0, "no arguments");
#ifdef CORACLE_ONEDNN
  const char* kernels = "with oneDNN";
#else
  const char* kernels = "without oneDNN";
#endif
  Print(fmt::format("coracle {} ({} ops, {})\n", CORACLE_VERSION, DefaultOps().Types().size(),
                    kernels));
  return 0;
}

}  // namespace

Command VersionCommand() {
  return MakeCommand({"version", "prints the version", "version", "  coracle version\n"},
                     RunVersion);
}

}  // namespace coracle::tools
