#pragma once
// What the benchmark programs share: a clock, memory of the process, arguments, timed steps.

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace coracle {

inline double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// "VmHWM" (peak) or "VmRSS" (present) of the process, MiB.
inline double ProcessMiB(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(key + ":", 0) == 0) return std::atof(line.c_str() + key.size() + 1) / 1024;
  }
  return -1;
}

// "value" of --name=value, "true" of --name, else `otherwise`.
inline std::string Argument(int argc, char** argv, const std::string& name,
                            const std::string& otherwise) {
  std::string prefix = "--" + name + "=";
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], prefix.c_str(), prefix.size()) == 0) return argv[i] + prefix.size();
    if (argv[i] == "--" + name) return "true";
  }
  return otherwise;
}

// Seconds of each run of `step`, sorted: `warm` seconds untimed first, then `seconds` of them.
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

// One JSON line; `extra` starts with a comma or is empty.
inline void PrintTimes(const std::string& workload, int threads, const std::vector<double>& times,
                       double base_mib, const std::string& extra) {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  std::printf(
      "{\"peer\":\"coracle\",\"kind\":\"train\",\"workload\":\"%s\",\"threads\":%d,\"reps\":%zu,"
      "\"median_ms\":%.6g,\"min_ms\":%.6g,\"p10_ms\":%.6g,\"p90_ms\":%.6g,\"rss_base_mb\":%.1f,"
      "\"rss_peak_mb\":%.1f,\"nivcsw\":%ld%s}\n",
      workload.c_str(), threads, times.size(), times[times.size() / 2] * 1e3, times.front() * 1e3,
      times[times.size() / 10] * 1e3, times[times.size() * 9 / 10] * 1e3, base_mib,
      ProcessMiB("VmHWM"), usage.ru_nivcsw, extra.c_str());
}

}  // namespace coracle
