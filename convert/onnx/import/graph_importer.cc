#include "graph_importer.h"

#include <coracle/convert/onnx/dtypes.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/infer_context.h>
#include <fmt/format.h>

#include <algorithm>

#include "layer_weights.h"
#include "node_context.h"

namespace coracle::onnx {

using google::protobuf::RepeatedPtrField;
using proto::onnx::FunctionProto;
using proto::onnx::GraphProto;
using proto::onnx::NodeProto;
using proto::onnx::TensorProto;

namespace {

constexpr int kMaxDepth = 64;  // of functions and sub-graphs in each other
// Functions that call functions twice are 2^n nodes.
constexpr int64_t kMaxInnerNodes = 1'000'000;
constexpr uint64_t kNodeBytes = 2048;  // of a node's ops and variables, about

// A function or sub-graph is being imported while this lives.
class Inside {
 public:
  Inside(ImportState& state, int nodes) : state_(state) {
    if (state.depth >= kMaxDepth)
      ThrowInvalid("functions or sub-graphs are in each other in a cycle, or too deeply");
    state.inner_nodes += nodes;
    if (state.inner_nodes > kMaxInnerNodes) {
      throw Error(ErrorCode::kResourceExhausted,
                  fmt::format("functions and sub-graphs are more than {} nodes", kMaxInnerNodes));
    }
    ++state.depth;
  }
  ~Inside() { --state_.depth; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  ImportState& state_;
};

// "node 'conv1' (Conv, opset 13)"; a node without a name is called after its first output.
std::string Label(const NodeProto& node, int64_t opset) {
  std::string name = node.name();
  for (int i = 0; name.empty() && i < node.output_size(); ++i) name = node.output(i);
  return fmt::format("node {} ({}, opset {})", Quote(name), PrintableLine(node.op_type()), opset);
}

// A tensor of rank 0 as the program has it.
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
      writer(of.Root(), ops,
             {.name =
                  [this](const std::string& hint) {
                    return program.UniqueName(name_base.empty() ? hint : name_base + "." + hint);
                  }}),
      parameters(params),
      folded(env),
      tensors(std::move(source)) {}

std::string ImportState::FreeName(const std::string& name) {
  const bool kept = depth > 0 && output_names.count(name) > 0;
  return kept ? program.UniqueName(name) : program.FreeName(name);
}

Variable ImportState::VarOf(Value& value, const std::string& name) {
  if (value.var) return value.var;
  BlockDesc& root = program.Root();
  const Tensor& tensor = *value.constant;
  VarDesc& var = root.Var(FreeName(UsableName(name)));
  var.SetMeta({VarType::kLoDTensor, tensor.dtype(), tensor.shape(), 0});
  if (folded) {
    (*folded)[var.name()] = tensor;
  } else {
    var.SetPersistable(true);
    var.SetIsParameter(value.is_parameter);
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
  for (const GraphImporter* graph = this; graph; graph = graph->outer_) {
    const auto found = graph->values_.find(name);
    if (found != graph->values_.end()) return found->second;
  }
  throw Error(ErrorCode::kNotFound,
              fmt::format("no input, initializer or earlier node of the graph gives the value {}",
                          Quote(name)));
}

void GraphImporter::AddInitializers(const GraphProto& graph, std::vector<Tensor> tensors) {
  if (graph.sparse_initializer_size() > 0)
    throw Error(ErrorCode::kUnimplemented, "sparse initializers have no counterpart");
  const std::unordered_set<std::string_view> weights = LayerWeights(graph);
  for (int i = 0; i < graph.initializer_size(); ++i) {
    const TensorProto& proto = graph.initializer(i);
    Tensor& tensor = tensors.at(static_cast<size_t>(i));
    auto value = std::make_shared<Value>();
    value->scalar = tensor.shape().rank() == 0;
    value->data_type = proto.data_type();
    const bool one_weight = !value->scalar && tensor.numel() == 1 && weights.count(proto.name());
    value->is_parameter = IsFloating(tensor.dtype()) && (tensor.numel() > 1 || one_weight);
    value->constant = Stored(std::move(tensor));
    Define(proto.name(), std::move(value));
  }
}

Values GraphImporter::ImportInner(const GraphProto& graph, const Values& inputs) {
  if (graph.input_size() != static_cast<int>(inputs.size())) {
    ThrowInvalid(fmt::format("the graph {} has {} inputs, and gets {}", Quote(graph.name()),
                             graph.input_size(), inputs.size()));
  }
  const Inside inside(state_, graph.node_size());
  GraphImporter importer(state_, opsets_, this);
  std::vector<Tensor> tensors;
  for (const auto& proto : graph.initializer())
    tensors.push_back(ParseTensorProto(proto, state_.tensors));
  importer.AddInitializers(graph, std::move(tensors));
  for (size_t i = 0; i < inputs.size(); ++i)
    importer.Define(graph.input(static_cast<int>(i)).name(), inputs[i]);
  importer.ImportNodes(graph.node());
  Values outputs;
  for (const auto& output : graph.output()) outputs.push_back(importer.Find(output.name()));
  return outputs;
}

void GraphImporter::ImportNodes(const RepeatedPtrField<NodeProto>& nodes) {
  for (const NodeProto& node : nodes) {
    CheckTimeLimit("importing an ONNX model");
    last_node_ = &node;
    state_.memory.Add(kNodeBytes, "the program of an ONNX model");
    ImportNode(node);
  }
}

namespace {

// What no dtype holds, where the importer would not be right with a wider one.
void RefuseUnsigned(const NodeContext& node) {
  const Unsigned allowed = node.row().unsigneds;
  for (size_t i = 0; i < node.NumInputs(); ++i) {
    if (!node.HasTensor(i)) continue;
    const int type = node.InValue(i).data_type;
    const bool narrow = type == TensorProto::UINT16 || type == TensorProto::UINT32;
    const bool refused = (narrow && allowed == Unsigned::kRefuse) ||
                         (type == TensorProto::UINT64 && allowed != Unsigned::kMoves);
    if (refused)
      node.Refuse(fmt::format("input {} is {}, which no dtype holds", i, DataTypeName(type)));
  }
}

}  // namespace

namespace {

// The first operator sets have attributes that change no result: which inputs may be overwritten,
// and whether an RNN's first output will be read.
void Run(NodeContext& node) {
  if (node.opset() < 7 && PlainDomain(node.node().domain()).empty()) {
    node.attributes().Ignore("consumed_inputs");
    node.attributes().Ignore("output_sequence");
  }
  node.row().import(node);
  node.attributes().RequireAllRead();
}

}  // namespace

int64_t GraphImporter::OpsetOf(const std::string& domain) const {
  const auto found = opsets_.find(domain);
  return found == opsets_.end() ? 0 : found->second;
}

void GraphImporter::ImportNode(const NodeProto& node) {
  const std::string domain = PlainDomain(node.domain());
  const int64_t opset = OpsetOf(domain);
  const std::string base = state_.name_base;
  try {
    const auto function =
        state_.functions.find(FunctionKey(domain, node.op_type(), node.overload()));
    if (function != state_.functions.end()) {
      InlineFunction(node, *function->second);
    } else {
      if (opset == 0) {
        ThrowInvalid(fmt::format("the model imports no operator set of the domain {}",
                                 Quote(domain.empty() ? "ai.onnx" : domain)));
      }
      CallImporter(node, opset);
    }
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Error& e) {
    // Of nodes in each other the innermost ones and the outermost one are named.
    constexpr size_t kEnough = 200;
    if (state_.depth > 0 && e.message().size() > kEnough) throw;
    throw e.WithPrefix(Label(node, opset));
  }
  state_.name_base = base;
}

Values GraphImporter::InputsOf(const NodeProto& node) const {
  Values inputs;
  for (const std::string& name : node.input())
    inputs.push_back(name.empty() ? nullptr : Find(name));
  return inputs;
}

void GraphImporter::CallImporter(const NodeProto& node, int64_t opset) {
  const NodeImporter& row =
      AllNodeImporters().Get(PlainDomain(node.domain()), node.op_type(), opset);
  NodeContext context(*this, node, row, opset, InputsOf(node));
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
  FinishOutputs(context, first_var, first_op);
}

// Variables that the node made get the names of its outputs.
void GraphImporter::FinishOutputs(NodeContext& node, size_t first_var, size_t first_op) {
  BlockDesc& block = state_.writer.block();
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    if (i % 64 == 63) CheckTimeLimit("importing an ONNX model");
    const std::string& name = node.node().output(static_cast<int>(i));
    const ValuePtr& value = node.outputs()[i];
    if (name.empty()) continue;
    if (!value) node.Refuse(fmt::format("output {} ({}) has no counterpart", i, Quote(name)));
    Variable& var = value->var;
    const bool made = var && !var.desc().persistable() && &var.block() == &block &&
                      var.desc().index() >= first_var;
    bool renamed = false;
    for (size_t k = 0; k < i; ++k)
      renamed |= node.outputs()[k] && node.outputs()[k]->var && made &&
                 &node.outputs()[k]->var.desc() == &var.desc();
    bool inner = false;
    for (size_t k = first_op; made && k < block.NumOps(); ++k) inner |= block.op(k).HasSubBlock();
    if (made && !renamed && !inner) {
      const std::string before = var.name(), wanted = UsableName(name);
      const std::string after = before == wanted ? before : state_.FreeName(wanted);
      if (after != before) {
        block.RenameVar(var.desc(), after);
        for (size_t k = first_op; k < block.NumOps(); ++k) {
          block.op(k).RenameInput(before, after);
          block.op(k).RenameOutput(before, after);
        }
      }
    }
    Define(name, value);
  }
}

namespace {

// More is not worth the memory, and a model from elsewhere might say a shape of any size.
constexpr int64_t kMaxFolded = 1 << 16;
constexpr uint64_t kMaxFoldingBytes = uint64_t{64} << 20;

bool IsFoldable(const NodeContext& node) {
  if (!node.row().foldable || node.NumInputs() == 0 || HasGraph(node.node())) return false;
  int64_t numel = 0;
  for (size_t i = 0; i < node.NumInputs(); ++i) {
    if (!node.HasInput(i)) continue;
    if (!node.HasTensor(i)) return false;
    const Value& value = node.InValue(i);
    if (!value.constant || value.is_parameter) return false;
    numel += value.constant->numel();
  }
  return numel <= kMaxFolded;
}

// The variables' values once the block has run; false where that takes too much memory.
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

// Imports the node into a program of its own and runs that.
bool GraphImporter::Fold(NodeContext& node) {
  if (!IsFoldable(node)) return false;
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
    results.emplace_back(name, value);
  }
  for (auto& [name, value] : results) Define(name, std::move(value));
  return true;
}

namespace {

// The node with the attributes that it takes from the caller, and from the function's defaults.
void ResolveAttributes(const NodeProto& caller, const FunctionProto& function, NodeProto* node);

void ResolveGraph(const NodeProto& caller, const FunctionProto& function, GraphProto* graph) {
  for (NodeProto& node : *graph->mutable_node()) ResolveAttributes(caller, function, &node);
}

void ResolveAttributes(const NodeProto& caller, const FunctionProto& function, NodeProto* node) {
  RepeatedPtrField<proto::onnx::AttributeProto> kept;
  for (proto::onnx::AttributeProto& attr : *node->mutable_attribute()) {
    if (attr.ref_attr_name().empty()) {
      if (attr.has_g()) ResolveGraph(caller, function, attr.mutable_g());
      *kept.Add() = attr;
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

}  // namespace

void GraphImporter::InlineFunction(const NodeProto& node, const FunctionProto& function) {
  const Inside inside(state_, function.node_size());
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
    const bool given = i < node.input_size() && !node.input(i).empty();
    body.Define(function.input(i), given ? Find(node.input(i)) : nullptr);
  }
  RepeatedPtrField<NodeProto> nodes = function.node();
  for (NodeProto& inner : nodes) ResolveAttributes(node, function, &inner);
  body.ImportNodes(nodes);
  for (int i = 0; i < node.output_size(); ++i) {
    if (!node.output(i).empty()) Define(node.output(i), body.Find(function.output(i)));
  }
}

}  // namespace coracle::onnx
