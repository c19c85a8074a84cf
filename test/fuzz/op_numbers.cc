// Measures the errors of all ops on random shapes and values: see docs/numbers.md.

#include <coracle/framework/base/error.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/program.h>
#include <coracle/test/fuzz/op_numbers_page.h>
#include <coracle/test/fuzz/random_program.h>
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <thread>
#include <vector>

DEFINE_uint64(count, 0, "programs of each op, with random shapes; 0: as many as --seconds allow");
DEFINE_uint64(seed, 1, "of the first program of each op; the others follow");
DEFINE_uint64(values, 1, "fillings of each program with values");
DEFINE_uint64(filling, 0, "the first filling");
DEFINE_double(seconds, 10, "without --count: when to stop");
DEFINE_int32(threads, 1, "threads, each of which runs cases");
DEFINE_string(types, "", "op types to draw, separated by commas; none: all");
DEFINE_string(markdown, "", "the file to write the page to");
DEFINE_bool(show, false, "print the programs and their inputs");

namespace coracle {
namespace {

thread_local OpCaseId current;

void OnSignal(int signal) {
  std::fprintf(stderr, "\nto repeat: op_numbers --types=%s --seed=%llu --filling=%llu --count=1\n",
               current.type.c_str(), static_cast<unsigned long long>(current.seed),
               static_cast<unsigned long long>(current.filling));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void Show(const OpCaseId& id) {
  const auto drawn = DrawOpCase(id);
  if (!drawn) return fmt::print("{}: no case\n", ToOptions(id));
  fmt::print("{}: {} of {}\n{}\n", ToOptions(id), drawn->numbers, ToString(drawn->dtype),
             PrintProgram(drawn->program));
  for (const auto& [name, value] : drawn->values) {
    const auto* tensor = std::get_if<Tensor>(&value);
    if (!tensor || tensor->dtype() == DType::kString || IsComplex(tensor->dtype())) continue;
    const Tensor wide = tensor->Cast(DType::kFloat64);
    fmt::print("{} {}:", name, tensor->ToString());
    for (int64_t i = 0; i < std::min<int64_t>(wide.numel(), 32); ++i)
      fmt::print(" {:.9g}", wide.data<double>()[i]);
    fmt::print("\n");
  }
}

class Runner {
 public:
  Runner() : types_(FLAGS_types.empty() ? DrawnTypes() : Split(FLAGS_types, ',')) {}

  int Run() {
    std::vector<std::thread> threads;
    for (int t = 0; t < std::max(FLAGS_threads, 1); ++t) threads.emplace_back([this] { Work(); });
    for (std::thread& thread : threads) thread.join();
    const OpErrorRows rows = table_.rows();
    Print(rows);
    if (!FLAGS_markdown.empty()) std::ofstream(FLAGS_markdown) << NumbersPage(rows, table_.cases());
    return failures_ > 0 ? 1 : 0;
  }

 private:
  bool IsOver(uint64_t round) const {
    if (FLAGS_count > 0) return round >= FLAGS_count;
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin_;
    return time.count() > FLAGS_seconds;
  }

  void Work() {
    const uint64_t values = std::max<uint64_t>(FLAGS_values, 1);
    for (uint64_t k = next_++; !IsOver(k / types_.size() / values); k = next_++) {
      const uint64_t round = k / types_.size();
      current = {types_[k % types_.size()], FLAGS_seed + round / values,
                 FLAGS_filling + round % values};
      try {
        if (FLAGS_show) Show(current);
        table_.Run(current);
      } catch (const std::exception& error) {
        ++failures_;
        fmt::print("to repeat: op_numbers {} --count=1\n  {}\n", ToOptions(current), error.what());
      }
    }
  }

  void Print(const OpErrorRows& rows) const {
    uint64_t elements = 0;
    for (const auto& [key, errors] : rows) {
      elements += errors.elements;
      if (errors.measured)
        fmt::print("{:40} {:9} {:7} cases: fast {:9.3g} ({}), reference {:9.3g} ({})\n", key.first,
                   ToString(key.second), errors.cases, errors.fast,
                   ToOptions(errors.worst_fast.first), errors.plain,
                   ToOptions(errors.worst_plain.first));
      for (const auto& [kind, defect] : errors.defects)
        fmt::print("DEFECT {} {}: {} ({} of {} cases), {}\n    {}\n", key.first,
                   ToString(key.second), kind, defect.cases, errors.cases, ToOptions(defect.first),
                   defect.text);
    }
    fmt::print("{} cases, {} results, {} failures\n", table_.cases(), elements, failures_.load());
  }

  const std::vector<std::string> types_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::atomic<uint64_t> next_{0};
  std::atomic<int> failures_{0};
  OpErrorTable table_;
};

}  // namespace
}  // namespace coracle

int main(int argc, char** argv) {
  gflags::SetUsageMessage("measures the errors of ops on random shapes and values");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  coracle::SetLogSink([](coracle::MessageLevel, const std::string&) {});
  coracle::SetNumThreads(1);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGILL})
    std::signal(signal, coracle::OnSignal);
  return coracle::Runner().Run();
}
