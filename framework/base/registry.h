#pragma once
// A registry of named things that users can extend.

#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace coracle::inline internal {

// Text schemas use this name for the choice among kinds, so no kind may have it.
inline constexpr char kChoiceName[] = "kind";
inline constexpr char kChoiceNameError[] =
    "the name 'kind' is reserved: the schemas of texts use it for the choice of a kind";

// Thread-safe. Errors call an entry `what` ("optimizer").
template <class T>
class Registry {
 public:
  using Entries = std::vector<std::pair<std::string, T>>;

  Registry(const char* what, Entries built_in) : what_(what), all_(std::move(built_in)) {}

  void Add(const std::string& kind, T value) {
    if (kind.empty()) ThrowInvalid(fmt::format("{}: the name is empty", what_));
    if (kind == kChoiceName) ThrowInvalid(fmt::format("{}: {}", what_, kChoiceNameError));
    const std::lock_guard lock(mutex_);
    if (Find(kind)) {
      throw Error(ErrorCode::kAlreadyExists,
                  fmt::format("{}: the name {} is taken", what_, Quote(kind)));
    }
    all_.emplace_back(kind, std::move(value));
  }

  // Throws kInvalidArgument for an unknown kind.
  T Get(const std::string& kind) const {
    {
      const std::lock_guard lock(mutex_);
      if (const T* found = Find(kind)) return *found;
    }
    const std::vector<std::string> known = Kinds();
    ThrowInvalid(fmt::format("no {} is called {}; known: {}{}", what_, Quote(kind),
                             Join(known, ", "), DidYouMean(kind, known)));
  }

  // The names, sorted.
  std::vector<std::string> Kinds() const {
    std::vector<std::string> kinds;
    for (const auto& entry : All()) kinds.push_back(entry.first);
    std::sort(kinds.begin(), kinds.end());
    return kinds;
  }

  // In the order in which they were added.
  Entries All() const {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  const T* Find(const std::string& kind) const {
    for (const auto& entry : all_)
      if (entry.first == kind) return &entry.second;
    return nullptr;
  }

  const char* what_;
  mutable std::mutex mutex_;
  Entries all_;
};

}  // namespace coracle::inline internal
