#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/vision_simd.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/output_grad.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>
#include <string>

namespace coracle::prelu_op {

// The dims from `first` on, without leading ones.
Shape Core(const Shape& shape, int first) {
  Shape core;
  for (int i = first; i < shape.rank(); ++i) {
    if (core.rank() > 0 || shape[i] != 1) core.Append(shape[i]);
  }
  return core;
}

void CheckPrelu(InferContext& ctx) {
  const Shape &x = ctx.InputShape("X"), &alpha = ctx.InputShape("Alpha");
  const std::string mode = ctx.Attr<std::string>("mode");
  ctx.Require("C1", x.rank() >= (mode == "channel" ? 2 : mode == "element" ? 1 : 0), x);
  if (mode == "element") {
    const bool shared = Core(alpha, 0).CompatibleWith(Core(x, 1)) && alpha.rank() <= x.rank();
    const bool fits = shared || x.CompatibleWith(alpha);
    // An unknown dim may still turn out to be 1.
    ctx.Require("C2", fits || !x.IsKnown() || !alpha.IsKnown(), "Alpha", alpha, "X", x);
  } else {
    const int64_t slopes = mode == "all" ? 1 : x[1];
    ctx.Require("C2", InferContext::Matches(NumelOf(alpha), slopes), "Alpha", alpha, "X", x);
  }
  RequireSameDType(ctx, "C3", "Alpha", "X");
  const std::string layout = ctx.Attr<std::string>("data_format");
  ctx.Require("C5", mode != "channel" || layout != "NHWC", "data_format", layout);
}

void InferPrelu(InferContext& ctx) {
  CheckPrelu(ctx);
  ctx.SetOutput("Out", ctx.Input("X"));
}

// X as runs of `length` elements that share a slope: run r has slope r % slopes.
struct Runs {
  int64_t count = 0, length = 0, slopes = 0;
};
Runs RunsOf(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), alpha = ctx.Input("Alpha");
  const std::string mode = ctx.Attr<std::string>("mode");
  if (x.numel == 0) return {0, 0, alpha.numel};
  const int64_t length = mode == "all"       ? x.numel
                         : mode == "channel" ? x.shape.Product(2, x.shape.rank())
                                             : 1;
  return {x.numel / length, length, alpha.numel};
}

// Calls f(first element, slope's index, number of elements) for pieces of runs, in parallel.
template <class F>
void ForEachRun(const Runs& runs, const F& f) {
  constexpr int64_t kPiece = 16384;
  if (runs.count == 0) return;
  const int64_t pieces = (runs.length + kPiece - 1) / kPiece;
  ParallelFor(runs.count * pieces, 1 + kPiece / runs.length, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t run = i / pieces, at = i % pieces * kPiece;
      f(run * runs.length + at, run % runs.slopes, std::min(kPiece, runs.length - at));
    }
  });
}

// Calls f(first element, number of elements) for pieces of the rows of slopes, where each run is
// one element: element i of a row has slope `slope` + i.
template <class F>
void ForEachRow(const Runs& runs, const F& f) {
  constexpr int64_t kPiece = 16384;
  if (runs.count == 0) return;
  const int64_t rows = runs.count / runs.slopes, pieces = (runs.slopes + kPiece - 1) / kPiece;
  ParallelFor(rows * pieces, 1 + kPiece / runs.slopes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t slope = i % pieces * kPiece;
      f(i / pieces * runs.slopes + slope, slope, std::min(kPiece, runs.slopes - slope));
    }
  });
}

// The loops described in vision_simd.h.
template <class T>
struct Plain {
  using Element = T;
  using Total = double;
  static void Slope(const T* x, const T* v, const T* slope, bool shared, int64_t n, T* out) {
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] > 0 ? v[i] : slope[shared ? 0 : i] * v[i];
  }
  static double Share(T x, T v) {
    return x > 0 ? 0.0 : static_cast<double>(x) * static_cast<double>(v);
  }
  static double Sum(const T* x, const T* v, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += Share(x[i], v[i]);
    return sum;
  }
  static void Add(const T* x, const T* v, int64_t n, double* sums) {
    for (int64_t i = 0; i < n; ++i) sums[i] += Share(x[i], v[i]);
  }
};
struct Vectors {
  using Element = float;
  using Total = float;
  static constexpr auto* Slope = coracle::Incline;
  static constexpr auto* Sum = InclinedSum;
  static constexpr auto* Add = AddInclined;
};

// to[i] = x[i] > 0 ? v[i] : slope * v[i], where v is x in the op and dOut in its gradient.
template <class Loops, class T = typename Loops::Element>
void InclineRuns(const Runs& runs, const T* x, const T* v, const T* slope, T* to) {
  const auto piece = [&](int64_t at, int64_t k, int64_t n) {
    Loops::Slope(x + at, v + at, slope + k, runs.length > 1, n, to + at);
  };
  if (runs.length == 1)
    ForEachRow(runs, piece);
  else
    ForEachRun(runs, piece);
}

template <class Loops>
KernelOf<typename Loops::Element> Prelu(const PrepareContext& ctx) {
  using T = typename Loops::Element;
  const TensorArg x = ctx.Input("X"), alpha = ctx.Input("Alpha"), out = ctx.Output("Out");
  const Runs runs = RunsOf(ctx);
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    InclineRuns<Loops>(runs, in, in, ws.Data<const T>(alpha), ws.Data<T>(out));
  };
}

Kernel PreluFast(const PrepareContext& ctx) {
  if (ctx.Input("X").dtype != DType::kFloat32) return {};
  return Prelu<Vectors>(ctx);
}

void InferPreluGrad(InferContext& ctx) {
  CheckPrelu(ctx);
  RequireOutGrad(ctx, "C4", ctx.Input("X"));
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
  ctx.SetOutput("Alpha@GRAD", ctx.Input("Alpha"));
}

// The gradients of the slopes. The runs of a slope are cut into pieces whose sums are stored in
// `scratch`, so that several threads can work on one slope.
struct SlopeSums {
  static constexpr int64_t kPiece = 16384;
  static constexpr int64_t kBlock = 1024;
  static constexpr int64_t kRows = 64;  // rows added in the accumulator type of the loops

  Runs runs;
  int64_t pieces;

  explicit SlopeSums(const Runs& r) : runs(r), pieces((r.length + kPiece - 1) / kPiece) {}
  int64_t scratch() const { return runs.length > 1 ? runs.count * pieces : 0; }

  template <class Loops, class T = typename Loops::Element>
  void Run(const T* x, const T* dout, double* parts, T* to) const {
    if (runs.length == 1) return SumColumns<Loops>(x, dout, to);
    const auto sum_pieces = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = i % pieces * kPiece, first = i / pieces * runs.length + at;
        parts[i] = Loops::Sum(x + first, dout + first, std::min(kPiece, runs.length - at));
      }
    };
    ParallelFor(runs.count * pieces, 1 + kPiece / std::max<int64_t>(1, runs.length), sum_pieces);
    for (int64_t k = 0; k < runs.slopes; ++k) {
      double sum = 0;
      for (int64_t run = k; run < runs.count; run += runs.slopes) {
        for (int64_t p = 0; p < pieces; ++p) sum += parts[run * pieces + p];
      }
      to[k] = static_cast<T>(sum);
    }
  }

 private:
  // Runs of one element: rows of slopes.
  template <class Loops, class T = typename Loops::Element>
  void SumColumns(const T* x, const T* dout, T* to) const {
    const int64_t rows = runs.count / runs.slopes;
    const auto sum_blocks = [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        const int64_t first = b * kBlock, n = std::min(kBlock, runs.slopes - first);
        double sums[kBlock] = {};
        for (int64_t r = 0; r < rows; r += kRows) {
          typename Loops::Total part[kBlock] = {};
          for (int64_t k = r; k < std::min(r + kRows, rows); ++k) {
            const int64_t at = k * runs.slopes + first;
            Loops::Add(x + at, dout + at, n, part);
          }
          for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<double>(part[i]);
        }
        for (int64_t i = 0; i < n; ++i) to[first + i] = static_cast<T>(sums[i]);
      }
    };
    ParallelFor((runs.slopes + kBlock - 1) / kBlock, 1 + 16384 / (kBlock * rows), sum_blocks);
  }
};

template <class Loops>
KernelOf<typename Loops::Element> PreluGrad(const PrepareContext& ctx) {
  using T = typename Loops::Element;
  const TensorArg x = ctx.Input("X"), alpha = ctx.Input("Alpha"), dout = ctx.Input("Out@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD"), dalpha = ctx.Output("Alpha@GRAD");
  const SlopeSums sums(RunsOf(ctx));
  const TensorArg scratch = ctx.Scratch(DType::kFloat64, {dalpha ? sums.scratch() : 0});
  return [=](Workspace& ws) {
    const T *in = ws.Data<const T>(x), *d = ws.Data<const T>(dout);
    // X@GRAD may overwrite Out@GRAD, so it comes last.
    if (dalpha) sums.Run<Loops>(in, d, ws.Data<double>(scratch), ws.Data<T>(dalpha));
    if (dx) InclineRuns<Loops>(sums.runs, in, d, ws.Data<const T>(alpha), ws.Data<T>(dx));
  };
}

Kernel PreluGradFast(const PrepareContext& ctx) {
  if (ctx.Input("X").dtype != DType::kFloat32) return {};
  return PreluGrad<Vectors>(ctx);
}

// With m = 1 where X <= 0, else 0, and U, V the gradients of X@GRAD and Alpha@GRAD:
//   dOut' = U (m Alpha + 1 - m) + m X V,  X' = m dOut V,  Alpha' = sum of m dOut U.
void PreluGradGradient(GradientContext& g) {
  const std::string mode = g.Attr<std::string>("mode");
  const Variable x = g.In("X"), alpha = g.In("Alpha"), dout = g.In("Out@GRAD");
  const Variable m = Cast(Not(Greater(x, 0.0)), x.dtype());
  // Products of a tensor of X's shape and slopes.
  const auto slopes = [&](const Variable& v) {
    return mode == "element" ? v : Reshape(v, {mode == "all" ? 1 : -1});
  };
  const AttrList axis = {{"axis", mode == "channel" ? 1 : -1}};
  const auto times = [&](const Variable& a, const Variable& b) {
    return g.Make("elementwise_mul", {{"X", {a.name()}}, {"Y", {b.name()}}}, axis);
  };
  std::vector<Variable> terms;
  if (g.HasOutputGrad("X@GRAD")) {
    const Variable u = g.Grad("X@GRAD"), mu = m * u;
    const Variable s = slopes(alpha), sloped = times(mu, s);
    terms.push_back(u - mu + sloped);
    Variable sum = g.Make("elementwise_mul_grad",
                          {{"X", {mu.name()}}, {"Y", {s.name()}}, {"Out@GRAD", {dout.name()}}},
                          axis, "Y@GRAD");
    if (mode != "element") {
      sum = g.Make("reshape2_grad", {{"X", {alpha.name()}}, {"Out@GRAD", {sum.name()}}}, {},
                   "X@GRAD");
    }
    g.Set("Alpha", sum);
  }
  if (g.HasOutputGrad("Alpha@GRAD")) {
    const Variable v = slopes(g.Grad("Alpha@GRAD"));
    terms.push_back(times(m * x, v));
    g.Set("X", times(m * dout, v));
  }
  g.Set("Out@GRAD", AddAll(terms));
}

void DeclarePrelu(OpDef& def) {
  def.Input("X", "floating-point tensor")
      .Input("Alpha", "slopes where X <= 0")
      .Attr<std::string>("mode", "all",
                         "which elements share a slope: all; channel: those of one channel (dim "
                         "1); element: those at one position, over all samples")
      .OneOf({"all", "channel", "element"})
      .Attr<std::string>("data_format", "NCHW", "the order of X's dims")
      .OneOf({"NCHW", "NHWC"});
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("prelu")
          .Doc("Out = X where X > 0, else Alpha X.")
          .Constraint("C1", "X must have rank 2 or more in mode channel, 1 or more in mode element")
          .Constraint(
              "C2",
              "Alpha must hold one element (mode all) or one per channel (mode channel); in mode "
              "element it must have X's shape, or X's dims from 1 on after leading ones")
          .Constraint("C3", "X and Alpha must have one dtype")
          .Constraint("C5",
                      "in mode channel, data_format must be NCHW: transpose X so that the channels "
                      "are dim 1")
          .Apply(DeclarePrelu)
          .Output("Out", "tensor of X's shape and dtype")
          .Rows(RowRule::kEach)
          .Infer(InferPrelu)
          .GradientOp({"X", "Alpha"})
          .Reference(Prelu<Plain<float>>, Prelu<Plain<double>>)
          .Fast(PreluFast));
  ops.Add(
      OpDef("prelu_grad")
          .Doc("Gradient of prelu: X@GRAD = Out@GRAD where X > 0, else Alpha Out@GRAD; Alpha@GRAD "
               "= the sum of X Out@GRAD where X <= 0, over the elements that share a slope.")
          .ConstraintsOf("prelu", {"C1", "C2", "C3", "C5"})
          .Apply(DeclarePrelu)
          .Constraint("C4", "Out@GRAD must have X's shape and dtype")
          .Input("Out@GRAD", "gradient of Out")
          .OptionalOutput("X@GRAD", "gradient of X")
          .OptionalOutput("Alpha@GRAD", "gradient of Alpha")
          .Inplace("Out@GRAD", "X@GRAD")
          .Infer(InferPreluGrad)
          .Gradient(PreluGradGradient)
          .Reference(PreluGrad<Plain<float>>, PreluGrad<Plain<double>>)
          .Fast(PreluGradFast));
}

}  // namespace coracle::prelu_op
