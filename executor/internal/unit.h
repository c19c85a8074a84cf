#pragma once
// Unit: a block as it is run from some place: with the variables that the op which runs it provides
// and takes. The root block is unit 0. Internal to executor/.

#include <coracle/executor/internal/plan.h>

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace coracle {

struct Unit {
  int block = 0;
  std::vector<std::string> in, out;  // see BlockArgs

  // Places of variables that live longer than one stage: those of enclosing blocks, those provided
  // and taken, those written by sub-blocks, and all that are no dense tensors. A slot is `own` when
  // its cell belongs to the unit's activation.
  std::unordered_map<std::string, int32_t> slots;
  std::vector<bool> own;
  // Calls of sub-blocks, by op and by which of its calls: each has an activation.
  std::map<std::pair<size_t, int>, int32_t> sites;

  std::list<std::shared_ptr<const Plan>> plans;  // most recently used first

  int32_t Slot(const std::string& name, bool is_own);
  int32_t FindSlot(const std::string& name) const;  // -1: none
  int32_t Site(size_t op, int call);
  static std::string OutName(size_t i) { return "=" + std::to_string(i); }
};

// The units of a program; grows while plans are made. Addresses hold.
class UnitTable {
 public:
  Unit& operator[](int32_t i) { return units_[static_cast<size_t>(i)]; }
  int32_t Find(int block, const std::vector<std::string>& in, const std::vector<std::string>& out);

 private:
  std::deque<Unit> units_;
  std::map<std::pair<int, std::pair<std::vector<std::string>, std::vector<std::string>>>, int32_t>
      index_;
};

}  // namespace coracle
