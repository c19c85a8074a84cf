// What ops within loops, branches and functions do to the rows of a rank's part: it is told where
// ranks do not compute what one rank does, and only there.

#include <coracle/distribute/all_reduce.h>
#include <coracle/layers/layer.h>
#include <coracle/optimizer/optimizers.h>
#include <coracle/passes/pass.h>
#include <coracle/test/distribute/rank_run.h>
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

// The reason for which no rule tells the loss of a part; "" where one does.
std::string ReasonOf(const std::string& text) {
  BuiltModel model = ParseModelText(text);
  const Variable loss(&model.main.Root(), model.main.Root().FindVar("loss"));
  OptimizerGroup group{.optimizer = std::make_shared<Sgd>(SgdOptions{.learning_rate = 0.1})};
  AppendTrainingStep({.groups = {group}}, loss, model.startup);
  const auto lines = InsertAllReduce(model.main, model.startup, {.nranks = 2}).unknown;
  VerifyOrThrow(model.main, DefaultOps());
  return lines.empty() ? "" : lines[0].substr(lines[0].find(": ") + 2);
}

std::string CountedLoop(const std::string& body) {
  return "layer { less_than { x: \"i\" y: \"n\" output: \"more\" } }\n"
         "layer { while { condition: \"more\"\n" +
         body +
         R"(
  layer { assign_to { x: "next" var: "h" } }
  layer { increment_by { var: "i" } }
  layer { less_than { x: "i" y: "n" output: "again" } }
  layer { assign_to { x: "again" var: "more" } } } }
)";
}

std::string Branch(const std::string& condition, const std::string& body) {
  return "layer { if { condition: \"" + condition + "\"\n" + body +
         "  layer { assign_to { x: \"next\" var: \"h\" } } } }\n";
}

constexpr const char* kCentered = R"(
  layer { op { reduce_mean { X: "h" Out: "m" dim: 0 keep_dim: true } } }
  layer { elementwise_sub { x: "h" y: "m" output: "next" } }
)";
constexpr const char* kRowByRow = "  layer { tanh { input: \"h\" output: \"next\" } }\n";

TEST(BlockValues, OpsThatTakeRowsByThemselves) {
  EXPECT_EQ(ReasonOf(kHead + CountedLoop(kRowByRow) + kTail), "");
  EXPECT_EQ(ReasonOf(kHead + Branch("yes", kRowByRow) + kTail), "");
  EXPECT_EQ(ReasonOf(kHead +
                     CountedLoop(Branch("yes", kRowByRow) +
                                 "layer { assign { input: \"h\" output: \"next\" } }") +
                     kTail),
            "");
}

TEST(BlockValues, OpsThatMixRows) {
  // Of the root block the op reads the mean of the whole batch.
  const std::string mean = "elementwise_sub reads 'm' of the rank's part";
  EXPECT_EQ(ReasonOf(std::string(kHead) + kCentered +
                     "layer { assign_to { x: \"next\" var: \"h\" } }" + kTail),
            "");
  EXPECT_EQ(ReasonOf(kHead + CountedLoop(kCentered) + kTail), mean);
  EXPECT_EQ(ReasonOf(kHead + Branch("yes", kCentered) + kTail), mean);
  EXPECT_EQ(ReasonOf(kHead +
                     CountedLoop(Branch("yes", kCentered) +
                                 "layer { assign { input: \"h\" output: \"next\" } }") +
                     kTail),
            mean);
  EXPECT_EQ(
      ReasonOf(kHead +
               Branch("yes", "  layer { op { softmax { X: \"h\" Out: \"next\" axis: 0 } } }\n") +
               kTail),
      "softmax works along the rows of the rank's part");
}

// What a run carries to the next is known only after that: `a` has rows from the second on.
TEST(BlockValues, ValuesThatALoopCarries) {
  const std::string text =
      std::string(kHead) +
      "layer { fill_constant { shape: [1] dtype: FP64 value: 0 output: \"a\" } }\n" +
      CountedLoop(R"(
  layer { elementwise_add { x: "h" y: "a" output: "next" } }
  layer { op { reduce_max { X: "h" Out: "largest" reduce_all: true } } }
  layer { assign_to { x: "largest" var: "a" } }
)") + kTail;
  EXPECT_EQ(ReasonOf(text), "reduce_max makes 'largest' of the rank's rows");
}

TEST(BlockValues, ConditionsOfTheRanksRows) {
  const std::string largest =
      "layer { op { reduce_max { X: \"h\" Out: \"most\" reduce_all: true } } }\n"
      "layer { op { greater_than { X: \"most\" Y: \"limit\" Out: \"more\" } } }\n";
  EXPECT_EQ(ReasonOf(kHead + largest + Branch("more", kRowByRow) + kTail),
            "conditional_block runs by what the rank's rows decide: reduce_max makes 'most' of the "
            "rank's rows");
  const std::string loop = R"(
layer { while { condition: "more"
  layer { scale { input: "h" scale: 0.8 output: "next" } }
  layer { assign_to { x: "next" var: "h" } }
  layer { op { reduce_max { X: "next" Out: "most2" reduce_all: true } } }
  layer { op { greater_than { X: "most2" Y: "limit" Out: "again" } } }
  layer { assign_to { x: "again" var: "more" } } } }
)";
  const std::string runs = "while runs by what the rank's rows decide: reduce_max makes 'most";
  EXPECT_EQ(ReasonOf(kHead + largest + loop + kTail).substr(0, runs.size()), runs);
  // The first run is everywhere, what decides on the next is written in the block.
  EXPECT_EQ(ReasonOf(std::string(kHead) + "layer { assign { input: \"yes\" output: \"more\" } }\n" +
                     loop + kTail)
                .substr(0, runs.size()),
            runs);
  // Of a mean all ranks read that of the whole batch.
  const std::string mean =
      "layer { mean { input: \"h\" output: \"most\" } }\n"
      "layer { op { greater_than { X: \"most\" Y: \"limit\" Out: \"more\" } } }\n";
  EXPECT_EQ(ReasonOf(kHead + mean + Branch("more", kRowByRow) + kTail), "");
}

std::string Recurrent(const std::string& centered) {
  return R"(
data { name: "f" shape: [-1, 4, 6] dtype: FP64 }
data { name: "label" shape: [-1, 1] dtype: INT64 }
layer { parameter { shape: [6, 6] dtype: FP64 output: "w" } }
layer { transpose { input: "f" axis: [1, 0, 2] output: "ft" } }
layer { op { fill_constant_batch_size_like { Input: "f" Out: "s0" shape: -1 shape: 6 value: 0 dtype: FP64 } } }
layer { static_rnn { step_input: "ft"
  memory { name: "s" init: "s0" next: "sn" }
  layer { op { mul { X: "s" Y: "w" Out: "a" } } }
  layer { elementwise_add { x: "ft" y: "a" output: "b" } }
)" + centered +
         R"(
  layer { tanh { input: "c" output: "sn" } }
  step_output { var: "sn" output: "all" } } }
layer { op { reduce_mean { X: "all" Out: "h" dim: 0 } } }
)" + kTail;
}

TEST(BlockValues, StepsOfRecurrentNets) {
  EXPECT_EQ(ReasonOf(Recurrent("layer { assign { input: \"b\" output: \"c\" } }")), "");
  EXPECT_EQ(ReasonOf(Recurrent(R"(
  layer { op { reduce_mean { X: "b" Out: "m" dim: 0 keep_dim: true } } }
  layer { elementwise_sub { x: "b" y: "m" output: "c" } }
)")),
            "elementwise_sub reads 'm' of the rank's part");
}

// Sequences by a rank table: the loop runs as often as the rank's longest has steps, and each row
// as often as its own.
std::string Dynamic(const std::string& last) {
  return R"(
data { name: "w" shape: [-1, 6] dtype: FP64 lod_level: 1 }
data { name: "label" shape: [-1, 1] dtype: INT64 }
layer { parameter { shape: [6, 6] dtype: FP64 output: "wh" } }
layer { op { mul { X: "w" Y: "wh" Out: "e" } } }
layer { op { lod_rank_table { X: "e" Out: "table" level: 0 } } }
layer { op { max_sequence_len { RankTable: "table" Out: "n" } } }
layer { op { lod_tensor_to_array { X: "e" RankTable: "table" Out: "steps" } } }
layer { op { sequence_pool { X: "e" Out: "first" pooltype: "FIRST" MaxIndex: "mi" } } }
layer { op { reorder_lod_tensor_by_rank { X: "first" RankTable: "table" Out: "s" } } }
layer { fill_constant { shape: [1] dtype: INT64 value: 0 output: "i" } }
layer { op { write_to_array { X: "s" I: "i" Out: "states" } } }
layer { less_than { x: "i" y: "n" output: "more" } }
layer { while { condition: "more"
  layer { op { read_from_array { X: "steps" I: "i" Out: "xt" } } }
  layer { op { shrink_rnn_memory { X: "s" RankTable: "table" I: "i" Out: "sp" } } }
  layer { elementwise_add { x: "xt" y: "sp" output: "sum" } }
  layer { tanh { input: "sum" output: "next" } }
  layer { op { write_to_array { X: "next" I: "i" Out: "states" } } }
  layer { assign_to { x: "next" var: "s" } }
  layer { increment_by { var: "i" } }
  layer { less_than { x: "i" y: "n" output: "again" } }
  layer { assign_to { x: "again" var: "more" } } } }
)" + last +
         kTail;
}

TEST(BlockValues, SequencesByARankTable) {
  EXPECT_EQ(ReasonOf(Dynamic(R"(
layer { op { array_to_lod_tensor { X: "states" RankTable: "table" Out: "all" } } }
layer { op { sequence_pool { X: "all" Out: "h" pooltype: "LAST" MaxIndex: "mi2" } } }
)")),
            "");
  // The last state of the loop has the rows of the rank's longest sequences.
  EXPECT_EQ(ReasonOf(Dynamic("layer { assign { input: \"s\" output: \"h\" } }")),
            "while runs by what the rank's rows decide: max_sequence_len makes 'n' of the rank's "
            "rows");
  // Rows in the order of lengths beside those in the order of the batch.
  EXPECT_EQ(ReasonOf(Dynamic(R"(
layer { op { read_from_array { X: "states" I: "zero" Out: "sorted" } } }
layer { elementwise_add { x: "sorted" y: "first" output: "h" } }
)")
                         .insert(0,
                                 "layer { fill_constant { shape: [1] dtype: INT64 value: 0 output: "
                                 "\"zero\" } }\n")),
            "elementwise_add joins rows in the order of a rank table with those of the batch");
}

}  // namespace coracle::block_values_test
