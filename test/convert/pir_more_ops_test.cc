// Programs of Paddle 3: ops that are composed of others or pass values on, what works in place, and
// loops that carry many values.
#include <coracle/convert/pir/in_place.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/test/convert/pir_run.h>
#include <coracle/test/convert/pir_text.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

namespace coracle::pir_more_ops_test {

using namespace coracle::pir_run;  // NOLINT: the helpers of these tests

TEST(PirMoreOps, Swiglu) {
  PirText text;
  const PirType four = {"f32", {2, 4}}, two = {"f32", {2, 2}};
  const int64_t x = text.Data("x", four), y = text.Data("y", two);
  text.Fetch(text.Op("1.swiglu", {x, 0}, {two}), two, "halves", 0);
  text.Fetch(text.Op("1.swiglu", {y, y}, {two}), two, "pair", 1);
  const auto results = RunText(text.Text(), {Numbers({2, 4}, {1, -2, 3, 4, 0.5f, 0, -1, 2}),
                                             Numbers({2, 2}, {1, 2, -3, 0})});
  const auto silu = [](double v) { return v / (1 + std::exp(-v)); };
  ExpectNumbers(results[0], {2, 2}, {3 * silu(1), 4 * silu(-2), -silu(0.5), 2 * silu(0)});
  ExpectNumbers(results[1], {2, 2}, {silu(1), 2 * silu(2), -3 * silu(-3), 0});
}

TEST(PirMoreOps, LerpAlsoInPlace) {
  PirText text;
  const PirType two = {"f32", {2}}, one = {"f32", {1}};
  const int64_t x = text.Data("x", two), y = text.Data("y", two), w = text.Data("w", one);
  text.Op("1.lerp_", {x, y, w}, {two});
  text.Fetch(text.Op("1.abs", {x}, {two}), two);
  const auto results =
      RunText(text.Text(), {Numbers({2}, {1, -8}), Numbers({2}, {5, 4}), Numbers({1}, {0.25f})});
  ExpectNumbers(results[0], {2}, {2, 5});
}

TEST(PirMoreOps, RepeatInterleave) {
  PirText text;
  const int64_t x = text.Data("x", {"f32", {-1, 2}});
  text.Fetch(text.Op("1.repeat_interleave", {x}, {{"f32", {-1, 6}}},
                     {PirInt("repeats", 3), PirInt("axis", -1)}),
             {"f32", {-1, 6}}, "columns", 0);
  text.Fetch(text.Op("1.repeat_interleave", {x}, {{"f32", {-1, 2}}},
                     {PirInt("repeats", 2), PirInt("axis", 0)}),
             {"f32", {-1, 2}}, "rows", 1);
  const auto results = RunText(text.Text(), {Numbers({2, 2}, {1, 2, 3, 4})});
  ExpectNumbers(results[0], {2, 6}, {1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4});
  ExpectNumbers(results[1], {4, 2}, {1, 2, 1, 2, 3, 4, 3, 4});
}

TEST(PirMoreOps, TakeAlongAxis) {
  for (const int64_t axis : {0, 1, 2, -1}) {
    PirText text;
    const int64_t along = axis < 0 ? axis + 3 : axis;
    std::vector<int64_t> dims = {2, 3, 2}, chosen = {2, 3, 2};
    chosen[static_cast<size_t>(along)] = 4;
    std::vector<int64_t> fed = dims, fed_index = chosen;
    const size_t other = along == 0 ? 1 : 0;
    dims[other] = chosen[other] = -1;
    const int64_t x = text.Data("x", {"f32", dims}), index = text.Data("i", {"i64", chosen});
    text.Fetch(text.Op("1.take_along_axis", {x, index}, {{"f32", chosen}}, {PirInt("axis", axis)}),
               {"f32", chosen});
    Tensor values(DType::kFloat32, Shape(fed)), indices(DType::kInt64, Shape(fed_index));
    for (int64_t i = 0; i < values.numel(); ++i) values.data<float>()[i] = static_cast<float>(i);
    for (int64_t i = 0; i < indices.numel(); ++i)
      indices.data<int64_t>()[i] = (5 * i + i / 3) % fed[static_cast<size_t>(along)];
    std::vector<double> want;
    for (int64_t i = 0; i < indices.numel(); ++i) {
      int64_t at[3] = {i / (fed_index[1] * fed_index[2]), i / fed_index[2] % fed_index[1],
                       i % fed_index[2]};
      at[along] = indices.data<int64_t>()[i];
      want.push_back(static_cast<double>((at[0] * fed[1] + at[1]) * fed[2] + at[2]));
    }
    SCOPED_TRACE(axis);
    ExpectNumbers(RunText(text.Text(), {values, indices})[0], Shape(fed_index), want);
  }
  PirText text;
  const PirType open = {"f32", {-1, -1, 3}};
  const int64_t x = text.Data("x", open), index = text.Data("i", {"i64", {-1, -1, 2}});
  text.Fetch(text.Op("1.take_along_axis", {x, index}, {open}, {PirInt("axis", 2)}), open);
  ExpectRefusal(text.Text(), "more than one dim of its operands is unknown");
}

// Ops that pass on their operand, and outputs by builtin.shadow_output.
TEST(PirMoreOps, WhatPassesOn) {
  PirText text;
  const PirType two = {"f32", {2}};
  const int64_t x = text.Data("x", two), y = text.Data("y", two);
  const int64_t fed = text.Op("1.shadow_feed", {x}, {two});
  const int64_t list = text.Combine({fed, y}, {two, two});
  const PirType both = {.list = true, .items = {two, two}};
  const int64_t shadow = text.Op("1.shadow_feed_tensors", {list}, {both});
  const int64_t sum = text.Op("1.add_n", {shadow}, {two});
  const int64_t after = text.Op("1.depend", {sum, list}, {two});
  text.Op("0.shadow_output", {after}, {}, {PirString("output_name", "sum")});
  text.Op("0.shadow_output", {text.Op("1.empty_like", {x}, {two}, {PirDType("dtype", "float32")})},
          {}, {PirString("output_name", "empty")});
  const ProgramDesc program = ParsePir(text.Text(), "m.json");
  EXPECT_EQ(FetchNames(program), (std::vector<std::string>{"sum", "empty"}));
  const auto results = RunText(text.Text(), {Numbers({2}, {1, 2}), Numbers({2}, {10, 20})});
  ExpectNumbers(results[0], {2}, {11, 22});
}

TEST(PirMoreOps, RowsOfOtherNames) {
  PirText text;
  const PirType image = {"f32", {1, 4, 1, 2}}, flat = {"f32", {2, 4}};
  const int64_t x = text.Data("x", image);
  text.Fetch(text.Op("1.channel_shuffle", {x}, {image},
                     {PirInt("groups", 2), PirString("data_format", "NCHW")}),
             image, "shuffled", 0);
  const int64_t m = text.Op("1.view_shape", {x}, {flat}, {PirInts("dims", {2, 4})});
  text.Fetch(text.Op("1.frobenius_norm", {m, text.Ints({1})}, {{"f32", {2}}},
                     {PirBool("keep_dim", false), PirBool("reduce_all", false)}),
             {"f32", {2}}, "norms", 1);
  const auto results = RunText(text.Text(), {Numbers({1, 4, 1, 2}, {1, 1, 2, 2, 3, 3, 4, 4})});
  ExpectNumbers(results[0], {1, 4, 1, 2}, {1, 1, 3, 3, 2, 2, 4, 4});
  ExpectNumbers(results[1], {2}, {std::sqrt(10.0), std::sqrt(50.0)});
}

// --- what works in place ---

// By the keys `inplace` of Paddle's ops.yaml and static_ops.yaml.
TEST(PirInPlacePairs, AreThoseOfPaddle) {
  const auto pairs = [](const std::string& name, size_t operands, size_t results) {
    pir::Op op;
    op.name = "pd_op." + name;
    for (size_t i = 0; i < operands; ++i) op.operands.push_back(static_cast<int64_t>(i) + 1);
    for (size_t i = 0; i < results; ++i)
      op.results.push_back({static_cast<int64_t>(operands + i) + 1, {}});
    std::string text;
    for (const pir::InPlace& pair : pir::InPlaceOf(op))
      text += fmt::format("{}>{} ", pair.operand, pair.result);
    return text;
  };
  EXPECT_EQ(pairs("relu", 1, 1), "");
  EXPECT_EQ(pairs("relu_", 1, 1), "0>0 ");
  EXPECT_EQ(pairs("where_", 3, 1), "1>0 ");
  EXPECT_EQ(pairs("assign_out_", 2, 1), "1>0 ");
  EXPECT_EQ(pairs("assign_value_", 1, 1), "0>0 ");
  EXPECT_EQ(pairs("set_value_with_tensor_", 5, 1), "0>0 ");
  EXPECT_EQ(pairs("rnn_", 5, 4), "4>1 ");
  EXPECT_EQ(pairs("cross_entropy_with_softmax_", 2, 2), "0>0 ");
  // X itself is not overwritten.
  EXPECT_EQ(pairs("quantize_linear_", 5, 4), "1>3 3>2 4>1 ");
  EXPECT_EQ(pairs("dequantize_linear_", 3, 4), "1>3 ");
  EXPECT_EQ(pairs("batch_norm_", 5, 6), "");
  EXPECT_EQ(pairs("array_write_", 3, 1), "");
}

// --- hostile sizes ---

// A loop whose turns pass many values around; a look-up of each among all would take minutes.
TEST(PirLoops, CarryManyValues) {
  constexpr int64_t kValues = 60000;
  PirText text;
  const PirType one = {"f32", {}};
  const int64_t x = text.Data("x", one), c = text.Data("c", {"bool", {}});
  std::vector<int64_t> start = {c}, next = {c};
  std::vector<std::string> arguments;
  for (int64_t i = 0; i < kValues; ++i) {
    start.push_back(x);
    next.push_back(-1 - (i + 1) % kValues);
    arguments.push_back(fmt::format("{{\"%\":{},\"TT\":{}}}", -1 - i, TypeJson(one)));
  }
  PirText body = text.Inner();
  body.Op("2.yield", next, {});
  text.Skip(body);
  const int64_t loop = text.Op("1.while", start, std::vector<PirType>(kValues, one), {},
                               ",\"regions\":" + PirList({body.Region(arguments)}));
  text.Fetch(loop, one);
  const ProgramDesc program = ParsePir(text.Text(), "m.json");
  EXPECT_EQ(program.NumBlocks(), 2);
  // A copy of each value, then its next turn.
  EXPECT_GE(program.Block(1).NumOps(), static_cast<size_t>(2 * kValues));
}

}  // namespace coracle::pir_more_ops_test
