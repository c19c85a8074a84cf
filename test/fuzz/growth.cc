// Time and memory of commands and readers as their inputs grow: see docs/security.md.
//   build/test/fuzz/growth --what=readers --megabytes=1,10,40
//   build/test/fuzz/growth --what=commands --megabytes=0.25,1

#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/fuzz/growth_inputs.h>
#include <coracle/test/fuzz/growth_programs.h>
#include <coracle/test/fuzz/memory_file.h>
#include <coracle/tools/command_line.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gflags/gflags.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <functional>
#include <map>

DEFINE_string(what, "commands", "commands, or readers");
DEFINE_string(megabytes, "0.25,1", "sizes of the inputs, ascending");
DEFINE_string(only, "", "only rows whose first two cells contain this text");
DEFINE_bool(errors, false, "print why readers refuse inputs");
DEFINE_int32(timeout, 120, "seconds for one cell");

namespace coracle {
namespace {

struct Cost {
  double seconds = 0;
  double megabytes = 0;  // at the peak, above those of a process that does nothing
  int status = 0;        // 0: done; 1: refused; others: killed
};

Cost CostOf(const std::function<int()>& work) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(static_cast<unsigned>(FLAGS_timeout));
    const int none = ::open("/dev/null", O_RDWR);
    for (const int fd : {0, 1, 2}) {
      if (fd < 2 || !FLAGS_errors) ::dup2(none, fd);
    }
    ::_exit(work());
  }
  int status = 0;
  rusage use = {};
  ::wait4(child, &status, 0, &use);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return {seconds(use.ru_utime) + seconds(use.ru_stime), static_cast<double>(use.ru_maxrss) / 1024,
          WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status)};
}

std::vector<double> Sizes() {
  std::vector<double> sizes;
  for (const std::string& text : Split(FLAGS_megabytes, ',')) {
    double size = 0;
    if (!ParseDouble(text, &size) || size <= 0)
      throw Error(ErrorCode::kInvalidArgument, "--megabytes: " + text + " is no size");
    sizes.push_back(size);
  }
  return sizes;
}

size_t BytesOf(double megabytes) { return static_cast<size_t>(megabytes * 1e6); }

std::string Cell(const Cost& cost, const Cost& idle) {
  const std::string end = cost.status == 0          ? ""
                          : cost.status == 1        ? " refused"
                          : cost.status == -SIGALRM ? " too slow"
                                                    : fmt::format(" ends with {}", cost.status);
  return fmt::format("{:.2f} s {:.0f} MB{}", std::max(0.0, cost.seconds - idle.seconds),
                     std::max(0.0, cost.megabytes - idle.megabytes), end);
}

// A row of the table: a cost for each size. The last cell is the growth of the time from the first
// size to the last, as a power of the size: 1 is linear, 2 is quadratic.
void PrintRow(const std::string& name, const std::vector<Cost>& costs, const Cost& idle) {
  std::string row = "| " + name + " |";
  for (const Cost& cost : costs) row += " " + Cell(cost, idle) + " |";
  const double first = costs.front().seconds - idle.seconds,
               last = costs.back().seconds - idle.seconds;
  const std::vector<double> sizes = Sizes();
  const double power = std::log(last / first) / std::log(sizes.back() / sizes.front());
  row += first < 0.02 || sizes.size() < 2 ? " |" : fmt::format(" {:.1f} |", power);
  fmt::print("{}\n", row);
  std::fflush(stdout);
}

void PrintHead(const std::string& names, const std::string& line) {
  std::string head = "| " + names + " |";
  std::string rule = line;
  for (const double size : Sizes()) head += fmt::format(" {} MB |", size), rule += "---|";
  fmt::print("{} power |\n{}---|\n", head, rule);
}

// --- commands ---

const std::map<std::string, std::vector<std::string>>& Commands() {
  static const std::map<std::string, std::vector<std::string>> commands = {
      {"check", {"check", "a.pb"}},
      {"dump", {"dump", "a.pb"}},
      {"diff", {"diff", "a.pb", "b.pb"}},
      {"graph", {"graph", "a.pb"}},
      {"view", {"view", "a.pb", "--out=o.html"}},
      {"opt", {"opt", "a.pb", "--explain", "--out=o.pb"}},
      {"backward", {"backward", "a.pb", "--loss=loss", "--out=o.pb"}},
      {"explain-gradient", {"explain-gradient", "a.pb"}},
      {"convert", {"convert", "a.pb", "o.pbtxt"}},
      {"summary", {"summary", "a.pb"}}};
  return commands;
}

// A program that differs from another in the attrs of every third op.
ProgramDesc Changed(ProgramDesc program) {
  size_t n = 0;
  program.ForEachOp([&](OpDesc& op) {
    if (n++ % 3 == 0) op.SetAttr("changed", static_cast<int32_t>(n));
  });
  return program;
}

void MeasureCommands() {
  const Cost idle = CostOf([] { return tools::RunCommandLine({"version"}); });
  PrintHead("shape | command", "|---|---|");
  const ScratchDirectory directory;
  if (::chdir(directory.path().c_str()) != 0) return;
  for (const ProgramShape& shape : ProgramShapes()) {
    std::map<std::string, std::vector<Cost>> costs;
    for (const double size : Sizes()) {
      // Made by another process, so that the memory of this one stays small.
      CostOf([&] {
        const ProgramDesc program = ProgramOfSize(shape, BytesOf(size));
        WriteProgram(program, "a.pb");
        WriteProgram(Changed(program), "b.pb");
        return 0;
      });
      for (const auto& [name, words] : Commands()) {
        if ((shape.name + (" " + name)).find(FLAGS_only) == std::string::npos) continue;
        std::vector<std::string> line = words;
        if (name == "explain-gradient")
          line.insert(line.end(),
                      {std::string("--of=") + shape.of, std::string("--wrt=") + shape.wrt});
        Cost cost = CostOf([&] { return tools::RunCommandLine(line); });
        if (name == "diff" && cost.status == 1) cost.status = 0;  // the programs differ
        costs[name].push_back(cost);
      }
    }
    for (const auto& [name, row] : costs)
      PrintRow(fmt::format("{} | {}", shape.name, name), row, idle);
  }
}

// --- readers ---

int ReadOnce(const ReaderInput& input, const std::string& bytes) {
  try {
    input.read(bytes);
    return 0;
  } catch (const Error& error) {
    if (FLAGS_errors) fmt::print(stderr, "{}\n", PrintableLine(error.message()));
    return error.code() == ErrorCode::kInternal ? 3 : 1;
  } catch (const std::bad_alloc&) {
    return 4;
  } catch (const std::exception& error) {
    // A request to the server throws an HttpError.
    if (FLAGS_errors) fmt::print(stderr, "{}\n", PrintableLine(error.what()));
    return 1;
  }
}

void MeasureReaders() {
  PrintHead("reader | input", "|---|---|");
  const ScratchDirectory directory;
  const std::string file = directory.File("input");
  for (const ReaderInput& input : ReaderInputs()) {
    const std::string name =
        fmt::format("{} | {}{}", input.reader, input.input, input.hostile ? " (hostile)" : "");
    if (name.find(FLAGS_only) == std::string::npos) continue;
    std::vector<Cost> costs;
    Cost idle;
    for (const double size : Sizes()) {
      CostOf([&] {
        WriteFileAtomic(file, input.make(BytesOf(size)));
        return 0;
      });
      idle = CostOf([&] { return ReadFile(file).empty() ? 1 : 0; });
      Cost cost = CostOf([&] { return ReadOnce(input, ReadFile(file)); });
      cost.megabytes -= idle.megabytes;
      costs.push_back(cost);
    }
    idle.megabytes = 0;
    PrintRow(name, costs, idle);
  }
}

}  // namespace
}  // namespace coracle

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  coracle::tools::SetUp("growth");
  try {
    FLAGS_what == "readers" ? coracle::MeasureReaders() : coracle::MeasureCommands();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
