// Runs a training workload of model_bench as one of several ranks, each with its rows of the batch,
// or alone. Rank 0 prints one JSON line.
//   [mpirun -n 2] ranks_bench --workload=NAME [--threads=1] [--steps=50] [--passes=off,NAME]
//   [--bucket_mb=25] [--shard] [--ranks=N]
// --ranks uses threads of this process instead of processes. --passes=off,overlap_exchanges waits
// for each exchange where it begins.
#include <coracle/bench/measure.h>
#include <coracle/bench/workloads/workload.h>
#include <coracle/communication/comm_context.h>
#include <coracle/coracle.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

namespace coracle {
namespace {

Tensor RowsOf(const Tensor& all, int64_t batch, const RankRows& rows) {
  std::vector<int64_t> dims = all.shape().ToVector();
  if (dims.empty() || dims[0] % batch != 0)
    ThrowInvalid(fmt::format("a feed {} is not of {} rows", all.shape().ToString(), batch));
  const int64_t each = static_cast<int64_t>(all.nbytes()) / batch, per_row = dims[0] / batch;
  dims[0] = rows.count * per_row;
  Tensor part(all.dtype(), Shape(dims));
  std::memcpy(part.raw(), static_cast<const char*>(all.raw()) + rows.begin * each,
              static_cast<size_t>(part.nbytes()));
  return part;
}

void RunRank(const Arguments& arguments, const CompileOptions& options,
             const std::shared_ptr<Communicator>& communicator) {
  WorkloadOptions which{.kind = "train", .name = arguments.Text("workload", "lenet")};
  const std::unique_ptr<Workload> workload = MakeWorkload(which);
  const Ranks ranks(communicator);
  AllReduceReport report;
  if (ranks.several()) {
    report = InsertAllReduce(workload->main, workload->startup,
                             {.nranks = ranks.size(),
                              .bucket_mb = arguments.Real("bucket_mb", 25),
                              .shard_state = arguments.Text("shard", "") == "true"});
    PreparedProgram startup = Executor(options).Prepare(workload->startup);
    startup.SetCommunicator(ranks.communicator());
    startup.Run(workload->scope);
  } else {
    workload->Fill();
  }
  for (std::vector<Tensor>& batch : workload->batches) {
    const int64_t rows = batch[0].shape()[0];
    for (Tensor& feed : batch) feed = RowsOf(feed, rows, ranks.RowsOf(rows));
  }
  PreparedProgram step = workload->Prepare(options);
  step.SetCommunicator(ranks.communicator());
  const int steps = arguments.Whole("steps", 50);
  std::vector<double> times;
  double waited = 0, begin = 0;
  for (int i = 0; i < steps + 5; ++i) {
    if (i == 5) {
      begin = Now();
      waited = step.comm() ? step.comm()->seconds_waited() : 0;
    }
    const double start = Now();
    step.Run(workload->scope, workload->batches[static_cast<size_t>(i) % workload->batches.size()]);
    if (i >= 5) times.push_back(Now() - start);
  }
  const double seconds = Now() - begin;
  if (step.comm()) waited = step.comm()->seconds_waited() - waited;
  int64_t state = 0;
  for (const ShardedState& each : report.states)
    state += static_cast<int64_t>(workload->scope.Get(each.shard).nbytes());
  if (!ranks.first()) return;
  fmt::print(
      "{{\"workload\":\"{}\",\"ranks\":{},\"threads\":{},\"median_ms\":{:.4g},\"wait\":{:.3f},"
      "\"buckets\":{},\"sharded_mb\":{:.2f},\"peak_mb\":{:.1f}}}\n",
      which.name, ranks.size(), NumThreads(), MedianOf(times) * 1e3, waited / seconds,
      report.buckets.size(), static_cast<double>(state) / 1048576, ProcessMiB("VmHWM"));
}

int Main(const Arguments& arguments) {
  StepBench bench(arguments, "lenet", 1, 3);
  if (FindLaunched().size > 1) {
    RunRank(arguments, bench.options(), LoadMpiCommunicator(60));
    return 0;
  }
  auto ends = ThreadCommunicators(arguments.Whole("ranks", 1), 60);
  std::vector<std::thread> threads;
  std::atomic<int> code = 0;
  for (auto& end : ends) {
    threads.emplace_back([&, own = std::shared_ptr<Communicator>(std::move(end))] {
      try {
        RunRank(arguments, bench.options(), own);
      } catch (const Error& error) {
        fmt::print(stderr, "{}\n", error.message());
        code = 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return code;
}

}  // namespace
}  // namespace coracle

int main(int argc, char** argv) { return coracle::RunMain(argc, argv, coracle::Main); }
