// Times the differentiation of programs of 1,000, 10,000 and 100,000 ops: AppendBackward on a chain
// and on a random graph with fan-out (each op reads two of the last thousand variables, or of all),
// the memory that it adds, and one hundred calls of Gradients on small parts of one program. The
// first should be linear in the number of ops; the last should not depend on it. Measures processor
// time of one thread, because other programs disturb it less than wall-clock time.
//
//   backward_bench [OPS...]     default: 1000 10000 100000

#include <coracle/backward/backward.h>
#include <coracle/framework/op/op_context.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace coracle {
namespace {

double Seconds(const std::function<void()>& f) {
  const std::clock_t start = std::clock();
  f();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

double Median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

size_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  size_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

std::string Append(BlockDesc& block, const char* type, SlotList inputs, std::string out) {
  InferOp(block, block.AppendOp(type, std::move(inputs), {{"Out", {out}}}), DefaultOps());
  return out;
}

void AddParameter(BlockDesc& block) {
  VarDesc& w = block.Var("w");
  w.SetShape({4});
  w.SetPersistable(true);
  w.SetIsParameter(true);
}

std::string Name(int64_t i) { return "h" + std::to_string(i); }

ProgramDesc Chain(int64_t num_ops) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  AddParameter(block);
  std::string x = "w";
  for (int64_t i = 0; i < num_ops - 1; ++i) x = Append(block, "tanh", {{"X", {x}}}, Name(i));
  Append(block, "mean", {{"X", {x}}}, "loss");
  return program;
}

// Half of the ops read two variables. One operand in ten is any earlier variable, the others are
// among the last thousand.
ProgramDesc RandomGraph(int64_t num_ops) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  AddParameter(block);
  std::mt19937_64 random(7);
  Append(block, "tanh", {{"X", {"w"}}}, Name(0));
  for (int64_t i = 1; i < num_ops - 1; ++i) {
    auto pick = [&] {
      const auto range = random() % 10 == 0 ? i : std::min<int64_t>(i, 1000);
      return Name(i - 1 - static_cast<int64_t>(random() % static_cast<uint64_t>(range)));
    };
    if (random() % 2 == 0)
      Append(block, "elementwise_add", {{"X", {pick()}}, {"Y", {Name(i - 1)}}}, Name(i));
    else
      Append(block, "tanh", {{"X", {pick()}}}, Name(i));
  }
  Append(block, "mean", {{"X", {Name(num_ops - 2)}}}, "loss");
  return program;
}

void MeasureBackward(const char* what, const ProgramDesc& program) {
  std::vector<double> times;
  size_t added_ops = 0, bytes = 0;
  for (int run = 0; run < 6; ++run) {
    ProgramDesc copy = program;
    Variable loss = Variable::Of(copy.Root(), "loss");
    const size_t before = ResidentBytes(), ops = copy.Root().NumOps();
    const double seconds = Seconds([&] { AppendBackward(loss); });
    if (run == 0) bytes = ResidentBytes() - before;  // later runs reuse the heap
    if (run > 0) times.push_back(seconds);
    added_ops = copy.Root().NumOps() - ops;
  }
  const double ops = static_cast<double>(program.Root().NumOps());
  std::printf("%-8s %9.0f %9zu %10.4f %10.0f %10.0f\n", what, ops, added_ops, Median(times),
              Median(times) / ops * 1e9, static_cast<double>(bytes) / ops);
}

// One hundred calls, each on eight ops somewhere in the growing program.
void MeasureParts(const char* what, ProgramDesc program) {
  const int64_t ops = static_cast<int64_t>(program.Root().NumOps());
  std::mt19937_64 random(11);
  double first = 0;
  const double all = Seconds([&] {
    for (int call = 0; call < 100; ++call) {
      const auto at = static_cast<int64_t>(random() % static_cast<uint64_t>(ops - 10));
      const Variable from = Variable::Of(program.Root(), Name(at));
      const Variable to = Variable::Of(program.Root(), Name(at + 8));
      const double seconds = Seconds([&] { Gradients({to}, {from}); });
      if (call == 0) first = seconds;
    }
  });
  std::printf("%-8s %9lld %12.4f %12.4f %14.0f\n", what, static_cast<long long>(ops), all, first,
              (all - first) / 99 * 1e6);
}

}  // namespace
}  // namespace coracle

int main(int argc, char** argv) {
  std::vector<int64_t> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::max<int64_t>(20, std::atoll(argv[i])));
  if (sizes.empty()) sizes = {1000, 10000, 100000};
  std::printf("append_backward, medians of warm runs; memory of the first\n");
  std::printf("%-8s %9s %9s %10s %10s %10s\n", "graph", "ops", "added", "seconds", "ns/op",
              "bytes/op");
  for (int64_t ops : sizes) coracle::MeasureBackward("chain", coracle::Chain(ops));
  for (int64_t ops : sizes) coracle::MeasureBackward("random", coracle::RandomGraph(ops));
  std::printf("\n100 calls of Gradients, each on a part of the program\n");
  std::printf("%-8s %9s %12s %12s %14s\n", "graph", "ops", "seconds", "first", "us/other call");
  for (int64_t ops : sizes) coracle::MeasureParts("chain", coracle::Chain(ops));
  for (int64_t ops : sizes) coracle::MeasureParts("random", coracle::RandomGraph(ops));
  return 0;
}
