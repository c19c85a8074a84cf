// Transposes in a row, and transposes that move past other ops.

#include <coracle/backward/backward.h>
#include <coracle/layers/builder.h>
#include <coracle/passes/passes.h>
#include <coracle/test/passes/op_program.h>

#include <algorithm>
#include <numeric>

namespace coracle::move_transposes_test {

using Ints = std::vector<int32_t>;

const Ints kToNhwc = {0, 2, 3, 1}, kToNchw = {0, 3, 1, 2};

std::string After(const OpProgram& p, const std::vector<std::string>& fetches = {"y"},
                  bool frozen = false) {
  return p.After({"move_transposes"}, fetches, frozen);
}

void Concat(OpProgram& p, std::vector<std::string> x, const std::string& out, int32_t axis) {
  p.Append("concat", {{"X", std::move(x)}}, {{"Out", {out}}}, {{"axis", axis}});
}

void Binary(OpProgram& p, const std::string& type, const std::string& x, const std::string& y,
            const std::string& out, int32_t axis = -1) {
  p.Append(type, {{"X", {x}}, {"Y", {y}}}, {{"Out", {out}}}, {{"axis", axis}});
}

// --- in a row ---

TEST(MoveTransposes, TwoThatCancel) {
  OpProgram p;
  p.Data("x", {-1, 3, 4, 5});
  p.Transpose("x", "a", kToNhwc);
  p.Transpose("a", "b", kToNchw);
  p.Unary("relu", "b", "y");
  EXPECT_EQ(After(p), "Out=y = relu(X=x)\n");
  p.feeds["x"].lod() = {{0, 1, 2}};
  p.ExpectSame({"y"});
}

TEST(MoveTransposes, ThreeBecomeOne) {
  OpProgram p;
  p.Data("x", {2, 3, 4});
  p.Transpose("x", "a", {1, 0, 2}, false);
  p.Transpose("a", "b", {0, 2, 1}, false);
  p.Transpose("b", "c", {2, 1, 0}, false);
  p.Unary("relu", "c", "y");
  EXPECT_EQ(After(p), "Out=c = transpose2(X=x) axis=[0, 2, 1]\nOut=y = relu(X=c)\n");
  p.feeds["x"].lod() = {{0, 1, 2}};
  p.ExpectSame({"y"});
}

// Transposes drop the LoD of a feed.
TEST(MoveTransposes, LodThatIsDropped) {
  OpProgram p;
  p.Data("x", {2, 3});
  p.Transpose("x", "a", {1, 0}, false);
  p.Transpose("a", "b", {1, 0}, false);
  p.Transpose("b", "c", {1, 0}, false);
  p.Transpose("c", "d", {1, 0}, false);
  p.Unary("relu", "d", "y");
  p.feeds["x"].lod() = {{0, 1, 2}};
  EXPECT_EQ(After(p), "Out=b = transpose2(X=x) axis=[0, 1]\nOut=y = relu(X=b)\n");
  p.ExpectSame({"y"});
}

TEST(MoveTransposes, InARowNearMisses) {
  OpProgram p;
  p.Data("x", {-1, 3, 4});
  p.Transpose("x", "a", {0, 2, 1});
  p.Transpose("a", "b", {0, 2, 1});
  // Fetched under its name: a copy.
  EXPECT_EQ(After(p, {"b"}), "Out=b = transpose2(X=x) axis=[0, 1, 2]\n");
  p.Unary("relu", "b", "y");
  EXPECT_EQ(After(p, {"y", "a"}), "Out=a = transpose2(X=x) axis=[0, 2, 1]\nOut=y = relu(X=x)\n");
  p.ExpectSame({"y", "a"});

  OpProgram noted;  // not the result of the first one, but the shape that it notes
  noted.Data("x", {-1, 3, 4});
  noted.Append("transpose2", {{"X", {"x"}}}, {{"Out", {"a"}}, {"XShape", {"n"}}},
               {{"axis", Ints{0, 2, 1}}});
  noted.Transpose("n", "b", {0, 2, 1, 3}, false);
  noted.Unary("relu", "b", "y");
  EXPECT_EQ(After(noted), noted.Listing());
  noted.ExpectSame({"y"});

  OpProgram twice;  // what is read later is not what was transposed
  twice.Data("x", {-1, 3, 4});
  twice.Unary("relu", "x", "h");
  twice.Transpose("h", "a", {0, 2, 1});
  twice.Unary("scale", "h", "h", {{"scale", 2.0f}});
  twice.Transpose("a", "b", {0, 2, 1});
  Binary(twice, "elementwise_sub", "b", "h", "y");
  EXPECT_EQ(After(twice), twice.Listing());
  twice.ExpectSame({"y"});
}

// --- of products ---

TEST(MoveTransposes, ProductsTransposeTheirY) {
  for (const std::string type : {"matmul", "matmul_v2"}) {
    for (bool transposed : {false, true}) {
      const char* attr = type == "matmul" ? "transpose_Y" : "trans_y";
      OpProgram p;
      p.Data("x", {-1, 3, 4});
      p.Data("u", transposed ? Shape{-1, 4, 5} : Shape{-1, 5, 4});
      p.Transpose("u", "v", {0, 2, 1}, false);
      p.Append(type, {{"X", {"x"}}, {"Y", {"v"}}}, {{"Out", {"y"}}}, {{attr, transposed}});
      EXPECT_EQ(After(p), "Out=y = " + type + "(X=x, Y=u)\n");
      p.ExpectSame({"y"});
      p.Unary("relu", "v", "z");
      EXPECT_EQ(After(p, {"y", "z"}), p.Listing());
    }
  }
  OpProgram p;  // another order, and the product with itself
  p.Data("u", {-1, 2, 3, 4});
  p.Data("x", {3, 4});
  p.Transpose("u", "v", {0, 3, 2, 1}, false);
  p.Transpose("x", "t", {1, 0}, false);
  p.Append("matmul_v2", {{"X", {"t"}}, {"Y", {"t"}}}, {{"Out", {"s"}}}, {{"trans_x", true}});
  p.Append("matmul_v2", {{"X", {"s"}}, {"Y", {"v"}}}, {{"Out", {"y"}}});
  EXPECT_EQ(After(p), p.Listing());
}

// --- that move ---

TEST(MoveTransposes, ThroughConcat) {
  OpProgram p;
  p.Data("u", {-1, 4, 5, 2});
  p.Data("v", {-1, 4, 5, 3});
  p.Transpose("u", "a", kToNchw);
  p.Transpose("v", "b", kToNchw);
  Concat(p, {"a", "b"}, "c", 1);
  p.Transpose("c", "d", kToNhwc);
  p.Unary("relu", "d", "y");
  EXPECT_EQ(After(p), "Out=c@MOVED = concat(X=u+v) axis=3\nOut=y = relu(X=c@MOVED)\n");
  p.ExpectSame({"y"});
  p.feeds["u"].lod() = p.feeds["v"].lod() = {{0, 1, 2}};
  p.ExpectSame({"y"});
}

// One transpose of the whole is less than two of its parts.
TEST(MoveTransposes, BehindConcat) {
  OpProgram p;
  p.Data("u", {-1, 4, 5, 2});
  p.Data("v", {-1, 4, 5, 3});
  p.Transpose("u", "a", kToNchw);
  p.Transpose("v", "b", kToNchw);
  Concat(p, {"a", "b"}, "c", -3);
  p.Unary("relu", "c", "y");
  EXPECT_EQ(After(p),
            "Out=c@MOVED = concat(X=u+v) axis=3\n"
            "Out=c = transpose2(X=c@MOVED) axis=[0, 3, 1, 2]\nOut=y = relu(X=c)\n");
  p.ExpectSame({"y"});
}

TEST(MoveTransposes, StayWhereNothingIsGained) {
  OpProgram p;
  p.Data("u", {-1, 4, 5, 2});
  p.Transpose("u", "a", kToNchw);
  p.Unary("sigmoid", "a", "b");
  p.Unary("relu", "b", "c");
  p.Unary("scale", "c", "y", {{"scale", 2.0f}});
  EXPECT_EQ(After(p), p.Listing());
  // Both are wanted in both orders.
  p.Transpose("c", "d", kToNhwc);
  p.Unary("relu", "d", "z");
  p.Unary("relu", "a", "r");
  EXPECT_EQ(After(p, {"y", "z", "r"}), p.Listing());
  p.ExpectSame({"y", "z", "r"});
}

// Squeeze and excite: the gate has one number for each channel.
TEST(MoveTransposes, ThroughAGate) {
  OpProgram p;
  p.Data("u", {-1, 4, 5, 2});
  p.Data("g", {-1, 1, 1, 2});
  p.Transpose("u", "a", kToNchw);
  p.Transpose("g", "b", kToNchw);
  p.Unary("hard_sigmoid", "b", "c");
  Binary(p, "elementwise_mul", "a", "c", "m");
  p.Transpose("m", "d", kToNhwc);
  p.Unary("relu", "d", "y");
  EXPECT_EQ(After(p),
            "Out=c@MOVED = hard_sigmoid(X=g)\n"
            "Out=m@MOVED = elementwise_mul(X=u, Y=c@MOVED) axis=-1\nOut=y = relu(X=m@MOVED)\n");
  p.ExpectSame({"y"});
}

// Numbers, one number for each channel or column, and a constant image of one pixel. They must be
// frozen: a scope may hold other shapes than the program declares.
TEST(MoveTransposes, ThroughOpsWithParameters) {
  OpProgram p;
  p.Data("u", {-1, 4, 5, 2});
  p.Parameter("s", {1});
  p.Parameter("channel", {2});
  p.Parameter("column", {5});
  p.Parameter("pixel", {1, 2, 1, 1});
  p.Transpose("u", "a", kToNchw);
  Binary(p, "elementwise_sub", "s", "a", "b");
  Binary(p, "elementwise_add", "b", "channel", "c", 1);
  Binary(p, "elementwise_sub", "column", "c", "d");
  Binary(p, "elementwise_mul", "d", "pixel", "e");
  p.Transpose("e", "f", kToNhwc);
  p.Unary("relu", "f", "y");
  EXPECT_EQ(After(p), p.Listing());
  EXPECT_EQ(After(p, {"y"}, true),
            "Out=b@MOVED = elementwise_sub(X=s, Y=u) axis=-1\n"
            "Out=c@MOVED = elementwise_add(X=b@MOVED, Y=channel) axis=3\n"
            "Out=d@MOVED = elementwise_sub(X=column, Y=c@MOVED) axis=2\n"
            "Out=e@MOVED = elementwise_mul(X=d@MOVED, Y=pixel@MOVED) axis=-1\n"
            "Out=y = relu(X=e@MOVED)\n");
  p.ExpectSame({"y"});
  p.scope.Set("s", OpProgram::Drawn({2, 1, 1}).Cast(DType::kFloat32));
  p.ExpectSame({"y"});
}

TEST(MoveTransposes, OperandsThatNobodyTransposed) {
  OpProgram p;
  p.Data("u", {-1, 4, 5, 2});
  p.Data("w", {-1, 2, 4, 5});
  p.Transpose("u", "a", kToNchw);
  Binary(p, "elementwise_add", "a", "w", "b");
  p.Transpose("b", "c", kToNhwc);
  p.Unary("relu", "c", "y");
  EXPECT_EQ(After(p), p.Listing());
  p.ExpectSame({"y"});
}

TEST(MoveTransposes, ThroughPadSliceSplitSoftmaxAndCast) {
  OpProgram p;
  p.Data("u", {-1, 4, 5, 6});
  p.Transpose("u", "a", kToNchw);
  p.Unary("pad", "a", "b", {{"paddings", Ints{0, 0, 1, 2, 0, 1, 3, 0}}, {"pad_value", 0.5f}});
  p.Append("slice", {{"Input", {"b"}}}, {{"Out", {"c"}}},
           {{"axes", Ints{1, 3}}, {"starts", Ints{1, 2}}, {"ends", Ints{9, 7}}});
  p.Append("split", {{"X", {"c"}}}, {{"Out", {"d", "e"}}},
           {{"axis", int32_t{1}}, {"num", int32_t{2}}});
  p.Unary("softmax", "d", "f", {{"axis", int32_t{1}}});
  Binary(p, "elementwise_add", "f", "e", "g");
  p.Unary("cast", "g", "h", {{"out_dtype", static_cast<int32_t>(DType::kFloat64)}});
  p.Transpose("h", "i", kToNhwc);
  p.Unary("relu", "i", "y");
  EXPECT_EQ(After(p).find("transpose"), std::string::npos) << After(p);
  p.ExpectSame({"y"});
}

TEST(MoveTransposes, ThroughReductions) {
  for (bool keep : {false, true}) {
    for (const Ints& dims : {Ints{2, 3}, Ints{-1, -2}, Ints{1}, Ints{3}, Ints{1, 2, 3}}) {
      SCOPED_TRACE(fmt::format("{} {}", keep, fmt::join(dims, " ")));
      OpProgram p;
      p.Data("u", {-1, 4, 5, 6});
      p.Transpose("u", "a", kToNchw);
      p.Unary("reduce_mean", "a", "b", {{"dim", dims}, {"keep_dim", keep}});
      p.Unary("relu", "b", "y");
      // Without keep_dim two axes may be left in another order: it stays.
      const bool crosses = !keep && dims == Ints{3};
      EXPECT_EQ(After(p) == p.Listing(), crosses) << After(p);
      p.ExpectSame({"y"});
    }
  }
}

// No pixel is moved to know how many there are.
TEST(MoveTransposes, ShapeOfATransposedImage) {
  OpProgram p;
  p.Data("u", {-1, 4, 5, 6});
  p.Transpose("u", "a", kToNchw);
  p.Append("shape", {{"Input", {"a"}}}, {{"Out", {"s"}}});
  p.Unary("cast", "s", "y", {{"out_dtype", static_cast<int32_t>(DType::kInt64)}});
  EXPECT_EQ(After(p),
            "Out=s@MOVED = shape(Input=u)\nOut=s@AXES = assign_value() shape=[4]\n"
            "Out=s = gather(X=s@MOVED, Index=s@AXES)\nOut=y = cast(X=s)\n");
  p.ExpectSame({"y"});
}

TEST(MoveTransposes, ThroughGradientsOfElementwiseOps) {
  OpProgram p;
  p.Data("u", {-1, 4, 5, 2});
  p.Data("du", {-1, 4, 5, 2});
  p.Transpose("u", "a", kToNchw);
  p.Transpose("du", "da", kToNchw);
  p.Append("sigmoid_grad", {{"Out", {"a"}}, {"Out@GRAD", {"da"}}}, {{"X@GRAD", {"dx"}}});
  p.Transpose("dx", "t", kToNhwc);
  p.Unary("relu", "t", "y");
  EXPECT_EQ(After(p).find("transpose"), std::string::npos) << After(p);
  p.ExpectSame({"y"});
}

TEST(MoveTransposes, VisibleVariablesStay) {
  OpProgram p;
  p.Data("u", {-1, 4, 5, 2});
  p.Data("v", {-1, 4, 5, 3});
  p.Transpose("u", "a", kToNchw);
  p.Transpose("v", "b", kToNchw);
  Concat(p, {"a", "b"}, "c", 1);
  p.Transpose("c", "d", kToNhwc);
  p.Unary("relu", "d", "y");
  EXPECT_EQ(After(p, {"y", "c"}), p.Listing());
  EXPECT_EQ(After(p, {"y", "a", "d"}), p.Listing());
  p.ExpectSame({"y", "a", "c", "d"});
  BlockDesc& inner = p.program.AppendBlock(0);
  inner.Var("z");
  inner.AppendOp("relu", {{"X", {"c"}}}, {{"Out", {"z"}}});
  EXPECT_EQ(After(p), p.Listing());
}

// --- what is computed again ---

// An original and its copy are treated in the same way, or their bits differ.
TEST(MoveTransposes, OriginalsOfRecomputedCopiesStay) {
  const AttrList again = {{"recomputed_from", std::vector<std::string>{"b"}}};
  OpProgram p;
  p.Data("u", {-1, 4, 5, 6});
  p.Transpose("u", "a", kToNchw);
  AttrList mean = {{"dim", Ints{2, 3}}};
  p.Unary("reduce_mean", "a", "b", mean);
  p.Unary("relu", "b", "y");
  EXPECT_NE(After(p), p.Listing());
  p.Transpose("u", "a2", kToNchw);
  mean.push_back(again[0]);
  p.Unary("reduce_mean", "a2", "b2", mean);
  p.Unary("relu", "b2", "z");
  EXPECT_EQ(After(p, {"y", "z"}), p.Listing());

  OpProgram product;
  product.Data("x", {-1, 3, 4});
  product.Data("u", {-1, 5, 4});
  product.Transpose("u", "a", {0, 2, 1});
  product.Append("matmul_v2", {{"X", {"x"}}, {"Y", {"a"}}}, {{"Out", {"b"}}});
  EXPECT_NE(After(product, {"b"}), product.Listing());
  product.Transpose("u", "a2", {0, 2, 1});
  product.Append("matmul_v2", {{"X", {"x"}}, {"Y", {"a2"}}}, {{"Out", {"b2"}}}, again);
  EXPECT_EQ(After(product, {"b", "b2"}), product.Listing());
}

// Squeeze and excite in a segment that is computed again.
TEST(MoveTransposes, RecomputedSegment) {
  ProgramDesc main, startup;
  Builder b(main, startup);
  const Variable x = b.Data("x", {2, 3, 8, 8}, DType::kFloat32, {.stop_gradient = false});
  Variable h = b.Conv2d(x, {.num_filters = 4, .filter_size = 3, .padding = 1, .act = "relu"});
  const Variable mean = b.ReduceMean(h, {.dim = {2, 3}});
  const Variable gate = b.Fc(mean, {.size = 4, .act = "sigmoid"});
  h = b.Mul(h, gate, {.axis = 0, .output = "gated"});
  h = b.Conv2d(h, {.num_filters = 4, .filter_size = 3, .padding = 1, .act = "relu"});
  const Variable loss = b.Mean(Square(h), {.output = "loss"});
  BackwardOptions options;
  options.recompute.checkpoints = {"gated"};
  std::vector<std::string> fetches = {"loss"};
  for (const ParamAndGrad& pair : AppendBackward(loss, options)) fetches.push_back(pair.grad);

  ProgramDesc after = main;
  RunPasses(after, {DefaultOps(), {"x"}, {fetches.begin(), fetches.end()}},
            {"fuse_conv_bias", "fuse_conv_epilogue", "nhwc", "move_transposes"});
  std::vector<Ints> dims;
  int copies = 0;
  after.Root().ForEachOp([&](const OpDesc& op) {
    if (op.type() == "reduce_mean") dims.push_back(op.GetAttr<Ints>("dim", {}));
    for (const std::string& name : op.GetAttr<std::vector<std::string>>("recomputed_from", {})) {
      ++copies;
      EXPECT_EQ(after.Root().Uses(name).writers.size(), 1u) << name;
    }
  });
  EXPECT_EQ(dims, (std::vector<Ints>{{2, 3}, {2, 3}})) << Listing(after);
  EXPECT_GT(copies, 2);

  Scope scope;
  Executor().Run(startup, scope);
  const Tensor fed = OpProgram::Drawn({2, 3, 8, 8}).Cast(DType::kFloat32);
  const CompileOptions plain{.kernels = KernelMode::kReference, .optimize = false};
  const auto expected = Executor(plain).Run(main, scope, {{"x", fed}}, fetches);
  const auto got = Executor().Run(main, scope, {{"x", fed}}, fetches);
  for (size_t i = 0; i < fetches.size(); ++i) {
    ASSERT_EQ(got[i].shape(), expected[i].shape());
    for (int64_t k = 0; k < got[i].numel(); ++k) {
      const float want = expected[i].data<float>()[k];
      ASSERT_NEAR(got[i].data<float>()[k], want, 1e-4f * (1 + std::abs(want))) << fetches[i];
    }
  }
}

// --- many ---

// 10,000 transposes with 5040 lists of axes: each list is looked at, but not at the price of the
// whole program.
TEST(MoveTransposes, ManyListsOfAxes) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  const VarMeta meta{VarType::kLoDTensor, DType::kFloat32, {2, 2, 2, 2, 2, 2, 2, 2}, 0};
  const auto append = [&](const char* type, const std::string& x, const std::string& out,
                          AttrList attrs) {
    block.Var(out).SetMeta(meta);
    block.AppendOp(type, {{"X", {x}}}, {{"Out", {out}}}, std::move(attrs));
  };
  block.Var("x").SetMeta(meta);
  Ints axes(8);
  std::iota(axes.begin(), axes.end(), 0);
  std::string last = "x";
  for (int i = 0; i < 5000; ++i) {
    std::next_permutation(axes.begin() + 1, axes.end());
    Ints back(8);
    for (int k = 0; k < 8; ++k) back[static_cast<size_t>(axes[static_cast<size_t>(k)])] = k;
    const std::string n = std::to_string(i);
    append("transpose2", last, "a" + n, {{"axis", axes}, {"keeps_lod", true}});
    append("sigmoid", "a" + n, "b" + n, {});
    append("transpose2", "b" + n, "c" + n, {{"axis", back}, {"keeps_lod", true}});
    append("tanh", "c" + n, "d" + n, {});
    last = "d" + n;
  }
  const size_t before = block.NumOps();
  RunPasses(program, {DefaultOps(), {"x"}, {last}}, {"move_transposes"});
  EXPECT_LT(block.NumOps(), before);
}

// A user's transposes drop LoD, so that what follows is known to have none.
TEST(MoveTransposes, ExportsWithTransposesAroundEachOp) {
  OpProgram p;
  p.Data("x", {-1, 5, 4, 2});
  p.Parameter("w", {3, 2, 1, 1});
  p.Transpose("x", "a", kToNchw, false);
  p.Append("conv2d", {{"Input", {"a"}}, {"Filter", {"w"}}}, {{"Output", {"b"}}});
  p.Transpose("b", "c", kToNhwc, false);
  p.Unary("relu", "c", "d");
  p.Transpose("d", "e", kToNchw, false);
  p.Parameter("f", {2, 3, 1, 1});
  p.Append("conv2d", {{"Input", {"e"}}, {"Filter", {"f"}}}, {{"Output", {"g"}}});
  p.Transpose("g", "y", kToNhwc, false);
  const std::string after = p.After({"nhwc", "move_transposes"}, {"y"});
  size_t count = 0;
  for (size_t at = after.find("transpose2"); at != after.npos;
       at = after.find("transpose2", at + 1))
    ++count;
  EXPECT_LE(count, 2u) << after;
  p.ExpectSame({"y"});
  p.feeds["x"].lod() = {{0, 1, 2}};
  p.ExpectSame({"y"});
}
}  // namespace coracle::move_transposes_test
