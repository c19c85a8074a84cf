// Programs that other code wrote: without marks of a training step, with wrong marks, or with ops
// that exchange values.

#include <coracle/distribute/all_reduce.h>
#include <coracle/framework/ir/training_stage.h>
#include <coracle/test/distribute/rank_nets.h>
#include <coracle/test/error_of.h>

namespace coracle::foreign_programs_test {

using namespace rank_nets;

std::string ErrorOfRanks(StepPrograms programs) {
  return ErrorOf([&] { InsertAllReduce(programs.main, programs.startup, {.nranks = 2}); });
}

// The flag of error clips under loss scaling is found by its ops.
TEST(ForeignPrograms, WithoutMarks) {
  const auto scaled = [](const Variable& loss, ProgramDesc& startup) {
    LossScaling scaling(loss.program(), startup, {.init_scale = 65536});
    const OptimizerGroup group{.optimizer = std::make_shared<Sgd>(SgdOptions{})};
    AppendTrainingStep({.groups = {group}, .scaling = &scaling}, loss, startup);
  };
  const auto net = [](Builder& net) {
    FcOptions hidden{.size = 9, .act = "tanh"};
    hidden.error_clip = ErrorClipByValue(0.01);
    return CrossEntropyLoss(net, net.Fc(net.Fc(net.Data("x", {-1, 6}), hidden), {.size = 4}));
  };
  const Case c{.name = "", .feeds = {}, .net = net, .train = scaled};
  const StepPrograms marked = Make(c);
  StepPrograms plain = marked;
  plain.main.ForEachOp([](OpDesc& op) {
    for (const char* attr : {kTrainingStageAttr, kTrainingPartAttr, kTrainingOfAttr})
      op.RemoveAttr(attr);
  });
  const auto flags = [](StepPrograms programs) {
    InsertAllReduce(programs.main, programs.startup, {.nranks = 2});
    int found = 0;
    programs.main.ForEachOp([&](const OpDesc& op) {
      found += op.type() == "c_allreduce_min" || op.type() == "c_allreduce_max" ? 1 : 0;
    });
    return found;
  };
  EXPECT_EQ(flags(plain), flags(marked));
  EXPECT_GT(flags(plain), 0);
}

// An error clip of a gradient whose variable is not known.
TEST(ForeignPrograms, ErrorClipsOfOtherVariables) {
  const Case c{.name = "", .feeds = kMlpFeeds, .net = Mlp, .train = With<Sgd>(SgdOptions{})};
  for (const char* of : {"fc_1.w_0", "x", "nothing"}) {
    StepPrograms programs = Make(c);
    int clips = 0;
    programs.main.ForEachOp([&](OpDesc& op) {
      if (op.type() != "clip") return;
      op.SetAttr(kTrainingOfAttr, std::string(of));
      ++clips;
    });
    EXPECT_EQ(clips, 1);
    const std::string error = ErrorOfRanks(programs);
    EXPECT_NE(error.find(std::string("does not name a variable of its shape, but '") + of),
              std::string::npos)
        << error;
  }
}

// Copies of rank 0 and gathered rows have declared effects; sums and model parallel ops do not
// go with parts of a batch.
TEST(ForeignPrograms, WithExchanges) {
  const auto error_of = [](const std::string& type, AttrList attrs) {
    const auto net = [&](Builder& net) {
      const Variable h = net.Fc(net.Data("x", {-1, 6}, kF64), {.size = 4});
      const Variable scale = net.Make(
          type,
          {{"X",
            {net.Make(
                    "fill_constant", {},
                    {{"shape", std::vector<int64_t>{1}}, {"value", 2.0f}, {"dtype", int32_t(kF64)}})
                 .name()}}},
          attrs);
      return Mean(Square(h)) + Mean(scale);
    };
    return ErrorOfRanks(
        Make({.name = "", .feeds = {}, .net = net, .train = With<Sgd>(SgdOptions{})}));
  };
  EXPECT_EQ(error_of("c_broadcast", {}), "no error");
  EXPECT_EQ(error_of("c_allgather", {{"nranks", int32_t{2}}}), "no error");
  for (const char* type : {"c_allreduce_max", "c_reduce_sum", "allreduce", "ncclReduce"}) {
    const std::string error = error_of(type, {});
    EXPECT_NE(error.find("the program exchanges values between ranks already"), std::string::npos)
        << type << ": " << error;
  }
}

}  // namespace coracle::foreign_programs_test
