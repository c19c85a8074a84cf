// Ops that pass on their input are gone, and those that only look so stay.

#include <coracle/passes/passes.h>
#include <coracle/test/passes/op_program.h>

namespace coracle::remove_identities_test {

using Ints = std::vector<int32_t>;
constexpr int32_t kAll = std::numeric_limits<int32_t>::max();

std::string After(const OpProgram& p, const std::vector<std::string>& fetches = {"y"}) {
  return p.After({"remove_identities"}, fetches);
}

// Whether relu, which reads what the op makes of x, then reads x.
bool IsRemoved(const Shape& shape, const std::string& type, AttrList attrs,
               DType dtype = DType::kFloat32, const char* slot = "X") {
  OpProgram p;
  p.Data("x", shape, dtype);
  p.Append(type, {{slot, {"x"}}}, {{"Out", {"m"}}}, std::move(attrs));
  p.Unary("relu", "m", "y");
  p.ExpectSame({"y"});
  return After(p) == "Out=y = relu(X=x)\n";
}

AttrList Dropout(bool is_test, const char* kind, float probability = 0.5f) {
  return {{"is_test", is_test},
          {"dropout_implementation", std::string(kind)},
          {"dropout_prob", probability}};
}

TEST(RemoveIdentities, OfOneOp) {
  EXPECT_TRUE(IsRemoved({-1, 3}, "assign", {}));
  EXPECT_TRUE(IsRemoved({-1, 3}, "share_data", {}));
  EXPECT_TRUE(IsRemoved({-1, 3}, "scale", {{"scale", 1.0f}}));
  EXPECT_TRUE(IsRemoved({-1, 3}, "cast", {{"out_dtype", static_cast<int32_t>(DType::kFloat32)}}));
  EXPECT_TRUE(IsRemoved({-1, 3}, "dropout", Dropout(true, "upscale_in_train")));
  EXPECT_TRUE(IsRemoved({-1, 3}, "dropout", Dropout(true, "downgrade_in_infer", 0)));
  EXPECT_TRUE(IsRemoved({-1, 3}, "concat", {{"axis", int32_t{1}}}));
  EXPECT_TRUE(IsRemoved({-1, 3}, "sum", {}));
  EXPECT_TRUE(IsRemoved({-1, 3}, "pad", {{"paddings", Ints{0, 0, 0, 0}}}));
  EXPECT_TRUE(IsRemoved({-1, 3, 4, 4}, "pad2d", {}));
  EXPECT_TRUE(IsRemoved({-1, 3}, "slice",
                        {{"axes", Ints{1}}, {"starts", Ints{0}}, {"ends", Ints{kAll}}},
                        DType::kFloat32, "Input"));
  EXPECT_TRUE(IsRemoved({-1, 3}, "expand", {{"expand_times", Ints{1, 1}}}));
  EXPECT_TRUE(IsRemoved({-1, 3}, "expand_v2", {{"shape", Ints{-1, -1}}}));
  EXPECT_TRUE(IsRemoved({-1, 3}, "unsqueeze2", {{"axes", Ints{}}}));
  EXPECT_TRUE(IsRemoved({-1, 3}, "transpose2", {{"axis", Ints{0, 1}}, {"keeps_lod", true}}));
}

TEST(RemoveIdentities, NearMisses) {
  EXPECT_FALSE(IsRemoved({-1, 3}, "scale", {{"scale", 1.0f}, {"bias", 0.5f}}));
  EXPECT_FALSE(IsRemoved({-1, 3}, "scale", {{"scale", 1.5f}}));
  EXPECT_FALSE(IsRemoved({-1, 3}, "cast", {{"out_dtype", static_cast<int32_t>(DType::kFloat64)}}));
  EXPECT_FALSE(IsRemoved({-1, 3}, "dropout", Dropout(true, "downgrade_in_infer")));
  // 1 - 1e-9 is 1 as a float.
  const AttrList rare = Dropout(true, "downgrade_in_infer", 1e-9f);
  EXPECT_TRUE(IsRemoved({-1, 3}, "dropout", rare));
  EXPECT_FALSE(IsRemoved({-1, 3}, "dropout", rare, DType::kFloat64));
  EXPECT_FALSE(IsRemoved({-1, 3}, "pad", {{"paddings", Ints{0, 0, 0, 1}}}));
  EXPECT_FALSE(IsRemoved({-1, 3}, "slice",
                         {{"axes", Ints{1}}, {"starts", Ints{0}}, {"ends", Ints{2}}},
                         DType::kFloat32, "Input"));
  // Another number of columns may be fed.
  EXPECT_FALSE(IsRemoved({-1, 3}, "slice",
                         {{"axes", Ints{1}}, {"starts", Ints{0}}, {"ends", Ints{3}}},
                         DType::kFloat32, "Input"));
  // It drops the LoD.
  EXPECT_FALSE(IsRemoved({-1, 3}, "slice",
                         {{"axes", Ints{0}}, {"starts", Ints{0}}, {"ends", Ints{kAll}}},
                         DType::kFloat32, "Input"));
  EXPECT_FALSE(IsRemoved({-1, 3}, "transpose2", {{"axis", Ints{0, 1}}}));
  EXPECT_FALSE(IsRemoved({-1, 3}, "expand", {{"expand_times", Ints{1, 2}}}));
}

// Declared float, but the op that writes it makes doubles of it.
TEST(RemoveIdentities, CastsOfWhatIsDeclaredWrongly) {
  OpProgram p;
  p.Data("x", {-1, 3});
  p.Unary("cast", "x", "wide", {{"out_dtype", static_cast<int32_t>(DType::kFloat64)}});
  p.root().FindVar("wide")->SetDType(DType::kFloat32);
  p.Unary("cast", "wide", "y", {{"out_dtype", static_cast<int32_t>(DType::kFloat32)}});
  p.Unary("relu", "y", "z");
  EXPECT_EQ(After(p, {"z"}), p.Listing());
}

// The scope's contents count, not the program's declarations.
TEST(RemoveIdentities, CastsOfParameters) {
  OpProgram p;
  p.Data("x", {-1, 3});
  p.Parameter("w", {3});
  p.Unary("cast", "w", "narrow", {{"out_dtype", static_cast<int32_t>(DType::kFloat32)}});
  p.Append("elementwise_add", {{"X", {"x"}}, {"Y", {"narrow"}}}, {{"Out", {"y"}}});
  EXPECT_EQ(After(p), p.Listing());
  EXPECT_EQ(p.After({"remove_identities"}, {"y"}, true), "Out=y = elementwise_add(X=x, Y=w)\n");
  p.ExpectSame({"y"});
  p.scope.Set("w", OpProgram::Drawn({3}));
  EXPECT_EQ(p.After({"remove_identities"}, {"y"}, true), p.Listing());
  p.ExpectSame({"y"});
}

TEST(RemoveIdentities, FetchedAndPersistableNamesKeepTheirOp) {
  OpProgram p;
  p.Data("x", {-1, 3});
  p.Unary("assign", "x", "m");
  p.Unary("relu", "m", "y");
  EXPECT_EQ(After(p, {"y", "m"}), p.Listing());
  p.root().FindVar("m")->SetPersistable(true);
  EXPECT_EQ(After(p), p.Listing());
}

TEST(RemoveIdentities, OutputsThatAreRead) {
  OpProgram p;
  p.Data("x", {-1, 3});
  p.Append("dropout", {{"X", {"x"}}}, {{"Out", {"m"}}, {"Mask", {"mask"}}},
           Dropout(true, "upscale_in_train"));
  p.Unary("relu", "m", "y");
  EXPECT_EQ(After(p), "Out=y = relu(X=x)\n");
  EXPECT_EQ(After(p, {"y", "mask"}), p.Listing());
  p.ExpectSame({"y", "mask"});
}

// The later read gets the old value.
TEST(RemoveIdentities, TheSourceIsWrittenBefore) {
  OpProgram p;
  p.Data("x", {-1, 3});
  p.Unary("relu", "x", "h");
  p.Unary("assign", "h", "old");
  p.Unary("scale", "h", "h", {{"scale", 2.0f}});
  p.Append("elementwise_sub", {{"X", {"h"}}, {"Y", {"old"}}}, {{"Out", {"y"}}});
  EXPECT_EQ(After(p), p.Listing());
  p.ExpectSame({"y"});
}

TEST(RemoveIdentities, TheSourceIsWrittenAfterwards) {
  OpProgram p;
  p.Data("x", {-1, 3});
  p.Unary("relu", "x", "h");
  p.Unary("assign", "h", "old");
  p.Append("elementwise_mul", {{"X", {"x"}}, {"Y", {"old"}}}, {{"Out", {"y"}}});
  p.Unary("scale", "h", "h", {{"scale", 2.0f}});
  EXPECT_EQ(After(p, {"y", "h"}),
            "Out=h = relu(X=x)\nOut=y = elementwise_mul(X=x, Y=h)\nOut=h = scale(X=h)\n");
  p.ExpectSame({"y", "h"});
}

TEST(RemoveIdentities, VariablesThatAreWrittenTwice) {
  OpProgram p;
  p.Data("x", {-1, 3});
  p.Unary("assign", "x", "m");
  p.Unary("scale", "m", "m", {{"scale", 3.0f}});
  p.Unary("relu", "m", "y");
  EXPECT_EQ(After(p), p.Listing());
  p.ExpectSame({"y"});
}

TEST(RemoveIdentities, NamesOfSubBlocks) {
  OpProgram p;
  p.Data("x", {-1, 3});
  p.Data("c", {1}, DType::kBool);
  p.feeds["c"] = Tensor::Full<bool>({1}, true);
  p.Unary("assign", "x", "m");
  p.Unary("relu", "m", "y");
  BlockDesc& inner = p.program.AppendBlock(0);
  inner.AppendOp("scale", {{"X", {"m"}}}, {{"Out", {"y"}}}, {{"scale", 2.0f}});
  p.root().Var("scopes").SetType(VarType::kStepScopes);
  p.root().AppendOp("conditional_block", {{"Cond", {"c"}}, {"Input", {"m"}}},
                    {{"Out", {"y"}}, {"Scope", {"scopes"}}}, {{"sub_block", BlockRef{1}}});
  EXPECT_EQ(After(p), p.Listing());
  p.ExpectSame({"y"});
}

// The slices of x have the name `steps` in the block, where x is the whole.
TEST(RemoveIdentities, NamesOfSlices) {
  OpProgram p;
  p.Data("x", {2, 2});
  p.Unary("assign", "x", "steps");
  BlockDesc& inner = p.program.AppendBlock(0);
  for (const char* name : {"steps", "y"}) {
    inner.Var(name).SetShape({2});
    inner.Var(name).SetDType(DType::kFloat32);
  }
  inner.AppendOp("reduce_sum", {{"X", {"x"}}}, {{"Out", {"y"}}}, {{"dim", Ints{0}}});
  p.root().Var("y");
  p.root().Var("scopes").SetType(VarType::kStepScopes);
  p.Append("recurrent", {{"inputs", {"steps"}}, {"initial_states", {}}, {"parameters", {"x"}}},
           {{"outputs", {"y"}}, {"step_scopes", {"scopes"}}},
           {{"sub_block", BlockRef{1}},
            {"has_states", false},
            {"states", std::vector<std::string>{}},
            {"ex_states", std::vector<std::string>{}}});
  EXPECT_EQ(After(p), p.Listing());
  p.ExpectSame({"y"});
}

TEST(RemoveIdentities, InARow) {
  OpProgram p;
  p.Data("x", {-1, 3});
  p.Unary("assign", "x", "a");
  p.Unary("scale", "a", "b");
  p.Unary("relu", "b", "y");
  p.Unary("sigmoid", "a", "z");
  EXPECT_EQ(After(p, {"y", "z"}), "Out=y = relu(X=x)\nOut=z = sigmoid(X=x)\n");
}

TEST(RemoveIdentities, KeepsLoD) {
  OpProgram p;
  p.Data("x", {3, 2});
  p.feeds["x"].lod() = {{0, 1, 3}};
  p.Unary("assign", "x", "a");
  p.Unary("relu", "a", "y");
  p.ExpectSame({"y"});
}

TEST(RemoveIdentities, DropoutInATestIsAScale) {
  OpProgram p;
  p.Data("x", {-1, 3});
  p.Unary("dropout", "x", "y", Dropout(true, "downgrade_in_infer", 0.1f));
  EXPECT_EQ(After(p), "Out=y = scale(X=x)\n");
  p.ExpectSame({"y"});
  OpProgram wide;
  wide.Data("x", {-1, 3}, DType::kFloat64);
  wide.Unary("dropout", "x", "y", Dropout(true, "downgrade_in_infer", 0.1f));
  EXPECT_EQ(After(wide), wide.Listing());
  OpProgram training;
  training.Data("x", {-1, 3});
  training.Unary("dropout", "x", "y", Dropout(false, "downgrade_in_infer"));
  EXPECT_EQ(After(training), training.Listing());
}

// --- reshapes in a row ---

AttrList To(Ints shape) { return {{"shape", std::move(shape)}}; }

TEST(RemoveIdentities, OfReshapesTheLastStays) {
  OpProgram p;
  p.Data("x", {-1, 2, 3});
  p.Unary("flatten_contiguous_range", "x", "a",
          {{"start_axis", int32_t{1}}, {"stop_axis", int32_t{2}}});
  p.Unary("unsqueeze2", "a", "b", {{"axes", Ints{2}}});
  p.Unary("reshape2", "b", "y", To({0, 3, 2}));
  EXPECT_EQ(After(p), "Out=y = reshape2(X=x) shape=[0, 3, 2]\n");
  p.ExpectSame({"y"});
  p.feeds["x"].lod() = {{0, 1, 2}};
  p.ExpectSame({"y"});
}

TEST(RemoveIdentities, ReshapesThatStay) {
  {  // a dimension is copied that x has elsewhere
    OpProgram p;
    p.Data("x", {-1, 2, 3});
    p.Unary("reshape2", "x", "a", To({0, 3, 2}));
    p.Unary("reshape2", "a", "y", To({-1, 0}));
    EXPECT_EQ(After(p), p.Listing());
    p.ExpectSame({"y"});
  }
  {  // the rows change on the way, and LoD does not pass
    OpProgram p;
    p.Data("x", {4, 3});
    p.feeds["x"].lod() = {{0, 1, 4}};
    p.Unary("reshape2", "x", "a", To({3, 4}));
    p.Unary("reshape2", "a", "y", To({4, 3}));
    EXPECT_EQ(After(p), p.Listing());
    p.ExpectSame({"y"});
  }
  {  // the first one is read by others
    OpProgram p;
    p.Data("x", {-1, 2, 3});
    p.Unary("reshape2", "x", "a", To({0, 3, 2}));
    p.Unary("reshape2", "a", "y", To({-1, 6}));
    p.Unary("relu", "a", "z");
    EXPECT_EQ(After(p, {"y", "z"}), p.Listing());
  }
  {  // what is read is not the result of the first one, but the shape that it notes
    OpProgram p;
    p.Data("x", {-1, 2, 3});
    p.Append("flatten_contiguous_range", {{"X", {"x"}}}, {{"Out", {"a"}}, {"XShape", {"noted"}}},
             {{"start_axis", int32_t{1}}, {"stop_axis", int32_t{2}}});
    p.Unary("reshape2", "noted", "y", To({0, 4, 3}));
    EXPECT_EQ(After(p), p.Listing());
    p.ExpectSame({"y"});
  }
  {  // its gradient wants the shape between
    OpProgram p;
    p.Data("x", {-1, 2, 3});
    p.Unary("reshape2", "x", "a", To({0, 3, 2}));
    p.Append("reshape2", {{"X", {"a"}}}, {{"Out", {"y"}}, {"XShape", {"between"}}}, To({-1, 6}));
    p.Data("dy", {-1, 6});
    p.Append("reshape2_grad", {{"XShape", {"between"}}, {"Out@GRAD", {"dy"}}},
             {{"X@GRAD", {"da"}}});
    EXPECT_EQ(After(p, {"y", "da"}), p.Listing());
    p.ExpectSame({"y", "da"});
  }
}

TEST(RemoveIdentities, UnsqueezeAndSqueeze) {
  OpProgram p;
  p.Data("x", {-1, 3});
  p.Unary("unsqueeze2", "x", "a", {{"axes", Ints{1, 3}}});
  p.Unary("squeeze2", "a", "b", {{"axes", Ints{3, 1}}});
  p.Unary("relu", "b", "y");
  p.Unary("relu", "a", "z");
  EXPECT_EQ(After(p, {"y"}), "Out=a = unsqueeze2(X=x)\nOut=y = relu(X=x)\nOut=z = relu(X=a)\n");
  p.ExpectSame({"y", "z"});
}

// The list says nothing of images with another rank, which may be fed.
TEST(RemoveIdentities, ReshapeToTheSameShape) {
  OpProgram p;
  p.Data("x", {-1, 3});
  p.Unary("reshape2", "x", "a", To({0, -1}));
  p.Unary("relu", "a", "y");
  EXPECT_EQ(After(p), p.Listing());
  p.root().FindVar("x")->SetNeedCheckFeed(true);
  EXPECT_EQ(After(p), "Out=y = relu(X=x)\n");
  p.ExpectSame({"y"});
}

// A copy that was computed again stays, and its original too, or the bits could differ.
TEST(RemoveIdentities, RecomputedCopies) {
  OpProgram p;
  p.Data("x", {-1, 3});
  p.Unary("assign", "x", "m0");
  p.Unary("relu", "m0", "z");
  p.Unary("assign", "x", "m", {{"recomputed_from", std::vector<std::string>{"m0"}}});
  p.Unary("relu", "m", "y");
  EXPECT_EQ(After(p, {"y", "z"}), p.Listing());
}

// The scale that takes the place of a dropout has its role, device and place.
TEST(RemoveIdentities, RemarksAreKept) {
  OpProgram p;
  p.Data("x", {-1, 3});
  AttrList attrs = Dropout(true, "downgrade_in_infer");
  attrs.push_back({"op_device", std::string("cpu")});
  attrs.push_back({"op_namescope", std::string("/block/")});
  p.Unary("dropout", "x", "y", attrs);
  RunPasses(p.program, {DefaultOps(), {"x"}, {"y"}}, {"remove_identities"});
  const OpDesc& scale = p.root().op(0);
  ASSERT_EQ(scale.type(), "scale");
  EXPECT_EQ(scale.GetAttr<std::string>("op_device", ""), "cpu");
  EXPECT_EQ(scale.GetAttr<std::string>("op_namescope", ""), "/block/");
}
}  // namespace coracle::remove_identities_test
