// Sequences and optional values. They are resolved at import, as lists of values, and do not appear
// in the program.

#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/graph_importer.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::onnx {
namespace {

// ONNX's sequences hold tensors. Each sequence is a separate list, so that a chain of insertions
// takes quadratic time.
void SetSequence(NodeContext& node, size_t i, Values elements) {
  constexpr int64_t kMost = int64_t{1} << 23;
  for (const ValuePtr& element : elements)
    node.Require(element && element->is_tensor(), "an element of a sequence must be a tensor");
  ImportState& state = node.graph().state();
  state.memory.Add(elements.size() * sizeof(ValuePtr), "the sequences of an ONNX model");
  state.sequence_elements += static_cast<int64_t>(elements.size());
  if (state.sequence_elements > kMost) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("the sequences of the model have more than {} elements in all", kMost));
  }
  node.SetValue(i, {.elements = std::make_shared<const Values>(std::move(elements))});
}

void ImportSequenceEmpty(NodeContext& node) {
  node.attributes().Ignore("dtype");
  SetSequence(node, 0, {});
}

void ImportSequenceConstruct(NodeContext& node) {
  Values elements;
  for (size_t i = 0; i < node.NumInputs(); ++i) elements.push_back(node.InAny(i));
  SetSequence(node, 0, std::move(elements));
}

// The position in input i, in [0, last]; negative ones count from `size`.
size_t Position(NodeContext& node, size_t i, size_t size, size_t last) {
  int64_t at = node.KnownInt(i, "position");
  if (at < 0) at += static_cast<int64_t>(size);
  node.Require(at >= 0 && at <= static_cast<int64_t>(last),
               fmt::format("there is no position {} in a sequence of {}", at, size));
  return static_cast<size_t>(at);
}

// The position of an element; the sequence must not be empty.
size_t ElementAt(NodeContext& node, size_t i, const Values& sequence) {
  node.Require(!sequence.empty(), "the sequence is empty");
  return Position(node, i, sequence.size(), sequence.size() - 1);
}

void ImportSequenceAt(NodeContext& node) {
  const Values& sequence = node.InSequence(0);
  node.SetShared(0, sequence[ElementAt(node, 1, sequence)]);
}

void ImportSequenceInsert(NodeContext& node) {
  Values sequence = node.InSequence(0);
  const size_t size = sequence.size();
  const size_t at = node.HasInput(2) ? Position(node, 2, size, size) : size;
  sequence.insert(sequence.begin() + static_cast<ptrdiff_t>(at), node.InAny(1));
  SetSequence(node, 0, std::move(sequence));
}

void ImportSequenceErase(NodeContext& node) {
  Values sequence = node.InSequence(0);
  node.Require(!sequence.empty(), "the sequence is empty");
  const size_t at = node.HasInput(1) ? ElementAt(node, 1, sequence) : sequence.size() - 1;
  sequence.erase(sequence.begin() + static_cast<ptrdiff_t>(at));
  SetSequence(node, 0, std::move(sequence));
}

void ImportSequenceLength(NodeContext& node) {
  const auto size = static_cast<int64_t>(node.InSequence(0).size());
  node.SetConstant(0, Tensor::Full<int64_t>({1}, size), true);
}

// The sizes of the parts of a dimension: all 1, all equal to one number, or given by a vector.
std::vector<int32_t> PartsOf(NodeContext& node, int64_t dim) {
  std::vector<int32_t> parts;
  if (node.HasInput(1) && node.rank(1) == 1) {
    return ToInt32(node.KnownInts(1, "split"), "split");
  }
  const int64_t size = node.HasInput(1) ? node.KnownInt(1, "split") : 1;
  node.Require(size > 0, "split must be positive");
  if (dim < 0) node.RefuseUnknown("the length of the axis", "the number of the sequence's tensors");
  if (dim / size > 65536) node.Refuse("a sequence of more than 65,536 tensors");
  for (int64_t rest = dim; rest > 0; rest -= size)
    parts.push_back(ToInt32(std::min(rest, size), "a part"));
  return parts;
}

void ImportSplitToSequence(NodeContext& node) {
  const int32_t axis = node.Axis(node.Int("axis", 0), node.rank(0));
  // Without split, each part is one slice, without the dimension if keepdims is 0.
  const bool keep = node.Flag("keepdims", true) || node.HasInput(1);
  const std::vector<int32_t> parts = PartsOf(node, node.shape(0)[axis]);
  if (parts.empty()) return SetSequence(node, 0, {});
  std::vector<std::string> names;
  for (size_t i = 0; i < parts.size(); ++i) names.push_back(node.NewName("split"));
  node.writer().Append("split", {{"X", {node.In(0).name()}}}, {{"Out", names}},
                       {{"axis", axis}, {"sections", parts}});
  const bool scalar = !keep && node.rank(0) == 1;
  Values elements;
  for (const std::string& name : names) {
    Variable part = node.writer().Var(name);
    if (!keep && !scalar)
      part = node.WithXShape("squeeze2", part, {{"axes", std::vector<int32_t>{axis}}});
    elements.push_back(std::make_shared<Value>(
        Value{.var = part, .data_type = node.InValue(0).data_type, .scalar = scalar}));
  }
  SetSequence(node, 0, std::move(elements));
}

void ImportConcatFromSequence(NodeContext& node) {
  const Values& sequence = node.InSequence(0);
  node.Require(!sequence.empty(), "the sequence is empty");
  const bool stack = node.Flag("new_axis", false);
  const int rank = sequence[0]->rank();
  const int32_t axis = node.Axis(node.Int("axis"), stack ? rank + 1 : rank);
  std::vector<std::string> names;
  for (const ValuePtr& element : sequence) {
    node.Require(element->rank() == rank, "the elements of the sequence must have one rank");
    names.push_back(node.graph().state().VarOf(*element, node.NewName("element")).name());
  }
  // Tensors of rank 0 already have their new dimension.
  const bool joined = !stack || rank == 0;
  const Variable out = node.Make(joined ? "concat" : "stack", {{"X", names}}, {{"axis", axis}},
                                 joined ? "Out" : "Y");
  node.SetValue(0, {.var = out, .data_type = sequence[0]->data_type});
}

// Runs the body for each element of the first sequence, with the elements of other sequences at the
// same position.
void ImportSequenceMap(NodeContext& node) {
  const auto& body = node.Graph("body");
  std::vector<Values> outputs(static_cast<size_t>(body.output_size()));
  Unrolling unrolling(node.graph().state());
  for (size_t at = 0; at < node.InSequence(0).size(); ++at) {
    Values inputs;
    for (size_t i = 0; i < node.NumInputs(); ++i) {
      const ValuePtr& input = node.InAny(i);
      node.Require(!input->elements || at < input->elements->size(),
                   "the sequences must be equally long");
      inputs.push_back(input->elements ? (*input->elements)[at] : input);
    }
    const Values results = node.graph().ImportInner(body, inputs);
    unrolling.EndTurn();
    for (size_t i = 0; i < results.size(); ++i) outputs[i].push_back(results[i]);
  }
  for (size_t i = 0; i < outputs.size(); ++i) SetSequence(node, i, std::move(outputs[i]));
}

// --- optional values ---

void ImportOptional(NodeContext& node) {
  node.attributes().Ignore("type");
  if (node.HasInput(0)) return node.SetSame(0, 0);
  node.SetValue(0, {.is_nothing = true});
}

void ImportOptionalHasElement(NodeContext& node) {
  const bool has = node.HasInput(0) && !node.InAny(0)->is_nothing;
  node.SetConstant(0, Tensor::Full<bool>({1}, has), true);
}

void ImportOptionalGetElement(NodeContext& node) {
  node.Require(!node.InAny(0)->is_nothing, "the optional value is not there");
  node.SetSame(0, 0);
}

}  // namespace

void AddSequenceImporters(NodeImporters& importers) {
  const auto add = [&](const char* op_type, const char* takes, int since,
                       void (*import)(NodeContext&), const char* maps_to) {
    importers.Add({.op_type = op_type,
                   .since = since,
                   .takes = takes,
                   .import = import,
                   .maps_to = maps_to,
                   .unsigneds = Unsigned::kMoves});
  };
  add("SequenceEmpty", "", 11, ImportSequenceEmpty, "nothing");
  add("SequenceConstruct", "T T*", 11, ImportSequenceConstruct, "nothing");
  add("SequenceAt", "S i", 11, ImportSequenceAt, "nothing");
  add("SequenceInsert", "S T i?", 11, ImportSequenceInsert, "nothing");
  add("SequenceErase", "S i?", 11, ImportSequenceErase, "nothing");
  add("SequenceLength", "S", 11, ImportSequenceLength, "a constant");
  add("SplitToSequence", "T1+ i0-1?", 11, ImportSplitToSequence, "split");
  add("ConcatFromSequence", "S", 11, ImportConcatFromSequence, "concat; stack");
  add("SequenceMap", "S V*", 17, ImportSequenceMap, "the body for each element");
  add("Optional", "V?", 15, ImportOptional, "nothing");
  add("OptionalHasElement", "V?", 15, ImportOptionalHasElement, "a constant");
  add("OptionalGetElement", "V", 15, ImportOptionalGetElement, "nothing");
}

}  // namespace coracle::onnx
