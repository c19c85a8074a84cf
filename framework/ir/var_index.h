#pragma once
// The index of a block's variables.

#include <coracle/framework/ir/var.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

namespace coracle::inline internal {

// VarIndex: finds a block's variables by name. It is an open-addressing table, because programs
// have hundreds of thousands of names and a look-up should touch one cache line.
class VarIndex {
 public:
  static size_t Hash(std::string_view name) { return std::hash<std::string_view>()(name); }
  VarDesc* Find(std::string_view name) const { return Find(name, Hash(name)); }
  VarDesc* Find(std::string_view name, size_t hash) const {
    if (entries_.empty()) return nullptr;
    for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
      const Entry& entry = entries_[i];
      if (!entry.var) return nullptr;
      if (entry.hash == hash && entry.var->name() == name) return entry.var;
    }
  }
  // Adds a variable. Returns false, and changes nothing, if its name is in use.
  bool Add(VarDesc* var) {
    if (2 * (size_ + 1) > entries_.size()) Resize(4 * (size_ + 1));
    const size_t hash = std::hash<std::string_view>()(var->name());
    size_t i = hash & mask_;
    for (; entries_[i].var; i = (i + 1) & mask_) {
      if (entries_[i].hash == hash && entries_[i].var->name() == var->name()) return false;
    }
    entries_[i] = {hash, var};
    ++size_;
    return true;
  }
  void Remove(std::string_view name) {
    if (entries_.empty()) return;
    size_t hole = std::hash<std::string_view>()(name) & mask_;
    while (entries_[hole].var && entries_[hole].var->name() != name) hole = (hole + 1) & mask_;
    if (!entries_[hole].var) return;
    --size_;
    // Later entries whose hash puts them at or before the hole move up.
    for (size_t i = (hole + 1) & mask_; entries_[i].var; i = (i + 1) & mask_) {
      const size_t home = entries_[i].hash & mask_;
      if (((i - home) & mask_) < ((i - hole) & mask_)) continue;
      entries_[hole] = entries_[i];
      hole = i;
    }
    entries_[hole] = {};
  }
  void Reserve(size_t size) {
    if (2 * size > entries_.size()) Resize(2 * size);
  }
  // Keeps the capacity, so that as many variables as before can be added without an allocation.
  void Clear() {
    std::fill(entries_.begin(), entries_.end(), Entry());
    size_ = 0;
  }

 private:
  struct Entry {
    size_t hash = 0;
    VarDesc* var = nullptr;
  };
  void Resize(size_t at_least) {
    size_t capacity = 16;
    while (capacity < at_least) capacity *= 2;
    std::vector<Entry> old(capacity);
    old.swap(entries_);
    mask_ = capacity - 1;
    for (const Entry& entry : old) {
      if (!entry.var) continue;
      size_t i = entry.hash & mask_;
      while (entries_[i].var) i = (i + 1) & mask_;
      entries_[i] = entry;
    }
  }

  std::vector<Entry> entries_;  // their number is a power of two; at most half are in use
  size_t mask_ = 0, size_ = 0;
};

}  // namespace coracle::inline internal
