// Programs that leave types open, as files may: shape rules know them, and backward must make of
// such a program what it makes of one that says all.

#include <coracle/backward/backward.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/layers/builder.h>
#include <coracle/test/backward/message_of.h>
#include <coracle/test/backward/recurrent_ways.h>
#include <gtest/gtest.h>

#include <functional>

namespace coracle::open_types_test {

// What a file may give for a variable instead of its type.
enum class Open { kKind, kDType, kDescription };

void Leave(VarDesc& var, Open what) {
  if (what == Open::kKind) var.SetType(VarType::kRaw);
  if (what == Open::kDType) var.SetDType(static_cast<DType>(17));
  if (what == Open::kDescription) var.SetMeta({});
}

// A program with the scalar "loss".
struct Net {
  ProgramDesc main, startup;
  Builder net{main, startup};
};

void MakeConv(Net& t) {
  Builder& net = t.net;
  const Variable image = net.Data("image", {2, 1, 6, 6});
  const Variable conv = net.Conv2d(image, {.num_filters = 3, .filter_size = 3, .act = "tanh"});
  const Variable pool = net.Pool2d(conv, {.pool_size = {2}, .pool_stride = {2}});
  const Variable h = net.Fc(pool, {.size = 5, .act = "relu"});
  const Variable label = net.Data("label", {2, 1}, DType::kInt64);
  const Variable logits = net.Fc(h, {.size = 3});
  net.Mean(net.SoftmaxWithCrossEntropy(logits, label), {.output = "loss"});
}

void MakeRecurrent(Net& t, Variable (*way)(const RecurrentNet&)) {
  Builder& net = t.net;
  const int64_t n = kRnnHidden;
  auto parameter = [&](const char* name, const Shape& shape) {
    return net.Parameter(name, shape, DType::kFloat32, {.name = name});
  };
  const Variable x = net.Data("x", {kRnnSteps, kRnnBatch, kRnnInputs});
  const Variable h0 = parameter("h0", {kRnnBatch, n}), c0 = parameter("c0", {kRnnBatch, n});
  const RecurrentNet r{net,
                       true,
                       x,
                       h0,
                       c0,
                       parameter("w_input", {4 * n, kRnnInputs}),
                       parameter("w_state", {4 * n, n}),
                       parameter("b_input", {4 * n}),
                       parameter("b_state", {4 * n})};
  net.Mean(way(r), {.output = "loss"});
}

void MakeBranch(Net& t) {
  Builder& net = t.net;
  const Variable w = net.Parameter("w", {2, 3}, DType::kFloat32, {.name = "w"});
  const Variable h = net.Tanh(w);
  const Variable condition = net.Binary("less_than", FillConstant(net, {1}, DType::kInt64, 0),
                                        FillConstant(net, {1}, DType::kInt64, 1));
  If(net, condition, [&] { Assign(net, net.Mul(net.Tanh(net.Mul(h, h)), w), h); });
  net.Mean(net.Mul(h, h), {.output = "loss"});
}

void MakeLoop(Net& t) {
  Builder& net = t.net;
  const Variable w = net.Parameter("w", {2, 3}, DType::kFloat32, {.name = "w"});
  const Variable h = net.Tanh(w);
  const Variable i = FillConstant(net, {1}, DType::kInt64, 0);
  const Variable n = FillConstant(net, {1}, DType::kInt64, 3);
  const Variable more = net.Binary("less_than", i, n);
  While(net, more, [&] {
    Assign(net, net.Tanh(net.Add(net.Mul(h, h), w)), h);
    Increment(net, i);
    Assign(net, net.Binary("less_than", i, n), more);
  });
  net.Mean(net.Mul(h, h), {.output = "loss"});
}

const std::pair<const char*, std::function<void(Net&)>> kNets[] = {
    {"conv", MakeConv},
    {"rnn", [](Net& t) { MakeRecurrent(t, Fused); }},
    {"static_rnn", [](Net& t) { MakeRecurrent(t, WithStaticRnn); }},
    {"while with arrays", [](Net& t) { MakeRecurrent(t, WithWhile); }},
    {"branch", MakeBranch},
    {"loop", MakeLoop},
};

// Everything that an op writes.
std::vector<std::pair<int, std::string>> Written(const ProgramDesc& program) {
  std::vector<std::pair<int, std::string>> names;
  for (int b = 0; b < program.NumBlocks(); ++b) {
    const BlockDesc& block = program.Block(b);
    for (size_t i = 0; i < block.NumVars(); ++i) {
      const VarDesc& var = block.var(i);
      if (!block.Uses(var.name()).writers.empty() && var.type() == VarType::kLoDTensor)
        names.emplace_back(b, var.name());
    }
  }
  return names;
}

std::vector<std::string> OpsAfterBackward(ProgramDesc program) {
  for (const ParamAndGrad& pair : AppendBackward(Variable::Of(program.Root(), "loss")))
    EXPECT_NE(pair.grad, "") << pair.param;
  std::vector<std::string> types;
  for (int b = 0; b < program.NumBlocks(); ++b) {
    for (size_t i = 0; i < program.Block(b).NumOps(); ++i)
      types.push_back(program.Block(b).op(i).type());
  }
  return types;
}

class OpenTypesTest : public ::testing::TestWithParam<Open> {};

TEST_P(OpenTypesTest, OfOneVariable) {
  for (const auto& [name, make] : kNets) {
    Net t;
    make(t);
    const std::vector<std::string> ops = OpsAfterBackward(t.main);
    for (const auto& [block, var] : Written(t.main)) {
      SCOPED_TRACE(std::string(name) + " " + var);
      ProgramDesc open = t.main;
      Leave(*open.Block(block).FindVar(var), GetParam());
      EXPECT_EQ(OpsAfterBackward(ParseProgram(SerializeProgram(open))), ops);
    }
  }
}

TEST_P(OpenTypesTest, OfAllThatOpsWrite) {
  for (const auto& [name, make] : kNets) {
    SCOPED_TRACE(name);
    Net t;
    make(t);
    for (const auto& [block, var] : Written(t.main))
      Leave(*t.main.Block(block).FindVar(var), GetParam());
    CheckGradientOptions options;
    options.loss = "loss";
    const CheckGradientReport report = CheckGradient(t.main, options);
    EXPECT_TRUE(report.passed()) << report.ToString();
    for (const GradientCheck& check : report.checks) {
      EXPECT_NE(check.gradient, "") << check.var;
      EXPECT_NE(check.by_difference, 0) << check.var;
    }
    EXPECT_NE(ExplainGradient(t.main, "loss", report.checks[0].var).gradient, "");
  }
}

INSTANTIATE_TEST_SUITE_P(All, OpenTypesTest,
                         ::testing::Values(Open::kKind, Open::kDType, Open::kDescription));

// Exported models declare what only gradients read as bytes without a shape.
TEST(OpenTypes, IntermediateOutputsDeclaredAsBytes) {
  const auto dropout = [](Net& t) {
    const Variable w = t.net.Parameter("w", {2, 3}, DType::kFloat32, {.name = "w"});
    t.net.Mean(t.net.Dropout(t.net.Tanh(w), {.is_test = true}), {.output = "loss"});
  };
  const std::function<void(Net&)> nets[] = {dropout, [](Net& t) { MakeRecurrent(t, Fused); }};
  for (const auto& make : nets) {
    Net t;
    make(t);
    const std::vector<std::string> ops = OpsAfterBackward(t.main);
    int changed = 0;
    t.main.ForEachOp([&](const OpDesc& op) {
      for (const SlotDef& slot : DefaultOps().Get(op.type()).outputs) {
        if (!slot.intermediate) continue;
        for (const std::string& name : op.Output(slot.name)) {
          VarMeta bytes;
          bytes.dtype = DType::kUInt8;
          t.main.Root().FindVar(name)->SetMeta(bytes);
          ++changed;
        }
      }
    });
    EXPECT_GT(changed, 0);
    EXPECT_EQ(OpsAfterBackward(t.main), ops);
    const CheckGradientReport report = CheckGradient(t.main, {.loss = "loss"});
    EXPECT_TRUE(report.passed()) << report.ToString();
  }
}

TEST(OpenTypes, GradientsFillsInWhatItPasses) {
  Net t;
  const Variable w = t.net.Parameter("w", {2}, DType::kFloat32, {.name = "w"});
  const Variable h = t.net.Tanh(w, {.output = "h"});
  t.net.Mul(h, h, {.output = "y"});
  for (const char* name : {"h", "y"}) t.main.Root().FindVar(name)->SetType(VarType::kRaw);
  EXPECT_EQ(Gradients({t.net.Var("y")}, {w}), std::vector<std::string>{"w@GRAD"});
  EXPECT_EQ(t.main.Root().FindVar("h")->meta().ToString(), "float32[2]");
}

TEST(OpenTypes, WhatNoRuleTellsIsRefusedByName) {
  Net t;
  const Variable x = t.net.Data("x", {2}, DType::kFloat32, {.stop_gradient = false});
  const Variable w = t.net.Parameter("w", {2}, DType::kFloat32, {.name = "w"});
  t.net.Mean(t.net.Mul(x, w), {.output = "loss"});
  x.desc().SetType(VarType::kRaw);
  const ProgramDesc before = t.main;
  const std::string message = MessageOf([&] { Gradients({t.net.Var("loss")}, {x}); });
  EXPECT_NE(message.find("'x'"), std::string::npos) << message;
  EXPECT_TRUE(t.main == before);
}

TEST(OpenTypes, ADeclaredTypeThatContradictsTheOpIsNoConstant) {
  Net t;
  const Variable w = t.net.Parameter("w", {2}, DType::kFloat32, {.name = "w"});
  const Variable h = t.net.Tanh(w, {.output = "h"});
  const Variable loss = t.net.Mean(t.net.Mul(h, w), {.output = "loss"});
  h.desc().SetDType(DType::kInt64);
  const ProgramDesc before = t.main;
  const std::string message = MessageOf([&] { AppendBackward(loss); });
  EXPECT_EQ(message.find("append_backward: 'h' is declared int64[2], but tanh writes"), 0u)
      << message;
  EXPECT_TRUE(t.main == before);
}

// Each value of an overwritten variable has its type; what is declared is the last one's.
TEST(OpenTypes, AnOverwrittenVariableMayHoldAConstantInBetween) {
  for (const bool constant : {true, false}) {
    Net t;
    t.net.Parameter("w", {2}, DType::kFloat32, {.name = "w"});
    BlockDesc& root = t.main.Root();
    const auto cast = [&](const char* from, DType to, const char* out) {
      const auto dtype = static_cast<int32_t>(root.FindVar(from)->dtype());
      InferOp(root,
              root.AppendOp("cast", {{"X", {from}}}, {{"Out", {out}}},
                            {{"in_dtype", dtype}, {"out_dtype", static_cast<int32_t>(to)}}),
              DefaultOps());
    };
    cast("w", constant ? DType::kInt64 : DType::kFloat64, "h");
    cast("h", DType::kFloat32, constant ? "h" : "f");
    if (!constant) cast("h", DType::kInt64, "h");
    const Variable f = t.net.Var(constant ? "h" : "f");
    const Variable loss = t.net.Mean(t.net.Mul(f, f), {.output = "loss"});
    EXPECT_EQ(AppendBackward(loss)[0].grad, constant ? "" : "w@GRAD");
  }
}

// Only the loop lies on the way; what it overwrites was made of a variable whose type is open.
TEST(OpenTypes, AnOverwrittenVariableMadeOfAnOpenOne) {
  Net t;
  const Variable w = t.net.Parameter("w", {1}, DType::kFloat32, {.name = "w"});
  const Variable x = t.net.Data("x", {1}, DType::kFloat32), n = t.net.Data("n", {1}, DType::kInt64);
  const Variable open = t.net.Mul(x, x), h = t.net.Mul(x, x);
  Assign(t.net, open, h);
  const Variable i = FillConstant(t.net, {1}, DType::kInt64, 0);
  const Variable more = t.net.Binary("less_than", i, n);
  While(t.net, more, [&] {
    Assign(t.net, t.net.Mul(h, w), h);
    Increment(t.net, i);
    Assign(t.net, t.net.Binary("less_than", i, n), more);
  });
  open.desc().SetType(VarType::kRaw);
  EXPECT_EQ(Gradients({h}, {w}), std::vector<std::string>{"w@GRAD"});
}
}  // namespace coracle::open_types_test
