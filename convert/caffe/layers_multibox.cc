// SSD's loss of boxes (multibox_loss_layer.cpp and bbox_util.cpp of that version of Caffe).

#include <coracle/convert/caffe/net_writer.h>
#include <coracle/convert/caffe/steps.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <cmath>

namespace coracle::caffe {
namespace {

using proto::caffe::LossParameter;
using proto::caffe::MultiBoxLossParameter;
using proto::caffe::PriorBoxParameter;

// Rows of the ground truth: image, class, instance, corners, difficult.
constexpr int64_t kTruthWidth = 8;

void RequireForm(const Layer& layer) {
  const MultiBoxLossParameter& p = layer.def.multibox_loss_param();
  const auto refuse = [&](bool wrong, const char* field, const char* what) {
    if (wrong) layer.Fail({"multibox_loss_param", field}, fmt::format("{}: {}", field, what));
  };
  const bool mines = p.mining_type() == MultiBoxLossParameter::MAX_NEGATIVE;
  const bool logistic = p.conf_loss_type() == MultiBoxLossParameter::LOGISTIC;
  refuse(!p.has_num_classes() || p.num_classes() < 1 || p.num_classes() > 1 << 20, "num_classes",
         "it must be given, and lie in [1, 2^20]");
  refuse(p.background_label_id() >= p.num_classes(), "background_label_id",
         "it must be less than num_classes");
  refuse(!p.share_location(), "share_location", "boxes of each class are not converted");
  refuse(!p.use_prior_for_matching(), "use_prior_for_matching",
         "only priors are matched, no predictions");
  refuse(p.code_type() != PriorBoxParameter::CENTER_SIZE, "code_type",
         "only CENTER_SIZE is converted");
  refuse(p.encode_variance_in_target(), "encode_variance_in_target",
         "only variances that divide the targets are converted");
  refuse(p.map_object_to_agnostic(), "map_object_to_agnostic", "it is not converted");
  refuse(p.ignore_cross_boundary_bbox(), "ignore_cross_boundary_bbox", "it is not converted");
  refuse(p.bp_inside(), "bp_inside", "it is not converted");
  refuse(p.has_nms_param() && p.nms_param().nms_threshold() > 0, "nms_param",
         "suppression among the negatives is not converted");
  refuse(p.mining_type() == MultiBoxLossParameter::HARD_EXAMPLE, "mining_type",
         "HARD_EXAMPLE is not converted");
  refuse(p.has_do_neg_mining() && p.do_neg_mining() != mines, "do_neg_mining",
         "it contradicts mining_type");
  refuse(logistic && (!mines || p.background_label_id() != 0), "conf_loss_type",
         "LOGISTIC needs the mining_type MAX_NEGATIVE and the background 0");
  refuse(mines && !(p.neg_pos_ratio() > 0), "neg_pos_ratio", "it must be positive");
  // The op knows only the overlaps of matched priors.
  refuse(mines && (p.match_type() != MultiBoxLossParameter::PER_PREDICTION ||
                   !(p.neg_overlap() >= p.overlap_threshold())),
         "neg_overlap",
         "negatives are chosen with match_type PER_PREDICTION and a neg_overlap that is not less "
         "than overlap_threshold");
  const auto& down = layer.def.propagate_down();
  if (down.size() > 1 && !(down.Get(0) && down.Get(1)))
    layer.Fail({"propagate_down"}, "one of the two losses alone is not converted");
}

// The bottoms, checked.
struct Parts {
  int64_t priors = 0, classes = 0;
  std::string locations;  // [N, P, 4]
  std::string scores;     // [N, P, C]
  std::string corners;    // priors, [P, 4]
  std::string variances;  // [P, 4]
};

Parts ReadParts(const Layer& layer, NetWriter& net) {
  const Blob loc = net.KnownIn(layer), conf = net.KnownIn(layer, 1), prior = net.KnownIn(layer, 2);
  Parts parts;
  parts.classes = layer.def.multibox_loss_param().num_classes();
  parts.priors = prior.dims.size() == 3 && prior.dims[1] == 2 ? prior.dims[2] / 4 : 0;
  if (parts.priors < 1 || NumelOf(loc.dims, 1) != 4 * parts.priors ||
      NumelOf(conf.dims, 1) != NumelOf({parts.priors, parts.classes}) ||
      parts.priors * parts.classes > INT32_MAX) {
    layer.Fail({"bottom"},
               fmt::format("locations {}, scores {} and priors {} do not fit {} classes",
                           ToText(loc.dims), ToText(conf.dims), ToText(prior.dims), parts.classes));
  }
  parts.locations = Reshape(layer, net, loc.var, {-1, parts.priors, 4}, "locations");
  parts.scores = Reshape(layer, net, conf.var, {-1, parts.priors, parts.classes}, "scores");
  const auto half = [&](int64_t at, const char* name) {
    return Reshape(layer, net, Slice(layer, net, prior.var, 1, at, at + 1, "prior_half"),
                   {parts.priors, 4}, name);
  };
  parts.corners = half(0, "priors");
  parts.variances = half(1, "variances");
  return parts;
}

// The true boxes in the order of their images, with LoD.
struct Truth {
  std::string boxes;    // [R, 4]
  std::string classes;  // int64 [R, 1, 1]
  std::string offsets;
};

// The size of the batch, as a float [1].
std::string BatchSize(const Layer& layer, NetWriter& net) {
  const std::string shape =
      net.StepOp(layer, Entry("shape").Text("Input", net.In(layer, 1).var), "Out", "sizes");
  return Cast(layer, net, Slice(layer, net, shape, 0, 0, 1, "batch"), "FP32", "batch_size");
}

// The classes of the true boxes. As in Caffe, the background is the class of none of them: a run
// fails if a box of an image of the batch (`inside` is 1) has it.
std::string ClassesOf(const Layer& layer, NetWriter& net, const std::string& column,
                      const std::string& inside) {
  const auto background =
      static_cast<int64_t>(layer.def.multibox_loss_param().background_label_id());
  const std::string ids = Cast(layer, net, column, "INT64", "class_number");
  Entry equal("equal"), show("map_values"), stop("map_values");
  const std::string number =
      Number(layer, net, static_cast<double>(background), "INT64", "background");
  const std::string same = net.StepOp(layer, equal.Text("X", ids).Text("Y", number), "Out", "same");
  const std::string wrong =
      Times(layer, net, Cast(layer, net, same, "FP32", "of_background"), inside, "wrong");
  show.Text("X", Cast(layer, net, wrong, "INT64", "is_wrong"));
  show.Field("keys_int64s", "[0, 1]").Field("out_dtype", "STRING");
  show.Texts("values_strings",
             {"", fmt::format("a true box of the class {}, which background_label_id of layer {} "
                              "has for the background: leave it out of the data",
                              background, Quote(layer.def.name()))});
  // No key of this table equals the text, so the op shows the text in its error.
  stop.Text("X", net.StepOp(layer, show, "Out", "why")).Texts("keys_strings", {""});
  stop.Field("values_int64s", "[0]").Bool("has_default", false);
  const std::string none = net.StepOp(layer, stop.Field("out_dtype", "INT64"), "Out", "none_wrong");
  return net.Step(layer, Entry("elementwise_add").Text("x", ids).Text("y", none), "class_id");
}

// A box that does not count, for example one of an image outside the batch, becomes an empty box of
// image 0. An empty box overlaps with nothing, so it is never matched.
Truth ReadTruth(const Layer& layer, NetWriter& net) {
  const Blob in = net.In(layer, 3);
  if (in.dims.empty() || in.dims.back() != kTruthWidth) {
    layer.Fail({"bottom"}, fmt::format("its boxes must be [1, 1, R, 8]: image, class, instance, "
                                       "corners, difficult; got {}",
                                       ToText(in.dims)));
  }
  const std::string rows = Reshape(layer, net, in.var, {-1, kTruthWidth}, "truth");
  const auto columns = [&](int64_t begin, int64_t end, const char* name) {
    return Slice(layer, net, rows, 1, begin, end, name);
  };
  const auto compared = [&](const char* how, const std::string& x, const std::string& y,
                            const char* name) {
    const std::string found =
        net.StepOp(layer, Entry(how).Text("X", x).Text("Y", y), "Out", "found");
    return Cast(layer, net, found, "FP32", name);
  };
  const std::string image = columns(0, 1, "image");
  const std::string zero = Number(layer, net, 0, "FP32", "zero");
  const std::string least = compared("greater_equal", image, zero, "not_negative");
  const std::string most = compared("less_than", image, BatchSize(layer, net), "below_batch");
  const std::string inside = Times(layer, net, least, most, "inside");
  std::string counts = inside;
  if (!layer.def.multibox_loss_param().use_difficult_gt()) {
    const std::string easy = compared("equal", columns(7, 8, "difficult"), zero, "easy");
    counts = Times(layer, net, counts, easy, "counts");
  }
  const std::string images =
      Reshape(layer, net, Times(layer, net, image, inside, "image_number"), {-1}, "images");
  const std::string order = SortedPlaces(layer, net, images, "order");
  Truth truth;
  truth.offsets = OffsetsOf(layer, net, net.In(layer, 1).var, images);
  const std::string boxes = Times(layer, net, columns(3, 7, "all_boxes"), counts, "counted_boxes");
  truth.boxes = SortedRows(layer, net, boxes, order, truth.offsets, "boxes");
  const std::string ids = ClassesOf(layer, net, columns(1, 2, "class"), inside);
  truth.classes = SortedRows(layer, net, Reshape(layer, net, ids, {-1, 1, 1}, "class_column"),
                             order, truth.offsets, "classes");
  return truth;
}

// Two outputs of an op.
struct Pair {
  std::string first, second;
};

Pair AddPair(const Layer& layer, NetWriter& net, Entry op, const char* first, const char* second) {
  Pair pair{net.Temp(layer, first), net.Temp(layer, second)};
  net.AddOp(op.Text(first, pair.first).Text(second, pair.second));
  return pair;
}

// The matched row of each prior, and its overlap: [N, P].
Pair Matches(const Layer& layer, NetWriter& net, const Parts& parts, const Truth& truth) {
  const MultiBoxLossParameter& p = layer.def.multibox_loss_param();
  Entry overlap("iou_similarity"), match("bipartite_match");
  overlap.Text("X", truth.boxes).Text("Y", parts.corners);
  match.Text("DistMat", net.StepOp(layer, overlap, "Out", "overlaps"));
  const bool each = p.match_type() == MultiBoxLossParameter::PER_PREDICTION;
  match.Text("match_type", each ? "per_prediction" : "bipartite");
  if (each) match.Float("dist_threshold", p.overlap_threshold());
  return AddPair(layer, net, match, "ColToRowMatchIndices", "ColToRowMatchDist");
}

// The sum of the losses of matched boxes.
std::string LocationLoss(const Layer& layer, NetWriter& net, const Parts& parts, const Truth& truth,
                         const std::string& matches, std::string* matched) {
  Entry encode("box_coder"), reset("lod_reset"), assign("target_assign");
  encode.Text("PriorBox", parts.corners).Text("PriorBoxVar", parts.variances);
  encode.Text("TargetBox", truth.boxes).Text("code_type", "encode_center_size");
  reset.Text("X", net.StepOp(layer, encode, "OutputBox", "encoded")).Text("Y", truth.offsets);
  assign.Text("X", net.StepOp(layer, reset, "Out", "encoded_rows")).Text("MatchIndices", matches);
  const Pair target = AddPair(layer, net, assign, "Out", "OutWeight");
  *matched = Reshape(layer, net, target.second, {-1, 1}, "matched");
  const std::string a = Reshape(layer, net, parts.locations, {-1, 4}, "location_rows");
  const std::string b = Reshape(layer, net, target.first, {-1, 4}, "target_rows");
  const bool smooth =
      layer.def.multibox_loss_param().loc_loss_type() == MultiBoxLossParameter::SMOOTH_L1;
  std::string each;
  if (smooth) {
    Entry loss("smooth_l1_loss");
    each = net.StepOp(layer, loss.Text("X", a).Text("Y", b).Float("sigma", 1), "Out", "box_losses");
  } else {
    Entry cost("square_error_cost"), sum("reduce_sum"), half("scale");
    const std::string square = net.Step(layer, cost.Text("input", a).Text("label", b), "squares");
    sum.Text("input", square).Field("dim", "[1]").Bool("keep_dim", true);
    half.Text("input", net.Step(layer, sum, "square_sums")).Float("scale", 0.5f);
    each = net.Step(layer, half, "box_losses");
  }
  return SumOf(layer, net, Times(layer, net, each, *matched, "matched_losses"), "location_loss");
}

// The loss of each prior's scores, [N P, 1]. `target`: int64 [N, P, 1].
std::string ScoreLosses(const Layer& layer, NetWriter& net, const Parts& parts,
                        const std::string& target) {
  if (layer.def.multibox_loss_param().conf_loss_type() == MultiBoxLossParameter::SOFTMAX) {
    Entry loss("softmax_with_cross_entropy");
    loss.Text("logits", parts.scores).Text("label", target);
    return Reshape(layer, net, net.Step(layer, loss, "score_losses"), {-1, 1}, "scores_rows");
  }
  Entry hot("one_hot_v2"), loss("sigmoid_cross_entropy_with_logits"), sum("reduce_sum");
  const std::string ids = Reshape(layer, net, target, {-1}, "target_ids");
  hot.Text("X", ids).Int("depth", parts.classes);
  const std::string rows = Reshape(layer, net, parts.scores, {-1, parts.classes}, "score_rows");
  loss.Text("input", rows).Text("label", net.StepOp(layer, hot, "Out", "hot"));
  sum.Text("input", net.Step(layer, loss, "class_losses")).Field("dim", "[1]");
  return net.Step(layer, sum.Bool("keep_dim", true), "score_losses");
}

// The sum of the losses of scores of matched priors and of the negatives that are chosen.
std::string ScoreLoss(const Layer& layer, NetWriter& net, const Parts& parts, const Truth& truth,
                      const Pair& matches) {
  const MultiBoxLossParameter& p = layer.def.multibox_loss_param();
  const auto background = static_cast<int64_t>(p.background_label_id());
  const auto assigned = [&](Entry more) {
    more.Text("X", truth.classes).Text("MatchIndices", matches.first);
    return AddPair(layer, net, more.Int("mismatch_value", background), "Out", "OutWeight");
  };
  const Pair target = assigned(Entry("target_assign"));
  const std::string each = ScoreLosses(layer, net, parts, target.first);
  if (p.mining_type() == MultiBoxLossParameter::NONE) return SumOf(layer, net, each, "score_loss");
  Entry mine("mine_hard_examples");
  mine.Text("ClsLoss", Reshape(layer, net, each, {-1, parts.priors}, "losses"));
  mine.Text("MatchIndices", matches.first).Text("MatchDist", matches.second);
  mine.Float("neg_pos_ratio", p.neg_pos_ratio()).Float("neg_dist_threshold", p.neg_overlap());
  mine.Text("mining_type", "max_negative");
  const Pair mined = AddPair(layer, net, mine, "NegIndices", "UpdatedMatchIndices");
  const Pair chosen = assigned(Entry("target_assign").Text("NegIndices", mined.first));
  const std::string weights = Reshape(layer, net, chosen.second, {-1, 1}, "chosen");
  return SumOf(layer, net, Times(layer, net, each, weights, "chosen_losses"), "score_loss");
}

// The variable by which the sums are divided; "" for 1.
std::string Divisor(const Layer& layer, NetWriter& net, const Parts& parts,
                    const std::string& matched) {
  const LossParameter& p = layer.def.loss_param();
  LossParameter::NormalizationMode mode = p.normalization();
  if (!p.has_normalization() && p.has_normalize())
    mode = p.normalize() ? LossParameter::VALID : LossParameter::BATCH_SIZE;
  if (mode == LossParameter::NONE) return "";
  if (mode == LossParameter::PRE_FIXED)
    layer.Fail({"loss_param", "normalization"}, "PRE_FIXED is not converted");
  if (mode == LossParameter::VALID) {
    Entry least("clip");
    least.Text("input", SumOf(layer, net, matched, "matches")).Float("min", 1);
    return net.Step(layer, least.Float("max", 3e38f), "divisor");
  }
  const std::string batch = BatchSize(layer, net);
  if (mode == LossParameter::BATCH_SIZE) return batch;
  const auto priors = static_cast<float>(parts.priors);
  return net.Step(layer, Entry("scale").Text("input", batch).Float("scale", priors), "divisor");
}

void WriteMultiBoxLoss(const Layer& layer, NetWriter& net) {
  net.RequireBottoms(layer, 4, 4);
  RequireForm(layer);
  const Parts parts = ReadParts(layer, net);
  const Truth truth = ReadTruth(layer, net);
  const Pair matches = Matches(layer, net, parts, truth);
  std::string matched;
  const std::string boxes = LocationLoss(layer, net, parts, truth, matches.first, &matched);
  const std::string scores = ScoreLoss(layer, net, parts, truth, matches);
  Entry weighted("scale"), both("elementwise_add");
  weighted.Text("input", boxes);
  weighted.Float("scale", layer.def.multibox_loss_param().loc_weight());
  both.Text("x", net.Step(layer, weighted, "weighted_boxes")).Text("y", scores);
  const std::string divisor = Divisor(layer, net, parts, matched);
  const std::string out = net.Out(layer, 0, {1});
  if (divisor.empty()) {
    net.Add(both.Text("output", out));
  } else {
    const std::string sum = net.Step(layer, both, "both");
    net.Add(Entry("elementwise_div").Text("x", sum).Text("y", divisor).Text("output", out));
  }
  net.AddLoss(layer, out);
  for (const int i : {0, 1}) net.net().results.push_back({net.In(layer, i).var});
}

}  // namespace

LayerTable MultiBoxLayers() {
  return {{"MultiBoxLoss", WriteMultiBoxLoss,
           "ops `iou_similarity`, `bipartite_match`, `box_coder`, `target_assign` and "
           "`mine_hard_examples`; boxes of each class, code types other than CENTER_SIZE and "
           "HARD_EXAMPLE are refused"}};
}

}  // namespace coracle::caffe
