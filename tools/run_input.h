#pragma once
// The inputs of a program run on the command line: the files of --feed and --params.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/program.h>

#include <set>
#include <string>
#include <vector>

namespace coracle::tools {

inline constexpr const char* kFeedDoc =
    "`FILE` of inputs: npz, csv or json with arrays named like the variables (in npz, x@LOD@0 "
    "holds the offsets of x's sequences), or npy if there is only one input";

// Reads the arrays of the file (none if it is ""). Arrays of a csv file are converted to the dtypes
// of the program's variables. The array of an npy file gets the name of the program's only input;
// throws UsageError if the program has no input or several.
NamedTensors ReadFeeds(const std::string& file, const ProgramDesc& program);

// The names of the variables of the root block that are strings.
std::set<std::string> TextNames(const ProgramDesc& program);

// The feed names for Executor::Prepare; empty if the program has feed ops.
std::vector<std::string> FeedNames(const ProgramDesc& program, const NamedTensors& feeds);

// Returns the feeds, which were read from `file`, in the order of `names`. Throws kNotFound for a
// missing one.
std::vector<Tensor> InOrder(const std::string& file, const NamedTensors& feeds,
                            const std::vector<std::string>& names);

// Loads the parameters at the path `params`, or if it is "", those next to the program `file`.
void LoadParametersFor(const std::string& params, const ProgramDesc& program,
                       const std::string& file, Scope& scope);

}  // namespace coracle::tools
