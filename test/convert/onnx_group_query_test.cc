// GroupQueryAttention of com.microsoft, and the rotary embedding inside and outside of it.
#include <coracle/test/convert/attention_reference.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

namespace coracle::onnx::onnx_group_query_test {

constexpr int64_t kBatch = 2, kHeads = 4, kShared = 2, kSize = 6, kMost = 8;
const Tensor cosines = Waves({kMost, 3}, 0.3f), sines = Waves({kMost, 3}, 1.3f);

Tensor Int32s(const Shape& shape, const std::vector<int32_t>& values) {
  return Tensor::Of<int32_t>(shape, values);
}

// Rotates pairs of each head; element i of batch b has the position first[b] + i.
HeadTensor Rotated(const HeadTensor& x, const std::vector<int64_t>& first, bool neighbours) {
  HeadTensor y = x;
  const int64_t half = cosines.shape()[1];
  for (int64_t b = 0; b < x.batch; ++b) {
    for (int64_t h = 0; h < x.heads; ++h) {
      for (int64_t i = 0; i < x.length; ++i) {
        for (int64_t p = 0; p < half; ++p) {
          const int64_t at = (first[static_cast<size_t>(b)] + i) * half + p;
          const double c = double{cosines.data<float>()[at]}, s = double{sines.data<float>()[at]};
          const int64_t d1 = neighbours ? 2 * p : p, d2 = neighbours ? 2 * p + 1 : p + half;
          y.at(b, h, i, d1) = c * x.at(b, h, i, d1) - s * x.at(b, h, i, d2);
          y.at(b, h, i, d2) = s * x.at(b, h, i, d1) + c * x.at(b, h, i, d2);
        }
      }
    }
  }
  return y;
}

struct Call {
  int64_t length = 3;                // new tokens
  std::vector<int32_t> totals = {};  // of each sample, with the new ones
  int64_t held = 0;                  // places of the past; 0: there is none
  bool rotates = false, neighbours = false;
  int64_t window = -1;
  double softcap = 0;
  bool sinks = false, smooth = false;
};

struct Tensors {
  Tensor q, k, v, past_k, past_v;
  std::vector<int64_t> pasts;
  int64_t total = 0;
};

Tensors TensorsOf(const Call& call) {
  Tensors t;
  t.q = Waves({kBatch, call.length, kHeads * kSize}, 0.1f);
  t.k = Waves({kBatch, call.length, kShared * kSize}, 0.9f);
  t.v = Waves({kBatch, call.length, kShared * kSize}, 2.3f);
  t.past_k = Waves({kBatch, kShared, call.held, kSize}, 1.1f);
  t.past_v = Waves({kBatch, kShared, call.held, kSize}, 3.1f);
  for (int32_t total : call.totals) {
    t.pasts.push_back(std::max<int64_t>(total - call.length, 0));
    t.total = std::max<int64_t>(t.total, total);
  }
  return t;
}

OneNode NodeOf(const Call& call, const Tensors& t) {
  std::vector<int32_t> last;
  for (int32_t total : call.totals) last.push_back(total - 1);
  std::vector<std::optional<Tensor>> inputs = {t.q, t.k, t.v};
  for (const Tensor* past : {&t.past_k, &t.past_v})
    inputs.push_back(call.held > 0 ? std::optional<Tensor>(*past) : kAbsent);
  inputs.push_back(Int32s({kBatch}, last));
  inputs.push_back(Int32s({1}, {static_cast<int32_t>(t.total)}));
  if (call.rotates) {
    inputs.push_back(cosines);
    inputs.push_back(sines);
  }
  if (call.sinks) {
    inputs.resize(11);
    inputs.push_back(F({kHeads}, {0.5f, -1.0f, 2.0f, 0.0f}));
  }
  OneNode node("GroupQueryAttention", 1, inputs, "com.microsoft");
  node.Set("num_heads", kHeads).Set("kv_num_heads", kShared).Outputs(3);
  if (call.rotates) node.Set("do_rotary", int64_t{1});
  if (call.neighbours) node.Set("rotary_interleaved", int64_t{1});
  if (call.window > 0) node.Set("local_window_size", call.window);
  if (call.softcap > 0) node.Set("softcap", static_cast<float>(call.softcap));
  if (call.smooth) node.Set("smooth_softmax", int64_t{1});
  return node;
}

// The cache after the call: past tokens, new ones, zeros.
HeadTensor CacheOf(const Call& call, const Tensors& t, const HeadTensor& past,
                   const HeadTensor& added) {
  HeadTensor all(kBatch, kShared, std::max(call.held, t.total), kSize);
  for (int64_t b = 0; b < kBatch; ++b) {
    const int64_t before = t.pasts[static_cast<size_t>(b)];
    for (int64_t h = 0; h < kShared; ++h) {
      for (int64_t i = 0; i < std::min(all.length, before + call.length); ++i)
        for (int64_t d = 0; d < kSize; ++d)
          all.at(b, h, i, d) = i < before ? past.at(b, h, i, d) : added.at(b, h, i - before, d);
    }
  }
  return all;
}

void ExpectCall(const Call& call) {
  const Tensors t = TensorsOf(call);
  HeadTensor q = Split(t.q, kHeads), k = Split(t.k, kShared);
  if (call.rotates) {
    q = Rotated(q, t.pasts, call.neighbours);
    k = Rotated(k, t.pasts, call.neighbours);
  }
  const HeadTensor keys = CacheOf(call, t, WithHeadsOf(t.past_k), k);
  const HeadTensor values = CacheOf(call, t, WithHeadsOf(t.past_v), Split(t.v, kShared));
  AttentionRule rule;
  rule.softcap = call.softcap;
  if (call.sinks) rule.sinks = {0.5, -1.0, 2.0, 0.0};
  if (call.smooth) rule.sinks = {0, 0, 0, 0};
  rule.bias = [&](int64_t b, int64_t, int64_t i, int64_t j) {
    const auto at = static_cast<size_t>(b);
    const int64_t seen = std::min<int64_t>(t.pasts[at] + i + 1, call.totals[at]);
    const bool near = call.window < 0 || j >= seen - call.window;
    return j < seen && near ? 0.0 : kHiddenKey;
  };
  const HeadTensor wanted = AttentionOf(q, keys, values, rule);
  for (int fed = 0; fed < 3; ++fed) {
    OneNode node = NodeOf(call, t);
    if (fed > 0) node.FeedInput(0).FeedInput(1).FeedInput(2).FeedInput(5).FeedInput(6);
    if (fed > 0 && call.held > 0) node.FeedInput(3, fed == 2).FeedInput(4, fed == 2);
    const std::vector<Tensor> results = node.Results();
    ExpectNear(NumbersOf(results[0]), wanted.Packed());
    ExpectNear(NumbersOf(results[1]), keys.ToNumbers());
    ExpectNear(NumbersOf(results[2]), values.ToNumbers());
  }
}

TEST(OnnxGroupQuery, Prompts) {
  ExpectCall({.length = 3, .totals = {3, 3}});
  ExpectCall({.length = 4, .totals = {4, 2}});  // the second sample is padded
  ExpectCall({.length = 3, .totals = {3, 2}, .held = kMost});
}

TEST(OnnxGroupQuery, Steps) {
  ExpectCall({.length = 1, .totals = {4, 4}, .held = 3});
  ExpectCall({.length = 1, .totals = {4, 2}, .held = kMost});  // a buffer of the whole length
  ExpectCall({.length = 2, .totals = {5, 5}, .held = 3});
}

TEST(OnnxGroupQuery, RotationsInside) {
  for (bool neighbours : {false, true}) {
    ExpectCall({.length = 3, .totals = {3, 3}, .rotates = true, .neighbours = neighbours});
    ExpectCall(
        {.length = 1, .totals = {4, 2}, .held = kMost, .rotates = true, .neighbours = neighbours});
  }
}

TEST(OnnxGroupQuery, Windows) {
  ExpectCall({.length = 4, .totals = {4, 3}, .window = 2});
  ExpectCall({.length = 1, .totals = {5, 3}, .held = kMost, .window = 3});
}

TEST(OnnxGroupQuery, CappedScoresAndSinks) {
  ExpectCall({.length = 3, .totals = {3, 3}, .softcap = 0.5});
  ExpectCall({.length = 3, .totals = {3, 3}, .sinks = true});
  ExpectCall({.length = 1, .totals = {4, 2}, .held = kMost, .smooth = true});
}

// Queries, keys and values in one input give what they give in three.
TEST(OnnxGroupQuery, PackedInputs) {
  const Call call = {.length = 3, .totals = {3, 2}, .rotates = true};
  const Tensors t = TensorsOf(call);
  Tensor packed(DType::kFloat32, {kBatch, call.length, (kHeads + 2 * kShared) * kSize});
  float* to = packed.data<float>();
  for (int64_t row = 0; row < kBatch * call.length; ++row) {
    for (const Tensor* part : {&t.q, &t.k, &t.v}) {
      const int64_t width = part->shape()[2];
      to = std::copy_n(part->data<float>() + row * width, width, to);
    }
  }
  OneNode node("GroupQueryAttention", 1,
               {packed, kAbsent, kAbsent, kAbsent, kAbsent, Int32s({kBatch}, {2, 1}),
                Int32s({1}, {3}), cosines, sines},
               "com.microsoft");
  node.Set("num_heads", kHeads).Set("kv_num_heads", kShared).Set("do_rotary", int64_t{1});
  ExpectNear(node.FeedInput(0, true).Run(), NumbersOf(NodeOf(call, t).Results()[0]));
}

TEST(OnnxGroupQuery, ASummandOfTheScores) {
  const Call call = {.length = 1, .totals = {4, 4}, .held = kMost};
  const Tensors t = TensorsOf(call);
  const Tensor added = Waves({1, kHeads, 1, 4}, 0.4f);
  OneNode node("GroupQueryAttention", 1,
               {t.q, t.k, t.v, t.past_k, t.past_v, Int32s({kBatch}, {3, 3}), Int32s({1}, {4}),
                kAbsent, kAbsent, kAbsent, added},
               "com.microsoft");
  node.Set("num_heads", kHeads).Set("kv_num_heads", kShared).FeedInput(0).FeedInput(6);
  const auto bias = [&](int64_t, int64_t h, int64_t, int64_t j) {
    return j < 4 ? double{added.data<float>()[h * 4 + j]} : kHiddenKey;
  };
  const HeadTensor keys = CacheOf(call, t, WithHeadsOf(t.past_k), Split(t.k, kShared));
  const HeadTensor values = CacheOf(call, t, WithHeadsOf(t.past_v), Split(t.v, kShared));
  ExpectNear(node.Run(), AttentionOf(Split(t.q, kHeads), keys, values, {.bias = bias}).Packed());
}

TEST(OnnxGroupQuery, WhatIsRefused) {
  const Call call = {.length = 3, .totals = {3, 3}};
  const auto refusal = [&](const char* attr, int64_t value) {
    return NodeOf(call, TensorsOf(call)).Set(attr, value).Refusal();
  };
  EXPECT_NE(refusal("qk_output", 1).find("which shows the scores"), std::string::npos);
  EXPECT_NE(refusal("sliding_window_cache", 1).find("a cache of the whole length"),
            std::string::npos);
  OneNode quantized = NodeOf(call, TensorsOf(call));
  quantized.Set("k_quant_type", std::string("PER_TENSOR"));
  EXPECT_NE(quantized.Refusal().find("a cache of quantized keys"), std::string::npos);
}

// --- numbers that do not fit, which only a run may know ---

void ExpectFailure(OneNode node, const std::string& text) {
  EXPECT_NE(node.Refusal().find(text), std::string::npos) << node.Refusal();
}

// The same with constants, and fed with open dims.
void ExpectFailures(const std::function<OneNode()>& node, int inputs, const std::string& text) {
  ExpectFailure(node(), text);
  OneNode fed = node();
  for (int i = 0; i < inputs; ++i) fed.FeedInput(i, true);
  ExpectFailure(fed, text);
}

TEST(OnnxGroupQuery, AsManyKeysAndValuesAsQueries) {
  const Call call = {.length = 1, .totals = {4, 4}, .held = kMost};
  const Tensors t = TensorsOf(call);
  const Tensor more = Waves({kBatch, 2, kShared * kSize}, 0.9f);
  const Tensor none = Waves({kBatch, 0, kShared * kSize}, 0.9f);
  const Tensor samples = Waves({1, 1, kShared * kSize}, 0.9f);
  const auto node = [&](const Tensor& k, const Tensor& v) {
    return OneNode("GroupQueryAttention", 1,
                   {t.q, k, v, t.past_k, t.past_v, Int32s({kBatch}, {3, 3}), Int32s({1}, {4})},
                   "com.microsoft")
        .Set("num_heads", kHeads)
        .Set("kv_num_heads", kShared);
  };
  for (const Tensor* other : {&more, &none, &samples}) {
    ExpectFailures([&] { return node(*other, *other); }, 7, "not as many as the queries");
    ExpectFailures([&] { return node(t.k, *other); }, 7, "not as many as the queries");
  }
}

TEST(OnnxGroupQuery, LengthsThatDoNotFitTheCache) {
  const std::string text = "feed the lengths of this cache";
  for (const Call& call : {Call{.length = 1, .totals = {6, 4}, .held = 3},
                           Call{.length = 1, .totals = {10, 4}, .held = kMost},
                           Call{.length = 3, .totals = {0, 3}, .held = kMost}}) {
    ExpectFailures([&] { return NodeOf(call, TensorsOf(call)); }, 7, text);
  }
  for (const Call& call :
       {Call{.length = 3, .totals = {5, 3}}, Call{.length = 3, .totals = {0, 3}}}) {
    ExpectFailure(NodeOf(call, TensorsOf(call)), text);
    ExpectFailure(NodeOf(call, TensorsOf(call)).FeedInput(5, true), text);
  }
  // total_sequence_length counts too few.
  const Call call = {.length = 1, .totals = {4, 4}, .held = 3};
  Tensors t = TensorsOf(call);
  t.total = 3;
  ExpectFailures([&] { return NodeOf(call, t); }, 7, text);
}

TEST(OnnxGroupQuery, PastValuesOfAnotherLength) {
  const Call call = {.length = 1, .totals = {4, 4}, .held = 4};
  Tensors t = TensorsOf(call);
  t.past_v = Waves({kBatch, kShared, 6, kSize}, 3.1f);
  ExpectFailures([&] { return NodeOf(call, t); }, 7, "must have one length");
}

TEST(OnnxGroupQuery, ANumberForEachSample) {
  const Call call = {.length = 1, .totals = {4}, .held = kMost};
  const auto node = [&] {
    const Tensors t = TensorsOf(call);
    return OneNode("GroupQueryAttention", 1,
                   {t.q, t.k, t.v, t.past_k, t.past_v, Int32s({1}, {3}), Int32s({1}, {4})},
                   "com.microsoft")
        .Set("num_heads", kHeads)
        .Set("kv_num_heads", kShared);
  };
  ExpectFailure(node(), "seqlens_k");
  EXPECT_NE(node().FeedInput(0, true).FeedInput(5, true).Refusal(), "");
}

TEST(OnnxGroupQuery, HugeAttributes) {
  const Call call = {.length = 3, .totals = {3, 3}};
  const Tensors t = TensorsOf(call);
  const int64_t huge = int64_t{1} << 62;
  for (bool packed : {false, true}) {
    OneNode node = packed ? OneNode("GroupQueryAttention", 1,
                                    {t.q, kAbsent, kAbsent, kAbsent, kAbsent,
                                     Int32s({kBatch}, {2, 2}), Int32s({1}, {3})},
                                    "com.microsoft")
                          : NodeOf(call, t).Clear("num_heads").Clear("kv_num_heads");
    ExpectFailure(node.Set("num_heads", huge).Set("kv_num_heads", huge).FeedInput(0, true),
                  "at most 1048576");
  }
  // No window hides a key.
  const Numbers wanted = NumbersOf(NodeOf(call, t).Results()[0]);
  for (int64_t window : {int64_t{0}, std::numeric_limits<int64_t>::max()})
    ExpectNear(NodeOf(call, t).Set("local_window_size", window).Run(), wanted);
}

// --- RotaryEmbedding of com.microsoft ---

TEST(OnnxGroupQuery, AFirstPositionForAllSamples) {
  const Tensor x = Waves({kBatch, 3, kHeads * kSize}, 0.2f);
  const HeadTensor wanted = Rotated(Split(x, kHeads), {4, 4}, false);
  for (bool open : {false, true}) {
    OneNode node("RotaryEmbedding", 1, {x, I({4}), cosines, sines}, "com.microsoft");
    if (open) node.Set("num_heads", kHeads);  // else it follows from the tables
    ExpectNear(node.FeedInput(0, open).FeedInput(1).Run(), wanted.Packed());
  }
}

// One sample must not be rotated to several.
TEST(OnnxGroupQuery, PositionsOfMoreSamplesThanX) {
  const Tensor x = Waves({1, 3, kHeads * kSize}, 0.2f);
  const Tensor ids = Tensor::Of<int64_t>({2, 3}, {0, 1, 2, 4, 5, 6});
  OneNode node("RotaryEmbedding", 1, {x, ids, cosines, sines}, "com.microsoft");
  node.Set("num_heads", kHeads);
  ExpectFailure(node, "position_ids must be for 1 or 1 samples");
  // The rest of a head, which is not rotated, does not fit.
  ExpectFailure(node.FeedInput(0, true).FeedInput(1, true), "concat");
}

// The same inside of GroupQueryAttention, with positions as an input.
TEST(OnnxGroupQuery, GivenPositions) {
  const auto node = [&](int64_t batch, const Shape& shape, const std::vector<int64_t>& ids) {
    return OneNode(
               "GroupQueryAttention", 1,
               {Waves({batch, 2, kHeads * kSize}, 0.1f), Waves({batch, 2, kShared * kSize}, 0.9f),
                Waves({batch, 2, kShared * kSize}, 2.3f), kAbsent, kAbsent,
                Int32s({batch}, std::vector<int32_t>(static_cast<size_t>(batch), 1)),
                Int32s({1}, {2}), cosines, sines, Tensor::Of<int64_t>(shape, ids)},
               "com.microsoft")
        .Set("num_heads", kHeads)
        .Set("kv_num_heads", kShared)
        .Set("do_rotary", int64_t{1});
  };
  // The positions that the node counts itself.
  Call call = {.length = 2, .totals = {2, 2}, .rotates = true};
  const Numbers wanted = NumbersOf(NodeOf(call, TensorsOf(call)).Results()[0]);
  for (bool open : {false, true}) {
    ExpectNear(node(kBatch, {2, 2}, {0, 1, 0, 1}).FeedInput(0, open).FeedInput(9, open).Run(),
               wanted);
    ExpectNear(node(kBatch, {1, 2}, {0, 1}).FeedInput(0, open).FeedInput(9).Run(), wanted);
  }
  ExpectFailure(node(1, {2, 2}, {0, 1, 4, 5}), "position_ids must be for 1 or 1 samples, got 2");
  // A rest of a head may not be rotated; it does not fit.
  ExpectFailure(node(1, {2, 2}, {0, 1, 4, 5}).FeedInput(0, true).FeedInput(9, true), "concat");
  ExpectFailure(node(1, {1, 1}, {3}), "position_ids must have one row for each of 2 tokens");
  ExpectFailure(node(1, {1, 1}, {3}).FeedInput(0, true).FeedInput(9, true), "reshape");
}

TEST(OnnxGroupQuery, PackedBatchesOfRotaryAreRefused) {
  const Tensor x = Waves({kBatch, 3, kHeads * kSize}, 0.2f);
  OneNode node("RotaryEmbedding", 1, {x, I({4}), cosines, sines}, "com.microsoft");
  node.Set("is_packed_batching", int64_t{1});
  EXPECT_NE(node.Refusal().find("is_packed_batching"), std::string::npos);
}

}  // namespace coracle::onnx::onnx_group_query_test
