#pragma once
// Flags that several commands take. A flag of one command is defined in that command's file.

#include <coracle/executor/executor.h>
#include <gflags/gflags.h>

#include <string>
#include <utility>
#include <vector>

DECLARE_string(op_library);
DECLARE_string(threads);
DECLARE_string(out);
DECLARE_string(kernels);
DECLARE_bool(check_nan_inf);
DECLARE_bool(profile);
DECLARE_string(disabled_passes);
DECLARE_string(memory_limit);
DECLARE_double(time_limit);
DECLARE_string(allow_files);
DECLARE_string(compat);
DECLARE_double(rtol);
DECLARE_double(atol);
DECLARE_string(shape);
DECLARE_uint64(seed);
DECLARE_string(ranks);
DECLARE_double(bucket_mb);

namespace coracle::tools {

// Whether the command line gives the flag.
bool IsGiven(const char* flag);

// The flags that CompileOptionsFromFlags reads, for a command's list.
std::vector<std::string> WithCompileFlags(std::vector<std::string> flags);
CompileOptions CompileOptionsFromFlags();

// The flags that CommandLimits (command_limits.h) reads, for the list of a command that
// runs no program.
std::vector<std::string> WithLimitFlags(std::vector<std::string> flags);

uint64_t MemoryLimitFromFlags();  // bytes, never 0
double TimeLimitFromFlags();      // seconds; 0: none

// --shape. Throws UsageError for what is not VAR:8x3x32x32.
std::vector<std::pair<std::string, Shape>> ShapesFromFlag();
// Of each text "x:8x3x32x32", read from the end: a variable's name may have colons. Throws
// UsageError, which begins with `what`, for anything else, for a dim below `least` and for a second
// shape of one variable.
std::vector<std::pair<std::string, Shape>> ParseShapes(const std::string& what,
                                                       const std::vector<std::string>& texts,
                                                       int64_t least);

// The numbers of --threads, at least one; 0 stands for the default.
std::vector<int> ThreadsFromFlag();

// The numbers of --ranks, each at least one; none where it is "".
std::vector<int> RanksFromFlag();

std::vector<std::string> ListFlag(const std::string& value);  // "a,b" -> {a, b}; "" -> {}

}  // namespace coracle::tools
