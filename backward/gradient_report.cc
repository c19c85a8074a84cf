// The result of CheckGradient as text.
#include <coracle/backward/backward.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace coracle {

bool CheckGradientReport::passed() const {
  return std::all_of(checks.begin(), checks.end(), [](const GradientCheck& c) { return c.passed; });
}

std::string CheckGradientReport::ToString() const {
  std::string text = fmt::format("loss {:.9g}\n", loss);
  size_t width = 0;
  for (const GradientCheck& c : checks) width = std::max(width, PrintableLine(c.var).size());
  size_t missing = 0;
  for (const GradientCheck& c : checks) {
    if (c.allowed == 0) {
      ++missing;
      text += fmt::format("{:<{}}  not checked\n", PrintableLine(c.var), width);
      continue;
    }
    text += fmt::format("{:<{}}  gradient {:>16.9e}  difference {:>16.9e}  error {:.1e}  {}\n",
                        PrintableLine(c.var), width, c.by_gradient, c.by_difference, c.error,
                        c.passed ? (c.gradient.empty() ? "ok, not reached" : "ok") : "WRONG");
  }
  if (missing > 0)
    text += fmt::format("{} of {} checks are missing: the time is over\n", missing, checks.size());
  if (!wrong_op.empty())
    text += fmt::format("first wrong op: {}\n", PrintableLine(wrong_op));
  else if (!doubtful_op.empty())
    text += fmt::format("no op is wrong by itself; the largest error is at {}\n",
                        PrintableLine(doubtful_op));
  return text;
}

}  // namespace coracle
