// Gradients of whole programs, against differences: the interpreter's and the executor's.

#include <coracle/backward/backward.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>

#include <cmath>
#include <map>
#include <random>

namespace coracle {
namespace {

VarValues CloneAll(const VarValues& env) {
  VarValues copy;
  for (const auto& [name, value] : env) copy[name] = CloneValue(value);
  return copy;
}

BackwardOptions WithRespectTo(std::vector<std::string> names) {
  BackwardOptions options;
  options.parameter_list = std::move(names);
  return options;
}

double LossOf(const ProgramDesc& program, const std::string& loss, VarValues env) {
  Interpret(program.Root(), DefaultOps(), env);
  return std::get<Tensor>(env.at(loss)).Item<double>();
}

// Moves x by `step` along the direction.
void Move(Tensor& x, const Tensor& direction, double step) {
  for (int64_t k = 0; k < x.numel(); ++k) x.data<double>()[k] += step * direction.data<double>()[k];
}

Tensor Direction(const Shape& shape, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Tensor direction(DType::kFloat64, shape);
  for (double& v : direction.span<double>()) v = normal(random);
  return direction;
}

}  // namespace

void CheckProgramGradient(const std::vector<std::string>& types, const ProgramDesc& program,
                          const std::string& loss, const std::vector<std::string>& wrt,
                          const VarValues& inputs) {
  for (const std::string& type : types) {
    bool found = false;
    for (int b = 0; b < program.NumBlocks(); ++b) {
      for (size_t i = 0; i < program.Block(b).NumOps(); ++i)
        found |= program.Block(b).op(i).type() == type;
    }
    EXPECT_TRUE(found) << "the program has no " << type;
    NoteCheckedGradient(type);
  }
  ProgramDesc differentiated = program;
  const auto pairs = AppendBackward(Variable::Of(differentiated.Root(), loss), WithRespectTo(wrt));
  VarValues interpreted = CloneAll(inputs);
  Interpret(differentiated.Root(), DefaultOps(), interpreted);
  std::map<std::string, Tensor> feeds;
  for (const auto& [name, value] : inputs) feeds[name] = std::get<Tensor>(value).Clone();
  std::vector<std::string> fetches;
  for (const ParamAndGrad& pair : pairs) {
    ASSERT_NE(pair.grad, "") << pair.param;
    fetches.push_back(pair.grad);
  }
  Scope scope;
  const std::vector<Tensor> run = Executor().Run(differentiated, scope, feeds, fetches);
  double largest = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const Tensor& grad = std::get<Tensor>(interpreted.at(pairs[i].grad));
    const Tensor direction = Direction(grad.shape(), static_cast<uint32_t>(i + 5));
    ASSERT_EQ(run[i].shape(), grad.shape()) << pairs[i].param;
    double analytic = 0, moved[2] = {0, 0};
    constexpr double kStep = 1e-5;
    for (int64_t k = 0; k < grad.numel(); ++k) {
      analytic += grad.data<double>()[k] * direction.data<double>()[k];
      largest = std::max(largest, std::abs(grad.data<double>()[k]));
      EXPECT_NEAR(run[i].data<double>()[k], grad.data<double>()[k], 1e-12) << pairs[i].param;
    }
    for (int side : {0, 1}) {
      VarValues env = CloneAll(inputs);
      Move(std::get<Tensor>(env.at(pairs[i].param)), direction, side ? kStep : -kStep);
      moved[side] = LossOf(program, loss, std::move(env));
    }
    const double numeric = (moved[1] - moved[0]) / (2 * kStep);
    EXPECT_NEAR(analytic, numeric, 1e-6 * std::max(1.0, std::abs(numeric))) << pairs[i].param;
  }
  EXPECT_GT(largest, 1e-6) << "all gradients are zero";
}

}  // namespace coracle
