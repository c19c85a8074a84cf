#pragma once
// Origins map the ops, variables and blocks of a compiled program to those of the given program.
// Passes replace ops, make variables and copy blocks; errors, profiles and traces must name the
// ones that the caller knows.
//
// An op keeps its origins in an attr, which copies of the op have too: one place, or several where
// a pass made one op of many. Variables that a pass made and blocks that it moved or copied have
// entries in ProgramOrigins. Programs that callers of the executor get do not have the attr; those
// that a PassObserver sees do.

#include <coracle/framework/ir/program.h>

#include <compare>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace coracle::inline internal {

inline constexpr const char* kOpOriginAttr = "op_origin";  // LONG or LONGS

// The place of an op in the given program.
struct OpOrigin {
  int block = 0;
  int op = 0;
  auto operator<=>(const OpOrigin&) const = default;
};

// Makes the present place of every op its only origin.
void SetOrigins(ProgramDesc& program);
// Removes the attrs.
void RemoveOrigins(ProgramDesc& program);
// The origins in the op's attr, ascending. Only for ops of a compiled program; elsewhere the attr
// may come from a file.
std::vector<OpOrigin> OriginsOf(const OpDesc& op);
// Like OriginsOf while this thread compiles or plans a program (ScopedOrigins), else empty. For
// code that handles ops of any program.
std::vector<OpOrigin> TrustedOriginsOf(const OpDesc& op);
// Adds the origins of `from` to those of `to`, which does the work of `from` or a part of it.
void AddOrigins(const OpDesc& from, OpDesc& to);
// "op 7 of block 0", "ops 2, 3 and 4 of block 0".
std::string DescribePlaces(const std::vector<OpOrigin>& origins);

// The variable of the given program that a variable made by a pass holds, perhaps with its axes in
// another order.
struct VarOrigin {
  std::string name;
  std::vector<int32_t> axes;  // axis i is axis axes[i] of the given variable; {}: the same axes
  // If the axes are in another order, the op that writes the variable, as it was before.
  std::shared_ptr<const OpDesc> writer;
};

class ProgramOrigins {
 public:
  // `from` may be a variable that a pass made.
  void Add(const std::string& made, const std::string& from, const std::vector<int32_t>& axes = {},
           std::shared_ptr<const OpDesc> writer = nullptr);
  const VarOrigin* Find(const std::string& name) const;  // nullptr for a given variable

  // The name and the type of the variable in the given program.
  const std::string& NameOf(const std::string& name) const;
  VarMeta MetaOf(const std::string& name, VarMeta meta) const;
  // Maps the element `index` of the variable, which now has that shape, to its index in the
  // given variable.
  int64_t IndexOf(const std::string& name, const Shape& shape, int64_t index) const;

  // Records that block `made` is a copy of `from`, which may be a copy itself.
  void AddBlock(int made, int from);
  // Records that block i was block order[i] so far.
  void ReorderBlocks(const std::vector<int>& order);
  // The index of the block in the given program.
  int GivenBlock(int block) const;

 private:
  std::unordered_map<std::string, VarOrigin> vars_;
  std::vector<int> blocks_;  // given indices by present ones; blocks past its end kept theirs
};

// During its lifetime, errors written by this thread name the ops and variables of the
// given program.
class ScopedOrigins {
 public:
  explicit ScopedOrigins(const ProgramOrigins& origins);
  ~ScopedOrigins();
  ScopedOrigins(const ScopedOrigins&) = delete;
  ScopedOrigins& operator=(const ScopedOrigins&) = delete;

  static const ProgramOrigins& Current();  // empty if there is none

 private:
  const ProgramOrigins* before_;
};

// "'x' float32[8, 64]": a variable as errors show it, using the origins of this thread.
std::string DescribeVar(const std::string& name, const VarMeta& meta);
// "'x'".
std::string QuoteVar(const std::string& name);

}  // namespace coracle::inline internal
