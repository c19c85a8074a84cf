#include <coracle/clip/gradient_clip.h>
#include <coracle/clip/internal/clip_ops.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/state.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>

namespace coracle {
namespace {

constexpr const char* kNonFinite[] = {"propagate", "error", "zero", "skip"};
const char* NameOf(NonFinite policy) { return kNonFinite[static_cast<size_t>(policy)]; }

// --- what texts and Settings say of the kinds ---

struct ValueOptions {
  double max = 0;
  std::optional<double> min = std::nullopt;
};
const Fields<ValueOptions>& ValueFields() {
  static const auto table = Fields<ValueOptions>("Every element into [min, max].")
                                .Add("max", &ValueOptions::max, "")
                                .Required()
                                .Add("min", &ValueOptions::min, "-max unless said");
  return table;
}

struct NormOptions {
  double clip_norm = 0;
  double norm_type = GradientNormOptions().norm_type;
  std::string non_finite = NameOf(GradientNormOptions().non_finite);
  std::string group_name = kDefaultClipGroup;  // of by_global_norm
};
Fields<NormOptions> NormFieldsOf(const char* doc) {
  return Fields<NormOptions>(doc)
      .Add("clip_norm", &NormOptions::clip_norm, "")
      .Required()
      .In({0, HUGE_VAL, true, true, "must be positive and finite"})
      .Add("norm_type", &NormOptions::norm_type,
           "p of the norm, at least 1; inf: the largest element")
      .In({1, HUGE_VAL, false, false, "must be at least 1, or infinity"})
      .Add("non_finite", &NormOptions::non_finite,
           "where the norm is a nan or infinite: propagate, error, zero, skip (the step)");
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
          "A slice of the gradient whose L2 norm exceeds clip_factor times that of the same slice "
          "of the parameter (at least epsilon) is scaled down to it.")
          .Add("clip_factor", &O::clip_factor, "")
          .In(positive)
          .Add("epsilon", &O::epsilon, "")
          .In(positive)
          .Add("axis", &O::axis, "of the slices: 0 for rows")
          .In({0, HUGE_VAL, false, true, "must not be negative"});
  return table;
}

// Attrs that the table does not have are left alone: a later version may have written them.
template <class Options>
Options Load(const Fields<Options>& fields, const Setting& clip) {
  Setting known{clip.kind, {}};
  for (const NamedAttr& attr : clip.attrs)
    if (fields.Find(attr.name)) known.attrs.push_back(attr);
  const Attribute* max_norm = clip.Find("max_norm");  // an older name of clip_norm
  if (max_norm && fields.Find("clip_norm")) known.attrs.push_back({"clip_norm", *max_norm});
  const std::string who = "gradient clip " + clip.kind;
  return fields.Check(who, fields.Read(who, known));
}

NormOptions LoadNorm(const Setting& clip) { return Load(GlobalNormFields(), clip); }

[[noreturn]] void Refuse(const ClipMember& member, const std::string& what) {
  ThrowInvalid(
      fmt::format("gradient clip: {}, for the parameter {}", what, Quote(member.pair.param)));
}

bool IsFloat(double value) { return double{static_cast<float>(value)} == value; }

// An attr is a float: where it would not do for a float64 gradient, the limit becomes an input.
void PutLimit(ClipOps& ops, const ParamAndGrad& pair, const char* slot, double limit,
              SlotList& inputs) {
  const DType dtype = Variable::Of(ops.block(), pair.grad).dtype();
  if (dtype == DType::kFloat64 && !IsFloat(limit))
    inputs.push_back({slot, {ops.Constant(dtype, limit)}});
}

// How a norm is taken and what follows from it.
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
    return {options.clip_norm, options.norm_type,
            static_cast<NonFinite>(known - std::begin(kNonFinite))};
  }
  bool operator==(const NormRule&) const = default;
  std::string ToString() const {
    return fmt::format("clip_norm {}, norm_type {}, non_finite {}", clip_norm, p,
                       NameOf(non_finite));
  }
};

struct Norms {
  std::string norms, limit;  // the latter [1]
  DType dtype;
  Shape shape;
};

// Variables that outlive the step: see AppendGradientClips.
void KeepStatistics(ClipOps& ops, ProgramDesc& startup, const std::string& group,
                    const Norms& norms) {
  ProgramDesc& main = ops.block().program();
  std::string unique = "gradient_clip." + group;
  for (int i = 1; main.Root().FindVar(unique + ".norm"); ++i)
    unique = fmt::format("gradient_clip.{}_{}", group, i);
  const auto state = [&](const char* name, DType dtype, const Shape& shape) {
    return MakeState(main, startup, unique + name, dtype, shape, 0);
  };
  ops.Into(state(".norm", norms.dtype, norms.shape), "assign", {{"X", {norms.norms}}});
  const std::string steps = state(".steps", DType::kInt64, {1});
  ops.Into(steps, "increment", {{"X", {steps}}}, {{"step", 1.0f}});
  const std::string exceeds =
      ops.Append("exceeds", "greater_than", {{"X", {norms.norms}}, {"Y", {norms.limit}}},
                 DType::kBool, {}, norms.shape);
  const std::string ones = ops.Append("ones", "cast", {{"X", {exceeds}}}, DType::kInt64,
                                      {{"in_dtype", static_cast<int32_t>(DType::kBool)},
                                       {"out_dtype", static_cast<int32_t>(DType::kInt64)}},
                                      norms.shape);
  const std::string clipped = state(".clipped_steps", DType::kInt64, norms.shape);
  ops.Into(clipped, "sum", {{"X", {clipped, ones}}});
}

// The ops of gradients that share a norm: Add each, then Finish, then Scaled for each.
class NormClip {
 public:
  NormClip(BlockDesc& block, ProgramDesc& startup, const NormRule& rule, const ClipMember& first)
      : ops_(block), startup_(startup), rule_(rule), dtype_(ops_.DTypeOf(first.pair.param)) {}

  const NormRule& rule() const { return rule_; }
  DType dtype() const { return dtype_; }

  void Add(const ClipMember& member) {
    if (rule_.non_finite == NonFinite::kZero && ops_.IsSparse(member.pair.grad))
      Refuse(member, "non_finite zero is for dense gradients, and this one is sparse");
    parts_.push_back(Part(member.pair));
  }

  // `what`: the gradients, for names and messages.
  void Finish(const std::string& what, bool keep_statistics) {
    norm_ = Norm();
    const std::string limit = ops_.Constant(dtype_, rule_.clip_norm);
    const std::string larger =
        ops_.Append("max", "elementwise_max", {{"X", {norm_}}, {"Y", {limit}}}, dtype_);
    factor_ = ops_.Append("factor", "elementwise_div", {{"X", {limit}}, {"Y", {larger}}}, dtype_);
    if (rule_.non_finite != NonFinite::kPropagate)
      finite_ = ops_.Append("finite", "isfinite", {{"X", {norm_}}}, DType::kBool);
    if (keep_statistics) KeepStatistics(ops_, startup_, what, {norm_, limit, dtype_, {1}});
    if (rule_.non_finite != NonFinite::kError) return;
    ops_.block().AppendOp(
        "assert", {{"Cond", {finite_}}, {"Data", {norm_}}}, {},
        {{"message", fmt::format("the norm of the gradients of {} is not finite", what)},
         {kOpRoleAttr, int32_t{kOptimize}}});
  }

  std::string Scaled(const ParamAndGrad& pair) {
    std::string scaled = ops_.Clipped(
        pair, "scale", {{"X", {pair.grad}}, {"ScaleTensor", {factor_}}}, {{"scale", 1.0f}});
    if (rule_.non_finite != NonFinite::kZero) return scaled;
    const std::string index = ops_.Append("choice", "cast", {{"X", {finite_}}}, DType::kInt32,
                                          {{"in_dtype", static_cast<int32_t>(DType::kBool)},
                                           {"out_dtype", static_cast<int32_t>(DType::kInt32)}});
    const std::string zeros =
        ops_.AppendLike(pair.grad, "zeros", "fill_zeros_like", {{"X", {pair.grad}}}, {});
    return ops_.Clipped(pair, "select_input", {{"X", {zeros, scaled}}, {"Mask", {index}}}, {});
  }

  // "" unless the step is to be skipped for this norm.
  std::string guard() const { return rule_.non_finite == NonFinite::kSkip ? finite_ : ""; }

 private:
  // A number from which the norm of all is made: sum of |g|^p, or the largest |g|.
  std::string Part(const ParamAndGrad& pair) {
    const ParamAndGrad wide = {pair.param, ops_.InFloat(pair.grad)};
    if (rule_.p == 2) return ops_.Append("square", "squared_l2_norm", {{"X", {wide.grad}}}, dtype_);
    const std::string grad = ops_.DenseGradient(wide);
    std::string values = ops_.AppendLike(grad, "abs", "abs", {{"X", {grad}}}, {});
    const bool largest = std::isinf(rule_.p);
    if (!largest && rule_.p != 1) values = Power(values, rule_.p);
    return ops_.Append("part", largest ? "reduce_max" : "reduce_sum", {{"X", {values}}}, dtype_,
                       {{"reduce_all", true}, {"dim", std::vector<int32_t>{0}}});
  }
  std::string Norm() {
    if (std::isinf(rule_.p)) {
      const std::string all =
          ops_.Append("parts", "concat", {{"X", parts_}}, dtype_, {{"axis", int32_t{0}}},
                      {static_cast<int64_t>(parts_.size())});
      return ops_.Append("norm", "reduce_max", {{"X", {all}}}, dtype_,
                         {{"reduce_all", true}, {"dim", std::vector<int32_t>{0}}});
    }
    std::string sum = ops_.Append("sum", "sum", {{"X", parts_}}, dtype_);
    if (rule_.p == 1) return sum;
    if (rule_.p == 2) return ops_.Append("norm", "sqrt", {{"X", {sum}}}, dtype_);
    return Power(sum, 1 / rule_.p);
  }
  // The attr of `pow` is a float, which 1 / 3 is not.
  std::string Power(const std::string& values, double exponent) {
    if (IsFloat(exponent)) {
      return ops_.AppendLike(values, "power", "pow", {{"X", {values}}},
                             {{"factor", static_cast<float>(exponent)}});
    }
    return ops_.AppendLike(values, "power", "elementwise_pow",
                           {{"X", {values}}, {"Y", {ops_.Constant(dtype_, exponent)}}}, {});
  }

  ClipOps ops_;
  ProgramDesc& startup_;
  NormRule rule_;
  DType dtype_;
  std::vector<std::string> parts_;
  std::string norm_, factor_, finite_;
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
  ClipOps ops(block);
  ClippedGradients result;
  for (const ClipMember& member : members) {
    const auto [min, max] = LimitsOf(member.clip);
    SlotList inputs = {{"X", {member.pair.grad}}};
    PutLimit(ops, member.pair, "Min", min, inputs);
    PutLimit(ops, member.pair, "Max", max, inputs);
    result.grads.push_back(
        ops.Clipped(member.pair, "clip", std::move(inputs),
                    {{"min", static_cast<float>(min)}, {"max", static_cast<float>(max)}}));
  }
  return result;
}

// One vector of the norms of gradients that have one limit.
void KeepNorms(ClipOps& ops, ProgramDesc& startup, const std::vector<std::string>& squares,
               double limit, DType dtype) {
  const Shape shape = {static_cast<int64_t>(squares.size())};
  const std::string all =
      ops.Append("squares", "concat", {{"X", squares}}, dtype, {{"axis", int32_t{0}}}, shape);
  const std::string norms = ops.Append("norms", "sqrt", {{"X", {all}}}, dtype, {}, shape);
  KeepStatistics(ops, startup, "by_norm", {norms, ops.Constant(dtype, limit), dtype, shape});
}

ClippedGradients ByNorm(BlockDesc& block, ProgramDesc& startup,
                        const std::vector<ClipMember>& members) {
  ClipOps ops(block);
  ClippedGradients result;
  std::map<std::pair<double, DType>, std::vector<std::string>> squares;
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
    const DType dtype = ops.DTypeOf(member.pair.param);
    squares[{rule.clip_norm, dtype}].push_back(
        ops.Append("square", "squared_l2_norm", {{"X", {ops.InFloat(member.pair.grad)}}}, dtype));
    SlotList inputs = {{"X", {member.pair.grad}}};
    PutLimit(ops, member.pair, "MaxNorm", rule.clip_norm, inputs);
    result.grads.push_back(ops.Clipped(member.pair, "clip_by_norm", std::move(inputs),
                                       {{"max_norm", static_cast<float>(rule.clip_norm)}}));
  }
  for (const auto& [kind, norms] : squares) KeepNorms(ops, startup, norms, kind.first, kind.second);
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
    const DType dtype = ClipOps(block).DTypeOf(member.pair.param);
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

// The norms of the slices along `axis`, as [1, ..., n, ..., 1].
std::string SliceNorms(ClipOps& ops, const std::string& var, const Shape& shape, int axis) {
  const DType dtype = ops.DTypeOf(var);
  std::vector<int32_t> dims;
  std::vector<int64_t> kept(static_cast<size_t>(shape.rank()), 1);
  for (int i = 0; i < shape.rank(); ++i) {
    if (i != axis || shape.rank() < 2)
      dims.push_back(i);
    else
      kept[static_cast<size_t>(i)] = shape[i];
  }
  const std::string squares = ops.AppendLike(var, "square", "square", {{"X", {var}}}, {});
  const std::string sums = ops.Append(
      "sum", "reduce_sum", {{"X", {squares}}}, dtype,
      {{"dim", dims}, {"keep_dim", true}, {"reduce_all", shape.rank() == 0}}, Shape(kept));
  return ops.AppendLike(sums, "norm", "sqrt", {{"X", {sums}}}, {});
}

ClippedGradients Adaptive(BlockDesc& block, ProgramDesc&, const std::vector<ClipMember>& members) {
  ClipOps ops(block);
  ClippedGradients result;
  for (const ClipMember& member : members) {
    const auto& [param, grad] = member.pair;
    const Shape& shape = Variable::Of(block, param).desc().shape();
    const DType dtype = ops.DTypeOf(param);
    const AdaptiveClipOptions rule = Load(AdaptiveFields(), member.clip);
    if (shape.rank() >= 2 && rule.axis >= shape.rank())
      Refuse(member, fmt::format("axis must lie in [0, {}), got {}", shape.rank(), rule.axis));
    if (ops.IsHalf(param) || ops.IsHalf(grad))
      Refuse(member, "adaptive is for float32 and float64 parameters");
    const std::string dense = ops.DenseGradient(member.pair);
    const std::string of_grad = SliceNorms(ops, dense, shape, rule.axis);
    const std::string of_param = SliceNorms(ops, param, shape, rule.axis);
    const std::string floor =
        ops.AppendLike(of_param, "floor", "elementwise_max",
                       {{"X", {of_param}}, {"Y", {ops.Constant(dtype, rule.epsilon)}}}, {});
    const std::string limit =
        ops.AppendLike(floor, "limit", "elementwise_mul",
                       {{"X", {floor}}, {"Y", {ops.Constant(dtype, rule.clip_factor)}}}, {});
    const std::string larger =
        ops.AppendLike(limit, "max", "elementwise_max", {{"X", {of_grad}}, {"Y", {limit}}}, {});
    const std::string by =
        ops.AppendLike(limit, "factor", "elementwise_div", {{"X", {limit}}, {"Y", {larger}}}, {});
    result.grads.push_back(ops.Clipped({param, dense}, "elementwise_mul",
                                       {{"X", {dense}}, {"Y", {by}}}, {{"axis", int32_t{-1}}}));
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
      {"none", {None, FieldTable("None, whatever the optimizer's is.")}}};

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

void CountGradientClips(BlockDesc& block, ProgramDesc& startup,
                        const std::vector<ClipMember>& members,
                        const std::vector<std::string>& clipped) {
  struct Gradients {
    std::vector<std::string> before, after;
  };
  ClipOps ops(block);
  std::map<std::string, Gradients> kinds;
  for (size_t i = 0; i < members.size(); ++i) {
    const std::string &kind = members[i].clip.kind, &grad = members[i].pair.grad;
    const bool has_own = kind == "none" || kind == "by_norm" || kind == "by_global_norm";
    if (has_own || grad == clipped[i] || ops.IsSparse(grad) || ops.IsSparse(clipped[i])) continue;
    kinds[kind].before.push_back(grad);
    kinds[kind].after.push_back(clipped[i]);
  }
  ProgramDesc& main = block.program();
  for (const auto& [kind, gradients] : kinds) {
    std::string name = fmt::format("gradient_clip.{}.statistics", kind);
    for (int i = 1; main.Root().FindVar(name); ++i)
      name = fmt::format("gradient_clip.{}_{}.statistics", kind, i);
    MakeState(main, startup, name, DType::kFloat64, {3}, 0);
    block.AppendOp(
        "clip_statistics",
        {{"Before", gradients.before}, {"After", gradients.after}, {"Statistics", {name}}},
        {{"StatisticsOut", {name}}}, {{kOpRoleAttr, int32_t{kOptimize}}});
  }
}

void RegisterGradientClip(const std::string& kind, FieldTable fields, GradientClipFn append) {
  Kinds& kinds = AllKinds();
  const std::lock_guard<std::mutex> lock(kinds.mutex);
  if (kinds.Find(kind)) {
    throw Error(ErrorCode::kAlreadyExists,
                fmt::format("gradient clip: the kind {} is registered already", Quote(kind)));
  }
  kinds.known.push_back({kind, Kind{std::move(append), std::move(fields)}});
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

ClippedGradients AppendGradientClips(BlockDesc& block, ProgramDesc& startup,
                                     const std::vector<ClipMember>& members) {
  std::vector<std::string> kinds;  // in the order of their first member
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
    const ClippedGradients clipped = KindOf(of_kind.front().clip).append(block, startup, of_kind);
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
