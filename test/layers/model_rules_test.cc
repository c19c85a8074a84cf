#include <coracle/framework/base/error.h>
#include <coracle/layers/layer.h>
#include <gtest/gtest.h>

namespace coracle::model_rules_test {

// Which of the layers named a, b, ... are in the program of that state.
std::string LayersOf(const std::string& text, const ModelState& state) {
  const BuiltModel model = ParseModelText(text, "m", ".", DefaultOps(), state);
  std::string names;
  for (size_t i = 0; i < model.main.Root().NumOps(); ++i)
    names += model.main.Root().op(i).Output("Out").front();
  return names;
}

std::string Entry(const std::string& name, const std::string& rules) {
  return "layer { relu { input: \"x\" output: \"" + name + "\" } " + rules + " }\n";
}

constexpr const char* kData = "data { name: \"x\" shape: [-1, 4] }\n";

// NetStateRule of Caffe: any include rule includes, any exclude rule excludes; a rule is the
// conjunction of what it says.
TEST(ModelRules, PhasesStagesAndLevels) {
  const std::string text =
      std::string(kData) + Entry("a", "") + Entry("b", "include_if { phase: TRAIN }") +
      Entry("c", "include_if { phase: TEST }") + Entry("d", "exclude_if { phase: TEST }") +
      Entry("e", "include_if { stage: \"s\" }") + Entry("f", "include_if { not_stage: \"s\" }") +
      Entry("g", "exclude_if { stage: \"s\" stage: \"t\" }") +
      Entry("h", "include_if { phase: TEST stage: \"s\" }") +
      Entry("i", "include_if { stage: \"s\" } include_if { stage: \"t\" }") +
      Entry("j", "include_if { min_level: 2 max_level: 3 }") +
      Entry("k", "exclude_if { min_level: 1 } exclude_if { stage: \"t\" }") +
      Entry("l", "include_if { }") + Entry("m", "exclude_if { }");
  EXPECT_EQ(LayersOf(text, {}), "abdfgkl");
  EXPECT_EQ(LayersOf(text, {.train = false}), "acfgkl");
  EXPECT_EQ(LayersOf(text, {.stages = {"s"}}), "abdegikl");
  EXPECT_EQ(LayersOf(text, {.train = false, .stages = {"s"}}), "aceghikl");
  EXPECT_EQ(LayersOf(text, {.stages = {"t"}}), "abdfgil");
  EXPECT_EQ(LayersOf(text, {.stages = {"t", "s"}}), "abdeil");
  EXPECT_EQ(LayersOf(text, {.level = 1}), "abdfgl");
  EXPECT_EQ(LayersOf(text, {.level = 3}), "abdfgjl");
  EXPECT_EQ(LayersOf(text, {.level = 4}), "abdfgl");
  EXPECT_TRUE(ParseModelText(text).has_rules);
  EXPECT_FALSE(ParseModelText(std::string(kData) + Entry("a", "")).has_rules);
}

// A layer that is left out takes its number all the same: parameters are shared by name.
TEST(ModelRules, NamesOfParametersAreTheSameInAllStates) {
  const std::string text = std::string(kData) + R"(
layer { fc { input: "x" size: 4 output: "h" } include_if { phase: TRAIN } }
layer { repeat { times: 2 layer { fc { input: "x" size: 4 output: "r$i" } } }
        include_if { phase: TRAIN } }
layer { fc { input: "x" size: 4 name: "mine" output: "n" } include_if { phase: TRAIN } }
layer { fc { input: "x" size: 4 output: "y" } }
)";
  const std::vector<std::string> train = ParseModelText(text).main.Parameters();
  const std::vector<std::string> test =
      ParseModelText(text, "m", ".", DefaultOps(), {.train = false}).main.Parameters();
  EXPECT_EQ(test, (std::vector<std::string>{"fc_3.w_0", "fc_3.b_0"}));
  ASSERT_EQ(train.size(), 10u);
  EXPECT_EQ(train[8], "fc_3.w_0");
}

TEST(ModelRules, DataOfOnePhase) {
  const std::string text =
      "data { name: \"x\" shape: [4] }\n"
      "data { name: \"y\" shape: [4] include_if { phase: TEST } }\n";
  EXPECT_EQ(ParseModelText(text).inputs, std::vector<std::string>{"x"});
  EXPECT_EQ(ParseModelText(text, "m", ".", DefaultOps(), {.train = false}).inputs,
            (std::vector<std::string>{"x", "y"}));
}

TEST(ModelRules, BothKindsOfRulesAreAMistake) {
  const std::string text =
      std::string(kData) + "  " + Entry("a", "include_if { } exclude_if { stage: \"s\" }");
  try {
    ParseModelText(text, "m.pbtxt");
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.message(), "m.pbtxt:2:3: an entry has include_if or exclude_if, not both");
  }
}

// A variable of a layer that is left out is not there for the others.
TEST(ModelRules, WhatIsLeftOutCannotBeRead) {
  const std::string text = std::string(kData) + Entry("a", "include_if { phase: TEST }") +
                           "layer { relu { input: \"a\" output: \"b\" } }";
  EXPECT_EQ(LayersOf(text, {.train = false}), "ab");
  EXPECT_THROW(LayersOf(text, {}), Error);
}

// Thousands of stages, each with a rule of its own, and all in one line.
TEST(ModelRules, ThousandsOfStages) {
  ModelState state;
  std::string text = "data { name: \"x\" shape: [-1, 4] } ";
  constexpr int kStages = 4000;
  for (int i = 0; i < kStages; ++i) {
    const std::string number = std::to_string(i);
    state.stages.push_back("s" + number);
    text += "layer { relu { input: \"x\" output: \"t" + number + "\" } include_if { stage: \"s" +
            number + "\" } } ";
  }
  EXPECT_EQ(ParseModelText(text, "m", ".", DefaultOps(), state).main.Root().NumOps(),
            static_cast<size_t>(kStages));
  EXPECT_EQ(ParseModelText(text, "m").main.Root().NumOps(), 0u);
}

}  // namespace coracle::model_rules_test
