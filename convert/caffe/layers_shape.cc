// Layers that move elements: shapes, parts, reductions.

#include <coracle/convert/caffe/net_writer.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <climits>

namespace coracle::caffe {
namespace {

using proto::caffe::ReductionParameter;

void WriteConcat(const Layer& layer, NetWriter& net) {
  net.RequireBottoms(layer, 1, INT_MAX);
  Dims dims = net.In(layer).dims;
  const int64_t axis = AxisOf(layer, layer.def.concat_param().axis(), dims.size());
  const auto at = static_cast<size_t>(axis);
  std::vector<std::string> inputs = {net.In(layer).var};
  for (int i = 1; i < layer.def.bottom_size(); ++i) {
    const Blob& in = net.In(layer, i);
    Dims same = in.dims;
    if (same.size() == dims.size()) same[at] = dims[at];
    if (same != dims) {
      layer.Fail({"bottom"}, fmt::format("bottoms of the dims {} and {} do not fit along axis {}",
                                         ToText(dims), ToText(in.dims), axis));
    }
    dims[at] = dims[at] < 0 || in.dims[at] < 0 ? -1 : dims[at] + in.dims[at];
    inputs.push_back(in.var);
  }
  Entry entry("concat");
  entry.Texts("input", inputs);
  if (axis != 0) entry.Int("axis", axis);
  net.AddResult(layer, entry, dims);
}

void WriteSlice(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.slice_param();
  net.RequireBottoms(layer, 1, 1);
  const Blob in = net.In(layer);
  const int64_t axis = AxisOf(layer, p.axis(), in.dims.size());
  const int64_t size = in.dims[static_cast<size_t>(axis)];
  const int tops = layer.def.top_size();
  if (size < 0) layer.Fail(fmt::format("the dim of axis {} must be known", axis));
  if (tops < 1) layer.Fail({"top"}, "it needs a top");
  Dims sizes;
  if (p.slice_point_size() == 0) {
    if (size % tops != 0) layer.Fail(fmt::format("{} tops do not divide the dim {}", tops, size));
    sizes.assign(static_cast<size_t>(tops), size / tops);
  } else {
    if (p.slice_point_size() != tops - 1) {
      layer.Fail({"slice_param", "slice_point"},
                 fmt::format("{} slice points for {} tops", p.slice_point_size(), tops));
    }
    int64_t before = 0;
    for (int i = 0; i <= p.slice_point_size(); ++i) {
      const int64_t point = i < p.slice_point_size() ? int64_t{p.slice_point(i)} : size;
      if (point <= before) {
        layer.Fail({"slice_param", "slice_point"},
                   fmt::format("slice points must ascend below {}, got {}", size, point));
      }
      sizes.push_back(point - before);
      before = point;
    }
  }
  std::vector<std::string> outputs;
  for (int i = 0; i < tops; ++i) {
    Dims dims = in.dims;
    dims[static_cast<size_t>(axis)] = sizes[static_cast<size_t>(i)];
    outputs.push_back(net.Out(layer, i, dims));
  }
  Entry entry("split");
  entry.Text("input", in.var);
  if (p.slice_point_size() == 0)
    entry.Int("num", tops);
  else
    entry.Field("sections", ListText(sizes));
  net.Add(entry.Int("axis", axis).Texts("output", outputs));
}

// Copies with the names of the tops.
void WriteSplit(const Layer& layer, NetWriter& net) {
  net.RequireBottoms(layer, 1, 1);
  const Blob in = net.In(layer);
  for (int i = 0; i < layer.def.top_size(); ++i) {
    const std::string out = net.Out(layer, i, in.dims, in.is_label);
    net.Add(Entry("assign").Text("input", in.var).Text("output", out));
  }
}

// Reshapes to dims of which at most the first and one other may be unknown. `keeps_batch`: the
// first is the bottom's.
void AddReshape(const Layer& layer, NetWriter& net, const Blob& in, const Dims& dims,
                bool keeps_batch) {
  if (dims.size() > 8) layer.Fail("a blob of more than 8 dims");
  Dims shape = dims;
  size_t open = 0;
  if (keeps_batch) shape[0] = 0;
  for (const int64_t dim : shape) open += dim < 0;
  if (open > 1) layer.Fail(fmt::format("two dims of its result are not known: {}", ToText(dims)));
  Entry entry("reshape");
  net.AddResult(layer, entry.Text("input", in.var).Field("shape", ListText(shape)), dims);
}

void WriteFlatten(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.flatten_param();
  net.RequireBottoms(layer, 1, 1);
  const Blob in = net.In(layer);
  const int64_t axis = AxisOf(layer, p.axis(), in.dims.size());
  const int64_t end = AxisOf(layer, p.end_axis(), in.dims.size());
  if (end < axis)
    layer.Fail({"flatten_param"}, fmt::format("end_axis {} lies before axis {}", end, axis));
  Dims dims(in.dims.begin(), in.dims.begin() + axis);
  dims.push_back(NumelOf(in.dims, static_cast<size_t>(axis), static_cast<size_t>(end) + 1));
  dims.insert(dims.end(), in.dims.begin() + end + 1, in.dims.end());
  Entry entry("flatten");
  entry.Text("input", in.var);
  if (axis != 1) entry.Int("start_axis", axis);
  if (static_cast<size_t>(end) + 1 != in.dims.size()) entry.Int("stop_axis", end);
  net.AddResult(layer, entry, dims);
}

void WriteReshape(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.reshape_param();
  net.RequireBottoms(layer, 1, 1);
  const Blob in = net.In(layer);
  const auto rank = static_cast<int64_t>(in.dims.size());
  const int64_t axis = p.axis() >= 0 ? p.axis() : rank + p.axis() + 1;
  const int64_t end = p.num_axes() == -1 ? rank : axis + p.num_axes();
  if (axis < 0 || axis > rank || p.num_axes() < -1 || end > rank) {
    layer.Fail({"reshape_param"}, fmt::format("axis {} and num_axes {} of a blob with {} dims",
                                              p.axis(), p.num_axes(), rank));
  }
  Dims dims(in.dims.begin(), in.dims.begin() + axis);
  int64_t inferred = -1;
  for (int i = 0; i < p.shape().dim_size(); ++i) {
    const int64_t dim = p.shape().dim(i);
    if (dim < -1 || (dim == 0 && axis + i >= rank))
      layer.Fail({"reshape_param", "shape"}, fmt::format("a dim of {}", dim));
    if (dim == -1 && inferred >= 0)
      layer.Fail({"reshape_param", "shape"}, "two dims of -1: one can be worked out");
    if (dim == -1) inferred = static_cast<int64_t>(dims.size());
    dims.push_back(dim == 0 ? in.dims[static_cast<size_t>(axis + i)] : dim);
  }
  dims.insert(dims.end(), in.dims.begin() + end, in.dims.end());
  if (dims.empty()) layer.Fail({"reshape_param"}, "a shape without dims");
  // An unknown batch is on both sides, or is inferred.
  const bool keeps_batch = rank > 0 && in.dims[0] < 0 && dims[0] < 0 && inferred != 0;
  if (inferred > 0 && keeps_batch) {
    Dims rest = dims;
    rest[static_cast<size_t>(inferred)] = 1;
    const int64_t all = NumelOf(in.dims, 1), known = NumelOf(rest, 1);
    if (all >= 0 && known > 0) {
      if (all % known != 0) {
        layer.Fail({"reshape_param", "shape"}, fmt::format("{} elements of a sample cannot become "
                                                           "{}",
                                                           all, ToText(dims)));
      }
      dims[static_cast<size_t>(inferred)] = all / known;
    }
  }
  AddReshape(layer, net, in, dims, keeps_batch);
}

void WriteCrop(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.crop_param();
  net.RequireBottoms(layer, 2, 2);
  const Blob in = net.In(layer), like = net.In(layer, 1);
  const int64_t axis = AxisOf(layer, p.axis(), in.dims.size());
  const auto cropped = static_cast<int>(in.dims.size()) - static_cast<int>(axis);
  if (like.dims.size() != in.dims.size())
    layer.Fail({"bottom"}, "its bottoms must have the same number of dims");
  if (p.offset_size() > 1 && p.offset_size() != cropped) {
    layer.Fail({"crop_param", "offset"},
               fmt::format("{} offsets for {} axes", p.offset_size(), cropped));
  }
  Dims axes, starts, ends, dims = in.dims;
  for (int64_t i = axis; i < static_cast<int64_t>(in.dims.size()); ++i) {
    const auto k = static_cast<size_t>(i);
    const int64_t start =
        p.offset_size() == 0 ? 0 : p.offset(p.offset_size() == 1 ? 0 : static_cast<int>(i - axis));
    if (like.dims[k] < 0 || in.dims[k] < 0) layer.Fail(fmt::format("the dim {} must be known", i));
    if (start + like.dims[k] > in.dims[k]) {
      layer.Fail({"crop_param"}, fmt::format("offset {} and size {} reach past the {} of axis {}",
                                             start, like.dims[k], in.dims[k], i));
    }
    axes.push_back(i);
    starts.push_back(start);
    ends.push_back(start + like.dims[k]);
    dims[k] = like.dims[k];
  }
  Entry op("slice");
  op.Text("Input", in.var).Field("axes", ListText(axes)).Field("starts", ListText(starts));
  net.AddOp(op.Field("ends", ListText(ends)).Text("Out", net.Out(layer, 0, dims)));
}

void WriteTile(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.tile_param();
  net.RequireBottoms(layer, 1, 1);
  const Blob in = net.In(layer);
  const int64_t axis = AxisOf(layer, p.axis(), in.dims.size());
  if (p.tiles() < 1) layer.Fail({"tile_param", "tiles"}, "tiles must be positive");
  Dims repeats(in.dims.size(), 1), dims = in.dims;
  repeats[static_cast<size_t>(axis)] = p.tiles();
  int64_t& dim = dims[static_cast<size_t>(axis)];
  if (dim >= 0) dim *= p.tiles();
  Entry entry("tile");
  net.AddResult(layer, entry.Text("input", in.var).Field("repeat_times", ListText(repeats)), dims);
}

// Reduces all axes from `axis` on: sum, sum of absolute values, sum of squares, or mean.
void WriteReduction(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.reduction_param();
  net.RequireBottoms(layer, 1, 1);
  const Blob in = net.In(layer);
  const int64_t axis = AxisOf(layer, p.axis(), in.dims.size());
  std::string x = in.var;
  if (p.operation() == ReductionParameter::ASUM)
    x = net.Step(layer, Entry("abs").Text("input", x), "abs");
  if (p.operation() == ReductionParameter::SUMSQ)
    x = net.Step(layer, Entry("square").Text("input", x), "square");
  Entry reduce(p.operation() == ReductionParameter::MEAN ? "reduce_mean" : "reduce_sum");
  Dims over;
  for (size_t i = static_cast<size_t>(axis); i < in.dims.size(); ++i)
    over.push_back(static_cast<int64_t>(i));
  reduce.Text("input", x).Field("dim", ListText(over));
  const Dims dims = axis == 0 ? Dims{1} : Dims(in.dims.begin(), in.dims.begin() + axis);
  if (p.coeff() == 1) {
    net.AddResult(layer, reduce, dims);
  } else {
    const std::string sum = net.Step(layer, reduce, "reduced");
    net.AddResult(layer, Entry("scale").Text("input", sum).Float("scale", p.coeff()), dims);
  }
}

// The largest values along an axis, and their indices from its end: among equal values, Caffe takes
// the last one first.
struct Largest {
  std::string values, from_end;
};
Largest FindLargest(const Layer& layer, NetWriter& net, const std::string& x, int64_t axis,
                    int64_t size) {
  const int64_t count = layer.def.argmax_param().top_k();
  if (count < 1 || count > size) {
    layer.Fail({"argmax_param", "top_k"},
               fmt::format("top_k must lie in [1, {}], got {}", size, count));
  }
  const std::string reversed = net.Temp(layer, "reversed");
  const Largest found{net.Temp(layer, "values"), net.Temp(layer, "indices")};
  Entry flip("flip"), top("top_k_v2");
  net.AddOp(flip.Text("X", x).Field("axis", ListText({axis})).Text("Out", reversed));
  top.Text("X", reversed).Int("k", count).Int("axis", axis);
  net.AddOp(top.Text("Out", found.values).Text("Indices", found.from_end));
  return found;
}
// The positions of the largest among `size` elements, as floats like in Caffe.
Entry PlacesOf(const Layer& layer, NetWriter& net, const Largest& found, int64_t size) {
  Entry cast("cast"), place("scale");
  const std::string number =
      net.Step(layer, cast.Text("input", found.from_end).Field("dtype", "FP32"), "from_end");
  place.Text("input", number).Float("scale", -1).Float("bias", static_cast<float>(size - 1));
  return place;
}

// argmax_layer.cpp: with axis, values or positions along it.
void WriteArgMaxOfAxis(const Layer& layer, NetWriter& net, const Blob& in) {
  const auto& p = layer.def.argmax_param();
  const int64_t axis = AxisOf(layer, p.axis(), in.dims.size());
  if (axis == 0) layer.Fail({"argmax_param", "axis"}, "an axis of 0 would search the batch");
  Dims dims = in.dims;
  int64_t& size = dims[static_cast<size_t>(axis)];
  const Largest found = FindLargest(layer, net, in.var, axis, size);
  Entry result("assign");
  if (p.out_max_val())
    result.Text("input", found.values);
  else
    result = PlacesOf(layer, net, found, size);
  size = p.top_k();
  net.AddResult(layer, result, dims);
}

// Without axis, over a whole sample: [N, 1, top_k], or [N, 2, top_k] of positions and values,
// followed by 1s up to the rank of the bottom.
void WriteArgMax(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.argmax_param();
  net.RequireBottoms(layer, 1, 1);
  const Blob in = net.KnownIn(layer);
  if (p.has_axis()) return WriteArgMaxOfAxis(layer, net, in);
  if (in.dims.size() < 2) layer.Fail("its bottom needs two dims");
  const int64_t size = NumelOf(in.dims, 1);
  const std::string flat = net.Step(layer, Entry("flatten").Text("input", in.var), "flat");
  const Largest found = FindLargest(layer, net, flat, 1, size);
  std::string all = net.Step(layer, PlacesOf(layer, net, found, size), "places");
  if (p.out_max_val()) {
    Entry joined("concat");
    all = net.Step(layer, joined.Texts("input", {all, found.values}).Int("axis", 1), "joined");
  }
  Dims dims(std::max<size_t>(3, in.dims.size()), 1), shape;
  dims[0] = in.dims[0];
  dims[1] = p.out_max_val() ? 2 : 1;
  dims[2] = p.top_k();
  shape = dims;
  shape[0] = -1;
  Entry result("reshape");
  net.AddResult(layer, result.Text("input", all).Field("shape", ListText(shape)), dims);
}

// Rows of the first bottom in the order of the indices in the second one.
void WriteBatchReindex(const Layer& layer, NetWriter& net) {
  net.RequireBottoms(layer, 2, 2);
  const Blob in = net.In(layer), index = net.In(layer, 1);
  Entry cast("cast");
  const std::string ids =
      net.Step(layer, cast.Text("input", index.var).Field("dtype", "INT64"), "index");
  Dims dims = in.dims;
  if (!dims.empty()) dims[0] = -1;
  Entry op("gather");
  op.Text("X", in.var).Text("Index", ids);
  net.AddOp(op.Text("Out", net.Out(layer, 0, dims)));
}

void WriteSpp(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.spp_param();
  net.RequireBottoms(layer, 1, 1);
  const Blob in = net.KnownIn(layer);
  if (in.dims.size() != 4) layer.Fail("its bottom must be images [N, C, H, W]");
  if (p.pool() != proto::caffe::SPPParameter::MAX)
    layer.Fail({"spp_param", "pool"}, "only MAX is converted: averages count padding in Caffe");
  if (p.pyramid_height() < 1 || p.pyramid_height() > 15)
    layer.Fail({"spp_param"}, "pyramid_height must lie in [1, 15]");
  int64_t bins = 0;
  for (uint32_t i = 0; i < p.pyramid_height(); ++i) {
    const int64_t n = int64_t{1} << i;
    for (const int64_t size : {in.dims[2], in.dims[3]}) {
      // A bin without elements is 0 here, but -FLT_MAX in Caffe.
      const int64_t kernel = (size + n - 1) / n, pad = (kernel * n - size + 1) / 2;
      if ((n - 1) * kernel - pad >= size) layer.Fail("its pyramid has bins without elements");
    }
    bins += n * n;
  }
  Entry op("spp");
  op.Text("X", in.var).Int("pyramid_height", p.pyramid_height()).Text("pooling_type", "max");
  net.AddOp(op.Text("Out", net.Out(layer, 0, {in.dims[0], in.dims[1] * bins})));
}

// (x - mean) / (sqrt(variance) + eps) of each channel of each image, or of each image.
void WriteMvn(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.mvn_param();
  net.RequireBottoms(layer, 1, 1);
  const Blob in = net.In(layer);
  if (in.dims.size() < 3) layer.Fail("its bottom needs three dims");
  Dims over;
  for (size_t i = p.across_channels() ? 1 : 2; i < in.dims.size(); ++i)
    over.push_back(static_cast<int64_t>(i));
  const auto mean_of = [&](const std::string& x, const char* name) {
    Entry mean("reduce_mean");
    mean.Text("input", x).Field("dim", ListText(over)).Bool("keep_dim", true);
    return net.Step(layer, mean, name);
  };
  const std::string mean = mean_of(in.var, "mean");
  const Entry difference = Entry("elementwise_sub").Text("x", in.var).Text("y", mean);
  if (!p.normalize_variance()) return net.AddResult(layer, difference, in.dims);
  const std::string centred = net.Step(layer, difference, "centred");
  const std::string square = net.Step(layer, Entry("square").Text("input", centred), "square");
  const std::string variance = mean_of(square, "variance");
  const std::string root = net.Step(layer, Entry("sqrt").Text("input", variance), "root");
  Entry scale("scale");
  const std::string deviation =
      net.Step(layer, scale.Text("input", root).Float("bias", p.eps()), "deviation");
  net.AddResult(layer, Entry("elementwise_div").Text("x", centred).Text("y", deviation), in.dims);
}

void WriteSilence(const Layer&, NetWriter&) {}

}  // namespace

LayerTable ShapeLayers() {
  return {{"ArgMax", WriteArgMax,
           "ops `flip` and `top_k_v2`: of equal values the last, as in Caffe; places are float32"},
          {"BatchReindex", WriteBatchReindex, "`gather`"},
          {"Concat", WriteConcat, "`concat`"},
          {"Crop", WriteCrop, "`slice`"},
          {"Flatten", WriteFlatten, "`flatten`"},
          {"MVN", WriteMvn, "composed of ops"},
          {"Reduction", WriteReduction, "composed of ops"},
          {"Reshape", WriteReshape, "`reshape`"},
          {"SPP", WriteSpp, "MAX: `pool2d` for each level, and `concat`"},
          {"Silence", WriteSilence, "nothing"},
          {"Slice", WriteSlice, "`split`"},
          {"Split", WriteSplit, "`assign` for each top"},
          {"Tile", WriteTile, "`tile`"}};
}

}  // namespace coracle::caffe
