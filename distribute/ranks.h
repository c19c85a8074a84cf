#pragma once
// Ranks: what the ranks of a job tell each other between steps, and which rows are whose.

#include <coracle/communication/communicator.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

// The part of a batch that a rank takes: parts differ by one row at most, the first ones are the
// larger. Of fewer rows than ranks the last ranks take row 0 too, without counting it, since every
// rank must run every step.
struct RankRows {
  int64_t begin = 0, count = 0;
  bool counted = true;

  int64_t rows() const { return counted ? count : 0; }
};
// REQUIRES: 0 <= rank < size, rows > 0.
RankRows RowsOfRank(int64_t rows, int rank, int size);

// All functions that exchange are called by all ranks, in the same order. They throw what exchanges
// throw. Alone (nullptr, or a communicator of one rank) a rank exchanges nothing.
class Ranks {
 public:
  explicit Ranks(std::shared_ptr<Communicator> communicator = nullptr)
      : communicator_(std::move(communicator)) {}

  int rank() const { return communicator_ ? communicator_->rank() : 0; }
  int size() const { return communicator_ ? communicator_->size() : 1; }
  bool several() const { return size() > 1; }
  bool first() const { return rank() == 0; }  // speaks, and writes files
  // nullptr for a rank alone.
  std::shared_ptr<Communicator> communicator() const { return several() ? communicator_ : nullptr; }
  RankRows RowsOf(int64_t rows) const { return RowsOfRank(rows, rank(), size()); }

  void Sum(std::span<double> values) const;  // in place
  bool Any(bool value) const;
  // Of all ranks, by rank.
  std::vector<std::string> Gather(const std::string& bytes) const;
  std::string FromFirst(const std::string& bytes) const;
  std::vector<std::string> Names() const;  // "rank 1 (its host)", of all ranks
  // Throws kInvalidArgument "rank 1 (host b) and rank 0 (host a) differ in the WHAT: 'x' and 'y';
  // ADVICE" unless all ranks have the same.
  void RequireSame(const std::string& what, const std::string& value,
                   const std::string& advice) const;

 private:
  std::shared_ptr<Communicator> communicator_;
};

}  // namespace coracle
