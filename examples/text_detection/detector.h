#pragma once
// PP-OCR's text detector: a saved model, what it wants to be fed, and what its result means.

#include <coracle/coracle.h>

#include <string>
#include <vector>

#include "boxes.h"
#include "picture.h"

class TextDetector {
 public:
  // `model` is a .pdmodel file with its .pdiparams beside it. Throws coracle::Error.
  explicit TextDetector(const std::string& model);

  // Boxes in the picture's own pixels. A picture with a longer side than `max_side` is made smaller
  // for the model.
  std::vector<TextBox> Find(const Picture& picture, const BoxOptions& options = {},
                            int max_side = 960);

 private:
  coracle::Scope scope_;
  coracle::PreparedProgram net_;
};
