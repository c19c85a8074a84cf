#include <coracle/test/op_test.h>

#include <limits>

namespace coracle::tril_triu_test {

OpTest Part(bool lower, int32_t diagonal) {
  OpTest test("tril_triu");
  test.Attr("lower", lower).Attr("diagonal", diagonal);
  return test;
}

TEST(TrilTriu, Values) {
  const std::vector<double> x = {1, 2, 3, 4, 5, 6};
  const auto expect = [&](bool lower, int32_t diagonal, const std::vector<double>& out) {
    Part(lower, diagonal).Input("X", {2, 3}, x).Expect("Out", {2, 3}, out);
    Part(lower, diagonal).Input("X", {2, 3}, x).InPlace("X", "Out").Expect("Out", {2, 3}, out);
  };
  expect(true, 0, {1, 0, 0, 4, 5, 0});
  expect(true, 1, {1, 2, 0, 4, 5, 6});
  expect(true, -1, {0, 0, 0, 4, 0, 0});
  expect(false, 0, {1, 2, 3, 0, 5, 6});
  expect(false, 1, {0, 2, 3, 0, 0, 6});
  expect(false, -5, x);
  expect(true, std::numeric_limits<int32_t>::min(), {0, 0, 0, 0, 0, 0});
  expect(true, std::numeric_limits<int32_t>::max(), x);
  Part(true, 0).Input("X", {2, 2, 1}, {1, 2, 3, 4}).Expect("Out", {2, 2, 1}, {1, 2, 3, 4});
}

TEST(TrilTriu, TypesAndEdges) {
  Part(false, 0).IntInput("X", {2, 2}, {1, 2, 3, 4}).Expect("Out", {2, 2}, {1, 2, 0, 4});
  Part(false, 0)
      .TensorInput("X", Tensor::Of<bool>({2, 2}, {true, true, true, true}))
      .Expect("Out", {2, 2}, {1, 1, 0, 1})
      .ExpectDType("Out", DType::kBool);
  Part(true, 0).Input("X", {2, 0}, {}).Expect("Out", {2, 0}, {});
}

TEST(TrilTriu, Gradients) {
  for (bool lower : {false, true})
    Part(lower, 1).RandomInput("X", {2, 3, 4}).CheckGradient({"X"}).CheckHigherGradients();
}

TEST(TrilTriu, C1_Rank) { Part(true, 0).RandomInput("X", {2}).ExpectError("tril_triu.C1"); }

}  // namespace coracle::tril_triu_test
