// Local SGD: ranks that learn on their own and average every k updates.

#include <coracle/distribute/local_sgd.h>
#include <coracle/layers/builder.h>
#include <coracle/optimizer/mixed_precision.h>
#include <coracle/optimizer/optimizers.h>
#include <coracle/test/distribute/rank_run.h>
#include <coracle/test/error_of.h>

#include <algorithm>
#include <random>

namespace coracle::local_sgd_test {

constexpr DType kF64 = DType::kFloat64;
constexpr double kTolerance = 1e-12;

using Train = std::function<void(const Variable& loss, ProgramDesc& startup)>;

StepPrograms Make(const Train& train, const ErrorClip& error_clip = {}) {
  StepPrograms programs;
  Builder net(programs.main, programs.startup);
  const Variable x = net.Data("x", {-1, 6}, kF64);
  const Variable label = net.Data("label", {-1, 1}, DType::kInt64);
  FcOptions hidden{.size = 9, .act = "tanh"};
  hidden.error_clip = error_clip;
  const Variable h = net.Fc(x, hidden);
  const Variable logits = net.Fc(h, {.size = 4});
  train(net.Mean(net.SoftmaxWithCrossEntropy(logits, label), {.output = "loss"}), programs.startup);
  return programs;
}

template <class Optimizer, class Options>
Train With(const Options& options, int64_t accumulate = 1) {
  return [=](const Variable& loss, ProgramDesc& startup) {
    OptimizerGroup group{.optimizer = std::make_shared<Optimizer>(options)};
    AppendTrainingStep({.groups = {group}, .accumulate = accumulate}, loss, startup);
  };
}

std::vector<Batch> Draw(const std::vector<int64_t>& rows, int steps) {
  std::mt19937 random(11);
  std::normal_distribution<double> normal;
  std::vector<Batch> batches;
  for (int step = 0; step < steps; ++step) {
    const int64_t n = rows[static_cast<size_t>(step) % rows.size()];
    Batch batch = {{"x", Tensor::Zeros(kF64, {n, 6})},
                   {"label", Tensor::Zeros(DType::kInt64, {n, 1})}};
    for (double& value : batch.at("x").span<double>()) value = normal(random);
    for (int64_t& value : batch.at("label").span<int64_t>())
      value = static_cast<int64_t>(random() % 4);
    batches.push_back(batch);
  }
  return batches;
}

// What clips count is each rank's own.
bool IsCount(const std::string& name) { return name.starts_with("gradient_clip."); }

std::vector<std::string> Floats(const ProgramDesc& program) {
  std::vector<std::string> names;
  for (size_t i = 0; i < program.Root().NumVars(); ++i) {
    const VarDesc& var = program.Root().var(i);
    if (var.persistable() && var.dtype() == kF64 && !IsCount(var.name()))
      names.push_back(var.name());
  }
  return names;
}

std::vector<Scope> RunOnRanks(int ranks, const StepPrograms& programs,
                              const std::vector<Batch>& batches) {
  std::vector<Scope> scopes(static_cast<size_t>(ranks));
  OnRanks(ranks, [&](const std::shared_ptr<Communicator>& communicator) {
    TrainOn(programs, batches, "share", {.seed = 3}, communicator,
            &scopes[static_cast<size_t>(communicator->rank())]);
  });
  return scopes;
}

// By the definition: the plain program on each rank's rows, and means of what it keeps.
Scope Reference(const StepPrograms& whole, const std::vector<Batch>& batches, int ranks,
                int64_t runs) {
  const Executor executor(CompileOptions{.seed = 3});
  std::vector<Scope> scopes(static_cast<size_t>(ranks));
  std::vector<double> rows(scopes.size(), 0);
  for (Scope& scope : scopes) executor.Prepare(whole.startup).Run(scope);
  PreparedProgram step = executor.Prepare(whole.main, {"label", "x"});
  const std::vector<std::string> kept = Floats(whole.main);
  for (size_t i = 0; i < batches.size(); ++i) {
    const int64_t all = batches[i].at("x").shape()[0];
    for (size_t r = 0; r < scopes.size(); ++r) {
      const RankRows own = RowsOfRank(all, static_cast<int>(r), ranks);
      rows[r] += static_cast<double>(own.rows()) / static_cast<double>(all);
      if (own.counted)
        step.Run(scopes[r], {Slice(batches[i].at("label"), own), Slice(batches[i].at("x"), own)});
    }
    if ((static_cast<int64_t>(i) + 1) % runs != 0) continue;
    double sum = 0;
    for (const double weight : rows) sum += weight;
    for (const std::string& name : kept) {
      Tensor mean = Tensor::Zeros(kF64, scopes[0].Get(name).shape());
      for (size_t r = 0; r < scopes.size(); ++r) {
        const Tensor& own = scopes[r].Get(name);
        for (int64_t k = 0; k < mean.numel(); ++k)
          mean.data<double>()[k] += rows[r] / sum * own.data<double>()[k];
      }
      for (Scope& scope : scopes) scope.Set(name, mean.Clone());
    }
    std::fill(rows.begin(), rows.end(), 0);
  }
  return std::move(scopes[0]);
}

void ExpectEqual(const std::vector<Scope>& scopes, const Scope& expected,
                 const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    EXPECT_LT(RelativeDifference(scopes[0].Get(name), expected.Get(name)), kTolerance) << name;
    for (const Scope& scope : scopes)
      EXPECT_TRUE(BitEqual(scope.Get(name), scopes[0].Get(name))) << name;
  }
}

class LocalSgdOfRanks : public testing::TestWithParam<int> {};

// An average behind every update that is linear in the gradient is data-parallel training.
TEST_P(LocalSgdOfRanks, WithOneStepIsDataParallel) {
  const std::vector<std::pair<const char*, Train>> cases = {
      {"sgd", With<Sgd>(SgdOptions{.learning_rate = 0.2})},
      {"momentum", With<Momentum>(MomentumOptions{.learning_rate = 0.1})}};
  for (const auto& [name, train] : cases) {
    SCOPED_TRACE(name);
    const std::vector<Batch> batches = Draw({13, 11, 9, 5}, 20);
    StepPrograms whole = Make(train), local = Make(train), summed = Make(train);
    Scope one;
    TrainOn(whole, batches, "", {.seed = 3}, nullptr, &one);
    InsertLocalSgd(local.main, local.startup, {.nranks = GetParam(), .share = "share"});
    VerifyOrThrow(local.main, DefaultOps());
    VerifyOrThrow(local.startup, DefaultOps());
    const std::vector<Scope> scopes = RunOnRanks(GetParam(), local, batches);
    ExpectEqual(scopes, one, Floats(whole.main));
    InsertAllReduce(summed.main, summed.startup, {.nranks = GetParam(), .share = "share"});
    const std::vector<Scope> others = RunOnRanks(GetParam(), summed, batches);
    ExpectEqual(scopes, others[0], Floats(whole.main));
  }
}

TEST_P(LocalSgdOfRanks, AveragesEveryKUpdates) {
  struct Case {
    const char* name;
    Train train;
    std::vector<int64_t> rows;
    int64_t accumulate = 1;
    double bucket_mb = 25;
  };
  const std::vector<Case> cases = {
      {"sgd", With<Sgd>(SgdOptions{.learning_rate = 0.2}), {13, 11, 9}},
      // Of fewer rows than ranks some ranks learn nothing.
      {"sgd_few_rows", With<Sgd>(SgdOptions{.learning_rate = 0.2}), {12, 5, 3}},
      {"adam", With<Adam>(AdamOptions{.learning_rate = 0.02}), {16, 9}},
      {"small_buckets", With<Momentum>(MomentumOptions{.learning_rate = 0.1}), {12}, 1, 1e-4},
      {"accumulated", With<Momentum>(MomentumOptions{.learning_rate = 0.1}, 2), {12, 10}, 2}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    constexpr int64_t kSteps = 3;
    const std::vector<Batch> batches = Draw(c.rows, 24);
    StepPrograms whole = Make(c.train), local = Make(c.train);
    InsertLocalSgd(
        local.main, local.startup,
        {.nranks = GetParam(), .steps = kSteps, .bucket_mb = c.bucket_mb, .share = "share"});
    ExpectEqual(RunOnRanks(GetParam(), local, batches),
                Reference(whole, batches, GetParam(), kSteps * c.accumulate), Floats(whole.main));
  }
}

// Clips and decay see what the rank's own rows give, and so one rank on these rows; data-parallel
// training clips by all rows.
TEST_P(LocalSgdOfRanks, ClipsGoByTheRanksOwnRows) {
  const auto sgd = [](const std::optional<Setting>& clip) -> Train {
    return [=](const Variable& loss, ProgramDesc& startup) {
      OptimizerGroup group{.optimizer = std::make_shared<Sgd>(SgdOptions{.learning_rate = 0.2})};
      group.optimizer->SetGradientClip(clip);
      group.optimizer->SetRegularizer(L2DecayRegularizer(0.01));
      AppendTrainingStep({.groups = {group}}, loss, startup);
    };
  };
  struct Case {
    const char* name;
    std::optional<Setting> clip;
    ErrorClip error_clip;
  };
  const std::vector<Case> cases = {{"global_norm", ClipGradByGlobalNorm(0.05), {}},
                                   {"norm", ClipGradByNorm(0.02), {}},
                                   {"value", ClipGradByValue(0.01), {}},
                                   {"error_clip_by_norm", {}, ErrorClipByNorm(0.02)}};
  const std::vector<Batch> batches = Draw({13, 11, 9}, 12);
  StepPrograms plain = Make(sgd({}));
  const Scope unclipped = Reference(plain, batches, GetParam(), 1);
  const std::string w = plain.main.Parameters().at(0);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const auto make = [&] { return Make(sgd(c.clip), c.error_clip); };
    for (const int64_t steps : {1, 3}) {
      StepPrograms whole = make(), local = make();
      InsertLocalSgd(local.main, local.startup,
                     {.nranks = GetParam(), .steps = steps, .share = "share"});
      const std::vector<Scope> scopes = RunOnRanks(GetParam(), local, batches);
      ExpectEqual(scopes, Reference(whole, batches, GetParam(), steps), Floats(whole.main));
      EXPECT_GT(RelativeDifference(scopes[0].Get(w), unclipped.Get(w)), 1e-3);
    }
    if (GetParam() == 1) continue;
    StepPrograms local = make(), summed = make();
    InsertLocalSgd(local.main, local.startup, {.nranks = GetParam(), .share = "share"});
    InsertAllReduce(summed.main, summed.startup, {.nranks = GetParam(), .share = "share"});
    EXPECT_GT(RelativeDifference(RunOnRanks(GetParam(), local, batches)[0].Get(w),
                                 RunOnRanks(GetParam(), summed, batches)[0].Get(w)),
              1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, LocalSgdOfRanks, testing::Values(1, 2, 3, 4, 8));

// Between averages ranks differ; the report's program averages at once, and the count begins anew.
TEST(LocalSgd, AverageAtOnce) {
  StepPrograms local = Make(With<Sgd>(SgdOptions{.learning_rate = 0.2}));
  const LocalSgdReport report =
      InsertLocalSgd(local.main, local.startup, {.nranks = 2, .steps = 3, .share = "share"});
  std::vector<Scope> scopes = RunOnRanks(2, local, Draw({8}, 5));
  const std::string w = local.main.Parameters().at(0);
  EXPECT_FALSE(BitEqual(scopes[0].Get(w), scopes[1].Get(w)));
  EXPECT_EQ(scopes[0].Get(report.counter).Item<int64_t>(), 2);
  Tensor mean = scopes[0].Get(w).Clone();
  for (int64_t i = 0; i < mean.numel(); ++i)
    mean.data<double>()[i] = (mean.data<double>()[i] + scopes[1].Get(w).data<double>()[i]) / 2;
  OnRanks(2, [&](const std::shared_ptr<Communicator>& communicator) {
    PreparedProgram average = Executor().Prepare(report.average);
    average.SetCommunicator(communicator);
    average.Run(scopes[static_cast<size_t>(communicator->rank())]);
  });
  EXPECT_LT(RelativeDifference(scopes[0].Get(w), mean), kTolerance);
  EXPECT_TRUE(BitEqual(scopes[0].Get(w), scopes[1].Get(w)));
  for (const std::string& name : report.added)
    EXPECT_EQ(scopes[1].Get(name).Cast(kF64).Item<double>(), 0) << name;
}

TEST(LocalSgd, WithoutSharesRanksWeighTheSame) {
  StepPrograms local = Make(With<Sgd>(SgdOptions{.learning_rate = 0.2}));
  const StepPrograms whole = Make(With<Sgd>(SgdOptions{.learning_rate = 0.2}));
  InsertLocalSgd(local.main, local.startup, {.nranks = 2, .steps = 2});
  const std::vector<Batch> batches = Draw({8}, 6);
  std::vector<Scope> scopes(2);
  OnRanks(2, [&](const std::shared_ptr<Communicator>& communicator) {
    TrainOn(local, batches, "", {.seed = 3}, communicator,
            &scopes[static_cast<size_t>(communicator->rank())]);
  });
  ExpectEqual(scopes, Reference(whole, batches, 2, 2), Floats(whole.main));
}

TEST(LocalSgd, CountsOfClipsAreNotAveraged) {
  for (const auto& clip :
       {ClipGradByValue(0.01), ClipGradByNorm(0.01), ClipGradByGlobalNorm(0.01)}) {
    StepPrograms programs = Make([&](const Variable& loss, ProgramDesc& startup) {
      OptimizerGroup group{.optimizer = std::make_shared<Sgd>(SgdOptions{})};
      group.optimizer->SetGradientClip(clip);
      AppendTrainingStep({.groups = {group}}, loss, startup);
    });
    int counts = 0;
    for (size_t i = 0; i < programs.main.Root().NumVars(); ++i)
      counts += IsCount(programs.main.Root().var(i).name()) ? 1 : 0;
    EXPECT_GT(counts, 0);
    const LocalSgdReport report =
        InsertLocalSgd(programs.main, programs.startup, {.nranks = 2, .steps = 2});
    for (const GradientBucket& bucket : report.buckets) {
      for (const std::string& name : bucket.gradients) EXPECT_FALSE(IsCount(name)) << name;
    }
  }
}

std::string RefusalOf(const Train& train, LocalSgdOptions options = {.nranks = 2, .steps = 2},
                      const std::function<void(StepPrograms&)>& change = {}) {
  StepPrograms programs = Make(train);
  if (change) change(programs);
  const size_t ops = programs.main.Root().NumOps();
  const std::string error =
      ErrorOf([&] { InsertLocalSgd(programs.main, programs.startup, options); });
  EXPECT_EQ(programs.main.Root().NumOps(), ops);
  return error.substr(0, error.find('\n'));
}

TEST(LocalSgd, WhatDoesNotGoTogetherIsRefused) {
  const Train sgd = With<Sgd>(SgdOptions{});
  EXPECT_EQ(RefusalOf(sgd, {.nranks = 0}), "distribute: 0 ranks; at least 1 is needed");
  EXPECT_EQ(RefusalOf(sgd, {.nranks = 2, .steps = 0}),
            "distribute: local SGD of 0 steps; 1 or more are needed");
  EXPECT_EQ(RefusalOf(sgd, {.nranks = 2, .bucket_mb = -1}),
            "distribute: buckets of -1 MB; 0 or more are needed");
  const Train scaled = [](const Variable& loss, ProgramDesc& startup) {
    LossScaling scaling(loss.program(), startup, {});
    OptimizerGroup group{.optimizer = std::make_shared<Sgd>(SgdOptions{})};
    AppendTrainingStep({.groups = {group}, .scaling = &scaling}, loss, startup);
  };
  const std::string flag =
      " decides whether there is an update, and ranks would decide differently; leave out loss "
      "scaling and the check of the loss";
  EXPECT_TRUE(RefusalOf(scaled).ends_with(flag)) << RefusalOf(scaled);
  const Train skipping = [](const Variable& loss, ProgramDesc& startup) {
    OptimizerGroup group{.optimizer = std::make_shared<Sgd>(SgdOptions{})};
    AppendTrainingStep({.groups = {group}, .skip_non_finite_loss = true}, loss, startup);
  };
  EXPECT_TRUE(RefusalOf(skipping).ends_with(flag)) << RefusalOf(skipping);
  const auto with_op = [&](const std::string& type) {
    return RefusalOf(sgd, {.nranks = 2}, [&](StepPrograms& programs) {
      programs.main.Root().AppendOp(type, {{"X", {"x"}}}, {{"Out", {"x"}}});
    });
  };
  for (const char* type : {"c_allreduce_sum", "c_reduce_sum", "allreduce", "ncclAllReduce"})
    EXPECT_EQ(with_op(type), "distribute: the program exchanges gradients already") << type;
  const auto with_sync_batch_norm = [](StepPrograms& programs) {
    Builder net(programs.main, programs.startup);
    net.BatchNorm(Variable::Of(programs.main.Root(), "x"));
    programs.main.ForEachOp([](OpDesc& op) {
      if (op.type() == "batch_norm") op.SetType("sync_batch_norm");
    });
  };
  EXPECT_EQ(RefusalOf(sgd, {.nranks = 2}, with_sync_batch_norm),
            "distribute: local SGD: the statistics of sync_batch_norm are of ranks whose "
            "parameters differ; use batch_norm");
  const auto with_half = [](StepPrograms& programs) {
    for (const std::string& name : programs.main.Parameters())
      programs.main.Root().FindVar(name)->SetDType(DType::kBFloat16);
  };
  EXPECT_NE(RefusalOf(sgd, {.nranks = 2}, with_half).find("would lose digits"), std::string::npos);
}
}  // namespace coracle::local_sgd_test
