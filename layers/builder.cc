#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/ir/mismatch.h>
#include <coracle/layers/builder.h>
#include <coracle/layers/internal/layer_scope.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coracle {
namespace {

void RequireSame(const VarDesc& var, const Shape& shape, DType dtype) {
  if (var.shape() == shape && var.dtype() == dtype) return;
  ThrowInvalid(fmt::format("{} is shared, so it {}", Quote(var.name()),
                           DescribeMismatch(var.meta(), {VarType::kLoDTensor, dtype, shape, 0})));
}

void RequireOwnBlock(Builder& net) {
  if (&net.block().program() == &net.main()) return;
  ThrowInvalid(
      "SetBlock gave a Builder a block of another program; give it one of its main program");
}

std::string FreshNameIn(ProgramDesc& program, const std::string& prefix, int k) {
  std::string name = fmt::format("{}_{}", prefix, k);
  return program.FreeName(name) == name ? name : program.UniqueName(prefix);
}

// The setting as the variable keeps it: only the startup program holds an array's elements.
Setting WithoutValues(Setting setting) {
  std::erase_if(setting.attrs, [](const NamedAttr& attr) { return attr.name == "values"; });
  return setting;
}

}  // namespace

Builder::Builder(ProgramDesc& main, ProgramDesc& startup, const OpRegistry& ops)
    : main_(&main),
      startup_(&startup),
      writer_(main.Root(), ops,
              {.name =
                   [&main](const std::string& type) {
                     return FreshNameIn(main, main.UniqueName(type) + ".tmp", 0);
                   },
               .all_attrs = true}) {}

void Builder::SetSite(std::string site, std::string round) {
  std::vector<std::string> lines = {std::move(site), std::move(round)};
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  writer_.SetSite(std::move(lines));
}

std::string Builder::FreshName(const std::string& prefix, int k) {
  return FreshNameIn(*main_, prefix, k);
}

Variable Builder::Share(VarDesc& found, const Shape& shape, DType dtype) {
  if (!found.persistable()) {
    throw Error(
        ErrorCode::kAlreadyExists,
        fmt::format("{} is not a parameter, so no layer can share it as one", Quote(found.name())));
  }
  RequireSame(found, shape, dtype);
  return writer_.Var(main_->Root(), found);
}

// A startup program may serve several main programs, so an existing variable is kept.
VarDesc& Builder::AppendStartup(const std::string& name, const Shape& shape, DType dtype,
                                const Setting& initializer) {
  if (VarDesc* filled = startup_->Root().FindVar(name)) {
    RequireSame(*filled, shape, dtype);
    return *filled;
  }
  Writer writer(startup_->Root(), ops(), {.all_attrs = true});
  writer.SetSite(writer_.site());
  writer.Append(std::make_unique<OpDesc>(InitializerOp(initializer, name, shape, dtype)));
  VarDesc& var = startup_->Root().Var(name);
  var.SetPersistable(true);
  return var;
}

namespace {

// Layers that share a parameter must agree about its training; a later layer may set options that
// the first left open (as in Caffe).
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
  const EditGuard guard(*main_, *startup_);
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
  if (!writer_.site().empty()) training.creation_site = writer_.site().front();
  return writer_.Var(main_->Root(), var);
}

Variable Builder::Statistic(const std::string& prefix, const std::string& name, const Shape& shape,
                            DType dtype, const Setting& initializer) {
  const EditGuard guard(*main_, *startup_);
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
  return writer_.Var(main_->Root(), var);
}

Variable Builder::Data(const std::string& name, const Shape& shape, DType dtype,
                       const DataOptions& options) {
  const EditGuard guard(*main_, *startup_);
  if (IsEmptyName(name)) ThrowInvalid("data: a name is required");
  for (int64_t dim : shape) {
    if (dim < -1) {
      ThrowInvalid(
          fmt::format("data {}: dims must be -1 or more, got {}", Quote(name), shape.ToString()));
    }
  }
  RequireOwnBlock(*this);
  RequireFreeOutput(*this, "data", name);
  VarDesc& var = block().Var(name);
  var.SetMeta({VarType::kLoDTensor, dtype, shape, options.lod_level});
  var.SetStopGradient(options.stop_gradient);
  var.SetNeedCheckFeed(true);
  if (options.error_clip.get()) var.SetErrorClip(options.error_clip.get());
  if (!writer_.site().empty()) var.MutableTraining().creation_site = writer_.site().front();
  return writer_.Var(block(), var);
}

Variable Builder::Make(const std::string& type, SlotList inputs, AttrList attrs,
                       const OutputOptions& options) {
  const EditGuard guard(*main_, *startup_);
  LayerScope layer(*this, type, options);
  const std::string out = layer.Out();
  Append(type, std::move(inputs), {{"Out", {out}}}, std::move(attrs));
  return layer.Finish(out);
}

Variable Builder::Unary(const std::string& type, const Variable& x, AttrList attrs,
                        const OutputOptions& options) {
  const EditGuard guard(*main_, *startup_);
  return Make(type, {{"X", {NameIn(*this, x)}}}, std::move(attrs), options);
}

Variable Builder::Binary(const std::string& type, const Variable& x, const Variable& y,
                         AttrList attrs, const OutputOptions& options) {
  const EditGuard guard(*main_, *startup_);
  return Make(type, {{"X", {NameIn(*this, x)}}, {"Y", {NameIn(*this, y)}}}, std::move(attrs),
              options);
}

LayerScope::LayerScope(Builder& net, const std::string& type, OutputOptions options)
    : net_(net), type_(type), options_(std::move(options)) {
  RequireOwnBlock(net);
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
  if (!last || options_.output.empty()) return Temp();
  // This also refuses names of the parameters of the layer.
  RequireFreeOutput(net_, type_, options_.output);
  return options_.output;
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
    RequireFreeOutput(net_, type_, last);
    net_.Append(options_.act, {{"X", {result}}}, {{"Out", {last}}});
  }
  Variable var = net_.Var(last);
  if (options_.error_clip.get()) var.desc().SetErrorClip(options_.error_clip.get());
  if (options_.stop_gradient) var.desc().SetStopGradient(true);
  return var;
}

void internal::RequireFreeOutput(Builder& net, const std::string& type, const std::string& name) {
  if (name.empty()) return;
  if (IsEmptyName(name)) ThrowInvalid(fmt::format("{}: {} is a reserved name", type, Quote(name)));
  if (net.block().FindVarRecursive(name)) {
    throw Error(ErrorCode::kAlreadyExists,
                fmt::format("{}: its output {} is the name of another variable; choose one that "
                            "is free",
                            type, Quote(name)));
  }
}

const std::string& internal::NameSeenFrom(const BlockDesc& block, const Variable& x) {
  if (block.FindVarRecursive(x.name()) == &x.desc()) return x.name();
  if (&x.program() == &block.program()) {
    ThrowInvalid(fmt::format("{} is a variable of block {}, which block {} does not see",
                             Quote(x.name()), x.block().idx(), block.idx()));
  }
  ThrowInvalid(
      fmt::format("{} is a variable of another program; the builder's Var or Data returns "
                  "one of its own program",
                  Quote(x.name())));
}

const std::string& internal::NameIn(Builder& net, const Variable& x) {
  RequireOwnBlock(net);
  return NameSeenFrom(net.block(), x);
}

std::vector<std::string> internal::NamesIn(Builder& net, const std::vector<Variable>& x) {
  std::vector<std::string> names;
  names.reserve(x.size());
  for (const Variable& var : x) names.push_back(NameIn(net, var));
  return names;
}

bool internal::IsUnary(const OpSpec& def) {
  auto only = [](const std::vector<SlotDef>& slots, const char* name) {
    return std::all_of(slots.begin(), slots.end(),
                       [&](const SlotDef& s) { return s.name == name ? !s.variadic : s.optional; });
  };
  auto required = [](const AttrDef& attr) { return !attr.default_value; };
  return def.kind == OpKind::kCompute && def.FindInput("X") && def.FindOutput("Out") &&
         only(def.inputs, "X") && only(def.outputs, "Out") &&
         std::none_of(def.attrs.begin(), def.attrs.end(), required);
}

}  // namespace coracle
