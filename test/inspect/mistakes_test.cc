// Likely mistakes of programs that are right op by op.

#include <coracle/inspect/mistakes.h>
#include <coracle/layers/layer.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace coracle::mistakes_test {

std::vector<std::string> MistakesOf(const std::string& layers) {
  const BuiltModel model = ParseModelText(
      "data { name: 'x' shape: [-1, 4] } data { name: 'label' shape: [-1, 1] dtype: INT64 }\n"
      "layer { cast { input: 'label' dtype: float32 output: 'l' } }\n" +
          layers,
      "m");
  std::vector<std::string> lines;
  for (const Mistake& mistake : FindMistakes(model.main, DefaultOps()))
    lines.push_back(DescribeMistake(mistake));
  return lines;
}

TEST(Mistakes, ALossThatComputesWhatItsInputIs) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"layer { softmax { input: 'x' output: 'p' } }\n"
       "layer { softmax_with_cross_entropy { logits: 'p' label: 'label' output: 'c' } }",
       "m:4:9: softmax_with_cross_entropy: its input 'p' is the result of softmax, and it applies "
       "softmax itself"},
      {"layer { softmax { input: 'x' output: 'p' } } layer { reshape { input: 'p' shape: [-1, 4] "
       "output: 'r' } }\n"
       "layer { softmax_with_cross_entropy { logits: 'r' label: 'label' output: 'c' } }",
       "m:4:9: softmax_with_cross_entropy: its input 'r' is the result of softmax"},
      {"layer { sigmoid { input: 'x' output: 'p' } }\n"
       "layer { op { sigmoid_cross_entropy_with_logits { X: 'p' Label: 'l4' Out: 'c' } } }",
       "sigmoid_cross_entropy_with_logits: its input 'p' is the result of sigmoid"},
      {"layer { log_softmax { input: 'x' output: 'p' } } layer { log { input: 'p' output: 'q' } }",
       "m:3:54: log: its input 'p' is the result of log_softmax, and those are logarithms already"},
      {"layer { log_softmax { input: 'x' output: 'p' } }\n"
       "layer { cross_entropy { input: 'p' label: 'label' output: 'c' } }",
       "m:4:9: cross_entropy: its input 'p' is the result of log_softmax, and it takes the "
       "logarithm itself"}};
  for (const auto& [text, message] : wrong) {
    const auto lines = MistakesOf("layer { scale { input: 'x' scale: 1 output: 'l4' } } " + text);
    ASSERT_EQ(lines.size(), 1u) << text;
    const size_t column = message.find("m:3:") == 0 ? message.find(' ') : 0;
    EXPECT_NE(lines[0].find(message.substr(column)), std::string::npos) << lines[0];
  }
}

// The same ops where they belong.
TEST(Mistakes, NoneWhereAllIsRight) {
  for (const char* text :
       {"layer { softmax_with_cross_entropy { logits: 'x' label: 'label' output: 'c' } } layer { "
        "softmax { input: 'x' output: 'p' } }",
        "layer { softmax { input: 'x' output: 'p' } } layer { cross_entropy { input: 'p' label: "
        "'label' output: 'c' } }",
        "layer { softmax { input: 'x' output: 'p' } } layer { log { input: 'p' output: 'q' } }",
        "layer { sigmoid { input: 'x' output: 'p' } } layer { softmax_with_cross_entropy { logits: "
        "'p' label: 'label' output: 'c' } }",
        "layer { log { input: 'x' output: 'p' } } layer { scale { input: 'p' scale: -1 output: 'n' "
        "} } layer { log { input: 'n' output: 'g' } }"})
    EXPECT_EQ(MistakesOf(text), std::vector<std::string>()) << text;
}

TEST(Mistakes, DataThatNoLayerReads) {
  const BuiltModel model = ParseModelText(
      "data { name: 'x' shape: [-1, 4] }\ndata { name: 'y' shape: [-1] }\n"
      "layer { mean { input: 'x' output: 'm' } }",
      "m");
  const std::vector<Mistake> found = FindMistakes(model.main, DefaultOps());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].unread);
  EXPECT_EQ(DescribeMistake(found[0]), "m:2:1: no layer reads the data 'y'");
}

// A dropout in a program that has fetch ops and trains nothing.
TEST(Mistakes, WhatADeployedProgramDoesNotWant) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const char* name : {"x", "y", "m"}) root.Var(name).SetShape({-1, 4});
  root.Var("feed").SetType(VarType::kFeedMinibatch);
  root.Var("fetch").SetType(VarType::kFetchList);
  root.AppendOp("feed", {{"X", {"feed"}}}, {{"Out", {"x"}}}, {{"col", 0}});
  OpDesc& dropout = root.AppendOp("dropout", {{"X", {"x"}}}, {{"Out", {"y"}}, {"Mask", {"m"}}},
                                  {{"dropout_prob", 0.3f}});
  root.AppendOp("fetch", {{"X", {"y"}}}, {{"Out", {"fetch"}}}, {{"col", 0}});
  const auto lines = [&] {
    std::vector<std::string> texts;
    for (const Mistake& mistake : FindMistakes(program, DefaultOps()))
      texts.push_back(DescribeMistake(mistake));
    return texts;
  };
  EXPECT_EQ(lines(), std::vector<std::string>{"op 1 of block 0: dropout: 'y' drops elements in a "
                                              "program that trains nothing; set is_test"});
  dropout.SetAttr("is_test", true);
  EXPECT_EQ(lines(), std::vector<std::string>());
  root.FindVar("y")->SetErrorClip(ErrorClipByValue(1));
  EXPECT_EQ(lines(),
            std::vector<std::string>{"op 1 of block 0: the error clip of 'y' never acts: the "
                                     "program computes no gradient"});
}

}  // namespace coracle::mistakes_test
