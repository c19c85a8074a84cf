#include "../../op_test.h"

namespace coracle {
namespace {

OpTest Expand(const Shape& shape, const std::vector<double>& values, LoD x, LoD y,
              int32_t ref_level = -1) {
  const auto rows = static_cast<int64_t>(y.empty() ? 0 : y.back().back());
  return std::move(OpTest("sequence_expand")
                       .Attr("ref_level", ref_level)
                       .Input("X", shape, values)
                       .Lod(std::move(x))
                       .TensorInput("Y", Tensor::Zeros(DType::kFloat32, {rows}))
                       .Lod(std::move(y)));
}

TEST(SequenceExpand, Rows) {
  Expand({3, 2}, {1, 2, 3, 4, 5, 6}, {}, {{0, 2, 2, 5}})
      .Expect("Out", {5, 2}, {1, 2, 1, 2, 5, 6, 5, 6, 5, 6})
      .ExpectLod("Out", {})
      .CheckGradient({"X"});
}

TEST(SequenceExpand, WholeSequences) {
  Expand({4}, {1, 2, 3, 4}, {{0, 2, 4}}, {{0, 2, 4}, {0, 3, 6, 7, 8}}, 0)
      .Expect("Out", {8}, {1, 2, 1, 2, 3, 4, 3, 4})
      .ExpectLod("Out", {{0, 2, 4, 6, 8}})
      .CheckGradient({"X"});
  // An empty sequence, and one that is not taken.
  Expand({3}, {1, 2, 3}, {{0, 0, 1, 3}}, {{0, 2, 2, 3}})
      .Expect("Out", {2}, {2, 3})
      .ExpectLod("Out", {{0, 0, 0, 2}})
      .CheckGradient({"X"});
}

TEST(SequenceExpand, WithoutSequences) {
  Expand({2}, {1, 2}, {{0, 2}}, {{0}})
      .Expect("Out", {2}, {1, 2})
      .ExpectLod("Out", {{0, 2}})
      .CheckGradient({"X"});
  Expand({2}, {1, 2}, {}, {{0, 0, 0}}).Expect("Out", {0}, {});
}

TEST(SequenceExpand, Constraints) {
  Expand({}, {1}, {}, {{0, 1}}).ExpectError("sequence_expand.C1");
  Expand({1}, {1}, {{0, 1}, {0, 1}}, {{0, 1}}).ExpectError("sequence_expand.C1");
  Expand({1}, {1}, {}, {{0, 1}}, -2).ExpectError("sequence_expand.C2");
  Expand({1}, {1}, {}, {{0, 1}}, 1).ExpectError("sequence_expand.C2");
  Expand({1}, {1}, {}, {}).ExpectError("sequence_expand.C2");
  Expand({1}, {1}, {}, {{0, 1, 2}}).ExpectError("sequence_expand.C3");
  for (int64_t width : {2, 1}) {
    OpTest("sequence_expand_grad")
        .Input("X", {1, 1}, {1})
        .Input("Y", {2}, {1, 1})
        .Lod({{0, 2}})
        .Input("Out@GRAD", {1, width}, std::vector<double>(static_cast<size_t>(width), 1))
        .ExpectError("sequence_expand_grad.C4");
  }
}

TEST(SequenceExpandAs, Values) {
  OpTest("sequence_expand_as")
      .Input("X", {3, 2}, {1, 2, 3, 4, 5, 6})
      .Input("Y", {4}, {0, 0, 0, 0})
      .Lod({{0, 3, 3, 4}})
      .Expect("Out", {4, 2}, {1, 2, 1, 2, 1, 2, 5, 6})
      .ExpectLod("Out", {{0, 3, 3, 4}})
      .CheckGradient({"X"});
  OpTest("sequence_expand_as")
      .IntInput("X", {1}, {7})
      .Input("Y", {0, 3}, {})
      .Lod({{0, 0}})
      .Expect("Out", {0}, {});
}

TEST(SequenceExpandAs, Constraints) {
  const auto with = [](const Shape& x, LoD y) {
    return std::move(
        OpTest("sequence_expand_as").RandomInput("X", x).RandomInput("Y", {2}).Lod(std::move(y)));
  };
  with({}, {{0, 2}}).ExpectError("sequence_expand_as.C1");
  with({1}, {}).ExpectError("sequence_expand_as.C2");
  with({1}, {{0, 1}, {0, 2}}).ExpectError("sequence_expand_as.C2");
  with({2}, {{0, 2}}).ExpectError("sequence_expand_as.C3");
  OpTest("sequence_expand_as_grad")
      .Input("X", {1}, {1})
      .Input("Y", {2}, {1, 1})
      .Lod({{0, 2}})
      .Input("Out@GRAD", {1}, {1})
      .ExpectError("sequence_expand_as_grad.C4");
}

}  // namespace
}  // namespace coracle
