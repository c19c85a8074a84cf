#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/export/graph.h>
#include <coracle/convert/onnx/tensors.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::onnx {
namespace {

using proto::onnx::AttributeProto;
using proto::onnx::GraphProto;
using proto::onnx::NodeProto;
using proto::onnx::ValueInfoProto;

// Names that begin with this byte are temporaries; variables given to Graph never do.
constexpr char kTemporary = '\x01';
constexpr const char* kDomains[] = {"ai.onnx.ml", "com.microsoft"};
constexpr int64_t kSmallConstant = 64;  // elements of a constant that ConstantOf knows

// Splits the domain from "ai.onnx.ml.SVMRegressor".
void SetOpType(const std::string& op_type, NodeProto* node) {
  node->set_op_type(op_type);
  for (const std::string domain : kDomains) {
    if (!op_type.starts_with(domain + ".")) continue;
    node->set_domain(domain);
    node->set_op_type(op_type.substr(domain.size() + 1));
  }
}

// In `named` shapes, an unknown dim gets a name.
void FillType(const std::string& name, DType dtype, const Shape& shape, bool named,
              ValueInfoProto* info) {
  info->set_name(name);
  auto* tensor = info->mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(ToDataType(dtype));
  auto* dims = tensor->mutable_shape();
  for (int i = 0; i < shape.rank(); ++i) {
    auto* dim = dims->add_dim();
    if (shape[i] >= 0)
      dim->set_dim_value(shape[i]);
    else if (named)
      dim->set_dim_param(name + "_dim_" + std::to_string(i));
  }
}

struct AttrWriter {
  AttributeProto* proto;
  void operator()(int64_t value) const {
    proto->set_type(AttributeProto::INT);
    proto->set_i(value);
  }
  void operator()(float value) const {
    proto->set_type(AttributeProto::FLOAT);
    proto->set_f(value);
  }
  void operator()(const std::string& value) const {
    proto->set_type(AttributeProto::STRING);
    proto->set_s(value);
  }
  void operator()(const std::vector<int64_t>& values) const {
    proto->set_type(AttributeProto::INTS);
    for (int64_t v : values) proto->add_ints(v);
  }
  void operator()(const std::vector<float>& values) const {
    proto->set_type(AttributeProto::FLOATS);
    for (float v : values) proto->add_floats(v);
  }
  void operator()(const std::vector<std::string>& values) const {
    proto->set_type(AttributeProto::STRINGS);
    for (const std::string& v : values) proto->add_strings(v);
  }
  void operator()(const GraphPtr& value) const {
    proto->set_type(AttributeProto::GRAPH);
    proto->mutable_g()->Swap(value.get());
  }
  void operator()(const Tensor& value) const {
    proto->set_type(AttributeProto::TENSOR);
    FillTensorProto(value, "", proto->mutable_t());
  }
};

}  // namespace

void NodeAttr::Write(AttributeProto* proto) const {
  proto->set_name(name_);
  std::visit(AttrWriter{proto}, value_);
}

Graph::Graph(int opset) : opset_(opset), made_in_(1) { model_.mutable_graph(); }

void Graph::Reserve(const std::string& name) {
  if (name.empty() || name[0] == kTemporary)
    ThrowInvalid("ONNX export: " + Quote(name) + " cannot be the name of a value");
  used_.insert(name);
}

Value Graph::Temporary(const std::string& hint) {
  Value value = kTemporary + std::to_string(hints_.size());
  hints_.push_back(hint);
  made_in_.back().insert(value);
  return value;
}

Values Graph::Nodes(const std::string& op_type, const Values& inputs, size_t outputs,
                    const NodeAttrs& attrs) {
  NodeProto* node = current().add_node();
  SetOpType(op_type, node);
  uses_microsoft_ |= node->domain() == "com.microsoft";
  node->set_name(op_type + "." + std::to_string(node_count_++));
  size_t given = inputs.size();
  while (given > 0 && inputs[given - 1].empty()) --given;
  for (size_t i = 0; i < given; ++i) node->add_input(inputs[i]);
  Values values;
  for (size_t i = 0; i < outputs; ++i) values.push_back(Temporary(op_type));
  for (const Value& value : values) node->add_output(value);
  for (const NodeAttr& attr : attrs) attr.Write(node->add_attribute());
  SetTypes(*node, inputs, values);
  for (size_t i = 0; i < outputs; ++i) makers_[values[i]] = {op_type, inputs, attrs, i};
  return values;
}

const Maker* Graph::MakerOf(const Value& value) const {
  const auto found = makers_.find(value);
  return found == makers_.end() ? nullptr : &found->second;
}

void Graph::SetMaker(const Value& value, const std::string& op_type, const Values& inputs) {
  makers_[value] = {op_type, inputs, {}, 0};
}

Values Graph::InputsOf(const Value& value, const std::string& op_type) const {
  const Maker* maker = MakerOf(value);
  return maker && maker->op_type == op_type ? maker->inputs : Values();
}

const Tensor* Graph::ConstantOf(const Value& value) const {
  const auto found = known_.find(value);
  return found == known_.end() ? nullptr : &found->second;
}

std::optional<Shape> Graph::ShapeOf(const Value& value) const {
  if (const Tensor* constant = ConstantOf(value)) return constant->shape();
  const auto found = shapes_.find(value);
  return found == shapes_.end() ? std::nullopt : std::optional(found->second);
}

void Graph::SetTypes(const NodeProto& node, const Values& inputs, const Values& outputs) {
  std::vector<MaybeDType> types;
  for (const Value& input : inputs) types.push_back(TypeOf(input));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (const MaybeDType type = ResultType(node, types, static_cast<int>(i)))
      SetType(outputs[i], *type);
  }
}

MaybeDType Graph::TypeOf(const Value& value) const {
  const auto found = types_.find(value);
  return found == types_.end() ? std::nullopt : MaybeDType(found->second);
}

Value Graph::Node(const std::string& op_type, const Values& inputs, const NodeAttrs& attrs) {
  return Nodes(op_type, inputs, 1, attrs)[0];
}

Value Graph::Constant(const Tensor& tensor) {
  std::string key = ToString(tensor.dtype()) + tensor.shape().ToString();
  if (tensor.dtype() == DType::kString) {
    for (const StringRef& text : tensor.span<StringRef>())
      key.append(fmt::format(" {} ", text.size)).append(text.view());
  } else {
    key.append(static_cast<const char*>(tensor.raw()), tensor.nbytes());
  }
  auto [found, is_new] = constants_.try_emplace(std::move(key));
  if (is_new) {
    found->second = kTemporary + std::to_string(hints_.size());
    hints_.emplace_back("constant");
    FillTensorProto(tensor, found->second, model_.mutable_graph()->add_initializer());
    SetType(found->second, tensor.dtype());
    if (tensor.numel() <= kSmallConstant) known_[found->second] = tensor;
  }
  return found->second;
}

Value Graph::AddParameter(const std::string& name, const Tensor& tensor) {
  SetType(name, tensor.dtype());
  known_[name] = tensor;
  parameters_.push_back({name, &tensor});
  return name;
}

Value Graph::AddPacked(const std::string& name, Tensor bytes, int data_type, const Shape& dims) {
  packed_.push_back(std::move(bytes));
  const std::string free = FreeName(name);
  parameters_.push_back({free, &packed_.back(), data_type, dims});
  return free;
}

const Parameter* Graph::FindPacked(const Value& value) const {
  const auto found = std::find_if(parameters_.begin(), parameters_.end(), [&](const Parameter& p) {
    return p.data_type != 0 && p.name == value;
  });
  return found == parameters_.end() ? nullptr : &*found;
}

Value Graph::Input(const std::string& name, DType dtype, const Shape& shape) {
  const Value value = bodies_.empty() ? name : Temporary(name);
  FillType(value, dtype, shape, bodies_.empty(), current().add_input());
  SetType(value, dtype);
  SetShape(value, shape);
  return value;
}

void Graph::BodyOutput(const Value& value, DType dtype, const Shape& shape) {
  const auto is_output = [&](const Value& v) {
    const auto& outputs = current().output();
    return std::any_of(outputs.begin(), outputs.end(),
                       [&](const ValueInfoProto& o) { return o.name() == v; });
  };
  const auto& inputs = current().input();
  const bool is_input = std::any_of(inputs.begin(), inputs.end(),
                                    [&](const ValueInfoProto& i) { return i.name() == value; });
  const bool own = made_in_.back().count(value) > 0 && !is_input && !is_output(value);
  const Value output = own ? value : Node("Identity", {value});
  FillType(output, dtype, shape, false, current().add_output());
}

void Graph::Output(const Value& value, const std::string& name, DType dtype, const Shape& shape) {
  Value output = value;
  // An input or constant cannot be an output, and a value only once.
  if (made_in_[0].count(value) == 0 || final_names_.count(value) > 0)
    output = Node("Identity", {value});
  const std::string own = FreeName(name);
  final_names_[output] = own;
  FillType(own, dtype, shape, true, model_.mutable_graph()->add_output());
}

void Graph::Enter() {
  bodies_.push_back(std::make_shared<GraphProto>());
  made_in_.emplace_back();
}

GraphPtr Graph::Leave() {
  GraphPtr body = std::move(bodies_.back());
  bodies_.pop_back();
  made_in_.pop_back();
  body->set_name("body_" + std::to_string(node_count_));
  return body;
}

std::string Graph::FreeName(const std::string& prefix) {
  std::string name = prefix;
  while (!used_.insert(name).second) name = prefix + "_" + std::to_string(++counters_[prefix]);
  return name;
}

void Graph::Rename(GraphProto* graph) {
  const auto rename = [&](std::string* name) {
    const auto found = final_names_.find(*name);
    if (found != final_names_.end()) *name = found->second;
  };
  for (auto* list : {graph->mutable_input(), graph->mutable_output()}) {
    for (ValueInfoProto& info : *list) rename(info.mutable_name());
  }
  for (auto& tensor : *graph->mutable_initializer()) rename(tensor.mutable_name());
  for (NodeProto& node : *graph->mutable_node()) {
    for (std::string& name : *node.mutable_input()) rename(&name);
    for (std::string& name : *node.mutable_output()) rename(&name);
    for (AttributeProto& attr : *node.mutable_attribute()) {
      if (attr.has_g()) Rename(attr.mutable_g());
    }
  }
}

namespace {

// Keeps elements [i] of a list for which keep[i].
template <class List>
void KeepOnly(const std::vector<bool>& keep, List* list) {
  int kept = 0;
  for (int i = 0; i < list->size(); ++i)
    if (keep[static_cast<size_t>(i)]) list->SwapElements(kept++, i);
  list->DeleteSubrange(kept, list->size() - kept);
}

// Removes the nodes of a graph whose results are not `read`, and adds what the other ones read.
void RemoveUnread(GraphProto* graph, std::unordered_set<std::string>* read) {
  for (const ValueInfoProto& output : graph->output()) read->insert(output.name());
  std::vector<bool> keep(static_cast<size_t>(graph->node_size()));
  for (int i = graph->node_size() - 1; i >= 0; --i) {
    NodeProto& node = *graph->mutable_node(i);
    const auto is_read = [&](const std::string& name) { return read->contains(name); };
    keep[static_cast<size_t>(i)] = std::any_of(node.output().begin(), node.output().end(), is_read);
    if (!keep[static_cast<size_t>(i)]) continue;
    read->insert(node.input().begin(), node.input().end());
    for (AttributeProto& attr : *node.mutable_attribute())
      if (attr.has_g()) RemoveUnread(attr.mutable_g(), read);
  }
  KeepOnly(keep, graph->mutable_node());
  keep.clear();
  for (const auto& tensor : graph->initializer()) keep.push_back(read->contains(tensor.name()));
  KeepOnly(keep, graph->mutable_initializer());
}

}  // namespace

void Graph::Finish() {
  std::unordered_set<std::string> read;
  for (const auto& [value, name] : final_names_) read.insert(value);  // outputs
  RemoveUnread(model_.mutable_graph(), &read);
  std::erase_if(parameters_, [&](const Parameter& parameter) {
    return parameter.data_type != 0 && !read.contains(parameter.name);
  });
  for (auto named = names_.rbegin(); named != names_.rend(); ++named) {
    const auto& [value, name] = *named;
    if (value[0] != kTemporary || final_names_.count(value) > 0) continue;
    final_names_[value] = FreeName(name);
  }
  for (size_t i = 0; i < hints_.size(); ++i) {
    const Value value = kTemporary + std::to_string(i);
    if (final_names_.count(value) == 0) final_names_[value] = FreeName(hints_[i] + ".out");
  }
  Rename(model_.mutable_graph());
}

}  // namespace coracle::onnx
