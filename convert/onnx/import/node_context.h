#pragma once
// NodeContext: gives the importer of an op type access to one node, and receives the results.
//
//   void ImportSoftsign(NodeContext& node) {
//     node.Set(0, node.Make("softsign", {{"X", {node.In(0)}}}));
//   }
//
// Errors thrown by an importer, by attributes and by the writer need not name the node: the caller
// of the importer adds "model.onnx: node 'conv1' (Conv, opset 13): ".

#include <coracle/convert/narrow.h>
#include <coracle/convert/onnx/import/attributes.h>
#include <coracle/convert/onnx/import/node_importers.h>
#include <coracle/convert/onnx/import/value.h>
#include <coracle/framework/op/writer.h>
#include <coracle/framework/tensor/half_array.h>

#include <optional>
#include <string>
#include <vector>

namespace coracle::onnx {

class GraphImporter;

class NodeContext {
 public:
  NodeContext(GraphImporter& graph, const proto::onnx::NodeProto& node, const NodeImporter& row,
              int64_t opset, Values inputs);

  const std::string& op_type() const { return node_.op_type(); }
  // The operator set of the model, for an importer of several versions.
  int64_t opset() const { return opset_; }
  const proto::onnx::NodeProto& node() const { return node_; }
  GraphImporter& graph() const { return graph_; }

  // kUnimplemented: valid ONNX, but Coracle has no counterpart.
  [[noreturn]] void Refuse(const std::string& why) const;
  // kUnimplemented: `what` is known only at run time, but the import needs it for `reason`.
  [[noreturn]] void RefuseUnknown(const std::string& what, const std::string& reason) const;
  // kInvalidArgument: invalid ONNX.
  void Require(bool right, const std::string& why) const;

  // --- inputs ---
  size_t NumInputs() const { return inputs_.size(); }
  bool HasInput(size_t i) const { return i < inputs_.size() && inputs_[i]; }
  bool HasTensor(size_t i) const { return HasInput(i) && inputs_[i]->is_tensor(); }
  // Throw kInvalidArgument for an input that is absent or of another kind.
  const Value& InValue(size_t i) const;      // a tensor
  const ValuePtr& InAny(size_t i) const;     // of any kind
  const Values& InSequence(size_t i) const;  // its elements
  // From here on, the node is computed as if its row were `composed`.
  void RoundOnce() { rounds_once_ = true; }
  // The variable of an input; a constant gets one. In a composed node, 16-bit floats are copied to
  // float32, and Set converts float32 results back to 16 bits.
  Variable In(size_t i);
  // The variable in its own dtype: for a table of which few rows are read.
  Variable OwnIn(size_t i);
  std::vector<Variable> AllInputs();
  DType dtype(size_t i) const;  // of In(i)
  int rank(size_t i) const { return InValue(i).rank(); }
  // In ONNX; -1 is unknown.
  Shape shape(size_t i) const { return InValue(i).shape(); }
  bool IsScalar(size_t i) const { return InValue(i).scalar; }

  // The elements of an input, if they are known.
  const Tensor* Constant(size_t i) const;
  // Known elements of integers (of floats), in order; otherwise std::nullopt.
  std::optional<std::vector<int64_t>> ConstantInts(size_t i) const;
  std::optional<std::vector<float>> ConstantFloats(size_t i) const;
  // The same for elements that must be known: throws kUnimplemented, which names the input
  // by `what`.
  std::vector<int64_t> KnownInts(size_t i, const char* what) const;
  std::vector<float> KnownFloats(size_t i, const char* what) const;
  int64_t KnownInt(size_t i, const char* what) const;  // the only element
  float KnownFloat(size_t i, const char* what) const;
  // Throws kInvalidArgument if the number of elements is known and is not one.
  void RequireOne(size_t i, const char* what) const;

  // --- attributes ---
  Attributes& attributes() { return attributes_; }
  bool HasAttr(const std::string& name) const { return attributes_.Has(name); }
  int64_t Int(const std::string& name, int64_t otherwise);
  int64_t Int(const std::string& name);  // must be given
  // Throw kInvalidArgument for a number outside of int32.
  int32_t Int32(const std::string& name, int64_t otherwise);
  int32_t Int32(const std::string& name);
  float Float(const std::string& name, float otherwise);
  std::string String(const std::string& name, const std::string& otherwise);
  std::vector<int64_t> Ints(const std::string& name, const std::vector<int64_t>& otherwise);
  std::vector<float> Floats(const std::string& name, const std::vector<float>& otherwise);
  bool Flag(const std::string& name, bool otherwise);             // an INT of 0 or 1
  const proto::onnx::GraphProto& Graph(const std::string& name);  // must be given
  // One of `allowed`; otherwise throws kInvalidArgument, which lists them.
  std::string OneOf(const std::string& name, const std::string& otherwise,
                    const std::vector<std::string>& allowed);
  // Axes that are an attribute up to operator set `last_attr` and input `i` after it; std::nullopt
  // if neither is given. Each is normalised to [0, rank).
  std::optional<std::vector<int32_t>> Axes(const char* name, size_t i, int last_attr, int rank);
  // An axis, possibly counted from the end, as one in [0, rank); throws kInvalidArgument if it is
  // out of range.
  int32_t Axis(int64_t axis, int rank) const;

  // --- outputs ---
  size_t NumOutputs() const { return static_cast<size_t>(node_.output_size()); }
  bool Wants(size_t i) const;
  // Sets output i to this variable, which gets the output's name if the node created it. With
  // `scalar`, the result has rank 0 in ONNX and the shape [1] here.
  void Set(size_t i, const Variable& var) { Set(i, var, false); }
  void Set(size_t i, const Variable& var, bool scalar);
  void SetValue(size_t i, Value value);  // with the value's data_type, if set
  void SetShared(size_t i, ValuePtr value);
  void SetSame(size_t i, size_t input) { SetShared(i, InAny(input)); }
  void SetConstant(size_t i, Tensor tensor, bool scalar = false);

  // --- ops ---
  const Writer& writer() const;
  Variable Make(const std::string& type, SlotList inputs, AttrList attrs = {},
                const std::string& output = "Out");
  // An op with input X and output Out.
  Variable Unary(const std::string& type, const Variable& x, AttrList attrs = {});
  Variable Binary(const std::string& type, const Variable& x, const Variable& y);
  // The same in a dtype that the op supports: unsupported integers are converted to wider ones (to
  // float64 if the op supports no integers), and the result back to their dtype.
  Variable UnaryVia(const std::string& type, const Variable& x, AttrList attrs = {});
  Variable BinaryVia(const std::string& type, const Variable& x, const Variable& y);
  DType ComputeDType(const std::string& type, DType dtype) const;
  // A free name for a variable that is output i.
  std::string OutputName(size_t i);
  // For an op with any outputs: names of its new variables.
  std::string NewName(const std::string& hint);
  Variable Cast(const Variable& x, DType dtype);
  Variable WithXShape(const std::string& type, const Variable& x, AttrList attrs);
  Variable Reshape(const Variable& x, const std::vector<int64_t>& shape);
  Variable Transpose(const Variable& x, const std::vector<int32_t>& perm);
  // A constant as a variable.
  Variable ConstantVar(const Tensor& tensor);
  template <class T>
  Variable ConstantVar(const std::vector<T>& values) {
    return ConstantVar(Tensor::Of<T>({static_cast<int64_t>(values.size())}, values));
  }
  Variable ScalarVar(DType dtype, double value);  // [1], exact
  // x broadcast to `shape` by the rules of ONNX; an unknown dim (-1) must equal that of `like`.
  Variable BroadcastTo(const Variable& x, const Shape& shape);

  // For the caller of the importer.
  const NodeImporter& row() const { return row_; }
  const Values& outputs() const { return outputs_; }

 private:
  bool IsWidened(DType dtype) const { return rounds_once_ && IsHalf(dtype); }
  DType OutputDType(DType computed) const;

  GraphImporter& graph_;
  const proto::onnx::NodeProto& node_;
  const NodeImporter& row_;
  int64_t opset_;
  Values inputs_;  // nullptr: not given
  bool rounds_once_;
  std::vector<Variable> widened_;  // float32 copies of inputs, if created
  Attributes attributes_;
  Values outputs_;
};

}  // namespace coracle::onnx
