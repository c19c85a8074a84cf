// LSTM, GRU and RNN: by the op `rnn` if it supports the form, else by a cell of single ops.

#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/quantize.h>
#include <coracle/convert/onnx/import/rnn_spec.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace coracle::onnx {
namespace {

using Vars = std::vector<Variable>;

// Rows of a parameter in the order of Paddle's gates, without the dim of the direction.
class Parameters {
 public:
  Parameters(NodeContext& node, const RnnSpec& spec, std::vector<int> gates)
      : node_(node), spec_(spec), gates_(std::move(gates)) {}

  // W and U for each direction, then the biases b and b' for each direction.
  std::vector<std::string> All() const {
    std::vector<std::string> names;
    for (int d = 0; d < spec_.directions; ++d) {
      names.push_back(Ordered(OfDirection(node_, spec_, spec_.w, d), 0).name());
      names.push_back(Ordered(OfDirection(node_, spec_, spec_.r, d), 0).name());
    }
    const auto rows = static_cast<int>(gates_.size());
    for (int d = 0; d < spec_.directions; ++d) {
      for (int32_t k = 0; k < 2; ++k) {
        if (spec_.b)
          names.push_back(Ordered(OfDirection(node_, spec_, spec_.b, d), k * rows).name());
        else
          names.push_back(
              FillConstant(node_.writer(), spec_.dtype, 0, {rows * spec_.hidden}).name());
      }
    }
    return names;
  }

 private:
  // The gates, starting at row `begin` in units of hidden size.
  Variable Ordered(const Variable& x, int32_t begin) const {
    Vars parts;
    for (int gate : gates_)
      parts.push_back(
          SliceOf(node_, x, 0, (begin + gate) * spec_.hidden, (begin + gate + 1) * spec_.hidden));
    return parts.size() == 1 ? parts[0] : Concat(parts, 0);
  }

  NodeContext& node_;
  const RnnSpec& spec_;
  std::vector<int> gates_;
};

Variable Flipped(NodeContext& node, const Variable& x) {
  return node.Unary("flip", x, {{"axis", std::vector<int32_t>{0}}});
}

// [T, N, D H] as [T, D, N, H].
Variable WithDirections(NodeContext& node, const RnnSpec& spec, const Variable& out) {
  if (spec.directions == 1)
    return node.WithXShape("unsqueeze2", out, {{"axes", std::vector<int32_t>{1}}});
  const int64_t h = spec.hidden;
  Vars parts;
  for (int64_t d = 0; d < 2; ++d)
    parts.push_back(node.WithXShape("unsqueeze2", SliceOf(node, out, 2, d * h, (d + 1) * h),
                                    {{"axes", std::vector<int32_t>{1}}}));
  return Concat(parts, 1);
}

void ImportByRnn(NodeContext& node, const RnnSpec& spec, const std::string& mode,
                 std::vector<int> gates) {
  const Variable x = spec.reverse ? Flipped(node, spec.x) : spec.x;
  const std::vector<std::string> weights = Parameters(node, spec, std::move(gates)).All();
  SlotList inputs = {{"Input", {x.name()}}, {"WeightList", weights}};
  std::vector<std::string> initial, last;
  for (const Variable& state : spec.initial) {
    initial.push_back(state.name());
    last.push_back(node.NewName("state"));
  }
  inputs.push_back({"PreState", initial});
  if (spec.lengths) inputs.push_back({"SequenceLength", {spec.lengths.name()}});
  const std::string out = node.NewName("rnn");
  node.writer().Append("rnn", inputs,
                       {{"Out", {out}},
                        {"State", last},
                        {"Reserve", {node.NewName("reserve")}},
                        {"DropoutState", {node.NewName("dropout_state")}}},
                       {{"mode", mode},
                        {"hidden_size", ToInt32(spec.hidden, "hidden_size")},
                        {"is_bidirec", spec.directions == 2}});
  Variable y = node.writer().Var(out);
  if (spec.reverse) y = Flipped(node, y);
  SetRnnOutputs(node, spec, WithDirections(node, spec, y), node.writer().Vars(last));
}

// Whether both directions have these activations, nothing is clipped, and no shorter sequence is
// reversed (`rnn` supports that only for a second direction).
bool IsPlain(const RnnSpec& spec, const std::vector<std::string>& activations) {
  if (spec.clip > 0 || spec.peepholes || (spec.reverse && spec.lengths)) return false;
  for (size_t i = 0; i < spec.activations.size(); ++i)
    if (spec.activations[i].type != activations[i % activations.size()]) return false;
  return spec.dtype == DType::kFloat32 || spec.dtype == DType::kFloat64;
}

void ImportLstm(NodeContext& node) {
  const std::vector<std::string> usual = {"Sigmoid", "Tanh", "Tanh"};
  const bool couples = node.Flag("input_forget", false);
  const RnnSpec spec = ReadRnnSpec(node, 4, usual);
  // ONNX's i, o, f, c to Paddle's i, f, g, o.
  if (!couples && IsPlain(spec, usual)) return ImportByRnn(node, spec, "LSTM", {0, 2, 3, 1});
  ImportByStep(node, spec, {.couples = couples});
}

// X and the states are rounded to 8 bits like DynamicQuantizeLinear: X at once, a state in each
// step. Inputs 8 to 11: scale and zero point of W, then of R, [D] or [D, 4 H].
void ImportDynamicQuantizeLstm(NodeContext& node) {
  for (size_t i : {1, 2}) {
    const DType dtype = node.InValue(i).dtype();
    node.Require(dtype == DType::kInt8 || dtype == DType::kUInt8,
                 fmt::format("input {} must have integers of 8 bits, got {}", i, ToString(dtype)));
  }
  const bool couples = node.Flag("input_forget", false);
  const RnnSpec spec = ReadRnnSpec(node, 4, {"Sigmoid", "Tanh", "Tanh"});
  // Made outside of the block of a step.
  Variable steps[2][4];
  for (int d = 0; d < spec.directions; ++d) {
    for (size_t i = 0; i < 4; ++i) {
      Variable part = OfDirection(node, spec, node.In(8 + i), d);
      if (part.shape().rank() != 1) part = node.Reshape(part, {-1});
      steps[d][i] = i % 2 == 0 ? node.Cast(part, DType::kFloat32) : part;
    }
  }
  const auto product = [&](const Variable& x, const Variable& weights, int d, bool of_state) {
    const DynamicBytes bytes = QuantizedByRange(node, x);
    const size_t at = of_state ? 2 : 0;
    SlotList slots = {{"X", {bytes.numbers.name()}}, {"Y", {weights.name()}}};
    AddSlot(slots, "XScale", bytes.affine.scale);
    AddSlot(slots, "XZeroPoint", bytes.affine.zero_point);
    AddSlot(slots, "YScale", steps[d][at]);
    AddSlot(slots, "YZeroPoint", steps[d][at + 1]);
    return node.Make("quantized_matmul", std::move(slots),
                     {{"trans_y", true}, {"out_dtype", static_cast<int32_t>(DType::kFloat32)}});
  };
  ImportByStep(node, spec, {.couples = couples, .product = product});
}

void ImportGru(NodeContext& node) {
  const std::vector<std::string> usual = {"Sigmoid", "Tanh"};
  const bool linear = node.Int("linear_before_reset", 0) != 0;
  const RnnSpec spec = ReadRnnSpec(node, 3, usual);
  // ONNX's z, r, h to Paddle's r, z, n.
  if (linear && IsPlain(spec, usual)) return ImportByRnn(node, spec, "GRU", {1, 0, 2});
  ImportByStep(node, spec, {.linear_before_reset = linear});
}

void ImportRnn(NodeContext& node) {
  const RnnSpec spec = ReadRnnSpec(node, 1, {"Tanh"});
  if (IsPlain(spec, {"Tanh"})) return ImportByRnn(node, spec, "RNN_TANH", {0});
  if (IsPlain(spec, {"Relu"})) return ImportByRnn(node, spec, "RNN_RELU", {0});
  ImportByStep(node, spec, {});
}

}  // namespace

void AddRnnImporters(NodeImporters& importers) {
  importers.Add({.op_type = "LSTM",
                 .since = 1,
                 .takes = "f3 f3 f3 f2? i1? f3? f3? f2?",
                 .import = ImportLstm,
                 .maps_to = "rnn; recurrent",
                 .composed = true});
  importers.Add({.op_type = "DynamicQuantizeLSTM",
                 .since = 1,
                 .takes = "f3 i3 i3 f2? i1? f3? f3? f2? f1-2 i1-2 f1-2 i1-2",
                 .import = ImportDynamicQuantizeLstm,
                 .maps_to = "recurrent, dynamic_scale, affine_quantize, quantized_matmul",
                 .domain = "com.microsoft"});
  importers.Add({.op_type = "GRU",
                 .since = 1,
                 .takes = "f3 f3 f3 f2? i1? f3?",
                 .import = ImportGru,
                 .maps_to = "rnn; recurrent",
                 .composed = true});
  importers.Add({.op_type = "RNN",
                 .since = 1,
                 .takes = "f3 f3 f3 f2? i1? f3?",
                 .import = ImportRnn,
                 .maps_to = "rnn; recurrent",
                 .composed = true});
}

}  // namespace coracle::onnx
