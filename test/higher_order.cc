#include <coracle/backward/backward.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/operators/operators.h>
#include <coracle/test/completeness.h>
#include <coracle/test/higher_order.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace coracle {
namespace {

const InterpretOptions kRun = {.kernels = KernelMode::kReference, .seed = 3, .step = 1};

// The op with its gradients up to an order, appended by Gradients().
class Tower {
 public:
  explicit Tower(const HigherOrderCase& c) {
    BlockDesc& block = program_.Root();
    const OpSpec& def = DefaultOps().Get(c.type);
    SlotList ins, outs;
    for (size_t i = 0; i < c.inputs.size(); ++i) AddInput(def, c.inputs[i], i, &ins);
    for (const SlotDef& slot : def.outputs) {
      int count = 1;
      for (const auto& [name, n] : c.outputs) count = name == slot.name ? n : count;
      std::vector<std::string> names;
      for (int k = 0; k < count; ++k) {
        names.push_back(slot.name + "." + std::to_string(k));
        block.Var(names.back());
      }
      if (count > 0) outs.push_back({slot.name, names});
    }
    OpDesc& op = block.AppendOp(c.type, ins, outs, c.attrs);
    InferOp(block, op, DefaultOps());
    op.ForEachOutput([&](const std::string& name, const std::string& slot) {
      if (def.FindOutput(slot)->intermediate) return;
      if (IsFloating(block.FindVar(name)->dtype())) targets_.push_back(name);
    });
  }

  // Replaces the targets by the gradients of their weighted sum; the weights become inputs too.
  void Differentiate() {
    weights_.clear();
    BlockDesc& block = program_.Root();
    std::vector<Variable> targets, inputs;
    GradientsOptions options;
    for (const std::string& name : targets_) {
      targets.push_back(Variable::Of(block, name));
      weights_.push_back(AddWeight(name));
    }
    for (const std::string& name : inputs_) inputs.push_back(Variable::Of(block, name));
    options.target_gradients = weights_;
    gradients_ = Gradients(targets, inputs, options);
    summed_ = targets_;
    targets_.clear();
    for (const std::string& name : gradients_) {
      if (!name.empty()) targets_.push_back(name);
    }
  }
  // To be called before Differentiate is called again.
  void UseWeights() { inputs_.insert(inputs_.end(), weights_.begin(), weights_.end()); }

  void Check() {
    VerifyOrThrow(program_, DefaultOps());
    const VarValues at = Run(values_);
    double largest = 0;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const std::string& name = inputs_[i];
      for (uint64_t d = 0; d < 3; ++d) {
        const Tensor direction = Random(values_.at(name), d);
        double analytic = 0;
        if (!gradients_[i].empty()) {
          const Tensor& gradient = std::get<Tensor>(at.at(gradients_[i]));
          ASSERT_EQ(gradient.shape().ToString(), direction.shape().ToString()) << name;
          for (double g : gradient.span<double>()) largest = std::max(largest, std::abs(g));
          analytic = Dot(gradient, direction);
        }
        const double numeric =
            (Sum(name, direction, kStep) - Sum(name, direction, -kStep)) / (2 * kStep);
        EXPECT_NEAR(analytic, numeric, 2e-6 * std::max(1.0, std::abs(numeric)))
            << "with respect to " << name << ", direction " << d
            << (gradients_[i].empty() ? " (no gradient)" : "");
      }
    }
    EXPECT_GT(largest, 1e-8) << "all gradients are zero";
  }

 private:
  static constexpr double kStep = 1e-5;

  void AddInput(const OpSpec& def, const HigherOrderCase::In& in, size_t i, SlotList* ins) {
    const std::string name = in.slot + "_" + std::to_string(i);
    Declare(name, in.value);
    const bool differentiable =
        IsFloating(in.value.dtype()) && !def.FindInput(in.slot)->no_gradient;
    if (differentiable) inputs_.push_back(name);
    program_.Root().FindVar(name)->SetStopGradient(!differentiable);
    if (!ins->empty() && ins->back().name == in.slot)
      ins->back().args.push_back(name);
    else
      ins->push_back({in.slot, {name}});
  }
  void Declare(const std::string& name, const Tensor& value) {
    VarDesc& var = program_.Root().Var(name);
    var.SetDType(value.dtype());
    var.SetShape(value.shape());
    values_[name] = value;
  }
  std::string AddWeight(const std::string& target) {
    const VarDesc& var = *program_.Root().FindVar(target);
    std::string name = program_.FreeName("weight_of_" + target);
    // A shape may be known only at run time.
    const Shape shape = var.shape().IsKnown() ? Shape(var.shape())
                                              : std::get<Tensor>(Run(values_).at(target)).shape();
    Tensor weight(DType::kFloat64, shape);
    const Philox random(17, HashName(name), 0);
    for (int64_t k = 0; k < weight.numel(); ++k)
      weight.data<double>()[k] = 0.5 + random.UniformDouble(static_cast<uint64_t>(k));
    Declare(name, weight);
    return name;
  }
  static Tensor Random(const Tensor& like, uint64_t d) {
    Tensor t(DType::kFloat64, like.shape());
    const Philox random(23, d, 0);
    for (int64_t k = 0; k < t.numel(); ++k)
      t.data<double>()[k] = random.Normal(static_cast<uint64_t>(k));
    return t;
  }
  static double Dot(const Tensor& a, const Tensor& b) {
    double sum = 0;
    for (int64_t i = 0; i < a.numel(); ++i) sum += a.data<double>()[i] * b.data<double>()[i];
    return sum;
  }
  VarValues Run(const std::map<std::string, Tensor>& values) const {
    VarValues env;
    for (const auto& [name, value] : values) env[name] = value;
    Interpret(program_.Root(), DefaultOps(), env, kRun);
    return env;
  }
  // The weighted sum whose gradients are checked, at a displaced input.
  double Sum(const std::string& input, const Tensor& direction, double step) const {
    std::map<std::string, Tensor> values = values_;
    Tensor& moved = values[input] = values_.at(input).Clone();
    for (int64_t i = 0; i < moved.numel(); ++i)
      moved.data<double>()[i] += step * direction.data<double>()[i];
    const VarValues env = Run(values);
    double sum = 0;
    for (size_t k = 0; k < summed_.size(); ++k)
      sum += Dot(std::get<Tensor>(env.at(summed_[k])), values.at(weights_[k]));
    return sum;
  }

  ProgramDesc program_;
  std::map<std::string, Tensor> values_;
  std::vector<std::string> inputs_, targets_, weights_, gradients_, summed_;
};

}  // namespace

void CheckHigherGradients(const HigherOrderCase& c, int highest) {
  HigherGradientsAreChecked(c.type);
  Tower tower(c);
  tower.Differentiate();
  for (int order = 2; order <= 3; ++order) {
    SCOPED_TRACE(c.type + ", order " + std::to_string(order));
    tower.UseWeights();
    if (order > highest) {
      try {
        tower.Differentiate();
        FAIL() << "has a rule by now: raise the highest order";
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::kUnimplemented) << e.what();
      }
      return;
    }
    tower.Differentiate();
    tower.Check();
  }
}

}  // namespace coracle
