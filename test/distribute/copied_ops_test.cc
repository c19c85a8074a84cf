// Copies that compute an op again are recognised by their attr, not by names.

#include <coracle/distribute/all_reduce.h>
#include <coracle/operators/operators.h>
#include <coracle/test/distribute/rank_nets.h>

namespace coracle::copied_ops_test {

using namespace rank_nets;

TEST(CopiedOps, LengthsOfAnyName) {
  const auto net = [](Builder& net) {
    const Variable lengths = net.Data("lengths@RECOMPUTED", {-1}, DType::kInt64);
    const Variable h = net.Fc(net.Data("x", {-1, 6}, kF64), {.size = 1});
    BlockDesc& block = net.block();
    block.Var("mask").SetMeta({VarType::kLoDTensor, kF64, {-1, -1}, 0});
    block.AppendOp("sequence_mask", {{"X", {lengths.name()}}}, {{"Y", {"mask"}}},
                   {{"maxlen", -1}, {"out_dtype", static_cast<int32_t>(kF64)}});
    return Sum(h * Variable::Of(block, "mask"));
  };
  const Case c{.name = "", .feeds = {}, .net = net, .train = With<Sgd>(SgdOptions{})};
  StepPrograms programs = Make(c);
  InsertAllReduce(programs.main, programs.startup, {.nranks = 2, .share = "share"});
  const BlockDesc& root = programs.main.Root();
  int masks = 0;
  for (size_t i = 0; i < root.NumOps(); ++i) {
    if (root.op(i).type() != "sequence_mask") continue;
    EXPECT_TRUE(root.op(i).HasInput("MaxLenTensor"));
    ++masks;
  }
  EXPECT_EQ(masks, 1);
}

}  // namespace coracle::copied_ops_test
