#include <coracle/test/op_test.h>

#include <cmath>
#include <limits>

namespace coracle::grid_sampler_test {

OpTest Sample(const std::string& padding, bool align = true, const std::string& mode = "bilinear") {
  OpTest test("grid_sampler");
  test.Attr("padding_mode", padding).Attr("align_corners", align).Attr("mode", mode);
  return test;
}

// At places x of the row {1, 2, 4}, in units of its elements (align_corners).
OpTest Row(const std::string& padding, const std::vector<double>& x,
           const std::string& mode = "bilinear") {
  OpTest test = Sample(padding, true, mode);
  std::vector<double> grid;
  for (const double at : x) grid.insert(grid.end(), {at - 1, -1});
  test.Input("X", {1, 1, 1, 3}, {1, 2, 4});
  test.Input("Grid", {1, 1, static_cast<int64_t>(x.size()), 2}, grid);
  return test;
}

TEST(GridSampler, Values) {
  const std::vector<double> places = {0, 0.5, 1.75, 2, -0.5, 2.5, -3};
  Row("zeros", places).Expect("Output", {1, 1, 1, 7}, {1, 1.5, 3.5, 4, 0.5, 2, 0});
  Row("border", places).Expect("Output", {1, 1, 1, 7}, {1, 1.5, 3.5, 4, 1, 4, 1});
  // Mirrors at 0 and 2: -0.5 -> 0.5, 2.5 -> 1.5, -3 -> 3 -> 1.
  Row("reflection", places).Expect("Output", {1, 1, 1, 7}, {1, 1.5, 3.5, 4, 1.5, 3, 2});
  Row("zeros", places, "nearest").Expect("Output", {1, 1, 1, 7}, {1, 2, 4, 4, 0, 0, 0});
  // Edges at -1 and 1: the centres of two elements are at -0.5 and 0.5.
  for (const std::string padding : {"zeros", "border", "reflection"}) {
    const bool zeros = padding == "zeros";
    Sample(padding, false)
        .Input("X", {1, 1, 1, 2}, {2, 6})
        .Input("Grid", {1, 1, 4, 2}, {-0.5, 0, 0.5, 0, 0, 0, -1, 0})
        .Expect("Output", {1, 1, 1, 4}, {2, 6, 4, zeros ? 1.0 : 2.0});
  }
  // Rows and channels: the middle of four elements.
  Sample("zeros")
      .Input("X", {1, 2, 2, 2}, {1, 2, 3, 4, 10, 20, 30, 40})
      .Input("Grid", {1, 1, 1, 2}, {0, 0})
      .Expect("Output", {1, 2, 1, 1}, {2.5, 25});
  Sample("zeros")
      .Input("X", {0, 1, 1, 1}, {})
      .Input("Grid", {0, 1, 1, 2}, {})
      .Expect("Output", {0, 1, 1, 1}, {});
  Sample("reflection")
      .Input("X", {1, 1, 1, 1}, {5})
      .Input("Grid", {1, 1, 1, 2}, {3, -7})
      .Expect("Output", {1, 1, 1, 1}, {5});
}

TEST(GridSampler, FastAgainstReference) {
  for (const std::string padding : {"zeros", "border", "reflection"}) {
    for (const std::string mode : {"bilinear", "nearest"}) {
      for (const bool align : {false, true}) {
        for (const int64_t size : {1, 3, 17}) {
          OpTest test = Sample(padding, align, mode);
          test.RandomInput("X", {2, size + 1, size + 4, size})
              .RandomInput("Grid", {2, size, 2 * size, 2}, -1.3, 1.3)
              .CheckFast(1e-5);
        }
      }
    }
  }
  Sample("zeros").RandomInput("X", {1, 2, 3, 4}).Input("Grid", {1, 0, 5, 2}, {}).CheckFast();
}

TEST(GridSampler, FastAgainstReferenceNotFinite) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  // A neighbour of weight 0 is read: 0 times inf is nan. Those outside are not.
  Sample("zeros")
      .Input("X", {1, 1, 1, 3}, {1, 2, inf})
      .Input("Grid", {1, 1, 5, 2}, {-0.5, -1, 0.5, -1, 0, -1, 1, -1, -1.5, -1})
      .Expect("Output", {1, 1, 1, 5}, {1.5, inf, nan, inf, 0.5});
  for (const std::string padding : {"zeros", "border", "reflection"}) {
    for (const std::string mode : {"bilinear", "nearest"}) {
      for (const bool align : {false, true}) {
        std::vector<double> x(2 * 3 * 5 * 7);
        for (size_t i = 0; i < x.size(); ++i)
          x[i] = i % 17 == 3 ? inf : i % 29 == 5 ? -inf : i % 41 == 7 ? nan : 0.1 * double(i % 13);
        OpTest test = Sample(padding, align, mode);
        test.Input("X", {2, 3, 5, 7}, x).RandomInput("Grid", {2, 9, 11, 2}, -1.3, 1.3).CheckFast();
      }
    }
  }
}

TEST(GridSampler, NoPlaceIsZero) {
  const double nan = std::nan("");
  for (const char* padding : {"zeros", "border", "reflection"}) {
    for (const char* mode : {"bilinear", "nearest"}) {
      Sample(padding, true, mode)
          .Input("X", {1, 1, 1, 2}, {2, 6})
          .Input("Grid", {1, 1, 1, 2}, {nan, 1e30})
          .Expect("Output", {1, 1, 1, 1}, {0});
    }
  }
}

TEST(GridSampler, Gradients) {
  for (const char* padding : {"zeros", "border", "reflection"}) {
    for (const bool align : {true, false}) {
      Sample(padding, align)
          .RandomInput("X", {2, 2, 3, 4})
          .RandomInput("Grid", {2, 2, 3, 2}, -1.6, 1.6)
          .CheckGradient({"X", "Grid"}, {.step = 1e-7, .tolerance = 1e-5});
      Sample(padding, align, "nearest")
          .RandomInput("X", {2, 2, 3, 4})
          .RandomInput("Grid", {2, 2, 3, 2}, -1.6, 1.6)
          .CheckGradient({"X"});
    }
  }
  // At a whole number the side of larger numbers; none where the border holds the place.
  OpTest("grid_sampler_grad")
      .Attr("padding_mode", std::string("border"))
      .Input("X", {1, 1, 1, 3}, {1, 2, 4})
      .Input("Grid", {1, 1, 2, 2}, {0, -1, 1.5, -1})
      .Input("Output@GRAD", {1, 1, 1, 2}, {10, 100})
      .Expect("X@GRAD", {1, 1, 1, 3}, {0, 10, 100})
      .Expect("Grid@GRAD", {1, 1, 2, 2}, {20, 0, 0, 0});
}

TEST(GridSampler, Constraints) {
  const auto op = [](const Shape& x, const Shape& grid) {
    return std::move(OpTest("grid_sampler").RandomInput("X", x).RandomInput("Grid", grid));
  };
  op({1, 1, 1}, {1, 1, 1, 2}).ExpectError("grid_sampler.C1");
  op({1, 1, 0, 2}, {1, 1, 1, 2}).ExpectError("grid_sampler.C1");
  op({1, 1, 1, 1}, {1, 1, 1, 3}).ExpectError("grid_sampler.C2");
  op({1, 1, 1, 1}, {2, 1, 1, 2}).ExpectError("grid_sampler.C2");
  OpTest("grid_sampler")
      .RandomInput("X", {1, 1, 1, 1})
      .TensorInput("Grid", Tensor::Zeros(DType::kFloat16, {1, 1, 1, 2}))
      .ExpectError("grid_sampler.C3");
  OpTest("grid_sampler_grad")
      .RandomInput("X", {1, 1, 1, 1})
      .RandomInput("Grid", {1, 1, 1, 2})
      .RandomInput("Output@GRAD", {1, 1, 2, 1})
      .ExpectError("grid_sampler_grad.C4");
}

}  // namespace coracle::grid_sampler_test
