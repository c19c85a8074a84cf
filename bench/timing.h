#pragma once
// Clock, memory of the process, arguments and timed steps. Uses only C++17 and its standard
// library, because the peers' programs include it too.

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

namespace coracle {

inline double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The value of "VmHWM" (peak) or "VmRSS" (current memory) of the process, in MiB.
inline double ProcessMiB(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(key + ":", 0) == 0) return std::atof(line.c_str() + key.size() + 1) / 1024;
  }
  return -1;
}

// The processor time of all threads of the process, in seconds.
inline double ProcessorTime() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

inline double MedianOf(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// A command line of --name=value; --name without a value means "true".
class Arguments {
 public:
  Arguments(int argc, char** argv) : all_(argv + 1, argv + argc) {}

  std::string Text(const std::string& name, const std::string& otherwise) const {
    for (const std::string& argument : all_) {
      if (argument.rfind("--" + name + "=", 0) == 0) return argument.substr(name.size() + 3);
      if (argument == "--" + name) return "true";
    }
    return otherwise;
  }
  int Whole(const std::string& name, int otherwise) const {
    return std::atoi(Text(name, std::to_string(otherwise)).c_str());
  }
  double Real(const std::string& name, double otherwise) const {
    return std::atof(Text(name, std::to_string(otherwise)).c_str());
  }

 private:
  std::vector<std::string> all_;
};

// Runs a benchmark's main. Prints an exception as one line and returns exit code 1.
template <class Main>
int RunMain(int argc, char** argv, Main&& main) {
  try {
    return main(Arguments(argc, argv));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
    return 1;
  }
}

// Returns the sorted duration of each run of `step` in seconds. Runs it for `warm` seconds without
// timing, then for `seconds`.
template <class Step>
std::vector<double> TimeSteps(double warm, double seconds, Step&& step) {
  double begin = Now();
  for (int i = 0; i < 3 || Now() - begin < warm; ++i) step();
  std::vector<double> times;
  begin = Now();
  while (times.size() < 7 || Now() - begin < seconds) {
    double t = Now();
    step();
    times.push_back(Now() - t);
  }
  std::sort(times.begin(), times.end());
  return times;
}

// The name of a run in its output line.
struct RunName {
  std::string peer, workload;
  int threads = 1;
  double base_mib = 0;  // before the benchmark created anything
  std::string kind = "train";
};

// The time that the system has spent on this process so far, such as for clearing fresh memory.
inline double SystemSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_stime.tv_usec);
}

// Prints one JSON line about sorted times; `extra` starts with a comma or is empty. A peak of 0
// means the current peak.
inline void PrintTimes(const RunName& name, const std::vector<double>& times,
                       const std::string& extra, double peak_mib = 0) {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  std::printf(
      "{\"peer\":\"%s\",\"kind\":\"%s\",\"workload\":\"%s\",\"threads\":%d,\"reps\":%zu,"
      "\"median_ms\":%.6g,\"mean_ms\":%.6g,\"min_ms\":%.6g,\"p10_ms\":%.6g,\"p90_ms\":%.6g,\"rss_"
      "base_mb\":%.1f,"
      "\"rss_peak_mb\":%.1f,\"nivcsw\":%ld%s}\n",
      name.peer.c_str(), name.kind.c_str(), name.workload.c_str(), name.threads, times.size(),
      times[times.size() / 2] * 1e3,
      std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size()) * 1e3,
      times.front() * 1e3, times[times.size() / 10] * 1e3, times[times.size() * 9 / 10] * 1e3,
      name.base_mib, peak_mib > 0 ? peak_mib : ProcessMiB("VmHWM"), usage.ru_nivcsw, extra.c_str());
}

}  // namespace coracle
