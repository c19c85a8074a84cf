#include <coracle/layers/builder.h>
#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>

namespace coracle::tensor_array_to_tensor_test {

const VarMeta kRows{VarType::kLoDTensor, DType::kFloat32, {2, 2}, 0};

VarValues Join(TensorArray array, int32_t axis, bool stack, const Shape& declared = {},
               DType dtype = DType::kFloat32) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  block.Var("out").SetShape(declared);
  block.Var("out").SetDType(dtype);
  block.Var("index");
  block.AppendOp("tensor_array_to_tensor", {{"X", {"a"}}},
                 {{"Out", {"out"}}, {"OutIndex", {"index"}}},
                 {{"axis", axis}, {"use_stack", stack}});
  VarValues env;
  env["a"] = std::move(array);
  Interpret(block, DefaultOps(), env);
  return env;
}

void ExpectJoined(const TensorArray& array, int32_t axis, bool stack, const Shape& shape,
                  const std::vector<float>& values, const std::vector<int32_t>& index) {
  const VarValues env = Join(array, axis, stack);
  EXPECT_TRUE(BitEqual(std::get<Tensor>(env.at("out")), Tensor::Of<float>(shape, values)));
  EXPECT_TRUE(BitEqual(std::get<Tensor>(env.at("index")),
                       Tensor::Of<int32_t>({static_cast<int64_t>(index.size())}, index)));
}

TEST(TensorArrayToTensor, Values) {
  const Tensor a = Tensor::Of<float>({2, 1}, {1, 2}), b = Tensor::Of<float>({2, 2}, {3, 4, 5, 6});
  const Tensor c = Tensor::Of<float>({1, 1}, {7});
  ExpectJoined({a, b}, 1, false, {2, 3}, {1, 3, 4, 2, 5, 6}, {1, 2});
  ExpectJoined({a, b}, -1, false, {2, 3}, {1, 3, 4, 2, 5, 6}, {1, 2});
  ExpectJoined({a, c}, 0, false, {3, 1}, {1, 2, 7}, {2, 1});
  ExpectJoined({b, b}, 0, true, {2, 2, 2}, {3, 4, 5, 6, 3, 4, 5, 6}, {2, 2});
  ExpectJoined({b, b}, 2, true, {2, 2, 2}, {3, 3, 4, 4, 5, 5, 6, 6}, {1, 1});
  ExpectJoined({b}, 1, true, {2, 1, 2}, {3, 4, 5, 6}, {2});
}

TEST(TensorArrayToTensor, NoElements) {
  const auto shape = [](int32_t axis, bool stack, const Shape& declared) {
    const VarValues env = Join({}, axis, stack, declared);
    EXPECT_EQ(std::get<Tensor>(env.at("index")).numel(), 0);
    return std::get<Tensor>(env.at("out")).shape();
  };
  EXPECT_EQ(shape(0, true, {-1, 2}), (Shape{0, 2}));
  EXPECT_EQ(shape(1, false, {3, 7}), (Shape{3, 0}));
  EXPECT_EQ(shape(-1, false, {3, -1}), (Shape{3, 0}));
  EXPECT_THROW(shape(0, true, {-1, -1}), Error);
  EXPECT_THROW(shape(0, false, {-1}), Error);
}

// The declared dtype counts only if no element has a dtype.
TEST(TensorArrayToTensor, TheDTypeOfNoElements) {
  for (const DType dtype : {DType::kInt64, DType::kBool, DType::kFloat64, DType::kFloat32}) {
    const auto joined = [&](TensorArray array) {
      const VarValues env = Join(std::move(array), 0, true, {-1, 2}, dtype);
      return std::get<Tensor>(env.at("out")).dtype();
    };
    EXPECT_EQ(joined({}), dtype);
    EXPECT_EQ(joined({Tensor::Of<float>({2}, {1, 2})}), DType::kFloat32);
  }
}

TEST(TensorArrayToTensor, Constraints) {
  const auto error = [](TensorArray array, int32_t axis, bool stack) {
    try {
      Join(std::move(array), axis, stack);
    } catch (const Error& e) {
      return e.message();
    }
    return std::string("no error");
  };
  const Tensor a = Tensor::Of<float>({2, 1}, {1, 2}), b = Tensor::Of<float>({1, 2}, {3, 4});
  const std::string type = "tensor_array_to_tensor";
  ExpectConstraint(error({}, 0, false), type + ".C2");
  ExpectConstraint(error({a, b}, 0, false), type + ".C2");
  ExpectConstraint(error({a, b}, 0, true), type + ".C2");
  ExpectConstraint(error({a}, 2, false), type + ".C2");
  ExpectConstraint(error({a, Tensor::Of<double>({2, 1}, {1, 2})}, 0, false), type + ".C2");
  TensorArray hole{a};
  hole.resize(2);
  ExpectConstraint(error(hole, 0, false), type + ".C2");
  ExpectRefused(type, {{"X", kRows}}, {}, type + ".C1");
  ProgramDesc program;
  BlockDesc& block = program.Root();
  block.AppendOp(type + "_grad", {{"X", {"a"}}, {"Out@GRAD", {"g"}}}, {{"X@GRAD", {"ag"}}});
  VarValues env;
  env["a"] = TensorArray{a};
  env["g"] = b;
  try {
    Interpret(block, DefaultOps(), env);
    FAIL() << "the gradient has another shape";
  } catch (const Error& e) {
    ExpectConstraint(e.message(), type + "_grad.C3");
  }
}

TEST(TensorArrayToTensor, Gradient) {
  for (bool stack : {false, true}) {
    for (int32_t axis : {0, 1}) {
      ProgramDesc main, startup;
      Builder net(main, startup);
      Variable a = net.Data("a", {2, 2}, DType::kFloat64, {.stop_gradient = false});
      Variable b = net.Data("b", {2, 2}, DType::kFloat64, {.stop_gradient = false});
      Variable array = CreateArray(net, DType::kFloat64);
      ArrayWrite(net, a, FillConstant(net, {1}, DType::kInt64, 0), array);
      ArrayWrite(net, net.Mul(a, b), FillConstant(net, {1}, DType::kInt64, 1), array);
      for (const char* name : {"y", "index"}) main.Root().Var(name);
      net.Append("tensor_array_to_tensor", {{"X", {array.name()}}},
                 {{"Out", {"y"}}, {"OutIndex", {"index"}}}, {{"axis", axis}, {"use_stack", stack}});
      Variable y = net.Var("y");
      Variable loss = net.Reshape(net.ReduceSum(net.Mul(y, y), {}), {1});
      CheckProgramGradient({"tensor_array_to_tensor"}, main, loss.name(), {"a", "b"},
                           {{"a", Tensor::Of<double>({2, 2}, {0.5, -1.5, 2, 1})},
                            {"b", Tensor::Of<double>({2, 2}, {0.75, 2, -1, 0.25})}});
    }
  }
}
}  // namespace coracle::tensor_array_to_tensor_test
