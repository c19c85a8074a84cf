#pragma once
// Id: an index that cannot be mistaken for an index of another list. IdVector: a list that is
// indexed only by its own ids. Internal to executor/.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace coracle::inline internal {

template <class Tag>
class Id {
 public:
  constexpr Id() = default;  // refers to nothing
  constexpr explicit Id(size_t index) : number_(static_cast<int32_t>(index)) {}
  constexpr explicit operator bool() const { return number_ >= 0; }
  constexpr size_t index() const { return static_cast<size_t>(number_); }
  constexpr auto operator<=>(const Id&) const = default;  // the empty id is the smallest

  // For framework/op, which only hands an id back as a number.
  constexpr int32_t ToNumber() const { return number_; }
  static constexpr Id FromNumber(int32_t number) { return Id(static_cast<size_t>(number)); }

 private:
  int32_t number_ = -1;
};

using ValueId = Id<struct ValueTag>;
using StorageId = Id<struct StorageTag>;
using StepId = Id<struct StepTag>;
using FeedId = Id<struct FeedTag>;
using PersistableId = Id<struct PersistableTag>;
using ConstantId = Id<struct ConstantTag>;
using CallId = Id<struct CallTag>;            // a plan's calls of sub-blocks
using CellId = Id<struct CellTag>;            // a procedure's cells
using CallSiteId = Id<struct CallSiteTag>;    // a procedure's call sites
using ProcedureId = Id<struct ProcedureTag>;  // a program's procedures
inline constexpr ProcedureId kRootProcedure{0};

template <class IdType, class T>
class IdVector {
 public:
  IdType Add(T item) {
    items_.push_back(std::move(item));
    return IdType(items_.size() - 1);
  }
  T& operator[](IdType id) { return items_[id.index()]; }
  const T& operator[](IdType id) const { return items_[id.index()]; }
  // Whether the list has the item.
  bool Has(IdType id) const { return id && id.index() < items_.size(); }

  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  void resize(size_t size) { items_.resize(size); }
  T* data() { return items_.data(); }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  // for (ValueId value : values.ids()); not std::views, which clang 14 does not compile.
  class Ids {
   public:
    struct Iterator {
      size_t index;
      IdType operator*() const { return IdType(index); }
      Iterator& operator++() { return ++index, *this; }
      bool operator!=(const Iterator& other) const { return index != other.index; }
    };
    explicit Ids(size_t size) : size_(size) {}
    Iterator begin() const { return {0}; }
    Iterator end() const { return {size_}; }

   private:
    size_t size_;
  };
  Ids ids() const { return Ids(items_.size()); }

 private:
  std::vector<T> items_;
};

}  // namespace coracle::inline internal
