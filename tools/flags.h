#pragma once
// Flags that several commands share. A flag of a single command is defined in that command's file.

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

// Appends the flags that CompileOptionsFromFlags reads to a command's list.
std::vector<std::string> WithCompileFlags(std::vector<std::string> flags);
CompileOptions CompileOptionsFromFlags();

// Appends the flags that CommandLimits (command_limits.h) reads to the list of a command that does
// not run a program.
std::vector<std::string> WithLimitFlags(std::vector<std::string> flags);

uint64_t MemoryLimitFromFlags();  // bytes, never 0
double TimeLimitFromFlags();      // seconds; 0: no limit

// Parses --shape. Throws UsageError for a value that is not like VAR:8x3x32x32.
std::vector<std::pair<std::string, Shape>> ShapesFromFlag();
// Parses each text "x:8x3x32x32". It is read from the end, because a variable's name may contain
// colons. Throws UsageError, whose text begins with `what`, for any other form, for a dim below
// `least` and for a second shape of the same variable.
std::vector<std::pair<std::string, Shape>> ParseShapes(const std::string& what,
                                                       const std::vector<std::string>& texts,
                                                       int64_t least);

// The numbers of --threads, at least one; 0 is the default number.
std::vector<int> ThreadsFromFlag();

// The numbers of --ranks, each at least one; empty if --ranks is "".
std::vector<int> RanksFromFlag();

std::vector<std::string> ListFlag(const std::string& value);  // "a,b" -> {a, b}; "" -> {}

}  // namespace coracle::tools
