#pragma once
// SavedValues: edits of forward blocks that gradient ops need: copies of values that are
// overwritten later, and outputs of forward ops that only backward reads. The edits are collected
// while gradient ops are appended and made at the end, so that a failure leaves the forward
// program unchanged.

#include <coracle/framework/ir/program.h>

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace coracle::inline internal {

struct SavedValue {
  BlockDesc* block = nullptr;  // where the variable is written; the copy goes there too
  std::string var;
  // Position of the op before which the value is copied, or the position after the last op.
  int32_t overwriter = -1;
  VarMeta meta;
  std::string name;
  bool used = false;
};

class SavedValues {
 public:
  // Returns a name for the copy of `var` as it is before op `overwriter`. The copy is declared once
  // it is used.
  const SavedValue& Add(BlockDesc& block, std::string_view var, int32_t overwriter,
                        const VarMeta& meta);
  // Declares the copies that these ops read.
  void NoteUses(const std::vector<std::unique_ptr<OpDesc>>& ops);
  // Returns a variable in an empty output slot of a forward op, adding one if needed.
  std::string ForwardOutput(OpDesc& op, std::string_view slot, const VarMeta& meta);
  // Whether Finish() makes a forward op, or a copy, write this variable.
  bool Writes(const std::string& name) const;
  // Edits the forward blocks, which changes the positions of their ops.
  void Finish();

 private:
  std::deque<SavedValue> saved_;
  std::unordered_map<std::string_view, SavedValue*> by_name_;
  std::map<std::pair<OpDesc*, std::string>, std::string> outputs_;
  std::unordered_set<std::string> output_names_;
};

}  // namespace coracle::inline internal
