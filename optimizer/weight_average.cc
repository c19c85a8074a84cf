#include <coracle/framework/ir/state.h>
#include <coracle/framework/ir/variable.h>
#include <coracle/optimizer/lr_schedule.h>
#include <coracle/optimizer/option_fields.h>
#include <coracle/optimizer/update_block.h>
#include <coracle/optimizer/weight_average.h>
#include <fmt/format.h>

#include <cmath>
#include <map>

namespace coracle {
namespace {

constexpr char kBackup[] = "@BACKUP";

AttrList Role() { return {{kOpRoleAttr, int32_t{kOptimize}}}; }

void Append(BlockDesc& block, const char* type, SlotList inputs, const std::string& out,
            AttrList attrs = {}) {
  attrs.push_back({kOpRoleAttr, int32_t{kOptimize}});
  block.AppendOp(type, std::move(inputs), {{"Out", {out}}}, std::move(attrs));
}

// A persistable variable of `main` in another program.
const std::string& Use(BlockDesc& block, const ProgramDesc& main, const std::string& name) {
  BlockDesc& root = block.program().Root();
  if (!root.FindVar(name)) {
    VarDesc& var = root.Var(name);
    var.SetMeta(main.Root().FindVar(name)->meta());
    var.SetPersistable(true);
  }
  return name;
}

std::string ParamState(BlockDesc& block, ProgramDesc& startup, const std::string& param,
                       const char* suffix) {
  ProgramDesc& main = block.program();
  const VarDesc& var = Variable::Of(block, param).desc();
  return MakeState(main, startup, main.UniqueName(param + suffix), var.dtype(), var.shape(), 0);
}

std::string Temporary(BlockDesc& block, const std::string& param, const char* suffix) {
  const VarDesc& var = Variable::Of(block, param).desc();
  return MakeTemporary(block, param + suffix, var.dtype(), var.shape());
}

std::string AppendConstant(BlockDesc& block, DType dtype, double value) {
  std::string out = MakeTemporary(block, "constant", dtype);
  Append(block, "fill_constant", {}, out,
         {{"shape", std::vector<int64_t>{1}},
          {"dtype", static_cast<int32_t>(dtype)},
          {"value", static_cast<float>(value)},
          {"str_value", fmt::format("{}", value)}});
  return out;
}

std::string AppendCompare(BlockDesc& block, const char* type, const std::string& x, DType dtype,
                          double y) {
  std::string out = MakeTemporary(block, type, DType::kBool);
  Append(block, type, {{"X", {x}}, {"Y", {AppendConstant(block, dtype, y)}}}, out);
  return out;
}

void AppendAssign(BlockDesc& block, const std::string& x, const std::string& out) {
  Append(block, "assign", {{"X", {x}}}, out);
}

void AppendScaled(BlockDesc& block, const std::string& x, const std::string& scale,
                  const std::string& out) {
  Append(block, "scale", {{"X", {x}}, {"ScaleTensor", {scale}}}, out);
}

}  // namespace

Fields<ExponentialMovingAverageOptions> FieldsOf(const ExponentialMovingAverageOptions&) {
  using O = ExponentialMovingAverageOptions;
  return Fields<O>("An exponential moving average.")
      .Add("decay", &O::decay, "share of the average that a step keeps")
      .From(0, 1)
      .Add("warm_up", &O::warm_up, "min(decay, (1 + t) / (10 + t))");
}

Fields<ModelAverageOptions> FieldsOf(const ModelAverageOptions&) {
  using O = ModelAverageOptions;
  return Fields<O>("The mean of the newest updates.")
      .Add("rate", &O::rate, "size of the window over the number of updates")
      .NotNegative()
      .Add("min_window", &O::min_window, "least size of the window")
      .Add("max_window", &O::max_window, "largest size of the window");
}

Fields<LookaheadOptions> FieldsOf(const LookaheadOptions&) {
  using O = LookaheadOptions;
  return Fields<O>(
             "After each k updates slow weights follow the parameters, which begin there anew.")
      .Add("alpha", &O::alpha, "share of the way that slow weights go")
      .In({0, 1, true, false, "must be in (0, 1]"})
      .Add("k", &O::k, "updates between")
      .In({1, HUGE_VAL, false, true, "must be at least 1"});
}

void WeightAverage::MakePrograms(
    const ProgramDesc& main, const std::vector<std::string>& params,
    const std::function<std::string(BlockDesc& block)>& has_average,
    const std::function<void(BlockDesc& block, const std::string& param)>& average) {
  for (const std::string& param : params) {
    for (ProgramDesc* program : {&apply_, &restore_}) {
      Use(program->Root(), main, param);
      VarDesc& backup = program->Root().Var(param + kBackup);
      backup.SetMeta(main.Root().FindVar(param)->meta());
      backup.SetPersistable(true);
    }
    AppendAssign(apply_.Root(), param, param + kBackup);
    AppendAssign(restore_.Root(), param + kBackup, param);
  }
  AppendGuarded(apply_.Root(), {has_average(apply_.Root())}, [&](BlockDesc& block) {
    for (const std::string& param : params) average(block, param);
  });
}

ExponentialMovingAverage::ExponentialMovingAverage(const ExponentialMovingAverageOptions& options)
    : options_(FieldsOf(options).Check("exponential moving average", options)) {}

void ExponentialMovingAverage::Append(BlockDesc& block, ProgramDesc& startup,
                                      const std::vector<std::string>& params) {
  ProgramDesc& main = block.program();
  const auto state = [&](const char* name, double value) {
    return MakeState(main, startup, main.FreeName(name), DType::kFloat64, {1}, value);
  };
  const std::string product = state("@EMA_DECAY_PRODUCT@", 1);
  ScheduleValue decay = ScheduleValue(block, product).Constant(options_.decay);
  if (options_.warm_up) {
    const std::string steps = state("@EMA_STEP_COUNTER@", 0);
    const ScheduleValue t(block, steps);
    decay = Min(decay, (1.0 + t) / (10.0 + t));
    AppendAssign(block, (t + 1.0).var(), steps);
  }
  AppendAssign(block, (ScheduleValue(block, product) * decay).var(), product);
  const ScheduleValue rest = 1.0 - decay;
  std::map<std::string, std::string> averages;
  for (const std::string& param : params) {
    const std::string average = averages[param] = ParamState(block, startup, param, "_ema");
    const std::string old_share = Temporary(block, param, "_ema_old");
    const std::string new_share = Temporary(block, param, "_ema_new");
    AppendScaled(block, average, decay.var(), old_share);
    AppendScaled(block, param, rest.var(), new_share);
    coracle::Append(block, "sum", {{"X", {old_share, new_share}}}, average);
  }
  const auto has_average = [&](BlockDesc& apply) {
    return AppendCompare(apply, "less_than", Use(apply, main, product), DType::kFloat64, 1);
  };
  MakePrograms(main, params, has_average, [&](BlockDesc& apply, const std::string& param) {
    const ScheduleValue correction = 1.0 / (1.0 - ScheduleValue(apply, product));
    AppendScaled(apply, Use(apply, main, averages[param]), correction.var(), param);
  });
}

ModelAverage::ModelAverage(const ModelAverageOptions& options)
    : options_(FieldsOf(options).Check("model average", options)) {
  if (options.min_window < 1 || options.max_window < options.min_window) {
    ThrowInvalid(fmt::format(
        "model average: windows must satisfy 1 <= min_window <= max_window, got {} and {}",
        options.min_window, options.max_window));
  }
}

void ModelAverage::Append(BlockDesc& block, ProgramDesc& startup,
                          const std::vector<std::string>& params) {
  ProgramDesc& main = block.program();
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
    AttrList attrs = Role();
    attrs.push_back({"average_window", static_cast<float>(options_.rate)});
    attrs.push_back({"min_average_window", options_.min_window});
    attrs.push_back({"max_average_window", options_.max_window});
    block.AppendOp("average_accumulates", std::move(inputs), std::move(outputs), std::move(attrs));
  }
  const auto has_average = [&](BlockDesc& apply) {
    return AppendCompare(apply, "greater_than", Use(apply, main, states[params.front()].counts[2]),
                         DType::kInt64, 0);
  };
  MakePrograms(main, params, has_average, [&](BlockDesc& apply, const std::string& param) {
    const State& state = states[param];
    for (const auto* names : {&state.sums, &state.counts})
      for (const std::string& name : *names) Use(apply, main, name);
    const std::string count = MakeTemporary(apply, "count", DType::kInt64);
    coracle::Append(apply, "sum", {{"X", {state.counts[0], state.counts[1]}}}, count);
    const std::string wide = MakeTemporary(apply, "count", DType::kFloat64);
    coracle::Append(apply, "cast", {{"X", {count}}}, wide,
                    {{"in_dtype", static_cast<int32_t>(DType::kInt64)},
                     {"out_dtype", static_cast<int32_t>(DType::kFloat64)}});
    const std::string sum = Temporary(apply, param, "_sum");
    coracle::Append(apply, "sum", {{"X", state.sums}}, sum);
    AppendScaled(apply, sum, (1.0 / ScheduleValue(apply, wide)).var(), param);
  });
}

void AppendLookahead(BlockDesc& block, ProgramDesc& startup, const std::vector<std::string>& params,
                     const LookaheadOptions& options) {
  FieldsOf(options).Check("lookahead", options);
  ProgramDesc& main = block.program();
  const std::string counter =
      MakeState(main, startup, main.FreeName("@LOOKAHEAD_STEP@"), DType::kInt64, {1}, 0);
  Append(block, "increment", {{"X", {counter}}}, counter, {{"step", 1.0f}});
  const std::string last =
      AppendCompare(block, "greater_equal", counter, DType::kInt64, static_cast<double>(options.k));
  std::map<std::string, std::string> slow;
  for (const std::string& param : params) {
    slow[param] = ParamState(block, startup, param, "_slow");
    AppendAssign(startup.Root(), param, slow[param]);
  }
  AppendGuarded(block, {last}, [&](BlockDesc& inner) {
    for (const std::string& param : params) {
      const std::string difference = Temporary(inner, param, "_ahead");
      Append(inner, "elementwise_sub", {{"X", {param}}, {"Y", {slow[param]}}}, difference,
             {{"axis", int32_t{-1}}});
      const std::string step = Temporary(inner, param, "_ahead");
      AppendScaled(inner, difference, AppendConstant(inner, DType::kFloat64, options.alpha), step);
      Append(inner, "sum", {{"X", {slow[param], step}}}, slow[param]);
      AppendAssign(inner, slow[param], param);
    }
    Append(inner, "fill_constant", {}, counter,
           {{"shape", std::vector<int64_t>{1}},
            {"dtype", static_cast<int32_t>(DType::kInt64)},
            {"value", 0.0f}});
  });
}

}  // namespace coracle
