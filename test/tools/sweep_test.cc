#include <coracle/test/error_of.h>
#include <coracle/tools/command.h>
#include <coracle/tools/sweep_space.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace coracle::tools::sweep_test {

std::string UsageOf(const std::string& axis) {
  try {
    ParseSweepAxis(axis);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

double Number(const std::string& setting) {
  return std::stod(setting.substr(setting.find('=') + 1));
}

TEST(Sweep, Values) {
  const SweepAxis axis = ParseSweepAxis("optimizer.adam.learning_rate=0.1, 0.01");
  EXPECT_EQ(axis.field, "optimizer.adam.learning_rate");
  EXPECT_EQ(axis.values, (std::vector<std::string>{"0.1", "0.01"}));
  EXPECT_EQ(ParseSweepAxis("train.digits.classes=[1,2],[3]").values,
            (std::vector<std::string>{"[1,2]", "[3]"}));
  EXPECT_EQ(
      ParseSweepAxis("optimizer={adam{learning_rate:1}},{sgd{learning_rate:2}}").values.size(), 2u);
  EXPECT_EQ(ParseSweepAxis("name=\"a,b\",c").values, (std::vector<std::string>{"\"a,b\"", "c"}));
}

TEST(Sweep, GridHasAllCombinations) {
  const auto grid = GridOf({ParseSweepAxis("epochs=1,2"), ParseSweepAxis("batch_size=8,16,32")});
  ASSERT_EQ(grid.size(), 6u);
  EXPECT_EQ(grid[0], (TrialSettings{"epochs=1", "batch_size=8"}));
  EXPECT_EQ(grid[1], (TrialSettings{"epochs=1", "batch_size=16"}));
  EXPECT_EQ(grid[5], (TrialSettings{"epochs=2", "batch_size=32"}));
  EXPECT_THROW(GridOf({ParseSweepAxis("epochs=1..2")}), UsageError);
}

TEST(Sweep, DrawsFillTheirRange) {
  const std::vector<SweepAxis> axes = {
      ParseSweepAxis("optimizer.adam.learning_rate=log(1e-4..1e-1)"),
      ParseSweepAxis("batch_size=3..6"), ParseSweepAxis("optimizer.adam.beta1=0.5..0.9"),
      ParseSweepAxis("shuffle=true,false")};
  const auto trials = DrawTrials(axes, 4000, 7);
  double logs = 0, betas = 0;
  int shuffled = 0;
  std::map<double, int> sizes;
  for (const TrialSettings& trial : trials) {
    const double rate = Number(trial[0]), beta = Number(trial[2]);
    EXPECT_TRUE(rate >= 1e-4 && rate <= 1e-1) << rate;
    EXPECT_TRUE(beta >= 0.5 && beta <= 0.9) << beta;
    logs += std::log10(rate), betas += beta;
    ++sizes[Number(trial[1])];
    shuffled += trial[3] == "shuffle=true";
  }
  // Means of 4000 draws: the standard deviations are 0.0137, 0.0018 and 32.
  EXPECT_NEAR(logs / 4000, -2.5, 0.07);
  EXPECT_NEAR(betas / 4000, 0.7, 0.01);
  EXPECT_NEAR(shuffled, 2000, 160);
  ASSERT_EQ(sizes.size(), 4u);
  for (const auto& [size, count] : sizes) EXPECT_NEAR(count, 1000, 140) << size;
}

TEST(Sweep, MoreTrialsKeepTheFirstOnes) {
  const std::vector<SweepAxis> axes = {ParseSweepAxis("batch_size=3..600")};
  const auto few = DrawTrials(axes, 3, 1), more = DrawTrials(axes, 5, 1);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), more.begin()));
  EXPECT_NE(DrawTrials(axes, 3, 2), few);
}

TEST(Sweep, Mistakes) {
  EXPECT_EQ(UsageOf("epochs"),
            "--set='epochs': write FIELD=VALUE,VALUE or FIELD=LOW..HIGH or FIELD=log(LOW..HIGH)");
  EXPECT_EQ(UsageOf("epochs=5..2"),
            "--set='epochs=5..2': a range must go from a number to a larger one");
  EXPECT_EQ(UsageOf("epochs=1..inf"),
            "--set='epochs=1..inf': a range must go from a number to a larger one");
  EXPECT_EQ(UsageOf("optimizer.adam.learning_rate=log(0..1)"),
            "--set='optimizer.adam.learning_rate=log(0..1)': a logarithmic range must lie above 0");
  EXPECT_EQ(UsageOf("optimizer.adam.learning_rate=log(1)"),
            "--set='optimizer.adam.learning_rate=log(1)': a logarithmic range is log(LOW..HIGH)");
  EXPECT_EQ(ErrorOf([] { ParseSweepAxis("epochs=1,two"); }),
            "--set=epochs=two: epochs takes a whole number");
  EXPECT_EQ(ErrorOf([] { ParseSweepAxis("epochs=0.5..1.5"); }),
            "--set=epochs=0.6234: epochs takes a whole number");
}

}  // namespace coracle::tools::sweep_test
