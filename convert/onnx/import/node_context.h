#pragma once
// NodeContext: what the importer of an op type sees of one node, and where it puts what the node
// becomes.
//
//   void ImportSoftsign(NodeContext& node) { node.Set(0, node.Make("softsign", {{"X",
//   {node.In(0)}}})); }
//
// Errors thrown by an importer, by attributes and by the writer need not name the node: who calls
// the importer adds "model.onnx: node 'conv1' (Conv, opset 13): ".

#include <coracle/convert/narrow.h>
#include <coracle/framework/op/writer.h>
#include <coracle/framework/tensor/half_array.h>

#include <optional>
#include <string>
#include <vector>

#include "attributes.h"
#include "node_importers.h"
#include "value.h"

namespace coracle::onnx {

class GraphImporter;

class NodeContext {
 public:
  NodeContext(GraphImporter& graph, const proto::onnx::NodeProto& node, const NodeImporter& row,
              int64_t opset, Values inputs);

  const std::string& op_type() const { return node_.op_type(); }
  // The operator set in force, for an importer of several versions.
  int64_t opset() const { return opset_; }
  const proto::onnx::NodeProto& node() const { return node_; }
  GraphImporter& graph() const { return graph_; }

  // kUnimplemented: right in ONNX, but Coracle has nothing for it.
  [[noreturn]] void Refuse(const std::string& why) const;
  // kInvalidArgument: wrong in ONNX.
  void Require(bool right, const std::string& why) const;

  // --- inputs ---
  size_t NumInputs() const { return inputs_.size(); }
  bool HasInput(size_t i) const { return i < inputs_.size() && inputs_[i]; }
  bool HasTensor(size_t i) const { return HasInput(i) && inputs_[i]->is_tensor(); }
  // Throw kInvalidArgument for an input that is not given, or is none of that kind.
  const Value& InValue(size_t i) const;      // a tensor
  const ValuePtr& InAny(size_t i) const;     // of any kind
  const Values& InSequence(size_t i) const;  // its elements
  // From here on the node is computed as one whose row is `composed`.
  void RoundOnce() { rounds_once_ = true; }
  // The variable; a constant gets one. Of floats of 16 bits in a composed node it is a float32
  // copy, and what Set is given in float32 becomes 16 bits again.
  Variable In(size_t i);
  Variable OwnIn(size_t i);  // in its own dtype: for a table of which few rows are read
  std::vector<Variable> AllInputs();
  DType dtype(size_t i) const;  // that of In(i)
  int rank(size_t i) const { return InValue(i).rank(); }
  Shape shape(size_t i) const { return InValue(i).shape(); }  // ONNX's; -1: not known
  bool IsScalar(size_t i) const { return InValue(i).scalar; }

  // The elements of an input, where they are known.
  const Tensor* Constant(size_t i) const;
  // Those of integers (of floats), in order; std::nullopt where they are not known.
  std::optional<std::vector<int64_t>> ConstantInts(size_t i) const;
  std::optional<std::vector<float>> ConstantFloats(size_t i) const;
  // The same, which must be known: kUnimplemented names the input by `what`.
  std::vector<int64_t> KnownInts(size_t i, const char* what) const;
  std::vector<float> KnownFloats(size_t i, const char* what) const;
  int64_t KnownInt(size_t i, const char* what) const;  // the only one
  float KnownFloat(size_t i, const char* what) const;
  // Throws kInvalidArgument where the input is known to have more or fewer elements than one.
  void RequireOne(size_t i, const char* what) const;

  // --- attributes ---
  Attributes& attributes() { return attributes_; }
  bool HasAttr(const std::string& name) const { return attributes_.Has(name); }
  int64_t Int(const std::string& name, int64_t otherwise);
  int64_t Int(const std::string& name);  // must be given
  // Throw kInvalidArgument for a number that is none of int32.
  int32_t Int32(const std::string& name, int64_t otherwise);
  int32_t Int32(const std::string& name);
  float Float(const std::string& name, float otherwise);
  std::string String(const std::string& name, const std::string& otherwise);
  std::vector<int64_t> Ints(const std::string& name, const std::vector<int64_t>& otherwise);
  std::vector<float> Floats(const std::string& name, const std::vector<float>& otherwise);
  bool Flag(const std::string& name, bool otherwise);             // an INT of 0 or 1
  const proto::onnx::GraphProto& Graph(const std::string& name);  // must be given
  // One of `allowed`; otherwise throws kInvalidArgument that names them.
  std::string OneOf(const std::string& name, const std::string& otherwise,
                    const std::vector<std::string>& allowed);
  // Axes that are an attribute up to operator set `last_attr` and input `i` after it; std::nullopt
  // where neither is given. Each is brought into [0, rank).
  std::optional<std::vector<int32_t>> Axes(const char* name, size_t i, int last_attr, int rank);
  // An axis, negative ones counted from the end, in [0, rank); throws kInvalidArgument otherwise.
  int32_t Axis(int64_t axis, int rank) const;

  // --- outputs ---
  size_t NumOutputs() const { return static_cast<size_t>(node_.output_size()); }
  bool Wants(size_t i) const;
  // Output i is this variable, which gets its name if the node made it. The other form is for
  // results that have rank 0 in ONNX and the shape [1] here.
  void Set(size_t i, const Variable& var) { Set(i, var, false); }
  void Set(size_t i, const Variable& var, bool scalar);
  void SetValue(size_t i, Value value);  // with its own data_type, if it says one
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
  // The same in a dtype that the op has a loop for: integers that it has none for become wider ones
  // (float64 where it takes no integers), and the result has their dtype again.
  Variable UnaryVia(const std::string& type, const Variable& x, AttrList attrs = {});
  Variable BinaryVia(const std::string& type, const Variable& x, const Variable& y);
  DType ComputeDType(const std::string& type, DType dtype) const;
  // A free name for a variable that is output i.
  std::string OutputName(size_t i);
  // An op with any outputs: names for new variables of it.
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
  // x stretched to `shape` as ONNX broadcasts; a -1 in it is not known, and then it must be that of
  // `like`.
  Variable BroadcastTo(const Variable& x, const Shape& shape);

  // For who called the importer.
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
  std::vector<Variable> widened_;  // copies of inputs in float32, where they are made
  Attributes attributes_;
  Values outputs_;
};

}  // namespace coracle::onnx
