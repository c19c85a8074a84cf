// Calls that change programs: by hand, backward, optimizers, rewrites.

#include <coracle/framework/ir/edit_guard.h>
#include <coracle/test/fuzz/api_state.h>

#include <limits>

namespace coracle::api {
namespace {

// One past the end at the most.
size_t AnyIndex(Sequence& s, size_t size) {
  if (s.choose.OneIn(30)) return std::numeric_limits<size_t>::max();
  return s.choose.Below(size == 0 || s.choose.OneIn(10) ? size + 1 : size);
}

void ChangeOp(Sequence& s, OpDesc& op) {
  const std::string slot = s.choose.Of({"X", "Y", "Out", "Input", "W", ""});
  switch (s.choose.Below(9)) {
    case 0:
      return op.SetType(s.AnyOpType());
    case 1:
      return op.SetInput(slot, s.AnyNames(3));
    case 2:
      return op.SetOutput(slot, s.AnyNames(3));
    case 3:
      return op.RemoveInput(slot);
    case 4:
      return op.RemoveOutput(slot);
    case 5:
      return op.RenameInput(s.AnyName(), s.AnyName());
    case 6:
      return op.SetAttr(s.choose.Of({"axis", "sub_block", "op_role", "dim", "shape", "is_test"}),
                        s.AnyAttribute());
    case 7:
      if (!op.attrs().empty()) op.RemoveAttr(std::string(s.choose.Of(op.attrs()).name));
      return;
    default:
      return op.RenameOutputs([&](const std::string&) { return s.AnyName(); });
  }
}

void ChangeVar(Sequence& s, VarDesc& var) {
  switch (s.choose.Below(8)) {
    case 0:
      return var.SetShape(s.AnyShape());
    case 1:
      return var.SetDType(s.AnyDType());
    case 2:
      return var.SetPersistable(s.choose.OneIn(2));
    case 3:
      return var.SetStopGradient(s.choose.OneIn(2));
    case 4:
      return var.SetErrorClip(s.AnyErrorClip());
    case 5:
      return var.SetIsParameter(s.choose.OneIn(2));
    case 6:
      return var.SetType(static_cast<VarType>(s.choose.Of({7, 8, 13, 17, 3})));
    default:
      return var.SetNeedCheckFeed(s.choose.OneIn(2));
  }
}

// One element more often than not.
Variable AnyLoss(Sequence& s) {
  Variable loss;
  s.Try("loss", [&] {
    loss = s.AnyVariable();
    if (!s.choose.OneIn(4)) loss = Mean(loss);
  });
  return loss;
}

BackwardOptions AnyBackwardOptions(Sequence& s) {
  BackwardOptions options;
  if (s.choose.OneIn(4)) options.parameter_list = s.AnyNames(3);
  if (s.choose.OneIn(6)) options.no_grad_set = s.AnyNames(2);
  if (s.choose.OneIn(6)) options.stop_gradients = s.AnyNames(2);
  if (s.choose.OneIn(6)) options.target_gradients = s.AnyNames(2);
  if (s.choose.OneIn(3)) options.unconnected = Unconnected::kZero;
  if (s.choose.OneIn(3)) options.aggregation = Aggregation::kRunning;
  if (s.choose.OneIn(5)) options.callbacks = {ErrorClipCallback};
  if (s.choose.OneIn(30)) options.callbacks = {nullptr};
  if (s.choose.OneIn(6)) options.recompute.checkpoints = s.AnyNames(2);
  if (s.choose.OneIn(8)) options.recompute.memory_budget = 1 + s.choose.Below(1000);
  return options;
}

std::unique_ptr<Optimizer> AnyOptimizer(Sequence& s) {
  const double rate = s.choose.OneIn(3) ? s.AnyNumber() : 0.1;
  const auto make = [](const auto& options) -> std::unique_ptr<Optimizer> {
    return std::make_unique<typename std::decay_t<decltype(options)>::Makes>(options);
  };
  switch (s.choose.Below(6)) {
    case 0:
      return make(SgdOptions{.learning_rate = rate});
    case 1:
      return make(MomentumOptions{.learning_rate = rate, .momentum = s.AnyNumber()});
    case 2:
      return make(AdamOptions{.learning_rate = rate});
    case 3:
      return make(LambOptions{.learning_rate = rate});
    case 4:
      return make(AdamWOptions{.learning_rate = rate});
    default:
      return make(FtrlOptions{.learning_rate = rate});
  }
}

// The settings of a step, whose optimizer and average live as long as it.
struct AnyStep {
  TrainingStep step;
  std::unique_ptr<LossScaling> scaling;
};

void Configure(Sequence& s, Optimizer& optimizer) {
  optimizer.SetGradientClip(s.AnyClip());
  if (s.choose.OneIn(4)) optimizer.SetRegularizer(L2DecayRegularizer(s.AnyNumber()));
  if (s.choose.OneIn(6)) optimizer.SetRegularizer(Setting{"zzz", {}});
  if (s.choose.OneIn(4)) optimizer.SetGradientDivisor(s.AnyNumber(), s.choose.OneIn(2));
  if (s.choose.OneIn(4)) optimizer.SetClipStatistics(true);
  if (s.choose.OneIn(6)) optimizer.AddGuard(s.AnyName());
  if (s.choose.OneIn(4))
    optimizer.SetSchedule(CosineAnnealingRate({.rate = s.AnyNumber(), .steps = 5}));
}

AnyStep MakeStep(Sequence& s) {
  AnyStep made;
  for (size_t i = s.choose.Below(6) / 4 + (s.choose.OneIn(20) ? 0 : 1); i > 0; --i) {
    OptimizerGroup group;
    if (!s.choose.OneIn(20)) group.optimizer = AnyOptimizer(s);
    if (group.optimizer) Configure(s, *group.optimizer);
    if (s.choose.OneIn(5)) group.params = s.AnyNames(2);
    if (s.choose.OneIn(5)) group.average = std::make_shared<ExponentialMovingAverage>();
    if (s.choose.OneIn(8)) group.average = std::make_shared<ModelAverage>();
    made.step.groups.push_back(std::move(group));
  }
  made.step.accumulate = static_cast<int64_t>(s.choose.Below(4));
  made.step.skip_non_finite_loss = s.choose.OneIn(4);
  made.step.count_error_clips = s.choose.OneIn(4);
  if (s.choose.OneIn(5)) made.step.lookahead = LookaheadOptions{.alpha = s.AnyNumber(), .k = 2};
  if (s.choose.OneIn(4)) {
    made.scaling = std::make_unique<LossScaling>(s.main(), s.startup());
    made.step.scaling = made.scaling.get();
  }
  return made;
}

// An edit of variables and names that its guard puts back.
void EditInVain(Sequence& s, ProgramDesc& program) {
  const EditGuard guard(program);
  for (size_t i = s.choose.Below(4) + 1; i > 0 && program.NumBlocks() > 0; --i) {
    BlockDesc& block =
        program.Block(static_cast<int>(s.choose.Below(static_cast<size_t>(program.NumBlocks()))));
    if (block.NumVars() == 0) continue;
    VarDesc& var = block.var(s.choose.Below(block.NumVars()));
    const std::string name = var.name();
    if (s.choose.OneIn(2)) {
      block.RemoveVar(name);
    } else {
      block.RenameVar(var, program.UniqueName("renamed"));
    }
    program.FreeName(name);
    if (s.choose.OneIn(4)) program.InferParameters();
    if (s.choose.OneIn(8)) program = ProgramDesc(program);
  }
  ThrowInvalid("an edit in vain");
}

}  // namespace

void EditByHand(Sequence& s) {
  s.Try("edit by hand", [&] {
    BlockDesc& block =
        s.main().Block(s.choose.OneIn(4) ? static_cast<int>(s.choose.Below(4)) - 1 : 0);
    switch (s.choose.Below(10)) {
      case 0:
        return block.RemoveOp(AnyIndex(s, block.NumOps()));
      case 1:
        return void(block.InsertOp(AnyIndex(s, block.NumOps() + 1), OpDesc(s.AnyOpType())));
      case 2:
        return block.RenameVar(block.var(AnyIndex(s, block.NumVars())), s.AnyName() + "_new");
      case 3:
        return void(block.RemoveVar(s.AnyName()));
      case 4:
        return void(s.main().AppendBlock(static_cast<int>(s.choose.Below(5)) - 2));
      case 5:
        return s.main().TruncateBlocks(static_cast<int>(s.choose.Below(4)) + 1);
      case 6:
        return void(
            block.AppendOp(s.AnyOpType(), {{"X", s.AnyNames(2)}}, {{"Out", s.AnyNames(2)}}));
      case 7:
        return ChangeVar(s, block.var(AnyIndex(s, block.NumVars())));
      default:
        return ChangeOp(s, block.op(AnyIndex(s, block.NumOps())));
    }
  });
  s.NoteNames();
}

void CallEdit(Sequence& s) {
  const OpRegistry& ops = DefaultOps();
  const size_t kind = s.choose.Below(8);
  s.TryEdit("edit " + std::to_string(kind), [&] {
    if (kind == 0)
      RenameVariables(s.main(), {{s.AnyName(), s.AnyName() + "_r"}}, ops,
                      {.derived = s.choose.OneIn(2)});
    if (kind == 1) SetShapes(s.main(), {{s.AnyName(), s.AnyShape()}}, ops);
    if (kind == 2) DeclareShapes(s.main(), {{s.AnyName(), s.AnyShape()}}, ops);
    if (kind == 3) s.main().Prune(s.AnyNames(3), s.AnyNames(2));
    if (kind == 4) ExtractProgram(s.main(), {s.AnyNames(2), s.AnyNames(2)}, ops);
    if (kind == 5) MergePrograms(s.nets[0].main, s.nets[1].main, ops);
    if (kind == 6) s.main().CloneForTest();
    if (kind == 7) EditInVain(s, s.main());
  });
  s.NoteNames();
}

void CallBackward(Sequence& s) {
  const size_t kind = s.choose.Below(6);
  const Variable loss = AnyLoss(s);
  s.TryEdit("backward " + std::to_string(kind), [&] {
    const BackwardOptions options = AnyBackwardOptions(s);
    if (kind < 2) AppendBackward(loss, options);
    if (kind == 2 || kind == 3) Gradients(s.AnyVariables(2), s.AnyVariables(3), options);
    if (kind == 4) Hessian(s.AnyVariable(), s.AnyVariables(2));
    if (kind == 5) HessianVectorProduct(s.AnyVariable(), s.AnyVariables(2), s.AnyVariables(2));
  });
  s.NoteNames();
}

void CallOptimizer(Sequence& s) {
  const size_t kind = s.choose.Below(9);
  const Variable loss = AnyLoss(s);
  AnyStep step;
  if (kind == 3 || kind == 4) s.Try("settings of a step", [&] { step = MakeStep(s); });
  s.TryEdit("optimizer " + std::to_string(kind), [&] {
    if (kind < 3) AnyOptimizer(s)->Minimize(loss, s.startup());
    if (kind == 3 || kind == 4) AppendTrainingStep(step.step, loss, s.startup());
    if (kind == 5) {
      const auto optimizer = AnyOptimizer(s);
      optimizer->SetGradientClip(s.AnyClip());
      optimizer->ApplyGradients(s.main().Root(), s.startup(), {{s.AnyName(), s.AnyName()}});
    }
    if (kind == 6) {
      DecorateMixedPrecision(
          s.main(), s.startup(),
          {.dtype = s.AnyDType(), .level = static_cast<PrecisionLevel>(s.choose.Below(4))});
    }
    if (kind == 7) {
      InsertAllReduce(s.main(), s.startup(),
                      {.nranks = static_cast<int>(s.choose.Below(4)),
                       .bucket_mb = s.AnyNumber(),
                       .shard_state = s.choose.OneIn(2),
                       .loss_weight = s.choose.OneIn(2) ? "ROWS" : ""});
    }
    if (kind == 8) {
      AppendGradientClips(s.main().Root(), s.startup(),
                          {{{s.AnyName(), s.AnyName()}, s.AnyClip().value_or(NoGradientClip())}});
    }
  });
  s.NoteNames();
}

}  // namespace coracle::api
