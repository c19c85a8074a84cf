#pragma once
// Runs a program unchanged, on reference kernels, and optimised: both give the same results.

#include <coracle/executor/executor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace coracle {

// Elements that look drawn, the same for every test.
inline Tensor Drawn(const Shape& shape, DType dtype = DType::kFloat32) {
  Tensor t(DType::kFloat64, shape);
  uint32_t state = 1;
  for (double& v : t.span<double>()) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<double>(state >> 8) / 8388608.0 - 1;
  }
  return t.Cast(dtype);
}

inline void ExpectSameResults(const ProgramDesc& program, const Scope& scope,
                              const std::map<std::string, Tensor>& feeds,
                              const std::vector<std::string>& fetches, double tolerance = 1e-5) {
  const CompileOptions plain{.kernels = KernelMode::kReference, .optimize = false};
  Scope one = scope.Clone(), other = scope.Clone();
  const std::vector<Tensor> want = Executor(plain).Run(program, one, feeds, fetches);
  const std::vector<Tensor> got = Executor().Run(program, other, feeds, fetches);
  for (size_t i = 0; i < fetches.size(); ++i) {
    ASSERT_EQ(got[i].shape(), want[i].shape()) << fetches[i];
    ASSERT_EQ(got[i].dtype(), want[i].dtype()) << fetches[i];
    const Tensor a = want[i].Cast(DType::kFloat64), b = got[i].Cast(DType::kFloat64);
    for (int64_t k = 0; k < a.numel(); ++k) {
      const double expected = a.data<double>()[k];
      ASSERT_NEAR(expected, b.data<double>()[k], tolerance * (1 + std::abs(expected)))
          << fetches[i] << " at " << k;
    }
  }
}

}  // namespace coracle
