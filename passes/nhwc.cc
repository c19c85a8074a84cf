#include <coracle/framework/ir/origin.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/recomputed.h>
#include <coracle/passes/passes.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>
#include <unordered_map>

namespace coracle {
namespace {

// Images [N, C, H, W] and volumes [N, C, D, H, W]. "NHWC" below is NDHWC for volumes.
bool IsImageRank(int rank) { return rank == 4 || rank == 5; }

// The permutation that moves the channels of an image or a volume to the end.
std::vector<int32_t> ToNhwc(int rank) {
  std::vector<int32_t> axes = {0};
  for (int32_t i = 2; i < rank; ++i) axes.push_back(i);
  axes.push_back(1);
  return axes;
}

// The inverse permutation.
std::vector<int32_t> ToNchw(int rank) {
  std::vector<int32_t> axes = {0, rank - 1};
  for (int32_t i = 1; i + 1 < rank; ++i) axes.push_back(i);
  return axes;
}

// The op's name for channels last at this rank: "NDHWC" if it knows that name; "" if it has no
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
    FindVectors();
    for (std::unique_ptr<OpDesc>& op : block_.ReleaseOps()) {
      at_ = op.get();
      const OpSpec* def = context_.ops.Find(op->type());
      const int rank = def ? LayoutRank(*def, *op) : 0;
      if (ranks_.count(rank)) {
        const std::vector<std::string>& slots = def->layout_slots;
        Convert(*op, [&](const std::string&, const std::string& slot) {
          return std::find(slots.begin(), slots.end(), slot) != slots.end();
        });
        op->SetAttr(def->layout_attr, LastLayout(*def, rank));
      } else if (def && def->elementwise && FollowsLayout(*def, *op)) {
        ConvertElementwise(*def, *op);
      } else if (const int joined = JoinedRank(*op); joined != 0 && SavesConversion(*op)) {
        Convert(*op, [](const std::string&, const std::string&) { return true; });
        op->SetAttr("axis", AxisInNhwc(op->GetAttr<int32_t>("axis", 0), joined));
      } else {
        KeepNchw(*op);
      }
      RenameOriginals(*op);
      Emit(std::move(op));
    }
    block_.SetOps(std::move(out_));
    RemoveUnusedForms();
  }

 private:
  // The present value of a variable: the name of its NHWC form, and whether the NCHW form
  // also exists.
  struct Form {
    std::string nhwc;
    bool has_nchw = false;
  };

  // Finds the ranks of images or volumes with convolutions: only convolutions justify conversions.
  void FindConvolutions() {
    for (size_t i = 0; i < block_.NumOps(); ++i) {
      const OpDesc& op = block_.op(i);
      const OpSpec* def = context_.ops.Find(op.type());
      if (!def || !op.HasInput("Filter")) continue;
      if (const int rank = LayoutRank(*def, op)) ranks_.insert(rank);
    }
  }

  // Finds the operands Y whose rank is 1 in every run.
  void FindVectors() {
    const ValueFlow flow(program_, context_);
    block_.ForEachOp([&](const OpDesc& op) {
      for (const std::string& name : op.Input("Y"))
        if (flow.CertainRank(name) == 1) vectors_.insert(name);
    });
  }

  // The rank of the images that the op can process in NHWC instead of NCHW; 0 if it cannot.
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
      // An op that reads and writes the same image is not changed, because the image's previous
      // value may be unknown here.
      for (const std::string& name : op.Output(slot)) {
        if (op.Reads(name)) return 0;
      }
    }
    return rank != 0 && LastLayout(def, rank).empty() ? 0 : rank;
  }

  // Returns 0 if the variable is not an image.
  int ImageRank(const std::string& name) const {
    const VarDesc* var = block_.FindVarRecursive(name);
    if (!var || var->type() != VarType::kLoDTensor) return 0;
    return IsImageRank(var->shape().rank()) ? var->shape().rank() : 0;
  }

  // An elementwise op follows in NHWC if one of its inputs exists only in NHWC, so that a
  // conversion is saved, and its variables are images of one rank. Dims of 1 (of a gate [N, C, 1,
  // 1], or of a mean [1, C, 1, 1]) are broadcast in the same way in both layouts. Y may instead be
  // a vector along one axis of the images; if that is the last or the first axis, the vector's rank
  // must be certain, because a value with more axes would lie along other axes.
  bool FollowsLayout(const OpSpec& def, const OpDesc& op) const {
    const auto axis = op.GetAttr<int32_t>("axis", -1);
    const bool at_an_end = axis == -1 || axis == 0;
    const Shape* shape = nullptr;
    bool one_shape = true;
    auto other = [&](const std::string& name, const std::string& slot) {
      if (ImageRank(name) == 0) {
        return !IsVector(def, name, slot) || (at_an_end && slot == "Y" && !vectors_.count(name)) ||
               (at_an_end && slot != "Y" && op.Input("Y").empty());
      }
      const Shape& s = block_.FindVarRecursive(name)->shape();
      if (!shape) shape = &s;
      one_shape = one_shape && *shape == s;
      return shape->rank() != s.rank();
    };
    if (op.AnyInput(other) || op.AnyOutput(other) || !shape) return false;
    if (!one_shape && !at_an_end) return false;  // meaningless, or an error
    return SavesConversion(op);
  }

  bool SavesConversion(const OpDesc& op) const {
    return op.AnyInput([&](const std::string& name) {
      auto it = forms_.find(name);
      return it != forms_.end() && !it->second.has_nchw;
    });
  }

  // The rank of images that the op joins or splits along an axis other than the first one (along
  // which it makes LoD); 0 for another op.
  int JoinedRank(const OpDesc& op) const {
    if (op.type() != "concat" && op.type() != "split") return 0;
    int rank = 0;
    const auto other = [&](const std::string& name, const std::string& slot) {
      const int its_rank = slot == "X" || slot == "Out" ? ImageRank(name) : 0;
      if (rank == 0) rank = its_rank;
      return its_rank == 0 || its_rank != rank;
    };
    if (op.AnyInput(other) || op.AnyOutput(other)) return 0;
    const auto axis = op.GetAttr<int32_t>("axis", 0);
    return (axis > 0 && axis < rank) || (axis < 0 && axis > -rank) ? rank : 0;
  }

  // The position in NHWC of an axis of the image.
  static int32_t AxisInNhwc(int32_t axis, int rank) {
    if (axis < 0) axis += rank;
    return axis == 1 ? rank - 1 : axis > 1 ? axis - 1 : axis;
  }

  // Whether the variable is a vector operand whose position the op's attr axis gives.
  bool IsVector(const OpSpec& def, const std::string& name, const std::string& slot) const {
    if (!def.FindAttr("axis") || (slot != "Y" && slot != "Y@GRAD")) return false;
    const VarDesc* var = block_.FindVarRecursive(name);
    return var && var->type() == VarType::kLoDTensor && var->shape().rank() == 1;
  }

  // Rewrites an elementwise op: renames its images to NHWC forms and sets the axis of Y.
  void ConvertElementwise(const OpSpec& def, OpDesc& op) {
    int rank = 0;
    bool vector = false;
    const auto look = [&](const std::string& name, const std::string& slot) {
      rank = std::max(rank, ImageRank(name));
      vector = vector || (ImageRank(name) == 0 && IsVector(def, name, slot));
    };
    op.ForEachInput(look);
    op.ForEachOutput(look);
    Convert(op, [&](const std::string& name, const std::string&) { return ImageRank(name) != 0; });
    if (!vector) return;
    op.SetAttr("axis", AxisInNhwc(op.GetAttr<int32_t>("axis", -1), rank));
  }

  // Renames the op's variables for which listed(name, slot) holds to their NHWC forms.
  template <class Listed>
  void Convert(OpDesc& op, Listed&& listed) {
    const auto given = std::make_shared<const OpDesc>(op);
    op.RenameInputs([&](const std::string& name, const std::string& slot) {
      if (listed(name, slot)) return NhwcForm(name);
      MakeNchw(name);
      return name;
    });
    op.RenameOutputs([&](const std::string& name, const std::string& slot) {
      if (!listed(name, slot)) {
        forms_.erase(name);
        return name;
      }
      std::string nhwc = NewNhwcVar(name, given);
      forms_[name] = {nhwc, false};
      written_in_nhwc_[name] = nhwc;
      if (context_.IsVisible(block_, name)) show_.push_back(name);
      return nhwc;
    });
  }

  // Makes a recomputed copy name the variable that its original now writes.
  void RenameOriginals(OpDesc& op) const {
    if (!op.HasAttr(kRecomputedFromAttr)) return;
    auto names = op.GetAttr<std::vector<std::string>>(kRecomputedFromAttr, {});
    for (std::string& name : names) {
      auto form = written_in_nhwc_.find(name);
      if (form != written_in_nhwc_.end()) name = form->second;
    }
    op.SetAttr(kRecomputedFromAttr, std::move(names));
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

  std::string NewNhwcVar(const std::string& name, std::shared_ptr<const OpDesc> writer = nullptr) {
    const VarDesc& from = *block_.FindVarRecursive(name);
    std::string nhwc = program_.FreeName(name + "@NHWC");
    VarDesc& var = block_.Var(nhwc);
    VarMeta meta = from.meta();
    const Shape& nchw = from.meta().shape;
    const std::vector<int32_t> axes = ToNhwc(nchw.rank());
    for (size_t i = 0; i < axes.size(); ++i) meta.shape[static_cast<int>(i)] = nchw[axes[i]];
    var.SetMeta(meta);
    context_.NoteMade(nhwc, name, axes, std::move(writer));
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

  // A reshape would suffice for one channel, but the fed image may have another number of channels
  // than the program declares.
  void AppendConversion(const std::string& from, const std::string& to, bool to_nhwc) {
    const int rank = block_.FindVarRecursive(from)->shape().rank();
    std::vector<int32_t> axis = to_nhwc ? ToNhwc(rank) : ToNchw(rank);
    out_.push_back(
        std::make_unique<OpDesc>("transpose2", SlotList{{"X", {from}}}, SlotList{{"Out", {to}}},
                                 AttrList{{"axis", std::move(axis)}, {"keeps_lod", true}}));
    AddOrigins(*at_, *out_.back());
  }

  // Removes the NCHW variables that no op writes any more, because only their NHWC forms exist.
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
  const OpDesc* at_ = nullptr;     // the op being rewritten
  std::unordered_set<int> ranks_;  // of images to convert
  std::unordered_set<std::string> vectors_;
  std::vector<std::unique_ptr<OpDesc>> out_;
  std::unordered_map<std::string, Form> forms_;
  std::unordered_map<std::string, std::string> written_in_nhwc_;  // by the name in NCHW
  std::vector<std::string> show_;
};

}  // namespace

void UseNhwcLayout(ProgramDesc& program, const PassContext& context) {
  NhwcRewriter(program, context).Run();
}

}  // namespace coracle
