#pragma once
// What the declaration of an op says, in words: for `coracle ops` and the pages of docs/ops.

#include <coracle/framework/op/op_spec.h>

#include <string>

namespace coracle {

std::string GradientText(const OpSpec& def);  // "by the op clip_grad", "none: an update"
std::string LodText(const OpSpec& def);       // how LoD passes
std::string DTypesText(const OpSpec& def);    // "float32, float64; float16 and bfloat16 in float32"
std::string KernelsText(const OpSpec& def);   // "reference, fast"
std::string InplaceText(const OpSpec& def);   // "X and Out"; "": no pairs
std::string SlotTraits(const SlotDef& slot);  // "optional, no gradient"; "": nothing special
std::string AttrLimits(const AttrDef& attr);  // ", at least 0"; "": any value
// The doc's first sentence, cut to `most` characters. ".. " ends none.
std::string Brief(const std::string& doc, size_t most = std::string::npos);

}  // namespace coracle
