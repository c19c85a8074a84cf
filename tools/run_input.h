#pragma once
// The inputs of a program run on the command line: --feed, --params, --fetch.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/program.h>
#include <gflags/gflags.h>

#include <string>
#include <vector>

DECLARE_string(feed);
DECLARE_string(fetch);
DECLARE_string(params);

namespace coracle::tools {

// Reads the arrays of --feed (none if it is ""). Arrays of a csv file are converted to the dtypes
// of the program's variables. The array of an npy file gets the name of the program's only input;
// throws UsageError if the program has no input or several.
NamedTensors ReadFeeds(const ProgramDesc& program);

// The feed names for Executor::Prepare; empty if the program has feed ops.
std::vector<std::string> FeedNames(const ProgramDesc& program, const NamedTensors& feeds);

// Returns the feeds in the order of `names`. Throws kNotFound for a missing one.
std::vector<Tensor> InOrder(const NamedTensors& feeds, const std::vector<std::string>& names);

// Loads the parameters that --params names, or else those next to the program `file`.
void LoadParametersFor(const ProgramDesc& program, const std::string& file, Scope& scope);

}  // namespace coracle::tools
