// batch_norm folded into the op before it: the same numbers, and where it must not be done.

#include <coracle/executor/executor.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/operators/operators.h>
#include <coracle/passes/freeze.h>
#include <coracle/passes/passes.h>
#include <coracle/test/passes/listing.h>
#include <gtest/gtest.h>

#include <cmath>

namespace coracle::fold_batch_norm_test {

// A small net of one image or matrix x; every parameter has other values.
class Net {
 public:
  explicit Net(DType dtype = DType::kFloat64) : Net(dtype, dtype) {}
  Net(DType dtype, DType norms) : dtype_(dtype), norms_(norms) {}

  ProgramDesc program;
  Scope scope;

  BlockDesc& root() { return program.Root(); }
  std::string Data(const Shape& shape) {
    Declare("x", shape);
    return "x";
  }
  std::string Parameter(const std::string& name, const Shape& shape, double least = -1) {
    VarDesc& var = Declare(name, shape);
    var.SetPersistable(true);
    if (name != "w" && shape.rank() == 1) var.SetDType(norms_);
    Tensor value(DType::kFloat64, shape);
    for (int64_t i = 0; i < value.numel(); ++i)
      value.data<double>()[i] = least + 1 + std::sin(static_cast<double>(++drawn_));
    scope.Set(name, value.Cast(var.dtype()));
    return name;
  }
  std::string Append(const std::string& type, SlotList in, const std::string& slot,
                     const std::string& out, AttrList attrs = {}) {
    OpDesc& op = root().AppendOp(type, std::move(in), {{slot, {out}}}, std::move(attrs));
    InferOp(root(), op, DefaultOps());
    return out;
  }
  // A batch_norm with `channels` channels and fixed statistics.
  OpDesc& BatchNorm(const std::string& x, const std::string& y, int64_t channels,
                    AttrList attrs = {{"is_test", true}}) {
    for (const char* name : {"scale", "shift", "mean"}) Parameter(name, {channels});
    Parameter("variance", {channels}, 0.5);
    OpDesc& op = root().AppendOp("batch_norm",
                                 {{"X", {x}},
                                  {"Scale", {"scale"}},
                                  {"Bias", {"shift"}},
                                  {"Mean", {"mean"}},
                                  {"Variance", {"variance"}}},
                                 {{"Y", {y}},
                                  {"MeanOut", {"mean"}},
                                  {"VarianceOut", {"variance"}},
                                  {"SavedMean", {"saved_mean"}},
                                  {"SavedVariance", {"saved_variance"}}},
                                 std::move(attrs));
    InferOp(root(), op, DefaultOps());
    return op;
  }
  std::string Conv(const std::string& out, AttrList attrs = {}) {
    return Append("conv2d", {{"Input", {Data({-1, 3, 6, 5})}}, {"Filter", {Filter({4, 3, 3, 3})}}},
                  "Output", out, std::move(attrs));
  }
  std::string Filter(const Shape& shape) { return Parameter("w", shape); }

 private:
  VarDesc& Declare(const std::string& name, const Shape& shape) {
    VarDesc& var = root().Var(name);
    var.SetDType(dtype_);
    var.SetShape(shape);
    return var;
  }
  DType dtype_, norms_;  // of x and the filter; of vectors
  int drawn_ = 0;
};

// The pass alone, with all parameters of the scope frozen.
std::string Folded(Net& net, const std::vector<std::string>& fetches = {"y"}) {
  ProgramDesc program = net.program;
  FrozenValues frozen = Freeze(program, net.scope, {"x"});
  const PassContext context{DefaultOps(), {"x"}, {fetches.begin(), fetches.end()}, {}, &frozen};
  RunPasses(program, context, {"fold_batch_norm"});
  return Listing(program);
}

bool Folds(Net& net, const std::vector<std::string>& fetches = {"y"}) {
  return Folded(net, fetches).find("batch_norm") == std::string::npos;
}

Tensor Input(DType dtype, Shape shape) {
  if (shape[0] < 0) shape[0] = 2;
  Tensor x(DType::kFloat64, shape);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<double>()[i] = std::cos(static_cast<double>(3 * i + 1));
  return x.Cast(dtype);
}

// The largest difference of the frozen program's result from the unchanged program's result.
double Difference(Net& net) {
  const VarDesc& x = *net.root().FindVar("x");
  const Tensor feed = Input(x.dtype(), x.shape());
  const CompileOptions plain{.kernels = KernelMode::kReference, .optimize = false};
  const Tensor expected = Executor(plain).Run(net.program, net.scope, {{"x", feed}}, {"y"})[0];
  PreparedProgram frozen = Executor().PrepareFrozen(net.program, net.scope, {"x"}, {"y"});
  EXPECT_EQ(Listing(frozen.program()).find("batch_norm"), std::string::npos);
  const Tensor got = frozen.Run(net.scope, {feed})[0];
  EXPECT_EQ(got.shape(), expected.shape());
  const Tensor a = expected.Cast(DType::kFloat64), b = got.Cast(DType::kFloat64);
  double largest = 0;
  for (int64_t i = 0; i < std::min(a.numel(), b.numel()); ++i)
    largest = std::max(largest, std::abs(a.data<double>()[i] - b.data<double>()[i]));
  return largest;
}

constexpr double kDouble = 1e-13, kFloat = 2e-5;

TEST(FoldBatchNorm, ProgramOfAConvolution) {
  Net net;
  net.BatchNorm(net.Conv("c"), "y", 4);
  EXPECT_EQ(Folded(net), "Output=y = conv2d(Input=x, Filter=w@FOLDED, Bias=shift@FOLDED)\n");
}

TEST(FoldBatchNorm, Convolution) {
  for (DType dtype : {DType::kFloat64, DType::kFloat32}) {
    Net net(dtype);
    net.BatchNorm(net.Conv("c"), "y", 4);
    EXPECT_LT(Difference(net), dtype == DType::kFloat64 ? kDouble : kFloat);
  }
}

// In bfloat16 the filter and the bias that come out are rounded; statistics may be float32.
TEST(FoldBatchNorm, BFloat16) {
  for (const DType norms : {DType::kBFloat16, DType::kFloat32}) {
    Net net(DType::kBFloat16, norms);
    net.BatchNorm(net.Conv("c"), "y", 4);
    EXPECT_TRUE(Folds(net));
    EXPECT_LT(Difference(net), 0.05);  // of results up to 5
  }
  Net half(DType::kFloat16, DType::kFloat32);
  half.BatchNorm(half.Conv("c"), "y", 4);
  EXPECT_FALSE(Folds(half));
}

TEST(FoldBatchNorm, ConvolutionWithABiasOfItsOwn) {
  Net net;
  net.Append("conv2d",
             {{"Input", {net.Data({-1, 3, 6, 5})}},
              {"Filter", {net.Filter({4, 3, 3, 3})}},
              {"Bias", {net.Parameter("b", {4})}}},
             "Output", "c");
  net.BatchNorm("c", "y", 4);
  EXPECT_LT(Difference(net), kDouble);
}

TEST(FoldBatchNorm, ConvolutionWithABiasAdded) {
  const std::vector<std::pair<Shape, int>> cases = {{{4}, 1}, {{1, 4, 1, 1}, -1}, {{4, 1, 1}, 1}};
  for (const auto& [shape, axis] : cases) {
    SCOPED_TRACE(shape.ToString());
    Net net;
    net.Conv("c");
    net.Append("elementwise_add", {{"X", {"c"}}, {"Y", {net.Parameter("b", shape)}}}, "Out", "s",
               {{"axis", axis}});
    net.BatchNorm("s", "y", 4);
    EXPECT_LT(Difference(net), kDouble);
  }
}

TEST(FoldBatchNorm, GroupsAndDepthwise) {
  {
    Net net;
    net.Append("conv2d",
               {{"Input", {net.Data({-1, 4, 6, 5})}}, {"Filter", {net.Filter({6, 2, 3, 3})}}},
               "Output", "c", {{"groups", 2}});
    net.BatchNorm("c", "y", 6);
    EXPECT_LT(Difference(net), kDouble);
  }
  Net net;
  net.Append("depthwise_conv2d",
             {{"Input", {net.Data({-1, 4, 6, 5})}}, {"Filter", {net.Filter({4, 1, 3, 3})}}},
             "Output", "c", {{"groups", 4}});
  net.BatchNorm("c", "y", 4);
  EXPECT_LT(Difference(net), kDouble);
}

TEST(FoldBatchNorm, TransposedConvolution) {
  for (int groups : {1, 2}) {
    for (bool bias : {false, true}) {
      Net net;
      SlotList in = {{"Input", {net.Data({-1, 4, 3, 4})}}, {"Filter", {net.Filter({4, 3, 2, 2})}}};
      if (bias) in.push_back({"Bias", {net.Parameter("b", {3 * groups})}});
      net.Append("conv2d_transpose", in, "Output", "c",
                 {{"groups", groups}, {"strides", std::vector<int32_t>{2, 2}}});
      net.BatchNorm("c", "y", 3 * groups);
      EXPECT_LT(Difference(net), kDouble) << groups << bias;
    }
  }
}

TEST(FoldBatchNorm, ChannelsLast) {
  for (const char* type : {"conv2d", "conv2d_transpose"}) {
    for (bool bias : {false, true}) {
      Net net;
      net.Append(type,
                 {{"Input", {net.Data({-1, 6, 5, 3})}},
                  {"Filter", {net.Filter(type[6] ? Shape{3, 4, 3, 3} : Shape{4, 3, 3, 3})}}},
                 "Output", "c", {{"data_format", std::string("NHWC")}});
      if (bias)
        net.Append("elementwise_add", {{"X", {"c"}}, {"Y", {net.Parameter("b", {4})}}}, "Out", "s");
      net.BatchNorm(bias ? "s" : "c", "y", 4,
                    {{"is_test", true}, {"data_layout", std::string("NHWC")}});
      EXPECT_LT(Difference(net), kDouble) << type;
    }
  }
}

TEST(FoldBatchNorm, Mul) {
  for (DType dtype : {DType::kFloat64, DType::kFloat32}) {
    for (bool bias : {false, true}) {
      Net net(dtype);
      net.Append("mul", {{"X", {net.Data({-1, 5})}}, {"Y", {net.Filter({5, 4})}}}, "Out", "c");
      if (bias)
        net.Append("elementwise_add", {{"X", {"c"}}, {"Y", {net.Parameter("b", {4})}}}, "Out", "s");
      net.BatchNorm(bias ? "s" : "c", "y", 4);
      EXPECT_LT(Difference(net), dtype == DType::kFloat64 ? kDouble : kFloat);
    }
  }
}

TEST(FoldBatchNorm, GlobalStatisticsInTraining) {
  Net net;
  net.BatchNorm(net.Conv("c"), "y", 4, {{"use_global_stats", true}});
  EXPECT_LT(Difference(net), kDouble);
}

// Mean stays what it was: the fetched one is the frozen one.
TEST(FoldBatchNorm, MovingMeanIsFetched) {
  Net net;
  net.BatchNorm(net.Conv("c"), "y", 4);
  EXPECT_TRUE(Folds(net, {"y", "mean"}));
  PreparedProgram frozen = Executor().PrepareFrozen(net.program, net.scope, {"x"}, {"y", "mean"});
  EXPECT_TRUE(BitEqual(frozen.Run(net.scope, {Input(DType::kFloat64, {1, 3, 6, 5})})[1],
                       net.scope.Get("mean")));
}

TEST(FoldBatchNorm, StaysWhereStatisticsAreUsed) {
  Net net;
  net.BatchNorm(net.Conv("c"), "y", 4);
  ASSERT_TRUE(Folds(net));
  EXPECT_FALSE(Folds(net, {"y", "saved_mean"}));
  net.Append("relu", {{"X", {"saved_variance"}}}, "Out", "z");
  EXPECT_FALSE(Folds(net));
}

TEST(FoldBatchNorm, StaysInTraining) {
  for (const AttrList& attrs :
       {AttrList{}, AttrList{{"is_test", true}, {"trainable_statistics", true}}}) {
    Net net;
    net.BatchNorm(net.Conv("c"), "y", 4, attrs);
    EXPECT_FALSE(Folds(net));
  }
}

TEST(FoldBatchNorm, StaysWhereTheFilterIsShared) {
  Net net;
  net.BatchNorm(net.Conv("c"), "y", 4);
  net.Append("relu", {{"X", {"w"}}}, "Out", "z");
  EXPECT_FALSE(Folds(net));
}

// The same op reads it twice.
TEST(FoldBatchNorm, StaysWhereTheFilterIsTheInputToo) {
  Net net;
  net.Data({-1, 4});
  net.Filter({4, 4});
  net.Append("mul", {{"X", {"w"}}, {"Y", {"w"}}}, "Out", "c");
  net.BatchNorm("c", "y", 4);
  EXPECT_FALSE(Folds(net));
}

TEST(FoldBatchNorm, StaysWhereTheProductIsUsed) {
  Net net;
  net.BatchNorm(net.Conv("c"), "y", 4);
  EXPECT_FALSE(Folds(net, {"y", "c"}));
  net.Append("relu", {{"X", {"c"}}}, "Out", "z");
  EXPECT_FALSE(Folds(net));
}

TEST(FoldBatchNorm, StaysWhereAValueIsNotFrozen) {
  for (const char* name : {"w", "scale", "shift", "mean", "variance"}) {
    Net net;
    net.BatchNorm(net.Conv("c"), "y", 4);
    ASSERT_TRUE(Folds(net));
    net.Append("scale", {{"X", {name}}}, "Out", name);  // the program writes it
    EXPECT_FALSE(Folds(net)) << name;
  }
}

TEST(FoldBatchNorm, StaysBetweenLayouts) {
  Net net;
  net.Append("conv2d",
             {{"Input", {net.Data({-1, 3, 4, 4})}}, {"Filter", {net.Filter({4, 3, 1, 1})}}},
             "Output", "c");
  net.BatchNorm("c", "y", 4, {{"is_test", true}, {"data_layout", std::string("NHWC")}});
  EXPECT_FALSE(Folds(net));
}

TEST(FoldBatchNorm, StaysBehindASumThatIsNoBias) {
  const std::vector<std::pair<Shape, int>> cases = {{{4}, 3}, {{1}, 1}, {{4, 4}, -1}};
  for (const auto& [shape, axis] : cases) {
    Net net;
    net.Append("conv2d",
               {{"Input", {net.Data({-1, 3, 4, 4})}}, {"Filter", {net.Filter({4, 3, 1, 1})}}},
               "Output", "c");
    net.Append("elementwise_add", {{"X", {"c"}}, {"Y", {net.Parameter("b", shape)}}}, "Out", "s",
               {{"axis", axis}});
    net.BatchNorm("s", "y", 4);
    EXPECT_FALSE(Folds(net)) << shape.ToString();
  }
}

TEST(FoldBatchNorm, StaysBehindAMulOfHigherRank) {
  Net net;
  net.Append("mul", {{"X", {net.Data({-1, 4, 5})}}, {"Y", {net.Filter({5, 4})}}}, "Out", "c",
             {{"x_num_col_dims", 2}});
  net.BatchNorm("c", "y", 4);
  EXPECT_FALSE(Folds(net));
}

TEST(FoldBatchNorm, NothingWithoutFrozenParameters) {
  Net net;
  net.BatchNorm(net.Conv("c"), "y", 4);
  PreparedProgram program = Executor().Prepare(net.program, {"x"}, {"y"});
  EXPECT_NE(Listing(program.program()).find("batch_norm"), std::string::npos);
}

// A filter is scaled in its own memory only if that has no other owner.
TEST(FoldBatchNorm, ChangesNoParameterThatOthersHold) {
  for (DType dtype : {DType::kFloat64, DType::kFloat32}) {
    Net net(dtype);
    net.BatchNorm(net.Conv("c"), "y", 4);
    const Tensor feed = Input(dtype, {2, 3, 6, 5});
    const Tensor handle = net.scope.Get("w"), values = handle.Clone();
    PreparedProgram first = Executor().PrepareFrozen(net.program, net.scope, {"x"}, {"y"});
    const Tensor expected = first.Run(net.scope, {feed})[0].Clone();
    EXPECT_TRUE(BitEqual(handle, values));
    Scope held = net.scope.Clone(), alone = net.scope.Clone();
    const Tensor other = held.Get("w");
    for (Scope* scope : {&held, &alone}) {
      PreparedProgram owning = Executor().PrepareOwning(net.program, *scope, {"x"}, {"y"});
      for (int i = 0; i < 2; ++i) EXPECT_TRUE(BitEqual(owning.Run(*scope, {feed})[0], expected));
      EXPECT_FALSE(scope->Has("w"));
      scope->Set("w", values.Clone());
      EXPECT_TRUE(BitEqual(owning.Run(*scope, {feed})[0], expected)) << "it came back as it was";
    }
    EXPECT_TRUE(BitEqual(other, values));
  }
}
}  // namespace coracle::fold_batch_norm_test
