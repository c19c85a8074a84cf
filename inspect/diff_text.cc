#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/listing.h>
#include <coracle/inspect/inspect.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace coracle {
namespace {

size_t Index(int i) { return static_cast<size_t>(i); }

std::string ChangeText(const DiffChange& change) {
  const std::string name = change.name.empty() ? "" : " " + change.name;
  const char* why = change.what == "index" ? " (random ops draw by it)" : "";
  return fmt::format("{}{}: {} -> {}{}", change.what, name, change.before, change.after, why);
}

std::string ChangesText(const std::vector<DiffChange>& changes) {
  std::vector<std::string> texts;
  for (const DiffChange& change : changes) texts.push_back(ChangeText(change));
  return Join(texts, "; ");
}

// Counts kinds of differences, for a text such as "2 ops added, 1 removed".
class Counts {
 public:
  explicit Counts(std::string what) : what_(std::move(what)) {}
  void Add(size_t kind) { ++counts_[kind]; }
  std::string Text() const {
    static constexpr const char* kKinds[] = {"added", "removed", "changed", "moved", "renamed"};
    std::string text;
    for (size_t kind = 0; kind < std::size(kKinds); ++kind) {
      const size_t n = counts_[kind];
      if (n == 0) continue;
      const std::string noun = text.empty() ? fmt::format(" {}{}", what_, n == 1 ? "" : "s") : "";
      text += fmt::format("{}{}{} {}", text.empty() ? "" : ", ", n, noun, kKinds[kind]);
    }
    return text;
  }
  enum Kind : size_t { kAdded, kRemoved, kChanged, kMoved, kRenamed };

 private:
  std::string what_;
  size_t counts_[5] = {};
};

std::string SettingsOf(const VarDesc& var) {
  const TrainingAttr& training = var.training();
  std::string text;
  const auto add = [&](const char* what, const std::optional<Setting>& setting) {
    if (setting) text += fmt::format(" {} {}", what, SettingText(*setting));
  };
  if (training.error_clip) add("error_clip", training.error_clip->Save());
  add("regularizer", training.regularizer);
  add("gradient_clip", training.gradient_clip);
  add("initializer", training.initializer);
  return text;
}

std::string OneSidedText(const VarDesc& var) {
  return fmt::format("{} {}{}{}", NameText(var.name()), var.meta().ToString(),
                     var.persistable() ? " persistable" : "", SettingsOf(var));
}

// The first result, as " Out=h".
std::string ResultOf(const OpDesc& op) {
  std::string text;
  op.AnyOutput([&](const std::string& name, const std::string& slot) {
    text = fmt::format(" {}={}", NameText(slot), NameText(name));
    return true;
  });
  return text;
}

// Both values with six digits, or with all digits if the six are equal.
std::pair<std::string, std::string> WorstTexts(const ValueDiff& value) {
  if (!value.text_before.empty() || !value.text_after.empty()) {
    const auto text = [](const std::string& known, const std::optional<int64_t>& integer,
                         double number) {
      if (!known.empty()) return known;
      return integer ? std::to_string(*integer) : fmt::format("{}", number);
    };
    return {text(value.text_before, value.integer_before, value.worst_before),
            text(value.text_after, value.integer_after, value.worst_after)};
  }
  if (value.integer_before && value.integer_after)
    return {std::to_string(*value.integer_before), std::to_string(*value.integer_after)};
  std::string x = fmt::format("{:.6g}", value.worst_before),
              y = fmt::format("{:.6g}", value.worst_after);
  if (x != y) return {x, y};
  x = fmt::format("{}", value.worst_before);
  y = fmt::format("{}", value.worst_after);
  return {x, x == y ? y + " (other bits)" : y};
}

class TextWriter {
 public:
  TextWriter(const ProgramDiff& diff, const ProgramDesc& before, const ProgramDesc& after,
             const OpRegistry& ops)
      : diff_(diff), a_(before), b_(after), print_(ShortListing(ops)) {}

  std::string Run(const std::vector<ValueDiff>& values) {
    if (!diff_.changes.empty()) text_ += "program\n";
    for (const DiffChange& change : diff_.changes) Line('~', ChangeText(change));
    for (const BlockDiff& block : diff_.blocks) AddBlock(block);
    if (!values.empty()) text_ += "values\n";
    for (const ValueDiff& value : values) AddValue(value);
    return std::move(text_);
  }

 private:
  void Line(char mark, const std::string& text) { text_ += fmt::format("  {} {}\n", mark, text); }

  void AddBlock(const BlockDiff& block) {
    if (block.before < 0 || block.after < 0) {
      const BlockDesc& own = block.before < 0 ? b_.Block(block.after) : a_.Block(block.before);
      text_ += fmt::format("{} block {} ({} ops)\n", block.before < 0 ? '+' : '-', own.idx(),
                           own.NumOps());
      return;
    }
    text_ += block.before == block.after
                 ? fmt::format("block {}\n", block.before)
                 : fmt::format("block {} -> {}\n", block.before, block.after);
    for (const DiffChange& change : block.changes) Line('~', ChangeText(change));
    AddVars(block);
    for (const bool added : {false, true}) AddOneSided(block, added);
    for (const OpDiff& op : block.ops) AddOp(block, op);
  }

  // Puts variables with the same changes on one line.
  void AddVars(const BlockDiff& block) {
    std::map<std::string, size_t> place_of;
    std::vector<std::pair<std::string, std::vector<std::string>>> lines;  // changes, names
    for (const VarDiff& var : block.vars) {
      if (var.before.empty() || var.after.empty()) continue;
      std::string name = NameText(var.before);
      if (var.before != var.after) name += " -> " + NameText(var.after);
      const std::string changes = var.changes.empty() ? "renamed" : ChangesText(var.changes);
      const auto [place, added] = place_of.try_emplace(changes, lines.size());
      if (added) lines.emplace_back(changes, std::vector<std::string>());
      lines[place->second].second.push_back(std::move(name));
    }
    for (const auto& [changes, names] : lines) AddVarLine(changes, names);
  }
  void AddVarLine(const std::string& changes, const std::vector<std::string>& names) {
    constexpr size_t kShown = 4;
    const auto end = names.begin() + static_cast<ptrdiff_t>(std::min(names.size(), kShown));
    // Each renaming has its own line.
    if (changes == "renamed") {
      for (const std::string& name : names) Line('~', fmt::format("var {}", name));
      return;
    }
    const std::string more =
        names.size() > kShown ? fmt::format(" and {} more", names.size() - kShown) : "";
    Line('~', fmt::format("var{} {}{}: {}", names.size() == 1 ? "" : "s",
                          Join({names.begin(), end}, ", "), more, changes));
  }
  // Puts many variables (such as folded parameters) on one line.
  void AddOneSided(const BlockDiff& block, bool added) {
    constexpr size_t kMost = 8, kShown = 4;
    std::vector<std::string> texts;
    for (const VarDiff& diff : block.vars) {
      if (diff.told_by_ops || (added ? !diff.before.empty() : !diff.after.empty())) continue;
      const BlockDesc& own = added ? b_.Block(block.after) : a_.Block(block.before);
      texts.push_back(OneSidedText(*own.FindVar(added ? diff.after : diff.before)));
    }
    const char mark = added ? '+' : '-';
    if (texts.size() > kMost) {
      const std::string more = fmt::format("and {} more", texts.size() - kShown);
      texts.resize(kShown);
      return Line(mark, fmt::format("vars {}, {}", Join(texts, ", "), more));
    }
    for (const std::string& text : texts) Line(mark, "var " + text);
  }

  void AddOp(const BlockDiff& block, const OpDiff& diff) {
    if (diff.before < 0 || diff.after < 0) {
      const bool added = diff.before < 0;
      const int place = added ? diff.after : diff.before;
      const OpDesc& op =
          added ? b_.Block(block.after).op(Index(place)) : a_.Block(block.before).op(Index(place));
      Line(added ? '+' : '-', fmt::format("op {}  {}", place, PrintOp(op, print_)));
      return;
    }
    const std::string place = diff.before == diff.after
                                  ? std::to_string(diff.before)
                                  : fmt::format("{} -> {}", diff.before, diff.after);
    const OpDesc& op = b_.Block(block.after).op(Index(diff.after));
    std::string head = fmt::format("op {}  {}{}", place, NameText(op.type()), ResultOf(op));
    if (!diff.moved_over.empty())
      head += fmt::format("  moved: ops see another value of {}", NameText(diff.moved_over));
    if (diff.changes.size() == 1) {
      Line('~', head + "  " + ChangeText(diff.changes[0]));
      return;
    }
    Line('~', head);
    for (const DiffChange& change : diff.changes) text_ += "      " + ChangeText(change) + "\n";
  }

  void AddValue(const ValueDiff& value) {
    std::string name = NameText(value.before);
    if (value.before != value.after) name += " -> " + NameText(value.after);
    if (!value.problem.empty()) return Line('~', fmt::format("{}  {}", name, value.problem));
    const auto [x, y] = WorstTexts(value);
    Line('~',
         fmt::format("{}  {} of {} elements differ, most by {:.6g} at [{}]: {} -> {}", name,
                     value.different, value.elements, value.max_difference, Place(value), x, y));
  }
  // The position of the worst element, as "1, 0".
  std::string Place(const ValueDiff& value) const {
    const VarDesc* var = b_.Root().FindVar(value.after);
    if (!var || !var->shape().IsKnown() || var->shape().numel() != value.elements)
      return std::to_string(value.worst);
    std::vector<std::string> indices;
    int64_t rest = value.worst;
    for (int axis = var->shape().rank(); axis-- > 0;) {
      indices.insert(indices.begin(), std::to_string(rest % var->shape()[axis]));
      rest /= var->shape()[axis];
    }
    return Join(indices, ", ");
  }

  const ProgramDiff& diff_;
  const ProgramDesc &a_, &b_;
  PrintOptions print_;
  std::string text_;
};

}  // namespace

std::string DiffSummary(const ProgramDiff& diff) {
  Counts ops("op"), vars("variable"), blocks("block");
  for (const BlockDiff& block : diff.blocks) {
    if (block.before < 0 || block.after < 0)
      blocks.Add(block.before < 0 ? Counts::kAdded : Counts::kRemoved);
    else if (!block.changes.empty())
      blocks.Add(Counts::kChanged);
    for (const OpDiff& op : block.ops) {
      if (op.before < 0 || op.after < 0)
        ops.Add(op.before < 0 ? Counts::kAdded : Counts::kRemoved);
      else
        ops.Add(op.changes.empty() ? Counts::kMoved : Counts::kChanged);
    }
    for (const VarDiff& var : block.vars) {
      if (var.before.empty() || var.after.empty()) {
        if (!var.told_by_ops) vars.Add(var.before.empty() ? Counts::kAdded : Counts::kRemoved);
      } else {
        vars.Add(var.changes.empty() ? Counts::kRenamed : Counts::kChanged);
      }
    }
  }
  std::vector<std::string> parts;
  for (const std::string& part : {ops.Text(), vars.Text(), blocks.Text()}) {
    if (!part.empty()) parts.push_back(part);
  }
  if (!diff.changes.empty() && parts.empty()) parts.push_back(ChangesText(diff.changes));
  return Join(parts, "; ");
}

std::string DiffText(const ProgramDiff& diff, const ProgramDesc& before, const ProgramDesc& after,
                     const OpRegistry& ops, const std::vector<ValueDiff>& values) {
  std::string text = TextWriter(diff, before, after, ops).Run(values);
  std::vector<std::string> ends;
  if (!diff.blocks.empty()) ends.push_back(DiffSummary(diff));
  if (!values.empty())
    ends.push_back(fmt::format("values of {} variable{} differ", values.size(),
                               values.size() == 1 ? "" : "s"));
  if (!ends.empty()) text += Join(ends, "; ") + "\n";
  return text;
}

std::string FirstDifference(const ProgramDesc& before, const ProgramDesc& after,
                            const OpRegistry& ops) {
  ProgramDiff diff = DiffPrograms(before, after, ops);
  std::erase_if(diff.changes, [](const DiffChange& change) {
    return change.what == "random_seed" || change.what == "version";
  });
  if (diff.empty()) return "";
  const std::vector<std::string> lines = Split(DiffText(diff, before, after, ops), '\n');
  static const std::pair<const char*, const char*> kMarks[] = {
      {"  ~ ", ""}, {"  + ", "new: "}, {"  - ", "gone: "}, {"+ ", "new: "}, {"- ", "gone: "}};
  for (const std::string& line : lines) {
    for (const auto& [mark, word] : kMarks) {
      if (line.starts_with(mark)) return word + line.substr(std::string(mark).size());
    }
  }
  return DiffSummary(diff);
}

}  // namespace coracle
