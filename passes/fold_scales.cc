// Factors and shifts of channels before and after convolutions and matrix products with constant
// weights become part of the weights and a bias:
//
//   f (conv(x, w) + b) + s  =  conv(x, f w) + (f b + s)
//   conv(f x + s, w) + b    =  conv(x, w f) + (b + the sum of w s over the inputs)
//
// Padding pixels are 0, not s. So the shift before a convolution with padding stays: f x + s
// becomes x + s / f, and the factor moves into the weights. A large shift stays, too: where x is
// near -s / f, the sums over w f x and over w s are large numbers whose difference has few digits.
// All numbers are computed in double.

#include <coracle/passes/affine_step.h>
#include <coracle/passes/match.h>
#include <coracle/passes/passes.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_set>
#include <utility>

namespace coracle::inline internal {
namespace {

using Numbers = std::vector<double>;

double At(const Numbers& list, size_t i) { return list[list.size() == 1 ? 0 : i]; }

// A convolution or product with a constant weight.
struct LinearOp {
  const OpDesc* op = nullptr;
  std::string x, weight, bias, y;  // bias: "" for none
  const Tensor* w = nullptr;
  bool is_product = false;
  bool transposed = false;  // of a product: the weight is [columns, rows]
  int64_t groups = 1;
  int rank = -1, channel_axis = -1;        // of x
  int result_rank = -1, result_axis = -1;  // of y
  bool pads = false;

  int64_t Outputs() const { return w->shape()[is_product && !transposed ? 1 : 0]; }
  int64_t Inputs() const {
    return is_product ? w->shape()[transposed ? 1 : 0] : w->shape()[1] * groups;
  }
  // Calls f(element of the weight, output channel, input channel).
  template <class F>
  void ForEach(const F& f) const {
    const Shape& shape = w->shape();
    const int64_t inner = is_product ? 1 : shape.Product(2, shape.rank());
    int64_t i = 0;
    for (int64_t row = 0; row < shape[0]; ++row) {
      const int64_t first = is_product ? 0 : row / (shape[0] / groups) * shape[1];
      for (int64_t column = 0; column < shape[1]; ++column) {
        const bool swapped = is_product && !transposed;  // the weight is [inputs, outputs]
        const int64_t out = swapped ? column : row, in = swapped ? row : first + column;
        for (int64_t k = 0; k < inner; ++k, ++i) f(i, out, in);
      }
    }
  }
};

// Reads convolutions and products.
class LinearReader {
 public:
  LinearReader(const BlockDesc& block, const PassContext& context, const ValueFlow& flow,
               const Matcher& matcher)
      : block_(block), context_(context), flow_(flow), matcher_(matcher) {}

  // nullopt for an op of another kind, or whose weight or bias may not change.
  std::optional<LinearOp> LinearOf(const OpDesc& op) const {
    const std::string& type = op.type();
    std::optional<LinearOp> linear;
    if (type == "conv2d" || type == "depthwise_conv2d") linear = ConvolutionOf(op);
    if (type == "mul" || type == "matmul_v2") linear = ProductOf(op);
    if (!linear || flow_.IsRecomputed(op)) return std::nullopt;
    const VarDesc *x = block_.FindVarRecursive(linear->x), *y = block_.FindVarRecursive(linear->y);
    linear->w = context_.FrozenValue(linear->weight);
    const bool real = x && y && linear->w && x->type() == VarType::kLoDTensor &&
                      (x->dtype() == DType::kFloat32 || x->dtype() == DType::kFloat64) &&
                      y->dtype() == x->dtype() && linear->w->dtype() == x->dtype();
    if (!real || linear->w->shape().rank() != (linear->is_product ? 2 : 4) || linear->w->empty() ||
        !matcher_.HasOneReader(linear->weight) || context_.fetches.count(linear->weight))
      return std::nullopt;
    if (!linear->is_product && (linear->groups < 1 || linear->w->shape()[0] % linear->groups != 0))
      return std::nullopt;
    if (linear->bias.empty()) return linear;
    const Tensor* bias = context_.FrozenValue(linear->bias);
    const bool fits = bias && bias->dtype() == x->dtype() && bias->shape().rank() == 1 &&
                      bias->numel() == linear->Outputs();
    return fits ? linear : std::nullopt;
  }

  double BiasAt(const LinearOp& linear, size_t channel) const {
    if (linear.bias.empty()) return 0;
    const Tensor& bias = *context_.FrozenValue(linear.bias);
    return bias.dtype() == DType::kFloat32 ? static_cast<double>(bias.span<float>()[channel])
                                           : bias.span<double>()[channel];
  }

 private:
  static std::optional<LinearOp> ConvolutionOf(const OpDesc& op) {
    if (op.Input("Input").size() != 1 || op.Input("Filter").size() != 1 ||
        op.Output("Output").size() != 1 || op.HasInput("ResidualData") ||
        !op.GetAttr<std::string>("fuse_activation", "").empty())
      return std::nullopt;
    LinearOp linear;
    linear.op = &op;
    linear.x = op.Input("Input")[0];
    linear.weight = op.Input("Filter")[0];
    linear.y = op.Output("Output")[0];
    if (op.HasInput("Bias")) linear.bias = op.Input("Bias")[0];
    linear.groups = op.GetAttr<int32_t>("groups", 1);
    linear.rank = linear.result_rank = 4;
    linear.channel_axis = linear.result_axis =
        op.GetAttr<std::string>("data_format", "NCHW") == "NHWC" ? 3 : 1;
    const auto pads = op.GetAttr<std::vector<int32_t>>("paddings", {0, 0});
    linear.pads = op.GetAttr<std::string>("padding_algorithm", "EXPLICIT") != "VALID" &&
                  (op.GetAttr<std::string>("padding_algorithm", "EXPLICIT") == "SAME" ||
                   std::any_of(pads.begin(), pads.end(), [](int32_t p) { return p != 0; }));
    return linear;
  }

  std::optional<LinearOp> ProductOf(const OpDesc& op) const {
    if (op.Input("X").size() != 1 || op.Input("Y").size() != 1 || op.Output("Out").size() != 1)
      return std::nullopt;
    LinearOp linear;
    linear.op = &op;
    linear.is_product = true;
    linear.x = op.Input("X")[0];
    linear.weight = op.Input("Y")[0];
    linear.y = op.Output("Out")[0];
    linear.rank = flow_.CertainRank(linear.x);
    if (op.type() == "mul") {
      if (op.GetAttr<int32_t>("y_num_col_dims", 1) != 1) return std::nullopt;
      const auto rows = op.GetAttr<int32_t>("x_num_col_dims", 1);
      linear.result_rank = rows + 1;
      if (linear.rank == rows + 1) linear.channel_axis = rows;
    } else {
      if (op.GetAttr<bool>("trans_x", false) || linear.rank < 2) return std::nullopt;
      linear.transposed = op.GetAttr<bool>("trans_y", false);
      linear.result_rank = linear.rank;
      linear.channel_axis = linear.rank - 1;
    }
    linear.result_axis = linear.result_rank - 1;
    return linear;
  }

  const BlockDesc& block_;
  const PassContext& context_;
  const ValueFlow& flow_;
  const Matcher& matcher_;
};

// Whether sums with the shifts keep the digits of f x + s, if that is of the size of 1.
bool AreSmall(const Numbers& shifts) {
  constexpr double kMost = 16;
  return std::all_of(shifts.begin(), shifts.end(), [](double s) { return std::abs(s) <= kMost; });
}

bool HasLength(const Numbers& list, int64_t channels) {
  return list.size() == 1 || static_cast<int64_t>(list.size()) == channels;
}

bool IsInvertible(const Numbers& factors) {
  return std::all_of(factors.begin(), factors.end(),
                     [](double f) { return std::abs(f) > 1e-3 && std::abs(f) < 1e3; });
}

// The weight times factor(output, input); nullopt if a product leaves the range of its dtype.
template <class F>
std::optional<Tensor> Scaled(const LinearOp& linear, const F& factor) {
  const Tensor w = linear.w->Cast(DType::kFloat64);
  const bool single = linear.w->dtype() == DType::kFloat32;
  const double least = single ? 1e-30 : 1e-290, most = single ? 1e38 : 1e300;
  Tensor scaled(DType::kFloat64, w.shape());
  const double* from = w.data<double>();
  auto* to = scaled.data<double>();
  bool fits = true;
  linear.ForEach([&](int64_t i, int64_t out, int64_t in) {
    const double before = from[i], after = before * factor(out, in);
    to[i] = after;
    const double size = std::abs(after);
    if (before == 0) return;
    fits = fits && size < most && (size > least || std::abs(before) <= least || size == 0);
  });
  return fits ? std::optional(scaled.Cast(linear.w->dtype())) : std::nullopt;
}

bool IsInRange(const Numbers& numbers, const Tensor& like) {
  const double most = like.dtype() == DType::kFloat32 ? 1e38 : 1e300;
  return std::all_of(numbers.begin(), numbers.end(), [&](double x) { return std::abs(x) < most; });
}

// Writes the ops that replace others.
class LinearWriter {
 public:
  LinearWriter(ProgramDesc& program, const PassContext& context)
      : program_(program), block_(program.Root()), context_(context), rewrites_(block_) {}

  // x + shift / factor.
  OpDesc Shift(const LinearOp& linear, const AffineStep& all) {
    const size_t n = std::max(all.factors.size(), all.shifts.size());
    Tensor shift(DType::kFloat64, {static_cast<int64_t>(n)});
    for (size_t i = 0; i < n; ++i) shift.data<double>()[i] = At(all.shifts, i) / At(all.factors, i);
    const std::string name = Add(linear.x, shift.Cast(linear.w->dtype()));
    const std::string out =
        context_.AddForm(program_, linear.x, "@SHIFTED", block_.FindVarRecursive(linear.x)->meta());
    const int32_t axis = n == 1 ? -1 : linear.channel_axis;
    return OpDesc("elementwise_add", {{"X", {all.x}}, {"Y", {name}}}, {{"Out", {out}}},
                  {{"axis", axis}});
  }

  // Replaces `ops` by the op with another weight and bias, after the ops `with`.
  void Write(const LinearOp& linear, const Tensor& weight, const Numbers& bias,
             const std::string& y, const std::vector<const OpDesc*>& ops, const OpDesc& place,
             std::vector<OpDesc> with) {
    const bool has_bias = std::any_of(bias.begin(), bias.end(), [](double b) { return b != 0; });
    Tensor values(DType::kFloat64, {static_cast<int64_t>(bias.size())});
    std::copy(bias.begin(), bias.end(), values.data<double>());
    const Tensor rounded = values.Cast(linear.w->dtype());
    OpDesc op(*linear.op);
    op.SetInput(linear.is_product ? "X" : "Input", {linear.x});
    op.SetInput(linear.is_product ? "Y" : "Filter", {Add(linear.weight, weight)});
    if (!linear.is_product) {
      if (has_bias || !linear.bias.empty()) op.SetInput("Bias", {Add(linear.y, rounded)});
      op.SetOutput("Output", {y});
      with.push_back(op);
    } else if (has_bias) {
      const std::string sums = program_.FreeName(y + "@SUMS");
      block_.Var(sums).SetMeta(block_.FindVarRecursive(linear.y)->meta());
      context_.NoteMade(sums, linear.y);
      op.SetOutput("Out", {sums});
      with.push_back(op);
      with.emplace_back("elementwise_add", SlotList{{"X", {sums}}, {"Y", {Add(linear.y, rounded)}}},
                        SlotList{{"Out", {y}}}, AttrList{{"axis", linear.result_axis}});
    } else {
      op.SetOutput("Out", {y});
      with.push_back(op);
    }
    rewrites_.Replace(ops, place, with);
    context_.ReleaseFrozen(linear.weight);
  }

  void Apply() { rewrites_.Apply(); }

 private:
  std::string Add(const std::string& of, Tensor value) {
    return context_.AddFrozenForm(program_, of, "@FOLDED", std::move(value));
  }

  ProgramDesc& program_;
  BlockDesc& block_;
  const PassContext& context_;
  Rewrites rewrites_;
};

class ScaleFolder {
 public:
  ScaleFolder(ProgramDesc& program, const PassContext& context)
      : block_(program.Root()),
        context_(context),
        flow_(program, context),
        matcher_(block_, context),
        lod_(block_, context),
        linear_(block_, context, flow_, matcher_),
        writer_(program, context) {}

  void Run(bool after) {
    std::vector<const OpDesc*> ops;
    std::as_const(block_).ForEachOp([&](const OpDesc& op) { ops.push_back(&op); });
    for (const OpDesc* op : ops) {
      const std::optional<LinearOp> linear = linear_.LinearOf(*op);
      if (linear) after ? FoldAfter(*linear) : FoldBefore(*linear);
    }
    writer_.Apply();
  }

 private:
  // Whether one op alone reads the variable and nothing else sees it.
  const OpDesc* OnlyReader(const std::string& var) const {
    const OpDesc* op = flow_.ReaderOf(var);
    return op && used_.count(op) == 0 ? op : nullptr;
  }

  // The output of a step has the LoD of X, which may be a constant.
  bool KeepsLod(const AffineStep& step) const {
    return step.op->Input("X")[0] == step.x || !lod_.MayHaveLod(step.x);
  }
  void FoldAfter(const LinearOp& linear) {
    const AffineRules rules{linear.result_axis, linear.result_rank};
    AffineStep all{nullptr, linear.y, linear.y, {1}, {0}};
    std::vector<const OpDesc*> ops = {linear.op};
    bool scales = false;
    while (const OpDesc* next = OnlyReader(all.y)) {
      const std::optional<AffineStep> step = AffineStepOf(*next, all.y, rules, block_, context_);
      if (!step || !HasLength(step->factors, linear.Outputs()) || !KeepsLod(*step) ||
          !matcher_.IsWrittenOnce(step->y))
        break;
      Append(*step, &all);
      ops.push_back(next);
      scales = scales || step->HasFactor() || (step->IsScalar() && !linear.is_product);
    }
    // Lone sums with a bias are the business of other passes.
    if (!scales || !matcher_.MayRunAt(ops, *ops.back())) return;
    const auto outputs = static_cast<size_t>(linear.Outputs());
    Numbers bias(outputs);
    for (size_t c = 0; c < outputs; ++c)
      bias[c] = At(all.factors, c) * linear_.BiasAt(linear, c) + At(all.shifts, c);
    const std::optional<Tensor> weight = Scaled(
        linear, [&](int64_t out, int64_t) { return At(all.factors, static_cast<size_t>(out)); });
    if (!weight || !IsInRange(bias, *linear.w)) return;
    used_.insert(ops.begin(), ops.end());
    writer_.Write(linear, *weight, bias, all.y, ops, *ops.back(), {});
  }

  void FoldBefore(const LinearOp& linear) {
    const AffineRules rules{linear.channel_axis, linear.rank};
    AffineStep all{nullptr, linear.x, linear.x, {1}, {0}};
    std::vector<const OpDesc*> ops;
    bool scales = false;
    while (OnlyReader(all.x)) {
      const OpDesc* writer = flow_.WriterOf(all.x);
      std::optional<AffineStep> step = writer ? StepWith(*writer, rules) : std::nullopt;
      if (!step || used_.count(writer) || flow_.IsRecomputed(*writer) ||
          !flow_.IsOnlyOutput(*writer, all.x) || !HasLength(step->factors, linear.Inputs()) ||
          !KeepsLod(*step))
        break;
      scales = scales || step->HasFactor();
      AffineStep longer = *step;
      Append(all, &longer);
      all = std::move(longer);
      ops.insert(ops.begin(), writer);
    }
    const bool shift_stays = all.HasShift() && (linear.pads || !AreSmall(all.shifts));
    if (ops.empty() || (shift_stays && (!scales || ops.size() < 2))) return;
    ops.push_back(linear.op);
    if (!matcher_.MayRunAt(ops, *linear.op)) return;
    if (shift_stays && !IsInvertible(all.factors)) return;
    const std::optional<Tensor> weight = Scaled(
        linear, [&](int64_t, int64_t in) { return At(all.factors, static_cast<size_t>(in)); });
    if (!weight) return;
    Numbers bias(static_cast<size_t>(linear.Outputs()));
    for (size_t c = 0; c < bias.size(); ++c) bias[c] = linear_.BiasAt(linear, c);
    std::vector<OpDesc> with;
    std::string x = all.x;
    if (!shift_stays) {
      const Tensor w = linear.w->Cast(DType::kFloat64);
      linear.ForEach([&](int64_t i, int64_t out, int64_t in) {
        bias[static_cast<size_t>(out)] +=
            w.span<double>()[static_cast<size_t>(i)] * At(all.shifts, static_cast<size_t>(in));
      });
    }
    if (!IsInRange(bias, *linear.w)) return;
    if (shift_stays) {
      with.push_back(writer_.Shift(linear, all));
      x = with[0].Output("Out")[0];
    }
    LinearOp moved = linear;
    moved.x = x;
    used_.insert(ops.begin(), ops.end());
    writer_.Write(moved, *weight, bias, linear.y, ops, *linear.op, std::move(with));
  }

  // The op as a step from its input that is not constant.
  std::optional<AffineStep> StepWith(const OpDesc& op, const AffineRules& rules) const {
    for (const char* slot : {"X", "Y"}) {
      if (op.Input(slot).size() != 1 || context_.FrozenValue(op.Input(slot)[0])) continue;
      return AffineStepOf(op, op.Input(slot)[0], rules, block_, context_);
    }
    return std::nullopt;
  }

  BlockDesc& block_;
  const PassContext& context_;
  const ValueFlow flow_;
  const Matcher matcher_;
  const LodFlow lod_;
  const LinearReader linear_;
  LinearWriter writer_;
  std::unordered_set<const OpDesc*> used_;
};

}  // namespace

void FoldScales(ProgramDesc& program, const PassContext& context) {
  if (!context.frozen) return;
  ScaleFolder(program, context).Run(true);
  ScaleFolder(program, context).Run(false);
}

}  // namespace coracle::inline internal
