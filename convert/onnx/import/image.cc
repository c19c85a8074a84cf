// Images: rearranging, cropping, padding, assembling from patches; deformable convolutions.

#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/convert/onnx/import/windows.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace coracle::onnx {
namespace {

using Ints = std::vector<int64_t>;

Variable GatherOf(NodeContext& node, const Variable& x, int axis, const Ints& index) {
  return node.Make("gather", {{"X", {x.name()}}, {"Index", {node.ConstantVar(index).name()}}},
                   {{"axis", axis}});
}

int64_t BlockOf(NodeContext& node) {
  const int64_t block = node.Int("blocksize");
  node.Require(block >= 1 && block <= 32768, fmt::format("a blocksize of {}", block));
  node.Require(node.rank(0) == 4, "the input must have rank 4");
  return block;
}

// In pixel_shuffle the position within a block is the minor index of a channel, as in mode CRD; in
// DCR it is the major one.
void ImportDepthToSpace(NodeContext& node) {
  const bool depth_first = node.OneOf("mode", "DCR", {"DCR", "CRD"}) == "DCR";
  const int64_t block = BlockOf(node), channels = node.shape(0)[1], area = block * block;
  node.Require(channels < 0 || channels % area == 0, "the blocks must divide the channels");
  Variable x = node.In(0);
  if (depth_first && channels < 0 && area > 1) {
    const Variable each = node.ScalarVar(DType::kInt64, static_cast<double>(area));
    const auto divided = [&](const Variable& number) {
      return node.Binary("elementwise_floordiv", number, each);
    };
    const Variable count = DimOf(node, x, 1), i = Counted(node, count);
    const Variable from = node.Binary("elementwise_mod", i, each) * divided(count) + divided(i);
    x = node.Make("gather", {{"X", {x.name()}}, {"Index", {from.name()}}}, {{"axis", 1}});
  } else if (depth_first && channels > area && area > 1) {
    RequireSmallConstant(node, {channels}, "channels");
    Ints from;
    for (int64_t i = 0; i < channels; ++i) from.push_back(i % area * (channels / area) + i / area);
    x = GatherOf(node, x, 1, from);
  }
  node.Set(0, node.Unary("pixel_shuffle", x,
                         {{"upscale_factor", ToInt32(block, "attribute blocksize")}}));
}

void ImportSpaceToDepth(NodeContext& node) {
  const int64_t block = BlockOf(node);
  const Shape in = node.shape(0);
  const Variable x = node.In(0);
  Dims parts, out;
  parts.Add(x, 0, 2);
  out.Add(x, 0);
  if (in[1] >= 0)
    out.Add(in[1] * block * block);
  else
    out.AddNumber(DimOf(node, x, 1) * static_cast<double>(block * block));
  for (int i = 2; i < 4; ++i) {
    node.Require(in[i] < 0 || in[i] % block == 0, "the blocks must divide height and width");
    if (in[i] >= 0) {
      parts.Add(in[i] / block).Add(block);
      out.Add(in[i] / block);
    } else {
      const Variable blocks =
          node.Binary("elementwise_floordiv", DimOf(node, x, i),
                      node.ScalarVar(DType::kInt64, static_cast<double>(block)));
      parts.AddNumber(blocks).Add(block);
      out.AddNumber(blocks);
    }
  }
  const Variable split = Reshaped(node, x, parts);
  node.Set(0, Reshaped(node, node.Transpose(split, {0, 3, 5, 1, 2, 4}), out));
}

// If a difference is odd, the larger part is at the end.
void ImportCenterCropPad(NodeContext& node) {
  const int rank = node.rank(0);
  Ints axes(static_cast<size_t>(rank));
  std::iota(axes.begin(), axes.end(), 0);
  axes = node.Ints("axes", axes);
  const Ints wanted = node.KnownInts(1, "shape");
  node.Require(wanted.size() == axes.size(),
               fmt::format("shape must have {} numbers, got {}", axes.size(), wanted.size()));
  const DType own = node.dtype(0);
  Variable x = node.In(0);
  Ints before(static_cast<size_t>(rank), 0), after = before;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int32_t axis = node.Axis(axes[i], rank);
    const int64_t in = x.shape()[axis], out = wanted[i];
    if (in < 0) node.RefuseUnknown(fmt::format("the length of axis {}", axis), "what is cut");
    node.Require(out >= 0, "a shape must not be negative");
    const auto a = static_cast<size_t>(axis);
    if (out < in) x = SliceOf(node, x, axis, (in - out) / 2, (in - out) / 2 + out);
    before[a] = out > in ? (out - in) / 2 : 0;
    after[a] = out > in ? out - in - before[a] : 0;
  }
  if (*std::max_element(after.begin(), after.end()) > 0) {
    RequireSmall(node, before, "a result");
    RequireSmall(node, after, "a result");
    x = node.Cast(x, own == DType::kBool ? DType::kInt32 : node.ComputeDType("pad", own));
    x = node.Unary("pad", x, {{"paddings", Interleaved(before, after)}});
  }
  node.Set(0, node.Cast(x, own));
}

// --- Col2Im ---

Ints PerDim(NodeContext& node, const char* name, size_t count, int64_t otherwise) {
  const Ints values = node.Ints(name, Ints(count, otherwise));
  node.Require(values.size() == count, fmt::format("attribute {} must have {} numbers, got {}",
                                                   name, count, values.size()));
  for (int64_t value : values) {
    node.Require(value >= otherwise && value <= (1 << 30),
                 fmt::format("attribute {} must be at least {}, got {}", name, otherwise, value));
  }
  return values;
}

// For each element of a block and each block, its position in an image with an additional element
// for the padding: [elements, blocks].
Ints PlacesOfPatches(const Ints& image, const Windows& w, int64_t elements, int64_t blocks) {
  Ints places;
  const int64_t size = std::accumulate(image.begin(), image.end(), int64_t{1}, std::multiplies<>());
  for (int64_t element = 0; element < elements; ++element) {
    for (int64_t block = 0; block < blocks; ++block) {
      int64_t e = element, b = block, place = 0, stride = 1;
      for (size_t d = image.size(); d-- > 0;) {
        const int64_t count = w.Count(d, image[d]);
        const int64_t at =
            b % count * w.strides[d] + e % w.kernel[d] * w.dilations[d] - w.before[d];
        e /= w.kernel[d];
        b /= count;
        if (at < 0 || at >= image[d]) place = size;
        if (place < size) place += at * stride;
        stride *= image[d];
      }
      places.push_back(std::min(place, size));
    }
  }
  return places;
}

// Overlapping elements of the patches add up; for bools, the sum means whether one of them is true.
void ImportCol2Im(NodeContext& node) {
  const Ints image = node.KnownInts(1, "image_shape"), block = node.KnownInts(2, "block_shape");
  const size_t rank = image.size();
  node.Require(rank >= 1 && block.size() == rank && node.rank(0) == 3,
               "the input must have rank 3, image_shape and block_shape one length");
  Windows w;
  w.kernel = block;
  w.strides = PerDim(node, "strides", rank, 1);
  w.dilations = PerDim(node, "dilations", rank, 1);
  const Ints pads = PerDim(node, "pads", 2 * rank, 0);
  w.before.assign(pads.begin(), pads.begin() + static_cast<ptrdiff_t>(rank));
  w.after.assign(pads.begin() + static_cast<ptrdiff_t>(rank), pads.end());
  const Shape in = node.shape(0);
  if (!in.IsKnown()) node.RefuseUnknown("the shape of the input", "the places of its elements");
  int64_t elements = 1, blocks = 1;
  for (size_t d = 0; d < rank; ++d) {
    node.Require(image[d] >= 1 && block[d] >= 1, "image_shape and block_shape must be positive");
    RequireSmallConstant(node, {elements, block[d]}, "a block");
    elements *= block[d];
    RequireSmallConstant(node, {blocks, w.Count(d, image[d])}, "an image");
    blocks *= w.Count(d, image[d]);
  }
  node.Require(in[1] % elements == 0 && in[2] == blocks,
               fmt::format("an input {} for blocks of {} elements, {} of them", in.ToString(),
                           elements, blocks));
  RequireSmallConstant(node, image, "an image");
  RequireSmallConstant(node, {elements, blocks}, "places of patches");
  const int64_t channels = in[1] / elements;
  const int64_t size = std::accumulate(image.begin(), image.end(), int64_t{1}, std::multiplies<>());
  const DType own = node.dtype(0);
  if (IsComplex(own)) node.Refuse("sums of complex numbers");
  const Variable x = node.Cast(node.In(0), node.ComputeDType("scatter", own));
  const Variable rows =
      node.Transpose(node.Reshape(x, {in[0] * channels, elements * blocks}), {1, 0});
  const Variable places = node.ConstantVar(PlacesOfPatches(image, w, elements, blocks));
  const Variable zeros = FillConstant(node.writer(), rows.dtype(), 0, {size + 1, in[0] * channels});
  const Variable sums = node.Make(
      "scatter", {{"X", {zeros.name()}}, {"Ids", {places.name()}}, {"Updates", {rows.name()}}},
      {{"overwrite", false}});
  Ints out = {in[0], channels};
  out.insert(out.end(), image.begin(), image.end());
  const Variable y = node.Reshape(node.Transpose(SliceOf(node, sums, 0, 0, size), {1, 0}), out);
  node.Set(0, node.Cast(y, own));
}

// --- DeformConv ---

// Offsets and masks are the same as in Paddle. Paddings that differ before and after become zeros
// around the input, which outside positions read anyway.
void ImportDeformConv(NodeContext& node) {
  Variable x = node.In(0);
  const Variable filter = node.In(1), offset = node.In(2);
  if (node.rank(0) != 4) node.Refuse("inputs that are not images of two spatial dimensions");
  node.Require(filter.shape().rank() == 4, "the filters must have rank 4");
  Windows w = WindowsOf(node, node.shape(0), {filter.shape()[2], filter.shape()[3]});
  if (w.before != w.after) {
    Ints before = {0, 0}, after = {0, 0};
    before.insert(before.end(), w.before.begin(), w.before.end());
    after.insert(after.end(), w.after.begin(), w.after.end());
    x = node.Unary("pad", x, {{"paddings", Interleaved(before, after)}});
    w.before.assign(2, 0);
  }
  SlotList inputs = {
      {"Input", {x.name()}}, {"Offset", {offset.name()}}, {"Filter", {filter.name()}}};
  const bool masked = node.HasInput(4);
  if (masked) inputs.push_back({"Mask", {node.In(4).name()}});
  Variable out = node.Make(masked ? "deformable_conv" : "deformable_conv_v1", std::move(inputs),
                           {{"strides", ToInt32(w.strides, "a window")},
                            {"paddings", ToInt32(w.before, "a window")},
                            {"dilations", ToInt32(w.dilations, "a window")},
                            {"groups", node.Int32("group", 1)},
                            {"deformable_groups", node.Int32("offset_group", 1)}},
                           "Output");
  if (node.HasInput(3)) out = out + node.Reshape(node.In(3), {-1, 1, 1});
  node.Set(0, out);
}

// Of Core ML's converters: x * scale, plus a number for each channel.
void ImportImageScaler(NodeContext& node) {
  const std::vector<float> bias = node.Floats("bias", {});
  const auto channels = static_cast<int64_t>(bias.size());
  const int64_t have = node.shape(0)[1];
  node.Require(have < 0 || have == channels || channels == 0,
               fmt::format("attribute bias must have {} numbers, got {}", have, channels));
  Variable x = node.In(0);
  if (have < 0 && channels > 0) {  // a bias for each channel must not broadcast a run's only one
    Dims dims;
    dims.Add(x, 0).Add(channels).Add(x, 2, 4);
    x = ReshapedBy(node, x, dims.ToVector(node), dims.shape());
  }
  const Variable scaled = x * static_cast<double>(node.Float("scale", 1.0f));
  if (channels == 0) return node.Set(0, scaled);
  const Variable each = node.ConstantVar(Tensor::Of<float>({channels, 1, 1}, bias));
  node.Set(0, scaled + node.Cast(each, x.dtype()));
}

}  // namespace

void AddImageImporters(NodeImporters& importers) {
  constexpr auto kMoves = Unsigned::kMoves;
  for (const NodeImporter& row : std::initializer_list<NodeImporter>{
           {.op_type = "DepthToSpace",
         .since = 1,
         .takes = "T",
         .import = ImportDepthToSpace,
         .maps_to = "pixel_shuffle; gather",
         .unsigneds = kMoves},
           {.op_type = "SpaceToDepth",
           .since = 1,
           .takes = "T",
           .import = ImportSpaceToDepth,
           .maps_to = "reshape2, transpose2",
           .unsigneds = kMoves},
           {.op_type = "CenterCropPad",
           .since = 18,
           .takes = "T i",
           .import = ImportCenterCropPad,
           .maps_to = "slice, pad",
           .unsigneds = kMoves},
           {.op_type = "Col2Im",
           .since = 18,
           .takes = "T i1 i1",
           .import = ImportCol2Im,
           .maps_to = "scatter",
           .composed = true},
           {.op_type = "DeformConv",
           .since = 19,
           .takes = "f f f f1? f?",
           .import = ImportDeformConv,
           .maps_to = "deformable_conv or deformable_conv_v1; elementwise_add",
           .composed = true},
           {.op_type = "ImageScaler",
           .since = 1,
           .takes = "f4",
           .import = ImportImageScaler,
           .maps_to = "scale, elementwise_add",
           .composed = true},
       })
    importers.Add(row);
}

}  // namespace coracle::onnx
