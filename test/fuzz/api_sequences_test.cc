// Hundreds of random sequences of API calls; $CORACLE_API_SEQUENCES sets another number, and
// $CORACLE_API_SEED the first one:
//   CORACLE_API_SEQUENCES=20000 build/test/fuzz/fuzz_test --gtest_filter='ApiSequences.*'

#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/test/fuzz/api_sequences.h>
#include <coracle/test/test_data.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace coracle::api_sequences_test {

uint64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  int64_t number = otherwise;
  if (text && !ParseInt64(text, &number)) ADD_FAILURE() << name << " is no number: " << text;
  return static_cast<uint64_t>(number);
}

TEST(ApiSequences, EachCallSucceedsOrThrowsAnError) {
  const LogSink before = SetLogSink([](MessageLevel, const std::string&) {});
  const uint64_t first = FromEnvironment("CORACLE_API_SEED", 1);
  const uint64_t sequences = FromEnvironment("CORACLE_API_SEQUENCES", 300);
  TemporaryDirectory directory;
  ApiCounts counts;
  for (uint64_t seed = first; seed < first + sequences && !HasFailure(); ++seed) {
    if (const auto finding = RunApiSequence(Choices(seed), directory.path(), &counts))
      ADD_FAILURE() << "CORACLE_API_SEED=" << seed << " CORACLE_API_SEQUENCES=1\n" << *finding;
  }
  SetLogSink(before);
  if (sequences < 300 || HasFailure()) return;
  // They are not about nothing: each kind of call is refused, and most succeed, too.
  EXPECT_GE(counts.refused.size(), 40u);
  EXPECT_GE(counts.done.size(), 50u);
  EXPECT_GT(counts.done["layer"], 300u);
  EXPECT_GT(counts.done["backward 0"] + counts.done["backward 1"], 10u);
  EXPECT_GT(counts.done["run"], 30u);
}

}  // namespace coracle::api_sequences_test
