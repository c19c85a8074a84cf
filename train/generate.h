#pragma once
// New text from a saved character model.

#include <coracle/executor/executor.h>

#include <cstdint>
#include <string>

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

}  // namespace coracle
