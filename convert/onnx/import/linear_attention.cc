// LinearAttention: attention by a state of each head, which each token updates.

#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/import/attention_parts.h>
#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/while_loop.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

namespace coracle::onnx {
namespace {

// [batch, heads, tokens, ...]; in a step, of one token.
struct Tokens {
  Variable q, k, v;
  Variable decay = {}, beta = {};  // {} if the rule has none
};

struct Step {
  Variable state, output;
};

// The keys' heads share queries: each has `group` of them.
struct Rule {
  int64_t heads = 0, group = 0;
};

// State S [batch, heads, key size, value size] becomes exp(decay) S + k beta (v - k' exp(decay) S),
// where beta and the difference may be absent; the output is q' S.
Step StepOf(NodeContext& node, const Rule& rule, const Tokens& t, const Variable& before) {
  const auto product = [&](const Variable& x, const Variable& y, bool transposed) {
    return node.Make("matmul_v2", {{"X", {x.name()}}, {"Y", {y.name()}}},
                     {{"trans_x", transposed}});
  };
  Variable state = before, v = t.v;
  if (t.decay) {
    // [batch, heads, 1, key size or 1] as a factor of the rows of the state.
    state = state * Exp(node.Transpose(t.decay, {0, 1, 3, 2}));
  }
  if (t.beta) v = (v - product(t.k, state, false)) * t.beta;
  state = state + product(t.k, v, true);
  const int64_t size = t.q.shape()[3];
  const Variable q = node.Reshape(t.q, {0, rule.heads, rule.group, size});
  return {state, product(q, state, false)};
}

Tokens TokenAt(NodeContext& node, const Tokens& all, const Variable& place) {
  const auto at = [&](const Variable& x) {
    if (!x) return x;
    return node.Make("gather", {{"X", {x.name()}}, {"Index", {place.name()}}},
                     {{"axis", int32_t{2}}});
  };
  return {at(all.q), at(all.k), at(all.v), at(all.decay), at(all.beta)};
}

// Input i [batch, tokens, any], whose batch and tokens are those of the query. Where only a run
// knows them, concat compares them.
Variable OfTokens(NodeContext& node, size_t i) {
  const Variable q = node.In(0), x = node.In(i);
  bool known = true;
  for (int axis : {0, 1}) {
    const int64_t own = x.shape()[axis], wanted = q.shape()[axis];
    known = known && own >= 0 && wanted >= 0;
    node.Require(own < 0 || wanted < 0 || own == wanted,
                 fmt::format("input {} must have the batch and the tokens of the query (input 0), "
                             "got {} and {}",
                             i, x.shape().ToString(), q.shape().ToString()));
  }
  if (known) return x;
  const Variable column = node.Cast(SliceOf(node, q, 2, 0, 1), x.dtype());
  const Variable both = variable_functions::Concat({x, column}, 2);
  const int64_t width = x.shape()[2];
  if (width >= 0) return SliceOf(node, both, 2, 0, width);
  return SliceBetween(node, both, 2, node.ScalarVar(DType::kInt64, 0), DimOf(node, x, 2));
}

void RequireGate(NodeContext& node, size_t i, bool needed, const char* what) {
  node.Require(node.HasInput(i) == needed,
               fmt::format("{} (input {}) is {} by attribute update_rule", what, i,
                           needed ? "needed" : "forbidden"));
}

// [batch, tokens, 1 or heads] as [batch, 1 or heads, tokens, 1].
Variable BetaOf(NodeContext& node, int64_t heads) {
  const Variable beta = OfTokens(node, 5);
  const int64_t width = beta.shape()[2];
  node.Require(width < 0 || width == 1 || width == heads,
               fmt::format("beta (input 5) must have 1 or {} elements for each token, got {}",
                           heads, width));
  // Of one head, a run must not broadcast other widths.
  const int64_t columns = heads == 1 ? 1 : width;
  return node.Transpose(node.Reshape(beta, {0, 0, columns, 1}), {0, 2, 1, 3});
}

Tokens TokensOf(NodeContext& node, int64_t q_heads, int64_t heads) {
  const std::string rule =
      node.OneOf("update_rule", "gated_delta", {"linear", "gated", "delta", "gated_delta"});
  const bool decays = rule == "gated" || rule == "gated_delta";
  const bool corrects = rule == "delta" || rule == "gated_delta";
  RequireGate(node, 4, decays, "decay");
  RequireGate(node, 5, corrects, "beta");
  Tokens t = {.q = WithHeads(node, node.In(0), q_heads),
              .k = WithHeads(node, OfTokens(node, 1), heads),
              .v = WithHeads(node, OfTokens(node, 2), heads)};
  t.q = ScaledHeads(node, t.q, node.Float("scale", 0.0f));
  if (decays) t.decay = WithHeads(node, OfTokens(node, 4), heads);
  if (corrects) t.beta = BetaOf(node, heads);
  return t;
}

// With one more token of zeros, which leaves the state as it is: a loop over it gives a result even
// if there is no other token.
Tokens WithIdleToken(NodeContext& node, const Tokens& all) {
  const auto longer = [&](const Variable& x) {
    const std::vector<int32_t> paddings = {0, 0, 0, 0, 0, 1, 0, 0};
    return x ? node.Unary("pad", x, {{"paddings", paddings}}) : x;
  };
  return {longer(all.q), longer(all.k), longer(all.v), longer(all.decay), longer(all.beta)};
}

// [batch, heads, key size, value size]. If only a run knows these sizes, the reshape checks them.
Variable FirstState(NodeContext& node, const Tokens& t) {
  Dims dims;
  dims.Add(t.k, 0, 2).Add(t.k, 3).Add(t.v, 3);
  if (node.HasInput(3)) {
    const Shape given = node.shape(3), wanted = dims.shape();
    bool known = true, matches = given.rank() == 4;
    for (int i = 0; matches && i < 4; ++i) {
      known = known && given[i] >= 0 && wanted[i] >= 0;
      matches = given[i] < 0 || wanted[i] < 0 || given[i] == wanted[i];
    }
    node.Require(matches, fmt::format("past_state (input 3) must be [batch, heads, key size, value "
                                      "size], here {}, got {}",
                                      wanted.ToString(), given.ToString()));
    return known ? node.In(3) : ReshapedBy(node, node.In(3), dims.ToVector(node), wanted);
  }
  return BroadcastTo(node, node.ScalarVar(t.q.dtype(), 0), dims);
}

// Output 1 has the type of the state before, which may be wider than that of the tokens.
DType StateDType(NodeContext& node) { return node.InValue(node.HasInput(3) ? 3 : 0).dtype(); }

void SetState(NodeContext& node, const Variable& state) {
  if (!node.Wants(1)) return;
  const DType dtype = StateDType(node);
  node.SetValue(1, {.var = node.Cast(state, dtype), .data_type = ToDataType(dtype)});
}

// The results of all tokens; there may be none.
LoopResult OverTokens(NodeContext& node, const Rule& rule, const Tokens& given,
                      const Variable& first) {
  const Variable length = DimOf(node, given.q, 2);
  const bool known = given.q.shape()[2] > 0;
  const Tokens tokens = known ? given : WithIdleToken(node, given);
  WhileLoop loop(node, known ? length : Max(length, node.ScalarVar(DType::kInt64, 1)), Variable());
  const auto value = [](const Variable& x) {
    return std::make_shared<Value>(Value{.var = x, .data_type = ToDataType(x.dtype())});
  };
  // If a cast follows, the state of the loop is not the output.
  const bool is_output = first.dtype() == StateDType(node);
  loop.AddCarried(*value(first), first, is_output ? 1 : node.NumOutputs());
  LoopResult result = loop.Run([&](const Variable& place, const Values& states) {
    const Step step = StepOf(node, rule, TokenAt(node, tokens, place), states[0]->var);
    return Turn{nullptr, {value(step.state)}, {value(step.output)}};
  });
  if (!known) {
    const Variable zero = node.ScalarVar(DType::kInt64, 0);
    result.collected[0] = value(SliceBetween(node, result.collected[0]->var, 0, zero, length));
  }
  return result;
}

// [tokens, batch, heads, group, size] as [batch, tokens, all heads * size].
Variable Output(NodeContext& node, const Variable& collected, const Variable& q) {
  const Variable y = node.Transpose(collected, {1, 0, 2, 3, 4});
  const int64_t size = y.shape()[4], q_heads = q.shape()[1];
  Dims dims;
  dims.Add(q, 0).Add(q, 2);
  if (size >= 0)
    dims.Add(size * q_heads);
  else
    dims.AddNumber(DimOf(node, y, 4) * static_cast<double>(q_heads));
  return Reshaped(node, y, dims);
}

void ImportLinearAttention(NodeContext& node) {
  node.attributes().Ignore("chunk_size");
  if (const int64_t window = node.Int("state_window", 0); window != 0) {
    node.Refuse(
        fmt::format("attribute state_window of {}, which keeps the states of several tokens: "
                    "export the model with state_window 0, which keeps the last one",
                    window));
  }
  const int64_t q_heads = node.Int("q_num_heads"), heads = node.Int("kv_num_heads");
  if (q_heads >= 1 && heads > q_heads) {
    node.Refuse(
        fmt::format("{0} heads of keys (attribute kv_num_heads) for {1} heads of queries "
                    "(q_num_heads): repeat the heads of the query (input 0) before the node, and "
                    "set q_num_heads to {0}",
                    heads, q_heads));
  }
  RequireShared(node, q_heads, heads);
  const Rule rule = {heads, q_heads / heads};
  const Tokens tokens = TokensOf(node, q_heads, heads);
  const Variable first = FirstState(node, tokens);
  if (tokens.q.shape()[2] == 1) {
    const Step step = StepOf(node, rule, tokens, first);
    node.Set(0, node.Reshape(step.output, {0, 1, -1}));
    return SetState(node, step.state);
  }
  const LoopResult result = OverTokens(node, rule, tokens, first);
  node.Set(0, Output(node, result.collected[0]->var, tokens.q));
  SetState(node, result.carried[0]->var);
}

}  // namespace

void AddLinearAttentionImporters(NodeImporters& importers) {
  for (const char* domain : {"", "com.microsoft"}) {
    const bool own = !*domain;
    importers.Add({.op_type = "LinearAttention",
                   .since = own ? 27 : 1,
                   .takes = "f3 f3 f3 f4? f3? f3?",
                   .import = ImportLinearAttention,
                   .maps_to = "matmul_v2, exp, elementwise_add in a while",
                   .composed = true,
                   .domain = domain});
  }
}

}  // namespace coracle::onnx
