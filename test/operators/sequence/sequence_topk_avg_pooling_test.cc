#include <coracle/test/op_test.h>

namespace coracle::sequence_topk_avg_pooling_test {

using Ints = std::vector<int32_t>;

OpTest Pool(const Ints& topks, int32_t channels, int64_t elements, LoD rows, LoD columns) {
  const auto size = [](const LoD& lod) {
    return static_cast<int64_t>(lod.empty() ? 1 : lod.back().back());
  };
  const Tensor row = Tensor::Zeros(DType::kFloat32, {size(rows), 2});
  const Tensor column = Tensor::Zeros(DType::kFloat32, {size(columns), 2});
  std::vector<double> values(static_cast<size_t>(elements));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i * 7 % 5 + i % 3);
  return std::move(OpTest("sequence_topk_avg_pooling")
                       .Attr("topks", topks)
                       .Attr("channel_num", channels)
                       .Input("X", {elements, 1}, values)
                       .TensorInput("ROW", row)
                       .Lod(std::move(rows))
                       .TensorInput("COLUMN", column)
                       .Lod(std::move(columns)));
}

TEST(SequenceTopkAvgPooling, Values) {
  // One sample of two channels with two rows of three columns, and one with a row of one column:
  // [0 3 6] [1 4 2], [2 5 3] [3 1 4], and [4], [2].
  Pool({1, 2}, 2, 14, {{0, 2, 3}}, {{0, 3, 4}})
      .Expect("Out", {3, 4}, {6, 4.5, 5, 4, 4, 3, 4, 3.5, 4, 2, 2, 1})
      .ExpectLod("Out", {{0, 2, 3}})
      .Expect("pos", {12}, {2, 1, 1, 2, 1, 2, 2, 0, 0, -1, 0, -1});
}

TEST(SequenceTopkAvgPooling, Gradient) {
  OpTest("sequence_topk_avg_pooling")
      .Attr("topks", Ints{2, 1, 4})
      .Attr("channel_num", 1)
      .Input("X", {7, 1}, {0.3, 0.1, 0.9, 0.5, 0.2, 0.8, 0.4})
      .RandomInput("ROW", {3})
      .Lod({{0, 2, 2, 3}})
      .RandomInput("COLUMN", {5})
      .Lod({{0, 3, 4, 5}})
      .CheckGradient({"X"});
}

TEST(SequenceTopkAvgPooling, WithoutRows) {
  Pool({1}, 1, 0, {{0, 0}}, {{0, 2}}).Expect("Out", {0, 1}, {});
  Pool({1}, 1, 0, {{0, 2}}, {{0, 0}}).Expect("Out", {2, 1}, {0, 0});
}

TEST(SequenceTopkAvgPooling, Constraints) {
  const std::string type = "sequence_topk_avg_pooling";
  OpTest(type)
      .Attr("topks", Ints{1})
      .Attr("channel_num", 1)
      .RandomInput("X", {1, 2})
      .RandomInput("ROW", {1})
      .RandomInput("COLUMN", {1})
      .ExpectError(type + ".C1");
  Pool({}, 1, 1, {{0, 1}}, {{0, 1}}).ExpectError(type + ".C2");
  Pool({0}, 1, 1, {{0, 1}}, {{0, 1}}).ExpectError(type + ".C2");
  Pool({1}, 0, 1, {{0, 1}}, {{0, 1}}).ExpectError(type + ".C2");
  Pool({1}, 1, 1, {}, {{0, 1}}).ExpectError(type + ".C3");
  Pool({1}, 1, 1, {{0, 1}}, {}).ExpectError(type + ".C3");
  Pool({1}, 1, 1, {{0, 1}}, {{0, 1, 1}}).ExpectError(type + ".C4");
  Pool({1}, 1, 2, {{0, 1}}, {{0, 1}}).ExpectError(type + ".C4");
  OpTest(type + "_grad")
      .Attr("topks", Ints{1})
      .Attr("channel_num", 1)
      .RandomInput("X", {1, 1})
      .RandomInput("ROW", {1})
      .Lod({{0, 1}})
      .RandomInput("COLUMN", {1})
      .Lod({{0, 1}})
      .RandomInput("Out@GRAD", {1, 2})
      .ExpectError(type + "_grad.C5");
}
}  // namespace coracle::sequence_topk_avg_pooling_test
