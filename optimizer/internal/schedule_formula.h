#pragma once
// Schedules from a single formula, which is evaluated both for numbers on the host and as ops.

#include <coracle/optimizer/lr_schedule.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace coracle::inline internal {

// These functions on numbers correspond to those on Variables, so that one formula serves both.
namespace formula {
inline double Exp(double x) { return std::exp(x); }
inline double Log(double x) { return std::log(x); }
inline double Cos(double x) { return std::cos(x); }
inline double Floor(double x) { return std::floor(x); }
inline double Min(double a, double b) { return std::min(a, b); }
inline double Max(double a, double b) { return std::max(a, b); }
inline double Pow(double x, double y) { return std::pow(x, y); }
inline double IfLess(double a, double b, double yes, double no) { return a < b ? yes : no; }
inline Variable IfLess(const Variable& a, double b, const Variable& yes, const Variable& no) {
  return Where(Less(a, b), yes, no);
}

inline double Number(double, double value) { return value; }
inline Variable Number(const Variable& like, double value) {
  return FillConstant(Writer::Of({&like}), like.dtype(), value);
}

}  // namespace formula

// A schedule from a formula, a function of t for double and for Variable.
template <class Formula>
class FormulaSchedule : public LrSchedule {
 public:
  explicit FormulaSchedule(Formula formula) : formula_(std::move(formula)) {}
  double At(int64_t t) const override { return formula_(static_cast<double>(t)); }
  Variable Append(const Variable& t) const override { return formula_(t); }

 private:
  Formula formula_;
};

template <class Formula>
LrSchedulePtr Schedule(Formula formula) {
  return std::make_shared<FormulaSchedule<Formula>>(std::move(formula));
}

// Throws kInvalidArgument: "learning-rate schedule NAME: a rate must be ...".
void RequireRate(const char* schedule, double rate);

inline void RequireAscending(const char* schedule, const char* field,
                             const std::vector<int64_t>& steps) {
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i] >= 0 && (i == 0 || steps[i] >= steps[i - 1])) continue;
    ThrowInvalid(fmt::format("learning-rate schedule {}: {} must ascend from 0 on, got {}",
                             schedule, field, steps[i]));
  }
}

}  // namespace coracle::inline internal
