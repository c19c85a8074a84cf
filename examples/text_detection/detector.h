#pragma once
// PP-OCR's text detector: a saved model, with its inputs and outputs converted.

#include <coracle/coracle.h>

#include <string>
#include <vector>

#include "boxes.h"
#include "picture.h"

class TextDetector {
 public:
  // `model` is a .pdmodel file with its .pdiparams next to it. Throws coracle::Error.
  explicit TextDetector(const std::string& model);

  // Returns boxes in pixels of the picture. Shrinks a picture with a side longer than `max_side`
  // for the model.
  std::vector<TextBox> Find(const Picture& picture, const BoxOptions& options = {},
                            int max_side = 960);

 private:
  coracle::Scope scope_;
  coracle::PreparedProgram net_;
};
