#include <coracle/test/op_test.h>

namespace coracle::lod_reset_test {

using Ints = std::vector<int32_t>;

OpTest Reset() {
  return std::move(OpTest("lod_reset").Input("X", {3, 1}, {1, 2, 3}).Lod({{0, 1, 3}}));
}

TEST(LodReset, Values) {
  Reset()
      .Attr("target_lod", Ints{0, 2, 3})
      .Expect("Out", {3, 1}, {1, 2, 3})
      .ExpectLod("Out", {{0, 2, 3}})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  for (DType dtype : {DType::kInt32, DType::kInt64}) {
    Reset().IntInput("Y", {2}, {0, 3}, dtype).ExpectLod("Out", {{0, 3}});
  }
  Reset()
      .Attr("append", true)
      .Input("Y", {3}, {0, 0, 0})
      .Lod({{0, 1}, {0, 3}})
      .ExpectLod("Out", {{0, 1}, {0, 3}});
  OpTest("lod_reset")
      .Attr("append", true)
      .Attr("target_lod", Ints{0, 1, 2, 3})
      .Input("X", {3}, {1, 2, 3})
      .Lod({{0, 1, 3}})
      .ExpectLod("Out", {{0, 1, 3}, {0, 1, 2, 3}});
  OpTest("lod_reset")
      .Attr("target_lod", Ints{0, 0})
      .Input("X", {0, 2}, {})
      .ExpectLod("Out", {{0, 0}});
  Reset().InPlace("X", "Out").Attr("target_lod", Ints{0, 3}).ExpectLod("Out", {{0, 3}});
}

TEST(LodReset, Gradient) {
  Reset().Attr("target_lod", Ints{0, 3}).CheckGradient({"X"}).CheckSecondGradient({"X"});
  OpTest("lod_reset_grad")
      .Input("X", {3}, {1, 2, 3})
      .Lod({{0, 1, 3}})
      .Input("Out@GRAD", {3}, {4, 5, 6})
      .Lod({{0, 3}})
      .Expect("X@GRAD", {3}, {4, 5, 6})
      .ExpectLod("X@GRAD", {{0, 1, 3}});
  OpTest("lod_reset_grad")
      .Input("X", {3}, {1, 2, 3})
      .Input("Out@GRAD", {2}, {4, 5})
      .ExpectError("lod_reset_grad.C1");
}

TEST(LodReset, WrongOffsets) {
  const std::string wrong = "the LoD of 'Out.0' float32[3, 1] is wrong: level 0 ";
  Reset().Attr("target_lod", Ints{0, 2}).ExpectError(wrong + "ends with 2 where there are 3 rows");
  Reset().Attr("target_lod", Ints{0, 2, 1}).ExpectError(wrong + "decreases from 2 to 1 at 2");
  Reset().Attr("target_lod", Ints{1, 3}).ExpectError(wrong + "does not begin with 0");
  Reset().IntInput("Y", {0}, {}).ExpectError(wrong + "does not begin with 0");
}

TEST(LodReset, Constraints) {
  OpTest("lod_reset")
      .Attr("target_lod", Ints{0, 1})
      .Input("X", {}, {1})
      .ExpectError("lod_reset.C1");
  Reset().ExpectError("lod_reset.C2");
  Reset().Input("Y", {2}, {0, 3}).ExpectError("lod_reset.C3");
}
}  // namespace coracle::lod_reset_test
