#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/operators.h>
#include <coracle/optimizer/internal/training_step.h>
#include <coracle/optimizer/option_fields.h>
#include <fmt/format.h>

#include <cmath>
#include <map>

namespace coracle {
namespace {

constexpr char kBackup[] = "@BACKUP";

Writer AverageWriter(BlockDesc& block) {
  return UpdateWriter(block, {.stage = TrainingStage::kParameterAverages});
}

void AppendAssign(const Writer& w, const std::string& x, const std::string& out) {
  w.Into(out, "assign", {{"X", {x}}});
}

// A parameter, converted to float32 if it has 16 bits, since the steps of an average are too small
// for 16 bits.
Variable Wide(const Writer& w, const std::string& param) {
  const Variable var = w.Var(param);
  return IsHalf(var.dtype()) ? w.Named(param + "_wide", Cast(var, DType::kFloat32)) : var;
}

// Writes x to the parameter, rounded if the parameter has 16 bits.
void AssignParam(const Writer& w, const Variable& x, const std::string& param) {
  const DType dtype = w.Var(param).dtype();
  if (dtype == x.dtype()) return AppendAssign(w, x.name(), param);
  w.Into(param, "cast", {{"X", {x.name()}}}, CastAttrs(x.dtype(), dtype));
}

// Writes x, multiplied by the single element of `factor`, to the parameter.
void AssignScaled(const Writer& w, const Variable& x, const Variable& factor,
                  const std::string& param) {
  if (w.Var(param).dtype() != x.dtype())
    return AssignParam(w, w.Named(param + "_average", Scale(x, factor)), param);
  w.Into(param, "scale", {{"X", {x.name()}}, {"ScaleTensor", {factor.name()}}});
}

const VarMeta& MetaOf(const ProgramDesc& main, const std::string& name) {
  if (const VarDesc* var = main.Root().FindVar(name)) return var->meta();
  throw Error(ErrorCode::kNotFound,
              fmt::format("average: the program has no variable {}", Quote(name)));
}

// Declares a persistable variable of `main` in the program of `w`.
Variable Use(const Writer& w, const ProgramDesc& main, const std::string& name) {
  BlockDesc& root = w.block().program().Root();
  if (!root.FindVar(name)) {
    VarDesc& var = root.Var(name);
    var.SetMeta(MetaOf(main, name));
    var.SetPersistable(true);
  }
  return w.Var(name);
}

std::string ParamState(BlockDesc& block, ProgramDesc& startup, const std::string& param,
                       const char* suffix) {
  ProgramDesc& main = block.program();
  const VarDesc& var = Variable::Of(block, param).desc();
  const DType dtype = IsHalf(var.dtype()) ? DType::kFloat32 : var.dtype();
  return MakeState(main, startup, main.UniqueName(param + suffix), dtype, var.shape(), 0);
}

}  // namespace

Fields<ExponentialMovingAverageOptions> internal::FieldsOf(const ExponentialMovingAverageOptions&) {
  using O = ExponentialMovingAverageOptions;
  return Fields<O>("An exponential moving average.")
      .Add("decay", &O::decay, "share of the average that a step keeps", RangeFrom(0, 1))
      .Add("warm_up", &O::warm_up, "min(decay, (1 + t) / (10 + t))");
}

namespace {
FieldRange AtLeastOne() { return {1, HUGE_VAL, false, true, "must be at least 1"}; }
}  // namespace

Fields<ModelAverageOptions> internal::FieldsOf(const ModelAverageOptions&) {
  using O = ModelAverageOptions;
  return Fields<O>("The mean of the newest updates.")
      .Add("rate", &O::rate, "size of the window over the number of updates", NotNegativeRange())
      .Add("min_window", &O::min_window, "least size of the window", AtLeastOne())
      .Add("max_window", &O::max_window, "largest size of the window", AtLeastOne());
}

Fields<LookaheadOptions> internal::FieldsOf(const LookaheadOptions&) {
  using O = LookaheadOptions;
  return Fields<O>(
             "After each k updates slow weights follow the parameters, which restart from them.")
      .Add("alpha", &O::alpha, "share of the way that slow weights go",
           FieldRange{0, 1, true, false, "must be in (0, 1]"})
      .Add("k", &O::k, "updates between", AtLeastOne());
}

void WeightAverage::MakePrograms(
    const ProgramDesc& main, const std::vector<std::string>& params,
    const std::function<Variable(const Writer& w)>& has_average,
    const std::function<void(const Writer& w, const std::string& param)>& average) {
  const Writer apply = AverageWriter(apply_.Root()), restore = AverageWriter(restore_.Root());
  for (const std::string& param : params) {
    for (const Writer& w : {apply, restore}) {
      Use(w, main, param);
      VarDesc& backup = w.block().Var(param + kBackup);
      backup.SetMeta(MetaOf(main, param));
      backup.SetPersistable(true);
    }
    AppendAssign(apply, param, param + kBackup);
    AppendAssign(restore, param + kBackup, param);
  }
  AppendGuarded(apply_.Root(), {has_average(apply).name()}, [&](BlockDesc& block) {
    const Writer w = AverageWriter(block);
    for (const std::string& param : params) average(w, param);
  });
}

ExponentialMovingAverage::ExponentialMovingAverage(const ExponentialMovingAverageOptions& options)
    : options_(FieldsOf(options).Check("exponential moving average", options)) {}

void ExponentialMovingAverage::Append(BlockDesc& block, ProgramDesc& startup,
                                      const std::vector<std::string>& params) {
  const EditGuard guard(block.program(), startup);
  ProgramDesc& main = block.program();
  const auto state = [&](const char* name, double value) {
    return MakeState(main, startup, main.FreeName(name), DType::kFloat64, {1}, value);
  };
  const Writer w = AverageWriter(block);
  const std::string product = state("@EMA_DECAY_PRODUCT@", 1);
  Variable decay;
  if (options_.warm_up) {
    const Variable t = w.Var(state("@EMA_STEP_COUNTER@", 0));
    decay = Min((1.0 + t) / (10.0 + t), options_.decay);
    AppendAssign(w, (t + 1.0).name(), t.name());
  } else {
    decay = FillConstant(w, DType::kFloat64, options_.decay);
  }
  AppendAssign(w, (w.Var(product) * decay).name(), product);
  const Variable rest = 1.0 - decay;
  std::map<std::string, std::string> averages;
  for (const std::string& param : params) {
    const std::string average = averages[param] = ParamState(block, startup, param, "_ema");
    const Variable old_share = w.Named(param + "_ema_old", Scale(w.Var(average), decay));
    const Variable new_share = w.Named(param + "_ema_new", Scale(Wide(w, param), rest));
    w.Into(average, "sum", {{"X", {old_share.name(), new_share.name()}}});
  }
  const auto has_average = [&](const Writer& apply) {
    return Less(Use(apply, main, product), 1.0);
  };
  MakePrograms(main, params, has_average, [&](const Writer& apply, const std::string& param) {
    const Variable correction = 1.0 / (1.0 - apply.Var(product));
    AssignScaled(apply, Use(apply, main, averages[param]), correction, param);
  });
}

ModelAverage::ModelAverage(const ModelAverageOptions& options)
    : options_(FieldsOf(options).Check("model average", options)) {
  if (options.max_window < options.min_window) {
    ThrowInvalid(fmt::format(
        "model average: windows must satisfy 1 <= min_window <= max_window, got {} and {}",
        options.min_window, options.max_window));
  }
}

void ModelAverage::Append(BlockDesc& block, ProgramDesc& startup,
                          const std::vector<std::string>& params) {
  const EditGuard guard(block.program(), startup);
  ProgramDesc& main = block.program();
  const Writer w = AverageWriter(block);
  struct State {
    std::vector<std::string> sums, counts;
  };
  std::map<std::string, State> states;
  for (const std::string& param : params) {
    State& state = states[param];
    for (const char* suffix : {"_sum_1", "_sum_2", "_sum_3"})
      state.sums.push_back(ParamState(block, startup, param, suffix));
    for (const char* suffix : {"_num_accumulates", "_old_num_accumulates", "_num_updates"}) {
      state.counts.push_back(
          MakeState(main, startup, main.UniqueName(param + suffix), DType::kInt64, {1}, 0));
    }
    SlotList inputs = {{"param", {param}}}, outputs;
    const auto add = [&](const char* slot, const std::string& name) {
      inputs.push_back({std::string("in_") + slot, {name}});
      outputs.push_back({std::string("out_") + slot, {name}});
    };
    add("sum_1", state.sums[0]);
    add("sum_2", state.sums[1]);
    add("sum_3", state.sums[2]);
    add("num_accumulates", state.counts[0]);
    add("old_num_accumulates", state.counts[1]);
    add("num_updates", state.counts[2]);
    w.Append("average_accumulates", std::move(inputs), std::move(outputs),
             {{"average_window", static_cast<float>(options_.rate)},
              {"min_average_window", options_.min_window},
              {"max_average_window", options_.max_window}});
  }
  const auto has_average = [&](const Writer& apply) {
    return Greater(Use(apply, main, states[params.front()].counts[2]), 0.0);
  };
  MakePrograms(main, params, has_average, [&](const Writer& apply, const std::string& param) {
    const State& state = states[param];
    for (const auto* names : {&state.sums, &state.counts})
      for (const std::string& name : *names) Use(apply, main, name);
    const Variable count = AddAll(apply.Vars({state.counts[0], state.counts[1]}));
    const Variable share = 1.0 / Cast(count, DType::kFloat64);
    AssignScaled(apply, AddAll(apply.Vars(state.sums)), share, param);
  });
}

void AppendLookahead(BlockDesc& block, ProgramDesc& startup, const std::vector<std::string>& params,
                     const LookaheadOptions& options) {
  const EditGuard guard(block.program(), startup);
  FieldsOf(options).Check("lookahead", options);
  ProgramDesc& main = block.program();
  const std::string counter =
      MakeState(main, startup, main.FreeName("@LOOKAHEAD_STEP@"), DType::kInt64, {1}, 0);
  const Writer w = AverageWriter(block);
  w.Into(counter, "increment", {{"X", {counter}}}, {{"step", 1.0f}});
  const Variable last = GreaterEqual(w.Var(counter), static_cast<double>(options.k));
  std::map<std::string, std::string> slow;
  for (const std::string& param : params) {
    slow[param] = ParamState(block, startup, param, "_slow");
    // Uses AppendOp because a Writer would refuse a parameter that the startup program does
    // not declare.
    const DType from = w.Var(param).dtype(), to = w.Var(slow[param]).dtype();
    OpDesc& begin = startup.Root().AppendOp(from == to ? "assign" : "cast", {{"X", {param}}},
                                            {{"Out", {slow[param]}}},
                                            from == to ? AttrList() : CastAttrs(from, to));
    begin.SetAttr(kOpRoleAttr, int32_t{kOptimize});
    SetMark(begin, {.stage = TrainingStage::kParameterAverages});
  }
  AppendGuarded(block, {last.name()}, [&](BlockDesc& inner) {
    const Writer in = AverageWriter(inner);
    for (const std::string& param : params) {
      const Variable slow_weight = in.Var(slow[param]);
      const Variable ahead = in.Named(param + "_ahead", Wide(in, param) - slow_weight);
      const Variable step = in.Named(param + "_ahead", ahead * options.alpha);
      in.Into(slow_weight.name(), "sum", {{"X", {slow_weight.name(), step.name()}}});
      AssignParam(in, in.Var(slow[param]), param);
    }
    in.Into(counter, "fill_constant", {}, FillAttrs({1}, DType::kInt64, 0));
  });
}

}  // namespace coracle
