#include <coracle/backward/backward.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/layers/builder.h>
#include <coracle/operators/operators.h>
#include <coracle/passes/passes.h>
#include <coracle/test/passes/listing.h>
#include <coracle/test/threads.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

namespace coracle::fuse_elementwise_test {

using Names = std::vector<std::string>;

struct Net {
  ProgramDesc main, startup;
  Builder b{main, startup};

  Net& Do(const std::string& out, const std::string& type, const Names& in, AttrList attrs = {}) {
    static const char* const kSlots[] = {"X", "Y"};
    SlotList inputs;
    for (size_t i = 0; i < in.size(); ++i) inputs.push_back({kSlots[i], {in[i]}});
    b.Append(type, std::move(inputs), {{"Out", {out}}}, std::move(attrs));
    return *this;
  }
};

// The root block, and in braces the ops that a fused op runs.
std::string Fused(const ProgramDesc& program, const Names& fetches, const Names& feeds = {"x"}) {
  ProgramDesc copy = program;
  PassContext context{DefaultOps(), {feeds.begin(), feeds.end()}, {fetches.begin(), fetches.end()}};
  RunPasses(copy, context, {"fuse_elementwise"});
  std::string text = Listing(copy);
  for (size_t i = 0, at = 0; i < copy.Root().NumOps(); ++i) {
    at = text.find('\n', at);
    std::string inner;
    for (int block : copy.Root().op(i).SubBlocks()) {
      copy.Block(block).ForEachOp([&](const OpDesc& op) { inner += " " + op.type(); });
    }
    if (copy.Root().op(i).type() == "fused_elementwise") text.insert(at, " {" + inner + " }");
    at = text.find('\n', at) + 1;
  }
  return text;
}

bool IsFused(const Net& net, const Names& fetches, const Names& feeds = {"x"}) {
  return Fused(net.main, fetches, feeds).find("fused_elementwise") != std::string::npos;
}

TEST(FuseElementwise, AChain) {
  Net net;
  net.b.Data("x", {-1, 4});
  net.b.Data("b", {4});
  net.Do("a", "elementwise_add", {"x", "b"}).Do("r", "relu", {"a"}).Do("y", "square", {"r"});
  EXPECT_EQ(Listing(net.main),
            "Out=a = elementwise_add(X=x, Y=b) axis=-1\nOut=r = relu(X=a)\nOut=y = square(X=r)\n");
  EXPECT_EQ(Fused(net.main, {"y"}),
            "Out=y = fused_elementwise(X=x+b) { elementwise_add relu square }\n");
  // What is fetched, or read by others, is an output.
  EXPECT_EQ(Fused(net.main, {"y", "a"}),
            "Out=a+y = fused_elementwise(X=x+b) { elementwise_add relu square }\n");
  net.Do("m", "mean", {"r"});
  EXPECT_EQ(Fused(net.main, {"y", "m"}),
            "Out=r+y = fused_elementwise(X=x+b) { elementwise_add relu square }\n"
            "Out=m = mean(X=r)\n");
}

TEST(FuseElementwise, TheLastPlaceIsTheGroups) {
  Net net;
  net.b.Data("x", {-1, 4});
  net.b.Data("w", {4, 4});
  net.Do("a", "relu", {"x"}).Do("p", "mul", {"x", "w"}).Do("b", "tanh", {"a"});
  net.Do("c", "elementwise_add", {"b", "p"});
  EXPECT_EQ(Fused(net.main, {"c"}),
            "Out=p = mul(X=x, Y=w)\n"
            "Out=c = fused_elementwise(X=p+x) { relu tanh elementwise_add }\n");
}

// An op between the members needs an early result: two groups.
TEST(FuseElementwise, AnOpBetween) {
  Net net;
  net.b.Data("x", {-1, 4});
  net.b.Data("w", {4, 4});
  net.Do("a", "relu", {"x"}).Do("b", "tanh", {"a"}).Do("p", "mul", {"b", "w"});
  net.Do("c", "elementwise_add", {"b", "p"}).Do("d", "square", {"c"});
  EXPECT_EQ(Fused(net.main, {"d"}),
            "Out=b = fused_elementwise(X=x) { relu tanh }\n"
            "Out=p = mul(X=b, Y=w)\n"
            "Out=d = fused_elementwise(X=p+b) { elementwise_add square }\n");
}

TEST(FuseElementwise, GroupsThatMeet) {
  Net net;
  net.b.Data("x", {-1, 4});
  net.Do("a", "relu", {"x"}).Do("b", "tanh", {"x"}).Do("c", "square", {"b"});
  net.Do("d", "elementwise_mul", {"a", "c"});
  EXPECT_EQ(Fused(net.main, {"d"}),
            "Out=d = fused_elementwise(X=x) { relu tanh square elementwise_mul }\n");
}

TEST(FuseElementwise, Gradients) {
  Net net;
  const DataOptions wanted = {.stop_gradient = false};
  const Variable x = net.b.Data("x", {-1, 4}, DType::kFloat32, wanted);
  net.Do("a", "tanh", {"x"}).Do("y", "square", {"a"}).Do("m", "mean", {"y"});
  const std::string dx = Gradients({net.b.Var("m")}, {x})[0];
  const std::string text = Fused(net.main, {"m", dx});
  EXPECT_NE(text.find("{ tanh square }"), std::string::npos) << text;
  EXPECT_NE(text.find("{ square_grad tanh_grad }"), std::string::npos) << text;
}

// Where no op needs the result between, forward and backward are one group.
TEST(FuseElementwise, ForwardAndBackward) {
  Net net;
  const DataOptions wanted = {.stop_gradient = false};
  const Variable x = net.b.Data("x", {-1, 4}, DType::kFloat32, wanted);
  net.b.Data("g", {-1, 4});
  net.Do("a", "tanh", {"x"}).Do("y", "square", {"a"});
  GradientsOptions options;
  options.target_gradients = {"g"};
  const std::string dx = Gradients({net.b.Var("y")}, {x}, options)[0];
  const std::string text = Fused(net.main, {"y", dx}, {"x", "g"});
  EXPECT_NE(text.find("{ tanh square square_grad tanh_grad }"), std::string::npos) << text;
}

TEST(FuseElementwise, NearMisses) {
  {  // a single op
    Net net;
    net.b.Data("x", {-1, 4});
    EXPECT_FALSE(IsFused(net.Do("y", "relu", {"x"}), {"y"}));
  }
  {  // an op of another kind between them
    Net net;
    net.b.Data("x", {-1, 4});
    net.Do("a", "relu", {"x"}).Do("s", "softmax", {"a"}).Do("y", "square", {"s"});
    EXPECT_FALSE(IsFused(net, {"y"}));
  }
  {  // random numbers
    Net net;
    net.b.Data("x", {-1, 4});
    net.b.Append("dropout", {{"X", {"x"}}}, {{"Out", {"a"}}, {"Mask", {"m"}}});
    EXPECT_FALSE(IsFused(net.Do("y", "relu", {"a"}), {"y"}));
  }
  {  // results of another shape
    Net net;
    net.b.Data("x", {5000});
    net.b.Data("z", {3, 5000});
    net.Do("a", "relu", {"x"}).Do("y", "elementwise_add", {"z", "a"});
    EXPECT_FALSE(IsFused(net, {"y"}, {"x", "z"}));
  }
  {  // what is written is persistable
    Net net;
    net.b.Data("x", {-1, 4});
    net.Do("a", "relu", {"x"}).Do("y", "square", {"a"});
    net.main.Root().FindVar("a")->SetPersistable(true);
    EXPECT_FALSE(IsFused(net, {"y"}));
  }
  {  // written twice
    Net net;
    net.b.Data("x", {-1, 4});
    net.Do("a", "relu", {"x"}).Do("y", "square", {"a"}).Do("a", "tanh", {"x"});
    EXPECT_FALSE(IsFused(net, {"y", "a"}));
  }
  {  // in place
    Net net;
    net.b.Data("x", {-1, 4});
    net.Do("a", "assign", {"x"}).Do("a", "relu", {"a"}).Do("a", "square", {"a"});
    EXPECT_FALSE(IsFused(net, {"a"}));
  }
  {  // few elements
    Net net;
    net.b.Data("x", {64, 64});
    EXPECT_FALSE(IsFused(net.Do("a", "relu", {"x"}).Do("y", "square", {"a"}), {"y"}));
  }
  {  // updates
    Net net;
    net.b.Data("x", {-1, 4});
    net.Do("a", "relu", {"x"}).Do("y", "square", {"a"});
    net.main.Root().ForEachOp([](OpDesc& op) { op.SetAttr(kOpRoleAttr, int32_t{kOptimize}); });
    EXPECT_FALSE(IsFused(net, {"y"}));
  }
  {  // numbers that the planner knows
    Net net;
    net.b.Data("x", {-1, 4});
    net.b.Append("shape", {{"Input", {"x"}}}, {{"Out", {"s"}}});
    net.Do("a", "scale", {"s"}, {{"scale", 2.0f}}).Do("y", "scale", {"a"}, {{"scale", 2.0f}});
    EXPECT_FALSE(IsFused(net, {"y"}));
  }
  {  // between them the input is overwritten
    Net net;
    net.b.Data("x", {-1, 4});
    net.Do("p", "assign", {"x"}).Do("a", "relu", {"p"});
    net.b.Append("assign", {{"X", {"x"}}}, {{"Out", {"p"}}});
    net.Do("y", "square", {"a"});
    EXPECT_FALSE(IsFused(net, {"y", "p"}));
  }
}

// --- results ---

Tensor Random(const Shape& shape, uint32_t seed, DType dtype = DType::kFloat32) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-2, 2);
  Tensor value(DType::kFloat64, shape);
  for (double& v : value.span<double>()) v = uniform(random);
  return value.Cast(dtype);
}

// The executor gives the same bits with the pass and without any, with one thread and two.
void ExpectSame(const ProgramDesc& program, const Names& feeds, const std::vector<Tensor>& values,
                const Names& fetches) {
  for (int threads : {1, 2}) {
    const Threads scope(threads);
    std::vector<std::vector<Tensor>> results;
    for (bool optimize : {false, true}) {
      CompileOptions options;
      options.optimize = optimize;
      Scope scope_of_run;
      PreparedProgram prepared = Executor(options).Prepare(program, feeds, fetches);
      for (int run = 0; run < 2; ++run) {
        results.emplace_back();
        for (const Tensor& value : prepared.Run(scope_of_run, values)) {
          results.back().push_back(value.Clone());
          results.back().back().lod() = value.lod();
        }
      }
    }
    for (const auto& result : results) {
      for (size_t i = 0; i < fetches.size(); ++i) {
        EXPECT_TRUE(BitEqual(results[0][i], result[i])) << fetches[i];
        EXPECT_EQ(results[0][i].lod(), result[i].lod()) << fetches[i];
      }
    }
  }
}

// sigmoid((relu(1.1 x + y) - z) x), and its gradients; most of it may be done in place.
void Six(Net& net, const Shape& shape, DType dtype, Names* fetches) {
  const DataOptions wanted = {.stop_gradient = false};
  const Variable x = net.b.Data("x", shape, dtype, wanted),
                 y = net.b.Data("y", shape, dtype, wanted),
                 z = net.b.Data("z", shape, dtype, wanted);
  net.Do("a", "scale", {"x"}, {{"scale", 1.1f}}).Do("b", "elementwise_add", {"a", "y"});
  net.Do("c", "relu", {"b"}).Do("d", "elementwise_sub", {"c", "z"});
  net.Do("e", "elementwise_mul", {"d", "x"}).Do("f", "sigmoid", {"e"});
  *fetches = Gradients({net.b.Var("f")}, {x, y, z});
  fetches->push_back("f");
}

TEST(FuseElementwise, SameBits) {
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16}) {
    for (const Shape& declared : {Shape{-1, 50}, Shape{300, 50}}) {
      Net net;
      Names fetches;
      Six(net, declared, dtype, &fetches);
      EXPECT_TRUE(IsFused(net, fetches, {"x", "y", "z"}));
      const Shape s{300, 50};
      ExpectSame(net.main, {"x", "y", "z"},
                 {Random(s, 1, dtype), Random(s, 2, dtype), Random(s, 3, dtype)}, fetches);
    }
  }
}

// Of unknown dims some turn out to be 1: the group is not what it was taken for.
TEST(FuseElementwise, UnknownDimsThatDiffer) {
  Net net;
  const DataOptions wanted = {.stop_gradient = false};
  const Variable x = net.b.Data("x", {-1, 50}, DType::kFloat32, wanted);
  const Variable y = net.b.Data("y", {-1, 50}, DType::kFloat32, wanted);
  net.Do("a", "tanh", {"x"}).Do("b", "elementwise_mul", {"a", "y"}).Do("c", "square", {"b"});
  Names fetches = Gradients({net.b.Var("c")}, {x, y});
  fetches.push_back("c");
  EXPECT_TRUE(IsFused(net, fetches, {"x", "y"}));
  for (int64_t rows : {0, 1, 5, 400}) {
    ExpectSame(net.main, {"x", "y"}, {Random({rows, 50}, 1), Random({1, 50}, 2)}, fetches);
    ExpectSame(net.main, {"x", "y"}, {Random({1, 50}, 1), Random({rows, 50}, 2)}, fetches);
    ExpectSame(net.main, {"x", "y"}, {Random({rows, 50}, 1), Random({rows, 50}, 2)}, fetches);
  }
}

TEST(FuseElementwise, Lod) {
  Net net;
  net.b.Data("x", {-1, 2}, DType::kFloat32, {.lod_level = 1});
  net.b.Data("y", {-1, 2}, DType::kFloat32, {.lod_level = 1});
  net.Do("a", "relu", {"y"}).Do("b", "elementwise_add", {"a", "x"}).Do("c", "tanh", {"b"});
  net.Do("d", "elementwise_add", {"x", "a"});
  EXPECT_EQ(Fused(net.main, {"a", "c", "d"}, {"x", "y"}),
            "Out=a+c+d = fused_elementwise(X=y+x) { relu elementwise_add tanh elementwise_add }\n");
  Tensor x = Random({5, 2}, 1), y = Random({5, 2}, 2);
  x.lod() = {{0, 2, 5}};
  ExpectSame(net.main, {"x", "y"}, {x, y}, {"a", "c", "d"});
  y.lod() = {{0, 1, 1, 5}};
  ExpectSame(net.main, {"x", "y"}, {x, y}, {"a", "c", "d"});
}

// A sequence op asks for the LoD of what was computed.
TEST(FuseElementwise, LodThatIsAskedFor) {
  Net net;
  net.b.Data("x", {-1, 2}, DType::kFloat32, {.lod_level = 1});
  net.Do("a", "relu", {"x"}).Do("b", "square", {"a"});
  net.b.Append("sequence_pool", {{"X", {"b"}}}, {{"Out", {"p"}}},
               {{"pooltype", std::string("SUM")}});
  EXPECT_TRUE(IsFused(net, {"p"}));
  Tensor x = Random({5, 2}, 1);
  x.lod() = {{0, 2, 5}};
  ExpectSame(net.main, {"x"}, {x}, {"p"});
}

TEST(FuseElementwise, Broadcasts) {
  Net net;
  net.b.Data("x", {-1, 6, 20, 20});
  net.b.Data("channel", {6});
  net.b.Data("row", {-1, 1, 1, 1});
  net.b.Data("point", {20, 20});
  const AttrList along_channels = {{"axis", int32_t{1}}};
  net.Do("a", "elementwise_mul", {"x", "channel"}, along_channels).Do("b", "relu", {"a"});
  net.Do("c", "elementwise_add", {"b", "row"}).Do("d", "elementwise_sub", {"c", "point"});
  EXPECT_TRUE(IsFused(net, {"d"}));
  const Names feeds = {"x", "channel", "row", "point"};
  for (int64_t n : {1, 7}) {
    ExpectSame(
        net.main, feeds,
        {Random({n, 6, 20, 20}, 1), Random({6}, 2), Random({n, 1, 1, 1}, 3), Random({20, 20}, 4)},
        {"b", "d"});
  }
}

TEST(FuseElementwise, CastsComparisonsAndSelections) {
  for (DType dtype : {DType::kFloat32, DType::kFloat64}) {
    Net net;
    const Variable x = net.b.Data("x", {-1, 70}, dtype), y = net.b.Data("y", {-1, 70}, dtype);
    const Variable more = And(Greater(x, y), Not(Less(x, 0.0)));
    const Variable chosen = Where(more, Square(x), y);
    const Variable whole = Cast(chosen, DType::kInt64);
    const Variable back = Cast(whole + whole, dtype);
    const Names fetches = {more.name(), chosen.name(), whole.name(), back.name()};
    EXPECT_TRUE(IsFused(net, fetches, {"x", "y"}));
    for (int64_t rows : {0, 1, 3, 200}) {
      ExpectSame(net.main, {"x", "y"}, {Random({rows, 70}, 1, dtype), Random({rows, 70}, 2, dtype)},
                 fetches);
    }
  }
}

// Sub-blocks stay as they are. What they read of a group is one of its outputs.
TEST(FuseElementwise, SubBlocks) {
  Net net;
  const Variable x = net.b.Data("x", {-1, 70});
  net.Do("a", "relu", {"x"}).Do("b", "square", {"a"}).Do("c", "tanh", {"b"});
  const Variable a = net.b.Var("a"), c = net.b.Var("c");
  const Variable positive = Greater(Mean(c), 0.5);
  Cond(
      net.b, positive, [&] { return std::vector<Variable>{Square(Square(a))}; },
      [&] { return std::vector<Variable>{a + c}; }, {"d"});
  EXPECT_TRUE(IsFused(net, {"d"}));
  for (uint32_t seed = 0; seed < 4; ++seed)
    ExpectSame(net.main, {"x"}, {Random({100, 70}, seed)}, {"c", "d"});
}

// Activations are computed again by copies of ops, which compute the same bits in a group.
TEST(FuseElementwise, RecomputedCopies) {
  std::vector<std::vector<Tensor>> results;
  for (bool again : {false, true}) {
    for (bool optimize : {false, true}) {
      Net net;
      const Variable x = net.b.Data("x", {-1, 90}, DType::kFloat32, {.stop_gradient = false});
      net.Do("a", "scale", {"x"}, {{"scale", 1.5f}}).Do("b", "tanh", {"a"});
      net.Do("c", "elementwise_mul", {"b", "x"}).Do("d", "sigmoid", {"c"});
      net.b.Append("softmax", {{"X", {"d"}}}, {{"Out", {"e"}}});
      net.Do("f", "square", {"e"}).Do("g", "tanh", {"f"});
      const Variable loss = net.b.Mean(net.b.Var("g"), {.output = "loss"});
      BackwardOptions options;
      if (again) options.recompute.checkpoints = {"d"};
      AppendBackward(loss, options);
      const Names fetches = {"loss", x.name() + "@GRAD"};
      int fused = 0;
      ProgramDesc copy = net.main;
      RunPasses(copy, {DefaultOps(), {"x"}, {fetches.begin(), fetches.end()}},
                {"fuse_elementwise"});
      for (size_t i = 0; i < copy.Root().NumOps(); ++i)
        fused += copy.Root().op(i).type() == "fused_elementwise";
      EXPECT_GE(fused, 3) << Listing(copy);
      CompileOptions compile;
      compile.optimize = optimize;
      Scope scope;
      PreparedProgram prepared = Executor(compile).Prepare(net.main, {"x"}, fetches);
      results.emplace_back();
      for (const Tensor& value : prepared.Run(scope, {Random({200, 90}, 3)}))
        results.back().push_back(value.Clone());
    }
  }
  for (const auto& result : results) {
    for (size_t i = 0; i < result.size(); ++i) EXPECT_TRUE(BitEqual(results[0][i], result[i])) << i;
  }
}

// Random groups: ops of random types on random variables, some of them stretched, some fetched.
// Between groups stands a softmax, so that their inputs die, and results may have their memory.
TEST(FuseElementwise, RandomPrograms) {
  static const char* const kUnary[] = {"relu", "tanh", "square", "sigmoid", "abs"};
  static const char* const kBinary[] = {"elementwise_add", "elementwise_mul", "elementwise_max",
                                        "elementwise_sub"};
  int fused = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](size_t n) { return random() % n; };
    const Shape shapes[] = {{70000}, {140, 500}, {3, 25, 30, 30}, {2}, {20, 12, 300}};
    const Shape shape = shapes[below(5)];
    Net net;
    Names feeds, full, all, fetches;
    std::vector<Tensor> values;
    for (size_t i = 0; i < 3; ++i) {
      Shape own = shape;
      for (int d = 0; i == 2 && d < own.rank(); ++d) {
        if (below(2) == 0) own[d] = 1;
      }
      feeds.push_back(fmt::format("in{}", i));
      net.b.Data(feeds.back(), own);
      values.push_back(Random(own, seed + static_cast<uint32_t>(i)));
      all.push_back(feeds.back());
      if (own == shape) full.push_back(feeds.back());
    }
    for (size_t i = 0; i < 4 + below(12); ++i) {
      const std::string out = fmt::format("v{}", i);
      if (below(6) == 0)
        net.Do(out, "softmax", {full[below(full.size())]});
      else if (below(3) == 0)
        net.Do(out, kUnary[below(5)], {full[below(full.size())]});
      else
        net.Do(out, kBinary[below(4)], {full[below(full.size())], all[below(all.size())]});
      full.push_back(out);
      all.push_back(out);
      if (below(4) == 0) fetches.push_back(out);
    }
    fetches.push_back(all.back());
    fused += IsFused(net, fetches, feeds);
    SCOPED_TRACE(fmt::format("seed {}", seed));
    ExpectSame(net.main, feeds, values, fetches);
    if (::testing::Test::HasFailure()) break;
  }
  EXPECT_GT(fused, 80);
}
}  // namespace coracle::fuse_elementwise_test
