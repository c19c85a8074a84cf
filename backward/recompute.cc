#include <coracle/backward/backward.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/ir/file_fields.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/ir/role.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/recomputed.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace coracle {
namespace {

constexpr int kNone = -1;

size_t Index(int i) { return static_cast<size_t>(i); }

// The value of a variable between two writes.
struct Value {
  std::string_view name;
  int producer = kNone;     // forward op; kNone: the value exists before
  int overwriter = kNone;   // op of the block, forward or gradient
  int last_reader = kNone;  // forward op
  int readers = 0;          // forward ops
  int first_use = kNone;    // gradient op that reads it
  bool fixed = false;       // cannot be computed again
  bool checkpoint = false;
  bool needed = false;  // will be computed again
  uint64_t bytes = 0;
};

// The values of the forward ops, and the ones that the gradient ops read.
class Activations {
 public:
  struct Node {
    std::vector<int> inputs, outputs;  // indices into values, slot by slot
    bool repeatable = false;
    bool elementwise = false;
    int follows = kNone;  // the op whose segment it joins, wherever the cuts are
  };
  struct GradientRead {
    int op;
    int value;
  };

  Activations(BlockDesc& block, size_t first_gradient, const OpRegistry& ops, int64_t batch_size)
      : block_(block), ops_(ops), batch_size_(std::max<int64_t>(1, batch_size)) {
    for (size_t i = 0; i < first_gradient; ++i) AddForward(static_cast<int>(i), block.op(i));
    for (size_t i = first_gradient; i < block.NumOps(); ++i)
      AddGradient(static_cast<int>(i), block.op(i));
    for (Node& node : nodes) Attach(node);
  }

  std::vector<Value> values;
  std::vector<Node> nodes;  // by forward op
  std::vector<GradientRead> reads;

  // The value of a variable after the last forward op; kNone for an unknown variable.
  int Last(std::string_view name) const {
    auto it = last_.find(name);
    return it == last_.end() ? kNone : it->second;
  }

 private:
  int Read(std::string_view name) {
    auto [it, added] = last_.try_emplace(name, static_cast<int>(values.size()));
    if (added) AddValue(it->first, kNone);
    return it->second;
  }

  int AddValue(std::string_view name, int producer) {
    Value value;
    value.name = name;
    value.producer = producer;
    const VarDesc* var = block_.FindVarRecursive(name);
    value.fixed = producer == kNone || !var || var->persistable() || !IsDense(name);
    if (var && var->type() == VarType::kLoDTensor) {
      value.bytes = SizeOf(var->dtype());
      for (int64_t dim : var->shape())
        value.bytes *= static_cast<uint64_t>(dim < 0 ? batch_size_ : dim);
    }
    values.push_back(value);
    return static_cast<int>(values.size()) - 1;
  }

  bool IsDense(std::string_view name) const {
    const VarDesc* var = block_.FindVarRecursive(name);
    return var && var->type() == VarType::kLoDTensor;
  }

  int Write(std::string_view name, int op) {
    auto it = last_.find(name);
    if (it == last_.end()) return last_[name] = AddValue(name, op);
    values[Index(it->second)].overwriter = op;
    return it->second = AddValue(it->first, op);
  }

  bool IsRepeatable(const OpSpec& def, const OpDesc& op) const {
    if (def.side_effect || def.kind != OpKind::kCompute || op.HasSubBlock()) return false;
    if (IsUpdate(op)) return false;
    auto other = [&](const std::string& name) { return !IsDense(name); };
    return !op.AnyInput(other) && !op.AnyOutput(other);
  }

  void AddForward(int i, const OpDesc& op) {
    Node node;
    const OpSpec* def = ops_.Find(op.type());
    node.repeatable = def && IsRepeatable(*def, op);
    node.elementwise = def && def->elementwise;
    auto read = [&](std::string_view name) {
      const int v = Read(name);
      values[Index(v)].readers += values[Index(v)].last_reader != i;
      values[Index(v)].last_reader = i;
      return v;
    };
    op.ForEachInput([&](const std::string& name) { node.inputs.push_back(read(name)); });
    ForEachOpInside(op, [&](const OpDesc& inner) {
      inner.ForEachInput([&](const std::string& name) {
        if (block_.FindVarRecursive(name)) read(name);
      });
      inner.ForEachOutput([&](const std::string& name) {
        if (block_.FindVarRecursive(name)) values[Index(Write(name, i))].fixed = true;
      });
    });
    op.ForEachOutput([&](const std::string& name) {
      const int v = Write(name, i);
      node.outputs.push_back(v);
      if (!node.repeatable) values[Index(v)].fixed = true;
    });
    nodes.push_back(std::move(node));
  }

  // Calls f for each op of the blocks that an op runs.
  template <class F>
  void ForEachOpInside(const OpDesc& op, F f) const {
    const ProgramDesc& program = block_.program();
    for (const BlockDesc* inner : program.BlocksRunBy(op)) inner->ForEachOp(f);
  }

  void AddGradient(int i, const OpDesc& op) {
    op.ForEachInput([&](const std::string& name) {
      const int v = Last(name);
      if (v < 0) return;
      reads.push_back({i, v});
      if (values[Index(v)].first_use < 0) values[Index(v)].first_use = i;
    });
    auto overwrite = [&](const std::string& name) {
      auto it = last_.find(name);
      if (it == last_.end()) return;
      values[Index(it->second)].overwriter = i;
      last_.erase(it);
    };
    auto fix = [&](const std::string& name) {
      const int v = Last(name);
      if (v >= 0) values[Index(v)].fixed = true;
    };
    ForEachOpInside(op, [&](const OpDesc& inner) {
      inner.ForEachInput(fix);
      inner.ForEachOutput(fix);
      inner.ForEachOutput(overwrite);
    });
    op.ForEachOutput(overwrite);
  }

  // An elementwise op belongs to the segment of the op whose output it reads if it is the only
  // reader of that output, no gradient op reads it, and its own result has the same size (adding a
  // bias). Keeping the result then costs no more memory and avoids recomputing the op; and passes
  // may fuse the two.
  void Attach(Node& node) const {
    if (!node.repeatable || !node.elementwise || node.outputs.size() != 1) return;
    int source = kNone, sources = 0;
    for (int v : node.inputs) {
      if (values[Index(v)].fixed) continue;
      source = v;
      ++sources;
    }
    if (sources != 1) return;
    const Value& value = values[Index(source)];
    if (value.readers == 1 && value.first_use < 0 &&
        value.bytes == values[Index(node.outputs[0])].bytes) {
      node.follows = value.producer;
    }
  }

  BlockDesc& block_;
  const OpRegistry& ops_;
  int64_t batch_size_;
  std::unordered_map<std::string_view, int> last_;
};

// The forward ops after which the program is cut, in order.
using Cuts = std::vector<int>;

// The segment of each forward op: the number of cuts before it, or before the op that it follows.
class Segments {
 public:
  Segments(const Activations& graph, const Cuts& cuts)
      : of_(graph.nodes.size() + 1, 0), count_(cuts.size() + 1) {
    for (int cut : cuts) ++of_[Index(cut) + 1];
    for (size_t i = 1; i < of_.size(); ++i) of_[i] += of_[i - 1];
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      if (graph.nodes[i].follows >= 0) of_[i] = of_[Index(graph.nodes[i].follows)];
    }
  }

  size_t count() const { return count_; }
  size_t Of(int op) const { return of_[Index(op)]; }
  // Whether an op of another segment reads the value. Checking the last reader suffices, since an
  // op that was moved to another segment (Node::follows) is the only reader of its input.
  bool Crosses(const Value& v) const {
    return v.last_reader >= 0 && Of(v.last_reader) != Of(v.producer);
  }
  bool IsKept(const Value& v) const {
    return v.fixed || v.checkpoint || Of(v.producer) + 1 == count_ || Crosses(v);
  }

 private:
  std::vector<size_t> of_;
  size_t count_;
};

// Chooses cuts for a budget. The estimated memory that gradients need is the size of all kept
// values plus the largest segment, since segments are recomputed one at a time.
class CutChooser {
 public:
  explicit CutChooser(const Activations& graph) : graph_(graph) {
    const size_t n = graph.nodes.size();
    made_.assign(n + 1, 0);
    std::vector<int64_t> change(n + 1, 0);
    for (const Value& v : graph.values) {
      if (v.fixed) continue;
      if (v.first_use >= 0) made_[Index(v.producer) + 1] += v.bytes;
      if (v.last_reader > v.producer) {
        change[Index(v.producer)] += static_cast<int64_t>(v.bytes);
        change[Index(v.last_reader)] -= static_cast<int64_t>(v.bytes);
      }
    }
    for (size_t i = 0; i < n; ++i) made_[i + 1] += made_[i];
    crossing_.assign(n, 0);
    int64_t live = 0;
    for (size_t i = 0; i < n; ++i) crossing_[i] = static_cast<uint64_t>(live += change[i]);
  }

  // Total bytes of the values that gradients read.
  uint64_t Total() const { return made_.back(); }

  uint64_t Estimate(const Cuts& cuts) const {
    const Segments segments(graph_, cuts);
    uint64_t kept = 0;
    std::vector<uint64_t> own(segments.count(), 0);
    for (const Value& v : graph_.values) {
      if (v.fixed) continue;
      if (v.checkpoint || segments.Crosses(v))
        kept += v.bytes;
      else if (v.first_use >= 0)
        own[segments.Of(v.producer)] += v.bytes;
    }
    return kept + *std::max_element(own.begin(), own.end());
  }

  // The cuts within the budget that recompute the fewest bytes; if none fit, the cuts with the
  // smallest estimate.
  Cuts Choose(uint64_t budget) const {
    Cuts best;
    uint64_t best_estimate = Total(), best_cost = 0;
    if (best_estimate <= budget) return best;
    auto consider = [&](const Cuts& cuts) {
      const uint64_t estimate = Estimate(cuts);
      const uint64_t cost = cuts.empty() ? 0 : made_[Index(cuts.back()) + 1];
      const bool fits = estimate <= budget, best_fits = best_estimate <= budget;
      const bool better = fits != best_fits ? fits
                          : fits            ? cost < best_cost
                                            : estimate < best_estimate;
      if (better) best = cuts, best_estimate = estimate, best_cost = cost;
      return fits;
    };
    for (double size = static_cast<double>(Total()) / 2; size >= 1; size /= 1.3) {
      const Cuts all = EvenCuts(static_cast<uint64_t>(size));
      if (all.size() > kMaxCuts) break;
      if (!consider(all)) continue;
      // Nothing after the last cut is computed again, so the first cuts alone cost less: takes as
      // few of them as the budget allows.
      size_t low = 0, high = all.size();
      while (low < high) {
        const size_t middle = (low + high) / 2;
        consider(Cuts(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(middle)))
            ? high = middle
            : low = middle + 1;
      }
    }
    return best;
  }

 private:
  static constexpr size_t kMaxCuts = 1000;

  // Cuts into segments of at most `size` bytes (but at least one op). Each segment ends where the
  // fewest bytes cross the cut, but not in its first half.
  Cuts EvenCuts(uint64_t size) const {
    const int n = static_cast<int>(graph_.nodes.size());
    Cuts cuts;
    for (int begin = 0; begin < n;) {
      if (made_.back() - made_[Index(begin)] <= size) break;
      int best = kNone;
      for (int i = begin; i + 1 < n; ++i) {
        const uint64_t made = made_[Index(i) + 1] - made_[Index(begin)];
        if (made > size && best >= 0) break;
        if (made == 0 || 2 * made < size) continue;
        if (best < 0 || crossing_[Index(i)] <= crossing_[Index(best)]) best = i;
      }
      if (best < 0) break;
      cuts.push_back(best);
      begin = best + 1;
    }
    return cuts;
  }

  const Activations& graph_;
  // Bytes of the values made by ops [0, i) that gradients read.
  std::vector<uint64_t> made_;
  std::vector<uint64_t> crossing_;  // bytes made up to op i and read after it
};

class Rewriter {
 public:
  Rewriter(BlockDesc& block, size_t first_gradient, Activations& graph, const Cuts& cuts,
           const OpRegistry& ops)
      : block_(block),
        first_gradient_(first_gradient),
        graph_(graph),
        segments_(graph, cuts),
        ops_(ops) {}

  int Run() {
    FindNeeded();
    if (copied_.empty()) return 0;
    std::vector<std::unique_ptr<OpDesc>> old = block_.ReleaseOps(), all;
    all.reserve(old.size() + copied_.size());
    MakeCopies(old);
    RenameReads(old);
    for (size_t i = 0; i < old.size(); ++i) {
      auto move_all = [&](std::map<int, OpList>& lists) {
        auto it = lists.find(static_cast<int>(i));
        if (it == lists.end()) return;
        for (auto& op : it->second) all.push_back(std::move(op));
      };
      move_all(saves_);
      move_all(copies_);
      all.push_back(std::move(old[i]));
    }
    block_.SetOps(std::move(all));
    for (OpDesc* op : added_) InferOp(block_, *op, ops_);
    return static_cast<int>(copied_.size());
  }

 private:
  using OpList = std::vector<std::unique_ptr<OpDesc>>;

  Value& ValueAt(int v) { return graph_.values[Index(v)]; }

  void Need(int v, int user) {
    Value& value = ValueAt(v);
    if (segments_.IsKept(value)) return;
    value.needed = true;
    int& first = first_use_[segments_.Of(value.producer)];
    first = std::min(first, user);
  }

  // Finds the values to recompute, and the ops that do it, in reverse order.
  void FindNeeded() {
    first_use_.assign(segments_.count(), static_cast<int>(block_.NumOps()));
    for (const Activations::GradientRead& read : graph_.reads) Need(read.value, read.op);
    for (int i = static_cast<int>(graph_.nodes.size()) - 1; i >= 0; --i) {
      const Activations::Node& node = graph_.nodes[Index(i)];
      const bool copied = std::any_of(node.outputs.begin(), node.outputs.end(),
                                      [&](int v) { return ValueAt(v).needed; });
      if (!copied) continue;
      copied_.push_back(i);
      for (int v : node.inputs) Need(v, first_use_[segments_.Of(i)]);
    }
  }

  std::string NewVar(const std::string& stem, const VarDesc& like) {
    std::string name = block_.program().FreeName(stem);
    VarDesc& var = block_.Var(name);
    var.SetMeta(like.meta());
    FileFields::StopGradient(var) = FileFields::StopGradient(like);
    return name;
  }

  std::string CopyName(int v) {
    auto [it, added] = names_.try_emplace(v);
    if (added) {
      const std::string name(ValueAt(v).name);
      it->second = NewVar(name + "@RECOMPUTED", *block_.FindVarRecursive(name));
    }
    return it->second;
  }

  // The name under which a copied op reads a value.
  std::string NameFor(int v, int user) {
    const Value& value = ValueAt(v);
    if (!segments_.IsKept(value)) return CopyName(v);
    if (value.overwriter < 0 || value.overwriter >= user) return std::string(value.name);
    return SavedName(v);
  }

  std::string SavedName(int v) {
    auto [it, added] = saved_.try_emplace(v);
    if (!added) return it->second;
    const Value& value = ValueAt(v);
    const std::string name(value.name);
    it->second = NewVar(name + "@SAVED", *block_.FindVarRecursive(name));
    const bool forward = Index(value.overwriter) < first_gradient_;
    auto op =
        std::make_unique<OpDesc>("assign", SlotList{{"X", {name}}}, SlotList{{"Out", {it->second}}},
                                 AttrList{{kOpRoleAttr, int32_t{forward ? kForward : kBackward}}});
    added_.push_back(op.get());
    saves_[value.overwriter].push_back(std::move(op));
    return it->second;
  }

  void MakeCopies(const OpList& old) {
    for (size_t k = copied_.size(); k-- > 0;) {
      const int i = copied_[k];
      const Activations::Node& node = graph_.nodes[Index(i)];
      const int user = first_use_[segments_.Of(i)];
      const OpDesc& original = *old[Index(i)];
      auto copy = std::make_unique<OpDesc>(original.type(), original.inputs(), original.outputs(),
                                           original.attrs());
      auto input = node.inputs.begin(), output = node.outputs.begin();
      copy->RenameInputs([&](const std::string&) { return NameFor(*input++, user); });
      copy->RenameOutputs([&](const std::string&) { return CopyName(*output++); });
      std::vector<std::string> from;
      ForEachPosition(original.outputs(), [&](const std::string& name) { from.push_back(name); });
      copy->SetAttr(kOpRoleAttr, int32_t{kBackward});
      copy->RemoveAttr(kOpRoleVarAttr);
      if (!copy->HasAttr(kRecomputedFromAttr)) copy->SetAttr(kRecomputedFromAttr, std::move(from));
      added_.push_back(copy.get());
      copies_[user].push_back(std::move(copy));
    }
  }

  void RenameReads(OpList& ops) {
    for (const Activations::GradientRead& read : graph_.reads) {
      if (!ValueAt(read.value).needed) continue;
      ops[Index(read.op)]->RenameInput(std::string(ValueAt(read.value).name), CopyName(read.value));
    }
  }

  BlockDesc& block_;
  size_t first_gradient_;
  Activations& graph_;
  const Segments segments_;
  const OpRegistry& ops_;
  std::vector<int> first_use_;  // by segment: the first gradient op that reads one of its values
  std::vector<int> copied_;     // forward ops
  std::map<int, OpList> copies_, saves_;  // by the op that they are inserted before
  std::unordered_map<int, std::string> names_, saved_;
  std::vector<OpDesc*> added_;
};

Cuts CutsAtCheckpoints(const BlockDesc& block, const std::vector<std::string>& names,
                       Activations& graph) {
  Cuts cuts;
  for (const std::string& name : names) {
    const int v = graph.Last(name);
    if (v < 0 && !block.FindVarRecursive(name)) {
      throw Error(ErrorCode::kNotFound,
                  fmt::format("recompute: checkpoints names the var {}, which the program does not "
                              "have",
                              Quote(name)));
    }
    if (v < 0 || graph.values[Index(v)].producer < 0) continue;
    graph.values[Index(v)].checkpoint = true;
    cuts.push_back(graph.values[Index(v)].producer);
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

}  // namespace

RecomputeReport Recompute(BlockDesc& block, size_t first_gradient, const RecomputeOptions& options,
                          const OpRegistry& ops) {
  const EditGuard guard(block.program());
  Activations graph(block, first_gradient, ops, options.batch_size);
  const Cuts named = CutsAtCheckpoints(block, options.checkpoints, graph);
  const CutChooser chooser(graph);
  const Cuts cuts = options.checkpoints.empty() && options.memory_budget > 0
                        ? chooser.Choose(options.memory_budget)
                        : named;
  RecomputeReport report;
  report.bytes_before = chooser.Total();
  report.bytes_after = chooser.Estimate(cuts);
  for (int cut : cuts) {
    for (int v : graph.nodes[Index(cut)].outputs) {
      if (graph.values[Index(v)].fixed) continue;
      report.checkpoints.emplace_back(graph.values[Index(v)].name);
      break;
    }
  }
  report.ops = Rewriter(block, first_gradient, graph, cuts, ops).Run();
  LogVerbose(1,
             fmt::format("recompute: {} ops run twice; activations for gradients: about {} bytes "
                         "instead of {}; cut after {}",
                         report.ops, report.bytes_after, report.bytes_before,
                         Join(report.checkpoints, ", ")));
  return report;
}

}  // namespace coracle
