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

#include <coracle/framework/op/recomputed.h>
#include <coracle/passes/flow_types.h>
#include <coracle/passes/match.h>
#include <coracle/passes/passes.h>
#include <coracle/passes/remarks.h>

#include <algorithm>
#include <string>
#include <unordered_set>
#include <vector>

namespace coracle {
namespace {

constexpr const char* kFused = "fused_residual_layer_norm";

// The only variable in a slot; "" if it has none or several.
std::string Only(const std::vector<std::string>& args) {
  return args.size() == 1 && !IsEmptyName(args[0]) ? args[0] : "";
}

class LayerNormFuser {
 public:
  LayerNormFuser(ProgramDesc& program, const PassContext& context)
      : context_(context),
        block_(program.Root()),
        matcher_(block_, context),
        types_(block_),
        rewrites_(block_) {}

  void FuseForward() {
    for (const OpDesc* norm : Find("layer_norm")) Forward(*norm);
    rewrites_.Apply();
  }
  void FuseGradients() {
    for (const OpDesc* grad : Find("layer_norm_grad")) Backward(*grad);
    rewrites_.Apply();
  }

 private:
  using Ops = std::vector<const OpDesc*>;

  Ops Find(const std::string& type) {
    Ops found;
    block_.ForEachOp([&](const OpDesc& op) {
      if (op.type() == type) found.push_back(&op);
    });
    if (found.empty()) return found;
    block_.ForEachOp([&](const OpDesc& op) {
      if (const OpSpec* spec = context_.ops.Find(op.type())) types_.Infer(*spec, op);
    });
    return found;
  }

  // --- forward ---

  void Forward(const OpDesc& norm) {
    const std::string sum = Only(norm.Input("X"));
    const OpDesc* add = WriterOf(sum, norm);
    if (!add || !IsPlainSum(*add, "elementwise_add") || Only(norm.Output("Y")).empty()) return;
    for (const char* slot : {"X", "Y"}) {
      const OpDesc* dropout = DropoutOf(*add, slot);
      if (dropout && Replace({dropout, add, &norm}, FusedForward(norm, *add, dropout, slot)))
        return;
    }
    Replace({add, &norm}, FusedForward(norm, *add, nullptr, ""));
  }

  OpDesc FusedForward(const OpDesc& norm, const OpDesc& add, const OpDesc* dropout,
                      const std::string& dropped) const {
    OpDesc fused(kFused, {}, {}, NormAttrs(norm));
    for (const char* slot : {"X", "Y"})
      fused.SetInput(slot, dropped == slot ? dropout->Input("X") : add.Input(slot));
    Pass(norm.inputs(), {"Scale", "Bias"},
         [&](const char* slot, const auto& args) { fused.SetInput(slot, args); });
    fused.SetOutput("Out", norm.Output("Y"));
    const std::string sum = Only(add.Output("Out"));
    if (context_.IsVisible(block_, sum) || block_.Uses(sum).readers.size() > 1)
      fused.SetOutput("Sum", {sum});
    Pass(norm.outputs(), {"Mean", "Variance"},
         [&](const char* slot, const auto& args) { fused.SetOutput(slot, args); });
    if (dropout) {
      SetDropout(*dropout, dropped, fused);
      fused.SetAttr("fix_seed", dropout->GetAttr<bool>("fix_seed", false));
      fused.SetAttr("seed", dropout->GetAttr<int32_t>("seed", 0));
      fused.SetAttr("random_name", matcher_.Original(Only(dropout->Output("Out"))));
      if (dropout->HasOutput("Mask")) fused.SetOutput("Mask", dropout->Output("Mask"));
    }
    CopyRemarks(norm, fused);
    if (norm.FindAttr(kRecomputedFromAttr)) {
      std::vector<std::string> from;
      ForEachPosition(fused.outputs(), [&](const std::string& name, const std::string&) {
        from.push_back(matcher_.Original(name));
      });
      fused.SetAttr(kRecomputedFromAttr, std::move(from));
    }
    return fused;
  }

  // The dropout whose result is only read as this term of the sum; nullptr if there is none.
  const OpDesc* DropoutOf(const OpDesc& add, const char* slot) const {
    const std::string term = Only(add.Input(slot));
    const OpDesc* dropout = WriterOf(term, add);
    if (!dropout || dropout->type() != "dropout" || !IsPrivate(term) || dropout->HasInput("Seed") ||
        dropout->GetAttr<bool>("is_test", false))
      return nullptr;
    if (!dropout->HasOutput("Mask")) return dropout;
    return HasBytes(Only(dropout->Output("Mask"))) ? dropout : nullptr;
  }

  // --- backward ---

  void Backward(const OpDesc& norm) {
    if (Only(norm.Input("Mean")).empty() || Only(norm.Input("Variance")).empty()) return;
    Ops ops = {&norm};
    std::string grad = Only(norm.Output("X@GRAD")), other;
    const OpDesc* reader = ReaderOf(grad, norm);
    if (reader && reader->type() == "sum") {
      other = OtherTerm(*reader, grad);
      grad = Only(reader->Output("Out"));
      ops.push_back(reader);
      reader = other.empty() ? nullptr : ReaderOf(grad, *reader);
    }
    if (!reader || !IsPlainSum(*reader, "elementwise_add_grad") ||
        Only(reader->Input("Out@GRAD")) != grad)
      return;
    const OpDesc& add = *reader;
    ops.push_back(&add);
    for (const char* slot : {"X", "Y"}) {
      const OpDesc* dropout = DropoutGradOf(add, slot);
      if (!dropout) continue;
      Ops all = ops;
      all.push_back(dropout);
      if (Replace(all, FusedBackward(norm, add, other, dropout, slot))) return;
    }
    Replace(ops, FusedBackward(norm, add, other, nullptr, ""));
  }

  OpDesc FusedBackward(const OpDesc& norm, const OpDesc& add, const std::string& other,
                       const OpDesc* dropout, const std::string& dropped) const {
    OpDesc fused(std::string(kFused) + "_gradients", {{"X", norm.Input("X")}}, {}, NormAttrs(norm));
    const std::pair<const char*, const char*> terms[] = {{"X", "A"}, {"Y", "B"}};
    for (const auto& [slot, term] : terms) {
      // The mask gives the shape of the dropped term.
      if (dropped != slot && !Only(add.Input(slot)).empty()) fused.SetInput(term, add.Input(slot));
    }
    Pass(norm.inputs(), {"Scale", "Bias", "Mean", "Variance"},
         [&](const char* slot, const auto& args) { fused.SetInput(slot, args); });
    if (dropout) fused.SetInput("Mask", dropout->Input("Mask"));
    fused.SetInput("Out@GRAD", norm.Input("Y@GRAD"));
    if (!other.empty()) fused.SetInput("Sum@GRAD", {other});
    for (const auto& [slot, term] : terms) {
      const std::string name = std::string(slot) + "@GRAD";
      const bool masked = dropped == slot;
      if (!masked && Only(add.Output(name)).empty()) continue;
      fused.SetOutput(std::string(term) + "@GRAD",
                      masked ? dropout->Output("X@GRAD") : add.Output(name));
      if (masked) SetDropout(*dropout, term, fused);
    }
    Pass(norm.outputs(), {"Scale@GRAD", "Bias@GRAD"},
         [&](const char* slot, const auto& args) { fused.SetOutput(slot, args); });
    CopyRemarks(norm, fused);
    return fused;
  }

  const OpDesc* DropoutGradOf(const OpDesc& add, const std::string& slot) const {
    const std::string grad = Only(add.Output(slot + "@GRAD"));
    const OpDesc* dropout = ReaderOf(grad, add);
    if (!dropout || dropout->type() != "dropout_grad" || dropout->GetAttr<bool>("is_test", false) ||
        Only(dropout->Input("Out@GRAD")) != grad || Only(dropout->Output("X@GRAD")).empty())
      return nullptr;
    return HasBytes(Only(dropout->Input("Mask"))) ? dropout : nullptr;
  }

  // The other term that is added to `grad`, if it is one dense tensor that an op of this block
  // has computed.
  std::string OtherTerm(const OpDesc& sum, const std::string& grad) const {
    const std::vector<std::string>& args = sum.Input("X");
    if (args.size() != 2) return "";
    const std::string& other = args[args[0] == grad ? 1 : 0];
    const OpDesc* writer = IsEmptyName(other) || other == grad ? nullptr : WriterOf(other, sum);
    if (!writer || writer->HasSubBlock()) return "";
    const VarMeta *a = types_.Find(grad), *b = types_.Find(other);
    const bool dense = a && b && b->type == VarType::kLoDTensor && a->dtype == b->dtype;
    return dense && a->shape.CompatibleWith(b->shape) ? other : "";
  }

  // --- both ---

  static AttrList NormAttrs(const OpDesc& norm) {
    return {{"epsilon", norm.GetAttr<float>("epsilon", 1e-5f)},
            {"begin_norm_axis", norm.GetAttr<int32_t>("begin_norm_axis", 1)}};
  }
  static void SetDropout(const OpDesc& dropout, const std::string& dropped, OpDesc& fused) {
    fused.SetAttr("dropped", dropped);
    fused.SetAttr("dropout_prob", dropout.GetAttr<float>("dropout_prob", 0.5f));
    fused.SetAttr("dropout_implementation",
                  dropout.GetAttr<std::string>("dropout_implementation", "downgrade_in_infer"));
  }
  template <class Set>
  static void Pass(const SlotList& slots, std::initializer_list<const char*> names, Set&& set) {
    for (const char* name : names) {
      for (const Slot& slot : slots) {
        if (slot.name == name && !Only(slot.args).empty()) set(name, slot.args);
      }
    }
  }

  static bool IsPlainSum(const OpDesc& op, const std::string& type) {
    return op.type() == type && op.GetAttr<int32_t>("axis", -1) == -1;
  }
  // The op that wrote the variable's only value, before `reader`.
  const OpDesc* WriterOf(const std::string& var, const OpDesc& reader) const {
    if (var.empty() || !matcher_.IsWrittenOnce(var) || context_.captured.count(var)) return nullptr;
    const OpDesc* writer = block_.Uses(var).writers[0];
    return block_.IndexOf(*writer) < block_.IndexOf(reader) ? writer : nullptr;
  }
  bool IsPrivate(const std::string& var) const {
    return !context_.IsVisible(block_, var) && matcher_.IsWrittenOnce(var) &&
           matcher_.HasOneReader(var);
  }
  // The only op that reads what `writer` wrote; nullptr if there are several.
  const OpDesc* ReaderOf(const std::string& var, const OpDesc& writer) const {
    if (var.empty() || !IsPrivate(var)) return nullptr;
    const OpDesc* reader = block_.Uses(var).readers[0];
    return block_.IndexOf(writer) < block_.IndexOf(*reader) ? reader : nullptr;
  }
  bool HasBytes(const std::string& mask) const {
    const VarMeta* meta = mask.empty() ? nullptr : types_.Find(mask);
    return meta && meta->type == VarType::kLoDTensor && meta->dtype == DType::kUInt8;
  }

  // 16-bit floats are excluded, because single ops round the values between them.
  bool HasKernelType(const OpDesc& fused) const {
    const VarMeta* x = types_.Find(Only(fused.Input("X")));
    return x && x->type == VarType::kLoDTensor &&
           (x->dtype == DType::kFloat32 || x->dtype == DType::kFloat64);
  }

  // Whether all of the ops are recomputed copies, or none of them.
  static bool AreAlike(const Ops& ops) {
    return std::all_of(ops.begin(), ops.end(), [&](const OpDesc* op) {
      return !op->FindAttr(kRecomputedFromAttr) == !ops[0]->FindAttr(kRecomputedFromAttr);
    });
  }

  // Replaces the ops, which are in the order of the block, by the fused one at the position of
  // the last.
  bool Replace(const Ops& ops, const OpDesc& fused) {
    const bool taken =
        std::any_of(ops.begin(), ops.end(), [&](const OpDesc* op) { return taken_.count(op) > 0; });
    if (taken || !AreAlike(ops) || !HasKernelType(fused) || !matcher_.MayRunAt(ops, *ops.back()) ||
        !types_.Infer(context_.ops.Get(fused.type()), fused))
      return false;
    taken_.insert(ops.begin(), ops.end());
    rewrites_.Replace(ops, *ops.back(), {fused});
    return true;
  }

  const PassContext& context_;
  BlockDesc& block_;
  const Matcher matcher_;
  FlowTypes types_;
  Rewrites rewrites_;
  std::unordered_set<const OpDesc*> taken_;
};

}  // namespace

void FuseLayerNorm(ProgramDesc& program, const PassContext& context) {
  // Fuses the gradients first, because the gradient of the sum may read the shape of the
  // dropped term.
  LayerNormFuser(program, context).FuseGradients();
  LayerNormFuser(program, context).FuseForward();
}

}  // namespace coracle
