// FlowTypes: the types that rules inferred, else those of constants, else the declared ones.

#include <coracle/framework/op/check/flow_types.h>
#include <coracle/operators/operators.h>
#include <gtest/gtest.h>

namespace coracle::flow_types_test {

const Tensor& TwoDoubles() {
  static const Tensor value = Tensor::Of<double>({2}, {1, 2});
  return value;
}

class WithConstant : public FlowTypes {
 public:
  using FlowTypes::FlowTypes;
  const Tensor* Constant(const std::string& name) const override {
    return name == "c" ? &TwoDoubles() : nullptr;
  }
};

// All variables are declared float32 [4].
struct Net {
  Net() {
    for (const char* name : {"x", "y", "c"}) {
      VarDesc& var = program.Root().Var(name);
      var.SetDType(DType::kFloat32);
      var.SetShape({4});
    }
  }
  const OpDesc& Relu(const char* x, const char* out) {
    return program.Root().AppendOp("relu", {{"X", {x}}}, {{"Out", {out}}});
  }
  static const OpSpec& Spec() { return DefaultOps().Get("relu"); }
  ProgramDesc program;
};

TEST(FlowTypes, InferredTypesComeBeforeDeclaredOnes) {
  Net net;
  FlowTypes types(net.program.Root());
  EXPECT_EQ(types.Find("nothing"), nullptr);
  EXPECT_EQ(types.Find("y"), &net.program.Root().FindVar("y")->meta());
  EXPECT_TRUE(types.IsDeclaredOnly("y"));
  types.Set("x", {VarType::kLoDTensor, DType::kFloat64, {7}, 0});
  EXPECT_TRUE(types.Infer(Net::Spec(), net.Relu("x", "y")));
  EXPECT_FALSE(types.IsDeclaredOnly("y"));
  EXPECT_EQ(types.Find("y")->dtype, DType::kFloat64);
  EXPECT_EQ(types.Find("y")->shape, Shape({7}));
  EXPECT_EQ(net.program.Root().FindVar("y")->dtype(), DType::kFloat32);  // it changes no program
}

TEST(FlowTypes, TheTypeOfAConstantIsThatOfItsValue) {
  Net net;
  WithConstant types(net.program.Root());
  EXPECT_TRUE(types.Infer(Net::Spec(), net.Relu("c", "y")));
  EXPECT_EQ(types.Find("y")->dtype, DType::kFloat64);
  EXPECT_EQ(types.Find("y")->shape, Shape({2}));
  // An op that writes it gives it another type.
  EXPECT_TRUE(types.Infer(Net::Spec(), net.Relu("x", "c")));
  EXPECT_EQ(types.Find("c")->shape, Shape({4}));
}

TEST(FlowTypes, ARuleMayRefuseTheInputs) {
  Net net;
  FlowTypes types(net.program.Root());
  types.Set("x", {VarType::kLoDTensor, DType::kBool, {4}, 0});
  const OpDesc& op = net.Relu("x", "y");
  EXPECT_FALSE(types.Infer(Net::Spec(), op));
  EXPECT_THROW(types.InferOrThrow(Net::Spec(), op), Error);
  EXPECT_TRUE(types.IsDeclaredOnly("y"));
}

}  // namespace coracle::flow_types_test
