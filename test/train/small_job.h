#pragma once
// A small job for tests of the trainer.

#include <coracle/test/train/train_test_util.h>
#include <coracle/train/job/job.h>

#include <string>

namespace coracle {

// A small network with what a snapshot must keep: momentum, and the random draws of dropout.
inline constexpr const char* kSmallModel = R"(
data  { name: "image" shape: [-1, 784] }
data  { name: "label" shape: [-1, 1] dtype: INT64 }
layer { fc { input: "image" size: 16 act: "relu" output: "h" error_clip { by_value { max: 5 } } } }
layer { dropout { input: "h" dropout_prob: 0.2 output: "d" } }
layer { fc { input: "d" size: 10 output: "logits" } }
layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
layer { mean { input: "ce" output: "loss" } }
layer { accuracy { input: "logits" label: "label" output: "acc" } }
layer { softmax { input: "logits" output: "prob" } }
)";

inline JobConfig SmallJob() {
  JobConfig job;
  job.name = "small";
  job.model_text = kSmallModel;
  job.train.source = DigitsOptions{.count = 150};
  job.test.source = DigitsOptions{.count = 70};
  job.metrics = {{"acc", "accuracy"}};
  job.training.optimizers = {MomentumOptions{.learning_rate = 0.05}};
  job.batch_size = 20;  // 7 whole batches and one of 10
  job.epochs = 3;
  job.display = 5;
  job.text = "# small\n";
  job.deploy_inputs = {"image"};
  job.deploy_outputs = {"prob"};
  return job;
}

}  // namespace coracle
