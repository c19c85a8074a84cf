// Nodes with inner graphs: If and Loop.

#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/while_loop.h>
#include <coracle/convert/onnx/tensors.h>
#include <coracle/framework/base/text.h>
#include <coracle/operators/control/conditional_block.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::onnx {
namespace {

using proto::onnx::GraphProto;

// --- If ---

// A branch of an If whose condition is known only at run time.
struct Branch {
  BlockDesc* block = nullptr;
  Values outputs = {};
  std::optional<Error> error = {};  // why it cannot be imported
};

// Whether an error says that a graph cannot run, and not that the import must stop.
bool IsOfTheGraph(const Error& e) {
  return e.code() == ErrorCode::kInvalidArgument || e.code() == ErrorCode::kUnimplemented ||
         e.code() == ErrorCode::kNotFound || e.code() == ErrorCode::kOutOfRange;
}

// Notes that the branch cannot run.
void LeaveOut(NodeContext& node, const Error& error, Branch* branch) {
  branch->error = error;
  const std::string name = node.NumOutputs() > 0 ? node.node().output(0) : "";
  node.graph().state().Warn(
      "branch of " + name,
      fmt::format("a branch of {} stops a run that takes it: {}", Quote(name), error.message()));
}

// Imports a branch into a new block; with `rest`, also the nodes after the If, so that the branch
// gives the results of the enclosing graph. A branch that cannot run is an error only if it is
// taken: models that choose between nets by an input have branches that do not fit its shape.
Branch ImportBranch(NodeContext& node, const GraphProto& graph, bool rest) {
  ImportState& state = node.graph().state();
  const int blocks = state.program.NumBlocks();
  const std::string base = state.name_base;
  Branch branch;
  try {
    InBlock inside(state);
    branch.block = &inside.block();
    branch.outputs = node.graph().ImportInner(graph, {});
    node.Require(branch.outputs.size() == node.NumOutputs(),
                 "a branch must give the node's outputs");
    for (const ValuePtr& output : branch.outputs)
      if (!output->is_tensor()) node.KnownInts(0, "the condition of branches with sequences");
    if (rest) branch.outputs = node.graph().ImportRest(branch.outputs);
  } catch (const Error& e) {
    if (!IsOfTheGraph(e)) throw;
    state.name_base = base;
    state.program.TruncateBlocks(blocks);
    InBlock inside(state);
    branch = {.block = &inside.block()};
    LeaveOut(node, e, &branch);
    if (!state.unknown_value.empty())
      node.graph().NoteUnknown(std::exchange(state.unknown_value, ""));
  }
  return branch;
}

// The branches without an error; throws the first one's if there is none.
std::vector<const Branch*> GoodOf(const Branch& first, const Branch& second) {
  std::vector<const Branch*> good;
  for (const Branch* branch : {&first, &second})
    if (!branch->error) good.push_back(branch);
  if (good.empty()) throw *first.error;
  return good;
}

// Whether a result has different ranks in the branches.
bool DifferInRank(const std::vector<const Branch*>& good) {
  for (size_t i = 0; i < good[0]->outputs.size(); ++i) {
    for (const Branch* branch : good)
      if (branch->outputs[i]->rank() != good[0]->outputs[i]->rank()) return true;
  }
  return false;
}

// The variables of these names in which the branches leave their results.
std::vector<Value> ResultsOf(NodeContext& node, const std::vector<const Branch*>& good,
                             const std::vector<std::string>& names) {
  ImportState& state = node.graph().state();
  BlockDesc& outer = state.writer.block();
  std::vector<Value> results;
  for (size_t i = 0; i < names.size(); ++i) {
    Value& first = *good[0]->outputs[i];
    Shape shape = first.stored_shape();
    for (const Branch* branch : good) {
      RequireSameKind(node, first, *branch->outputs[i], "branches with results");
      shape = CommonShape(shape, branch->outputs[i]->stored_shape());
    }
    VarDesc& to = outer.Var(names[i]);
    to.SetMeta({VarType::kLoDTensor, first.dtype(), shape, 0});
    results.push_back(
        {.var = state.writer.Var(outer, to), .data_type = first.data_type, .scalar = first.scalar});
  }
  return results;
}

void AppendBranch(NodeContext& node, const Branch& branch, const Variable& condition,
                  const std::vector<Value>& results) {
  ImportState& state = node.graph().state();
  {
    const InBlock inside(state, *branch.block);
    std::vector<std::string> names;
    for (const Value& result : results) names.push_back(result.var.name());
    if (branch.error)
      state.writer.Append("branch_error", {}, {{"Out", names}},
                          {{"message", branch.error->message()}});
    for (size_t i = 0; !branch.error && i < results.size(); ++i) {
      const Variable& to = results[i].var;
      const Shape shape = to.shape();
      const Variable from = state.VarOf(*branch.outputs[i], node.NewName("result"));
      Assign(node, from, to);
      to.desc().SetShape(shape);
    }
  }
  const OpDesc op = ConditionalBlockOp(*branch.block, condition.name());
  node.writer().Append(op.type(), op.inputs(), op.outputs(), op.attrs());
}

// Makes it an error of the branch if an output of the graph has not the rank that it declares.
void RequireDeclaredRanks(NodeContext& node, Branch* branch) {
  const GraphProto& graph = node.graph().graph();
  for (int i = 0; !branch->error && i < graph.output_size(); ++i) {
    const auto& type = graph.output(i).type().tensor_type();
    const int rank = branch->outputs[static_cast<size_t>(i)]->rank();
    if (!type.has_shape() || type.shape().dim_size() == rank) continue;
    const std::string text =
        fmt::format("the output {} has rank {}, but is declared with rank {}",
                    Quote(graph.output(i).name()), rank, type.shape().dim_size());
    LeaveOut(node, Error(ErrorCode::kInvalidArgument, text), branch);
  }
}

// The nodes after an If of results with different ranks are imported in each branch.
void ImportSplit(NodeContext& node, const Variable& condition, const GraphProto& then,
                 const GraphProto& otherwise) {
  GraphImporter& graph = node.graph();
  Branch first = ImportBranch(node, then, true);
  Branch second = ImportBranch(node, otherwise, true);
  std::vector<const Branch*> good = GoodOf(first, second);
  if (DifferInRank(good)) {
    for (Branch* branch : {&first, &second}) RequireDeclaredRanks(node, branch);
    good = GoodOf(first, second);
  }
  std::vector<std::string> names;
  for (const auto& output : graph.graph().output())
    names.push_back(graph.state().FreeName(UsableName(output.name())));
  const std::vector<Value> results = ResultsOf(node, good, names);
  AppendBranch(node, first, condition, results);
  AppendBranch(node, second, node.Unary("logical_not", condition), results);
  Values outputs;
  for (const Value& result : results) outputs.push_back(std::make_shared<Value>(result));
  graph.Finish(std::move(outputs));
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
  const int blocks = node.graph().state().program.NumBlocks();
  const Branch first = ImportBranch(node, then, false);
  const Branch second = ImportBranch(node, otherwise, false);
  const std::vector<const Branch*> good = GoodOf(first, second);
  if (DifferInRank(good) && node.graph().CanSplit()) {
    node.graph().state().program.TruncateBlocks(blocks);
    return ImportSplit(node, condition, then, otherwise);
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < node.NumOutputs(); ++i) names.push_back(node.OutputName(i));
  std::vector<Value> results = ResultsOf(node, good, names);
  AppendBranch(node, first, condition, results);
  AppendBranch(node, second, node.Unary("logical_not", condition), results);
  for (size_t i = 0; i < results.size(); ++i) node.SetValue(i, std::move(results[i]));
}

// --- Loop ---

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

// Stacks the values of all turns along a new first dimension. Values of rank 0 have it already.
ValuePtr StackOf(NodeContext& node, const Values& turns) {
  std::vector<std::string> names;
  for (const ValuePtr& value : turns) {
    if (!value->is_tensor()) node.Refuse("a loop that collects sequences");
    RequireSameKind(node, *turns[0], *value, "collected values");
    names.push_back(node.graph().state().VarOf(*value, node.NewName("collected")).name());
  }
  const bool joined = turns[0]->scalar;
  const Variable out = node.Make(joined ? "concat" : "stack", {{"X", names}},
                                 {{"axis", int32_t{0}}}, joined ? "Out" : "Y");
  return std::make_shared<Value>(Value{.var = out, .data_type = turns[0]->data_type});
}

// Imports the body once for each turn, of which the number must be known: for loops that carry
// sequences, or values whose rank changes.
void ImportUnrolled(NodeContext& node, const GraphProto& body, size_t carried) {
  const int64_t turns = node.HasInput(0) ? node.KnownInt(0, "the trip count") : kMaxUnrolled;
  bool more = !node.HasInput(1) || node.KnownInt(1, "the condition") != 0;
  Values values;
  for (size_t i = 0; i < carried; ++i) values.push_back(node.InAny(2 + i));
  std::vector<Values> collected(static_cast<size_t>(body.output_size()) - 1 - carried);
  Unrolling unrolling(node.graph().state());
  for (int64_t turn = 0; more && turn < turns; ++turn) {
    if (turn >= kMaxUnrolled) node.Refuse("a loop that is unrolled has too many turns");
    Values inputs = {
        ScalarConstant(Tensor::Full<int64_t>({1}, turn), proto::onnx::TensorProto::INT64),
        ScalarConstant(Tensor::Full<bool>({1}, true), proto::onnx::TensorProto::BOOL)};
    for (int i = 0; i < 2; ++i) inputs[static_cast<size_t>(i)]->scalar = !HasRankOne(body, i);
    inputs.insert(inputs.end(), values.begin(), values.end());
    Values outputs = node.graph().ImportInner(body, inputs);
    unrolling.EndTurn();
    const std::optional<bool> next = KnownBool(*ConditionOf(node, outputs));
    if (!next) node.Refuse("a loop that must be unrolled ends by a condition that is not known");
    more = *next;
    const auto at = outputs.begin() + 1 + static_cast<ptrdiff_t>(carried);
    values.assign(outputs.begin() + 1, at);
    for (size_t i = 0; i < collected.size(); ++i)
      collected[i].push_back(at[static_cast<ptrdiff_t>(i)]);
  }
  SetAll(node, values, 0);
  for (size_t i = 0; i < collected.size(); ++i) {
    if (collected[i].empty()) node.Refuse("a loop that collects values and makes no turn");
    node.SetShared(carried + i, StackOf(node, collected[i]));
  }
}

// Whether a loop can be unrolled: it has a known number of turns, and few.
bool HasFewTurns(const NodeContext& node) {
  if (!node.HasInput(0) || !node.Constant(0) || (node.HasInput(1) && !node.Constant(1)))
    return false;
  const int64_t turns = node.KnownInt(0, "the trip count");
  return turns > 0 && turns <= kMaxUnrolled;
}

void ImportAsWhile(NodeContext& node, const GraphProto& body, size_t carried);

// As a while op. If the body cannot be imported for all turns at once, because a rank changes or
// because an op needs to know the counter, it is imported for each turn.
void ImportTensorLoop(NodeContext& node, const GraphProto& body, size_t carried) {
  if (!HasFewTurns(node)) return ImportAsWhile(node, body, carried);
  ImportState& state = node.graph().state();
  BlockDesc& block = state.writer.block();
  const size_t ops = block.NumOps(), vars = block.NumVars();
  const int blocks = state.program.NumBlocks();
  const std::string base = state.name_base;
  const int64_t parts = state.inner_parts;
  try {
    return ImportAsWhile(node, body, carried);
  } catch (const Error& e) {
    if (!IsOfTheGraph(e)) throw;
  }
  state.name_base = base;
  state.inner_parts = parts;
  state.unknown_value.clear();
  state.program.TruncateBlocks(blocks);
  block.TruncateOps(ops);
  // Variables of constants remain: values refer to them.
  block.RemoveVarsIf([](const VarDesc& var) { return !var.persistable(); }, vars);
  ImportUnrolled(node, body, carried);
}

void ImportLoop(NodeContext& node) {
  const GraphProto& body = node.Graph("body");
  const size_t carried = node.NumInputs() < 2 ? 0 : node.NumInputs() - 2;
  if (node.HasInput(0)) node.RequireOne(0, "the trip count");
  if (node.HasInput(1)) node.RequireOne(1, "the condition");
  node.Require(body.output_size() > static_cast<int>(carried), "the body has too few outputs");
  bool tensors = true;
  for (size_t i = 0; i < carried; ++i) tensors = tensors && node.HasTensor(2 + i);
  tensors ? ImportTensorLoop(node, body, carried) : ImportUnrolled(node, body, carried);
}

void ImportAsWhile(NodeContext& node, const GraphProto& body, size_t carried) {
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
}

}  // namespace coracle::onnx
