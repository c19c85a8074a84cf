#pragma once
// New text from a saved character model.

#include <coracle/executor/executor.h>
#include <coracle/framework/io/tensor_io.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace coracle {

struct GenerateOptions {
  std::string prompt = "\n";  // at least one character; all of the model's vocabulary
  int64_t length = 500;       // characters to write after it
  // Scores are divided by it before they become probabilities: below 1 likely characters become
  // likelier still; 0 takes the likeliest always.
  double temperature = 1;
  uint64_t seed = 1;  // the same seed writes the same text
  CompileOptions compile = {};
};

// The text that follows the prompt. `model`: what a job with a text and `deploy` has saved: a
// directory with model.pdmodel, model.pdiparams and vocabulary.json, or the .pdmodel file in it.
// The model's first input is characters [batch, time], its first output scores [batch, time,
// characters of the vocabulary]; each further input takes, in order, what a further output gave.
// Throws Error for a model of another form, a prompt that does not fit, and options out of range.
std::string GenerateText(const std::string& model, const GenerateOptions& options);

// The program behind it: the model's ops inside a while loop that draws one character each time
// (sampling_id of softmax(scores / temperature), or arg_max when `greedy`) and goes on from it.
// Feeds: `before` int64 [1, n], characters to go through first; `last` int64 [1, 1], the one to go
// on from; `count` int64 [1], at most 256; `temperature` float32 [1]; then the states. Fetches:
// `text` int64 [256], whose first `count` elements are the characters; `id`, the `last` of a
// further run; then the states for it. The parameters are the model's, by their names.
struct GenerateProgram {
  std::shared_ptr<ProgramDesc> main;
  std::vector<std::string> feeds, fetches;
  std::vector<Tensor> states;  // zeros, to begin with
};
// Throws kUnimplemented for a model with sub-blocks.
GenerateProgram MakeGenerateProgram(const InferenceModel& model, bool greedy);

}  // namespace coracle
