// Layers whose parameters are divided among ranks: c_embedding, c_identity, c_allreduce_sum with
// use_model_parallel, c_concat, c_split and c_softmax_with_cross_entropy give the loss and the
// gradients of one rank that has all parameters.

#include <coracle/backward/backward.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/test/distribute/rank_run.h>
#include <coracle/test/error_of.h>

#include <random>

namespace coracle::model_parallel_test {

constexpr DType kF64 = DType::kFloat64;
constexpr int64_t kRows = 5, kIds = 8, kWidth = 4, kHidden = 12, kClasses = 8;

using Values = std::map<std::string, Tensor>;

Tensor Random(const Shape& shape, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Tensor tensor = Tensor::Zeros(kF64, shape);
  for (double& value : tensor.span<double>()) value = normal(random);
  return tensor;
}

// Part r of n along an axis of a matrix.
Tensor Part(const Tensor& all, int axis, int r, int n) {
  const int64_t rows = all.shape()[0], columns = all.shape()[1];
  const int64_t height = axis == 0 ? rows / n : rows, width = axis == 1 ? columns / n : columns;
  Tensor part = Tensor::Zeros(kF64, {height, width});
  for (int64_t i = 0; i < height; ++i) {
    for (int64_t j = 0; j < width; ++j) {
      const int64_t from_i = i + (axis == 0 ? r * height : 0);
      const int64_t from_j = j + (axis == 1 ? r * width : 0);
      part.data<double>()[i * width + j] = all.data<double>()[from_i * columns + from_j];
    }
  }
  return part;
}

const std::map<std::string, int>& Axes() {
  static const std::map<std::string, int> axes = {{"table", 0}, {"in", 1}, {"out", 0}, {"last", 1}};
  return axes;
}

Values Parameters() {
  return {{"table", Random({kIds, kWidth}, 1)},
          {"in", Random({kWidth, kHidden}, 2)},
          {"out", Random({kHidden, kWidth}, 3)},
          {"last", Random({kWidth, kClasses}, 4)}};
}

struct Net {
  ProgramDesc program;
  std::vector<std::string> fetches;  // loss, then the gradients in the order of Axes
};

// The program of rank r of n. `to_softmax`: the loss has a term of the softmax, too.
Net MakeNet(int r, int n, bool to_softmax) {
  Net net;
  BlockDesc& root = net.program.Root();
  const auto declare = [&](const std::string& name, const Shape& shape, DType dtype) {
    root.Var(name).SetMeta({VarType::kLoDTensor, dtype, shape, 0});
  };
  const auto add = [&](const char* type, SlotList in, SlotList out, AttrList attrs = {}) {
    InferOp(root, root.AppendOp(type, std::move(in), std::move(out), std::move(attrs)),
            DefaultOps());
  };
  const AttrList ranks = {{"nranks", int32_t{n}}, {"rank", int32_t{r}}};
  const AttrList sum = {{"use_model_parallel", true}, {"use_calc_stream", true}};
  declare("ids", {kRows}, DType::kInt64);
  declare("label", {kRows, 1}, DType::kInt64);
  declare("weights", {kRows, kClasses / n}, kF64);
  for (const auto& [name, value] : Parameters())
    declare(name, Part(value, Axes().at(name), r, n).shape(), kF64);
  add("c_embedding", {{"W", {"table"}}, {"Ids", {"ids"}}}, {{"Out", {"own_rows"}}},
      {{"start_index", int64_t{r * kIds / n}}});
  add("c_allreduce_sum", {{"X", {"own_rows"}}}, {{"Out", {"rows"}}}, sum);
  add("c_identity", {{"X", {"rows"}}}, {{"Out", {"to_in"}}});
  add("mul", {{"X", {"to_in"}}, {"Y", {"in"}}}, {{"Out", {"h"}}});
  add("tanh", {{"X", {"h"}}}, {{"Out", {"a"}}});
  // There and back again.
  add("c_concat", {{"X", {"a"}}}, {{"Out", {"all"}}}, ranks);
  add("scale", {{"X", {"all"}}}, {{"Out", {"twice"}}}, {{"scale", 2.0f}});
  add("c_split", {{"X", {"twice"}}}, {{"Out", {"part"}}}, ranks);
  add("mul", {{"X", {"part"}}, {"Y", {"out"}}}, {{"Out", {"own_sum"}}});
  add("c_allreduce_sum", {{"X", {"own_sum"}}}, {{"Out", {"o"}}}, sum);
  add("c_identity", {{"X", {"o"}}}, {{"Out", {"to_last"}}});
  add("mul", {{"X", {"to_last"}}, {"Y", {"last"}}}, {{"Out", {"logits"}}});
  add("c_softmax_with_cross_entropy", {{"Logits", {"logits"}}, {"Label", {"label"}}},
      {{"Softmax", {"softmax"}}, {"Loss", {"ce"}}}, ranks);
  add("mean", {{"X", {"ce"}}}, {{"Out", {"loss"}}});
  std::string loss = "loss";
  if (to_softmax) {
    add("elementwise_mul", {{"X", {"softmax"}}, {"Y", {"weights"}}}, {{"Out", {"terms"}}});
    add("reduce_sum", {{"X", {"terms"}}}, {{"Out", {"term"}}}, {{"reduce_all", true}});
    add("elementwise_add", {{"X", {"loss"}}, {"Y", {"term"}}}, {{"Out", {"both"}}});
    loss = "both";
  }
  std::vector<Variable> wrt;
  for (const auto& [name, axis] : Axes()) wrt.push_back(Variable::Of(root, name));
  net.fetches = {"loss", "softmax"};
  for (const std::string& grad : Gradients({Variable::Of(root, loss)}, wrt))
    net.fetches.push_back(grad);
  return net;
}

std::vector<Tensor> RunRank(int r, int n, bool to_softmax, const std::vector<int64_t>& labels,
                            const std::shared_ptr<Communicator>& communicator) {
  const Net net = MakeNet(r, n, to_softmax);
  std::vector<std::string> feeds = {"ids", "label", "weights"};
  std::vector<Tensor> fed = {Tensor::Of<int64_t>({kRows}, {7, 0, 3, 3, 4}),
                             Tensor::Of<int64_t>({kRows, 1}, labels),
                             Part(Random({kRows, kClasses}, 5), 1, r, n)};
  for (const auto& [name, value] : Parameters()) {
    feeds.push_back(name);
    fed.push_back(Part(value, Axes().at(name), r, n));
  }
  PreparedProgram prepared = Executor().Prepare(net.program, feeds, net.fetches);
  prepared.SetCommunicator(communicator);
  Scope scope;
  std::vector<Tensor> results;
  for (const Tensor& tensor : prepared.Run(scope, fed)) results.push_back(tensor.Clone());
  return results;
}

const std::vector<int64_t> kLabels = {0, 7, 3, 4, 5};

class ModelParallel : public testing::TestWithParam<int> {};

TEST_P(ModelParallel, IsOneRankWithAllParameters) {
  const int n = GetParam();
  for (const bool to_softmax : {false, true}) {
    SCOPED_TRACE(to_softmax);
    const std::vector<Tensor> whole = RunRank(0, 1, to_softmax, kLabels, nullptr);
    OnRanks(n, [&](const std::shared_ptr<Communicator>& communicator) {
      const int r = communicator->rank();
      const std::vector<Tensor> own = RunRank(r, n, to_softmax, kLabels, communicator);
      EXPECT_LT(RelativeDifference(own[0], whole[0]), 1e-12);
      EXPECT_LT(RelativeDifference(own[1], Part(whole[1], 1, r, n)), 1e-12);
      size_t at = 2;
      for (const auto& [name, axis] : Axes()) {
        EXPECT_LT(RelativeDifference(own[at], Part(whole[at], axis, r, n)), 1e-11) << name;
        ++at;
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ModelParallel, testing::Values(2, 4));

// The loss of one rank, against the formula of softmax_with_cross_entropy.
TEST(ModelParallelLoss, LargeLogitsAndLabelsOutOfRange) {
  const auto loss = [](int n, double scale, int64_t label) {
    std::vector<double> losses(static_cast<size_t>(n));
    std::vector<std::string> errors(static_cast<size_t>(n));
    OnRanks(n, [&](const std::shared_ptr<Communicator>& communicator) {
      const auto r = static_cast<size_t>(communicator->rank());
      ProgramDesc program;
      BlockDesc& root = program.Root();
      root.Var("x").SetMeta({VarType::kLoDTensor, kF64, {1, 4 / n}, 0});
      root.Var("label").SetMeta({VarType::kLoDTensor, DType::kInt64, {1, 1}, 0});
      InferOp(
          root,
          root.AppendOp("c_softmax_with_cross_entropy", {{"Logits", {"x"}}, {"Label", {"label"}}},
                        {{"Softmax", {"y"}}, {"Loss", {"loss"}}}, {{"nranks", int32_t{n}}}),
          DefaultOps());
      PreparedProgram prepared = Executor().Prepare(program, {"x", "label"}, {"loss"});
      prepared.SetCommunicator(n > 1 ? communicator : nullptr);
      const Tensor all = Tensor::Of<double>({1, 4}, {scale, -scale, 2 * scale, 0});
      Scope scope;
      errors[r] = ErrorOf([&] {
        losses[r] = prepared
                        .Run(scope, {Part(all, 1, static_cast<int>(r), n),
                                     Tensor::Of<int64_t>({1, 1}, {label})})[0]
                        .Item<double>();
      });
    });
    EXPECT_EQ(errors[0], errors.back());
    EXPECT_EQ(losses[0], losses.back());
    return errors[0] == "no error" ? std::to_string(losses[0]) : errors[0];
  };
  EXPECT_EQ(loss(2, 1e4, 1), "30000.000000");
  EXPECT_EQ(loss(4, 1e4, 1), "30000.000000");
  EXPECT_EQ(loss(4, 1e4, 2), "0.000000");
  EXPECT_EQ(loss(2, 1, 3), loss(1, 1, 3));
  EXPECT_EQ(loss(2, 1, 4),
            "c_softmax_with_cross_entropy: every label must lie in [0, nranks times the classes "
            "of Logits) [c_softmax_with_cross_entropy.C3], got 4");
  EXPECT_EQ(loss(2, 1, 4), loss(1, 1, 4));
}
}  // namespace coracle::model_parallel_test
