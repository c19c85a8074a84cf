// A group of ops on images against the same ops one by one, whatever the chunks.
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>
#include <coracle/test/threads.h>

namespace coracle::fused_images_test {

using Names = std::vector<std::string>;

// Ops on inputs, some of which have the images in their first dim.
class Ops {
 public:
  Ops& In(const std::string& name, const Shape& shape, bool images, DType dtype = DType::kFloat32) {
    std::mt19937 random(static_cast<uint32_t>(inputs_.size()));
    std::uniform_real_distribution<double> uniform(-1, 1);
    Tensor value(DType::kFloat64, shape);
    for (double& v : value.span<double>()) v = uniform(random);
    if (images) images_.push_back(static_cast<int32_t>(inputs_.size()));
    inputs_.emplace_back(name, value.Cast(dtype));
    return *this;
  }
  Ops& Do(const std::string& type, SlotList in, SlotList out, AttrList attrs = {}) {
    ops_.emplace_back(type, std::move(in), std::move(out), std::move(attrs));
    return *this;
  }

  void Check(const Names& wanted) const {
    for (KernelMode mode : {KernelMode::kReference, KernelMode::kAuto}) {
      const std::vector<Tensor> plain = Plain(wanted, mode);
      for (int threads : {1, 2, 5}) {
        const Threads scope(threads);
        const std::vector<Tensor> fused = Fused(wanted, mode), again = Fused(wanted, mode);
        for (size_t i = 0; i < wanted.size(); ++i) {
          ASSERT_EQ(plain[i].shape(), fused[i].shape()) << wanted[i];
          EXPECT_TRUE(BitEqual(fused[i], again[i])) << wanted[i];
          const Tensor a = plain[i].Cast(DType::kFloat64), b = fused[i].Cast(DType::kFloat64);
          for (int64_t k = 0; k < a.numel(); ++k) {
            ASSERT_NEAR(a.data<double>()[k], b.data<double>()[k], 1e-5)
                << wanted[i] << " at " << k << " with " << threads
                << " threads, fast: " << (mode == KernelMode::kAuto);
          }
        }
      }
    }
  }

 private:
  std::vector<Tensor> Plain(const Names& wanted, KernelMode mode) const {
    ProgramDesc program;
    VarValues env;
    for (const auto& [name, value] : inputs_) {
      Declare(program.Root(), name, value);
      env[name] = value.Clone();
    }
    for (const OpDesc& op : ops_)
      InferOp(program.Root(), program.Root().AppendOp(op), DefaultOps());
    return Run(program, std::move(env), wanted, mode);
  }
  std::vector<Tensor> Fused(const Names& wanted, KernelMode mode) const {
    ProgramDesc program;
    VarValues env;
    BlockDesc& block = program.AppendBlock(0);
    Names x, arguments, out;
    for (const auto& [name, value] : inputs_) {
      Declare(block, name, value);
      x.push_back("outer." + name);
      arguments.push_back(name);
      Declare(program.Root(), x.back(), value);
      env[x.back()] = value.Clone();
    }
    for (const OpDesc& op : ops_) InferOp(block, block.AppendOp(op), DefaultOps());
    for (const std::string& name : wanted) out.push_back("outer." + name);
    const OpDesc& op = program.Root().AppendOp("fused_images", {{"X", x}}, {{"Out", out}},
                                               {{"sub_block", BlockRef{1}},
                                                {"arguments", arguments},
                                                {"results", wanted},
                                                {"images", images_}});
    InferOp(program.Root(), op, DefaultOps());
    return Run(program, std::move(env), out, mode);
  }
  static void Declare(BlockDesc& block, const std::string& name, const Tensor& value) {
    block.Var(name).SetMeta({VarType::kLoDTensor, value.dtype(), value.shape(), 0});
  }
  static std::vector<Tensor> Run(const ProgramDesc& program, VarValues env, const Names& wanted,
                                 KernelMode mode) {
    InterpretOptions options;
    options.kernels = mode;
    Interpret(program.Root(), DefaultOps(), env, options);
    std::vector<Tensor> values;
    for (const std::string& name : wanted) values.push_back(std::get<Tensor>(env.at(name)));
    return values;
  }

  std::vector<std::pair<std::string, Tensor>> inputs_;
  std::vector<int32_t> images_;
  std::vector<OpDesc> ops_;
};

// A block of a network: pointwise, depthwise and a gate, with a residual.
Ops Block(int64_t images, int64_t size, int64_t channels, DType dtype = DType::kFloat32) {
  Ops ops;
  ops.In("x", {images, channels, size, size}, true, dtype)
      .In("w", {2 * channels, channels, 1, 1}, false, dtype)
      .In("b", {2 * channels}, false, dtype)
      .In("d", {2 * channels, 1, 3, 3}, false, dtype)
      .In("p", {channels, 2 * channels, 1, 1}, false, dtype);
  const AttrList nhwc = {{"data_format", std::string("NHWC")}};
  ops.Do("transpose2", {{"X", {"x"}}}, {{"Out", {"t"}}},
         {{"axis", std::vector<int32_t>{0, 2, 3, 1}}})
      .Do("conv2d", {{"Input", {"t"}}, {"Filter", {"w"}}, {"Bias", {"b"}}}, {{"Output", {"wide"}}},
          {{"data_format", std::string("NHWC")}, {"fuse_activation", std::string("relu")}})
      .Do("depthwise_conv2d", {{"Input", {"wide"}}, {"Filter", {"d"}}}, {{"Output", {"deep"}}},
          {{"data_format", std::string("NHWC")},
           {"groups", static_cast<int32_t>(2 * channels)},
           {"paddings", std::vector<int32_t>{1, 1}}})
      .Do("pool2d", {{"X", {"deep"}}}, {{"Out", {"mean"}}},
          {{"data_format", std::string("NHWC")},
           {"pooling_type", std::string("avg")},
           {"global_pooling", true},
           {"ksize", std::vector<int32_t>{1, 1}}})
      .Do("sigmoid", {{"X", {"mean"}}}, {{"Out", {"gate"}}})
      .Do("elementwise_mul", {{"X", {"deep"}}, {"Y", {"gate"}}}, {{"Out", {"gated"}}})
      .Do("conv2d", {{"Input", {"gated"}}, {"Filter", {"p"}}, {"ResidualData", {"t"}}},
          {{"Output", {"y"}}}, nhwc);
  return ops;
}

TEST(FusedImages, NumbersOfImages) {
  for (int64_t images : {0, 1, 2, 3, 4, 7, 8, 21}) Block(images, 5, 16).Check({"y"});
}
// So large that chunks are single images.
TEST(FusedImages, LargeImages) {
  for (int64_t images : {2, 3, 9}) Block(images, 56, 24).Check({"y", "gate"});
}
TEST(FusedImages, ResultsOnTheWay) { Block(4, 6, 8).Check({"t", "deep", "gated", "y"}); }
TEST(FusedImages, Doubles) { Block(3, 5, 4, DType::kFloat64).Check({"y"}); }

// A filter that one op reads packed and another as it is.
TEST(FusedImages, OneFilterTwice) {
  Ops ops;
  ops.In("x", {4, 6, 6, 16}, true).In("w", {16, 16, 1, 1}, false);
  const AttrList nhwc = {{"data_format", std::string("NHWC")}};
  ops.Do("conv2d", {{"Input", {"x"}}, {"Filter", {"w"}}}, {{"Output", {"a"}}}, nhwc)
      .Do("scale", {{"X", {"w"}}}, {{"Out", {"v"}}}, {{"scale", 0.5f}})
      .Do("conv2d", {{"Input", {"a"}}, {"Filter", {"w"}}}, {{"Output", {"y"}}}, nhwc);
  ops.Check({"y"});
}

// Operands whose first dim equals the number of images but has another meaning.
TEST(FusedImages, OtherDimsOfTheSameSize) {
  for (int64_t n : {2, 4, 8}) {
    Ops columns;
    columns.In("x", {n, 3, 5, n}, true).In("y", {n}, true);
    columns.Do("elementwise_add", {{"X", {"x"}}, {"Y", {"y"}}}, {{"Out", {"z"}}})
        .Do("relu", {{"X", {"z"}}}, {{"Out", {"r"}}});
    columns.Check({"r"});
    Ops rows;
    rows.In("x", {n, 3, 5, n}, true).In("y", {n}, true);
    rows.Do("elementwise_add", {{"X", {"x"}}, {"Y", {"y"}}}, {{"Out", {"z"}}}, {{"axis", 0}})
        .Do("relu", {{"X", {"z"}}}, {{"Out", {"r"}}});
    rows.Check({"r"});
    Ops moved;
    moved.In("x", {n, 3, n, 5}, true);
    moved
        .Do("transpose2", {{"X", {"x"}}}, {{"Out", {"t"}}},
            {{"axis", std::vector<int32_t>{2, 1, 0, 3}}})
        .Do("relu", {{"X", {"t"}}}, {{"Out", {"r"}}});
    moved.Check({"r"});
    Ops stretched;
    stretched.In("x", {n, 3, 2, 2}, true).In("y", {1, 3, 2, 2}, false).In("z", {n, 1, 1, 1}, true);
    stretched.Do("elementwise_add", {{"X", {"x"}}, {"Y", {"y"}}}, {{"Out", {"s"}}})
        .Do("elementwise_mul", {{"X", {"s"}}, {"Y", {"z"}}}, {{"Out", {"r"}}});
    stretched.Check({"r"});
  }
}

// The constraints.
class FusedImagesErrors : public ::testing::Test {
 protected:
  FusedImagesErrors() {
    for (const char* name : {"x", "z"}) program.Root().Var(name).SetShape({2});
    for (const char* name : {"a", "b", "c"}) block().Var(name).SetShape({2});
    block().AppendOp("relu", {{"X", {"a"}}}, {{"Out", {"b"}}});
    block().AppendOp("tanh", {{"X", {"b"}}}, {{"Out", {"c"}}});
  }
  BlockDesc& block() {
    if (program.NumBlocks() == 1) program.AppendBlock(0);
    return program.Block(1);
  }
  std::string Message(const Names& x, const Names& arguments, const Names& out,
                      const Names& results, std::vector<int32_t> lod_from = {},
                      std::vector<int32_t> images = {}) {
    OpDesc& op = program.Root().AppendOp("fused_images", {{"X", x}}, {{"Out", out}},
                                         {{"sub_block", BlockRef{1}},
                                          {"arguments", arguments},
                                          {"results", results},
                                          {"lod_from", std::move(lod_from)},
                                          {"images", std::move(images)}});
    try {
      InferOp(program.Root(), op, DefaultOps());
    } catch (const Error& e) {
      return e.message();
    }
    return "";
  }
  ProgramDesc program;
};

TEST_F(FusedImagesErrors, None) {
  EXPECT_EQ(Message({"x"}, {"a"}, {"y"}, {"c"}, {}, {0}), "");
  EXPECT_EQ(program.Root().FindVar("y")->shape(), Shape{2});
}
TEST_F(FusedImagesErrors, C1_NumberOfArguments) {
  ExpectConstraint(Message({"x"}, {}, {"y"}, {"c"}), "fused_images.C1");
}
TEST_F(FusedImagesErrors, C2_NumberOfResults) {
  ExpectConstraint(Message({"x"}, {"a"}, {"y"}, {"c", "b"}), "fused_images.C2");
}
TEST_F(FusedImagesErrors, C3_VariablesOfTheBlock) {
  ExpectConstraint(Message({"x"}, {"x"}, {"y"}, {"c"}), "fused_images.C3");
}
TEST_F(FusedImagesErrors, C4_NamedTwice) {
  ExpectConstraint(Message({"x", "z"}, {"a", "a"}, {"y"}, {"c"}), "fused_images.C4");
}
TEST_F(FusedImagesErrors, C5_OtherOps) {
  block().Var("d").SetShape({2});
  block().AppendOp("softmax", {{"X", {"c"}}}, {{"Out", {"d"}}});
  ExpectConstraint(Message({"x"}, {"a"}, {"y"}, {"c"}), "fused_images.C5");
}
TEST_F(FusedImagesErrors, C6_OrderOfTheOps) {
  ExpectConstraint(Message({"x"}, {"b"}, {"y"}, {"c"}), "fused_images.C6");
}
TEST_F(FusedImagesErrors, C7_DenseTensors) {
  program.Root().FindVar("x")->SetType(VarType::kSelectedRows);
  ExpectConstraint(Message({"x"}, {"a"}, {"y"}, {"c"}), "fused_images.C7");
}
TEST_F(FusedImagesErrors, C8_LodFrom) {
  ExpectConstraint(Message({"x"}, {"a"}, {"y"}, {"c"}, {1}), "fused_images.C8");
}
TEST_F(FusedImagesErrors, C9_Images) {
  ExpectConstraint(Message({"x"}, {"a"}, {"y"}, {"c"}, {}, {1}), "fused_images.C9");
  ExpectConstraint(Message({"x"}, {"a"}, {"w"}, {"c"}, {}, {-1}), "fused_images.C9");
}
}  // namespace coracle::fused_images_test
