#pragma once
// Caffe's texts as commands take them.

#include <coracle/train/job/job.h>

#include <string>
#include <vector>

namespace coracle::tools {

// Whether the file is one by its name, which ends in .prototxt.
bool IsCaffeText(const std::string& path);

// TEXT.prototxt [WEIGHTS.caffemodel] OUT: a net as model text or inference model, a solver as a
// job.
int ConvertCaffe(const std::vector<std::string>& args);

// A solver's text as the job that `train` runs.
JobConfig ReadSolverJob(const std::string& path);

}  // namespace coracle::tools
