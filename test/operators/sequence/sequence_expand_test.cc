#include <coracle/test/op_test.h>
#include <coracle/test/threads.h>

namespace coracle::sequence_expand_test {

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
  // Without ref_level, the last level counts.
  Expand({4}, {1, 2, 3, 4}, {}, {{0, 2, 4}, {0, 3, 6, 7, 8}})
      .Expect("Out", {8}, {1, 1, 1, 2, 2, 2, 3, 4})
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

// Random numbers of repetitions, X with and without sequences; the gradient adds up what the
// copies got.
TEST(SequenceExpand, RandomShapes) {
  std::mt19937 random(12);
  std::uniform_real_distribution<double> uniform(-1, 1);
  const auto draw = [&](uint64_t numel) {
    std::vector<double> values(numel);
    for (double& v : values) v = uniform(random);
    return values;
  };
  for (int round = 0; round < 40; ++round) {
    const bool sequences = round % 2 == 1;
    const uint64_t count = 1 + random() % 12, width = 1 + random() % 20;
    LoD x{{0}}, y{{0}}, out_lod{{0}};
    std::vector<uint64_t> taken;  // the rows of X, in the order of Out
    for (uint64_t i = 0; i < count; ++i) {
      x[0].push_back(x[0].back() + (sequences ? random() % 4 : 1));
      y[0].push_back(y[0].back() + random() % 5);
      for (uint64_t k = y[0][i]; k < y[0][i + 1]; ++k) {
        for (uint64_t r = x[0][i]; r < x[0][i + 1]; ++r) taken.push_back(r);
        out_lod[0].push_back(taken.size());
      }
    }
    const uint64_t rows = x[0].back();
    const std::vector<double> values = draw(rows * width), dout = draw(taken.size() * width);
    std::vector<double> out, dx(rows * width, 0);
    for (size_t k = 0; k < taken.size(); ++k) {
      for (uint64_t c = 0; c < width; ++c) {
        out.push_back(values[taken[k] * width + c]);
        dx[taken[k] * width + c] += dout[k * width + c];
      }
    }
    const auto x_rows = static_cast<int64_t>(rows), columns = static_cast<int64_t>(width);
    const auto out_rows = static_cast<int64_t>(taken.size());
    const auto y_rows = static_cast<int64_t>(y[0].back());
    const auto with = [&](const char* type) {
      return std::move(OpTest(type)
                           .Input("X", {x_rows, columns}, values)
                           .Lod(sequences ? x : LoD{})
                           .TensorInput("Y", Tensor::Zeros(DType::kFloat32, {y_rows}))
                           .Lod(y));
    };
    SCOPED_TRACE(round);
    with("sequence_expand")
        .Expect("Out", {out_rows, columns}, out)
        .ExpectLod("Out", sequences ? out_lod : LoD{});
    with("sequence_expand_grad")
        .Input("Out@GRAD", {out_rows, columns}, dout)
        .Expect("X@GRAD", {x_rows, columns}, dx);
    if (sequences) continue;
    const Threads threads(1 + round % 3);
    with("sequence_expand_as").Expect("Out", {out_rows, columns}, out).ExpectLod("Out", y);
    with("sequence_expand_as_grad")
        .Input("Out@GRAD", {out_rows, columns}, dout)
        .Expect("X@GRAD", {x_rows, columns}, dx);
  }
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
}  // namespace coracle::sequence_expand_test
