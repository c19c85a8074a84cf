#include <coracle/backward/backward.h>
#include <coracle/layers/builder.h>
#include <coracle/operators/operators.h>
#include <coracle/passes/passes.h>
#include <coracle/test/passes/listing.h>
#include <coracle/test/passes/same_results.h>
#include <gtest/gtest.h>

namespace coracle::fuse_softmax_cross_entropy_test {

// The cross-entropy of x with the labels `label`.
struct Net {
  ProgramDesc main, startup;
  Builder b{main, startup};
  Variable loss;

  explicit Net(AttrList attrs = {}, const Shape& x = {-1, 5}, const Shape& label = {-1, 1},
               DType label_dtype = DType::kInt64, DType dtype = DType::kFloat32) {
    b.Data("x", x, dtype, {.stop_gradient = false});
    b.Data("label", label, label_dtype);
    b.Append("softmax_with_cross_entropy", {{"Logits", {"x"}}, {"Label", {"label"}}},
             {{"Softmax", {"s"}}, {"Loss", {"each"}}}, std::move(attrs));
    loss = b.Var("each");
  }
  void MeanAndBackward() { AppendBackward(b.Mean(loss, {.output = "loss"})); }

  std::string Fused(const std::vector<std::string>& fetches = {"loss", "x@GRAD"}) const {
    ProgramDesc program = main;
    const PassContext context{DefaultOps(), {"x", "label"}, {fetches.begin(), fetches.end()}};
    RunPasses(program, context, {"fuse_softmax_cross_entropy"});
    return Listing(program);
  }
  bool Fuses(const std::vector<std::string>& fetches = {"loss", "x@GRAD"}) const {
    return Fused(fetches).find("= fused_softmax_with_cross_entropy(") != std::string::npos;
  }
};

Tensor Labels(const Shape& shape, int64_t classes) {
  Tensor t(DType::kInt64, shape);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<int64_t>()[i] = i % classes;
  return t;
}

void ExpectSame(const Net& net, const Tensor& x, const Tensor& label,
                const std::vector<std::string>& fetches, double tolerance = 1e-5) {
  ExpectSameResults(net.main, Scope(), {{"x", x}, {"label", label}}, fetches, tolerance);
}

TEST(FuseSoftmaxCrossEntropy, MeanAndGradients) {
  Net net;
  net.MeanAndBackward();
  const std::string listing = net.Fused();
  EXPECT_NE(listing.find(
                "Loss=each, Logits@GRAD=x@GRAD = fused_softmax_with_cross_entropy("
                "Logits=x, Label=label, Mean@GRAD=loss@GRAD) axis=-1\nOut=loss = mean(X=each)\n"),
            std::string::npos)
      << listing;
  EXPECT_EQ(listing.find("_grad("), std::string::npos) << listing;
  ExpectSame(net, Drawn({7, 5}), Labels({7, 1}, 5), {"loss", "x@GRAD"});
}

TEST(FuseSoftmaxCrossEntropy, ReduceMean) {
  for (const bool all : {true, false}) {
    Net net;
    net.b.Append("reduce_mean", {{"X", {"each"}}}, {{"Out", {"loss"}}}, {{"reduce_all", all}});
    const Variable sum = all ? net.b.Var("loss") : net.b.Mean(net.b.Var("loss"));
    AppendBackward(sum);
    EXPECT_EQ(net.Fuses(), all) << net.Fused();
    ExpectSame(net, Drawn({7, 5}), Labels({7, 1}, 5), {"loss", "x@GRAD"});
  }
}

TEST(FuseSoftmaxCrossEntropy, AttrsStay) {
  Net net({{"ignore_index", 2}, {"axis", 1}}, {-1, 5, 3}, {-1, 1, 3});
  net.MeanAndBackward();
  EXPECT_TRUE(net.Fuses());
  ExpectSame(net, Drawn({4, 5, 3}), Labels({4, 1, 3}, 5), {"loss", "x@GRAD"});
}

TEST(FuseSoftmaxCrossEntropy, SoftLabels) {
  Net net({{"soft_label", true}}, {-1, 5}, {-1, 5}, DType::kFloat32);
  net.MeanAndBackward();
  EXPECT_TRUE(net.Fuses());
  ExpectSame(net, Drawn({7, 5}), Tensor::Full<float>({7, 5}, 0.2f), {"loss", "x@GRAD"});
}

TEST(FuseSoftmaxCrossEntropy, Double) {
  Net net({}, {-1, 5}, {-1, 1}, DType::kInt64, DType::kFloat64);
  net.MeanAndBackward();
  EXPECT_TRUE(net.Fuses());
  ExpectSame(net, Drawn({7, 5}, DType::kFloat64), Labels({7, 1}, 5), {"loss", "x@GRAD"}, 1e-12);
}

TEST(FuseSoftmaxCrossEntropy, NearMisses) {
  {  // softmax and losses of the examples are fetched
    Net net;
    net.MeanAndBackward();
    EXPECT_FALSE(net.Fuses({"loss", "x@GRAD", "s"}));
    EXPECT_FALSE(net.Fuses({"loss", "x@GRAD", "each"}));
    ExpectSame(net, Drawn({7, 5}), Labels({7, 1}, 5), {"loss", "x@GRAD", "s", "each"});
  }
  {  // somebody reads the softmax
    Net net;
    net.b.Append("top_k", {{"X", {"s"}}}, {{"Out", {"best"}}, {"Indices", {"at"}}}, {{"k", 1}});
    net.MeanAndBackward();
    EXPECT_FALSE(net.Fuses({"loss", "x@GRAD", "at"}));
  }
  {  // the gradient of the losses depends on them
    Net net;
    AppendBackward(net.b.Mean(Square(net.loss), {.output = "loss"}));
    EXPECT_FALSE(net.Fuses());
  }
  {  // somebody needs the mean before the gradient is complete
    Net net;
    const Variable mean = net.b.Mean(net.loss, {.output = "loss"});
    AppendBackward(net.b.Mean(Square(mean)));
    EXPECT_FALSE(net.Fuses());
    ExpectSame(net, Drawn({7, 5}), Labels({7, 1}, 5), {"loss", "x@GRAD"});
  }
  {  // a gradient op with another attr
    Net net;
    net.MeanAndBackward();
    net.main.Root().ForEachOp([](OpDesc& op) {
      if (op.type() == "softmax_with_cross_entropy_grad") op.SetAttr("ignore_index", int32_t{3});
    });
    EXPECT_FALSE(net.Fuses());
  }
}

TEST(FuseSoftmaxCrossEntropy, UnreadSoftmaxIsNotStored) {
  Net net;
  EXPECT_EQ(net.Fused({"each"}),
            "Loss=each = softmax_with_cross_entropy(Logits=x, Label=label) axis=-1\n");
  EXPECT_EQ(net.Fused({"each", "s"}), Listing(net.main));
  ExpectSame(net, Drawn({7, 5}), Labels({7, 1}, 5), {"each"});
}
}  // namespace coracle::fuse_softmax_cross_entropy_test
