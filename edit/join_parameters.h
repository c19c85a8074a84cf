#pragma once
// JoinParameters: joins separate parameter files to one file.

#include <string>
#include <vector>

namespace coracle::inline internal {

// Joins the files below `directory`, each with one tensor in Paddle's format as SaveSeparate writes
// it, to one combined file. Sorts by name, as LoadCombined expects; the names are the files' paths
// below the directory, compared by bytes. If `path` names an archive
// (framework/io/tensor_io.h), writes that instead. Returns the names. For a combined file,
// keeps only one tensor in memory at a time. Throws kNotFound for a directory without files,
// kDataLoss for a file that does not hold exactly one tensor.
std::vector<std::string> JoinParameters(const std::string& directory, const std::string& path);

}  // namespace coracle::inline internal
