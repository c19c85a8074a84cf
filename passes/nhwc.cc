#include <coracle/framework/ir/origin.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/recomputed.h>
#include <coracle/passes/passes.h>
#include <coracle/passes/quantized_form.h>
#include <coracle/passes/transposes.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>
#include <unordered_map>

namespace coracle::inline internal {
namespace {

// Images [N, C, H, W] and volumes [N, C, D, H, W]. "NHWC" below is NDHWC for volumes.
bool IsImageRank(int rank) { return rank == 4 || rank == 5; }

// The permutation that moves the channels of an image or a volume to the end.
Ints ToNhwc(int rank) {
  Ints axes = {0};
  for (int32_t i = 2; i < rank; ++i) axes.push_back(i);
  axes.push_back(1);
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

// The rank of an image or a volume; 0 for any other variable.
int ImageRank(const BlockDesc& block, const std::string& name) {
  const VarDesc* var = block.FindVarRecursive(name);
  if (!var || var->type() != VarType::kLoDTensor) return 0;
  return IsImageRank(var->shape().rank()) ? var->shape().rank() : 0;
}

// The rank of the images that the op can process in NHWC instead of NCHW; 0 if it cannot.
int LayoutRank(const BlockDesc& block, const OpSpec& def, const OpDesc& op) {
  if (def.layout_attr.empty()) return 0;
  const std::string layout = def.AttrOf<std::string>(op, def.layout_attr);
  if (layout != "NCHW" && layout != "NCDHW" && layout != "AnyLayout") return 0;
  int rank = 0;
  for (const std::string& slot : def.layout_slots) {
    for (const auto* args : {&op.Input(slot), &op.Output(slot)}) {
      for (const std::string& name : *args) {
        if (IsEmptyName(name)) continue;
        const int its_rank = ImageRank(block, name);
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

// Whether the variable is a vector operand whose position the op's attr axis gives.
bool IsVector(const BlockDesc& block, const OpSpec& def, const std::string& name,
              const std::string& slot) {
  if (!def.FindAttr("axis") || (slot != "Y" && slot != "Y@GRAD")) return false;
  const VarDesc* var = block.FindVarRecursive(name);
  return var && var->type() == VarType::kLoDTensor && var->shape().rank() == 1;
}

using Vectors = std::unordered_set<std::string>;

// Whether the variables of an elementwise op are images of one rank, so that it may follow in NHWC.
// Dims of 1 (of a gate [N, C, 1, 1], or of a mean [1, C, 1, 1]) are broadcast in the same way in
// both layouts. Y may instead be a vector along one axis of the images; if that is the last or the
// first axis, the vector's rank must be certain, because a value with more axes would lie along
// other axes.
bool HasOneLayout(const BlockDesc& block, const OpSpec& def, const OpDesc& op,
                  const Vectors& vectors) {
  const auto axis = op.GetAttr<int32_t>("axis", -1);
  const bool at_an_end = axis == -1 || axis == 0;
  const Shape* shape = nullptr;
  bool one_shape = true;
  auto other = [&](const std::string& name, const std::string& slot) {
    if (IsTable(def, slot)) return false;
    if (ImageRank(block, name) == 0) {
      return !IsVector(block, def, name, slot) ||
             (at_an_end && slot == "Y" && !vectors.count(name)) ||
             (at_an_end && slot != "Y" && op.Input("Y").empty());
    }
    const Shape& s = block.FindVarRecursive(name)->shape();
    if (!shape) shape = &s;
    one_shape = one_shape && *shape == s;
    return shape->rank() != s.rank();
  };
  if (op.AnyInput(other) || op.AnyOutput(other) || !shape) return false;
  return one_shape || at_an_end;  // else it is meaningless, or an error
}

// The rank of images that the op joins or splits along an axis other than the first one (along
// which it makes LoD); 0 for another op.
int JoinedRank(const BlockDesc& block, const OpSpec& def, const OpDesc& op) {
  if (op.type() != "concat" && op.type() != "split" && op.type() != "quantized_concat") return 0;
  int rank = 0;
  const auto other = [&](const std::string& name, const std::string& slot) {
    if (IsTable(def, slot)) return false;
    const int its_rank = slot == "X" || slot == "Out" ? ImageRank(block, name) : 0;
    if (rank == 0) rank = its_rank;
    return its_rank == 0 || its_rank != rank;
  };
  if (op.AnyInput(other) || op.AnyOutput(other)) return 0;
  const auto axis = op.GetAttr<int32_t>("axis", 0);
  return (axis > 0 && axis < rank) || (axis < 0 && axis > -rank) ? rank : 0;
}

// The position in NHWC of an axis of the image.
int32_t AxisInNhwc(int32_t axis, int rank) {
  if (axis < 0) axis += rank;
  return axis == 1 ? rank - 1 : axis > 1 ? axis - 1 : axis;
}

// The ranks of images or volumes with convolutions: only convolutions justify conversions.
std::unordered_set<int> RanksOfConvolutions(const BlockDesc& block, const OpRegistry& ops) {
  std::unordered_set<int> ranks;
  block.ForEachOp([&](const OpDesc& op) {
    const OpSpec* def = ops.Find(op.type());
    if (!def || !op.HasInput("Filter")) return;
    if (const int rank = LayoutRank(block, *def, op)) ranks.insert(rank);
  });
  return ranks;
}

// The operands Y whose rank is 1 in every run.
Vectors FindVectors(ProgramDesc& program, const PassContext& context) {
  Vectors vectors;
  const ValueFlow flow(program, context);
  program.Root().ForEachOp([&](const OpDesc& op) {
    for (const std::string& name : op.Input("Y"))
      if (flow.CertainRank(name) == 1) vectors.insert(name);
  });
  return vectors;
}

// The block being rewritten, with the NHWC forms of its images.
class NhwcForms {
 public:
  NhwcForms(ProgramDesc& program, const PassContext& context)
      : program_(program), context_(context), block_(program.Root()) {}

  // Begins with the next op of the block.
  void Begin(const OpDesc& op) { at_ = &op; }

  // Whether an input of the op exists only in NHWC, so that an op in NHWC saves a conversion.
  bool SavesConversion(const OpDesc& op) const {
    return op.AnyInput([&](const std::string& name) {
      auto it = forms_.find(name);
      return it != forms_.end() && !it->second.has_nchw;
    });
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

  // Makes the op read and write NCHW.
  void KeepNchw(const OpDesc& op) {
    op.ForEachInput([&](const std::string& name) { MakeNchw(name); });
    op.ForEachOutput([&](const std::string& name) { forms_.erase(name); });
  }

  // Appends the op to the rewritten block, then conversions of the visible variables it writes.
  void Append(std::unique_ptr<OpDesc> op) {
    RenameOriginals(*op);
    out_.push_back(std::move(op));
    for (const std::string& name : show_) MakeNchw(name);
    show_.clear();
  }

  std::vector<std::unique_ptr<OpDesc>> ReleaseOps() { return std::move(out_); }

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

 private:
  // The present value of a variable: the name of its NHWC form, and whether the NCHW form
  // also exists.
  struct Form {
    std::string nhwc;
    bool has_nchw = false;
  };

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

  std::string NewNhwcVar(const std::string& name, std::shared_ptr<const OpDesc> writer = nullptr) {
    VarMeta meta = block_.FindVarRecursive(name)->meta();
    const Ints axes = ToNhwc(meta.shape.rank());
    meta.shape = Permuted(meta.shape, axes);
    return context_.AddForm(program_, name, "@NHWC", meta, axes, std::move(writer));
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
    const Ints axis = to_nhwc ? ToNhwc(rank) : Inverse(ToNhwc(rank));
    out_.push_back(std::make_unique<OpDesc>("transpose2", SlotList{{"X", {from}}},
                                            SlotList{{"Out", {to}}},
                                            AttrList{{"axis", axis}, {"keeps_lod", true}}));
    AddOrigins(*at_, *out_.back());
  }

  ProgramDesc& program_;
  const PassContext& context_;
  BlockDesc& block_;
  const OpDesc* at_ = nullptr;  // the op being rewritten
  std::vector<std::unique_ptr<OpDesc>> out_;
  std::unordered_map<std::string, Form> forms_;
  std::unordered_map<std::string, std::string> written_in_nhwc_;  // by the name in NCHW
  std::vector<std::string> show_;
};

// Rewrites an elementwise op: renames its images to NHWC forms and sets the axis of Y.
void ConvertElementwise(const BlockDesc& block, const OpSpec& def, OpDesc& op, NhwcForms& forms) {
  int rank = 0;
  bool vector = false;
  const auto look = [&](const std::string& name, const std::string& slot) {
    if (IsTable(def, slot)) return;
    rank = std::max(rank, ImageRank(block, name));
    vector = vector || (ImageRank(block, name) == 0 && IsVector(block, def, name, slot));
  };
  op.ForEachInput(look);
  op.ForEachOutput(look);
  forms.Convert(op, [&](const std::string& name, const std::string& slot) {
    return !IsTable(def, slot) && ImageRank(block, name) != 0;
  });
  if (!vector) return;
  op.SetAttr("axis", AxisInNhwc(op.GetAttr<int32_t>("axis", -1), rank));
}

}  // namespace

void UseNhwcLayout(ProgramDesc& program, const PassContext& context) {
  BlockDesc& block = program.Root();
  const std::unordered_set<int> ranks = RanksOfConvolutions(block, context.ops);
  if (ranks.empty()) return;
  const Vectors vectors = FindVectors(program, context);
  NhwcForms forms(program, context);
  for (std::unique_ptr<OpDesc>& op : block.ReleaseOps()) {
    forms.Begin(*op);
    const OpSpec* def = context.ops.Find(op->type());
    const int rank = def ? LayoutRank(block, *def, *op) : 0;
    if (ranks.count(rank)) {
      const std::vector<std::string>& slots = def->layout_slots;
      forms.Convert(*op, [&](const std::string&, const std::string& slot) {
        return std::find(slots.begin(), slots.end(), slot) != slots.end();
      });
      op->SetAttr(def->layout_attr, LastLayout(*def, rank));
    } else if (def && WorksOnElements(*op, *def, block, context) &&
               HasOneLayout(block, *def, *op, vectors) && forms.SavesConversion(*op)) {
      ConvertElementwise(block, *def, *op, forms);
    } else if (IgnoresOrder(*op) && forms.SavesConversion(*op)) {
      forms.Convert(*op, [&](const std::string& name, const std::string& slot) {
        return slot == "X" && ImageRank(block, name) != 0;
      });
    } else if (const int joined = def ? JoinedRank(block, *def, *op) : 0;
               joined != 0 && forms.SavesConversion(*op)) {
      forms.Convert(
          *op, [&](const std::string&, const std::string& slot) { return !IsTable(*def, slot); });
      op->SetAttr("axis", AxisInNhwc(op->GetAttr<int32_t>("axis", 0), joined));
    } else {
      forms.KeepNchw(*op);
    }
    forms.Append(std::move(op));
  }
  block.SetOps(forms.ReleaseOps());
  forms.RemoveUnusedForms();
}

}  // namespace coracle::inline internal
