#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/op_families.h>
#include <coracle/operators/register_all.h>

#include <algorithm>
#include <map>
#include <set>

namespace coracle::inline internal {

std::vector<OpFamily> OpFamilies() {
  OpRegistry ops;
  std::set<std::string> seen;
  std::map<std::string, std::vector<std::string>> types;
  RegisterAll(ops, [&](const std::string& file) {
    for (std::string& type : ops.Types()) {
      if (seen.insert(type).second)
        types[file.substr(0, file.find('/'))].push_back(std::move(type));
    }
  });
  std::vector<OpFamily> families;
  for (auto& [name, members] : types) {
    std::sort(members.begin(), members.end());
    families.push_back({name, std::move(members)});
  }
  return families;
}

}  // namespace coracle::inline internal
