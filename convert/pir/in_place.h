#pragma once
// Ops that work in place: `add_` writes its result into the memory of its operand.

#include <coracle/convert/pir/model_json.h>

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace coracle::pir {

// The operand whose memory becomes the result.
struct InPlace {
  size_t operand = 0;
  size_t result = 0;
};

// None for an op that does not work in place, and for one whose row or function says what it
// updates (batch_norm_, array_write_).
std::vector<InPlace> InPlaceOf(const Op& op);

// Which values of a program must share a variable, since an op changes one of them in place and
// another one is read later. Takes linear time for each level of nested loops.
class InPlacePlan {
 public:
  explicit InPlacePlan(const Block& program);

  bool Shared(int64_t id) const;
  // Why the effect of this op on other values has no counterpart; "" if it has one.
  std::string WhyNot(const Op& op) const;

 private:
  // When a value begins to exist and when the last op reads it.
  struct Life {
    int64_t begin = 0;
    int64_t last_read = 0;
  };
  struct Change {
    const Op* op;
    int64_t time;
    int64_t target;
    int64_t result;
  };
  // From its beginning, `to` has the memory of `from`: carried values of loops, results of ifs.
  struct Handover {
    int64_t from;
    int64_t to;
  };

  void Walk(const Block& block);
  void WalkBlocks(const Op& op);
  void NoteHandovers(const Op& op, int64_t begin);
  void NoteOp(const Op& op);
  void Begin(int64_t id);
  void Read(int64_t id, int64_t time);
  void JoinItems();
  void JoinChanges();
  void FindShared();
  void FindRefused();
  int64_t Root(int64_t id);
  void Join(int64_t a, int64_t b) { parents_[Root(a)] = Root(b); }

  int64_t time_ = 0;
  std::unordered_map<int64_t, Life> lives_;
  std::vector<int64_t> reads_;  // ids in the order of their reads
  std::vector<Change> changes_;
  std::vector<Handover> handovers_;
  std::unordered_map<int64_t, std::vector<int64_t>> lists_;             // of combine
  std::vector<std::pair<std::pair<int64_t, int64_t>, int64_t>> items_;  // ((list, index), item)
  std::unordered_map<int64_t, int64_t> parents_;
  std::unordered_map<int64_t, std::vector<const Change*>> of_root_;  // in the order of time
  std::unordered_set<int64_t> shared_;                               // roots
  std::unordered_map<const Op*, std::string> refused_;
};

}  // namespace coracle::pir
