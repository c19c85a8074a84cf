#include <coracle/distribute/exchange_ops.h>
#include <coracle/distribute/gradients.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/role.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>

namespace coracle::inline internal {
namespace {

using Names = std::vector<std::string>;

std::vector<ParameterGradient> NamedGradients(const BlockDesc& root) {
  std::vector<ParameterGradient> gradients;
  std::set<std::string> known;
  root.ForEachOp([&](const OpDesc& op) {
    if (!IsBackward(op)) return;
    const auto marked = op.GetAttr<Names>(kOpRoleVarAttr, {});
    for (size_t k = 1; k < marked.size(); k += 2)
      if (known.insert(marked[k]).second) gradients.push_back({marked[k]});
  });
  if (!gradients.empty()) return gradients;
  Refuse(
      "the program has no gradients of parameters (op_role_var of backward ops names none); append "
      "backward and an optimizer first");
}

// The persistable variable to which an op of the update adds the gradient in place; nullptr if the
// op does not accumulate.
const std::string* AccumulatedBy(const OpDesc& op, const std::string& gradient,
                                 const OpRegistry& ops) {
  const OpSpec* spec = ops.Find(op.type());
  if (!spec || !HasRole(op, kOptimize) || op.Output("Out").size() != 1) return nullptr;
  const std::string& out = op.Output("Out")[0];
  const VarDesc* var = op.block()->FindVarRecursive(out);
  if (!var || !var->persistable() || !op.Reads(out)) return nullptr;
  Names terms;
  for (const std::string& slot : LinearWith(*spec, "X"))
    terms.insert(terms.end(), op.Input(slot).begin(), op.Input(slot).end());
  return Contains(terms, out) && Contains(terms, gradient) ? &out : nullptr;
}

// The variable that the update reads: 16-bit gradients are accumulated in float32.
std::string InFloat(const BlockDesc& root, const std::string& gradient, const OpRegistry& ops) {
  for (const OpDesc* reader : root.Uses(gradient).readers) {
    const OpSpec* spec = ops.Find(reader->type());
    if (!spec || !HasRole(*reader, kOptimize) || reader->Output("Out").size() != 1) continue;
    const std::string& out = reader->Output("Out")[0];
    const bool converts = VarOf(root, out).dtype() != VarOf(root, gradient).dtype();
    if (converts && spec->rows.effect.rule == RowRule::kMoves) return out;
  }
  return gradient;
}

// The op that runs a block which uses the sum; nullptr if there is none.
const OpDesc* BlockUser(const ProgramDesc& main, const std::string& sum) {
  for (const OpDesc* op : main.Root().SubBlockOps()) {
    for (const BlockDesc* block : main.BlocksRunBy(*op)) {
      const VarUses uses = block->Uses(sum);
      if (!uses.readers.empty() || !uses.writers.empty()) return op;
    }
  }
  return nullptr;
}

void FindSum(const ProgramDesc& main, const OpRegistry& ops, ParameterGradient* gradient) {
  const std::string name = InFloat(main.Root(), gradient->name, ops);
  for (const OpDesc* reader : main.Root().Uses(name).readers) {
    const std::string* sum = AccumulatedBy(*reader, name, ops);
    if (!sum) continue;
    gradient->sum = *sum;
    gradient->once = BlockUser(main, *sum);
    if (gradient->once) return;
    Refuse(*reader, fmt::format("no conditional block reads {}, the sum of {}", Quote(*sum),
                                Quote(gradient->name)));
  }
}

// The first op from index `from` on that uses one of the variables, itself or in its blocks.
const OpDesc* FirstUse(const BlockDesc& block, const Names& names, size_t from) {
  const std::set<std::string> wanted(names.begin(), names.end());
  const auto is_wanted = [&](const std::string& name) { return wanted.count(name) > 0; };
  for (size_t i = from; i < block.NumOps(); ++i) {
    bool any = false;
    ForEachOpRunBy(block.op(i), [&](const OpDesc& op) {
      any = any || op.AnyInput(is_wanted) || op.AnyOutput(is_wanted);
    });
    if (any) return &block.op(i);
  }
  return nullptr;
}

int64_t BytesOf(const VarDesc& var) {
  return var.shape().IsKnown() ? static_cast<int64_t>(ByteSize(var.dtype(), var.shape())) : 0;
}

int64_t BucketLimit(double mb) {
  if (!(mb >= 0) || std::isinf(mb))
    Refuse(fmt::format("buckets of {} MB; 0 or more are needed", mb));
  return static_cast<int64_t>(std::min(mb * 1e6, 1e18));
}

}  // namespace

std::vector<ParameterGradient> FindGradients(const ProgramDesc& main, const OpRegistry& ops) {
  const BlockDesc& root = main.Root();
  std::vector<ParameterGradient> gradients = NamedGradients(root);
  std::unordered_map<std::string, size_t> known;
  for (size_t i = 0; i < gradients.size(); ++i) known.emplace(gradients[i].name, i);
  for (size_t i = 0; i < root.NumOps(); ++i) {
    const OpDesc& op = root.op(i);
    if (!IsBackward(op)) continue;
    const auto note = [&](const std::string& name) {
      if (auto at = known.find(name); at != known.end()) gradients[at->second].complete = i;
    };
    op.ForEachOutput(note);
    op.ForEachInput(note);
    for (const BlockDesc* block : main.BlocksRunBy(op))
      block->ForEachOp([&](const OpDesc& inner) { inner.ForEachInput(note); });
  }
  std::stable_sort(gradients.begin(), gradients.end(),
                   [](const auto& a, const auto& b) { return a.complete < b.complete; });
  for (ParameterGradient& gradient : gradients) FindSum(main, ops, &gradient);
  return gradients;
}

std::vector<OpenBucket> MakeBuckets(const ProgramDesc& main,
                                    const std::vector<ParameterGradient>& gradients, double mb) {
  const int64_t limit = BucketLimit(mb);
  std::vector<OpenBucket> full, open;
  for (const ParameterGradient& gradient : gradients) {
    const std::string& name = gradient.exchanged();
    const VarDesc& var = VarOf(main.Root(), name);
    if (var.type() == VarType::kSelectedRows) {  // by itself: a step decides its size
      full.push_back({{{name}, -1}, var.dtype(), gradient.complete, gradient.once});
      continue;
    }
    auto at = std::find_if(open.begin(), open.end(), [&](const OpenBucket& bucket) {
      return bucket.dtype == var.dtype() && bucket.once == gradient.once;
    });
    if (at == open.end()) at = open.insert(open.end(), {{{}, 0}, var.dtype(), 0, gradient.once});
    at->bucket.gradients.push_back(name);
    at->bucket.bytes += BytesOf(var);
    at->complete = gradient.complete;
    if (at->bucket.bytes < limit) continue;
    full.push_back(std::move(*at));
    open.erase(at);
  }
  full.insert(full.end(), open.begin(), open.end());
  std::stable_sort(full.begin(), full.end(),
                   [](const auto& a, const auto& b) { return a.complete < b.complete; });
  return full;
}

void SumBucket(const ProgramDesc& main, const OpenBucket& bucket, int ring_id,
               OpInserter* inserter) {
  const Names& names = bucket.bucket.gradients;
  const auto sum = [&](const Writer& w) { SumInPlace(w, names, ring_id); };
  if (bucket.once) {
    const BlockDesc& block = *main.BlocksRunBy(*bucket.once).front();
    if (const OpDesc* first = FirstUse(block, names, 0)) inserter->Before(*first, kOptimize, sum);
    return;
  }
  const BlockDesc& root = main.Root();
  inserter->After(root.op(bucket.complete), kBackward, sum);
  if (bucket.bucket.bytes < 0) return;
  const auto wait = [&](const Writer& w) {
    ExchangeInPlace(w, "c_sync_comm_stream", names, ring_id);
  };
  if (const OpDesc* first = FirstUse(root, names, bucket.complete + 1))
    inserter->Before(*first, kOptimize, wait);
  else
    inserter->AtEnd(root, kOptimize, wait);
}

}  // namespace coracle::inline internal
