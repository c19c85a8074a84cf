#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/mismatch.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/verifier.h>
#include <coracle/layers/builder.h>
#include <coracle/layers/internal/layer_scope.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

namespace coracle {
namespace {

void CheckAgainstDef(const OpDesc& op, const OpRegistry& ops) {
  std::vector<VerifyProblem> problems;
  CheckOp(ops.Get(op.type()), op, 0, 0, &problems);
  for (const VerifyProblem& problem : problems) {
    if (problem.severity == VerifyProblem::Severity::kError) {
      ThrowInvalid(fmt::format("{}: {}", op.type(), problem.message), problem.details);
    }
  }
}

std::vector<std::string> NewOutputs(const BlockDesc& block, const OpDesc& op) {
  std::vector<std::string> names;
  op.ForEachOutput([&](const std::string& name) {
    if (!block.FindVarRecursive(name)) names.push_back(name);
  });
  return names;
}

// The op with every declared attr, defaults too, in the order and of the type of its OpDef: as
// Paddle writes programs, and the same program however the attrs were given.
OpDesc WithDefaults(const OpDesc& op, const OpSpec& def) {
  AttrList attrs;
  for (const AttrDef& attr : def.attrs) {
    const Attribute* given = op.FindAttr(attr.name);
    // A block that is not given is none; the default stands for that.
    const bool names_block = attr.type == AttrType::kBlock || attr.type == AttrType::kBlocks;
    if (!given && (!attr.default_value || names_block)) continue;
    Attribute value = given ? *given : *attr.default_value;
    ConvertAttribute(value, attr.type, &value);
    attrs.push_back({attr.name, std::move(value)});
  }
  for (const NamedAttr& attr : op.attrs()) {
    if (!def.FindAttr(attr.name)) attrs.push_back(attr);
  }
  return OpDesc(op.type(), op.inputs(), op.outputs(), std::move(attrs));
}

// Appends the op to `block` with its outputs typed; a failure leaves the block as it was.
OpDesc& AppendChecked(BlockDesc& block, const OpDesc& given, const OpRegistry& ops) {
  CheckAgainstDef(given, ops);
  OpDesc desc = WithDefaults(given, ops.Get(given.type()));
  std::vector<std::string> made = NewOutputs(block, desc);
  OpDesc& op = block.AppendOp(desc);
  try {
    InferOp(block, op, ops);
  } catch (...) {
    block.RemoveOp(block.NumOps() - 1);
    const std::unordered_set<std::string> gone(made.begin(), made.end());
    block.RemoveVarsIf([&](const VarDesc& var) { return gone.count(var.name()) > 0; });
    throw;
  }
  return op;
}

void RequireSame(const VarDesc& var, const Shape& shape, DType dtype) {
  if (var.shape() == shape && var.dtype() == dtype) return;
  ThrowInvalid(fmt::format("{} is shared, so it {}", Quote(var.name()),
                           DescribeMismatch(var.meta(), {VarType::kLoDTensor, dtype, shape, 0})));
}

// The setting as the variable keeps it: an array's elements live in the startup program alone.
Setting WithoutValues(Setting setting) {
  std::erase_if(setting.attrs, [](const NamedAttr& attr) { return attr.name == "values"; });
  return setting;
}

}  // namespace

Builder::Builder(ProgramDesc& main, ProgramDesc& startup, const OpRegistry& ops)
    : main_(&main), startup_(&startup), block_(&main.Root()), ops_(&ops) {}

OpDesc& Builder::Append(std::string type, SlotList inputs, SlotList outputs, AttrList attrs) {
  OpDesc op(std::move(type), std::move(inputs), std::move(outputs), std::move(attrs));
  if (!site_.empty()) op.SetAttr(kOpCallstackAttr, site_);
  return AppendChecked(*block_, op, *ops_);
}

std::string Builder::FreshName(const std::string& prefix, int k) {
  std::string name = fmt::format("{}_{}", prefix, k);
  return main_->FreeName(name) == name ? name : main_->UniqueName(prefix);
}

Variable Builder::Share(VarDesc& found, const Shape& shape, DType dtype) {
  if (!found.persistable()) {
    throw Error(
        ErrorCode::kAlreadyExists,
        fmt::format("{} is not a parameter, so no layer can share it as one", Quote(found.name())));
  }
  RequireSame(found, shape, dtype);
  return {&main_->Root(), &found};
}

// A startup program may serve several main programs: what it fills already stays as it is.
VarDesc& Builder::AppendStartup(const std::string& name, const Shape& shape, DType dtype,
                                const Setting& initializer) {
  if (VarDesc* filled = startup_->Root().FindVar(name)) {
    RequireSame(*filled, shape, dtype);
    return *filled;
  }
  OpDesc op = InitializerOp(initializer, name, shape, dtype);
  if (!site_.empty()) op.SetAttr(kOpCallstackAttr, site_);
  AppendChecked(startup_->Root(), op, *ops_);
  VarDesc& var = startup_->Root().Var(name);
  var.SetPersistable(true);
  return var;
}

namespace {

// What the layers that share a parameter say of its training must be the same; what the first left
// open a later one may say (as in Caffe).
void Agree(VarDesc& param, const ParamAttr& attr) {
  TrainingAttr training = param.training();
  const auto settle = [&](const char* field, auto& has, const auto& given, const auto& open) {
    if (given == open || given == has) return;
    if (has != open) {
      ThrowInvalid(fmt::format("parameter {}: layers that share it differ in {}",
                               Quote(param.name()), field));
    }
    has = given;
  };
  settle("learning_rate", training.learning_rate, attr.learning_rate, 1.0);
  settle("regularizer", training.regularizer, attr.regularizer, std::optional<Setting>());
  settle("gradient_clip", training.gradient_clip, attr.gradient_clip, std::optional<Setting>());
  if (!(training == param.training())) param.MutableTraining() = training;
}

}  // namespace

Variable Builder::Parameter(const std::string& prefix, const Shape& shape, DType dtype,
                            const ParamAttr& attr, const Setting& default_initializer) {
  shape.numel();  // refuses unknown and overflowing dims
  if (!std::isfinite(attr.learning_rate)) {
    ThrowInvalid(fmt::format("parameter {}: learning_rate must be finite, got {}",
                             Quote(attr.name.empty() ? prefix : attr.name), attr.learning_rate));
  }
  if (VarDesc* found = attr.name.empty() ? nullptr : main_->Root().FindVar(attr.name)) {
    Variable shared = Share(*found, shape, dtype);
    Agree(*found, attr);
    return shared;
  }
  const std::string name = attr.name.empty() ? FreshName(prefix, 0) : attr.name;
  const Setting& initializer = attr.initializer ? *attr.initializer : default_initializer;
  AppendStartup(name, shape, dtype, initializer).SetIsParameter(true);
  VarDesc& var = main_->Root().Var(name);
  var.SetMeta({VarType::kLoDTensor, dtype, shape, 0});
  var.SetPersistable(true);
  var.SetIsParameter(true);
  if (!attr.trainable) var.SetStopGradient(true);
  TrainingAttr& training = var.MutableTraining();
  training.trainable = attr.trainable;
  training.learning_rate = attr.learning_rate;
  training.initializer = WithoutValues(initializer);
  training.regularizer = attr.regularizer;
  training.gradient_clip = attr.gradient_clip;
  if (!site_.empty()) training.creation_site = site_.front();
  return {&main_->Root(), &var};
}

Variable Builder::Statistic(const std::string& prefix, const std::string& name, const Shape& shape,
                            DType dtype, const Setting& initializer) {
  shape.numel();
  if (VarDesc* found = name.empty() ? nullptr : main_->Root().FindVar(name)) {
    return Share(*found, shape, dtype);
  }
  const std::string full_name = name.empty() ? FreshName(prefix, 0) : name;
  AppendStartup(full_name, shape, dtype, initializer);
  VarDesc& var = main_->Root().Var(full_name);
  var.SetMeta({VarType::kLoDTensor, dtype, shape, 0});
  var.SetPersistable(true);
  var.SetStopGradient(true);
  var.MutableTraining().trainable = false;
  return {&main_->Root(), &var};
}

Variable Builder::Data(const std::string& name, const Shape& shape, DType dtype,
                       const DataOptions& options) {
  if (IsEmptyName(name)) ThrowInvalid("data: a name is required");
  for (int64_t dim : shape) {
    if (dim < -1) {
      ThrowInvalid(
          fmt::format("data {}: dims must be -1 or more, got {}", Quote(name), shape.ToString()));
    }
  }
  RequireFreeOutput(*this, "data", name);
  VarDesc& var = block_->Var(name);
  var.SetMeta({VarType::kLoDTensor, dtype, shape, options.lod_level});
  var.SetStopGradient(options.stop_gradient);
  var.SetNeedCheckFeed(true);
  if (options.error_clip.get()) var.SetErrorClip(options.error_clip.get());
  if (!site_.empty()) var.MutableTraining().creation_site = site_.front();
  return {block_, &var};
}

Variable Builder::Plain(const std::string& type, SlotList inputs, AttrList attrs,
                        const OutputOptions& options) {
  LayerScope layer(*this, type, options);
  const std::string out = layer.Out();
  Append(type, std::move(inputs), {{"Out", {out}}}, std::move(attrs));
  return layer.Finish(out);
}

Variable Builder::Unary(const std::string& type, const Variable& x, AttrList attrs,
                        const OutputOptions& options) {
  return Plain(type, {{"X", {x.name()}}}, std::move(attrs), options);
}

Variable Builder::Binary(const std::string& type, const Variable& x, const Variable& y,
                         AttrList attrs, const OutputOptions& options) {
  return Plain(type, {{"X", {x.name()}}, {"Y", {y.name()}}}, std::move(attrs), options);
}

LayerScope::LayerScope(Builder& net, const std::string& type, OutputOptions options)
    : net_(net), type_(type), options_(std::move(options)) {
  if (!options_.act.empty()) {
    const OpSpec* def = net.ops().Find(options_.act);
    if (!def || !IsUnary(*def)) {
      std::vector<std::string> names;
      for (const std::string& name : net.ops().Types()) {
        if (IsUnary(net.ops().Get(name))) names.push_back(name);
      }
      throw Error(ErrorCode::kNotFound,
                  fmt::format("{}: act {} is not an activation op{}", type, Quote(options_.act),
                              DidYouMean(options_.act, names)));
    }
  }
  RequireFreeOutput(net, type, options_.output);
  name_ = options_.name.empty() ? net.main().UniqueName(type) : options_.name;
}

std::string LayerScope::Temp() { return net_.FreshName(name_ + ".tmp", temps_++); }

std::string LayerScope::Out(bool bias_follows) {
  bool last = !bias_follows && options_.act.empty();
  return last && !options_.output.empty() ? options_.output : Temp();
}

std::string LayerScope::AddBias(const std::string& x, const std::optional<ParamAttr>& attr,
                                int axis) {
  if (!attr) return x;
  Variable in = net_.Var(x);
  Variable bias =
      net_.Parameter(name_ + ".b", {in.shape()[axis]}, in.dtype(), *attr, ConstantInitializer(0));
  std::string out = Out();
  net_.Append("elementwise_add", {{"X", {x}}, {"Y", {bias.name()}}}, {{"Out", {out}}},
              {{"axis", int32_t{axis}}});
  return out;
}

Variable LayerScope::Finish(const std::string& result) {
  std::string last = result;
  if (!options_.act.empty()) {
    last = options_.output.empty() ? Temp() : options_.output;
    net_.Append(options_.act, {{"X", {result}}}, {{"Out", {last}}});
  }
  Variable var = net_.Var(last);
  if (options_.error_clip.get()) var.desc().SetErrorClip(options_.error_clip.get());
  if (options_.stop_gradient) var.desc().SetStopGradient(true);
  return var;
}

void RequireFreeOutput(Builder& net, const std::string& type, const std::string& name) {
  if (name.empty()) return;
  if (IsEmptyName(name)) ThrowInvalid(fmt::format("{}: {} is a reserved name", type, Quote(name)));
  if (net.block().FindVarRecursive(name)) {
    throw Error(ErrorCode::kAlreadyExists,
                fmt::format("{}: its output {} is the name of another variable; choose one that "
                            "is free",
                            type, Quote(name)));
  }
}

bool IsUnary(const OpSpec& def) {
  auto only = [](const std::vector<SlotDef>& slots, const char* name) {
    return std::all_of(slots.begin(), slots.end(),
                       [&](const SlotDef& s) { return s.name == name ? !s.variadic : s.optional; });
  };
  auto required = [](const AttrDef& attr) { return !attr.default_value; };
  return def.kind == OpKind::kCompute && def.FindInput("X") && def.FindOutput("Out") &&
         only(def.inputs, "X") && only(def.outputs, "Out") &&
         std::none_of(def.attrs.begin(), def.attrs.end(), required);
}

std::vector<std::string> NamesOf(const std::vector<Variable>& vars) {
  std::vector<std::string> names;
  names.reserve(vars.size());
  for (const Variable& var : vars) names.push_back(var.name());
  return names;
}

}  // namespace coracle
