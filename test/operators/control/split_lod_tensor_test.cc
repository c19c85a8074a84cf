#include <coracle/test/op_test.h>

namespace coracle::split_lod_tensor_test {

Tensor Mask(const std::vector<bool>& values) {
  Tensor mask(DType::kBool, {static_cast<int64_t>(values.size()), 1});
  for (size_t i = 0; i < values.size(); ++i) mask.data<bool>()[i] = values[i];
  return mask;
}

// Sequences of sequences: [1 2 | 3], [], [4 | (nothing) | 5].
OpTest Split(const std::vector<bool>& mask, int32_t level) {
  return std::move(OpTest("split_lod_tensor")
                       .Attr("level", level)
                       .Input("X", {5, 1}, {1, 2, 3, 4, 5})
                       .Lod({{0, 2, 2, 5}, {0, 2, 3, 4, 4, 5}})
                       .TensorInput("Mask", Mask(mask)));
}

TEST(SplitLodTensor, Sequences) {
  Split({true, false, false}, 0)
      .Expect("OutTrue", {3, 1}, {1, 2, 3})
      .ExpectLod("OutTrue", {{0, 2}, {0, 2, 3}})
      .Expect("OutFalse", {2, 1}, {4, 5})
      .ExpectLod("OutFalse", {{0, 0, 3}, {0, 1, 1, 2}})
      .CheckGradient({"X"});
  Split({true, false, true, true, false}, 1)
      .Expect("OutTrue", {3, 1}, {1, 2, 4})
      .ExpectLod("OutTrue", {{0, 2, 3, 3}})
      .Expect("OutFalse", {2, 1}, {3, 5})
      .ExpectLod("OutFalse", {{0, 1, 2}})
      .CheckGradient({"X"});
  Split({true, true, true}, 0)
      .Expect("OutFalse", {0, 1}, {})
      .ExpectLod("OutFalse", {{0}, {0}})
      .CheckGradient({"X"});
}

TEST(SplitLodTensor, Rows) {
  OpTest("split_lod_tensor")
      .Input("X", {3, 2}, {1, 2, 3, 4, 5, 6})
      .TensorInput("Mask", Mask({false, true, false}))
      .Expect("OutTrue", {1, 2}, {3, 4})
      .ExpectLod("OutTrue", {})
      .Expect("OutFalse", {2, 2}, {1, 2, 5, 6})
      .CheckGradient({"X"})
      .CheckHigherGradients();
}

TEST(SplitLodTensor, GradientOfOneBranch) {
  for (const char* absent : {"OutTrue", "OutFalse"}) {
    OpTest("split_lod_tensor")
        .Input("X", {3, 2}, {1, 2, 3, 4, 5, 6})
        .TensorInput("Mask", Mask({false, true, false}))
        .NoOutput(absent)
        .CheckGradient({"X"});
  }
}

TEST(SplitLodTensor, Constraints) {
  OpTest("split_lod_tensor")
      .Input("X", {1}, {1})
      .IntInput("Mask", {1}, {1})
      .ExpectError("split_lod_tensor.C1");
  OpTest("split_lod_tensor")
      .Input("X", {}, {1})
      .TensorInput("Mask", Mask({true}))
      .ExpectError("split_lod_tensor.C2");
  Split({true, false}, 0).ExpectError("split_lod_tensor.C3");
}

OpTest Merge(const std::string& type, const std::vector<bool>& mask, int32_t level) {
  return std::move(OpTest(type)
                       .Attr("level", level)
                       .Input("X", {5, 1}, {0, 0, 0, 0, 0})
                       .Lod({{0, 2, 2, 5}, {0, 2, 3, 4, 4, 5}})
                       .TensorInput("Mask", Mask(mask)));
}

TEST(MergeLodTensor, Sequences) {
  for (const char* type : {"merge_lod_tensor", "merge_lod_tensor_infer"}) {
    OpTest test = Merge(type, {true, false, true, true, false}, 1);
    test.Input("InTrue", {3, 1}, {1, 2, 4})
        .Lod({{0, 2, 3, 3}})
        .Input("InFalse", {2, 1}, {3, 5})
        .Lod({{0, 1, 2}})
        .Expect("Out", {5, 1}, {1, 2, 3, 4, 5})
        .ExpectLod("Out", {{0, 2, 2, 5}, {0, 2, 3, 4, 4, 5}});
    if (type == std::string("merge_lod_tensor")) test.CheckGradient({"InTrue", "InFalse"});
  }
  // Level 0, and a branch without sequences.
  Merge("merge_lod_tensor", {true, true, true}, 0)
      .Input("InTrue", {2, 1}, {7, 8})
      .Lod({{0, 1, 1, 2}})
      .Input("InFalse", {0, 1}, {})
      .Expect("Out", {2, 1}, {7, 8})
      .ExpectLod("Out", {{0, 1, 1, 2}});
  // One branch without LoD: its sequences are rows.
  Merge("merge_lod_tensor", {true, false, true}, 0)
      .Input("InTrue", {2, 1}, {1, 4})
      .Input("InFalse", {2, 1}, {2, 3})
      .Lod({{0, 2}})
      .Expect("Out", {4, 1}, {1, 2, 3, 4})
      .ExpectLod("Out", {{0, 1, 3, 4}});
  // Branches of one row for each sequence of level 1.
  Merge("merge_lod_tensor", {true, false, false, false, true}, 1)
      .Input("InTrue", {2, 2}, {1, 2, 3, 4})
      .Input("InFalse", {3, 2}, {5, 6, 7, 8, 9, 10})
      .Expect("Out", {5, 2}, {1, 2, 5, 6, 7, 8, 9, 10, 3, 4})
      .ExpectLod("Out", {{0, 2, 2, 5}})
      .CheckGradient({"InTrue", "InFalse"});
}

TEST(MergeLodTensor, Rows) {
  OpTest("merge_lod_tensor")
      .IntInput("X", {3, 1}, {0, 0, 0})
      .TensorInput("Mask", Mask({false, true, false}))
      .Input("InTrue", {1, 2}, {3, 4})
      .Input("InFalse", {2, 2}, {1, 2, 5, 6})
      .Expect("Out", {3, 2}, {1, 2, 3, 4, 5, 6})
      .CheckGradient({"InTrue", "InFalse"})
      .CheckHigherGradients();
}

TEST(MergeLodTensor, Constraints) {
  for (const std::string type : {"merge_lod_tensor", "merge_lod_tensor_infer"}) {
    const auto with = [&](const Shape& x, const Tensor& mask, const Shape& t, const Shape& f) {
      return std::move(OpTest(type)
                           .RandomInput("X", x)
                           .TensorInput("Mask", mask)
                           .RandomInput("InTrue", t)
                           .RandomInput("InFalse", f));
    };
    with({2, 1}, Tensor::Of<float>({2}, {1, 0}), {1, 1}, {1, 1}).ExpectError(type + ".C1");
    with({}, Mask({true}), {1, 1}, {0, 1}).ExpectError(type + ".C2");
    with({2, 1}, Mask({true}), {1, 1}, {0, 1}).ExpectError(type + ".C3");
    with({2, 1}, Mask({true, false}), {1, 1}, {1, 2}).ExpectError(type + ".C4");
    with({2, 1}, Mask({true, true}), {1, 1}, {1, 1}).ExpectError(type + ".C5");
  }
}
}  // namespace coracle::split_lod_tensor_test
