#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/import/graph_importer.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/framework/base/text.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace coracle::onnx {

NodeContext::NodeContext(GraphImporter& graph, const proto::onnx::NodeProto& node,
                         const NodeImporter& row, int64_t opset, Values inputs)
    : graph_(graph),
      node_(node),
      row_(row),
      opset_(opset),
      inputs_(std::move(inputs)),
      rounds_once_(row.composed),
      attributes_(node),
      outputs_(static_cast<size_t>(node.output_size())) {}

void NodeContext::Refuse(const std::string& why) const {
  throw Error(ErrorCode::kUnimplemented, why);
}

void NodeContext::RefuseUnknown(const std::string& what, const std::string& reason) const {
  Refuse(
      fmt::format("{} is known only at run time, but decides {}: give the inputs' shapes with "
                  "--shape",
                  what, reason));
}

void NodeContext::Require(bool right, const std::string& why) const {
  if (!right) ThrowInvalid(why);
}

const ValuePtr& NodeContext::InAny(size_t i) const {
  if (!HasInput(i)) ThrowInvalid(fmt::format("input {} is missing", i));
  return inputs_[i];
}

const Value& NodeContext::InValue(size_t i) const {
  const ValuePtr& value = InAny(i);
  Require(value->is_tensor(), fmt::format("input {} must be a tensor", i));
  return *value;
}

const Values& NodeContext::InSequence(size_t i) const {
  const ValuePtr& value = InAny(i);
  Require(value->elements != nullptr, fmt::format("input {} must be a sequence", i));
  return *value->elements;
}

Variable NodeContext::OwnIn(size_t i) {
  InValue(i);
  const Variable var = graph_.state().VarOf(*inputs_[i], node_.input(static_cast<int>(i)));
  return writer().Var(var.block(), var.desc());
}

Variable NodeContext::In(size_t i) {
  const Variable own = OwnIn(i);
  if (!IsWidened(own.dtype())) return own;
  widened_.resize(inputs_.size());
  if (!widened_[i]) widened_[i] = Cast(own, DType::kFloat32);
  return widened_[i];
}

DType NodeContext::dtype(size_t i) const {
  const DType own = InValue(i).dtype();
  return IsWidened(own) ? DType::kFloat32 : own;
}

// The results of a composed node have the dtype of its first floating-point input.
DType NodeContext::OutputDType(DType computed) const {
  if (!rounds_once_ || computed != DType::kFloat32) return computed;
  for (const ValuePtr& input : inputs_) {
    if (!input || !input->is_tensor() || !IsFloating(input->dtype())) continue;
    return IsHalf(input->dtype()) ? input->dtype() : computed;
  }
  return computed;
}

std::vector<Variable> NodeContext::AllInputs() {
  std::vector<Variable> vars;
  for (size_t i = 0; i < NumInputs(); ++i) vars.push_back(In(i));
  return vars;
}

const Tensor* NodeContext::Constant(size_t i) const {
  const Value& value = InValue(i);
  return value.constant ? &*value.constant : nullptr;
}

std::optional<std::vector<int64_t>> NodeContext::ConstantInts(size_t i) const {
  const Tensor* tensor = Constant(i);
  if (!tensor) return std::nullopt;
  Require(!IsFloating(tensor->dtype()) && !IsComplex(tensor->dtype()),
          fmt::format("input {} must hold integers, got {}", i, ToString(tensor->dtype())));
  const Tensor wide = tensor->Cast(DType::kInt64);
  const auto values = wide.span<int64_t>();
  return std::vector<int64_t>(values.begin(), values.end());
}

std::optional<std::vector<float>> NodeContext::ConstantFloats(size_t i) const {
  const Tensor* tensor = Constant(i);
  if (!tensor) return std::nullopt;
  const Tensor wide = tensor->Cast(DType::kFloat32);
  const auto values = wide.span<float>();
  return std::vector<float>(values.begin(), values.end());
}

std::vector<int64_t> NodeContext::KnownInts(size_t i, const char* what) const {
  if (auto values = ConstantInts(i)) return *values;
  graph_.state().unknown_value = node_.input(static_cast<int>(i));
  Refuse(
      fmt::format("{} (input {}, {}) must be a constant: give the inputs' shapes with --shape if "
                  "it follows from them",
                  what, i, Quote(node_.input(static_cast<int>(i)))));
}

std::vector<float> NodeContext::KnownFloats(size_t i, const char* what) const {
  if (auto values = ConstantFloats(i)) return *values;
  graph_.state().unknown_value = node_.input(static_cast<int>(i));
  Refuse(
      fmt::format("{} (input {}, {}) must be a constant: give the inputs' shapes with --shape if "
                  "it follows from them",
                  what, i, Quote(node_.input(static_cast<int>(i)))));
}

int64_t NodeContext::KnownInt(size_t i, const char* what) const {
  RequireOne(i, what);
  return KnownInts(i, what).front();
}

float NodeContext::KnownFloat(size_t i, const char* what) const {
  RequireOne(i, what);
  return KnownFloats(i, what).front();
}

void NodeContext::RequireOne(size_t i, const char* what) const {
  const Shape& shape = InValue(i).stored_shape();
  Require(!shape.IsKnown() || shape.numel() == 1,
          fmt::format("{} (input {}) must have one element, got {}", what, i, shape.ToString()));
}

int64_t NodeContext::Int(const std::string& name, int64_t otherwise) {
  return attributes_.Int(name).value_or(otherwise);
}

int64_t NodeContext::Int(const std::string& name) {
  const std::optional<int64_t> value = attributes_.Int(name);
  Require(value.has_value(), fmt::format("attribute {} is missing", name));
  return *value;
}

int32_t NodeContext::Int32(const std::string& name, int64_t otherwise) {
  return ToInt32(Int(name, otherwise), "attribute " + name);
}

int32_t NodeContext::Int32(const std::string& name) {
  return ToInt32(Int(name), "attribute " + name);
}

float NodeContext::Float(const std::string& name, float otherwise) {
  return attributes_.Float(name).value_or(otherwise);
}

std::string NodeContext::String(const std::string& name, const std::string& otherwise) {
  return attributes_.String(name).value_or(otherwise);
}

std::vector<int64_t> NodeContext::Ints(const std::string& name,
                                       const std::vector<int64_t>& otherwise) {
  return attributes_.Ints(name).value_or(otherwise);
}

std::vector<float> NodeContext::Floats(const std::string& name,
                                       const std::vector<float>& otherwise) {
  return attributes_.Floats(name).value_or(otherwise);
}

bool NodeContext::Flag(const std::string& name, bool otherwise) {
  const int64_t value = Int(name, otherwise ? 1 : 0);
  Require(value == 0 || value == 1,
          fmt::format("attribute {} must be 0 or 1, got {}", name, value));
  return value == 1;
}

std::string NodeContext::OneOf(const std::string& name, const std::string& otherwise,
                               const std::vector<std::string>& allowed) {
  const std::string value = String(name, otherwise);
  Require(
      std::find(allowed.begin(), allowed.end(), value) != allowed.end(),
      fmt::format("attribute {} must be {}, got {}", name, Join(allowed, " or "), Quote(value)));
  return value;
}

const proto::onnx::GraphProto& NodeContext::Graph(const std::string& name) {
  const proto::onnx::GraphProto* graph = attributes_.Graph(name);
  Require(graph != nullptr, fmt::format("attribute {} is missing", name));
  return *graph;
}

std::optional<std::vector<int32_t>> NodeContext::Axes(const char* name, size_t i, int last_attr,
                                                      int rank) {
  std::optional<std::vector<int64_t>> axes;
  if (opset_ <= last_attr)
    axes = attributes_.Ints(name);
  else if (HasInput(i))
    axes = KnownInts(i, name);
  if (!axes) return std::nullopt;
  std::vector<int32_t> normal;
  for (int64_t axis : *axes) normal.push_back(Axis(axis, rank));
  return normal;
}

int32_t NodeContext::Axis(int64_t axis, int rank) const {
  Require(axis >= -rank && axis < rank,
          fmt::format("axis {} does not exist in a tensor of rank {}", axis, rank));
  return ToInt32(axis < 0 ? axis + rank : axis, "an axis");
}

bool NodeContext::Wants(size_t i) const {
  return i < NumOutputs() && !node_.output(static_cast<int>(i)).empty();
}

void NodeContext::Set(size_t i, const Variable& var, bool scalar) {
  SetValue(i, {.var = var, .scalar = scalar});
}

void NodeContext::SetConstant(size_t i, Tensor tensor, bool scalar) {
  if (tensor.shape().rank() == 0) {
    tensor = tensor.Reshaped({1});
    scalar = true;
  }
  SetValue(i, {.constant = std::move(tensor), .scalar = scalar});
}

namespace {

// The bit mask of an unsigned type that is held in a wider one.
std::optional<double> MaskOf(int data_type) {
  if (data_type == proto::onnx::TensorProto::UINT16) return 65535.0;
  if (data_type == proto::onnx::TensorProto::UINT32) return 4294967295.0;
  return std::nullopt;
}

}  // namespace

void NodeContext::SetValue(size_t i, Value value) {
  if (i >= outputs_.size()) return;
  if (value.data_type == 0 && value.is_tensor()) {
    const DType dtype = OutputDType(value.dtype());
    if (value.constant && value.dtype() != dtype) value.constant = value.constant->Cast(dtype);
    if (value.var) value.var = Cast(value.var, dtype);
    value.data_type = ToDataType(value.dtype());
    if (row_.unsigneds != Unsigned::kRefuse) {
      const auto found = std::find_if(inputs_.begin(), inputs_.end(), [&](const ValuePtr& input) {
        return input && input->is_tensor() && input->dtype() == value.dtype();
      });
      if (found != inputs_.end()) value.data_type = (*found)->data_type;
    }
    const std::optional<double> mask = MaskOf(value.data_type);
    if (row_.unsigneds == Unsigned::kWraps && mask && value.var)
      value.var = Binary("bitwise_and", value.var, ScalarVar(value.dtype(), *mask));
  }
  outputs_[i] = std::make_shared<Value>(std::move(value));
}

void NodeContext::SetShared(size_t i, ValuePtr value) {
  if (i < outputs_.size()) outputs_[i] = std::move(value);
}

const Writer& NodeContext::writer() const { return graph_.state().writer; }

Variable NodeContext::Make(const std::string& type, SlotList inputs, AttrList attrs,
                           const std::string& output) {
  return writer().Make(type, std::move(inputs), std::move(attrs), output);
}

Variable NodeContext::Unary(const std::string& type, const Variable& x, AttrList attrs) {
  return Make(type, {{"X", {x.name()}}}, std::move(attrs));
}

Variable NodeContext::Binary(const std::string& type, const Variable& x, const Variable& y) {
  return Make(type, {{"X", {x.name()}}, {"Y", {y.name()}}});
}

DType NodeContext::ComputeDType(const std::string& type, DType dtype) const {
  const OpSpec& def = writer().ops().Get(type);
  if (dtype == DType::kUInt64 && !def.kernel_dtypes.empty() && !def.HasLoopFor(dtype))
    Refuse(fmt::format("the op {} has no kernel for uint64", type));
  if (IsFloating(dtype) || IsComplex(dtype) || def.kernel_dtypes.empty() || def.HasLoopFor(dtype))
    return dtype;
  for (DType wider : {DType::kInt32, DType::kInt64}) {
    if (SizeOf(wider) >= SizeOf(dtype) && def.HasLoopFor(wider)) return wider;
  }
  return DType::kFloat64;
}

Variable NodeContext::UnaryVia(const std::string& type, const Variable& x, AttrList attrs) {
  const DType dtype = ComputeDType(type, x.dtype());
  return Cast(Unary(type, Cast(x, dtype), std::move(attrs)), x.dtype());
}

Variable NodeContext::BinaryVia(const std::string& type, const Variable& x, const Variable& y) {
  const DType dtype = ComputeDType(type, x.dtype());
  return Cast(Binary(type, Cast(x, dtype), Cast(y, dtype)), x.dtype());
}

std::string NodeContext::NewName(const std::string& hint) {
  return graph_.state().program.UniqueName(graph_.state().name_base + "." + hint);
}

std::string NodeContext::OutputName(size_t i) {
  if (!Wants(i)) return NewName("unused");
  return graph_.state().FreeName(UsableName(node_.output(static_cast<int>(i))));
}

Variable NodeContext::Cast(const Variable& x, DType dtype) {
  if (x.dtype() != dtype && (x.dtype() == DType::kString || dtype == DType::kString))
    Refuse("strings, with which the op does not compute");
  if (x.dtype() == DType::kUInt64 && dtype != DType::kUInt64 && dtype != DType::kBool)
    Refuse("uint64, whose large elements the op would not compute exactly");
  return x.dtype() == dtype ? x : Unary("cast", x, CastAttrs(x.dtype(), dtype));
}

// reshape2, transpose2 and similar ops: their XShape keeps X's shape for Paddle's gradient ops.
Variable NodeContext::WithXShape(const std::string& type, const Variable& x, AttrList attrs) {
  const std::string out = NewName(type);
  writer().Append(type, {{"X", {x.name()}}}, {{"Out", {out}}, {"XShape", {out + ".xshape"}}},
                  std::move(attrs));
  return writer().Var(out);
}

Variable NodeContext::Reshape(const Variable& x, const std::vector<int64_t>& shape) {
  if (x.shape().IsKnown() && x.shape().ToVector() == shape) return x;
  return WithXShape("reshape2", x, {{"shape", ToInt32(shape, "a dimension")}});
}

Variable NodeContext::Transpose(const Variable& x, const std::vector<int32_t>& perm) {
  return WithXShape("transpose2", x, {{"axis", perm}});
}

Variable NodeContext::ConstantVar(const Tensor& tensor) {
  Value value{.constant = tensor};
  const Variable var = graph_.state().VarOf(value, NewName("constant"));
  return writer().Var(var.block(), var.desc());
}

Variable NodeContext::ScalarVar(DType dtype, double value) {
  return FillConstant(writer(), dtype, value);
}

Variable NodeContext::BroadcastTo(const Variable& x, const Shape& shape) {
  if (x.shape().IsKnown() && x.shape() == shape) return x;
  if (!shape.IsKnown()) Refuse("a tensor is broadcast to a shape that is not known");
  return Unary("expand_v2", x, {{"shape", ToInt32(shape.ToVector(), "a dimension")}});
}

}  // namespace coracle::onnx
