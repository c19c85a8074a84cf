// Tensors of strings: who owns their bytes during and after runs.
#include <coracle/executor/executor.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/op/writer.h>
#include <coracle/framework/tensor/string_arena.h>
#include <coracle/layers/builder.h>
#include <coracle/operators/operators.h>
#include <coracle/test/executor/control_flow_net.h>
#include <gtest/gtest.h>

namespace coracle::strings_test {

using Texts = std::vector<std::string>;

// Too long to be anything but bytes in memory.
std::string Long(const std::string& text) { return text + std::string(100, '.'); }

Tensor S(const Texts& values) {
  return Tensor::OfStrings({static_cast<int64_t>(values.size())}, values);
}

TEST(StringTensors, OwnTheirBytes) {
  Tensor first = S({Long("a"), "", "b"});
  const Tensor copy = first.Clone();
  Tensor target;
  target.CopyFrom(first);
  first = S({"x"});
  EXPECT_EQ(copy.Strings(), (Texts{Long("a"), "", "b"}));
  EXPECT_EQ(target.Strings(), copy.Strings());
  target.CopyFrom(S({"1", "2", Long("3")}));
  EXPECT_EQ(target.Strings(), (Texts{"1", "2", Long("3")}));
  EXPECT_EQ(copy.Strings()[0], Long("a"));
  EXPECT_TRUE(BitEqual(S({"a", "b"}), S({"a", "b"})));
  EXPECT_FALSE(BitEqual(S({"a", "b"}), S({"a", "c"})));
  EXPECT_EQ(Tensor(DType::kString, {2}).Strings(), (Texts{"", ""}));
  Tensor floats = Tensor::Full<float>({8}, 1.5f);
  floats.Resize(DType::kString, {2});
  EXPECT_EQ(floats.Strings(), (Texts{"", ""}));
}

// One string repeated is copied once.
TEST(StringTensors, RepeatedElementsShareBytes) {
  const std::string text(1 << 20, 'x');
  const std::vector<StringRef> many(1000, StringRef{text.data(), text.size()});
  const auto limits =
      std::make_shared<ResourceLimits>(ResourceOptions{.memory = uint64_t{2} << 20});
  const ScopedLimits scoped(limits);
  const Tensor copy =
      Tensor::View(DType::kString, {1000}, const_cast<StringRef*>(many.data())).Clone();
  EXPECT_EQ(copy.span<StringRef>()[999].view(), text);
}

TEST(StringTensors, AreCountedInTheMemoryLimit) {
  const auto limits =
      std::make_shared<ResourceLimits>(ResourceOptions{.memory = uint64_t{1} << 20});
  const ScopedLimits scoped(limits);
  EXPECT_THROW(S({std::string(2 << 20, 'x')}), OutOfMemory);
  { const Tensor small = S({std::string(1000, 'x')}); }
  EXPECT_EQ(limits->bytes_in_use(), 0u);
}

// A program that feeds x and fetches x + "!" through the ops in `more`.
struct Net {
  ProgramDesc program;
  Writer writer{program.Root(), DefaultOps()};

  Variable Data(const std::string& name) {
    VarDesc& var = program.Root().Var(name);
    var.SetMeta({VarType::kLoDTensor, DType::kString, {-1}, 0});
    return writer.Var(program.Root(), var);
  }
  Variable Constant(const Texts& values) {
    return writer.Make("assign_value", {},
                       {{"dtype", static_cast<int32_t>(DType::kString)},
                        {"shape", std::vector<int32_t>{static_cast<int32_t>(values.size())}},
                        {"string_values", values}});
  }
  Variable Concat(const Variable& x, const Variable& y) {
    return writer.Make("string_concat", {{"X", {x.name()}}, {"Y", {y.name()}}});
  }
};

TEST(StringRuns, ResultsOutliveFeedsAndPrograms) {
  std::vector<Tensor> kept;
  {
    Net net;
    const Variable x = net.Data("x");
    const Variable y = net.Concat(x, net.Constant({Long("!")}));
    const Variable same = net.writer.Make("assign", {{"X", {x.name()}}});
    const Variable constant = net.Concat(net.Constant({"c"}), net.Constant({Long("d")}));
    PreparedProgram prepared =
        Executor().Prepare(net.program, {"x"}, {y.name(), same.name(), constant.name(), "x"});
    Scope scope;
    for (int run = 0; run < 3; ++run) {
      const std::vector<Tensor> feeds = {S({Long(std::to_string(run)), "b"})};
      for (const Tensor& result : prepared.Run(scope, feeds)) kept.push_back(result);
    }
  }
  for (size_t run = 0; run < 3; ++run) {
    const std::string first = Long(std::to_string(run));
    EXPECT_EQ(kept[4 * run].Strings(), (Texts{first + Long("!"), "b" + Long("!")}));
    EXPECT_EQ(kept[4 * run + 1].Strings(), (Texts{first, "b"}));
    EXPECT_EQ(kept[4 * run + 2].Strings(), (Texts{"c" + Long("d")}));
    EXPECT_EQ(kept[4 * run + 3].Strings(), (Texts{first, "b"}));
  }
}

// A persistable variable gets bytes of its own after each run, also one that fails.
TEST(StringRuns, VariablesOfTheScopeOutliveRuns) {
  Scope scope;
  {
    Net net;
    const Variable x = net.Data("x");
    VarDesc& state = net.program.Root().Var("state");
    state.SetMeta({VarType::kLoDTensor, DType::kString, {-1}, 0});
    state.SetPersistable(true);
    const Variable y = net.Concat(x, net.Constant({Long("!")}));
    net.writer.Append("assign", {{"X", {y.name()}}}, {{"Out", {"state"}}});
    net.writer.Make("cast", {{"X", {x.name()}}},
                    {{"in_dtype", 25}, {"out_dtype", static_cast<int32_t>(DType::kInt64)}});
    PreparedProgram prepared = Executor().Prepare(net.program, {"x"}, {"cast_0"});
    prepared.Run(scope, std::vector<Tensor>{S({"1", "2"})});
    EXPECT_EQ(scope.Get("state").Strings(), (Texts{"1" + Long("!"), "2" + Long("!")}));
    EXPECT_THROW(prepared.Run(scope, std::vector<Tensor>{S({"3", "no number"})}), Error);
  }
  EXPECT_EQ(scope.Get("state").Strings(), (Texts{"3" + Long("!"), "no number" + Long("!")}));
}

// A loop that makes a longer string in each turn, with arrays that are written again.
TEST(StringRuns, LoopsCarryStrings) {
  LoopNet t;
  const Variable n = t.net.Data("n", {1}, DType::kInt64);
  const Variable x = t.net.Data("x", {1}, DType::kString);
  Variable carried = t.net.Binary("string_concat", x, t.net.Data("none", {1}, DType::kString));
  t.For(n, [&](Variable) { Assign(t.net, t.net.Binary("string_concat", carried, x), carried); });
  const Variable result = t.net.Binary("string_concat", carried, x);
  for (int64_t turns : {0, 1, 30}) {
    const auto out =
        t.Run({{"n", OneInt(turns)}, {"x", S({"abc"})}, {"none", S({""})}}, {result.name()});
    std::string wanted;
    for (int64_t i = 0; i < turns + 2; ++i) wanted += "abc";
    EXPECT_EQ(out[0].Strings(), (Texts{wanted}));
  }
}

// A million runs take no more memory than a few.
TEST(StringRuns, DoNotLeak) {
  Net net;
  const Variable x = net.Data("x");
  const Variable y = net.Concat(x, net.Constant({Long("!")}));
  const auto limits = std::make_shared<ResourceLimits>(ResourceOptions{});
  const ScopedLimits scoped(limits);
  PreparedProgram prepared = Executor().Prepare(net.program, {"x"}, {y.name()});
  Scope scope;
  const std::vector<Tensor> feeds = {S(Texts(100, "a"))};
  for (int run = 0; run < 10; ++run) prepared.Run(scope, feeds);
  const uint64_t before = limits->bytes_in_use();
  for (int run = 0; run < 2000; ++run) prepared.Run(scope, feeds);
  EXPECT_EQ(limits->bytes_in_use(), before);
}

TEST(StringRuns, InterpretedResultsOwnTheirBytes) {
  Net net;
  const Variable x = net.Data("x");
  const Variable y = net.Concat(x, x), z = net.writer.Make("assign", {{"X", {x.name()}}});
  VarValues env;
  env["x"] = S({Long("a")});
  Interpret(net.program.Root(), DefaultOps(), env);
  env["x"] = Tensor();
  EXPECT_EQ(std::get<Tensor>(env[y.name()]).Strings(), (Texts{Long("a") + Long("a")}));
  EXPECT_EQ(std::get<Tensor>(env[z.name()]).Strings(), (Texts{Long("a")}));
}

TEST(StringRuns, OtherOpsRefuseStrings) {
  Net net;
  const Variable x = net.Data("x");
  const auto message = [](const auto& make) {
    try {
      make();
    } catch (const Error& e) {
      return e.message();
    }
    return std::string();
  };
  EXPECT_EQ(message([&] {
              net.writer.Make("relu", {{"X", {x.name()}}});
            }),
            "relu: the op takes no strings, and input X is 'x' string[-1]");
  EXPECT_NE(
      message([&] {
        net.writer.Make("uniform_random", {}, {{"shape", std::vector<int64_t>{2}}, {"dtype", 25}});
      }),
      "");
}

}  // namespace coracle::strings_test
