#include <coracle/edit/edit.h>
#include <coracle/edit/require_var.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/block_order.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/framework/op/kernel/random_draws.h>
#include <coracle/inspect/inspect.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

namespace coracle {
namespace {

using Names = std::vector<std::string>;
using NameSet = std::unordered_set<std::string>;

NameSet DeclaredNames(const ProgramDesc& program) {
  NameSet names;
  for (int b = 0; b < program.NumBlocks(); ++b) {
    const BlockDesc& block = program.Block(b);
    for (size_t i = 0; i < block.NumVars(); ++i) names.insert(block.var(i).name());
  }
  return names;
}

NameSet WrittenNames(const ProgramDesc& program) {
  NameSet names;
  program.ForEachOp([&](const OpDesc& op) {
    if (IsFeed(op)) return;
    op.ForEachOutput([&](const std::string& name) { names.insert(name); });
  });
  return names;
}

std::string Typed(const ProgramDesc& program, const Names& names) {
  Names parts;
  for (const std::string& name : names) {
    const VarDesc* var = program.Root().FindVar(name);
    parts.push_back(Quote(name) + (var ? " " + var->meta().ToString() : ""));
  }
  return parts.empty() ? "none" : Join(parts, ", ");
}

bool Match(const VarMeta& from, const VarMeta& to) {
  return from.type == to.type && from.dtype == to.dtype && from.shape.CompatibleWith(to.shape);
}

// Whether random numbers are drawn in blocks inside functions: each call runs copies of these,
// which follow all blocks. Draws in a function's own block count as draws of the calling block.
bool DrawsInsideFunctions(const ProgramDesc& program, const OpRegistry& ops) {
  std::unordered_set<int> functions;
  program.ForEachOp([&](const OpDesc& op) {
    const OpSpec* spec = ops.Find(op.type());
    if (!spec || !spec->block.replaced) return;
    for (const int block : op.SubBlocks()) {
      if (block > 0 && block < program.NumBlocks()) functions.insert(block);
    }
  });
  bool draws = false;
  std::unordered_set<int> seen = functions;
  for (const int function : functions) {
    program.Block(function).ForEachOp([&](const OpDesc& op) {
      for (const BlockDesc* block : program.BlocksRunBy(op, &seen))
        block->ForEachOp([&](const OpDesc& inner) { draws |= DrawsNumbers(inner, ops); });
    });
  }
  return draws;
}

// Connects each input of the second program to the output of that name; else the outputs to the
// inputs in order, if their types agree.
NamePairs Connect(const ProgramDesc& a, const Names& a_outputs, const ProgramDesc& b,
                  const Names& b_inputs) {
  const NameSet outputs(a_outputs.begin(), a_outputs.end());
  NamePairs pairs;
  for (const std::string& input : b_inputs) {
    if (outputs.count(input)) pairs.emplace_back(input, input);
  }
  if (!pairs.empty() && pairs.size() == b_inputs.size()) return pairs;
  pairs.clear();
  bool match = !b_inputs.empty() && a_outputs.size() == b_inputs.size();
  for (size_t i = 0; match && i < b_inputs.size(); ++i) {
    const VarDesc* from = a.Root().FindVar(a_outputs[i]);
    const VarDesc* to = b.Root().FindVar(b_inputs[i]);
    match = from && to && Match(from->meta(), to->meta());
    pairs.emplace_back(a_outputs[i], b_inputs[i]);
  }
  if (match) return pairs;
  ThrowInvalid(
      "merge: cannot match the outputs of the first program with the inputs of the second by "
      "name, or by order and type; give connections (--connect=OUTPUT:INPUT,...)",
      fmt::format("  outputs of the first: {}\n  inputs of the second: {}", Typed(a, a_outputs),
                  Typed(b, b_inputs)));
}

void CheckConnections(const NamePairs& connections, const ProgramDesc& a, const ProgramDesc& b,
                      const Names& b_inputs) {
  NameSet seen;
  for (const auto& [output, input] : connections) {
    const VarDesc& from = internal::RequireVar(a, output, "merge: the first program");
    const VarDesc& to = internal::RequireVar(b, input, "merge: the second program");
    if (std::find(b_inputs.begin(), b_inputs.end(), input) == b_inputs.end()) {
      ThrowInvalid(fmt::format("merge: {} is not an input of the second program; it has {}",
                               Quote(input), Typed(b, b_inputs)));
    }
    if (!seen.insert(input).second)
      ThrowInvalid(fmt::format("merge: the input {} is connected twice", Quote(input)));
    if (Match(from.meta(), to.meta())) continue;
    ThrowInvalid(
        fmt::format("merge: {} of the first program is {}, and the input {} of the "
                    "second takes {}",
                    Quote(output), from.meta().ToString(), Quote(input), to.meta().ToString()));
  }
}

// Adds the settings of `b`, other than blocks, to `a`. Returns notes for the user.
Names JoinSettings(const ProgramDesc& b, const OpRegistry& ops, ProgramDesc& a) {
  Names notes;
  bool draws = false, inner = false;
  b.ForEachOp([&](const OpDesc& op) {
    if (!DrawsNumbers(op, ops)) return;
    draws = true;
    inner |= op.block()->idx() > 0;
  });
  if (draws && a.random_seed != b.random_seed) {
    notes.push_back(fmt::format(
        "the programs have the random seeds {} and {}; the first is used, so random ops of the "
        "second draw other numbers",
        a.random_seed, b.random_seed));
  }
  if (inner && a.NumBlocks() > 1) {
    notes.push_back(
        "random ops in blocks of the second program draw by the blocks' indices, which changed: "
        "they draw other numbers");
  }
  if (b.NumBlocks() > 1 && DrawsInsideFunctions(a, ops)) {
    notes.push_back(
        "random ops in blocks of the first program's functions draw by the number of blocks, "
        "which changed: they draw other numbers");
  }
  if (!b.op_versions()) return notes;
  ProgramDesc::OpVersions versions = a.op_versions().value_or(ProgramDesc::OpVersions());
  std::map<std::string, int32_t> known(versions.begin(), versions.end());
  for (const auto& entry : *b.op_versions()) {
    if (known.insert(entry).second) versions.push_back(entry);
    if (known.at(entry.first) == entry.second) continue;
    notes.push_back(
        fmt::format("the programs have the versions {} and {} of the op {}; the first is stored",
                    known.at(entry.first), entry.second, Quote(entry.first)));
  }
  a.SetOpVersions(std::move(versions));
  return notes;
}

// Moves the ops of the root block of `b` to that of `a`, and copies its other blocks.
void AppendProgram(ProgramDesc& b, ProgramDesc& a) {
  const int base = a.NumBlocks() - 1, n = b.NumBlocks();
  const auto renumbered = [&](int i) { return i > 0 && i < n ? i + base : i; };
  b.ForEachOp([&](OpDesc& op) { op.RenumberSubBlocks(renumbered); });
  BlockDesc& root = a.Root();
  for (size_t i = 0; i < b.Root().NumVars(); ++i) {
    const VarDesc& var = b.Root().var(i);
    if (!root.FindVar(var.name())) root.AppendVar(var);
  }
  for (auto& op : b.Root().ReleaseOps()) root.AppendOp(std::move(op));
  for (int i = 1; i < n; ++i) {
    const BlockDesc& from = b.Block(i);
    BlockDesc& to = a.AppendBlock(renumbered(from.parent_idx()));
    if (from.forward_block_idx() >= 0) to.SetForwardBlockIdx(renumbered(from.forward_block_idx()));
    CopyContents(from, to);
  }
}

class Merger {
 public:
  Merger(const ProgramDesc& first, const ProgramDesc& second, const OpRegistry& ops,
         const MergeOptions& options)
      : ops_(ops),
        options_(options),
        merged_{first, {}, {}, "", InputNames(first, ops), {}, {}},
        b_(second),
        a_outputs_(OutputNames(first, ops)),
        b_inputs_(InputNames(second, ops)),
        b_outputs_(OutputNames(second, ops)),
        a_fetches_(HasOpOfKind(first.Root(), OpKind::kFetch, ops)) {
    RemoveFeedsAndFetches(a_);
    RemoveFeedsAndFetches(b_);
  }

  MergedProgram Run() {
    merged_.connections = options_.connections.empty() ? Connect(a_, a_outputs_, b_, b_inputs_)
                                                       : options_.connections;
    CheckConnections(merged_.connections, a_, b_, b_inputs_);
    RenameSecond();
    for (std::string& note : JoinSettings(b_, ops_, a_)) merged_.notes.push_back(std::move(note));
    AppendCopies();
    AppendProgram(b_, a_);
    FindEnds();
    SetFeedsAndFetches(a_, merged_.inputs, merged_.outputs);
    VerifyOrThrow(a_, ops_);
    return std::move(merged_);
  }

 private:
  void RenameSecond() {
    const NameSet taken = DeclaredNames(a_), own = DeclaredNames(b_), written = WrittenNames(b_);
    NameSet used_outputs;
    NamePairs pairs;
    for (const auto& [output, input] : merged_.connections) {
      // Copies are needed for an output with two inputs, or for an input that is written.
      if (!written.count(input) && used_outputs.insert(output).second) {
        pairs.emplace_back(input, output);
        replaced_.insert(input);
      }
    }
    Names collide;
    for (const std::string& name : own) {
      if (taken.count(name) && !replaced_.count(name)) collide.push_back(name);
    }
    std::sort(collide.begin(), collide.end());
    if (!collide.empty()) FindPrefix(collide, taken, own);
    for (const std::string& name : collide) pairs.emplace_back(name, merged_.prefix + name);
    const Renamed renamed = RenameVariables(b_, pairs, ops_);
    merged_.renamed = renamed.names;
    to_here_.insert(renamed.names.begin(), renamed.names.end());
    if (!renamed.drawn.empty()) {
      merged_.notes.push_back(fmt::format(
          "random ops of the second program draw by the names of their outputs; {} of these "
          "changed, so they may draw other numbers",
          renamed.drawn.size()));
    }
  }

  void FindPrefix(const Names& collide, const NameSet& taken, const NameSet& own) {
    if (options_.prefix.empty()) {
      throw Error(ErrorCode::kAlreadyExists,
                  fmt::format("merge: both programs have a variable {}; give a prefix",
                              Quote(collide.front())));
    }
    const auto is_taken = [&](const std::string& name) {
      return taken.count(merged_.prefix + name) || own.count(merged_.prefix + name);
    };
    do {
      merged_.prefix += options_.prefix;
    } while (std::any_of(collide.begin(), collide.end(), is_taken));
  }

  const std::string& Here(const std::string& name) const {
    const auto found = to_here_.find(name);
    return found == to_here_.end() ? name : found->second;
  }

  // Appends copies for inputs that cannot be replaced by the output.
  void AppendCopies() {
    for (const auto& [output, input] : merged_.connections) {
      if (replaced_.count(input)) continue;
      const std::string& copy = Here(input);
      a_.Root().AppendVar(*b_.Root().FindVar(copy)).SetNeedCheckFeed(false);
      a_.Root().AppendOp("assign", {{"X", {output}}}, {{"Out", {copy}}},
                         {{kOpRoleAttr, int32_t{kForward}}});
    }
  }

  void FindEnds() {
    NameSet outputs, inputs;
    for (const auto& [output, input] : merged_.connections) {
      outputs.insert(output);
      inputs.insert(input);
    }
    for (const std::string& name : b_inputs_) {
      if (!inputs.count(name)) merged_.inputs.push_back(Here(name));
    }
    for (const std::string& name : a_outputs_) {
      if (a_fetches_ && !outputs.count(name)) merged_.outputs.push_back(name);
    }
    for (const std::string& name : b_outputs_) merged_.outputs.push_back(Here(name));
  }

  const OpRegistry& ops_;
  const MergeOptions& options_;
  MergedProgram merged_;
  ProgramDesc& a_ = merged_.program;
  ProgramDesc b_;
  Names a_outputs_, b_inputs_, b_outputs_;
  bool a_fetches_;
  NameSet replaced_;  // inputs replaced by the connected outputs
  std::unordered_map<std::string, std::string> to_here_;  // names of the second program
};

}  // namespace

MergedProgram MergePrograms(const ProgramDesc& first, const ProgramDesc& second,
                            const OpRegistry& ops, const MergeOptions& options) {
  VerifyOrThrow(first, ops, {.blocks_only = true});
  VerifyOrThrow(second, ops, {.blocks_only = true});
  return Merger(first, second, ops, options).Run();
}

}  // namespace coracle
