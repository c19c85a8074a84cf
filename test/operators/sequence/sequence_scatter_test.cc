#include <coracle/test/op_test.h>

namespace coracle::sequence_scatter_test {

TEST(SequenceScatter, Values) {
  OpTest("sequence_scatter")
      .Input("X", {3, 2}, {1, 2, 3, 4, 5, 6})
      .IntInput("Ids", {4, 1}, {1, 1, 0, 0})
      .Lod({{0, 3, 3, 4}})
      .Input("Updates", {4, 1}, {10, 20, 30, 40})
      .Expect("Out", {3, 2}, {31, 32, 3, 4, 45, 6})
      .CheckGradient({"X", "Updates"});
  OpTest("sequence_scatter")
      .IntInput("X", {1, 1}, {5})
      .IntInput("Ids", {0, 1}, {}, DType::kInt32)
      .Lod({{0, 0}})
      .IntInput("Updates", {0, 1}, {})
      .Expect("Out", {1, 1}, {5});
}

OpTest With(const Shape& x, LoD lod, const Shape& updates, int64_t id = 0) {
  return std::move(OpTest("sequence_scatter")
                       .RandomInput("X", x)
                       .IntInput("Ids", {1, 1}, {id})
                       .Lod(std::move(lod))
                       .RandomInput("Updates", updates));
}

TEST(SequenceScatter, Constraints) {
  With({}, {{0, 1}}, {1, 1}).ExpectError("sequence_scatter.C1");
  With({1}, {}, {1, 1}).ExpectError("sequence_scatter.C2");
  With({1}, {{0, 1}}, {2, 1}).ExpectError("sequence_scatter.C3");
  OpTest("sequence_scatter")
      .RandomInput("X", {1})
      .IntInput("Ids", {1, 1}, {0})
      .Lod({{0, 1}})
      .IntInput("Updates", {1, 1}, {1})
      .ExpectError("sequence_scatter.C4");
  With({2}, {{0, 1}}, {1, 1}).ExpectError("sequence_scatter.C5");
  With({1, 2}, {{0, 1}}, {1, 1}, 2).ExpectError("Ids holds 2 at 0, outside [0, 2)");
  const auto gradient = [](const Shape& dout, LoD lod, const Shape& ids) {
    return std::move(OpTest("sequence_scatter_grad")
                         .IntInput("Ids", ids, {0})
                         .Lod(std::move(lod))
                         .RandomInput("Updates", {1, 1})
                         .RandomInput("Out@GRAD", dout));
  };
  gradient({}, {{0, 1}}, {1, 1}).ExpectError("sequence_scatter_grad.C1");
  gradient({1}, {}, {1, 1}).ExpectError("sequence_scatter_grad.C2");
  gradient({1}, {{0, 1}}, {1, 1, 1}).ExpectError("sequence_scatter_grad.C3");
  gradient({2}, {{0, 1}}, {1, 1}).ExpectError("sequence_scatter_grad.C5");
  OpTest("sequence_scatter_grad")
      .IntInput("Ids", {1, 1}, {0})
      .Lod({{0, 1}})
      .IntInput("Updates", {1, 1}, {0})
      .RandomInput("Out@GRAD", {1})
      .ExpectError("sequence_scatter_grad.C4");
}
}  // namespace coracle::sequence_scatter_test
