// Nodes with inner graphs: If, Loop, Scan.

#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/graph_importer.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/convert/onnx/tensors.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/block_use.h>
#include <coracle/operators/control/conditional_block.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace coracle::onnx {
namespace {

using proto::onnx::GraphProto;

// During its lifetime, ops go to a new sub-block.
class InBlock {
 public:
  explicit InBlock(ImportState& state)
      : writer_(state.writer),
        outer_(writer_.block()),
        inner_(outer_.program().AppendBlock(outer_)) {
    writer_.SetBlock(inner_);
  }
  ~InBlock() { writer_.SetBlock(outer_); }
  InBlock(const InBlock&) = delete;
  InBlock& operator=(const InBlock&) = delete;
  BlockDesc& block() { return inner_; }

 private:
  Writer& writer_;
  BlockDesc& outer_;
  BlockDesc& inner_;
};

void Assign(NodeContext& node, const Variable& x, const Variable& out) {
  node.writer().Append("assign", {{"X", {x.name()}}}, {{"Out", {out.name()}}});
}

// The dims on which both agree.
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
  if (a.rank() != b.rank())
    node.Refuse(fmt::format("{} of rank {} and {}", what, a.rank(), b.rank()));
}

// --- If ---

// Runs the graph in a conditional_block whose results are assigned to outer variables, which the
// first branch creates.
void AppendBranch(NodeContext& node, const GraphProto& graph, const Variable& condition,
                  std::vector<Value>* results) {
  ImportState& state = node.graph().state();
  BlockDesc& outer = state.writer.block();
  BlockDesc* block = nullptr;
  {
    InBlock inside(state);
    block = &inside.block();
    const Values outputs = node.graph().ImportInner(graph, {});
    node.Require(outputs.size() == node.NumOutputs(), "a branch must give the node's outputs");
    const bool first = results->empty();
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i]->is_tensor()) node.KnownInts(0, "the condition of branches with sequences");
      const Variable from = state.VarOf(*outputs[i], graph.output(static_cast<int>(i)).name());
      if (first) {
        VarDesc& to = outer.Var(node.OutputName(i));
        to.SetMeta({VarType::kLoDTensor, from.dtype(), from.shape(), 0});
        results->push_back({.var = state.writer.Var(outer, to),
                            .data_type = outputs[i]->data_type,
                            .scalar = outputs[i]->scalar});
      }
      const Value& result = (*results)[i];
      RequireSameKind(node, result, *outputs[i], "branches with results");
      const Shape shape = CommonShape(result.var.shape(), from.shape());
      Assign(node, from, result.var);
      result.var.desc().SetShape(shape);
    }
  }
  const OpDesc op = ConditionalBlockOp(*block, condition.name());
  node.writer().Append(op.type(), op.inputs(), op.outputs(), op.attrs());
}

void ImportIf(NodeContext& node) {
  node.RequireOne(0, "the condition");
  const GraphProto& then = node.Graph("then_branch");
  const GraphProto& otherwise = node.Graph("else_branch");
  if (const Tensor* condition = node.Constant(0)) {
    const Values outputs = node.graph().ImportInner(condition->Item<bool>() ? then : otherwise, {});
    node.Require(outputs.size() == node.NumOutputs(), "a branch must give the node's outputs");
    for (size_t i = 0; i < outputs.size(); ++i) node.SetShared(i, outputs[i]);
    return;
  }
  const Variable condition = node.In(0);
  std::vector<Value> results;
  AppendBranch(node, then, condition, &results);
  AppendBranch(node, otherwise, node.Unary("logical_not", condition), &results);
  for (size_t i = 0; i < results.size(); ++i) node.SetValue(i, std::move(results[i]));
}

// --- Loop and Scan: a while op ---

// The results of a turn of a loop, computed from the counter and the carried values: the condition
// (may be nullptr), the carried values and the collected values.
struct Turn {
  ValuePtr condition;
  Values carried, collected;
};
using BodyFn = std::function<Turn(const Variable& counter, const Values& carried)>;

struct LoopResult {
  Values carried, collected;  // collected along a new first dimension
};

class WhileLoop {
 public:
  // `limit` and `condition` may be empty Variables.
  WhileLoop(NodeContext& node, const Variable& limit, const Variable& condition)
      : node_(node), state_(node.graph().state()), outer_(state_.writer.block()), limit_(limit) {
    counter_ = FillConstant(state_.writer, DType::kInt64, 0);
    running_ = NewVar("running", DType::kBool, {1});
    Assign(node_, Running(condition), running_);
  }

  void AddCarried(const Value& initial, const Variable& var, size_t output) {
    VarDesc& carried = outer_.Var(node_.OutputName(output));
    Variable to = state_.writer.Var(outer_, carried);
    Assign(node_, var, to);
    carried_.push_back(std::make_shared<Value>(
        Value{.var = to, .data_type = initial.data_type, .scalar = initial.scalar}));
  }

  LoopResult Run(const BodyFn& body) {
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

 private:
  Variable NewVar(const std::string& hint, DType dtype, const Shape& shape) {
    VarDesc& var = outer_.Var(node_.NewName(hint));
    var.SetMeta({VarType::kLoDTensor, dtype, shape, 0});
    return state_.writer.Var(outer_, var);
  }

  // Whether another turn follows.
  Variable Running(const Variable& condition) {
    if (!limit_) return condition ? condition : node_.ScalarVar(DType::kBool, 1);
    const Variable more = node_.Binary("less_than", counter_, limit_);
    return condition ? node_.Binary("logical_and", more, condition) : more;
  }

  bool RelaxShapes(const Turn& turn) {
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

  // Collects values and writes the variables of the next turn. A value that is such a variable is
  // copied first.
  void EndTurn(const Turn& turn) {
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

  bool IsOfTheLoop(const Variable& x) const {
    return x.name() == counter_.name() ||
           std::any_of(carried_.begin(), carried_.end(),
                       [&](const ValuePtr& value) { return value->var.name() == x.name(); });
  }

  void AppendWhile(BlockDesc& block) {
    VarDesc& scopes = outer_.Var(node_.NewName("step_scopes"));
    scopes.SetType(VarType::kStepScopes);
    state_.writer.Append("while", {{"X", OuterReads(block)}, {"Condition", {running_.name()}}},
                         {{"Out", OuterWrites(block)}, {"StepScopes", {scopes.name()}}},
                         {{"sub_block", BlockRef{block.idx()}}});
  }

  // The elements along a new first dimension; those of rank 0 without the dim that they have in
  // the program.
  ValuePtr Stacked(const Variable& array, const Value& element) {
    Variable out = node_.Make("tensor_array_to_tensor", {{"X", {array.name()}}},
                              {{"axis", int32_t{0}}, {"use_stack", true}});
    Shape shape = {-1};
    for (int64_t dim : element.stored_shape()) shape.Append(dim);
    out.desc().SetShape(shape);
    if (element.scalar)
      out = node_.WithXShape("squeeze2", out, {{"axes", std::vector<int32_t>{1}}});
    return std::make_shared<Value>(Value{.var = out, .data_type = element.data_type});
  }

  NodeContext& node_;
  ImportState& state_;
  BlockDesc& outer_;
  Variable limit_, counter_, running_;
  Values carried_;
  std::vector<Variable> arrays_;
};

void SetAll(NodeContext& node, const Values& values, size_t first) {
  for (size_t i = 0; i < values.size(); ++i) node.SetShared(first + i, values[i]);
}

ValuePtr Scalar(const Variable& var, int data_type) {
  return std::make_shared<Value>(Value{.var = var, .data_type = data_type, .scalar = true});
}

// The counter and the condition of a loop have rank 0, but some exporters declare them as [1] in
// the body, which then relies on it.
bool HasRankOne(const GraphProto& body, int input) {
  if (input >= body.input_size() || !body.input(input).type().has_tensor_type()) return false;
  return body.input(input).type().tensor_type().shape().dim_size() == 1;
}

ValuePtr ScalarConstant(Tensor tensor, int data_type) {
  return std::make_shared<Value>(
      Value{.constant = std::move(tensor), .data_type = data_type, .scalar = true});
}

// The condition returned by a body: whether another turn follows.
const ValuePtr& ConditionOf(const NodeContext& node, const Values& outputs) {
  const Value& value = *outputs.at(0);
  node.Require(value.is_tensor() && value.dtype() == DType::kBool,
               "the first output of the body must be a bool");
  const Shape& shape = value.stored_shape();
  node.Require(!shape.IsKnown() || shape.numel() == 1,
               "the first output of the body must have one element, got " + shape.ToString());
  return outputs[0];
}

// The value of a condition, if it is a constant.
std::optional<bool> KnownBool(const Value& value) {
  return value.constant ? std::optional(value.constant->Item<bool>()) : std::nullopt;
}

constexpr int64_t kMaxUnrolled = 1024;

// Unrolls a loop that carries sequences, whose lengths must be known.
void ImportUnrolled(NodeContext& node, const GraphProto& body, size_t carried) {
  const int64_t turns = node.HasInput(0) ? node.KnownInt(0, "the trip count") : kMaxUnrolled;
  bool more = !node.HasInput(1) || node.KnownInt(1, "the condition") != 0;
  Values values;
  for (size_t i = 0; i < carried; ++i) values.push_back(node.InAny(2 + i));
  Unrolling unrolling(node.graph().state());
  for (int64_t turn = 0; more && turn < turns; ++turn) {
    if (turn >= kMaxUnrolled) node.Refuse("a loop that carries sequences for too many turns");
    Values inputs = {
        ScalarConstant(Tensor::Full<int64_t>({1}, turn), proto::onnx::TensorProto::INT64),
        ScalarConstant(Tensor::Full<bool>({1}, true), proto::onnx::TensorProto::BOOL)};
    for (int i = 0; i < 2; ++i) inputs[static_cast<size_t>(i)]->scalar = !HasRankOne(body, i);
    inputs.insert(inputs.end(), values.begin(), values.end());
    Values outputs = node.graph().ImportInner(body, inputs);
    unrolling.EndTurn();
    const std::optional<bool> next = KnownBool(*ConditionOf(node, outputs));
    if (!next) node.Refuse("a loop that carries sequences for turns that are not known");
    more = *next;
    values.assign(outputs.begin() + 1, outputs.end());
  }
  SetAll(node, values, 0);
}

void ImportLoop(NodeContext& node) {
  const GraphProto& body = node.Graph("body");
  const size_t carried = node.NumInputs() < 2 ? 0 : node.NumInputs() - 2;
  if (node.HasInput(0)) node.RequireOne(0, "the trip count");
  if (node.HasInput(1)) node.RequireOne(1, "the condition");
  node.Require(body.output_size() > static_cast<int>(carried), "the body has too few outputs");
  bool tensors = true;
  for (size_t i = 0; i < carried; ++i) tensors = tensors && node.HasTensor(2 + i);
  if (!tensors) {
    if (body.output_size() > static_cast<int>(carried) + 1)
      node.Refuse("a loop that carries sequences and collects tensors");
    return ImportUnrolled(node, body, carried);
  }
  const Variable limit = node.HasInput(0) ? node.In(0) : Variable();
  const Variable condition = node.HasInput(1) ? node.In(1) : Variable();
  WhileLoop loop(node, limit, condition);
  for (size_t i = 0; i < carried; ++i) {
    loop.AddCarried(node.InValue(2 + i), node.In(2 + i), i);
  }
  // A turn runs only if it is true.
  const ValuePtr holds =
      ScalarConstant(Tensor::Full<bool>({1}, true), proto::onnx::TensorProto::BOOL);
  holds->scalar = !HasRankOne(body, 1);
  const LoopResult result = loop.Run([&](const Variable& counter, const Values& values) {
    Values inputs = {Scalar(counter, proto::onnx::TensorProto::INT64), holds};
    inputs[0]->scalar = !HasRankOne(body, 0);
    inputs.insert(inputs.end(), values.begin(), values.end());
    Values outputs = node.graph().ImportInner(body, inputs);
    const auto at = outputs.begin() + 1 + static_cast<ptrdiff_t>(carried);
    const ValuePtr& condition = ConditionOf(node, outputs);
    return Turn{KnownBool(*condition) == true ? nullptr : condition,
                Values(outputs.begin() + 1, at), Values(at, outputs.end())};
  });
  SetAll(node, result.carried, 0);
  SetAll(node, result.collected, carried);
}

// --- Scan ---

struct ScanSpec {
  const GraphProto* body;
  size_t states, inputs;
  std::vector<int64_t> input_axes, input_directions, output_axes, output_directions;
};

std::vector<int64_t> ListFor(NodeContext& node, const char* name, size_t count) {
  std::vector<int64_t> list = node.Ints(name, std::vector<int64_t>(count, 0));
  node.Require(list.size() == count, fmt::format("attribute {} must have {} numbers", name, count));
  return list;
}

// Slice `counter` of x along `axis`, without that dimension.
ValuePtr SliceAt(NodeContext& node, const Value& x, const Variable& var, int32_t axis,
                 const Variable& counter) {
  Variable slice =
      node.Make("gather", {{"X", {var.name()}}, {"Index", {counter.name()}}}, {{"axis", axis}});
  const bool scalar = x.rank() == 1;
  if (!scalar) slice = node.WithXShape("squeeze2", slice, {{"axes", std::vector<int32_t>{axis}}});
  return std::make_shared<Value>(Value{.var = slice, .data_type = x.data_type, .scalar = scalar});
}

Variable LengthOf(NodeContext& node, const Variable& x, int32_t axis) {
  if (x.shape()[axis] >= 0) return node.ConstantVar(std::vector<int64_t>{x.shape()[axis]});
  const Variable shape = node.Make("shape", {{"Input", {x.name()}}});
  const Variable dim = node.Make("slice", {{"Input", {shape.name()}}},
                                 {{"axes", std::vector<int32_t>{0}},
                                  {"starts", std::vector<int32_t>{axis}},
                                  {"ends", std::vector<int32_t>{axis + 1}}});
  return node.Cast(dim, DType::kInt64);
}

Variable Flipped(NodeContext& node, const Variable& x, int32_t axis) {
  return node.Unary("flip", x, {{"axis", std::vector<int32_t>{axis}}});
}

// Dimension 0 moved to `axis`.
Variable MovedTo(NodeContext& node, const Variable& x, int32_t axis) {
  if (axis == 0) return x;
  std::vector<int32_t> perm;
  for (int32_t i = 1; i < x.shape().rank(); ++i) perm.push_back(i);
  perm.insert(perm.begin() + axis, 0);
  return node.Transpose(x, perm);
}

// The loop over values: first the states, then the inputs to scan.
LoopResult RunScan(NodeContext& node, const ScanSpec& spec, const Values& values) {
  ImportState& state = node.graph().state();
  std::vector<Variable> scanned;
  std::vector<int32_t> axes;
  for (size_t i = 0; i < spec.inputs; ++i) {
    Value& value = *values[spec.states + i];
    Variable x = state.VarOf(value, node.NewName("scanned"));
    x = state.writer.Var(x.block(), x.desc());
    axes.push_back(node.Axis(spec.input_axes[i], value.rank()));
    scanned.push_back(spec.input_directions[i] == 1 ? Flipped(node, x, axes[i]) : x);
  }
  WhileLoop loop(node, LengthOf(node, scanned.at(0), axes[0]), Variable());
  for (size_t i = 0; i < spec.states; ++i)
    loop.AddCarried(*values[i], state.VarOf(*values[i], node.NewName("state")), i);
  LoopResult result = loop.Run([&](const Variable& counter, const Values& states) {
    Values inputs = states;
    for (size_t i = 0; i < spec.inputs; ++i)
      inputs.push_back(SliceAt(node, *values[spec.states + i], scanned[i], axes[i], counter));
    const Values outputs = node.graph().ImportInner(*spec.body, inputs);
    const auto at = outputs.begin() + static_cast<ptrdiff_t>(spec.states);
    return Turn{nullptr, Values(outputs.begin(), at), Values(at, outputs.end())};
  });
  for (size_t i = 0; i < result.collected.size(); ++i) {
    Value& value = *result.collected[i];
    if (spec.output_directions[i] == 1) value.var = Flipped(node, value.var, 0);
    value.var = MovedTo(node, value.var, node.Axis(spec.output_axes[i], value.rank()));
  }
  return result;
}

ScanSpec ScanSpecOf(NodeContext& node, size_t first_input) {
  ScanSpec spec;
  spec.body = &node.Graph("body");
  const int64_t inputs = node.Int("num_scan_inputs");
  const auto given = static_cast<int64_t>(node.NumInputs() - first_input);
  node.Require(inputs >= 1 && inputs <= given, "attribute num_scan_inputs fits no inputs");
  spec.inputs = static_cast<size_t>(inputs);
  spec.states = static_cast<size_t>(given - inputs);
  node.Require(spec.body->output_size() >= static_cast<int>(spec.states),
               "the body must give the states");
  return spec;
}

void ImportScan(NodeContext& node) {
  ScanSpec spec = ScanSpecOf(node, 0);
  const size_t outputs = static_cast<size_t>(spec.body->output_size()) - spec.states;
  spec.input_axes = ListFor(node, "scan_input_axes", spec.inputs);
  spec.input_directions = ListFor(node, "scan_input_directions", spec.inputs);
  spec.output_axes = ListFor(node, "scan_output_axes", outputs);
  spec.output_directions = ListFor(node, "scan_output_directions", outputs);
  Values values;
  for (size_t i = 0; i < node.NumInputs(); ++i)
    values.push_back(std::make_shared<Value>(node.InValue(i)));
  const LoopResult result = RunScan(node, spec, values);
  SetAll(node, result.carried, 0);
  SetAll(node, result.collected, spec.states);
}

// Item `n` of the batch, without that dimension.
ValuePtr ItemOf(NodeContext& node, size_t input, int32_t n) {
  const Value& value = node.InValue(input);
  const Variable x = node.In(input);
  const std::vector<int32_t> axes = {0}, starts = {n}, ends = {n + 1};
  const bool scalar = value.rank() == 1;
  AttrList attrs = {{"axes", axes}, {"starts", starts}, {"ends", ends}};
  if (!scalar) attrs.push_back({"decrease_axis", axes});
  const Variable item = node.Make("slice", {{"Input", {x.name()}}}, std::move(attrs));
  return std::make_shared<Value>(
      Value{.var = item, .data_type = value.data_type, .scalar = scalar});
}

constexpr int64_t kMaxBatch = 64;

// In operator set 8, states and sequences have a batch dimension: runs a loop for each item.
void ImportBatchedScan(NodeContext& node) {
  if (node.HasInput(0)) node.Refuse("sequence_lens (input 0)");
  ScanSpec spec = ScanSpecOf(node, 1);
  const size_t outputs = static_cast<size_t>(spec.body->output_size()) - spec.states;
  spec.input_axes.assign(spec.inputs, 0);
  spec.input_directions = ListFor(node, "directions", spec.inputs);
  spec.output_axes.assign(outputs, 0);
  spec.output_directions.assign(outputs, 0);
  const int64_t batch = node.shape(1)[0];
  if (batch < 1 || batch > kMaxBatch)
    node.Refuse(fmt::format("a batch of {}, and not of a number from 1 to {}", batch, kMaxBatch));
  std::vector<std::vector<std::string>> parts(spec.states + outputs);
  std::vector<bool> scalars(parts.size());
  Unrolling unrolling(node.graph().state());
  for (int32_t n = 0; n < ToInt32(batch, "a batch"); ++n) {
    Values values;
    for (size_t i = 1; i < node.NumInputs(); ++i) values.push_back(ItemOf(node, i, n));
    LoopResult result = RunScan(node, spec, values);
    unrolling.EndTurn();
    Values all = std::move(result.carried);
    all.insert(all.end(), result.collected.begin(), result.collected.end());
    for (size_t i = 0; i < all.size(); ++i) {
      parts[i].push_back(all[i]->var.name());
      scalars[i] = all[i]->scalar;
    }
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const AttrList axis = {{"axis", int32_t{0}}};
    node.Set(i, scalars[i] ? node.Make("concat", {{"X", parts[i]}}, axis)
                           : node.Make("stack", {{"X", parts[i]}}, axis, "Y"));
  }
}

}  // namespace

void AddControlImporters(NodeImporters& importers) {
  importers.Add({.op_type = "If",
                 .since = 1,
                 .takes = "b",
                 .import = ImportIf,
                 .maps_to = "conditional_block",
                 .unsigneds = Unsigned::kMoves});
  importers.Add({.op_type = "Loop",
                 .since = 1,
                 .takes = "i? b? V*",
                 .import = ImportLoop,
                 .maps_to = "while, write_to_array, tensor_array_to_tensor",
                 .unsigneds = Unsigned::kMoves});
  importers.Add({.op_type = "Scan",
                 .since = 8,
                 .until = 8,
                 .takes = "i? T1+*",
                 .import = ImportBatchedScan,
                 .maps_to = "a while for each item of the batch, stack",
                 .unsigneds = Unsigned::kMoves});
  importers.Add({.op_type = "Scan",
                 .since = 9,
                 .takes = "T T*",
                 .import = ImportScan,
                 .maps_to = "while, gather, write_to_array, tensor_array_to_tensor",
                 .unsigneds = Unsigned::kMoves});
}

}  // namespace coracle::onnx
