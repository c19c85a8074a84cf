#pragma once
// The JSON text of an infer request: a small tree of its fields, and the elements of its tensors.

#include <coracle/serve/json_elements.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

namespace coracle::serve {

struct InferBody {
  // Where an input has data, its field is true here.
  nlohmann::json fields;
  std::vector<JsonElements> data;  // of each input; empty for those without data
};

// Throws HttpError with status 400 for text that is not JSON, objects with a repeated name, more
// than 100 levels of arrays, and more than 10,000 fields besides the elements.
InferBody ParseInferBody(std::string_view text);

}  // namespace coracle::serve
