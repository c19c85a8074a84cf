#include <coracle/backward/backward.h>
#include <coracle/test/op_test.h>

#include <algorithm>

namespace coracle::spp_test {

OpTest Spp(int32_t height, const char* type) {
  OpTest test("spp");
  test.Attr("pyramid_height", height).Attr("pooling_type", std::string(type));
  return test;
}

TEST(Spp, Values) {
  // Level 1 of three columns: bins of two, one place of padding before: {1}, {2, 3}.
  const std::vector<double> x = {1, 2, 3, 4, 5, 9};
  Spp(2, "max").Input("X", {1, 1, 2, 3}, x).Expect("Out", {1, 5}, {9, 1, 3, 4, 9});
  Spp(2, "avg").Input("X", {1, 1, 2, 3}, x).Expect("Out", {1, 5}, {4, 1, 2.5, 4, 7});
  // All channels of a level side by side.
  Spp(2, "max")
      .Input("X", {1, 2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8})
      .Expect("Out", {1, 10}, {4, 8, 1, 2, 3, 4, 5, 6, 7, 8});
  // More bins than elements: some have none.
  Spp(3, "avg").Input("X", {1, 1, 1, 1}, {3}).Expect("Out", {1, 21}, {3, 0, 0, 0, 3, 0, 0,
                                                                      0, 0, 0, 0, 0, 0, 0,
                                                                      0, 3, 0, 0, 0, 0, 0});
  Spp(1, "max").Input("X", {0, 1, 1, 1}, {}).Expect("Out", {0, 1}, {});
}

TEST(Spp, Gradients) {
  std::vector<double> values(60);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i * 37 % 60) * 0.1;
  for (const char* type : {"max", "avg"}) {
    Spp(3, type).Input("X", {2, 2, 3, 5}, values).CheckGradient({"X"}).CheckHigherGradients();
    Spp(1, type).Input("X", {2, 2, 3, 5}, values).CheckGradient({"X"});
  }
}

TEST(Spp, GradientInAProgramThatNobodyHasVerified) {
  for (const int32_t height : {0, -1, 16}) {
    ProgramDesc program;
    BlockDesc& root = program.Root();
    for (const char* name : {"x", "y"}) root.Var(name).SetShape({1, 1, 4, 4});
    root.Var("loss").SetShape({1});
    root.AppendOp("spp", {{"X", {"x"}}}, {{"Out", {"y"}}}, {{"pyramid_height", height}});
    root.AppendOp("mean", {{"X", {"y"}}}, {{"Out", {"loss"}}});
    EXPECT_THROW(AppendBackward(Variable::Of(root, "loss"), {.parameter_list = {"x"}}), Error);
  }
}

TEST(Spp, Constraints) {
  Spp(1, "max").RandomInput("X", {2, 2}).ExpectError("spp.C1");
  Spp(1, "max").Input("X", {1, 1, 0, 2}, {}).ExpectError("spp.C2");
  Spp(0, "max").RandomInput("X", {1, 1, 2, 2}).ExpectError("spp.C3");
  Spp(2000000000, "max").RandomInput("X", {1, 1, 2, 2}).ExpectError("spp.C3");
}

}  // namespace coracle::spp_test
