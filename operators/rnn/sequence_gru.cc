#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/kernels/gemm.h>
#include <coracle/operators/rnn/sequence_gru.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

// Rows per task.
int64_t Grain(const GruSpec& spec) { return 1 + 16384 / (3 * spec.hidden + 1); }

template <class T>
size_t Bytes(int64_t columns) {
  return static_cast<size_t>(columns) * sizeof(T);
}

// A row of the input for each of `rows`, or zeros if it is absent.
template <class T>
T* Sorted(Workspace& ws, const TensorArg& given, const int64_t* rows, int64_t count,
          int64_t columns, const TensorArg& to) {
  GatherRowsOrZeros(given ? ws.Data<const T>(given) : nullptr, rows, count, Bytes<T>(columns),
                    ws.Data<T>(to));
  return ws.Data<T>(to);
}

}  // namespace

// --- forward ---

template <class T>
struct GruForward<T>::Run {
  StepBatches batches;
  const T *weight, *first;
  T *gates, *candidates, *resets, *states;
};

template <class T>
GruForward<T>::GruForward(const PrepareContext& ctx, const GruSpec& spec, const GruArgs& args,
                          KernelMode mode)
    : spec_(spec), args_(args), mode_(mode), batches_(ctx, spec.rows, spec.reverse) {
  const auto scratch = [&](int64_t columns) {
    return ctx.Scratch(DTypeOf<T>(), {spec_.rows, columns});
  };
  if (!args_.gates) args_.gates = scratch(3 * spec_.hidden);
  if (!args_.resets) args_.resets = scratch(spec_.hidden);
  if (!args_.states) args_.states = scratch(spec_.hidden);
  first_ = scratch(spec_.hidden);
}

template <class T>
void GruForward<T>::operator()(Workspace& ws, const Sequences& sequences, const T* input) const {
  const int64_t n = spec_.hidden;
  Run run;
  run.batches = batches_.Sort(ws, sequences);
  run.weight = ws.Data<const T>(args_.weight);
  run.gates = ws.Data<T>(args_.gates);
  run.candidates = run.gates + 2 * n * spec_.rows;
  run.resets = ws.Data<T>(args_.resets);
  run.states = ws.Data<T>(args_.states);
  run.first = Sorted<T>(ws, args_.h0, run.batches.sequences, run.batches.Count(), n, first_);
  const T* bias = args_.bias ? ws.Data<const T>(args_.bias) : nullptr;
  ParallelFor(spec_.rows, Grain(spec_), [&](int64_t begin, int64_t end) {
    for (int64_t q = begin; q < end; ++q) {
      const T* x = input + run.batches.rows[q] * 3 * n;
      T *gate = run.gates + q * 2 * n, *candidate = run.candidates + q * n;
      for (int64_t k = 0; k < 2 * n; ++k) gate[k] = bias ? x[k] + bias[k] : x[k];
      for (int64_t k = 0; k < n; ++k)
        candidate[k] = bias ? x[2 * n + k] + bias[2 * n + k] : x[2 * n + k];
    }
  });
  for (int64_t s = 0; s < run.batches.steps; ++s) {
    CheckTimeLimit("running a recurrent op");
    RunStep(run, s);
  }
  ScatterRows(run.states, run.batches.rows, spec_.rows, Bytes<T>(n), ws.Data<T>(args_.out));
}

template <class T>
void GruForward<T>::RunStep(const Run& run, int64_t step) const {
  const int64_t n = spec_.hidden, at = run.batches.Start(step), count = run.batches.Size(step);
  const T* before = step > 0 ? run.states + run.batches.Start(step - 1) * n : run.first;
  T *gates = run.gates + at * 2 * n, *candidates = run.candidates + at * n;
  T *resets = run.resets + at * n, *states = run.states + at * n;
  const GateFunction<T> gate(spec_.gate, mode_), activate(spec_.candidate, mode_);
  const bool has_state = step > 0 || args_.h0;
  if (has_state)
    RunGemm({.m = count, .n = 2 * n, .k = n, .beta = 1.0f}, mode_, before, run.weight, gates);
  ParallelFor(count, Grain(spec_), [&](int64_t begin, int64_t end) {
    gate(gates + begin * 2 * n, (end - begin) * 2 * n);
    for (int64_t q = begin; q < end; ++q) {
      const T *r = gates + q * 2 * n + n, *h = before + q * n;
      for (int64_t k = 0; k < n; ++k) resets[q * n + k] = r[k] * h[k];
    }
  });
  if (has_state)
    RunGemm({.m = count, .n = n, .k = n, .beta = 1.0f}, mode_, static_cast<const T*>(resets),
            run.weight + 2 * n * n, candidates);
  ParallelFor(count, Grain(spec_), [&](int64_t begin, int64_t end) {
    activate(candidates + begin * n, (end - begin) * n);
    for (int64_t q = begin; q < end; ++q) {
      const T *u = gates + q * 2 * n, *h = before + q * n, *c = candidates + q * n;
      T* out = states + q * n;
      if (spec_.origin_mode) {
        for (int64_t k = 0; k < n; ++k) out[k] = u[k] * h[k] + (1 - u[k]) * c[k];
      } else {
        for (int64_t k = 0; k < n; ++k) out[k] = (1 - u[k]) * h[k] + u[k] * c[k];
      }
    }
  });
}

// --- backward ---

template <class T>
struct GruBackward<T>::Run {
  StepBatches batches;
  const T *weight, *gates, *candidates, *resets, *before;
  T *dgates, *dcandidates, *dresets, *dstates, *dfirst;
};

template <class T>
GruBackward<T>::GruBackward(const PrepareContext& ctx, const GruSpec& spec, const GruArgs& args,
                            const GruGradArgs& grads, KernelMode mode)
    : spec_(spec), args_(args), grads_(grads), mode_(mode), batches_(ctx, spec.rows, spec.reverse) {
  const auto scratch = [&](int64_t columns) {
    return ctx.Scratch(DTypeOf<T>(), {spec_.rows, columns});
  };
  dgates_ = scratch(2 * spec_.hidden);
  dcandidates_ = scratch(spec_.hidden);
  dresets_ = scratch(spec_.hidden);
  dstates_ = scratch(spec_.hidden);
  before_ = scratch(spec_.hidden);
  dfirst_ = scratch(spec_.hidden);
}

template <class T>
void GruBackward<T>::operator()(Workspace& ws, const Sequences& sequences) const {
  const int64_t n = spec_.hidden;
  Run run;
  run.batches = batches_.Sort(ws, sequences);
  const StepBatches& batches = run.batches;
  run.weight = ws.Data<const T>(args_.weight);
  run.gates = ws.Data<const T>(args_.gates);
  run.candidates = run.gates + 2 * n * spec_.rows;
  run.resets = ws.Data<const T>(args_.resets);
  run.dgates = ws.Data<T>(dgates_);
  run.dcandidates = ws.Data<T>(dcandidates_);
  run.dresets = ws.Data<T>(dresets_);
  run.dfirst = ws.Data<T>(dfirst_);
  // The previous h of every row, in sorted order.
  T* before = Sorted<T>(ws, args_.h0, batches.sequences, batches.Count(), n, before_);
  for (int64_t s = 1; s < batches.steps; ++s)
    GatherRowsOrZeros(ws.Data<const T>(args_.out), batches.rows + batches.Start(s - 1),
                      batches.Size(s), Bytes<T>(n), before + batches.Start(s) * n);
  run.before = before;
  run.dstates = Sorted<T>(ws, grads_.dout, batches.rows, spec_.rows, n, dstates_);
  std::fill_n(run.dfirst, batches.Count() * n, T(0));
  for (int64_t s = batches.steps - 1; s >= 0; --s) {
    CheckTimeLimit("running the gradient of a recurrent op");
    RunStep(run, s);
  }
  WriteParameters(ws, run);
}

template <class T>
void GruBackward<T>::RunStep(const Run& run, int64_t step) const {
  const int64_t n = spec_.hidden, at = run.batches.Start(step), count = run.batches.Size(step);
  const T *before = run.before + at * n, *gates = run.gates + at * 2 * n;
  const T* candidates = run.candidates + at * n;
  const T* dstates = run.dstates + at * n;
  T *dgates = run.dgates + at * 2 * n, *dcandidates = run.dcandidates + at * n;
  T* dresets = run.dresets + at * n;
  T* dbefore = step > 0 ? run.dstates + run.batches.Start(step - 1) * n : run.dfirst;
  const GateFunction<T> gate(spec_.gate, mode_), activate(spec_.candidate, mode_);
  ParallelFor(count, Grain(spec_), [&](int64_t begin, int64_t end) {
    for (int64_t q = begin; q < end; ++q) {
      const T *u = gates + q * 2 * n, *h = before + q * n, *c = candidates + q * n;
      const T* dh = dstates + q * n;
      T *du = dgates + q * 2 * n, *dc = dcandidates + q * n, *to = dbefore + q * n;
      if (spec_.origin_mode) {
        for (int64_t k = 0; k < n; ++k) {
          du[k] = dh[k] * (h[k] - c[k]);
          dc[k] = dh[k] * (1 - u[k]);
          to[k] += dh[k] * u[k];
        }
      } else {
        for (int64_t k = 0; k < n; ++k) {
          du[k] = dh[k] * (c[k] - h[k]);
          dc[k] = dh[k] * u[k];
          to[k] += dh[k] * (1 - u[k]);
        }
      }
    }
    activate.Backward(candidates + begin * n, dcandidates + begin * n, (end - begin) * n);
  });
  RunGemm({.m = count, .n = n, .k = n, .transpose_b = true}, mode_,
          static_cast<const T*>(dcandidates), run.weight + 2 * n * n, dresets);
  ParallelFor(count, Grain(spec_), [&](int64_t begin, int64_t end) {
    for (int64_t q = begin; q < end; ++q) {
      const T *r = gates + q * 2 * n + n, *h = before + q * n, *d = dresets + q * n;
      T *dr = dgates + q * 2 * n + n, *to = dbefore + q * n;
      for (int64_t k = 0; k < n; ++k) {
        dr[k] = d[k] * h[k];
        to[k] += d[k] * r[k];
      }
    }
    gate.Backward(gates + begin * 2 * n, dgates + begin * 2 * n, (end - begin) * 2 * n);
  });
  if (step > 0 || grads_.dh0)
    RunGemm({.m = count, .n = n, .k = 2 * n, .transpose_b = true, .beta = 1.0f}, mode_,
            static_cast<const T*>(dgates), run.weight, dbefore);
}

template <class T>
void GruBackward<T>::WriteParameters(Workspace& ws, const Run& run) const {
  const int64_t n = spec_.hidden, rows = spec_.rows;
  const T *dgates = run.dgates, *dcandidates = run.dcandidates;
  if (grads_.dinput) {
    T* dinput = ws.Data<T>(grads_.dinput);
    ParallelFor(rows, Grain(spec_), [&](int64_t begin, int64_t end) {
      for (int64_t q = begin; q < end; ++q) {
        T* to = dinput + run.batches.rows[q] * 3 * n;
        std::copy_n(dgates + q * 2 * n, 2 * n, to);
        std::copy_n(dcandidates + q * n, n, to + 2 * n);
      }
    });
  }
  if (grads_.dweight) {
    T* dweight = ws.Data<T>(grads_.dweight);
    RunGemm({.m = n, .n = 2 * n, .k = rows, .transpose_a = true}, mode_, run.before, dgates,
            dweight);
    RunGemm({.m = n, .n = n, .k = rows, .transpose_a = true}, mode_, run.resets, dcandidates,
            dweight + 2 * n * n);
  }
  if (grads_.dbias) {
    T* dbias = ws.Data<T>(grads_.dbias);
    SumOverRows(dgates, rows, 2 * n, dbias);
    SumOverRows(dcandidates, rows, n, dbias + 2 * n);
  }
  if (grads_.dh0) {
    T* dh0 = ws.Data<T>(grads_.dh0);
    std::fill_n(dh0, grads_.dh0.numel, T(0));
    ScatterRows(run.dfirst, run.batches.sequences, run.batches.Count(), Bytes<T>(n), dh0);
  }
}

template class GruForward<float>;
template class GruForward<double>;
template class GruBackward<float>;
template class GruBackward<double>;

}  // namespace coracle::inline internal
