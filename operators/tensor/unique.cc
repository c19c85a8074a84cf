// unique and unique_with_counts. The number of different elements is known only at run time.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/radix_sort.h>
#include <coracle/operators/kernels/total_order.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace coracle::unique_op {

using Ints = std::vector<int32_t>;

// unique_with_counts has only the attr dtype.
template <class Context>
bool IsSorted(const Context& ctx) {
  return ctx.op().type() == "unique" && ctx.template Attr<bool>("is_sorted");
}

DType IndexDType(const InferContext& ctx) {
  const int32_t dtype = ctx.Attr<int32_t>("dtype");
  ctx.Require("C1", dtype == 2 || dtype == 3, dtype);
  return static_cast<DType>(dtype);
}

// The axis whose slices are compared; -1 for single elements.
template <class Context>
int AxisOf(const Context& ctx, const Shape& x) {
  if (!IsSorted(ctx)) return -1;
  const Ints axes = ctx.template Attr<Ints>("axis");
  int axis = -1;
  if (!axes.empty()) x.NormalizeAxis(axes[0], &axis);
  return axis;
}

void InferUnique(InferContext& ctx) {
  const VarMeta& x = ctx.Input("X");
  const DType index = IndexDType(ctx);
  Shape out{-1};
  if (!IsSorted(ctx)) {
    ctx.Require("C2", x.shape.rank() == 1, x.shape);
  } else if (const Ints axes = ctx.Attr<Ints>("axis"); !axes.empty()) {
    ctx.Require("C3", axes.size() == 1, axes);
    const int axis = ctx.Axis("C3", axes[0], x.shape.rank());
    out = x.shape;
    out[axis] = -1;
  }
  ctx.SetOutput("Out", x.dtype, out);
  // One element for each slice of X.
  const int axis = AxisOf(ctx, x.shape);
  const int64_t slices = axis >= 0 ? x.shape[axis] : (x.shape.IsKnown() ? x.shape.numel() : -1);
  ctx.SetOutput("Index", index, {slices});
  if (ctx.op().type() == "unique") {
    ctx.SetOutput("Indices", index, {-1});
    ctx.SetOutput("Counts", index, {-1});
  } else {
    ctx.SetOutput("Count", index, {-1});
  }
}

// X as [outer, n, inner]; slice i of n is compared with others element by element.
template <class T>
struct Slices {
  const T* x;
  int64_t outer, n, inner;

  // Negative, positive, or 0 if equal. Nans are equal to each other.
  int Compare(int64_t i, int64_t j) const {
    if (inner == 0) return 0;
    for (int64_t o = 0; o < outer; ++o) {
      const T *a = x + (o * n + i) * inner, *b = x + (o * n + j) * inner;
      for (int64_t k = 0; k < inner; ++k) {
        if (ComesBefore(a[k], b[k])) return -1;
        if (ComesBefore(b[k], a[k])) return 1;
      }
    }
    return 0;
  }
};

// Different slices: `first` holds their first occurrences, in the order of Out. `group` has the
// index in that order for each slice.
struct Groups {
  int64_t *first, *group;
  int64_t count = 0;
};

// The slices in ascending order, equal ones by the lower index. `packed` has two numbers for each
// slice of one element; nullptr if slices are longer.
template <class T>
void SortSlices(const Slices<T>& slices, Packed<T>* packed, int64_t* order) {
  const int64_t n = slices.n;
  if (packed) {
    PackLine(slices.x, n, 1, false, packed);
    const Packed<T>* result = SortPacked(packed, packed + n, n);
    for (int64_t i = 0; i < n; ++i) order[i] = PlaceOf<T>(result[i]);
    return;
  }
  std::iota(order, order + n, int64_t{0});
  std::sort(order, order + n, [&](int64_t i, int64_t j) {
    const int compared = slices.Compare(i, j);
    return compared != 0 ? compared < 0 : i < j;
  });
}

template <class T>
Groups FindGroups(const Slices<T>& slices, bool sorted, Packed<T>* packed, int64_t* scratch) {
  const int64_t n = slices.n;
  int64_t *order = scratch, *by_value = scratch + n;
  Groups groups{scratch + 2 * n, scratch + 3 * n};
  SortSlices(slices, packed, order);
  for (int64_t i = 0; i < n; ++i) {
    if (i == 0 || slices.Compare(order[i - 1], order[i]) != 0)
      groups.first[groups.count++] = order[i];
    // identified by its first slice for now
    groups.group[order[i]] = groups.first[groups.count - 1];
  }
  if (!sorted) std::sort(groups.first, groups.first + groups.count);
  for (int64_t k = 0; k < groups.count; ++k) by_value[groups.first[k]] = k;
  for (int64_t i = 0; i < n; ++i) groups.group[i] = by_value[groups.group[i]];
  return groups;
}

// Writes int32 or int64.
class IndexWriter {
 public:
  explicit IndexWriter(Tensor& tensor)
      : data_(tensor.raw()), wide_(tensor.dtype() == DType::kInt64) {}
  void Set(int64_t i, int64_t value) const {
    if (wide_)
      static_cast<int64_t*>(data_)[i] = value;
    else
      static_cast<int32_t*>(data_)[i] = static_cast<int32_t>(value);
  }
  void Add(int64_t i) const {
    if (wide_)
      ++static_cast<int64_t*>(data_)[i];
    else
      ++static_cast<int32_t*>(data_)[i];
  }

 private:
  void* data_;
  bool wide_;
};

struct Outputs {
  TensorArg out, index, indices, counts;
};

template <class T>
void WriteSlices(Workspace& ws, const TensorArg& out, const Shape& shape, const Slices<T>& slices,
                 const Groups& groups) {
  T* to = static_cast<T*>(ResizeOutput(ws, out, DTypeOf<T>(), shape).raw());
  for (int64_t o = 0; o < slices.outer; ++o) {
    for (int64_t k = 0; k < groups.count; ++k, to += slices.inner)
      std::copy_n(slices.x + (o * slices.n + groups.first[k]) * slices.inner, slices.inner, to);
  }
}

void WriteIndices(Workspace& ws, const Outputs& outs, DType dtype, int64_t n,
                  const Groups& groups) {
  if (outs.index) {
    const IndexWriter index(ResizeOutput(ws, outs.index, dtype, {n}));
    for (int64_t i = 0; i < n; ++i) index.Set(i, groups.group[i]);
  }
  if (outs.indices) {
    const IndexWriter indices(ResizeOutput(ws, outs.indices, dtype, {groups.count}));
    for (int64_t k = 0; k < groups.count; ++k) indices.Set(k, groups.first[k]);
  }
  if (outs.counts) {
    const IndexWriter counts(ResizeOutput(ws, outs.counts, dtype, {groups.count}));
    for (int64_t k = 0; k < groups.count; ++k) counts.Set(k, 0);
    for (int64_t i = 0; i < n; ++i) counts.Add(groups.group[i]);
  }
}

template <class T>
KernelOf<T> Unique(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X");
  const bool with_counts = ctx.op().type() == "unique_with_counts";
  const Outputs outs{ctx.Output("Out"), ctx.Output("Index"),
                     with_counts ? TensorArg() : ctx.Output("Indices"),
                     ctx.Output(with_counts ? "Count" : "Counts")};
  const auto dtype = static_cast<DType>(ctx.Attr<int32_t>("dtype"));
  const bool sorted = IsSorted(ctx);
  const int axis = AxisOf(ctx, x.shape);
  Slices<T> slices{nullptr, 1, x.numel, 1};
  if (axis >= 0)
    slices = {nullptr, x.shape.Product(0, axis), x.shape[axis],
              x.shape.Product(axis + 1, x.shape.rank())};
  if (x.numel == 0) slices.outer = 0;  // all slices without elements are equal
  const TensorArg scratch = ctx.Scratch(DType::kInt64, {4, std::max<int64_t>(slices.n, 1)});
  TensorArg packed;
  if (slices.outer == 1 && slices.inner == 1 && slices.n <= kLongestSortedLine)
    packed = ctx.Scratch(DType::kInt64, {static_cast<int64_t>(sizeof(Packed<T>)) / 4, slices.n});
  return [=](Workspace& ws) {
    Slices<T> s = slices;
    s.x = ws.Data<const T>(x);
    auto* memory = packed ? static_cast<Packed<T>*>(ws.Data<void>(packed)) : nullptr;
    const Groups groups = FindGroups(s, sorted, memory, ws.Data<int64_t>(scratch));
    Shape shape = axis >= 0 ? x.shape : Shape{groups.count};
    if (axis >= 0) shape[axis] = groups.count;
    WriteSlices(ws, outs.out, shape, s, groups);
    WriteIndices(ws, outs, dtype, s.n, groups);
  };
}

void DeclareUnique(OpDef& def) {
  def.Constraint("C1", "dtype must be 2 (int32) or 3 (int64)")
      .Constraint("C2", "X must be a vector")
      .Input("X", "tensor of numbers")
      .Output("Out", "the different elements")
      .Attr<int32_t>("dtype", "dtype of all indices and counts: 2 (int32) or 3 (int64)")
      .RunTimeShape()
      .NotDifferentiable("a choice has no derivative")
      .Rows(RowRule::kMixes)
      .Infer(InferUnique)
      .Reference(Unique<float>, Unique<double>, Unique<int32_t>, Unique<int64_t>);
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("unique")
              .Doc("Out = the different elements of X in the order in which they occur first, or "
                   "sorted under is_sorted; then axis may name the dimension whose slices are "
                   "compared, in lexicographic order. Nans count as equal, and as the largest. "
                   "Absent outputs are not computed, whatever the values of the return_ attrs.")
              .Apply(DeclareUnique)
              .Constraint("C3", "axis must be at most one axis of X")
              .OptionalOutput("Index", "[n], the position in Out of each element (or slice)")
              .OptionalOutput("Indices",
                              "the position of the first occurrence in X of each element of Out")
              .OptionalOutput("Counts", "the number of occurrences in X of each element of Out")
              .Attr<bool>("return_index", false, "whether Indices is wanted")
              .Attr<bool>("return_inverse", false, "whether Index is wanted")
              .Attr<bool>("return_counts", false, "whether Counts is wanted")
              .Attr<Ints>("axis", {}, "with is_sorted: the axis; empty: X is treated as a vector")
              .Attr<bool>("is_sorted", false, "sort; if false, X must be a vector"));
  ops.Add(OpDef("unique_with_counts")
              .Doc("Out = the different elements of the vector X in the order in which they occur "
                   "first.")
              .Apply(DeclareUnique)
              .OptionalOutput("Index", "[n], the position in Out of each element")
              .OptionalOutput("Count", "the number of occurrences in X of each element of Out"));
}

}  // namespace coracle::unique_op
