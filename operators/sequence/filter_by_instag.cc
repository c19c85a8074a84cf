// filter_by_instag: selects the instances of a batch with one of the wanted tags.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/rules/index.h>

#include <algorithm>

namespace coracle::filter_by_instag_op {

void InferFilter(InferContext& ctx) {
  VarMeta out = ctx.Input("Ins");
  ctx.Require("C1", out.shape.rank() >= 1, out);
  for (const char* slot : {"Ins_tag", "Filter_tag"}) {
    const VarMeta& tags = ctx.Input(slot);
    ctx.Require("C2", IsIndexType(tags.dtype) && tags.shape.rank() >= 1, slot, tags);
  }
  out.shape[0] = -1;
  out.lod_level = 1;
  ctx.SetOutput("Out", out);
  ctx.SetOutput("LossWeight", {VarType::kLoDTensor, DType::kFloat32, {-1, 1}, 1});
  ctx.SetOutput("IndexMap", {VarType::kLoDTensor, DType::kInt64, {-1, 3}, 1});
}

// The rows of an instance, and their position in Out.
struct Kept {
  int64_t to, from, rows;
};

// The instances with a wanted tag.
class Instances {
 public:
  explicit Instances(const PrepareContext& ctx)
      : rows_(ctx.Input("Ins").shape[0]),
        width_(RowWidth(ctx.Input("Ins_tag").shape)),
        tag_(ctx.Input("Ins_tag")),
        wanted_(ctx.Input("Filter_tag")),
        sequences_(ctx, "Ins", "C3"),
        tags_(ctx, "Ins_tag", "C4"),
        fits_(ctx, "C5"),
        by_sequence_(ctx.Attr<bool>("is_lod")) {}

  std::vector<Kept> operator()(Workspace& ws) const {
    const IndexReader tag(ws, tag_), wanted(ws, wanted_);
    std::vector<int64_t> filter;
    for (int64_t i = 0; i < wanted_.numel; ++i) filter.push_back(wanted[i]);
    std::sort(filter.begin(), filter.end());
    const Sequences tags = tags_(ws);
    std::vector<Kept> kept;
    int64_t to = 0;
    const auto visit = [&](int64_t i, int64_t from, int64_t rows) {
      bool has = false;
      for (int64_t k = tags.begin(i) * width_; k < tags.end(i) * width_ && !has; ++k)
        has = std::binary_search(filter.begin(), filter.end(), tag[k]);
      if (!has) return;
      kept.push_back({to, from, rows});
      to += rows;
    };
    if (by_sequence_) {
      const Sequences s = sequences_(ws);
      fits_.Require(s.count() == tags.count(), "Ins", s.count(), "Ins_tag", tags.count());
      for (int64_t i = 0; i < s.count(); ++i) visit(i, s.begin(i), s.length(i));
    } else {
      fits_.Require(rows_ == tags.count(), "Ins", rows_, "Ins_tag", tags.count());
      for (int64_t i = 0; i < rows_; ++i) visit(i, i, 1);
    }
    return kept;
  }

 private:
  int64_t rows_, width_;
  TensorArg tag_, wanted_;
  SequencesArg sequences_, tags_;
  RunConstraint fits_;
  bool by_sequence_;
};

// A LoD in which each row is a sequence.
LoD RowByRow(size_t rows) {
  LoD lod{{0}};
  for (uint64_t i = 1; i <= rows; ++i) lod[0].push_back(i);
  return lod;
}

Kernel Filter(const PrepareContext& ctx) {
  const TensorArg ins = ctx.Input("Ins"), out = ctx.Output("Out");
  const TensorArg weight = ctx.Output("LossWeight"), map = ctx.Output("IndexMap");
  const Instances instances(ctx);
  const double filler = static_cast<double>(ctx.Attr<int64_t>("out_val_if_empty"));
  const size_t bytes = RowBytes(ins.dtype, ins.shape);
  const int64_t width = RowWidth(ins.shape);
  return [=](Workspace& ws) {
    std::vector<Kept> kept = instances(ws);
    const bool none = kept.empty();
    if (none) kept.push_back({0, 1, 1});
    const int64_t rows = kept.back().to + kept.back().rows;
    const auto num = static_cast<int64_t>(kept.size());
    Tensor& result = ResizeOutput(ws, out, ins.dtype, WithRows(ins.shape, rows));
    result.lod() = {{0}};
    const RowCopy copy(ws.Data<const void>(ins), result.raw(), bytes);
    for (const Kept& k : kept) {
      if (!none) copy(k.from, k.to, k.rows);
      result.lod()[0].push_back(static_cast<uint64_t>(k.to + k.rows));
    }
    if (none) {
      const Tensor value = Tensor::Full<double>({1}, filler).Cast(ins.dtype);
      FillElements(result.raw(), width, value.raw(), SizeOf(ins.dtype));
    }
    Tensor& weights = ResizeOutput(ws, weight, DType::kFloat32, {num, 1});
    std::fill_n(weights.data<float>(), num, none ? 0.f : 1.f);
    weights.lod() = RowByRow(kept.size());
    Tensor& places = ResizeOutput(ws, map, DType::kInt64, {num, 3});
    auto* place = places.data<int64_t>();
    for (const Kept& k : kept) {
      for (int64_t value : {k.to, k.from, k.rows}) *place++ = value;
    }
    places.lod() = RowByRow(kept.size());
  };
}

void InferFilterGrad(InferContext& ctx) {
  const VarMeta &ins = ctx.Input("Ins"), &dout = ctx.Input("Out@GRAD");
  const VarMeta &weight = ctx.Input("LossWeight"), &map = ctx.Input("IndexMap");
  ctx.Require("C6",
              SameRows(ins.shape, dout.shape) && ins.dtype == dout.dtype &&
                  (weight.dtype == DType::kFloat32 || weight.dtype == DType::kFloat64) &&
                  weight.shape.CompatibleWith({-1, 1}) && map.dtype == DType::kInt64 &&
                  map.shape.CompatibleWith({weight.shape[0], 3}),
              "Out@GRAD", dout, "LossWeight", weight, "IndexMap", map);
  ctx.SetOutput("Ins@GRAD", ins);
}

Kernel FilterGrad(const PrepareContext& ctx) {
  const TensorArg weight = ctx.Input("LossWeight"), map = ctx.Input("IndexMap");
  const TensorArg dout = ctx.Input("Out@GRAD"), dins = ctx.Output("Ins@GRAD");
  const RunConstraint fits(ctx, "C6");
  const size_t bytes = RowBytes(dout.dtype, dout.shape);
  const auto weights = [weight](Workspace& ws, int64_t k) {
    return weight.dtype == DType::kFloat32 ? double{ws.Data<const float>(weight)[k]}
                                           : ws.Data<const double>(weight)[k];
  };
  return [=](Workspace& ws) {
    FillZeroBytes(ws.Data<void>(dins), dins.nbytes());
    const auto* place = ws.Data<const int64_t>(map);
    const RowCopy copy(ws.Data<const void>(dout), ws.Data<void>(dins), bytes);
    const auto in = [](int64_t begin, int64_t rows, int64_t all) {
      return begin >= 0 && rows >= 0 && begin <= all && rows <= all - begin;
    };
    for (int64_t k = 0; k < weight.numel; ++k, place += 3) {
      if (weights(ws, k) == 0) continue;
      fits.Require(in(place[0], place[2], dout.shape[0]) && in(place[1], place[2], dins.shape[0]),
                   "row", place[0], "from", place[1], "rows", place[2]);
      copy(place[0], place[1], place[2]);
    }
  };
}

RowEffect FilterRows(const RowQuery& query) {
  return query.output == "IndexMap" ? RowRule::kMixes : RowRule::kEach;
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("filter_by_instag")
              .Doc("Out = the instances of Ins (sequences with is_lod, else rows) with a tag in "
                   "Filter_tag. For each of them, IndexMap has (row in Out, row in Ins, rows) and "
                   "LossWeight is 1. If there is none, Out is one row of out_val_if_empty, "
                   "IndexMap is (0, 1, 1) and LossWeight 0.")
              .Constraint("C1", "Ins must have rows")
              .Constraint("C2", "Ins_tag and Filter_tag must be lists of int32 or int64")
              .Constraint("C3", "with is_lod, Ins must have LoD of one level")
              .Constraint("C4", "Ins_tag must have LoD of one level")
              .Constraint("C5", "Ins and Ins_tag must have the same number of instances")
              .Input("Ins", "tensor of any dtype")
              .Input("Ins_tag", "int32 or int64 tensor with LoD: the tags of each instance")
              .Input("Filter_tag", "int32 or int64 tensor: the wanted tags")
              .Output("Out", "tensor with LoD: the instances that are kept")
              .Output("LossWeight", "float32 tensor [instances, 1]")
              .Output("IndexMap", "int64 tensor [instances, 3]")
              .Attr<bool>("is_lod", "instances are sequences")
              .Attr<int64_t>("out_val_if_empty", int64_t{0}, "value of Out if no instance is kept")
              .RunTimeShape()
              .NoGradientTo({"Ins_tag", "Filter_tag"})
              .Rows(FilterRows, "each by itself; IndexMap counts them")
              .Infer(InferFilter)
              .GradientOp({"IndexMap", "Ins", "LossWeight"})
              .Reference(Filter));
  ops.Add(OpDef("filter_by_instag_grad")
              .Doc("Gradient of filter_by_instag: Out@GRAD in the rows that were kept, else 0.")
              .Constraint(
                  "C6", "Out@GRAD, LossWeight and IndexMap must have their types in the forward op")
              .Input("IndexMap", "the value in the forward op")
              .Input("Ins", "the value in the forward op; only its shape is used")
              .Input("LossWeight", "LossWeight of the forward op, in float32 or float64")
              .Input("Out@GRAD", "gradient of Out")
              .OptionalInput("LossWeight@GRAD", "not read: LossWeight is constant")
              .Output("Ins@GRAD", "gradient of Ins")
              .AttrsOf("filter_by_instag")
              .NoGradientTo({"IndexMap", "LossWeight", "LossWeight@GRAD"})
              .NoGradient("second derivatives of filter_by_instag are not provided")
              .Infer(InferFilterGrad)
              .Reference(FilterGrad));
}

}  // namespace coracle::filter_by_instag_op
