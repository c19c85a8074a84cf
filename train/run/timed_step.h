#pragma once
// A training step, or a forward pass, to be timed on drawn data.

#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/train/job/job.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

struct TimedStep {
  ProgramDesc main, startup;
  std::vector<std::string> inputs, fetches;
  int64_t batch_size = 0;
  // The first inputs, which data feeds; of them `length` stands for unknown dims besides the first
  // (0: batch_size), of the others batch_size.
  size_t columns = 0;
  int64_t length = 0;
  int64_t batches = 1;  // runs of the program in one step
  // Of inputs; of others as their variables are declared, with the above for unknown dims.
  std::map<std::string, Shape> shapes = {};
};

// The whole training step of a job: optimizers, clips, precision, accumulation. nullptr:
// DefaultOps(). Throws what BuildPrograms throws.
TimedStep StepOfJob(const JobConfig& job, const OpRegistry* ops = nullptr);

// Drawn values for all inputs.
std::vector<Tensor> DrawFeeds(const TimedStep& step);

using NamedShapes = std::vector<std::pair<std::string, Shape>>;

// The shapes of the feeds `names`: those that are given, for the others DrawnShape. Throws
// kInvalidArgument for a dim that is not known then, kNotFound for a given name that is not fed.
NamedShapes FeedShapes(const ProgramDesc& program, const std::vector<std::string>& names,
                       int64_t batch_size, const NamedShapes& given);

}  // namespace coracle
