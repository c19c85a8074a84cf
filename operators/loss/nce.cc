// nce: noise-contrastive estimation (Gutmann and Hyvarinen: "Noise-contrastive estimation", 2010).

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/activation/activation_formulas.h>
#include <coracle/operators/loss/row_gradient.h>
#include <coracle/operators/random/generator.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>

#include <algorithm>
#include <cmath>

namespace coracle::nce_op {

enum Sampling { kUniform, kLogUniform, kCustom };

void RequireCount(const InferContext& ctx, const char* id, const char* slot, DType dtype,
                  int64_t count) {
  if (!ctx.HasInput(slot)) return;
  const VarMeta& meta = ctx.Input(slot);
  ctx.Require(id, meta.dtype == dtype && InferContext::Matches(NumelOf(meta.shape), count), slot,
              meta, "elements", count);
}

// Checks the inputs and returns the shape [B, T + S].
Shape CheckNce(InferContext& ctx) {
  const VarMeta &input = ctx.Input("Input"), &weight = ctx.Input("Weight");
  const Shape& label = ctx.InputShape("Label");
  const int64_t classes = ctx.Attr<int32_t>("num_total_classes");
  const bool matrices = input.shape.rank() == 2 && weight.shape.rank() == 2 && classes >= 1;
  ctx.Require("C1",
              matrices && input.dtype == weight.dtype &&
                  InferContext::Matches(input.shape[1], weight.shape[1]) &&
                  InferContext::Matches(weight.shape[0], classes),
              "Input", input, "Weight", weight, "num_total_classes", classes);
  ctx.Require("C2",
              IsIndexType(ctx.InputDType("Label")) && label.rank() == 2 &&
                  InferContext::Matches(label[0], input.shape[0]),
              "Label", ctx.Input("Label"), "Input", input);
  RequireCount(ctx, "C3", "Bias", input.dtype, classes);
  RequireCount(ctx, "C3", "SampleWeight", input.dtype, input.shape[0]);
  const int64_t negatives = ctx.Attr<int32_t>("num_neg_samples");
  const auto custom = ctx.Attr<std::vector<int32_t>>("custom_neg_classes");
  const bool in_range =
      std::all_of(custom.begin(), custom.end(), [&](int32_t k) { return k >= 0 && k < classes; });
  ctx.Require("C4",
              negatives >= 1 && in_range &&
                  (custom.empty() || static_cast<int64_t>(custom.size()) == negatives),
              "num_neg_samples", negatives, "custom_neg_classes", custom);
  const int32_t sampler = ctx.Attr<int32_t>("sampler");
  ctx.Require("C5", sampler >= kUniform && sampler <= kCustom && (sampler == 0 || classes >= 2),
              "sampler", sampler, "num_total_classes", classes);
  if (sampler == kCustom) {
    for (const char* slot : {"CustomDistProbs", "CustomDistAlias", "CustomDistAliasProbs"}) {
      ctx.Require("C6", ctx.HasInput(slot), slot, "absent");
      const bool alias = slot == std::string_view("CustomDistAlias");
      RequireCount(ctx, "C6", slot, alias ? DType::kInt32 : DType::kFloat32, classes);
    }
  }
  return {input.shape[0], AddDims(label[1], negatives)};
}

void InferForward(InferContext& ctx) {
  const Shape samples = CheckNce(ctx);
  VarMeta out = ctx.Input("Input");
  out.shape = {samples[0], 1};
  ctx.SetOutput("Cost", out);
  ctx.SetOutput("SampleLogits", out.dtype, samples);
  ctx.SetOutput("SampleLabels", DType::kInt64, samples);
}

void InferGrad(InferContext& ctx) {
  const Shape samples = CheckNce(ctx);
  const VarMeta& input = ctx.Input("Input");
  RequireCount(ctx, "C7", "Cost@GRAD", input.dtype, input.shape[0]);
  const VarMeta &logits = ctx.Input("SampleLogits"), &labels = ctx.Input("SampleLabels");
  ctx.Require("C8",
              logits.dtype == input.dtype && labels.dtype == DType::kInt64 &&
                  logits.shape.CompatibleWith(samples) && labels.shape.CompatibleWith(samples),
              logits, labels, samples);
  ctx.SetOutput("Input@GRAD", input);
  VarMeta weight = ctx.Input("Weight");
  if (ctx.Attr<bool>("is_sparse")) weight.type = VarType::kSelectedRows;
  ctx.SetOutput("Weight@GRAD", weight);
  if (ctx.HasInput("Bias")) ctx.SetOutput("Bias@GRAD", ctx.Input("Bias"));
}

// The noise: the probability of a class times the number of draws, and the draws.
class Noise {
 public:
  explicit Noise(const PrepareContext& ctx)
      : probs_(ctx.Input("CustomDistProbs")),
        alias_(ctx.Input("CustomDistAlias")),
        alias_probs_(ctx.Input("CustomDistAliasProbs")),
        sampler_(ctx.Attr<int32_t>("sampler")),
        classes_(ctx.Attr<int32_t>("num_total_classes")),
        count_(ctx.Attr<int32_t>("num_neg_samples")),
        custom_(ctx.Attr<std::vector<int32_t>>("custom_neg_classes")),
        type_(ctx.op().type()) {}

  int64_t classes() const { return classes_; }
  int64_t count() const { return count_; }
  double Expected(const Workspace& ws, int64_t k) const {
    const auto classes = static_cast<double>(classes_), at = static_cast<double>(k);
    const double p = sampler_ == kUniform      ? 1 / classes
                     : sampler_ == kLogUniform ? std::log((at + 2) / (at + 1)) / std::log(classes)
                                               : double{ws.Data<const float>(probs_)[k]};
    return p * static_cast<double>(count_);
  }
  int64_t Draw(const Workspace& ws, const Philox& random, int64_t row, int64_t j) const {
    if (!custom_.empty()) return custom_[static_cast<size_t>(j)];
    const auto index = static_cast<uint64_t>(row * count_ + j);
    if (sampler_ == kUniform) return UniformBelow(random, index, classes_);
    if (sampler_ == kLogUniform) {
      const double draw =
          std::exp(random.UniformDouble(index) * std::log(static_cast<double>(classes_)));
      return (static_cast<int64_t>(draw) - 1) % (classes_ - 1);
    }
    const int64_t k = UniformBelow(random, 2 * index, classes_);
    const double keep = ws.Data<const float>(alias_probs_)[k];
    if (!(random.UniformDouble(2 * index + 1) > keep)) return k;
    const int64_t other = ws.Data<const int32_t>(alias_)[k];
    if (other < 0 || other >= classes_)
      ThrowIndexRange(type_, "CustomDistAlias", k, other, classes_);
    return other;
  }

 private:
  TensorArg probs_, alias_, alias_probs_;
  int32_t sampler_;
  int64_t classes_, count_;
  std::vector<int32_t> custom_;
  std::string type_;
};

template <class T>
KernelOf<T> Forward(const PrepareContext& ctx, KernelMode mode) {
  const TensorArg input = ctx.Input("Input"), label = ctx.Input("Label");
  const TensorArg weight = ctx.Input("Weight"), bias = ctx.Input("Bias");
  const TensorArg sample_weight = ctx.Input("SampleWeight"), cost = ctx.Output("Cost");
  const TensorArg kept_logits = ctx.Output("SampleLogits"), kept = ctx.Output("SampleLabels");
  const Noise noise(ctx);
  const auto seed = static_cast<uint64_t>(int64_t{ctx.Attr<int32_t>("seed")});
  const uint64_t stream = ctx.RandomStream("Cost");
  const int64_t rows = input.shape[0], width = input.shape[1], trues = label.shape[1];
  const std::string name = ctx.op().type();
  return [=](Workspace& ws) {
    const Philox random(seed != 0 ? seed : ws.seed(), stream, ws.step());
    const IndexReader labels(ws, label);
    const T *x = ws.Data<const T>(input), *w = ws.Data<const T>(weight);
    const int64_t samples = trues + noise.count();
    const auto row_of = [&](int64_t i) {
      double sum = 0;
      for (int64_t j = 0; j < samples; ++j) {
        const int64_t k = j < trues ? labels[i * trues + j] : noise.Draw(ws, random, i, j - trues);
        if (j % 4096 == 0) CheckTimeLimit("drawing noise");
        if (k < 0 || k >= noise.classes())
          ThrowIndexRange(name, "Label", i * trues + j, k, noise.classes());
        double z = bias ? static_cast<double>(ws.Data<const T>(bias)[k]) : 0;
        z += DotOf(x + i * width, w + k * width, width, mode);
        const double o = activation::SigmoidOf(z), q = noise.Expected(ws, k);
        // log(o) without underflow.
        const double log_o = -activation::LogOnePlusExp(-z);
        sum += std::log(o + q) - (j < trues ? log_o : std::log(q));
        if (kept_logits) ws.Data<T>(kept_logits)[i * samples + j] = static_cast<T>(o);
        if (kept) ws.Data<int64_t>(kept)[i * samples + j] = k;
      }
      const T scale = sample_weight ? ws.Data<const T>(sample_weight)[i] : T(1);
      ws.Data<T>(cost)[i] = static_cast<T>(sum) * scale;
    };
    ParallelFor(rows, 1 + 4096 / (1 + samples), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) row_of(i);
    });
  };
}

// The derivative of the cost by the logit z of a sample: q / (o + q) (o - 1) for a true class, o (1
// - o) / (o + q) for noise, times dCost and the row's weight.
template <class T>
KernelOf<T> Backward(const PrepareContext& ctx) {
  const TensorArg input = ctx.Input("Input"), weight = ctx.Input("Weight");
  const TensorArg sample_weight = ctx.Input("SampleWeight"), dcost = ctx.Input("Cost@GRAD");
  const TensorArg logits = ctx.Input("SampleLogits"), classes = ctx.Input("SampleLabels");
  const TensorArg dinput = ctx.Output("Input@GRAD"), dbias = ctx.Output("Bias@GRAD");
  const RowGradient<T> dweight(ctx, "Weight@GRAD", weight);
  const Noise noise(ctx);
  const int64_t rows = input.shape[0], width = input.shape[1], samples = logits.shape[1];
  const int64_t trues = samples - noise.count();
  const std::string name = ctx.op().type();
  const TensorArg slopes = ctx.Scratch(input.dtype, logits.shape);
  return [=](Workspace& ws) {
    const auto* k = ws.Data<const int64_t>(classes);
    for (int64_t i = 0; i < classes.numel; ++i) {
      if (k[i] < 0 || k[i] >= noise.classes())
        ThrowIndexRange(name, "SampleLabels", i, k[i], noise.classes());
    }
    const T *x = ws.Data<const T>(input), *w = ws.Data<const T>(weight);
    T* to_input = dinput ? ws.Data<T>(dinput) : nullptr;
    T* to_bias = dbias ? ws.Data<T>(dbias) : nullptr;
    if (to_input) std::fill_n(to_input, dinput.numel, T(0));
    if (to_bias) std::fill_n(to_bias, dbias.numel, T(0));
    const auto to_weight =
        dweight.Start(ws, [&](const auto& tell) { std::for_each(k, k + classes.numel, tell); });
    T* d = ws.Data<T>(slopes);
    ParallelFor(rows, 1 + 4096 / (1 + samples), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        double given = static_cast<double>(ws.Data<const T>(dcost)[i]);
        if (sample_weight) given *= static_cast<double>(ws.Data<const T>(sample_weight)[i]);
        for (int64_t at = i * samples; at < (i + 1) * samples; ++at) {
          const auto o = static_cast<double>(ws.Data<const T>(logits)[at]);
          const double q = noise.Expected(ws, k[at]);
          const double slope = (at - i * samples < trues ? -q : o) * (1 - o) / (o + q);
          d[at] = static_cast<T>(given * slope);
          if (to_input) AddScaled(w + k[at] * width, d[at], width, to_input + i * width);
        }
      }
    });
    for (int64_t at = 0; to_bias && at < classes.numel; ++at) to_bias[k[at]] += d[at];
    // Threads split the columns, since several samples may have the same class.
    ParallelFor(to_weight ? width : 0, 16 + 16384 / (1 + classes.numel),
                [&](int64_t begin, int64_t end) {
                  for (int64_t at = 0; at < classes.numel; ++at)
                    AddScaled(x + at / samples * width + begin, d[at], end - begin,
                              to_weight.At(k[at]) + begin);
                });
  };
}

void DeclareInputs(OpDef& def) {
  def.Input("Input", "floating-point tensor [B, D]")
      .Input("Label", "int64 tensor [B, T]: true classes of each row")
      .Input("Weight", "weights of the classes [V, D]")
      .OptionalInput("Bias", "an element for each class")
      .OptionalInput("SampleWeight", "weights of the rows [B, 1]; 1 when absent")
      .OptionalInput("CustomDistProbs", "float32 tensor: the probability of each class")
      .OptionalInput("CustomDistAlias",
                     "int32 tensor: alias table, the class that replaces each one")
      .OptionalInput("CustomDistAliasProbs",
                     "float32 tensor: probability that a class is not replaced")
      .NoGradientTo(
          {"Label", "SampleWeight", "CustomDistProbs", "CustomDistAlias", "CustomDistAliasProbs"});
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("nce")
          .ComputesIn(OpPrecision::kFloat32)
          .Doc("Noise-contrastive estimation. For each row, SampleLabels are its T true classes "
               "and S = num_neg_samples classes drawn from the noise P; with o = sigmoid(Input "
               "Weight[k] + Bias[k]) and q = P(k) S, Cost = SampleWeight times the sum of -log(o / "
               "(o + q)) over the true ones and of -log(q / (o + q)) over the others. P is uniform "
               "(sampler 0), log((k + 2) / (k + 1)) / log(V) (1) or CustomDistProbs (2), drawn by "
               "Walker's alias method. A class outside of [0, V) is an error.")
          .Constraint("C1",
                      "Input and Weight must be matrices of one dtype and width, and Weight must "
                      "have num_total_classes rows")
          .Constraint("C2", "Label must be an int32 or int64 matrix with a row for each of Input")
          .Constraint("C3",
                      "Bias must have an element for each class, SampleWeight one for each row, of "
                      "Input's dtype")
          .Constraint("C4",
                      "num_neg_samples must be positive, and custom_neg_classes must be empty or "
                      "have that many classes")
          .Constraint("C5", "sampler must be 0, 1 or 2; samplers 1 and 2 need two classes")
          .Constraint("C6",
                      "sampler 2 needs CustomDistProbs (float32), CustomDistAlias (int32) and "
                      "CustomDistAliasProbs (float32) with an element for each class")
          .Apply(DeclareInputs)
          .Output("Cost", "tensor [B, 1]")
          .IntermediateOutput("SampleLogits", "o of each sample [B, T + S]")
          .IntermediateOutput("SampleLabels", "class of each sample [B, T + S]")
          .Attr<int32_t>("num_total_classes", "V")
          .Attr<int32_t>("num_neg_samples", 10, "S")
          .Attr<int32_t>("sampler", 0, "the noise: 0 uniform, 1 log-uniform, 2 custom")
          .Attr<int32_t>("seed", 0, "seed of the draws; 0: the program's seed")
          .Attr<bool>("is_sparse", false, "the gradient of Weight is selected rows")
          .Attr<std::vector<int32_t>>("custom_neg_classes", {},
                                      "classes to use for every row instead of draws")
          .Random()
          .Rows(RowRule::kEach)
          .Tables({"Weight", "Bias"})
          .Infer(InferForward)
          .GradientOp({"Input", "Label", "Weight", "Bias", "SampleWeight", "CustomDistProbs",
                       "CustomDistAlias", "CustomDistAliasProbs", "SampleLogits", "SampleLabels"})
          .Reference<float, double>([]<class T>(const PrepareContext& c) {
            return Forward<T>(c, KernelMode::kReference);
          })
          .Fast([](const PrepareContext& c) -> Kernel {
            if (c.Input("Input").dtype != DType::kFloat32) return {};
            return Forward<float>(c, KernelMode::kAuto);
          }));
  ops.Add(OpDef("nce_grad")
              .Doc("Gradient of nce. With the slope s = -q (1 - o) / (o + q) of a true class, "
                   "o (1 - o) / (o + q) of another, times SampleWeight Cost@GRAD: Input@GRAD = sum "
                   "s Weight[k], Weight@GRAD[k] = sum s Input, Bias@GRAD[k] = sum s.")
              .ConstraintsOf("nce", {"C1", "C2", "C3", "C4", "C5", "C6"})
              .Constraint("C7", "Cost@GRAD must have Input's dtype and an element for each row")
              .Constraint("C8", "SampleLogits and SampleLabels must come from nce")
              .Apply(DeclareInputs)
              .Input("SampleLogits", "nce's SampleLogits")
              .Input("SampleLabels", "nce's SampleLabels")
              .Input("Cost@GRAD", "gradient of Cost")
              .OptionalOutput("Input@GRAD", "gradient of Input")
              .OptionalOutput("Weight@GRAD", "gradient of Weight")
              .OptionalOutput("Bias@GRAD", "gradient of Bias")
              .AttrsOf("nce")
              .NoGradientTo({"SampleLogits", "SampleLabels"})
              .NoGradient("second derivatives of nce are not provided")
              .Infer(InferGrad)
              .Reference(Backward<float>, Backward<double>));
}

}  // namespace coracle::nce_op
