// Values that do not change in a loop are computed before it.

#include <coracle/passes/passes.h>
#include <coracle/test/passes/op_program.h>

namespace coracle::hoist_invariants_test {

// h = h + x w, n times. The body assigns x to itself, as exports do.
class Loop : public OpProgram {
 public:
  explicit Loop(int rounds, bool assigns = true) {
    Data("x", {-1, 3});
    Data("h", {-1, 300});
    Parameter("w", {3, 300});
    Number("i", 0);
    Number("n", static_cast<float>(rounds));
    Append("less_than", {{"X", {"i"}}, {"Y", {"n"}}}, {{"Out", {"c"}}});
    program.AppendBlock(0);
    Inner("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"m"}}});
    Inner("tanh", {{"X", {"m"}}}, {{"Out", {"t"}}});
    Inner("elementwise_add", {{"X", {"h"}}, {"Y", {"t"}}}, {{"Out", {"s"}}});
    body().AppendOp("assign", {{"X", {"s"}}}, {{"Out", {"h"}}});
    if (assigns) body().AppendOp("assign", {{"X", {"x"}}}, {{"Out", {"x"}}});
    body().AppendOp("increment", {{"X", {"i"}}}, {{"Out", {"i"}}}, {{"step", 1.0f}});
    body().AppendOp("less_than", {{"X", {"i"}}, {"Y", {"n"}}}, {{"Out", {"c"}}});
    root().Var("scopes").SetType(VarType::kStepScopes);
    root().AppendOp("while", {{"X", {"x", "h", "w", "i", "n"}}, {"Condition", {"c"}}},
                    {{"Out", {"h", "x", "i", "c"}}, {"StepScopes", {"scopes"}}},
                    {{"sub_block", BlockRef{1}}});
    Unary("relu", "h", "y");
  }
  BlockDesc& body() { return program.Block(1); }
  void Inner(const std::string& type, SlotList in, SlotList out) {
    OpDesc& op = body().AppendOp(type, std::move(in), std::move(out));
    InferOp(body(), op, DefaultOps());
  }

 private:
  void Number(const std::string& name, float value) {
    Append("fill_constant", {}, {{"Out", {name}}},
           {{"shape", std::vector<int32_t>{1}},
            {"dtype", static_cast<int32_t>(DType::kFloat32)},
            {"value", value}});
  }
};

std::vector<std::string> TypesAfter(const Loop& loop, int block) {
  ProgramDesc program = loop.program;
  RunPasses(program, {DefaultOps(), {"x", "h"}, {"y"}}, {"hoist_invariants"});
  std::vector<std::string> types;
  if (block >= program.NumBlocks()) return types;
  program.Block(block).ForEachOp([&](const OpDesc& op) { types.push_back(op.type()); });
  return types;
}

using Types = std::vector<std::string>;

TEST(HoistInvariants, OutOfALoop) {
  for (int rounds : {0, 1, 4}) {
    Loop loop(rounds);
    EXPECT_EQ(TypesAfter(loop, 0), (Types{"fill_constant", "fill_constant", "less_than",
                                          "conditional_block", "while", "relu"}));
    EXPECT_EQ(TypesAfter(loop, 1), (Types{"elementwise_add", "assign", "increment", "less_than"}));
    EXPECT_EQ(TypesAfter(loop, 2), (Types{"mul", "tanh"}));
    loop.ExpectSame({"y"});
    loop.feeds["x"].lod() = {{0, 1, 2}};
    loop.ExpectSame({"y", "x"});
  }
}

// Each loop's own product is computed before it.
TEST(HoistInvariants, OutOfTwoLoops) {
  Loop loop(2);
  BlockDesc& second = loop.program.AppendBlock(0);
  loop.body().ForEachOp([&](const OpDesc& op) {
    second.AppendOp(op);
    InferOp(second, second.op(second.NumOps() - 1), DefaultOps());
  });
  OpDesc again = loop.root().op(3);
  again.SetAttr("sub_block", BlockRef{2});
  loop.root().InsertOp(4, again);
  EXPECT_EQ(TypesAfter(loop, 0),
            (Types{"fill_constant", "fill_constant", "less_than", "conditional_block", "while",
                   "conditional_block", "while", "relu"}));
  for (int block : {3, 4}) EXPECT_EQ(TypesAfter(loop, block), (Types{"mul", "tanh"}));
  loop.ExpectSame({"y"});
}

// If a loop does not run, operands that do not fit are not an error.
TEST(HoistInvariants, OperandsOfALoopWithoutRounds) {
  Loop loop(0);
  loop.root().FindVar("x")->SetShape({-1, -1});
  loop.feeds["x"] = OpProgram::Drawn({2, 5}).Cast(DType::kFloat32);
  loop.ExpectSame({"y"});
}

TEST(HoistInvariants, WhatChangesStays) {
  {
    Loop loop(3, false);  // x is another one in each round
    loop.body().AppendOp("scale", {{"X", {"x"}}}, {{"Out", {"x"}}}, {{"scale", 0.5f}});
    EXPECT_TRUE(TypesAfter(loop, 2).empty());
    loop.ExpectSame({"y"});
  }
  {
    Loop loop(3);  // the block of another op too
    loop.root().AppendOp(loop.root().op(3));
    EXPECT_TRUE(TypesAfter(loop, 2).empty());
  }
  {
    Loop loop(3);  // differentiated
    loop.program.AppendBlock(0).SetForwardBlockIdx(1);
    EXPECT_EQ(TypesAfter(loop, 1), (Types{"mul", "tanh", "elementwise_add", "assign", "assign",
                                          "increment", "less_than"}));
  }
  {
    Loop loop(3);  // the product is computed again
    loop.body().AppendOp("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"again"}}},
                         {{"recomputed_from", std::vector<std::string>{"m"}}});
    InferOp(loop.body(), loop.body().op(loop.body().NumOps() - 1), DefaultOps());
    EXPECT_EQ(TypesAfter(loop, 1),
              (Types{"mul", "tanh", "elementwise_add", "assign", "increment", "less_than", "mul"}));
  }
}
}  // namespace coracle::hoist_invariants_test
