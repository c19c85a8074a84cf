#include <coracle/layers/builder.h>
#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>

namespace coracle::tensor_array_test {

const VarMeta kFloat{VarType::kLoDTensor, DType::kFloat32, {2}, 0};
const VarMeta kIndex{VarType::kLoDTensor, DType::kInt64, {1}, 0};
const VarMeta kTwo{VarType::kLoDTensor, DType::kInt64, {2}, 0};
const VarMeta kArray{VarType::kLoDTensorArray, DType::kFloat32, {2}, 0};

// One op on `array` (an environment's), with I and what else is given.
VarValues RunOp(const std::string& type, VarValues env, const SlotList& inputs,
                const std::string& out) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  block.Var(out);
  block.AppendOp(type, inputs, {{out == "xg" ? "X@GRAD" : "Out", {out}}});
  Interpret(block, DefaultOps(), env);
  return env;
}

std::string ErrorOf(const std::string& type, VarValues env, const SlotList& inputs) {
  try {
    RunOp(type, std::move(env), inputs, "out");
  } catch (const Error& e) {
    return e.message();
  }
  return "no error";
}

VarValues WithArray() {
  VarValues env;
  env["a"] = TensorArray{Tensor::Of<float>({2}, {1, 2}), Tensor::Of<float>({1, 3}, {3, 4, 5})};
  env["x"] = Tensor::Of<float>({2}, {7, 8});
  for (int64_t i : {0, 1, 2, 3}) env["i" + std::to_string(i)] = Tensor::Full<int64_t>({1}, i);
  env["minus"] = Tensor::Full<int32_t>({1}, -1);
  env["far"] = Tensor::Full<int64_t>({1}, int64_t{1} << 40);
  return env;
}

const TensorArray& Array(const VarValues& env, const std::string& name) {
  return std::get<TensorArray>(env.at(name));
}

TEST(TensorArray, WriteGrowsAndReplaces) {
  VarValues env = RunOp("write_to_array", WithArray(), {{"X", {"x"}}, {"I", {"i3"}}}, "a");
  ASSERT_EQ(Array(env, "a").size(), 4u);
  EXPECT_EQ(Array(env, "a")[3].data<float>()[1], 8);
  EXPECT_EQ(Array(env, "a")[1].shape(), (Shape{1, 3}));
  EXPECT_FALSE(Array(env, "a").IsWritten(2));
  env = RunOp("write_to_array", WithArray(), {{"X", {"x"}}, {"I", {"i0"}}}, "a");
  EXPECT_EQ(Array(env, "a").size(), 2u);
  EXPECT_EQ(Array(env, "a")[0].data<float>()[0], 7);
}

TEST(TensorArray, Read) {
  VarValues env = RunOp("read_from_array", WithArray(), {{"X", {"a"}}, {"I", {"i1"}}}, "out");
  EXPECT_TRUE(BitEqual(std::get<Tensor>(env.at("out")), Array(env, "a")[1]));
  env = RunOp("read_from_array", WithArray(), {{"X", {"a"}}, {"I", {"i2"}}, {"X_W", {"x"}}}, "out");
  EXPECT_TRUE(BitEqual(std::get<Tensor>(env.at("out")), Tensor::Zeros(DType::kFloat32, {2})));
}

TEST(TensorArray, LengthUnsetAndGradientOfRead) {
  VarValues env = RunOp("lod_array_length", WithArray(), {{"X", {"a"}}}, "out");
  EXPECT_EQ(std::get<Tensor>(env.at("out")).Item<int64_t>(), 2);
  env = RunOp("unset_in_array", WithArray(), {{"X", {"a"}}, {"I", {"i0"}}}, "out");
  EXPECT_FALSE(Array(env, "out").IsWritten(0));
  EXPECT_TRUE(Array(env, "out").IsWritten(1));
  EXPECT_TRUE(Array(env, "a").IsWritten(0));
  env = RunOp("read_from_array_grad", WithArray(),
              {{"X", {"a"}}, {"I", {"i0"}}, {"Out@GRAD", {"x"}}}, "xg");
  EXPECT_EQ(Array(env, "xg").size(), 2u);
  EXPECT_EQ(Array(env, "xg")[0].data<float>()[0], 7);
  EXPECT_FALSE(Array(env, "xg").IsWritten(1));
}

TEST(TensorArray, IndexOutOfRange) {
  EXPECT_EQ(ErrorOf("read_from_array", WithArray(), {{"X", {"a"}}, {"I", {"i2"}}}),
            "read_from_array: I is 2, but the array of 2 elements has no such element");
  EXPECT_EQ(ErrorOf("read_from_array", WithArray(), {{"X", {"a"}}, {"I", {"minus"}}}),
            "read_from_array: I must not be negative, got -1");
  EXPECT_NE(ErrorOf("write_to_array", WithArray(), {{"X", {"x"}}, {"I", {"far"}}})
                .find("far beyond the end"),
            std::string::npos);
  EXPECT_NE(ErrorOf("read_from_array", WithArray(), {{"X", {"a"}}, {"I", {"i1"}}, {"X_W", {"x"}}})
                .find("X_W is float32[2]"),
            std::string::npos);
}

TEST(TensorArray, Constraints) {
  ExpectRefused("write_to_array", {{"X", kFloat}, {"I", kTwo}}, {}, "write_to_array.C1");
  for (const char* type : {"read_from_array", "unset_in_array"}) {
    ExpectRefused(type, {{"X", kFloat}, {"I", kIndex}}, {}, std::string(type) + ".C1");
    ExpectRefused(type, {{"X", kArray}, {"I", kFloat}}, {}, std::string(type) + ".C2");
  }
  ExpectRefused("read_from_array_grad", {{"X", kFloat}, {"I", kIndex}, {"Out@GRAD", kFloat}}, {},
                "read_from_array_grad.C1");
  ExpectRefused("read_from_array_grad", {{"X", kArray}, {"I", kTwo}, {"Out@GRAD", kFloat}}, {},
                "read_from_array_grad.C2");
  ExpectRefused("lod_array_length", {{"X", kFloat}}, {}, "lod_array_length.C1");
}

TEST(TensorArray, Gradients) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  const DataOptions trained{.stop_gradient = false};
  Variable a = net.Data("a", {2}, DType::kFloat64, trained);
  Variable b = net.Data("b", {2}, DType::kFloat64, trained);
  Variable array = CreateArray(net, DType::kFloat64);
  Variable zero = FillConstant(net, {1}, DType::kInt64, 0);
  Variable one = FillConstant(net, {1}, DType::kInt64, 1);
  ArrayWrite(net, a, zero, array);
  Variable x = ArrayRead(net, array, zero);
  ArrayWrite(net, net.Mul(x, b), zero, array);  // in the place of a
  ArrayWrite(net, b, one, array);
  net.Append("unset_in_array", {{"X", {array.name()}}, {"I", {one.name()}}}, {{"Out", {"cut"}}});
  Variable y = ArrayRead(net, net.Var("cut"), zero), z = ArrayRead(net, array, one);
  Variable sum = net.Add(net.Mul(y, y), net.Mul(z, net.Mul(z, z)));
  Variable loss = net.Reshape(net.ReduceSum(sum, {}), {1});
  CheckProgramGradient(
      {"write_to_array", "read_from_array", "unset_in_array"}, main, loss.name(), {"a", "b"},
      {{"a", Tensor::Of<double>({2}, {0.5, -1.5})}, {"b", Tensor::Of<double>({2}, {0.75, 2})}});
}
}  // namespace coracle::tensor_array_test
