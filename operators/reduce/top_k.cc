#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/kernels/radix_sort.h>
#include <coracle/operators/kernels/total_order.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>

namespace coracle::top_k_op {

// top_k works on the last dimension, top_k_v2 on attr axis.
template <class Context>
int64_t AxisAttr(const Context& ctx) {
  return ctx.op().type().rfind("top_k_v2", 0) == 0 ? ctx.template Attr<int32_t>("axis") : -1;
}

void InferTopK(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  ctx.Require("C1", x.shape.rank() > 0, x);
  const int axis = ctx.Axis("C1", AxisAttr(ctx), x.shape.rank());
  int64_t k = ctx.Attr<int32_t>("k");
  bool known = true;
  if (ctx.HasInput("K")) {
    const auto value = ctx.Value("K");
    known = value.has_value();
    if (known) ctx.Require("C2", value->size() == 1, "K", *value);
    k = known ? value->front() : -1;
  }
  ctx.Require("C2", !known || (k >= 1 && (x.shape[axis] < 0 || k <= x.shape[axis])), k,
              x.shape[axis]);
  x.shape[axis] = k;
  ctx.SetOutput("Out", x);
  x.dtype = DType::kInt64;
  ctx.SetOutput("Indices", x);
}

// The k best of n, best first, in `best`, using a heap with the worst of them on top.
template <class T>
void SelectBest(const Better<T>& better, int64_t n, int64_t k, int64_t* best) {
  for (int64_t i = 0; i < k; ++i) best[i] = i;
  std::make_heap(best, best + k, better);
  for (int64_t i = k; i < n; ++i) {
    if (!better(i, best[0])) continue;
    std::pop_heap(best, best + k, better);
    best[k - 1] = i;
    std::push_heap(best, best + k, better);
  }
  std::sort_heap(best, best + k, better);
}

// X as [outer, n, inner] and Out as [outer, k, inner].
struct Layout {
  int64_t outer, n, k, inner;
};

Layout MakeLayout(const PrepareContext& ctx, const Shape& x, const Shape& out) {
  int axis = 0;
  x.NormalizeAxis(AxisAttr(ctx), &axis);
  return {x.Product(0, axis), x[axis], out[axis], x.Product(axis + 1, x.rank())};
}

template <class T>
KernelOf<T> TopK(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out"), indices = ctx.Output("Indices");
  if (out.numel == 0) return [](Workspace&) {};
  const Layout l = MakeLayout(ctx, x.shape, out.shape);
  const bool largest = ctx.op().type() == "top_k" || ctx.Attr<bool>("largest");
  const TensorArg scratch = ctx.Scratch(DType::kInt64, {out.numel});
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* values = ws.Data<T>(out);
    int64_t* found = ws.Data<int64_t>(indices);
    int64_t* rows = ws.Data<int64_t>(scratch);
    ParallelFor(l.outer * l.inner, 1 + 16384 / l.n, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t o = r / l.inner, i = r % l.inner;
        const T* row = in + o * l.n * l.inner + i;
        int64_t* best = rows + r * l.k;
        SelectBest(Better<T>{row, l.inner, largest}, l.n, l.k, best);
        for (int64_t j = 0; j < l.k; ++j) {
          const int64_t to = (o * l.k + j) * l.inner + i;
          values[to] = row[best[j] * l.inner];
          found[to] = best[j];
        }
      }
    });
  };
}

template <class T>
Kernel TopKFastOf(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out"), indices = ctx.Output("Indices");
  if (out.numel == 0) return [](Workspace&) {};
  const Layout l = MakeLayout(ctx, x.shape, out.shape);
  if (l.n > kLongestSortedLine) return {};
  const bool largest = ctx.op().type() == "top_k" || ctx.Attr<bool>("largest");
  const LineGroups lines(l.outer, l.n, l.inner, 16);
  const int64_t room = SelectionSize(l.n, l.k);
  const auto words = static_cast<int64_t>(sizeof(Packed<T>) / sizeof(int64_t));
  const TensorArg scratch = ctx.Scratch(DType::kInt64, {lines.parts, words, room});
  // Copies lines that are not contiguous.
  TensorArg copies;
  if (l.inner > 1) copies = ctx.Scratch(x.dtype, {lines.parts, lines.lanes, l.n});
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* values = ws.Data<T>(out);
    int64_t* found = ws.Data<int64_t>(indices);
    auto* memory = static_cast<Packed<T>*>(ws.Data<void>(scratch));
    T* copied = copies ? ws.Data<T>(copies) : nullptr;
    lines.ForEach([&](int64_t o, int64_t i, int64_t count, int64_t part) {
      const T* first = in + o * l.n * l.inner + i;
      if (copied) {
        T* own = copied + part * lines.lanes * l.n;
        for (int64_t k = 0; k < l.n; ++k) {
          for (int64_t c = 0; c < count; ++c) own[c * l.n + k] = first[k * l.inner + c];
        }
        first = own;
      }
      for (int64_t c = 0; c < count; ++c) {
        const T* line = first + c * l.n;
        const Packed<T>* best = SelectPacked(line, l.n, l.k, largest, memory + part * room);
        for (int64_t j = 0; j < l.k; ++j) {
          const int64_t to = (o * l.k + j) * l.inner + i + c;
          found[to] = PlaceOf<T>(best[j]);
          values[to] = line[found[to]];
        }
      }
    });
  };
}

Kernel TopKFast(const PrepareContext& ctx) {
  switch (ctx.Input("X").dtype) {
    case DType::kFloat32:
      return TopKFastOf<float>(ctx);
    case DType::kFloat64:
      return TopKFastOf<double>(ctx);
    case DType::kInt32:
      return TopKFastOf<int32_t>(ctx);
    case DType::kInt64:
      return TopKFastOf<int64_t>(ctx);
    default:
      return {};
  }
}

// Every gradient goes back to the position of its value.
template <class T>
KernelOf<T> TopKGrad(const PrepareContext& ctx) {
  const TensorArg indices = ctx.Input("Indices"), dout = ctx.Input("Out@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD");
  const int64_t bytes = dx.nbytes();
  if (dx.numel == 0 || dout.numel == 0)
    return [=](Workspace& ws) { FillZeroBytes(ws.Data<void>(dx), bytes); };
  const Layout l = MakeLayout(ctx, dx.shape, dout.shape);
  const std::string name = ctx.op().type();
  return [=](Workspace& ws) {
    const IndexReader at(ws, indices);
    const T* from = ws.Data<const T>(dout);
    T* to = ws.Data<T>(dx);
    FillZeroBytes(to, bytes);
    const int64_t block = l.k * l.inner;
    ParallelFor(l.outer, 1 + 16384 / block, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        for (int64_t r = o * block; r < (o + 1) * block; r += l.inner) {
          for (int64_t c = 0; c < l.inner; ++c) {
            const int64_t index = at[r + c];
            if (index < 0 || index >= l.n) ThrowIndexRange(name, "Indices", r + c, index, l.n);
            T& target = to[(o * l.n + index) * l.inner + c];
            target = T(target + from[r + c]);
          }
        }
      }
    });
  };
}

void InferTopKGrad(InferContext& ctx) {
  const VarMeta x = ctx.Input("X");
  const Shape &dout = ctx.InputShape("Out@GRAD"), &indices = ctx.InputShape("Indices");
  ctx.Require("C1", x.shape.rank() > 0, x);
  const int axis = ctx.Axis("C1", AxisAttr(ctx), x.shape.rank());
  ctx.Require("C2", IsIndexType(ctx.InputDType("Indices")) && dout.CompatibleWith(indices),
              "Indices", ctx.Input("Indices"), "Out@GRAD", dout);
  ctx.Require("C3", dout.rank() == x.shape.rank() && ctx.InputDType("Out@GRAD") == x.dtype,
              "Out@GRAD", ctx.Input("Out@GRAD"), "X", x);
  for (int i = 0; i < dout.rank(); ++i) {
    ctx.Require("C3", i == axis || InferContext::Matches(dout[i], x.shape[i]), dout[i], x.shape[i]);
  }
  ctx.SetOutput("X@GRAD", x);
}

void DeclareSearch(OpDef& def, bool v2) {
  def.OptionalInput("K", "int32 or int64 tensor [1]; replaces attr k")
      .Attr<int32_t>("k", 1, "number of elements to find")
      .NoGradientTo({"K"});
  if (v2) {
    def.Attr<int32_t>("axis", -1, "the dimension to search")
        .Attr<bool>("largest", true, "find the largest; otherwise the smallest")
        .Attr<bool>("sorted", true, "the result is always sorted")
        .WorksAlong("axis");
  }
}

RowEffect SearchRows(const RowQuery& query) {
  const int axis = query.spec.FindAttr("axis") ? query.spec.AttrOf<int32_t>(query.op, "axis") : -1;
  return EachUnlessAlong(query, std::vector{axis});
}

void AddPair(OpRegistry& ops, bool v2) {
  const std::string type = v2 ? "top_k_v2" : "top_k";
  ops.Add(
      OpDef(type)
          .Doc(std::string("Out = the k best elements along ") +
               (v2 ? "axis" : "the last dimension") +
               ", best first, and Indices = their positions. The first of equal elements wins; a "
               "nan counts as the largest.")
          .Constraint("C1", "X must have the dimension that axis names")
          .Constraint(
              "C2",
              "k (from a K of one element, else the attr) must lie in [1, size of the dimension]")
          .Input("X", "tensor of rank 1 or more")
          .Output("Out", "the best elements")
          .Output("Indices", "int64 tensor of their indices")
          .Apply(DeclareSearch, v2)
          .Rows(SearchRows, "each by itself, unless they are searched")
          .Scores({"X"})
          .Infer(InferTopK)
          .GradientOp({"X", "Indices"})
          .Reference(TopK<float>, TopK<double>, TopK<int32_t>, TopK<int64_t>, TopK<uint64_t>)
          .Fast(TopKFast));
  ops.Add(OpDef(type + "_grad")
              .Doc("Gradient of " + type + ": X@GRAD = Out@GRAD at Indices, else 0.")
              .Constraint("C1", "X must have the dimension that axis names")
              .Constraint("C2", "Indices must be integers in the shape of Out@GRAD")
              .Constraint("C3", "Out@GRAD must have X's dtype and, except for axis, its dimensions")
              .Input("X", "only its shape is used")
              .Input("Indices", "found by the forward op")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .Apply(DeclareSearch, v2)
              .NoGradient("second derivatives are not provided")
              .KernelTypeFrom("Out@GRAD")
              .Infer(InferTopKGrad)
              .Reference(TopKGrad<float>, TopKGrad<double>, TopKGrad<float16>, TopKGrad<bfloat16>));
}

void Register(OpRegistry& ops) {
  AddPair(ops, false);
  AddPair(ops, true);
}

}  // namespace coracle::top_k_op
