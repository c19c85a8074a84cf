#include <coracle/backward/backward.h>
#include <coracle/edit/edit.h>
#include <coracle/edit/require_var.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/block_order.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/framework/op/check/name_attrs.h>
#include <coracle/framework/op/kernel/random_draws.h>
#include <coracle/framework/op/outer_names.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

namespace coracle {
namespace {

using Names = std::vector<std::string>;
using NameSet = std::unordered_set<std::string_view>;

constexpr int kFetched = -1;  // instead of the position of a reading op

bool IsFeedOrFetch(const OpDesc& op) { return IsFeed(op) || IsFetch(op); }

// For each op that is kept: the variable for which it is, and the op that reads it.
using Reasons = std::vector<std::pair<std::string_view, int>>;

// "block 0 op 3 (conv2d)".
std::string PlaceOf(const BlockDesc& root, int at) {
  const OpDesc& op = root.op(static_cast<size_t>(at));
  return fmt::format("block 0 op {} ({})", at, PrintableLine(op.type()));
}

// Describes the path from the variable to an output, with a line for each op: "'x' -> op 3
// (conv2d) -> 'y' -> ...". A long path shows only its first and last lines.
std::string PathOf(const BlockDesc& root, const Reasons& reasons, std::string_view name,
                   int reader) {
  constexpr size_t kFirst = 8, kLast = 2;
  Names lines;
  while (reader != kFetched) {
    const auto& [next, next_reader] = reasons[static_cast<size_t>(reader)];
    lines.push_back(
        fmt::format("  {} -> {} -> {}\n", Quote(name), PlaceOf(root, reader), Quote(next)));
    name = next;
    reader = next_reader;
  }
  std::string text = "the path to the output:\n";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i == kFirst && lines.size() > kFirst + kLast) {
      text += fmt::format("  ... {} more ops\n", lines.size() - kFirst - kLast);
      i = lines.size() - kLast;
    }
    text += lines[i];
  }
  text.pop_back();
  return text;
}

[[noreturn]] void ThrowWritesInput(const BlockDesc& root, const Reasons& reasons,
                                   std::string_view name, int at) {
  const auto& [needed, reader] = reasons[static_cast<size_t>(at)];
  ThrowInvalid(fmt::format("extract: {} cannot be an input: {}, which the outputs depend on for "
                           "{}, writes it",
                           Quote(name), PlaceOf(root, at), Quote(needed)),
               PathOf(root, reasons, needed, reader));
}

// Selects the ops of the root block that the outputs depend on, from the last op to the first.
class Slice {
 public:
  Slice(const ProgramDesc& program, const ExtractOptions& options, const OpRegistry& ops)
      : root_(program.Root()),
        names_(program, ops),
        own_feeds_(FeedNames(program)),
        fed_(own_feeds_.begin(), own_feeds_.end()),
        kept_(root_.NumOps(), false),
        reasons_(root_.NumOps()) {
    for (const std::string& name : options.inputs) inputs_.emplace(name, Input());
    default_inputs_ = options.inputs.empty();
    FindUsesOfInputs();
    for (const std::string& name : options.outputs) AddNeed(name, kFetched);
    for (size_t i = root_.NumOps(); i-- > 0;) Visit(static_cast<int>(i));
    SettleInputs(options);
  }

  const std::vector<bool>& kept() const { return kept_; }
  const Names& inputs() const { return settled_; }
  const Names& unused() const { return unused_; }

 private:
  // A requested input, with positions of ops; -1: none.
  struct Input {
    int first_read = -1, first_write = -1, last_write = -1;
    bool computed = false;  // it means the last value, not the value before the first op
    bool used = false;
  };
  // A variable whose value at this point a later op reads.
  struct Need {
    int reader = kFetched;
    bool perhaps = false;  // an op between here and the reader may have written it
  };

  void FindUsesOfInputs() {
    if (default_inputs_) return;
    for (size_t i = 0; i < root_.NumOps(); ++i) {
      const OpDesc& op = root_.op(i);
      if (IsFeedOrFetch(op)) continue;
      const int at = static_cast<int>(i);
      names_.ForEachRead(op, [&](std::string_view name) {
        Input* input = InputOf(name);
        if (input && input->first_read < 0) input->first_read = at;
      });
      names_.ForEachWrite(op, [&](std::string_view name) {
        Input* input = InputOf(name);
        if (!input) return;
        if (input->first_write < 0) input->first_write = at;
        input->last_write = at;
      });
    }
    for (auto& [name, input] : inputs_) {
      const bool read_first = input.first_read >= 0 && input.first_read <= input.first_write;
      input.computed = input.first_write >= 0 && !read_first && !fed_.count(name) &&
                       !root_.FindVar(name)->persistable();
    }
  }

  Input* InputOf(std::string_view name) {
    const auto found = inputs_.find(name);
    return found == inputs_.end() ? nullptr : &found->second;
  }

  void AddNeed(std::string_view name, int reader, bool perhaps = false) {
    Input* input = InputOf(name);
    if (input) input->used = true;
    if (input && input->computed) {
      if (reader > input->last_write) return;
      if (perhaps) return;
      ThrowEarlierValue(name, *input, reader);
    }
    const auto [it, added] = needs_.try_emplace(name, Need{reader, perhaps});
    if (!added && it->second.perhaps && !perhaps) it->second = {reader, false};
  }

  void Visit(int at) {
    const OpDesc& op = root_.op(static_cast<size_t>(at));
    if (IsFeedOrFetch(op)) return;
    std::optional<std::pair<std::string_view, int>> reason;
    names_.ForEachWrite(op, [&](std::string_view name) {
      const auto need = needs_.find(name);
      if (need == needs_.end()) return;
      if (!reason) reason.emplace(name, need->second.reader);
      need->second.perhaps = true;
    });
    if (!reason) return;
    kept_[static_cast<size_t>(at)] = true;
    reasons_[static_cast<size_t>(at)] = *reason;
    names_.ForEachWrite(op, [&](std::string_view name) {
      const Input* input = InputOf(name);
      if (input && input->computed) ThrowWritesInput(root_, reasons_, name, at);
    });
    op.ForEachOutput([&](const std::string& name, const std::string& slot) {
      if (names_.Overwrites(op, slot, name)) needs_.erase(name);
      if (names_.KeepsOutput(op, slot)) AddNeed(name, at, true);
    });
    names_.ForEachRead(op, [&](std::string_view name) { AddNeed(name, at); });
  }

  // Checks the variables still needed before the first op: parameters, inputs, or missing ones.
  void SettleInputs(const ExtractOptions& options) {
    Names left;
    for (size_t i = 0; i < root_.NumVars(); ++i) {
      const VarDesc& var = root_.var(i);
      const auto need = needs_.find(var.name());
      if (need == needs_.end() || InputOf(var.name())) continue;
      if (var.persistable() || var.type() != VarType::kLoDTensor) continue;
      if (need->second.reader == kFetched && !need->second.perhaps)
        ThrowInvalid(fmt::format("extract: no op computes the output {}", Quote(var.name())));
      // With feed ops, only they give variables a value before the first op.
      const bool given = own_feeds_.empty() ? !need->second.perhaps : fed_.count(var.name()) > 0;
      if (given) left.push_back(var.name());
    }
    if (!default_inputs_) {
      if (!left.empty()) ThrowMissing(left);
      settled_ = options.inputs;
      for (const std::string& name : options.inputs) {
        if (!InputOf(name)->used) unused_.push_back(name);
      }
      return;
    }
    const std::unordered_set<std::string> reads(left.begin(), left.end());
    for (const std::string& name : own_feeds_.empty() ? left : own_feeds_) {
      if (reads.count(name)) settled_.push_back(name);
    }
  }

  [[noreturn]] void ThrowMissing(const Names& missing) const {
    const std::string& name = missing.front();
    const int reader = needs_.at(name).reader;
    const std::string more =
        missing.size() == 1 ? "" : fmt::format(" (and {} more variables)", missing.size() - 1);
    const std::string read =
        reader == kFetched ? "is an output" : "is read by " + PlaceOf(root_, reader);
    ThrowInvalid(
        fmt::format(
            "extract: {}{} is missing among the inputs: no op computes it, and it {}; add it to "
            "the inputs",
            Quote(name), more, read),
        PathOf(root_, reasons_, name, reader));
  }

  [[noreturn]] void ThrowEarlierValue(std::string_view name, const Input& input, int reader) const {
    ThrowInvalid(fmt::format("extract: the input {} means its value after {}, but {}, which the "
                             "outputs depend on, reads it before; cut at another variable",
                             Quote(name), PlaceOf(root_, input.last_write), PlaceOf(root_, reader)),
                 PathOf(root_, reasons_, name, reader));
  }

  const BlockDesc& root_;
  internal::BlockOuterNames names_;
  Names own_feeds_;
  std::unordered_set<std::string_view> fed_;
  bool default_inputs_ = false;
  std::unordered_map<std::string_view, Input> inputs_;
  std::unordered_map<std::string_view, Need> needs_;
  std::vector<bool> kept_;
  Reasons reasons_;
  Names settled_, unused_;
};

// Marks the blocks that the kept ops run, the blocks around them and their forward blocks.
std::vector<bool> UsedBlocks(const ProgramDesc& program, const std::vector<bool>& kept) {
  std::unordered_set<int> seen;
  std::vector<const BlockDesc*> queue;
  for (const OpDesc* op : program.Root().SubBlockOps()) {
    if (!kept[program.Root().IndexOf(*op)]) continue;
    const auto found = program.BlocksRunBy(*op, &seen);
    queue.insert(queue.end(), found.begin(), found.end());
  }
  for (size_t i = 0; i < queue.size(); ++i) {
    for (const BlockDesc* other : {queue[i]->parent(), queue[i]->forward_block()}) {
      if (!other || other->idx() == 0 || !seen.insert(other->idx()).second) continue;
      queue.push_back(other);
      other->ForEachOp([&](const OpDesc& op) {
        const auto found = program.BlocksRunBy(op, &seen);
        queue.insert(queue.end(), found.begin(), found.end());
      });
    }
  }
  std::vector<bool> used(static_cast<size_t>(program.NumBlocks()), false);
  used[0] = true;
  for (const BlockDesc* block : queue) used[static_cast<size_t>(block->idx())] = true;
  return used;
}

// The number of blocks whose indices matter: up to the last used block that draws random numbers
// (InnerStep). Calls draw in copies of their functions' blocks, which follow all blocks.
size_t NumberedBlocks(const ProgramDesc& program, const std::vector<bool>& used,
                      const OpRegistry& ops) {
  size_t last = 0;
  bool calls = false;
  program.ForEachOp([&](const OpDesc& op) {
    const auto block = static_cast<size_t>(op.block()->idx());
    const OpSpec* spec = ops.Find(op.type());
    calls |= spec && spec->block.replaced;
    if (used[block] && (!spec || DrawsNumbers(op, ops))) last = std::max(last, block);
  });
  return last > 0 && calls ? used.size() : last;
}

void RemoveBlocks(ProgramDesc& program, const std::vector<bool>& used, const OpRegistry& ops) {
  const size_t numbered = NumberedBlocks(program, used, ops);
  std::vector<int> order;
  for (size_t b = 0; b < used.size(); ++b) {
    if (used[b])
      order.push_back(static_cast<int>(b));
    else if (b < numbered)
      order.push_back(kEmptyBlock);
  }
  if (std::find(used.begin(), used.end(), false) != used.end()) ReorderBlocks(program, order);
}

void RemoveUnusedVars(ProgramDesc& program, const Names& inputs, const Names& outputs) {
  NameSet used(inputs.begin(), inputs.end());
  used.insert(outputs.begin(), outputs.end());
  program.ForEachOp([&](const OpDesc& op) {
    const auto add = [&](const std::string& name) { used.insert(name); };
    op.ForEachInput(add);
    op.ForEachOutput(add);
    ForEachVarAttr(op, add);
  });
  program.Root().RemoveVarsIf([&](const VarDesc& var) { return used.count(var.name()) == 0; });
}

void RequireDistinct(const Names& names, const char* what) {
  NameSet seen;
  for (const std::string& name : names) {
    if (!seen.insert(name).second)
      ThrowInvalid(fmt::format("extract: {} {} is named twice", what, Quote(name)));
  }
}

void CheckOptions(const ProgramDesc& program, const ExtractOptions& options) {
  if (options.outputs.empty()) ThrowInvalid("extract: no output is named");
  RequireDistinct(options.inputs, "input");
  RequireDistinct(options.outputs, "output");
  for (const std::string& name : options.inputs) {
    const VarDesc& var = internal::RequireVar(program, name, "extract: inputs");
    if (var.type() == VarType::kLoDTensor) continue;
    ThrowInvalid(fmt::format("extract: the input {} is {}; only dense tensors can be fed",
                             Quote(name), var.meta().ToString()));
  }
  for (const std::string& name : options.outputs) {
    const VarDesc& var = internal::RequireVar(program, name, "extract: outputs");
    if (std::find(options.inputs.begin(), options.inputs.end(), name) != options.inputs.end())
      ThrowInvalid(fmt::format("extract: {} is an input and an output", Quote(name)));
    if (var.type() == VarType::kLoDTensor || var.type() == VarType::kSelectedRows) continue;
    ThrowInvalid(fmt::format("extract: the output {} is {}, which cannot be fetched", Quote(name),
                             var.meta().ToString()));
  }
}

}  // namespace

ExtractedProgram ExtractProgram(const ProgramDesc& program, const ExtractOptions& options,
                                const OpRegistry& ops) {
  VerifyOrThrow(program, ops, {.blocks_only = true});
  CheckOptions(program, options);
  const Slice slice(program, options, ops);
  ExtractedProgram part{program, slice.inputs(), {}, slice.unused()};
  BlockDesc& root = part.program.Root();
  RemoveBlocks(part.program, UsedBlocks(program, slice.kept()), ops);
  size_t at = 0;
  root.RemoveOpsIf([&](const OpDesc&) { return !slice.kept()[at++]; });
  RemoveUnusedVars(part.program, part.inputs, options.outputs);
  for (const std::string& name : part.inputs) {
    VarDesc& var = *root.FindVar(name);
    if (var.persistable()) var.SetPersistable(false);
    if (var.is_parameter()) var.SetIsParameter(false);
  }
  part.outputs = DenseNames(root, options.outputs, ops);
  SetFeedsAndFetches(part.program, part.inputs, part.outputs);
  return part;
}

}  // namespace coracle
