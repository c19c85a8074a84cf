// Optimizer ops at all combinations of numbers at the ends of their types, against their formulas
// in long double, whose range holds every square, product and sum of these numbers.

#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/operators/operators.h>
#include <coracle/test/op_test.h>
#include <coracle/test/operators/gradient_of.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace coracle::extreme_updates_test {

using Wide = long double;

// The new parameter, for a parameter, its gradient and its state, which the formula updates. `size`
// gets the size of the largest term, unless that is the old or the new parameter.
using Formula = std::function<Wide(Wide p, Wide g, Wide* state, Wide* size)>;

struct State {
  const char *in, *out;
  bool is_signed = true;
};
struct Update {
  std::string type;
  AttrList attrs;
  std::vector<State> state;
  std::vector<std::pair<const char*, float>> scalars;
  Formula formula;
  bool infinities = true;  // whether a number may be infinite
};

// Numbers whose squares double holds, for parameters of doubles.
std::vector<double> Ends(DType dtype) {
  if (dtype == DType::kFloat64) return {0, 1e-150, 1e-40, 1, 1e20, 1e150, HUGE_VAL};
  return {0, 1e-44, 1e-38, 1e-30, 1e-21, 1e-9, 1, 1e9, 1e20, 1e30, 3e38, HUGE_VAL};
}

// Every combination of the ends for Param, Grad and the pieces of state, one for each element.
std::vector<Tensor> Combinations(DType dtype, const Update& update) {
  std::vector<double> ends = Ends(dtype);
  if (!update.infinities) ends.pop_back();
  std::vector<std::vector<double>> choices;
  std::vector<double> both = ends;
  for (const double x : ends) both.push_back(-x);
  choices.push_back(both);
  choices.push_back(both);
  for (const State& s : update.state) choices.push_back(s.is_signed ? both : ends);
  size_t count = 1;
  for (const auto& of_one : choices) count *= of_one.size();
  std::vector<Tensor> tensors;
  size_t step = 1;
  for (const auto& of_one : choices) {
    Tensor wide(DType::kFloat64, {static_cast<int64_t>(count)});
    for (size_t i = 0; i < count; ++i) wide.data<double>()[i] = of_one[i / step % of_one.size()];
    tensors.push_back(wide.Cast(dtype));
    step *= of_one.size();
  }
  return tensors;
}

VarValues Run(const Update& update, const std::vector<Tensor>& tensors, KernelMode kernels) {
  std::vector<std::pair<std::string, Tensor>> inputs = {{"Param", tensors[0]},
                                                        {"Grad", tensors[1]}};
  SlotList outs = {{"ParamOut", {"ParamOut"}}};
  for (size_t k = 0; k < update.state.size(); ++k) {
    inputs.emplace_back(update.state[k].in, tensors[2 + k]);
    outs.push_back({update.state[k].out, {update.state[k].out}});
  }
  for (const auto& [slot, value] : update.scalars)
    inputs.emplace_back(slot, Tensor::Full<float>({1}, value));
  ProgramDesc program;
  VarValues values = {inputs.begin(), inputs.end()};
  const SlotList ins = DeclareInputs(program.Root(), inputs);
  Writer(program.Root(), DefaultOps()).Append(update.type, ins, outs, update.attrs);
  InterpretOptions options;
  options.kernels = kernels;
  Interpret(program.Root(), DefaultOps(), values, options);
  return values;
}

// Whether a result is the number that the formula gives, up to rounding of terms of this size. What
// is too large for the type is infinite.
template <class T>
bool IsRight(double got, Wide want, Wide size) {
  constexpr Wide kLargest = std::numeric_limits<T>::max();
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (std::abs(std::abs(want) / kLargest - 1) < 1e-5L) return true;  // rounding decides
  if (std::abs(want) > kLargest) return std::isinf(got) && (got > 0) == (want > 0);
  if (std::isinf(got)) return false;
  const Wide unit = std::numeric_limits<T>::epsilon() * std::max(size, std::abs(want));
  return std::abs(got - want) <= 16 * unit + 8 * Wide{std::numeric_limits<T>::denorm_min()};
}

template <class T>
void ExpectFormula(const Update& update, KernelMode kernels) {
  SCOPED_TRACE(testing::Message() << update.type << (sizeof(T) == 4 ? ", float" : ", double")
                                  << (kernels == KernelMode::kAuto ? ", fast" : ""));
  const std::vector<Tensor> tensors = Combinations(DTypeOf<T>(), update);
  const VarValues values = Run(update, tensors, kernels);
  const auto at = [&](const std::string& name, int64_t i) {
    return static_cast<double>(std::get<Tensor>(values.at(name)).data<T>()[i]);
  };
  const auto given = [&](int64_t i) {
    std::string text = "Param, Grad, state:";
    for (const Tensor& tensor : tensors) text += " " + testing::PrintToString(tensor.data<T>()[i]);
    return text;
  };
  int wrong = 0;
  for (int64_t i = 0; i < tensors[0].numel() && wrong < 10; ++i) {
    Wide state[3] = {};
    for (size_t k = 2; k < tensors.size(); ++k) state[k - 2] = tensors[k].data<T>()[i];
    const Wide p = tensors[0].data<T>()[i];
    Wide size = 0;
    const Wide want = update.formula(p, tensors[1].data<T>()[i], state, &size);
    const bool right = IsRight<T>(at("ParamOut", i), want, std::max(size, std::abs(p)));
    EXPECT_TRUE(right) << given(i) << ": " << at("ParamOut", i) << ", not " << want;
    wrong += right ? 0 : 1;
    for (size_t k = 0; k < update.state.size(); ++k) {
      const double got = at(update.state[k].out, i);
      const bool cancels = std::string(update.state[k].in) == "LinearAccumulator";
      const bool same = IsRight<T>(got, state[k], cancels ? size : 0);
      EXPECT_TRUE(same) << given(i) << ": " << update.state[k].out << " " << got << ", not "
                        << state[k];
      wrong += same ? 0 : 1;
    }
  }
}

void ExpectFormulas(const Update& update) {
  for (const KernelMode kernels : {KernelMode::kReference, KernelMode::kAuto})
    ExpectFormula<float>(update, kernels);
  ExpectFormula<double>(update, KernelMode::kReference);
}

constexpr float kRate = 0.125f;
const std::pair<const char*, float> kLearningRate = {"LearningRate", kRate};

TEST(ExtremeUpdates, Sgd) {
  ExpectFormulas(
      {"sgd", {}, {}, {kLearningRate}, [](Wide p, Wide g, Wide*, Wide*) { return p - kRate * g; }});
}

TEST(ExtremeUpdates, Momentum) {
  for (const bool nesterov : {false, true}) {
    ExpectFormulas({"momentum",
                    {{"mu", 0.75f}, {"use_nesterov", nesterov}, {"rescale_grad", 0.5f}},
                    {{"Velocity", "VelocityOut"}},
                    {kLearningRate},
                    [=](Wide p, Wide g, Wide* s, Wide* size) {
                      s[0] = 0.75L * s[0] + 0.5L * g;
                      *size = std::abs(g) + std::abs(s[0]);
                      return p - kRate * (nesterov ? 0.5L * g + 0.75L * s[0] : s[0]);
                    }});
  }
}

TEST(ExtremeUpdates, Adagrad) {
  for (const float epsilon : {0x1p-10f, 0.f}) {
    ExpectFormulas({"adagrad",
                    {{"epsilon", epsilon}},
                    {{"Moment", "MomentOut", false}},
                    {kLearningRate},
                    [=](Wide p, Wide g, Wide* s, Wide*) {
                      s[0] += g * g;
                      return p - kRate * (g / (std::sqrt(s[0]) + epsilon));
                    }});
    ExpectFormulas({"decayed_adagrad",
                    {{"decay", 0.75f}, {"epsilon", epsilon}},
                    {{"Moment", "MomentOut", false}},
                    {kLearningRate},
                    [=](Wide p, Wide g, Wide* s, Wide*) {
                      s[0] = 0.75L * s[0] + 0.25L * g * g;
                      return p - kRate * g / (std::sqrt(s[0]) + epsilon);
                    }});
  }
}

TEST(ExtremeUpdates, Adam) {
  struct Powers {
    float beta1, beta2, epsilon;
  };
  for (const Powers power : {Powers{0.75f, 0.875f, 0x1p-10f}, Powers{0, 0x1p-100f, 0x1p-10f},
                             Powers{0.75f, 0.875f, 0}}) {
    ExpectFormulas({"adam",
                    {{"beta1", 0.75f}, {"beta2", 0.875f}, {"epsilon", power.epsilon}},
                    {{"Moment1", "Moment1Out"}, {"Moment2", "Moment2Out", false}},
                    {kLearningRate, {"Beta1Pow", power.beta1}, {"Beta2Pow", power.beta2}},
                    [=](Wide p, Wide g, Wide* s, Wide* size) {
                      const Wide root = std::sqrt(1 - Wide{power.beta2});
                      const Wide rate = kRate * root / (1 - Wide{power.beta1});
                      s[0] = 0.75L * s[0] + 0.25L * g;
                      s[1] = 0.875L * s[1] + 0.125L * g * g;
                      const Wide update = rate * (s[0] / (std::sqrt(s[1]) + power.epsilon * root));
                      *size = std::abs(update);
                      return p - update;
                    }});
  }
}

TEST(ExtremeUpdates, Adamax) {
  for (const float epsilon : {0x1p-10f, 0.f}) {
    for (const float power : {0.75f, 0x1p-100f}) {
      ExpectFormulas({"adamax",
                      {{"beta1", 0.75f}, {"beta2", 0.875f}, {"epsilon", epsilon}},
                      {{"Moment", "MomentOut"}, {"InfNorm", "InfNormOut", false}},
                      {kLearningRate, {"Beta1Pow", power}},
                      [=](Wide p, Wide g, Wide* s, Wide* size) {
                        s[0] = 0.75L * s[0] + 0.25L * g;
                        s[1] = std::max(std::abs(g), 0.875L * s[1] + epsilon);
                        const Wide update = kRate / (1 - Wide{power}) * (s[0] / s[1]);
                        *size = std::abs(update);
                        return p - update;
                      }});
    }
  }
}

TEST(ExtremeUpdates, Adadelta) {
  for (const float epsilon : {0x1p-10f, 0.f}) {
    ExpectFormulas({"adadelta",
                    {{"rho", 0.75f}, {"epsilon", epsilon}},
                    {{"AvgSquaredGrad", "AvgSquaredGradOut", false},
                     {"AvgSquaredUpdate", "AvgSquaredUpdateOut", false}},
                    {kLearningRate},
                    [=](Wide p, Wide g, Wide* s, Wide* size) {
                      s[0] = 0.75L * s[0] + 0.25L * g * g;
                      const Wide update =
                          -std::sqrt(s[1] + epsilon) / std::sqrt(s[0] + epsilon) * g;
                      s[1] = 0.75L * s[1] + 0.25L * update * update;
                      *size = std::abs(update);
                      return p + kRate * update;
                    }});
  }
}

TEST(ExtremeUpdates, Rmsprop) {
  for (const float epsilon : {0x1p-10f, 0.f}) {
    ExpectFormulas({"rmsprop",
                    {{"decay", 0.75f}, {"epsilon", epsilon}, {"momentum", 0.5f}},
                    {{"MeanSquare", "MeanSquareOut", false}, {"Moment", "MomentOut"}},
                    {kLearningRate},
                    [=](Wide p, Wide g, Wide* s, Wide* size) {
                      s[0] = 0.75L * s[0] + 0.25L * g * g;
                      s[1] = 0.5L * s[1] + kRate * g / std::sqrt(s[0] + epsilon);
                      *size = std::abs(s[1]);
                      return p - s[1];
                    }});
  }
}

TEST(ExtremeUpdates, Ftrl) {
  ExpectFormulas(
      {"ftrl",
       {{"l1", 0.5f}, {"l2", 0.25f}},
       {{"SquaredAccumulator", "SquaredAccumOut", false}, {"LinearAccumulator", "LinearAccumOut"}},
       {kLearningRate},
       [](Wide p, Wide g, Wide* s, Wide* size) {
         const Wide l1 = 0.5L + 1e-10L, l2 = 0.25L + 1e-10L;
         const Wide squared = s[0] + g * g;
         const Wide now = std::sqrt(squared), before = std::sqrt(s[0]);
         *size = std::abs(s[1]) + std::abs(g) + (now + before) / kRate * std::abs(p);
         s[0] = squared;
         s[1] += g - (now - before) / kRate * p;
         if (std::abs(s[1]) <= l1) return Wide{0};
         return (std::copysign(l1, s[1]) - s[1]) / (now / kRate + 2 * l2);
       },
       false});
}

TEST(ExtremeUpdates, Proximal) {
  const auto nearest = [](Wide q) {
    return std::copysign(std::max(std::abs(q) - kRate * 0.5L, 0.0L), q) / (1 + kRate * 0.25L);
  };
  ExpectFormulas({"proximal_gd",
                  {{"l1", 0.5f}, {"l2", 0.25f}},
                  {},
                  {kLearningRate},
                  [=](Wide p, Wide g, Wide*, Wide*) { return nearest(p - kRate * g); }});
  ExpectFormulas({"proximal_adagrad",
                  {{"l1", 0.5f}, {"l2", 0.25f}},
                  {{"Moment", "MomentOut", false}},
                  {kLearningRate},
                  [=](Wide p, Wide g, Wide* s, Wide*) {
                    s[0] += g * g;
                    return nearest(p - (s[0] == 0 ? 0 : kRate * g / std::sqrt(s[0])));
                  }});
}

TEST(ExtremeUpdates, Lion) {
  ExpectFormulas({"lion",
                  {{"beta1", 0.875f}, {"beta2", 0.75f}, {"weight_decay", 0.5f}},
                  {{"Moment", "MomentOut"}},
                  {kLearningRate},
                  [](Wide p, Wide g, Wide* s, Wide*) {
                    const Wide c = 0.875L * s[0] + 0.125L * g;
                    s[0] = 0.75L * s[0] + 0.25L * g;
                    const Wide sign = c > 0 ? 1 : c < 0 ? -1 : c;
                    return p - kRate * (sign + 0.5L * p);
                  }});
}

}  // namespace coracle::extreme_updates_test
