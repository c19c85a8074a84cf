#pragma once
// Converts Caffe's text files for the commands.

#include <coracle/tools/command.h>
#include <coracle/train/job/job.h>

#include <string>
#include <vector>

namespace coracle::tools {

// Flags for Caffe's texts.
struct CaffeFlags {
  std::vector<std::string> data = {};
  std::string data_dir = {};
  std::vector<std::string> shape = {};
  std::vector<std::string> stage = {};
};
Fields<CaffeFlags> CaffeFields();

// Whether the name ends in .prototxt.
bool IsCaffeText(const std::string& path);

// Takes TEXT.prototxt [WEIGHTS.caffemodel] OUT. Converts a net to a model text or an inference
// model, and a solver to a job.
int ConvertCaffe(const Args& args, const CaffeFlags& flags);

// Converts a solver's text to the job that `train` runs.
JobConfig ReadSolverJob(const std::string& path, const CaffeFlags& flags);

}  // namespace coracle::tools
