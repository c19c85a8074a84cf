#include <coracle/executor/executor.h>
#include <coracle/test/op_test.h>
#include <gtest/gtest.h>

namespace coracle::marker_test {

TEST(Marker, AProgramRunsAsWithoutThem) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  root.Var("x").SetShape({2});
  root.Var("y").SetShape({2});
  root.Var("places").SetType(VarType::kPlaceList);
  root.AppendOp("marker", {}, {}, {{"marker_role", std::string("backward")}});
  root.AppendOp("get_places", {}, {{"Out", {"places"}}});
  root.AppendOp("scale", {{"X", {"x"}}}, {{"Out", {"y"}}}, {{"scale", 2.f}});
  root.AppendOp("delete_var", {{"X", {"x", "places"}}}, {});
  VerifyOrThrow(program, DefaultOps());
  Scope scope;
  Executor executor;
  const std::vector<Tensor> got =
      executor.Run(program, scope, {{"x", Tensor::Of<float>({2}, {1, 2})}}, {"y"});
  EXPECT_TRUE(BitEqual(got.at(0), Tensor::Of<float>({2}, {2, 4})));
}
}  // namespace coracle::marker_test
