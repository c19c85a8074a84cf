// backward, clip, regularizer, distribute, communication.

#include <coracle/backward/backward.h>
#include <coracle/clip/clip.h>
#include <coracle/communication/communicator.h>
#include <coracle/distribute/all_reduce.h>
#include <coracle/layers/builder.h>
#include <coracle/regularizer/regularizer.h>
#include <coracle/test/misuse/misuse.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

// NOLINTBEGIN(bugprone-use-after-move): that is what is tested
namespace coracle::misuse {
namespace training_cases {

struct Trained {
  ProgramDesc main, startup;
  Builder b{main, startup};
  Variable x = b.Data("x", {-1, 4});
  Variable h = b.Fc(x, {.size = 2, .output = "h"});
  Variable loss = b.Mean(h, {.output = "loss"});
};

void AddBackward(Cases& cases) {
  cases.Of("RecomputeOptions").Fails("an absent checkpoint", "checkpoint", [] {
    Trained net;
    AppendBackward(net.loss, {.recompute = {.checkpoints = {"none"}}});
  });
  cases.Of("RecomputeReport").Fails("from an op past the end", "no op", [] {
    ProgramDesc program;
    Recompute(program.Root(), 7, {.checkpoints = {"x"}}, DefaultOps());
  });
  cases.Of("Unconnected").Fails("an empty name", "none", [] { UnconnectedFromText(""); });
  cases.Of("Aggregation").Fails("an empty name", "sum", [] { AggregationFromText(""); });
  cases.Of("GradientOverride").Fails("no rule", "no rule", [] {
    Trained net;
    AppendBackward(net.loss, {.overrides = {{}}});
  });
  cases.Of("BackwardOptions")
      .Fails("an empty Variable", "empty Variable", [] { AppendBackward(Variable()); })
      .Fails("no targets", "no target", [] { Gradients({}, {}); })
      .Fails("an empty target", "empty Variable", [] { Gradients({Variable()}, {}); })
      .Fails("an empty input", "empty Variable",
             [] {
               Trained net;
               Gradients({net.loss}, {Variable()});
             })
      .Fails("an input of another program", "program",
             [] {
               Trained net, other;
               Gradients({net.loss}, {other.x});
             })
      .Fails("an absent parameter", "parameter_list",
             [] {
               Trained net;
               AppendBackward(net.loss, {.parameter_list = {""}});
             })
      .Fails("an empty callback", "callback", [] {
        Trained net;
        AppendBackward(net.loss, {.callbacks = {{}}});
      });
  cases.Plain<ParamAndGrad>("ParamAndGrad");
  cases.Of("HessianOptions")
      .Fails("an empty Variable", "empty Variable", [] { Hessian(Variable(), {}); })
      .Fails("vectors that differ in number", "v", [] {
        Trained net;
        HessianVectorProduct(net.loss, {net.x}, {});
      });
  cases.Of("CheckGradientOptions").Fails("an absent loss", "no var 'none'", [] {
    CheckGradient(ProgramDesc(), {.loss = "none"});
  });
  cases.Plain<GradientCheck>("GradientCheck");
  cases.Of("CheckGradientReport").Works("default", [] { CheckGradientReport().ToString(); });
  cases.Plain<GradientStep>("GradientStep");
  cases.Of("GradientExplanation")
      .Works("default", [] { GradientExplanation().ToString(); })
      .Fails("absent names", "var", [] { ExplainGradient(ProgramDesc(), "", ""); });
}

void AddClips(Cases& cases) {
  cases.Of("NonFinite").Fails("of a kind without a name", "gradient clip", [] {
    CheckGradientClip({});
  });
  cases.Of("GradientNormOptions").Fails("a p below 1", "norm_type", [] {
    CheckGradientClip(ClipGradByNorm(1, {.norm_type = 0.5}));
  });
  cases.Of("AdaptiveClipOptions").Fails("no factor", "clip_factor", [] {
    CheckGradientClip(AdaptiveGradientClip({.clip_factor = std::nan("")}));
  });
  cases.Of("ClipMember").Fails("absent names", "no var 'p'", [] {
    ProgramDesc main, startup;
    AppendGradientClips(main.Root(), startup, {{{"p", "p@GRAD"}, ClipGradByNorm(1)}});
  });
  cases.Of("ClippedGradients")
      .Works("of no members",
             [] {
               ProgramDesc main, startup;
               Require(AppendGradientClips(main.Root(), startup, {}).grads.empty(), "none");
               CountGradientClips(main.Root(), startup, {}, {});
             })
      .Fails("a kind without a function", "empty function",
             [] { RegisterGradientClip("mine", GradientClipFn()); })
      .Fails("a kind without a name", "no name", [] { RegisterGradientClip("", GradientClipFn()); })
      .Fails("error clips without a function", "empty function",
             [] {
               ProgramDesc main;
               AppendErrorClips(main.Root(), {}, {});
             })
      .Fails("counted clips without a function", "empty function", [] {
        Trained net;
        CountErrorClip(net.main.Root(), net.startup, "h", "h", {});
      });
}

void AddRegularizers(Cases& cases) {
  cases.Of("UpdateContext")
      .Fails("a kind without a name", "regularizer",
             [] {
               ProgramDesc main, startup;
               AppendRegularizer({main.Root(), startup, "p", "g", "r", false}, {});
             })
      .Fails("a kind without a function", "empty function",
             [] { RegisterRegularizer("mine", RegularizerFunction()); })
      .Fails("a coefficient that is no number", "coeff",
             [] { CheckRegularizer(L2DecayRegularizer(std::nan(""))); });
}

void AddRanks(Cases& cases) {
  cases.Of("Reduction").Works("unknown", [] { ToString(static_cast<Reduction>(9)); });
  cases.Of("Exchange")
      .Fails("counts that are missing", "counts",
             [] { Exchange{.kind = Exchange::Kind::kAllReduce}.Check(2); })
      .Fails("null buffers", "null",
             [] { Exchange{.kind = Exchange::Kind::kAllReduce, .counts = {4}}.Check(2); })
      .Fails("null buffers of a scatter", "null",
             [] {
               Exchange{.kind = Exchange::Kind::kReduceScatter, .counts = {4, 4}}.Check(2);
             })
      .Fails("a null buffer among several", "null",
             [] {
               float x = 0;
               Exchange{.kind = Exchange::Kind::kAllReduce,
                        .counts = {1, 1},
                        .in = &x,
                        .out = &x,
                        .more = {{nullptr, nullptr}}}
                   .Check(2);
             })
      .Fails(
          "a root outside", "root",
          [] {
            float x = 0;
            Exchange{
                .kind = Exchange::Kind::kBroadcast, .counts = {1}, .in = &x, .out = &x, .root = 5}
                .Check(2);
          })
      .Works("null buffers of no elements",
             [] { Exchange{.kind = Exchange::Kind::kAllReduce, .counts = {0}}.Check(2); })
      .Works("default", [] { Exchange().Describe(); });
  cases.Of("PendingExchange").Fails("dropped", "gave up", [] {
    const auto ranks = ThreadCommunicators(2);
    ranks[0]->Start({});
    ranks[1]->Barrier();
  });
  cases.Plain<ExchangeTimes>("ExchangeTimes");
  cases.Of("Communicator")
      .Fails("no ranks", "ranks", [] { ThreadCommunicators(0); })
      .Fails("a negative count", "elements",
             [] { ThreadCommunicators(1)[0]->AllReduce<float>(nullptr, -1); })
      .Fails("a null buffer", "null",
             [] { ThreadCommunicators(1)[0]->AllReduce<float>(nullptr, 4); })
      .Works("a null buffer of no elements",
             [] { ThreadCommunicators(1)[0]->Broadcast<float>(nullptr, 0); });
  cases.Of("RankRows").Fails("a rank outside", "rank", [] { RowsOfRank(4, 2, 2); });
  cases.Of("Ranks").Works("null, moved from", [] {
    Ranks ranks(nullptr);
    const Ranks moved = std::move(ranks);
    Require(ranks.size() == 1 && ranks.Gather("x").size() == 1 && !ranks.Any(false), "alone");
    ranks.RequireSame("", "", "");
  });
  cases.Fails("the sum of a null tensor", "null",
              [] { Ranks().Sum(static_cast<Tensor*>(nullptr)); });
  cases.Of("Launched").Works("by nothing", [] { FindLaunched(); });
}

void AddDistribute(Cases& cases) {
  cases.Of("AllReduceOptions")
      .Fails("no gradients", "gradients",
             [] {
               Trained net;
               InsertAllReduce(net.main, net.startup, {.nranks = 2});
             })
      .Fails("no ranks", "at least 1", [] {
        Trained net;
        AppendBackward(net.loss);
        InsertAllReduce(net.main, net.startup, {.nranks = 0});
      });
  cases.Plain<GradientBucket>("GradientBucket");
  cases.Plain<ShardedState>("ShardedState");
  cases.Plain<AllReduceReport>("AllReduceReport");
}

}  // namespace training_cases

void AddTraining(Cases& cases) {
  using namespace training_cases;
  AddBackward(cases);
  AddClips(cases);
  AddRegularizers(cases);
  AddRanks(cases);
  AddDistribute(cases);
}

}  // namespace coracle::misuse
// NOLINTEND(bugprone-use-after-move)
