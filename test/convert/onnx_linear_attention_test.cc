// LinearAttention, FlexAttention, and what operator set 25 added to Attention. Caches may have an
// unknown shape.
#include <coracle/test/convert/any_node.h>
#include <coracle/test/convert/attention_reference.h>
#include <gtest/gtest.h>

namespace coracle::onnx::onnx_linear_attention_test {

constexpr int64_t kBatch = 2, kHeads = 4, kShared = 2, kKeySize = 3, kValueSize = 5;

struct Call {
  std::string rule;
  int64_t length = 3;
  bool past = true;
  bool one_decay = false, one_beta = false;  // for all elements of a head, for all heads
  std::string domain = "";
};

struct Tensors {
  Tensor q, k, v, state, decay, beta;
};

Tensors TensorsOf(const Call& call) {
  const int64_t t = call.length, decays = call.one_decay ? 1 : kKeySize;
  return {Waves({kBatch, t, kHeads * kKeySize}, 0.1f),
          Waves({kBatch, t, kShared * kKeySize}, 0.9f),
          Waves({kBatch, t, kShared * kValueSize}, 2.3f),
          Waves({kBatch, kShared, kKeySize, kValueSize}, 1.1f),
          Waves({kBatch, t, kShared * decays}, 0.4f),
          Waves({kBatch, t, call.one_beta ? 1 : kShared}, 0.6f)};
}

struct Result {
  HeadTensor y, state;
};

// The recurrence as ONNX's page on the op says it.
Result Reference(const Call& call, const Tensors& t) {
  const HeadTensor q = Split(t.q, kHeads), k = Split(t.k, kShared), v = Split(t.v, kShared);
  const HeadTensor decay = Split(t.decay, kShared), beta = Split(t.beta, call.one_beta ? 1 : 2);
  const bool gated = call.rule.starts_with("gated"), delta = call.rule.ends_with("delta");
  HeadTensor y(kBatch, kHeads, call.length, kValueSize), s = WithHeadsOf(t.state);
  if (!call.past) std::fill(s.values.begin(), s.values.end(), 0.0);
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t h = 0; h < kShared; ++h) {
      for (int64_t i = 0; i < call.length; ++i) {
        for (int64_t d = 0; gated && d < kKeySize; ++d)
          for (int64_t m = 0; m < kValueSize; ++m)
            s.at(b, h, d, m) *= std::exp(decay.at(b, h, i, call.one_decay ? 0 : d));
        for (int64_t m = 0; m < kValueSize; ++m) {
          double value = v.at(b, h, i, m);
          for (int64_t d = 0; delta && d < kKeySize; ++d)
            value -= s.at(b, h, d, m) * k.at(b, h, i, d);
          if (delta) value *= beta.at(b, call.one_beta ? 0 : h, i, 0);
          for (int64_t d = 0; d < kKeySize; ++d) s.at(b, h, d, m) += k.at(b, h, i, d) * value;
        }
        for (int64_t each = 0; each < kHeads / kShared; ++each) {
          const int64_t head = h * (kHeads / kShared) + each;
          for (int64_t m = 0; m < kValueSize; ++m)
            for (int64_t d = 0; d < kKeySize; ++d)
              y.at(b, head, i, m) +=
                  q.at(b, head, i, d) * s.at(b, h, d, m) / std::sqrt(static_cast<double>(kKeySize));
        }
      }
    }
  }
  return {y, s};
}

OneNode NodeOf(const Call& call, const Tensors& t) {
  std::vector<std::optional<Tensor>> inputs = {t.q, t.k, t.v, kAbsent, kAbsent, kAbsent};
  if (call.past) inputs[3] = t.state;
  if (call.rule.starts_with("gated")) inputs[4] = t.decay;
  if (call.rule.ends_with("delta")) inputs[5] = t.beta;
  OneNode node("LinearAttention", call.domain.empty() ? 27 : 1, inputs, call.domain);
  node.Set("q_num_heads", kHeads).Set("kv_num_heads", kShared).Set("update_rule", call.rule);
  node.Outputs(2);
  return node;
}

void ExpectCall(const Call& call) {
  SCOPED_TRACE(call.rule);
  const Tensors t = TensorsOf(call);
  const Result wanted = Reference(call, t);
  for (int fed = 0; fed < 3; ++fed) {
    OneNode node = NodeOf(call, t);
    for (int i = 0; fed > 0 && i < 3; ++i) node.FeedInput(i, fed == 2 && i < 2);
    const std::vector<Tensor> results = node.Results();
    ExpectNear(NumbersOf(results[0]), wanted.y.Packed());
    ExpectNear(NumbersOf(results[1]), wanted.state.ToNumbers());
  }
}

TEST(OnnxLinearAttention, Rules) {
  for (const char* rule : {"linear", "gated", "delta", "gated_delta"}) {
    for (int64_t length : {1, 3}) {
      for (bool past : {false, true}) ExpectCall({rule, length, past});
    }
  }
}

TEST(OnnxLinearAttention, GatesOfWholeHeads) {
  ExpectCall({.rule = "gated_delta", .one_decay = true, .one_beta = true});
  ExpectCall({.rule = "gated_delta", .length = 1, .one_decay = true, .one_beta = true});
  ExpectCall({.rule = "gated_delta", .domain = "com.microsoft"});
}

TEST(OnnxLinearAttention, AWiderState) {
  const Call call = {.rule = "gated_delta"};
  Tensors t = TensorsOf(call);
  const Result wanted = Reference(call, t);
  for (Tensor* x : {&t.q, &t.k, &t.v, &t.decay, &t.beta}) *x = x->Cast(DType::kFloat16);
  const std::vector<Tensor> results = NodeOf(call, t).FeedInput(0).Results();
  EXPECT_EQ(results[0].dtype(), DType::kFloat16);
  EXPECT_EQ(results[1].dtype(), DType::kFloat32);
  const Numbers got = NumbersOf(results[1]), state = wanted.state.ToNumbers();
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], state[i], 1e-2) << "element " << i;
}

TEST(OnnxLinearAttention, GatesThatTheRuleForbids) {
  Call call = {.rule = "gated_delta"};
  const Tensors t = TensorsOf(call);
  OneNode node = NodeOf(call, t);
  node.Clear("update_rule").Set("update_rule", std::string("gated"));
  EXPECT_NE(node.Refusal().find("beta (input 5) is forbidden"), std::string::npos);
  call.domain = "com.microsoft";
  OneNode window = NodeOf(call, t);
  EXPECT_NE(window.Set("state_window", int64_t{2}).Refusal().find("state_window"),
            std::string::npos);
}

void ExpectRefusal(OneNode node, const std::string& text) {
  EXPECT_NE(node.Refusal().find(text), std::string::npos) << node.Refusal();
}

TEST(OnnxLinearAttention, GatesOfUnknownWidth) {
  for (bool one : {false, true}) {
    const Call call = {.rule = "gated_delta", .one_decay = one, .one_beta = one};
    const Tensors t = TensorsOf(call);
    const Result wanted = Reference(call, t);
    OneNode node = NodeOf(call, t);
    for (int i : {0, 1, 2, 4, 5}) node.FeedInput(i, i > 2);
    const std::vector<Tensor> results = node.Results();
    ExpectNear(NumbersOf(results[0]), wanted.y.Packed());
    ExpectNear(NumbersOf(results[1]), wanted.state.ToNumbers());
  }
}

TEST(OnnxLinearAttention, NoTokens) {
  for (bool past : {false, true}) {
    const Call call = {.rule = "gated_delta", .length = 0, .past = past};
    const Tensors t = TensorsOf(call);
    for (bool open : {false, true}) {
      OneNode node = NodeOf(call, t);
      for (int i : {0, 1, 2, 4, 5}) node.FeedInput(i, open);
      const std::vector<Tensor> results = node.Results();
      EXPECT_EQ(results[0].shape(), Shape({kBatch, 0, kHeads * kValueSize}));
      ExpectNear(NumbersOf(results[1]), Reference(call, t).state.ToNumbers());
    }
  }
}

TEST(OnnxLinearAttention, AllInputsHaveTheTokensOfTheQuery) {
  const Call call = {.rule = "gated_delta"};
  const Tensors longer = TensorsOf({.rule = "gated_delta", .length = 4});
  for (int i : {1, 2, 4, 5}) {
    SCOPED_TRACE(i);
    Tensors t = TensorsOf(call);
    if (i == 1) t.k = longer.k;
    if (i == 2) t.v = longer.v;
    if (i == 4) t.decay = longer.decay;
    if (i == 5) t.beta = longer.beta;
    ExpectRefusal(NodeOf(call, t), "must have the batch and the tokens of the query (input 0)");
    ExpectRefusal(NodeOf(call, t).FeedInput(0, true).FeedInput(i, true), "concat");
  }
  Tensors wide = TensorsOf(call);
  wide.beta = Waves({kBatch, 3, 2 * kShared}, 0.6f);
  ExpectRefusal(NodeOf(call, wide), "beta (input 5) must have 1 or 2 elements");
}

TEST(OnnxLinearAttention, AStateOfAnotherShape) {
  const Call call = {.rule = "linear", .past = true};
  Tensors t = TensorsOf(call);
  t.state = Waves({1, kShared, kKeySize, kValueSize}, 1.1f);
  ExpectRefusal(NodeOf(call, t), "past_state (input 3) must be");
  ExpectRefusal(NodeOf(call, t).FeedInput(3, true), "reshape");
}

TEST(OnnxLinearAttention, RefusalsSayHowToMend) {
  const Call call = {.rule = "linear", .domain = "com.microsoft"};
  OneNode heads = NodeOf(call, TensorsOf(call));
  heads.Clear("q_num_heads").Set("q_num_heads", int64_t{1});
  ExpectRefusal(heads, "repeat the heads of the query (input 0) before the node");
  OneNode window = NodeOf(call, TensorsOf(call));
  ExpectRefusal(window.Set("state_window", int64_t{2}), "with state_window 0");
}

// A cast after the loop must not cost the state its name.
TEST(OnnxLinearAttention, OutputsKeepTheirNames) {
  for (DType dtype : {DType::kFloat16, DType::kFloat32}) {
    ModelProto model;
    model.add_opset_import()->set_version(27);
    GraphProto& graph = *model.mutable_graph();
    for (const char* name : {"q", "k", "v"}) Declare(graph, name, dtype, 3);  // [2, 2, 2]
    NodeProto& node = AddNode(graph, "LinearAttention", {"q", "k", "v"}, "y");
    node.add_output("state");
    AddAttr(node, "update_rule", AttributeProto::STRING).set_s("linear");
    for (const char* name : {"q_num_heads", "kv_num_heads"})
      AddAttr(node, name, AttributeProto::INT).set_i(1);
    for (const char* name : {"y", "state"}) graph.add_output()->set_name(name);
    Scope scope;
    const InferenceModel imported = ParseOnnx(model.SerializeAsString(), "m.onnx", scope, {});
    EXPECT_EQ(imported.fetch_names, (std::vector<std::string>{"y", "state"}));
    // A length that is known is known of the result.
    EXPECT_EQ(imported.program.Root().FindVar("y")->shape(), Shape({2, 2, 2}));
    PreparedProgram prepared = Executor().Prepare(imported.program);
    const Tensor x = F({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}).Cast(dtype);
    const Tensor state = prepared.Run(scope, {x, x, x}).at(1);
    EXPECT_EQ(state.dtype(), dtype);
    // The sums of products of k and v over the tokens.
    ExpectNear(NumbersOf(state), {10, 14, 14, 20, 74, 86, 86, 100});
  }
}

// --- Attention of operator set 25 ---

constexpr int64_t kQueries = 4, kKeys = 5, kSize = 3;
const Tensor q = Waves({kBatch, kHeads, kQueries, kSize}, 0.1f);
const Tensor k = Waves({kBatch, kShared, kKeys, kSize}, 0.9f);
const Tensor v = Waves({kBatch, kShared, kKeys, kSize}, 2.3f);

TEST(OnnxLinearAttention, WindowsOfAttention) {
  for (int64_t left : {-1, 0, 1}) {
    for (int64_t right : {-1, 0, 2}) {
      for (bool causal : {false, true}) {
        const auto bias = [&](int64_t, int64_t, int64_t i, int64_t j) {
          const bool seen = (left < 0 || j >= i - left) && (right < 0 || j <= i + right);
          return seen && (!causal || j <= i) ? 0.0 : kHiddenKey;
        };
        OneNode node("Attention", 25, {q, k, v});
        node.Set("left_window_size", left).Set("right_window_size", right);
        node.Set("is_causal", int64_t{causal}).FeedInput(0);
        ExpectNear(node.Run(),
                   AttentionOf(WithHeadsOf(q), WithHeadsOf(k), WithHeadsOf(v), {.bias = bias})
                       .ToNumbers());
      }
    }
  }
}

// Keys that hold tokens decide where the queries are; one sample has fewer of them than queries.
TEST(OnnxLinearAttention, WindowsInACache) {
  const std::vector<int64_t> filled = {5, 3};
  const auto bias = [&](int64_t b, int64_t, int64_t i, int64_t j) {
    const int64_t count = filled[static_cast<size_t>(b)], at = i + count - kQueries;
    return j < count && j <= at && j >= at - 1 ? 0.0 : kHiddenKey;
  };
  OneNode node("Attention", 25, {q, k, v, kAbsent, kAbsent, kAbsent, I(filled)});
  node.Set("left_window_size", int64_t{1}).Set("is_causal", int64_t{1}).FeedInput(0).FeedInput(6);
  ExpectNear(
      node.Run(),
      AttentionOf(WithHeadsOf(q), WithHeadsOf(k), WithHeadsOf(v), {.bias = bias}).ToNumbers());
}

TEST(OnnxLinearAttention, HeadsOfUnknownNumberAndSize) {
  OneNode node("Attention", 23, {q, k, v});
  for (int i = 0; i < 3; ++i) node.FeedInput(i, true);
  ExpectNear(node.Run(), AttentionOf(WithHeadsOf(q), WithHeadsOf(k), WithHeadsOf(v)).ToNumbers());
}

// --- FlexAttention ---

// A graph that multiplies its input by a number.
GraphProto Times(float factor) {
  GraphProto graph;
  graph.add_input()->set_name("in");
  NodeProto& constant = AddNode(graph, "Constant", {}, "factor");
  AddAttr(constant, "value_float", AttributeProto::FLOAT).set_f(factor);
  AddNode(graph, "Mul", {"in", "factor"}, "out");
  graph.add_output()->set_name("out");
  return graph;
}

TEST(OnnxLinearAttention, GraphsInFlexAttention) {
  for (bool open : {false, true}) {
    OneNode node("FlexAttention", 1, {q, k, v}, "ai.onnx.preview");
    node.Set("score_mod", Times(0.5f)).Set("prob_mod", Times(3.0f));
    node.Opset("", 24);
    for (int i = 0; i < 3; ++i) node.FeedInput(i, open);
    const double scale = 0.5 / std::sqrt(static_cast<double>(kSize));
    HeadTensor wanted =
        AttentionOf(WithHeadsOf(q), WithHeadsOf(k), WithHeadsOf(v), {.scale = scale});
    for (double& value : wanted.values) value *= 3;
    ExpectNear(node.Run(), wanted.ToNumbers());
  }
}

TEST(OnnxLinearAttention, GraphsOfIndicesAreRefused) {
  GraphProto graph = Times(1);
  graph.add_input()->set_name("index");
  OneNode node("FlexAttention", 1, {q, k, v}, "ai.onnx.preview");
  node.Set("score_mod", graph).Opset("", 24);
  EXPECT_NE(node.Refusal().find("score_mod of 2 inputs"), std::string::npos) << node.Refusal();
}

// --- TensorScatter ---

TEST(OnnxLinearAttention, CachesOfUnknownShape) {
  const Tensor cache = Waves({kBatch, kShared, kKeys, kSize}, 0.1f);
  const Tensor update = Waves({kBatch, kShared, 2, kSize}, 1.9f);
  const std::vector<int64_t> starts = {3, 4};
  for (bool circular : {false, true}) {
    HeadTensor wanted = WithHeadsOf(cache);
    const HeadTensor from = WithHeadsOf(update);
    for (int64_t b = 0; b < kBatch; ++b) {
      for (int64_t h = 0; h < kShared; ++h) {
        for (int64_t i = 0; i < 2; ++i) {
          const int64_t at = starts[static_cast<size_t>(b)] + i;
          if (!circular && at >= kKeys) continue;
          for (int64_t d = 0; d < kSize; ++d) wanted.at(b, h, at % kKeys, d) = from.at(b, h, i, d);
        }
      }
    }
    OneNode node("TensorScatter", 24, {cache, update, I(starts)});
    if (circular) node.Set("mode", std::string("circular"));
    for (int i = 0; i < 3; ++i) node.FeedInput(i, true);
    ExpectNear(node.Run(), wanted.ToNumbers());
  }
}

}  // namespace coracle::onnx::onnx_linear_attention_test
