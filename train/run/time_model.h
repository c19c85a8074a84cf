#pragma once
// Times of a model, layer by layer.

#include <coracle/executor/executor.h>
#include <coracle/layers/model_text.h>
#include <coracle/train/job/job.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace coracle {

struct TimeOptions {
  CompileOptions compile = {};  // its `profile` is set
  std::string loss = "loss";    // without such a variable only the forward ops are timed
  int64_t batch_size = 64;      // for unknown dimensions
  int64_t iterations = 50;
  int64_t warm_up = 3;              // steps before those that are timed
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
};

enum class StepPart { kForward, kBackward, kUpdate };

struct LayerTime {
  std::string layer;  // the result's name, or the layer's own where only its temporaries have names
  std::string ops;    // types of its forward ops
  std::string place;  // "lenet.pbtxt:7:9", or ""
  // Seconds in each step, by StepPart.
  std::array<std::vector<double>, 3> seconds;
};

struct ModelTimes {
  std::vector<LayerTime> layers;  // in the order of the model; a last one for what is no layer's
  LayerTime total;                // of all ops
  std::vector<double> steps;      // seconds of whole steps, by the clock
  int64_t batch_size = 0;
  int64_t batches = 1;  // in one step
  // An op that updates the parameters of several layers (or looks at their gradients) counts for
  // each as its parameters' elements do; there was one.
  bool shared = false;
  std::string ToString() const;  // a table with p50, p90 and p99 in milliseconds
};

// Runs the model (with backward and a momentum update of rate 0 when it has the loss) on drawn
// data: floats in [0, 1), integers 0 and 1. Throws as the model's ops do.
ModelTimes TimeModel(const BuiltModel& model, const TimeOptions& options);

// The same of a job's training step as it is: its optimizers, clips, precision, accumulation (a
// step is then iter_size batches) and batch size. Parameters move. Of `options` loss and batch_size
// are not used.
ModelTimes TimeJob(const JobConfig& job, const TimeOptions& options);

// The same of a model that was saved with its parameters, as `coracle run` runs it: forward, with
// the parameters frozen. Of `options` loss is not used. Throws as LoadInferenceModel does.
ModelTimes TimeSavedModel(const std::string& path, const TimeOptions& options);

// The value that `percent` of the values do not exceed (nearest rank); 0 of none.
double Percentile(std::vector<double> values, double percent);

}  // namespace coracle
