#include <coracle/edit/merge.h>
#include <coracle/edit/require_var.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/block_order.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/framework/op/random_draws.h>
#include <coracle/inspect/program_ends.h>
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
    if (op.type() == "feed") return;
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
    merged_.connections = options_.connections.empty() ? Connect() : options_.connections;
    CheckConnections();
    RenameSecond();
    JoinSettings();
    AppendCopies();
    Append();
    FindEnds();
    SetFeedsAndFetches(a_, merged_.inputs, merged_.outputs);
    VerifyOrThrow(a_, ops_);
    return std::move(merged_);
  }

 private:
  NamePairs Connect() const {
    const NameSet outputs(a_outputs_.begin(), a_outputs_.end());
    NamePairs pairs;
    for (const std::string& input : b_inputs_) {
      if (outputs.count(input)) pairs.emplace_back(input, input);
    }
    if (!pairs.empty() && pairs.size() == b_inputs_.size()) return pairs;
    pairs.clear();
    bool match = !b_inputs_.empty() && a_outputs_.size() == b_inputs_.size();
    for (size_t i = 0; match && i < b_inputs_.size(); ++i) {
      const VarDesc* from = a_.Root().FindVar(a_outputs_[i]);
      const VarDesc* to = b_.Root().FindVar(b_inputs_[i]);
      match = from && to && Match(from->meta(), to->meta());
      pairs.emplace_back(a_outputs_[i], b_inputs_[i]);
    }
    if (match) return pairs;
    ThrowInvalid(
        "merge: cannot match the outputs of the first program with the inputs of the second by "
        "name, or by order and type; give connections (--connect=OUTPUT:INPUT,...)",
        fmt::format("  outputs of the first: {}\n  inputs of the second: {}", Typed(a_, a_outputs_),
                    Typed(b_, b_inputs_)));
  }

  void CheckConnections() const {
    NameSet seen;
    for (const auto& [output, input] : merged_.connections) {
      const VarDesc& from = internal::RequireVar(a_, output, "merge: the first program");
      const VarDesc& to = internal::RequireVar(b_, input, "merge: the second program");
      if (std::find(b_inputs_.begin(), b_inputs_.end(), input) == b_inputs_.end()) {
        ThrowInvalid(fmt::format("merge: {} is not an input of the second program; it has {}",
                                 Quote(input), Typed(b_, b_inputs_)));
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

  // Joins the settings of the programs, other than blocks.
  void JoinSettings() {
    bool draws = false, inner = false;
    b_.ForEachOp([&](const OpDesc& op) {
      if (!DrawsNumbers(op, ops_)) return;
      draws = true;
      inner |= op.block()->idx() > 0;
    });
    if (draws && a_.random_seed != b_.random_seed) {
      merged_.notes.push_back(fmt::format(
          "the programs have the random seeds {} and {}; the first is used, so random ops of the "
          "second draw other numbers",
          a_.random_seed, b_.random_seed));
    }
    if (inner && a_.NumBlocks() > 1) {
      merged_.notes.push_back(
          "random ops in blocks of the second program draw by the blocks' indices, which changed: "
          "they draw other numbers");
    }
    if (b_.NumBlocks() > 1 && DrawsInsideFunctions(a_, ops_)) {
      merged_.notes.push_back(
          "random ops in blocks of the first program's functions draw by the number of blocks, "
          "which changed: they draw other numbers");
    }
    if (!b_.op_versions()) return;
    ProgramDesc::OpVersions versions = a_.op_versions().value_or(ProgramDesc::OpVersions());
    std::map<std::string, int32_t> known(versions.begin(), versions.end());
    for (const auto& entry : *b_.op_versions()) {
      if (known.insert(entry).second) versions.push_back(entry);
      if (known.at(entry.first) == entry.second) continue;
      merged_.notes.push_back(
          fmt::format("the programs have the versions {} and {} of the op {}; the first is stored",
                      known.at(entry.first), entry.second, Quote(entry.first)));
    }
    a_.SetOpVersions(std::move(versions));
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

  void Append() {
    const int base = a_.NumBlocks() - 1, n = b_.NumBlocks();
    const auto renumbered = [&](int b) { return b > 0 && b < n ? b + base : b; };
    b_.ForEachOp([&](OpDesc& op) { op.RenumberSubBlocks(renumbered); });
    BlockDesc& root = a_.Root();
    for (size_t i = 0; i < b_.Root().NumVars(); ++i) {
      const VarDesc& var = b_.Root().var(i);
      if (!root.FindVar(var.name())) root.AppendVar(var);
    }
    for (auto& op : b_.Root().ReleaseOps()) root.AppendOp(std::move(op));
    for (int b = 1; b < n; ++b) {
      const BlockDesc& from = b_.Block(b);
      BlockDesc& to = a_.AppendBlock(renumbered(from.parent_idx()));
      if (from.forward_block_idx() >= 0)
        to.SetForwardBlockIdx(renumbered(from.forward_block_idx()));
      CopyContents(from, to);
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
