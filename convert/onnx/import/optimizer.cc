// The update rules of ai.onnx.preview.training. Inputs are R, T, then all X, all G, and all tensors
// of each state; outputs are all X, then all tensors of each state.

#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/operators/operators.h>

namespace coracle::onnx {
namespace {

// A tensor to update.
struct Update {
  Variable x, gradient;  // norm_coefficient x + g
  std::vector<Variable> states;
};

class Updates {
 public:
  Updates(NodeContext& node, size_t states) : node_(node), states_(states) {
    const size_t kinds = 2 + states;
    node.Require(node.NumInputs() > 2 && (node.NumInputs() - 2) % kinds == 0,
                 "the inputs must be R, T and as many of X, G and each state");
    count_ = (node.NumInputs() - 2) / kinds;
    norm_ = static_cast<double>(node.Float("norm_coefficient", 0.0f));
  }
  size_t count() const { return count_; }
  // Learning rate and number of updates so far, in double precision.
  Variable rate() const { return node_.Cast(node_.In(0), DType::kFloat64); }
  Variable time() const { return node_.Cast(node_.In(1), DType::kFloat64); }
  Update Get(size_t i) const {
    Update update{node_.In(2 + i), node_.In(2 + count_ + i), {}};
    if (norm_ != 0) update.gradient = update.x * norm_ + update.gradient;
    for (size_t k = 0; k < states_; ++k)
      update.states.push_back(node_.In(2 + (2 + k) * count_ + i));
    return update;
  }
  void Set(size_t i, const Variable& x, const std::vector<Variable>& states) const {
    node_.Set(i, x, node_.IsScalar(2 + i));
    for (size_t k = 0; k < states_; ++k)
      node_.Set((1 + k) * count_ + i, states[k], node_.IsScalar(2 + i));
  }
  // Converts double [1] to the dtype of x.
  Variable As(const Variable& factor, const Variable& x) const {
    return node_.Cast(factor, x.dtype());
  }

 private:
  NodeContext& node_;
  size_t states_;
  size_t count_;
  double norm_;
};

double Number(NodeContext& node, const char* name, float otherwise) {
  return static_cast<double>(node.Float(name, otherwise));
}

// `later` after the first update, else `first`.
Variable AfterFirst(const Variable& time, const Variable& later, double first) {
  return Where(Greater(time, 0.0), later, FillLike(later, first));
}

void ImportAdagrad(NodeContext& node) {
  const Updates updates(node, 1);
  const double decay = Number(node, "decay_factor", 0.0f);
  const double epsilon = Number(node, "epsilon", 1e-6f);
  const Variable rate = updates.rate() / (updates.time() * decay + 1.0);
  for (size_t i = 0; i < updates.count(); ++i) {
    const Update u = updates.Get(i);
    const Variable h = u.states[0] + Square(u.gradient);
    const Variable step = u.gradient / (Sqrt(h) + epsilon);
    updates.Set(i, u.x - step * updates.As(rate, u.x), {h});
  }
}

void ImportAdam(NodeContext& node) {
  const Updates updates(node, 2);
  const double alpha = Number(node, "alpha", 0.9f), beta = Number(node, "beta", 0.999f);
  const double epsilon = Number(node, "epsilon", 1e-6f);
  const double post = Number(node, "norm_coefficient_post", 0.0f);
  const Variable t = updates.time();
  const Variable correction = Sqrt(1.0 - Pow(beta, t)) / (1.0 - Pow(alpha, t));
  const Variable rate = updates.rate() * AfterFirst(t, correction, 1.0);
  for (size_t i = 0; i < updates.count(); ++i) {
    const Update u = updates.Get(i);
    const Variable v = u.states[0] * alpha + u.gradient * (1.0 - alpha);
    const Variable h = u.states[1] * beta + Square(u.gradient) * (1.0 - beta);
    const Variable x = u.x - v / (Sqrt(h) + epsilon) * updates.As(rate, u.x);
    updates.Set(i, post == 0 ? x : x * (1.0 - post), {v, h});
  }
}

void ImportMomentum(NodeContext& node) {
  const Updates updates(node, 1);
  const double alpha = Number(node, "alpha", 0.0f);
  const bool nesterov = node.OneOf("mode", "", {"standard", "nesterov"}) == "nesterov";
  const Variable t = updates.time();
  const Variable beta = AfterFirst(t, FillLike(t, Number(node, "beta", 0.0f)), 1.0);
  for (size_t i = 0; i < updates.count(); ++i) {
    const Update u = updates.Get(i);
    const Variable v = u.states[0] * alpha + u.gradient * updates.As(beta, u.x);
    const Variable step = nesterov ? u.gradient + v * alpha : v;
    updates.Set(i, u.x - step * updates.As(updates.rate(), u.x), {v});
  }
}

}  // namespace

void AddOptimizerImporters(NodeImporters& importers) {
  const auto add = [&](const char* type, const char* takes, void (*import)(NodeContext&),
                       const char* maps_to) {
    importers.Add({.op_type = type,
                   .since = 1,
                   .takes = takes,
                   .import = import,
                   .maps_to = maps_to,
                   .composed = true,
                   .domain = "ai.onnx.preview.training"});
  };
  add("Adagrad", "n n n*", ImportAdagrad, "square, sqrt, elementwise_div");
  add("Adam", "n n n*", ImportAdam, "square, sqrt, elementwise_div");
  add("Momentum", "n n n*", ImportMomentum, "scale, elementwise_add");
}

}  // namespace coracle::onnx
