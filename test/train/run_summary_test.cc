// What a run's log says about the run: its last values, and the extremes of its evaluations.

#include <coracle/framework/base/file.h>
#include <coracle/test/train/train_test_util.h>
#include <coracle/train/log/log_records.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace coracle::run_summary_test {

TEST(RunSummaries, KeepTheExtremesOfEvaluations) {
  TempDir dir;
  const auto test = [](int step, const std::string& loss) {
    return "{\"type\":\"test\",\"set\":\"test\",\"step\":" + std::to_string(step) +
           ",\"rows\":1,\"values\":{\"loss\":" + loss + "},\"time\":1}\n";
  };
  const auto start = [](int step) {
    return "{\"type\":\"start\",\"job\":\"j\",\"step\":" + std::to_string(step) +
           ",\"total_steps\":9,\"steps_per_epoch\":3,\"time\":1}\n";
  };
  // The run was killed after step 6 and resumed at step 3: the loss of step 6 never was.
  WriteFileAtomic(dir / "log.jsonl", start(0) + test(3, "0.5") + test(6, "0.1") + start(3) +
                                         test(6, "0.3") + test(9, "0.4") + test(9, "null"));
  const RunSummary summary = ReadRunSummary(dir.path());
  ASSERT_EQ(summary.smallest.size(), 1u);
  EXPECT_EQ(summary.smallest[0].name, "test/loss");
  EXPECT_EQ(summary.smallest[0].value, 0.3);
  EXPECT_EQ(summary.largest[0].value, 0.5);
}

// Evaluations of a job that quantises count from start_step on.
TEST(RunSummaries, LeaveOutFloat) {
  TempDir dir;
  const auto summary_of = [&](const std::string& steps) {
    std::string log =
        "{\"type\":\"start\",\"job\":\"j\",\"step\":0,\"total_steps\":9,\"steps_per_epoch\":3," +
        steps + "\"time\":1}\n";
    for (const auto& [step, loss] : {std::pair(3, "0.1"), {6, "0.4"}, {9, "0.3"}})
      log += fmt::format(
          R"({{"type":"test","set":"test","step":{},"rows":1,"values":{{"loss":{}}},"time":1}})"
          "\n",
          step, loss);
    WriteFileAtomic(dir / "log.jsonl", log);
    return ReadRunSummary(dir.path());
  };
  EXPECT_EQ(summary_of("").smallest[0].value, 0.1);
  EXPECT_EQ(summary_of("\"float_steps\":0,").smallest[0].value, 0.1);
  EXPECT_EQ(summary_of("\"float_steps\":3,").smallest[0].value, 0.3);
  EXPECT_EQ(summary_of("\"float_steps\":3,").largest[0].value, 0.4);
  EXPECT_FALSE(summary_of("").OnlyInFloat("test/loss"));
  EXPECT_FALSE(summary_of("\"float_steps\":8,").OnlyInFloat("test/loss"));
  EXPECT_TRUE(summary_of("\"float_steps\":9,").OnlyInFloat("test/loss"));
  EXPECT_EQ(summary_of("\"float_steps\":9,").smallest[0].value, 0.1);
}

// Each test set has its own steps of evaluation.
TEST(RunSummaries, LeaveOutFloatOfEachSet) {
  TempDir dir;
  std::string log =
      "{\"type\":\"start\",\"job\":\"j\",\"step\":0,\"total_steps\":9,\"steps_per_epoch\":3,"
      "\"float_steps\":4,\"time\":1}\n";
  const auto add = [&log](const char* set, int step, double loss) {
    log += fmt::format(
        R"({{"type":"test","set":"{}","step":{},"rows":1,"values":{{"loss":{}}},"time":1}})"
        "\n",
        set, step, loss);
  };
  add("often", 3, 0.1), add("often", 6, 0.4), add("early", 2, 0.2), add("early", 4, 0.3);
  WriteFileAtomic(dir / "log.jsonl", log);
  const RunSummary summary = ReadRunSummary(dir.path());
  EXPECT_FALSE(summary.OnlyInFloat("often/loss"));
  EXPECT_TRUE(summary.OnlyInFloat("early/loss"));
  const auto value_of = [](const std::vector<NamedValue>& values, const std::string& name) {
    for (const NamedValue& value : values)
      if (value.name == name) return value.value;
    return -1.0;
  };
  EXPECT_EQ(value_of(summary.smallest, "often/loss"), 0.4);
  EXPECT_EQ(value_of(summary.smallest, "early/loss"), 0.2);
  EXPECT_EQ(value_of(summary.largest, "early/loss"), 0.3);
}

}  // namespace coracle::run_summary_test
