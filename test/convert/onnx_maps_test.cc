// Models whose input is a map, which is fed as two vectors: its values, and its keys.
#include <coracle/convert/models.h>
#include <coracle/convert/onnx/dtypes.h>
#include <coracle/executor/executor.h>
#include <coracle/proto/onnx.pb.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

#include <numeric>

namespace coracle::onnx::onnx_maps_test {

using Integers = std::vector<int64_t>;
using Texts = std::vector<std::string>;
using proto::onnx::AttributeProto;

struct MapModel {
  MapModel(const std::string& op_type, DType key, DType value) {
    auto& import = *model.add_opset_import();
    import.set_domain("ai.onnx.ml");
    import.set_version(1);
    auto& graph = *model.mutable_graph();
    auto& input = *graph.add_input();
    input.set_name("x");
    auto& map = *input.mutable_type()->mutable_map_type();
    map.set_key_type(ToDataType(key));
    map.mutable_value_type()->mutable_tensor_type()->set_elem_type(ToDataType(value));
    node = graph.add_node();
    node->set_domain("ai.onnx.ml");
    node->set_op_type(op_type);
    node->add_input("x");
    node->add_output("y");
    graph.add_output()->set_name("y");
  }

  AttributeProto& Add(const std::string& name, AttributeProto::AttributeType type) {
    AttributeProto& attr = *node->add_attribute();
    attr.set_name(name);
    attr.set_type(type);
    return attr;
  }
  MapModel& Set(const std::string& name, const Texts& values) {
    AttributeProto& attr = Add(name, AttributeProto::STRINGS);
    for (const std::string& value : values) attr.add_strings(value);
    return *this;
  }
  MapModel& Set(const std::string& name, const Integers& values) {
    AttributeProto& attr = Add(name, AttributeProto::INTS);
    for (int64_t value : values) attr.add_ints(value);
    return *this;
  }
  MapModel& Set(const std::string& name, const std::string& value) {
    Add(name, AttributeProto::STRING).set_s(value);
    return *this;
  }
  MapModel& Set(const std::string& name, int64_t value) {
    Add(name, AttributeProto::INT).set_i(value);
    return *this;
  }

  Tensor Run(const Tensor& keys, const Tensor& values) const {
    Scope scope;
    const InferenceModel imported = ParseOnnx(model.SerializeAsString(), "m.onnx", scope, {});
    EXPECT_EQ(imported.feed_names, (Texts{"x", "x.keys"}));
    PreparedProgram prepared = Executor().Prepare(imported.program);
    return prepared.Run(scope, {values, keys}).at(0).Clone();
  }

  proto::onnx::ModelProto model;
  proto::onnx::NodeProto* node;
};

Tensor Keys(const Texts& keys) {
  return Tensor::OfStrings({static_cast<int64_t>(keys.size())}, keys);
}
Tensor Keys(const Integers& keys) {
  return Tensor::Of<int64_t>({static_cast<int64_t>(keys.size())}, keys);
}
Tensor Values(const std::vector<float>& values) {
  return Tensor::Of<float>({static_cast<int64_t>(values.size())}, values);
}

void ExpectRow(const Tensor& got, const std::vector<float>& want) {
  EXPECT_EQ(got.shape(), Shape({1, static_cast<int64_t>(want.size())}));
  const Tensor wide = got.Cast(DType::kFloat32);
  EXPECT_EQ(std::vector<float>(wide.span<float>().begin(), wide.span<float>().end()), want);
}

// The example of the operator set: {"a": 4, "c": 8} by the vocabulary a, c, b, z.
TEST(OnnxMaps, DictVectorizer) {
  MapModel texts("DictVectorizer", DType::kString, DType::kFloat32);
  texts.Set("string_vocabulary", Texts{"a", "c", "b", "z"});
  ExpectRow(texts.Run(Keys(Texts{"a", "c"}), Values({4, 8})), {4, 8, 0, 0});
  ExpectRow(texts.Run(Keys(Texts{"z", "?", "b"}), Values({1, 2, 3})), {0, 0, 3, 1});
  ExpectRow(texts.Run(Keys(Texts{}), Values({})), {0, 0, 0, 0});
  MapModel numbers("DictVectorizer", DType::kInt64, DType::kString);
  numbers.Set("int64_vocabulary", Integers{7, -1});
  const Tensor row = numbers.Run(Keys(Integers{3, 7}), Keys(Texts{"three", "seven"}));
  EXPECT_EQ(row.Strings(), (Texts{"seven", ""}));
}

TEST(OnnxMaps, ColumnsOfOneKey) {
  MapModel numbers("DictVectorizer", DType::kInt64, DType::kFloat32);
  numbers.Set("int64_vocabulary", Integers{2, 1, 2, 5});
  ExpectRow(numbers.Run(Keys(Integers{5, 2, 9}), Values({50, 20, 90})), {20, 0, 20, 50});
}

// A table of all keys and all columns would have 10^10 elements.
TEST(OnnxMaps, ALargeVocabulary) {
  constexpr int64_t kSize = 100000;
  Integers keys(kSize);
  std::iota(keys.begin(), keys.end(), 0);
  MapModel numbers("DictVectorizer", DType::kInt64, DType::kFloat32);
  numbers.Set("int64_vocabulary", keys);
  std::vector<float> values(keys.rbegin(), keys.rend());
  ExpectRow(numbers.Run(Keys(Integers(keys.rbegin(), keys.rend())), Values(values)),
            {keys.begin(), keys.end()});
}

TEST(OnnxMaps, CastMap) {
  MapModel dense("CastMap", DType::kInt64, DType::kFloat32);
  ExpectRow(dense.Run(Keys(Integers{5, -2, 3}), Values({50, 20, 30})), {20, 30, 50});
  MapModel sparse("CastMap", DType::kInt64, DType::kFloat32);
  sparse.Set("map_form", std::string("SPARSE")).Set("max_map", int64_t{4});
  ExpectRow(sparse.Run(Keys(Integers{3, 0}), Values({1.5f, 2})), {2, 0, 0, 1.5f});
  ExpectRow(sparse.Run(Keys(Integers{4, 2, 900}), Values({1, 2, 3})), {0, 0, 2, 0});
  ExpectRow(sparse.Run(Keys(Integers{}), Values({})), {0, 0, 0, 0});
  const std::string error = ErrorOf([&] { sparse.Run(Keys(Integers{-2}), Values({1})); });
  EXPECT_NE(error.find("scatter"), std::string::npos) << error;
  EXPECT_NE(error.find("-2"), std::string::npos) << error;
  MapModel texts("CastMap", DType::kInt64, DType::kString);
  texts.Set("cast_to", std::string("TO_INT64"));
  ExpectRow(texts.Run(Keys(Integers{2, 1}), Keys(Texts{"20", "10"})), {10, 20});
}

TEST(OnnxMaps, Refusals) {
  MapModel other("DictVectorizer", DType::kInt64, DType::kFloat32);
  other.Set("string_vocabulary", Texts{"a"});
  EXPECT_NE(ErrorOf([&] {
              other.Run(Keys(Integers{1}), Values({1}));
            }).find("the vocabulary must have the type of the keys, int64, got string"),
            std::string::npos);
  MapModel numbers("CastMap", DType::kInt64, DType::kFloat32);
  numbers.Set("cast_to", std::string("TO_STRING"));
  EXPECT_NE(ErrorOf([&] {
              numbers.Run(Keys(Integers{1}), Values({1}));
            }).find("numbers as texts, whose form ONNX does not define"),
            std::string::npos);
}

}  // namespace coracle::onnx::onnx_maps_test
