#include <coracle/framework/base/internal/thread_count.h>
#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>

namespace coracle::internal {
namespace {

// A mounted hierarchy of control groups that may limit processor time.
struct Hierarchy {
  bool unified = false;     // version 2
  std::string root, point;  // the group that is mounted, and where
};

bool HasWord(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    if (list.substr(0, end) == word) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

// A line of mountinfo: id, parent, device, root, mount point, options, any number of optional
// fields, "-", file system, source, its options.
bool ParseMount(const std::string& line, Hierarchy* found) {
  std::istringstream fields(line);
  std::string word, type, source, options;
  fields >> word >> word >> word >> found->root >> found->point;
  while (fields >> word && word != "-") {
  }
  fields >> type >> source >> options;
  found->unified = type == "cgroup2";
  return found->unified || (type == "cgroup" && HasWord(options, "cpu"));
}

// The process's group in a hierarchy. Lines of /proc/self/cgroup: number, controllers, path, with
// colons between them; version 2 has number 0 and no controllers.
std::string GroupOf(const std::string& root, bool unified) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_unified = controllers.empty() && line.substr(0, first) == "0";
    if (unified ? is_unified : HasWord(controllers, "cpu")) return line.substr(second + 1);
  }
  return "";
}

// The limit of one group, in processors; 0 when it has none.
double QuotaOf(const std::string& group, bool unified) {
  double quota = 0, period = 0;
  if (unified) {
    std::ifstream(group + "/cpu.max") >> quota >> period;  // "max" is no number: quota stays 0
  } else {
    std::ifstream(group + "/cpu.cfs_quota_us") >> quota;  // -1: none
    std::ifstream(group + "/cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

// The least limit of the process's group and of those above it that are mounted.
double QuotaIn(const Hierarchy& h, const std::string& root) {
  std::string group = GroupOf(root, h.unified);
  // In a container, the path may be the host's, of which the container's own group is mounted.
  if (h.root != "/") group = group.starts_with(h.root) ? group.substr(h.root.size()) : "";
  if (group.find("..") != std::string::npos) group.clear();
  double least = 0;
  for (;;) {
    const double quota = QuotaOf(root + h.point + group, h.unified);
    if (quota > 0) least = least > 0 ? std::min(least, quota) : quota;
    if (group.empty()) return least;
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

}  // namespace

double CpuQuota(const std::string& root) {
  double least = 0;
  std::ifstream mounts(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    Hierarchy hierarchy;
    if (!ParseMount(line, &hierarchy)) continue;
    const double quota = QuotaIn(hierarchy, root);
    if (quota > 0) least = least > 0 ? std::min(least, quota) : quota;
  }
  return least;
}

int DefaultThreads() {
  int threads = std::min(omp_get_max_threads(), omp_get_thread_limit());
  const char* wanted = std::getenv("OMP_NUM_THREADS");
  if (wanted && *wanted) return std::max(threads, 1);
  // With OMP_PROC_BIND the runtime has bound this thread, not the process, to one place.
  cpu_set_t allowed;
  if (omp_get_proc_bind() == omp_proc_bind_false && !sched_getaffinity(0, sizeof allowed, &allowed))
    threads = std::min(threads, CPU_COUNT(&allowed));
  const double quota = CpuQuota();
  if (quota > 0 && quota < threads) threads = static_cast<int>(quota);
  return std::max(threads, 1);
}

}  // namespace coracle::internal
