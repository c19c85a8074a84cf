// sequence_topk_avg_pooling: averages of the largest elements of each row of a batch of images.

#include <coracle/framework/base/checked.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/kernels/total_order.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/output_grad.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>
#include <numeric>

namespace coracle::sequence_topk_avg_pooling_op {

template <class Context>
std::vector<int32_t> TopKs(const Context& ctx) {
  return ctx.template Attr<std::vector<int32_t>>("topks");
}

VarMeta TopKOut(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  const Shape &row = ctx.InputShape("ROW"), &column = ctx.InputShape("COLUMN");
  const bool one_column =
      out.shape.rank() == 1 || (out.shape.rank() == 2 && InferContext::Matches(out.shape[1], 1));
  ctx.Require("C1", one_column && row.rank() >= 1 && column.rank() >= 1, "X", out, "ROW", row,
              "COLUMN", column);
  const std::vector<int32_t> topks = TopKs(ctx);
  const bool positive = std::all_of(topks.begin(), topks.end(), [](int32_t k) { return k > 0; });
  const int64_t channels = ctx.Attr<int32_t>("channel_num");
  ctx.Require("C2", !topks.empty() && positive && channels > 0, "topks", topks, "channel_num",
              channels);
  out.shape = Shape{row[0], MulDims(channels, static_cast<int64_t>(topks.size()))};
  out.lod_level = 1;
  return out;
}

void InferTopKPool(InferContext& ctx) {
  const VarMeta out = TopKOut(ctx);
  ctx.SetOutput("Out", out);
  const std::vector<int32_t> topks = TopKs(ctx);
  const int64_t slots =
      MulDims(ctx.Attr<int32_t>("channel_num"), *std::max_element(topks.begin(), topks.end()));
  ctx.SetOutput("pos", DType::kInt32, {MulDims(out.shape[0], slots)});
}

// The images of X: sample i has channel_num images, whose numbers of rows and columns are the
// lengths of sequence i of ROW and of COLUMN.
class Images {
 public:
  explicit Images(const PrepareContext& ctx)
      : numel_(ctx.Input("X").numel),
        channels_(ctx.Attr<int32_t>("channel_num")),
        rows_(ctx, "ROW", "C3"),
        columns_(ctx, "COLUMN", "C3"),
        fits_(ctx, "C4") {}
  // Calls visit(row of Out, channel, first element, columns) for each row of each image.
  template <class Visit>
  void ForEachRow(Workspace& ws, const Visit& visit) const {
    const Sequences rows = rows_(ws), columns = columns_(ws);
    fits_.Require(rows.count() == columns.count(), "ROW", rows.count(), "COLUMN", columns.count());
    int64_t numel = 0;
    for (int64_t i = 0; i < rows.count(); ++i) {
      const int64_t image = CheckedMul(rows.length(i), columns.length(i));
      numel = CheckedAdd(numel, CheckedMul(image, channels_));
    }
    fits_.Require(numel == numel_, "X", numel_, "images", numel);
    int64_t at = 0;
    for (int64_t i = 0; i < rows.count(); ++i) {
      for (int64_t c = 0; rows.length(i) > 0 && c < channels_; ++c) {
        for (int64_t r = rows.begin(i); r < rows.end(i); ++r, at += columns.length(i))
          visit(r, c, at, columns.length(i));
      }
    }
  }

 private:
  int64_t numel_, channels_;
  SequencesArg rows_, columns_;
  RunConstraint fits_;
};

// The columns of a row by falling value, the last of equal ones first.
template <class T>
void SortColumns(const T* row, int64_t n, std::vector<int32_t>* order) {
  order->resize(static_cast<size_t>(n));
  std::iota(order->begin(), order->end(), 0);
  std::sort(order->begin(), order->end(), [row](int32_t a, int32_t b) {
    const bool larger = ComesBefore(row[b], row[a]), smaller = ComesBefore(row[a], row[b]);
    return larger || (!smaller && a > b);
  });
}

template <class T>
KernelOf<T> TopKPool(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out"), pos = ctx.Output("pos");
  const Images images(ctx);
  const std::vector<int32_t> topks = TopKs(ctx);
  const int64_t most = *std::max_element(topks.begin(), topks.end());
  const int64_t channels = ctx.Attr<int32_t>("channel_num");
  const auto num = static_cast<int64_t>(topks.size());
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    int32_t* found = pos ? ws.Data<int32_t>(pos) : nullptr;
    std::vector<int32_t> order;
    images.ForEachRow(ws, [&](int64_t r, int64_t c, int64_t at, int64_t n) {
      SortColumns(in + at, n, &order);
      const int64_t place = r * channels + c;
      for (int64_t k = 0; found && k < most; ++k)
        found[place * most + k] = k < n ? order[static_cast<size_t>(k)] : -1;
      for (int64_t k = 0; k < num; ++k) {
        const int64_t count = topks[static_cast<size_t>(k)];
        T sum = 0;
        for (int64_t j = 0; j < std::min(count, n); ++j)
          sum += in[at + order[static_cast<size_t>(j)]];
        o[place * num + k] = sum / static_cast<T>(count);
      }
    });
  };
}

template <class T>
KernelOf<T> TopKPoolGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const Images images(ctx);
  const std::vector<int32_t> topks = TopKs(ctx);
  const int64_t channels = ctx.Attr<int32_t>("channel_num");
  const auto num = static_cast<int64_t>(topks.size());
  return [=](Workspace& ws) {
    const T *in = ws.Data<const T>(x), *given = ws.Data<const T>(dout);
    T* to = ws.Data<T>(dx);
    std::fill_n(to, dx.numel, T(0));
    std::vector<int32_t> order;
    images.ForEachRow(ws, [&](int64_t r, int64_t c, int64_t at, int64_t n) {
      SortColumns(in + at, n, &order);
      for (int64_t k = 0; k < num; ++k) {
        const int64_t count = topks[static_cast<size_t>(k)];
        const T g = given[(r * channels + c) * num + k] / static_cast<T>(count);
        for (int64_t j = 0; j < std::min(count, n); ++j)
          to[at + order[static_cast<size_t>(j)]] += g;
      }
    });
  };
}

void DeclareImages(OpDef& def) {
  def.Input("X", "floating-point tensor [N, 1]: the images, one after the other")
      .Input("ROW", "tensor with LoD: the numbers of rows; its elements are not read")
      .Input("COLUMN", "tensor with LoD: the numbers of columns; its elements are not read")
      .NoGradientTo({"ROW", "COLUMN"});
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("sequence_topk_avg_pooling")
          .Doc("Sample i of X has channel_num images; their numbers of rows and columns are the "
               "lengths of sequence i of ROW and of COLUMN. Out[row][c K + k] = the sum of the "
               "topks[k] largest elements of that row of image c (all if it has fewer), divided by "
               "topks[k], where K is the length of topks. A nan counts as the largest.")
          .Constraint("C1", "X must have one column, ROW and COLUMN rows")
          .Constraint("C2", "topks must hold positive numbers, and channel_num must be positive")
          .Constraint("C3", "ROW and COLUMN must have LoD of one level")
          .Constraint("C4",
                      "ROW and COLUMN must have the same number of sequences, and X the elements "
                      "of their images")
          .Apply(DeclareImages)
          .Output("Out", "tensor [rows of ROW, channel_num * K] with ROW's LoD")
          .IntermediateOutput("pos",
                              "int32 tensor: for each row of Out and channel, the columns by "
                              "falling value, the last of equal ones first; then -1")
          .Attr<std::vector<int32_t>>("topks", "numbers of elements to average")
          .Attr<int32_t>("channel_num", "number of images of a sample")
          .LodFrom("ROW")
          .Rows(EachBatchRow, kEachBatchRow)
          .Infer(InferTopKPool)
          .GradientOp({"X", "ROW", "COLUMN"})
          .Reference(TopKPool<float>, TopKPool<double>));
  ops.Add(OpDef("sequence_topk_avg_pooling_grad")
              .Doc("Gradient of sequence_topk_avg_pooling.")
              .ConstraintsOf("sequence_topk_avg_pooling", {"C1", "C2", "C3", "C4"})
              .Constraint("C5", "Out@GRAD must have Out's shape and dtype")
              .Apply(DeclareImages)
              .OptionalInput("pos", "not read: the columns are searched again")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .AttrsOf("sequence_topk_avg_pooling")
              .NoGradientTo({"pos"})
              .NoGradient("second derivatives of sequence ops are not provided")
              .Infer([](InferContext& ctx) {
                RequireOutGrad(ctx, "C5", TopKOut(ctx));
                ctx.SetOutput("X@GRAD", ctx.Input("X"));
              })
              .Reference(TopKPoolGrad<float>, TopKPoolGrad<double>));
}

}  // namespace coracle::sequence_topk_avg_pooling_op
