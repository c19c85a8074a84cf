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
  for (const char* of : {"fc_1.w_0", "x", "nothing", "fc_0.tmp_1"}) {
    StepPrograms programs = Make(c);
    int clips = 0;
    programs.main.ForEachOp([&](OpDesc& op) {
      if (op.type() != "clip") return;
      op.SetAttr(kTrainingOfAttr, std::string(of));
      ++clips;
    });
    EXPECT_EQ(clips, 1);
    const std::string error = ErrorOfRanks(programs);
    EXPECT_NE(error.find(std::string("is marked as the clip of '") + of + "', whose gradient is"),
              std::string::npos)
        << error;
  }
}

// Has error clips of a value of all rows and of a value of each row.
Variable ClippedNet(Builder& net) {
  const Variable x = net.Data("x", {-1, 6}, kF64);
  FcOptions hidden{.size = 9, .act = "tanh"};
  hidden.error_clip = ErrorClipByValue(0.001);
  const Variable ce = CrossEntropyLoss(net, net.Fc(net.Fc(x, hidden), {.size = 4}));
  ce.desc().SetErrorClip(ErrorClipByValue(0.5));
  return 2.0 * ce;
}
std::function<void(const Variable&, ProgramDesc&)> Clipping(bool counts) {
  return [=](const Variable& loss, ProgramDesc& startup) {
    const auto sgd = std::make_shared<Sgd>(SgdOptions{});
    sgd->SetSchedule(ExponentialRate({.rate = 0.1, .gamma = 0.5}));
    sgd->SetGradientClip(ClipGradByGlobalNorm(0.5));
    AppendTrainingStep({.groups = {{.optimizer = sgd}}, .count_error_clips = counts}, loss,
                       startup);
  };
}

std::string WithoutMarks(ProgramDesc program) {
  program.ForEachOp([](OpDesc& op) {
    for (const char* attr : {kTrainingStageAttr, kTrainingPartAttr, kTrainingOfAttr})
      op.RemoveAttr(attr);
  });
  return PrintProgram(program);
}

struct Lie {
  size_t op;
  TrainingStage stage;
  std::string part;
};
std::vector<Lie> Lies(const BlockDesc& root) {
  std::vector<Lie> lies;
  for (size_t i = 0; i < root.NumOps(); ++i) {
    if (MarkOf(root.op(i)).stage == TrainingStage::kErrorClip) continue;
    for (const auto stage :
         {TrainingStage::kErrorClip, TrainingStage::kClip, TrainingStage::kSchedule})
      for (const char* part : {"counter", "rate", "norm", "limit", "statistics", "finite"})
        lies.push_back({i, stage, part});
  }
  return lies;
}

// A mark of an op that is another part of a step changes nothing, or the program is refused. Only
// the counts of error clips depend on their marks, so these ops keep theirs.
TEST(ForeignPrograms, MarksThatLie) {
  int kept = 0, refused = 0;
  for (const bool counts : {false, true}) {
    const StepPrograms honest =
        Make({.name = "", .feeds = kMlpFeeds, .net = ClippedNet, .train = Clipping(counts)});
    StepPrograms wanted = honest;
    InsertAllReduce(wanted.main, wanted.startup, {.nranks = 2});
    const std::string text = WithoutMarks(wanted.main);
    for (const auto& [op, stage, part] : Lies(honest.main.Root())) {
      StepPrograms programs = honest;
      OpDesc& marked = programs.main.Root().op(op);
      marked.SetAttr(kTrainingStageAttr, std::string(ToString(stage)));
      marked.SetAttr(kTrainingPartAttr, part);
      marked.SetAttr(kTrainingOfAttr, std::string("loss"));
      const std::string error =
          ErrorOf([&] { InsertAllReduce(programs.main, programs.startup, {.nranks = 2}); });
      ++(error == "no error" ? kept : refused);
      if (error != "no error") continue;
      EXPECT_EQ(WithoutMarks(programs.main), text) << marked.type() << " " << part;
    }
  }
  EXPECT_GT(kept, 100);
  EXPECT_GT(refused, 0);
}

// An op of backward between a clip and what made the gradient reads the rank's part: if it were
// taken for a part of the clip, it would read the sum over the ranks.
TEST(ForeignPrograms, ReadersOfGradientsMarkedAsClips) {
  const Case c{.name = "", .feeds = kMlpFeeds, .net = ClippedNet, .train = Clipping(true)};
  const auto with_reader = [&](bool lies) {
    StepPrograms programs = Make(c);
    BlockDesc& root = programs.main.Root();
    size_t at = 0;
    for (size_t i = 0; i < root.NumOps(); ++i)
      if (root.op(i).type() == "clip" && root.op(i).Input("X")[0] == "loss@GRAD") at = i;
    root.Var("copy").SetMeta(root.FindVar("loss@GRAD")->meta());
    root.Var("fc_1.b_0@GRAD@COPY").SetMeta(root.FindVar("loss@GRAD")->meta());
    OpDesc copy("assign", {{"X", {"loss@GRAD"}}}, {{"Out", {"copy"}}});
    copy.SetAttr(kOpRoleAttr, int32_t{kBackward});
    if (lies) SetMark(copy, {.stage = TrainingStage::kErrorClip});
    OpDesc user("scale", {{"X", {"copy"}}}, {{"Out", {"fc_1.b_0@GRAD@COPY"}}}, {{"scale", 2.0f}});
    user.SetAttr(kOpRoleAttr, int32_t{kBackward});
    root.InsertOp(at, copy);
    root.InsertOp(at + 3, user);  // after the clip and its count
    return ErrorOfRanks(programs);
  };
  EXPECT_EQ(with_reader(false), "no error");
  const std::string error = with_reader(true);
  EXPECT_NE(error.find("has assign marked as its part, and other ops read the result"),
            std::string::npos)
      << error;
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
