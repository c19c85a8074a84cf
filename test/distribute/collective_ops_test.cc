// Collective ops among ranks: what each rank gets of X, by type; gradients; programs as other
// frameworks write them.

#include <coracle/backward/backward.h>
#include <coracle/communication/comm_context.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/test/distribute/rank_run.h>
#include <coracle/test/error_of.h>

#include <mutex>
#include <numeric>

namespace coracle::collective_ops_test {

using Values = std::vector<double>;

// X of rank r: `rows` x `columns`, x[i] = 100 r + i.
Tensor XOf(int rank, int64_t rows, int64_t columns) {
  Tensor x = Tensor::Zeros(DType::kFloat64, {rows, columns});
  for (int64_t i = 0; i < x.numel(); ++i) x.data<double>()[i] = 100 * rank + static_cast<double>(i);
  return x;
}

// out of a program of one op on x.
Tensor RunOp(const std::string& type, const AttrList& attrs, const Tensor& x,
             const std::shared_ptr<Communicator>& communicator, bool in_place = false) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  root.Var("x").SetMeta({VarType::kLoDTensor, x.dtype(), x.shape(), 0});
  const std::string out = in_place ? "c" : "out";
  if (in_place) {
    InferOp(root, root.AppendOp("assign", {{"X", {"x"}}}, {{"Out", {out}}}), DefaultOps());
  }
  InferOp(root, root.AppendOp(type, {{"X", {in_place ? out : "x"}}}, {{"Out", {out}}}, attrs),
          DefaultOps());
  PreparedProgram prepared = Executor().Prepare(program, {"x"}, {out});
  prepared.SetCommunicator(communicator);
  Scope scope;
  return prepared.Run(scope, {x})[0].Clone();
}

Values ValuesOf(const Tensor& tensor) {
  const auto span = tensor.span<double>();
  return {span.begin(), span.end()};
}

constexpr int64_t kRows = 12, kColumns = 12;

// The result that rank `rank` of `size` must get.
using Expected = std::function<double(int rank, int size, int64_t row, int64_t column)>;
double X(int rank, int64_t row, int64_t column, int64_t columns = kColumns) {
  return 100.0 * rank + static_cast<double>(row * columns + column);
}
double SumOfX(int size, int64_t row, int64_t column) {
  double sum = 0;
  for (int r = 0; r < size; ++r) sum += X(r, row, column);
  return sum;
}

struct Row {
  const char* type;
  AttrList attrs;
  bool ranks;  // has nranks
  Expected expected;
};

std::vector<Row> Rows() {
  const auto sum = [](int, int size, int64_t i, int64_t j) { return SumOfX(size, i, j); };
  const auto max = [](int, int size, int64_t i, int64_t j) { return X(size - 1, i, j); };
  const auto min = [](int, int, int64_t i, int64_t j) { return X(0, i, j); };
  const auto product = [](int, int size, int64_t i, int64_t j) {
    double product = 1;
    for (int r = 0; r < size; ++r) product *= X(r, i, j);
    return product;
  };
  const auto sum_on_1 = [](int rank, int size, int64_t i, int64_t j) {
    return rank == 1 ? SumOfX(size, i, j) : X(rank, i, j);
  };
  const auto max_on_1 = [](int rank, int size, int64_t i, int64_t j) {
    return X(rank == 1 ? size - 1 : rank, i, j);
  };
  const auto of_1 = [](int, int, int64_t i, int64_t j) { return X(1, i, j); };
  const auto own = [](int rank, int, int64_t i, int64_t j) { return X(rank, i, j); };
  const auto gathered = [](int, int, int64_t i, int64_t j) {
    return X(static_cast<int>(i / kRows), i % kRows, j);
  };
  const auto scattered = [](int rank, int size, int64_t i, int64_t j) {
    return SumOfX(size, rank * kRows / size + i, j);
  };
  return {
      {"c_allreduce_sum", {}, false, sum},
      {"c_allreduce_max", {}, false, max},
      {"c_allreduce_min", {}, false, min},
      {"c_allreduce_prod", {}, false, product},
      {"c_coalesced_allreduce_sum", {}, false, sum},
      {"c_reduce_sum", {{"root_id", 1}}, false, sum_on_1},
      {"c_reduce_max", {{"root_id", 1}}, false, max_on_1},
      {"c_broadcast", {{"root", 1}}, false, of_1},
      {"broadcast", {{"root", 1}}, false, of_1},
      {"ncclBcast", {{"root", 1}}, false, of_1},
      {"c_identity", {}, false, own},
      {"barrier", {}, false, own},
      {"allreduce", {}, false, sum},
      {"allreduce", {{"reduce_type", 1}}, false, product},
      {"allreduce", {{"reduce_type", 2}}, false, max},
      {"allreduce", {{"reduce_type", 3}}, false, min},
      {"ncclAllReduce", {{"reduction", std::string("ncclMax")}}, false, max},
      {"ncclReduce", {{"root", 1}}, false, sum_on_1},
      {"c_allgather", {}, true, gathered},
      {"c_reducescatter", {}, true, scattered},
      {"c_scatter",
       {{"root", 1}},
       true,
       [](int rank, int size, int64_t i, int64_t j) { return X(1, rank * kRows / size + i, j); }},
      {"c_concat",
       {},
       true,
       [](int, int, int64_t i, int64_t j) {
         return X(static_cast<int>(j / kColumns), i, j % kColumns);
       }},
      {"c_split",
       {},
       true,
       [](int rank, int size, int64_t i, int64_t j) {
         return X(rank, i, rank * kColumns / size + j);
       }},
      {"alltoall",
       {},
       false,
       [](int rank, int size, int64_t i, int64_t j) {
         const int64_t part = kRows / size;
         return X(static_cast<int>(i / part), rank * part + i % part, j);
       }},
      {"partial_allgather", {}, true, [](int, int size, int64_t i, int64_t j) {
         return X(static_cast<int>(i / (kRows / size)), i, j);
       }}};
}

class Collectives : public testing::TestWithParam<int> {};

TEST_P(Collectives, EveryRankGetsItsPart) {
  const int size = GetParam();
  for (const Row& row : Rows()) {
    SCOPED_TRACE(row.type);
    OnRanks(size, [&](const std::shared_ptr<Communicator>& communicator) {
      const int rank = communicator->rank();
      AttrList attrs = row.attrs;
      if (row.ranks) attrs.push_back({"nranks", int32_t{size}});
      const Tensor out = RunOp(row.type, attrs, XOf(rank, kRows, kColumns), communicator);
      for (int64_t i = 0; i < out.shape()[0]; ++i) {
        for (int64_t j = 0; j < out.shape()[1]; ++j) {
          const double got = out.data<double>()[i * out.shape()[1] + j];
          ASSERT_EQ(got, row.expected(rank, size, i, j))
              << row.type << " rank " << rank << " [" << i << ", " << j << "]";
        }
      }
      if (row.ranks && row.type != std::string("partial_allgather")) return;
      EXPECT_EQ(ValuesOf(RunOp(row.type, attrs, XOf(rank, kRows, kColumns), communicator, true)),
                ValuesOf(out))
          << "in place";
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, testing::Values(2, 3, 4));

// What the gradient of an op is taken of: sum(w * f(x)) of all ranks together. Under model
// parallelism (c_concat, c_split) all ranks have the same X, or the same Out and one loss.
enum class Loss { kSumOfRanks, kSameX, kSameOut };

double Weight(Loss loss, int rank, int64_t i) {
  return static_cast<double>(1 + (i * 7 + (loss == Loss::kSameOut ? 0 : rank * 3)) % 5);
}

double Objective(Loss loss, const std::string& type, const AttrList& attrs,
                 const std::vector<Tensor>& xs) {
  std::vector<double> parts(xs.size());
  OnRanks(static_cast<int>(xs.size()), [&](const std::shared_ptr<Communicator>& communicator) {
    const int rank = communicator->rank();
    const Tensor out = RunOp(type, attrs, xs[static_cast<size_t>(rank)], communicator);
    for (int64_t i = 0; i < out.numel(); ++i)
      parts[static_cast<size_t>(rank)] += out.data<double>()[i] * Weight(loss, rank, i);
  });
  if (loss == Loss::kSameOut) return parts[0];
  return std::accumulate(parts.begin(), parts.end(), 0.0);
}

Values GradientOf(Loss loss, const std::string& type, const AttrList& attrs, const Tensor& x,
                  const std::shared_ptr<Communicator>& communicator) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  const auto add = [&](const char* op, SlotList in, SlotList out, AttrList with = {}) {
    InferOp(root, root.AppendOp(op, std::move(in), std::move(out), std::move(with)), DefaultOps());
  };
  root.Var("x").SetMeta({VarType::kLoDTensor, DType::kFloat64, x.shape(), 0});
  add(type.c_str(), {{"X", {"x"}}}, {{"Out", {"out"}}}, attrs);
  root.Var("w").SetMeta(root.FindVar("out")->meta());
  add("elementwise_mul", {{"X", {"out"}}, {"Y", {"w"}}}, {{"Out", {"p"}}});
  add("reduce_sum", {{"X", {"p"}}}, {{"Out", {"loss"}}}, {{"reduce_all", true}});
  const std::string grad = Gradients({Variable::Of(root, "loss")}, {Variable::Of(root, "x")}).at(0);
  Tensor weights = Tensor::Zeros(DType::kFloat64, root.FindVar("w")->shape());
  for (int64_t i = 0; i < weights.numel(); ++i)
    weights.data<double>()[i] = Weight(loss, communicator->rank(), i);
  PreparedProgram prepared = Executor().Prepare(program, {"x", "w"}, {grad});
  prepared.SetCommunicator(communicator);
  Scope scope;
  return ValuesOf(prepared.Run(scope, {x, weights})[0]);
}

TEST(CollectiveGradients, AreThoseOfAllRanksTogether) {
  constexpr int kSize = 2;
  const std::pair<const char*, Loss> kTypes[] = {{"c_allreduce_sum", Loss::kSumOfRanks},
                                                 {"c_concat", Loss::kSameOut},
                                                 {"c_split", Loss::kSameX},
                                                 {"c_allgather", Loss::kSumOfRanks},
                                                 {"c_reducescatter", Loss::kSumOfRanks},
                                                 {"alltoall", Loss::kSumOfRanks}};
  for (const auto& [type, loss] : kTypes) {
    SCOPED_TRACE(type);
    AttrList attrs;
    if (DefaultOps().Get(type).FindAttr("nranks")) attrs.push_back({"nranks", int32_t{kSize}});
    const bool same = loss == Loss::kSameX;
    std::vector<Tensor> xs = {XOf(0, 2, 4), XOf(same ? 0 : 1, 2, 4)};
    std::vector<Values> gradients(kSize);
    OnRanks(kSize,
            [&, type = type, loss = loss](const std::shared_ptr<Communicator>& communicator) {
              const auto rank = static_cast<size_t>(communicator->rank());
              gradients[rank] = GradientOf(loss, type, attrs, xs[rank], communicator);
            });
    for (size_t rank = 0; rank < kSize; ++rank) {
      for (int64_t i = 0; i < 8; ++i) {
        const auto shift = [&](double by) {
          for (size_t r = 0; r < kSize; ++r)
            if (same || r == rank) xs[r].data<double>()[i] += by;
        };
        shift(0.5);
        const double high = Objective(loss, type, attrs, xs);
        shift(-1);
        const double low = Objective(loss, type, attrs, xs);
        shift(0.5);
        EXPECT_NEAR(gradients[rank][static_cast<size_t>(i)], high - low, 1e-9)
            << "rank " << rank << " element " << i;
      }
    }
  }
}

std::string GatherAmong(int32_t nranks, const std::shared_ptr<Communicator>& communicator) {
  return ErrorOf([&] { RunOp("c_allgather", {{"nranks", nranks}}, XOf(0, 3, 3), communicator); });
}

TEST(CollectiveOps, AnotherNumberOfRanks) {
  OnRanks(2, [&](const std::shared_ptr<Communicator>& communicator) {
    EXPECT_EQ(GatherAmong(3, communicator),
              "c_allgather: nranks is 3, but 2 ranks run the program; start it with as many "
              "ranks (mpirun -n 3), or set nranks to 2");
    EXPECT_EQ(GatherAmong(0, communicator),
              "c_allgather: nranks is 0, but 2 ranks run the program; set nranks to 2");
  });
  EXPECT_EQ(GatherAmong(-2, nullptr),
            "c_allgather: nranks is -2, but one rank runs the program; set nranks to 1");
}

TEST(CollectiveOps, RowsThatRanksDoNotDivide) {
  OnRanks(2, [&](const std::shared_ptr<Communicator>& communicator) {
    EXPECT_EQ(ErrorOf([&] { RunOp("alltoall", {}, XOf(0, 3, 2), communicator); }),
              "alltoall: X has 3 rows, which is not a multiple of the 2 ranks");
  });
}

// An error on one rank ends the run of the other.
TEST(CollectiveOps, AnErrorOfOneRankEndsTheOthers) {
  std::vector<std::string> errors(2);
  OnRanks(2, [&](const std::shared_ptr<Communicator>& communicator) {
    const auto rank = static_cast<size_t>(communicator->rank());
    const int64_t rows = rank == 0 ? 2 : 3;
    errors[rank] = ErrorOf([&] { RunOp("c_allreduce_sum", {}, XOf(0, rows, 2), communicator); });
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("they run different programs or read data of different shapes"),
              std::string::npos)
        << error;
}

// The form that Paddle's collective mode writes: the loss's gradient scaled, a sum of each gradient
// in the stream of communication, and the two waits.
TEST(CollectiveOps, ProgramAsFleetWritesIt) {
  OnRanks(2, [](const std::shared_ptr<Communicator>& communicator) {
    ProgramDesc program;
    BlockDesc& root = program.Root();
    const auto add = [&](const char* type, SlotList in, SlotList out, AttrList attrs = {}) {
      InferOp(root, root.AppendOp(type, std::move(in), std::move(out), std::move(attrs)),
              DefaultOps());
    };
    root.Var("x").SetMeta({VarType::kLoDTensor, DType::kFloat32, {2, 1}, 0});
    VarDesc& w = root.Var("w");
    w.SetMeta({VarType::kLoDTensor, DType::kFloat32, {1, 1}, 0});
    w.SetPersistable(true);
    VarDesc& rate = root.Var("rate");
    rate.SetMeta({VarType::kLoDTensor, DType::kFloat32, {1}, 0});
    rate.SetPersistable(true);
    add("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"y"}}});
    add("mean", {{"X", {"y"}}}, {{"Out", {"loss"}}});
    add("fill_constant", {}, {{"Out", {"loss@GRAD"}}},
        {{"shape", std::vector<int64_t>{1}}, {"value", 1.0f}, {"dtype", 5}, {"op_role", 257}});
    add("scale", {{"X", {"loss@GRAD"}}}, {{"Out", {"loss@GRAD"}}},
        {{"scale", 0.5f}, {"op_role", 257}});
    add("mean_grad", {{"X", {"y"}}, {"Out@GRAD", {"loss@GRAD"}}}, {{"X@GRAD", {"y@GRAD"}}},
        {{"op_role", 1}});
    add("mul_grad", {{"X", {"x"}}, {"Y", {"w"}}, {"Out@GRAD", {"y@GRAD"}}},
        {{"Y@GRAD", {"w@GRAD"}}},
        {{"op_role", 1}, {"op_role_var", std::vector<std::string>{"w", "w@GRAD"}}});
    add("c_sync_calc_stream", {{"X", {"w@GRAD"}}}, {{"Out", {"w@GRAD"}}}, {{"op_role", 1}});
    add("c_allreduce_sum", {{"X", {"w@GRAD"}}}, {{"Out", {"w@GRAD"}}},
        {{"ring_id", 0}, {"op_role", 1}});
    add("c_sync_comm_stream", {{"X", {"w@GRAD"}}}, {{"Out", {"w@GRAD"}}},
        {{"ring_id", 0}, {"op_role", 1}});
    add("sgd", {{"Param", {"w"}}, {"Grad", {"w@GRAD"}}, {"LearningRate", {"rate"}}},
        {{"ParamOut", {"w"}}},
        {{"op_role", 2}, {"op_role_var", std::vector<std::string>{"w", "w@GRAD"}}});
    PreparedProgram step = Executor().Prepare(program, {"x"}, {"w@GRAD"});
    step.SetCommunicator(communicator);
    Scope scope;
    scope.Set("w", Tensor::Of<float>({1, 1}, {1}));
    scope.Set("rate", Tensor::Of<float>({1}, {0.5}));
    const float a = communicator->rank() == 0 ? 1.0f : 5.0f;
    const std::vector<Tensor>& out = step.Run(scope, {Tensor::Of<float>({2, 1}, {a, a + 2})});
    EXPECT_EQ(out[0].data<float>()[0], 4.0f);  // the mean of 1, 3, 5, 7
    EXPECT_EQ(scope.Get("w").data<float>()[0], -1.0f);
    EXPECT_EQ(step.comm()->exchanges(), 1);
    EXPECT_EQ(step.comm()->bytes(), 4);
  });
}

// y = x w + v, fused gradients: how fleet's programs of 2021 (fuse_all_reduce_ops) have it. The
// gradients become parts of one tensor before backward writes them; the sum is of the whole.
enum class Fusion { kBeforeBackward, kAfterBackward, kOptimizerToo };

StepPrograms FusedStep(Fusion fusion) {
  StepPrograms programs;
  ProgramDesc& program = programs.main;
  BlockDesc& root = program.Root();
  const auto add = [&](const char* type, SlotList in, SlotList out, AttrList attrs = {}) {
    InferOp(root, root.AppendOp(type, std::move(in), std::move(out), std::move(attrs)),
            DefaultOps());
  };
  const auto declare = [&](const std::string& name, const Shape& shape, bool persistable) {
    VarDesc& var = root.Var(name);
    var.SetMeta({VarType::kLoDTensor, DType::kFloat32, shape, 0});
    var.SetPersistable(persistable);
  };
  declare("x", {2, 3}, false);
  declare("w", {3, 1}, true);
  declare("v", {1}, true);
  declare("rate", {1}, true);
  add("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"xw"}}});
  add("elementwise_add", {{"X", {"xw"}}, {"Y", {"v"}}}, {{"Out", {"y"}}});
  add("mean", {{"X", {"y"}}}, {{"Out", {"loss"}}});
  add("fill_constant", {}, {{"Out", {"loss@GRAD"}}},
      {{"shape", std::vector<int64_t>{1}}, {"value", 1.0f}, {"dtype", 5}, {"op_role", 257}});
  add("scale", {{"X", {"loss@GRAD"}}}, {{"Out", {"loss@GRAD"}}}, {{"scale", 0.5f}, {"op_role", 1}});
  const auto fuse = [&](const std::vector<std::string>& from, const std::vector<std::string>& to,
                        const std::string& fused, bool copy) {
    add("coalesce_tensor", {{"Input", from}}, {{"Output", to}, {"FusedOutput", {fused}}},
        {{"copy_data", copy}, {"use_align", true}, {"dtype", 5}, {"op_role", 1}});
  };
  const std::vector<std::string> grads = {"v@GRAD", "w@GRAD"}, params = {"v", "w"};
  if (fusion == Fusion::kBeforeBackward) {
    for (const char* grad : {"v@GRAD", "w@GRAD"})
      declare(grad, grad[0] == 'v' ? Shape{1} : Shape{3, 1}, false);
    fuse(params, grads, "fused", false);
  }
  add("mean_grad", {{"X", {"y"}}, {"Out@GRAD", {"loss@GRAD"}}}, {{"X@GRAD", {"y@GRAD"}}},
      {{"op_role", 1}});
  add("elementwise_add_grad", {{"X", {"xw"}}, {"Y", {"v"}}, {"Out@GRAD", {"y@GRAD"}}},
      {{"X@GRAD", {"xw@GRAD"}}, {"Y@GRAD", {"v@GRAD"}}}, {{"op_role", 1}});
  add("mul_grad", {{"X", {"x"}}, {"Y", {"w"}}, {"Out@GRAD", {"xw@GRAD"}}}, {{"Y@GRAD", {"w@GRAD"}}},
      {{"op_role", 1}});
  if (fusion != Fusion::kBeforeBackward) fuse(grads, grads, "fused", true);
  add("c_sync_calc_stream", {{"X", {"fused"}}}, {{"Out", {"fused"}}}, {{"op_role", 1}});
  add("c_allreduce_sum", {{"X", {"fused"}}}, {{"Out", {"fused"}}},
      {{"ring_id", 0}, {"use_calc_stream", false}, {"op_role", 1}});
  add("c_sync_comm_stream", {{"X", {"v@GRAD"}}}, {{"Out", {"v@GRAD"}}},
      {{"ring_id", 0}, {"op_role", 1}});
  const auto update = [&](const std::string& param, const std::string& grad) {
    add("sgd", {{"Param", {param}}, {"Grad", {grad}}, {"LearningRate", {"rate"}}},
        {{"ParamOut", {param}}}, {{"op_role", 2}});
  };
  if (fusion == Fusion::kOptimizerToo) {
    fuse(params, params, "fused_params", true);
    update("fused_params", "fused");
  } else {
    for (const std::string& param : params) update(param, param + "@GRAD");
  }
  return programs;
}

TEST(CollectiveOps, FusedGradientsAsFleetWritesThem) {
  for (const Fusion fusion :
       {Fusion::kBeforeBackward, Fusion::kAfterBackward, Fusion::kOptimizerToo}) {
    SCOPED_TRACE(static_cast<int>(fusion));
    for (const bool optimize : {false, true}) {
      OnRanks(2, [&](const std::shared_ptr<Communicator>& communicator) {
        const StepPrograms programs = FusedStep(fusion);
        VerifyOrThrow(programs.main, DefaultOps());
        PreparedProgram step = Executor(CompileOptions{.optimize = optimize})
                                   .Prepare(programs.main, {"x"}, {"w@GRAD", "fused"});
        step.SetCommunicator(communicator);
        Scope scope;
        scope.Set("w", Tensor::Of<float>({3, 1}, {1, 2, 3}));
        scope.Set("v", Tensor::Of<float>({1}, {4}));
        scope.Set("rate", Tensor::Of<float>({1}, {0.5}));
        // The means of the columns of all rows are 3, 4 and 5.
        const float a = communicator->rank() == 0 ? 0.0f : 4.0f;
        for (const float times : {1.0f, 2.0f}) {
          const std::vector<Tensor>& out =
              step.Run(scope, {Tensor::Of<float>({2, 3}, {a, a + 1, a + 2, a + 2, a + 3, a + 4})});
          for (int i = 0; i < 3; ++i) {
            const float mean = static_cast<float>(3 + i);
            EXPECT_EQ(out[0].data<float>()[i], mean);
            EXPECT_EQ(out[1].data<float>()[1024 + i], mean);  // from the next page on
            EXPECT_EQ(scope.Get("w").data<float>()[i],
                      static_cast<float>(1 + i) - times * 0.5f * mean);
          }
          EXPECT_EQ(out[1].data<float>()[0], 1.0f);
          EXPECT_EQ(scope.Get("v").data<float>()[0], 4 - times * 0.5f);
        }
        EXPECT_EQ(step.comm()->exchanges(), 2);
      });
    }
  }
}
}  // namespace coracle::collective_ops_test
