// Losses and accuracy. Each loss becomes one number, as in Caffe; its weight (loss_weight) is used
// only in the objective.

#include <coracle/convert/caffe/net_writer.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coracle::caffe {
namespace {

using proto::caffe::LossParameter;

using Kind = LossResult::Kind;

// Adds the entry for the top of a loss, and adds the loss to the objective.
void AddLossResult(const Layer& layer, NetWriter& net, Entry entry) {
  const std::string out = net.Out(layer, 0, {1});
  net.Add(entry.Text("output", out));
  net.AddLoss(layer, out);
}

LossParameter::NormalizationMode ModeOf(const LossParameter& p,
                                        LossParameter::NormalizationMode otherwise) {
  if (p.has_normalization()) return p.normalization();
  if (p.has_normalize()) return p.normalize() ? LossParameter::VALID : LossParameter::BATCH_SIZE;
  return otherwise;
}

// Classes as a variable of the scores' rank, with size 1 in their dim `axis`.
std::string LabelVar(const Layer& layer, NetWriter& net, const Blob& scores, const Blob& label,
                     int64_t axis) {
  std::string var = label.var;
  if (!label.is_label) {  // Caffe's classes are floats
    Entry cast("cast");
    var = net.Step(layer, cast.Text("input", var).Field("dtype", "INT64"), "label");
  }
  const size_t rank = scores.dims.size();
  Dims wanted = scores.dims;
  wanted[static_cast<size_t>(axis)] = 1;
  // The variable of [N] classes is [N, 1].
  const size_t label_rank = label.is_label && label.dims.size() == 1 ? 2 : label.dims.size();
  if (label_rank == rank && (rank == 2 || label.dims == wanted)) return var;
  if (NumelOf(label.dims, 1) >= 0 && NumelOf(wanted, 1) >= 0 && label.dims.size() > 1 &&
      NumelOf(label.dims, 1) != NumelOf(wanted, 1)) {
    layer.Fail({"bottom"}, fmt::format("labels of the dims {} for scores of {}", ToText(label.dims),
                                       ToText(scores.dims)));
  }
  Dims shape = wanted;
  size_t open = 0;
  for (size_t i = 1; i < shape.size(); ++i) open += shape[i] < 0;
  if (open > 0) layer.Fail("the dims of its scores must be known");
  if (shape[0] < 0) shape[0] = axis == 0 ? 1 : -1;
  Entry entry("reshape");
  return net.Step(layer, entry.Text("input", var).Field("shape", ListText(shape)), "classes");
}

// The sum of `each` divided by the number of labels that are not ignored, at least 1. `mask`:
// values at ignored labels are not 0 and must be masked.
Entry MeanOfValid(const Layer& layer, NetWriter& net, const std::string& each,
                  const std::string& label, const char* label_dtype, int64_t ignored,
                  bool mask = false) {
  Entry constant("fill_constant");
  constant.Field("shape", "[1]").Float("value", static_cast<float>(ignored));
  const std::string skip = net.Step(layer, constant.Field("dtype", label_dtype), "ignored");
  const std::string counts =
      net.Step(layer, Entry("not_equal").Text("x", label).Text("y", skip), "counts");
  const std::string ones =
      net.Step(layer, Entry("cast").Text("input", counts).Field("dtype", "FP32"), "ones");
  const std::string number = net.Step(layer, Entry("reduce_sum").Text("input", ones), "valid");
  const std::string divisor = net.Step(
      layer, Entry("clip").Text("input", number).Float("min", 1).Float("max", 3e38f), "divisor");
  const std::string counted =
      mask ? net.Step(layer, Entry("elementwise_mul").Text("x", each).Text("y", ones), "counted")
           : each;
  const std::string sum = net.Step(layer, Entry("reduce_sum").Text("input", counted), "sum");
  return Entry("elementwise_div").Text("x", sum).Text("y", divisor);
}

// sum(each) / normalizer, where `each` has `per_sample` elements for each sample.
Entry Normalized(const Layer& layer, NetWriter& net, const std::string& each, int64_t per_sample,
                 LossParameter::NormalizationMode mode, const std::string& label,
                 const char* label_dtype) {
  const LossParameter& p = layer.def.loss_param();
  if (mode == LossParameter::VALID && p.has_ignore_label())
    return MeanOfValid(layer, net, each, label, label_dtype, p.ignore_label());
  if (mode == LossParameter::NONE) return Entry("reduce_sum").Text("input", each);
  if (mode == LossParameter::PRE_FIXED) {
    const std::string sum = net.Step(layer, Entry("reduce_sum").Text("input", each), "sum");
    const float divisor = std::max(1.0f, p.pre_fixed_normalizer());
    return Entry("scale").Text("input", sum).Float("scale", 1 / divisor);
  }
  if (mode != LossParameter::BATCH_SIZE || per_sample == 1)
    return Entry("mean").Text("input", each);
  if (per_sample < 1) layer.Fail("the dims of its bottoms must be known");
  const std::string mean = net.Step(layer, Entry("mean").Text("input", each), "mean");
  return Entry("scale").Text("input", mean).Float("scale", static_cast<float>(per_sample));
}

void RequireTop(const Layer& layer) {
  if (layer.def.top_size() < 1) layer.Fail({"top"}, "it needs a top");
}

// SegNet: each loss times the factor of its class. The factors are 0 for no class, so a label that
// is ignored may have any of them.
std::string ByClass(const Layer& layer, NetWriter& net, const std::string& each,
                    const std::string& classes, int64_t count) {
  const LossParameter& p = layer.def.loss_param();
  if (p.class_weighting_size() != count) {
    layer.Fail({"loss_param", "class_weighting"},
               fmt::format("{} factors for {} classes", p.class_weighting_size(), count));
  }
  Entry values("assign_value"), clip("clip"), gather("gather"), like("elementwise_mul");
  std::vector<std::string> texts;
  for (const float value : p.class_weighting()) texts.push_back(Number(value));
  values.Field("shape", ListText({count})).Field("dtype", "5");
  values.Field("fp32_values", "[" + Join(texts, ", ") + "]");
  const std::string factors = net.StepOp(layer, values, "Out", "factors");
  const std::string column =
      net.Step(layer, Entry("reshape").Text("input", classes).Field("shape", "[-1]"), "column");
  clip.Text("input", column).Float("min", 0).Float("max", static_cast<float>(count - 1));
  gather.Text("X", factors).Text("Index", net.Step(layer, clip, "class"));
  const std::string picked = net.StepOp(layer, gather, "Out", "picked");
  const std::string flat =
      net.Step(layer, Entry("reshape").Text("input", each).Field("shape", "[-1]"), "flat");
  return net.Step(layer, like.Text("x", flat).Text("y", picked), "weighted");
}

// R-FCN's losses have a further top: the loss of each region, [R, 1, 1, 1].
void AddEach(const Layer& layer, NetWriter& net, int top, const std::string& each, int64_t places) {
  if (layer.def.top_size() <= top) return;
  if (layer.def.top_size() > top + 1)
    layer.Fail({"top"}, fmt::format("it takes {} tops at most", top + 1));
  if (places != 1) layer.Fail({"top"}, "the losses of each place are only converted for regions");
  Entry entry("reshape");
  entry.Text("input", each).Field("shape", "[-1, 1, 1, 1]");
  net.Add(entry.Text("output", net.Out(layer, top, {-1, 1, 1, 1})));
}

void WriteSoftmaxWithLoss(const Layer& layer, NetWriter& net) {
  RequireTop(layer);
  net.RequireBottoms(layer, 2, 2);
  const LossParameter& p = layer.def.loss_param();
  const Blob scores = net.In(layer), label = net.In(layer, 1);
  const int64_t axis = AxisOf(layer, layer.def.softmax_param().axis(), scores.dims.size());
  const std::string classes = LabelVar(layer, net, scores, label, axis);
  Entry entry("softmax_with_cross_entropy");
  entry.Text("logits", scores.var).Text("label", classes);
  if (p.has_ignore_label()) entry.Int("ignore_index", p.ignore_label());
  if (axis + 1 != static_cast<int64_t>(scores.dims.size())) entry.Int("axis", axis);
  if (layer.def.top_size() > 1) entry.Text("softmax_output", net.Out(layer, 1, scores.dims));
  std::string each = net.Step(layer, entry, "each");
  AddEach(layer, net, 2, each, NumelOf(scores.dims, static_cast<size_t>(axis) + 1));
  if (p.weight_by_label_freqs())
    each = ByClass(layer, net, each, classes, scores.dims[static_cast<size_t>(axis)]);
  const auto mode = ModeOf(p, LossParameter::VALID);
  // Caffe divides by the product of the dims before the axis.
  const int64_t per_sample = NumelOf(scores.dims, static_cast<size_t>(axis) + 1);
  AddLossResult(layer, net, Normalized(layer, net, each, per_sample, mode, classes, "INT64"));
  net.net().results.push_back({scores.var, Kind::kSoftmax, axis});
}

void WriteSigmoidCrossEntropy(const Layer& layer, NetWriter& net) {
  RequireTop(layer);
  net.RequireBottoms(layer, 2, 2);
  const LossParameter& p = layer.def.loss_param();
  const Blob scores = net.In(layer), label = net.In(layer, 1);
  std::string target = label.var;
  if (NumelOf(scores.dims, 1) == 1 && label.dims.size() != scores.dims.size()) {
    // [N] numbers for [N, 1] scores
    Entry shape("reshape");
    Dims dims = scores.dims;
    target = net.Step(layer, shape.Text("input", target).Field("shape", ListText(dims)), "target");
  } else if (label.dims != scores.dims) {
    layer.Fail({"bottom"}, fmt::format("its bottoms must have the same dims, got {} and {}",
                                       ToText(scores.dims), ToText(label.dims)));
  }
  Entry entry("sigmoid_cross_entropy_with_logits");
  entry.Text("input", scores.var).Text("label", target);
  if (p.has_ignore_label()) entry.Int("ignore_index", p.ignore_label());
  const std::string each = net.Step(layer, entry, "each");
  const auto mode = ModeOf(p, LossParameter::BATCH_SIZE);
  AddLossResult(layer, net,
                Normalized(layer, net, each, NumelOf(scores.dims, 1), mode, target, "FP32"));
  net.net().results.push_back({scores.var, Kind::kSigmoid});
}

// Fast R-CNN: with d = inside (a - b), the sum of outside (d^2 sigma^2 / 2 where |d| < 1 / sigma^2,
// else |d| - 0.5 / sigma^2), divided by N. A normalization in loss_param is R-FCN's, which divides
// by the places too.
void WriteSmoothL1Loss(const Layer& layer, NetWriter& net) {
  RequireTop(layer);
  net.RequireBottoms(layer, 2, 4);
  const bool ohem = layer.def.type().ends_with("OHEM");
  if (layer.def.top_size() != 1 && !ohem) layer.Fail({"top"}, "a second top, the losses of places");
  const LossParameter& p = layer.def.loss_param();
  const Blob a = net.In(layer);
  if (a.dims.size() < 2) layer.Fail({"bottom"}, "its bottoms need two dims");
  std::vector<std::string> vars = {a.var};
  for (int i = 1; i < layer.def.bottom_size(); ++i) {
    const Blob other = net.In(layer, i);
    vars.push_back(other.var);
    if (other.dims == a.dims) continue;
    if (NumelOf(a.dims, 1) < 1 || NumelOf(other.dims, 1) != NumelOf(a.dims, 1)) {
      layer.Fail({"bottom"}, fmt::format("its bottoms must have the same dims, got {} and {}",
                                         ToText(a.dims), ToText(other.dims)));
    }
    Dims dims = a.dims;  // [R, 8] for [R, 8, 1, 1]
    dims[0] = -1;
    Entry shape("reshape");
    vars.back() =
        net.Step(layer, shape.Text("input", other.var).Field("shape", ListText(dims)), "as_first");
  }
  Entry op("smooth_l1_loss");
  op.Text("X", a.var).Text("Y", vars[1]);
  if (vars.size() > 2) {
    const std::string inside = vars[2];
    Entry ones("fill_any_like");
    op.Text("InsideWeight", inside);
    op.Text("OutsideWeight",
            vars.size() == 4
                ? vars[3]
                : net.StepOp(layer, ones.Text("X", inside).Int("value", 1), "Out", "ones"));
  }
  op.Float("sigma", layer.def.smooth_l1_loss_param().sigma());
  const std::string each = net.StepOp(layer, op, "Out", "each");
  AddEach(layer, net, 1, each, NumelOf(a.dims, 2));
  const bool places = p.has_normalization() || p.has_normalize() || ohem;
  const auto mode = ModeOf(p, ohem ? LossParameter::VALID : LossParameter::BATCH_SIZE);
  const bool by_place = mode == LossParameter::VALID || mode == LossParameter::FULL;
  Entry result("mean");
  if (mode == LossParameter::NONE || mode == LossParameter::PRE_FIXED) {
    result = Normalized(layer, net, each, 1, mode, "", "");
  } else if (places && by_place && NumelOf(a.dims, 2) != 1) {
    const int64_t size = NumelOf(a.dims, 2);
    if (size < 1) layer.Fail("the dims of its bottoms must be known");
    const std::string mean = net.Step(layer, Entry("mean").Text("input", each), "mean");
    result = Entry("scale").Text("input", mean).Float("scale", 1 / static_cast<float>(size));
  } else {
    result.Text("input", each);
  }
  AddLossResult(layer, net, result);
  net.net().results.push_back({a.var});
}

// NVIDIA's: the sum of |a - b|, divided by N.
void WriteL1Loss(const Layer& layer, NetWriter& net) {
  RequireTop(layer);
  net.RequireBottoms(layer, 2, 2);
  const Blob a = net.In(layer), b = net.In(layer, 1);
  const int64_t size = NumelOf(a.dims, 1);
  if (size < 1 || a.dims != b.dims) {
    layer.Fail({"bottom"}, fmt::format("its bottoms must have the same dims, got {} and {}",
                                       ToText(a.dims), ToText(b.dims)));
  }
  Entry less("elementwise_sub"), scale("scale");
  const std::string difference =
      net.Step(layer, less.Text("x", a.var).Text("y", b.var), "difference");
  const std::string each = net.Step(layer, Entry("abs").Text("input", difference), "each");
  scale.Text("input", net.Step(layer, Entry("mean").Text("input", each), "mean"));
  AddLossResult(layer, net, scale.Float("scale", static_cast<float>(size)));
  net.net().results.push_back({a.var});
}

// sum of (a - b)^2 / (2 N)
void WriteEuclideanLoss(const Layer& layer, NetWriter& net) {
  RequireTop(layer);
  net.RequireBottoms(layer, 2, 2);
  const Blob a = net.In(layer), b = net.In(layer, 1);
  const int64_t size = NumelOf(a.dims, 1);
  if (size < 1) layer.Fail("the dims of its bottoms must be known");
  if (NumelOf(b.dims, 1) != size) {
    layer.Fail({"bottom"}, fmt::format("its bottoms must have the same dims, got {} and {}",
                                       ToText(a.dims), ToText(b.dims)));
  }
  std::string target = b.var;
  if (a.dims != b.dims) {
    Entry shape("reshape");
    target =
        net.Step(layer, shape.Text("input", target).Field("shape", ListText(a.dims)), "target");
  }
  Entry cost("square_error_cost");
  const std::string each = net.Step(layer, cost.Text("input", a.var).Text("label", target), "each");
  const std::string mean = net.Step(layer, Entry("mean").Text("input", each), "mean");
  Entry scale("scale");
  AddLossResult(layer, net, scale.Text("input", mean).Float("scale", static_cast<float>(size) / 2));
  const std::vector<std::string>& fed = net.net().inputs;
  const bool is_fed = std::find(fed.begin(), fed.end(), a.var) != fed.end();
  net.net().results.push_back({is_fed ? b.var : a.var});
}

// sum over classes of max(0, 1 - t x) (or of its square) / N, with t = 1 at the label and
// -1 elsewhere
void WriteHingeLoss(const Layer& layer, NetWriter& net) {
  RequireTop(layer);
  net.RequireBottoms(layer, 2, 2);
  const Blob scores = net.In(layer), label = net.In(layer, 1);
  if (scores.dims.empty()) layer.Fail({"bottom"}, "its scores need a dim of samples");
  const int64_t classes = NumelOf(scores.dims, 1);
  if (classes < 1 || classes > INT32_MAX) layer.Fail("the dims of its scores must be known");
  std::string x = scores.var;
  Blob flat = scores;
  if (scores.dims.size() != 2) {
    x = net.Step(layer, Entry("flatten").Text("input", x), "flat");
    flat.dims = {scores.dims[0], classes};
  }
  const std::string ids = LabelVar(layer, net, flat, label, 1);
  Entry hot("one_hot");
  const std::string column =
      net.Step(layer, Entry("reshape").Text("input", ids).Field("shape", "[-1]"), "ids");
  const std::string one = net.Step(layer, hot.Text("input", column).Int("depth", classes), "hot");
  Entry sign("scale");  // -t
  sign.Text("input", one).Float("scale", -2).Float("bias", 1);
  const std::string minus = net.Step(layer, sign, "minus_t");
  const std::string product =
      net.Step(layer, Entry("elementwise_mul").Text("x", x).Text("y", minus), "product");
  Entry margin("scale");
  margin.Text("input", product).Float("bias", 1);
  std::string each = net.Step(layer, margin.Text("act", "relu"), "each");
  if (layer.def.hinge_loss_param().norm() == proto::caffe::HingeLossParameter::L2)
    each = net.Step(layer, Entry("square").Text("input", each), "square");
  const std::string mean = net.Step(layer, Entry("mean").Text("input", each), "mean");
  AddLossResult(layer, net,
                Entry("scale").Text("input", mean).Float("scale", static_cast<float>(classes)));
  net.net().results.push_back({scores.var});
}

// -log(max(p, 1e-20)) of the label's probability, the mean over the batch
void WriteMultinomialLoss(const Layer& layer, NetWriter& net) {
  RequireTop(layer);
  net.RequireBottoms(layer, 2, 2);
  const Blob p = net.In(layer), label = net.In(layer, 1);
  if (p.dims.size() != 2) layer.Fail("its probabilities must be [N, classes]");
  const std::string classes = LabelVar(layer, net, p, label, 1);
  Entry clip("clip");
  const std::string safe =
      net.Step(layer, clip.Text("input", p.var).Float("min", 1e-20f).Float("max", 3e38f), "safe");
  Entry entry("cross_entropy");
  const std::string each =
      net.Step(layer, entry.Text("input", safe).Text("label", classes), "each");
  AddLossResult(layer, net, Entry("mean").Text("input", each));
  net.net().results.push_back({p.var});
}

// Half the mean of y d^2 + (1 - y) max(margin - d, 0)^2, with d the distance of two rows; the
// legacy version has margin - d^2 without the square.
void WriteContrastiveLoss(const Layer& layer, NetWriter& net) {
  RequireTop(layer);
  net.RequireBottoms(layer, 3, 3);
  const auto& p = layer.def.contrastive_loss_param();
  const Blob a = net.In(layer), b = net.In(layer, 1), similar = net.In(layer, 2);
  if (a.dims.size() < 2 || a.dims != b.dims)
    layer.Fail({"bottom"}, "its first two bottoms must have the same dims [N, C]");
  const auto step = [&](Entry entry, const char* name) { return net.Step(layer, entry, name); };
  const std::string difference =
      step(Entry("elementwise_sub").Text("x", a.var).Text("y", b.var), "difference");
  const std::string square = step(Entry("square").Text("input", difference), "square");
  Dims over;
  for (size_t i = 1; i < a.dims.size(); ++i) over.push_back(static_cast<int64_t>(i));
  const std::string distance =
      step(Entry("reduce_sum").Text("input", square).Field("dim", ListText(over)), "d_squared");
  const std::string y =
      step(Entry("reshape").Text("input", similar.var).Field("shape", "[-1]"), "y");
  const std::string other =
      step(Entry("scale").Text("input", y).Float("scale", -1).Float("bias", 1), "one_minus_y");
  std::string gap;
  Entry hinge("scale");
  if (p.legacy_version()) {
    gap = step(hinge.Text("input", distance)
                   .Float("scale", -1)
                   .Float("bias", p.margin())
                   .Text("act", "relu"),
               "gap");
    // The square root has no gradient at 0.
  } else {
    const std::string safe = step(
        Entry("clip").Text("input", distance).Float("min", 1e-12f).Float("max", 3e38f), "safe");
    const std::string root = step(Entry("sqrt").Text("input", safe), "d");
    const std::string positive = step(
        hinge.Text("input", root).Float("scale", -1).Float("bias", p.margin()).Text("act", "relu"),
        "margin_minus_d");
    gap = step(Entry("square").Text("input", positive), "gap");
  }
  const std::string near = step(Entry("elementwise_mul").Text("x", y).Text("y", distance), "near");
  const std::string far = step(Entry("elementwise_mul").Text("x", other).Text("y", gap), "far");
  const std::string each = step(Entry("elementwise_add").Text("x", near).Text("y", far), "each");
  const std::string mean = step(Entry("mean").Text("input", each), "mean");
  AddLossResult(layer, net, Entry("scale").Text("input", mean).Float("scale", 0.5f));
  net.net().results.push_back({a.var});
}

// The share of each class's positions that are right, [classes]; 0 for a class without positions.
void WriteClassAccuracies(const Layer& layer, NetWriter& net, const std::string& right,
                          const std::string& classes, int64_t count) {
  const auto& p = layer.def.accuracy_param();
  const auto step = [&](Entry entry, const char* name) { return net.Step(layer, entry, name); };
  const auto column = [&](const std::string& x, const char* shape, const char* name) {
    return step(Entry("reshape").Text("input", x).Field("shape", shape), name);
  };
  const auto sum = [&](const std::string& x, const char* name) {
    return step(Entry("reduce_sum").Text("input", x).Field("dim", "[0]"), name);
  };
  Entry hot("one_hot_v2");
  hot.Text("X", column(classes, "[-1]", "column")).Int("depth", count);
  std::string belongs = net.StepOp(layer, hot.Bool("allow_out_of_range", true), "Out", "belongs");
  if (p.has_ignore_label() && p.ignore_label() >= 0 && p.ignore_label() < count) {
    std::vector<std::string> kept(static_cast<size_t>(count), "1");
    kept[static_cast<size_t>(p.ignore_label())] = "0";
    Entry values("assign_value");
    values.Field("shape", ListText({count})).Field("dtype", "5");
    values.Field("fp32_values", "[" + Join(kept, ", ") + "]");
    const std::string mask = net.StepOp(layer, values, "Out", "kept");
    belongs = step(Entry("elementwise_mul").Text("x", belongs).Text("y", mask), "counted_classes");
  }
  Entry own("elementwise_mul"), least("clip");
  own.Text("x", belongs).Text("y", column(right, "[-1, 1]", "right_column"));
  const std::string hits = sum(step(own, "own_hits"), "class_hits");
  least.Text("input", sum(belongs, "class_counts")).Float("min", 1).Float("max", 3e38f);
  Entry result("elementwise_div");
  result.Text("x", hits).Text("y", step(least, "class_divisors"));
  net.Add(result.Text("output", net.Out(layer, 1, {count})));
}

// The share of positions whose label has the largest score, without those with ignore_label.
void WriteMaskedAccuracy(const Layer& layer, NetWriter& net, const Blob& scores,
                         const std::string& classes, int64_t axis) {
  const auto& p = layer.def.accuracy_param();
  if (p.top_k() != 1) {
    const char* cause = layer.def.top_size() > 1 ? "a second top, the accuracy of each class"
                        : p.has_ignore_label()   ? "ignore_label"
                                                 : "scores that are not [N, classes]";
    layer.Fail(
        {"accuracy_param", "top_k"},
        fmt::format("top_k {} is not converted with {}; leave one of them out", p.top_k(), cause));
  }
  const auto step = [&](Entry entry, const char* name) { return net.Step(layer, entry, name); };
  const std::string best = step(
      Entry("arg_max").Text("input", scores.var).Int("axis", axis).Bool("keepdims", true), "best");
  const std::string hit = step(Entry("equal").Text("x", best).Text("y", classes), "hit");
  const std::string right = step(Entry("cast").Text("input", hit).Field("dtype", "FP32"), "right");
  Entry result = p.has_ignore_label()
                     ? MeanOfValid(layer, net, right, classes, "INT64", p.ignore_label(), true)
                     : Entry("mean").Text("input", right);
  net.Add(result.Text("output", net.Out(layer, 0, {1})));
  if (layer.def.top_size() < 2) return;
  const int64_t count = scores.dims[static_cast<size_t>(axis)];
  if (count < 1 || count > 65536) layer.Fail({"top"}, "the number of its classes must be known");
  WriteClassAccuracies(layer, net, right, classes, count);
}

void WriteAccuracy(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.accuracy_param();
  net.RequireBottoms(layer, 2, 2);
  if (layer.def.top_size() < 1 || layer.def.top_size() > 2)
    layer.Fail({"top"}, fmt::format("it takes 1 or 2 tops, got {}", layer.def.top_size()));
  const Blob scores = net.In(layer), label = net.In(layer, 1);
  const int64_t axis = AxisOf(layer, p.axis(), scores.dims.size());
  if (p.top_k() < 1 || p.top_k() > INT32_MAX)
    layer.Fail({"accuracy_param", "top_k"}, "top_k must be positive");
  // [N, C, 1, 1] counts as [N, C].
  const int64_t classes = scores.dims[static_cast<size_t>(axis)];
  const bool flat = layer.def.top_size() == 1 && axis == 1 && !p.has_ignore_label() &&
                    classes > 0 && NumelOf(scores.dims, 1) == classes;
  if (flat) {
    Blob rows = scores;
    if (rows.dims.size() > 2) {
      rows.var = net.Step(layer, Entry("flatten").Text("input", scores.var), "flat");
      rows.dims = {scores.dims[0], classes};
    }
    Entry entry("accuracy");
    entry.Text("input", rows.var).Text("label", LabelVar(layer, net, rows, label, 1));
    if (p.top_k() != 1) entry.Int("k", p.top_k());
    net.Add(entry.Text("output", net.Out(layer, 0, {1})));
  } else {
    WriteMaskedAccuracy(layer, net, scores, LabelVar(layer, net, scores, label, axis), axis);
  }
  net.net().metrics.push_back(net.Top(layer, 0).var);
}

}  // namespace

LayerTable LossLayers() {
  return {{"Accuracy", WriteAccuracy,
           "`accuracy`; of images, with ignore_label, or with a second top, the accuracy of each "
           "class, composed of ops"},
          {"ContrastiveLoss", WriteContrastiveLoss, "composed of ops"},
          {"EuclideanLoss", WriteEuclideanLoss, "composed of ops"},
          {"HingeLoss", WriteHingeLoss, "composed of ops"},
          {"L1Loss", WriteL1Loss, "composed of ops: NVIDIA's"},
          {"MultinomialLogisticLoss", WriteMultinomialLoss, "composed of ops"},
          {"SigmoidCrossEntropyLoss", WriteSigmoidCrossEntropy,
           "`sigmoid_cross_entropy_with_logits`, with ignore_label and every normalization"},
          {"SmoothL1Loss", WriteSmoothL1Loss,
           "op `smooth_l1_loss` and `mean`: divided by the batch, as in Fast R-CNN; by the places "
           "too if loss_param has a normalization, as in R-FCN"},
          {"SmoothL1LossOHEM", WriteSmoothL1Loss,
           "as SmoothL1Loss with a normalization; a second top has the losses of regions"},
          {"SoftmaxWithLossOHEM", WriteSoftmaxWithLoss,
           "as SoftmaxWithLoss; a third top has the losses of regions"},
          {"SoftmaxWithLoss", WriteSoftmaxWithLoss,
           "`softmax_with_cross_entropy` and `mean`, with ignore_label, every normalization, and "
           "SegNet's class_weighting"}};
}

}  // namespace coracle::caffe
