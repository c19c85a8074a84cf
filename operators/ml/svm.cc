#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

namespace coracle::svm_op {

using Floats = std::vector<float>;
using Longs = std::vector<int64_t>;

enum class KernelType { kLinear, kPolynomial, kRbf, kSigmoid };

KernelType KernelTypeOf(const std::string& name) {
  if (name == "poly") return KernelType::kPolynomial;
  if (name == "rbf") return KernelType::kRbf;
  return name == "sigmoid" ? KernelType::kSigmoid : KernelType::kLinear;
}

// One machine for each pair of classes, in the order (0, 1), (0, 2), ..., (1, 2), ... Without
// classes, one machine.
struct Machines {
  template <class Context>
  explicit Machines(const Context& ctx)
      : kernel(KernelTypeOf(ctx.template Attr<std::string>("kernel"))),
        gamma(ctx.template Attr<float>("gamma")),
        coef0(ctx.template Attr<float>("coef0")),
        degree(ctx.template Attr<float>("degree")),
        vectors(ctx.template Attr<Floats>("support_vectors")),
        coefficients(ctx.template Attr<Floats>("coefficients")),
        rho(ctx.template Attr<Floats>("rho")),
        prob_a(ctx.template Attr<Floats>("prob_a")),
        prob_b(ctx.template Attr<Floats>("prob_b")),
        per_class(ctx.template Attr<Longs>("vectors_per_class")),
        count(ctx.template Attr<int64_t>("vectors")) {}

  int64_t NumClasses() const { return static_cast<int64_t>(per_class.size()); }
  int64_t NumPairs() const { return per_class.empty() ? 1 : NumClasses() * (NumClasses() - 1) / 2; }
  int64_t NumFeatures() const {
    return count == 0 ? 0 : static_cast<int64_t>(vectors.size()) / count;
  }
  bool HasProbabilities() const { return !prob_a.empty(); }

  KernelType kernel;
  float gamma, coef0, degree;
  Floats vectors, coefficients, rho, prob_a, prob_b;
  Longs per_class;
  int64_t count;
};

// Whether the classes have all vectors, none a negative number.
bool CoversVectors(const Machines& machines) {
  int64_t rest = machines.count;
  for (int64_t own : machines.per_class) {
    if (own < 0 || own > rest) return false;
    rest -= own;
  }
  return rest == 0 || machines.per_class.empty();
}

void InferSvm(InferContext& ctx) {
  const Machines m(ctx);
  const Shape& x = ctx.InputShape("X");
  const int64_t features = m.NumFeatures(), classes = m.NumClasses();
  const auto size = [](const Floats& list) { return static_cast<int64_t>(list.size()); };
  ctx.Require("C1", x.rank() == 2 && InferContext::Matches(x[1], features), x, features);
  ctx.Require("C2", m.count >= 1 && size(m.vectors) == features * m.count, "vectors", m.count,
              "support_vectors", size(m.vectors));
  ctx.Require("C3", classes != 1 && classes <= (1 << 16) && CoversVectors(m), "vectors", m.count,
              "classes", classes);
  const int64_t rows = classes == 0 ? 1 : classes - 1;
  ctx.Require("C4", size(m.coefficients) % m.count == 0 && size(m.coefficients) / m.count == rows,
              "coefficients", size(m.coefficients), "vectors", m.count, "rows", rows);
  ctx.Require("C5", size(m.rho) == m.NumPairs(), "rho", size(m.rho), "pairs", m.NumPairs());
  const int64_t wanted = m.HasProbabilities() ? m.NumPairs() : 0;
  ctx.Require("C6",
              size(m.prob_a) == wanted && size(m.prob_b) == wanted && (wanted == 0 || classes > 0),
              "prob_a", size(m.prob_a), "prob_b", size(m.prob_b), "pairs", m.NumPairs());
  ctx.SetOutput("Out", ctx.InputDType("X"), {x[0], m.HasProbabilities() ? classes : m.NumPairs()});
  ctx.SetOutput("Label", DType::kInt64, {x[0]});
}

// The kernel function of a row and a support vector.
template <class T>
T Similarity(const Machines& m, const T* x, const float* vector, int64_t features) {
  T sum = 0;
  if (m.kernel == KernelType::kRbf) {
    for (int64_t i = 0; i < features; ++i) {
      const T d = x[i] - static_cast<T>(vector[i]);
      sum += d * d;
    }
    return std::exp(-static_cast<T>(m.gamma) * sum);
  }
  for (int64_t i = 0; i < features; ++i) sum += x[i] * static_cast<T>(vector[i]);
  if (m.kernel == KernelType::kLinear) return sum;
  const T inner = static_cast<T>(m.gamma) * sum + static_cast<T>(m.coef0);
  if (m.kernel == KernelType::kSigmoid) return std::tanh(inner);
  if (m.degree == 2) return inner * inner;
  if (m.degree == 3) return inner * inner * inner;
  return std::pow(inner, static_cast<T>(m.degree));
}

// Adds to the decision of each pair of a vector's class `own` and another class.
template <class T>
void AddVector(const Machines& m, int64_t vector, int64_t own, T similarity, double* decisions) {
  const int64_t classes = m.NumClasses();
  // The pair (i, j) is number i * (2 * classes - i - 1) / 2 + j - i - 1.
  for (int64_t row = 0; row < classes - 1; ++row) {
    const int64_t other = row < own ? row : row + 1;
    const int64_t i = std::min(own, other), j = std::max(own, other);
    decisions[i * (2 * classes - i - 1) / 2 + j - i - 1] +=
        static_cast<double>(m.coefficients[static_cast<size_t>(row * m.count + vector)]) *
        static_cast<double>(similarity);
  }
}

// The decision of each pair: more than 0 for its first class.
template <class T>
void Decide(const Machines& m, const T* x, double* decisions) {
  const int64_t features = m.NumFeatures();
  std::copy(m.rho.begin(), m.rho.end(), decisions);
  const float* vector = m.vectors.data();
  if (m.per_class.empty()) {
    for (size_t v = 0; v < m.coefficients.size(); ++v, vector += features) {
      *decisions += static_cast<double>(m.coefficients[v]) *
                    static_cast<double>(Similarity(m, x, vector, features));
    }
    return;
  }
  int64_t v = 0;
  for (int64_t own = 0; own < m.NumClasses(); ++own) {
    const int64_t end = v + m.per_class[static_cast<size_t>(own)];
    for (; v < end; ++v, vector += features)
      AddVector(m, v, own, Similarity(m, x, vector, features), decisions);
  }
}

// The probability of the first class of a pair (Platt's sigmoid).
double PairProbability(double decision, double a, double b) {
  const double f = decision * a + b;
  const double p = f >= 0 ? std::exp(-f) / (1 + std::exp(-f)) : 1 / (1 + std::exp(f));
  return std::clamp(p, 1e-7, 1 - 1e-7);
}

// Probabilities p of the classes that minimise the sum of (r_ji p_i - r_ij p_j)^2 over all pairs
// (Wu, Lin and Weng, "Probability estimates for multi-class classification by pairwise coupling",
// JMLR 2004, algorithm 2). `r` and `q` are classes x classes.
void Couple(int64_t classes, const double* r, double* q, double* qp, double* p) {
  const auto at = [&](int64_t i, int64_t j) { return i * classes + j; };
  for (int64_t i = 0; i < classes; ++i) {
    p[i] = 1.0 / static_cast<double>(classes);
    q[at(i, i)] = 0;
    for (int64_t j = 0; j < classes; ++j) {
      if (j == i) continue;
      q[at(i, i)] += r[at(j, i)] * r[at(j, i)];
      q[at(i, j)] = -r[at(j, i)] * r[at(i, j)];
    }
  }
  const double enough = 0.005 / static_cast<double>(classes);
  for (int64_t turn = 0; turn < std::max<int64_t>(100, classes); ++turn) {
    double pqp = 0, worst = 0;
    for (int64_t i = 0; i < classes; ++i) {
      qp[i] = 0;
      for (int64_t j = 0; j < classes; ++j) qp[i] += q[at(i, j)] * p[j];
      pqp += p[i] * qp[i];
    }
    for (int64_t i = 0; i < classes; ++i) worst = std::max(worst, std::abs(qp[i] - pqp));
    if (worst < enough) break;
    for (int64_t i = 0; i < classes; ++i) {
      const double d = (pqp - qp[i]) / q[at(i, i)];
      p[i] += d;
      pqp = (pqp + d * (d * q[at(i, i)] + 2 * qp[i])) / (1 + d) / (1 + d);
      for (int64_t j = 0; j < classes; ++j) {
        qp[j] = (qp[j] + d * q[at(i, j)]) / (1 + d);
        p[j] /= 1 + d;
      }
    }
  }
}

// The memory of one row: decisions, votes, and with probabilities r, q, qp and p.
int64_t ScratchOf(const Machines& m) {
  const int64_t classes = m.NumClasses();
  return m.NumPairs() + classes + (m.HasProbabilities() ? 2 * classes * classes + 2 * classes : 0);
}

template <class T>
void Probabilities(const Machines& m, const double* decisions, double* scratch, T* out) {
  const int64_t classes = m.NumClasses();
  double* r = scratch;
  double* q = r + classes * classes;
  double* qp = q + classes * classes;
  double* p = qp + classes;
  size_t pair = 0;
  for (int64_t i = 0; i < classes; ++i) {
    for (int64_t j = i + 1; j < classes; ++j, ++pair) {
      const double first = PairProbability(decisions[pair], m.prob_a[pair], m.prob_b[pair]);
      r[i * classes + j] = first;
      r[j * classes + i] = 1 - first;
    }
  }
  Couple(classes, r, q, qp, p);
  for (int64_t i = 0; i < classes; ++i) out[i] = static_cast<T>(p[i]);
}

// The class that wins most pairs, the first of several.
int64_t WinnerOf(int64_t classes, const double* decisions, double* votes) {
  std::fill(votes, votes + classes, 0);
  for (int64_t i = 0; i < classes; ++i)
    for (int64_t j = i + 1; j < classes; ++j) votes[*decisions++ > 0 ? i : j] += 1;
  return std::max_element(votes, votes + classes) - votes;
}

template <class T>
KernelOf<T> SvmReference(const PrepareContext& ctx) {
  const auto m = std::make_shared<const Machines>(ctx);
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out"), label = ctx.Output("Label");
  // The rows are divided among a fixed number of parts, each with memory of its own.
  const int64_t size = ScratchOf(*m);
  const int64_t parts =
      std::clamp<int64_t>(std::min<int64_t>(out.shape[0], (1 << 20) / size), 1, 64);
  const TensorArg scratch = ctx.Scratch(DType::kFloat64, {parts, size});
  return [=](Workspace& ws) {
    const T* rows = ws.Data<const T>(x);
    T* results = ws.Data<T>(out);
    int64_t* labels = label ? ws.Data<int64_t>(label) : nullptr;
    double* memory = ws.Data<double>(scratch);
    const int64_t n = out.shape[0], classes = m->NumClasses();
    const int64_t work = 1 + n / parts * (static_cast<int64_t>(m->vectors.size()) + m->count * 16);
    ParallelFor(parts, std::max<int64_t>(1, 20000 / work), [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        double* decisions = memory + part * size;
        for (int64_t row = n * part / parts; row < n * (part + 1) / parts; ++row) {
          T* result = results + row * out.shape[1];
          Decide(*m, rows + row * x.shape[1], decisions);
          double* votes = decisions + m->NumPairs();
          if (labels) labels[row] = WinnerOf(classes, decisions, votes);
          if (m->HasProbabilities()) {
            Probabilities(*m, decisions, votes + classes, result);
          } else {
            for (int64_t i = 0; i < out.shape[1]; ++i) result[i] = static_cast<T>(decisions[i]);
          }
        }
      }
    });
  };
}

void DeclareMachines(OpDef& def) {
  def.Attr<std::string>("kernel", std::string("linear"),
                        "k(x, v): linear: x . v; poly: (gamma x . v + coef0)^degree; rbf: "
                        "exp(-gamma |x - v|^2); sigmoid: tanh(gamma x . v + coef0)")
      .OneOf({"linear", "poly", "rbf", "sigmoid"})
      .Attr<float>("gamma", 0.f, "of the kernel")
      .Attr<float>("coef0", 0.f, "of the kernel")
      .Attr<float>("degree", 0.f, "of the kernel")
      .Attr<int64_t>("vectors", int64_t{1}, "the number V of support vectors")
      .Attr<Floats>("support_vectors", {}, "[V, F], those of a class next to each other")
      .Attr<Floats>("coefficients", {}, "[classes - 1, V] (without classes [1, V]), as in libsvm")
      .Attr<Floats>("rho", {}, "added to the sum, one for each pair of classes")
      .Attr<Longs>("vectors_per_class", {}, "the number of support vectors of each class")
      .Attr<Floats>("prob_a", {}, "one for each pair of classes: Out holds probabilities")
      .Attr<Floats>("prob_b", {}, "one for each pair of classes");
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("svm")
          .Doc(
              "Support vector machines. Without classes, Out = rho + the sum of coefficient * "
              "k(x, v) over the support vectors v. With classes, there is a machine for each pair "
              "(0, 1), (0, 2), ..., (1, 2), ..., whose result is more than 0 for the first class "
              "of the pair; it sums over the vectors of both. The coefficients of class j's "
              "vectors in the pair of i and j are in row i if i < j, else in row i - 1. With "
              "prob_a and prob_b, a pair's probability is 1 / (1 + exp(prob_a * result + prob_b)), "
              "and Out holds the classes' probabilities that agree best with the pairs'. Label: "
              "the class that wins most pairs, the first of several.")
          .Constraint("C1", "X must have rank 2 and the columns of the support vectors")
          .Constraint("C2",
                      "support_vectors must be a matrix of as many rows as `vectors` says, "
                      "at least one")
          .Constraint("C3",
                      "there must be no classes, or 2 to 65536 that have all vectors together")
          .Constraint("C4",
                      "coefficients must have a row for each class but one, of a number for "
                      "each vector")
          .Constraint("C5", "rho must have a number for each pair of classes")
          .Constraint("C6",
                      "prob_a and prob_b must both have a number for each pair of classes, or "
                      "be empty")
          .Input("X", "[N, F]")
          .Output("Out", "[N, pairs] or, with prob_a, [N, classes]; without classes [N, 1]")
          .OptionalOutput("Label", "[N] int64; 0 without classes")
          .Apply(DeclareMachines)
          .Infer(InferSvm)
          .Rows(RowRule::kEach)
          .NoGradient("models of support vectors are only applied")
          .Reference(SvmReference<float>, SvmReference<double>));
}

}  // namespace coracle::svm_op
