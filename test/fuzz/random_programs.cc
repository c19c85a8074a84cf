// Makes random programs and checks each: see docs/fuzzing.md.

#include <coracle/framework/base/error.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/program.h>
#include <coracle/test/fuzz/hostile_run.h>
#include <coracle/test/fuzz/program_check.h>
#include <coracle/test/fuzz/quantized_case.h>
#include <coracle/test/sanitizers.h>
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <thread>

DEFINE_uint64(count, 1000, "how many programs");
DEFINE_uint64(seed, 1, "of the first program; the others follow");
DEFINE_int32(threads, 1, "threads, each of which checks programs");
DEFINE_int32(max_findings, 5, "stop after so many");
DEFINE_bool(errors, false, "list the errors by which programs were refused or stopped");
DEFINE_bool(show, false, "print the programs");
DEFINE_bool(hostile, false, "run hostile programs under small limits");
DEFINE_bool(quantized, false, "run quantised programs, with and without passes");
DEFINE_string(types, "", "op types to draw from, separated by commas; none: all");

namespace coracle {
namespace {

thread_local uint64_t current_seed = 0;

void PrintSeed() {
  char text[96];
  const int length =
      std::snprintf(text, sizeof text, "\nto repeat: random_programs%s --seed=%llu --count=1\n",
                    FLAGS_hostile     ? " --hostile"
                    : FLAGS_quantized ? " --quantized"
                                      : "",
                    static_cast<unsigned long long>(current_seed));
  std::fwrite(text, 1, static_cast<size_t>(length), stderr);
}

void OnSignal(int signal) {
  PrintSeed();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void NameTheSeedOfACrash() {
  if (UnderSanitizer()) return __sanitizer_set_death_callback(PrintSeed);
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGILL}) std::signal(signal, OnSignal);
}

class Runner {
 public:
  int Run() {
    if (!FLAGS_types.empty()) types_ = Split(FLAGS_types, ',');
    std::vector<std::thread> threads;
    const auto begin = std::chrono::steady_clock::now();
    for (int t = 0; t < std::max(FLAGS_threads, 1); ++t) threads.emplace_back([this] { Work(); });
    for (std::thread& thread : threads) thread.join();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    Report(time.count());
    return findings_ > 0 ? 1 : 0;
  }

 private:
  void Work() {
    if (FLAGS_hostile) return RunHostilePrograms();
    if (FLAGS_quantized) return RunQuantizedPrograms();
    CheckCounts counts;
    for (uint64_t k = next_++; k < FLAGS_count && findings_ < FLAGS_max_findings; k = next_++) {
      StartOf(k);
      const RandomCase made = MakeCase(current_seed, types_);
      if (FLAGS_show) fmt::print("{}\n", PrintProgram(made.program.program));
      if (const auto finding = CheckProgram(made.program, made.plan, &counts))
        Report(current_seed, made, *finding);
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    counts_.Add(counts);
  }

  // Remembers the seed of program `k`, and sometimes prints the progress of a long run.
  void StartOf(uint64_t k) {
    current_seed = FLAGS_seed + k;
    if (k > 0 && k % 5000 == 0)
      fmt::print(stderr, "{} of {} programs, {} findings\n", k, FLAGS_count, findings_.load());
  }

  void RunHostilePrograms() {
    HostileCounts counts;
    for (uint64_t k = next_++; k < FLAGS_count && findings_ < FLAGS_max_findings; k = next_++) {
      StartOf(k);
      Choices choose(current_seed);
      const HostileCase made = MakeHostileCase(choose, types_);
      if (FLAGS_show) fmt::print("{}\n", PrintProgram(made.program));
      const auto finding = RunHostileCase(made, &counts);
      if (!finding) continue;
      ++findings_;
      const std::lock_guard<std::mutex> lock(mutex_);
      fmt::print(
          "seed {}: {}\n{}\n{}to repeat: random_programs --hostile --seed={} --count=1{}\n\n",
          current_seed, finding->kind, finding->text, PrintProgram(made.program), current_seed,
          FLAGS_types.empty() ? "" : " --types=" + FLAGS_types);
      std::fflush(stdout);
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    hostile_.Add(counts);
  }

  void RunQuantizedPrograms() {
    std::map<std::string, uint64_t> integer_ops;
    for (uint64_t k = next_++; k < FLAGS_count && findings_ < FLAGS_max_findings; k = next_++) {
      StartOf(k);
      Choices choose(current_seed);
      const QuantizedCase made = MakeQuantizedCase(choose);
      if (FLAGS_show) fmt::print("{}\n", PrintProgram(made.program));
      const auto finding = CheckQuantizedCase(made, choose, &integer_ops);
      if (!finding) continue;
      ++findings_;
      const std::lock_guard<std::mutex> lock(mutex_);
      fmt::print(
          "seed {}: {}\n{}\n{}to repeat: random_programs --quantized --seed={} --count=1\n\n",
          current_seed, finding->kind, finding->text, PrintProgram(made.program), current_seed);
      std::fflush(stdout);
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [type, count] : integer_ops) integer_ops_[type] += count;
  }

  void Report(uint64_t seed, const RandomCase& made, const Finding& finding) {
    ++findings_;
    const RandomProgram small = Minimize(made.program, made.plan, finding.kind);
    const std::lock_guard<std::mutex> lock(mutex_);
    fmt::print("seed {}{}: {}\n{}\n{}to repeat: random_programs --seed={} --count=1{}\n\n", seed,
               made.plan.spoiled     ? " (spoiled)"
               : made.program.smooth ? " (smooth)"
                                     : "",
               finding.kind, finding.text, PrintProgram(small.program), seed,
               FLAGS_types.empty() ? "" : " --types=" + FLAGS_types);
    if (FLAGS_count == 1) fmt::print("{}\n", ProgramToText(small.program));
    std::fflush(stdout);
  }

  void ReportHostile(double seconds) const {
    if (FLAGS_errors) {
      for (const auto& [message, count] : hostile_.errors) fmt::print("{:7} {}\n", count, message);
    }
    fmt::print(
        "{} programs, {} refused, {} stopped by an error, {} ran; the slowest took {:.1f} s; "
        "{:.0f} "
        "programs/s; {} findings\n",
        hostile_.programs, hostile_.refused, hostile_.stopped, hostile_.ran, hostile_.slowest,
        static_cast<double>(hostile_.programs) / seconds, findings_.load());
  }

  void ReportQuantized(double seconds) const {
    for (const auto& [type, count] : integer_ops_) fmt::print("{:9} {}\n", count, type);
    fmt::print("{} programs; {:.0f} programs/s; {} findings\n", FLAGS_count,
               static_cast<double>(FLAGS_count) / seconds, findings_.load());
  }

  void Report(double seconds) const {
    if (FLAGS_hostile) return ReportHostile(seconds);
    if (FLAGS_quantized) return ReportQuantized(seconds);
    if (FLAGS_errors) {
      for (const auto& [message, count] : counts_.errors) fmt::print("{:7} {}\n", count, message);
    }
    std::vector<std::string> never;
    for (const std::string& type : DefaultOps().Types()) {
      if (!counts_.ran_types.count(type)) never.push_back(type);
    }
    fmt::print("op types that never ran: {}\n", never.empty() ? "none" : Join(never, ", "));
    fmt::print(
        "{} programs, {} refused, {} stopped by an error, {} ran; {} differentiated, of which {} "
        "ran ({} twice, {} with saved values); {} compared, {} checked by differences, {} of them "
        "twice, {} inside blocks; {:.0f} programs/s; {} findings\n",
        counts_.programs, counts_.refused, counts_.stopped, counts_.ran, counts_.differentiated,
        counts_.ran_backward, counts_.second_order, counts_.saved, counts_.compared,
        counts_.gradients, counts_.second_gradients, counts_.inner_gradients,
        static_cast<double>(counts_.programs) / seconds, findings_.load());
  }

  std::vector<std::string> types_;
  std::atomic<uint64_t> next_{0};
  std::atomic<int> findings_{0};
  std::mutex mutex_;
  CheckCounts counts_;
  HostileCounts hostile_;
  std::map<std::string, uint64_t> integer_ops_;
};

}  // namespace
}  // namespace coracle

int main(int argc, char** argv) {
  gflags::SetUsageMessage("checks random programs");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  coracle::SetLogSink([](coracle::MessageLevel, const std::string&) {});
  coracle::SetNumThreads(1);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  coracle::NameTheSeedOfACrash();
  if (FLAGS_hostile) coracle::LimitMemory();
  return coracle::Runner().Run();
}
