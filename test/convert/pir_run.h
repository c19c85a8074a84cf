#pragma once
// Runs programs of Paddle 3 from their text, and checks results and refusals.

#include <coracle/convert/models.h>
#include <coracle/coracle.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace coracle::pir_run {

// The first line of the error, or "no error".
inline std::string Refusal(const std::string& text) {
  try {
    ParsePir(text, "m.json");
  } catch (const Error& e) {
    return e.message();
  }
  return "no error";
}

inline void ExpectRefusal(const std::string& text, const std::string& part) {
  const std::string line = Refusal(text);
  EXPECT_NE(line.find(part), std::string::npos) << line;
}

inline Tensor Numbers(const Shape& shape, const std::vector<float>& values) {
  return Tensor::Of<float>(shape, values);
}

// The results of a program without parameters, from its second run: the first leaves no trace.
inline std::vector<Tensor> RunText(const std::string& text, const std::vector<Tensor>& feeds) {
  ProgramDesc program = ParsePir(text, "m.json");
  VerifyOrThrow(program, DefaultOps());
  Scope scope;
  PreparedProgram net = Executor().Prepare(program);
  net.Run(scope, feeds);
  std::vector<Tensor> results;
  for (const Tensor& t : net.Run(scope, feeds)) results.push_back(t.Clone());
  return results;
}

inline void ExpectNumbers(const Tensor& got, const Shape& shape, const std::vector<double>& want) {
  ASSERT_EQ(got.shape(), shape);
  const Tensor wide = got.Cast(DType::kFloat64);
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(wide.data<double>()[i], want[i], 1e-6 * (1 + std::abs(want[i]))) << i;
}

}  // namespace coracle::pir_run
