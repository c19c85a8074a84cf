// Scan: a loop over slices of its inputs.

#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/while_loop.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::onnx {
namespace {

using proto::onnx::GraphProto;

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

// x, which must be as long as the first input of the scan. If a length is known only at run time,
// the reshape stops the run.
Variable OfLength(NodeContext& node, const Variable& x, int32_t axis, const Variable& first,
                  int32_t first_axis) {
  const int64_t own = x.shape()[axis], wanted = first.shape()[first_axis];
  if (own >= 0 && wanted >= 0) {
    node.Require(own == wanted,
                 fmt::format("the inputs to scan have {} and {} slices", wanted, own));
    return x;
  }
  Dims dims;
  dims.Add(x, 0, axis).AddNumber(DimOf(node, first, first_axis));
  dims.Add(x, axis + 1, x.shape().rank());
  return ReshapedBy(node, x, dims.ToVector(node), x.shape());
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
    if (i > 0) x = OfLength(node, x, axes[i], scanned[0], axes[0]);
    scanned.push_back(spec.input_directions[i] == 1 ? Flipped(node, x, axes[i]) : x);
  }
  WhileLoop loop(node, DimOf(node, scanned.at(0), axes[0]), Variable());
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

void AddScanImporters(NodeImporters& importers) {
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
