#pragma once
// OpContext: access of an op's exporter to the op and to the graph.

#include <coracle/convert/onnx/export/graph.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_def.h>

#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace coracle::onnx {

using Ints = std::vector<int64_t>;

class ProgramExporter;

// Thrown by an op that needs a later operator set than the graph has, if the caller of the export
// did not choose the set. The export starts again with `least`.
struct OpsetNeeded {
  int least;
  std::string reason;  // "attr allow_zero in block 0 op 3 (reshape2 of 'y')"
};

class OpContext {
 public:
  // Construct it before the shape rule of the op runs.
  OpContext(ProgramExporter& exporter, const OpSpec& spec, const OpDesc& op);

  const OpDesc& op() const { return op_; }
  int opset() const { return graph_.opset(); }
  ProgramExporter& exporter() { return exporter_; }

  // --- attrs and slots of the op ---
  template <class T>
  T Attr(std::string_view name) const {
    return spec_.AttrOf<T>(op_, name);
  }
  Ints IntsAttr(std::string_view name) const { return Attr<Ints>(name); }
  // Says that an input slot does not change what inference computes.
  void Ignore(std::string_view slot) const { asked_.emplace(slot); }
  bool Has(std::string_view slot) const {
    asked_.emplace(slot);
    return op_.HasInput(slot);
  }
  bool Wants(std::string_view slot) const { return op_.HasOutput(slot); }
  size_t NumInputs(std::string_view slot) const {
    asked_.emplace(slot);
    return op_.Input(slot).size();
  }
  size_t NumOutputs(std::string_view slot) const { return op_.Output(slot).size(); }

  // --- operands ---
  Value In(std::string_view slot, size_t i = 0);
  Values Ins(std::string_view slot);
  // Types of the variables when the op runs; a dim of -1 is unknown before the run.
  const VarMeta& Meta(std::string_view slot, size_t i = 0) const;
  const VarMeta& OutMeta(std::string_view slot, size_t i = 0) const;
  const Shape& InShape(std::string_view slot, size_t i = 0) const { return Meta(slot, i).shape; }
  const Shape& OutShape(std::string_view slot, size_t i = 0) const {
    return OutMeta(slot, i).shape;
  }
  int Rank(std::string_view slot, size_t i = 0) const { return InShape(slot, i).rank(); }
  DType InType(std::string_view slot, size_t i = 0) const { return Meta(slot, i).dtype; }
  DType OutType(std::string_view slot, size_t i = 0) const { return OutMeta(slot, i).dtype; }
  // Converts an axis, possibly counted from the end, to [0, rank).
  int64_t Axis(int64_t axis, int rank) const;

  // Sets the value of the op's output variable. Does nothing if the op has no such variable.
  void Out(std::string_view slot, const Value& value, size_t i = 0);

  // --- nodes and constants ---
  //
  // Throws for an element type that ONNX's op does not accept.
  Value Node(const std::string& op_type, const Values& inputs, const NodeAttrs& attrs = {}) {
    return Nodes(op_type, inputs, 1, attrs)[0];
  }
  Values Nodes(const std::string& op_type, const Values& inputs, size_t outputs,
               const NodeAttrs& attrs = {});
  Value Constant(const Tensor& tensor) { return graph_.Constant(tensor); }
  Value Scalar(double value, DType dtype);  // rank 0; truncated to an integer dtype
  Value IntList(const Ints& values);        // int64 vector
  Value Int(int64_t value);                 // int64, rank 0

  // --- small compositions ---
  Value Cast(const Value& value, DType from, DType to);  // the value itself if they are equal
  Value Reshape(const Value& value, const Ints& dims);   // 0: that dim of value, -1: inferred
  // A dim of 0 means an empty dim.
  Value ReshapeExactly(const Value& value, const Value& dims);
  Value Unsqueeze(const Value& value, const Ints& axes);
  Value Squeeze(const Value& value, const Ints& axes);
  Value Transpose(const Value& value, const Ints& permutation);
  // Swaps the last two dims of a value of this rank; a vector stays as it is.
  Value SwapLast(const Value& value, int rank);
  Value Slice(const Value& value, int64_t axis, int64_t start, int64_t end);
  Value Concat(const Values& values, int64_t axis);
  // The dims of a value as an int64 vector, and some of them: [begin, end).
  Value ShapeOf(const Value& value) { return Node("Shape", {value}); }
  Value DimsOf(const Value& value, int64_t begin, int64_t end);
  // ReduceSum and similar ops, whose axes used to be an attribute. No axes: all.
  Value Reduce(const std::string& op_type, const Value& value, const Ints& axes, bool keep_dims);
  // Integers from one-element tensors, or from one tensor, as an int64 vector; if neither is given,
  // from the attr. `list` and `tensor` may be "".
  Value IntsFrom(std::string_view list, std::string_view tensor, std::string_view attr);
  bool GivenByTensors(std::string_view list, std::string_view tensor) const {
    const bool by_list = Has(list), by_tensor = Has(tensor);
    return by_list || by_tensor;
  }
  // A tensor of one element as a scalar.
  Value AsScalar(const Value& value) { return Reshape(value, {}); }

  // --- refusals: name the op, its place and the reason ---
  [[noreturn]] void Refuse(const std::string& why) const;
  void Require(bool holds, const std::string& why) const {
    if (!holds) Refuse(why);
  }
  // Throws OpsetNeeded, or refuses the op if the caller of the export chose the operator set.
  void RequireOpset(int least, const std::string& what) const;
  // Throws OpsetNeeded unless the caller of the export chose the operator set: for an op that an
  // earlier set writes in more bytes.
  void PreferOpset(int least, const std::string& what) const;
  // Refuses an op with an input that its exporter did not look at: the model would ignore it.
  void RequireAllInputsAsked() const;
  // The rows of the tensor must be one sequence: LoD has no counterpart.
  void RequireOneSequence(std::string_view slot, size_t i = 0) const;

 private:
  void RequireType(const std::string& op_type, DType dtype) const;

  ProgramExporter& exporter_;
  Graph& graph_;
  const OpSpec& spec_;
  const OpDesc& op_;
  std::unordered_map<std::string, VarMeta> before_;   // types of the inputs
  mutable std::set<std::string, std::less<>> asked_;  // input slots
};

// The exporter of one op type.
struct ExportRow {
  const char* op_type;
  void (*run)(OpContext& op);
  const char* maps_to;  // for documentation: "Conv", "Erf, Mul, Add"
};
using ExportRows = std::span<const ExportRow>;

}  // namespace coracle::onnx
