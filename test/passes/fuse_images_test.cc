// Runs of ops on images, and what ends them.

#include <coracle/passes/passes.h>
#include <coracle/test/passes/op_program.h>

#include <algorithm>

namespace coracle::fuse_images_test {

using Names = std::vector<std::string>;
using Ints = std::vector<int32_t>;

void Conv(OpProgram& p, const std::string& x, const std::string& w, const std::string& y,
          AttrList attrs = {{"paddings", Ints{1, 1}}}) {
  p.Append("conv2d", {{"Input", {x}}, {"Filter", {w}}}, {{"Output", {y}}}, std::move(attrs));
}

// So small that sums stay near 1.
void Filter(OpProgram& p, const std::string& name, const Shape& shape, DType dtype) {
  p.Parameter(name, shape, dtype);
  Tensor value = OpProgram::Drawn(shape);
  for (double& v : value.span<double>()) v *= 0.3 / static_cast<double>(shape.Product(1, 4));
  p.scope.Set(name, value.Cast(dtype));
}

// x -> conv -> a -> relu -> r -> conv -> y
OpProgram Chain(const Shape& x, DType dtype = DType::kFloat32) {
  OpProgram p;
  p.Data("x", x, dtype);
  Filter(p, "w", {4, 3, 3, 3}, dtype);
  Filter(p, "v", {4, 4, 3, 3}, dtype);
  Conv(p, "x", "w", "a");
  p.Unary("relu", "a", "r");
  Conv(p, "r", "v", "y");
  return p;
}

std::string After(const OpProgram& p, const Names& fetches = {"y"}) {
  return p.After({"fuse_images"}, fetches);
}

TEST(FuseImages, AChain) {
  for (int64_t images : {-1, 2, 8}) {
    OpProgram p = Chain({images, 3, 8, 8});
    EXPECT_EQ(p.Listing(),
              "Output=a = conv2d(Input=x, Filter=w)\nOut=r = relu(X=a)\n"
              "Output=y = conv2d(Input=r, Filter=v)\n");
    EXPECT_EQ(After(p), "Out=y = fused_images(X=x+w+v)\n");
    // What is fetched ends a group.
    EXPECT_EQ(After(p, {"y", "r"}), p.Listing());
    p.ExpectSame({"y", "r"});
    p.feeds["x"].lod() = {{0, static_cast<uint64_t>(p.feeds["x"].shape()[0])}};
    p.ExpectSame({"y"});
  }
}

TEST(FuseImages, AnyNumberOfImages) {
  OpProgram p = Chain({-1, 3, 8, 8});
  for (int64_t images : {0, 1, 2, 3, 9}) {
    p.feeds["x"] = OpProgram::Drawn({images, 3, 8, 8}).Cast(DType::kFloat32);
    p.ExpectSame({"y"});
  }
}

TEST(FuseImages, UnknownSizesOfImages) {
  OpProgram p = Chain({-1, 3, -1, -1});
  EXPECT_EQ(After(p), "Out=y = fused_images(X=x+w+v)\n");
  p.feeds["x"] = OpProgram::Drawn({4, 3, 5, 7}).Cast(DType::kFloat32);
  p.ExpectSame({"y"});
}

TEST(FuseImages, OneImageAndOtherTypesStay) {
  const OpProgram one = Chain({1, 3, 8, 8});
  EXPECT_EQ(After(one), one.Listing());
  const OpProgram wide = Chain({-1, 3, 8, 8}, DType::kFloat64);
  EXPECT_EQ(After(wide), wide.Listing());
}

TEST(FuseImages, OneConvolutionStays) {
  OpProgram p;
  p.Data("x", {-1, 3, 8, 8});
  p.Parameter("w", {4, 3, 3, 3});
  Conv(p, "x", "w", "a");
  p.Unary("relu", "a", "y");
  EXPECT_EQ(After(p), p.Listing());
}

// An op that reads all images of a batch, or has no images, ends a run.
TEST(FuseImages, OtherOpsBetween) {
  OpProgram p = Chain({-1, 3, 8, 8});
  p.Unary("softmax", "y", "s");
  Filter(p, "u", {4, 4, 1, 1}, DType::kFloat32);
  Conv(p, "s", "u", "t", {});
  Conv(p, "t", "u", "z", {});
  EXPECT_EQ(After(p, {"z"}),
            "Out=y = fused_images(X=x+w+v)\nOut=s = softmax(X=y)\n"
            "Out=z = fused_images(X=s+u)\n");
  p.ExpectSame({"z"});
}

// Transposes that move the images.
TEST(FuseImages, ImagesInAnotherDim) {
  OpProgram p = Chain({4, 3, 4, 4});
  p.Transpose("y", "t", {1, 0, 2, 3});
  Conv(p, "t", "v", "z");
  p.ExpectSame({"z"});
}

// A filter that is larger than the image that it reads stays outside.
TEST(FuseImages, LargeFilters) {
  OpProgram p = Chain({-1, 3, 8, 8});
  Filter(p, "large", {64, 4, 8, 8}, DType::kFloat32);
  Conv(p, "y", "large", "z", {});
  p.Unary("relu", "z", "s");
  EXPECT_EQ(After(p, {"s"}),
            "Out=y = fused_images(X=x+w+v)\n"
            "Output=z = conv2d(Input=y, Filter=large)\nOut=s = relu(X=z)\n");
  p.ExpectSame({"s"});
}

// A result that is read behind the group too.
TEST(FuseImages, CutWhereOthersRead) {
  OpProgram p = Chain({-1, 3, 8, 8});
  Conv(p, "y", "v", "b");
  Conv(p, "b", "v", "c");
  p.Unary("softmax", "y", "s");
  EXPECT_EQ(After(p, {"s", "c"}),
            "Out=y = fused_images(X=x+w+v)\nOut=c = fused_images(X=y+v)\nOut=s = softmax(X=y)\n");
  p.ExpectSame({"s", "c"});
}

// Operands that the program computes: with the images in the first dim, or without.
TEST(FuseImages, OtherOperands) {
  OpProgram p = Chain({-1, 3, 8, 8});
  p.Data("gate", {-1, 4, 1, 1});
  p.Data("shift", {4});
  p.Append("elementwise_mul", {{"X", {"y"}}, {"Y", {"gate"}}}, {{"Out", {"m"}}});
  p.Append("elementwise_add", {{"X", {"m"}}, {"Y", {"shift"}}}, {{"Out", {"s"}}}, {{"axis", 1}});
  p.feeds["x"] = OpProgram::Drawn({4, 3, 8, 8}).Cast(DType::kFloat32);
  p.feeds["gate"] = OpProgram::Drawn({4, 4, 1, 1}).Cast(DType::kFloat32);
  EXPECT_EQ(After(p, {"s"}), "Out=s = fused_images(X=x+w+v+gate+shift)\n");
  p.ExpectSame({"s"});
  // One gate for all images.
  p.feeds["gate"] = OpProgram::Drawn({1, 4, 1, 1}).Cast(DType::kFloat32);
  p.ExpectSame({"s"});
}

// A filter that one op reads packed and another as it is, the other way round too.
TEST(FuseImages, AFilterThatIsAnOperand) {
  for (const bool operand_first : {true, false}) {
    OpProgram p;
    p.Data("x", {4, 4, 16, 16});
    p.Data("z", {4, 4, 3, 3});
    Filter(p, "v", {4, 4, 3, 3}, DType::kFloat32);
    Filter(p, "w", {4, 4, 3, 3}, DType::kFloat32);
    const auto add = [&] {
      p.Append("elementwise_add", {{"X", {"z"}}, {"Y", {"w"}}}, {{"Out", {"s"}}});
    };
    Conv(p, "x", "v", "a");
    if (operand_first) add();
    Conv(p, "a", "w", "y", {{"strides", Ints{5, 5}}});
    if (!operand_first) add();
    p.Append("elementwise_add", {{"X", {"y"}}, {"Y", {"s"}}}, {{"Out", {"t"}}});
    const std::string listing = After(p, {"t"});
    EXPECT_EQ(std::count(listing.begin(), listing.end(), '\n'), 1) << listing;
    p.ExpectSame({"t"});
  }
}

TEST(FuseImages, ProgramsWithGradientsStay) {
  OpProgram p = Chain({-1, 3, 8, 8});
  p.root().op(2).SetAttr("op_role", static_cast<int32_t>(kBackward));
  EXPECT_EQ(After(p), p.Listing());
}
}  // namespace coracle::fuse_images_test
