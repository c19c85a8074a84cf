#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/kernels/gemm.h>
#include <coracle/operators/rnn/rnn_cell.h>
#include <coracle/operators/rnn/sequence_lstm.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace coracle::inline internal {
namespace {

// Rows per task.
int64_t Grain(const LstmSpec& spec) { return 1 + 16384 / (4 * spec.hidden + 1); }

template <class T>
const T* Peepholes(const LstmSpec& spec, const T* bias) {
  return spec.peepholes ? bias + 4 * spec.hidden : nullptr;
}

template <class T>
void ClipRow(T* x, int64_t n, double limit) {
  const T most = static_cast<T>(limit);
  if (limit > 0) {
    for (int64_t k = 0; k < n; ++k) x[k] = std::clamp(x[k], -most, most);
  }
}

// No gradient flows where x was clipped.
template <class T>
void ClipGrad(const T* x, T* dx, int64_t n, double limit) {
  const T most = static_cast<T>(limit);
  if (limit > 0) {
    for (int64_t k = 0; k < n; ++k) dx[k] = std::abs(x[k]) >= most ? T(0) : dx[k];
  }
}

// The cell of one row of one step.
template <class T>
struct Cell {
  const LstmSpec& spec;
  const T* bias;  // [4 D], or null
  const T* p;     // peepholes, or null
  GateFunction<T> gate, cell, candidate;
  LstmRows rows{};  // a single pass, if there is one for these activations

  Cell(const LstmSpec& s, const T* all_bias, KernelMode mode)
      : spec(s),
        bias(all_bias),
        p(Peepholes(s, all_bias)),
        gate(s.gate, mode),
        cell(s.cell, mode),
        candidate(s.candidate, mode) {
    const bool usual = s.gate == GateActivation::kSigmoid && s.cell == GateActivation::kTanh &&
                       s.candidate == GateActivation::kTanh && s.cell_clip == 0;
    if (usual && mode == KernelMode::kAuto && std::is_same_v<T, float>) rows = SimdLstmRows();
  }

  // z: the gates without bias, replaced by the activated ones; `before`: c.
  void Forward(T* z, const T* before, T* c, T* h) const {
    const int64_t n = spec.hidden;
    if constexpr (std::is_same_v<T, float>) {
      if (rows.forward) return rows.forward({n, bias, p, before, z, c, h});
    }
    T *i = z + n, *f = z + 2 * n, *o = z + 3 * n;
    for (int64_t k = 0; bias && k < 4 * n; ++k) z[k] += bias[k];
    for (int64_t k = 0; p && k < n; ++k) {
      i[k] += p[k] * before[k];
      f[k] += p[n + k] * before[k];
    }
    candidate(z, n);
    gate(i, 2 * n);
    for (int64_t k = 0; k < n; ++k) c[k] = f[k] * before[k] + i[k] * z[k];
    ClipRow(c, n, spec.cell_clip);
    for (int64_t k = 0; p && k < n; ++k) o[k] += p[2 * n + k] * c[k];
    gate(o, n);
    std::copy_n(c, n, h);
    cell(h, n);
    for (int64_t k = 0; k < n; ++k) h[k] *= o[k];
  }

  // z: the activated gates; dc: the gradient of c', afterwards undefined (the loops here overwrite
  // it, SimdLstmRows does not). Writes dz, and adds the gradient of c to dbefore.
  void Backward(const T* z, const T* before, const T* c, const T* dh, T* dc, T* dz,
                T* dbefore) const {
    const int64_t n = spec.hidden;
    if constexpr (std::is_same_v<T, float>) {
      if (rows.backward) return rows.backward({n, p, z, before, c, dh, dc, dz, dbefore});
    }
    const T *g = z, *i = z + n, *f = z + 2 * n, *o = z + 3 * n;
    T *dg = dz, *di = dz + n, *df = dz + 2 * n, *d_o = dz + 3 * n;
    // d_o temporarily holds cell(c'), and dg holds dh o.
    std::copy_n(c, n, d_o);
    cell(d_o, n);
    for (int64_t k = 0; k < n; ++k) dg[k] = dh[k] * o[k];
    cell.Backward(d_o, dg, n);
    for (int64_t k = 0; k < n; ++k) {
      dc[k] += dg[k];
      d_o[k] *= dh[k];
    }
    gate.Backward(o, d_o, n);
    for (int64_t k = 0; p && k < n; ++k) dc[k] += d_o[k] * p[2 * n + k];
    ClipGrad(c, dc, n, spec.cell_clip);
    for (int64_t k = 0; k < n; ++k) {
      dg[k] = dc[k] * i[k];
      di[k] = dc[k] * g[k];
      df[k] = dc[k] * before[k];
    }
    candidate.Backward(g, dg, n);
    gate.Backward(i, di, 2 * n);
    for (int64_t k = 0; k < n; ++k) dbefore[k] += dc[k] * f[k];
    for (int64_t k = 0; p && k < n; ++k) dbefore[k] += di[k] * p[k] + df[k] * p[n + k];
  }
};

template <class T>
const T* DataOrNull(Workspace& ws, const TensorArg& arg) {
  return arg ? ws.Data<const T>(arg) : nullptr;
}

// The rows of H0 or C0 of the sorted sequences, or zeros.
template <class T>
const T* FirstState(Workspace& ws, const TensorArg& given, const StepBatches& batches,
                    int64_t columns, const TensorArg& to) {
  GatherRowsOrZeros(DataOrNull<T>(ws, given), batches.sequences, batches.Count(),
                    static_cast<size_t>(columns) * sizeof(T), ws.Data<T>(to));
  return ws.Data<const T>(to);
}

}  // namespace

LstmSpec LstmSpecOf(const PrepareContext& ctx, int64_t rows, const TensorArg& weight) {
  const auto activation = [&](const char* attr) {
    return GateActivationOf(ctx.Attr<std::string>(attr));
  };
  LstmSpec spec;
  spec.rows = rows;
  spec.hidden = weight.shape[1] / 4;
  spec.width = weight.shape[0];
  spec.peepholes = ctx.Attr<bool>("use_peepholes");
  spec.reverse = ctx.Attr<bool>("is_reverse");
  spec.gate = activation("gate_activation");
  spec.cell = activation("cell_activation");
  spec.candidate = activation("candidate_activation");
  spec.projection = GateActivation::kIdentity;
  if (!ctx.spec().FindAttr("proj_activation")) return spec;
  spec.projected = true;
  spec.projection = activation("proj_activation");
  spec.cell_clip = static_cast<double>(ctx.Attr<float>("cell_clip"));
  spec.projection_clip = static_cast<double>(ctx.Attr<float>("proj_clip"));
  return spec;
}

// --- forward ---

template <class T>
struct LstmForward<T>::Step {
  int64_t count;
  const T *bias, *before;  // before: c
  T *gates, *cells, *hiddens;
};

template <class T>
LstmForward<T>::LstmForward(const PrepareContext& ctx, const LstmSpec& spec, const LstmArgs& args,
                            KernelMode mode)
    : spec_(spec), args_(args), mode_(mode), batches_(ctx, spec.rows, spec.reverse) {
  const auto scratch = [&](int64_t columns) {
    return ctx.Scratch(DTypeOf<T>(), {spec_.rows, columns});
  };
  if (!args_.gates) args_.gates = scratch(4 * spec_.hidden);
  if (!args_.cells) args_.cells = scratch(spec_.hidden);
  states_ = scratch(spec_.width);
  if (!args_.hiddens) args_.hiddens = spec_.projected ? scratch(spec_.hidden) : states_;
  first_h_ = scratch(spec_.width);
  first_c_ = scratch(spec_.hidden);
}

template <class T>
void LstmForward<T>::RunCells(const Step& step) const {
  const int64_t n = spec_.hidden;
  const Cell<T> cell(spec_, step.bias, mode_);
  ParallelFor(step.count, Grain(spec_), [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k)
      cell.Forward(step.gates + 4 * k * n, step.before + k * n, step.cells + k * n,
                   step.hiddens + k * n);
  });
}

template <class T>
void LstmForward<T>::operator()(Workspace& ws, const Sequences& sequences, const T* input) const {
  const int64_t n = spec_.hidden, width = spec_.width;
  const StepBatches batches = batches_.Sort(ws, sequences);
  T *gates = ws.Data<T>(args_.gates), *cells = ws.Data<T>(args_.cells);
  T *hiddens = ws.Data<T>(args_.hiddens), *states = ws.Data<T>(states_);
  const T* weight = ws.Data<const T>(args_.weight);
  const GateFunction<T> activate(spec_.projection, mode_);
  const T* h = FirstState<T>(ws, args_.h0, batches, width, first_h_);
  const T* c = FirstState<T>(ws, args_.c0, batches, n, first_c_);
  GatherRowsOrZeros(input, batches.rows, spec_.rows, static_cast<size_t>(4 * n) * sizeof(T), gates);
  for (int64_t s = 0; s < batches.steps; ++s) {
    CheckTimeLimit("running a recurrent op");
    const int64_t at = batches.Start(s), count = batches.Size(s);
    if (s > 0 || args_.h0)
      RunGemm({.m = count, .n = 4 * n, .k = width, .beta = 1.0f}, mode_, h, weight,
              gates + at * 4 * n);
    RunCells({count, args_.bias ? ws.Data<const T>(args_.bias) : nullptr, c, gates + at * 4 * n,
              cells + at * n, hiddens + at * n});
    if (spec_.projected) {
      T* r = states + at * width;
      RunGemm({.m = count, .n = width, .k = n}, mode_, hiddens + at * n,
              ws.Data<const T>(args_.projection), r);
      activate(r, count * width);
      ClipRow(r, count * width, spec_.projection_clip);
    }
    h = states + at * width;
    c = cells + at * n;
  }
  const auto scatter = [&](const T* from, int64_t columns, const TensorArg& to) {
    if (to)
      ScatterRows(from, batches.rows, spec_.rows, static_cast<size_t>(columns) * sizeof(T),
                  ws.Data<T>(to));
  };
  scatter(states, width, args_.out);
  scatter(cells, n, args_.cell);
}

// --- backward ---

template <class T>
struct LstmBackward<T>::Run {
  StepBatches batches;
  const T *weight, *projection, *bias, *gates, *cells, *hiddens, *states, *first_c;
  T *dgates, *dcells, *dstates, *dhiddens, *dfirst_h, *dfirst_c;

  // Rows of c before a step.
  const T* CellsBefore(int64_t step, int64_t columns) const {
    return step > 0 ? cells + batches.Start(step - 1) * columns : first_c;
  }
};

template <class T>
LstmBackward<T>::LstmBackward(const PrepareContext& ctx, const LstmSpec& spec, const LstmArgs& args,
                              const LstmGradArgs& grads, KernelMode mode)
    : spec_(spec), args_(args), grads_(grads), mode_(mode), batches_(ctx, spec.rows, spec.reverse) {
  const auto scratch = [&](int64_t columns) {
    return ctx.Scratch(DTypeOf<T>(), {spec_.rows, columns});
  };
  dgates_ = scratch(4 * spec_.hidden);
  dcells_ = scratch(spec_.hidden);
  dstates_ = scratch(spec_.width);
  dhiddens_ = spec_.projected ? scratch(spec_.hidden) : dstates_;
  before_ = scratch(spec_.width);
  first_h_ = scratch(spec_.width);
  first_c_ = scratch(spec_.hidden);
  dfirst_h_ = scratch(spec_.width);
  dfirst_c_ = scratch(spec_.hidden);
}

template <class T>
void LstmBackward<T>::operator()(Workspace& ws, const Sequences& sequences) const {
  const int64_t n = spec_.hidden, width = spec_.width;
  Run run;
  run.batches = batches_.Sort(ws, sequences);
  const StepBatches& batches = run.batches;
  run.weight = ws.Data<const T>(args_.weight);
  run.projection = spec_.projected ? ws.Data<const T>(args_.projection) : nullptr;
  run.bias = ws.Data<const T>(args_.bias);
  run.gates = ws.Data<const T>(args_.gates);
  run.cells = ws.Data<const T>(args_.cells);
  run.hiddens = spec_.projected ? ws.Data<const T>(args_.hiddens) : nullptr;
  run.dgates = ws.Data<T>(dgates_);
  run.dcells = ws.Data<T>(dcells_);
  run.dstates = ws.Data<T>(dstates_);
  run.dhiddens = ws.Data<T>(dhiddens_);
  run.dfirst_h = ws.Data<T>(dfirst_h_);
  run.dfirst_c = ws.Data<T>(dfirst_c_);
  run.first_c = FirstState<T>(ws, args_.c0, batches, n, first_c_);
  // The previous r of every row, in sorted order; the rows of a step begin where the step begins.
  T* before = ws.Data<T>(before_);
  const size_t row_bytes = static_cast<size_t>(width) * sizeof(T);
  std::copy_n(FirstState<T>(ws, args_.h0, batches, width, first_h_), batches.Count() * width,
              before);
  const T* out = ws.Data<const T>(args_.out);
  for (int64_t s = 1; s < batches.steps; ++s)
    GatherRowsOrZeros(out, batches.rows + batches.Start(s - 1), batches.Size(s), row_bytes,
                      before + batches.Start(s) * width);
  GatherRowsOrZeros(DataOrNull<T>(ws, grads_.dout), batches.rows, spec_.rows, row_bytes,
                    run.dstates);
  GatherRowsOrZeros(DataOrNull<T>(ws, grads_.dcell), batches.rows, spec_.rows,
                    static_cast<size_t>(n) * sizeof(T), run.dcells);
  std::fill_n(run.dfirst_c, batches.Count() * n, T(0));
  run.states = out;
  for (int64_t s = batches.steps - 1; s >= 0; --s) {
    CheckTimeLimit("running the gradient of a recurrent op");
    RunStep(run, s);
  }
  WriteParameters(ws, run);
}

template <class T>
void LstmBackward<T>::RunStep(const Run& run, int64_t step) const {
  const int64_t n = spec_.hidden, width = spec_.width;
  const int64_t at = run.batches.Start(step), count = run.batches.Size(step);
  T *dstates = run.dstates + at * width, *dhiddens = run.dhiddens + at * n;
  if (spec_.projected) {
    const GateFunction<T> activate(spec_.projection, mode_);
    for (int64_t k = 0; k < count; ++k) {
      const T* r = run.states + run.batches.rows[at + k] * width;
      ClipGrad(r, dstates + k * width, width, spec_.projection_clip);
      activate.Backward(r, dstates + k * width, width);
    }
    RunGemm({.m = count, .n = n, .k = width, .transpose_b = true}, mode_, dstates, run.projection,
            dhiddens);
  }
  const Cell<T> cell(spec_, run.bias, mode_);
  const T *gates = run.gates + 4 * at * n, *cells = run.cells + at * n;
  const T* before = run.CellsBefore(step, n);
  T *dgates = run.dgates + 4 * at * n, *dcells = run.dcells + at * n;
  T* dbefore = step > 0 ? run.dcells + run.batches.Start(step - 1) * n : run.dfirst_c;
  ParallelFor(count, Grain(spec_), [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k)
      cell.Backward(gates + 4 * k * n, before + k * n, cells + k * n, dhiddens + k * n,
                    dcells + k * n, dgates + 4 * k * n, dbefore + k * n);
  });
  if (step == 0 && !grads_.dh0) return;
  RunGemm({.m = count, .n = width, .k = 4 * n, .transpose_b = true, .beta = step > 0 ? 1.0f : 0.0f},
          mode_, dgates, run.weight,
          step > 0 ? run.dstates + run.batches.Start(step - 1) * width : run.dfirst_h);
}

template <class T>
void LstmBackward<T>::WriteParameters(Workspace& ws, const Run& run) const {
  const int64_t n = spec_.hidden, width = spec_.width, rows = spec_.rows;
  const StepBatches& batches = run.batches;
  if (grads_.dinput)
    ScatterRows(run.dgates, batches.rows, rows, static_cast<size_t>(4 * n) * sizeof(T),
                ws.Data<T>(grads_.dinput));
  if (grads_.dweight)
    RunGemm({.m = width, .n = 4 * n, .k = rows, .transpose_a = true}, mode_,
            ws.Data<const T>(before_), static_cast<const T*>(run.dgates),
            ws.Data<T>(grads_.dweight));
  if (grads_.dprojection)
    RunGemm({.m = n, .n = width, .k = rows, .transpose_a = true}, mode_, run.hiddens,
            static_cast<const T*>(run.dstates), ws.Data<T>(grads_.dprojection));
  if (grads_.dbias) {
    T* dbias = ws.Data<T>(grads_.dbias);
    SumOverRows<T>(run.dgates, rows, 4 * n, dbias);
    ParallelFor(spec_.peepholes ? 3 * n : 0, 1 + 16384 / (1 + rows), [&](int64_t b, int64_t e) {
      for (int64_t j = b; j < e; ++j) {
        // p_o is multiplied by the new cell, the other peepholes by the previous one.
        const int64_t gate = j / n, k = j % n;
        double sum = 0;
        for (int64_t s = 0; s < batches.steps; ++s) {
          const int64_t at = batches.Start(s);
          const T* cells = (gate == 2 ? run.cells + at * n : run.CellsBefore(s, n)) + k;
          const T* dz = run.dgates + (4 * at + gate + 1) * n + k;
          for (int64_t r = 0; r < batches.Size(s); ++r)
            sum += static_cast<double>(dz[4 * r * n]) * static_cast<double>(cells[r * n]);
        }
        dbias[4 * n + j] = static_cast<T>(sum);
      }
    });
  }
  const auto first = [&](const T* from, int64_t columns, const TensorArg& to) {
    if (!to) return;
    std::fill_n(ws.Data<T>(to), to.numel, T(0));
    ScatterRows(from, batches.sequences, batches.Count(), static_cast<size_t>(columns) * sizeof(T),
                ws.Data<T>(to));
  };
  first(run.dfirst_h, width, grads_.dh0);
  first(run.dfirst_c, n, grads_.dc0);
}

template class LstmForward<float>;
template class LstmForward<double>;
template class LstmBackward<float>;
template class LstmBackward<double>;

}  // namespace coracle::inline internal
