#pragma once
// Public types used as they must not be: default-made, moved from, with null pointers, empty names,
// objects of other programs. Each case ends in an Error that names the fault, or in a value that is
// defined. A case runs in a child process, so that a crash is one failed case.

#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace coracle::misuse {

struct Case {
  std::string type, what;
  std::function<void()> run;
  bool fails = false;
  std::string error = "";  // a part of the message of the Error that must come
};

class Cases {
 public:
  // The type, or the header and its functions, that the next cases are about.
  Cases& Of(std::string type) {
    type_ = std::move(type);
    types_.push_back(type_);
    return *this;
  }
  Cases& Fails(std::string what, std::string error, std::function<void()> run) {
    all_.push_back({type_, std::move(what), std::move(run), true, std::move(error)});
    return *this;
  }
  Cases& Works(std::string what, std::function<void()> run) {
    all_.push_back({type_, std::move(what), std::move(run)});
    return *this;
  }
  // A struct of options or results: a default-made one, a copy, and one that was moved from and
  // assigned to.
  template <class T>
  Cases& Plain(std::string type) {
    Of(std::move(type));
    return Works("default-made, moved from, assigned", [] {
      T value = T();
      T moved = std::move(value);
      if constexpr (std::is_copy_constructible_v<T>) {
        [[maybe_unused]] const T copy = value;  // NOLINT: moved from
      }
      if constexpr (std::is_move_assignable_v<T>) {
        value = std::move(moved);  // NOLINT: moved from
        T& itself = value;
        value = std::move(itself);
      }
    });
  }

  const std::vector<std::string>& types() const { return types_; }
  const std::vector<Case>& all() const { return all_; }

 private:
  std::string type_;
  std::vector<std::string> types_;
  std::vector<Case> all_;
};

// Throws std::logic_error, which no case may end with, unless it holds.
void Require(bool holds, const char* what);

void AddBase(Cases& cases);      // framework/base, framework/tensor
void AddPrograms(Cases& cases);  // framework/ir
void AddOps(Cases& cases);       // framework/op
void AddLayers(Cases& cases);    // layers, initializer, operators
void AddTraining(Cases& cases);  // backward, clip, regularizer, distribute, communication
void AddOptimizers(Cases& cases);
void AddModels(Cases& cases);  // executor, edit, inspect, framework/io, convert
void AddJobs(Cases& cases);    // train

}  // namespace coracle::misuse
