#pragma once
// Reads parameters, initializers, regularizers and clips of model text.

#include <coracle/layers/internal/text_index.h>
#include <coracle/layers/internal/text_parse.h>
#include <coracle/layers/options.h>

#include <vector>

namespace coracle::inline internal {

// Each takes a message of the kind in its name.
ParamAttr ReadParam(const Node& node, const SchemaPool& schema, const std::vector<Index>& indices);
ErrorClipPtr ReadErrorClip(const Node& node, const SchemaPool& schema);

}  // namespace coracle::inline internal
