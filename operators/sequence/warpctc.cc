// warpctc: connectionist temporal classification (Graves et al., 2006): the negative logarithm of
// the probability that frames spell a label, with any blanks and repetitions between its symbols.

#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/softmax.h>
#include <coracle/operators/rules/rows.h>
#include <coracle/operators/sequence/log_sum.h>
#include <coracle/operators/sequence/parts.h>
#include <coracle/operators/sequence/sequence_batch.h>
#include <coracle/operators/sequence/sequence_simd.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace coracle::warpctc_op {

constexpr double kNever = -std::numeric_limits<double>::infinity();

// log(exp(a) + exp(b))
double LogAdd(double a, double b) {
  const double high = std::max(a, b), low = std::min(a, b);
  return low == kNever ? high : high + std::log1p(std::exp(low - high));
}

// The label with a blank before, between and after its symbols: state 2 k + 1 is symbol k.
class States {
 public:
  States(const IndexReader& labels, int64_t begin, int64_t length, int64_t blank)
      : labels_(labels), begin_(begin), blank_(blank), size_(2 * length + 1) {}
  int64_t size() const { return size_; }
  int64_t blank() const { return blank_; }
  int64_t symbol(int64_t s) const { return s % 2 == 0 ? blank_ : labels_[begin_ + s / 2]; }
  // Whether a path may go from state s - 2 to s, skipping a blank between different symbols.
  bool Skips(int64_t s) const { return s % 2 == 1 && s > 1 && symbol(s) != symbol(s - 2); }
  // The smallest number of frames of a path: equal neighbours need a blank between them.
  int64_t FewestFrames() const {
    int64_t frames = size_ / 2;
    for (int64_t s = 3; s < size_; s += 2) frames += !Skips(s);
    return frames;
  }

 private:
  const IndexReader& labels_;
  int64_t begin_, blank_, size_;
};

// The frames of one sequence, `step` elements apart.
template <class T>
struct Frames {
  const T* logits;
  int64_t count, step, classes;
  const double* log_sums;  // of each frame
  double LogOf(int64_t t, int64_t symbol) const {
    return static_cast<double>(logits[t * step + symbol]) - log_sums[t];
  }
};

// alpha[t, s] = the log-probability that frames 0 to t take a path that ends in state s. Returns
// the log-probability of all whole paths.
template <class T>
double Forward(const Frames<T>& x, const States& states, double* alpha) {
  const int64_t n = states.size();
  for (int64_t t = 0; t < x.count; ++t) {
    double* now = alpha + t * n;
    const double* before = now - n;
    for (int64_t s = 0; s < n; ++s) {
      double sum = s < 2 ? 0 : kNever;
      if (t > 0) {
        sum = before[s];
        if (s > 0) sum = LogAdd(sum, before[s - 1]);
        if (states.Skips(s)) sum = LogAdd(sum, before[s - 2]);
      }
      now[s] = sum == kNever ? kNever : sum + x.LogOf(t, states.symbol(s));
    }
  }
  const double* last = alpha + (x.count - 1) * n;
  return n > 1 ? LogAdd(last[n - 1], last[n - 2]) : last[0];
}

// grad[t, v] = softmax[t, v] - the share of paths that are at symbol v in frame t. `beta` and
// `next` have an element for each state: the log-probability of the paths after frame t.
template <class T>
void Backward(const Frames<T>& x, const States& states, const double* alpha, double total,
              double* beta, double* next, T* grad, int64_t grad_step) {
  const int64_t n = states.size();
  for (int64_t t = x.count - 1; t >= 0; --t, std::swap(beta, next)) {
    T* row = grad + t * grad_step;
    for (int64_t v = 0; v < x.classes; ++v) row[v] = static_cast<T>(std::exp(x.LogOf(t, v)));
    for (int64_t s = 0; s < n; ++s) {
      // next[s] is for frame t + 1 and includes the probability of that frame.
      double sum = s + 2 < n ? kNever : 0;
      if (t + 1 < x.count) {
        sum = next[s];
        if (s + 1 < n) sum = LogAdd(sum, next[s + 1]);
        if (s + 2 < n && states.Skips(s + 2)) sum = LogAdd(sum, next[s + 2]);
      }
      const int64_t symbol = states.symbol(s);
      const double share = alpha[t * n + s] + sum - total;
      if (share > kNever) row[symbol] -= static_cast<T>(std::exp(share));
      beta[s] = sum == kNever ? kNever : sum + x.LogOf(t, symbol);
    }
  }
}

// Sequences of Logits: rows of a LoD tensor, or [time, batch, classes].
int64_t InferSequences(const InferContext& ctx) {
  const VarMeta& logits = ctx.Input("Logits");
  const bool padded = ctx.HasInput("LogitsLength");
  ctx.Require("C1", logits.shape.rank() == (padded ? 3 : 2), logits);
  if (!padded) return CountSequences(ctx, "C2", "Logits", "LogitsLength");
  const VarMeta& length = ctx.Input("LogitsLength");
  const int rank = length.shape.rank();
  const bool list = rank == 1 || (rank == 2 && InferContext::Matches(length.shape[1], 1));
  ctx.Require(
      "C2",
      IsIndexType(length.dtype) && list && InferContext::Matches(length.shape[0], logits.shape[1]),
      "Logits", logits, "LogitsLength", length);
  return logits.shape[1];
}

void InferCtc(InferContext& ctx) {
  const VarMeta &logits = ctx.Input("Logits"), &label = ctx.Input("Label");
  const int64_t count = InferSequences(ctx);
  const int64_t classes = logits.shape[logits.shape.rank() - 1];
  const int64_t labels = CountSequences(ctx, "C3", "Label", "LabelLength");
  const bool padded = ctx.HasInput("LabelLength");
  ctx.Require("C3",
              IsIndexType(label.dtype) && InferContext::Matches(count, labels) &&
                  padded == ctx.HasInput("LogitsLength"),
              "Label", label, "Logits", logits);
  const Shape& shape = label.shape;
  const int own = padded ? 2 : 1;
  ctx.Require(
      "C3",
      shape.rank() == own || (shape.rank() == own + 1 && InferContext::Matches(shape[own], 1)),
      "Label", label);
  const int64_t blank = ctx.Attr<int32_t>("blank");
  ctx.Require("C4", blank >= 0 && (classes < 0 || blank < classes), "blank", blank, "classes",
              classes);
  ctx.SetOutput("WarpCTCGrad", logits.dtype, {padded ? logits.shape[0] : -1, count, classes});
  ctx.SetOutput("Loss", logits.dtype, {count, 1});
}

// One sequence of a run: its frames and label, and its results.
template <class T>
struct Task {
  const T* logits;
  int64_t frames, step, classes;
  States states;
  T* loss;
  T* grad;  // null if not wanted
  int64_t grad_step;
};

// Doubles needed for a sequence with these numbers of frames and states.
int64_t RoomOf(int64_t frames, int64_t states) {
  return CheckedAdd(CheckedMul(frames, states), CheckedAdd(2 * states, frames));
}

// Sets the results for frames without probabilities: a score is nan or +inf, or all scores of a
// frame are -inf.
template <class T>
void SetUnknown(const Task<T>& x) {
  constexpr T kNan = std::numeric_limits<T>::quiet_NaN();
  *x.loss = kNan;
  for (int64_t t = 0; x.grad && t < x.frames; ++t)
    std::fill_n(x.grad + t * x.grad_step, x.classes, kNan);
}

template <class T>
void RunCtc(const Task<T>& x, double* room) {
  const int64_t n = x.states.size();
  double *alpha = room, *beta = alpha + x.frames * n, *log_sums = beta + 2 * n;
  bool finite = true;
  for (int64_t t = 0; t < x.frames; ++t) {
    const T* frame = x.logits + t * x.step;
    log_sums[t] = LogSum(x.classes, [=](int64_t v) { return static_cast<double>(frame[v]); });
    finite = finite && std::isfinite(log_sums[t]);
  }
  if (!finite) return SetUnknown(x);
  const Frames<T> frames{x.logits, x.frames, x.step, x.classes, log_sums};
  const double total = Forward(frames, x.states, alpha);
  *x.loss = static_cast<T>(-total);
  if (x.grad) Backward(frames, x.states, alpha, total, beta, beta + n, x.grad, x.grad_step);
}

// The same for vectors of states, which need padding and one more row; the symbols and a frame
// follow the doubles.
int64_t FastRoomOf(int64_t frames, int64_t symbols, int64_t classes) {
  const int64_t states = CheckedMul(CheckedAdd(frames, 4), CtcRowSize(symbols));
  return CheckedAdd(CheckedAdd(states, frames), CheckedAdd(symbols, classes));
}

void RunCtcFast(const Task<float>& x, double* room) {
  const int64_t symbols = x.states.size() / 2, row = CtcRowSize(symbols);
  double *alpha = room, *rows = alpha + (x.frames + 1) * row, *log_sums = rows + 3 * row;
  auto* label = reinterpret_cast<int64_t*>(log_sums + x.frames);
  auto* scratch = reinterpret_cast<float*>(label + symbols);
  bool finite = true;
  for (int64_t t = 0; t < x.frames; ++t) {
    const auto stats =
        SoftmaxRow(x.logits + t * x.step, x.grad ? x.grad + t * x.grad_step : scratch, x.classes);
    log_sums[t] = static_cast<double>(stats.max) + std::log(static_cast<double>(stats.sum));
    finite = finite && std::isfinite(log_sums[t]);
  }
  if (!finite) return SetUnknown(x);
  for (int64_t k = 0; k < symbols; ++k) label[k] = x.states.symbol(2 * k + 1);
  const CtcSequence sequence{x.logits, x.frames, x.step,          log_sums,
                             label,    symbols,  x.states.blank()};
  const double total = CtcForward(sequence, alpha, rows);
  const bool possible = total > kCtcNever / 2;
  *x.loss = possible ? static_cast<float>(-total) : std::numeric_limits<float>::infinity();
  if (x.grad && possible) CtcBackward(sequence, alpha, total, rows, x.grad, x.grad_step);
}

template <class T>
KernelOf<T> Ctc(const PrepareContext& ctx, KernelMode mode) {
  const TensorArg logits = ctx.Input("Logits"), label = ctx.Input("Label");
  const TensorArg loss = ctx.Output("Loss"), grad = ctx.Output("WarpCTCGrad");
  const SequenceBatch frames(ctx, "Logits", "LogitsLength", "C2", 0);
  const SequenceBatch labels(ctx, "Label", "LabelLength", "C3");
  const RunConstraint paired(ctx, "C3"), known(ctx, "C5");
  const TensorArg memory = ctx.ScratchArray();
  const int64_t blank = ctx.Attr<int32_t>("blank");
  const int64_t classes = logits.shape[logits.shape.rank() - 1];
  const bool fast = mode == KernelMode::kAuto;
  return [=](Workspace& ws) {
    const BatchRows x = frames(ws), y = labels(ws);
    const int64_t count = x.count();
    paired.Require(y.count() == count, "Logits", count, "Label", y.count());
    const IndexReader symbols(ws, label);
    int64_t most = 0;  // doubles needed by the largest sequence
    double work = 0;
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t k = 0; k < y.length(i); ++k) {
        const int64_t symbol = symbols[y.begin(i) + k];
        known.Require(symbol >= 0 && symbol < classes && symbol != blank, "label", symbol,
                      "classes", classes, "blank", blank);
      }
      if (x.length(i) < y.length(i)) continue;  // too few frames for any path
      const int64_t room = fast ? FastRoomOf(x.length(i), y.length(i), classes)
                                : RoomOf(x.length(i), 2 * y.length(i) + 1);
      most = std::max(most, room);
      work += static_cast<double>(room);
    }
    T* to = nullptr;
    const int64_t steps = frames.padded() ? logits.shape[0] : x.longest();
    if (grad)
      to = static_cast<T*>(ResizeOutput(ws, grad, logits.dtype, {steps, count, classes}).raw());
    const int64_t parts = fast ? PartsOf(count, work) : 1;
    auto& scratch = std::get<TensorArray>(ws.ValueOf(memory));
    auto* rooms = scratch.Write(0, DType::kFloat64, {CheckedMul(parts, most)}).data<double>();
    ForEachItem(count, parts, [&](int64_t i, int64_t part) {
      CheckTimeLimit("computing a CTC loss");
      const int64_t first = frames.padded() ? i * classes : x.begin(i) * classes;
      const Task<T> task{ws.Data<const T>(logits) + first,
                         x.length(i),
                         frames.padded() ? count * classes : classes,
                         classes,
                         States(symbols, y.begin(i), y.length(i), blank),
                         ws.Data<T>(loss) + i,
                         to ? to + i * classes : nullptr,
                         count * classes};
      const bool spells = task.frames > 0 && task.frames >= task.states.FewestFrames();
      for (int64_t t = spells ? task.frames : 0; to && t < steps; ++t)
        std::fill_n(task.grad + t * task.grad_step, classes, T(0));
      *task.loss = T(0);
      if (!spells) return;
      double* room = rooms + part * most;
      if constexpr (std::is_same_v<T, float>) {
        if (fast) return RunCtcFast(task, room);
      }
      RunCtc(task, room);
    });
  };
}

// A file may omit WarpCTCGrad.
void CtcGradient(GradientContext& g) {
  const AttrList attrs = g.ForwardAttrs({"blank", "norm_by_times"});
  std::string saved = g.Output("WarpCTCGrad");
  if (saved.empty()) {  // runs the op again to get it
    saved = g.Temp("WarpCTCGrad");
    g.Append("warpctc", g.ForwardInputs({"Logits", "Label", "LogitsLength", "LabelLength"}),
             {{"WarpCTCGrad", {saved}}, {"Loss", {g.Temp("Loss")}}}, attrs);
  }
  SlotList ins{{"WarpCTCGrad", {saved}},
               {"Logits", {g.Input("Logits")}},
               {"Loss@GRAD", {g.OutputGrad("Loss")}}};
  if (g.HasInput("LogitsLength")) ins.push_back({"LogitsLength", {g.Input("LogitsLength")}});
  g.Append("warpctc_grad", ins, {{"Logits@GRAD", {g.InputGrad("Logits")}}}, attrs);
}

void InferCtcGrad(InferContext& ctx) {
  const VarMeta &logits = ctx.Input("Logits"), &saved = ctx.Input("WarpCTCGrad");
  const VarMeta& dloss = ctx.Input("Loss@GRAD");
  const int64_t count = InferSequences(ctx);
  const int rank = logits.shape.rank();
  const Shape whole{ctx.HasInput("LogitsLength") ? logits.shape[0] : -1, count,
                    logits.shape[rank - 1]};
  ctx.Require("C6",
              saved.dtype == logits.dtype && saved.shape.CompatibleWith(whole) &&
                  dloss.dtype == logits.dtype && dloss.shape.CompatibleWith({count, 1}),
              "WarpCTCGrad", saved, "Loss@GRAD", dloss, "Logits", logits);
  ctx.SetOutput("Logits@GRAD", logits);
}

template <class T>
KernelOf<T> CtcGrad(const PrepareContext& ctx) {
  const TensorArg saved = ctx.Input("WarpCTCGrad"), dloss = ctx.Input("Loss@GRAD");
  const TensorArg dlogits = ctx.Output("Logits@GRAD");
  const SequenceBatch frames(ctx, "Logits", "LogitsLength", "C2", 0);
  const RunConstraint fits(ctx, "C6");
  const bool by_times = ctx.Attr<bool>("norm_by_times");
  const int64_t classes = saved.shape[2];
  return [=](Workspace& ws) {
    const BatchRows x = frames(ws);
    const int64_t count = x.count();
    fits.Require(x.longest() <= saved.shape[0] && count == saved.shape[1], "WarpCTCGrad",
                 saved.shape, "longest sequence", x.longest());
    const T *from = ws.Data<const T>(saved), *given = ws.Data<const T>(dloss);
    T* to = ws.Data<T>(dlogits);
    // Rows without a sequence: padding, or the placeholder row of an empty batch.
    const int64_t steps = frames.padded() ? dlogits.shape[0] : x.longest();
    if (!frames.padded() && x.longest() == 0) std::fill_n(to, dlogits.numel, T(0));
    ParallelFor(count, 1 + 16384 / (1 + steps * classes), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t length = x.length(i);
        const T scale = by_times && length > 0 ? given[i] / static_cast<T>(length) : given[i];
        for (int64_t t = 0; t < (frames.padded() ? steps : length); ++t) {
          const int64_t place = (t * count + i) * classes;
          T* row = to + (frames.padded() ? place : (x.begin(i) + t) * classes);
          if (t >= length) std::fill_n(row, classes, T(0));
          for (int64_t v = 0; t < length && v < classes; ++v) row[v] = from[place + v] * scale;
        }
      }
    });
  };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("warpctc")
          .Doc("Loss = -log of the sum, over all paths that spell the label, of the product of "
               "their frames' probabilities, which are softmax(Logits). A path names one symbol or "
               "blank in each frame; it spells the symbols left after merging repetitions and then "
               "removing blanks. If there are too few frames for any path, loss and gradient are "
               "0. If a score is nan or +inf, or all scores of a frame are -inf, both are nan. "
               "norm_by_times divides the gradient, but not the loss, by the number of frames.")
          .Constraint("C1",
                      "Logits must be [frames, classes] with LoD, or, with LogitsLength, "
                      "[time, batch, classes]")
          .Constraint("C2",
                      "Logits must have LoD of one level, or an int32 or int64 length in [0, "
                      "time] for each sequence")
          .Constraint("C3",
                      "Label must hold int32 or int64 symbols in the same number of sequences as "
                      "Logits: [symbols, 1] with LoD of one level, or, if Logits has LogitsLength, "
                      "[batch, most symbols] with LabelLength")
          .Constraint("C4", "blank must lie in [0, classes)")
          .Constraint("C5", "labels must lie in [0, classes) and not be blank")
          .Input("Logits", "floating-point tensor: scores before the softmax")
          .Input("Label", "int32 or int64 tensor: the symbols that the frames should spell")
          .OptionalInput("LogitsLength", "int32 or int64 tensor [batch]: frames of each sequence")
          .OptionalInput("LabelLength", "int32 or int64 tensor [batch]: symbols of each label")
          .IntermediateOutput("WarpCTCGrad",
                              "tensor [most frames, sequences, classes]: the derivative of each "
                              "loss by its logits")
          .Output("Loss", "tensor [sequences, 1] of Logits' dtype")
          .Attr<int32_t>("blank", 0, "the class that stands for no symbol")
          .Attr<bool>("norm_by_times", false, "divide the gradient by the number of frames")
          .RunTimeShape()
          .NoLod()
          .NoGradientTo({"Label", "LogitsLength", "LabelLength"})
          .ComputesIn(OpPrecision::kFloat32)
          .Rows(EachBatchRow, kEachBatchRow)
          .Infer(InferCtc)
          .Gradient(CtcGradient)
          .Reference<float, double>(
              []<class T>(const PrepareContext& c) { return Ctc<T>(c, KernelMode::kReference); })
          .Fast([](const PrepareContext& c) -> Kernel {
            if (c.Input("Logits").dtype != DType::kFloat32) return {};
            return Ctc<float>(c, KernelMode::kAuto);
          }));
  ops.Add(OpDef("warpctc_grad")
              .Doc("Gradient of warpctc: WarpCTCGrad times Loss@GRAD of each sequence, and 0 after "
                   "the end of padded ones.")
              .ConstraintsOf("warpctc", {"C1", "C2"})
              .Constraint(
                  "C6",
                  "WarpCTCGrad and Loss@GRAD must have the dtype of Logits and match its sequences")
              .Input("WarpCTCGrad", "the value in the forward op")
              .Input("Logits", "the value in the forward op; only its shape and LoD are used")
              .OptionalInput("LogitsLength", "the value in the forward op")
              .Input("Loss@GRAD", "gradient of Loss")
              .Output("Logits@GRAD", "gradient of Logits")
              .AttrsOf("warpctc")
              .NoGradientTo({"LogitsLength"})
              .NoGradient("second derivatives of warpctc are not provided")
              .Infer(InferCtcGrad)
              .Reference(CtcGrad<float>, CtcGrad<double>));
}

}  // namespace coracle::warpctc_op
