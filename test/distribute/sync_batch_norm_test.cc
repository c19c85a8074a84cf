// sync_batch_norm uses the statistics of the whole batch, whether InsertAllReduce or the model asks
// for it.

#include <coracle/distribute/all_reduce.h>
#include <coracle/distribute/exchange_states.h>
#include <coracle/test/distribute/rank_nets.h>
#include <coracle/test/error_of.h>

namespace coracle::sync_batch_norm_test {

using namespace rank_nets;

// Ranks without rows do not count in a sync_batch_norm that the model has itself.
TEST(SyncBatchNorm, OfTheModel) {
  const Case c{.name = "",
               .feeds = {{"label", {1}, 4}, {"x", {2, 4, 4}}},
               .net = NormNet,
               .train = With<Momentum>(MomentumOptions{.learning_rate = 0.1}),
               .rows = {12, 2, 5}};
  StepPrograms whole = Make(c);
  whole.main.ForEachOp([](OpDesc& op) {
    if (op.type().starts_with("batch_norm")) op.SetType("sync_" + op.type());
  });
  StepPrograms parts = whole;
  InsertAllReduce(parts.main, parts.startup, {.nranks = 3, .share = "share"});
  ExpectOneRank(c, whole, parts, 3, "share");
  // The share has the loss's dtype, which may be one of 16 bits.
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    SCOPED_TRACE(ToString(dtype));
    StepPrograms half = parts;
    half.main.ForEachOp([](OpDesc& op) {
      if (op.type().starts_with("sync_batch_norm")) op.RenameInput("share", "half_share");
    });
    VarDesc& half_share = half.main.Root().Var("half_share");
    half_share.SetDType(dtype);
    half_share.SetShape({1});
    half.main.Root().InsertOp(0, OpDesc("cast", {{"X", {"share"}}}, {{"Out", {"half_share"}}},
                                        {{"in_dtype", static_cast<int32_t>(kF64)},
                                         {"out_dtype", static_cast<int32_t>(dtype)}}));
    ExpectOneRank(c, whole, half, 3, "share");
  }
}

TEST(SyncBatchNorm, OfTests) {
  const auto inputs = [](bool fixed) {
    const Case c{.name = "", .feeds = {}, .net = NormNet, .train = [](const auto&, auto&) {}};
    StepPrograms programs = Make(c);
    programs.main.ForEachOp([&](OpDesc& op) {
      if (op.type() != "batch_norm") return;
      op.SetType("sync_batch_norm");
      op.SetAttr("use_global_stats", fixed);
    });
    InsertStateExchanges(programs.main, {.nranks = 2, .share = "share"});
    int found = 0;
    programs.main.ForEachOp([&](const OpDesc& op) { found += op.HasInput("Share"); });
    EXPECT_EQ(programs.main.Root().FindVar("share") != nullptr, !fixed);
    return found;
  };
  EXPECT_EQ(inputs(false), 2);
  EXPECT_EQ(inputs(true), 0);
}

// The program stays unchanged if it is refused.
TEST(SyncBatchNorm, WithinABlockIsRefused) {
  Case c{.name = "norm", .feeds = {}, .net = NormNet, .train = With<Momentum>(MomentumOptions{})};
  StepPrograms programs = Make(c);
  BlockDesc& root = programs.main.Root();
  const size_t ops = root.NumOps();
  BlockDesc& inner = programs.main.AppendBlock(root);
  for (size_t i = 0; i < ops && inner.NumOps() == 0; ++i)
    if (root.op(i).type() == "batch_norm") inner.AppendOp(root.op(i));
  EXPECT_EQ(ErrorOf([&] {
              InsertAllReduce(programs.main, programs.startup,
                              {.nranks = 2, .sync_batch_norm = true});
            }),
            "distribute: batch_norm in a block cannot use the statistics of all ranks; leave out "
            "sync_batch_norm");
  EXPECT_EQ(programs.main.Root().NumOps(), ops);
  inner.op(0).SetType("sync_batch_norm");
  EXPECT_EQ(ErrorOf([&] {
              InsertAllReduce(programs.main, programs.startup, {.nranks = 2, .share = "share"});
            }),
            "distribute: sync_batch_norm in a block would count the rows of ranks that have none; "
            "take it out of the block, or use batch_norm");
}

TEST(SyncBatchNorm, FusedBatchNormIsNotSynchronised) {
  const Case c{
      .name = "norm", .feeds = {}, .net = NormNet, .train = With<Momentum>(MomentumOptions{})};
  StepPrograms programs = Make(c);
  programs.main.ForEachOp([](OpDesc& op) {
    if (op.type() == "batch_norm") op.SetType("fused_batch_norm_act");
  });
  EXPECT_EQ(ErrorOf([&] {
              InsertAllReduce(programs.main, programs.startup,
                              {.nranks = 2, .sync_batch_norm = true});
            }),
            "distribute: fused_batch_norm_act cannot use the statistics of all ranks; leave out "
            "sync_batch_norm");
}

TEST(SyncBatchNorm, FixedStatisticsAreNotOfTheRank) {
  const auto local = [](bool fixed) {
    const Case c{
        .name = "norm", .feeds = {}, .net = NormNet, .train = With<Momentum>(MomentumOptions{})};
    StepPrograms programs = Make(c);
    programs.main.ForEachOp([&](OpDesc& op) {
      if (op.type() == "batch_norm") op.SetAttr("use_global_stats", fixed);
    });
    return InsertAllReduce(programs.main, programs.startup, {.nranks = 2}).local.size();
  };
  EXPECT_EQ(local(false), 4u);
  EXPECT_EQ(local(true), 0u);
}

}  // namespace coracle::sync_batch_norm_test
