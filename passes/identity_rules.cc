#include <coracle/passes/identity_rules.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <unordered_map>
#include <vector>

namespace coracle::inline internal {
namespace {

using Ints = std::vector<int32_t>;

bool AllAre(const Ints& list, int32_t value) {
  return std::all_of(list.begin(), list.end(), [&](int32_t i) { return i == value; });
}

bool Always(const OpDesc&, const OpSpec&, const VariableFacts&) { return true; }

bool IsScaleByOne(const OpDesc& op, const OpSpec& spec, const VariableFacts&) {
  return !HasOtherInput(op, "X") && spec.AttrOf<float>(op, "scale") == 1 &&
         spec.AttrOf<float>(op, "bias") == 0;
}

bool IsCastToItself(const OpDesc& op, const OpSpec& spec, const VariableFacts& facts) {
  const std::optional<DType> x = facts.dtype(op.Input("X")[0]);
  return x && static_cast<int32_t>(*x) == spec.AttrOf<int32_t>(op, "out_dtype");
}

bool Upscales(const OpDesc& op, const OpSpec& spec) {
  return spec.AttrOf<std::string>(op, "dropout_implementation") == "upscale_in_train";
}
double KeptShare(const OpDesc& op, const OpSpec& spec) {
  return 1 - static_cast<double>(spec.AttrOf<float>(op, "dropout_prob"));
}

// The factor is rounded to X's dtype. A factor of 1 in double is 1 in all dtypes.
bool DropsNothing(const OpDesc& op, const OpSpec& spec, const VariableFacts& facts) {
  if (!spec.AttrOf<bool>(op, "is_test")) return false;
  if (Upscales(op, spec) || KeptShare(op, spec) == 1) return true;
  return static_cast<float>(KeptShare(op, spec)) == 1 &&
         facts.dtype(op.Input("X")[0]) == DType::kFloat32;
}

bool PadsNothing(const OpDesc& op, const OpSpec& spec, const VariableFacts&) {
  return !HasOtherInput(op, "X") && AllAre(spec.AttrOf<Ints>(op, "paddings"), 0);
}

// A slice of axis 0 has no LoD.
bool IsWholeSlice(const OpDesc& op, const OpSpec& spec, const VariableFacts&) {
  const Ints axes = spec.AttrOf<Ints>(op, "axes");
  return !HasOtherInput(op, "Input") && spec.AttrOf<Ints>(op, "decrease_axis").empty() &&
         std::all_of(axes.begin(), axes.end(), [](int32_t axis) { return axis > 0; }) &&
         AllAre(spec.AttrOf<Ints>(op, "starts"), 0) &&
         AllAre(spec.AttrOf<Ints>(op, "ends"), std::numeric_limits<int32_t>::max());
}

bool RepeatsOnce(const OpDesc& op, const OpSpec& spec, const VariableFacts&) {
  return !HasOtherInput(op, "X") && AllAre(spec.AttrOf<Ints>(op, "expand_times"), 1);
}

// More numbers than dimensions are an error.
bool KeepsAllDims(const OpDesc& op, const OpSpec& spec, const VariableFacts&) {
  return !HasOtherInput(op, "X") && AllAre(spec.AttrOf<Ints>(op, "shape"), -1);
}

// All dimensions are copied, except one that is inferred and so stays the same.
bool IsSameShape(const OpDesc& op, const OpSpec& spec, const VariableFacts& facts) {
  const Ints shape = spec.AttrOf<Ints>(op, "shape");
  const auto inferred = std::count(shape.begin(), shape.end(), -1);
  const auto copied = std::count(shape.begin(), shape.end(), 0);
  return !HasOtherInput(op, "X") && !spec.AttrOf<bool>(op, "allow_zero") && !shape.empty() &&
         inferred <= 1 && copied + inferred == static_cast<std::ptrdiff_t>(shape.size()) &&
         facts.rank(op.Input("X")[0]) == static_cast<int>(shape.size());
}

bool InsertsNothing(const OpDesc& op, const OpSpec& spec, const VariableFacts&) {
  return !HasOtherInput(op, "X") && spec.AttrOf<Ints>(op, "axes").empty();
}

bool MergesOneDim(const OpDesc& op, const OpSpec& spec, const VariableFacts& facts) {
  return spec.AttrOf<int32_t>(op, "start_axis") == spec.AttrOf<int32_t>(op, "stop_axis") &&
         facts.rank(op.Input("X")[0]) > 0;
}

bool KeepsOrder(const OpDesc& op, const OpSpec& spec, const VariableFacts&) {
  const Ints axis = spec.AttrOf<Ints>(op, "axis");
  for (size_t i = 0; i < axis.size(); ++i) {
    if (axis[i] != static_cast<int32_t>(i)) return false;
  }
  return true;
}

// For a type of op: when its output is its input.
struct Rule {
  const char* input;
  bool (*holds)(const OpDesc& op, const OpSpec& spec, const VariableFacts& facts);
};

const std::unordered_map<std::string, Rule>& Rules() {
  static const std::unordered_map<std::string, Rule> rules = {
      {"assign", {"X", &Always}},
      {"share_data", {"X", &Always}},
      {"memcpy", {"X", &Always}},
      {"stop_gradient", {"X", &Always}},
      {"scale", {"X", &IsScaleByOne}},
      {"cast", {"X", &IsCastToItself}},
      {"dropout", {"X", &DropsNothing}},
      {"concat", {"X", &Always}},  // of one input
      {"sum", {"X", &Always}},
      {"pad", {"X", &PadsNothing}},
      {"pad2d", {"X", &PadsNothing}},
      {"pad3d", {"X", &PadsNothing}},
      {"slice", {"Input", &IsWholeSlice}},
      {"expand", {"X", &RepeatsOnce}},
      {"expand_v2", {"X", &KeepsAllDims}},
      {"reshape", {"X", &IsSameShape}},
      {"reshape2", {"X", &IsSameShape}},
      {"unsqueeze", {"X", &InsertsNothing}},
      {"unsqueeze2", {"X", &InsertsNothing}},
      {"flatten_contiguous_range", {"X", &MergesOneDim}},
      {"transpose2", {"X", &KeepsOrder}},
  };
  return rules;
}

}  // namespace

std::string ReturnedInput(const OpDesc& op, const OpSpec& spec, const VariableFacts& facts) {
  const auto rule = Rules().find(op.type());
  if (rule == Rules().end()) return "";
  const auto &in = op.Input(rule->second.input), &out = op.Output("Out");
  if (in.size() != 1 || out.size() != 1 || IsEmptyName(in[0]) || IsEmptyName(out[0])) return "";
  const std::string* lod = spec.LodSource(op, "Out", 0);
  return lod && *lod == in[0] && rule->second.holds(op, spec, facts) ? in[0] : "";
}

std::optional<float> TestDropoutFactor(const OpDesc& op, const OpSpec& spec) {
  if (op.type() != "dropout" || !spec.AttrOf<bool>(op, "is_test") || Upscales(op, spec))
    return std::nullopt;
  return static_cast<float>(KeptShare(op, spec));
}

}  // namespace coracle::inline internal
