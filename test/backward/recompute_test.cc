// Recompute: the same bits with less memory.

#include <coracle/backward/backward.h>
#include <coracle/clip/clip.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/recomputed.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/layers/builder.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/test/backward/loop_ops.h>
#include <coracle/test/backward/test_ops.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <random>

namespace coracle::recompute_test {

Tensor Draws(const Shape& shape, const std::string& name) {
  Tensor t(DType::kFloat32, shape);
  const Philox random(9, HashName(name), 0);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.data<float>()[i] = 2 * random.UniformFloat(static_cast<uint64_t>(i)) - 1;
  return t;
}

// A network that is differentiated, and what it takes to run it.
struct Model {
  ProgramDesc main, startup;
  std::map<std::string, Tensor> feeds;
  std::string loss;
  std::vector<std::string> gradients;

  using Build = std::function<Variable(Builder&, Model&)>;
  explicit Model(const Build& build) {
    Builder net(main, startup);
    const Variable out = build(net, *this);
    loss = out.name();
    BackwardOptions options;
    options.callbacks = {ErrorClipCallback};
    for (const ParamAndGrad& pair : AppendBackward(out, options)) gradients.push_back(pair.grad);
  }
  Variable Feed(Builder& net, const std::string& name, const Shape& shape) {
    feeds[name] = Draws(shape, name);
    return net.Data(name, shape);
  }
  RecomputeReport Recompute(const RecomputeOptions& options) {
    const BlockDesc& block = main.Root();
    size_t first = 0;  // of the gradient ops: the seed
    while (block.op(first).role() != (kBackward | kLoss)) ++first;
    RecomputeReport report = coracle::Recompute(main.Root(), first, options, DefaultOps());
    VerifyOrThrow(main, DefaultOps());
    return report;
  }
  int Count(const std::string& type) const {
    int n = 0;
    for (size_t i = 0; i < main.Root().NumOps(); ++i) n += main.Root().op(i).type() == type;
    return n;
  }
};

struct Outcome {
  std::map<std::string, Tensor> values;  // loss, gradients and persistable variables
  uint64_t bytes = 0;
};

// Two steps, so that draws and running statistics of the second are compared too.
Outcome RunTwice(const Model& model, bool optimize) {
  Scope scope;
  CompileOptions options;
  options.optimize = optimize;
  options.seed = 77;
  const Executor executor(options);
  executor.Run(model.startup, scope);
  std::vector<std::string> feeds, fetches = model.gradients;
  std::vector<Tensor> batch;
  for (const auto& [name, tensor] : model.feeds) {
    feeds.push_back(name);
    batch.push_back(tensor);
  }
  fetches.push_back(model.loss);
  PreparedProgram prepared = executor.Prepare(model.main, feeds, fetches);
  Outcome outcome;
  for (int step = 0; step < 2; ++step) {
    const std::vector<Tensor>& results = prepared.Run(scope, batch);
    for (size_t i = 0; i < fetches.size(); ++i)
      outcome.values[fmt::format("{} of step {}", fetches[i], step)] = results[i].Clone();
  }
  for (const std::string& name : scope.LocalNames()) outcome.values[name] = scope.Get(name).Clone();
  outcome.bytes = prepared.WorkspaceBytes();
  return outcome;
}

void ExpectSameBits(const Outcome& expected, const Outcome& got) {
  ASSERT_EQ(expected.values.size(), got.values.size());
  double largest = 0;
  for (const auto& [name, tensor] : expected.values) {
    ASSERT_TRUE(got.values.count(name)) << name;
    EXPECT_TRUE(BitEqual(tensor, got.values.at(name))) << name;
    for (float x : tensor.span<float>()) {
      ASSERT_TRUE(std::isfinite(x)) << name;
      largest = std::max(largest, static_cast<double>(std::abs(x)));
    }
  }
  EXPECT_GT(largest, 0);
}

struct Comparison {
  RecomputeReport report;
  uint64_t before = 0, after = 0;  // bytes of the workspace
  std::string listing;             // of the rewritten program
};

// Builds the model twice, rewrites one, and runs both with and without passes.
Comparison ExpectSame(const Model::Build& build, const RecomputeOptions& options) {
  const Model plain(build);
  Model rewritten(build);
  Comparison comparison;
  comparison.report = rewritten.Recompute(options);
  for (bool optimize : {false, true}) {
    SCOPED_TRACE(optimize ? "with passes" : "without passes");
    const Outcome expected = RunTwice(plain, optimize), got = RunTwice(rewritten, optimize);
    ExpectSameBits(expected, got);
    comparison.before = expected.bytes;
    comparison.after = got.bytes;
  }
  const BlockDesc& block = rewritten.main.Root();
  for (size_t i = 0; i < block.NumOps(); ++i) {
    comparison.listing += block.op(i).type() + " -> ";
    ForEachPosition(block.op(i).outputs(),
                    [&](const std::string& name) { comparison.listing += name + " "; });
    comparison.listing += "\n";
  }
  return comparison;
}

RecomputeOptions At(const std::vector<std::string>& names) {
  RecomputeOptions options;
  options.checkpoints = names;
  return options;
}

Variable Chain(Builder& net, Model& model) {
  Variable h = model.Feed(net, "x", {4, 6});
  for (int i = 0; i < 6; ++i)
    h = net.Fc(h, {.size = 6, .act = "tanh", .output = fmt::format("h{}", i)});
  return net.Mean(h);
}

TEST(Recompute, BetweenCheckpoints) {
  const Comparison c = ExpectSame(Chain, At({"h3", "h1"}));
  EXPECT_EQ(c.report.checkpoints, (std::vector<std::string>{"h1", "h3"}));
  // Only h0 and h2 are recomputed: mul, elementwise_add and tanh for each. Only the gradients of h1
  // and h3 read the copies.
  EXPECT_EQ(c.report.ops, 6) << c.listing;
  EXPECT_NE(c.listing.find("tanh -> h0@RECOMPUTED"), std::string::npos) << c.listing;
  EXPECT_NE(c.listing.find("tanh -> h2@RECOMPUTED"), std::string::npos) << c.listing;
  EXPECT_EQ(c.listing.find("h1@RECOMPUTED"), std::string::npos) << c.listing;
  EXPECT_LT(c.listing.find("h2@RECOMPUTED"), c.listing.find("h0@RECOMPUTED"));
}

TEST(Recompute, CopiesSayWhatTheyAre) {
  Model model(Chain);
  model.Recompute(At({"h1"}));
  const BlockDesc& block = model.main.Root();
  int copies = 0;
  for (size_t i = 0; i < block.NumOps(); ++i) {
    const OpDesc& op = block.op(i);
    if (!op.HasAttr(kRecomputedFromAttr)) continue;
    ++copies;
    EXPECT_EQ(op.role(), kBackward);
    for (const std::string& name : op.GetAttr<std::vector<std::string>>(kRecomputedFromAttr, {})) {
      const VarDesc *original = block.FindVar(name), *again = block.FindVar(name + "@RECOMPUTED");
      ASSERT_NE(original, nullptr) << name;
      ASSERT_NE(again, nullptr) << name;
      EXPECT_EQ(original->meta(), again->meta());
    }
  }
  EXPECT_EQ(copies, 3);
}

// Nothing is recomputed after the last checkpoint, and nothing without a checkpoint.
TEST(Recompute, OnlyBeforeTheLastCheckpoint) {
  EXPECT_EQ(ExpectSame(Chain, At({})).report.ops, 0);
  EXPECT_EQ(ExpectSame(Chain, At({"x", "h0"})).report.ops, 0);  // tanh_grad reads h0, mul_grad x
}

TEST(Recompute, RandomOpsRepeatTheirDraws) {
  const Model::Build build = [](Builder& net, Model& model) {
    Variable h = model.Feed(net, "x", {16, 32});
    for (int i = 0; i < 4; ++i) {
      h = net.Fc(h, {.size = 32, .act = "tanh"});
      h = net.Dropout(h, {.dropout_prob = 0.4f, .output = fmt::format("d{}", i)});
    }
    return net.Mean(net.Fc(h, {.size = 1, .output = "end"}));
  };
  const Comparison c = ExpectSame(build, At({"d0", "end"}));
  EXPECT_NE(c.listing.find("dropout -> d1@RECOMPUTED"), std::string::npos) << c.listing;
}

// The planted fault: without the name of its original a copy draws other numbers.
TEST(Recompute, DrawsGoByTheNameOfTheOriginal) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  for (const char* name : {"a", "b", "c"}) block.Var(name);
  for (const char* name : {"a", "b", "c"}) {
    AttrList attrs = {{"shape", std::vector<int64_t>{50}}, {"dtype", int32_t{5}}};
    if (*name == 'b') attrs.push_back({kRecomputedFromAttr, std::vector<std::string>{"a"}});
    InferOp(block, block.AppendOp("uniform_random", {}, {{"Out", {name}}}, attrs), DefaultOps());
  }
  VarValues env;
  Interpret(block, DefaultOps(), env);
  EXPECT_TRUE(BitEqual(std::get<Tensor>(env.at("a")), std::get<Tensor>(env.at("b"))));
  EXPECT_FALSE(BitEqual(std::get<Tensor>(env.at("a")), std::get<Tensor>(env.at("c"))));
}

Variable Images(Builder& net, Model& model) {
  Variable h = model.Feed(net, "image", {2, 3, 8, 8});
  for (int i = 0; i < 6; ++i) {
    h = net.Conv2d(h, {.num_filters = 4, .filter_size = 3, .padding = 1});
    h = net.BatchNorm(h, {.act = "relu", .output = fmt::format("r{}", i)});
    if (i == 2) h = net.Pool2d(h, {.pool_size = 2, .pool_stride = 2, .output = "pooled"});
  }
  return net.Mean(h);
}

// Running statistics, which batch_norm overwrites in place, move once a step.
TEST(Recompute, BatchNormUpdatesItsStatisticsOnce) {
  const Comparison c = ExpectSame(Images, At({"r1", "pooled", "r4"}));
  EXPECT_EQ(c.report.checkpoints.size(), 3u);
  EXPECT_NE(c.listing.find("@SAVED"), std::string::npos) << "old statistics are to be kept";
}

TEST(Recompute, SkipConnections) {
  const Model::Build build = [](Builder& net, Model& model) {
    Variable h = model.Feed(net, "x", {4, 6});
    for (int i = 0; i < 6; ++i) {
      const Variable inner = net.Fc(h, {.size = 6, .act = "sigmoid"});
      h = net.Add(h, net.Fc(inner, {.size = 6, .act = "tanh"}),
                  {.output = fmt::format("sum{}", i)});
    }
    return net.Mean(h);
  };
  EXPECT_GT(ExpectSame(build, At({"sum1", "sum3"})).report.ops, 0);
  // A cut across a connection keeps what crosses.
  const Comparison c = ExpectSame(build, At({"fc_4.tmp_0", "sum4"}));
  EXPECT_GT(c.report.ops, 0);
}

TEST(Recompute, CallbacksRun) {
  const Model::Build build = [](Builder& net, Model& model) {
    Variable h = model.Feed(net, "x", {4, 6});
    for (int i = 0; i < 4; ++i) {
      h = net.Fc(h, {.size = 6,
                     .act = "tanh",
                     .output = fmt::format("h{}", i),
                     .error_clip = ErrorClipByValue(0.001f)});
    }
    return net.Mean(h);
  };
  EXPECT_GT(ExpectSame(build, At({"h1", "h2"})).report.ops, 0);
  Model plain(build), rewritten(build);
  rewritten.Recompute(At({"h1", "h2"}));
  EXPECT_GE(plain.Count("clip"), 4);
  EXPECT_EQ(plain.Count("clip"), rewritten.Count("clip"));
}

// Names that are overwritten within a segment, and across segments.
TEST(Recompute, OverwrittenNames) {
  const Model::Build build = [](Builder& net, Model& model) {
    model.Feed(net, "x", {4, 6});
    BlockDesc& block = net.block();
    net.Parameter("w", {6, 6}, DType::kFloat32, {.name = "w"});
    std::string in = "x";
    for (int i = 0; i < 6; ++i) {
      net.Append("mul", {{"X", {in}}, {"Y", {"w"}}}, {{"Out", {"h"}}});
      net.Append("tanh", {{"X", {"h"}}}, {{"Out", {"h"}}});
      in = "h";
      if (i % 2 == 0) continue;
      in = fmt::format("check{}", i);
      net.Append("sigmoid", {{"X", {"h"}}}, {{"Out", {in}}});
      net.Append("square", {{"X", {"h"}}}, {{"Out", {"h"}}});
      net.Append("elementwise_add", {{"X", {"h"}}, {"Y", {in}}}, {{"Out", {"h"}}});
      in = "h";
    }
    return net.Mean(Variable::Of(block, "h"));
  };
  const Comparison c = ExpectSame(build, At({"check1", "check3"}));
  EXPECT_GT(c.report.ops, 6) << c.listing;
}

TEST(Recompute, UnknownCheckpoint) {
  Model model(Chain);
  try {
    model.Recompute(At({"h0", "nothing"}));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kNotFound);
    EXPECT_NE(e.message().find("checkpoints names the var 'nothing'"), std::string::npos);
  }
}

// --- sub-blocks ---

// w, a chain to c, a loop that reads d in addition to its state h, a chain to the loss; cut after c
// and after the loop.
void BuildLoop(TestProgram& test) {
  test.Param("w");
  test.Op("t_mul", {"w", "w"}, "a");
  test.Op("t_tanh", {"a"}, "b");
  test.Op("t_square", {"b"}, "c");
  test.Op("t_tanh", {"c"}, "d");
  test.Op("t_square", {"d"}, "e");
  test.Op("t_mul", {"e", "w"}, "h");
  BlockDesc& body = test.program.AppendBlock(test.root());
  TestProgram::AppendTo(body, "t_mul", {"h", "d"}, "hd");
  TestProgram::AppendTo(body, "t_tanh", {"hd"}, "h");
  test.root().AppendOp("t_loop", {{"X", {"h", "d"}}}, {{"Out", {"h"}}},
                       {{"sub_block", BlockRef{body.idx()}}, {"times", int32_t{3}}});
  test.Op("t_tanh", {"h"}, "f");
  test.Op("t_square", {"f"}, "end");
}

TEST(Recompute, AroundSubBlocks) {
  BackwardOptions options;
  options.ops = &LoopOps();
  TestProgram plain, rewritten;
  BuildLoop(plain);
  BuildLoop(rewritten);
  const auto expected = AppendBackward(plain.Loss("end"), options);
  options.recompute = At({"c", "f"});
  const auto pairs = AppendBackward(rewritten.Loss("end"), options);
  VerifyOrThrow(rewritten.program, LoopOps());
  EXPECT_EQ(pairs, expected);
  const BlockDesc& root = rewritten.root();
  // b and e are computed again; d is kept, as the gradient block reads it.
  EXPECT_NE(root.FindVar("b@RECOMPUTED"), nullptr) << rewritten.Listing();
  EXPECT_NE(root.FindVar("e@RECOMPUTED"), nullptr) << rewritten.Listing();
  EXPECT_EQ(root.FindVar("d@RECOMPUTED"), nullptr) << rewritten.Listing();
  ExpectLoopGradients(rewritten, pairs);
  LoopEnvironment a{plain.Inputs(), {}}, b{rewritten.Inputs(), {}};
  RunWithLoops(plain.root(), a);
  RunWithLoops(rewritten.root(), b);
  EXPECT_EQ(Values(a.values, pairs[0].grad), Values(b.values, pairs[0].grad));
}

// --- as an option ---

std::string OpsOf(const ProgramDesc& program) {
  std::string text;
  const BlockDesc& block = program.Root();
  for (size_t i = 0; i < block.NumOps(); ++i) {
    text += block.op(i).type() + ":";
    for (const SlotList* slots : {&block.op(i).inputs(), &block.op(i).outputs()})
      ForEachPosition(*slots, [&](const std::string& name) { text += " " + name; });
    text += "\n";
  }
  return text;
}

TEST(Recompute, OptionOfAppendBackwardAndGradients) {
  Model direct(Chain);
  direct.Recompute(At({"h1", "h3"}));
  for (bool gradients : {false, true}) {
    SCOPED_TRACE(gradients ? "gradients" : "append_backward");
    ProgramDesc main, startup;
    Builder net(main, startup);
    Model feeds([](Builder& b, Model& model) { return Chain(b, model); });
    const Variable loss = Chain(net, feeds);
    BackwardOptions options;
    options.recompute = At({"h1", "h3"});
    if (!gradients) {
      options.callbacks = {ErrorClipCallback};
      AppendBackward(loss, options);
      EXPECT_EQ(OpsOf(main), OpsOf(direct.main));
      continue;
    }
    std::vector<Variable> parameters;
    for (const std::string& name : main.Parameters()) parameters.push_back(net.Var(name));
    Gradients({loss}, parameters, options);
    EXPECT_NE(OpsOf(main).find("h2@RECOMPUTED"), std::string::npos) << OpsOf(main);
  }
}

TEST(Recompute, UnknownCheckpointLeavesTheProgramAsItWas) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  Model feeds(Chain);
  const Variable loss = Chain(net, feeds);
  const std::string before = OpsOf(main);
  BackwardOptions options;
  options.recompute = At({"h9"});
  EXPECT_THROW(AppendBackward(loss, options), Error);
  EXPECT_THROW(Gradients({loss}, {net.Var("h0")}, options), Error);
  EXPECT_EQ(before, OpsOf(main));
}

// Training with an optimizer ends with the same parameters.
TEST(Recompute, TrainsToTheSameBits) {
  const auto train = [](const RecomputeOptions& recompute) {
    ProgramDesc main, startup;
    Builder net(main, startup);
    Model feeds(Images);
    const Variable loss = Images(net, feeds);
    MinimizeOptions options;
    options.recompute = recompute;
    Momentum({.learning_rate = 0.1, .momentum = 0.9}).Minimize(loss, startup, options);
    Scope scope;
    CompileOptions compile;
    compile.seed = 3;
    Executor(compile).Run(startup, scope);
    PreparedProgram step = Executor(compile).Prepare(main, {"image"}, {loss.name()});
    for (int i = 0; i < 5; ++i) step.Run(scope, {feeds.feeds.at("image")});
    std::map<std::string, Tensor> state;
    for (const std::string& name : scope.LocalNames()) state[name] = scope.Get(name).Clone();
    return state;
  };
  RecomputeOptions budget;
  budget.memory_budget = 1;
  const auto plain = train({}), named = train(At({"r1", "r3"})), chosen = train(budget);
  ASSERT_GT(plain.size(), 12u);
  for (const auto& [name, tensor] : plain) {
    EXPECT_TRUE(BitEqual(tensor, named.at(name))) << name;
    EXPECT_TRUE(BitEqual(tensor, chosen.at(name))) << name;
  }
}

// Copies are ordinary ops: gradients of gradients go through them.
TEST(Recompute, SecondOrderGoesThroughTheCopies) {
  const auto second = [](const RecomputeOptions& recompute) {
    ProgramDesc main, startup;
    Builder net(main, startup);
    Model feeds(Chain);
    const Variable loss = Chain(net, feeds), w = net.Var(main.Parameters()[0]);
    BackwardOptions options;
    options.recompute = recompute;
    const std::string first = Gradients({loss}, {w}, options)[0];
    const std::string result = Gradients({net.Var(first)}, {w})[0];
    Scope scope;
    Executor().Run(startup, scope);
    return Executor().Run(main, scope, feeds.feeds, {result})[0].Clone();
  };
  const Tensor plain = second({}), again = second(At({"h1", "h3"}));
  double largest = 0;
  for (int64_t i = 0; i < plain.numel(); ++i) {
    largest = std::max(largest, static_cast<double>(std::abs(plain.data<float>()[i])));
    EXPECT_NEAR(plain.data<float>()[i], again.data<float>()[i], 1e-6);
  }
  EXPECT_GT(largest, 1e-5);
}

// --- memory ---

// `layers` convolutions with batch norm and relu, all of one size.
Model::Build Deep(int layers, int64_t batch, int32_t channels, int64_t size) {
  return [=](Builder& net, Model& model) {
    Variable h = model.Feed(net, "image", {batch, channels, size, size});
    for (int i = 0; i < layers; ++i) {
      h = net.Conv2d(h, {.num_filters = channels, .filter_size = 3, .padding = 1});
      h = net.BatchNorm(h, {.act = "relu", .output = fmt::format("r{}", i)});
    }
    return net.Mean(h);
  };
}

TEST(Recompute, FiftyLayersInHalfTheMemory) {
  const Model::Build build = Deep(50, 2, 8, 16);
  std::vector<std::string> names;
  for (int i = 6; i < 50; i += 7) names.push_back(fmt::format("r{}", i));
  const Comparison named = ExpectSame(build, At(names));
  EXPECT_LE(2 * named.after, named.before);
  RecomputeOptions options;
  options.memory_budget = 1;
  const Comparison chosen = ExpectSame(build, options);
  EXPECT_LE(2 * chosen.after, chosen.before);
  EXPECT_GE(chosen.report.checkpoints.size(), 3u);
  EXPECT_LE(chosen.report.checkpoints.size(), 20u);
  RecordProperty("plain_bytes", std::to_string(named.before));
  RecordProperty("named_bytes", std::to_string(named.after));
  RecordProperty("chosen_bytes", std::to_string(chosen.after));
}

// The estimate keeps to the budget, and less is computed again where more memory is allowed.
TEST(Recompute, BudgetDecides) {
  const Model::Build build = Deep(30, 2, 4, 8);
  RecomputeOptions options;
  options.memory_budget = 1;
  const uint64_t total = Model(build).Recompute(options).bytes_before;
  int previous = 1 << 30;
  for (double share : {0.35, 0.5, 0.7, 0.9}) {
    SCOPED_TRACE(share);
    options.memory_budget = static_cast<uint64_t>(share * static_cast<double>(total));
    const RecomputeReport report = ExpectSame(build, options).report;
    EXPECT_LE(report.bytes_after, options.memory_budget);
    EXPECT_GT(report.ops, 0);
    EXPECT_LT(report.ops, previous);
    previous = report.ops;
  }
  options.memory_budget = total;
  EXPECT_EQ(Model(build).Recompute(options).ops, 0);
}

TEST(Recompute, UnknownBatchCountsAsTold) {
  const auto bytes = [](int64_t batch) {
    Model model([](Builder& net, Model&) {
      Variable h = net.Data("x", {-1, 8});
      for (int i = 0; i < 4; ++i) h = net.Fc(h, {.size = 8, .act = "tanh"});
      return net.Mean(h);
    });
    RecomputeOptions options;
    options.memory_budget = 1;
    options.batch_size = batch;
    return model.Recompute(options).bytes_before;
  };
  EXPECT_EQ(10 * bytes(1), bytes(10));
}

// --- random programs ---

// Chains, fan-out, names overwritten in place or not; random checkpoints.
Variable RandomNet(Builder& net, Model& model, uint32_t seed, std::vector<std::string>* names) {
  std::mt19937 random(seed);
  auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  model.Feed(net, "x", {3, 4});
  net.Parameter("p", {3, 4}, DType::kFloat32, {.name = "p"});
  net.Parameter("q", {3, 4}, DType::kFloat32, {.name = "q"});
  std::vector<std::string> live = {"x", "p", "q"};
  net.Append("elementwise_mul", {{"X", {"p"}}, {"Y", {"q"}}}, {{"Out", {"pq"}}});
  live.push_back("pq");
  const size_t ops = 10 + pick(30);
  for (size_t i = 0; i < ops; ++i) {
    const std::string a = live[pick(live.size())], b = live[pick(live.size())];
    std::string out = fmt::format("v{}", i);
    if (pick(3) == 0) out = live[3 + pick(live.size() - 3)];
    static const char* const kBinary[] = {"elementwise_add", "elementwise_mul", "elementwise_max"};
    static const char* const kUnary[] = {"tanh", "sigmoid", "square", "softsign", "dropout"};
    if (pick(2) == 0)
      net.Append(kBinary[pick(3)], {{"X", {a}}, {"Y", {b}}}, {{"Out", {out}}});
    else if (const char* type = kUnary[pick(5)]; std::string(type) == "dropout")
      net.Append(type, {{"X", {a}}}, {{"Out", {out}}, {"Mask", {fmt::format("mask{}", i)}}});
    else
      net.Append(type, {{"X", {a}}}, {{"Out", {out}}});
    net.Append("tanh", {{"X", {out}}}, {{"Out", {out}}});  // stays finite
    live.push_back(out);
    if (pick(5) == 0) names->push_back(out);
  }
  std::string total = live[0];
  for (size_t i = 1; i < live.size(); ++i) {
    const std::string sum = fmt::format("total{}", i);
    net.Append("elementwise_add", {{"X", {total}}, {"Y", {live[i]}}}, {{"Out", {sum}}});
    total = sum;
  }
  return net.Mean(Variable::Of(net.block(), total));
}

TEST(Recompute, RandomPrograms) {
  int copied = 0, saved = 0;
  for (uint32_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::vector<std::string> names;
    const Model::Build build = [&](Builder& net, Model& model) {
      names.clear();
      return RandomNet(net, model, seed, &names);
    };
    { Model once(build); }
    RecomputeOptions options = At(names);
    if (seed % 4 == 0) {
      options.checkpoints.clear();
      options.memory_budget = 1 + seed * 20;
    }
    const Comparison c = ExpectSame(build, options);
    copied += c.report.ops > 0;
    saved += c.listing.find("@SAVED") != std::string::npos;
    if (::testing::Test::HasFailure()) FAIL() << c.listing;
  }
  EXPECT_GT(copied, 60);
  EXPECT_GT(saved, 30);
}
}  // namespace coracle::recompute_test
