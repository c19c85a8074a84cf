#include <coracle/edit/edit.h>
#include <coracle/edit/require_var.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/framework/ir/mismatch.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/outer_names.h>
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

namespace coracle {
namespace {

using Names = std::vector<std::string>;

// Limit for visits of ops, per op of the program, because loops are visited until their
// shapes settle.
constexpr size_t kMaxVisits = 1000;
constexpr int kMaxDepth = 128;  // of nested blocks, as in Verify

// A type that covers the values of both; dimensions that differ are unknown.
VarMeta Merged(const VarMeta& a, const VarMeta& b) {
  VarMeta merged = b;
  if (a.shape.rank() != b.shape.rank()) return merged;
  for (int i = 0; i < a.shape.rank(); ++i) {
    if (a.shape[i] != b.shape[i]) merged.shape[i] = -1;
  }
  return merged;
}

// The place in the words of Verify.
std::string PlaceOf(const OpDesc& op) {
  return fmt::format("block {} op {} ({}): ", op.block()->idx(), op.block()->IndexOf(op),
                     PrintableLine(op.type()));
}

class ShapeInference {
 public:
  ShapeInference(ProgramDesc& program, const OpRegistry& ops)
      : program_(program), ops_(ops), names_(program, ops) {
    size_t size = 0;
    program.ForEachOp([&](const OpDesc&) { ++size; });
    visits_left_ = kMaxVisits * (size + 1);
    visited_.assign(static_cast<size_t>(program.NumBlocks()), false);
  }

  void Run() { VisitBlock(program_.Root(), 0); }

 private:
  // A variable of an outer block that the block writes.
  struct Written {
    VarDesc* var = nullptr;
    VarMeta before;
    bool had_value = false;
  };

  void CountVisit(const OpDesc& op) {
    if (visits_left_-- == 0)
      ThrowInvalid("shape: the shapes in loops do not settle", "  " + Locate(op));
  }

  void VisitBlock(BlockDesc& block, int depth) {
    if (depth > kMaxDepth)
      ThrowInvalid(fmt::format("shape: more than {} sub-blocks are nested", kMaxDepth));
    for (size_t i = 0; i < block.NumOps(); ++i) {
      OpDesc& op = block.op(i);
      const OpSpec& spec = ops_.Get(op.type());
      if (spec.kind != OpKind::kCompute) continue;
      CountVisit(op);
      if (op.HasSubBlock()) VisitSubBlocks(block, op, spec, depth);
      Infer(block, op);
    }
  }

  // Like InferOp, but keeps the declared types of persistable variables.
  void Infer(BlockDesc& block, const OpDesc& op) {
    std::vector<std::pair<VarDesc*, VarMeta>> declared;
    op.ForEachOutput([&](const std::string& name) {
      VarDesc* var = block.FindVarRecursive(name);
      if (!var) return;
      has_value_.insert(var);
      if (var->persistable()) declared.emplace_back(var, var->meta());
    });
    try {
      InferOp(block, op, ops_);
    } catch (const Error& e) {
      throw Error(e.code(), PlaceOf(op) + e.message(), e.details());
    }
    for (const auto& [var, meta] : declared) {
      const VarMeta inferred = var->meta();
      var->SetMeta(meta);
      if (meta.type != VarType::kLoDTensor || inferred.type != VarType::kLoDTensor) continue;
      if (meta.dtype == inferred.dtype && meta.shape.CompatibleWith(inferred.shape)) continue;
      ThrowInvalid(fmt::format("{}the value written to the persistable var {} {}", PlaceOf(op),
                               Quote(var->name()), DescribeMismatch(meta, inferred)),
                   "  " + Locate(op));
    }
  }

  void VisitSubBlocks(BlockDesc& block, const OpDesc& op, const OpSpec& spec, int depth) {
    const std::vector<int> blocks = names_.BlocksOf(op);
    for (int b : blocks) BindInputs(block, op, spec, program_.Block(b));
    const bool repeats = spec.block.runs == BlockRuns::kRepeatedly;
    for (bool settled = false; !settled;) {
      CountVisit(op);
      std::vector<Written> written = WrittenBy(block, op);
      for (int b : blocks) {
        VisitBlock(program_.Block(b), depth + 1);
        visited_[static_cast<size_t>(b)] = true;
      }
      settled = !MergeWritten(written) || !repeats;
      for (int b : blocks) settled = !MergeCarried(op, spec, program_.Block(b)) && settled;
    }
  }

  // Gives the variables that the op sets in its block before it runs the types of their values.
  void BindInputs(BlockDesc& block, const OpDesc& op, const OpSpec& spec, BlockDesc& inner) {
    const auto bind = [&](const std::string& from, const std::string& to, bool step) {
      const VarDesc* given = IsEmptyName(from) ? nullptr : block.FindVarRecursive(from);
      VarDesc* var = inner.FindVar(to);
      if (!given || !var || (step && given->shape().rank() == 0)) return;
      VarMeta meta = given->meta();
      if (step)
        meta.shape = Shape(std::span<const int64_t>(meta.shape.begin() + 1, meta.shape.end()));
      const bool again = visited_[static_cast<size_t>(inner.idx())];
      var->SetMeta(again ? Merged(var->meta(), meta) : meta);
    };
    if (spec.block.runs == BlockRuns::kGradient) return;
    for (const auto& [slot, attr] : spec.block.arguments) {
      const Names& from = op.Input(slot);
      const Names to = op.GetAttr<Names>(attr, {});
      for (size_t i = 0; i < std::min(from.size(), to.size()); ++i) bind(from[i], to[i], false);
    }
    for (const std::string& slot : spec.block.slices) {
      for (const std::string& name : op.Input(slot)) bind(name, name, true);
    }
  }

  std::vector<Written> WrittenBy(BlockDesc& block, const OpDesc& op) {
    std::vector<Written> written;
    std::unordered_set<const VarDesc*> seen;
    names_.ForEachWrite(op, [&](std::string_view name) {
      VarDesc* var = block.FindVarRecursive(name);
      if (!var || var->persistable() || !seen.insert(var).second) return;
      written.push_back({var, var->meta(), has_value_.count(var) > 0});
    });
    return written;
  }

  // Returns whether the type of a variable that had a value before has changed.
  bool MergeWritten(const std::vector<Written>& written) {
    bool changed = false;
    for (const Written& w : written) {
      if (!w.had_value) continue;
      w.var->SetMeta(Merged(w.before, w.var->meta()));
      changed |= !(w.var->meta() == w.before);
    }
    return changed;
  }

  // Merges the types that one run leaves for the next one.
  bool MergeCarried(const OpDesc& op, const OpSpec& spec, BlockDesc& inner) {
    bool changed = false;
    for (const auto& [left_attr, next_attr] : spec.block.carries) {
      const Names left = op.GetAttr<Names>(left_attr, {}), next = op.GetAttr<Names>(next_attr, {});
      for (size_t i = 0; i < std::min(left.size(), next.size()); ++i) {
        const VarDesc* from = inner.FindVarRecursive(left[i]);
        VarDesc* to = inner.FindVar(next[i]);
        if (!to || !from) continue;
        const VarMeta merged = Merged(to->meta(), from->meta());
        changed |= !(merged == to->meta());
        to->SetMeta(merged);
      }
    }
    return changed;
  }

  ProgramDesc& program_;
  const OpRegistry& ops_;
  internal::BlockOuterNames names_;
  size_t visits_left_ = 0;
  std::vector<bool> visited_;                     // by block
  std::unordered_set<const VarDesc*> has_value_;  // written by a visited op
};

void SetShape(ProgramDesc& program, const std::string& name, const Shape& shape) {
  const VarDesc& var = internal::RequireVar(program, name, "shape");
  const char* wrong = nullptr;
  if (var.type() != VarType::kLoDTensor) wrong = "is not a dense tensor";
  if (var.persistable()) wrong = "is persistable: its value determines its shape";
  const BlockDesc& root = program.Root();
  const VarUses uses = root.Uses(name);
  for (const OpDesc* op : uses.writers) {
    if (IsFeed(*op)) break;
    // An op that also reads it updates the fed value in place.
    if (!uses.readers.empty() && root.IndexOf(*uses.readers[0]) <= root.IndexOf(*op)) break;
    ThrowInvalid(
        fmt::format("shape: {} is not an input: block 0 op {} ({}) writes it and determines "
                    "its shape",
                    Quote(name), root.IndexOf(*op), PrintableLine(op->type())));
  }
  if (wrong) ThrowInvalid(fmt::format("shape: {} {}", Quote(name), wrong));
  program.Root().FindVar(name)->SetShape(shape);
}

}  // namespace

void DeclareShapes(ProgramDesc& program, const InputShapes& shapes, const OpRegistry& ops) {
  const EditGuard guard(program);
  VerifyOrThrow(program, ops, {.infer_shapes = false});
  for (const auto& [name, shape] : shapes) SetShape(program, name, shape);
  ShapeInference(program, ops).Run();
  VerifyOrThrow(program, ops);
}

void SetShapes(ProgramDesc& program, const InputShapes& shapes, const OpRegistry& ops) {
  for (const auto& [name, shape] : shapes) {
    const VarDesc* var = program.Root().FindVar(name);
    // Old exports declare the shape at the time of the export.
    if (!var || !var->need_check_feed() || var->shape().CompatibleWith(shape)) continue;
    ThrowInvalid(fmt::format("{} is declared {}, so it cannot be {}", Quote(name),
                             var->meta().ToString(), shape.ToString()));
  }
  DeclareShapes(program, shapes, ops);
}

}  // namespace coracle
