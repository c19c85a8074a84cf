#include <coracle/framework/op/op_def.h>
#include <coracle/passes/quantized_moves.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace coracle::inline internal {
namespace {

using Ints = std::vector<int32_t>;

// Ops that select elements, or move them along an axis (RowRule::kMoves is for the others), and the
// slot of these elements.
constexpr std::pair<std::string_view, std::string_view> kSelections[] = {
    {"slice", "Input"},
    {"strided_slice", "Input"},
    {"gather", "X"},
    {"gather_nd", "X"},
    {"index_select", "X"},
    {"expand", "X"},
    {"expand_v2", "X"},
    {"expand_as_v2", "X"},
    {"tile", "X"},
    {"flip", "X"},
    {"reverse", "X"},
    {"roll", "X"},
    {"concat", "X"},
    {"split", "X"},
    {"stack", "X"},
    {"unstack", "X"},
    {"unbind", "X"},
    {"crop_tensor", "X"},
    {"pixel_shuffle", "X"},
    {"shuffle_channel", "X"},
    {"space_to_depth", "X"},
    {"nearest_interp", "X"},
    {"nearest_interp_v2", "X"}};

bool IsTransposeType(const OpDesc& op) {
  return op.type() == "transpose" || op.type() == "transpose2";
}

// Whether each window of a pool has an element. The maximum of an empty window is 0, which is
// another number in integers.
bool HasFullWindows(const OpDesc& op, const OpSpec& spec) {
  if (spec.AttrOf<bool>(op, "adaptive") || spec.AttrOf<bool>(op, "global_pooling")) return true;
  const Ints sizes = spec.AttrOf<Ints>(op, "ksize"), steps = spec.AttrOf<Ints>(op, "strides");
  Ints paddings = spec.AttrOf<Ints>(op, "paddings");
  if (spec.AttrOf<std::string>(op, "padding_algorithm") != "EXPLICIT") paddings = {0, 0};
  if (sizes.size() != 2 || steps.size() != 2 || (paddings.size() != 2 && paddings.size() != 4))
    return false;
  const bool ceil = spec.AttrOf<bool>(op, "ceil_mode");
  for (size_t i = 0; i < paddings.size(); ++i) {
    const size_t axis = paddings.size() == 2 ? i : i / 2;
    const int64_t rest = int64_t{sizes[axis]} - paddings[i];
    if (rest <= 0 || (ceil && rest < steps[axis])) return false;
  }
  return true;
}

}  // namespace

std::optional<ElementMove> MoveOf(const OpDesc& op, const OpSpec& spec) {
  const auto& out = op.Output("Out");
  if (out.empty() || spec.random || spec.side_effect || spec.for_ranks || op.HasSubBlock())
    return std::nullopt;
  if (op.type() == "pool2d")
    return spec.AttrOf<std::string>(op, "pooling_type") == "max" && HasFullWindows(op, spec)
               ? std::optional(ElementMove{"X", true})
               : std::nullopt;
  const auto found = std::find_if(std::begin(kSelections), std::end(kSelections),
                                  [&](const auto& row) { return row.first == op.type(); });
  if (found != std::end(kSelections)) return ElementMove{found->second};
  // An elementwise one, such as a cast, changes the dtype.
  if (spec.rows.effect.rule != RowRule::kMoves || spec.elementwise || !spec.kernel_dtypes.empty())
    return std::nullopt;
  return ElementMove{spec.inputs.at(0).name};
}

std::optional<int> AxisAfterMove(const OpDesc& op, const OpSpec& spec, const Shape& from,
                                 const Shape& to, int axis) {
  if (!from.IsKnown() || !to.IsKnown() || axis >= from.rank()) return std::nullopt;
  if (IsTransposeType(op)) {
    const Ints axes = spec.AttrOf<Ints>(op, "axis");
    const auto at = std::find(axes.begin(), axes.end(), axis);
    return at == axes.end() ? std::nullopt : std::optional(static_cast<int>(at - axes.begin()));
  }
  // The others of these keep the order of the elements.
  if (spec.rows.effect.rule != RowRule::kMoves || from.numel() != to.numel() || from.numel() == 0)
    return std::nullopt;
  for (int at = 0; at < to.rank(); ++at) {
    if (to[at] == from[axis] && to.Product(0, at) == from.Product(0, axis)) return at;
  }
  return std::nullopt;
}

OpDesc OnIntegers(const OpDesc& op, const ElementMove& move, std::vector<std::string> from,
                  std::vector<std::string> to) {
  OpDesc made(op);
  made.SetInput(move.slot, std::move(from));
  std::vector<std::string> others;
  for (const Slot& slot : op.outputs())
    if (slot.name != "Out") others.push_back(slot.name);
  for (const std::string& slot : others) made.RemoveOutput(slot);
  made.SetOutput("Out", std::move(to));
  return made;
}

}  // namespace coracle::inline internal
