// The cells of LSTM, GRU and RNN as ops in the block of a `recurrent` op, for the forms that the op
// `rnn` does not support: other activations, clipping, peepholes, coupled gates, and a GRU whose
// reset gate acts before the product.

#include <coracle/convert/onnx/import/graph_importer.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/rnn_spec.h>
#include <coracle/framework/op/check/block_use.h>
#include <coracle/operators/operators.h>

namespace coracle::onnx {
namespace {

using Vars = std::vector<Variable>;

Variable Activated(NodeContext& node, const RnnSpec& spec, const RnnActivation& act, Variable x) {
  const double alpha = static_cast<double>(act.alpha), beta = static_cast<double>(act.beta);
  if (spec.clip > 0) x = node.Unary("clip", x, {{"min", -spec.clip}, {"max", spec.clip}});
  if (act.type == "Affine") return x * alpha + beta;
  if (act.type == "ScaledTanh") return node.Unary("tanh", x * beta) * alpha;
  if (act.type == "LeakyRelu") return node.Unary("leaky_relu", x, {{"alpha", act.alpha}});
  if (act.type == "ThresholdedRelu")
    return node.Unary("thresholded_relu", x, {{"threshold", act.alpha}});
  if (act.type == "HardSigmoid")
    return node.Unary("hard_sigmoid", x, {{"slope", act.alpha}, {"offset", act.beta}});
  if (act.type == "Elu") return node.Unary("elu", x, {{"alpha", act.alpha}});
  std::string type = act.type;
  type[0] = static_cast<char>(type[0] - 'A' + 'a');  // relu, tanh, sigmoid, softsign, softplus
  return node.Unary(type, x);
}

// Part i of the last axis, of the size of a state.
Variable PartOf(NodeContext& node, const RnnSpec& spec, const Variable& x, int i) {
  return SliceOf(node, x, x.shape().rank() - 1, i * spec.hidden, (i + 1) * spec.hidden);
}

// [T, N, 1]: 1 if a sequence is longer than the step.
Variable MaskOf(NodeContext& node, const RnnSpec& spec) {
  const Variable zero = node.ScalarVar(DType::kInt64, 0), one = node.ScalarVar(DType::kInt64, 1);
  const Variable steps = DimOf(node, spec.x, 0);
  const Variable numbers = node.Make(
      "range", {{"Start", {zero.name()}}, {"End", {steps.name()}}, {"Step", {one.name()}}});
  const Variable lengths = node.Cast(spec.lengths, DType::kInt64);
  return node.Cast(Less(node.Reshape(numbers, {-1, 1, 1}), node.Reshape(lengths, {1, -1, 1})),
                   spec.dtype);
}

// The mask of a step as bools of x's shape. A product with it would give nan for infinite or nan
// elements of a padded step.
Variable Longer(NodeContext& node, const Variable& mask, const Variable& x) {
  return node.Cast(FillLike(x, 1.0) * mask, DType::kBool);
}

// The weights of the recurrence: transposed products with the state, a bias inside of a gate, and
// the peepholes of i, o and f.
struct CellWeights {
  Variable r, r_candidate, rb;
  Vars peepholes;
};

// The formulas of a step.
class Cell {
 public:
  Cell(NodeContext& node, const RnnSpec& spec, const RnnCell& cell, int direction,
       const CellWeights& weights)
      : node_(node), spec_(spec), cell_(cell), direction_(direction), weights_(weights) {}

  // The states after a step, from its projected input and the states before it.
  Vars Next(const Variable& x, const Vars& before) const {
    if (spec_.gates == 4) return Lstm(x, before);
    return spec_.gates == 3 ? Gru(x, before) : Rnn(x, before);
  }

 private:
  Variable Part(const Variable& x, int i) const { return PartOf(node_, spec_, x, i); }
  Variable Act(int i, const Variable& x) const {
    return Activated(node_, spec_, spec_.Activation(direction_, i), x);
  }

  Variable OfState(const Variable& h) const {
    return cell_.product ? cell_.product(h, weights_.r, direction_, true)
                         : node_.Binary("matmul_v2", h, weights_.r);
  }

  // Gates i, o, f, c; peepholes i, o, f.
  Vars Lstm(const Variable& x, const Vars& before) const {
    const Variable h = before[0], c = before[1];
    const Variable gates = x + OfState(h);
    Variable i = Part(gates, 0), o = Part(gates, 1), f = Part(gates, 2);
    if (!weights_.peepholes.empty()) i = i + weights_.peepholes[0] * c;
    i = Act(0, i);
    if (cell_.couples) {
      f = 1.0 - i;
    } else {
      if (!weights_.peepholes.empty()) f = f + weights_.peepholes[2] * c;
      f = Act(0, f);
    }
    const Variable next = f * c + i * Act(1, Part(gates, 3));
    if (!weights_.peepholes.empty()) o = o + weights_.peepholes[1] * next;
    o = Act(0, o);
    return {o * Act(2, next), next};
  }

  // Gates z, r, h.
  Vars Gru(const Variable& x, const Vars& before) const {
    const Variable h = before[0];
    Variable z, candidate;
    if (cell_.linear_before_reset) {
      Variable u = node_.Binary("matmul_v2", h, weights_.r);
      if (weights_.rb) u = u + weights_.rb;
      z = Act(0, Part(x, 0) + Part(u, 0));
      const Variable r = Act(0, Part(x, 1) + Part(u, 1));
      candidate = Act(1, Part(x, 2) + r * Part(u, 2));
    } else {
      const Variable u =
          SliceOf(node_, x, 1, 0, 2 * spec_.hidden) + node_.Binary("matmul_v2", h, weights_.r);
      z = Act(0, Part(u, 0));
      const Variable r = Act(0, Part(u, 1));
      candidate = Act(1, Part(x, 2) + node_.Binary("matmul_v2", r * h, weights_.r_candidate));
    }
    return {(1.0 - z) * candidate + z * h};
  }

  Vars Rnn(const Variable& x, const Vars& before) const {
    return {Act(0, x + node_.Binary("matmul_v2", before[0], weights_.r))};
  }

  NodeContext& node_;
  const RnnSpec& spec_;
  const RnnCell& cell_;
  const int direction_;
  const CellWeights& weights_;
};

// One direction.
class Stepper {
 public:
  Stepper(NodeContext& node, const RnnSpec& spec, const RnnCell& cell, int direction)
      : node_(node), spec_(spec), cell_(cell), direction_(direction) {}

  // Returns Y [T, N, H]; *last gets the last states [N, H].
  Variable Run(Vars* last) {
    Prepare();
    ImportState& state = node_.graph().state();
    Writer& writer = state.writer;
    BlockDesc& outer = writer.block();
    BlockDesc& inner = outer.program().AppendBlock(outer);
    inner_ = &inner;
    outer_ = &outer;
    writer.SetBlock(inner);
    Body();
    writer.SetBlock(outer);
    Append(inner);
    Vars stacked;
    for (const std::string& name : outputs_) stacked.push_back(writer.Var(name));
    const bool reverse = spec_.IsReverse(direction_);
    for (size_t i = 0; i < ex_states_.size(); ++i) {
      const int64_t steps = stacked[i].shape()[0];
      const Variable at = reverse     ? SliceOf(node_, stacked[i], 0, 0, 1)
                          : steps > 0 ? SliceOf(node_, stacked[i], 0, steps - 1, steps)
                                      : SliceOf(node_, stacked[i], 0, -1, 1 << 30);
      last->push_back(at);  // [1, N, H]
    }
    return spec_.lengths ? stacked.back() : stacked[0];
  }

 private:
  Variable OfDirection(const Variable& x) const {
    return onnx::OfDirection(node_, spec_, x, direction_);
  }
  // Outside of the block: the product of all steps with W, with the biases that are not inside a
  // gate, and the masks of the steps.
  void Prepare() {
    const Variable w = OfDirection(spec_.w);
    const Variable r = OfDirection(spec_.r);
    if (spec_.gates == 3 && !cell_.linear_before_reset) {
      const int64_t n = spec_.hidden;
      weights_.r = node_.Transpose(SliceOf(node_, r, 0, 0, 2 * n), {1, 0});
      weights_.r_candidate = node_.Transpose(SliceOf(node_, r, 0, 2 * n, 3 * n), {1, 0});
    } else {
      weights_.r = cell_.product ? r : node_.Transpose(r, {1, 0});
    }
    projected_ = cell_.product
                     ? cell_.product(spec_.x, w, direction_, false)
                     : node_.Make("matmul_v2", {{"X", {spec_.x.name()}}, {"Y", {w.name()}}},
                                  {{"trans_x", false}, {"trans_y", true}});
    if (spec_.b) {
      const Variable b = OfDirection(spec_.b);
      const int64_t rows = spec_.gates * spec_.hidden;
      const Variable wb = SliceOf(node_, b, 0, 0, rows), rb = SliceOf(node_, b, 0, rows, 2 * rows);
      projected_ = projected_ + wb;
      if (cell_.linear_before_reset)
        weights_.rb = rb;
      else
        projected_ = projected_ + rb;
    }
    if (spec_.peepholes) {
      const Variable p = OfDirection(spec_.peepholes);
      for (int i = 0; i < 3; ++i) weights_.peepholes.push_back(PartOf(node_, spec_, p, i));
    }
    for (const Variable& initial : spec_.initial) {
      const Variable one = OfDirection(initial);
      initial_.push_back(one.name());
      state_shape_ = one.shape();
    }
    if (spec_.lengths) mask_ = MaskOf(node_, spec_);
  }

  // The slice of a step, which has the sequence's name.
  Variable StepInput(const Variable& sequence) {
    inputs_.push_back(sequence.name());
    const Shape& shape = sequence.shape();
    return Local(sequence.name(), Shape(std::span<const int64_t>(shape.begin() + 1, shape.end())));
  }
  Variable Local(const std::string& name, const Shape& shape) {
    VarDesc& var = inner_->Var(name);
    var.SetMeta({VarType::kLoDTensor, spec_.dtype, shape, 0});
    return node_.writer().Var(*inner_, var);
  }
  void StepOutput(const Variable& x) {
    const std::string name = node_.NewName("steps");
    outer_->Var(name).SetMeta(x.desc().meta());
    Local(name, x.shape());
    node_.writer().Append("assign", {{"X", {x.name()}}}, {{"Out", {name}}});
    outputs_.push_back(name);
  }

  void Body() {
    const Variable x = StepInput(projected_);
    Variable mask;
    if (mask_) mask = StepInput(mask_);
    Vars before;
    for (size_t i = 0; i < initial_.size(); ++i) {
      ex_states_.push_back(node_.NewName("before"));
      before.push_back(Local(ex_states_.back(), state_shape_));
    }
    const Vars next = Cell(node_, spec_, cell_, direction_, weights_).Next(x, before);
    for (size_t i = 0; i < next.size(); ++i) {
      const Variable kept =
          mask ? Where(Longer(node_, mask, next[i]), next[i], before[i]) : next[i];
      states_.push_back(node_
                            .Make("rnn_memory_helper", {{"X", {kept.name()}}},
                                  {{"dtype", static_cast<int32_t>(spec_.dtype)}})
                            .name());
      StepOutput(kept);
    }
    if (mask) StepOutput(Where(Longer(node_, mask, next[0]), next[0], ZerosLike(next[0])));
  }

  void Append(BlockDesc& inner) {
    const std::string scopes = node_.NewName("step_scopes");
    outer_->Var(scopes).SetMeta({VarType::kStepScopes, DType::kFloat32, {}, 0});
    node_.writer().Append(
        "recurrent",
        {{"inputs", inputs_}, {"initial_states", initial_}, {"parameters", OuterReads(inner)}},
        {{"outputs", outputs_}, {"step_scopes", {scopes}}},
        {{"ex_states", ex_states_},
         {"states", states_},
         {"sub_block", BlockRef{inner.idx()}},
         {"reverse", spec_.IsReverse(direction_)},
         {"has_states", true}});
  }

  NodeContext& node_;
  const RnnSpec& spec_;
  const RnnCell& cell_;
  int direction_;
  BlockDesc* inner_ = nullptr;
  BlockDesc* outer_ = nullptr;
  Variable projected_, mask_;
  CellWeights weights_;
  Shape state_shape_;
  std::vector<std::string> inputs_, initial_, ex_states_, states_, outputs_;
};

}  // namespace

void ImportByStep(NodeContext& node, const RnnSpec& spec, const RnnCell& cell) {
  Vars y;
  std::vector<Vars> last(spec.initial.size());
  for (int d = 0; d < spec.directions; ++d) {
    Vars states;
    y.push_back(node.WithXShape("unsqueeze2", Stepper(node, spec, cell, d).Run(&states),
                                {{"axes", std::vector<int32_t>{1}}}));
    for (size_t i = 0; i < states.size(); ++i) last[i].push_back(states[i]);
  }
  const auto joined = [](const Vars& parts, int32_t axis) {
    return parts.size() == 1 ? parts[0] : Concat(parts, axis);
  };
  Vars states;
  for (const Vars& parts : last) states.push_back(joined(parts, 0));
  SetRnnOutputs(node, spec, joined(y, 1), states);
}

}  // namespace coracle::onnx
