#include <coracle/executor/executor.h>
#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>
#include <gtest/gtest.h>

namespace coracle::communicator_test {

TEST(Communicator, WaitingPassesValuesOn) {
  for (const char* type :
       {"c_sync_calc_stream", "c_sync_comm_stream", "c_wait_comm", "c_wait_compute", "nop"}) {
    SCOPED_TRACE(type);
    OpTest(type)
        .Input("X", {2}, {1, 2})
        .Input("X", {1, 1}, {3})
        .Outputs("Out", 2)
        .Expect("Out", {2}, {1, 2})
        .Expect("Out", {1, 1}, {3}, 1e-5, 1)
        .CheckGradient({"X"})
        .CheckHigherGradients();
    OpTest(type).InPlace("X", "Out").IntInput("X", {2}, {4, 5}).Expect("Out", {2}, {4, 5});
    OpTest(type).Input("X", {0}, {}).Expect("Out", {0}, {});
    OpTest(type).RowsInput("X", {4, 1}, {2, 0}, {5, 6}).ExpectRows("Out", 4, {2, 0}, {5, 6});
    OpTest(type).Input("X", {1}, {1}).Outputs("Out", 2).ExpectError(std::string(type) + ".C1");
  }
}

// The ops at the beginning of a startup program for several processes.
TEST(Communicator, SettingUpDoesNothing) {
  for (const char* type : {"c_gen_nccl_id", "c_gen_bkcl_id", "c_gen_hccl_id", "gen_nccl_id",
                           "gen_bkcl_id", "gen_hccl_id"}) {
    ProgramDesc program;
    BlockDesc& root = program.Root();
    root.Var("id").SetType(VarType::kRaw);
    root.Var("id").SetPersistable(true);
    root.AppendOp(type, {}, {{"Out", {"id"}}}, {{"rank", 0}, {"endpoint", std::string("a:1")}});
    root.AppendOp("c_comm_init", {{"X", {"id"}}}, {}, {{"nranks", 2}, {"rank", 0}});
    root.AppendOp("c_comm_init_all", {}, {});
    root.Var("comm").SetType(VarType::kRaw);
    root.AppendOp("ncclInit", {}, {{"Communicator", {"comm"}}});
    root.Var("x").SetShape({2});
    root.AppendOp("ncclAllReduce", {{"X", {"x"}}, {"Communicator", {"comm"}}}, {{"Out", {"y"}}});
    root.Var("y").SetShape({2});
    VerifyOrThrow(program, DefaultOps());
    Scope scope;
    Executor executor;
    const Tensor x = Tensor::Of<float>({2}, {1, 2});
    const std::vector<Tensor> got = executor.Run(program, scope, {{"x", x}}, {"y"});
    EXPECT_TRUE(BitEqual(got.at(0), x)) << type;
  }
}
}  // namespace coracle::communicator_test
