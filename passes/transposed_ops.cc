#include <coracle/framework/op/op_def.h>
#include <coracle/passes/quantized_form.h>
#include <coracle/passes/transposed_ops.h>

#include <algorithm>
#include <utility>

namespace coracle::inline internal {
namespace {

// Larger constants are not stored in a second order of axes.
constexpr int64_t kMaxConstantElements = 65536;

// The axis before the transpose.
int32_t Before(int32_t axis, const Ints& axes) {
  const auto rank = static_cast<int32_t>(axes.size());
  return axes[static_cast<size_t>(axis < 0 ? axis + rank : axis)];
}
bool IsAxis(int32_t axis, const Ints& axes) {
  const auto rank = static_cast<int32_t>(axes.size());
  return -rank <= axis && axis < rank;
}
bool AreAxes(const Ints& list, const Ints& axes) {
  return std::all_of(list.begin(), list.end(), [&](int32_t axis) { return IsAxis(axis, axes); });
}
Ints Before(Ints list, const Ints& axes) {
  for (int32_t& axis : list) axis = Before(axis, axes);
  return list;
}

Ints PairsBefore(const Ints& pairs, const Ints& axes) {
  Ints before(pairs.size());
  for (size_t i = 0; i < axes.size(); ++i) {
    const size_t to = 2 * static_cast<size_t>(axes[i]);
    before[to] = pairs[2 * i];
    before[to + 1] = pairs[2 * i + 1];
  }
  return before;
}

bool AllAreForms(const OpDesc& op, const OpSpec& spec, const TransposeScene& scene) {
  return !op.AnyInput([&](const std::string& name, const std::string& slot) {
    return !IsTable(spec, slot) && !scene.is_form(name);
  });
}

// Whether it is an elementwise op with one operand, with two that are broadcast axis by axis, or
// with operands of one shape.
bool IsAxiswise(const OpDesc& op, const OpSpec& spec, const TransposeScene& scene) {
  int inputs = 0;
  const Shape* shape = nullptr;
  bool same = true;
  const auto compare = [&](const std::string& name) {
    const VarDesc* var = scene.block.FindVar(name);
    if (var && !shape) shape = &var->shape();
    same = same && var && var->shape() == *shape;
  };
  op.ForEachInput([&](const std::string& name, const std::string& slot) {
    if (IsTable(spec, slot)) return;
    ++inputs;
    compare(name);
  });
  op.ForEachOutput(compare);
  return inputs == 1 || same ||
         (spec.FindAttr("axis") && spec.FindInput("X") && spec.FindInput("Y"));
}

// One operand is a frozen constant: one number, one number for each element of an axis, or a
// small image.
bool MoveBinary(const OpDesc& op, const OpSpec& spec, const TransposeScene& scene, OpDesc& now,
                MovedOp& made) {
  if (!spec.FindAttr("axis") || op.Input("X").size() != 1 || op.Input("Y").size() != 1 ||
      op.outputs().size() != 1 || op.inputs().size() != 2)
    return false;
  const bool x_is_form = scene.is_form(op.Input("X")[0]);
  const std::string& other = (x_is_form ? op.Input("Y") : op.Input("X"))[0];
  const Tensor* value = scene.context.FrozenValue(other);
  if (!value) return false;  // the shape in the scope may differ from the declared one
  const Shape& shape = value->shape();
  if (shape.rank() == 1 && shape[0] == 1) return true;
  const int32_t axis = spec.AttrOf<int32_t>(op, "axis");
  if (shape.rank() == 1 && axis >= -1 && IsAxis(axis, scene.axes)) {
    now.SetAttr("axis", Before(axis, scene.axes));
    return true;
  }
  if (shape.rank() != static_cast<int>(scene.axes.size()) || shape.numel() > kMaxConstantElements ||
      axis > 0)
    return false;
  made.constants.push_back(other);
  return true;
}

// Whether it draws random numbers, whose order depends on the order of axes.
bool Draws(const OpDesc& op, const OpSpec& spec) {
  return spec.random && !(spec.FindAttr("is_test") && spec.AttrOf<bool>(op, "is_test"));
}

// Whether no op reads an intermediate output.
bool OnlyResultsAreRead(const OpDesc& op, const OpSpec& spec, const ValueFlow& flow) {
  bool only = true;
  op.ForEachOutput([&](const std::string& name, const std::string& slot) {
    const SlotDef* def = spec.FindOutput(slot);
    only = only && (!def || !def->intermediate || flow.IsUnread(name));
  });
  return only;
}

// Without keep_dim, the output has fewer axes; they must keep their order.
bool MoveReduction(const OpDesc& op, const OpSpec& spec, const Ints& dims, const Ints& axes,
                   MovedOp& made) {
  if (dims.empty() || spec.AttrOf<bool>(op, "reduce_all")) return false;
  if (spec.AttrOf<bool>(op, "keep_dim")) return true;
  const Ints before = Before(dims, axes);
  int32_t last = -1;
  for (int32_t axis : axes) {
    if (std::count(before.begin(), before.end(), axis) > 0) continue;
    if (axis < last) return false;
    last = axis;
  }
  made.plain = true;
  return true;
}

// Ops whose inputs are all transposed (OpDef::Axes).
bool MoveAxes(const OpDesc& op, const OpSpec& spec, const TransposeScene& scene, OpDesc& now,
              MovedOp& made) {
  if (!spec.permutes || Draws(op, spec) || !OnlyResultsAreRead(op, spec, scene.flow)) return false;
  const std::string& attr = spec.axes_attr;
  if (spec.axes == AxesAttr::kNone) return true;
  if (spec.axes == AxesAttr::kPairs) {
    const Ints pairs = spec.AttrOf<Ints>(op, attr);
    if (pairs.size() != 2 * scene.axes.size()) return false;
    now.SetAttr(attr, PairsBefore(pairs, scene.axes));
    return true;
  }
  if (spec.FindAttr(attr)->type == AttrType::kInt) {
    const int32_t axis = spec.AttrOf<int32_t>(op, attr);
    if (!IsAxis(axis, scene.axes)) return false;
    now.SetAttr(attr, Before(axis, scene.axes));
    return true;
  }
  const Ints list = spec.AttrOf<Ints>(op, attr);
  if (!AreAxes(list, scene.axes)) return false;
  now.SetAttr(attr, Before(list, scene.axes));
  if (spec.FindAttr("decrease_axis") && !spec.AttrOf<Ints>(op, "decrease_axis").empty())
    return false;
  return !spec.FindAttr("keep_dim") || MoveReduction(op, spec, list, scene.axes, made);
}

// Reads the dimensions before the transpose and puts them in order.
bool MoveShape(const OpDesc& op, const TransposeScene& scene, MovedOp& made) {
  if (op.type() != "shape" || op.Input("Input").size() != 1 || op.Output("Out").size() != 1 ||
      op.inputs().size() != 1)
    return false;
  const auto rank = static_cast<int32_t>(scene.axes.size());
  const std::string& out = op.Output("Out")[0];
  const std::string dims = scene.program.FreeName(out + "@MOVED");
  const std::string order = scene.program.FreeName(out + "@AXES");
  made.ops.emplace_back(op);
  made.ops.back().SetOutput("Out", {dims});
  made.ops.emplace_back("assign_value", SlotList{}, SlotList{{"Out", {order}}},
                        AttrList{{"shape", Ints{rank}},
                                 {"dtype", static_cast<int32_t>(DType::kInt32)},
                                 {"int32_values", scene.axes}});
  made.ops.emplace_back("gather", SlotList{{"X", {dims}}, {"Index", {order}}},
                        SlotList{{"Out", {out}}}, AttrList{});
  made.plain = true;
  return true;
}

}  // namespace

std::optional<MovedOp> MoveBeforeTranspose(const OpDesc& op, const TransposeScene& scene) {
  const OpSpec* spec = scene.context.ops.Find(op.type());
  if (!spec || scene.flow.IsRecomputed(op) || op.HasSubBlock()) return std::nullopt;
  if (!op.AnyInput([&](const std::string& name) { return scene.is_form(name); }))
    return std::nullopt;
  if (op.AnyOutput([&](const std::string& name) {
        return !scene.flow.IsTemporary(name) && !scene.flow.IsUnread(name);
      }))
    return std::nullopt;
  MovedOp made;
  op.ForEachInput([&](const std::string& name, const std::string& slot) {
    if (!IsTable(*spec, slot) && scene.is_form(name)) made.inputs.insert(name);
  });
  OpDesc now(op);
  made.plain = IgnoresOrder(op);
  const bool moves = spec->shape_only   ? MoveShape(op, scene, made)
                     : IgnoresOrder(op) ? AllAreForms(op, *spec, scene)
                     : AllAreForms(op, *spec, scene)
                         ? (WorksOnElements(op, *spec, scene.block, scene.context) &&
                            IsAxiswise(op, *spec, scene)) ||
                               MoveAxes(op, *spec, scene, now, made)
                         : spec->elementwise && MoveBinary(op, *spec, scene, now, made);
  if (!moves) return std::nullopt;
  if (made.ops.empty()) made.ops.push_back(now);
  return made;
}

}  // namespace coracle::inline internal
