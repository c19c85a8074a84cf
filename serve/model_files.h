#pragma once
// The models in files and directories, as a look at the disk finds them.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace coracle::serve {

// Whether the name can be a part of a path: up to 128 letters, digits, '_', '-' and '.', without a
// '.' at the beginning.
bool IsModelName(const std::string& name);

// Whether the text is a number from 0 on, such as the version in a path.
bool IsNumber(const std::string& text, int64_t* number);

struct ModelPlace {
  std::string path;
  std::string conflict = {};  // why it must not be loaded: another model has its name; "": it may
};

struct FoundModels {
  std::map<std::string, std::map<int64_t, ModelPlace>> models;  // by name and version
  // Directories that could not be read: `models` lacks the models in them.
  std::vector<std::string> problems;
};

// `files` are paths by name, each of version 1. A directory has NAME.onnx, NAME.pdmodel, NAME/ (a
// model's directory), or NAME/VERSION/ with a number for each version; what has no such name is
// left out, and so are directories without a model. A name must come from one place: others get a
// conflict that names both.
FoundModels FindModels(const std::map<std::string, std::string>& files,
                       const std::vector<std::string>& directories);

// Changes when a file of the model is written or replaced.
std::string StampOf(const std::string& path);

// The file that LoadInferenceModel reads: an .onnx file in the directory, or the path itself.
std::string FileToLoad(const std::string& path);

}  // namespace coracle::serve
