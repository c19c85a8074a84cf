#pragma once
// The attributes of a node, read by type. Each one records that it was read, so that none is
// silently ignored. Errors name the attribute; the caller of an importer adds the node.

#include <coracle/proto/onnx.pb.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace coracle::onnx {

class Attributes {
 public:
  // REQUIRES: `node` outlives the object. Throws kInvalidArgument for an attribute that is given
  // twice, and for an attribute of a function's caller outside of a function.
  explicit Attributes(const proto::onnx::NodeProto& node);

  bool Has(const std::string& name) const;
  // Throw kInvalidArgument for an attribute of another type.
  std::optional<int64_t> Int(const std::string& name);
  std::optional<float> Float(const std::string& name);
  std::optional<std::string> String(const std::string& name);
  std::optional<std::vector<int64_t>> Ints(const std::string& name);
  std::optional<std::vector<float>> Floats(const std::string& name);
  std::optional<std::vector<std::string>> Strings(const std::string& name);
  const proto::onnx::TensorProto* Tensor(const std::string& name);  // nullptr: not given
  const proto::onnx::GraphProto* Graph(const std::string& name);
  void Ignore(const std::string& name) { read_.insert(name); }  // it changes no result

  // The names of the attributes that were not read.
  std::vector<std::string> Unread() const;

 private:
  const proto::onnx::AttributeProto* Find(const std::string& name,
                                          proto::onnx::AttributeProto::AttributeType type);

  const proto::onnx::NodeProto& node_;
  std::set<std::string> read_;
};

}  // namespace coracle::onnx
