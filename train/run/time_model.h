#pragma once
// Measures the time that each layer of a model takes.

#include <coracle/executor/executor.h>
#include <coracle/layers/layer.h>
#include <coracle/train/job/job.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace coracle::inline internal {

struct TimeOptions {
  CompileOptions compile = {};  // sets its `profile`
  std::string loss = "loss";    // without this variable, only the forward ops are timed
  int64_t batch_size = 64;      // for unknown dimensions
  int64_t iterations = 50;
  int64_t warm_up = 3;              // untimed steps before
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
  // Shapes of inputs by name, without unknown dims; TimeJob ignores them. Other inputs have their
  // declared shapes.
  std::vector<std::pair<std::string, Shape>> shapes = {};
};

enum class StepPart { kForward, kBackward, kUpdate };

struct LayerTime {
  std::string layer;  // the name of its result, or of the layer if the result has none
  std::string ops;    // types of its forward ops
  std::string place;  // "lenet.pbtxt:7:9", or ""
  // Seconds of each step, by StepPart.
  std::array<std::vector<double>, 3> seconds;
  // Types of the ops that passes made of the layer: "conv2d" for a batch_norm.
  std::string run_by = {};
};

struct ModelTimes {
  std::vector<LayerTime> layers;  // in the order of the model; the last one is the rest
  LayerTime total;                // of all ops
  std::vector<double> steps;      // wall-clock seconds of whole steps
  int64_t batch_size = 0;
  int64_t batches = 1;  // per step
  // Whether one op updated the parameters of several layers. Its time was divided by their numbers
  // of elements.
  bool shared = false;
  // Whether passes fused several layers into one op. Its time was divided by their arithmetic.
  bool fused = false;
  std::string ToString() const;  // a table with p50, p90 and p99 in milliseconds
};

// Times a model on random data from DrawFeeds. If the model has the loss, a step includes backward
// and a momentum update of rate 0. Throws what the model's ops throw.
ModelTimes TimeModel(const BuiltModel& model, const TimeOptions& options);

// Times the unchanged training step of a job, with its optimizers, clips, precision, accumulation
// (a step is then iter_size batches) and batch size. Parameters change. Ignores loss and batch_size
// of `options`.
ModelTimes TimeJob(const JobConfig& job, const TimeOptions& options);

// Times the forward pass of a saved model with frozen parameters, as `coracle run` runs it. Ignores
// the loss of `options`. Throws what LoadInferenceModel throws.
ModelTimes TimeSavedModel(const std::string& path, const TimeOptions& options);

}  // namespace coracle::inline internal
