#pragma once
// A model of one node, all of whose inputs are given: as constants, or when it runs (Feed).

#include <coracle/convert/models.h>
#include <coracle/convert/onnx/dtypes.h>
#include <coracle/executor/executor.h>
#include <coracle/proto/onnx.pb.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace coracle::onnx {

using Numbers = std::vector<float>;
using Integers = std::vector<int64_t>;

inline Tensor F(const Shape& shape, const Numbers& values) {
  return Tensor::Of<float>(shape, values);
}
inline Tensor I(const Integers& values) {
  return Tensor::Of<int64_t>({static_cast<int64_t>(values.size())}, values);
}
// An input that is left out.
inline constexpr std::nullopt_t kAbsent = std::nullopt;

class OneNode {
 public:
  OneNode(const std::string& op_type, int64_t opset,
          const std::vector<std::optional<Tensor>>& inputs, const std::string& domain = "") {
    auto& import = *model_.add_opset_import();
    import.set_domain(domain);
    import.set_version(opset);
    model_.mutable_graph()->add_node();
    node().set_op_type(op_type);
    node().set_domain(domain);
    Outputs(1);
    for (size_t i = 0; i < inputs.size(); ++i) AddInput("x" + std::to_string(i), inputs[i]);
  }

  OneNode& Set(const std::string& name, const Integers& values) {
    auto& attr = Add(name, proto::onnx::AttributeProto::INTS);
    for (int64_t value : values) attr.add_ints(value);
    return *this;
  }
  OneNode& Set(const std::string& name, const Numbers& values) {
    auto& attr = Add(name, proto::onnx::AttributeProto::FLOATS);
    for (float value : values) attr.add_floats(value);
    return *this;
  }
  OneNode& Set(const std::string& name, int64_t value) {
    Add(name, proto::onnx::AttributeProto::INT).set_i(value);
    return *this;
  }
  OneNode& Set(const std::string& name, float value) {
    Add(name, proto::onnx::AttributeProto::FLOAT).set_f(value);
    return *this;
  }
  OneNode& Set(const std::string& name, const std::string& value) {
    Add(name, proto::onnx::AttributeProto::STRING).set_s(value);
    return *this;
  }
  OneNode& Set(const std::string& name, const std::vector<std::string>& values) {
    auto& attr = Add(name, proto::onnx::AttributeProto::STRINGS);
    for (const std::string& value : values) attr.add_strings(value);
    return *this;
  }
  OneNode& Set(const std::string& name, const proto::onnx::TensorProto& value) {
    *Add(name, proto::onnx::AttributeProto::TENSOR).mutable_t() = value;
    return *this;
  }
  OneNode& Set(const std::string& name, const proto::onnx::GraphProto& value) {
    *Add(name, proto::onnx::AttributeProto::GRAPH).mutable_g() = value;
    return *this;
  }
  // Imports one more operator set.
  OneNode& Opset(const std::string& domain, int64_t version) {
    auto& import = *model_.add_opset_import();
    import.set_domain(domain);
    import.set_version(version);
    return *this;
  }
  // Removes an attribute.
  OneNode& Clear(const std::string& name) {
    auto& attrs = *node().mutable_attribute();
    for (int i = attrs.size() - 1; i >= 0; --i)
      if (attrs[i].name() == name) attrs.DeleteSubrange(i, 1);
    return *this;
  }
  OneNode& Outputs(int count) {
    node().clear_output();
    model_.mutable_graph()->clear_output();
    for (int i = 0; i < count; ++i) {
      node().add_output("y" + std::to_string(i));
      model_.mutable_graph()->add_output()->set_name("y" + std::to_string(i));
    }
    return *this;
  }

  // The i-th input that is given is fed when the model runs. `open`: its dims are not declared.
  OneNode& Feed(int i, bool open = false) {
    auto& info = *model_.mutable_graph()->mutable_input(i);
    const auto given = options_.input_values.extract(info.name());
    const Tensor& value = given.mapped();
    feeds_[info.name()] = value.shape().rank() == 0 ? value.Reshaped({1}) : value;
    if (!open) return *this;
    for (auto& dim : *info.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim())
      dim.set_dim_param("n");
    return *this;
  }

  // The same for input i of the node.
  OneNode& FeedInput(int i, bool open = false) {
    const auto& infos = model_.graph().input();
    const auto found = std::find_if(infos.begin(), infos.end(), [&](const auto& info) {
      return info.name() == "x" + std::to_string(i);
    });
    return Feed(static_cast<int>(found - infos.begin()), open);
  }

  std::vector<Tensor> Results() {
    Scope scope;
    const InferenceModel model = ParseOnnx(model_.SerializeAsString(), "m.onnx", scope, options_);
    PreparedProgram prepared = Executor().Prepare(model.program);
    std::vector<Tensor> results, feeds;
    for (const std::string& name : prepared.feed_names()) feeds.push_back(feeds_.at(name));
    for (const Tensor& result : prepared.Run(scope, feeds)) results.push_back(result.Clone());
    return results;
  }
  Tensor Result() { return Results().at(0); }
  Numbers Run() {
    const Tensor wide = Result().Cast(DType::kFloat32);
    const auto values = wide.span<float>();
    return {values.begin(), values.end()};
  }
  // The first line of the error of an import; "" if there is none.
  std::string Refusal() {
    try {
      Run();
    } catch (const Error& e) {
      return e.message().substr(0, e.message().find('\n'));
    }
    return "";
  }

 private:
  proto::onnx::NodeProto& node() { return *model_.mutable_graph()->mutable_node(0); }

  proto::onnx::AttributeProto& Add(const std::string& name,
                                   proto::onnx::AttributeProto::AttributeType type) {
    auto& attr = *node().add_attribute();
    attr.set_name(name);
    attr.set_type(type);
    return attr;
  }

  void AddInput(const std::string& name, const std::optional<Tensor>& value) {
    node().add_input(value ? name : "");
    if (!value) return;
    auto& info = *model_.mutable_graph()->add_input();
    info.set_name(name);
    auto& type = *info.mutable_type()->mutable_tensor_type();
    type.set_elem_type(ToDataType(value->dtype()));
    type.mutable_shape();
    for (int64_t dim : value->shape()) type.mutable_shape()->add_dim()->set_dim_value(dim);
    options_.input_values[name] = *value;
  }

  proto::onnx::ModelProto model_;
  OnnxImportOptions options_;
  std::map<std::string, Tensor> feeds_;
};

inline void ExpectNear(const Numbers& got, const Numbers& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == wanted[i]) continue;  // infinities too
    EXPECT_NEAR(got[i], wanted[i], 1e-5f) << "element " << i;
  }
}

}  // namespace coracle::onnx
