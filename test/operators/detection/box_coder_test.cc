#include <coracle/test/op_test.h>

#include <cmath>

namespace coracle::box_coder_test {

using Floats = std::vector<float>;

OpTest Coder(bool encode, bool normalized) {
  return std::move(
      OpTest("box_coder")
          .Attr("code_type", std::string(encode ? "encode_center_size" : "decode_center_size"))
          .Attr("box_normalized", normalized));
}

const double kHalf = std::log(0.5);

TEST(BoxCoder, Encode) {
  Coder(true, true)
      .Input("PriorBox", {2, 4}, {0, 0, 2, 4, 1, 1, 3, 3})
      .Input("TargetBox", {1, 4}, {1, 1, 3, 3})
      .Lod({{0, 1}})
      .Expect("OutputBox", {1, 2, 4}, {0.5, 0, 0, kHalf, 0, 0, 0, 0})
      .ExpectLod("OutputBox", {{0, 1}});
  Coder(true, true)
      .Input("PriorBox", {1, 4}, {0, 0, 2, 4})
      .Input("PriorBoxVar", {1, 4}, {0.5, 0.5, 0.25, 0.25})
      .Input("TargetBox", {1, 4}, {1, 1, 3, 3})
      .Expect("OutputBox", {1, 1, 4}, {1, 0, 0, 4 * kHalf});
  Coder(true, true)
      .Input("PriorBox", {2, 4}, {0, 0, 2, 4, 0, 0, 2, 4})
      .Input("PriorBoxVar", {4}, {0.5, 0.5, 0.25, 0.25})
      .Input("TargetBox", {1, 4}, {1, 1, 3, 3})
      .Expect("OutputBox", {1, 2, 4}, {1, 0, 0, 4 * kHalf, 1, 0, 0, 4 * kHalf});
  Coder(true, false)
      .Attr("variance", Floats{0.5f, 0.5f, 0.25f, 0.25f})
      .Input("PriorBox", {1, 4}, {0, 0, 1, 3})
      .Input("TargetBox", {1, 4}, {1, 1, 2, 2})
      .Expect("OutputBox", {1, 1, 4}, {0.5, -0.25, 0, 4 * kHalf});
  Coder(true, true)
      .Input("PriorBox", {1, 4}, {0, 0, 2, 4})
      .Input("TargetBox", {0, 4}, {})
      .Expect("OutputBox", {0, 1, 4}, {});
}

TEST(BoxCoder, Decode) {
  const std::vector<double> priors = {0, 0, 2, 4, 1, 1, 3, 3};
  // Rows are targets, columns priors; by axis 1 the other way round.
  Coder(false, true)
      .Input("PriorBox", {2, 4}, priors)
      .Lod({{0, 2}})
      .Input("TargetBox", {1, 2, 4}, {0.5, 0, 0, kHalf, 0, 0, 0, 0})
      .Expect("OutputBox", {1, 2, 4}, {1, 1, 3, 3, 1, 1, 3, 3})
      .ExpectLod("OutputBox", {});
  Coder(false, true)
      .Attr("axis", 1)
      .Input("PriorBox", {2, 4}, priors)
      .Lod({{0, 2}})
      .Input("PriorBoxVar", {2, 4}, {0.5, 1, 1, 0.5, 1, 1, 1, 1})
      .Input("TargetBox", {2, 1, 4}, {1, 0, 0, 2 * kHalf, 0, 0, 0, 0})
      .Expect("OutputBox", {2, 1, 4}, {1, 1, 3, 3, 1, 1, 3, 3})
      .ExpectLod("OutputBox", {{0, 2}});
  Coder(false, true)
      .Input("PriorBox", {2, 4}, priors)
      .Input("PriorBoxVar", {4}, {0.5, 1, 1, 0.5})
      .Input("TargetBox", {1, 2, 4}, {1, 0, 0, 2 * kHalf, 0, 0, 0, 0})
      .Expect("OutputBox", {1, 2, 4}, {1, 1, 3, 3, 1, 1, 3, 3});
  Coder(false, false)
      .Attr("variance", Floats{0.5f, 1, 1, 0.5f})
      .Input("PriorBox", {1, 4}, {0, 0, 1, 3})
      .Input("TargetBox", {1, 1, 4}, {1, 0, 0, 2 * kHalf})
      .Expect("OutputBox", {1, 1, 4}, {1, 1, 2, 2});
}

// More pairs than are computed together; some ratios of sizes vanish.
TEST(BoxCoder, ManyPairs) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> unit(0, 1);
  const auto draw = [&](int64_t n) {
    std::vector<double> boxes;
    for (int64_t i = 0; i < n; ++i) {
      const double x = 8 * unit(random), y = 8 * unit(random);
      for (double v : {x, y, x + 1 + unit(random), y + 1 + unit(random)})
        boxes.push_back(static_cast<float>(v));
    }
    return boxes;
  };
  const size_t rows = 3, columns = 77;
  const std::vector<double> priors = draw(columns), targets = draw(rows);
  std::vector<double> deltas, encoded, decoded;
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) {
      const double *p = priors.data() + 4 * j, *t = targets.data() + 4 * i;
      double half[2];
      for (size_t k : {0, 1})
        encoded.push_back(((t[k] + t[k + 2]) - (p[k] + p[k + 2])) / 2 / (p[k + 2] - p[k]) / 0.5);
      for (size_t k : {0, 1})
        encoded.push_back(std::log((t[k + 2] - t[k]) / (p[k + 2] - p[k])) / 0.25);
      for (int k = 0; k < 4; ++k) deltas.push_back(static_cast<float>(4 * unit(random) - 2));
      if (j % 29 == 7) deltas.back() = -4000;
      const double* d = deltas.data() + deltas.size() - 4;
      double centre[2];
      for (size_t k : {0, 1}) {
        const double size = p[k + 2] - p[k];
        centre[k] = (p[k] + p[k + 2]) / 2 + 0.5 * d[k] * size;
        half[k] = std::exp(0.25 * d[k + 2]) * size / 2;
      }
      for (double sign : {-1, 1}) {
        for (size_t k : {0, 1}) decoded.push_back(centre[k] + sign * half[k]);
      }
    }
  }
  const Floats variance = {0.5f, 0.5f, 0.25f, 0.25f};
  Coder(true, true)
      .Attr("variance", variance)
      .Input("PriorBox", {columns, 4}, priors)
      .Input("TargetBox", {rows, 4}, targets)
      .Expect("OutputBox", {rows, columns, 4}, encoded);
  Coder(false, true)
      .Attr("variance", variance)
      .Input("PriorBox", {columns, 4}, priors)
      .Input("TargetBox", {rows, columns, 4}, deltas)
      .Expect("OutputBox", {rows, columns, 4}, decoded);
}

TEST(BoxCoder, Constraints) {
  const auto with = [](bool encode, const Shape& prior, const Shape& target) {
    return std::move(
        Coder(encode, true).RandomInput("PriorBox", prior).RandomInput("TargetBox", target));
  };
  Coder(true, true)
      .RandomInput("PriorBox", {1, 4})
      .IntInput("TargetBox", {1, 4}, {1, 2, 3, 4})
      .ExpectError("box_coder.C1");
  with(true, {1, 5}, {1, 4}).ExpectError("box_coder.C2");
  with(true, {1, 4}, {1, 4}).RandomInput("PriorBoxVar", {2, 4}).ExpectError("box_coder.C3");
  with(true, {1, 4}, {1, 4})
      .RandomInput("PriorBoxVar", {1, 4})
      .Attr("variance", Floats{1, 1, 1, 1})
      .ExpectError("box_coder.C3");
  with(true, {1, 4}, {1, 4}).Attr("variance", Floats{1}).ExpectError("box_coder.C4");
  with(true, {1, 4}, {1, 1, 4}).ExpectError("box_coder.C5");
  with(false, {1, 4}, {1, 2, 4}).ExpectError("box_coder.C6");
  with(false, {1, 4}, {2, 1, 4}).Attr("axis", 1).ExpectError("box_coder.C6");
}

TEST(BoxDecoderAndAssign, Values) {
  // Class 0 is the background, whatever its score is.
  OpTest("box_decoder_and_assign")
      .Attr("box_clip", 0.f)
      .Input("PriorBox", {1, 4}, {0, 0, 1, 3})
      .Input("PriorBoxVar", {4}, {0.5, 1, 1, 0.5})
      .Input("TargetBox", {1, 12}, {0, 0, 0, 0, 1, 0, 0, 2 * kHalf, 0, 1, 5, 0})
      .Input("BoxScore", {1, 3}, {9, 2, 1})
      .Expect("DecodeBox", {1, 12}, {0, 0, 1, 3, 1, 1, 2, 2, 0, 4, 1, 7})
      .Expect("OutputAssignBox", {1, 4}, {1, 1, 2, 2});
  OpTest("box_decoder_and_assign")
      .Input("PriorBox", {1, 4}, {0, 0, 1, 3})
      .Input("TargetBox", {1, 4}, {1, 0, 0, 0})
      .Input("BoxScore", {1, 1}, {9})
      .Expect("DecodeBox", {1, 4}, {2, 0, 3, 3})
      .Expect("OutputAssignBox", {1, 4}, {0, 0, 1, 3});
}

TEST(BoxDecoderAndAssign, Constraints) {
  const auto with = [](const Shape& prior, const Shape& target) {
    return std::move(OpTest("box_decoder_and_assign")
                         .RandomInput("PriorBox", prior)
                         .RandomInput("TargetBox", target));
  };
  with({1, 4}, {1, 4}).IntInput("BoxScore", {1, 1}, {1}).ExpectError("box_decoder_and_assign.C1");
  with({4}, {1, 4}).RandomInput("BoxScore", {1, 1}).ExpectError("box_decoder_and_assign.C2");
  with({1, 4}, {1, 4})
      .RandomInput("BoxScore", {1, 1})
      .RandomInput("PriorBoxVar", {1, 4})
      .ExpectError("box_decoder_and_assign.C3");
  with({1, 4}, {1, 4}).RandomInput("BoxScore", {1, 2}).ExpectError("box_decoder_and_assign.C4");
}
}  // namespace coracle::box_coder_test
