#pragma once
// Flags that several commands share: structs to inline into a command's own (flag_table.h).

#include <coracle/executor/executor.h>
#include <coracle/tools/flag_table.h>
#include <gflags/gflags.h>

#include <string>
#include <utility>
#include <vector>

// Flags of the process, which every command takes.
DECLARE_string(op_library);
DECLARE_string(shape);
DECLARE_string(threads);

namespace coracle::tools {

// --memory_limit and --time_limit.
struct LimitFlags {
  std::string memory_limit = {};
  double time_limit = 600;  // seconds; 0: no limit
};
Fields<LimitFlags> LimitFields();     // of a command whose time is limited as a whole
Fields<LimitFlags> RunLimitFields();  // of a command that limits each run of a program

// The limit in bytes, never 0. Throws UsageError for any other text.
uint64_t MemoryLimitOf(const LimitFlags& flags);

// How a program is compiled.
struct PassFlags {
  KernelMode kernels = KernelMode::kAuto;
  bool check_nan_inf = false;
  std::vector<std::string> disabled_passes = {};
  std::string allow_files = {};
  DType precision = DType::kFloat32;
  std::vector<std::string> float32_vars = {};
};
Fields<PassFlags> PassFields();

// How a program is compiled and run, for commands that run it.
struct CompileFlags {
  PassFlags passes = {};
  bool profile = false;
  bool tune = false;
  bool flush_subnormals = true;
  bool shape_warnings = true;
  uint64_t seed = 0;
  LimitFlags limits = {};  // of each run
};
Fields<CompileFlags> CompileFields(bool with_profile = true);

// Throw UsageError for invalid values, kNotFound for an unknown pass.
CompileOptions CompileOptionsOf(const PassFlags& flags, const LimitFlags& limits);
CompileOptions CompileOptionsOf(const CompileFlags& flags);

// Docs of flags that several commands have.
inline constexpr const char* kParamsDoc =
    "`PATH` of the parameters: a directory, a combined file or a training snapshot";
inline constexpr const char* kShapeDoc =
    "shapes of inputs that have unknown dims: `VAR:8x3x32x32,...`";
inline constexpr const char* kJsonDoc = "print JSON";

// Shapes of variables, by name.
using FlagShapes = std::vector<std::pair<std::string, Shape>>;
// Parses the texts of --shape. Throws UsageError for one that is not like VAR:8x3x32x32.
FlagShapes ShapesOf(const std::vector<std::string>& texts);
// The shapes of the flag --shape of the process. A command that has a flag of this name must set
// FLAGS_shape from it.
FlagShapes GivenShapes();
// Parses each text "x:8x3x32x32". It is read from the end, because a variable's name may contain
// colons. Throws UsageError, whose text begins with `what`, for any other form, for a dim below
// `least` and for a second shape of the same variable.
FlagShapes ParseShapes(const std::string& what, const std::vector<std::string>& texts,
                       int64_t least);

// The numbers of --threads, at least one; 0 is the default number.
std::vector<int> ThreadsFromFlag();

}  // namespace coracle::tools
