#pragma once
// Programs with quantised values for tests of passes.

#include <coracle/operators/quantize/quantized.h>
#include <coracle/test/passes/op_program.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace coracle {

class QuantizedProgram : public OpProgram {
 public:
  static constexpr DType kS8 = DType::kInt8, kU8 = DType::kUInt8;

  std::string Floats(const std::string& name, const std::vector<float>& values) {
    Parameter(name, {static_cast<int64_t>(values.size())});
    Tensor value(DType::kFloat32, {static_cast<int64_t>(values.size())});
    std::copy(values.begin(), values.end(), value.data<float>());
    scope.Set(name, value);
    return name;
  }
  std::string Zeros(const std::string& name, const std::vector<int32_t>& values, DType dtype) {
    const Shape shape = {static_cast<int64_t>(values.size())};
    Parameter(name, shape, dtype);
    Tensor value(dtype, shape);
    for (size_t i = 0; i < values.size(); ++i)
      static_cast<uint8_t*>(value.raw())[i] = static_cast<uint8_t>(values[i]);
    scope.Set(name, value);
    return name;
  }
  // Integers of the whole range.
  std::string Weight(const std::string& name, const Shape& shape, DType dtype = kS8) {
    Parameter(name, shape, dtype);
    scope.Set(name, Bytes(shape, dtype, 7));
    return name;
  }
  std::string ByteData(const std::string& name, const Shape& shape, DType dtype) {
    Data(name, shape, dtype);
    program.Root().Var(name).SetNeedCheckFeed(true);
    feeds[name] = Bytes(feeds[name].shape(), dtype, 3);
    return name;
  }
  static Tensor Bytes(const Shape& shape, DType dtype, uint32_t seed) {
    Tensor value(dtype, shape);
    uint32_t state = seed;
    for (int64_t i = 0; i < value.numel(); ++i) {
      state = state * 1664525u + 1013904223u;
      static_cast<uint8_t*>(value.raw())[i] = static_cast<uint8_t>(state >> 24);
    }
    return value;
  }

  // Out = affine_dequantize(q), with parameters out.s and out.z.
  std::string Dequantize(const std::string& q, const std::string& out,
                         const std::vector<float>& scales, const std::vector<int32_t>& zeros = {},
                         int32_t axis = 0) {
    Append("affine_dequantize", Slots(q, out, scales, zeros, root().FindVar(q)->dtype()),
           {{"Out", {out}}}, {{"axis", axis}});
    return out;
  }
  std::string Quantize(const std::string& x, const std::string& out, float scale, int32_t zero,
                       DType dtype, AttrList more = {}) {
    more.push_back({"axis", int32_t{0}});
    more.push_back({"out_dtype", static_cast<int32_t>(dtype)});
    root().Var(out).SetDType(dtype);
    Append("affine_quantize", Slots(x, out, {scale}, {zero}, dtype), {{"Out", {out}}},
           std::move(more));
    return out;
  }
  // Quantizes and dequantizes.
  std::string Pair(const std::string& x, const std::string& out, float scale, int32_t zero,
                   DType dtype) {
    Quantize(x, out + ".q", scale, zero, dtype);
    return Dequantize(out + ".q", out, {scale}, {zero});
  }

  std::string Conv(const std::string& x, const std::string& filter, const std::string& out,
                   int32_t pad = 1, const std::string& bias = "") {
    SlotList in = {{"Input", {x}}, {"Filter", {filter}}};
    if (!bias.empty()) in.push_back({"Bias", {bias}});
    Append("conv2d", std::move(in), {{"Output", {out}}},
           {{"paddings", std::vector<int32_t>{pad, pad}}});
    return out;
  }
  std::string Binary(const std::string& type, const std::string& x, const std::string& y,
                     const std::string& out, int32_t axis = -1) {
    Append(type, {{"X", {x}}, {"Y", {y}}}, {{"Out", {out}}}, {{"axis", axis}});
    return out;
  }

  // After fuse_quantized with dead code removed, of frozen parameters.
  std::string Fused(const std::vector<std::string>& fetches = {"y"}) const {
    return After({"fuse_quantized"}, fetches, true);
  }

  // With all passes, integers differ by at most one from those without passes, and at most a
  // `share` of them; floats by at most `tolerance`.
  void ExpectNear(const std::vector<std::string>& fetches, double tolerance = 1e-4,
                  double share = 0.02) {
    const CompileOptions plain{.kernels = KernelMode::kReference, .optimize = false};
    const std::vector<Tensor> want = Executor(plain).Run(program, scope, feeds, fetches);
    std::vector<std::string> names;
    std::vector<Tensor> fed;
    for (const auto& [name, value] : feeds) {
      names.push_back(name);
      fed.push_back(value);
    }
    for (const KernelMode mode : {KernelMode::kReference, KernelMode::kAuto}) {
      const CompileOptions options{.kernels = mode};
      const std::vector<Tensor> got =
          Executor(options).PrepareFrozen(program, scope, names, fetches).Run(scope, fed);
      for (size_t i = 0; i < fetches.size(); ++i) {
        SCOPED_TRACE(fetches[i]);
        Compare(want[i], got[i], tolerance, share);
      }
    }
  }

 private:
  SlotList Slots(const std::string& x, const std::string& out, const std::vector<float>& scales,
                 const std::vector<int32_t>& zeros, DType dtype) {
    SlotList slots = {{"X", {x}}, {"Scale", {Floats(out + ".s", scales)}}};
    if (!zeros.empty()) slots.push_back({"ZeroPoint", {Zeros(out + ".z", zeros, dtype)}});
    return slots;
  }
  static void Compare(const Tensor& want, const Tensor& got, double tolerance, double share) {
    ASSERT_EQ(got.shape(), want.shape());
    ASSERT_EQ(got.dtype(), want.dtype());
    const bool integers = IsInteger(want.dtype());
    const Tensor a = want.Cast(DType::kFloat64), b = got.Cast(DType::kFloat64);
    int64_t differ = 0;
    for (int64_t i = 0; i < a.numel(); ++i) {
      const double x = a.data<double>()[i], y = b.data<double>()[i];
      if (x == y || (std::isnan(x) && std::isnan(y))) continue;
      ++differ;
      ASSERT_NEAR(x, y, integers ? 1 : tolerance * (1 + std::abs(x))) << i;
    }
    const double most = integers ? share * static_cast<double>(a.numel()) + 1 : HUGE_VAL;
    EXPECT_LE(static_cast<double>(differ), most);
  }
};

}  // namespace coracle
