#include <coracle/framework/ir/program.h>
#include <coracle/test/train/train_test_util.h>
#include <coracle/train/run/feeder.h>

namespace coracle::feeder_test {

ProgramDesc InputOf(DType dtype) {
  ProgramDesc program;
  program.Root().Var("label").SetMeta({VarType::kLoDTensor, dtype, {-1, 1}, 0});
  return program;
}

Tensor Fed(DType dtype, const Tensor& column) {
  const DataSourcePtr data = MakeMemorySource({{"label", column, {1}}}, "memory");
  Feeder feeder(InputOf(dtype), {"label"}, *data, {}, "job");
  return feeder.Bind({column})[0];
}

// A class of one model is another one's target.
TEST(Feeder, IntegersAndFloatsStandForEachOther) {
  const Tensor classes = Tensor::Of<int64_t>({2, 1}, std::vector<int64_t>{3, -16777216});
  const Tensor floats = Fed(DType::kFloat32, classes);
  ASSERT_EQ(floats.dtype(), DType::kFloat32);
  EXPECT_EQ(floats.data<float>()[0], 3.f);
  EXPECT_EQ(floats.data<float>()[1], -16777216.f);
  const Tensor back = Fed(DType::kInt64, floats);
  ASSERT_EQ(back.dtype(), DType::kInt64);
  EXPECT_EQ(back.data<int64_t>()[1], -16777216);
}

TEST(Feeder, NumbersThatTheInputDoesNotHaveAreRefused) {
  const auto error = [](DType dtype, const Tensor& column) {
    return ErrorOf([&] { Fed(dtype, column); });
  };
  EXPECT_EQ(error(DType::kInt64, Tensor::Of<float>({2, 1}, {1.f, 0.5f})),
            "model input 'label' is int64, and its column holds 0.5");
  for (const float bad : {std::nanf(""), HUGE_VALF, 9.3e18f})
    ExpectContains(error(DType::kInt64, Tensor::Of<float>({1, 1}, {bad})), "is int64");
  ExpectContains(
      error(DType::kFloat32, Tensor::Of<int64_t>({1, 1}, std::vector<int64_t>{16777217})),
      "holds 16777217");
}

TEST(Feeder, OtherTypesAreStillRefused) {
  ExpectContains(
      ErrorOf([] {
        Fed(DType::kInt32, Tensor::Of<int64_t>({1, 1}, std::vector<int64_t>{1}));
      }),
      "model input 'label' is int32[-1, 1], but the rows of column 'label' are int64[1]");
}

}  // namespace coracle::feeder_test
