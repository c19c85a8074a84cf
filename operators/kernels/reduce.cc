#include <coracle/operators/kernels/reduce.h>

namespace coracle::inline internal {
namespace {

void PrependDim(Dims* dims, int64_t size, int64_t step, bool merge) {
  if (merge) {
    dims->size[0] *= size;
    return;
  }
  for (int i = dims->rank; i > 0; --i) {
    dims->size[i] = dims->size[i - 1];
    dims->step[i] = dims->step[i - 1];
  }
  dims->size[0] = size;
  dims->step[0] = step;
  ++dims->rank;
}

Dims WithoutLast(Dims dims) {
  --dims.rank;
  return dims;
}

}  // namespace

ReduceNest MakeReduceNest(const Shape& in, const bool* reduce) {
  ReduceNest nest;
  int64_t step = 1;
  bool first = true, last_kind = true;
  for (int i = in.rank() - 1; i >= 0; --i) {
    (reduce[i] ? nest.reduced_numel : nest.out_numel) *= in[i];
    if (in[i] == 1) continue;
    if (first) nest.inner_reduced = reduce[i];
    PrependDim(reduce[i] ? &nest.reduced : &nest.kept, in[i], step,
               !first && last_kind == reduce[i]);
    first = false;
    last_kind = reduce[i];
    step *= in[i];
  }
  return nest;
}

FastSumPlan MakeFastSumPlan(const ReduceNest& nest) {
  FastSumPlan p;
  p.nest = nest;
  p.outer_kept = nest.kept;
  p.outer_reduced = nest.reduced;
  Dims& owner = nest.inner_reduced ? p.outer_reduced : p.outer_kept;
  if (owner.rank > 0) {
    p.inner = owner.size[owner.rank - 1];
    owner = WithoutLast(owner);
  }
  p.kept_count = p.outer_kept.numel();
  p.units = p.outer_reduced.numel();
  if (nest.inner_reduced) {
    p.units *= p.inner;
  } else {
    p.tile = std::min(p.inner, kMaxTerms);
    p.tiles = p.tile > 0 ? (p.inner + p.tile - 1) / p.tile : 0;
  }
  const int64_t work = nest.reduced_numel * std::min(nest.out_numel, kMaxTerms);
  // There are too few independent sums for the threads, so each is cut into blocks. Their number
  // depends only on the shape, and so do the bits of the result.
  if (p.kept_count * p.tiles < 16 && work > 65536) {
    p.blocks = std::min({int64_t{64}, p.units, (work + 32767) / 32768});
  }
  if (p.blocks > 1) p.scratch_floats = p.blocks * nest.out_numel;
  return p;
}

}  // namespace coracle::inline internal
