#include <coracle/executor/internal/unit.h>

namespace coracle {

int32_t Unit::Slot(const std::string& name, bool is_own) {
  auto [it, added] = slots.try_emplace(name, static_cast<int32_t>(own.size()));
  if (added) own.push_back(is_own);
  return it->second;
}

int32_t Unit::FindSlot(const std::string& name) const {
  auto it = slots.find(name);
  return it == slots.end() ? -1 : it->second;
}

int32_t Unit::Site(size_t op, int call) {
  return sites.try_emplace({op, call}, static_cast<int32_t>(sites.size())).first->second;
}

int32_t UnitTable::Find(int block, const std::vector<std::string>& in,
                        const std::vector<std::string>& out) {
  auto [it, added] = index_.try_emplace({block, {in, out}}, static_cast<int32_t>(units_.size()));
  if (added) {
    Unit& unit = units_.emplace_back();
    unit.block = block;
    unit.in = in;
    unit.out = out;
  }
  return it->second;
}

}  // namespace coracle
