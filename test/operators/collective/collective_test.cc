// Collectives in a program that one rank runs: a table of them all.
#include <coracle/backward/backward.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/operators/collective/exchange.h>
#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>
#include <gtest/gtest.h>

namespace coracle::collective_test {

struct Row {
  const char* type;
  const char* gradient;  // the op of the gradient; "": none
  bool ranks = false;    // has nranks
};

const std::vector<Row>& Rows() {
  static const std::vector<Row> rows = {{"c_allreduce_sum", "c_allreduce_sum"},
                                        {"c_allreduce_max", ""},
                                        {"c_allreduce_min", ""},
                                        {"c_allreduce_prod", ""},
                                        {"c_reduce_sum", ""},
                                        {"c_reduce_max", ""},
                                        {"c_reduce_min", ""},
                                        {"c_reduce_prod", ""},
                                        {"c_broadcast", ""},
                                        {"c_identity", "c_allreduce_sum"},
                                        {"c_scatter", "", true},
                                        {"c_concat", "c_split", true},
                                        {"c_split", "c_concat", true},
                                        {"alltoall", "alltoall"},
                                        {"barrier", ""},
                                        {"c_allgather", "c_reducescatter", true},
                                        {"c_reducescatter", "c_allgather", true},
                                        {"partial_allgather", "", true},
                                        {"allreduce", ""},
                                        {"broadcast", ""},
                                        {"ncclAllReduce", ""},
                                        {"ncclReduce", ""},
                                        {"ncclBcast", ""}};
  return rows;
}

OpTest MakeTest(const Row& row) {
  OpTest test(row.type);
  if (row.ranks) test.Attr("nranks", 1);
  return test;
}

TEST(Collective, ValuesAreThoseOfX) {
  for (const Row& row : Rows()) {
    SCOPED_TRACE(row.type);
    MakeTest(row).Input("X", {2, 2}, {1, -2, 3, 4}).Expect("Out", {2, 2}, {1, -2, 3, 4});
    MakeTest(row).Input("X", {}, {5}).Expect("Out", {}, {5});
    MakeTest(row).Input("X", {0, 3}, {}).Expect("Out", {0, 3}, {});
    MakeTest(row).InPlace("X", "Out").Input("X", {2}, {5, 6}).Expect("Out", {2}, {5, 6});
    MakeTest(row)
        .IntInput("X", {2}, {5, 6})
        .Expect("Out", {2}, {5, 6})
        .ExpectDType("Out", DType::kInt64);
    MakeTest(row)
        .Input("X", {3, 1}, {1, 2, 3})
        .Lod({{0, 1, 3}})
        .Expect("Out", {3, 1}, {1, 2, 3})
        .ExpectLod("Out", {{0, 1, 3}});
  }
}

TEST(Collective, Gradients) {
  for (const Row& row : Rows()) {
    SCOPED_TRACE(row.type);
    EXPECT_EQ(DefaultOps().Get(row.type).HasGradient(), row.gradient[0] != 0);
    if (row.gradient[0] == 0) continue;
    MakeTest(row).Input("X", {2, 2}, {1, -2, 3, 4}).CheckGradient({"X"}).CheckHigherGradients();
  }
  OpTest("c_allreduce_sum")
      .Attr("use_model_parallel", true)
      .Input("X", {1}, {2})
      .CheckGradient({"X"});
}

// The op that computes a gradient counts where several processes run the program.
TEST(Collective, GradientOps) {
  const auto gradient_of = [](const std::string& type, AttrList attrs) {
    ProgramDesc program;
    BlockDesc& root = program.Root();
    root.Var("x").SetShape({2});
    const OpDesc& op = root.AppendOp(type, {{"X", {"x"}}}, {{"Out", {"y"}}}, std::move(attrs));
    InferOp(root, op, DefaultOps());
    const OpDesc& mean = root.AppendOp("mean", {{"X", {"y"}}}, {{"Out", {"loss"}}});
    InferOp(root, mean, DefaultOps());
    Gradients({Variable::Of(root, "loss")}, {Variable::Of(root, "x")});
    return root.op(root.NumOps() - 1).type();
  };
  for (const Row& row : Rows()) {
    if (row.gradient[0] == 0) continue;
    AttrList attrs;
    if (row.ranks) attrs.push_back({"nranks", 1});
    EXPECT_EQ(gradient_of(row.type, attrs), row.gradient) << row.type;
  }
  EXPECT_EQ(gradient_of("c_allreduce_sum", {{"use_model_parallel", true}}), "c_identity");
}

// Shapes that several ranks would have; one rank does not run them.
TEST(Collective, C1_RanksThatDoNotFit) {
  for (const Row& row : Rows()) {
    if (!row.ranks) continue;
    const std::string type = row.type;
    OpTest(type).Attr("nranks", 0).Input("X", {2}, {1, 2}).Expect("Out", {2}, {1, 2});
    OpTest(type)
        .Attr("nranks", 2)
        .Input("X", {2}, {1, 2})
        .ExpectError(type +
                     ": nranks is 2, but one rank runs the program; start it with as many "
                     "ranks (mpirun -n 2)");
    if (type == "c_allgather" || type == "c_concat")
      OpTest(type).Attr("nranks", 2).Input("X", {}, {1}).ExpectError(type + ".C1");
    else
      OpTest(type).Attr("nranks", 2).Input("X", {3}, {1, 2, 3}).ExpectError(type + ".C1");
  }
}

// Against names of all registered ops, so that a new one has to be decided on.
TEST(Collective, OpsForRanks) {
  for (const Row& row : Rows()) EXPECT_TRUE(IsForRanks(*DefaultOps().Find(row.type))) << row.type;
  for (const std::string& type : DefaultOps().Types()) {
    const bool named = type.starts_with("c_") || type.starts_with("nccl") ||
                       type.starts_with("sync_batch_norm") || type.starts_with("gen_") ||
                       type.find("allgather") != type.npos || type.find("allreduce") != type.npos ||
                       type == "alltoall" || type == "barrier" || type == "broadcast";
    EXPECT_EQ(IsForRanks(*DefaultOps().Find(type)), named) << type;
  }
}

}  // namespace coracle::collective_test
