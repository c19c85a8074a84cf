#include <coracle/convert/models.h>
#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/export/op_context.h>
#include <coracle/convert/onnx/export/program_exporter.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

namespace coracle::onnx {

OpContext::OpContext(ProgramExporter& exporter, const OpSpec& spec, const OpDesc& op)
    : exporter_(exporter), graph_(exporter.graph()), spec_(spec), op_(op) {
  op.ForEachInput([&](const std::string& name) { before_[name] = exporter.MetaOf(op, name); });
}

Value OpContext::In(std::string_view slot, size_t i) {
  asked_.emplace(slot);
  const auto& names = op_.Input(slot);
  if (i >= names.size() || IsEmptyName(names[i])) return "";
  return exporter_.ValueOf(op_, names[i]);
}

Values OpContext::Ins(std::string_view slot) {
  Values values;
  for (size_t i = 0; i < NumInputs(slot); ++i) values.push_back(In(slot, i));
  return values;
}

const VarMeta& OpContext::Meta(std::string_view slot, size_t i) const {
  asked_.emplace(slot);
  const auto& names = op_.Input(slot);
  if (i >= names.size())
    throw InternalError(fmt::format("{} has no input {} {}", op_.type(), slot, i));
  return before_.at(names[i]);
}

const VarMeta& OpContext::OutMeta(std::string_view slot, size_t i) const {
  const auto& names = op_.Output(slot);
  if (i >= names.size())
    throw InternalError(fmt::format("{} has no output {} {}", op_.type(), slot, i));
  return exporter_.MetaOf(op_, names[i]);
}

void OpContext::RequireAllInputsAsked() const {
  op_.ForEachInput([&](const std::string& name, const std::string& slot) {
    if (asked_.count(slot) == 0 && !IsEmptyName(name))
      Refuse(fmt::format(
          "its input {} ({}) has no counterpart; leave it out or set the attr in its place", slot,
          Quote(name)));
  });
}

int64_t OpContext::Axis(int64_t axis, int rank) const { return axis < 0 ? axis + rank : axis; }

void OpContext::Out(std::string_view slot, const Value& value, size_t i) {
  const auto& names = op_.Output(slot);
  if (i < names.size() && !IsEmptyName(names[i])) exporter_.Bind(op_, names[i], value);
}

Values OpContext::Nodes(const std::string& op_type, const Values& inputs, size_t outputs,
                        const NodeAttrs& attrs) {
  const Values values = graph_.Nodes(op_type, inputs, outputs, attrs);
  const Values& typed = IsTypedByResult(op_type) ? values : inputs;
  const MaybeDType type = typed.empty() ? std::nullopt : graph_.TypeOf(typed[0]);
  if (type) RequireType(op_type, *type);
  return values;
}

void OpContext::RequireType(const std::string& op_type, DType dtype) const {
  for (int version = opset(); version <= kLatestOnnxOpset; ++version) {
    if (TakesType(op_type, version, dtype))
      return RequireOpset(version, fmt::format("ONNX's {} of {}", op_type, ToString(dtype)));
  }
  Refuse(fmt::format("ONNX's {} takes no {}", op_type, ToString(dtype)));
}

Value OpContext::Scalar(double value, DType dtype) {
  return Constant(Tensor::Of<double>({}, {value}).Cast(dtype));
}

Value OpContext::IntList(const Ints& values) {
  return Constant(Tensor::Of<int64_t>({static_cast<int64_t>(values.size())}, values));
}

Value OpContext::Int(int64_t value) { return Constant(Tensor::Of<int64_t>({}, {value})); }

Value OpContext::Cast(const Value& value, DType from, DType to) {
  return from == to ? value : Node("Cast", {value}, {{"to", ToDataType(to)}});
}

Value OpContext::Reshape(const Value& value, const Ints& dims) {
  return Node("Reshape", {value, IntList(dims)});
}

Value OpContext::ReshapeExactly(const Value& value, const Value& dims) {
  return opset() >= 14 ? Node("Reshape", {value, dims}, {{"allowzero", 1}})
                       : Node("Reshape", {value, dims});
}

Value OpContext::Unsqueeze(const Value& value, const Ints& axes) {
  return axes.empty() ? value : Node("Unsqueeze", {value, IntList(axes)});
}

Value OpContext::Squeeze(const Value& value, const Ints& axes) {
  return axes.empty() ? value : Node("Squeeze", {value, IntList(axes)});
}

Value OpContext::Transpose(const Value& value, const Ints& permutation) {
  for (size_t i = 0; i < permutation.size(); ++i) {
    if (permutation[i] != static_cast<int64_t>(i))
      return Node("Transpose", {value}, {{"perm", permutation}});
  }
  return value;
}

Value OpContext::SwapLast(const Value& value, int rank) {
  if (rank < 2) return value;
  Ints permutation;
  for (int i = 0; i < rank - 2; ++i) permutation.push_back(i);
  permutation.push_back(rank - 1);
  permutation.push_back(rank - 2);
  return Transpose(value, permutation);
}

Value OpContext::Slice(const Value& value, int64_t axis, int64_t start, int64_t end) {
  return Node("Slice", {value, IntList({start}), IntList({end}), IntList({axis})});
}

Value OpContext::Concat(const Values& values, int64_t axis) {
  return values.size() == 1 ? values[0] : Node("Concat", values, {{"axis", axis}});
}

Value OpContext::DimsOf(const Value& value, int64_t begin, int64_t end) {
  return Slice(ShapeOf(value), 0, begin, end);
}

Value OpContext::Reduce(const std::string& op_type, const Value& value, const Ints& axes,
                        bool keep_dims) {
  NodeAttrs attrs = {{"keepdims", keep_dims}};
  const bool as_input = op_type == "ReduceSum" || opset() >= 18;
  if (as_input) return Node(op_type, {value, axes.empty() ? "" : IntList(axes)}, attrs);
  if (!axes.empty()) attrs.emplace_back("axes", axes);
  return Node(op_type, {value}, attrs);
}

Value OpContext::IntsFrom(std::string_view list, std::string_view tensor, std::string_view attr) {
  if (GivenByTensors(list, tensor) && Has(list)) {
    Values parts;
    for (size_t i = 0; i < NumInputs(list); ++i)
      parts.push_back(Reshape(Cast(In(list, i), InType(list, i), DType::kInt64), {1}));
    return Concat(parts, 0);
  }
  if (Has(tensor)) return Reshape(Cast(In(tensor), InType(tensor), DType::kInt64), {-1});
  return IntList(IntsAttr(attr));
}

void OpContext::Refuse(const std::string& why) const { exporter_.Refuse(op_, why); }

void OpContext::RequireOneSequence(std::string_view slot, size_t i) const {
  if (!exporter_.one_sequence()) {
    Refuse(
        "LoD has no counterpart; --one_sequence (OnnxExportOptions::one_sequence) makes a model "
        "that takes one sequence a run");
  }
  const int levels = Meta(slot, i).lod_level;
  Require(levels == 1,
          fmt::format("{} must be a sequence (one level of LoD), got {} levels{}", slot, levels,
                      levels == 0 ? "; a reshape that may change the number of rows "
                                    "drops LoD"
                                  : ""));
}

void OpContext::RequireOpset(int least, const std::string& what) const {
  if (opset() >= least) return;
  if (least > kLatestOnnxOpset) {
    Refuse(fmt::format("{} needs opset {}, and the latest one that is written is {}", what, least,
                       kLatestOnnxOpset));
  }
  PreferOpset(least, what);
  Refuse(
      fmt::format("{} needs opset {} or later, got {}; leave out --opset "
                  "(OnnxExportOptions::opset), or give --opset={}",
                  what, least, opset(), least));
}

void OpContext::PreferOpset(int least, const std::string& what) const {
  if (opset() < least && exporter_.may_raise_opset())
    throw OpsetNeeded{least, fmt::format("{} in {}", what, exporter_.PlaceOf(op_))};
}

}  // namespace coracle::onnx
