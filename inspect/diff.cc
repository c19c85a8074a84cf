#include <coracle/framework/ir/listing.h>
#include <coracle/framework/op/kernel/random_draws.h>
#include <coracle/inspect/inspect.h>
#include <coracle/inspect/op_changes.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

namespace coracle {
namespace {

using Changes = std::vector<DiffChange>;
using Names = std::vector<std::string>;

const std::string kNone = "none";

size_t Index(int i) { return static_cast<size_t>(i); }

void Compare(const char* what, const std::string& before, const std::string& after,
             Changes* changes) {
  if (before != after) changes->push_back({what, "", before, after});
}

const char* YesNo(bool value) { return value ? "true" : "false"; }

std::string TextOf(const std::optional<Setting>& setting) {
  return setting ? SettingText(*setting) : kNone;
}

std::string ClipText(const ErrorClipPtr& clip) {
  const std::optional<Setting> saved = clip ? clip->Save() : std::nullopt;
  return clip && !saved ? "of a class that is not saved" : TextOf(saved);
}

Changes ChangesOfVar(const VarDesc& a, const VarDesc& b) {
  Changes changes;
  Compare("type", ToString(a.type()), ToString(b.type()), &changes);
  Compare("dtype", ToString(a.dtype()), ToString(b.dtype()), &changes);
  Compare("shape", a.shape().ToString(), b.shape().ToString(), &changes);
  Compare("lod_level", std::to_string(a.lod_level()), std::to_string(b.lod_level()), &changes);
  Compare("persistable", YesNo(a.persistable()), YesNo(b.persistable()), &changes);
  Compare("parameter", YesNo(a.is_parameter()), YesNo(b.is_parameter()), &changes);
  Compare("stop_gradient", YesNo(a.stop_gradient()), YesNo(b.stop_gradient()), &changes);
  Compare("need_check_feed", YesNo(a.need_check_feed()), YesNo(b.need_check_feed()), &changes);
  // Values of a newer format, which have no texts.
  if (changes.empty() && !(a.meta() == b.meta()))
    changes.push_back({"type", "", a.meta().ToString(), b.meta().ToString()});
  const TrainingAttr &s = a.training(), &t = b.training();
  if (s == t) return changes;
  Compare("trainable", YesNo(s.trainable), YesNo(t.trainable), &changes);
  Compare("learning_rate", fmt::format("{}", s.learning_rate), fmt::format("{}", t.learning_rate),
          &changes);
  Compare("initializer", TextOf(s.initializer), TextOf(t.initializer), &changes);
  Compare("regularizer", TextOf(s.regularizer), TextOf(t.regularizer), &changes);
  Compare("gradient_clip", TextOf(s.gradient_clip), TextOf(t.gradient_clip), &changes);
  Compare("error_clip", ClipText(s.error_clip), ClipText(t.error_clip), &changes);
  return changes;
}

struct BlockPair {
  BlockPair(const BlockDesc& before, const BlockDesc& after, NamePairs& names,
            const OpRegistry& ops)
      : a(before, names, ops), b(after, names, ops), ops(MatchOps(a, b, names)) {}
  OpGraph a, b;
  OpMatching ops;
};

// The blocks of two programs, paired: by index, the block on the other side, or -1.
struct MatchedBlocks {
  std::vector<std::unique_ptr<BlockPair>> pairs;
  std::vector<int> after_of, before_of;
};

std::vector<bool> RunByOps(const ProgramDesc& program) {
  std::vector<bool> run(Index(program.NumBlocks()), false);
  program.ForEachOp([&](const OpDesc& op) {
    for (const int block : op.SubBlocks()) {
      if (block >= 0 && block < program.NumBlocks()) run[Index(block)] = true;
    }
  });
  return run;
}

class BlockMatcher {
 public:
  BlockMatcher(const ProgramDesc& before, const ProgramDesc& after, NamePairs& names,
               const OpRegistry& ops)
      : a_(before), b_(after), names_(names), ops_(ops) {
    found_.after_of.assign(Index(a_.NumBlocks()), -1);
    found_.before_of.assign(Index(b_.NumBlocks()), -1);
  }

  // Pairs the blocks that matched ops run, and the blocks of equal index that no op runs.
  MatchedBlocks Run() {
    PairBlocks(0, 0);
    const std::vector<bool> run_before = RunByOps(a_), run_after = RunByOps(b_);
    size_t next = 0;
    for (int left = 1;; ++left) {
      for (; next < to_match_.size(); ++next)
        MatchBlock(to_match_[next].first, to_match_[next].second);
      if (left >= std::min(a_.NumBlocks(), b_.NumBlocks())) break;
      if (!run_before[Index(left)] && !run_after[Index(left)]) PairBlocks(left, left);
    }
    return std::move(found_);
  }

 private:
  bool PairBlocks(int before, int after) {
    if (before < 0 || after < 0 || before >= a_.NumBlocks() || after >= b_.NumBlocks())
      return false;
    if (found_.after_of[Index(before)] >= 0 || found_.before_of[Index(after)] >= 0) return false;
    found_.after_of[Index(before)] = after;
    found_.before_of[Index(after)] = before;
    to_match_.emplace_back(before, after);
    return true;
  }

  void MatchBlock(int before, int after) {
    found_.pairs.push_back(
        std::make_unique<BlockPair>(a_.Block(before), b_.Block(after), names_, ops_));
    const BlockPair& pair = *found_.pairs.back();
    for (int i = 0; i < pair.a.NumOps(); ++i) {
      const int j = pair.ops.after_of[Index(i)];
      if (j < 0 || !a_.Block(before).op(Index(i)).HasSubBlock()) continue;
      const std::vector<int> inner = a_.Block(before).op(Index(i)).SubBlocks(),
                             other = b_.Block(after).op(Index(j)).SubBlocks();
      for (size_t k = 0; k < std::min(inner.size(), other.size()); ++k) {
        if (inner[k] != 0 && other[k] != 0) PairBlocks(inner[k], other[k]);
      }
    }
  }

  const ProgramDesc &a_, &b_;
  NamePairs& names_;
  const OpRegistry& ops_;
  std::vector<std::pair<int, int>> to_match_;
  MatchedBlocks found_;
};

// Marks the blocks in which, or in whose sub-blocks, random numbers are drawn.
std::vector<bool> DrawingBlocks(const ProgramDesc& program, const OpRegistry& ops) {
  std::vector<bool> draws(Index(program.NumBlocks()), false);
  std::vector<std::vector<int>> run_by(draws.size());
  std::vector<int> queue;
  const auto mark = [&](int block) {
    if (draws[Index(block)]) return;
    draws[Index(block)] = true;
    queue.push_back(block);
  };
  program.ForEachOp([&](const OpDesc& op) {
    if (DrawsNumbers(op, ops)) mark(op.block()->idx());
    for (const int block : op.SubBlocks()) {
      if (block > 0 && block < program.NumBlocks())
        run_by[Index(block)].push_back(op.block()->idx());
    }
  });
  while (!queue.empty()) {
    const int block = queue.back();
    queue.pop_back();
    for (const int runner : run_by[Index(block)]) mark(runner);
  }
  return draws;
}

Names Ends(const ProgramDesc& program, OpKind kind, const OpRegistry& ops) {
  if (!HasOpOfKind(program.Root(), kind, ops)) return {};
  return kind == OpKind::kFeed ? InputNames(program, ops) : OutputNames(program, ops);
}
std::string VersionText(const ProgramDesc& program) {
  const int64_t v = program.version.value_or(0);
  return v == 0 ? kNone : fmt::format("{}.{}.{}", v / 1000000, v / 1000 % 1000, v % 1000);
}

// Whether it is the feed or fetch list, which may differ between programs.
bool IsOfFeeds(const VarDesc& var) {
  return var.type() == VarType::kFeedMinibatch || var.type() == VarType::kFetchList;
}
// Whether the diff of the ops that use this temporary already shows it.
bool IsShownByOps(const VarDesc& var, const BlockDesc& block) {
  if (var.persistable() || !var.training().IsDefault() || var.error_clip()) return false;
  const VarUses uses = block.Uses(var.name());
  return !uses.writers.empty() || !uses.readers.empty();
}

class ProgramDiffer {
 public:
  ProgramDiffer(const ProgramDesc& before, const ProgramDesc& after, const OpRegistry& ops)
      : a_(before), b_(after), ops_(ops), names_(before, after) {}

  ProgramDiff Run() {
    blocks_ = BlockMatcher(a_, b_, names_, ops_).Run();
    for (int n = 0; n < names_.Count(); ++n) {
      if (names_.IsBefore(n) && names_.IsAfter(n)) names_.Pair(n, n);
    }
    reported_.assign(Index(names_.Count()), false);
    CompareEnds();
    for (const auto& pair : blocks_.pairs) CompareBlocks(*pair);
    ReportOtherRenames();
    for (int b = 0; b < a_.NumBlocks(); ++b) {
      if (blocks_.after_of[Index(b)] < 0) diff_.blocks.push_back({.before = b, .after = -1});
    }
    for (int b = 0; b < b_.NumBlocks(); ++b) {
      if (blocks_.before_of[Index(b)] < 0) diff_.blocks.push_back({.before = -1, .after = b});
    }
    return std::move(diff_);
  }

 private:
  void CompareBlocks(const BlockPair& pair) {
    const BlockDesc &a = pair.a.block(), &b = pair.b.block();
    BlockDiff diff{.before = a.idx(), .after = b.idx()};
    const auto compare = [&](const char* what, int before, int after) {
      if (sides_.IsSameBlock(before, after)) return;
      const auto text = [](int block) { return block < 0 ? kNone : std::to_string(block); };
      diff.changes.push_back({what, "", text(before), text(after)});
    };
    compare("parent", a.parent_idx(), b.parent_idx());
    compare("forward_block", a.forward_block_idx(), b.forward_block_idx());
    CompareIndex(a, b, &diff);
    CompareVars(pair, &diff);
    CompareOps(pair, &diff);
    if (!diff.changes.empty() || !diff.vars.empty() || !diff.ops.empty())
      diff_.blocks.push_back(std::move(diff));
  }

  // Random ops draw by the index of their block (InnerStep).
  void CompareIndex(const BlockDesc& a, const BlockDesc& b, BlockDiff* diff) {
    if (a.idx() == b.idx()) return;
    if (draws_.empty()) draws_ = DrawingBlocks(a_, ops_);
    if (!draws_[Index(a.idx())]) return;
    diff->changes.push_back({"index", "", std::to_string(a.idx()), std::to_string(b.idx())});
  }
  void CompareEnds() {
    for (const OpKind kind : {OpKind::kFeed, OpKind::kFetch}) {
      const Names before = Ends(a_, kind, ops_), after = Ends(b_, kind, ops_);
      const bool same =
          std::equal(before.begin(), before.end(), after.begin(), after.end(),
                     [&](const auto& x, const auto& y) { return sides_.IsSameName(x, y); });
      if (same) continue;
      diff_.changes.push_back({kind == OpKind::kFeed ? "feeds" : "fetches", "",
                               before.empty() ? kNone : NamesText(before),
                               after.empty() ? kNone : NamesText(after)});
    }
    Compare("random_seed", std::to_string(a_.random_seed), std::to_string(b_.random_seed),
            &diff_.changes);
    Compare("version", VersionText(a_), VersionText(b_), &diff_.changes);
  }
  void CompareVars(const BlockPair& pair, BlockDiff* diff) {
    const BlockDesc &a = pair.a.block(), &b = pair.b.block();
    for (size_t i = 0; i < a.NumVars(); ++i) {
      const VarDesc& var = a.var(i);
      const int n = names_.Number(var.name()), m = names_.AfterOf(n);
      const bool renamed = m >= 0 && m != n && names_.IsRenaming(n, m);
      const VarDesc* other = b.FindVar(renamed ? names_.Text(m) : var.name());
      if (!other) {
        if (!IsOfFeeds(var)) diff->vars.push_back({var.name(), "", IsShownByOps(var, a)});
        continue;
      }
      VarDiff found{var.name(), other->name(), false, ChangesOfVar(var, *other)};
      if (renamed) ReportRename(n, m);
      if (renamed || !found.changes.empty()) diff->vars.push_back(std::move(found));
    }
    for (size_t i = 0; i < b.NumVars(); ++i) {
      const VarDesc& var = b.var(i);
      const int n = names_.Number(var.name()), m = names_.BeforeOf(n);
      const bool renamed = m >= 0 && m != n && names_.IsRenaming(m, n);
      if (!a.FindVar(renamed ? names_.Text(m) : var.name()) && !IsOfFeeds(var))
        diff->vars.push_back({"", var.name(), IsShownByOps(var, b)});
    }
  }
  void ReportRename(int before, int after) {
    reported_[Index(before)] = true;
    diff_.renamed.emplace_back(names_.Text(before), names_.Text(after));
  }
  // Reports renamed variables that no block declares.
  void ReportOtherRenames() {
    BlockDiff diff;
    for (int n = 0; n < names_.Count(); ++n) {
      const int m = names_.AfterOf(n);
      if (m < 0 || m == n || reported_[Index(n)] || !names_.IsRenaming(n, m)) continue;
      ReportRename(n, m);
      diff.vars.push_back({names_.Text(n), names_.Text(m)});
    }
    if (diff.vars.empty()) return;
    if (diff_.blocks.empty() || diff_.blocks[0].before != 0)
      diff_.blocks.insert(diff_.blocks.begin(), BlockDiff());
    auto& vars = diff_.blocks[0].vars;
    vars.insert(vars.end(), diff.vars.begin(), diff.vars.end());
  }

  std::vector<int> Moves(const BlockPair& pair) {
    if (!HasMoves(pair.ops)) return std::vector<int>(pair.ops.after_of.size(), -1);
    if (!outer_before_) outer_before_.emplace(a_, ops_);
    if (!outer_after_) outer_after_.emplace(b_, ops_);
    return FindMoves({pair.a, *outer_before_, true}, {pair.b, *outer_after_, false}, pair.ops,
                     names_, &diff_.reordered);
  }
  void CompareOps(const BlockPair& pair, BlockDiff* diff) {
    const std::vector<int> moved = Moves(pair);
    const std::vector<int>&after_of = pair.ops.after_of, &before_of = pair.ops.before_of;
    int j = 0;
    const auto add_until = [&](int end) {  // ops that only `after` has, before `end`
      for (; j < end; ++j) {
        if (before_of[Index(j)] < 0 && pair.b.Counts(j)) diff->ops.push_back({-1, j});
      }
    };
    for (int i = 0; i < pair.a.NumOps(); ++i) {
      if (!pair.a.Counts(i)) continue;
      if (after_of[Index(i)] < 0) {
        diff->ops.push_back({i, -1});
        continue;
      }
      add_until(after_of[Index(i)]);
      OpDiff op{i, after_of[Index(i)]};
      if (moved[Index(i)] >= 0) op.moved_over = names_.Text(moved[Index(i)]);
      op.changes =
          ChangesOfOp(pair.a.block().op(Index(i)), pair.b.block().op(Index(op.after)), sides_);
      if (!op.changes.empty() || !op.moved_over.empty()) diff->ops.push_back(std::move(op));
    }
    add_until(pair.b.NumOps());
  }

  const ProgramDesc &a_, &b_;
  const OpRegistry& ops_;
  NamePairs names_;
  MatchedBlocks blocks_;
  const DiffSides sides_{names_, blocks_.after_of, ops_};
  std::vector<bool> reported_;  // by name before: the renaming is reported
  std::vector<bool> draws_;     // by block before; empty until it is needed
  std::optional<internal::BlockOuterNames> outer_before_, outer_after_;  // set when ops have moved
  ProgramDiff diff_;
};

}  // namespace

ProgramDiff DiffPrograms(const ProgramDesc& before, const ProgramDesc& after,
                         const OpRegistry& ops) {
  return ProgramDiffer(before, after, ops).Run();
}

}  // namespace coracle
