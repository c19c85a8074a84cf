#include <coracle/framework/base/internal/control_group.h>
#include <coracle/framework/base/words.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace coracle::inline internal {
namespace {

// The limit of a single group, given its directory; 0 if it has none.
using LimitOfGroup = double (*)(const std::string& group, bool unified);

// A mounted hierarchy of control groups that may limit the resource.
struct Hierarchy {
  bool unified = false;     // version 2
  std::string root, point;  // the mounted group, and the mount point
};

// A line of mountinfo: id, parent, device, root, mount point, options, any number of optional
// fields, "-", file system, source, its options.
bool ParseMount(const std::string& line, const char* controller, Hierarchy* found) {
  std::istringstream fields(line);
  std::string word, type, source, options;
  fields >> word >> word >> word >> found->root >> found->point;
  while (fields >> word && word != "-") {
  }
  fields >> type >> source >> options;
  found->unified = type == "cgroup2";
  return found->unified || (type == "cgroup" && HasWord(options, ',', controller));
}

// The process's group in a hierarchy. A line of /proc/self/cgroup has a number, controllers and a
// path, separated by colons; version 2 has number 0 and no controllers.
std::string GroupOf(const std::string& root, const char* controller, bool unified) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_unified = controllers.empty() && line.substr(0, first) == "0";
    if (unified ? is_unified : HasWord(controllers, ',', controller))
      return line.substr(second + 1);
  }
  return "";
}

// The smaller of two limits, where 0 means unlimited.
double Least(double a, double b) { return a > 0 && b > 0 ? std::min(a, b) : std::max(a, b); }

// The smallest limit of the process's group and its mounted ancestors.
double LeastIn(const Hierarchy& h, const std::string& root, const char* controller,
               LimitOfGroup limit_of) {
  std::string group = GroupOf(root, controller, h.unified);
  // In a container, the path may be the host's, with only the container's own group mounted.
  if (h.root != "/") group = group.starts_with(h.root) ? group.substr(h.root.size()) : "";
  if (group.find("..") != std::string::npos) group.clear();
  double least = 0;
  for (;;) {
    least = Least(least, limit_of(root + h.point + group, h.unified));
    if (group.empty()) return least;
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

double LeastLimit(const std::string& root, const char* controller, LimitOfGroup limit_of) {
  double least = 0;
  std::ifstream mounts(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    Hierarchy hierarchy;
    if (ParseMount(line, controller, &hierarchy))
      least = Least(least, LeastIn(hierarchy, root, controller, limit_of));
  }
  return least;
}

double CpuOf(const std::string& group, bool unified) {
  double quota = 0, period = 0;
  if (unified) {
    std::ifstream(group + "/cpu.max") >> quota >> period;  // "max" is not a number: quota stays 0
  } else {
    std::ifstream(group + "/cpu.cfs_quota_us") >> quota;  // -1: unlimited
    std::ifstream(group + "/cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

// Version 1 reports "unlimited" as a number beyond any memory.
double MemoryOf(const std::string& group, bool unified) {
  double bytes = 0;
  std::ifstream(group + (unified ? "/memory.max" : "/memory.limit_in_bytes")) >> bytes;
  return std::max(bytes, 0.0);
}

}  // namespace

double CpuQuota(const std::string& root) { return LeastLimit(root, "cpu", CpuOf); }

double MemoryQuota(const std::string& root) { return LeastLimit(root, "memory", MemoryOf); }

}  // namespace coracle::inline internal
