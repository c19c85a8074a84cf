// Products with a bias and an activation become fc, their gradients fc_gradients.

#include <coracle/backward/backward.h>
#include <coracle/layers/builder.h>
#include <coracle/operators/operators.h>
#include <coracle/passes/passes.h>
#include <coracle/test/passes/listing.h>
#include <coracle/test/passes/same_results.h>
#include <gtest/gtest.h>

namespace coracle::fuse_fc_test {

struct Net {
  ProgramDesc main, startup;
  Builder b{main, startup};

  Variable Data(const Shape& shape, DType dtype = DType::kFloat32) {
    return b.Data("x", shape, dtype, {.stop_gradient = false});
  }
  Variable Parameter(const std::string& name, const Shape& shape, DType dtype = DType::kFloat32) {
    return b.Parameter(name, shape, dtype, {.name = name});
  }
  // y = act(x w + bias), with the parameters w and b.
  Variable Fc(const Variable& x, const std::string& act = "", int size = 4) {
    return b.Fc(x, {.size = size,
                    .num_flatten_dims = x.shape().rank() - 1,
                    .param_attr = {.name = "w"},
                    .bias_attr = ParamAttr{.name = "b"},
                    .act = act,
                    .output = "y"});
  }
  std::string Fused(const std::vector<std::string>& fetches = {"y"}) const {
    ProgramDesc program = main;
    const PassContext context{DefaultOps(), {"x"}, {fetches.begin(), fetches.end()}};
    RunPasses(program, context, {"fuse_fc"});
    return Listing(program);
  }
  bool Fuses(const std::vector<std::string>& fetches = {"y"}) const {
    return Fused(fetches).find("= fc(") != std::string::npos;
  }
};

void ExpectSame(const Net& net, const Shape& x, const std::vector<std::string>& fetches,
                DType dtype = DType::kFloat32, double tolerance = 1e-5) {
  Scope scope;
  Executor().Run(net.startup, scope);
  ExpectSameResults(net.main, scope, {{"x", Drawn(x, dtype)}}, fetches, tolerance);
}

TEST(FuseFc, ProductAndBias) {
  Net net;
  net.Fc(net.Data({-1, 3}));
  EXPECT_EQ(net.Fused(), "Out=y = fc(Input=x, W=w, Bias=b)\n");
  ExpectSame(net, {5, 3}, {"y"});
}

TEST(FuseFc, Activations) {
  for (const char* act :
       {"relu", "relu6", "sigmoid", "tanh", "gelu", "swish", "silu", "hard_swish"}) {
    SCOPED_TRACE(act);
    Net net;
    net.Fc(net.Data({-1, 2, 3}), act);
    EXPECT_EQ(net.Fused(), "Out=y = fc(Input=x, W=w, Bias=b)\n");
    ExpectSame(net, {5, 2, 3}, {"y"});
  }
}

TEST(FuseFc, GeluByTanh) {
  Net net;
  const Variable z = net.Fc(net.Data({-1, 3}));
  net.b.Append("gelu", {{"X", {z.name()}}}, {{"Out", {"z"}}}, {{"approximate", true}});
  EXPECT_EQ(net.Fused({"z"}), "Out=z = fc(Input=x, W=w, Bias=b)\n");
  ExpectSame(net, {5, 3}, {"z"});
}

// y = x w + b by an op of this type.
struct WithMatmul : Net {
  WithMatmul(const std::string& type, AttrList attrs, const Shape& x = {-1, 2, 3},
             const Shape& w = {3, 4}, int axis = -1) {
    Data(x);
    Parameter("w", w);
    Parameter("b", {4});
    b.Append(type, {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"p"}}}, std::move(attrs));
    b.Append("elementwise_add", {{"X", {"p"}}, {"Y", {"b"}}}, {{"Out", {"y"}}}, {{"axis", axis}});
  }
};

TEST(FuseFc, Matmul) {
  for (const char* type : {"matmul", "matmul_v2"}) {
    const WithMatmul net(type, {});
    EXPECT_EQ(net.Fused(), "Out=y = fc(Input=x, W=w, Bias=b)\n");
    ExpectSame(net, {5, 2, 3}, {"y"});
    EXPECT_TRUE(WithMatmul(type, {}, {-1, 2, 3}, {3, 4}, 2).Fuses());
  }
}

TEST(FuseFc, MatmulNearMisses) {
  EXPECT_FALSE(WithMatmul("matmul", {{"transpose_Y", true}}, {-1, 3}, {4, 3}).Fuses());
  EXPECT_FALSE(WithMatmul("matmul_v2", {{"trans_y", true}}, {-1, 3}, {4, 3}).Fuses());
  EXPECT_FALSE(WithMatmul("matmul_v2", {{"trans_x", true}}, {3, 7}, {3, 4}).Fuses());
  EXPECT_FALSE(WithMatmul("matmul", {{"alpha", 0.5f}}).Fuses());
  EXPECT_FALSE(WithMatmul("matmul_v2", {}, {3}).Fuses());
  EXPECT_FALSE(WithMatmul("matmul_v2", {}, {5, 2, 3}, {5, 3, 4}).Fuses());
}

// An axis that is counted from the first one is the last one only if the rank is certain, as it is
// behind mul.
TEST(FuseFc, CountedAxis) {
  for (const char* type : {"mul", "matmul", "matmul_v2"}) {
    const bool mul = std::string(type) == "mul";
    AttrList attrs;
    if (mul) attrs = {{"x_num_col_dims", int32_t{2}}};
    WithMatmul net(type, attrs, {-1, 2, 3}, {3, 4}, 2);
    EXPECT_TRUE(net.Fuses()) << type;
    net.main.Root().FindVar("x")->SetNeedCheckFeed(false);
    EXPECT_EQ(net.Fuses(), mul) << type;
    WithMatmul last(type, attrs, {-1, 2, 3}, {3, 4}, -1);
    last.main.Root().FindVar("x")->SetNeedCheckFeed(false);
    EXPECT_TRUE(last.Fuses()) << type;
  }
}

// Ranks are followed through ops that keep them.
TEST(FuseFc, CountedAxisBehindATransposition) {
  for (bool transposed : {true, false}) {
    Net net;
    std::string x = net.Data({-1, 2, 3}).name();
    net.main.Root().FindVar(x)->SetNeedCheckFeed(false);
    if (transposed) {
      net.b.Append("transpose2", {{"X", {x}}}, {{"Out", {"t"}}, {"XShape", {"t_shape"}}},
                   {{"axis", std::vector<int32_t>{0, 2, 1}}});
      x = "t";
    }
    const int32_t columns = transposed ? 2 : 3;
    net.Parameter("w", {columns, 4});
    net.Parameter("b", {4});
    net.b.Append("layer_norm", {{"X", {x}}},
                 {{"Y", {"n"}}, {"Mean", {"mean"}}, {"Variance", {"variance"}}},
                 {{"begin_norm_axis", int32_t{2}}});
    net.b.Append("elementwise_add", {{"X", {x}}, {"Y", {"n"}}}, {{"Out", {"s"}}});
    net.b.Append("softmax", {{"X", {"s"}}}, {{"Out", {"z"}}});
    net.b.Append("matmul_v2", {{"X", {"z"}}, {"Y", {"w"}}}, {{"Out", {"p"}}});
    net.b.Append("elementwise_add", {{"X", {"p"}}, {"Y", {"b"}}}, {{"Out", {"y"}}},
                 {{"axis", int32_t{2}}});
    EXPECT_EQ(net.Fuses(), transposed);
    ExpectSame(net, {5, 2, 3}, {"y"});
  }
}

// Following such ops back comes to an end, without a rank.
TEST(FuseFc, CountedAxisBehindOpsThatReadThemselves) {
  Net net;
  net.Data({-1, 2, 3});
  net.Parameter("w", {3, 4});
  net.Parameter("b", {4});
  ProgramDesc& main = net.main;
  for (const char* name : {"u", "v"}) {
    main.Root().Var(name).SetMeta({VarType::kLoDTensor, DType::kFloat32, {-1, 2, 3}, 0});
    main.Root().AppendOp("elementwise_add", {{"X", {name}}, {"Y", {name}}}, {{"Out", {name}}});
  }
  net.b.Append("elementwise_add", {{"X", {"u"}}, {"Y", {"v"}}}, {{"Out", {"z"}}});
  net.b.Append("matmul_v2", {{"X", {"z"}}, {"Y", {"w"}}}, {{"Out", {"p"}}});
  net.b.Append("elementwise_add", {{"X", {"p"}}, {"Y", {"b"}}}, {{"Out", {"y"}}},
               {{"axis", int32_t{2}}});
  EXPECT_FALSE(net.Fuses());
}

// A file may declare another rank than its ops compute.
TEST(FuseFc, WronglyDeclared) {
  Net net;
  net.b.Relu(net.Data({3}), {.output = "z"});
  net.Parameter("w", {3, 4});
  net.Parameter("b", {4});
  net.b.Append("matmul_v2", {{"X", {"z"}}, {"Y", {"w"}}}, {{"Out", {"p"}}});
  net.b.Append("elementwise_add", {{"X", {"p"}}, {"Y", {"b"}}}, {{"Out", {"y"}}});
  net.main.Root().FindVar("z")->SetShape({2, 3});
  EXPECT_FALSE(net.Fuses());
  ExpectSame(net, {3}, {"y"});
}

TEST(FuseFc, NearMisses) {
  {  // the product is fetched
    Net net;
    net.Fc(net.Data({-1, 3}));
    EXPECT_FALSE(net.Fuses({"y", net.main.Root().op(0).Output("Out")[0]}));
  }
  {  // somebody else reads the product
    Net net;
    net.Fc(net.Data({-1, 3}));
    net.b.Relu(net.b.Var(net.main.Root().op(0).Output("Out")[0]), {.output = "z"});
    EXPECT_FALSE(net.Fuses({"y", "z"}));
  }
  {  // the sum is fetched: the activation stays
    Net net;
    net.Fc(net.Data({-1, 3}), "relu");
    const std::string sum = net.main.Root().op(1).Output("Out")[0];
    EXPECT_EQ(net.Fused({"y", sum}),
              "Out=" + sum + " = fc(Input=x, W=w, Bias=b)\nOut=y = relu(X=" + sum + ")\n");
  }
  {  // the bias is no parameter
    Net net;
    const Variable x = net.Data({4, 3});
    net.Parameter("w", {3, 4});
    net.b.Data("bias", {4});
    net.b.Append("mul", {{"X", {x.name()}}, {"Y", {"w"}}}, {{"Out", {"p"}}});
    net.b.Append("elementwise_add", {{"X", {"p"}}, {"Y", {"bias"}}}, {{"Out", {"y"}}});
    EXPECT_FALSE(net.Fuses());
  }
  EXPECT_FALSE(WithMatmul("mul", {}, {4, 3}, {3, 4}, 0).Fuses());  // added to the columns
  {                                                                // one number for all columns
    Net net;
    net.Data({4, 3});
    net.Parameter("w", {3, 4});
    net.Parameter("one", {1});
    net.b.Append("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"p"}}});
    net.b.Append("elementwise_add", {{"X", {"p"}}, {"Y", {"one"}}}, {{"Out", {"y"}}});
    EXPECT_FALSE(net.Fuses());
  }
  {  // other attrs of the activation
    Net net;
    const Variable z = net.Fc(net.Data({-1, 3}));
    net.b.Append("relu6", {{"X", {z.name()}}}, {{"Out", {"z"}}}, {{"threshold", 4.0f}});
    EXPECT_EQ(net.Fused({"z"}), "Out=y = fc(Input=x, W=w, Bias=b)\nOut=z = relu6(X=y)\n");
  }
  {  // 16 bits have kernels for the product only
    WithMatmul net("mul", {}, {4, 3});
    for (const char* name : {"x", "w", "b", "p", "y"})
      net.main.Root().FindVar(name)->SetDType(DType::kBFloat16);
    EXPECT_FALSE(net.Fuses());
  }
}

TEST(FuseFc, Double) {
  Net net;
  net.Fc(net.Data({-1, 3}, DType::kFloat64), "gelu");
  EXPECT_TRUE(net.Fuses());
  ExpectSame(net, {5, 3}, {"y"}, DType::kFloat64, 1e-12);
}

// relu's gradient reads what relu gave, so that forward and backward are fused.
TEST(FuseFc, GradientOfRelu) {
  Net net;
  AppendBackward(net.b.Mean(net.Fc(net.Data({-1, 3}), "relu"), {.output = "loss"}));
  const std::vector<std::string> fetches = {"loss", "w@GRAD", "b@GRAD", "x@GRAD"};
  const std::string listing = net.Fused(fetches);
  EXPECT_NE(listing.find("Out=y = fc(Input=x, W=w, Bias=b)\n"), std::string::npos) << listing;
  EXPECT_NE(listing.find("Input@GRAD=x@GRAD, W@GRAD=w@GRAD, Bias@GRAD=b@GRAD, Z@GRAD="),
            std::string::npos)
      << listing;
  ExpectSame(net, {7, 3}, fetches);
}

// That of gelu and swish reads the sum, which fc then keeps.
TEST(FuseFc, GradientsFromTheSum) {
  for (const std::string act : {"gelu", "gelu_tanh", "swish", "silu"}) {
    for (const bool recomputes : {false, true}) {
      SCOPED_TRACE(act);
      Net net;
      const Variable x = net.Data({-1, 2, 3});
      Variable y;
      if (act == "gelu_tanh") {
        const Variable sum = net.Fc(x);
        net.b.Append("gelu", {{"X", {sum.name()}}}, {{"Out", {"z"}}}, {{"approximate", true}});
        y = net.b.Var("z");
      } else {
        y = net.Fc(x, act);
      }
      const Variable last =
          net.b.Fc(net.b.Tanh(y, {.output = "t"}),
                   {.size = 2, .num_flatten_dims = 2, .param_attr = {.name = "w2"}});
      BackwardOptions options;
      if (recomputes) options.recompute.checkpoints = {last.name()};
      AppendBackward(net.b.Mean(Square(last), {.output = "loss"}), options);
      const std::vector<std::string> fetches = {"loss", "w@GRAD", "b@GRAD", "x@GRAD"};
      const std::string listing = net.Fused(fetches);
      // The copy alone is read by gradients, where there is one.
      EXPECT_EQ(listing.find("Out=" + y.name() + ", Z=") == std::string::npos, recomputes)
          << listing;
      EXPECT_EQ(listing.find("= " + act + "("), std::string::npos) << listing;
      EXPECT_EQ(listing.find("= gelu("), std::string::npos) << listing;
      EXPECT_EQ(listing.find("gelu_grad("), std::string::npos) << listing;
      EXPECT_NE(listing.find("= fc_gradients(Input=x, W=w, Bias=b, Z="), std::string::npos)
          << listing;
      EXPECT_EQ(listing.find("@RECOMPUTED, Z=") != std::string::npos, recomputes) << listing;
      ExpectSame(net, {5, 2, 3}, fetches);
    }
  }
}

TEST(FuseFc, GradientsFromTheSumNearMisses) {
  {  // what goes into the activation's gradient is fetched too: fc keeps it all the same
    Net net;
    AppendBackward(net.b.Mean(net.Fc(net.Data({-1, 3}), "gelu"), {.output = "loss"}));
    const std::string sum = net.main.Root().op(1).Output("Out")[0];
    const std::vector<std::string> fetches = {"loss", "w@GRAD", "b@GRAD", "x@GRAD", sum};
    EXPECT_NE(net.Fused(fetches).find("Out=y, Z=" + sum + " = fc("), std::string::npos);
    ExpectSame(net, {7, 3}, fetches);
  }
  {  // the gradient of the sum is fetched: it stays
    Net net;
    AppendBackward(net.b.Mean(net.Fc(net.Data({-1, 3}), "gelu"), {.output = "loss"}));
    const std::string sum = net.main.Root().op(1).Output("Out")[0];
    const std::string listing = net.Fused({"loss", "w@GRAD", sum + "@GRAD"});
    EXPECT_NE(listing.find("= gelu_grad("), std::string::npos) << listing;
    ExpectSame(net, {7, 3}, {"loss", "w@GRAD", sum + "@GRAD"});
  }
  {  // two activations
    Net net;
    const Variable y = net.Fc(net.Data({-1, 3}));
    const Variable two = net.b.Add(net.b.Gelu(y), net.b.Gelu(y, true));
    AppendBackward(net.b.Mean(two, {.output = "loss"}));
    const std::vector<std::string> fetches = {"loss", "w@GRAD", "b@GRAD", "x@GRAD"};
    const std::string listing = net.Fused(fetches);
    EXPECT_NE(listing.find("= gelu("), std::string::npos) << listing;
    EXPECT_NE(listing.find("= gelu_grad("), std::string::npos) << listing;
    ExpectSame(net, {7, 3}, fetches);
  }
}

// The gradients of the others are not part of fc_gradients.
TEST(FuseFc, GradientOfOtherActivations) {
  for (const char* act : {"", "sigmoid", "tanh"}) {
    SCOPED_TRACE(act);
    Net net;
    AppendBackward(net.b.Mean(net.Fc(net.Data({-1, 3}), act), {.output = "loss"}));
    const std::vector<std::string> fetches = {"loss", "w@GRAD", "b@GRAD", "x@GRAD"};
    const std::string listing = net.Fused(fetches);
    EXPECT_EQ(listing.find("mul"), std::string::npos) << listing;
    EXPECT_NE(listing.find("= fc_gradients(Input=x, W=w, Bias=b, Out@GRAD="), std::string::npos)
        << listing;
    ExpectSame(net, {7, 3}, fetches);
  }
}

TEST(FuseFc, GradientOfMatmul) {
  WithMatmul net("matmul_v2", {});
  AppendBackward(net.b.Mean(net.b.Relu(net.b.Var("y")), {.output = "loss"}));
  const std::vector<std::string> fetches = {"loss", "w@GRAD", "b@GRAD", "x@GRAD"};
  EXPECT_NE(net.Fused(fetches).find("= fc_gradients("), std::string::npos);
  ExpectSame(net, {5, 2, 3}, fetches);
}

TEST(FuseFc, GradientsOfSome) {
  Net net;
  const Variable x = net.b.Data("x", {-1, 3});  // has no gradient
  AppendBackward(net.b.Mean(net.Fc(x, "relu"), {.output = "loss"}));
  const std::string listing = net.Fused({"loss", "w@GRAD", "b@GRAD"});
  EXPECT_NE(listing.find("= fc_gradients(Input=x, W=w, Bias=b, Out=y, Out@GRAD=y@GRAD)"),
            std::string::npos)
      << listing;
  EXPECT_EQ(listing.find("Input@GRAD="), std::string::npos) << listing;
  ExpectSame(net, {7, 3}, {"loss", "w@GRAD", "b@GRAD"});
}

TEST(FuseFc, GradientNearMiss) {
  Net net;
  AppendBackward(net.b.Mean(net.Fc(net.Data({-1, 3}), "relu"), {.output = "loss"}));
  std::string dproduct;
  net.main.Root().ForEachOp([&](const OpDesc& op) {
    if (op.type() == "mul_grad") dproduct = op.Input("Out@GRAD")[0];
  });
  const std::string listing = net.Fused({"loss", "w@GRAD", "b@GRAD", dproduct});
  EXPECT_NE(listing.find("mul_grad"), std::string::npos) << listing;
}

TEST(FuseFc, PassesLod) {
  Net net;
  net.Fc(net.Data({-1, 3}), "relu");
  Scope scope;
  Executor().Run(net.startup, scope);
  Tensor x = Drawn({3, 3});
  x.lod() = {{0, 1, 3}};
  EXPECT_EQ(Executor().Run(net.main, scope, {{"x", x}}, {"y"})[0].lod(), x.lod());
}
}  // namespace coracle::fuse_fc_test
