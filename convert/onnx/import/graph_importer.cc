#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/import/attribute_names.h>
#include <coracle/convert/onnx/import/check_inputs.h>
#include <coracle/convert/onnx/import/graph_importer.h>
#include <coracle/convert/onnx/import/layer_weights.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/op_context.h>
#include <fmt/format.h>

#include <algorithm>
#include <new>

namespace coracle::onnx {

using google::protobuf::RepeatedPtrField;
using proto::onnx::FunctionProto;
using proto::onnx::GraphProto;
using proto::onnx::NodeProto;
using proto::onnx::TensorProto;

namespace {

constexpr size_t kMaxWarnings = 32;
constexpr int kMaxDepth = 64;  // of nested functions and sub-graphs
// Functions that each call another one twice expand to 2^n nodes.
constexpr int64_t kMaxInnerParts = 1 << 20;
constexpr int64_t kMaxUnrolledParts = 1 << 16;
constexpr uint64_t kMaxResolvedBytes = uint64_t{64} << 20;
constexpr uint64_t kNodeBytes = 2048;  // approximate size of a node's ops and variables

// Exists while a function or sub-graph is being imported.
class Inside {
 public:
  Inside(ImportState& state, int parts) : state_(state) {
    if (state.depth >= kMaxDepth)
      ThrowInvalid("functions or sub-graphs are in each other in a cycle, or too deeply");
    state.inner_parts += 1 + parts;
    if (state.inner_parts > kMaxInnerParts) {
      throw Error(ErrorCode::kResourceExhausted,
                  fmt::format("functions and sub-graphs are more than {} nodes, inputs and "
                              "attributes in all ({} in each other here). A loop that changes a "
                              "shape is imported twice: use fewer nested loops, or fixed shapes",
                              kMaxInnerParts, state.depth));
    }
    ++state.depth;
  }
  ~Inside() { --state_.depth; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  ImportState& state_;
};

// "node 'conv1' (Conv, opset 13)"; an unnamed node is identified by its first output.
std::string Label(const NodeProto& node, int64_t opset) {
  std::string name = node.name();
  for (int i = 0; name.empty() && i < node.output_size(); ++i) name = node.output(i);
  return fmt::format("node {} ({}, opset {})", Quote(name), PrintableLine(node.op_type()), opset);
}

// A tensor of rank 0 in the form of the program, [1].
Tensor Stored(Tensor tensor) { return tensor.shape().rank() == 0 ? tensor.Reshaped({1}) : tensor; }

bool HasGraph(const NodeProto& node) {
  return std::any_of(node.attribute().begin(), node.attribute().end(),
                     [](const auto& attr) { return attr.has_g() || attr.graphs_size() > 0; });
}

}  // namespace

std::string UsableName(const std::string& name) {
  const bool reserved = name == kEmptyVarName || name == "feed" || name == "fetch" ||
                        name.find("@GRAD") != std::string::npos ||
                        name.find("@LOD@") != std::string::npos ||
                        name.find("@RECOMPUTED") != std::string::npos;
  return reserved ? "onnx." + name : name;
}

std::string PlainDomain(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

Opsets OpsetsOf(const RepeatedPtrField<proto::onnx::OperatorSetIdProto>& imports) {
  Opsets opsets;
  for (const auto& import : imports) {
    const auto [at, added] = opsets.try_emplace(PlainDomain(import.domain()), import.version());
    if (!added && at->second != import.version()) {
      ThrowInvalid(fmt::format("the operator set of the domain {} is given twice, as {} and {}",
                               Quote(import.domain()), at->second, import.version()));
    }
  }
  return opsets;
}

std::string FunctionKey(const std::string& domain, const std::string& name,
                        const std::string& overload) {
  return PlainDomain(domain) + ":" + name + ":" + overload;
}

ImportState::ImportState(ProgramDesc& of, const OpRegistry& ops, Scope* params, VarValues* env,
                         TensorSource source)
    : program(of),
      writer(of.Root(), ops, {.name = [this](const std::string& hint) { return NewName(hint); }}),
      parameters(params),
      folded(env),
      tensors(std::move(source)) {}

std::string ImportState::FreeName(const std::string& name) {
  const bool kept = depth > 0 && output_names.count(name) > 0;
  return kept ? program.UniqueName(name) : program.FreeName(name);
}

void ImportState::Warn(const std::string& kind, const std::string& text) {
  if (warnings.size() < kMaxWarnings) warnings.emplace(kind, text);
}

Variable ImportState::VarOf(Value& value, const std::string& name) {
  value.RequireTensor();
  if (value.var) return value.var;
  BlockDesc& root = program.Root();
  const Tensor& tensor = *value.constant;
  VarDesc& var = root.Var(FreeName(UsableName(name)));
  var.SetMeta({VarType::kLoDTensor, tensor.dtype(), tensor.shape(), 0});
  if (folded) {
    (*folded)[var.name()] = tensor;
  } else if (tensor.dtype() == DType::kString) {  // which no file of parameters holds
    Writer(root, writer.ops())
        .Append("assign_value", {}, {{"Out", {var.name()}}},
                {{"dtype", static_cast<int32_t>(DType::kString)},
                 {"shape", ToInt32(tensor.shape().ToVector(), "a dimension")},
                 {"string_values", tensor.Strings()}});
  } else {
    var.SetPersistable(true);
    var.SetIsParameter(value.is_parameter);
    if (IsSmallInteger(value.data_type) && tensor.shape().rank() > 0 && tensor.numel() > 0)
      return value.var = VarOfPacked(var, tensor, SmallBits(value.data_type));
    parameters->Set(var.name(), tensor);
  }
  value.var = writer.Var(root, var);
  return value.var;
}

void GraphImporter::Define(const std::string& name, ValuePtr value) {
  if (!values_.emplace(name, std::move(value)).second)
    ThrowInvalid(fmt::format("the value {} is defined twice", Quote(name)));
}

ValuePtr GraphImporter::Find(const std::string& name) const {
  if (ValuePtr value = FindOrAbsent(name)) return value;
  ThrowInvalid(name.empty() ? "a value without a name is used"
                            : fmt::format("the value {} is an input that the caller of the "
                                          "function leaves out",
                                          Quote(name)));
}

ValuePtr GraphImporter::FindOrAbsent(const std::string& name) const {
  if (name.empty()) return nullptr;
  for (const GraphImporter* graph = this; graph; graph = graph->outer_) {
    const auto found = graph->values_.find(name);
    if (found != graph->values_.end()) return found->second;
  }
  throw Error(ErrorCode::kNotFound,
              fmt::format("no input, initializer or earlier node of the graph gives the value {}",
                          Quote(name)));
}

void GraphImporter::NoteUnknown(const std::string& name) {
  const GraphImporter* root = this;
  while (root->outer_) root = root->outer_;
  constexpr size_t kMost = 64;
  if (state_.noted_unknown.size() < kMost)
    state_.noted_unknown.emplace_back(name, root->last_node_);
}

Values GraphImporter::InitializersOf(const GraphProto& graph, std::vector<Tensor> tensors) {
  if (graph.sparse_initializer_size() > 0)
    throw Error(ErrorCode::kUnimplemented, "sparse initializers have no counterpart");
  const std::unordered_set<std::string_view> weights = LayerWeights(graph);
  Values values;
  for (int i = 0; i < graph.initializer_size(); ++i) {
    const TensorProto& proto = graph.initializer(i);
    Tensor& tensor = tensors.at(static_cast<size_t>(i));
    auto value = std::make_shared<Value>();
    value->scalar = tensor.shape().rank() == 0;
    value->data_type = proto.data_type();
    const bool one_weight = !value->scalar && tensor.numel() == 1 && weights.count(proto.name());
    value->is_parameter = IsFloating(tensor.dtype()) && !IsSmall(proto.data_type()) &&
                          (tensor.numel() > 1 || one_weight);
    value->constant = Stored(std::move(tensor));
    values.push_back(std::move(value));
  }
  return values;
}

void GraphImporter::DefineInitializers(const GraphProto& graph, const Values& values) {
  for (size_t i = 0; i < values.size(); ++i)
    Define(graph.initializer(static_cast<int>(i)).name(), values[i]);
}

void GraphImporter::AddInnerInitializers(const GraphProto& graph) {
  const auto [at, is_new] = state_.inner_initializers.try_emplace(&graph);
  if (is_new) {
    std::vector<Tensor> tensors;
    for (const auto& proto : graph.initializer())
      tensors.push_back(ParseTensorProto(proto, state_.tensors));
    at->second = InitializersOf(graph, std::move(tensors));
  }
  DefineInitializers(graph, at->second);
}

Values GraphImporter::ImportInner(const GraphProto& graph, const Values& inputs) {
  if (graph.input_size() != static_cast<int>(inputs.size())) {
    ThrowInvalid(fmt::format("the graph {} has {} inputs, but gets {}", Quote(graph.name()),
                             graph.input_size(), inputs.size()));
  }
  const Inside inside(state_, graph.node_size() + graph.initializer_size() + graph.input_size() +
                                  graph.output_size());
  GraphImporter importer(state_, opsets_, this);
  importer.AddInnerInitializers(graph);
  for (size_t i = 0; i < inputs.size(); ++i)
    importer.Define(graph.input(static_cast<int>(i)).name(), inputs[i]);
  return importer.ImportNodes(graph);
}

Values GraphImporter::ImportNodes(const GraphProto& graph) { return ImportFrom(graph, 0); }

Values GraphImporter::ImportFrom(const GraphProto& graph, int first) {
  graph_ = &graph;
  for (position_ = first; position_ < graph.node_size(); ++position_) {
    ImportNode(graph.node(position_));
    if (finished_) return *std::move(finished_);
  }
  Values outputs;
  for (const auto& output : graph.output()) outputs.push_back(Find(output.name()));
  return outputs;
}

Values GraphImporter::ImportRest(const Values& results) {
  const NodeProto& node = graph_->node(position_);
  const Inside inside(state_, graph_->node_size() - position_);
  GraphImporter rest(state_, opsets_, this);
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string& name = node.output(static_cast<int>(i));
    if (!name.empty()) rest.Define(name, results[i]);
  }
  Unrolling unrolling(state_);
  Values outputs = rest.ImportFrom(*graph_, position_ + 1);
  unrolling.EndTurn();
  return outputs;
}

namespace {

// Refuses types that no dtype holds, if a wider one would give wrong results, and uint64 where the
// importer may compute in a type of fewer digits.
void RefuseUnsigned(const NodeContext& node) {
  const NodeImporter& row = node.row();
  for (size_t i = 0; i < node.NumInputs(); ++i) {
    if (!node.HasTensor(i)) continue;
    const int type = node.InValue(i).data_type;
    const char takes =
        row.inputs.empty() ? 'V' : row.inputs[std::min(i, row.inputs.size() - 1)].holds;
    const bool computes = IsSmall(type) && takes != 'T' && takes != 'V';
    if ((IsHeldWider(type) || type == TensorProto::UINT64) &&
        (row.unsigneds == Unsigned::kRefuse || computes))
      node.Refuse(fmt::format("input {} is {}, for which the op has no counterpart", i,
                              DataTypeName(type)));
  }
}

// The first operator sets have attributes that do not change results: which inputs may be
// overwritten, and whether an RNN's first output will be read.
void Run(NodeContext& node) {
  if (node.opset() < 7 && PlainDomain(node.node().domain()).empty()) {
    node.attributes().Ignore("consumed_inputs");
    node.attributes().Ignore("output_sequence");
  }
  node.row().import(node);
  for (const std::string& name : node.attributes().Unread()) {
    if (!node.row().domain.empty() || IsAttributeOfOnnx(name))
      node.Refuse(fmt::format("attribute {} has no counterpart", Quote(name)));
    node.graph().state().Warn(node.op_type() + ":" + name,
                              fmt::format("{}: attribute {} is none of ONNX's, and is ignored",
                                          Label(node.node(), node.opset()), Quote(name)));
  }
}

}  // namespace

int64_t GraphImporter::OpsetOf(const std::string& domain) const {
  const auto found = opsets_.find(domain);
  if (found != opsets_.end()) return found->second;
  // ONNX Runtime knows these sets without an import, and many models have none.
  static const Opsets known = {
      {"ai.onnx.ml", 5}, {"ai.onnx.preview.training", 1}, {"com.microsoft", 1}};
  const auto implied = known.find(domain);
  return implied == known.end() ? 0 : implied->second;
}

// Imports the node by a function of the model, else by the op type's importer.
void GraphImporter::CallNode(const NodeProto& node) {
  const std::string domain = PlainDomain(node.domain());
  const auto function = state_.functions.find(FunctionKey(domain, node.op_type(), node.overload()));
  if (function != state_.functions.end()) return InlineFunction(node, *function->second);
  const int64_t opset = OpsetOf(domain);
  if (opset == 0) {
    ThrowInvalid(fmt::format("the model imports no operator set of the domain {}",
                             Quote(domain.empty() ? "ai.onnx" : domain)));
  }
  CallImporter(node, opset);
}

void GraphImporter::ImportNode(const NodeProto& node) {
  CheckTimeLimit("importing an ONNX model");
  last_node_ = &node;
  const int64_t opset = OpsetOf(PlainDomain(node.domain()));
  const std::string base = state_.name_base;
  try {
    state_.memory.Add(kNodeBytes, "the program of an ONNX model");
    CallNode(node);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kResourceExhausted, Label(node, opset) + ": out of memory");
  } catch (const Error& e) {
    // For nested nodes, the message names the innermost ones and the outermost one.
    constexpr size_t kEnough = 200;
    if (state_.depth > 0 && e.message().size() > kEnough) throw;
    throw e.WithPrefix(Label(node, opset));
  }
  state_.name_base = base;
}

Values GraphImporter::InputsOf(const NodeProto& node) const {
  Values inputs;
  for (const std::string& name : node.input()) inputs.push_back(FindOrAbsent(name));
  return inputs;
}

void GraphImporter::CallImporter(const NodeProto& node, int64_t opset) {
  const NodeImporter& row =
      AllNodeImporters().Get(PlainDomain(node.domain()), node.op_type(), opset);
  Values inputs = InputsOf(node);
  CheckInputs(row.inputs, inputs, {node.input().begin(), node.input().end()});
  NodeContext context(*this, node, row, opset, std::move(inputs));
  RefuseUnsigned(context);
  if (Fold(context)) return;
  BlockDesc& block = state_.writer.block();
  const size_t first_var = block.NumVars(), first_op = block.NumOps();
  for (int i = 0; i < node.output_size(); ++i) {
    if (node.output(i).empty()) continue;
    state_.name_base = UsableName(node.output(i));
    break;
  }
  Run(context);
  if (!finished_) FinishOutputs(context, first_var, first_op);
}

namespace {

bool HasSubBlock(const BlockDesc& block, size_t first_op) {
  for (size_t k = first_op; k < block.NumOps(); ++k)
    if (block.op(k).HasSubBlock()) return true;
  return false;
}

void RenameInOps(BlockDesc& block, size_t first_op,
                 const std::unordered_map<std::string, std::string>& new_names) {
  const auto rename = [&](const std::string& name) {
    const auto found = new_names.find(name);
    return found == new_names.end() ? name : found->second;
  };
  for (size_t k = first_op; k < block.NumOps(); ++k) {
    block.op(k).RenameInputs(rename);
    block.op(k).RenameOutputs(rename);
  }
}

}  // namespace

// Variables that the node made get the names of its outputs, unless ops of inner blocks use them.
void GraphImporter::FinishOutputs(NodeContext& node, size_t first_var, size_t first_op) {
  BlockDesc& block = state_.writer.block();
  const bool inner = HasSubBlock(block, first_op);
  std::unordered_map<std::string, std::string> new_names;
  std::unordered_set<const VarDesc*> named;
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    if (i % 64 == 63) CheckTimeLimit("importing an ONNX model");
    const std::string& name = node.node().output(static_cast<int>(i));
    const ValuePtr& value = node.outputs()[i];
    if (name.empty()) continue;
    if (!value) node.Refuse(fmt::format("output {} ({}) has no counterpart", i, Quote(name)));
    const Variable& var = value->var;
    const bool made = var && !inner && !var.desc().persistable() && &var.block() == &block &&
                      var.desc().index() >= first_var;
    if (made && named.insert(&var.desc()).second) {
      const std::string before = var.name(), wanted = UsableName(name);
      const std::string after = before == wanted ? before : state_.FreeName(wanted);
      if (after != before) block.RenameVar(var.desc(), after);
      if (after != before) new_names[before] = after;
    }
    Define(name, value);
  }
  if (!new_names.empty()) RenameInOps(block, first_op, new_names);
}

namespace {

// Limits of folding: a model from outside may declare a shape of any size.
constexpr int64_t kMaxFolded = 1 << 16;
constexpr uint64_t kMaxFoldingBytes = uint64_t{64} << 20;
// Small results, such as shapes, are always computed; larger ones only until this limit is used up.
constexpr int64_t kAlwaysFolded = 512;
constexpr int64_t kMaxFoldedInAll = int64_t{1} << 25;

// Whether a node with that many elements may still be computed.
bool SpendFolding(ImportState& state, int64_t numel) {
  if (numel <= kAlwaysFolded) return true;
  state.folded_elements += numel;
  return state.folded_elements <= kMaxFoldedInAll;
}

int64_t NumelOfInputs(const NodeContext& node) {
  int64_t numel = 0;
  for (size_t i = 0; i < node.NumInputs(); ++i)
    if (node.HasInput(i)) numel += node.InValue(i).constant->numel();
  return numel;
}

// Integer weights stay integers, so that ops may compute with them.
bool IsFoldable(const NodeContext& node) {
  if (!node.row().foldable || node.NumInputs() == 0 || HasGraph(node.node())) return false;
  if (node.op_type() == "DequantizeLinear" && node.InValue(0).rank() >= 2) return false;
  for (size_t i = 0; i < node.NumInputs(); ++i) {
    if (!node.HasInput(i)) continue;
    if (!node.HasTensor(i)) return false;
    const Value& value = node.InValue(i);
    if (!value.constant || value.is_parameter) return false;
  }
  return NumelOfInputs(node) <= kMaxFolded;
}

// Runs the block to get the variables' values; false if that takes too much memory.
bool RunSmall(const BlockDesc& block, const OpRegistry& ops, VarValues& env) {
  for (size_t i = 0; i < block.NumVars(); ++i) {
    const Shape& shape = block.var(i).shape();
    if (shape.HasTooManyElements()) return false;
    if (shape.IsKnown() && shape.numel() > kMaxFolded) return false;
  }
  const ScopedLimits limits(
      std::make_shared<ResourceLimits>(ResourceOptions{.memory = kMaxFoldingBytes}));
  try {
    Interpret(block, ops, env);
  } catch (const OutOfMemory&) {
    return false;
  }
  return true;
}

}  // namespace

// Imports the node into a temporary program and runs that.
bool GraphImporter::Fold(NodeContext& node) {
  if (!IsFoldable(node) || !SpendFolding(state_, NumelOfInputs(node))) return false;
  ProgramDesc program;
  VarValues env;
  ImportState state(program, state_.writer.ops(), nullptr, &env, state_.tensors);
  GraphImporter graph(state, opsets_);
  Values inputs;
  for (size_t i = 0; i < node.NumInputs(); ++i) {
    if (!node.HasInput(i)) {
      inputs.push_back(nullptr);
      continue;
    }
    inputs.push_back(std::make_shared<Value>(node.InValue(i)));
    inputs.back()->var = {};
  }
  NodeContext inner(graph, node.node(), node.row(), node.opset(), std::move(inputs));
  Run(inner);
  if (!RunSmall(program.Root(), state_.writer.ops(), env)) return false;
  state_.warnings.merge(state.warnings);
  std::vector<std::pair<std::string, ValuePtr>> results;
  for (size_t i = 0; i < inner.outputs().size(); ++i) {
    const std::string& name = node.node().output(static_cast<int>(i));
    const ValuePtr& value = inner.outputs()[i];
    if (name.empty()) continue;
    if (!value || !value->is_tensor()) return false;
    if (!value->constant) {
      const Tensor* tensor = std::get_if<Tensor>(&env[value->var.name()]);
      if (!tensor) return false;
      value->constant = *tensor;
    }
    value->var = {};
    value->is_parameter = false;
    if (!SpendFolding(state_, value->constant->numel())) return false;
    results.emplace_back(name, value);
  }
  for (auto& [name, value] : results) Define(name, std::move(value));
  return true;
}

namespace {

bool TakesAttributes(const NodeProto& node) {
  return std::any_of(node.attribute().begin(), node.attribute().end(), [](const auto& attr) {
    if (!attr.ref_attr_name().empty()) return true;
    return attr.has_g() &&
           std::any_of(attr.g().node().begin(), attr.g().node().end(), TakesAttributes);
  });
}

// The node with the attributes from its caller, and from the function's defaults.
void ResolveAttributes(const NodeProto& caller, const FunctionProto& function, NodeProto* node);

void ResolveGraph(const NodeProto& caller, const FunctionProto& function, GraphProto* graph) {
  for (NodeProto& node : *graph->mutable_node()) ResolveAttributes(caller, function, &node);
}

void ResolveAttributes(const NodeProto& caller, const FunctionProto& function, NodeProto* node) {
  RepeatedPtrField<proto::onnx::AttributeProto> kept;
  for (proto::onnx::AttributeProto& attr : *node->mutable_attribute()) {
    if (attr.ref_attr_name().empty()) {
      if (attr.has_g()) ResolveGraph(caller, function, attr.mutable_g());
      kept.Add()->Swap(&attr);
      continue;
    }
    const proto::onnx::AttributeProto* source = nullptr;
    for (const auto& given : function.attribute_proto())
      if (given.name() == attr.ref_attr_name()) source = &given;
    for (const auto& given : caller.attribute())
      if (given.name() == attr.ref_attr_name()) source = &given;
    if (!source) continue;  // the attribute is then absent in the node too
    proto::onnx::AttributeProto& resolved = *kept.Add();
    resolved = *source;
    resolved.set_name(attr.name());
  }
  node->mutable_attribute()->Swap(&kept);
}

// A copy of a function's node for one of its calls, which lives until the end of the import.
const NodeProto& Resolved(ImportState& state, const NodeProto& caller,
                          const FunctionProto& function, const NodeProto& node) {
  NodeProto& copy = state.resolved_nodes.emplace_back(node);
  ResolveAttributes(caller, function, &copy);
  state.resolved_bytes += copy.ByteSizeLong();
  if (state.resolved_bytes > kMaxResolvedBytes) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("the nodes of functions that take attributes of their callers are more "
                            "than {} MB in all, counted as often as they are used",
                            kMaxResolvedBytes >> 20));
  }
  return copy;
}

int PartsOf(const FunctionProto& function) {
  return function.node_size() + function.input_size() + function.output_size() +
         function.attribute_size() + function.attribute_proto_size() + function.opset_import_size();
}

}  // namespace

void Unrolling::EndTurn() {
  state_.unrolled_parts += state_.inner_parts - parts_;
  parts_ = state_.inner_parts;
  if (state_.unrolled_parts <= kMaxUnrolledParts) return;
  throw Error(ErrorCode::kResourceExhausted,
              fmt::format("bodies that are imported turn by turn become more than {} nodes, inputs "
                          "and outputs",
                          kMaxUnrolledParts));
}

void GraphImporter::InlineFunction(const NodeProto& node, const FunctionProto& function) {
  const Inside inside(state_, PartsOf(function));
  if (node.input_size() > function.input_size() || node.output_size() > function.output_size())
    ThrowInvalid("the function has fewer inputs or outputs than the node gives");
  for (const auto& attr : node.attribute()) {
    const auto is = [&](const auto& known) { return known == attr.name(); };
    const bool known =
        std::any_of(function.attribute().begin(), function.attribute().end(), is) ||
        std::any_of(function.attribute_proto().begin(), function.attribute_proto().end(),
                    [&](const auto& a) { return a.name() == attr.name(); });
    if (!known) ThrowInvalid(fmt::format("the function has no attribute {}", Quote(attr.name())));
  }
  GraphImporter body(state_, OpsetsOf(function.opset_import()));
  for (int i = 0; i < function.input_size(); ++i) {
    body.Define(function.input(i), i < node.input_size() ? FindOrAbsent(node.input(i)) : nullptr);
  }
  for (const NodeProto& inner : function.node())
    body.ImportNode(TakesAttributes(inner) ? Resolved(state_, node, function, inner) : inner);
  for (int i = 0; i < node.output_size(); ++i) {
    if (!node.output(i).empty()) Define(node.output(i), body.Find(function.output(i)));
  }
}

}  // namespace coracle::onnx
