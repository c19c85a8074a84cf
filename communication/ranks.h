#pragma once
// Ranks: exchanges between the ranks of a job, outside of programs; and the rows of each rank.

#include <coracle/communication/communicator.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

// A rank's part of a batch. Parts differ by at most one row; the first ranks have the larger ones.
// If there are fewer rows than ranks, the last ranks take row 0 without counting it, since every
// rank must run every step.
class Tensor;

struct RankRows {
  int64_t begin = 0, count = 0;
  bool counted = true;

  int64_t rows() const { return counted ? count : 0; }
};
// REQUIRES: 0 <= rank < size, rows > 0.
RankRows RowsOfRank(int64_t rows, int rank, int size);

// All ranks must call the functions that exchange, in the same order; they throw what exchanges
// throw. A rank alone (nullptr, or a communicator of one rank) exchanges nothing.
class Ranks {
 public:
  explicit Ranks(std::shared_ptr<Communicator> communicator = nullptr)
      : communicator_(std::move(communicator)) {}

  int rank() const { return communicator_ ? communicator_->rank() : 0; }
  int size() const { return communicator_ ? communicator_->size() : 1; }
  bool several() const { return size() > 1; }
  bool first() const { return rank() == 0; }  // reports, and writes files
  // nullptr for a rank alone.
  std::shared_ptr<Communicator> communicator() const { return several() ? communicator_ : nullptr; }
  RankRows RowsOf(int64_t rows) const { return RowsOfRank(rows, rank(), size()); }

  void Sum(std::span<double> values) const;  // in place
  // Replaces a tensor, which has the same dtype and shape on all ranks, by its sum over the ranks.
  void Sum(Tensor* tensor) const;
  bool Any(bool value) const;
  // Returns the bytes of each rank, by rank.
  std::vector<std::string> Gather(const std::string& bytes) const;
  std::string FromFirst(const std::string& bytes) const;  // returns the bytes of rank 0
  std::vector<std::string> Names() const;                 // "rank 1 (its host)" for each rank
  // Throws kInvalidArgument "rank 1 (host b) and rank 0 (host a) differ in the WHAT: 'x' and 'y';
  // ADVICE" unless all ranks have the same value.
  void RequireSame(const std::string& what, const std::string& value,
                   const std::string& advice) const;

 private:
  std::shared_ptr<Communicator> communicator_;
};

}  // namespace coracle
