#include <coracle/edit/edit.h>
#include <coracle/framework/base/regex.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/op/check/name_attrs.h>
#include <coracle/framework/op/kernel/random_draws.h>
#include <coracle/framework/op/recomputed.h>
#include <fmt/format.h>

#include <unordered_map>
#include <unordered_set>

namespace coracle {
namespace {

using NameMap = std::unordered_map<std::string, std::string>;

template <class F>
void ForEachVar(const ProgramDesc& program, const F& f) {
  for (int b = 0; b < program.NumBlocks(); ++b) {
    const BlockDesc& block = program.Block(b);
    for (size_t i = 0; i < block.NumVars(); ++i) f(block.var(i));
  }
}

// The names that blocks declare, in order, without repetitions.
std::vector<std::string> DeclaredNames(const ProgramDesc& program) {
  std::vector<std::string> names;
  std::unordered_set<std::string_view> seen;
  ForEachVar(program, [&](const VarDesc& var) {
    if (seen.insert(var.name()).second) names.push_back(var.name());
  });
  return names;
}

// The holders of feeds and fetches, which readers identify by their names.
std::unordered_set<std::string> Holders(const ProgramDesc& program) {
  std::unordered_set<std::string> names;
  ForEachVar(program, [&](const VarDesc& var) {
    if (var.type() == VarType::kFeedMinibatch || var.type() == VarType::kFetchList)
      names.insert(var.name());
  });
  return names;
}

NameMap CheckedMap(const NamePairs& pairs, const std::vector<std::string>& declared,
                   const std::unordered_set<std::string>& holders) {
  const std::unordered_set<std::string_view> known(declared.begin(), declared.end());
  NameMap map;
  for (const auto& [from, to] : pairs) {
    if (!known.count(from)) {
      throw Error(ErrorCode::kNotFound, fmt::format("rename: the program has no var {}{}",
                                                    Quote(from), DidYouMean(from, declared)));
    }
    if (IsEmptyName(to))
      ThrowInvalid(fmt::format("rename: {} cannot be called {}", Quote(from), Quote(to)));
    if (holders.count(from)) {
      ThrowInvalid(
          fmt::format("rename: {} holds what is fed or fetched, and readers know it by "
                      "that name",
                      Quote(from)));
    }
    if (!map.emplace(from, to).second)
      ThrowInvalid(fmt::format("rename: two new names are given for {}", Quote(from)));
  }
  return map;
}

// Adds x@GRAD -> y@GRAD for x -> y.
void AddDerived(const std::vector<std::string>& declared, NameMap& map) {
  NameMap derived;
  for (const std::string& name : declared) {
    if (map.count(name)) continue;
    // Searches from the end, because in a@GRAD@GRAD the variable a@GRAD may have its own new name.
    for (size_t at = name.rfind('@'); at != name.npos && at > 0; at = name.rfind('@', at - 1)) {
      const auto found = map.find(name.substr(0, at));
      if (found == map.end()) continue;
      derived.emplace(name, found->second + name.substr(at));
      break;
    }
  }
  map.merge(derived);
}

void CheckCollisions(const std::vector<std::string>& declared, const NameMap& map) {
  std::unordered_map<std::string_view, std::string_view> taken;  // by new name: the old one
  taken.reserve(declared.size());
  for (const std::string& name : declared) {
    if (!map.count(name)) taken.emplace(name, name);
  }
  for (const std::string& name : declared) {
    const auto found = map.find(name);
    if (found == map.end()) continue;
    const auto [other, added] = taken.emplace(found->second, name);
    if (added) continue;
    const std::string who = other->first == other->second
                                ? "which is the name of another variable"
                                : fmt::format("as {} does", Quote(other->second));
    throw Error(ErrorCode::kAlreadyExists, fmt::format("rename: {} cannot become {}, {}",
                                                       Quote(name), Quote(found->second), who));
  }
}

// Renames in two rounds, because names may be exchanged.
void RenameDeclarations(BlockDesc& block, const NameMap& map) {
  std::vector<std::pair<VarDesc*, const std::string*>> renamed;
  for (size_t i = 0; i < block.NumVars(); ++i) {
    const auto found = map.find(block.var(i).name());
    if (found != map.end()) renamed.emplace_back(&block.var(i), &found->second);
  }
  for (const auto& [var, to] : renamed) {
    if (VarDesc* other = block.FindVar(*to))
      block.RenameVar(*other, block.program().UniqueName("rename"));
  }
  for (const auto& [var, to] : renamed) {
    if (var->name() != *to) block.RenameVar(*var, *to);
  }
}

}  // namespace

NamePairs PairsByRegex(const ProgramDesc& program, const std::string& regex,
                       const std::string& with) {
  const Regex pattern(regex);
  NamePairs pairs;
  bool any = false;
  const std::unordered_set<std::string> holders = Holders(program);
  for (const std::string& name : DeclaredNames(program)) {
    if (holders.count(name) || !pattern.MatchesPart(name)) continue;
    any = true;
    std::string to = pattern.Replaced(name, with);
    if (to != name) pairs.emplace_back(name, std::move(to));
  }
  if (!any) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("rename: no variable's name matches {}", Quote(regex)));
  }
  return pairs;
}

Renamed RenameVariables(ProgramDesc& program, const NamePairs& names, const OpRegistry& ops,
                        const RenameOptions& options) {
  const EditGuard guard(program);
  const std::vector<std::string> declared = DeclaredNames(program);
  NameMap map = CheckedMap(names, declared, Holders(program));
  if (options.derived) AddDerived(declared, map);
  CheckCollisions(declared, map);
  const auto renamed = [&](const std::string& name) {
    const auto found = map.find(name);
    return found == map.end() ? name : found->second;
  };
  Renamed result;
  for (const std::string& name : declared) {
    if (map.count(name)) result.names.emplace_back(name, map.at(name));
  }
  for (int b = 0; b < program.NumBlocks(); ++b) RenameDeclarations(program.Block(b), map);
  program.ForEachOp([&](OpDesc& op) {
    const bool draws = DrawsNumbers(op, ops) && !op.HasAttr(kRecomputedFromAttr);
    op.ForEachOutput([&](const std::string& name) {
      if (draws && map.count(name)) result.drawn.push_back(renamed(name));
    });
    op.RenameInputs(renamed);
    op.RenameOutputs(renamed);
    RenameInAttrs(op, renamed);
  });
  return result;
}

void RenameValues(const NamePairs& names, Scope& scope) {
  std::vector<std::pair<std::string, VarValue>> moved;
  for (const auto& [from, to] : names) {
    VarValue* value = scope.FindLocal(from);
    if (!value) continue;
    moved.emplace_back(to, std::move(*value));
    scope.Erase(from);
  }
  for (auto& [to, value] : moved) scope.Var(to) = std::move(value);
}

}  // namespace coracle
