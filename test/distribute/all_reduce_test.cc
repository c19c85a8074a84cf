// Data-parallel training is training on one machine: N ranks on parts of a batch have the
// parameters of one rank on the whole batch.

#include <coracle/communication/comm_context.h>
#include <coracle/distribute/all_reduce.h>
#include <coracle/operators/operators.h>
#include <coracle/optimizer/mixed_precision.h>
#include <coracle/passes/pass.h>
#include <coracle/test/distribute/rank_nets.h>
#include <coracle/test/error_of.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::all_reduce_test {

using namespace rank_nets;

Variable LeNet(Builder& net) {
  const Variable x = net.Data("x", {-1, 1, 12, 12}, kF64);
  Variable h = net.Conv2d(x, {.num_filters = 4, .filter_size = {5}, .act = "relu"});
  h = net.Pool2d(h, {.pool_size = {2}, .pool_stride = {2}});
  h = net.Conv2d(h, {.num_filters = 6, .filter_size = {3}, .act = "relu"});
  h = net.Pool2d(h, {.pool_size = {2}, .pool_stride = {2}});
  return CrossEntropyLoss(net, net.Fc(net.Fc(h, {.size = 16, .act = "relu"}), {.size = 10}));
}

Variable LstmNet(Builder& net) {
  const Variable x = net.Data("x", {-1, 5, 3}, kF64);
  const Variable h = net.Lstm(x, {.hidden_size = 6}).out;
  // The error clip acts on the gradient that enters the recurrence.
  h.desc().SetErrorClip(ErrorClipByValue(0.003));
  return CrossEntropyLoss(net, net.Fc(net.ReduceMean(h, {.dim = {1}}), {.size = 3}));
}

Variable Table(Builder& net, bool sparse, int64_t rows = 30) {
  EmbeddingOptions options{.num_embeddings = rows, .embedding_dim = 4, .is_sparse = sparse};
  options.param_attr.name = "table";
  options.dtype = kF64;
  const Variable ids = net.Data("ids", {-1, 3}, DType::kInt64);
  const Variable x = net.ReduceMean(net.Embedding(ids, options), {.dim = {1}});
  return CrossEntropyLoss(net, net.Fc(x, {.size = 4}));
}

// One parameter in two layers.
Variable SharedNet(Builder& net) {
  const Variable x = net.Data("x", {-1, 6}, kF64);
  FcOptions options{.size = 6, .act = "tanh"};
  options.param_attr = ParamAttr{.name = "shared"};
  return CrossEntropyLoss(net, net.Fc(net.Fc(net.Fc(x, options), options), {.size = 4}));
}

// A parameter that only the block of a loop reads.
Variable LoopNet(Builder& net) {
  const Variable x = net.Data("x", {-1, 6}, kF64);
  const Variable h = net.Unary("assign", x);
  const Variable i = FillConstant(net, {1}, DType::kInt64, 0);
  const Variable n = FillConstant(net, {1}, DType::kInt64, 3);
  const Variable more = net.Binary("less_than", i, n);
  While(net, more, [&] {
    FcOptions options{.size = 6, .act = "tanh"};
    options.param_attr = ParamAttr{.name = "of_the_loop"};
    Assign(net, net.Fc(h, options), h);
    Increment(net, i);
    Assign(net, net.Binary("less_than", i, n), more);
  });
  return CrossEntropyLoss(net, net.Fc(h, {.size = 4}));
}

// A sum over the rows that a mask leaves, divided by their number.
Variable MaskedNet(Builder& net) {
  const Variable x = net.Data("x", {-1, 6}, kF64), m = net.Data("m", {-1, 1}, kF64);
  const Variable label = net.Data("label", {-1, 1}, DType::kInt64);
  const Variable h = net.Fc(x, {.size = 9, .act = "tanh"});
  const Variable ce = net.SoftmaxWithCrossEntropy(net.Fc(h, {.size = 4}), label);
  const Variable inside = Cast(Greater(m, 0.5), kF64);
  return Sum(ce * inside) / Max(Sum(inside), 1.0);
}

Variable SumNet(Builder& net) {
  const Variable x = net.Data("x", {-1, 6}, kF64);
  const Variable label = net.Data("label", {-1, 1}, DType::kInt64);
  return Sum(net.SoftmaxWithCrossEntropy(net.Fc(x, {.size = 4}), label)) * 0.05;
}

Variable NormClipNet(Builder& net) {
  const Variable x = net.Data("x", {-1, 6}, kF64);
  FcOptions hidden{.size = 9, .act = "tanh"};
  hidden.error_clip = ErrorClipByNorm(0.02);
  return CrossEntropyLoss(net, net.Fc(net.Fc(x, hidden), {.size = 4}));
}

// The gradient that is clipped has a norm that is more than float64 holds.
Variable LargeClipNet(Builder& net) {
  FcOptions hidden{.size = 9, .act = "tanh"};
  hidden.error_clip = ErrorClipByNorm(0.02);
  return Sum(net.Fc(net.Data("x", {-1, 6}, kF64), hidden)) * 1.7e308;
}

// Clips slices along an axis.
class ErrorClipBySlices : public BaseErrorClipAttr {
 public:
  explicit ErrorClipBySlices(int32_t axis) : axis_(axis) {}
  void AppendClipOp(BlockDesc& block, const std::string& grad) const override {
    block.AppendOp("clip_by_norm", {{"X", {grad}}}, {{"Out", {grad}}},
                   {{"max_norm", 0.01f}, {"axis", axis_}, {"op_role", int32_t{kBackward}}});
  }

 private:
  int32_t axis_;
};
Variable SliceClipNet(Builder& net, int32_t axis) {
  FcOptions hidden{.size = 9, .act = "tanh"};
  hidden.error_clip = std::make_shared<ErrorClipBySlices>(axis);
  return CrossEntropyLoss(net, net.Fc(net.Fc(net.Data("x", {-1, 6}, kF64), hidden), {.size = 4}));
}

// The rows are at axis 1 of what is clipped.
Variable TransposedClipNet(Builder& net, int32_t axis) {
  const auto transpose = [&](const Variable& x) {
    return net.Make("transpose2", {{"X", {x.name()}}}, {{"axis", std::vector<int32_t>{1, 0}}});
  };
  const Variable h = net.Fc(net.Data("x", {-1, 6}, kF64), {.size = 9, .act = "tanh"});
  const Variable across = transpose(h);
  across.desc().SetErrorClip(std::make_shared<ErrorClipBySlices>(axis));
  return CrossEntropyLoss(net, net.Fc(transpose(across), {.size = 4}));
}

// The gradient that is clipped, and its limit, are so small that float64 holds 1 / 2^64 of them
// with fewer digits.
Variable SmallClipNet(Builder& net) {
  FcOptions hidden{.size = 9};
  hidden.error_clip = ErrorClipByNorm(1e-292);
  return Sum(net.Fc(net.Data("x", {-1, 6}, kF64) * 1e290, hidden)) * 1e-285;
}

// Everything at once.
void TrainWithAllStages(const Variable& loss, ProgramDesc& startup) {
  LossScaling scaling(loss.program(), startup, {.init_scale = 1024, .growth_interval = 4});
  OptimizerGroup group{.optimizer = std::make_shared<Adam>(AdamOptions{.learning_rate = 0.01}),
                       .average = std::make_shared<ExponentialMovingAverage>()};
  group.optimizer->SetGradientClip(ClipGradByGlobalNorm(0.05));
  group.optimizer->SetRegularizer(L2DecayRegularizer(1e-3));
  group.optimizer->SetSchedule(StepRate({0.02, 0.5, 3}));
  group.optimizer->SetGradientDivisor(2);
  AppendTrainingStep({.groups = {group},
                      .scaling = &scaling,
                      .accumulate = 2,
                      .skip_non_finite_loss = true,
                      .count_error_clips = true,
                      .lookahead = LookaheadOptions{}},
                     loss, startup);
}

std::vector<Case> Cases() {
  const auto sgd = With<Sgd>(SgdOptions{.learning_rate = 0.2});
  const auto clip = [](Optimizer& o) { o.SetGradientClip(ClipGradByGlobalNorm(0.1)); };
  const auto schedule = [](Optimizer& o) { o.SetSchedule(StepRate({0.1, 0.5, 5})); };
  const auto scaled = [](const Variable& loss, ProgramDesc& startup) {
    LossScaling scaling(loss.program(), startup, {.init_scale = 65536, .growth_interval = 5});
    OptimizerGroup group{.optimizer =
                             std::make_shared<Momentum>(MomentumOptions{.learning_rate = 0.1})};
    AppendTrainingStep({.groups = {group}, .scaling = &scaling}, loss, startup);
  };
  const auto skipping = [](const Variable& loss, ProgramDesc& startup) {
    OptimizerGroup group{.optimizer =
                             std::make_shared<Momentum>(MomentumOptions{.learning_rate = 0.1})};
    AppendTrainingStep({.groups = {group}, .skip_non_finite_loss = true}, loss, startup);
  };
  const std::vector<FeedSpec> images = {{"label", {1}, 10}, {"x", {1, 12, 12}}};
  const std::vector<FeedSpec> sequences = {{"label", {1}, 3}, {"x", {5, 3}}};
  const std::vector<FeedSpec> ids = {{"ids", {3}, 30}, {"label", {1}, 4}};
  const auto sparse = [](Builder& net) { return Table(net, true); };
  const auto dense = [](Builder& net) { return Table(net, false); };
  std::vector<Case> cases = {
      {"mlp", kMlpFeeds, Mlp, sgd},
      {"mlp_small_buckets", kMlpFeeds, Mlp, sgd, {12}, -1, 1e-4},
      {"mlp_uneven", kMlpFeeds, Mlp, sgd, {13, 11, 9}},
      {"masked_loss", {{"label", {1}, 4}, {"m", {1}}, {"x", {6}}}, MaskedNet, sgd, {12, 9, 3}},
      {"sum_loss", kMlpFeeds, SumNet, sgd, {13, 9, 3}},
      {"error_clip_by_norm", kMlpFeeds, NormClipNet, sgd, {12, 9}},
      {"error_clip_of_a_large_norm", {{"x", {6}}}, LargeClipNet, sgd, {12, 9}},
      {"error_clip_of_a_small_norm", {{"x", {6}}}, SmallClipNet, sgd, {12, 9}},
      {"error_clip_of_transposed_rows",
       kMlpFeeds,
       [](Builder& net) { return TransposedClipNet(net, 1); },
       sgd,
       {12, 9}},
      {"adam_small_buckets",
       kMlpFeeds,
       Mlp,
       With<Adam>(AdamOptions{.learning_rate = 0.02}),
       {12, 9},
       -1,
       1e-4},
      {"shared_parameter", kMlpFeeds, SharedNet, sgd},
      {"parameter_of_a_loop", kMlpFeeds, LoopNet, With<Adam>(AdamOptions{.learning_rate = 0.02})},
      {"lenet_adam", images, LeNet, With<Adam>(AdamOptions{.learning_rate = 0.01}), {9, 12, 8}},
      {"lstm_error_clip", sequences, LstmNet, With<Adam>(AdamOptions{.learning_rate = 0.02}, clip)},
      {"global_norm_schedule", kMlpFeeds, Mlp,
       With<Momentum>(MomentumOptions{},
                      [=](Optimizer& o) {
                        clip(o);
                        schedule(o);
                      })},
      {"loss_scaling_overflow", kMlpFeeds, Mlp, scaled, {12}, 6},
      {"skipped_loss", kMlpFeeds, Mlp, skipping, {12}, 5},
      {"all_stages", kMlpFeeds, Mlp, TrainWithAllStages, {12, 10}, 7},
      {"dense_embedding", ids, dense, sgd},
      {"sparse_embedding_sgd", ids, sparse, sgd, {12, 9}},
      {"sparse_embedding_lazy_adam", ids, sparse,
       With<Adam>(AdamOptions{.learning_rate = 0.05, .lazy_mode = true})},
      // More rows than the table has: the sum is dense, and has the rows that some rank has.
      {"sparse_embedding_of_few_rows",
       {{"ids", {3}, 4}, {"label", {1}, 4}},
       [](Builder& net) { return Table(net, true, 5); },
       With<Adam>(AdamOptions{.learning_rate = 0.05, .lazy_mode = true})},
      // With fewer rows than ranks, the rows of some ranks do not count.
      {"sync_batch_norm",
       {{"label", {1}, 4}, {"x", {2, 4, 4}}},
       NormNet,
       With<Momentum>(MomentumOptions{.learning_rate = 0.1}),
       {12, 9, 5, 3},
       -1,
       25,
       true},
  };
  // How rows pass through a loop is not followed.
  for (Case& c : cases)
    if (c.name == "parameter_of_a_loop") c.loss_weight = "ROWS";
  // The same with a part of the state on each rank, and other optimizers.
  const auto small_mlp = [](const auto& train) {
    return Case{.name = "", .feeds = kMlpFeeds, .net = Mlp, .train = train, .rows = {12, 9}};
  };
  std::vector<Case> sharded = {
      small_mlp(With<Adadelta>(AdadeltaOptions{.learning_rate = 0.5})),
      small_mlp(With<Adagrad>(AdagradOptions{.learning_rate = 0.1})),
      small_mlp(With<Adamax>(AdamaxOptions{.learning_rate = 0.05})),
      small_mlp(With<AdamW>(AdamWOptions{.learning_rate = 0.05})),
      small_mlp(With<DecayedAdagrad>(DecayedAdagradOptions{.learning_rate = 0.1})),
      small_mlp(With<Ftrl>(FtrlOptions{.learning_rate = 0.1})),
      small_mlp(With<Lion>(LionOptions{.learning_rate = 0.01})),
      small_mlp(With<ProximalAdagrad>(ProximalAdagradOptions{.learning_rate = 0.1})),
      small_mlp(
          With<Rmsprop>(RmspropOptions{.learning_rate = 0.05, .momentum = 0.9, .centered = true})),
      small_mlp(With<Lamb>(LambOptions{.learning_rate = 0.05})),
  };
  for (size_t i = 0; i < sharded.size(); ++i)
    sharded[i].name = i + 1 == sharded.size() ? "optimizer_lamb" : fmt::format("optimizer_{}", i);
  sharded.insert(sharded.end(), cases.begin(), cases.end());
  for (Case& c : sharded) {
    c.name += "_sharded";
    c.shard_state = true;
  }
  cases.insert(cases.end(), sharded.begin(), sharded.end());
  return cases;
}

Tensor FlatPart(const Tensor& all, int rank, int ranks) {
  const int64_t size = (all.numel() + ranks - 1) / ranks;
  Tensor part = Tensor::Zeros(kF64, {size});
  for (int64_t i = 0; i < size && rank * size + i < all.numel(); ++i)
    part.data<double>()[i] = all.data<double>()[rank * size + i];
  return part;
}

// Sets the padding at the end, which adamax changes, to 0.
Tensor Filled(const Tensor& part, const Tensor& all, int rank) {
  Tensor filled = part.Clone();
  for (int64_t i = std::max<int64_t>(0, all.numel() - rank * part.numel()); i < part.numel(); ++i)
    filled.data<double>()[i] = 0;
  return filled;
}

class AllReduce : public testing::TestWithParam<int> {};

TEST_P(AllReduce, EqualsOneRank) {
  const int ranks = GetParam();
  const bool processes = FindLaunched().size > 1;
  if (processes && ranks != FindLaunched().size) GTEST_SKIP() << "not the number of processes";
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    const std::vector<Batch> batches = Draw(c, 20);
    const CompileOptions options{.seed = 3};
    const StepPrograms whole = Make(c);
    Scope expected;
    // If the ranks are processes, one compares for all.
    const bool compares = !processes || FindLaunched().rank == 0;
    if (compares) TrainOn(whole, batches, "", options, nullptr, &expected);

    StepPrograms parts = Make(c);
    const AllReduceReport report = InsertAllReduce(parts.main, parts.startup,
                                                   {.nranks = ranks,
                                                    .bucket_mb = c.bucket_mb,
                                                    .share = "share",
                                                    .sync_batch_norm = c.sync_batch_norm,
                                                    .shard_state = c.shard_state,
                                                    .shard_least = 5,
                                                    .loss_weight = c.loss_weight});
    VerifyOrThrow(parts.main, DefaultOps());
    VerifyOrThrow(parts.startup, DefaultOps());
    std::vector<Scope> scopes(static_cast<size_t>(ranks));
    OnRanks(ranks, [&](const std::shared_ptr<Communicator>& communicator) {
      TrainOn(parts, batches, "share", options, communicator,
              &scopes[static_cast<size_t>(communicator->rank())]);
    });
    if (testing::Test::HasFailure()) return;
    ShareScopes(&scopes);
    if (!compares) continue;

    const bool of_elements = c.name != "optimizer_lamb_sharded";
    if (c.shard_state && c.name.starts_with("optimizer")) {
      EXPECT_EQ(report.states.empty(), !of_elements);
      EXPECT_EQ(report.scattered.empty(), !of_elements);
    }
    if (c.name == "all_stages_sharded" || c.name == "skipped_loss_sharded") {
      EXPECT_FALSE(report.states.empty()) << "updates are within a block";
    }
    for (const ShardedState& state : report.states) {
      const Tensor& all = expected.Get(state.name);
      for (int r = 0; r < ranks; ++r) {
        const Tensor& part = scopes[static_cast<size_t>(r)].Get(state.shard);
        EXPECT_FALSE(scopes[static_cast<size_t>(r)].Has(state.name));
        EXPECT_LT(RelativeDifference(Filled(part, all, r), FlatPart(all, r, ranks)), kTolerance)
            << state.name;
      }
    }
    const TrainingParts step = PartsOf(whole.main);
    std::vector<std::string> of_clips = step.finite_flags;
    for (const auto& clip : step.counted_clips)
      if (clip.stage == TrainingStage::kErrorClip) of_clips.push_back(clip.statistics);
    int compared = 0;
    double largest = 0;
    for (size_t i = 0; i < whole.main.Root().NumVars(); ++i) {
      const VarDesc& var = whole.main.Root().var(i);
      if (!var.persistable() || !expected.Has(var.name())) continue;
      if (std::any_of(report.states.begin(), report.states.end(),
                      [&](const ShardedState& state) { return state.name == var.name(); }))
        continue;
      const std::string& name = var.name();
      // Each rank counts its own clips.
      if (std::find(of_clips.begin(), of_clips.end(), name) != of_clips.end()) continue;
      const Tensor& one = scopes[0].Get(name);
      const double difference = RelativeDifference(one, expected.Get(name));
      EXPECT_LT(difference, kTolerance) << name;
      largest = std::max(largest, difference);
      for (const Scope& scope : scopes) EXPECT_TRUE(BitEqual(scope.Get(name), one)) << name;
      ++compared;
    }
    EXPECT_GT(compared, 2);
    if (processes)
      fmt::print("{} processes: {}: {} variables, {:.1e}\n", ranks, c.name, compared, largest);
  }
}

// The weight 1/3 is not exact in float32.
TEST(AllReduceOfPrograms, ThreeRanksWithoutShares) {
  const Case c{
      .name = "", .feeds = kMlpFeeds, .net = Mlp, .train = With<Sgd>(SgdOptions{}), .rows = {12}};
  const StepPrograms whole = Make(c);
  StepPrograms parts = whole;
  InsertAllReduce(parts.main, parts.startup, {.nranks = 3});
  ExpectOneRank(c, whole, parts, 3, "");
}

// A refused program stays unchanged.
TEST(AllReduceOfPrograms, AShareThatIsNotFedIsRefused) {
  const Case c{.name = "", .feeds = {}, .net = Mlp, .train = With<Sgd>(SgdOptions{})};
  const auto error = [&](const std::string& share) {
    StepPrograms programs = Make(c);
    programs.main.Root().Var("kept").SetMeta({VarType::kLoDTensor, kF64, {1}, 0});
    programs.main.Root().Var("kept").SetPersistable(true);
    const std::string text = ErrorOf(
        [&] { InsertAllReduce(programs.main, programs.startup, {.nranks = 2, .share = share}); });
    return text.substr(0, text.find('\n'));
  };
  EXPECT_EQ(error("loss"), "distribute: the share 'loss' must be fed, and mean writes it");
  EXPECT_EQ(error("kept"), "distribute: the share 'kept' must be fed, and is persistable");
}

TEST(AllReduceOfPrograms, StatesWithAnotherStartStayWhole) {
  const Case c{.name = "", .feeds = {}, .net = Mlp, .train = With<Momentum>(MomentumOptions{})};
  const auto states = [&](const std::function<void(OpDesc & fill, ProgramDesc & startup)>& change) {
    StepPrograms programs = Make(c);
    programs.startup.ForEachOp([&](OpDesc& op) {
      if (op.AnyOutput(
              [](const std::string& out) { return out.find("velocity") != std::string::npos; }))
        change(op, programs.startup);
    });
    return InsertAllReduce(programs.main, programs.startup,
                           {.nranks = 2, .shard_state = true, .shard_least = 5})
        .states.size();
  };
  EXPECT_EQ(states([](OpDesc&, ProgramDesc&) {}), 3u);
  EXPECT_EQ(states([](OpDesc& fill, ProgramDesc& startup) {
              startup.Root().Var("dims");
              fill.SetInput("ShapeTensor", {"dims"});
            }),
            0u);
}

// A state that another op reads has to be whole.
TEST(AllReduceOfPrograms, StatesThatOthersReadStayWhole) {
  const Case c{.name = "", .feeds = {}, .net = Mlp, .train = With<Momentum>(MomentumOptions{})};
  StepPrograms programs = Make(c);
  BlockDesc& root = programs.main.Root();
  const OpDesc& update = root.op(root.NumOps() - 1);
  ASSERT_EQ(update.type(), "momentum");
  const std::string velocity = update.Input("Velocity").at(0);
  root.Var("seen").SetMeta(root.FindVar(velocity)->meta());
  root.AppendOp("assign", {{"X", {velocity}}}, {{"Out", {"seen"}}},
                {{kOpRoleAttr, int32_t{kOptimize}}});
  const auto report = InsertAllReduce(programs.main, programs.startup,
                                      {.nranks = 2, .shard_state = true, .shard_least = 1});
  EXPECT_FALSE(report.states.empty());
  EXPECT_TRUE(programs.main.Root().FindVar(velocity));
}

// If a rank needs only its part of gradients, they are scattered as soon as they are complete,
// while backward continues.
TEST(AllReduceOfPrograms, ScattersBesideBackward) {
  const Case c{.name = "", .feeds = {}, .net = Mlp, .train = With<Momentum>(MomentumOptions{})};
  StepPrograms programs = Make(c);
  const AllReduceReport report =
      InsertAllReduce(programs.main, programs.startup,
                      {.nranks = 2, .bucket_mb = 1e-4, .shard_state = true, .shard_least = 5});
  EXPECT_GT(report.scattered.size(), 1u);
  RunPasses(programs.main, PassContext{DefaultOps(), {"x", "label"}, {}}, {"overlap_exchanges"});
  const BlockDesc& root = programs.main.Root();
  const auto first = [&](const std::string& type) {
    size_t i = 0;
    while (root.op(i).type() != type) ++i;
    return i;
  };
  const size_t scatter = first("c_flat_reducescatter"), wait = first("c_sync_comm_stream");
  size_t last_backward = 0;
  for (size_t i = 0; i < root.NumOps(); ++i)
    if (root.op(i).type() == "mul_grad") last_backward = i;
  EXPECT_LT(scatter, last_backward);
  EXPECT_GT(wait, last_backward);
  EXPECT_TRUE(root.op(scatter).GetAttr<bool>("overlap", false));
}

// Ranks that draw other parameters begin with the parameters of rank 0.
TEST(AllReduceOfPrograms, ParametersOfRankZero) {
  const Case c{.name = "", .feeds = {}, .net = Mlp, .train = With<Sgd>(SgdOptions{})};
  StepPrograms programs = Make(c);
  InsertAllReduce(programs.main, programs.startup, {.nranks = 3});
  std::vector<Scope> scopes(3);
  OnRanks(3, [&](const std::shared_ptr<Communicator>& communicator) {
    const auto rank = static_cast<size_t>(communicator->rank());
    PreparedProgram startup = Executor(CompileOptions{.seed = 3 + rank}).Prepare(programs.startup);
    startup.SetCommunicator(communicator);
    startup.Run(scopes[rank]);
  });
  Scope zero;
  Executor(CompileOptions{.seed = 3}).Prepare(Make(c).startup).Run(zero);
  for (const std::string& name : programs.main.Parameters()) {
    for (const Scope& scope : scopes)
      EXPECT_TRUE(BitEqual(scope.Get(name), zero.Get(name))) << name;
  }
}

// The noise of its updates is the same on all ranks, whose other draws differ.
TEST(AllReduceOfPrograms, NoiseOfUpdates) {
  const Case c{.name = "",
               .feeds = kMlpFeeds,
               .net = Mlp,
               .train = With<Dpsgd>(DpsgdOptions{.learning_rate = 0.1, .sigma = 1})};
  StepPrograms programs = Make(c);
  InsertAllReduce(programs.main, programs.startup, {.nranks = 2, .share = "share"});
  std::vector<Scope> scopes(2);
  OnRanks(2, [&](const std::shared_ptr<Communicator>& communicator) {
    TrainOn(programs, Draw(c, 3), "share", {.seed = 3}, communicator,
            &scopes[static_cast<size_t>(communicator->rank())]);
  });
  ShareScopes(&scopes);
  for (const std::string& name : programs.main.Parameters())
    EXPECT_TRUE(BitEqual(scopes[0].Get(name), scopes[1].Get(name))) << name;
}

// With gradients accumulated over 3 runs the ranks exchange in every third.
TEST(AllReduceOfPrograms, AccumulatedGradientsAreExchangedOnceForAnUpdate) {
  const auto train = [](const Variable& loss, ProgramDesc& startup) {
    OptimizerGroup group{.optimizer = std::make_shared<Sgd>(SgdOptions{.learning_rate = 0.1})};
    AppendTrainingStep({.groups = {group}, .accumulate = 3}, loss, startup);
  };
  const Case c{.name = "", .feeds = kMlpFeeds, .net = Mlp, .train = train};
  StepPrograms programs = Make(c);
  InsertAllReduce(programs.main, programs.startup, {.nranks = 2});
  const std::vector<Batch> batches = Draw(c, 7);
  OnRanks(2, [&](const std::shared_ptr<Communicator>& communicator) {
    Scope scope;
    PreparedProgram startup = Executor().Prepare(programs.startup);
    startup.SetCommunicator(communicator);
    startup.Run(scope);
    PreparedProgram step = Executor().Prepare(programs.main, {"label", "x"});
    step.SetCommunicator(communicator);
    for (const Batch& batch : batches) step.Run(scope, {batch.at("label"), batch.at("x")});
    EXPECT_EQ(step.comm()->exchanges(), 2);
  });
}

// Each rank clips its own rows; a clip of slices across rows is refused.
TEST(AllReduceOfPrograms, ErrorClipsOfSlices) {
  for (const auto& [axis, transposed] :
       {std::pair(0, false), std::pair(1, false), std::pair(0, true), std::pair(1, true)}) {
    const auto net = [axis = axis, transposed = transposed](Builder& net) {
      return transposed ? TransposedClipNet(net, axis) : SliceClipNet(net, axis);
    };
    const Case c{.name = "", .feeds = kMlpFeeds, .net = net, .train = With<Sgd>(SgdOptions{})};
    StepPrograms programs = Make(c);
    const std::string error = ErrorOf(
        [&] { InsertAllReduce(programs.main, programs.startup, {.nranks = 2, .share = "share"}); });
    if (axis != (transposed ? 1 : 0)) {
      EXPECT_NE(
          error.find("is for slices along an axis without the rows, so it would clip a part of "
                     "what one rank clips; leave out that error clip"),
          std::string::npos)
          << error;
      continue;
    }
    EXPECT_EQ(error, "no error");
    const BlockDesc& root = programs.main.Root();
    int clips = 0;
    for (size_t i = 0; i < root.NumOps(); ++i) {
      if (root.op(i).type() != "clip_by_norm") continue;
      EXPECT_EQ(root.op(i).GetAttr<int32_t>("axis", -1), axis);
      ++clips;
    }
    EXPECT_EQ(clips, 1) << axis;
  }
}

// An infinite element becomes a nan, and all others zeros, whatever the limit is.
TEST(AllReduceOfPrograms, ErrorClipOfAnInfiniteNorm) {
  if (FindLaunched().size > 1) GTEST_SKIP() << "of threads";
  for (const double limit : {1e-292, 0.02, 1e30}) {
    SCOPED_TRACE(limit);
    const auto net = [limit](Builder& net) {
      FcOptions hidden{.size = 3};
      hidden.error_clip = ErrorClipByNorm(limit);
      const Variable h = net.Fc(net.Data("x", {-1, 6}, kF64), hidden);
      return Sum(h * net.Data("y", {-1, 3}, kF64));
    };
    const Case c{.name = "",
                 .feeds = {{"x", {6}}, {"y", {3}}},
                 .net = net,
                 .train = With<Sgd>(SgdOptions{}),
                 .rows = {8}};
    const StepPrograms whole = Make(c);
    StepPrograms parts = whole;
    InsertAllReduce(parts.main, parts.startup, {.nranks = 2, .share = "share"});
    std::vector<Batch> batches = Draw(c, 1);
    batches[0]["y"].data<double>()[1] = INFINITY;
    Scope expected;
    TrainOn(whole, batches, "", {.seed = 3}, nullptr, &expected);
    std::vector<Scope> scopes(2);
    OnRanks(2, [&](const std::shared_ptr<Communicator>& communicator) {
      TrainOn(parts, batches, "share", {.seed = 3}, communicator,
              &scopes[static_cast<size_t>(communicator->rank())]);
    });
    for (const std::string& name : whole.main.Parameters()) {
      const Tensor& one = expected.Get(name);
      for (int64_t i = 0; i < one.numel(); ++i) {
        const double value = one.data<double>()[i], other = scopes[1].Get(name).data<double>()[i];
        EXPECT_EQ(std::isnan(value), i % 3 == 1) << name << i;
        EXPECT_TRUE(std::isnan(value) ? std::isnan(other) : value == other) << name << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, AllReduce, testing::Values(1, 2, 3, 4, 8));
}  // namespace coracle::all_reduce_test
