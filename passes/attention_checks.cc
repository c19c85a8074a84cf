#include <coracle/framework/op/op_context.h>
#include <coracle/passes/attention_checks.h>

#include <algorithm>
#include <string>
#include <utility>

namespace coracle::inline internal {
namespace {

bool IsResult(const AttentionOps& a, const std::string& var) {
  if (OnlyVariable(a.out()) == var) return true;
  return a.trains() && (OnlyVariable(a.dq()) == var || OnlyVariable(a.dk()) == var ||
                        OnlyVariable(a.dv()) == var);
}

// Whether the intermediate values are not operands and are not used by other ops, and neither are
// the other outputs except the results.
bool InsideIsPrivate(const AttentionScene& scene, const AttentionOps& a) {
  for (const OpDesc* op : a.Forward()) {
    for (const auto& operand : {a.q(), a.k(), a.v()}) {
      if (!operand.empty() && op->Writes(OnlyVariable(operand))) return false;
    }
    if (a.add && op->Writes(OnlyVariable(a.add.op->Input("Y")))) return false;
  }
  std::vector<const OpDesc*> all = a.Forward();
  const std::vector<const OpDesc*> backward = a.Backward();
  all.insert(all.end(), backward.begin(), backward.end());
  const auto inside = [&](const OpDesc* op) {
    return std::find(all.begin(), all.end(), op) != all.end();
  };
  for (const OpDesc* op : all) {
    const bool seen = op->AnyOutput([&](const std::string& var) {
      if (!scene.matcher.IsWrittenOnce(var)) return true;
      if (IsResult(a, var)) return false;
      const auto readers = scene.block.Uses(var).readers;
      return scene.context.IsVisible(scene.block, var) ||
             !std::all_of(readers.begin(), readers.end(), inside);
    });
    if (seen) return false;
  }
  return true;
}

// The positions of its first and last op.
std::pair<size_t, size_t> Span(const AttentionScene& scene, const AttentionOps& a) {
  std::pair<size_t, size_t> span = {scene.block.NumOps(), 0};
  for (const auto& ops : {a.Forward(), a.Backward()}) {
    for (const OpDesc* op : ops) {
      const size_t at = scene.block.IndexOf(*op);
      span = {std::min(span.first, at), std::max(span.second, at)};
    }
  }
  return span;
}

// Whether the inputs of the fused gradient still have their values of the forward part. The fused
// gradient computes from the operands again, but the single ops read stored values (the weights).
bool KeepsInputs(const AttentionScene& scene, const AttentionOps& a) {
  const OpDesc* place = PlaceFor(a.Forward(), scene);
  if (!place) return false;
  // From the position of the fused op to the last op of its gradient.
  const std::pair<size_t, size_t> span = {scene.block.IndexOf(*place), Span(scene, a).second};
  const auto kept = [&](const std::string& var) {
    const auto writers = scene.block.Uses(var).writers;
    return !scene.context.captured.count(var) &&
           std::none_of(writers.begin(), writers.end(), [&](const OpDesc* op) {
             const size_t at = scene.block.IndexOf(*op);
             return at >= span.first && at <= span.second && var != OnlyVariable(a.out());
           });
  };
  // The gradient may read a recomputed copy under its own name.
  const auto same = [&](const std::string& var, const std::string& again) {
    return var == again
               ? kept(var)
               : scene.matcher.IsWrittenOnce(again) && !scene.context.captured.count(again);
  };
  for (const auto& operand : {a.q(), a.k(), a.v()}) {
    if (!operand.empty() && !kept(OnlyVariable(operand))) return false;
  }
  if (!a.turned() && !a.joint()) {
    const OpDesc &match = *a.match.grad, &mix = *a.mix.grad;
    if (!same(OnlyVariable(a.q()), OnlyVariable(match.Input("X"))) ||
        !same(OnlyVariable(a.k()), OnlyVariable(match.Input("Y"))) ||
        !same(OnlyVariable(a.v()), OnlyVariable(mix.Input("Y"))))
      return false;
  }
  return kept(OnlyVariable(a.out())) && (!a.add || kept(OnlyVariable(a.add.op->Input("Y"))));
}

int32_t Axis(const OpDesc& op) { return op.GetAttr<int32_t>("axis", -1); }

// Whether Q, K and V have the same number of batches and heads, as far as it is known. The fused
// op is slow at gradients of broadcast operands.
bool AreAlike(const AttentionScene& scene, const AttentionOps& a) {
  const Shape& q = scene.types.Find(OnlyVariable(a.inner_q()))->shape;
  const Shape& k = scene.types.Find(OnlyVariable(a.inner_k()))->shape;
  const Shape& v = scene.types.Find(OnlyVariable(a.inner_v()))->shape;
  if (q.rank() != k.rank() || q.rank() != v.rank()) return false;
  for (int i = 0; i < q.rank() - 2; ++i) {
    if (!InferContext::Matches(q[i], k[i]) || !InferContext::Matches(q[i], v[i])) return false;
  }
  return true;
}

// Whether the axes are the last ones. An axis counted from the first one is certain only if the
// rank is known for all feeds.
bool AxesAreLast(const AttentionScene& scene, const AttentionOps& a) {
  const int32_t axis = Axis(*a.softmax.op), mask_axis = a.add ? Axis(*a.add.op) : -1;
  if (axis == -1 && mask_axis == -1) return true;
  const auto rank = [&](const std::vector<std::string>& args) {
    return scene.flow.CertainRank(OnlyVariable(args));
  };
  const int q = rank(a.match.op->Input("X")), k = rank(a.match.op->Input("Y"));
  if (q < 2 || k < 2) return false;
  const int scores = std::max(q, k), mask = a.add ? rank(a.add.op->Input("Y")) : 0;
  return (axis == -1 || (axis == scores - 1 && mask >= 0 && mask <= scores)) &&
         (mask_axis == -1 || mask == scores);
}

}  // namespace

bool MayBeFused(const AttentionOps& a, const AttentionScene& scene) {
  return InsideIsPrivate(scene, a) && (!a.trains() || KeepsInputs(scene, a)) &&
         PlaceFor(a.Forward(), scene) && (!a.trains() || PlaceFor(a.Backward(), scene));
}

bool HasUsualTypes(const AttentionOps& a, const AttentionScene& scene) {
  const VarMeta* q = scene.types.Find(OnlyVariable(a.inner_q()));
  if (!q || (q->dtype != DType::kFloat32 && q->dtype != DType::kFloat64)) return false;
  const auto fits = [&](const std::vector<std::string>& args, int least) {
    const VarMeta* var = scene.types.Find(OnlyVariable(args));
    return var && var->type == VarType::kLoDTensor && var->dtype == q->dtype &&
           var->shape.rank() >= least && var->shape.rank() <= 4;
  };
  if (!fits(a.inner_q(), 2) || !fits(a.inner_k(), 2) || !fits(a.inner_v(), 2) ||
      !fits(a.mix.op->Output("Out"), 2))
    return false;
  if (a.trains() && !AreAlike(scene, a)) return false;
  if (a.add && (!fits(a.add.op->Input("X"), 2) || !fits(a.add.op->Input("Y"), 1))) return false;
  return AxesAreLast(scene, a);
}

}  // namespace coracle::inline internal
