#pragma once
// Warnings about feeds and parameters whose shape differs from the declared one.
// Internal to executor/.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>

#include <mutex>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

namespace coracle::inline internal {

struct ShapeWarning {
  std::string key;   // the variable and its declared shape
  std::string text;  // one line
};

// Logs warnings, once for each variable. The programs compiled by one Executor share a
// log. Thread-safe.
class ShapeWarningLog {
 public:
  explicit ShapeWarningLog(bool enabled) : enabled_(enabled) {}
  void Log(const std::vector<ShapeWarning>& warnings);

 private:
  const bool enabled_;
  std::mutex mutex_;
  std::unordered_set<std::string> logged_;  // keys
};

// Files declare the shape of their export (or none), which binds a feed only if they say so.
// Mismatched shapes are run as they are, with a warning.
class ShapeWarnings {
 public:
  explicit ShapeWarnings(const ProgramDesc& program) : program_(program) {}

  // The warnings for these feeds and the scope's persistables. Each variable is reported once in
  // the object's life.
  std::vector<ShapeWarning> New(const std::vector<std::string>& names,
                                std::span<const Tensor> feeds, const Scope& scope);

  bool any() const { return !warned_.empty(); }  // so far

 private:
  void Check(const char* what, const std::string& name, const Tensor& tensor,
             std::vector<ShapeWarning>* warnings);

  const ProgramDesc& program_;
  std::unordered_set<std::string> warned_;
};

}  // namespace coracle::inline internal
