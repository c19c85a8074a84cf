#include <coracle/framework/op/infer_context.h>
#include <coracle/passes/pass.h>

#include <algorithm>
#include <unordered_map>

namespace coracle {
namespace {

Shape ToNhwc(const Shape& s) { return {s[0], s[2], s[3], s[1]}; }

class NhwcRewriter {
 public:
  NhwcRewriter(ProgramDesc& program, const PassContext& context)
      : program_(program), context_(context), block_(program.Root()) {}

  void Run() {
    if (!AnyImageOp()) return;
    for (std::unique_ptr<OpDesc>& op : block_.ReleaseOps()) {
      const OpSpec* def = context_.ops.Find(op->type());
      if (def && TakesLayout(*def, *op)) {
        Convert(*op, def->layout_slots);
        op->SetAttr(def->layout_attr, std::string("NHWC"));
      } else if (def && def->elementwise && FollowsLayout(*op)) {
        Convert(*op, {});
      } else {
        KeepNchw(*op);
      }
      Emit(std::move(op));
    }
    block_.SetOps(std::move(out_));
    RemoveUnusedForms();
  }

 private:
  // What is known of a variable's present value: the name of its NHWC form, and whether the NCHW
  // form exists too.
  struct Form {
    std::string nhwc;
    bool has_nchw = false;
  };

  bool AnyImageOp() const {
    for (size_t i = 0; i < block_.NumOps(); ++i) {
      const OpSpec* def = context_.ops.Find(block_.op(i).type());
      // Only a convolution is worth the conversions around it.
      if (def && TakesLayout(*def, block_.op(i)) && block_.op(i).HasInput("Filter")) return true;
    }
    return false;
  }

  bool TakesLayout(const OpSpec& def, const OpDesc& op) const {
    if (def.layout_attr.empty()) return false;
    std::string layout = def.AttrOf<std::string>(op, def.layout_attr);
    if (layout != "NCHW" && layout != "AnyLayout") return false;
    for (const std::string& slot : def.layout_slots) {
      for (const auto* args : {&op.Input(slot), &op.Output(slot)}) {
        for (const std::string& name : *args) {
          if (!IsEmptyName(name) && !IsImage(name)) return false;
        }
      }
      // An op that reads and writes the same image stays as it is: the value before may be one that
      // only the op knows.
      for (const std::string& name : op.Output(slot)) {
        if (op.Reads(name)) return false;
      }
    }
    return true;
  }

  bool IsImage(const std::string& name) const {
    const VarDesc* var = block_.FindVarRecursive(name);
    return var && var->type() == VarType::kLoDTensor && var->shape().rank() == 4;
  }

  // An elementwise op follows in NHWC if one of its inputs exists only in NHWC, so that a
  // conversion is saved, and all of its variables are images of one shape.
  bool FollowsLayout(const OpDesc& op) const {
    const Shape* shape = nullptr;
    auto other = [&](const std::string& name) {
      if (!IsImage(name)) return true;
      const Shape& s = block_.FindVarRecursive(name)->shape();
      if (!shape) shape = &s;
      return !(*shape == s);
    };
    if (op.AnyInput(other) || op.AnyOutput(other)) return false;
    return op.AnyInput([&](const std::string& name) {
      auto it = forms_.find(name);
      return it != forms_.end() && !it->second.has_nchw;
    });
  }

  static bool Listed(const std::vector<std::string>& slots, const std::string& name) {
    return slots.empty() || std::find(slots.begin(), slots.end(), name) != slots.end();
  }

  // Rewrites the op's variables in `slots` (all, when empty) to their NHWC forms.
  void Convert(OpDesc& op, const std::vector<std::string>& slots) {
    op.RenameInputs([&](const std::string& name, const std::string& slot) {
      if (Listed(slots, slot)) return NhwcForm(name);
      MakeNchw(name);
      return name;
    });
    op.RenameOutputs([&](const std::string& name, const std::string& slot) {
      if (!Listed(slots, slot)) {
        forms_.erase(name);
        return name;
      }
      std::string nhwc = NewNhwcVar(name);
      forms_[name] = {nhwc, false};
      if (context_.IsVisible(block_, name)) show_.push_back(name);
      return nhwc;
    });
  }

  void KeepNchw(const OpDesc& op) {
    op.ForEachInput([&](const std::string& name) { MakeNchw(name); });
    op.ForEachOutput([&](const std::string& name) { forms_.erase(name); });
  }

  void Emit(std::unique_ptr<OpDesc> op) {
    out_.push_back(std::move(op));
    for (const std::string& name : show_) MakeNchw(name);
    show_.clear();
  }

  std::string NewNhwcVar(const std::string& name) {
    const VarDesc& from = *block_.FindVarRecursive(name);
    std::string nhwc = program_.FreeName(name + "@NHWC");
    VarDesc& var = block_.Var(nhwc);
    VarMeta meta = from.meta();
    meta.shape = ToNhwc(meta.shape);
    var.SetMeta(meta);
    return nhwc;
  }

  std::string NhwcForm(const std::string& name) {
    auto it = forms_.find(name);
    if (it != forms_.end()) return it->second.nhwc;
    std::string nhwc = NewNhwcVar(name);
    AppendConversion(name, nhwc, true);
    forms_[name] = {nhwc, true};
    return nhwc;
  }

  void MakeNchw(const std::string& name) {
    auto it = forms_.find(name);
    if (it == forms_.end() || it->second.has_nchw) return;
    AppendConversion(it->second.nhwc, name, false);
    it->second.has_nchw = true;
  }

  // For one channel a reshape would be enough, but the image that is fed may have another number of
  // channels than the program declares.
  void AppendConversion(const std::string& from, const std::string& to, bool to_nhwc) {
    std::vector<int32_t> axis =
        to_nhwc ? std::vector<int32_t>{0, 2, 3, 1} : std::vector<int32_t>{0, 3, 1, 2};
    out_.push_back(
        std::make_unique<OpDesc>("transpose2", SlotList{{"X", {from}}}, SlotList{{"Out", {to}}},
                                 AttrList{{"axis", std::move(axis)}, {"keeps_lod", true}}));
  }

  // Variables that only exist in NHWC keep their NCHW VarDesc, which nothing writes any more.
  void RemoveUnusedForms() {
    std::unordered_set<std::string> used;
    auto use = [&](const std::string& name) { used.insert(name); };
    block_.ForEachOp([&](const OpDesc& op) {
      op.ForEachInput(use);
      op.ForEachOutput(use);
    });
    block_.RemoveVarsIf([&](const VarDesc& var) {
      return forms_.count(var.name()) && !used.count(var.name()) &&
             !context_.IsVisible(block_, var.name());
    });
  }

  ProgramDesc& program_;
  const PassContext& context_;
  BlockDesc& block_;
  std::vector<std::unique_ptr<OpDesc>> out_;
  std::unordered_map<std::string, Form> forms_;
  std::vector<std::string> show_;
};

}  // namespace

void UseNhwcLayout(ProgramDesc& program, const PassContext& context) {
  NhwcRewriter(program, context).Run();
}

}  // namespace coracle
