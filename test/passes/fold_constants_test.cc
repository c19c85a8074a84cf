// Values that depend only on frozen parameters are computed once.

#include <coracle/passes/passes.h>
#include <coracle/test/passes/op_program.h>

namespace coracle::fold_constants_test {

using Ints = std::vector<int32_t>;

std::string Frozen(const OpProgram& p, const std::vector<std::string>& fetches = {"y"}) {
  return p.After({"fold_constants"}, fetches, true);
}

// y = x times the transpose of w, twice.
OpProgram Transposed() {
  OpProgram p;
  p.Data("x", {-1, 3});
  p.Parameter("w", {4, 3});
  p.Transpose("w", "t", {1, 0});
  p.Unary("scale", "t", "s", {{"scale", 2.0f}});
  p.Append("mul", {{"X", {"x"}}, {"Y", {"s"}}}, {{"Out", {"y"}}});
  return p;
}

TEST(FoldConstants, WeightsOnTheirWay) {
  OpProgram p = Transposed();
  EXPECT_EQ(Frozen(p), "Out=y = mul(X=x, Y=s@FOLDED)\n");
  p.ExpectSame({"y"});
}

TEST(FoldConstants, OnlyWhatIsFrozen) {
  OpProgram p = Transposed();
  EXPECT_EQ(p.After({"fold_constants"}, {"y"}), p.Listing());
  p.Unary("scale", "w", "w", {{"scale", 0.5f}});  // the program writes it
  EXPECT_EQ(Frozen(p), p.Listing());
}

// Nothing is left of what is read no more, and no variable either.
TEST(FoldConstants, ReleasesWhatIsReadNoMore) {
  OpProgram p = Transposed();
  FrozenValues frozen = Freeze(p.program, p.scope, {"x"});
  const PassContext context{DefaultOps(), {"x"}, {"y"}, {}, &frozen};
  RunPasses(p.program, context, {"fold_constants"});
  ASSERT_EQ(frozen.size(), 1u);
  EXPECT_EQ(frozen.begin()->first, "s@FOLDED");
  EXPECT_EQ(frozen.begin()->second.shape(), (Shape{3, 4}));
  EXPECT_EQ(p.root().FindVar("t@FOLDED"), nullptr);
}

// Readers are verified with the declared types, so that only the run can say what is wrong.
TEST(FoldConstants, ValuesThatAreNotAsDeclared) {
  OpProgram p = Transposed();
  const DType dtype = p.scope.Get("w").dtype();
  p.scope.Set("w", Tensor::Zeros(dtype, {5, 3}));
  EXPECT_EQ(Frozen(p), p.Listing());
  p.scope.Set("w", Tensor::Zeros(dtype, {}));
  EXPECT_EQ(Frozen(p), p.Listing());
}

TEST(FoldConstants, FetchedNamesKeepTheirOps) {
  OpProgram p = Transposed();
  EXPECT_EQ(Frozen(p, {"y", "s"}), "Out=s = scale(X=t@FOLDED)\nOut=y = mul(X=x, Y=s)\n");
  p.ExpectSame({"y", "s"});
  p.ExpectSame({"y", "w"});
}

TEST(FoldConstants, ConstantsAndShapesOfParameters) {
  OpProgram p;
  p.Data("x", {-1, 3});
  p.Parameter("w", {4, 3});
  p.Append("shape", {{"Input", {"w"}}}, {{"Out", {"dims"}}});
  p.Append("fill_constant", {}, {{"Out", {"two"}}},
           {{"shape", Ints{1}},
            {"dtype", static_cast<int32_t>(DType::kInt32)},
            {"str_value", std::string("2")}});
  p.Append("elementwise_mul", {{"X", {"dims"}}, {"Y", {"two"}}}, {{"Out", {"z"}}});
  p.Unary("cast", "z", "f", {{"out_dtype", static_cast<int32_t>(DType::kFloat32)}});
  p.Append("reduce_sum", {{"X", {"f"}}}, {{"Out", {"n"}}}, {{"reduce_all", true}});
  p.Append("elementwise_mul", {{"X", {"x"}}, {"Y", {"n"}}}, {{"Out", {"y"}}});
  EXPECT_EQ(Frozen(p), "Out=y = elementwise_mul(X=x, Y=n@FOLDED)\n");
  p.ExpectSame({"y"});
}

// A small parameter that fills 2 MiB: computed in each run. Where the parameter it comes from goes,
// its place may be taken.
TEST(FoldConstants, ProgramsDoNotGrow) {
  OpProgram p;
  p.Data("x", {-1, 1});
  p.Parameter("w", {1, 1024});
  p.Unary("expand", "w", "e", {{"expand_times", Ints{512, 1}}});
  p.Append("reduce_sum", {{"X", {"e"}}}, {{"Out", {"r"}}}, {{"dim", Ints{0}}, {"keep_dim", true}});
  p.Append("mul", {{"X", {"x"}}, {"Y", {"r"}}}, {{"Out", {"y"}}});
  EXPECT_EQ(Frozen(p), p.Listing());
  p.ExpectSame({"y"});

  OpProgram large;
  large.Data("x", {-1, 1024});
  large.Parameter("w", {512, 1024});
  large.Transpose("w", "t", {1, 0});
  large.Append("mul", {{"X", {"x"}}, {"Y", {"t"}}}, {{"Out", {"y"}}});
  EXPECT_EQ(Frozen(large), "Out=y = mul(X=x, Y=t@FOLDED)\n");
  // Read by somebody else too, w would be kept beside.
  large.Append("mul", {{"X", {"y"}}, {"Y", {"w"}}}, {{"Out", {"z"}}});
  EXPECT_EQ(Frozen(large, {"z"}), large.Listing());
}

// The run says what is wrong, if it gets there.
TEST(FoldConstants, WhatFails) {
  OpProgram p;
  p.Data("x", {-1, 3});
  p.Parameter("w", {4, 3});
  p.Append("fill_constant", {}, {{"Out", {"index"}}},
           {{"shape", Ints{1}},
            {"dtype", static_cast<int32_t>(DType::kInt32)},
            {"str_value", std::string("7")}});
  p.Append("gather", {{"X", {"w"}}, {"Index", {"index"}}}, {{"Out", {"g"}}});
  p.Append("elementwise_add", {{"X", {"x"}}, {"Y", {"g"}}}, {{"Out", {"y"}}});
  EXPECT_EQ(Frozen(p),
            "Out=g = gather(X=w, Index=index@FOLDED)\nOut=y = elementwise_add(X=x, Y=g)\n");
  PreparedProgram prepared = Executor().PrepareFrozen(p.program, p.scope, {"x"}, {"y"});
  EXPECT_THROW(prepared.Run(p.scope, {p.feeds["x"]}), Error);
}

// Without elements there is nothing to keep.
TEST(FoldConstants, EmptyResults) {
  OpProgram p;
  p.Data("x", {-1, 3});
  p.Parameter("w", {4, 3});
  p.Append("slice", {{"Input", {"w"}}}, {{"Out", {"none"}}},
           {{"axes", Ints{0}}, {"starts", Ints{2}}, {"ends", Ints{2}}});
  p.Append("concat", {{"X", {"x", "none"}}}, {{"Out", {"y"}}}, {{"axis", int32_t{0}}});
  EXPECT_EQ(Frozen(p), p.Listing());
  p.ExpectSame({"y"});
}

// A copy that is computed again has the bits of its original, so both are computed in the run.
TEST(FoldConstants, RecomputedCopiesAndTheirOriginalsStay) {
  OpProgram p = Transposed();
  p.Unary("scale", "t", "s2",
          {{"scale", 2.0f}, {"recomputed_from", std::vector<std::string>{"s"}}});
  p.Append("mul", {{"X", {"x"}}, {"Y", {"s2"}}}, {{"Out", {"z"}}});
  EXPECT_EQ(Frozen(p, {"y", "z"}),
            "Out=s = scale(X=t@FOLDED)\nOut=y = mul(X=x, Y=s)\nOut=s2 = scale(X=t@FOLDED)\n"
            "Out=z = mul(X=x, Y=s2)\n");
}

TEST(FoldConstants, RandomOpsStay) {
  OpProgram p;
  p.Data("x", {-1, 3});
  p.Append("gaussian_random", {}, {{"Out", {"r"}}}, {{"shape", std::vector<int64_t>{1, 3}}});
  p.Append("elementwise_add", {{"X", {"x"}}, {"Y", {"r"}}}, {{"Out", {"y"}}});
  EXPECT_EQ(Frozen(p), p.Listing());
}
// Weights that a file holds in 16 bits are widened once, whatever they grow to.
TEST(FoldConstants, WidensStoredHalves) {
  for (const DType half : {DType::kFloat16, DType::kBFloat16}) {
    OpProgram p;
    p.Data("x", {3, 1024});
    p.Parameter("h", {1024, 1024}, half);
    p.Unary("cast", "h", "w", {{"out_dtype", static_cast<int32_t>(DType::kFloat32)}});
    p.Append("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"y"}}});
    EXPECT_EQ(p.After({"fold_constants"}, {"y"}, true), "Out=y = mul(X=x, Y=w@FOLDED)\n");
    EXPECT_EQ(p.After({"fold_constants"}, {"y"}, false), p.Listing());
  }
}

}  // namespace coracle::fold_constants_test
