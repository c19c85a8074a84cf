// prior_box, density_prior_box, anchor_generator: boxes of fixed sizes around the centre of each
// cell of a feature map.

#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/detection/boxes.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>
#include <cmath>

namespace coracle::prior_box_op {

using Floats = std::vector<float>;
using Ints = std::vector<int32_t>;

constexpr int64_t kMostBoxes = 65536;  // in one cell

bool AllPositive(const Floats& list) {
  return std::all_of(list.begin(), list.end(), [](float v) { return v > 0 && std::isfinite(v); });
}

// Boxes around (0, 0), the centres, and the scaling and clipping of corners.
struct PriorGrid {
  std::vector<Box> around;
  double first_x = 0, first_y = 0, step_x = 1, step_y = 1;
  double width = 1, height = 1;  // divisors of the corners
  // Clip to [0, 1]: x1, y1 from below and x2, y2 from above; or all corners.
  bool clip_outer = false, clip_all = false;

  Box At(int64_t row, int64_t column, const Box& box) const {
    const double x = first_x + static_cast<double>(column) * step_x;
    const double y = first_y + static_cast<double>(row) * step_y;
    Box b{(x + box.x1) / width, (y + box.y1) / height, (x + box.x2) / width, (y + box.y2) / height};
    if (clip_outer)
      b = {std::max(b.x1, 0.0), std::max(b.y1, 0.0), std::min(b.x2, 1.0), std::min(b.y2, 1.0)};
    return clip_all ? Clipped(b, 1, 1) : b;
  }
};

Box Centred(double w, double h) { return {-w / 2, -h / 2, w / 2, h / 2}; }

Kernel WriteGrid(const PrepareContext& ctx, const char* boxes_slot, PriorGrid grid) {
  const TensorArg boxes = ctx.Output(boxes_slot), variances = ctx.Output("Variances");
  const Shape& map = ctx.Input("Input").shape;
  const int64_t rows = map[2], columns = map[3];
  const Floats variance = ctx.Attr<Floats>("variances");
  return [=, grid = std::move(grid)](Workspace& ws) {
    const RealsOut to(ws, boxes), v(ws, variances);
    const auto row_boxes = columns * static_cast<int64_t>(grid.around.size());
    ParallelFor(rows, 1 + 8192 / std::max<int64_t>(row_boxes, 1), [&](int64_t begin, int64_t end) {
      int64_t at = 4 * begin * row_boxes;
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t column = 0; column < columns; ++column) {
          for (const Box& box : grid.around) {
            WriteBox(to, at, grid.At(row, column, box));
            for (float value : variance) v.Set(at++, value);
          }
        }
      }
    });
  };
}

// C1 to C4 of all three ops. `count` is the number of boxes of a cell.
void InferGrid(InferContext& ctx, const char* boxes_slot, int64_t count) {
  const VarMeta& map = ctx.Input("Input");
  const auto variances = ctx.Attr<Floats>("variances");
  ctx.Require("C1", map.shape.rank() == 4, map);
  ctx.Require("C2", variances.size() == 4 && AllPositive(variances), variances);
  ctx.Require("C3", count > 0 && count <= kMostBoxes, count);
  Shape out{map.shape[2], map.shape[3], count, 4};
  if (boxes_slot == std::string_view("Boxes")) {
    const VarMeta& image = ctx.Input("Image");
    ctx.Require("C1", image.shape.rank() == 4, image);
    if (ctx.spec().FindAttr("flatten_to_2d") && ctx.Attr<bool>("flatten_to_2d"))
      out = {MulDims(MulDims(out[0], out[1]), count), 4};
  }
  ctx.SetOutput(boxes_slot, map.dtype, out);
  ctx.SetOutput("Variances", map.dtype, out);
}

// Centres and image size of the ops with an image.
PriorGrid ImageGrid(const PrepareContext& ctx) {
  const Shape &map = ctx.Input("Input").shape, &image = ctx.Input("Image").shape;
  PriorGrid grid;
  grid.width = static_cast<double>(image[3]);
  grid.height = static_cast<double>(image[2]);
  grid.step_x = ctx.Attr<float>("step_w");
  grid.step_y = ctx.Attr<float>("step_h");
  if (grid.step_x == 0 || grid.step_y == 0) {
    grid.step_x = grid.width / static_cast<double>(std::max<int64_t>(map[3], 1));
    grid.step_y = grid.height / static_cast<double>(std::max<int64_t>(map[2], 1));
  }
  const double offset = ctx.Attr<float>("offset");
  grid.first_x = offset * grid.step_x;
  grid.first_y = offset * grid.step_y;
  return grid;
}

// ---- prior_box ----

constexpr size_t kMostRatios = 1024;

// 1, then each new ratio, followed by its inverse if `flip`.
Floats Ratios(const Floats& given, bool flip) {
  Floats ratios = {1};
  for (float ratio : given) {
    const auto same = [ratio](float r) { return std::abs(r - ratio) < 1e-6f; };
    if (std::any_of(ratios.begin(), ratios.end(), same)) continue;
    ratios.push_back(ratio);
    if (flip) ratios.push_back(1 / ratio);
  }
  return ratios;
}

void InferPriorBox(InferContext& ctx) {
  const auto min = ctx.Attr<Floats>("min_sizes"), max = ctx.Attr<Floats>("max_sizes");
  const auto given = ctx.Attr<Floats>("aspect_ratios");
  ctx.Require("C4", AllPositive(min) && AllPositive(given), "min_sizes", min, "aspect_ratios",
              given);
  bool larger = max.empty() || max.size() == min.size();
  for (size_t i = 0; larger && i < max.size(); ++i) larger = max[i] > min[i];
  ctx.Require("C5", larger, "min_sizes", min, "max_sizes", max);
  // a ratio is compared with all others
  ctx.Require("C3", given.size() <= kMostRatios, given.size());
  const size_t ratios = Ratios(given, ctx.Attr<bool>("flip")).size();
  InferGrid(ctx, "Boxes", static_cast<int64_t>(ratios * min.size() + max.size()));
}

Kernel PriorBox(const PrepareContext& ctx) {
  const auto min = ctx.Attr<Floats>("min_sizes"), max = ctx.Attr<Floats>("max_sizes");
  const Floats ratios = Ratios(ctx.Attr<Floats>("aspect_ratios"), ctx.Attr<bool>("flip"));
  PriorGrid grid = ImageGrid(ctx);
  grid.clip_all = ctx.Attr<bool>("clip");
  const bool max_second = ctx.Attr<bool>("min_max_aspect_ratios_order");
  for (size_t i = 0; i < min.size(); ++i) {
    const double size = min[i];
    for (size_t k = 0; k < ratios.size(); ++k) {
      const double root = std::sqrt(ratios[k]);
      grid.around.push_back(Centred(size * root, size / root));
      const bool turn = max_second ? k == 0 : k + 1 == ratios.size();
      if (max.empty() || !turn) continue;
      const double side = std::sqrt(size * max[i]);
      grid.around.push_back(Centred(side, side));
    }
  }
  return WriteGrid(ctx, "Boxes", std::move(grid));
}

// ---- density_prior_box ----

void InferDensityPriorBox(InferContext& ctx) {
  const auto sizes = ctx.Attr<Floats>("fixed_sizes"), ratios = ctx.Attr<Floats>("fixed_ratios");
  const auto densities = ctx.Attr<Ints>("densities");
  ctx.Require("C4", AllPositive(sizes) && AllPositive(ratios), "fixed_sizes", sizes, "fixed_ratios",
              ratios);
  const bool positive =
      std::all_of(densities.begin(), densities.end(), [](int32_t d) { return d > 0 && d <= 256; });
  ctx.Require("C5", positive && densities.size() == sizes.size(), "fixed_sizes", sizes, "densities",
              densities);
  int64_t count = 0;
  for (int64_t d : densities) count = CheckedAdd(count, d * d);
  InferGrid(ctx, "Boxes", CheckedMul(count, static_cast<int64_t>(ratios.size())));
}

Kernel DensityPriorBox(const PrepareContext& ctx) {
  const auto sizes = ctx.Attr<Floats>("fixed_sizes"), ratios = ctx.Attr<Floats>("fixed_ratios");
  const auto densities = ctx.Attr<Ints>("densities");
  PriorGrid grid = ImageGrid(ctx);
  grid.clip_outer = true;
  grid.clip_all = ctx.Attr<bool>("clip");
  const double step = std::trunc((grid.step_x + grid.step_y) / 2);
  for (size_t i = 0; i < sizes.size(); ++i) {
    const double shift = std::trunc(step / densities[i]);
    for (float ratio : ratios) {
      const Box box =
          Centred(sizes[i] * std::sqrt(double{ratio}), sizes[i] / std::sqrt(double{ratio}));
      for (int32_t k = 0; k < densities[i] * densities[i]; ++k) {
        const double x = (shift - step) / 2 + k % densities[i] * shift;
        const double y = (shift - step) / 2 + k / densities[i] * shift;
        grid.around.push_back({x + box.x1, y + box.y1, x + box.x2, y + box.y2});
      }
    }
  }
  return WriteGrid(ctx, "Boxes", std::move(grid));
}

// ---- anchor_generator ----

void InferAnchors(InferContext& ctx) {
  const auto sizes = ctx.Attr<Floats>("anchor_sizes"), ratios = ctx.Attr<Floats>("aspect_ratios");
  const auto stride = ctx.Attr<Floats>("stride");
  ctx.Require("C4", AllPositive(sizes) && AllPositive(ratios), "anchor_sizes", sizes,
              "aspect_ratios", ratios);
  ctx.Require("C5", stride.size() == 2 && AllPositive(stride), stride);
  InferGrid(ctx, "Anchors",
            CheckedMul(static_cast<int64_t>(sizes.size()), static_cast<int64_t>(ratios.size())));
}

Kernel AnchorGenerator(const PrepareContext& ctx) {
  const auto stride = ctx.Attr<Floats>("stride");
  const double sw = stride[0], sh = stride[1], offset = ctx.Attr<float>("offset");
  PriorGrid grid;
  grid.first_x = offset * (sw - 1);
  grid.first_y = offset * (sh - 1);
  grid.step_x = sw;
  grid.step_y = sh;
  for (double ratio : ctx.Attr<Floats>("aspect_ratios")) {
    const double base_w = std::round(std::sqrt(sw * sh / ratio));
    const double base_h = std::round(base_w * ratio);
    for (double size : ctx.Attr<Floats>("anchor_sizes"))
      grid.around.push_back(Centred(size / sw * base_w - 1, size / sh * base_h - 1));
  }
  return WriteGrid(ctx, "Anchors", std::move(grid));
}

RowEffect GridRows(const RowQuery& query) {
  return query.axis == 0 ? OfShapeRows(query) : RowRule::kMixes;
}

OpDef GridOp(const std::string& type, const char* boxes_slot) {
  OpDef def(type);
  def.Constraint("C1", "Input and Image must have rank 4")
      .Constraint("C2", "variances must be four positive numbers")
      .Constraint("C3", type == "prior_box"
                            ? "a cell must have 1 to 65536 boxes, and aspect_ratios "
                              "at most 1024 elements"
                            : "a cell must have 1 to 65536 boxes")
      .Input("Input", "feature map [N, C, H, W], for its shape only")
      .Output(boxes_slot, "tensor [H, W, boxes of a cell, 4] of Input's dtype")
      .Output("Variances", "tensor of the same shape: the four variances for each box")
      .Attr<Floats>("variances", "four numbers for the deltas of boxes")
      .NoLod()
      .Rows(GridRows, "equal on all machines, if the rows are axis 0; otherwise mixed")
      .NotDifferentiable("it depends on shapes only");
  return def;
}

void DeclareImage(OpDef& def) {
  def.Input("Image", "image [N, C, H, W], for its shape only")
      .Attr<bool>("clip", true, "clip corners to [0, 1]")
      .Attr<float>("step_w", 0.f,
                   "horizontal distance of cells in the image; 0: image size / map size")
      .Range(0, 1e9)
      .Attr<float>("step_h", 0.f, "vertical distance of cells; if one step is 0, both count as 0")
      .Range(0, 1e9)
      .Attr<float>("offset", 0.5f, "position of the box centre in its cell");
}

void Register(OpRegistry& ops) {
  ops.Add(GridOp("prior_box", "Boxes")
              .Apply(DeclareImage)
              .Doc("Boxes = around the centre of each cell (offset + index) step, for each min "
                   "size s: one of s sqrt(r) by s / sqrt(r) for each ratio r, then a square of "
                   "sqrt(s max size); corners are divided by the image's size. The ratios are 1 "
                   "and the different aspect_ratios, each followed by its inverse if flip is set.")
              .Constraint("C4", "min_sizes and aspect_ratios must be positive")
              .Constraint("C5", "max_sizes must be empty, or each larger than its min size")
              .Attr<Floats>("min_sizes", "sizes of boxes in pixels of the image")
              .Attr<Floats>("max_sizes", {}, "one for each min size, or none")
              .Attr<Floats>("aspect_ratios", "widths over heights")
              .Attr<bool>("flip", true, "add the inverse of each ratio")
              .Attr<bool>("min_max_aspect_ratios_order", false,
                          "the square of max_sizes comes second; otherwise last")
              .Infer(InferPriorBox)
              .Reference<float, double>(ForReals{PriorBox}));
  ops.Add(GridOp("density_prior_box", "Boxes")
              .Apply(DeclareImage)
              .Doc("Boxes = for each fixed size s with density d and each ratio r, d x d boxes of "
                   "s sqrt(r) by s / sqrt(r) spread evenly over the square of the mean step around "
                   "the centre of each cell; corners are divided by the image's size, the first "
                   "corner is at least 0 and the second at most 1.")
              .Constraint("C4", "fixed_sizes and fixed_ratios must be positive")
              .Constraint("C5", "densities must be in [1, 256], one for each fixed size")
              .Attr<Floats>("fixed_sizes", {}, "sizes of boxes in pixels of the image")
              .Attr<Floats>("fixed_ratios", {}, "widths over heights")
              .Attr<Ints>("densities", {}, "one for each fixed size")
              .Attr<bool>("flatten_to_2d", false, "outputs are [all boxes, 4]")
              .Infer(InferDensityPriorBox)
              .Reference<float, double>(ForReals{DensityPriorBox}));
  ops.Add(GridOp("anchor_generator", "Anchors")
              .Doc("Anchors = in pixels of the image, around the centre index stride + offset "
                   "(stride - 1) of each cell, for each ratio r and each size s: w = round(sqrt(sw "
                   "sh / r)) s / sw and h = round(round(sqrt(sw sh / r)) r) s / sh, from centre - "
                   "(w - 1) / 2 to centre + (w - 1) / 2.")
              .Constraint("C4", "anchor_sizes and aspect_ratios must be positive")
              .Constraint("C5", "stride must be two positive numbers")
              .Attr<Floats>("anchor_sizes", "sizes of anchors in pixels of the image")
              .Attr<Floats>("aspect_ratios", "heights over widths")
              .Attr<Floats>("stride", {16, 16}, "distance of cells in the image: width, height")
              .Attr<float>("offset", 0.5f, "position of the box centre in its cell")
              .Infer(InferAnchors)
              .Reference<float, double>(ForReals{AnchorGenerator}));
}

}  // namespace coracle::prior_box_op
