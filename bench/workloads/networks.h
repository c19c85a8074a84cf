#pragma once
// The networks of model_bench, written with the builder. Images are [batch, channels, height,
// width]; the results are logits [batch, classes] unless stated otherwise. With `is_test`,
// batch_norm uses its running statistics.

#include <coracle/layers/builder.h>

#include <vector>

namespace coracle {

// 784-512-512-10, ReLU.
Variable Mlp(Builder& net, const Variable& x);

// Caffe's examples/mnist/lenet: conv 20@5x5, max pool 2, conv 50@5x5, max pool 2, fc 500, ReLU,
// fc 10.
Variable LeNet(Builder& net, const Variable& image);

// He et al. 2015, for CIFAR: 3x3 stem, stages of 16, 32 and 64 channels, 3 blocks each, and 10
// classes; shortcuts that change the shape are projections.
Variable ResNet20(Builder& net, const Variable& image, bool is_test);
// For ImageNet: `depths` blocks in stages of 64, 128, 256 and 512 channels, 1000 classes.
// Bottleneck blocks have four times as many outputs, and their stride in the 3x3 convolution.
struct ResNetOptions {
  std::vector<int> depths;
  bool bottleneck = false;
  bool is_test = false;
};
Variable ResNet(Builder& net, const Variable& image, const ResNetOptions& options);

// Howard et al. 2017 (width 1.0) and 2019 (large), 1000 classes.
Variable MobileNetV1(Builder& net, const Variable& image, bool is_test);
Variable MobileNetV3Large(Builder& net, const Variable& image, bool is_test);

// 1-D convolutions of signals [batch, 40, length], as images of height 1: 256 channels of 5 taps,
// then 4 residual blocks of 256 channels of 3 taps (dilations 1, 2, 4, 8), 9 taps depthwise and 1
// tap; ReLU, the mean over the length, 35 classes.
Variable SignalNet(Builder& net, const Variable& signal);

// Embedding 10000 x 200, two LSTM layers of 200, fc 10000. ids are [steps, batch]; the logits are
// [steps * batch, 10000].
Variable LstmLanguageModel(Builder& net, const Variable& ids);

// Embedding 10000 x 256 with learned positions, 4 post-norm encoder layers (4 heads, one projection
// for queries, keys and values, fc 1024 with GELU), the mean over time, fc 10. ids are [batch,
// 128]. `dropout` is the drop probability for the first sum and for the added terms of each layer.
Variable TransformerClassifier(Builder& net, const Variable& ids, float dropout = 0);

// A table of `rows` x 16 with sparse gradients, 26 ids per sample, 416-256-128-1 with ReLU; one
// logit per sample. ids are [batch, 26].
Variable Recommender(Builder& net, const Variable& ids, int64_t rows);

}  // namespace coracle
