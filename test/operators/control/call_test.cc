// The constraints of `call`; what it computes, and its gradients: test/backward/function_test.cc.

#include <coracle/framework/base/error.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>

namespace coracle::call_test {

using Names = std::vector<std::string>;

class CallTest : public ::testing::Test {
 protected:
  CallTest() {
    program.Root().Var("x").SetShape({2});
    BlockDesc& f = program.AppendBlock(program.Root());
    for (const char* name : {"p", "r"}) f.Var(name).SetShape({2});
  }
  std::string Message(Names x, Names parameters, Names out, Names results, AttrList more = {}) {
    more.push_back({"sub_block", BlockRef{1}});
    more.push_back({"parameters", std::move(parameters)});
    more.push_back({"results", std::move(results)});
    OpDesc& op = program.Root().AppendOp("call", {{"X", std::move(x)}}, {{"Out", std::move(out)}},
                                         std::move(more));
    try {
      InferOp(program.Root(), op, DefaultOps());
    } catch (const Error& e) {
      return e.message();
    }
    return "";
  }
  ProgramDesc program;
};

TEST_F(CallTest, TypesOfResultsAreThoseOfTheBlock) {
  EXPECT_EQ(Message({"x"}, {"p"}, {"y"}, {"r"}), "");
  EXPECT_EQ(program.Root().FindVar("y")->shape(), Shape{2});
}

TEST(Call, Gradient) { GradientIsCheckedIn("call", "test/backward/function_test.cc"); }

TEST_F(CallTest, C1_NumberOfParameters) {
  ExpectConstraint(Message({"x"}, {}, {"y"}, {"r"}), "call.C1");
}
TEST_F(CallTest, C2_NumberOfResults) {
  ExpectConstraint(Message({"x"}, {"p"}, {"y"}, {"r", "p"}), "call.C2");
}
TEST_F(CallTest, C3_VariablesOfTheBlock) {
  ExpectConstraint(Message({"x"}, {"x"}, {"y"}, {"r"}), "call.C3");
  ExpectConstraint(Message({"x"}, {"p"}, {"y"}, {"nothing"}), "call.C3");
}
TEST_F(CallTest, C4_NamedTwice) {
  ExpectConstraint(Message({"x", "x"}, {"p", "p"}, {"y"}, {"r"}), "call.C4");
}
TEST_F(CallTest, C5_GradientGivenTwice) {
  ExpectConstraint(
      Message({"x"}, {"p"}, {"y"}, {"r"},
              {{"gradient_block", BlockRef{1}}, {"gradient_function", std::string("mine")}}),
      "call.C5");
}
TEST_F(CallTest, C6_TypesOfArguments) {
  program.Root().FindVar("x")->SetShape({3});
  ExpectConstraint(Message({"x"}, {"p"}, {"y"}, {"r"}), "call.C6");
}
}  // namespace coracle::call_test
