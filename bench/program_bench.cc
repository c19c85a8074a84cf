// Times operations on whole programs: build, write, read, verify with shape inference,
// append_backward, dump (the listing of `coracle dump`). The programs have 1,000, 10,000 and
// 100,000 ops that repeat mul, elementwise_add with parameters, and relu. Each operation should be
// linear in the number of ops.
//
//   program_bench [OPS...]     default: 1000 10000 100000

#include <coracle/backward/backward.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/layers/builder.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

namespace coracle {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(const std::function<void()>& f) {
  const auto start = Clock::now();
  f();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The median of several runs after a warm-up run. `prepare` is not timed.
double WarmSeconds(
    const std::function<void()>& f, const std::function<void()>& prepare = [] {}) {
  std::vector<double> times;
  for (int i = 0; i < 6; ++i) {
    prepare();
    times.push_back(Seconds(f));
  }
  std::sort(times.begin() + 1, times.end());
  return times[3];
}

size_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  size_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

std::string Parameter(BlockDesc& block, const std::string& name, const Shape& shape) {
  VarDesc& var = block.Var(name);
  var.SetShape(shape);
  var.SetPersistable(true);
  var.SetIsParameter(true);
  return name;
}

void Build(ProgramDesc& program, int64_t num_ops) {
  ProgramDesc startup;
  Builder net(program, startup);
  BlockDesc& block = program.Root();
  std::string x = net.Data("x", {-1, 64}).name();
  auto append = [&](const char* type, SlotList inputs, const std::string& out, AttrList attrs) {
    net.Append(type, std::move(inputs), {{"Out", {out}}}, std::move(attrs));
    x = out;
  };
  for (int64_t i = 0; i < num_ops - 1; ++i) {
    const std::string layer = "fc_" + std::to_string(i / 3);
    if (i % 3 == 0) {
      const std::string w = Parameter(block, layer + ".w_0", {64, 64});
      append("mul", {{"X", {x}}, {"Y", {w}}}, layer + ".tmp_0", {});
    } else if (i % 3 == 1) {
      const std::string b = Parameter(block, layer + ".b_0", {64});
      append("elementwise_add", {{"X", {x}}, {"Y", {b}}}, layer + ".tmp_1", {{"axis", int32_t{1}}});
    } else {
      append("relu", {{"X", {x}}}, layer + ".tmp_2", {});
    }
  }
  append("mean", {{"X", {x}}}, "loss", {});
}

// Starts this program again, so that it reads with cold caches and a fresh heap.
double ColdRead(const char* self, const std::string& path) {
  const std::string command = std::string("'") + self + "' --read '" + path + "'";
  FILE* pipe = popen(command.c_str(), "r");
  double seconds = -1;
  if (!pipe || std::fscanf(pipe, "%lf", &seconds) != 1) seconds = -1;
  if (pipe) pclose(pipe);
  return seconds;
}

void Measure(const char* self, int64_t num_ops) {
  const size_t resident = ResidentBytes();
  ProgramDesc program;
  Build(program, num_ops);
  const double bytes_per_op =
      static_cast<double>(ResidentBytes() - resident) / static_cast<double>(num_ops);
  ProgramDesc scratch;
  const double build =
      WarmSeconds([&] { Build(scratch, num_ops); }, [&] { scratch = ProgramDesc(); });

  const std::string path =
      (std::filesystem::temp_directory_path() / ("program_bench_" + std::to_string(getpid())))
          .string();
  std::string bytes;
  const double write = WarmSeconds([&] { bytes = SerializeProgram(program); });
  WriteProgram(program, path);
  const double read = ColdRead(self, path);
  std::filesystem::remove(path);

  size_t errors = 0;
  const double verify = WarmSeconds([&] { errors = Verify(program, DefaultOps()).size(); });
  const double backward = WarmSeconds([&] { AppendBackward(Variable::Of(scratch.Root(), "loss")); },
                                      [&] { scratch = program; });
  if (errors > 0) std::printf("%zu problems\n", errors);
  const PrintOptions listing = ShortListing(DefaultOps());
  const double dump = WarmSeconds([&] { PrintProgram(program, listing); });
  std::printf("%9lld %8.1f %9.0f %8.4f %8.4f %8.4f %8.4f %8.4f %8.4f\n",
              static_cast<long long>(num_ops), static_cast<double>(bytes.size()) / 1e6,
              bytes_per_op, build, write, read, verify, backward, dump);
}

}  // namespace
}  // namespace coracle

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--read") {
    coracle::ProgramDesc program;
    const double seconds = coracle::Seconds([&] { program = coracle::ReadProgram(argv[2]); });
    std::printf("%.6f\n", seconds);
    return program.Root().NumOps() > 0 ? 0 : 1;
  }
  std::vector<int64_t> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atoll(argv[i]));
  if (sizes.empty()) sizes = {1000, 10000, 100000};
  std::printf("seconds; read is cold, in a process of its own; the others warm, medians\n");
  std::printf("%9s %8s %9s %8s %8s %8s %8s %8s %8s\n", "ops", "MB", "bytes/op", "build", "write",
              "read", "verify", "backward", "dump");
  for (int64_t ops : sizes) coracle::Measure(argv[0], ops);
  return 0;
}
