#pragma once
// JoinParameters: separate parameter files as one.

#include <string>
#include <vector>

namespace coracle {

// Writes the files below `directory`, each one tensor in Paddle's format as SaveSeparate writes
// them, as one combined file in the order in which LoadCombined wants them: that of the names,
// which are the files' paths below the directory, by bytes. Where `path` names an archive
// (framework/io/tensor_archive.h) that is written instead. Returns the names. Of a combined file
// one tensor is in memory at a time. Throws kNotFound for a directory without files, kDataLoss for
// a file that holds anything else than one tensor.
std::vector<std::string> JoinParameters(const std::string& directory, const std::string& path);

}  // namespace coracle
