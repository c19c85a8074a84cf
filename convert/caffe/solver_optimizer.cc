// The optimizer of a solver; docs/optimizers.md describes Caffe's solvers.

#include <coracle/convert/caffe/solver.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <cmath>

namespace coracle::caffe {
namespace {

using proto::caffe::SolverParameter;

void RequireNotNegative(const SolverText& s, const char* field, double value) {
  if (!(value >= 0) || !std::isfinite(value))
    s.Fail(field, fmt::format("must be finite and not negative, got {}", value));
}

}  // namespace

std::string OptimizerText(const SolverText& s) {
  const SolverParameter& p = s.def;
  RequireNotNegative(s, "base_lr", static_cast<double>(p.base_lr()));
  RequireNotNegative(s, "momentum", static_cast<double>(p.momentum()));
  RequireNotNegative(s, "delta", static_cast<double>(p.delta()));
  const std::string& type = p.type();
  const auto make = [&](const char* kind, Entry entry) {
    return fmt::format("{} {{ {} }}", kind, entry.Body());
  };
  const auto no_momentum = [&] {
    if (p.momentum() != 0)
      s.Fail("momentum", fmt::format("must be 0 for the type {}, got {}", type, p.momentum()));
  };
  Entry rate("");
  rate.Float("learning_rate", p.base_lr());
  if (type == "SGD" || type == "Nesterov") {
    if (type == "SGD" && p.momentum() == 0) return make("sgd", rate);
    rate.Float("momentum", p.momentum());
    if (type == "Nesterov") rate.Bool("use_nesterov", true);
    return make("momentum", rate.Bool("velocity_holds_rate", true));
  }
  if (type == "AdaGrad") {
    no_momentum();
    return make("adagrad", rate.Float("epsilon", p.delta()));
  }
  if (type == "RMSProp") {
    no_momentum();
    if (!(p.rms_decay() >= 0 && p.rms_decay() < 1))
      s.Fail("rms_decay", fmt::format("must lie in [0, 1), got {}", p.rms_decay()));
    return make("decayed_adagrad", rate.Float("decay", p.rms_decay()).Float("epsilon", p.delta()));
  }
  if (type == "AdaDelta")
    return make("adadelta", rate.Float("rho", p.momentum()).Float("epsilon", p.delta()));
  if (type == "Adam") {
    rate.Float("beta1", p.momentum()).Float("beta2", p.momentum2());
    return make("adam", rate.Float("epsilon", p.delta()).Bool("use_epsilon_hat", true));
  }
  s.Fail(
      "type",
      fmt::format("{}: no such solver{}", Quote(type),
                  DidYouMean(type, {"SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"})));
}

std::string ScheduleText(const SolverText& s) {
  const SolverParameter& p = s.def;
  const std::string& policy = p.lr_policy();
  Entry entry("");
  const auto make = [&](const char* kind) {
    return fmt::format("{} {{ {} }}", kind, entry.Body());
  };
  const auto stepsize = [&] {
    if (p.stepsize() < 1) s.Fail("stepsize", fmt::format("must be positive, got {}", p.stepsize()));
    return p.stepsize();
  };
  if (policy == "fixed") return "";
  if (policy != "poly") RequireNotNegative(s, "gamma", static_cast<double>(p.gamma()));
  if (policy == "step") {
    entry.Float("gamma", p.gamma()).Int("step_size", stepsize());
    return make("step");
  }
  if (policy == "exp") {
    entry.Float("gamma", p.gamma());
    return make("exponential");
  }
  if (policy == "inv") {
    entry.Float("gamma", p.gamma()).Float("power", p.power());
    return make("inv");
  }
  if (policy == "multistep") {
    Dims steps;
    for (int i = 0; i < p.stepvalue_size(); ++i) {
      if (p.stepvalue(i) < 0 || (!steps.empty() && p.stepvalue(i) <= steps.back()))
        s.Fail("stepvalue", "must ascend from 0 on");
      steps.push_back(p.stepvalue(i));
    }
    entry.Float("gamma", p.gamma()).Field("milestone", ListText(steps));
    return make("multistep");
  }
  if (policy == "poly") {
    RequireNotNegative(s, "power", static_cast<double>(p.power()));
    entry.Int("steps", p.max_iter()).Float("end", 0).Float("power", p.power());
    return make("polynomial");
  }
  if (policy == "sigmoid") {
    entry.Float("gamma", p.gamma()).Int("middle", stepsize());
    return make("sigmoid");
  }
  if (policy.empty()) s.Fail("lr_policy", "is missing: fixed, step, exp, inv, multistep, ...");
  s.Fail("lr_policy", fmt::format("{}: no such policy{}", Quote(policy),
                                  DidYouMean(policy, {"fixed", "step", "exp", "inv", "multistep",
                                                      "poly", "sigmoid"})));
}

std::string RegularizerText(const SolverText& s) {
  const SolverParameter& p = s.def;
  RequireNotNegative(s, "weight_decay", static_cast<double>(p.weight_decay()));
  if (p.weight_decay() == 0) return "";
  const std::string& type = p.regularization_type();
  if (type != "L1" && type != "L2")
    s.Fail("regularization_type", fmt::format("must be L1 or L2, got {}", Quote(type)));
  return fmt::format("{} {{ coeff: {} }}", type == "L2" ? "l2_decay" : "l1_decay",
                     Number(p.weight_decay()));
}

}  // namespace coracle::caffe
