#pragma once
// Generates text with a saved character model, for `coracle generate`.

#include <coracle/executor/executor.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace coracle::tools {

struct GenerateOptions {
  std::string prompt = "\n";  // one or more characters of the model's vocabulary
  int64_t length = 500;       // number of characters to generate
  // Scores are divided by the temperature before the softmax: below 1, likely characters become
  // likelier; 0 always chooses the likeliest.
  double temperature = 1;
  uint64_t seed = 1;  // the same seed gives the same text
  CompileOptions compile = {};
};

// Returns the text that follows the prompt. `model` was saved by a job with a text and `deploy`: a
// directory with model.pdmodel, model.pdiparams and vocabulary.json, or the .pdmodel file in it.
// The model's first input is characters [batch, time], its first output scores [batch, time,
// characters of the vocabulary]; each further output is fed back to a further input, in order.
// Throws Error for a model of another form, an invalid prompt, and options out of range.
std::string GenerateText(const std::string& model, const GenerateOptions& options);

// The program of GenerateText: the model's ops in a while loop that draws one character per round
// (sampling_id of softmax(scores / temperature), or arg_max if `greedy`) and continues from it.
// Feeds: `before` int64 [1, n], characters to read first; `last` int64 [1, 1], the character to
// continue from; `count` int64 [1], at most 256; `temperature` float32 [1]; then the states.
// Fetches: `text` int64 [256], whose first `count` elements are the characters; `id`, the `last` of
// the next run; then the states for it. Parameters have the same names as in the model.
struct GenerateProgram {
  std::shared_ptr<ProgramDesc> main;
  std::vector<std::string> feeds, fetches;
  std::vector<Tensor> states;  // the initial states, zeros
};
// Throws kUnimplemented for a model with sub-blocks.
GenerateProgram MakeGenerateProgram(const InferenceModel& model, bool greedy);

}  // namespace coracle::tools
