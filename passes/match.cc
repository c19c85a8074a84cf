#include <coracle/framework/ir/origin.h>
#include <coracle/framework/op/recomputed.h>
#include <coracle/passes/match.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

// The value for the key; nullptr if it is missing.
template <class T>
const T* ValueOf(const std::vector<std::pair<std::string, T>>& list, std::string_view key) {
  for (const auto& [name, value] : list) {
    if (name == key) return &value;
  }
  return nullptr;
}
template <class T>
const T& At(const std::vector<std::pair<std::string, T>>& list, std::string_view key) {
  if (const T* value = ValueOf(list, key)) return *value;
  throw InternalError(fmt::format("the pattern has no {}", key));
}

const OpDesc* LastOf(const BlockDesc& block, const std::vector<const OpDesc*>& ops) {
  return *std::max_element(ops.begin(), ops.end(), [&](const OpDesc* a, const OpDesc* b) {
    return block.IndexOf(*a) < block.IndexOf(*b);
  });
}

}  // namespace

// --- Match ---

OpDesc& Match::op(std::string_view label) const { return *At(ops_, label); }
const std::string& Match::operator[](std::string_view name) const { return At(vars_, name); }
bool Match::Has(std::string_view name) const { return ValueOf(vars_, name) != nullptr; }

// --- the search ---

// Finds one match of a pattern, line by line, with backtracking.
class MatchSearch {
 public:
  using Line = Pattern::Line;
  using Arg = Pattern::Arg;

  MatchSearch(const Matcher& matcher, const Pattern& pattern)
      : matcher_(matcher), block_(matcher.block_), lines_(pattern.lines_) {}

  std::optional<Match> From(const Match& known) {
    match_.vars_ = known.vars_;
    return Search() ? std::optional(std::move(match_)) : std::nullopt;
  }
  std::optional<Match> From(OpDesc& first) {
    return Try(lines_.front(), first) ? std::optional(std::move(match_)) : std::nullopt;
  }

 private:
  // Continues with the line that has the fewest candidate ops.
  bool Search() {
    if (match_.ops_.size() == lines_.size()) return Holds();
    Candidates fewest;
    for (const Line& line : lines_) {
      if (!ValueOf(match_.ops_, line.label)) Note(line, &fewest);
    }
    for (const auto& ops : fewest.lists) {
      for (OpDesc* op : ops) {
        if (Try(*fewest.line, *op)) return true;
      }
    }
    return false;
  }

  // The candidates for a line: ops that read or write one of its variables that is already known.
  struct Candidates {
    const Line* line = nullptr;
    size_t count = 0;
    std::vector<std::span<OpDesc* const>> lists;
  };
  void Note(const Line& line, Candidates* fewest) const {
    const auto note = [&](std::vector<std::span<OpDesc* const>> lists) {
      size_t count = 0;
      for (const auto& ops : lists) count += ops.size();
      if (!fewest->line || count < fewest->count) *fewest = {&line, count, std::move(lists)};
    };
    for (const Arg& arg : line.inputs) {
      if (!match_.Has(arg.name)) continue;
      std::vector<std::span<OpDesc* const>> lists;
      for (const std::string& same : matcher_.SameAs(match_[arg.name]))
        lists.push_back(block_.Uses(same).readers);
      note(std::move(lists));
    }
    for (const Arg& arg : line.outputs) {
      if (match_.Has(arg.name)) note({block_.Uses(match_[arg.name]).writers});
    }
  }

  bool Try(const Line& line, OpDesc& op) {
    if (std::find(line.types.begin(), line.types.end(), op.type()) == line.types.end())
      return false;
    const size_t ops = match_.ops_.size(), vars = match_.vars_.size();
    if (BindOp(line, op) && Search()) return true;
    match_.ops_.resize(ops);
    match_.vars_.resize(vars);
    return false;
  }

  bool BindOp(const Line& line, OpDesc& op) {
    for (const auto& [label, other] : match_.ops_) {
      if (other == &op) return false;
    }
    match_.ops_.emplace_back(line.label, &op);
    for (const Arg& arg : line.inputs) {
      if (!BindArg(arg, op.Input(arg.slot))) return false;
    }
    for (const Arg& arg : line.outputs) {
      if (!BindArg(arg, op.Output(arg.slot))) return false;
    }
    const bool other_input = op.AnyInput([&](const std::string&, const std::string& slot) {
      return !line.more_inputs && !Lists(line.inputs, slot);
    });
    return !other_input && !op.AnyOutput([&](const std::string& var, const std::string& slot) {
      return !line.more_outputs && !Lists(line.outputs, slot) && !IsDead(var);
    });
  }

  bool BindArg(const Arg& arg, const std::vector<std::string>& vars) {
    if (arg.optional && std::all_of(vars.begin(), vars.end(), IsEmptyName)) return true;
    if (vars.size() != 1 || IsEmptyName(vars[0])) return false;
    const std::string* bound = ValueOf(match_.vars_, arg.name);
    if (!bound) match_.vars_.emplace_back(arg.name, vars[0]);
    if (!bound || *bound == vars[0]) return true;
    return !IsWritten(arg.name) && matcher_.Original(*bound) == matcher_.Original(vars[0]);
  }

  static bool Lists(const std::vector<Arg>& args, const std::string& slot) {
    return std::any_of(args.begin(), args.end(), [&](const Arg& a) { return a.slot == slot; });
  }
  static bool Names(const std::vector<Arg>& args, const std::string& name) {
    return std::any_of(args.begin(), args.end(), [&](const Arg& a) { return a.name == name; });
  }
  bool IsWritten(const std::string& name) const {
    return std::any_of(lines_.begin(), lines_.end(),
                       [&](const Line& line) { return Names(line.outputs, name); });
  }
  bool IsRead(const std::string& name) const {
    return std::any_of(lines_.begin(), lines_.end(),
                       [&](const Line& line) { return Names(line.inputs, name); });
  }
  bool IsVisible(const std::string& var) const { return matcher_.context_.IsVisible(block_, var); }
  bool IsDead(const std::string& var) const {
    return block_.Uses(var).readers.empty() && matcher_.IsWrittenOnce(var) && !IsVisible(var);
  }
  bool IsInside(const OpDesc* op) const {
    return std::any_of(match_.ops_.begin(), match_.ops_.end(),
                       [&](const auto& entry) { return entry.second == op; });
  }

  bool IsWrittenInside(const std::string& var) const {
    return std::any_of(match_.ops_.begin(), match_.ops_.end(),
                       [&](const auto& entry) { return entry.second->Writes(var); });
  }

  // Whether the ops found so far have the properties that match.h guarantees.
  bool Holds() const {
    for (const auto& [name, var] : match_.vars_) {
      if (!IsWritten(name)) {
        if (IsWrittenInside(var)) return false;  // like a variable that a line writes
      } else if (!matcher_.IsWrittenOnce(var) || (IsRead(name) && !IsPrivate(var))) {
        return false;
      }
    }
    return MayRunAtLast();
  }

  bool IsPrivate(const std::string& var) const {
    const auto readers = block_.Uses(var).readers;
    return !IsVisible(var) && std::all_of(readers.begin(), readers.end(),
                                          [&](const OpDesc* op) { return IsInside(op); });
  }

  bool MayRunAtLast() const {
    std::vector<const OpDesc*> ops;
    for (const auto& [label, op] : match_.ops_) ops.push_back(op);
    return matcher_.MayRunAt(ops, *LastOf(block_, ops));
  }

  const Matcher& matcher_;
  BlockDesc& block_;
  const std::vector<Line>& lines_;
  Match match_;
};

// --- Matcher ---

// A recomputed variable holds the same bits as its original, so either may replace the other.
Matcher::Matcher(BlockDesc& block, const PassContext& context) : block_(block), context_(context) {
  block.ForEachOp([&](const OpDesc& op) {
    const Attribute* attr = op.FindAttr(kRecomputedFromAttr);
    const auto* from = attr ? std::get_if<std::vector<std::string>>(attr) : nullptr;
    if (!from) return;
    size_t at = 0;
    ForEachPosition(op.outputs(), [&](const std::string& name) {
      if (at < from->size() && originals_.emplace(name, (*from)[at]).second)
        copies_[(*from)[at]].push_back(name);
      ++at;
    });
  });
}

std::vector<Match> Matcher::FindAll(const Pattern& pattern) const {
  std::vector<Match> found;
  block_.ForEachOp([&](OpDesc& op) {
    if (auto match = MatchSearch(*this, pattern).From(op)) found.push_back(std::move(*match));
  });
  return found;
}

std::optional<Match> Matcher::Find(const Pattern& pattern, const Match& known) const {
  return MatchSearch(*this, pattern).From(known);
}

std::vector<std::string> Matcher::SameAs(const std::string& var) const {
  std::vector<std::string> same = {Original(var)};
  auto it = copies_.find(same[0]);
  if (it != copies_.end()) same.insert(same.end(), it->second.begin(), it->second.end());
  return same;
}

const std::string& Matcher::Original(const std::string& var) const {
  auto it = originals_.find(var);
  return it == originals_.end() ? var : it->second;
}

const Shape* Matcher::ShapeOf(const std::string& var) const {
  const VarDesc* desc = block_.FindVarRecursive(var);
  return desc ? &desc->shape() : nullptr;
}

bool Matcher::IsWrittenOnce(const std::string& var) const {
  return block_.Uses(var).writers.size() == 1;
}

const OpDesc* Matcher::WriterBefore(const std::string& var, const OpDesc& reader) const {
  const auto writers = block_.Uses(var).writers;
  if (writers.size() != 1 || context_.captured.count(var)) return nullptr;
  return block_.IndexOf(*writers[0]) < block_.IndexOf(reader) ? writers[0] : nullptr;
}

bool Matcher::HasOneReader(const std::string& var) const {
  const auto readers = block_.Uses(var).readers;
  if (readers.size() != 1 || context_.captured.count(var)) return false;
  int positions = 0;
  readers[0]->ForEachInput([&](const std::string& name) { positions += name == var; });
  return positions == 1;
}

bool Matcher::MayRunAt(const std::vector<const OpDesc*>& ops, const OpDesc& place) const {
  const size_t there = block_.IndexOf(place);
  for (const OpDesc* op : ops) {
    const size_t at = block_.IndexOf(*op), begin = std::min(at, there), end = std::max(at, there);
    const auto between = [&](std::span<OpDesc* const> users) {
      return std::any_of(users.begin(), users.end(), [&](const OpDesc* user) {
        const size_t i = block_.IndexOf(*user);
        return i > begin && i < end && std::find(ops.begin(), ops.end(), user) == ops.end();
      });
    };
    const auto written = [&](const std::string& var) { return between(block_.Uses(var).writers); };
    const auto read = [&](const std::string& var) { return between(block_.Uses(var).readers); };
    if (op->AnyInput(written) || op->AnyOutput(written) || op->AnyOutput(read)) return false;
    if (BlocksUse(*op, begin, end)) return false;
  }
  return true;
}

bool Matcher::BlocksUse(const OpDesc& op, size_t begin, size_t end) const {
  for (const OpDesc* runner : block_.SubBlockOps()) {
    const size_t i = block_.IndexOf(*runner);
    if (i <= begin || i >= end) continue;
    for (const BlockDesc* inner : block_.program().BlocksRunBy(*runner)) {
      const auto writes = [&](const std::string& var) { return !inner->Uses(var).writers.empty(); };
      const auto reads = [&](const std::string& var) { return !inner->Uses(var).readers.empty(); };
      if (op.AnyInput(writes) || op.AnyOutput(writes) || op.AnyOutput(reads)) return true;
    }
  }
  return false;
}

// --- Rewrites ---

void Rewrites::Replace(const Match& match, const std::vector<OpDesc>& with) {
  std::vector<const OpDesc*> ops;
  for (const auto& [label, op] : match.ops_) ops.push_back(op);
  Replace(ops, *LastOf(block_, ops), with);
}

void Rewrites::Replace(const std::vector<const OpDesc*>& ops, const OpDesc& place,
                       const std::vector<OpDesc>& with) {
  for (const OpDesc* op : ops) replaced_.try_emplace(op);
  std::vector<std::unique_ptr<OpDesc>>& made = replaced_.at(&place);
  made.clear();
  for (const OpDesc& op : with) {
    made.push_back(std::make_unique<OpDesc>(op));
    for (const OpDesc* replaced : ops) AddOrigins(*replaced, *made.back());
  }
}

bool Rewrites::Apply() {
  if (replaced_.empty()) return false;
  std::vector<std::unique_ptr<OpDesc>> ops;
  for (std::unique_ptr<OpDesc>& op : block_.ReleaseOps()) {
    auto found = replaced_.find(op.get());
    if (found == replaced_.end()) {
      ops.push_back(std::move(op));
    } else {
      for (std::unique_ptr<OpDesc>& made : found->second) ops.push_back(std::move(made));
    }
  }
  block_.SetOps(std::move(ops));
  replaced_.clear();
  return true;
}

}  // namespace coracle::inline internal
