#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/rnn_spec.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace coracle::onnx {
namespace {

struct Defaults {
  bool has_alpha, has_beta;
  float alpha, beta;
};

// ONNX's activations, with the defaults of their parameters.
const std::map<std::string, Defaults>& KnownActivations() {
  static const std::map<std::string, Defaults> known = {
      {"Relu", {false, false, 0, 0}},           {"Tanh", {false, false, 0, 0}},
      {"Sigmoid", {false, false, 0, 0}},        {"Softsign", {false, false, 0, 0}},
      {"Softplus", {false, false, 0, 0}},       {"Affine", {true, true, 1.0f, 0.0f}},
      {"LeakyRelu", {true, false, 0.01f, 0}},   {"ThresholdedRelu", {true, false, 1.0f, 0}},
      {"ScaledTanh", {true, true, 1.0f, 1.0f}}, {"HardSigmoid", {true, true, 0.2f, 0.5f}},
      {"Elu", {true, false, 1.0f, 0}},
  };
  return known;
}

// Alphas and betas are assigned in order to the activations that have one.
std::vector<RnnActivation> ReadActivations(NodeContext& node, int directions,
                                           const std::vector<std::string>& defaults) {
  const size_t count = defaults.size() * static_cast<size_t>(directions);
  std::vector<std::string> names =
      node.attributes().Strings("activations").value_or(std::vector<std::string>());
  for (size_t i = names.size(); names.empty() || i < count; ++i)
    names.push_back(defaults[i % defaults.size()]);
  node.Require(
      names.size() == count,
      fmt::format("attribute activations must have {} names, got {}", count, names.size()));
  const std::vector<float> alphas = node.Floats("activation_alpha", {});
  const std::vector<float> betas = node.Floats("activation_beta", {});
  size_t alpha = 0, beta = 0;
  std::vector<RnnActivation> activations;
  for (const std::string& name : names) {
    const auto found = KnownActivations().find(name);
    if (found == KnownActivations().end())
      node.Refuse(fmt::format("attribute activations: there is no activation {}", name));
    const Defaults& d = found->second;
    RnnActivation activation{name, d.alpha, d.beta};
    if (d.has_alpha && alpha < alphas.size()) activation.alpha = alphas[alpha++];
    if (d.has_beta && beta < betas.size()) activation.beta = betas[beta++];
    activations.push_back(activation);
  }
  return activations;
}

// Zeros [D, N, H]; only x [T, N, I] may know N.
Variable ZeroState(NodeContext& node, const RnnSpec& spec) {
  const int64_t batch = spec.x.shape()[1];
  if (batch >= 0)
    return FillConstant(node.writer(), spec.dtype, 0, {spec.directions, batch, spec.hidden});
  return node.Make(
      "fill_constant_batch_size_like", {{"Input", {spec.x.name()}}},
      {{"shape", std::vector<int32_t>{spec.directions, -1, ToInt32(spec.hidden, "hidden_size")}},
       {"dtype", static_cast<int32_t>(spec.dtype)},
       {"value", 0.0f},
       {"input_dim_idx", 1},
       {"output_dim_idx", 1}});
}

void RequireShape(NodeContext& node, const Variable& x, const Shape& want, const char* what) {
  node.Require(x.shape().rank() == want.rank() && x.shape().CompatibleWith(want),
               fmt::format("{} must have the shape {}, got {}", what, want.ToString(),
                           x.shape().ToString()));
}

void ReadInputs(NodeContext& node, RnnSpec& spec, int states) {
  spec.x = node.In(0);
  spec.w = node.In(1);
  spec.r = node.In(2);
  node.Require(
      spec.x.shape().rank() == 3 && spec.w.shape().rank() == 3 && spec.r.shape().rank() == 3,
      "X, W and R must have three dimensions");
  if (node.op_type() == "DynamicQuantizeLSTM") {  // has W and R transposed
    spec.w = node.Transpose(spec.w, {0, 2, 1});
    spec.r = node.Transpose(spec.r, {0, 2, 1});
  }
  if (spec.batch_first) spec.x = node.Transpose(spec.x, {1, 0, 2});
  if (spec.hidden == 0) spec.hidden = spec.r.shape()[2];
  if (spec.hidden < 0) node.RefuseUnknown("the hidden size", "the shapes of the cell's parts");
  node.Require(spec.hidden > 0, "the hidden size must be positive");
  const int64_t d = spec.directions, rows = spec.gates * spec.hidden, batch = spec.x.shape()[1];
  RequireShape(node, spec.w, {d, rows, spec.x.shape()[2]}, "W");
  RequireShape(node, spec.r, {d, rows, spec.hidden}, "R");
  if (node.HasInput(3)) {
    spec.b = node.In(3);
    RequireShape(node, spec.b, {d, 2 * rows}, "B");
  }
  if (node.HasInput(4)) {
    spec.lengths = node.In(4);
    RequireShape(node, spec.lengths, {batch}, "sequence_lens");
  }
  for (int i = 0; i < states; ++i) {
    const size_t at = 5 + static_cast<size_t>(i);
    if (!node.HasInput(at)) {
      spec.initial.push_back(ZeroState(node, spec));
      continue;
    }
    Variable state = node.In(at);
    node.Require(state.shape().rank() == 3, "an initial state must have three dimensions");
    if (spec.batch_first) state = node.Transpose(state, {1, 0, 2});
    RequireShape(node, state, {d, batch, spec.hidden}, "an initial state");
    spec.initial.push_back(state);
  }
  if (node.HasInput(7)) {
    spec.peepholes = node.In(7);
    RequireShape(node, spec.peepholes, {d, 3 * spec.hidden}, "P");
  }
}

}  // namespace

RnnSpec ReadRnnSpec(NodeContext& node, int gates, const std::vector<std::string>& defaults) {
  RnnSpec spec;
  spec.gates = gates;
  spec.dtype = node.dtype(0);
  const std::string direction =
      node.OneOf("direction", "forward", {"forward", "reverse", "bidirectional"});
  spec.directions = direction == "bidirectional" ? 2 : 1;
  spec.reverse = direction == "reverse";
  const bool has_layout = node.row().domain.empty() && node.opset() >= 14;
  spec.batch_first = has_layout && node.Flag("layout", false);
  spec.hidden = node.Int("hidden_size", 0);
  node.Require(spec.hidden >= 0, "attribute hidden_size must be positive");
  spec.clip = node.Float("clip", 0.0f);
  spec.activations = ReadActivations(node, spec.directions, defaults);
  ReadInputs(node, spec, gates == 4 ? 2 : 1);
  return spec;
}

Variable OfDirection(NodeContext& node, const RnnSpec& spec, const Variable& x, int direction) {
  const std::vector<int32_t> first = {0};
  if (spec.directions == 1 && x.shape()[0] == 1)
    return node.WithXShape("squeeze2", x, {{"axes", first}});
  return node.Make("slice", {{"Input", {x.name()}}},
                   {{"axes", first},
                    {"starts", std::vector<int32_t>{direction}},
                    {"ends", std::vector<int32_t>{direction + 1}},
                    {"decrease_axis", first}});
}

void SetRnnOutputs(NodeContext& node, const RnnSpec& spec, const Variable& y,
                   const std::vector<Variable>& last) {
  if (node.Wants(0)) node.Set(0, spec.batch_first ? node.Transpose(y, {2, 0, 1, 3}) : y);
  for (size_t i = 0; i < last.size(); ++i) {
    if (!node.Wants(1 + i)) continue;
    node.Set(1 + i, spec.batch_first ? node.Transpose(last[i], {1, 0, 2}) : last[i]);
  }
}

}  // namespace coracle::onnx
