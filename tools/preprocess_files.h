#pragma once
// Keeps the description of preprocessing (see PreprocessConfig) when a command rewrites a model.

#include <map>
#include <string>

namespace coracle::tools {

// For an ONNX model: its entry of metadata; empty if nothing describes the preprocessing of the
// model `in`.
std::map<std::string, std::string> PreprocessMetadata(const std::string& in);

// Copies the description of the model `in` to the place next to the .pdmodel file `out`. If `in`
// has none, removes one that describes an earlier model of that name. Does nothing for other files.
void CopyPreprocess(const std::string& in, const std::string& out);

}  // namespace coracle::tools
