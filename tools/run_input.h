#pragma once
// What a run of a program is given on the command line: --feed, --params, --fetch.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/program.h>
#include <gflags/gflags.h>

#include <string>
#include <vector>

DECLARE_string(feed);
DECLARE_string(fetch);
DECLARE_string(params);

namespace coracle::tools {

// The arrays of --feed ("": none), those of a csv file converted to what the program's variables
// hold. The array of an npy file gets the name of the program's only input; throws UsageError if
// that has none, or several.
NamedTensors ReadFeeds(const ProgramDesc& program);

// The names that Executor::Prepare takes as its feeds: of a program with feed ops none.
std::vector<std::string> FeedNames(const ProgramDesc& program, const NamedTensors& feeds);

// The feeds in the order of these names; throws kNotFound for one that is missing.
std::vector<Tensor> InOrder(const NamedTensors& feeds, const std::vector<std::string>& names);

// The parameters that --params names, or else those beside the program `file`.
void LoadParametersFor(const ProgramDesc& program, const std::string& file, Scope& scope);

}  // namespace coracle::tools
