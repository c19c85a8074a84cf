// Random programs of smooth ops, with fan-out and overwritten names: every gradient against central
// differences of the whole program, in double.

#include <coracle/framework/op/verifier.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "test_ops.h"

namespace coracle {
namespace {

class RandomProgram {
 public:
  explicit RandomProgram(uint32_t seed) : random_(seed) {}

  void Build(TestProgram& test) {
    for (const char* name : {"p", "q", "r"}) test.Param(name);
    test.Data("x");
    // Read before any is overwritten: the gradients are those of the values before the run.
    test.Op("t_add", {test.Op("t_mul", {"p", "q"}, "pq"), "r"}, "pqr");
    std::vector<std::string> live = {"p", "q", "r", "x", "pqr"};
    const int ops = 3 + Pick(20);
    for (int i = 0; i < ops; ++i) {
      const std::string a = live[Pick(live.size())], b = live[Pick(live.size())];
      // Half of the outputs overwrite a name, in place or not; data stays as it was fed.
      std::string out = fmt::format("h{}", i);
      if (Pick(2) == 0) out = live[Pick(live.size())];
      if (out == "x") out = fmt::format("h{}", i);
      if (Pick(2) == 0)
        test.Op(Binary(), {a, b}, out);
      else
        test.Op(Unary(), {a}, out);
      live.push_back(out);
    }
    // The loss reads them all, so that nothing is dead.
    std::string total = live[0];
    for (size_t i = 1; i < live.size(); ++i)
      total = test.Op("t_add", {total, live[i]}, fmt::format("total{}", i));
    test.Op("t_tanh", {total}, "end");
  }

 private:
  size_t Pick(size_t n) { return random_() % n; }
  std::string Binary() { return Pick(2) ? "t_add" : "t_mul"; }
  std::string Unary() {
    static const char* const kTypes[] = {"t_tanh", "t_square", "t_shift", "t_tanh"};
    return kTypes[Pick(4)];
  }
  std::mt19937 random_;
};

TEST(RandomProgram, GradientsAgreeWithDifferences) {
  int saved = 0, renamed = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    TestProgram test;
    RandomProgram(seed).Build(test);
    BackwardOptions options;
    options.ops = &TestOps();
    auto pairs = AppendBackward(test.Loss("end"), options);
    for (const Problem& p : Verify(test.program, TestOps())) ADD_FAILURE() << p.ToString();
    ExpectGradients(test, pairs);
    saved += test.Listing().find("@SAVED") != std::string::npos;
    renamed += test.Listing().find("@GRAD@1") != std::string::npos;
    if (HasFailure()) return;
  }
  EXPECT_GT(saved, 50) << "overwritten values were to be exercised";
  EXPECT_GT(renamed, 50);
}

}  // namespace
}  // namespace coracle
