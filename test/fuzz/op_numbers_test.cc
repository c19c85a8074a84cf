// A few cases of each op, compared with docs/numbers.md.

#include <coracle/framework/op/op_registry.h>
#include <coracle/test/fuzz/op_numbers_page.h>
#include <coracle/test/fuzz/random_program.h>
#include <coracle/test/sanitizers.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace coracle::op_numbers_test {

constexpr uint64_t kCases = 6;  // of each op

std::string ReadPage() {
  const char* sources = std::getenv("CORACLE_SOURCE_DIR");
  std::ifstream file(std::string(sources ? sources : "..") + "/docs/numbers.md");
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

// Vectors of other lengths add in another order.
double Slack(double listed) { return 4 * listed + 16; }

// `fast`: whether results of fast kernels are compared.
void ExpectWithin(const OpErrorTable::Key& key, const OpErrors& errors, const NumbersLimits& limits,
                  bool fast) {
  SCOPED_TRACE(testing::Message() << key.first << " of " << ToString(key.second));
  const auto row = limits.rows.find({key.first, ToString(key.second)});
  if (errors.measured && IsFloating(key.second)) {
    ASSERT_NE(row, limits.rows.end()) << "docs/numbers.md has no row: run op_numbers --markdown";
    if (fast && row->second.fast) {
      EXPECT_LE(errors.fast, Slack(*row->second.fast)) << errors.worst_fast.text;
    }
    if (row->second.plain) {
      EXPECT_LE(errors.plain, Slack(*row->second.plain)) << errors.worst_plain.text;
    }
  }
  for (const auto& [kind, defect] : errors.defects) {
    if (!fast && !kind.starts_with("reference")) continue;
    EXPECT_TRUE(limits.differences.count({key.first, kind}))
        << kind << ", op_numbers " << ToOptions(defect.first) << " --count=1 --show\n"
        << defect.text;
  }
}

TEST(OpNumbers, WithinTheLimitsOfThePage) {
  const NumbersLimits limits = ReadNumbersPage(ReadPage());
  ASSERT_GT(limits.rows.size(), 500u);
  const uint64_t cases = UnderSanitizer() ? 1 : kCases;
  OpErrorTable table;
  for (const std::string& type : DrawnTypes()) {
    for (uint64_t seed = 1; seed <= cases; ++seed) table.Run({type, seed});
  }
  EXPECT_GT(table.cases(), 400 * cases);
  const bool fast = limits.instruction_sets == InstructionSets();
  for (const auto& [key, errors] : table.rows()) ExpectWithin(key, errors, limits, fast);
  if (!fast)
    GTEST_SKIP() << "fast kernels are not compared: docs/numbers.md is of a machine with "
                 << limits.instruction_sets << ", this one has " << InstructionSets();
}

}  // namespace coracle::op_numbers_test
