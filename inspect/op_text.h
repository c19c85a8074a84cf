#pragma once
// Describes the declaration of an op in words, for `coracle ops` and the pages of docs/ops.

#include <coracle/framework/op/op_def.h>

#include <string>

namespace coracle::inline internal {

std::string GradientText(const OpSpec& def);  // "by the op clip_grad", "none: an update"
std::string LodText(const OpSpec& def);       // how LoD passes
std::string DTypesText(const OpSpec& def);    // "float32, float64; float16 and bfloat16 in float32"
std::string KernelsText(const OpSpec& def);   // "reference, fast"
std::string InplaceText(const OpSpec& def);   // "X and Out"; "" without pairs
std::string RowsText(const OpSpec& def);      // how the rows of a batch pass
std::string SoftLabelsText(const OpSpec& def);  // "Label, if soft_label"; "" without such inputs
std::string SlotTraits(const SlotDef& slot);    // "optional, no gradient"; "" without traits
std::string AttrLimits(const AttrDef& attr);    // ", at least 0"; "" for any value
// The first sentence of the doc, cut to `most` characters. ".. " does not end a sentence.
std::string Brief(const std::string& doc, size_t most = std::string::npos);

}  // namespace coracle::inline internal
