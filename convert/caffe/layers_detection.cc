// Layers of detectors: Fast R-CNN's and R-FCN's pooling of regions, SSD's priors and detections.
// Formulas: the layers' sources in those versions of Caffe.

#include <coracle/convert/caffe/net_writer.h>
#include <coracle/convert/caffe/steps.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>

namespace coracle::caffe {
namespace {

using proto::caffe::PriorBoxParameter;

// --- pooling of regions ---

// Regions [R, 5] of Caffe: the index of an image, and corners. The ops take corners [R, 4] in the
// order of the images, with LoD.
struct Regions {
  std::string boxes;
  std::string places;  // where the sorted regions hold each of Caffe's regions
};

Regions RegionsOf(const Layer& layer, NetWriter& net, const Blob& features) {
  const Blob in = net.KnownIn(layer, 1);
  if (in.dims.size() < 2 || NumelOf(in.dims, 1) != 5) {
    layer.Fail({"bottom"}, fmt::format("its regions must be [R, 5]: image, x1, y1, x2, y2; got {}",
                                       ToText(in.dims)));
  }
  std::string rows = in.var;
  if (in.dims.size() > 2) rows = Reshape(layer, net, rows, {-1, 5}, "rows");
  const std::string first = Slice(layer, net, rows, 1, 0, 1, "image");
  const std::string images = Reshape(layer, net, first, {-1}, "images");
  const std::string order = SortedPlaces(layer, net, images, "order");
  const std::string corners = Slice(layer, net, rows, 1, 1, 5, "corners");
  const std::string offsets = OffsetsOf(layer, net, features.var, images);
  return {SortedRows(layer, net, corners, order, offsets, "boxes"),
          SortedPlaces(layer, net, order, "places")};
}

// Adds the pooling of sorted regions, and puts its rows into the order of Caffe's.
void AddRegionPool(const Layer& layer, NetWriter& net, Entry op, const Regions& regions,
                   const Dims& dims) {
  const std::string pooled = net.StepOp(layer, op.Text("ROIs", regions.boxes), "Out", "pooled");
  Entry gather("gather");
  gather.Text("X", pooled).Text("Index", regions.places);
  net.AddOp(gather.Text("Out", net.Out(layer, 0, dims)));
}

void RequireScale(const Layer& layer, const char* param, float scale) {
  if (!(scale > 0 && scale <= std::numeric_limits<float>::max())) {
    layer.Fail({param, "spatial_scale"},
               fmt::format("spatial_scale must be positive, got {}", scale));
  }
}

void WriteRoiPooling(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.roi_pooling_param();
  net.RequireBottoms(layer, 2, 2);
  const Blob in = ImagesIn(layer, net);
  RequireScale(layer, "roi_pooling_param", p.spatial_scale());
  const int64_t h = p.pooled_h(), w = p.pooled_w();
  if (h < 1 || w < 1 || h > INT32_MAX || w > INT32_MAX)
    layer.Fail({"roi_pooling_param"}, "pooled_h and pooled_w must be positive");
  if (p.pad_ratio() != 0)
    layer.Fail({"roi_pooling_param", "pad_ratio"}, "enlarged boxes are not converted");
  Entry op("roi_pool");
  op.Text("X", in.var).Float("spatial_scale", p.spatial_scale());
  op.Int("pooled_height", h).Int("pooled_width", w);
  AddRegionPool(layer, net, op, RegionsOf(layer, net, in), {-1, in.dims[1], h, w});
}

// Channel (c k + i) k + j of the bottom is pooled into element (i, j) of channel c.
void WritePsRoiPooling(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.psroi_pooling_param();
  net.RequireBottoms(layer, 2, 2);
  const Blob in = ImagesIn(layer, net);
  RequireScale(layer, "psroi_pooling_param", p.spatial_scale());
  const int64_t k = p.group_size(), outputs = p.output_dim();
  if (k < 1 || outputs < 1 || NumelOf({outputs, k, k}) != in.dims[1]) {
    layer.Fail(
        {"psroi_pooling_param"},
        fmt::format("its bottom must have output_dim group_size^2 = {} {}^2 channels, got {}",
                    outputs, k, in.dims[1]));
  }
  Entry op("psroi_pool");
  op.Text("X", in.var).Float("spatial_scale", p.spatial_scale()).Int("output_channels", outputs);
  op.Int("pooled_height", k).Int("pooled_width", k);
  AddRegionPool(layer, net, op, RegionsOf(layer, net, in), {-1, outputs, k, k});
}

// R-FCN: of each image, the regions with the largest losses keep their labels and weights.
void WriteBoxAnnotator(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.box_annotator_ohem_param();
  net.RequireBottoms(layer, 4, 4);
  const Blob rois = net.KnownIn(layer), loss = net.KnownIn(layer, 1);
  const Blob labels = net.In(layer, 2), weights = net.KnownIn(layer, 3);
  if (layer.def.top_size() != 2) layer.Fail({"top"}, "it takes two tops");
  if (NumelOf(rois.dims, 1) != 5 || NumelOf(loss.dims, 1) != 1 || NumelOf(labels.dims, 1) != 1 ||
      weights.dims.size() < 2 || NumelOf(weights.dims, 2) != 1) {
    layer.Fail({"bottom"}, "its bottoms must be regions, [R, 5], and have one place for each");
  }
  if (p.roi_per_img() < 1) layer.Fail({"box_annotator_ohem_param"}, "roi_per_img must be positive");
  const auto column = [&](const std::string& x, const char* name) {
    return Reshape(layer, net, x, {-1}, name);
  };
  const std::string rows = Reshape(layer, net, rois.var, {-1, 5}, "regions");
  const std::string image = column(Slice(layer, net, rows, 1, 0, 1, "image"), "images");
  Entry sort("argsort"), gather("gather"), most("reduce_max"), hot("one_hot_v2"), count("cumsum");
  sort.Text("X", column(loss.var, "losses")).Int("axis", 0).Bool("descending", true);
  const std::string order = net.StepOp(layer, sort, "Indices", "order");
  gather.Text("X", Cast(layer, net, image, "INT64", "ids")).Text("Index", order);
  const std::string sorted = net.StepOp(layer, gather, "Out", "sorted");
  most.Text("input", image);
  Entry next("scale");
  next.Text("input", net.Step(layer, most, "last")).Float("bias", 1);
  const std::string depth = Cast(layer, net, net.Step(layer, next, "number"), "INT32", "depth");
  hot.Text("X", sorted).Text("depth_tensor", depth);
  const std::string belongs = net.StepOp(layer, hot, "Out", "belongs");
  count.Text("X", belongs).Int("axis", 0).Bool("exclusive", true);
  const std::string before = net.StepOp(layer, count, "Out", "before");
  Entry rank("reduce_sum"), back("gather"), less("less_than");
  rank.Text("input", Times(layer, net, before, belongs, "own")).Field("dim", "[1]");
  back.Text("X", net.Step(layer, rank, "rank"))
      .Text("Index", SortedPlaces(layer, net, order, "at"));
  less.Text("X", net.StepOp(layer, back, "Out", "place"));
  less.Text("Y", Number(layer, net, static_cast<double>(p.roi_per_img()), "FP32", "most"));
  const std::string kept = Cast(layer, net, net.StepOp(layer, less, "Out", "hard"), "FP32", "kept");
  // (label - ignored) kept + ignored
  const auto ignored = static_cast<float>(p.ignore_label());
  Entry shift("scale"), result("scale");
  shift.Text("input", column(Cast(layer, net, labels.var, "FP32", "label"), "labels"));
  const std::string shifted = net.Step(layer, shift.Float("bias", -ignored), "shifted");
  result.Text("input", Times(layer, net, shifted, kept, "kept_labels")).Float("bias", ignored);
  const std::string flat = net.Step(layer, result, "hard_labels");
  Entry as_map("reshape"), scaled("elementwise_mul");
  as_map.Text("input", flat).Field("shape", "[-1, 1, 1, 1]");
  net.Add(as_map.Text("output", net.Out(layer, 0, {-1, 1, 1, 1})));
  Dims ones(weights.dims.size(), 1);
  ones[0] = -1;
  scaled.Text("x", weights.var).Text("y", Reshape(layer, net, kept, ones, "kept_rows"));
  net.Add(scaled.Text("output", net.Out(layer, 1, weights.dims)));
}

// --- SSD ---

std::vector<float> VariancesOf(const Layer& layer) {
  const auto& given = layer.def.prior_box_param().variance();
  if (given.size() > 1 && given.size() != 4)
    layer.Fail({"prior_box_param", "variance"},
               fmt::format("one variance or four, got {}", given.size()));
  std::vector<float> variances(given.begin(), given.end());
  if (variances.size() < 4) variances.assign(4, given.empty() ? 0.1f : given.Get(0));
  return variances;
}

template <class List>
std::string FloatsText(const List& values) {
  std::vector<std::string> texts;
  for (const float value : values) texts.push_back(Number(value));
  return "[" + Join(texts, ", ") + "]";
}

// Caffe cuts sizes to whole pixels (prior_box_layer.cpp).
std::vector<float> WholeSizes(const Layer& layer, NetWriter& net, const char* field,
                              const google::protobuf::RepeatedField<float>& given) {
  std::vector<float> sizes;
  for (const float size : given) {
    const float whole = std::trunc(size);
    if (!(whole >= 1 && whole <= 1e9f)) {
      layer.Fail({"prior_box_param", field},
                 fmt::format("{} must be at least one pixel, got {}", field, size));
    }
    if (whole != size) {
      net.net().notes.push_back(fmt::format("{}: {} {} counts as {}, as in Caffe",
                                            layer.Where({"prior_box_param", field}), field, size,
                                            whole));
    }
    sizes.push_back(whole);
  }
  return sizes;
}

// The image whose size scales the priors: the second bottom, or one of a given size.
std::string PriorImage(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.prior_box_param();
  const bool two = p.has_img_h() || p.has_img_w();
  if (two && p.has_img_size()) layer.Fail({"prior_box_param"}, "img_size excludes img_h and img_w");
  if (!two && !p.has_img_size()) return net.In(layer, 1).var;
  const int64_t h = two ? p.img_h() : p.img_size(), w = two ? p.img_w() : p.img_size();
  if (h < 1 || w < 1 || h > 1 << 15 || w > 1 << 15)
    layer.Fail({"prior_box_param"}, "the image's size must lie in [1, 32768]");
  Entry image("fill_constant");
  image.Field("shape", ListText({1, 1, h, w})).Int("value", 0);
  return net.Step(layer, image, "image");
}

// The number of boxes of a cell: for each min size, one of each different ratio, and one more with
// a max size.
int64_t PriorsOfCell(const PriorBoxParameter& p) {
  std::vector<float> ratios = {1};
  for (const float ratio : p.aspect_ratio()) {
    const bool there = std::any_of(ratios.begin(), ratios.end(),
                                   [&](float other) { return std::abs(ratio - other) < 1e-6f; });
    if (there) continue;
    ratios.push_back(ratio);
    if (p.flip()) ratios.push_back(1 / ratio);
  }
  return static_cast<int64_t>(ratios.size()) * p.min_size_size() + p.max_size_size();
}

// [1, 2, 4 priors]: corners and variances. The op has them as [H, W, boxes of a cell, 4] each.
void WritePriorBox(const Layer& layer, NetWriter& net) {
  const PriorBoxParameter& p = layer.def.prior_box_param();
  net.RequireBottoms(layer, 1, 2);
  const Blob in = ImagesIn(layer, net);
  if (p.min_size_size() == 0) layer.Fail({"prior_box_param"}, "it needs a min_size");
  if (p.max_size_size() > 0 && p.max_size_size() != p.min_size_size()) {
    layer.Fail({"prior_box_param", "max_size"},
               fmt::format("{} max sizes for {} min sizes", p.max_size_size(), p.min_size_size()));
  }
  if (p.aspect_ratio_size() > 1024) layer.Fail({"prior_box_param"}, "more than 1024 ratios");
  for (const float ratio : p.aspect_ratio())
    if (!(ratio > 0 && ratio < 1e9f))
      layer.Fail({"prior_box_param", "aspect_ratio"}, "an aspect_ratio must be positive");
  if (p.has_step() && (p.has_step_h() || p.has_step_w()))
    layer.Fail({"prior_box_param", "step"}, "step excludes step_h and step_w");
  Entry op("prior_box");
  op.Text("Input", in.var).Text("Image", PriorImage(layer, net));
  op.Field("min_sizes", FloatsText(WholeSizes(layer, net, "min_size", p.min_size())));
  if (p.max_size_size() > 0)
    op.Field("max_sizes", FloatsText(WholeSizes(layer, net, "max_size", p.max_size())));
  op.Field("aspect_ratios", p.aspect_ratio_size() > 0 ? FloatsText(p.aspect_ratio()) : "[1]");
  op.Bool("flip", p.flip());
  op.Field("variances", FloatsText(VariancesOf(layer))).Bool("clip", p.clip());
  const float h = p.has_step() ? p.step() : p.step_h(), w = p.has_step() ? p.step() : p.step_w();
  if (h != 0 && w != 0) op.Float("step_h", h).Float("step_w", w);
  op.Float("offset", p.offset()).Bool("min_max_aspect_ratios_order", true);
  const std::string boxes = net.Temp(layer, "boxes"), variances = net.Temp(layer, "variances");
  net.AddOp(op.Text("Boxes", boxes).Text("Variances", variances));
  const int64_t numbers = NumelOf({in.dims[2], in.dims[3], PriorsOfCell(p), 4});
  Entry both("concat");
  both.Texts("input", {Reshape(layer, net, boxes, {1, 1, -1}, "corners"),
                       Reshape(layer, net, variances, {1, 1, -1}, "factors")});
  net.AddResult(layer, both.Int("axis", 1), {1, 2, numbers});
}

// The decoded boxes [N, P, 4].
std::string DecodedBoxes(const Layer& layer, NetWriter& net, const std::string& deltas,
                         const std::string& priors, const std::string& variances) {
  const auto& p = layer.def.detection_output_param();
  const bool plain = p.variance_encoded_in_target();
  if (p.code_type() == PriorBoxParameter::CENTER_SIZE) {
    Entry op("box_coder");
    op.Text("PriorBox", priors).Text("TargetBox", deltas);
    if (!plain) op.Text("PriorBoxVar", variances);
    op.Text("code_type", "decode_center_size");
    return net.StepOp(layer, op, "OutputBox", "decoded");
  }
  if (p.code_type() == PriorBoxParameter::CORNER_SIZE)
    layer.Fail({"detection_output_param", "code_type"}, "CORNER_SIZE is not converted");
  std::string change = deltas;
  if (!plain) {
    change =
        net.Step(layer, Entry("elementwise_mul").Text("x", deltas).Text("y", variances), "change");
  }
  return net.Step(layer, Entry("elementwise_add").Text("x", change).Text("y", priors), "decoded");
}

// Rows image, class, score, corners: [1, 1, detections, 7]. The op's index is image P + prior.
void AddDetections(const Layer& layer, NetWriter& net, Entry op, int64_t priors) {
  const std::string rows = net.Temp(layer, "rows"), index = net.Temp(layer, "index");
  net.AddOp(op.Text("Out", rows).Text("Index", index));
  Entry image("elementwise_floordiv");
  image.Text("X", index)
      .Text("Y", Number(layer, net, static_cast<double>(priors), "INT32", "priors_of_image"));
  const std::string number =
      Cast(layer, net, net.StepOp(layer, image, "Out", "image"), "FP32", "image_number");
  Entry all("concat"), shaped("unsqueeze2");
  shaped.Text("X",
              net.Step(layer, all.Texts("input", {number, rows}).Int("axis", 1), "detections"));
  shaped.Field("axes", "[0, 1]");
  net.AddOp(shaped.Text("Out", net.Out(layer, 0, {1, 1, -1, 7})));
}

void WriteDetectionOutput(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.detection_output_param();
  net.RequireBottoms(layer, 3, 3);
  const Blob deltas = net.KnownIn(layer), scores = net.KnownIn(layer, 1),
             priors = net.KnownIn(layer, 2);
  const int64_t classes = p.num_classes();
  const int64_t count = priors.dims.size() == 3 ? priors.dims[2] / 4 : 0;
  if (!p.share_location())
    layer.Fail({"detection_output_param", "share_location"},
               "boxes of each class are not converted");
  if (classes < 1 || count < 1 || NumelOf(deltas.dims, 1) != 4 * count ||
      NumelOf(scores.dims, 1) != NumelOf({classes, count}) || classes * count > INT32_MAX) {
    layer.Fail({"bottom"},
               fmt::format("deltas {}, scores {} and priors {} do not fit {} classes",
                           ToText(deltas.dims), ToText(scores.dims), ToText(priors.dims), classes));
  }
  const auto part = [&](int64_t begin, const char* name) {
    return Reshape(layer, net, Slice(layer, net, priors.var, 1, begin, begin + 1, "prior_part"),
                   {count, 4}, name);
  };
  const std::string corners = part(0, "priors"), variances = part(1, "variances");
  const std::string boxes = DecodedBoxes(
      layer, net, Reshape(layer, net, deltas.var, {-1, count, 4}, "deltas"), corners, variances);
  Entry by_class("transpose"), op("multiclass_nms2");
  by_class.Text("X", Reshape(layer, net, scores.var, {-1, count, classes}, "scores"));
  op.Text("BBoxes", boxes)
      .Text("Scores", net.StepOp(layer, by_class.Field("axis", "[0, 2, 1]"), "Out", "by_class"));
  op.Int("background_label", p.background_label_id());
  op.Float("score_threshold", p.has_confidence_threshold() ? p.confidence_threshold()
                                                           : std::numeric_limits<float>::lowest());
  op.Int("nms_top_k", p.nms_param().has_top_k() ? p.nms_param().top_k() : -1);
  op.Int("keep_top_k", p.keep_top_k()).Float("nms_threshold", p.nms_param().nms_threshold());
  if (p.nms_param().eta() != 1) op.Float("nms_eta", p.nms_param().eta());
  AddDetections(layer, net, op, count);
}

void SkipEvaluation(const Layer& layer, NetWriter& net) {
  net.net().notes.push_back(layer.where +
                            ": DetectionEvaluate is left out: it compares results with the data");
}

}  // namespace

LayerTable DetectionLayers() {
  return {
      {"BoxAnnotatorOHEM", WriteBoxAnnotator,
       "composed of ops: of each image, the roi_per_img regions with the largest losses"},
      {"DetectionEvaluate", SkipEvaluation, "nothing: it evaluates results, op `detection_map`"},
      {"DetectionOutput", WriteDetectionOutput,
       "ops `box_coder` and `multiclass_nms2`; no detections are [1, 1, 0, 7], where Caffe has "
       "a row of -1 for each image. CORNER_SIZE and boxes of each class are refused"},
      {"PSROIPooling", WritePsRoiPooling, "op `psroi_pool`"},
      {"PriorBox", WritePriorBox, "op `prior_box`; sizes are cut to whole pixels, as in Caffe"},
      {"ROIPooling", WriteRoiPooling, "op `roi_pool`; the regions may be in any order"}};
}

}  // namespace coracle::caffe
