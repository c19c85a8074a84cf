#include <coracle/convert/onnx/import/while_loop.h>
#include <coracle/framework/op/check/block_use.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::onnx {

void Assign(NodeContext& node, const Variable& x, const Variable& out) {
  node.writer().Append("assign", {{"X", {x.name()}}}, {{"Out", {out.name()}}});
}

Shape CommonShape(const Shape& a, const Shape& b) {
  Shape common = a;
  for (int i = 0; i < a.rank(); ++i) {
    if (a[i] != b[i]) common[i] = -1;
  }
  return common;
}

void RequireSameKind(const NodeContext& node, const Value& a, const Value& b, const char* what) {
  if (!a.is_tensor() || !b.is_tensor()) node.Refuse(fmt::format("{} that are no tensors", what));
  node.Require(a.data_type == b.data_type, fmt::format("{} must have one type, got {} and {}", what,
                                                       ToString(a.dtype()), ToString(b.dtype())));
  if (a.rank() != b.rank()) {
    node.RefuseUnknown(
        fmt::format("which of {} of rank {} and {} is chosen", what, a.rank(), b.rank()),
        "the ranks that follow");
  }
}

void SetAll(NodeContext& node, const Values& values, size_t first) {
  for (size_t i = 0; i < values.size(); ++i) node.SetShared(first + i, values[i]);
}

WhileLoop::WhileLoop(NodeContext& node, const Variable& limit, const Variable& condition)
    : node_(node), state_(node.graph().state()), outer_(state_.writer.block()), limit_(limit) {
  counter_ = FillConstant(state_.writer, DType::kInt64, 0);
  running_ = NewVar("running", DType::kBool, {1});
  Assign(node_, Running(condition), running_);
}

void WhileLoop::AddCarried(const Value& initial, const Variable& var, size_t output) {
  VarDesc& carried = outer_.Var(node_.OutputName(output));
  Variable to = state_.writer.Var(outer_, carried);
  Assign(node_, var, to);
  carried_.push_back(std::make_shared<Value>(
      Value{.var = to, .data_type = initial.data_type, .scalar = initial.scalar}));
}

LoopResult WhileLoop::Run(const BodyFn& body) {
  BlockDesc* block = nullptr;
  Turn turn;
  // If a turn changes a shape, the shape is unknown: the body is imported again with that.
  for (bool stable = false; !stable;) {
    const int blocks = state_.program.NumBlocks();
    InBlock inside(state_);
    block = &inside.block();
    turn = body(counter_, carried_);
    stable = RelaxShapes(turn);
    if (stable)
      EndTurn(turn);
    else
      state_.program.TruncateBlocks(blocks);
  }
  AppendWhile(*block);
  LoopResult result;
  result.carried = carried_;
  for (size_t i = 0; i < arrays_.size(); ++i)
    result.collected.push_back(Stacked(arrays_[i], *turn.collected[i]));
  return result;
}

Variable WhileLoop::NewVar(const std::string& hint, DType dtype, const Shape& shape) {
  VarDesc& var = outer_.Var(node_.NewName(hint));
  var.SetMeta({VarType::kLoDTensor, dtype, shape, 0});
  return state_.writer.Var(outer_, var);
}

Variable WhileLoop::Running(const Variable& condition) {
  if (!limit_) return condition ? condition : node_.ScalarVar(DType::kBool, 1);
  const Variable more = node_.Binary("less_than", counter_, limit_);
  return condition ? node_.Binary("logical_and", more, condition) : more;
}

bool WhileLoop::RelaxShapes(const Turn& turn) {
  node_.Require(turn.carried.size() == carried_.size(), "the body must give the carried values");
  bool stable = true;
  for (size_t i = 0; i < carried_.size(); ++i) {
    RequireSameKind(node_, *carried_[i], *turn.carried[i], "carried values");
    VarDesc& var = carried_[i]->var.desc();
    const Shape common = CommonShape(var.shape(), turn.carried[i]->stored_shape());
    stable = stable && common == var.shape();
    var.SetShape(common);
  }
  return stable;
}

void WhileLoop::EndTurn(const Turn& turn) {
  for (const ValuePtr& value : turn.collected) {
    if (!value->is_tensor()) node_.Refuse("a loop that collects sequences");
    const Variable x = state_.VarOf(*value, "collected");
    if (arrays_.size() < turn.collected.size()) {
      VarDesc& array = outer_.Var(node_.NewName("array"));
      array.SetMeta({VarType::kLoDTensorArray, x.dtype(), {}, 0});
      arrays_.push_back(state_.writer.Var(outer_, array));
    }
    const Variable& array = arrays_[static_cast<size_t>(&value - turn.collected.data())];
    state_.writer.Append("write_to_array", {{"X", {x.name()}}, {"I", {counter_.name()}}},
                         {{"Out", {array.name()}}});
  }
  std::vector<Variable> next;
  for (size_t i = 0; i < carried_.size(); ++i) {
    Variable x = state_.VarOf(*turn.carried[i], "carried");
    if (IsOfTheLoop(x) && x.name() != carried_[i]->var.name()) x = node_.Unary("assign", x);
    next.push_back(x);
  }
  Variable condition;
  if (turn.condition) condition = state_.VarOf(*turn.condition, "condition");
  if (condition && IsOfTheLoop(condition)) condition = node_.Unary("assign", condition);
  for (size_t i = 0; i < carried_.size(); ++i) {
    const Variable& to = carried_[i]->var;
    if (next[i].name() == to.name()) continue;
    const Shape shape = to.shape();
    Assign(node_, next[i], to);
    to.desc().SetShape(shape);
  }
  state_.writer.Append("increment", {{"X", {counter_.name()}}}, {{"Out", {counter_.name()}}},
                       {{"step", 1.0f}});
  Assign(node_, Running(condition), running_);
}

bool WhileLoop::IsOfTheLoop(const Variable& x) const {
  return x.name() == counter_.name() ||
         std::any_of(carried_.begin(), carried_.end(),
                     [&](const ValuePtr& value) { return value->var.name() == x.name(); });
}

void WhileLoop::AppendWhile(BlockDesc& block) {
  VarDesc& scopes = outer_.Var(node_.NewName("step_scopes"));
  scopes.SetType(VarType::kStepScopes);
  state_.writer.Append("while", {{"X", OuterReads(block)}, {"Condition", {running_.name()}}},
                       {{"Out", OuterWrites(block)}, {"StepScopes", {scopes.name()}}},
                       {{"sub_block", BlockRef{block.idx()}}});
}

ValuePtr WhileLoop::Stacked(const Variable& array, const Value& element) {
  Variable out = node_.Make("tensor_array_to_tensor", {{"X", {array.name()}}},
                            {{"axis", int32_t{0}}, {"use_stack", true}});
  Shape shape = {-1};
  for (int64_t dim : element.stored_shape()) shape.Append(dim);
  out.desc().SetShape(shape);
  if (element.scalar) out = node_.WithXShape("squeeze2", out, {{"axes", std::vector<int32_t>{1}}});
  return std::make_shared<Value>(Value{.var = out, .data_type = element.data_type});
}

}  // namespace coracle::onnx
