#include <coracle/framework/base/internal/control_group.h>
#include <coracle/framework/base/words.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace coracle::internal {
namespace {

// The limit that a group has by itself, by its directory; 0 when it has none.
using LimitOfGroup = double (*)(const std::string& group, bool unified);

// A mounted hierarchy of control groups that may limit the resource.
struct Hierarchy {
  bool unified = false;     // version 2
  std::string root, point;  // the group that is mounted, and where
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

// The process's group in a hierarchy. Lines of /proc/self/cgroup: number, controllers, path, with
// colons between them; version 2 has number 0 and no controllers.
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

// Of two limits, of which 0 is none.
double Least(double a, double b) { return a > 0 && b > 0 ? std::min(a, b) : std::max(a, b); }

// The least limit of the process's group and of those above it that are mounted.
double LeastIn(const Hierarchy& h, const std::string& root, const char* controller,
               LimitOfGroup limit_of) {
  std::string group = GroupOf(root, controller, h.unified);
  // In a container, the path may be the host's, of which the container's own group is mounted.
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
    std::ifstream(group + "/cpu.max") >> quota >> period;  // "max" is no number: quota stays 0
  } else {
    std::ifstream(group + "/cpu.cfs_quota_us") >> quota;  // -1: none
    std::ifstream(group + "/cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

// Version 1 says that there is none by a number beyond all memory.
double MemoryOf(const std::string& group, bool unified) {
  double bytes = 0;
  std::ifstream(group + (unified ? "/memory.max" : "/memory.limit_in_bytes")) >> bytes;
  return std::max(bytes, 0.0);
}

}  // namespace

double CpuQuota(const std::string& root) { return LeastLimit(root, "cpu", CpuOf); }

double MemoryQuota(const std::string& root) { return LeastLimit(root, "memory", MemoryOf); }

}  // namespace coracle::internal
