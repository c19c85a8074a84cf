// Attention nodes of com.microsoft: MultiHeadAttention and Attention, with past keys and all forms
// of masks.
#include <coracle/test/convert/attention_reference.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

namespace coracle::onnx::onnx_transformers_test {

constexpr int64_t kBatch = 2, kHeads = 2, kQueries = 3, kKeys = 4, kSize = 5, kPast = 2;
constexpr int64_t kWidth = kHeads * kSize;

const Tensor q = Waves({kBatch, kQueries, kWidth}, 0.1f);
const Tensor k = Waves({kBatch, kKeys, kWidth}, 0.9f), v = Waves({kBatch, kKeys, kWidth}, 2.3f);

Tensor Int32s(const Shape& shape, const std::vector<int32_t>& values) {
  return Tensor::Of<int32_t>(shape, values);
}

OneNode MultiHead(const std::vector<std::optional<Tensor>>& inputs) {
  OneNode node("MultiHeadAttention", 1, inputs, "com.microsoft");
  node.Set("num_heads", kHeads);
  return node;
}

// Each with inputs as constants, fed, and fed with unknown dims.
void ExpectEach(const std::function<OneNode()>& node, int inputs, const Numbers& wanted) {
  ExpectNear(node().Run(), wanted);
  for (bool open : {false, true}) {
    OneNode fed = node();
    for (int i = 0; i < inputs; ++i) fed.FeedInput(i, open);
    ExpectNear(fed.Run(), wanted);
  }
}

struct Mask {
  const char* what;
  Tensor tensor;
  std::function<bool(int64_t b, int64_t i, int64_t j)> sees;
};

std::vector<Mask> MasksOf(int64_t keys) {
  Tensor two(DType::kInt32, {kBatch, keys}), three(DType::kInt32, {kBatch, kQueries, keys});
  const auto sees_two = [](int64_t b, int64_t, int64_t j) { return (b + j) % 3 != 1; };
  const auto sees_three = [](int64_t b, int64_t i, int64_t j) { return (b + i + 2 * j) % 3 != 1; };
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t j = 0; j < keys; ++j) {
      two.data<int32_t>()[b * keys + j] = sees_two(b, 0, j) ? 1 : 0;
      for (int64_t i = 0; i < kQueries; ++i)
        three.data<int32_t>()[(b * kQueries + i) * keys + j] = sees_three(b, i, j) ? 1 : 0;
    }
  }
  const auto ends = [](int64_t b, int64_t, int64_t j) { return j < (b == 0 ? 3 : 2); };
  const auto between = [](int64_t b, int64_t, int64_t j) {
    return b == 0 ? j == 1 || j == 2 : j < 2;
  };
  return {{"ends", Int32s({kBatch}, {3, 2}), ends},
          {"ends, starts", Int32s({2 * kBatch}, {3, 2, 1, 0}), between},
          {"ends, places", Int32s({3 * kBatch + 2}, {3, 2, 0, 3, 6, 0, 3, 5}), ends},
          {"keys", two, sees_two},
          {"queries and keys", three, sees_three}};
}

TEST(OnnxTransformers, MasksOfMultiHeadAttention) {
  for (const Mask& mask : MasksOf(kKeys)) {
    for (float hidden : {-10000.0f, -3.0f}) {
      SCOPED_TRACE(mask.what);
      const auto bias = [&](int64_t b, int64_t, int64_t i, int64_t j) {
        return mask.sees(b, i, j) ? 0.0 : double{hidden};
      };
      const HeadTensor wanted =
          AttentionOf(Split(q, kHeads), Split(k, kHeads), Split(v, kHeads), {.bias = bias});
      const auto node = [&] {
        OneNode made = MultiHead({q, k, v, kAbsent, mask.tensor});
        if (hidden != -10000.0f) made.Set("mask_filter_value", hidden);
        return made;
      };
      ExpectNear(node().Run(), wanted.Packed());
      OneNode fed = node();
      ExpectNear(fed.FeedInput(0).FeedInput(4).Run(), wanted.Packed());
      if (mask.tensor.shape()[0] == 3 * kBatch + 2) continue;  // told by its known length
      OneNode open = node();
      ExpectNear(open.FeedInput(0).FeedInput(1).FeedInput(2).FeedInput(4, true).Run(),
                 wanted.Packed());
    }
  }
}

// A sample whose keys are all hidden by minus infinity gives zeros.
TEST(OnnxTransformers, AMaskThatHidesAllKeys) {
  const Tensor mask = Int32s({kBatch, kKeys}, {0, 0, 0, 0, 1, 0, 1, 1});
  const auto bias = [](int64_t b, int64_t, int64_t, int64_t j) {
    return b == 0 || j == 1 ? kHiddenKey : 0.0;
  };
  OneNode node = MultiHead({q, k, v, kAbsent, mask});
  node.Set("mask_filter_value", -std::numeric_limits<float>::infinity()).FeedInput(0);
  ExpectNear(
      node.Run(),
      AttentionOf(Split(q, kHeads), Split(k, kHeads), Split(v, kHeads), {.bias = bias}).Packed());
}

TEST(OnnxTransformers, PastKeysAndValues) {
  const Tensor past_k = Waves({kBatch, kHeads, kPast, kSize}, 1.1f);
  const Tensor past_v = Waves({kBatch, kHeads, kPast, kSize}, 3.1f);
  const Tensor x = Waves({kBatch, kQueries, kWidth}, 0.4f), bias = Waves({3 * kWidth}, 1.7f);
  const Tensor added = Waves({1, kHeads, kQueries, kPast + kQueries}, 0.6f);
  const auto shifted = [&](const Tensor& from, int64_t part) {
    Tensor to = from.Clone();
    for (int64_t i = 0; i < to.numel(); ++i)
      to.data<float>()[i] += bias.data<float>()[part * kWidth + i % kWidth];
    return Split(to, kHeads);
  };
  const HeadTensor keys = After(WithHeadsOf(past_k), shifted(x, 1));
  const HeadTensor values = After(WithHeadsOf(past_v), shifted(x, 2));
  for (bool causal : {false, true}) {
    const auto rule = [&](int64_t, int64_t h, int64_t i, int64_t j) {
      const int64_t at = (h * kQueries + i) * (kPast + kQueries) + j;
      return causal && j > i + kPast ? kHiddenKey : double{added.data<float>()[at]};
    };
    const HeadTensor wanted =
        AttentionOf(shifted(q, 0), keys, values, {.bias = rule, .scale = 0.3});
    const auto node = [&] {
      OneNode made = MultiHead({q, x, x, bias, kAbsent, added, past_k, past_v});
      made.Set("scale", 0.3f).Set("unidirectional", int64_t{causal}).Outputs(3);
      return made;
    };
    const std::vector<Tensor> results = node().FeedInput(0).FeedInput(6).Results();
    ExpectNear(NumbersOf(results[0]), wanted.Packed());
    ExpectNear(NumbersOf(results[1]), keys.ToNumbers());
    ExpectNear(NumbersOf(results[2]), values.ToNumbers());
    OneNode open = node();
    ExpectNear(NumbersOf(open.FeedInput(6, true).FeedInput(7, true).Results()[0]), wanted.Packed());
  }
}

TEST(OnnxTransformers, KeysAndValuesOfAnEncoder) {
  const Tensor keys = Waves({kBatch, kHeads, kKeys, kSize}, 1.1f);
  const Tensor values = Waves({kBatch, kHeads, kKeys, kSize}, 3.1f);
  const HeadTensor wanted = AttentionOf(Split(q, kHeads), WithHeadsOf(keys), WithHeadsOf(values));
  ExpectEach([&] { return MultiHead({q, keys, values}); }, 3, wanted.Packed());
}

// The run of a node whose inputs are fed with open dims fails; constants are refused with a text.
void ExpectFailures(const std::function<OneNode()>& node, int inputs, const std::string& text) {
  OneNode known = node(), fed = node();
  EXPECT_NE(known.Refusal().find(text), std::string::npos) << known.Refusal();
  for (int i = 0; i < inputs; ++i) fed.FeedInput(i, true);
  EXPECT_NE(fed.Refusal(), "") << text;
}

TEST(OnnxTransformers, KeysOfAnEncoderWithOtherHeads) {
  const Tensor one = Waves({kBatch, 1, kKeys, kSize}, 1.1f);
  const Tensor all = Waves({kBatch, kHeads, kKeys, kSize}, 1.1f);
  ExpectFailures([&] { return MultiHead({q, one, all}); }, 3, "input 1 has 1 heads");
  ExpectFailures([&] { return MultiHead({q, all, one}); }, 3, "input 2 has 1 heads");
}

// [batch, length, heads, 3, size], of dims that may be open.
Tensor PackedHeads(const std::vector<Tensor>& parts) {
  const auto count = static_cast<int64_t>(parts.size());
  Tensor packed(DType::kFloat32, {kBatch, kQueries, kHeads, count, kSize});
  float* to = packed.data<float>();
  for (int64_t head = 0; head < kBatch * kQueries * kHeads; ++head)
    for (const Tensor& part : parts) to = std::copy_n(part.data<float>() + head * kSize, kSize, to);
  return packed;
}

TEST(OnnxTransformers, QueriesKeysAndValuesInOneInput) {
  const Tensor keys = Waves({kBatch, kQueries, kWidth}, 0.9f);
  const Tensor values = Waves({kBatch, kQueries, kWidth}, 2.3f);
  const HeadTensor wanted =
      AttentionOf(Split(q, kHeads), Split(keys, kHeads), Split(values, kHeads));
  const Tensor all = PackedHeads({q, keys, values});
  ExpectEach([&] { return MultiHead({all}); }, 1, wanted.Packed());
  const Tensor pairs = PackedHeads({keys, values});
  ExpectEach([&] { return MultiHead({q, pairs}); }, 2, wanted.Packed());
  // Heads and parts in the wrong order: as many elements.
  const Tensor other = all.Reshaped({kBatch, kQueries, 3, kHeads, kSize});
  ExpectFailures([&] { return MultiHead({other}); }, 1, "must hold 3 tensors of 2 heads");
}

TEST(OnnxTransformers, ABiasOfTheWrongLength) {
  for (int64_t length : {int64_t{1}, 2 * kWidth + 1, 3 * kWidth - 1, 3 * kWidth + 1}) {
    const Tensor wrong = Waves({length}, 0.5f);
    const auto node = [&] { return MultiHead({q, k, v, wrong}); };
    OneNode known = node(), open = node();
    EXPECT_NE(known.Refusal().find("but must have 30"), std::string::npos) << known.Refusal();
    EXPECT_NE(open.FeedInput(3, true).Refusal(), "");
  }
  const Tensor right = Waves({3 * kWidth}, 0.5f);
  OneNode known = MultiHead({q, k, v, right}), open = MultiHead({q, k, v, right});
  ExpectNear(open.FeedInput(3, true).Run(), known.Run());
}

Tensor HeadsOf(int64_t heads, float phase) { return Waves({1, heads, 3, kSize}, phase); }

// Numbers of heads that only a run knows.
TEST(OnnxTransformers, SharedHeadsKnownAtRunTime) {
  for (bool flex : {false, true}) {
    const auto node = [&](int64_t queries, int64_t keys, int64_t values) {
      const std::vector<std::optional<Tensor>> inputs = {
          HeadsOf(queries, 0.1f), HeadsOf(keys, 0.9f), HeadsOf(values, 2.3f)};
      return flex ? OneNode("FlexAttention", 1, inputs, "ai.onnx.preview")
                  : OneNode("Attention", 23, inputs);
    };
    ExpectEach([&] { return node(6, 3, 3); }, 3,
               AttentionOf(WithHeadsOf(HeadsOf(6, 0.1f)), WithHeadsOf(HeadsOf(3, 0.9f)),
                           WithHeadsOf(HeadsOf(3, 2.3f)))
                   .ToNumbers());
    for (const auto& [queries, keys] :
         {std::pair<int64_t, int64_t>{3, 2}, {2, 3}, {5, 3}, {1, 2}}) {
      ExpectFailures([&] { return node(queries, keys, keys); }, 3, "cannot share");
      OneNode open = node(queries, keys, keys);
      for (int i = 0; i < 3; ++i) open.FeedInput(i, true);
      EXPECT_NE(open.Refusal().find("Q a multiple of it"), std::string::npos) << open.Refusal();
    }
    ExpectFailures([&] { return node(6, 3, 2); }, 3, "K has 3 heads, but V has 2");
    ExpectFailures([&] { return node(2, 2, 1); }, 3, "K has 2 heads, but V has 1");
  }
}

// --- Attention ---

constexpr int64_t kIn = 4;
const Tensor x = Waves({kBatch, kQueries, kIn}, 0.2f);
const Tensor bias = Waves({3 * kWidth}, 0.5f), weights = Waves({kIn, 3 * kWidth}, 1.5f);

// Columns [begin, begin + width) of x weights + bias, with heads.
HeadTensor Projected(const Tensor& matrix, const Tensor& shift, int64_t begin, int64_t width) {
  Tensor y(DType::kFloat32, {kBatch, kQueries, width});
  const int64_t columns = matrix.shape()[1];
  for (int64_t row = 0; row < kBatch * kQueries; ++row) {
    for (int64_t c = 0; c < width; ++c) {
      double sum = double{shift.data<float>()[begin + c]};
      for (int64_t i = 0; i < kIn; ++i)
        sum += double{x.data<float>()[row * kIn + i]} *
               double{matrix.data<float>()[i * columns + begin + c]};
      y.data<float>()[row * width + c] = static_cast<float>(sum);
    }
  }
  return Split(y, kHeads);
}

OneNode Packed(const std::vector<std::optional<Tensor>>& inputs) {
  OneNode node("Attention", 1, inputs, "com.microsoft");
  node.Set("num_heads", kHeads);
  return node;
}

TEST(OnnxTransformers, MasksOfAttention) {
  const HeadTensor keys = Projected(weights, bias, kWidth, kWidth);
  for (const Mask& mask : MasksOf(kQueries)) {
    for (bool causal : {false, true}) {
      SCOPED_TRACE(mask.what);
      const auto rule = [&](int64_t b, int64_t, int64_t i, int64_t j) {
        return causal && j > i ? kHiddenKey : mask.sees(b, i, j) ? 0.0 : -10000.0;
      };
      const HeadTensor wanted =
          AttentionOf(Projected(weights, bias, 0, kWidth), keys,
                      Projected(weights, bias, 2 * kWidth, kWidth), {.bias = rule});
      OneNode node = Packed({x, weights, bias, mask.tensor});
      node.Set("unidirectional", int64_t{causal}).FeedInput(0);
      ExpectNear(node.Run(), wanted.Packed());
    }
  }
}

TEST(OnnxTransformers, AttentionWithPast) {
  const Tensor past = Waves({2, kBatch, kHeads, kPast, kSize}, 1.1f);
  const Shape part = {kBatch, kHeads, kPast, kSize};
  const int64_t half = part.numel(), most = 8;
  const float* from = past.data<float>();
  const HeadTensor keys =
      After(WithHeadsOf(F(part, {from, from + half})), Projected(weights, bias, kWidth, kWidth));
  const HeadTensor values = After(WithHeadsOf(F(part, {from + half, from + 2 * half})),
                                  Projected(weights, bias, 2 * kWidth, kWidth));
  // A mask of all positions, of which the queries have those from 2.
  Tensor mask(DType::kInt32, {kBatch, 1, most, most});
  const auto sees = [](int64_t b, int64_t i, int64_t j) { return (b + i + 2 * j) % 4 != 1; };
  for (int64_t b = 0; b < kBatch; ++b)
    for (int64_t i = 0; i < most; ++i)
      for (int64_t j = 0; j < most; ++j)
        mask.data<int32_t>()[(b * most + i) * most + j] = sees(b, i, j) ? 1 : 0;
  const auto rule = [&](int64_t b, int64_t, int64_t i, int64_t j) {
    return j > i + kPast ? kHiddenKey : sees(b, i + kPast, j) ? 0.0 : -10000.0;
  };
  OneNode node = Packed({x, weights, bias, mask, past});
  node.Set("unidirectional", int64_t{1}).Outputs(2).FeedInput(0).FeedInput(4, true);
  const std::vector<Tensor> results = node.Results();
  ExpectNear(
      NumbersOf(results[0]),
      AttentionOf(Projected(weights, bias, 0, kWidth), keys, values, {.bias = rule}).Packed());
  Numbers present = keys.ToNumbers();
  const Numbers second = values.ToNumbers();
  present.insert(present.end(), second.begin(), second.end());
  EXPECT_EQ(results[1].shape(), Shape({2, kBatch, kHeads, kPast + kQueries, kSize}));
  ExpectNear(NumbersOf(results[1]), present);
}

TEST(OnnxTransformers, ValuesOfAnotherWidth) {
  const int64_t width = kHeads * 3;
  const Tensor matrix = Waves({kIn, 2 * kWidth + width}, 1.5f);
  const Tensor shift = Waves({2 * kWidth + width}, 0.5f);
  OneNode node = Packed({x, matrix, shift});
  node.Set("qkv_hidden_sizes", Integers{kWidth, kWidth, width}).FeedInput(0);
  ExpectNear(node.Run(), AttentionOf(Projected(matrix, shift, 0, kWidth),
                                     Projected(matrix, shift, kWidth, kWidth),
                                     Projected(matrix, shift, 2 * kWidth, width))
                             .Packed());
}

TEST(OnnxTransformers, WidthsThatAreNotTheColumns) {
  for (const Integers& widths : {Integers{4, 4, 4}, Integers{kWidth, kWidth, 2 * kWidth}}) {
    const auto node = [&] { return Packed({x, weights}).Set("qkv_hidden_sizes", widths); };
    ExpectFailures(node, 2, "the weights have 30 columns");
  }
  const int64_t most = std::numeric_limits<int64_t>::max() / 2;
  EXPECT_NE(Packed({x, weights}).Set("qkv_hidden_sizes", Integers{most, most, most}).Refusal(), "");
  // A bias of one element would broadcast.
  const Tensor one = Waves({1}, 0.5f);
  OneNode known = Packed({x, weights, one}), open = Packed({x, weights, one});
  EXPECT_NE(known.Refusal().find("but must have 30"), std::string::npos) << known.Refusal();
  EXPECT_NE(open.FeedInput(2, true).Refusal(), "");
}

// The same with integers and their scales.
TEST(OnnxTransformers, QuantizedAttention) {
  const Shape columns = {3 * kWidth};
  Tensor numbers(DType::kUInt8, x.shape()), matrix(DType::kInt8, weights.shape());
  Tensor real = x.Clone(), real_matrix = weights.Clone(), scales = Waves(columns, 0.6f);
  for (int64_t i = 0; i < x.numel(); ++i) {
    numbers.data<uint8_t>()[i] = static_cast<uint8_t>((i * 37) % 256);
    real.data<float>()[i] = 0.01f * (static_cast<float>((i * 37) % 256) - 120);
  }
  for (float& scale : scales.span<float>()) scale = 0.02f + 0.01f * scale;
  for (int64_t i = 0; i < weights.numel(); ++i) {
    const int64_t value = (i * 53) % 256 - 128;
    matrix.data<int8_t>()[i] = static_cast<int8_t>(value);
    real_matrix.data<float>()[i] =
        scales.data<float>()[i % columns[0]] * (static_cast<float>(value) - 5);
  }
  OneNode wanted = Packed({real, real_matrix, bias});
  OneNode node("QAttention", 1,
               {numbers, matrix, bias, F({1}, {0.01f}), scales, kAbsent,
                Tensor::Of<uint8_t>({1}, std::vector<uint8_t>{120}),
                Tensor::Of<int8_t>({1}, std::vector<int8_t>{5})},
               "com.microsoft");
  node.Set("num_heads", kHeads).FeedInput(0);
  ExpectNear(node.Run(), wanted.Run());
}

void ExpectRefusal(OneNode node, const std::string& text) {
  EXPECT_NE(node.Refusal().find(text), std::string::npos) << node.Refusal();
}

TEST(OnnxTransformers, WhatIsRefused) {
  const Tensor past = Waves({kBatch, kHeads, kPast, kSize}, 1.1f), length = Int32s({1}, {2});
  ExpectRefusal(MultiHead({q, k, v, kAbsent, kAbsent, kAbsent, past}), "given together");
  ExpectRefusal(MultiHead({q, k, v, kAbsent, kAbsent, kAbsent, past, past, length}),
                "that a beam search shares");
  ExpectRefusal(MultiHead({q, k, v, kAbsent, Int32s({3}, {1, 2, 3})}), "a mask of rank 1 has 3");
  ExpectRefusal(MultiHead({q, k, v}).Outputs(4), "remove this output");
  ExpectRefusal(Packed({x, weights, bias}).Set("do_rotary", int64_t{1}), "RotaryEmbedding");
  ExpectRefusal(Packed({x, weights, bias}).Set("past_present_share_buffer", int64_t{1}),
                "of their own length");
  for (const char* type : {"BeamSearch", "GreedySearch", "Sampling"})
    ExpectRefusal(OneNode(type, 1, {x}, "com.microsoft"), "export the decoder alone");
  ExpectRefusal(OneNode("PackedAttention", 1, {x}, "com.microsoft"), "without the packing mode");
  ExpectRefusal(OneNode("QAttention", 1,
                        {Int32s(x.shape(), std::vector<int32_t>(x.numel(), 1)),
                         Int32s(weights.shape(), std::vector<int32_t>(weights.numel(), 1)), bias,
                         F({1}, {0.01f}), F({1}, {0.1f})},
                        "com.microsoft")
                    .Set("num_heads", kHeads),
                "input 0 must have integers of 8 bits");
}

}  // namespace coracle::onnx::onnx_transformers_test
