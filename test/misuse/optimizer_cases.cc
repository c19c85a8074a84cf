// optimizer.

#include <coracle/layers/builder.h>
#include <coracle/optimizer/lr_schedule.h>
#include <coracle/optimizer/mixed_precision.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/test/misuse/misuse.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// NOLINTBEGIN(bugprone-use-after-move): that is what is tested
namespace coracle::misuse {
namespace optimizer_cases {

struct Trained {
  ProgramDesc main, startup;
  Builder b{main, startup};
  Variable x = b.Data("x", {-1, 4});
  Variable loss = b.Mean(b.Fc(x, {.size = 2}));
};

// Options of a schedule; some of them must be given.
template <class Options>
void AddSchedule(Cases& cases, const char* type, LrSchedulePtr (*make)(const Options&)) {
  cases.Of(type).Fails("default", "learning-rate schedule", [make] { make(Options()); });
}

void AddSchedules(Cases& cases) {
  cases.Of("LrSchedule")
      .Fails("null after a warm-up", "no schedule", [] { WarmupRate(nullptr, 10, 0, 1); })
      .Fails("a null part", "no schedule",
             [] {
               SequenceRate({{0, nullptr}});
             })
      .Fails("no parts", "first part", [] { SequenceRate({}); })
      .Fails("a rate that is no number", "finite", [] { FixedRate(std::nan("")); })
      .Fails("an empty Variable", "empty Variable", [] { FixedRate(1)->Append(Variable()); })
      .Works("null", [] {
        Trained net;
        Sgd sgd({});
        sgd.SetSchedule(nullptr);
        sgd.Minimize(net.loss, net.startup);
      });
  AddSchedule(cases, "StepRateOptions", StepRate);
  AddSchedule(cases, "ExponentialRateOptions", ExponentialRate);
  AddSchedule(cases, "InvRateOptions", InvRate);
  AddSchedule(cases, "MultiStepRateOptions", MultiStepRate);
  AddSchedule(cases, "PiecewiseRateOptions", PiecewiseRate);
  AddSchedule(cases, "PolynomialRateOptions", PolynomialRate);
  AddSchedule(cases, "SigmoidRateOptions", SigmoidRate);
  AddSchedule(cases, "NoamRateOptions", NoamRate);
  AddSchedule(cases, "CosineRateOptions", CosineRate);
  AddSchedule(cases, "CosineAnnealingRateOptions", CosineAnnealingRate);
  AddSchedule(cases, "CosineRestartsRateOptions", CosineRestartsRate);
  AddSchedule(cases, "CyclicOptions", CyclicRate);
  AddSchedule(cases, "OneCycleRateOptions", OneCycleRate);
  cases.Of("PlateauRate")
      .Fails("a rate that is no number", "rate", [] { PlateauRate(std::nan(""), {}); })
      .Works("nans", [] {
        PlateauRate rate(1, {});
        rate.Update(std::nan(""));
        rate.SetState({});
        rate.Update(1);
      });
  cases.Of("ScheduleEvent")
      .Fails("of an unknown kind", "schedule", [] { LrScheduleEvents(""); })
      .Fails("of a kind without a maker", "empty function",
             [] { RegisterLrSchedule("mine", LrScheduleMaker()); });
}

void AddBases(Cases& cases) {
  cases.Of("MinimizeOptions").Fails("an absent parameter", "parameter_list", [] {
    Trained net;
    Sgd(SgdOptions{}).Minimize(net.loss, net.startup, {.parameter_list = {"none"}});
  });
  cases.Of("Optimizer")
      .Fails("an empty Variable", "empty Variable",
             [] {
               ProgramDesc startup;
               Sgd(SgdOptions{}).Minimize(Variable(), startup);
             })
      .Fails("a divisor of 0", "divi", [] { Sgd(SgdOptions{}).SetGradientDivisor(0); })
      .Fails("an absent guard", "no var",
             [] {
               Trained net;
               Sgd sgd({});
               sgd.AddGuard("");
               sgd.Minimize(net.loss, net.startup);
             })
      .Fails("a body that is empty", "empty function",
             [] { AppendGuarded(ProgramDesc().Root(), {}, {}); })
      .Fails("an unknown kind", "optimizer", [] { MakeOptimizer({}); })
      .Fails("a kind without a maker", "empty function",
             [] { RegisterOptimizer("mine", OptimizerMaker()); })
      .Fails("a maker without a name", "empty",
             [] { RegisterOptimizer("", [](const Setting&) { return nullptr; }); })
      .Works("moved from", [] {
        Trained net;
        Momentum momentum({});
        Momentum moved = std::move(momentum);
        moved.Minimize(net.loss, net.startup);
      });
  cases.Of("OptimizerGroup")
      .Fails("no optimizer", "optimizer",
             [] {
               Trained net;
               AppendTrainingStep({.groups = {{}}}, net.loss, net.startup);
             })
      .Fails("a pattern without a match", "match", [] {
        SplitByGroup({{.params = {"none"}, .optimizer = std::make_shared<Sgd>(SgdOptions{})}},
                     {{"p", "p@GRAD"}});
      });
  cases.Of("TrainingStep")
      .Fails("no groups", "no optimizer",
             [] {
               Trained net;
               AppendTrainingStep({}, net.loss, net.startup);
             })
      .Fails("no runs", "positive", [] {
        Trained net;
        AppendTrainingStep(
            {.groups = {{.optimizer = std::make_shared<Sgd>(SgdOptions{})}}, .accumulate = 0},
            net.loss, net.startup);
      });
  cases.Plain<AppendedStep>("AppendedStep");
}

void AddAverages(Cases& cases) {
  cases.Of("WeightAverage").Works("before Append", [] {
    const ExponentialMovingAverage average;
    Require(average.apply().NumBlocks() == 1 && average.restore().NumBlocks() == 1, "empty");
  });
  cases.Of("ExponentialMovingAverageOptions").Fails("a decay of 1", "decay", [] {
    ExponentialMovingAverage({.decay = 1});
  });
  cases.Of("ExponentialMovingAverage").Fails("of an absent parameter", "none", [] {
    Trained net;
    ExponentialMovingAverage().Append(net.main.Root(), net.startup, {"none"});
  });
  cases.Of("ModelAverageOptions").Fails("no window", "window", [] {
    ModelAverage({.min_window = 0, .max_window = -1});
  });
  cases.Of("ModelAverage").Fails("of an absent parameter", "none", [] {
    Trained net;
    ModelAverage().Append(net.main.Root(), net.startup, {"none"});
  });
  cases.Of("LookaheadOptions").Fails("no steps", "k", [] {
    Trained net;
    AppendLookahead(net.main.Root(), net.startup, {}, {.k = 0});
  });
}

// Options with a learning rate, which must be finite.
template <class Options, class Made = typename Options::Makes>
void AddOptions(Cases& cases, const char* type) {
  cases.Of(type).Fails("a rate that is no number", "rate", [] {
    Options options;
    options.learning_rate = std::nan("");
    Made made(options);
  });
}

void AddKinds(Cases& cases) {
  struct Empty : OneOpOptimizer {
    Empty() : OneOpOptimizer(0.1, "", {}, {}) {}
  };
  cases.Of("OneOpOptimizer").Fails("an op without a name", "unknown op", [] {
    Trained net;
    Empty().Minimize(net.loss, net.startup);
  });
  cases.Of("OptimizerOf").Works("twice on one program", [] {
    Trained net;
    Sgd sgd({});
    sgd.Minimize(net.loss, net.startup);
    sgd.learning_rate_var();
  });
  AddOptions<SgdOptions>(cases, "SgdOptions");
  AddOptions<MomentumOptions>(cases, "MomentumOptions");
  AddOptions<LarsMomentumOptions>(cases, "LarsMomentumOptions");
  AddOptions<AdagradOptions>(cases, "AdagradOptions");
  AddOptions<DecayedAdagradOptions>(cases, "DecayedAdagradOptions");
  AddOptions<AdadeltaOptions>(cases, "AdadeltaOptions");
  AddOptions<AdamOptions>(cases, "AdamOptions");
  AddOptions<AdamaxOptions>(cases, "AdamaxOptions");
  AddOptions<RmspropOptions>(cases, "RmspropOptions");
  AddOptions<FtrlOptions>(cases, "FtrlOptions");
  AddOptions<LambOptions>(cases, "LambOptions");
  AddOptions<AdamWOptions>(cases, "AdamWOptions");
  AddOptions<LionOptions>(cases, "LionOptions");
  AddOptions<DpsgdOptions>(cases, "DpsgdOptions");
  AddOptions<ProximalGdOptions>(cases, "ProximalGdOptions");
  AddOptions<ProximalAdagradOptions>(cases, "ProximalAdagradOptions");
  cases.Of("Lamb").Fails("a decay that is no number", "decay",
                         [] { Lamb({.lamb_weight_decay = std::nan("")}); });
  cases.Of("AdamW").Fails("a decay that is no number", "decay",
                          [] { AdamW({.weight_decay = std::nan("")}); });
}

Tensor One() { return Tensor::Full<float>({1}, 1); }

void AddScaler(Cases& cases) {
  cases.Of("GradScalerOptions").Fails("no growth", "growth_factor", [] {
    GradScaler({.growth_factor = 0});
  });
  cases.Of("GradScaler")
      .Fails("a tensor of integers", "floating-point",
             [] { GradScaler().Scale(Tensor(DType::kInt32, {1})); })
      .Fails("a step before any scale", "Scale", [] { GradScaler().Step("", {nullptr}, [] {}); })
      .Fails("no gradients", "no gradients",
             [] {
               GradScaler scaler;
               scaler.Scale(One());
               scaler.Step("sgd", {}, [] {});
             })
      .Fails("a null gradient", "null",
             [] {
               GradScaler scaler;
               scaler.Scale(One());
               scaler.Unscale("sgd", {nullptr});
             })
      .Fails("a null gradient after Unscale", "null",
             [] {
               GradScaler scaler;
               scaler.Scale(One());
               Tensor gradient = One();
               scaler.Unscale("sgd", {&gradient});
               scaler.Step("sgd", {nullptr}, [] {});
             })
      .Fails("a gradient of another type after Unscale", "float32 or float64",
             [] {
               GradScaler scaler;
               scaler.Scale(One());
               Tensor gradient = One(), other(DType::kInt32, {1});
               scaler.Unscale("sgd", {&gradient});
               scaler.Step("sgd", {&other}, [] {});
             })
      .Fails("an empty step", "empty function",
             [] {
               GradScaler scaler;
               scaler.Scale(One());
               Tensor gradient = One();
               scaler.Step("sgd", {&gradient}, {});
             })
      .Fails("an empty step, disabled", "empty function",
             [] { GradScaler({.enabled = false}).Step("sgd", {}, {}); })
      .Fails("an empty state", "the state to load", [] { GradScaler().LoadState({}); })
      .Works("moved from", [] {
        GradScaler scaler;
        GradScaler moved = std::move(scaler);
        scaler.Scale(One());
        scaler = moved;
      });
  cases.Of("LossScaling")
      .Fails("no gradients", "no gradients",
             [] {
               Trained net;
               LossScaling(net.main, net.startup).Unscale(net.main.Root(), {});
             })
      .Fails("a check before Unscale", "Unscale",
             [] {
               Trained net;
               LossScaling(net.main, net.startup).CheckAgain(net.main.Root(), {});
             })
      .Fails("an empty Variable", "empty Variable",
             [] {
               Trained net;
               LossScaling(net.main, net.startup).Scale(Variable());
             })
      .Fails("a loss of another program", "loss_scaling", [] {
        Trained net, other;
        LossScaling(net.main, net.startup).Scale(other.loss);
      });
}

void AddPrecision(Cases& cases) {
  cases.Of("PrecisionLevel").Fails("unknown, with a dtype of 32 bits", "dtype", [] {
    Trained net;
    DecorateMixedPrecision(net.main, net.startup,
                           {.dtype = DType::kFloat32, .level = static_cast<PrecisionLevel>(9)});
  });
  cases.Plain<PrecisionLists>("PrecisionLists");
  cases.Of("MixedPrecisionOptions").Fails("an unknown op", "none", [] {
    Trained net;
    DecorateMixedPrecision(net.main, net.startup, {.custom_white = {"none"}});
  });
  cases.Plain<MixedPrecisionReport>("MixedPrecisionReport");
  cases.Of("QuantizeTrainingOptions")
      .Fails("no bits", "2 to 8 bits",
             [] {
               Trained net;
               QuantizeForTraining(net.main, net.startup, {.weight_bits = 0});
             })
      .Fails("no products", "product", [] {
        ProgramDesc main, startup;
        QuantizeForTraining(main, startup);
      });
  cases.Plain<QuantizeTrainingReport>("QuantizeTrainingReport");
  cases.Of("QuantizePhase").Works("of an empty program", [] {
    ProgramOfPhase(ProgramDesc(), QuantizePhase::kObserve);
    InitializeLearnedSteps(ProgramDesc());
  });
  cases.Of("QuantizedInference").Fails("no op that rounds", "round", [] {
    InferInIntegers(ProgramDesc(), Scope(), {}, {});
  });
}

}  // namespace optimizer_cases

void AddOptimizers(Cases& cases) {
  using namespace optimizer_cases;
  AddSchedules(cases);
  AddBases(cases);
  AddAverages(cases);
  AddKinds(cases);
  AddScaler(cases);
  AddPrecision(cases);
}

}  // namespace coracle::misuse
// NOLINTEND(bugprone-use-after-move)
