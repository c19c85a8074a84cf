#include <coracle/framework/base/place.h>
#include <coracle/framework/base/text.h>
#include <coracle/optimizer/optimizer.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle {
namespace {

bool Matches(const OptimizerGroup& group, const std::string& param) {
  return group.params.empty() ||
         std::any_of(group.params.begin(), group.params.end(),
                     [&](const std::string& pattern) { return MatchesPattern(param, pattern); });
}

std::string Name(const OptimizerGroup& group) {
  return group.params.empty() ? "all parameters" : Quote(Join(group.params, ", "));
}

void RequireUse(const OptimizerGroup& group, const std::vector<ParamAndGrad>& pairs) {
  for (const std::string& pattern : group.params) {
    const bool used = std::any_of(pairs.begin(), pairs.end(), [&](const ParamAndGrad& pair) {
      return MatchesPattern(pair.param, pattern);
    });
    if (used) continue;
    std::vector<std::string> names;
    names.reserve(pairs.size());
    for (const ParamAndGrad& pair : pairs) names.push_back(pair.param);
    ThrowInvalid(fmt::format("optimizer: no parameter matches {}; there are {}", Quote(pattern),
                             Join(names, ", ")));
  }
}

void RefuseBoth(const OptimizerGroup& first, const OptimizerGroup& second,
                const std::string& param) {
  AtPlace(second.place, [&] {
    ThrowInvalid(fmt::format("optimizer: two optimizers match the parameter {}: {} and {}",
                             Quote(param), Name(first), Name(second)));
  });
}

void RefuseNone(const std::vector<OptimizerGroup>& groups, const std::string& param) {
  AtPlace(groups.empty() ? "" : groups.front().place, [&] {
    ThrowInvalid(fmt::format(
        "optimizer: no optimizer matches the parameter {}; freeze it or add its name to one",
        Quote(param)));
  });
}

}  // namespace

bool MatchesPattern(std::string_view name, std::string_view pattern) {
  size_t n = 0, p = 0, star = std::string_view::npos, after_star = 0;
  while (n < name.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || (pattern[p] == name[n] && pattern[p] != '*'))) {
      ++n;
      ++p;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after_star = n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++after_star;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

std::vector<std::vector<ParamAndGrad>> SplitByGroup(const std::vector<OptimizerGroup>& groups,
                                                    const std::vector<ParamAndGrad>& pairs) {
  std::vector<std::vector<ParamAndGrad>> split(groups.size());
  for (const ParamAndGrad& pair : pairs) {
    if (pair.grad.empty()) continue;
    const OptimizerGroup* taken = nullptr;
    for (size_t i = 0; i < groups.size(); ++i) {
      if (!Matches(groups[i], pair.param)) continue;
      if (taken) RefuseBoth(*taken, groups[i], pair.param);
      taken = &groups[i];
      split[i].push_back(pair);
    }
    if (!taken) RefuseNone(groups, pair.param);
  }
  for (const OptimizerGroup& group : groups)
    AtPlace(group.place, [&] { RequireUse(group, pairs); });
  return split;
}

}  // namespace coracle
