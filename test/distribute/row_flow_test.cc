// Where the rows of a batch are in the outputs of ops: found, or refused if the shapes do not show
// it, or if rows are joined that do not belong together.

#include <coracle/distribute/all_reduce.h>
#include <coracle/distribute/part_values.h>
#include <coracle/layers/layer.h>
#include <coracle/test/distribute/rank_nets.h>
#include <coracle/test/error_of.h>
#include <fmt/format.h>

namespace coracle::row_flow_test {

using namespace rank_nets;

constexpr const char* kHead = R"(
data { name: "x" shape: [-1, 6] dtype: FP64 }
data { name: "z" shape: [-1, 4] dtype: FP64 }
layer { parameter { shape: [60, 4] dtype: FP64 output: "table" } }
layer { fc { input: "x" size: 4 act: "tanh" output: "h" } }
layer { fc { input: "z" size: 4 act: "tanh" output: "g" } }
)";
const std::vector<FeedSpec> kFeeds = {{"x", {6}}, {"z", {4}}};

std::string Op(const std::string& type, const std::string& fields) {
  return fmt::format("layer {{ op {{ {} {{ {} }} }} }}\n", type, fields);
}
std::string Reshaped(const std::string& x, const std::string& out, const std::string& shape) {
  return Op("reshape2",
            fmt::format("X: \"{0}\" Out: \"{1}\" XShape: \"{1}_x\" shape: {2}", x, out, shape));
}
std::string Transposed(const std::string& x, const std::string& out) {
  return Op("transpose2",
            fmt::format("X: \"{0}\" Out: \"{1}\" XShape: \"{1}_x\" axis: [1, 0]", x, out));
}
std::string Added(const std::string& x, const std::string& y, const std::string& out) {
  return fmt::format("layer {{ elementwise_add {{ x: \"{}\" y: \"{}\" output: \"{}\" }} }}\n", x, y,
                     out);
}
std::string Integers(const std::string& values, int size, const std::string& out) {
  return Op("assign_value", fmt::format("Out: \"{}\" shape: [{}] dtype: INT32 int32_values: {}",
                                        out, size, values));
}

// Ops that make "y" of h [rows, 4] and g [rows, 4], and the reason if its rows are not followed.
struct FlowCase {
  std::string name, text, reason = {};
};

StepPrograms Programs(const FlowCase& c) {
  BuiltModel model = ParseModelText(kHead + c.text + R"(
layer { op { square { X: "y" Out: "y2" } } }
layer { mean { input: "y2" output: "loss" } }
)");
  const Variable loss(&model.main.Root(), model.main.Root().FindVar("loss"));
  Sgd(SgdOptions{.learning_rate = 0.1}).Minimize(loss, model.startup);
  return {std::move(model.main), std::move(model.startup)};
}

std::vector<FlowCase> Cases() {
  const std::string begins = Integers("[1, 0]", 2, "begin");
  const std::string all = Integers("[-1, 4]", 2, "size");
  const std::string flat = Reshaped("h", "a", "[-1]");
  const std::string turned = Transposed("g", "t");
  return {
      // The shape rule shows the rows.
      {"reshaped_and_back", Reshaped("h", "a", "[-1, 2]") + Reshaped("a", "y", "[-1, 4]")},
      {"turned_flat_and_back", turned + Reshaped("t", "b", "[-1]") + Reshaped("b", "c", "[4, -1]") +
                                   Transposed("c", "d") + Added("h", "d", "y")},
      {"flat_with_flat", flat + Reshaped("g", "b", "[-1]") + Added("a", "b", "y")},
      {"tiled", Op("tile", R"(X: "h" Out: "y" repeat_times: [2, 1])")},
      {"cropped_to_rows", Op("crop", R"(X: "h" Y: "g" Out: "y" offsets: [0, 0])")},
      {"expanded_to_rows", Op("assign_value", R"(Out: "one" shape: [1, 4] dtype: FP64
                                                 fp64_values: [1, 2, 3, 4])") +
                               Op("expand_as", R"(X: "one" target_tensor: "h" Out: "e")") +
                               Added("h", "e", "y")},
      // Sizes and offsets that no shape rule knows.
      {"cropped_by_tensor",
       begins + Op("crop_tensor", R"(X: "h" Offsets: "begin" Out: "y" shape: [-1, 4])"),
       "crop_tensor does not show by its shape rule where 'y' has the rows"},
      // Rows that do not belong together.
      {"different_orders", flat + turned + Reshaped("t", "b", "[-1]") + Added("a", "b", "y"),
       "elementwise_add joins rows that are on different axes, or in different orders"},
      {"time_before_rows", turned + Reshaped("t", "b", "[-1]") + Reshaped("b", "y", "[-1, 4]"),
       "reshape2 divides the rows among other dimensions"},
      {"first_of_several",
       Reshaped("h", "a", "[-1, 2]") + Reshaped("g", "b", "[-1, 4]") +
           Op("slice", R"(Input: "b" Out: "c" axes: [1] starts: [0] ends: [2])") +
           Op("crop", R"(X: "a" Y: "c" Out: "y" offsets: [0, 0])"),
       "crop leaves out rows of the batch"},
      // A constant of which each rank would read the same part.
      {"crop_of_constant",
       Op("crop", R"(X: "table" Y: "h" Out: "e" offsets: [0, 0])") + Added("h", "e", "y"),
       "crop mixes the rows of the batch"},
      {"crop_tensor_of_constant",
       Op("shape", R"(Input: "h" Out: "size")") +
           Op("crop_tensor",
              R"(X: "table" Shape: "size" Out: "e" offsets: [0, 0] shape: [-1, 4])") +
           Added("h", "e", "y"),
       "shape makes 'size' of all rows together"},
  };
}

class RowsOfNets : public testing::TestWithParam<FlowCase> {};

// Either N ranks learn what one rank learns, or the program is refused and the message says how to
// mend it.
TEST_P(RowsOfNets, TrainsAsOneRankOrIsRefused) {
  const FlowCase& c = GetParam();
  const StepPrograms whole = Programs(c);
  StepPrograms parts = whole;
  const std::string error = ErrorOf(
      [&] { InsertAllReduce(parts.main, parts.startup, {.nranks = 2, .share = "rank_rows"}); });
  if (c.reason.empty()) {
    ASSERT_EQ(error, "no error");
    ExpectOneRank({.name = c.name, .feeds = kFeeds, .net = {}, .train = {}, .rows = {10, 7}}, whole,
                  parts, 2, "rank_rows");
    return;
  }
  EXPECT_NE(error.find(c.reason + "; say it with distribute { loss_weight:"), std::string::npos)
      << error;
}

INSTANTIATE_TEST_SUITE_P(Nets, RowsOfNets, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace coracle::row_flow_test
