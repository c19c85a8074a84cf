#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/kernels/gemm.h>
#include <coracle/operators/random/drop.h>
#include <coracle/operators/rnn/rnn_kernels.h>
#include <coracle/operators/rules/index.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

// --- shared by both kernels ---

template <class T>
RnnCells<T> CellsFor(RnnMode mode, KernelMode kernels) {
  if constexpr (std::is_same_v<T, float>) {
    if (kernels == KernelMode::kAuto) return SimdRnnCells(mode);
  }
  return ReferenceRnnCells<T>(mode);
}

template <class T>
const T* InputData(Workspace& ws, const TensorArg& arg) {
  return arg ? ws.Data<const T>(arg) : nullptr;
}

template <class T>
T* OutputData(Workspace& ws, const TensorArg& arg) {
  return arg ? ws.Data<T>(arg) : nullptr;
}

template <class T>
void Copy(const T* from, int64_t n, T* to) {
  if (n > 0 && from != to) std::copy_n(from, n, to);
}

// SequenceLength, checked and as int64.
class Lengths {
 public:
  Lengths(const PrepareContext& ctx, const RnnSpec& spec)
      : given_(ctx.Input("SequenceLength")),
        steps_(spec.steps),
        batch_(spec.batch),
        failure_(ctx.Failure("C6")) {
    if (given_) wide_ = ctx.Scratch(DType::kInt64, {batch_});
  }
  // nullptr if all samples have all steps.
  const int64_t* Read(Workspace& ws) const {
    if (!given_) return nullptr;
    const IndexReader in(ws, given_);
    int64_t* out = ws.Data<int64_t>(wide_);
    for (int64_t n = 0; n < batch_; ++n) {
      out[n] = in[n];
      if (out[n] >= 0 && out[n] <= steps_) continue;
      throw Error(ErrorCode::kOutOfRange,
                  fmt::format("{}, got {} at {}, outside [0, {}]", failure_, out[n], n, steps_));
    }
    return out;
  }

 private:
  TensorArg given_, wide_;
  int64_t steps_, batch_;
  std::string failure_;  // for a length out of range
};

// The parameters: for each layer and direction W [G H, I] and U [G H, H], then for each b and b'.
struct Parameters {
  std::vector<TensorArg> args;
  explicit Parameters(std::vector<TensorArg> list) : args(std::move(list)) {}
  const TensorArg& InputWeight(int64_t cell) const { return At(2 * cell); }
  const TensorArg& StateWeight(int64_t cell) const { return At(2 * cell + 1); }
  const TensorArg& InputBias(int64_t cell) const { return At(Half() + 2 * cell); }
  const TensorArg& StateBias(int64_t cell) const { return At(Half() + 2 * cell + 1); }

 private:
  int64_t Half() const { return static_cast<int64_t>(args.size()) / 2; }
  const TensorArg& At(int64_t i) const { return args[static_cast<size_t>(i)]; }
};

// One layer in one direction: its rows in Reserve, and the order of its steps.
template <class T>
struct Direction {
  int64_t layer, direction, cell;
  bool reverse;
  T *gates, *states, *extra;

  Direction(const RnnSpec& spec, const RnnReserve& reserve, T* data, int64_t layer_,
            int64_t direction_)
      : layer(layer_),
        direction(direction_),
        cell(layer_ * spec.directions + direction_),
        reverse(direction_ == 1) {
    const int64_t row = spec.batch * spec.hidden;
    gates = data + reserve.Gates(layer, direction) * row;
    states = data + reserve.States(layer, direction) * row;
    extra = data + reserve.Extra(layer, direction) * row;
  }
  // The time of the s-th step; the indices of the states before and after time t.
  int64_t Time(int64_t s, int64_t steps) const { return reverse ? steps - 1 - s : s; }
  int64_t Before(int64_t t) const { return reverse ? t + 1 : t; }
  int64_t After(int64_t t) const { return reverse ? t : t + 1; }
};

// Samples of a step per task.
int64_t Grain(const RnnSpec& spec) { return 1 + 16384 / (spec.gates() * spec.hidden); }

// --- forward ---

// The source of dropout's random numbers: the run's seed and step and the name of Out; or the attr
// seed if it is not 0, which gives the same masks in every run.
struct DropSource {
  uint64_t seed, stream;
  explicit DropSource(const PrepareContext& ctx)
      : seed(static_cast<uint64_t>(ctx.Attr<int32_t>("seed"))), stream(ctx.RandomStream("Out")) {}
  Philox For(const Workspace& ws, int64_t layer) const {
    const uint64_t own = stream + static_cast<uint64_t>(layer);
    return seed ? Philox(seed, static_cast<uint64_t>(layer), 0) : Philox(ws.seed(), own, ws.step());
  }
};

template <class T>
class Forward {
 public:
  Forward(const PrepareContext& ctx, KernelMode mode)
      : spec_(MakeRnnSpec(ctx, ctx.Input("Input").shape)),
        layout_(spec_, static_cast<bool>(ctx.Output("Reserve"))),
        cells_(CellsFor<T>(spec_.mode, mode)),
        lengths_(ctx, spec_),
        parameters_(ctx.Inputs("WeightList")),
        drop_source_(ctx),
        input_(ctx.Input("Input")),
        pre_states_(ctx.Inputs("PreState")),
        out_(ctx.Output("Out")),
        states_(ctx.Outputs("State")),
        mask_(ctx.Output("DropoutState")),
        reserve_(ctx.Output("Reserve")) {
    const int64_t gates = spec_.gates() * spec_.hidden;
    const bool gru = spec_.mode == RnnMode::kGru;
    if (!reserve_)
      reserve_ = ctx.Scratch(input_.dtype, {layout_.rows(), spec_.batch, spec_.hidden});
    bias_ = ctx.Scratch(input_.dtype, {gates});
    if (gru) recurrent_ = ctx.Scratch(input_.dtype, {spec_.batch, gates});
    // W x of all steps is one large product, since it does not depend on states; only U h is
    // computed step by step. It is added to W x in place (beta 1), except in a GRU, whose reset
    // gate multiplies it first. All layers but the first have the same input size, so two products
    // are enough.
    GemmSpec product{.m = spec_.steps * spec_.batch, .n = gates, .transpose_b = true};
    for (int64_t layer = 0; layer < std::min<int64_t>(spec_.layers, 2); ++layer) {
      product.k = spec_.InputSize(layer);
      input_product_[layer] = MakeGemm<T>(product, mode);
    }
    state_product_ = MakeGemm<T>({.m = spec_.batch,
                                  .n = gates,
                                  .k = spec_.hidden,
                                  .transpose_b = true,
                                  .beta = gru ? 0.0f : 1.0f},
                                 mode);
  }

  void operator()(Workspace& ws) const {
    const int64_t* lengths = lengths_.Read(ws);
    T* reserve = ws.Data<T>(reserve_);
    const T* x = ws.Data<const T>(input_);
    for (int64_t layer = 0; layer < spec_.layers; ++layer) {
      const bool last = layer + 1 == spec_.layers;
      T* out =
          last ? ws.Data<T>(out_) : reserve + layout_.Output(layer) * spec_.batch * spec_.hidden;
      for (int64_t d = 0; d < spec_.directions; ++d)
        RunDirection(ws, Direction<T>(spec_, layout_, reserve, layer, d), x, lengths, out);
      if (!last && spec_.dropout > 0) DropLayer(ws, layer, out);
      x = out;
    }
  }

 private:
  // Adds the two biases of each gate, except for GRU's candidate: its b' is multiplied by the reset
  // gate, r (U h + b'), and cannot be added to b.
  void AddBiases(Workspace& ws, int64_t cell) const {
    const T* b = ws.Data<const T>(parameters_.InputBias(cell));
    const T* b2 = ws.Data<const T>(parameters_.StateBias(cell));
    T* sum = ws.Data<T>(bias_);
    const int64_t both = (spec_.mode == RnnMode::kGru ? 2 : spec_.gates()) * spec_.hidden;
    for (int64_t k = 0; k < bias_.numel; ++k) sum[k] = k < both ? b[k] + b2[k] : b[k];
  }

  // State `i` (0: h, 1: c) of a cell in a PreState or State.
  T* StateOf(Workspace& ws, const std::vector<TensorArg>& list, size_t i, int64_t cell) const {
    T* data = i < list.size() ? OutputData<T>(ws, list[i]) : nullptr;
    return data ? data + cell * spec_.batch * spec_.hidden : nullptr;
  }

  void RunDirection(Workspace& ws, const Direction<T>& d, const T* x, const int64_t* lengths,
                    T* out) const {
    const int64_t row = spec_.batch * spec_.hidden;
    const bool lstm = spec_.mode == RnnMode::kLstm;
    const int64_t first = d.reverse ? spec_.steps : 0, last = d.reverse ? 0 : spec_.steps;
    Copy<T>(StateOf(ws, pre_states_, 0, d.cell), row, d.states + first * row);
    if (lstm) Copy<T>(StateOf(ws, pre_states_, 1, d.cell), row, d.extra + first * row);
    AddBiases(ws, d.cell);
    input_product_[d.layer > 0](x, ws.Data<const T>(parameters_.InputWeight(d.cell)), d.gates);
    for (int64_t s = 0; s < spec_.steps; ++s) RunStep(ws, d, d.Time(s, spec_.steps), lengths, out);
    if (T* h = StateOf(ws, states_, 0, d.cell)) Copy<T>(d.states + last * row, row, h);
    if (T* c = lstm ? StateOf(ws, states_, 1, d.cell) : nullptr)
      Copy<T>(d.extra + last * row, row, c);
  }

  void RunStep(Workspace& ws, const Direction<T>& d, int64_t t, const int64_t* lengths,
               T* out) const {
    const bool gru = spec_.mode == RnnMode::kGru;
    const int64_t row = spec_.batch * spec_.hidden, width = spec_.gates() * spec_.hidden;
    const T* before = d.states + d.Before(t) * row;
    T* gates = d.gates + t * spec_.batch * width;
    T* recurrent = gru ? ws.Data<T>(recurrent_) : nullptr;
    state_product_(before, ws.Data<const T>(parameters_.StateWeight(d.cell)),
                   gru ? recurrent : gates);
    const T* bias = ws.Data<const T>(bias_);
    const T* candidate_bias =
        gru ? ws.Data<const T>(parameters_.StateBias(d.cell)) + 2 * spec_.hidden : nullptr;
    ParallelFor(spec_.batch, Grain(spec_), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const int64_t at = n * spec_.hidden;
        RnnCell<T> c;
        c.hidden = spec_.hidden;
        c.bias = bias;
        c.candidate_bias = candidate_bias;
        c.state = before + at;
        c.gates = gates + n * width;
        c.state_out = d.states + d.After(t) * row + at;
        c.out = out + ((t * spec_.batch + n) * spec_.directions + d.direction) * spec_.hidden;
        if (gru) {
          c.recurrent = recurrent + n * width;
          c.candidate = d.extra + t * row + at;
        } else if (spec_.mode == RnnMode::kLstm) {
          c.cell = d.extra + d.Before(t) * row + at;
          c.cell_out = d.extra + d.After(t) * row + at;
        }
        if (lengths && t >= lengths[n])
          Pass(c);
        else
          cells_.forward(c);
      }
    });
  }

  // A step past the end of a sample: states are unchanged, and the output is 0.
  void Pass(const RnnCell<T>& c) const {
    Copy<T>(c.state, c.hidden, c.state_out);
    if (c.cell) Copy<T>(c.cell, c.hidden, c.cell_out);
    if (c.candidate) std::fill_n(c.candidate, c.hidden, T(0));
    std::fill_n(c.gates, spec_.gates() * c.hidden, T(0));
    std::fill_n(c.out, c.hidden, T(0));
  }

  void DropLayer(Workspace& ws, int64_t layer, T* out) const {
    const int64_t n = spec_.OutputNumel();
    const T scale = spec_.dropout < 1 ? static_cast<T>(1 / (1 - spec_.dropout)) : T(0);
    uint8_t* mask = mask_ ? ws.Data<uint8_t>(mask_) + layer * n : nullptr;
    Drop(drop_source_.For(ws, layer), spec_.dropout, scale, out, out, mask, n);
  }

  RnnSpec spec_;
  RnnReserve layout_;
  RnnCells<T> cells_;
  Lengths lengths_;
  Parameters parameters_;
  DropSource drop_source_;
  TensorArg input_;
  std::vector<TensorArg> pre_states_;
  TensorArg out_;
  std::vector<TensorArg> states_;
  TensorArg mask_, reserve_;
  TensorArg bias_;       // [G H]
  TensorArg recurrent_;  // GRU: U h of one step [N, 3 H]
  Gemm<T> input_product_[2], state_product_;
};

// --- backward ---

// sums[c] = sum of x[r * columns + c] over rows.
template <class T>
void SumRows(const T* x, int64_t rows, int64_t columns, T* sums) {
  ParallelFor(columns, 1 + 16384 / (1 + rows), [&](int64_t begin, int64_t end) {
    std::fill(sums + begin, sums + end, T(0));
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = begin; c < end; ++c) sums[c] += x[r * columns + c];
  });
}

// Initialises the gradient of state `i` of a cell, from State@GRAD or with zeros.
template <class T>
void StartState(Workspace& ws, const std::vector<TensorArg>& dstates, size_t i, int64_t cell,
                const TensorArg& to) {
  T* out = ws.Data<T>(to);
  const T* given = i < dstates.size() ? InputData<T>(ws, dstates[i]) : nullptr;
  if (given)
    Copy<T>(given + cell * to.numel, to.numel, out);
  else
    std::fill_n(out, to.numel, T(0));
}

// A step past the end of a sample passes the gradients of its states on unchanged.
template <class T>
void PassUnchanged(const RnnCellGrad<T>& c, int64_t gates) {
  std::fill_n(c.dgates, gates * c.hidden, T(0));
  if (c.drecurrent) std::fill_n(c.drecurrent, gates * c.hidden, T(0));
}

// Writes the gradients of the biases that are wanted: those of the input and of the state.
template <class T>
void WriteBiases(const T* dgates, const T* drecurrent, int64_t rows, int64_t width, T* db, T* db2) {
  if (db) SumRows(dgates, rows, width, db);
  if (db && db2 && dgates == drecurrent)
    Copy<T>(db, width, db2);
  else if (db2)
    SumRows(drecurrent, rows, width, db2);
}

template <class T>
class Backward {
 public:
  Backward(const PrepareContext& ctx, KernelMode mode)
      : spec_(MakeRnnSpec(ctx, ctx.Input("Input").shape)),
        layout_(spec_, true),
        cells_(CellsFor<T>(spec_.mode, mode)),
        lengths_(ctx, spec_),
        parameters_(ctx.Inputs("WeightList")),
        gradients_(ctx.Outputs("WeightList@GRAD")),
        input_(ctx.Input("Input")),
        reserve_(ctx.Input("Reserve")),
        mask_(ctx.Input("DropoutState")),
        dout_(ctx.Input("Out@GRAD")),
        dstates_(ctx.Inputs("State@GRAD")),
        dinput_(ctx.Output("Input@GRAD")),
        dpre_states_(ctx.Outputs("PreState@GRAD")) {
    gradients_.args.resize(parameters_.args.size());
    const int64_t steps = spec_.steps, batch = spec_.batch, hidden = spec_.hidden;
    const int64_t gates = spec_.gates() * hidden, rows = steps * batch;
    auto scratch = [&](const Shape& shape) { return ctx.Scratch(input_.dtype, shape); };
    dstate_ = scratch({batch, hidden});
    if (spec_.mode == RnnMode::kLstm) dcell_ = scratch({batch, hidden});
    dgates_ = scratch({rows, gates});
    if (spec_.mode == RnnMode::kGru) drecurrent_ = scratch({rows, gates});
    for (int64_t i = 0; i < std::min<int64_t>(spec_.layers - 1, 2); ++i)
      dlayer_[i] = scratch({rows, spec_.directions * hidden});
    // Only the gradients of states need the steps in order. The gradients of weights and inputs are
    // products over all steps at once, computed when the gradients of all gates are known.
    state_product_ = MakeGemm<T>({.m = batch, .n = hidden, .k = gates, .beta = 1.0f}, mode);
    state_weight_ = MakeGemm<T>({.m = gates, .n = hidden, .k = rows, .transpose_a = true}, mode);
    for (int64_t layer = 0; layer < std::min<int64_t>(spec_.layers, 2); ++layer) {
      const int64_t inputs = spec_.InputSize(layer);
      input_weight_[layer] =
          MakeGemm<T>({.m = gates, .n = inputs, .k = rows, .transpose_a = true}, mode);
      for (int64_t d = 0; d < spec_.directions; ++d) {
        const float beta = d == 0 ? 0.0f : 1.0f;
        input_product_[layer][d] =
            MakeGemm<T>({.m = rows, .n = inputs, .k = gates, .beta = beta}, mode);
      }
    }
  }

  void operator()(Workspace& ws) const {
    const int64_t* lengths = lengths_.Read(ws);
    const T* reserve = ws.Data<const T>(reserve_);
    const T* dout = InputData<T>(ws, dout_);
    for (int64_t layer = spec_.layers - 1; layer >= 0; --layer) {
      const T* x = layer == 0 ? ws.Data<const T>(input_)
                              : reserve + layout_.Output(layer - 1) * spec_.batch * spec_.hidden;
      T* dx = layer == 0 ? OutputData<T>(ws, dinput_) : ws.Data<T>(dlayer_[(layer - 1) % 2]);
      for (int64_t d = 0; d < spec_.directions; ++d) {
        const Direction<const T> direction(spec_, layout_, reserve, layer, d);
        RunDirection(ws, direction, x, lengths, dout, dx);
      }
      if (layer > 0 && spec_.dropout > 0) DropLayer(ws, layer - 1, dx);
      dout = dx;
    }
  }

 private:
  void FinishState(Workspace& ws, size_t i, int64_t cell, const TensorArg& from) const {
    T* out = i < dpre_states_.size() ? OutputData<T>(ws, dpre_states_[i]) : nullptr;
    if (out) Copy<T>(ws.Data<const T>(from), from.numel, out + cell * from.numel);
  }

  void RunDirection(Workspace& ws, const Direction<const T>& d, const T* x, const int64_t* lengths,
                    const T* dout, T* dx) const {
    const bool lstm = spec_.mode == RnnMode::kLstm;
    StartState<T>(ws, dstates_, 0, d.cell, dstate_);
    if (lstm) StartState<T>(ws, dstates_, 1, d.cell, dcell_);
    for (int64_t s = spec_.steps - 1; s >= 0; --s)
      RunStep(ws, d, d.Time(s, spec_.steps), lengths, dout);
    FinishState(ws, 0, d.cell, dstate_);
    if (lstm) FinishState(ws, 1, d.cell, dcell_);
    WriteParameters(ws, d, x);
    if (dx) {
      const T* weight = ws.Data<const T>(parameters_.InputWeight(d.cell));
      input_product_[d.layer > 0][d.direction](ws.Data<const T>(dgates_), weight, dx);
    }
  }

  // The gradient of the gates that flows through U; for GRU's candidate, only a part.
  const TensorArg& Recurrent() const { return drecurrent_ ? drecurrent_ : dgates_; }

  void RunStep(Workspace& ws, const Direction<const T>& d, int64_t t, const int64_t* lengths,
               const T* dout) const {
    const int64_t row = spec_.batch * spec_.hidden, width = spec_.gates() * spec_.hidden;
    const int64_t step = t * spec_.batch * width;
    T* dgates = ws.Data<T>(dgates_) + step;
    T* drecurrent = drecurrent_ ? ws.Data<T>(drecurrent_) + step : nullptr;
    T* dstate = ws.Data<T>(dstate_);
    T* dcell = dcell_ ? ws.Data<T>(dcell_) : nullptr;
    ParallelFor(spec_.batch, Grain(spec_), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const int64_t at = n * spec_.hidden;
        RnnCellGrad<T> c;
        c.hidden = spec_.hidden;
        c.gates = d.gates + step + n * width;
        c.state = d.states + d.Before(t) * row + at;
        if (dcell) {
          c.cell = d.extra + d.Before(t) * row + at;
          c.cell_out = d.extra + d.After(t) * row + at;
          c.dcell = dcell + at;
        }
        if (drecurrent) {
          c.candidate = d.extra + t * row + at;
          c.drecurrent = drecurrent + n * width;
        }
        if (dout)
          c.dout = dout + ((t * spec_.batch + n) * spec_.directions + d.direction) * spec_.hidden;
        c.dstate = dstate + at;
        c.dgates = dgates + n * width;
        if (lengths && t >= lengths[n])
          PassUnchanged(c, spec_.gates());
        else
          cells_.backward(c);
      }
    });
    state_product_(drecurrent ? drecurrent : dgates,
                   ws.Data<const T>(parameters_.StateWeight(d.cell)), dstate);
  }

  void WriteParameters(Workspace& ws, const Direction<const T>& d, const T* x) const {
    const int64_t rows = spec_.steps * spec_.batch, width = spec_.gates() * spec_.hidden;
    const T* dgates = ws.Data<const T>(dgates_);
    const T* drecurrent = ws.Data<const T>(Recurrent());
    if (const TensorArg& dw = gradients_.InputWeight(d.cell))
      input_weight_[d.layer > 0](dgates, x, ws.Data<T>(dw));
    if (const TensorArg& du = gradients_.StateWeight(d.cell)) {
      const T* before = d.states + d.Before(0) * spec_.batch * spec_.hidden;
      state_weight_(drecurrent, before, ws.Data<T>(du));
    }
    WriteBiases(dgates, drecurrent, rows, width, OutputData<T>(ws, gradients_.InputBias(d.cell)),
                OutputData<T>(ws, gradients_.StateBias(d.cell)));
  }

  void DropLayer(Workspace& ws, int64_t layer, T* dx) const {
    const int64_t n = spec_.OutputNumel();
    const T scale = spec_.dropout < 1 ? static_cast<T>(1 / (1 - spec_.dropout)) : T(0);
    DropGrad(ws.Data<const uint8_t>(mask_) + layer * n, scale, dx, dx, n);
  }

  RnnSpec spec_;
  RnnReserve layout_;
  RnnCells<T> cells_;
  Lengths lengths_;
  Parameters parameters_, gradients_;
  TensorArg input_, reserve_, mask_, dout_;
  std::vector<TensorArg> dstates_;
  TensorArg dinput_;
  std::vector<TensorArg> dpre_states_;
  TensorArg dstate_, dcell_;       // of the states after the following step [N, H]
  TensorArg dgates_, drecurrent_;  // of all steps [T N, G H]
  TensorArg dlayer_[2];            // of the outputs of all layers but the last, alternating
  Gemm<T> state_product_, state_weight_, input_weight_[2], input_product_[2][2];
};

}  // namespace

RnnMode RnnModeOf(const std::string& name) {
  if (name == "LSTM") return RnnMode::kLstm;
  if (name == "GRU") return RnnMode::kGru;
  return name == "RNN_RELU" ? RnnMode::kRelu : RnnMode::kTanh;
}

RnnReserve::RnnReserve(const RnnSpec& spec, bool keep)
    : keep_(keep),
      directions_(spec.directions),
      gate_rows_(spec.gates() * spec.steps),
      state_rows_(spec.steps + 1),
      output_rows_(spec.directions * spec.steps),
      num_outputs_(keep ? spec.layers - 1 : std::min<int64_t>(spec.layers - 1, 2)) {
  const int64_t extra = spec.mode == RnnMode::kLstm  ? spec.steps + 1
                        : spec.mode == RnnMode::kGru ? spec.steps
                                                     : 0;
  cell_rows_ = gate_rows_ + state_rows_ + extra;
  outputs_ = (keep ? spec.layers : 1) * spec.directions * cell_rows_;
}

template <class T>
Kernel RnnForward(const PrepareContext& ctx, KernelMode mode) {
  return Forward<T>(ctx, mode);
}
template <class T>
Kernel RnnBackward(const PrepareContext& ctx, KernelMode mode) {
  return Backward<T>(ctx, mode);
}

template Kernel RnnForward<float>(const PrepareContext&, KernelMode);
template Kernel RnnForward<double>(const PrepareContext&, KernelMode);
template Kernel RnnBackward<float>(const PrepareContext&, KernelMode);
template Kernel RnnBackward<double>(const PrepareContext&, KernelMode);

}  // namespace coracle::inline internal
