// Classification losses, and Dropout.

#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/operators/operators.h>

#include <limits>
#include <random>

namespace coracle::onnx {
namespace {

// Sets output 0 to the loss of log probabilities (input 0 is `x`), target and weights.
void SetNll(NodeContext& node, const Variable& x) {
  const std::string reduction = node.OneOf("reduction", "mean", {"none", "sum", "mean"});
  // The default is the lowest number, which is not a label, so that none is ignored.
  const int64_t ignored = node.Int("ignore_index", std::numeric_limits<int64_t>::min());
  node.Require(node.rank(0) >= 2, "the input must have a dimension of classes after the batch");
  SlotList inputs = {{"X", {x.name()}}, {"Label", {node.In(1).name()}}};
  if (node.HasInput(2)) inputs.push_back({"Weight", {node.In(2).name()}});
  // If all labels are ignored, ONNX's mean is 0 / 0, but the op's is 0.
  const Shape labels = node.shape(1);
  const bool all_count = !node.HasInput(2) && !node.HasAttr("ignore_index");
  const bool some_count = all_count && labels.IsKnown() && labels.numel() > 0;
  const bool divide = reduction == "mean" && !some_count;
  const std::string loss = node.NewName("nll_loss"), total = node.NewName("total_weight");
  node.writer().Append("nll_loss", inputs, {{"Out", {loss}}, {"Total_weight", {total}}},
                       {{"reduction", divide ? "sum" : reduction}, {"ignore_index", ignored}});
  const Variable sum = node.writer().Var(loss);
  node.Set(0, divide ? sum / node.writer().Var(total) : sum, reduction != "none");
}

void ImportNll(NodeContext& node) { SetNll(node, node.In(0)); }

void ImportSoftmaxCrossEntropy(NodeContext& node) {
  const Variable log_prob = node.Unary("log_softmax", node.In(0), {{"axis", 1}});
  SetNll(node, log_prob);
  if (node.Wants(1)) node.Set(1, log_prob);
}

// --- Dropout ---

// The numbers in [0, 1) that ONNX's reference draws for a seed: from a Mersenne twister, two words
// for each (Matsumoto and Nishimura, genrand_res53).
std::vector<double> SeededUniform(int64_t seed, int64_t count) {
  std::mt19937 twister(static_cast<uint32_t>(seed));
  std::vector<double> numbers;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t high = static_cast<uint32_t>(twister()) >> 5;
    const uint32_t low = static_cast<uint32_t>(twister()) >> 6;
    numbers.push_back((high * 67108864.0 + low) / 9007199254740992.0);
  }
  return numbers;
}

void SetMask(NodeContext& node, const Variable& mask) {
  if (!node.Wants(1)) return;
  node.Set(1, node.Cast(mask, node.opset() < 10 ? node.dtype(0) : DType::kBool), node.IsScalar(0));
}

void SetKept(NodeContext& node) {
  node.SetSame(0, 0);
  if (node.Wants(1)) SetMask(node, FillLike(node.In(0), 1.0));
}

// With a seed, the mask always equals the one of ONNX's reference; otherwise each run draws a
// new one.
void SetDropped(NodeContext& node, float ratio, std::optional<int64_t> seed) {
  constexpr int64_t kMostSeeded = int64_t{1} << 20;
  const Variable x = node.In(0);
  if (seed && x.shape().IsKnown() && x.shape().numel() <= kMostSeeded) {
    std::vector<uint8_t> kept;
    for (double number : SeededUniform(*seed, x.shape().numel()))
      kept.push_back(number >= static_cast<double>(ratio));
    const Variable mask = node.ConstantVar(Tensor::Of<uint8_t>(x.shape(), kept));
    const double scale = ratio < 1.0f ? 1.0 / (1.0 - static_cast<double>(ratio)) : 0.0;
    node.Set(0, x * node.Cast(mask, x.dtype()) * scale, node.IsScalar(0));
    return SetMask(node, mask);
  }
  const std::string out = node.NewName("dropout"), mask = node.NewName("mask");
  node.writer().Append("dropout", {{"X", {x.name()}}}, {{"Out", {out}}, {"Mask", {mask}}},
                       {{"dropout_prob", ratio},
                        {"dropout_implementation", std::string("upscale_in_train")},
                        {"fix_seed", seed.has_value()},
                        {"seed", ToInt32(seed.value_or(0) & 0x7fffffff, "attribute seed")}});
  node.Set(0, node.writer().Var(out), node.IsScalar(0));
  SetMask(node, node.writer().Var(mask));
}

// With a ratio or a mode that is known only at run time.
void SetLateDropped(NodeContext& node) {
  const Variable x = node.In(0);
  Dims dims;
  const Variable shape = dims.Add(x, 0, x.shape().rank()).ToVector(node);
  Variable ratio = node.ScalarVar(x.dtype(), 0.5);
  if (node.HasInput(1)) ratio = node.Reshape(node.Cast(node.In(1), x.dtype()), {1});
  const Variable mode = node.Reshape(node.Cast(node.In(2), x.dtype()), {1});
  ratio = ratio * mode;
  const Variable draws =
      node.Make("uniform_random", {{"ShapeTensor", {shape.name()}}},
                {{"min", 0.0f}, {"max", 1.0f}, {"dtype", static_cast<int32_t>(x.dtype())}});
  const Variable kept = GreaterEqual(draws, ratio);
  // Nothing is kept at a ratio of 1.
  const Variable scale = 1.0 / Max(1.0 - ratio, 1e-30);
  const Variable out = BroadcastWhere(node, kept, x * scale, node.ScalarVar(x.dtype(), 0));
  node.Set(0, out, node.IsScalar(0));
  SetMask(node, kept);
}

void ImportDropout(NodeContext& node) {
  std::optional<int64_t> seed;
  if (node.opset() < 12) {
    // The op is always in inference mode.
    node.attributes().Ignore("ratio");
    if (node.opset() < 7 && !node.Flag("is_test", false))
      node.Refuse("attribute is_test of 0: export the model for inference");
    return SetKept(node);
  }
  if (node.HasAttr("seed")) seed = node.Int("seed");
  bool training = false;
  // The mask of a seed is a constant.
  const bool late_mode = node.HasInput(2) && !node.Constant(2);
  const bool late_ratio = node.HasInput(1) && node.HasInput(2) && !node.Constant(1);
  if (!seed && (late_mode || (late_ratio && node.KnownInt(2, "training_mode") != 0)))
    return SetLateDropped(node);
  if (node.HasInput(2)) training = node.KnownInt(2, "training_mode") != 0;
  if (!training) return SetKept(node);
  const float ratio = node.HasInput(1) ? node.KnownFloat(1, "ratio") : 0.5f;
  node.Require(ratio >= 0.0f && ratio <= 1.0f, "ratio must lie in [0, 1]");
  ratio == 0.0f ? SetKept(node) : SetDropped(node, ratio, seed);
}

}  // namespace

void AddLossImporters(NodeImporters& importers) {
  importers.Add({.op_type = "NegativeLogLikelihoodLoss",
                 .since = 12,
                 .takes = "f2+ i1+ f1?",
                 .import = ImportNll,
                 .maps_to = "nll_loss, elementwise_div",
                 .composed = true});
  importers.Add({.op_type = "SoftmaxCrossEntropyLoss",
                 .since = 12,
                 .takes = "f2+ i1+ f1?",
                 .import = ImportSoftmaxCrossEntropy,
                 .maps_to = "log_softmax, nll_loss, elementwise_div",
                 .composed = true});
  importers.Add({.op_type = "Dropout",
                 .since = 1,
                 .takes = "n f? b?",
                 .import = ImportDropout,
                 .maps_to = "none (inference); dropout",
                 .composed = true,
                 .foldable = false});
}

}  // namespace coracle::onnx
