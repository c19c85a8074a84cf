// Fuses layer_norm(x + y), where x or y may come from a dropout, and its gradients into one op
// each. The results have the bits of the single ops, except for gradients of broadcast terms, which
// are summed in another order. So the pass may fuse an op but not its recomputed copy:
//
//   d = dropout(x)                   Out=n, Sum=s, Mask=m =
//   s = elementwise_add(d, y)   ->       fused_residual_layer_norm(X=x, Y=y)
//   n = layer_norm(s)
//
//   ds = layer_norm_grad(s, dn)             A@GRAD=dx, B@GRAD=dy =
//   dt = sum(ds, other)                         fused_residual_layer_norm_gradients(X=s, Mask=m,
//   dd, dy = elementwise_add_grad(dt)  ->           Out@GRAD=dn, Sum@GRAD=other)
//   dx = dropout_grad(dd, m)

#include <coracle/framework/op/check/flow_types.h>
#include <coracle/framework/op/recomputed.h>
#include <coracle/passes/match.h>
#include <coracle/passes/passes.h>
#include <coracle/passes/remarks.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>
#include <string>
#include <unordered_set>
#include <vector>

namespace coracle::inline internal {
namespace {

constexpr const char* kFused = "fused_residual_layer_norm";

using Ops = std::vector<const OpDesc*>;

AttrList NormAttrs(const OpDesc& norm) {
  return {{"epsilon", norm.GetAttr<float>("epsilon", 1e-5f)},
          {"begin_norm_axis", norm.GetAttr<int32_t>("begin_norm_axis", 1)}};
}
void SetDropout(const OpDesc& dropout, const std::string& dropped, OpDesc& fused) {
  fused.SetAttr("dropped", dropped);
  fused.SetAttr("dropout_prob", dropout.GetAttr<float>("dropout_prob", 0.5f));
  fused.SetAttr("dropout_implementation",
                dropout.GetAttr<std::string>("dropout_implementation", "downgrade_in_infer"));
}
template <class Set>
void CopySlots(const SlotList& slots, std::initializer_list<const char*> names, Set&& set) {
  for (const char* name : names) {
    for (const Slot& slot : slots) {
      if (slot.name == name && !OnlyVariable(slot.args).empty()) set(name, slot.args);
    }
  }
}

bool IsPlainSum(const OpDesc& op, const std::string& type) {
  return op.type() == type && op.GetAttr<int32_t>("axis", -1) == -1;
}
// Whether all of the ops are recomputed copies, or none of them.
bool AreAlike(const Ops& ops) {
  return std::all_of(ops.begin(), ops.end(), [&](const OpDesc* op) {
    return !op->FindAttr(kRecomputedFromAttr) == !ops[0]->FindAttr(kRecomputedFromAttr);
  });
}

// 16-bit floats are excluded, because single ops round the values between them.
bool HasKernelType(const OpDesc& fused, const FlowTypes& types) {
  const VarMeta* x = types.Find(OnlyVariable(fused.Input("X")));
  return x && x->type == VarType::kLoDTensor &&
         (x->dtype == DType::kFloat32 || x->dtype == DType::kFloat64);
}

// The block, with facts about its variables.
struct NormScene {
  NormScene(ProgramDesc& program, const PassContext& pass_context)
      : context(pass_context), block(program.Root()), matcher(block, context), types(block) {
    InferAll(block, context.ops, types);
  }

  bool IsPrivate(const std::string& var) const {
    return !context.IsVisible(block, var) && matcher.IsWrittenOnce(var) &&
           matcher.HasOneReader(var);
  }
  // The only op that reads what `writer` wrote; nullptr if there are several.
  const OpDesc* ReaderOf(const std::string& var, const OpDesc& writer) const {
    if (var.empty() || !IsPrivate(var)) return nullptr;
    const OpDesc* reader = block.Uses(var).readers[0];
    return block.IndexOf(writer) < block.IndexOf(*reader) ? reader : nullptr;
  }
  bool HasBytes(const std::string& mask) const {
    const VarMeta* meta = mask.empty() ? nullptr : types.Find(mask);
    return meta && meta->type == VarType::kLoDTensor && meta->dtype == DType::kUInt8;
  }

  const PassContext& context;
  BlockDesc& block;
  const Matcher matcher;
  FlowTypes types;
};

// Collects replacements; no op takes part in two of them.
class Replacer {
 public:
  explicit Replacer(NormScene& scene) : scene_(scene), rewrites_(scene.block) {}

  // Replaces the ops, which are in the order of the block, by the fused one at the position of
  // the last.
  bool Replace(const Ops& ops, const OpDesc& fused) {
    const bool taken =
        std::any_of(ops.begin(), ops.end(), [&](const OpDesc* op) { return taken_.count(op) > 0; });
    if (taken || !AreAlike(ops) || !HasKernelType(fused, scene_.types) ||
        !scene_.matcher.MayRunAt(ops, *ops.back()) ||
        !scene_.types.Infer(scene_.context.ops.Get(fused.type()), fused))
      return false;
    taken_.insert(ops.begin(), ops.end());
    rewrites_.Replace(ops, *ops.back(), {fused});
    return true;
  }

  void Apply() { rewrites_.Apply(); }

 private:
  NormScene& scene_;
  Rewrites rewrites_;
  std::unordered_set<const OpDesc*> taken_;
};

// The dropout whose result is only read as this term of the sum; nullptr if there is none.
const OpDesc* DropoutOf(const OpDesc& add, const char* slot, const NormScene& scene) {
  const std::string term = OnlyVariable(add.Input(slot));
  const OpDesc* dropout = scene.matcher.WriterBefore(term, add);
  if (!dropout || dropout->type() != "dropout" || !scene.IsPrivate(term) ||
      dropout->HasInput("Seed") || dropout->GetAttr<bool>("is_test", false))
    return nullptr;
  if (!dropout->HasOutput("Mask")) return dropout;
  return scene.HasBytes(OnlyVariable(dropout->Output("Mask"))) ? dropout : nullptr;
}

OpDesc FusedForward(const OpDesc& norm, const OpDesc& add, const OpDesc* dropout,
                    const std::string& dropped, const NormScene& scene) {
  OpDesc fused(kFused, {}, {}, NormAttrs(norm));
  for (const char* slot : {"X", "Y"})
    fused.SetInput(slot, dropped == slot ? dropout->Input("X") : add.Input(slot));
  CopySlots(norm.inputs(), {"Scale", "Bias"},
            [&](const char* slot, const auto& args) { fused.SetInput(slot, args); });
  fused.SetOutput("Out", norm.Output("Y"));
  const std::string sum = OnlyVariable(add.Output("Out"));
  if (scene.context.IsVisible(scene.block, sum) || scene.block.Uses(sum).readers.size() > 1)
    fused.SetOutput("Sum", {sum});
  CopySlots(norm.outputs(), {"Mean", "Variance"},
            [&](const char* slot, const auto& args) { fused.SetOutput(slot, args); });
  if (dropout) {
    SetDropout(*dropout, dropped, fused);
    fused.SetAttr("fix_seed", dropout->GetAttr<bool>("fix_seed", false));
    fused.SetAttr("seed", dropout->GetAttr<int32_t>("seed", 0));
    fused.SetAttr("random_name", scene.matcher.Original(OnlyVariable(dropout->Output("Out"))));
    if (dropout->HasOutput("Mask")) fused.SetOutput("Mask", dropout->Output("Mask"));
  }
  CopyRemarks(norm, fused);
  if (norm.FindAttr(kRecomputedFromAttr)) {
    std::vector<std::string> from;
    ForEachPosition(fused.outputs(), [&](const std::string& name, const std::string&) {
      from.push_back(scene.matcher.Original(name));
    });
    fused.SetAttr(kRecomputedFromAttr, std::move(from));
  }
  return fused;
}

void FuseForward(const OpDesc& norm, const NormScene& scene, Replacer& replacer) {
  const std::string sum = OnlyVariable(norm.Input("X"));
  const OpDesc* add = scene.matcher.WriterBefore(sum, norm);
  if (!add || !IsPlainSum(*add, "elementwise_add") || OnlyVariable(norm.Output("Y")).empty())
    return;
  for (const char* slot : {"X", "Y"}) {
    const OpDesc* dropout = DropoutOf(*add, slot, scene);
    if (dropout &&
        replacer.Replace({dropout, add, &norm}, FusedForward(norm, *add, dropout, slot, scene)))
      return;
  }
  replacer.Replace({add, &norm}, FusedForward(norm, *add, nullptr, "", scene));
}

// The other term that is added to `grad`, if it is one dense tensor that an op of this block
// has computed.
std::string OtherTerm(const OpDesc& sum, const std::string& grad, const NormScene& scene) {
  const std::vector<std::string>& args = sum.Input("X");
  if (args.size() != 2) return "";
  const std::string& other = args[args[0] == grad ? 1 : 0];
  const OpDesc* writer =
      IsEmptyName(other) || other == grad ? nullptr : scene.matcher.WriterBefore(other, sum);
  if (!writer || writer->HasSubBlock()) return "";
  const VarMeta *a = scene.types.Find(grad), *b = scene.types.Find(other);
  const bool dense = a && b && b->type == VarType::kLoDTensor && a->dtype == b->dtype;
  return dense && a->shape.CompatibleWith(b->shape) ? other : "";
}

const OpDesc* DropoutGradOf(const OpDesc& add, const std::string& slot, const NormScene& scene) {
  const std::string grad = OnlyVariable(add.Output(slot + "@GRAD"));
  const OpDesc* dropout = scene.ReaderOf(grad, add);
  if (!dropout || dropout->type() != "dropout_grad" || dropout->GetAttr<bool>("is_test", false) ||
      OnlyVariable(dropout->Input("Out@GRAD")) != grad ||
      OnlyVariable(dropout->Output("X@GRAD")).empty())
    return nullptr;
  return scene.HasBytes(OnlyVariable(dropout->Input("Mask"))) ? dropout : nullptr;
}

OpDesc FusedBackward(const OpDesc& norm, const OpDesc& add, const std::string& other,
                     const OpDesc* dropout, const std::string& dropped) {
  OpDesc fused(std::string(kFused) + "_gradients", {{"X", norm.Input("X")}}, {}, NormAttrs(norm));
  const std::pair<const char*, const char*> terms[] = {{"X", "A"}, {"Y", "B"}};
  for (const auto& [slot, term] : terms) {
    // The mask gives the shape of the dropped term.
    if (dropped != slot && !OnlyVariable(add.Input(slot)).empty())
      fused.SetInput(term, add.Input(slot));
  }
  CopySlots(norm.inputs(), {"Scale", "Bias", "Mean", "Variance"},
            [&](const char* slot, const auto& args) { fused.SetInput(slot, args); });
  if (dropout) fused.SetInput("Mask", dropout->Input("Mask"));
  fused.SetInput("Out@GRAD", norm.Input("Y@GRAD"));
  if (!other.empty()) fused.SetInput("Sum@GRAD", {other});
  for (const auto& [slot, term] : terms) {
    const std::string name = std::string(slot) + "@GRAD";
    const bool masked = dropped == slot;
    if (!masked && OnlyVariable(add.Output(name)).empty()) continue;
    fused.SetOutput(std::string(term) + "@GRAD",
                    masked ? dropout->Output("X@GRAD") : add.Output(name));
    if (masked) SetDropout(*dropout, term, fused);
  }
  CopySlots(norm.outputs(), {"Scale@GRAD", "Bias@GRAD"},
            [&](const char* slot, const auto& args) { fused.SetOutput(slot, args); });
  CopyRemarks(norm, fused);
  return fused;
}

void FuseBackward(const OpDesc& norm, const NormScene& scene, Replacer& replacer) {
  if (OnlyVariable(norm.Input("Mean")).empty() || OnlyVariable(norm.Input("Variance")).empty())
    return;
  Ops ops = {&norm};
  std::string grad = OnlyVariable(norm.Output("X@GRAD")), other;
  const OpDesc* reader = scene.ReaderOf(grad, norm);
  if (reader && reader->type() == "sum") {
    other = OtherTerm(*reader, grad, scene);
    grad = OnlyVariable(reader->Output("Out"));
    ops.push_back(reader);
    reader = other.empty() ? nullptr : scene.ReaderOf(grad, *reader);
  }
  if (!reader || !IsPlainSum(*reader, "elementwise_add_grad") ||
      OnlyVariable(reader->Input("Out@GRAD")) != grad)
    return;
  const OpDesc& add = *reader;
  ops.push_back(&add);
  for (const char* slot : {"X", "Y"}) {
    const OpDesc* dropout = DropoutGradOf(add, slot, scene);
    if (!dropout) continue;
    Ops all = ops;
    all.push_back(dropout);
    if (replacer.Replace(all, FusedBackward(norm, add, other, dropout, slot))) return;
  }
  replacer.Replace(ops, FusedBackward(norm, add, other, nullptr, ""));
}

// Calls `fuse` for each op of the type.
template <class Fuse>
void FuseAll(ProgramDesc& program, const PassContext& context, const char* type, Fuse&& fuse) {
  Ops found;
  program.Root().ForEachOp([&](const OpDesc& op) {
    if (op.type() == type) found.push_back(&op);
  });
  if (found.empty()) return;
  NormScene scene(program, context);
  Replacer replacer(scene);
  for (const OpDesc* op : found) fuse(*op, scene, replacer);
  replacer.Apply();
}

}  // namespace

void FuseLayerNorm(ProgramDesc& program, const PassContext& context) {
  // Fuses the gradients first, because the gradient of the sum may read the shape of the
  // dropped term.
  FuseAll(program, context, "layer_norm_grad", FuseBackward);
  FuseAll(program, context, "layer_norm", FuseForward);
}

}  // namespace coracle::inline internal
