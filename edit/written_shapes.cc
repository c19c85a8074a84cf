#include <coracle/edit/written_shapes.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/op/op_context.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

namespace coracle::inline internal {
namespace {

constexpr int64_t kMostElements = 64;  // of a tensor that can hold a shape

// An element of a tensor of integers: a known number, dimension `axis` of `var`, or neither.
struct Element {
  std::optional<int64_t> number = {};
  std::string var = {};
  int axis = 0;
};
using Elements = std::vector<Element>;

bool CanHoldShape(DType dtype) { return dtype == DType::kInt32 || dtype == DType::kInt64; }

// The dimensions of a variable that is written again may change.
bool IsWrittenOnce(const BlockDesc& block, const std::string& name) {
  return block.Uses(name).writers.size() <= 1;
}

// Follows what the tensors of integers of a block hold, op by op.
class KnownElements {
 public:
  KnownElements(const BlockDesc& block, const Scope& constants, const OpRegistry& ops)
      : block_(block), constants_(constants), ops_(ops) {}

  // nullptr if it is not known.
  const Elements* Of(const std::string& name) {
    const auto found = elements_.find(name);
    if (found != elements_.end()) return &found->second;
    const VarDesc* var = block_.FindVar(name);
    std::optional<Elements> elements;
    if (var && var->persistable()) elements = ElementsIn(constants_.Find(name));
    return elements ? &(elements_[name] = *std::move(elements)) : nullptr;
  }

  // Notes what the op's output holds, if it is known.
  void Follow(const OpDesc& op, const OpSpec& spec) {
    std::optional<Elements> made;
    if (op.Output("Out").size() == 1) made = Made(op, spec);
    op.ForEachOutput([&](const std::string& name) { elements_.erase(name); });
    const VarDesc* var = made ? block_.FindVar(op.Output("Out")[0]) : nullptr;
    const bool fits =
        var && CanHoldShape(var->dtype()) && static_cast<int64_t>(made->size()) <= kMostElements;
    if (fits) elements_[var->name()] = *std::move(made);
  }

 private:
  static std::optional<Elements> ElementsIn(const VarValue* value) {
    const Tensor* tensor = value ? std::get_if<Tensor>(value) : nullptr;
    if (!tensor || !CanHoldShape(tensor->dtype()) || tensor->numel() > kMostElements)
      return std::nullopt;
    Elements elements;
    for (int64_t i = 0; i < tensor->numel(); ++i) {
      elements.push_back({tensor->dtype() == DType::kInt32 ? int64_t{tensor->data<int32_t>()[i]}
                                                           : tensor->data<int64_t>()[i]});
    }
    return elements;
  }

  const Elements* InputElements(const OpDesc& op, const char* slot) {
    return op.Input(slot).size() == 1 ? Of(op.Input(slot)[0]) : nullptr;
  }

  const VarDesc* Var(const OpDesc& op, const char* slot) const {
    return op.Input(slot).size() == 1 ? block_.FindVar(op.Input(slot)[0]) : nullptr;
  }

  std::optional<Elements> Made(const OpDesc& op, const OpSpec& spec) {
    const std::string& type = op.type();
    if (!op.AnyInput([](const std::string&) { return true; })) return Constant(op, spec);
    if (type == "shape") return Dimensions(op);
    if (type == "cast") return Cast(op);
    if (type == "slice") return Slice(op);
    if (type == "gather") return Gather(op);
    if (type == "concat") return Concat(op);
    const bool same = std::any_of(spec.alias.begin(), spec.alias.end(), [](const auto& pair) {
      return pair.first == "X" && pair.second == "Out";
    });
    const Elements* x = same ? InputElements(op, "X") : nullptr;
    const VarDesc* out = block_.FindVar(op.Output("Out")[0]);
    const bool moves = x && out && out->dtype() == Var(op, "X")->dtype();
    return moves ? std::optional(*x) : std::nullopt;
  }

  // What an op without inputs makes.
  std::optional<Elements> Constant(const OpDesc& op, const OpSpec& spec) {
    const std::string& name = op.Output("Out")[0];
    const VarDesc* var = block_.FindVar(name);
    const bool small = var && CanHoldShape(var->dtype()) && var->shape().IsKnown() &&
                       var->shape().numel() <= kMostElements;
    if (!small || spec.random || spec.side_effect || spec.run_time_shape) return std::nullopt;
    VarValues values;
    InterpretOp(op, ops_, values);
    return ElementsIn(&values[name]);
  }

  std::optional<Elements> Dimensions(const OpDesc& op) {
    const VarDesc* var = Var(op, "Input");
    if (!var || var->type() != VarType::kLoDTensor || var->shape().rank() == 0) return std::nullopt;
    const std::string name = IsWrittenOnce(block_, var->name()) ? var->name() : "";
    Elements elements;
    for (int axis = 0; axis < var->shape().rank(); ++axis) {
      const int64_t dim = var->shape()[axis];
      elements.push_back(dim >= 0 ? Element{dim} : Element{std::nullopt, name, axis});
    }
    return elements;
  }

  // Dimensions are below 2^31, as the kernel of shape checks.
  std::optional<Elements> Cast(const OpDesc& op) {
    const Elements* x = InputElements(op, "X");
    if (!x) return std::nullopt;
    const bool narrow = std::any_of(x->begin(), x->end(), [](const Element& e) {
      return e.number && (*e.number > std::numeric_limits<int32_t>::max() ||
                          *e.number < std::numeric_limits<int32_t>::min());
    });
    return narrow ? std::nullopt : std::optional(*x);
  }

  std::optional<Elements> Slice(const OpDesc& op) {
    using Numbers = std::vector<int32_t>;
    const Elements* x = InputElements(op, "Input");
    const auto starts = op.GetAttr<Numbers>("starts", {}), ends = op.GetAttr<Numbers>("ends", {});
    size_t inputs = 0;  // the others replace starts and ends
    op.ForEachInput([&](const std::string&) { ++inputs; });
    const bool simple = x && inputs == 1 && starts.size() == 1 && ends.size() == 1 &&
                        op.GetAttr<Numbers>("axes", {}) == Numbers{0};
    if (!simple || Var(op, "Input")->shape().rank() != 1) return std::nullopt;
    const auto size = static_cast<int64_t>(x->size());
    const auto place = [size](int64_t at) {
      return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
    };
    const int64_t begin = place(starts[0]), end = std::max(place(ends[0]), begin);
    return Elements(x->begin() + begin, x->begin() + end);
  }

  std::optional<Elements> Gather(const OpDesc& op) {
    const Elements *x = InputElements(op, "X"), *index = InputElements(op, "Index");
    const bool simple = x && index && !op.HasInput("Axis") && op.GetAttr<int32_t>("axis", 0) == 0;
    if (!simple || Var(op, "X")->shape().rank() != 1) return std::nullopt;
    Elements elements;
    for (const Element& at : *index) {
      if (!at.number || *at.number < 0 || *at.number >= static_cast<int64_t>(x->size()))
        return std::nullopt;
      elements.push_back((*x)[static_cast<size_t>(*at.number)]);
    }
    return elements;
  }

  std::optional<Elements> Concat(const OpDesc& op) {
    if (op.HasInput("AxisTensor") || op.GetAttr<int32_t>("axis", 0) != 0) return std::nullopt;
    Elements elements;
    for (const std::string& name : op.Input("X")) {
      const Elements* x = Of(name);
      const VarDesc* var = block_.FindVar(name);
      if (!x || !var || var->shape().rank() != 1) return std::nullopt;
      elements.insert(elements.end(), x->begin(), x->end());
    }
    return elements;
  }

  const BlockDesc& block_;
  const Scope& constants_;
  const OpRegistry& ops_;
  std::unordered_map<std::string, Elements> elements_;
};

class ShapeWriter {
 public:
  ShapeWriter(BlockDesc& block, const Scope& constants, const OpRegistry& ops)
      : block_(block), ops_(ops), elements_(block, constants, ops) {}

  std::vector<std::string> Run() {
    for (size_t i = 0; i < block_.NumOps(); ++i) {
      OpDesc& op = block_.op(i);
      const OpSpec& spec = ops_.Get(op.type());
      if (spec.kind != OpKind::kCompute) continue;
      if (IsReshape(op, spec)) WriteShapeOf(op);
      InferOp(block_, op, ops_);
      elements_.Follow(op, spec);
    }
    return std::move(equal_dims_);
  }

 private:
  static bool IsReshape(const OpDesc& op, const OpSpec& spec) {
    return !spec.alias.empty() && spec.FindInput("ShapeTensor") && spec.FindAttr("shape") &&
           op.HasInput("X") && (op.HasInput("Shape") || op.HasInput("ShapeTensor"));
  }

  std::optional<Elements> Wanted(const OpDesc& op) {
    Elements wanted;
    const bool list = op.HasInput("ShapeTensor");
    for (const std::string& name : op.Input(list ? "ShapeTensor" : "Shape")) {
      const Elements* elements = elements_.Of(name);
      if (!elements || (list && elements->size() != 1)) return std::nullopt;
      wanted.insert(wanted.end(), elements->begin(), elements->end());
    }
    return wanted;
  }

  void WriteShapeOf(OpDesc& op) {
    const std::optional<Elements> wanted = Wanted(op);
    const VarDesc* x = block_.FindVar(op.Input("X")[0]);
    if (!wanted || !x || !IsWrittenOnce(block_, x->name())) return;
    const bool copies = !op.GetAttr<bool>("allow_zero", false);
    std::vector<int32_t> shape;
    size_t unknown = 0, infers = 0;
    bool joined = false;  // a dimension is that of another variable
    for (size_t i = 0; i < wanted->size(); ++i) {
      const Element& e = (*wanted)[i];
      const bool own = copies && e.var == x->name() && e.axis == static_cast<int>(i);
      const bool other = copies && !e.var.empty() && e.axis == 0 && i == 0 && !own;
      if (e.number && (*e.number < -1 || *e.number > std::numeric_limits<int32_t>::max())) return;
      infers += e.number == -1;
      unknown += !e.number && !own;
      joined |= other;
      shape.push_back(e.number ? static_cast<int32_t>(*e.number) : own ? 0 : -1);
    }
    if (unknown + infers > 1) {
      if (!joined || unknown + infers > 2) return;
      shape[0] = 0;
      equal_dims_.insert(equal_dims_.end(), {(*wanted)[0].var, x->name()});
    }
    op.SetAttr("shape", shape);
    op.RemoveInput("Shape");
    op.RemoveInput("ShapeTensor");
  }

  BlockDesc& block_;
  const OpRegistry& ops_;
  KnownElements elements_;
  std::vector<std::string> equal_dims_;
};

}  // namespace

WrittenShapes WriteShapes(const ProgramDesc& program, const InputShapes& inputs,
                          const Scope& constants, const OpRegistry& ops) {
  WrittenShapes result = {program, {}};
  if (program.NumBlocks() > 1) {
    DeclareShapes(result.program, inputs, ops);
    return result;
  }
  BlockDesc& root = result.program.Root();
  for (const auto& [name, shape] : inputs)
    if (VarDesc* var = root.FindVar(name)) var->SetShape(shape);
  result.equal_dims = ShapeWriter(root, constants, ops).Run();
  return result;
}

}  // namespace coracle::inline internal
