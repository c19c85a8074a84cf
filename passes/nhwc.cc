#include <coracle/framework/op/infer_context.h>
#include <coracle/passes/pass.h>

#include <algorithm>
#include <unordered_map>

namespace coracle {
namespace {

// Images [N, C, H, W] and volumes [N, C, D, H, W]. "NHWC" below is NDHWC for volumes.
bool IsImageRank(int rank) { return rank == 4 || rank == 5; }

// The axes of an image or a volume with the channels last.
std::vector<int32_t> ToNhwc(int rank) {
  std::vector<int32_t> axes = {0};
  for (int32_t i = 2; i < rank; ++i) axes.push_back(i);
  axes.push_back(1);
  return axes;
}

// And back.
std::vector<int32_t> ToNchw(int rank) {
  std::vector<int32_t> axes = {0, rank - 1};
  for (int32_t i = 1; i + 1 < rank; ++i) axes.push_back(i);
  return axes;
}

// What the op calls channels last for this rank: "NDHWC" where it knows that word; "" if it has no
// such layout.
std::string LastLayout(const OpSpec& def, int rank) {
  const auto attr = std::find_if(def.attrs.begin(), def.attrs.end(),
                                 [&](const AttrDef& a) { return a.name == def.layout_attr; });
  if (attr == def.attrs.end()) return "";
  const auto knows = [&](const char* word) {
    return std::find(attr->one_of.begin(), attr->one_of.end(), word) != attr->one_of.end();
  };
  if (rank == 5 && knows("NDHWC")) return "NDHWC";
  return knows("NHWC") ? "NHWC" : "";
}

class NhwcRewriter {
 public:
  NhwcRewriter(ProgramDesc& program, const PassContext& context)
      : program_(program), context_(context), block_(program.Root()) {}

  void Run() {
    FindConvolutions();
    if (ranks_.empty()) return;
    for (std::unique_ptr<OpDesc>& op : block_.ReleaseOps()) {
      const OpSpec* def = context_.ops.Find(op->type());
      const int rank = def ? LayoutRank(*def, *op) : 0;
      if (ranks_.count(rank)) {
        Convert(*op, def->layout_slots);
        op->SetAttr(def->layout_attr, LastLayout(*def, rank));
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

  // Only a convolution is worth the conversions around it: of images, or of volumes.
  void FindConvolutions() {
    for (size_t i = 0; i < block_.NumOps(); ++i) {
      const OpDesc& op = block_.op(i);
      const OpSpec* def = context_.ops.Find(op.type());
      if (!def || !op.HasInput("Filter")) continue;
      if (const int rank = LayoutRank(*def, op)) ranks_.insert(rank);
    }
  }

  // The rank of the images that the op can have in NHWC in place of NCHW; 0 if it cannot.
  int LayoutRank(const OpSpec& def, const OpDesc& op) const {
    if (def.layout_attr.empty()) return 0;
    const std::string layout = def.AttrOf<std::string>(op, def.layout_attr);
    if (layout != "NCHW" && layout != "NCDHW" && layout != "AnyLayout") return 0;
    int rank = 0;
    for (const std::string& slot : def.layout_slots) {
      for (const auto* args : {&op.Input(slot), &op.Output(slot)}) {
        for (const std::string& name : *args) {
          if (IsEmptyName(name)) continue;
          const int its_rank = ImageRank(name);
          if (its_rank == 0 || (rank != 0 && its_rank != rank)) return 0;
          rank = its_rank;
        }
      }
      // An op that reads and writes the same image stays as it is: the value before may be one that
      // only the op knows.
      for (const std::string& name : op.Output(slot)) {
        if (op.Reads(name)) return 0;
      }
    }
    return rank != 0 && LastLayout(def, rank).empty() ? 0 : rank;
  }

  // 0 for what is no image.
  int ImageRank(const std::string& name) const {
    const VarDesc* var = block_.FindVarRecursive(name);
    if (!var || var->type() != VarType::kLoDTensor) return 0;
    return IsImageRank(var->shape().rank()) ? var->shape().rank() : 0;
  }

  // An elementwise op follows in NHWC if one of its inputs exists only in NHWC, so that a
  // conversion is saved, and all of its variables are images of one shape.
  bool FollowsLayout(const OpDesc& op) const {
    const Shape* shape = nullptr;
    auto other = [&](const std::string& name) {
      if (ImageRank(name) == 0) return true;
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
    const Shape& nchw = from.meta().shape;
    const std::vector<int32_t> axes = ToNhwc(nchw.rank());
    for (size_t i = 0; i < axes.size(); ++i) meta.shape[static_cast<int>(i)] = nchw[axes[i]];
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
    const int rank = block_.FindVarRecursive(from)->shape().rank();
    std::vector<int32_t> axis = to_nhwc ? ToNhwc(rank) : ToNchw(rank);
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
  std::unordered_set<int> ranks_;  // of images that are converted
  std::vector<std::unique_ptr<OpDesc>> out_;
  std::unordered_map<std::string, Form> forms_;
  std::vector<std::string> show_;
};

}  // namespace

void UseNhwcLayout(ProgramDesc& program, const PassContext& context) {
  NhwcRewriter(program, context).Run();
}

}  // namespace coracle
