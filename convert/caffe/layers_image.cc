// Layers of other versions of Caffe that move or resize the elements of images: SSD, SegNet,
// PSPNet, ShuffleNet, YOLO. Formulas: the layers' sources in those versions.

#include <coracle/convert/caffe/net_writer.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace coracle::caffe {
namespace {

using Two = std::array<int64_t, 2>;  // height and width

// The op, with its output as the top.
void AddOpResult(const Layer& layer, NetWriter& net, Entry op, const char* slot, const Dims& dims) {
  net.AddOp(op.Text(slot, net.Out(layer, 0, dims)));
}

// The axes in another order. Those that are not named follow.
void WritePermute(const Layer& layer, NetWriter& net) {
  net.RequireBottoms(layer, 1, 1);
  const Blob in = net.In(layer);
  Dims order;
  for (const uint32_t axis : layer.def.permute_param().order()) order.push_back(axis);
  for (size_t i = 0; i < order.size(); ++i) {
    const bool again = std::find(order.begin(), order.begin() + static_cast<ptrdiff_t>(i),
                                 order[i]) != order.begin() + static_cast<ptrdiff_t>(i);
    if (again || order[i] >= static_cast<int64_t>(in.dims.size())) {
      layer.Fail({"permute_param", "order"},
                 fmt::format("order must name different axes of {}, got {}", ToText(in.dims),
                             ListText(order)));
    }
  }
  for (size_t i = 0; i < in.dims.size(); ++i) {
    const auto axis = static_cast<int64_t>(i);
    if (std::find(order.begin(), order.end(), axis) == order.end()) order.push_back(axis);
  }
  Dims dims;
  for (const int64_t axis : order) dims.push_back(in.dims[static_cast<size_t>(axis)]);
  Entry op("transpose");
  AddOpResult(layer, net, op.Text("X", in.var).Field("axis", ListText(order)), "Out", dims);
}

void WriteShuffleChannel(const Layer& layer, NetWriter& net) {
  net.RequireBottoms(layer, 1, 1);
  const Blob in = ImagesIn(layer, net);
  const int64_t group = layer.def.shuffle_channel_param().group();
  if (group < 1 || in.dims[1] % group != 0) {
    layer.Fail({"shuffle_channel_param", "group"},
               fmt::format("group {} must divide the {} channels", group, in.dims[1]));
  }
  Entry op("shuffle_channel");
  AddOpResult(layer, net, op.Text("X", in.var).Int("group", group), "Out", in.dims);
}

// --- resizing ---

Entry Resized(const char* op, const std::string& in, const Two& size) {
  Entry entry(op);
  entry.Text("X", in).Int("out_h", size[0]).Int("out_w", size[1]);
  return entry;
}

// The size of an Interp's result along an axis of `in` elements (interp_layer.cpp).
int64_t InterpSize(const Layer& layer, int64_t in, int64_t size) {
  const auto& p = layer.def.interp_param();
  const auto factor = [&](const char* name, int64_t value) {
    if (value < 1) {
      layer.Fail({"interp_param", name}, fmt::format("{} must be positive, got {}", name, value));
    }
    return value;
  };
  if (!p.has_shrink_factor() && !p.has_zoom_factor()) {
    if (!p.has_height() || !p.has_width() || size < 1)
      layer.Fail({"interp_param"}, "it needs height and width, zoom_factor or shrink_factor");
    return size;
  }
  if (p.has_height() && p.has_width() && p.has_shrink_factor() && p.has_zoom_factor()) return size;
  int64_t out = in;
  if (p.has_shrink_factor()) out = (out - 1) / factor("shrink_factor", p.shrink_factor()) + 1;
  if (p.has_zoom_factor()) out += (out - 1) * (factor("zoom_factor", p.zoom_factor()) - 1);
  return out;
}

// Bilinear, with the corners of both images on each other. pad_beg and pad_end, which are not
// positive, cut the borders off before.
void WriteInterp(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.interp_param();
  net.RequireBottoms(layer, 1, 1);
  const Blob in = ImagesIn(layer, net);
  if (p.pad_beg() > 0 || p.pad_end() > 0)
    layer.Fail({"interp_param"}, "pad_beg and pad_end must not be positive: they cut borders off");
  const Two part = {in.dims[2] + p.pad_beg() + p.pad_end(), in.dims[3] + p.pad_beg() + p.pad_end()};
  if (part[0] < 1 || part[1] < 1) layer.Fail({"interp_param"}, "nothing is left between the pads");
  const Two out = {InterpSize(layer, part[0], p.height()), InterpSize(layer, part[1], p.width())};
  std::string x = in.var;
  if (p.pad_beg() < 0 || p.pad_end() < 0) {
    Entry cut("slice");
    cut.Text("Input", x).Field("axes", "[2, 3]");
    cut.Field("starts", ListText({-p.pad_beg(), -p.pad_beg()}));
    cut.Field("ends", ListText({in.dims[2] + p.pad_end(), in.dims[3] + p.pad_end()}));
    x = net.StepOp(layer, cut, "Out", "cut");
  }
  Entry op = Resized("bilinear_interp", x, out);
  AddOpResult(layer, net, op.Bool("align_corners", true), "Out",
              {in.dims[0], in.dims[1], out[0], out[1]});
}

// The size of SegNet's Upsample: given, or a multiple of the bottom's, less one with pad_out.
Two UpsampledSize(const Layer& layer, const Blob& in) {
  const auto& p = layer.def.upsample_param();
  if (p.has_upsample_h() && p.has_upsample_w()) return {p.upsample_h(), p.upsample_w()};
  if (p.has_upsample_h() || p.has_upsample_w() || p.has_scale_h() != p.has_scale_w())
    layer.Fail({"upsample_param"}, "height and width must both be given");
  const int64_t h = p.has_scale_h() ? p.scale_h() : p.scale();
  const int64_t w = p.has_scale_w() ? p.scale_w() : p.scale();
  if (h < 1 || w < 1 || (p.pad_out_h() && h != 2) || (p.pad_out_w() && w != 2)) {
    layer.Fail({"upsample_param"},
               fmt::format("scales of {} and {}: they must be positive, and 2 with pad_out", h, w));
  }
  return {in.dims[2] * h - (p.pad_out_h() ? 1 : 0), in.dims[3] * w - (p.pad_out_w() ? 1 : 0)};
}

// Two bottoms: elements at the positions of a mask, zeros between them. Op unpool computes the size
// (in - 1) stride + kernel.
void WriteUnpool(const Layer& layer, NetWriter& net, const Blob& in, const Two& size) {
  const Blob mask = net.In(layer, 1);
  if (mask.dims != in.dims) {
    layer.Fail({"bottom"}, fmt::format("a mask of the dims {} for elements of {}",
                                       ToText(mask.dims), ToText(in.dims)));
  }
  std::string indices = mask.var;
  if (!mask.is_index) {
    Entry cast("cast");
    indices = net.Step(layer, cast.Text("input", indices).Field("dtype", "INT32"), "indices");
  }
  const Two kernel = {size[0] - in.dims[2] + 1, size[1] - in.dims[3] + 1};
  if (kernel[0] < 1 || kernel[1] < 1)
    layer.Fail({"upsample_param"}, "its result is smaller than its bottom");
  Entry op("unpool");
  op.Text("X", in.var).Text("Indices", indices).Field("ksize", ListText({kernel[0], kernel[1]}));
  op.Text("unpooling_type", "max");
  AddOpResult(layer, net, op, "Out", {in.dims[0], in.dims[1], size[0], size[1]});
}

void WriteUpsample(const Layer& layer, NetWriter& net) {
  net.RequireBottoms(layer, 1, 2);
  const Blob in = ImagesIn(layer, net);
  const Two size = UpsampledSize(layer, in);
  if (layer.def.bottom_size() == 2) return WriteUnpool(layer, net, in, size);
  const auto& p = layer.def.upsample_param();
  if (size[0] % in.dims[2] != 0 || size[1] % in.dims[3] != 0 || p.pad_out_h() || p.pad_out_w())
    layer.Fail({"upsample_param"},
               "without a mask, its height and width must be multiples of its bottom's");
  Entry op = Resized("nearest_interp", in.var, size);
  AddOpResult(layer, net, op.Bool("align_corners", false), "Out",
              {in.dims[0], in.dims[1], size[0], size[1]});
}

// YOLO's reorganisation (reorg_layer.cpp, reorg_cpu): with s = stride and c = channels / s^2, the
// bottom's element (k, j, i) is element (c', j s + (k / c) / s, i s + (k / c) % s) of an image of c
// channels, whose memory is read as [channels s^2, H / s, W / s]. Op space_to_depth is that.
void WriteReorg(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.reorg_param();
  net.RequireBottoms(layer, 1, 1);
  const Blob in = ImagesIn(layer, net);
  const int64_t s = p.stride();
  if (p.reverse()) layer.Fail({"reorg_param", "reverse"}, "only reverse: false is converted");
  if (s < 1 || in.dims[1] % (s * s) != 0 || in.dims[2] % s != 0 || in.dims[3] % s != 0) {
    layer.Fail({"reorg_param", "stride"},
               fmt::format("a stride of {} must divide height and width, and its square the "
                           "channels of {}",
                           s, ToText(in.dims)));
  }
  Entry op("space_to_depth");
  AddOpResult(layer, net, op.Text("X", in.var).Int("blocksize", s), "Out",
              {in.dims[0], in.dims[1] * s * s, in.dims[2] / s, in.dims[3] / s});
}

// --- reversing ---

void AddFlip(const Layer& layer, NetWriter& net, const Blob& in, const Dims& axes) {
  Entry op("flip");
  AddOpResult(layer, net, op.Text("X", in.var).Field("axis", ListText(axes)), "Out", in.dims);
}

void WriteFlip(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.flip_param();
  net.RequireBottoms(layer, 1, 1);
  const Blob in = ImagesIn(layer, net);
  if (!p.has_flip_width() || !p.has_flip_height())
    layer.Fail({"flip_param"}, "forks differ in their defaults: give flip_width and flip_height");
  Dims axes;
  if (p.flip_height()) axes.push_back(2);
  if (p.flip_width()) axes.push_back(3);
  AddFlip(layer, net, in, axes);
}

void WriteReverse(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.reverse_param();
  net.RequireBottoms(layer, 1, 1);
  const Blob in = net.In(layer);
  if (p.axis_size() == 0) layer.Fail({"reverse_param"}, "it needs an axis");
  Dims axes;
  for (const int32_t axis : p.axis()) {
    const int64_t at = AxisOf(layer, axis, in.dims.size());
    if (std::find(axes.begin(), axes.end(), at) == axes.end()) axes.push_back(at);
  }
  AddFlip(layer, net, in, axes);
}

}  // namespace

LayerTable ImageLayers() {
  return {{"Flip", WriteFlip, "op `flip` of the axes that flip_height and flip_width name"},
          {"Interp", WriteInterp, "op `bilinear_interp` with align_corners; pads cut borders off"},
          {"Permute", WritePermute, "op `transpose`"},
          {"Reorg", WriteReorg, "op `space_to_depth`; reverse is refused"},
          {"Reverse", WriteReverse, "op `flip`"},
          {"ShuffleChannel", WriteShuffleChannel, "op `shuffle_channel`"},
          {"Upsample", WriteUpsample,
           "with the mask of a Pooling op `unpool` (SegNet), else op `nearest_interp` (YOLO)"}};
}

}  // namespace coracle::caffe
