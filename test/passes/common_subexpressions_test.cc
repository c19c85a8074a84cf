// Equal computations are done once.

#include <coracle/test/passes/op_program.h>

namespace coracle::common_subexpressions_test {

using Ints = std::vector<int32_t>;

std::string After(const OpProgram& p, const std::vector<std::string>& fetches = {"y"}) {
  return p.After({"common_subexpressions"}, fetches);
}

void Add(OpProgram& p, const std::string& x, const std::string& y, const std::string& out) {
  p.Append("elementwise_add", {{"X", {x}}, {"Y", {y}}}, {{"Out", {out}}});
}

TEST(CommonSubexpressions, AreJoined) {
  OpProgram p;
  p.Data("x", {-1, 3});
  p.Unary("sigmoid", "x", "a");
  p.Unary("sigmoid", "x", "b");
  p.Unary("scale", "a", "c", {{"scale", 2.0f}});
  p.Unary("scale", "b", "d", {{"scale", 2.0f}});
  Add(p, "c", "d", "y");
  EXPECT_EQ(After(p),
            "Out=a = sigmoid(X=x)\nOut=c = scale(X=a)\nOut=y = elementwise_add(X=c, Y=c)\n");
  p.ExpectSame({"y"});
}

TEST(CommonSubexpressions, NearMisses) {
  {  // another attr
    OpProgram p;
    p.Data("x", {-1, 3});
    p.Unary("scale", "x", "a", {{"scale", 2.0f}});
    p.Unary("scale", "x", "b", {{"scale", 2.0000002f}});
    Add(p, "a", "b", "y");
    EXPECT_EQ(After(p), p.Listing());
  }
  for (const char* with : {"a", "b"}) {  // an attr that only one of them has
    OpProgram p;
    p.Data("x", {-1, 3});
    for (const char* out : {"a", "b"})
      p.Unary("scale", "x", out,
              std::string_view(out) == with ? AttrList{{"scale", 2.0f}} : AttrList());
    Add(p, "a", "b", "y");
    EXPECT_EQ(After(p), p.Listing());
    p.ExpectSame({"y"});
  }
  {  // another input, and inputs that change places
    OpProgram p;
    p.Data("x", {-1, 3});
    p.Data("z", {-1, 3});
    Add(p, "x", "z", "a");
    Add(p, "z", "x", "b");
    p.Append("elementwise_sub", {{"X", {"a"}}, {"Y", {"b"}}}, {{"Out", {"y"}}});
    EXPECT_EQ(After(p), p.Listing());
  }
  {  // fetched, persistable
    OpProgram p;
    p.Data("x", {-1, 3});
    p.Unary("sigmoid", "x", "a");
    p.Unary("sigmoid", "x", "b");
    Add(p, "a", "b", "y");
    EXPECT_EQ(After(p, {"y", "b"}), p.Listing());
    EXPECT_EQ(After(p, {"y", "a"}), p.Listing());
    p.root().FindVar("b")->SetPersistable(true);
    EXPECT_EQ(After(p), p.Listing());
  }
  {  // declared otherwise
    OpProgram p;
    p.Data("x", {-1, 3});
    p.Unary("sigmoid", "x", "a");
    p.Unary("sigmoid", "x", "b");
    p.root().FindVar("b")->SetShape({-1, -1});
    Add(p, "a", "b", "y");
    EXPECT_EQ(After(p), p.Listing());
  }
  {  // computed again on purpose
    OpProgram p;
    p.Data("x", {-1, 3});
    p.Unary("sigmoid", "x", "a");
    p.Unary("sigmoid", "x", "b", {{"recomputed_from", std::vector<std::string>{"a"}}});
    Add(p, "a", "b", "y");
    EXPECT_EQ(After(p), p.Listing());
    p.Unary("sigmoid", "x", "c");  // as the original is
    Add(p, "y", "c", "z");
    EXPECT_EQ(After(p, {"z"}), p.Listing());
  }
  {  // 0 and -0, as an attr and in a list
    OpProgram p;
    for (const float zero : {0.0f, -0.0f}) {
      const std::string sign = std::signbit(zero) ? "minus" : "plus";
      const auto dtype = static_cast<int32_t>(DType::kFloat32);
      p.Append("fill_constant", {}, {{"Out", {sign}}},
               {{"shape", Ints{1}}, {"dtype", dtype}, {"value", zero}});
      p.Append("assign_value", {}, {{"Out", {sign + "s"}}},
               {{"shape", Ints{1}}, {"dtype", dtype}, {"fp32_values", std::vector<float>{zero}}});
      Add(p, sign, sign + "s", sign + "_sum");
    }
    p.Append("elementwise_div", {{"X", {"plus_sum"}}, {"Y", {"minus_sum"}}}, {{"Out", {"y"}}});
    EXPECT_EQ(After(p), p.Listing());
  }
  {  // a name that looks like two inputs
    OpProgram p;
    const std::string long_name = "a\nMin 0 0 m";
    p.Data("a", {-1, 3});
    p.Data("m", {1});
    p.Data(long_name, {-1, 3});
    p.Append("clip", {{"X", {long_name}}}, {{"Out", {"c"}}}, {{"min", -9.0f}, {"max", 9.0f}});
    p.Append("clip", {{"X", {"a"}}, {"Min", {"m"}}}, {{"Out", {"d"}}},
             {{"min", -9.0f}, {"max", 9.0f}});
    Add(p, "c", "d", "y");
    EXPECT_EQ(After(p), p.Listing());
  }
}

// The input has another value then.
TEST(CommonSubexpressions, AfterTheInputWasWritten) {
  OpProgram p;
  p.Data("x", {-1, 3});
  p.Unary("relu", "x", "h");
  p.Unary("sigmoid", "h", "a");
  p.Unary("scale", "h", "h", {{"scale", 2.0f}});
  p.Unary("sigmoid", "h", "b");
  p.Unary("sigmoid", "h", "c");
  Add(p, "a", "b", "d");
  Add(p, "d", "c", "y");
  EXPECT_EQ(After(p),
            "Out=h = relu(X=x)\nOut=a = sigmoid(X=h)\nOut=h = scale(X=h)\nOut=b = sigmoid(X=h)\n"
            "Out=d = elementwise_add(X=a, Y=b)\nOut=y = elementwise_add(X=d, Y=b)\n");
  p.ExpectSame({"y"});
}

TEST(CommonSubexpressions, AfterASubBlockWroteTheInput) {
  OpProgram p;
  p.Data("x", {-1, 3});
  p.Data("c", {1}, DType::kBool);
  p.Unary("relu", "x", "h");
  p.Unary("sigmoid", "h", "a");
  BlockDesc& inner = p.program.AppendBlock(0);
  inner.AppendOp("scale", {{"X", {"h"}}}, {{"Out", {"h"}}}, {{"scale", 2.0f}});
  p.root().Var("scopes").SetType(VarType::kStepScopes);
  p.root().AppendOp("conditional_block", {{"Cond", {"c"}}, {"Input", {"h"}}},
                    {{"Out", {"h"}}, {"Scope", {"scopes"}}},
                    {{"sub_block", BlockRef{1}}, {"is_scalar_condition", true}});
  p.Unary("sigmoid", "h", "b");
  Add(p, "a", "b", "y");
  EXPECT_EQ(After(p), p.Listing());
  for (bool c : {true, false}) {
    p.feeds["c"] = Tensor::Full<bool>({1}, c);
    p.ExpectSame({"y"});
  }
}

TEST(CommonSubexpressions, RandomOps) {
  OpProgram p;
  for (const char* name : {"a", "b"})
    p.Append("gaussian_random", {}, {{"Out", {name}}}, {{"shape", std::vector<int64_t>{2, 3}}});
  Add(p, "a", "b", "y");
  EXPECT_EQ(After(p), p.Listing());
  p.ExpectSame({"y"});
}

// Small constants are joined; a large one would be kept all the time.
TEST(CommonSubexpressions, Constants) {
  for (const auto& [rows, joined] : {std::pair{3, true}, std::pair{65537, false}}) {
    OpProgram p;
    for (const char* name : {"a", "b"}) {
      p.Append("fill_constant", {}, {{"Out", {name}}},
               {{"shape", Ints{rows}},
                {"dtype", static_cast<int32_t>(DType::kFloat32)},
                {"value", 2.0f}});
    }
    Add(p, "a", "b", "y");
    EXPECT_EQ(After(p) != p.Listing(), joined) << rows;
    p.ExpectSame({"y"});
  }
}

TEST(CommonSubexpressions, SeveralOutputs) {
  OpProgram p;
  p.Data("x", {-1, 4});
  for (const std::string name : {"a", "b"}) {
    p.Append("split", {{"X", {"x"}}}, {{"Out", {name + "0", name + "1"}}},
             {{"axis", int32_t{1}}, {"num", int32_t{2}}});
  }
  Add(p, "a0", "b1", "y");
  EXPECT_EQ(After(p), "Out=a0+a1 = split(X=x) axis=1\nOut=y = elementwise_add(X=a0, Y=a1)\n");
  p.ExpectSame({"y"});
}

TEST(CommonSubexpressions, KeepsLoD) {
  OpProgram p;
  p.Data("x", {3, 2});
  p.feeds["x"].lod() = {{0, 1, 3}};
  p.Unary("sigmoid", "x", "a");
  p.Unary("sigmoid", "x", "b");
  Add(p, "a", "b", "y");
  p.ExpectSame({"y"});
}
}  // namespace coracle::common_subexpressions_test
