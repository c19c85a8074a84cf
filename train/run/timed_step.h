#pragma once
// A training step or a forward pass, to be timed on random data.

#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/train/job/job.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace coracle::inline internal {

struct TimedStep {
  ProgramDesc main, startup;
  std::vector<std::string> inputs, fetches;
  int64_t batch_size = 0;
  // The number of inputs that the data feeds; they come first. In these inputs, `length` replaces
  // unknown dims after the first (0: batch_size). In the other inputs, batch_size replaces
  // unknown dims.
  size_t columns = 0;
  int64_t length = 0;
  int64_t batches = 1;  // runs of the program in one step
  // Shapes of inputs. An input without an entry has its declared shape, with unknown dims as above.
  std::map<std::string, Shape> shapes = {};
};

// The whole training step of a job with optimizers, clips, precision and accumulation. `ops`
// nullptr: DefaultOps(). Throws what BuildPrograms throws.
TimedStep StepOfJob(const JobConfig& job, const OpRegistry* ops = nullptr);

// Draws random values for all inputs.
std::vector<Tensor> DrawFeeds(const TimedStep& step);

using NamedShapes = std::vector<std::pair<std::string, Shape>>;

// The shapes of the feeds `names`: the given ones, else the results of DrawnShape. Throws
// kInvalidArgument for a dim that is still unknown, and kNotFound for a given name that is not
// a feed.
NamedShapes FeedShapes(const ProgramDesc& program, const std::vector<std::string>& names,
                       int64_t batch_size, const NamedShapes& given);

}  // namespace coracle::inline internal
