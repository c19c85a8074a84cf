#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>

namespace coracle::feed_test {

// feed and fetch leave moving to whoever runs the program: here the interpreter's environment.
TEST(Feed, InterpreterBindsByName) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  VarDesc& x = block.Var("x");
  x.SetShape({-1, 2});
  block.Var("feed").SetType(VarType::kFeedMinibatch);
  block.Var("fetch").SetType(VarType::kFetchList);
  block.Var("y");
  const OpDesc& feed = block.AppendOp("feed", {{"X", {"feed"}}}, {{"Out", {"x"}}}, {{"col", 0}});
  const OpDesc& copy = block.AppendOp("assign", {{"X", {"x"}}}, {{"Out", {"y"}}});
  const OpDesc& fetch = block.AppendOp("fetch", {{"X", {"y"}}}, {{"Out", {"fetch"}}}, {{"col", 0}});
  for (const OpDesc* op : {&feed, &copy, &fetch}) InferOp(block, *op, DefaultOps());
  EXPECT_EQ("[-1, 2]", block.FindVarRecursive("y")->shape().ToString());
  VarValues env;
  env["x"] = Tensor::Of<float>({2, 2}, {1, 2, 3, 4});
  Interpret(block, DefaultOps(), env);
  EXPECT_TRUE(BitEqual(Tensor::Of<float>({2, 2}, {1, 2, 3, 4}), std::get<Tensor>(env.at("y"))));
}

TEST(Feed, NegativeColumn) {
  for (const char* type : {"feed", "fetch"}) {
    ProgramDesc program;
    BlockDesc& block = program.Root();
    block.Var("a");
    block.Var("b");
    const OpDesc& op = block.AppendOp(type, {{"X", {"a"}}}, {{"Out", {"b"}}}, {{"col", -1}});
    try {
      InferOp(block, op, DefaultOps());
      ADD_FAILURE() << type;
    } catch (const Error& e) {
      EXPECT_NE(e.message().find("col must be at least 0, got -1"), std::string::npos);
    }
  }
}

}  // namespace coracle::feed_test
