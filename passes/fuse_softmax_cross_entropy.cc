// Two rewrites of softmax_with_cross_entropy:
// * Removes an output Softmax that no op reads, so that it is not stored.
// * Fuses it with a mean of its loss and the gradients of both into one op, which computes the
//   loss and the gradient of the logits in one sweep, because the gradient of each loss does not
//   depend on the losses.

#include <coracle/framework/op/recomputed.h>
#include <coracle/passes/match.h>
#include <coracle/passes/passes.h>

namespace coracle::inline internal {
namespace {

const Pattern& WithMean() {
  static const Pattern pattern(R"(
    ce:        Loss=loss, Softmax=softmax = softmax_with_cross_entropy(Logits=x, Label=label)
    mean:      Out=out = mean|reduce_mean(X=loss)
    mean_grad: X@GRAD=dloss = mean_grad|reduce_mean_grad(X=loss, Out@GRAD=dout, ...)
    ce_grad:   Logits@GRAD=dx = softmax_with_cross_entropy_grad(
               Softmax=softmax, Label=label, Loss@GRAD=dloss))");
  return pattern;
}

const Pattern& Alone() {
  static const Pattern pattern(R"(
    ce: Loss=loss = softmax_with_cross_entropy(Logits=x, Label=label))");
  return pattern;
}

// Whether the op is the mean of all elements, or its gradient.
bool IsOfAll(const OpDesc& mean) {
  if (mean.type() == "mean" || mean.type() == "mean_grad") return true;
  return mean.GetAttr<bool>("reduce_all", false) && mean.GetAttr<int32_t>("out_dtype", -1) == -1;
}

bool HaveSameAttrs(const OpDesc& ce, const OpDesc& grad) {
  const auto same = [&](const char* name, auto otherwise) {
    return ce.GetAttr(name, otherwise) == grad.GetAttr(name, otherwise);
  };
  return same("soft_label", false) && same("use_softmax", true) &&
         same("ignore_index", int32_t{-100}) && same("axis", int32_t{-1});
}

bool IsRecomputed(const OpDesc& op) { return op.HasAttr(kRecomputedFromAttr); }

bool CanFuse(const Match& m) {
  for (const char* label : {"ce", "mean", "mean_grad", "ce_grad"}) {
    if (IsRecomputed(m.op(label))) return false;
  }
  return IsOfAll(m.op("mean")) && IsOfAll(m.op("mean_grad")) &&
         m.op("mean_grad").type() == m.op("mean").type() + "_grad" &&
         HaveSameAttrs(m.op("ce"), m.op("ce_grad"));
}

}  // namespace

void FuseSoftmaxCrossEntropy(ProgramDesc& program, const PassContext& context) {
  const Matcher matcher(program.Root(), context);
  Rewrites rewrites(program.Root());
  for (const Match& m : matcher.FindAll(WithMean())) {
    if (!CanFuse(m)) continue;
    const OpDesc fused("fused_softmax_with_cross_entropy",
                       {{"Logits", {m["x"]}}, {"Label", {m["label"]}}, {"Mean@GRAD", {m["dout"]}}},
                       {{"Loss", {m["loss"]}}, {"Logits@GRAD", {m["dx"]}}}, m.op("ce").attrs());
    rewrites.Replace(m, {fused, m.op("mean")});
  }
  for (const Match& m : matcher.FindAll(Alone())) {
    const bool stores = m.op("ce").HasOutput("Softmax") || m.op("ce").HasOutput("Backprop");
    if (!stores || IsRecomputed(m.op("ce"))) continue;
    OpDesc ce = m.op("ce");
    ce.RemoveOutput("Softmax");
    ce.RemoveOutput("Backprop");
    rewrites.Replace(m, {ce});
  }
  rewrites.Apply();
}

}  // namespace coracle::inline internal
