#include <coracle/clip/error_clip.h>
#include <coracle/clip/gradient_clip.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/optimizer/optimizer.h>
#include <fmt/format.h>

#include <cmath>

namespace coracle {
namespace {

VarDesc& MakeState(ProgramDesc& program, const std::string& name, DType dtype, const Shape& shape) {
  VarDesc& var = program.Root().Var(name);
  var.SetDType(dtype);
  var.SetShape(shape);
  var.SetPersistable(true);
  var.SetStopGradient(true);
  return var;
}

// The same persistable variable in both programs; `startup` fills it.
void MakeFilledState(ProgramDesc& main, ProgramDesc& startup, const std::string& name, DType dtype,
                     const Shape& shape, double value) {
  MakeState(main, name, dtype, shape);
  MakeState(startup, name, dtype, shape);
  startup.Root().AppendOp("fill_constant", {}, {{"Out", {name}}},
                          {{"shape", shape.ToVector()},
                           {"dtype", static_cast<int32_t>(dtype)},
                           {"value", static_cast<float>(value)},
                           {"force_cpu", false}});
}

// Appends ops that turn the gradient of one parameter into another.
class GradientChain {
 public:
  GradientChain(ProgramDesc& main, const VarDesc& param, std::string grad)
      : main_(main), param_(param), grad_(std::move(grad)) {}

  void Clip(const Setting& clip) {
    if (clip.kind == "by_value") {
      const double max = clip.Get<double>("max", 0), min = clip.Get<double>("min", -max);
      Step("@CLIPPED", "clip", {{"X", {grad_}}},
           {{"min", static_cast<float>(min)}, {"max", static_cast<float>(max)}});
    } else if (clip.kind == "by_norm") {
      const double max_norm = clip.Get<double>("clip_norm", clip.Get<double>("max_norm", 0));
      Step("@CLIPPED", "clip_by_norm", {{"X", {grad_}}},
           {{"max_norm", static_cast<float>(max_norm)}});
    } else {
      ThrowUnknown("gradient clip", clip.kind, {"by_value", "by_norm", "by_global_norm"});
    }
  }

  void Regularize(const Setting& regularizer) {
    const double coeff = regularizer.Get<double>("coeff", 0);
    std::string source = param_.name();
    if (regularizer.kind == "l1_decay") {
      source = Append("@SIGN", "sign", {{"X", {source}}}, {});
    } else if (regularizer.kind != "l2_decay") {
      ThrowUnknown("regularizer", regularizer.kind, {"l1_decay", "l2_decay"});
    }
    if (coeff == 0) return;
    const std::string decay =
        Append("@DECAY", "scale", {{"X", {source}}}, {{"scale", static_cast<float>(coeff)}});
    Step("@DECAYED", "sum", {{"X", {grad_, decay}}}, {});
  }

  const std::string& grad() const { return grad_; }

 private:
  [[noreturn]] void ThrowUnknown(const char* what, const std::string& kind,
                                 const std::vector<std::string>& known) const {
    ThrowInvalid(fmt::format(
        "optimizer: the parameter {} has a {} of the unknown kind {}; known: "
        "{}{}",
        Quote(param_.name()), what, Quote(kind), Join(known, ", "), DidYouMean(kind, known)));
  }
  std::string Append(const char* suffix, std::string type, SlotList inputs, AttrList attrs) {
    const std::string out = main_.FreeName(param_.name() + suffix);
    main_.Root().Var(out).SetMeta(param_.meta());
    InferOp(main_.Root(),
            main_.Root().AppendOp(std::move(type), std::move(inputs), {{"Out", {out}}},
                                  std::move(attrs)),
            DefaultOps());  // the gradient may be selected rows
    return out;
  }
  void Step(const char* suffix, std::string type, SlotList inputs, AttrList attrs) {
    const std::string hint = std::string(kGradSuffix) + suffix;
    grad_ = Append(hint.c_str(), std::move(type), std::move(inputs), std::move(attrs));
  }

  ProgramDesc& main_;
  const VarDesc& param_;
  std::string grad_;
};

void SetRoles(BlockDesc& block, size_t first, const ParamAndGrad& pair) {
  for (size_t i = first; i < block.NumOps(); ++i) {
    OpDesc& op = block.op(i);
    if (op.HasAttr(kOpRoleAttr)) continue;
    op.SetAttr(kOpRoleAttr, int32_t{kOptimize});
    op.SetAttr(kOpRoleVarAttr, std::vector<std::string>{pair.param, pair.grad});
  }
}

}  // namespace

Optimizer::Optimizer(double learning_rate) : learning_rate_(learning_rate) {
  if (!(learning_rate >= 0) || std::isinf(learning_rate)) {
    ThrowInvalid(fmt::format("optimizer: the learning rate must be finite and not negative, got {}",
                             learning_rate));
  }
}

std::vector<ParamAndGrad> Optimizer::Minimize(const Variable& loss, ProgramDesc& startup,
                                              const MinimizeOptions& options) {
  BackwardOptions backward;
  backward.parameter_list = options.parameter_list;
  backward.no_grad_set = options.no_grad_set;
  backward.callbacks = {ErrorClipCallback};
  backward.recompute = options.recompute;
  backward.ops = options.ops;
  GradToVar grad_to_var;
  std::vector<ParamAndGrad> pairs = AppendBackward(loss, backward, &grad_to_var);
  std::erase_if(pairs, [](const ParamAndGrad& pair) { return pair.grad.empty(); });
  if (pairs.empty()) {
    ThrowInvalid(fmt::format(
        "optimizer: the loss {} depends on no trainable parameter, so there is nothing to minimize",
        Quote(loss.name())));
  }
  WarnOfIdleErrorClips(loss.program(), grad_to_var);
  return ApplyGradients(loss.program(), startup, pairs);
}

std::vector<ParamAndGrad> Optimizer::ApplyGradients(ProgramDesc& main, ProgramDesc& startup,
                                                    const std::vector<ParamAndGrad>& pairs) {
  if (learning_rate_var_.empty() && schedule_) {
    learning_rate_var_ = AppendLrSchedule(*schedule_, main, startup);
  } else if (learning_rate_var_.empty()) {
    learning_rate_var_ = main.UniqueName("learning_rate");
    MakeFilledState(main, startup, learning_rate_var_, DType::kFloat32, {1}, learning_rate_);
  }
  BlockDesc& root = main.Root();
  if (!root.FindVar(learning_rate_var_)) {
    ThrowInvalid(
        fmt::format("optimizer: the program has no variable {}, the learning rate of this "
                    "optimizer: one object serves one program",
                    Quote(learning_rate_var_)));
  }
  std::vector<ParamAndGrad> updated;
  for (const ParamAndGrad& pair : pairs) {
    const bool trained =
        !pair.grad.empty() && Variable::Of(root, pair.param).desc().training().trainable;
    if (trained) updated.push_back(pair);
  }
  const std::map<std::string, std::string> clipped = ClipByGlobalNorm(main, updated);
  for (const ParamAndGrad& pair : updated) {
    const VarDesc& param = Variable::Of(root, pair.param).desc();
    const size_t first = root.NumOps();
    const auto global = clipped.find(pair.param);
    GradientChain chain(main, param, global == clipped.end() ? pair.grad : global->second);
    const std::optional<Setting>& clip = ClipOf(param);
    if (clip && global == clipped.end()) chain.Clip(*clip);
    if (param.training().regularizer) chain.Regularize(*param.training().regularizer);
    AppendUpdate(main, startup, {pair.param, chain.grad()}, LearningRateOf(main, param));
    SetRoles(root, first, pair);
  }
  return updated;
}

const std::optional<Setting>& Optimizer::ClipOf(const VarDesc& param) const {
  const std::optional<Setting>& own = param.training().gradient_clip;
  return own ? own : gradient_clip_;
}

std::map<std::string, std::string> Optimizer::ClipByGlobalNorm(
    ProgramDesc& main, const std::vector<ParamAndGrad>& pairs) const {
  std::vector<GlobalNormMember> members;
  for (const ParamAndGrad& pair : pairs) {
    const std::optional<Setting>& clip = ClipOf(Variable::Of(main.Root(), pair.param).desc());
    if (clip && clip->kind == "by_global_norm") members.push_back({pair, *clip});
  }
  const std::vector<std::string> names = AppendGlobalNormClip(main, members);
  std::map<std::string, std::string> clipped;
  for (size_t i = 0; i < members.size(); ++i) clipped[members[i].pair.param] = names[i];
  return clipped;
}

std::string Optimizer::LearningRateOf(ProgramDesc& main, const VarDesc& param) {
  const double multiplier = param.training().learning_rate;
  if (multiplier == 1.0) return learning_rate_var_;
  auto [it, added] = scaled_rates_.try_emplace(multiplier);
  if (added) {
    it->second = main.UniqueName(learning_rate_var_ + "_scaled");
    VarDesc& var = main.Root().Var(it->second);
    var.SetShape({1});
    var.SetStopGradient(true);
    main.Root().AppendOp(
        "scale", {{"X", {learning_rate_var_}}}, {{"Out", {it->second}}},
        {{"scale", static_cast<float>(multiplier)}, {kOpRoleAttr, int32_t{kOptimize | kLRSched}}});
  }
  return it->second;
}

std::string Optimizer::Accumulator(ProgramDesc& main, ProgramDesc& startup,
                                   const std::string& param, const std::string& suffix,
                                   double value, const Shape* shape) {
  const VarDesc& var = Variable::Of(main.Root(), param).desc();
  const DType dtype = var.dtype();
  const Shape filled = shape ? *shape : var.shape();
  std::string name = main.UniqueName(param + "_" + suffix);
  MakeFilledState(main, startup, name, dtype, filled, value);
  return name;
}

}  // namespace coracle
