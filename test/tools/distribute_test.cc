// distribute as a user runs it.

#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/sanitizers.h>
#include <coracle/test/tools/cli.h>
#include <fmt/format.h>

#include <filesystem>

namespace coracle::distribute_test {

class Distribute : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    WriteFileAtomic(Path("net.pbtxt"), R"(
      data { name: "image" shape: [-1, 1, 28, 28] }
      data { name: "label" shape: [-1, 1] dtype: INT64 }
      layer { fc { input: "image" size: 50 output: "h" } }
      layer { batch_norm { input: "h" act: "relu" output: "n" } }
      layer { fc { input: "n" size: 10 output: "z" } }
      layer { softmax_with_cross_entropy { logits: "z" label: "label" output: "ce" } }
      layer { mean { input: "ce" output: "loss" } }
    )");
    WriteFileAtomic(Path("job.pbtxt"), R"(
      model: "net.pbtxt"
      train { digits {} limit: 8 }
      optimizer { momentum { learning_rate: 0.1 } }
      batch_size: 4
      max_iter: 2
    )");
  }
};

TEST_F(Distribute, OfAJob) {
  Expect(
      "coracle distribute job.pbtxt --nranks=2 --bucket_mb=0.001 --out=step.pb "
      "--startup_out=startup.pb",
      0, {"bytes: ", "not exchanged: ", "which each rank computes from its own rows\n"});
  Expect("coracle dump step.pb", 0,
         {"value=0.5", "c_coalesced_allreduce_sum(", "c_sync_comm_stream("});
  Expect("coracle dump startup.pb", 0, {"c_broadcast"});
  // The programs as they are, again.
  Expect("coracle distribute step.pb startup.pb --nranks=2 --out=o.pb", 1,
         {"coracle: distribute: the program exchanges values between ranks already\n  op "});
}

TEST_F(Distribute, OfPrograms) {
  Expect("coracle train job.pbtxt --out=run", 0, {});
  Expect(
      "coracle distribute run/main.pb run/startup.pb --nranks=4 --sync_batch_norm --shard_state "
      "--share=share --out=step.pbtxt --startup_out=startup.pb",
      0,
      {"1 state of 39200 elements, split over the ranks\n",
       "1 gradient, 156800 bytes, split over the ranks: "});
  Expect("coracle dump step.pbtxt", 0,
         {"sync_batch_norm(", "sync_batch_norm_grad(", "c_flat_reducescatter(", "c_flat_allgather(",
          "@SHARD_0:float32[9800]", "ScaleTensor=share"});
}

TEST_F(Distribute, ALossWithoutARule) {
  WriteFileAtomic(Path("reversed.pbtxt"), R"(
    data { name: "image" shape: [-1, 1, 28, 28] }
    data { name: "label" shape: [-1, 1] dtype: INT64 }
    layer { fc { input: "image" size: 10 output: "z" } }
    layer { softmax_with_cross_entropy { logits: "z" label: "label" output: "ce" } }
    layer { op { reverse { X: "ce" Out: "r" axis: 0 } } }
    layer { mean { input: "r" output: "loss" } }
  )");
  const std::string job =
      "model: 'reversed.pbtxt' train { digits {} limit: 8 } batch_size: 4 "
      "optimizer { sgd { learning_rate: 0.1 } } max_iter: 2 ";
  WriteFileAtomic(Path("unknown.pbtxt"), job);
  WriteFileAtomic(Path("declared.pbtxt"), job + "distribute { loss_weight: 'ROWS' }");
  Expect(
      "coracle distribute unknown.pbtxt --nranks=2 --out=o.pb", 1,
      {"distribute: how the ranks' values of 'loss' combine is unknown: reverse mixes the rows of "
       "the batch; say it with distribute { loss_weight: \"ROWS\" }"});
  Expect("coracle distribute unknown.pbtxt --nranks=2 --loss_weight=ROWS --out=o.pb", 0, {});
  Expect("coracle train unknown.pbtxt --ranks=2 --out=run", 1, {"combine is unknown"});
  Expect("coracle train declared.pbtxt --ranks=2 --out=run", 0, {});
}

TEST_F(Distribute, RanksOfTrain) {
  Expect("coracle train job.pbtxt --out=r --ranks=2,3", 2,
         {"--ranks takes a whole number below 2147483648, got '2,3'"});
  Expect("coracle train job.pbtxt --out=r --ranks=0", 2,
         {"--ranks must be in [1, 1000000], got 0"});
}

// More threads than there is room for their stacks.
TEST_F(Distribute, RanksThatCannotBeMade) {
  if (UnderSanitizer()) GTEST_SKIP() << "sanitizers need the address space";
  WriteFileAtomic(Path("many.pbtxt"), R"(
    model: "net.pbtxt"
    train { digits {} limit: 600 }
    batch_size: 600
    max_iter: 1
  )");
  Expect("ulimit -v 3000000; coracle train many.pbtxt --ranks=600 --threads=1 --out=many", 1,
         {"coracle: 600 ranks as threads: ", "; start fewer, or processes"});
  Expect("coracle train job.pbtxt --ranks=400 --out=many", 1,
         {"a batch of 4 rows for 400 ranks: each needs a row"});
}

TEST_F(Distribute, Refused) {
  Expect("coracle distribute job.pbtxt --out=o.pb", 2, {"--nranks=N is missing"});
  Expect("coracle distribute job.pbtxt --nranks=2", 2, {"--out=FILE is missing"});
  Expect("coracle distribute job.pbtxt --nranks=2 --out=o.npz", 2, {"--out must end in .pb"});
  Expect("coracle distribute job.pbtxt --nranks=2 --out=o.pb --startup_out=o.pb", 2,
         {"must be two files"});
  Expect("coracle distribute job.pbtxt --nranks=2 --bucket_mb=-1 --out=o.pb", 1,
         {"buckets of -1 MB; 0 or more are needed"});
  Expect("coracle distribute job.pbtxt --nranks=2 --share=loss --out=o.pb", 1,
         {"distribute: the share 'loss' must be fed, and mean writes it\n  op "});
  Expect("coracle build net.pbtxt --out=main.pb --startup_out=startup.pb", 0, {});
  Expect("coracle distribute main.pb startup.pb --nranks=2 --out=o.pb", 1,
         {"the program has no gradients of parameters"});
  Expect("coracle distribute main.pb --nranks=2 --out=o.pb --startup_out=s.pb", 2,
         {"--startup_out needs a STARTUP program"});
  EXPECT_FALSE(FileExists(Path("o.pb")));
}

// Ranks that are threads: one that does not come in time, and one whose rows make a nan while the
// others wait for its gradients, end all of them with one line.
TEST_F(Distribute, RanksThatFail) {
  WriteFileAtomic(Path("log.pbtxt"), R"(
    data { name: "x" shape: [-1, 2] }
    data { name: "y" shape: [-1, 1] }
    layer { fc { input: "x" size: 8 output: "h" } }
    layer { op { log { X: "x" Out: "l" } } }
    layer { fc { input: "h" input: "l" size: 1 output: "z" } }
    layer { square_error_cost { input: "z" label: "y" output: "e" } }
    layer { mean { input: "e" output: "loss" } }
  )");
  WriteFileAtomic(Path("rows.csv"), "1,2,0\n2,3,1\n4,5,0\n6,-7,1\n");
  WriteFileAtomic(Path("log_job.pbtxt"), R"(
    model: "log.pbtxt"
    train { csv { file: "rows.csv" label_kind: REAL } }
    bind { column: "data" var: "x" }
    bind { column: "label" var: "y" }
    optimizer { sgd { learning_rate: 0.1 } }
    batch_size: 4
    distribute { bucket_mb: 0 }
    max_iter: 2
  )");
  const auto lines = [&](const std::string& command) {
    const Result result = Shell("cd " + dir_ + " && " + command);
    EXPECT_EQ(result.code, 1) << result.text;
    std::vector<std::string> errors;
    for (const std::string& line : Split(result.text, '\n'))
      if (line.starts_with("coracle: ") && !line.starts_with("coracle: warning"))
        errors.push_back(line);
    EXPECT_EQ(errors.size(), 1u) << result.text;
    return errors.empty() ? "" : errors[0];
  };
  const auto has = [](const std::string& line, const std::string& part) {
    EXPECT_NE(line.find(part), line.npos) << line;
  };
  for (const int ranks : {2, 3}) {
    const std::string nan = lines(fmt::format(
        "coracle train log_job.pbtxt --out=nan --overwrite --check_nan_inf --ranks={}", ranks));
    has(nan, "coracle: rank ");
    has(nan, "log: output var 'l' ");
    has(nan, "has a nan or inf at index ");
    const std::string late = lines(fmt::format(
        "coracle train job.pbtxt --out=late --overwrite --exchange_timeout=1e-9 --ranks={}",
        ranks));
    has(late, "did not come to the ");
    has(late, " within 1e-09 s");
  }
  Expect("coracle train job.pbtxt --out=late --overwrite --exchange_timeout=0 --ranks=2", 0,
         {"final: loss="});
  Expect("coracle train job.pbtxt --out=late --overwrite --exchange_timeout=-1 --ranks=2", 2,
         {"--exchange_timeout must be finite and not negative"});
}

// Commands that compute and have no communicator: each process would do all of it.
TEST_F(Distribute, OneOfSeveralProcesses) {
  const std::string mpirun = "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 ";
  for (const std::string command :
       {"bench job.pbtxt", "time job.pbtxt", "test m.pdmodel job.pbtxt", "compare net.pbtxt",
        "check-grad net.pbtxt", "generate model"}) {
    const std::string name = command.substr(0, command.find(' '));
    const std::string said = ": " + name +
                             " does not work on several ranks, and mpirun has started"
                             " 2 processes: `coracle ";
    const int code = name == "compare" ? 2 : 1;
    Expect(mpirun + "coracle " + command, code,
           {"coracle: rank 0 (", said, "; or start one process\n"});
  }
  Expect("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 coracle bench job.pbtxt", 1,
         {"and srun has started 4 processes"});
  WriteFileAtomic(Path("a.csv"), "x\n1\n2\n");
  Expect(mpirun + "coracle compare a.csv a.csv", 0, {});  // nothing runs
}
}  // namespace coracle::distribute_test
