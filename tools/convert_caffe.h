#pragma once
// Converts Caffe's text files for the commands.

#include <coracle/train/job/job.h>

#include <string>
#include <vector>

namespace coracle::tools {

// Whether the name ends in .prototxt.
bool IsCaffeText(const std::string& path);

// Takes TEXT.prototxt [WEIGHTS.caffemodel] OUT. Converts a net to a model text or an inference
// model, and a solver to a job.
int ConvertCaffe(const std::vector<std::string>& args);

// Converts a solver's text to the job that `train` runs.
JobConfig ReadSolverJob(const std::string& path);

}  // namespace coracle::tools
