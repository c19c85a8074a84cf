#include <coracle/clip/clip.h>
#include <coracle/clip/internal/clip_writer.h>
#include <coracle/clip/internal/text_clip.h>
#include <coracle/clip/split_factor.h>
#include <coracle/framework/base/registry.h>
#include <coracle/framework/base/required.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/kernels/decimal.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <optional>

namespace coracle {
namespace {

constexpr const char* kNonFinite[] = {"propagate", "error", "zero", "skip"};
const char* NameOf(NonFinite policy) { return kNonFinite[static_cast<size_t>(policy)]; }

// --- the kinds in texts and Settings ---

struct ValueOptions {
  double max = 0;
  std::optional<double> min = std::nullopt;
};
const Fields<ValueOptions>& ValueFields() {
  static const auto table = Fields<ValueOptions>("Every element into [min, max].")
                                .Add("max", &ValueOptions::max, "", kRequired)
                                .Add("min", &ValueOptions::min, "default: -max");
  return table;
}

struct NormOptions {
  double clip_norm = 0;
  double norm_type = GradientNormOptions().norm_type;
  std::string non_finite = NameOf(GradientNormOptions().non_finite);
  std::string group_name = kDefaultClipGroup;  // only for by_global_norm
};
Fields<NormOptions> NormFieldsOf(const char* doc) {
  return Fields<NormOptions>(doc)
      .Add("clip_norm", &NormOptions::clip_norm, "", kRequired,
           FieldRange{0, HUGE_VAL, true, true, "must be positive and finite"})
      .Add("norm_type", &NormOptions::norm_type,
           "p of the norm, at least 1; inf: the largest element",
           FieldRange{1, HUGE_VAL, false, false, "must be at least 1, or infinity"})
      .Add("non_finite", &NormOptions::non_finite,
           "what to do if the norm is a nan or infinite: propagate, error, zero, skip (the step)");
}
const Fields<NormOptions>& NormFields() {
  static const auto table = NormFieldsOf("A gradient is scaled down to the norm clip_norm.");
  return table;
}
const Fields<NormOptions>& GlobalNormFields() {
  static const auto table =
      NormFieldsOf(
          "All gradients of the group are scaled by one factor, so that together they have at most "
          "the norm clip_norm.")
          .Add("group_name", &NormOptions::group_name, "");
  return table;
}

const Fields<AdaptiveClipOptions>& AdaptiveFields() {
  using O = AdaptiveClipOptions;
  const FieldRange positive = {0, HUGE_VAL, true, true, "must be positive and finite"};
  static const auto table =
      Fields<O>(
          "A slice of the gradient whose L2 norm exceeds clip_factor times the norm of "
          "the same slice of the parameter (at least epsilon) is scaled down to it.")
          .Add("clip_factor", &O::clip_factor, "", positive)
          .Add("epsilon", &O::epsilon, "", positive)
          .Add("axis", &O::axis, "of the slices: 0 for rows",
               FieldRange{0, HUGE_VAL, false, true, "must not be negative"});
  return table;
}

// Removes attrs that the table does not have: a later version may have written them.
Setting Known(const FieldTable& fields, const Setting& clip) {
  Setting known{clip.kind, {}};
  for (const NamedAttr& attr : clip.attrs)
    if (fields.Find(attr.name)) known.attrs.push_back(attr);
  return known;
}

std::string Who(const Setting& clip) { return "gradient clip " + clip.kind; }

// Renames max_norm, the older name of clip_norm.
Setting Renamed(Setting clip) {
  if (clip.kind != "by_norm" && clip.kind != "by_global_norm") return clip;
  if (clip.Find("clip_norm") && clip.Find("max_norm")) {
    ThrowInvalid(
        fmt::format("{}: clip_norm and its older name max_norm cannot both be given", Who(clip)));
  }
  for (NamedAttr& attr : clip.attrs)
    if (attr.name == "max_norm") attr.name = "clip_norm";
  return clip;
}

template <class Options>
Options Load(const Fields<Options>& fields, const Setting& clip) {
  return fields.Check(Who(clip), fields.Read(Who(clip), Known(fields, Renamed(clip))));
}

NormOptions LoadNorm(const Setting& clip) { return Load(GlobalNormFields(), clip); }

[[noreturn]] void Refuse(const ClipMember& member, const std::string& what) {
  ThrowInvalid(
      fmt::format("gradient clip: {}, for the parameter {}", what, Quote(member.pair.param)));
}

// --- ops ---

// The dtype in which a norm is kept as a statistic. Clips compute with float64 norms.
DType NormDType(const Variable& var) { return IsHalf(var.dtype()) ? DType::kFloat32 : var.dtype(); }

Variable Limit(const Writer& w, DType dtype, double value) {
  return w.Named("limit", FillConstant(w, dtype, value));
}

// The norm of order p, divided by 2^exponent.
Variable TotalNorm(const Writer& w, const Variable& x, double p, int32_t exponent = 0) {
  return w.Named("part", w.Make("total_norm", {{"X", {x.name()}}},
                                {{"porder", static_cast<float>(p)}, {"exponent", exponent}}));
}

// The gradient itself, or selected rows scattered into the parameter's shape.
Variable DenseGradient(const Writer& w, const Variable& grad) {
  if (!IsSparse(grad)) return grad;
  return w.Named("dense", w.Make("get_tensor_from_selected_rows", {{"X", {grad.name()}}}));
}

// Appends an op that writes a new variable <param>@GRAD@CLIPPED.
std::string Clipped(const Writer& w, const ParamAndGrad& pair, const std::string& type,
                    SlotList inputs, AttrList attrs) {
  std::string out = w.block().program().FreeName(GradName(pair.param) + "@CLIPPED");
  attrs.push_back({kOpRoleVarAttr, std::vector<std::string>{pair.param, out}});
  w.Into(out, type, std::move(inputs), std::move(attrs));
  return out;
}

// Attrs are float32. If a float64 gradient has a limit that float32 cannot hold, the limit becomes
// an input.
void PutLimit(const Writer& w, const ParamAndGrad& pair, const char* slot, double limit,
              SlotList& inputs) {
  const DType dtype = w.Var(pair.grad).dtype();
  if (dtype == DType::kFloat64 && double{static_cast<float>(limit)} != limit)
    inputs.push_back({slot, {Limit(w, dtype, limit).name()}});
}

// The value that an op reads from its float32 attr for this p.
double HeldByAttr(double p) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  return std::isinf(p) ? p : DecimalOf(static_cast<float>(std::min(p, kLargest)));
}

// How a norm is computed, and what its value causes.
struct NormRule {
  double clip_norm, p;
  NonFinite non_finite;

  static NormRule Of(const Setting& clip) {
    const NormOptions options = LoadNorm(clip);
    const auto known = std::find(std::begin(kNonFinite), std::end(kNonFinite), options.non_finite);
    if (known == std::end(kNonFinite)) {
      const std::vector<std::string> names(std::begin(kNonFinite), std::end(kNonFinite));
      ThrowInvalid(fmt::format("gradient clip {}: unknown non_finite {}{}; known: {}", clip.kind,
                               Quote(options.non_finite), DidYouMean(options.non_finite, names),
                               Join(names, ", ")));
    }
    const double p = options.norm_type, held = HeldByAttr(p);
    if (held != p) {
      const char* must = p > double{std::numeric_limits<float>::max()}
                             ? "be at most what float32 holds"
                             : "have no more digits than float32 holds";
      ThrowInvalid(fmt::format("gradient clip {}: norm_type must {}, got {}; the nearest is {}",
                               clip.kind, must, p, held));
    }
    return {options.clip_norm, p, static_cast<NonFinite>(known - std::begin(kNonFinite))};
  }
  bool operator==(const NormRule&) const = default;
  std::string ToString() const {
    return fmt::format("clip_norm {}, norm_type {}, non_finite {}", clip_norm, p,
                       NameOf(non_finite));
  }
};

// Writes the statistics of AppendGradientClips. `norms` are float64 and are kept as `dtype`.
void KeepStatistics(const Writer& w, ProgramDesc& startup, const std::string& group,
                    const Variable& norms, double clip_norm, DType dtype) {
  ProgramDesc& main = w.block().program();
  const auto name_of = [](const std::string& group, const char* statistic) {
    return "gradient_clip." + group + statistic;
  };
  std::string unique = group;
  for (int i = 1; main.Root().FindVar(name_of(unique, ".norm")); ++i)
    unique = fmt::format("{}_{}", group, i);
  const auto state = [&](const char* statistic, DType dtype, const Shape& shape) {
    return MakeState(main, startup, name_of(unique, statistic), dtype, shape, 0);
  };
  const Writer keep = w.Part(TrainingPart::kNorm, unique);
  const std::string kept = state(".norm", dtype, norms.shape());
  if (dtype == norms.dtype())
    keep.Into(kept, "assign", {{"X", {norms.name()}}});
  else
    keep.Into(kept, "cast", {{"X", {norms.name()}}}, CastAttrs(norms.dtype(), dtype));
  const std::string steps = state(".steps", DType::kInt64, {1});
  w.Part(TrainingPart::kCounter, unique)
      .Into(steps, "increment", {{"X", {steps}}}, {{"step", 1.0f}});
  const Variable limit = Limit(w.Part(TrainingPart::kLimit, unique), norms.dtype(), clip_norm);
  const Variable exceeds = w.Named("exceeds", Greater(norms, limit));
  const Variable ones = w.Named("ones", Cast(exceeds, DType::kInt64));
  const std::string clipped = state(".clipped_steps", DType::kInt64, norms.shape());
  w.Into(clipped, "sum", {{"X", {clipped, ones.name()}}});
}

// Appends the ops for gradients that share a norm. Call Add for each gradient, then Finish, then
// Scaled for each.
class NormClip {
 public:
  NormClip(BlockDesc& block, ProgramDesc& startup, const NormRule& rule, const ClipMember& first)
      : w_(ClipWriter(block)),
        startup_(startup),
        rule_(rule),
        dtype_(NormDType(w_.Var(first.pair.param))),
        exponent_(dtype_ == DType::kFloat64 && rule.clip_norm > kLeastScaledLimit ? kNormExponent
                                                                                  : 0) {}

  const NormRule& rule() const { return rule_; }
  DType dtype() const { return dtype_; }

  void Add(const ClipMember& member) {
    const Variable grad = w_.Var(member.pair.grad);
    if (rule_.non_finite == NonFinite::kZero && IsSparse(grad))
      Refuse(member, "non_finite zero is for dense gradients, and this one is sparse");
    parts_.push_back(TotalNorm(w_, grad, rule_.p, exponent_));
  }

  // `what` describes the gradients in names and messages.
  void Finish(const std::string& what, bool keep_statistics) {
    norm_ = parts_.size() == 1 ? parts_[0]
                               : TotalNorm(w_, w_.Named("parts", Concat(parts_, 0)), rule_.p);
    const Variable limit = Limit(w_, DType::kFloat64, std::ldexp(rule_.clip_norm, -exponent_));
    const Variable max = w_.Named("max", Max(norm_, limit));
    if (dtype_ == DType::kFloat64)
      SplitFactorOf(limit, max, what);
    else
      factor_.factor = w_.Named("factor", limit / max);
    if (rule_.non_finite != NonFinite::kPropagate) finite_ = w_.Named("finite", IsFinite(norm_));
    if (keep_statistics) {
      const Variable norm =
          exponent_ == 0 ? norm_ : w_.Named("norm", norm_ * std::ldexp(1, exponent_));
      KeepStatistics(w_, startup_, what, norm, rule_.clip_norm, dtype_);
    }
    if (rule_.non_finite != NonFinite::kError) return;
    w_.Append("assert", {{"Cond", {finite_.name()}}, {"Data", {norm_.name()}}}, {},
              {{"message", fmt::format("the norm of the gradients of {} is not finite", what)}});
  }

  std::string Scaled(const ParamAndGrad& pair) {
    std::string grad = pair.grad;
    Variable factor = factor_.factor;
    if (dtype_ == DType::kFloat64) {
      grad = w_.Named("first", Scale(w_.Var(grad), factor)).name();
      factor = factor_.rest;
    }
    const std::string scaled = Clipped(
        w_, pair, "scale", {{"X", {grad}}, {"ScaleTensor", {factor.name()}}}, {{"scale", 1.0f}});
    if (rule_.non_finite != NonFinite::kZero) return scaled;
    const Variable index = w_.Named("choice", Cast(finite_, DType::kInt32));
    const Variable zeros = w_.Named("zeros", ZerosLike(w_.Var(pair.grad)));
    return Clipped(w_, pair, "select_input",
                   {{"X", {zeros.name(), scaled}}, {"Mask", {index.name()}}}, {});
  }

  // "" unless this norm can cause the step to be skipped.
  std::string guard() const { return rule_.non_finite == NonFinite::kSkip ? finite_.name() : ""; }

 private:
  void SplitFactorOf(const Variable& limit, const Variable& max, const std::string& what) {
    const double most =
        std::min(std::ldexp(rule_.clip_norm, 1000 - exponent_), std::numeric_limits<double>::max());
    factor_ = SplitQuotient(w_, limit, max, Limit(w_, DType::kFloat64, most));
    if (exponent_ == 0) RefuseLargeNorms(what);
  }

  // Two factors cannot scale a norm beyond 1e280 to a limit that is so small, so the run fails. An
  // infinite norm is handled as `non_finite` says.
  void RefuseLargeNorms(const std::string& what) {
    const Variable above = w_.Named("above", And(Greater(norm_, 1e280), IsFinite(norm_)));
    const Variable fits = w_.Named("fits", Not(above));
    w_.Append("assert", {{"Cond", {fits.name()}}, {"Data", {norm_.name()}}}, {},
              {{"message", fmt::format("the norm of the gradients of {} is too large for the limit "
                                       "{:g}; a larger clip_norm mends it",
                                       what, rule_.clip_norm)}});
  }

  Writer w_;
  ProgramDesc& startup_;
  NormRule rule_;
  DType dtype_;
  int32_t exponent_;
  std::vector<Variable> parts_;
  Variable norm_, finite_;  // float64, in units of 2^exponent_; bool
  SplitFactor factor_;      // float64
};

void AddGuard(ClippedGradients& result, const std::string& guard) {
  if (!guard.empty()) result.guards.push_back(guard);
}

std::pair<double, double> LimitsOf(const Setting& clip) {
  const ValueOptions options = Load(ValueFields(), clip);
  const double max = options.max, min = options.min.value_or(-max);
  if (min <= max) return {min, max};
  ThrowInvalid(fmt::format(
      "gradient clip by_value: max must not be less than min, got max {} and min {}", max, min));
}

ClippedGradients ByValue(BlockDesc& block, ProgramDesc&, const std::vector<ClipMember>& members) {
  const Writer w = ClipWriter(block);
  ClippedGradients result;
  for (const ClipMember& member : members) {
    const auto [min, max] = LimitsOf(member.clip);
    SlotList inputs = {{"X", {member.pair.grad}}};
    PutLimit(w, member.pair, "Min", min, inputs);
    PutLimit(w, member.pair, "Max", max, inputs);
    result.grads.push_back(
        Clipped(w, member.pair, "clip", std::move(inputs),
                {{"min", static_cast<float>(min)}, {"max", static_cast<float>(max)}}));
  }
  return result;
}

ClippedGradients ByNorm(BlockDesc& block, ProgramDesc& startup,
                        const std::vector<ClipMember>& members) {
  const Writer w = ClipWriter(block);
  ClippedGradients result;
  // The norms of gradients with the same limit and dtype become one vector.
  std::map<std::pair<double, DType>, std::vector<Variable>> norms;
  for (const ClipMember& member : members) {
    const NormRule rule = NormRule::Of(member.clip);
    if (rule.p != 2 || rule.non_finite != NonFinite::kPropagate) {
      NormClip clip(block, startup, rule, member);
      clip.Add(member);
      clip.Finish(member.pair.param, true);
      result.grads.push_back(clip.Scaled(member.pair));
      AddGuard(result, clip.guard());
      continue;
    }
    norms[{rule.clip_norm, NormDType(w.Var(member.pair.param))}].push_back(
        TotalNorm(w, w.Var(member.pair.grad), 2));
    SlotList inputs = {{"X", {member.pair.grad}}};
    PutLimit(w, member.pair, "MaxNorm", rule.clip_norm, inputs);
    result.grads.push_back(Clipped(w, member.pair, "clip_by_norm", std::move(inputs),
                                   {{"max_norm", static_cast<float>(rule.clip_norm)}}));
  }
  for (const auto& [kind, parts] : norms)
    KeepStatistics(w, startup, "by_norm", w.Named("norms", Concat(parts, 0)), kind.first,
                   kind.second);
  return result;
}

ClippedGradients ByGlobalNorm(BlockDesc& block, ProgramDesc& startup,
                              const std::vector<ClipMember>& members) {
  struct Group {
    NormClip clip;
    const ClipMember* first;
  };
  const auto name_of = [](const ClipMember& member) { return LoadNorm(member.clip).group_name; };
  std::map<std::string, Group> groups;
  for (const ClipMember& member : members) {
    const NormRule rule = NormRule::Of(member.clip);
    const std::string name = name_of(member);
    Group& group = groups.try_emplace(name, Group{NormClip(block, startup, rule, member), &member})
                       .first->second;
    const std::string& other = group.first->pair.param;
    if (!(rule == group.clip.rule())) {
      Refuse(member, fmt::format("group {} has {} here and {} for {}", Quote(name), rule.ToString(),
                                 group.clip.rule().ToString(), Quote(other)));
    }
    const DType dtype = NormDType(Variable::Of(block, member.pair.param));
    if (dtype != group.clip.dtype()) {
      Refuse(member,
             fmt::format("group {} holds the {} {} and {} elements here; give them groups of their "
                         "own",
                         Quote(name), ToString(group.clip.dtype()), Quote(other), ToString(dtype)));
    }
    group.clip.Add(member);
  }
  ClippedGradients result;
  for (auto& [name, group] : groups) {
    group.clip.Finish(name, true);
    AddGuard(result, group.clip.guard());
  }
  for (const ClipMember& member : members)
    result.grads.push_back(groups.at(name_of(member)).clip.Scaled(member.pair));
  return result;
}

// --- adaptive ---

// The float64 norms of the slices along `axis`, as [1, ..., n, ..., 1].
Variable SliceNorms(const Writer& w, const Variable& var, int axis) {
  const Shape& shape = var.shape();
  std::vector<int32_t> dims;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i != axis || shape.rank() < 2) dims.push_back(i);
  }
  return w.Named("norm", w.Make("frobenius_norm", {{"X", {var.name()}}},
                                {{"dim", dims},
                                 {"keep_dim", true},
                                 {"reduce_all", shape.rank() == 0},
                                 {"out_dtype", static_cast<int32_t>(DType::kFloat64)}}));
}

ClippedGradients Adaptive(BlockDesc& block, ProgramDesc&, const std::vector<ClipMember>& members) {
  const Writer w = ClipWriter(block);
  ClippedGradients result;
  for (const ClipMember& member : members) {
    const Variable param = w.Var(member.pair.param), grad = w.Var(member.pair.grad);
    const Shape& shape = param.shape();
    const AdaptiveClipOptions rule = Load(AdaptiveFields(), member.clip);
    if (shape.rank() >= 2 && rule.axis >= shape.rank())
      Refuse(member, fmt::format("axis must lie in [0, {}), got {}", shape.rank(), rule.axis));
    if (IsHalf(param.dtype()) || IsHalf(grad.dtype()))
      Refuse(member, "adaptive is for float32 and float64 parameters");
    const Variable dense = DenseGradient(w, grad);
    const Variable norms = SliceNorms(w, param, rule.axis);
    const Variable floor = w.Named("floor", Max(norms, Limit(w, norms.dtype(), rule.epsilon)));
    const Variable limit = w.Named("limit", floor * Limit(w, norms.dtype(), rule.clip_factor));
    result.grads.push_back(Clipped(w, {param.name(), dense.name()}, "clip_by_norm",
                                   {{"X", {dense.name()}}, {"MaxNorm", {limit.name()}}},
                                   {{"axis", shape.rank() < 2 ? -1 : rule.axis}}));
  }
  return result;
}

ClippedGradients None(BlockDesc&, ProgramDesc&, const std::vector<ClipMember>& members) {
  ClippedGradients result;
  for (const ClipMember& member : members) result.grads.push_back(member.pair.grad);
  return result;
}

// --- kinds ---

struct Kind {
  GradientClipFn append;
  FieldTable fields;
  std::function<void(const Setting&)> check = [](const Setting&) {};
};

struct Kinds {
  std::mutex mutex;
  std::vector<std::pair<std::string, Kind>> known = {
      {"by_value", {ByValue, ValueFields(), [](const Setting& clip) { LimitsOf(clip); }}},
      {"by_norm", {ByNorm, NormFields(), [](const Setting& clip) { NormRule::Of(clip); }}},
      {"by_global_norm",
       {ByGlobalNorm, GlobalNormFields(), [](const Setting& clip) { NormRule::Of(clip); }}},
      {"adaptive",
       {Adaptive, AdaptiveFields(), [](const Setting& clip) { Load(AdaptiveFields(), clip); }}},
      {"none", {None, FieldTable("No clip, even if the optimizer has one.")}}};

  const Kind* Find(const std::string& kind) const {
    for (const auto& entry : known)
      if (entry.first == kind) return &entry.second;
    return nullptr;
  }
};
Kinds& AllKinds() {
  static Kinds kinds;
  return kinds;
}

Kind KindOf(const Setting& clip) {
  Kinds& kinds = AllKinds();
  const std::lock_guard<std::mutex> lock(kinds.mutex);
  if (const Kind* found = kinds.Find(clip.kind)) return *found;
  std::vector<std::string> names;
  names.reserve(kinds.known.size());
  for (const auto& [name, kind] : kinds.known) names.push_back(name);
  std::sort(names.begin(), names.end());
  throw Error(ErrorCode::kNotFound,
              fmt::format("gradient clip: unknown kind {}{}; known: {}", Quote(clip.kind),
                          DidYouMean(clip.kind, names), Join(names, ", ")));
}

}  // namespace

Setting ClipGradByValue(double max, double min) {
  return ValueFields().Save("by_value", {max, min});
}
Setting ClipGradByNorm(double clip_norm, const GradientNormOptions& options) {
  return NormFields().Save("by_norm", {clip_norm, options.norm_type, NameOf(options.non_finite)});
}
Setting ClipGradByGlobalNorm(double clip_norm, const std::string& group_name,
                             const GradientNormOptions& options) {
  return GlobalNormFields().Save(
      "by_global_norm", {clip_norm, options.norm_type, NameOf(options.non_finite), group_name});
}
Setting AdaptiveGradientClip(const AdaptiveClipOptions& options) {
  return AdaptiveFields().Save("adaptive", options);
}
Setting NoGradientClip() { return {"none", {}}; }

void RegisterGradientClip(const std::string& kind, FieldTable fields, GradientClipFn append) {
  if (kind.empty()) ThrowInvalid("gradient clip: the kind to register has no name");
  if (kind == kChoiceName) ThrowInvalid(fmt::format("gradient clip: {}", kChoiceNameError));
  RequireFunction(append, fmt::format("gradient clip {}: its function", Quote(kind)));
  Kinds& kinds = AllKinds();
  const std::lock_guard<std::mutex> lock(kinds.mutex);
  if (kinds.Find(kind)) {
    throw Error(ErrorCode::kAlreadyExists,
                fmt::format("gradient clip: the kind {} is registered already", Quote(kind)));
  }
  const auto check = [fields](const Setting& clip) {
    fields.CheckSetting(Who(clip), Known(fields, clip));
  };
  kinds.known.push_back({kind, Kind{std::move(append), std::move(fields), check}});
}

void RegisterGradientClip(const std::string& kind, GradientClipFn append) {
  RegisterGradientClip(kind, FieldTable::Any("Of this program."), std::move(append));
}

KindsWithFields GradientClipFields() {
  Kinds& kinds = AllKinds();
  const std::lock_guard<std::mutex> lock(kinds.mutex);
  KindsWithFields all;
  for (const auto& [name, kind] : kinds.known) all.emplace_back(name, kind.fields);
  return all;
}

void CheckGradientClip(const Setting& clip) { KindOf(clip).check(clip); }

void internal::CheckTextGradientClip(const Setting& clip) {
  const Kind kind = KindOf(clip);
  kind.check(clip);
  kind.fields.CheckSetting(Who(clip), Renamed(clip));
}

ClippedGradients AppendGradientClips(BlockDesc& block, ProgramDesc& startup,
                                     const std::vector<ClipMember>& members) {
  const EditGuard guard(block.program(), startup);
  std::vector<std::string> kinds;  // in the order of their first members
  for (const ClipMember& member : members) {
    try {
      CheckGradientClip(member.clip);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}, for the parameter {}", error.message(),
                                            Quote(member.pair.param)));
    }
    if (std::find(kinds.begin(), kinds.end(), member.clip.kind) == kinds.end())
      kinds.push_back(member.clip.kind);
  }
  ClippedGradients result;
  result.grads.resize(members.size());
  for (const std::string& kind : kinds) {
    std::vector<ClipMember> of_kind;
    std::vector<size_t> indices;
    for (size_t i = 0; i < members.size(); ++i) {
      if (members[i].clip.kind != kind) continue;
      of_kind.push_back(members[i]);
      indices.push_back(i);
    }
    const size_t first = block.NumOps();
    const ClippedGradients clipped = KindOf(of_kind.front().clip).append(block, startup, of_kind);
    SetMarks(block, first, {.stage = TrainingStage::kClip});
    if (clipped.grads.size() != of_kind.size()) {
      ThrowInvalid(fmt::format("gradient clip: the kind {} gave {} gradients for {}", Quote(kind),
                               clipped.grads.size(), of_kind.size()));
    }
    for (size_t i = 0; i < indices.size(); ++i) result.grads[indices[i]] = clipped.grads[i];
    result.guards.insert(result.guards.end(), clipped.guards.begin(), clipped.guards.end());
  }
  return result;
}

}  // namespace coracle
