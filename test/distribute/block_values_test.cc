// Loops, branches, recurrent nets and functions: what they make of rows is not followed, so the
// weight of a loss that depends on it must be declared.

#include <coracle/distribute/all_reduce.h>
#include <coracle/layers/layer.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/passes/pass.h>
#include <coracle/test/distribute/rank_run.h>
#include <coracle/test/error_of.h>
#include <fmt/format.h>

namespace coracle::block_values_test {

constexpr const char* kHead = R"(
data { name: "x" shape: [-1, 6] dtype: FP64 }
data { name: "label" shape: [-1, 1] dtype: INT64 }
layer { fc { input: "x" size: 6 act: "tanh" output: "h0" } }
layer { assign { input: "h0" output: "h" } }
layer { fill_constant { shape: [1] dtype: FP64 value: 0.5 output: "limit" } }
layer { fill_constant { shape: [1] dtype: INT64 value: 0 output: "i" } }
layer { fill_constant { shape: [1] dtype: INT64 value: 3 output: "n" } }
layer { fill_constant { shape: [1] dtype: BOOL value: 1 output: "yes" } }
)";
constexpr const char* kTail = R"(
layer { fc { input: "h" size: 4 output: "logits" } }
layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
layer { mean { input: "ce" output: "loss" } }
)";

StepPrograms Make(const std::string& text) {
  BuiltModel model = ParseModelText(text);
  const Variable loss(&model.main.Root(), model.main.Root().FindVar("loss"));
  OptimizerGroup group{.optimizer = std::make_shared<Sgd>(SgdOptions{.learning_rate = 0.1})};
  AppendTrainingStep({.groups = {group}}, loss, model.startup);
  return {std::move(model.main), std::move(model.startup)};
}

// Why it is unknown how the ranks' losses combine; "" if it is known.
std::string ReasonOf(const std::string& text, const std::string& loss_weight = "") {
  StepPrograms programs = Make(text);
  const std::string error = ErrorOf([&] {
    InsertAllReduce(programs.main, programs.startup, {.nranks = 2, .loss_weight = loss_weight});
  });
  VerifyOrThrow(programs.main, DefaultOps());
  const std::string begin = "distribute: how the ranks' values of 'loss' combine is unknown: ";
  if (error == "no error") return "";
  EXPECT_TRUE(error.starts_with(begin)) << error;
  return error.substr(begin.size(), error.find("; say it with") - begin.size());
}

std::string CountedLoop(const std::string& var, const std::string& body) {
  return "layer { less_than { x: \"i\" y: \"n\" output: \"more\" } }\n"
         "layer { while { condition: \"more\"\n" +
         body + "  layer { assign_to { x: \"next\" var: \"" + var + "\" } }\n" + R"(
  layer { increment_by { var: "i" } }
  layer { less_than { x: "i" y: "n" output: "again" } }
  layer { assign_to { x: "again" var: "more" } } } }
)";
}

std::string Branch(const std::string& condition) {
  return "layer { if { condition: \"" + condition +
         "\"\n  layer { tanh { input: \"h\" output: \"next\" } }\n"
         "  layer { assign_to { x: \"next\" var: \"h\" } } } }\n";
}

TEST(BlockValues, BlocksOnRowsNeedADeclaration) {
  const std::string row_by_row = "  layer { tanh { input: \"h\" output: \"next\" } }\n";
  const std::string loop = kHead + CountedLoop("h", row_by_row) + kTail;
  EXPECT_EQ(ReasonOf(loop), "while runs a block on 'h'");
  EXPECT_EQ(ReasonOf(loop, "ROWS"), "");
  EXPECT_EQ(ReasonOf(kHead + Branch("yes") + kTail), "conditional_block runs a block on 'h'");
  EXPECT_EQ(ReasonOf(kHead + Branch("yes") + kTail, "ROWS"), "");
}

// The condition is the reason, even if the block reads no rows.
TEST(BlockValues, ConditionsOfTheRanksRows) {
  EXPECT_EQ(ReasonOf(kHead + std::string(R"(
layer { op { reduce_max { X: "h" Out: "most" reduce_all: true } } }
layer { op { greater_than { X: "most" Y: "limit" Out: "more" } } }
layer { if { condition: "more"
  layer { fill_constant { shape: [1] dtype: FP64 value: 2 output: "two" } }
  layer { assign_to { x: "two" var: "limit" } } } }
layer { elementwise_mul { x: "h" y: "limit" output: "hl" } }
layer { assign_to { x: "hl" var: "h" } }
)") + kTail),
            "reduce_max makes 'most' of all rows together");
}

// Blocks that see nothing of the rows compute the same on all ranks.
TEST(BlockValues, BlocksWithoutRows) {
  EXPECT_EQ(ReasonOf(kHead + CountedLoop("limit", R"(
  layer { scale { input: "limit" scale: 2 output: "next" } }
)") + R"(
layer { elementwise_mul { x: "h" y: "limit" output: "hl" } }
layer { assign_to { x: "hl" var: "h" } }
)" + kTail),
            "");
}

// A branch that sees nothing of the rows replaces a sum over them.
TEST(BlockValues, BranchesThatReplaceASum) {
  const auto text = [](const std::string& output) {
    return std::string(kHead) + R"(
layer { square { input: "h" output: "squares" } }
layer { reduce_sum { input: "squares" output: "s" } }
layer { scale { input: "limit" scale: 2 output: "other" } }
layer { if { condition: "yes"
  layer { assign_to { x: "limit" var: ")" +
           output + R"(" } } } }
layer { scale { input: "s" scale: 0.5 output: "loss" } }
)";
  };
  EXPECT_EQ(ReasonOf(text("other")), "");
  EXPECT_EQ(ReasonOf(text("s")),
            "conditional_block may replace 's' of the rank's rows by a value that all ranks have");
}

// The time does not grow with the number of ways through nested blocks.
TEST(BlockValues, DeeplyNestedBranches) {
  std::string text = kHead, end;
  for (int i = 0; i < 40; ++i) {
    text += "layer { if { condition: \"yes\"\n";
    end += "} }\n";
  }
  text +=
      "layer { scale { input: \"limit\" scale: 2 output: \"next\" } }\n"
      "layer { assign_to { x: \"next\" var: \"limit\" } }\n";
  EXPECT_EQ(ReasonOf(text + end + kTail), "");
}

TEST(BlockValues, RecurrentNets) {
  const std::string text = std::string(R"(
data { name: "f" shape: [-1, 4, 6] dtype: FP64 }
data { name: "label" shape: [-1, 1] dtype: INT64 }
layer { parameter { shape: [6, 6] dtype: FP64 output: "w" } }
layer { transpose { input: "f" axis: [1, 0, 2] output: "ft" } }
layer { op { fill_constant_batch_size_like { Input: "f" Out: "s0" shape: -1 shape: 6 value: 0 dtype: FP64 } } }
layer { static_rnn { step_input: "ft"
  memory { name: "s" init: "s0" next: "sn" }
  layer { op { mul { X: "s" Y: "w" Out: "a" } } }
  layer { elementwise_add { x: "ft" y: "a" output: "b" } }
  layer { tanh { input: "b" output: "sn" } }
  step_output { var: "sn" output: "all" } } }
layer { op { reduce_mean { X: "all" Out: "h" dim: 0 } } }
)") + kTail;
  EXPECT_EQ(ReasonOf(text), "recurrent runs a block on 'ft'");
  EXPECT_EQ(ReasonOf(text, "ROWS"), "");
}

// Rows in the order of a rank table.
TEST(BlockValues, SortedSequences) {
  EXPECT_EQ(ReasonOf(std::string(R"(
data { name: "w" shape: [-1, 6] dtype: FP64 lod_level: 1 }
data { name: "label" shape: [-1, 1] dtype: INT64 }
layer { parameter { shape: [6, 6] dtype: FP64 output: "wh" } }
layer { op { mul { X: "w" Y: "wh" Out: "e" } } }
layer { op { lod_rank_table { X: "e" Out: "table" level: 0 } } }
layer { op { lod_tensor_to_array { X: "e" RankTable: "table" Out: "steps" } } }
layer { op { array_to_lod_tensor { X: "steps" RankTable: "table" Out: "all" } } }
layer { op { sequence_pool { X: "all" Out: "h" pooltype: "LAST" MaxIndex: "mi2" } } }
)") + kTail),
            "lod_rank_table mixes the rows of the batch");
}

}  // namespace coracle::block_values_test
