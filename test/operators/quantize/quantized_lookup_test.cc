#include <coracle/test/operators/quantize/quantized_tools.h>
#include <fmt/format.h>

namespace coracle::quantized_lookup_test {

using quantized_tools::Draw;
using quantized_tools::Least;
using quantized_tools::Quantized;

// Every number, in every position of a vector, and sizes that fill none.
TEST(QuantizedLookup, AllNumbers) {
  Draw draw(7);
  for (const DType x : {DType::kInt8, DType::kUInt8}) {
    for (const DType to : {DType::kInt8, DType::kUInt8, DType::kFloat32}) {
      const Tensor table = to == DType::kFloat32 ? draw.Reals({256}, -5, 5) : draw.Bytes(to, {256});
      for (const int64_t n : {1, 7, 63, 64, 65, 130, 400000}) {
        SCOPED_TRACE(fmt::format("{} of {} to {}", n, ToString(x), ToString(to)));
        const Tensor in = draw.Bytes(x, {n});
        OpTest test("quantized_lookup");
        test.TensorInput("X", in).TensorInput("Table", table);
        for (const KernelMode mode : {KernelMode::kReference, KernelMode::kAuto}) {
          const Tensor out = test.Output("Out", mode);
          ASSERT_EQ(out.dtype(), to);
          ASSERT_EQ(out.shape(), in.shape());
          for (int64_t i = 0; i < n; ++i) {
            const int64_t entry = IntegerAt(x, in.raw(), i) - Least(x);
            if (to == DType::kFloat32)
              ASSERT_EQ(out.data<float>()[i], table.data<float>()[entry]) << i;
            else
              ASSERT_EQ(IntegerAt(to, out.raw(), i), IntegerAt(to, table.raw(), entry)) << i;
          }
        }
      }
    }
  }
}

TEST(QuantizedLookup, InPlaceAndEmpty) {
  Tensor table = Tensor::Zeros(DType::kInt8, {256});
  for (int i = 0; i < 256; ++i) table.data<int8_t>()[i] = static_cast<int8_t>(127 - i);
  OpTest("quantized_lookup")
      .IntInput("X", {4}, {-128, -1, 0, 127}, DType::kInt8)
      .TensorInput("Table", table)
      .InPlace("X", "Out")
      .Expect("Out", {4}, {127, 0, -1, -128});
  OpTest("quantized_lookup")
      .TensorInput("X", Tensor::Zeros(DType::kInt8, {0, 2}))
      .TensorInput("Table", table)
      .Expect("Out", {0, 2}, {});
}

TEST(QuantizedLookup, Constraints) {
  const Tensor table = Tensor::Zeros(DType::kInt8, {256});
  OpTest("quantized_lookup")
      .TensorInput("X", Tensor::Zeros(DType::kInt16, {2}))
      .TensorInput("Table", table)
      .ExpectError("quantized_lookup");
  const Tensor x = Tensor::Zeros(DType::kUInt8, {2});
  OpTest("quantized_lookup")
      .TensorInput("X", x)
      .TensorInput("Table", Tensor::Zeros(DType::kInt8, {255}))
      .ExpectError("quantized_lookup.C1");
  OpTest("quantized_lookup")
      .TensorInput("X", x)
      .TensorInput("Table", Tensor::Zeros(DType::kInt32, {256}))
      .ExpectError("quantized_lookup.C1");
}

}  // namespace coracle::quantized_lookup_test
