#include <coracle/framework/op/check/run_rules.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/test/fuzz/draw_op.h>

#include <algorithm>
#include <cstdlib>
#include <set>

namespace coracle {
namespace {

constexpr int64_t kMaxNumel = 4096;

double Number(const std::string& text, const std::map<char, int64_t>& dims) {
  const auto letter = text.size() == 1 ? dims.find(text[0]) : dims.end();
  return letter != dims.end() ? static_cast<double>(letter->second)
                              : std::strtod(text.c_str(), nullptr);
}

bool KindFits(const SlotHint& slot, const OpDraft& draft, const Live& var, const VarMeta& meta) {
  if (slot.kind == 'A') return meta.type == VarType::kLoDTensorArray;
  if (slot.kind == 'R') return meta.type == VarType::kSelectedRows;
  if (meta.type != VarType::kLoDTensor) return false;
  switch (slot.kind) {
    case 'i':
      return (meta.dtype == DType::kInt64 || meta.dtype == DType::kInt32) && var.limit > 0 &&
             var.limit <= Number(slot.limit, draft.dims);
    case 'c':
      return meta.dtype == DType::kInt32;
    case 'b':
      return meta.dtype == DType::kBool;
    case 'z':
      return IsComplex(meta.dtype);
    case '+':
      return meta.dtype == draft.dtype && var.positive;
    default:
      return meta.dtype == draft.dtype;
  }
}

// Binds letters on success.
bool ShapeFits(const SlotHint& slot, const Shape& shape, OpDraft& draft) {
  if (!shape.IsKnown()) return slot.any_shape;
  if (slot.any_shape) return true;
  const int fixed = static_cast<int>(slot.dims.size()), num_rest = shape.rank() - fixed;
  const int rest_at = std::max(slot.rest_at, 0);
  if (num_rest < 0 || (num_rest > 0 && slot.rest_at < 0)) return false;
  std::map<char, int64_t> dims = draft.dims;
  const std::vector<int64_t> rest(shape.begin() + rest_at, shape.begin() + rest_at + num_rest);
  if (slot.rest_at >= 0 && draft.rest_bound && rest != draft.rest) return false;
  for (int i = 0; i < fixed; ++i) {
    const std::string& dim = slot.dims[static_cast<size_t>(i)];
    const int64_t got = shape[i < rest_at ? i : num_rest + i];
    if (dim == "?") continue;
    if (dim[0] >= '0' && dim[0] <= '9') {
      if (std::to_string(got) != dim) return false;
    } else if (!dims.try_emplace(dim[0], got).second && dims[dim[0]] != got) {
      return false;
    }
  }
  draft.dims = dims;
  if (slot.rest_at >= 0 && !draft.rest_bound) {
    draft.rest = rest;
    draft.rest_bound = true;
  }
  return true;
}

bool AllKnown(const OpDraft& draft) {
  bool known = true;
  ForEachPosition(draft.inputs, [&](const std::string& name) {
    known = known && draft.Find(name)->shape.IsKnown();
  });
  return known;
}

// The types that the shape rule gives to outputs under new names.
class Outcome : public MetaTable {
 public:
  explicit Outcome(const OpDraft& draft) : draft_(draft) {}
  const VarMeta* Find(const std::string& name) const override {
    const auto found = metas.find(name);
    return found != metas.end() ? &found->second : draft_.Find(name);
  }
  void Set(const std::string& name, const VarMeta& meta) override { metas[name] = meta; }
  std::map<std::string, VarMeta> metas;

 private:
  const OpDraft& draft_;
};

}  // namespace

const VarMeta& OpDrawer::MetaOf(const std::string& name) const {
  return block_->FindVarRecursive(name)->meta();
}

Shape OpDrawer::NewShape(size_t least_rank) {
  Shape shape;
  for (size_t n = least_rank + choose_.Below(4 - least_rank); n > 0; --n) shape.Append(NewDim());
  return shape;
}

int64_t OpDrawer::NewDim() {
  constexpr int64_t kLarge[] = {5,  7,  8,  9,  12, 15, 16, 17, 24,
                                31, 32, 33, 48, 63, 64, 65, 96, 130};
  if (large_left_ > 0 && choose_.OneIn(3)) {
    --large_left_;
    return choose_.Of(kLarge);
  }
  return choose_.OneIn(64) ? 0 : 1 + static_cast<int64_t>(choose_.Below(4));
}

DType OpDrawer::AnyDType() {
  constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat32, DType::kFloat32, DType::kFloat32,
                              DType::kFloat32, DType::kFloat64, DType::kInt64,   DType::kInt32};
  constexpr DType kRare[] = {DType::kBool,      DType::kUInt8,     DType::kInt8,
                             DType::kInt16,     DType::kFloat16,   DType::kBFloat16,
                             DType::kComplex64, DType::kComplex128};
  if (dtype_) return *dtype_;
  if (smooth_) return DType::kFloat32;
  return choose_.OneIn(16) ? choose_.Of(kRare) : choose_.Of(kTypes);
}

Shape OpDrawer::ShapeFor(const SlotHint& slot, OpDraft& draft) {
  if (slot.any_shape) return NewShape(0);
  if (slot.rest_at >= 0 && !draft.rest_bound) {
    for (size_t n = choose_.Below(3); n > 0; --n) draft.rest.push_back(NewDim());
    draft.rest_bound = true;
  }
  std::vector<int64_t> dims;
  for (const std::string& dim : slot.dims) {
    if (dim == "?")
      dims.push_back(NewDim());
    else if (dim[0] >= '0' && dim[0] <= '9')
      dims.push_back(dim[0] - '0');
    else
      dims.push_back(draft.dims.try_emplace(dim[0], NewDim()).first->second);
  }
  if (slot.rest_at >= 0)
    dims.insert(dims.begin() + slot.rest_at, draft.rest.begin(), draft.rest.end());
  return Shape(dims);
}

// A variable that fits, preferably one that exists. "": none can be had.
std::string OpDrawer::Choose(const SlotHint& slot, OpDraft& draft) {
  const SlotDef* declared = draft.def.FindInput(slot.name);
  const bool constant = smooth_ && declared && declared->no_gradient;
  if (!constant && !choose_.OneIn(3)) {
    const std::vector<Live>& live = *live_;
    const size_t start = live.empty() ? 0 : choose_.Below(live.size());
    for (size_t i = 0; i < live.size(); ++i) {
      const Live& var = live[(start + i) % live.size()];
      const VarMeta& meta = MetaOf(var.name);
      const bool any = !smooth_ && choose_.OneIn(512);
      if (any || (KindFits(slot, draft, var, meta) && ShapeFits(slot, meta.shape, draft)))
        return var.name;
    }
  }
  return slot.kind == 'A' || !may_make_inputs_ ? "" : NewInput(slot, constant, draft);
}

std::string OpDrawer::NewInput(const SlotHint& slot, bool constant, OpDraft& draft) {
  ProgramInput input;
  input.name = NewName("in");
  input.meta.dtype = draft.dtype;
  input.meta.shape = ShapeFor(slot, draft);
  input.positive = slot.kind == '+';
  input.persistable = choose_.OneIn(4);
  input.constant = constant;
  if (slot.kind == 'b') input.meta.dtype = DType::kBool;
  if (slot.kind == 'c') input.meta.dtype = DType::kInt32;
  if (slot.kind == 'z')
    input.meta.dtype = choose_.OneIn(2) ? DType::kComplex64 : DType::kComplex128;
  if (slot.kind == 'i') {
    input.meta.dtype = choose_.OneIn(4) ? DType::kInt32 : DType::kInt64;
    input.limit = Number(slot.limit, draft.dims);
    if (input.limit < 1) return "";  // nothing can be indexed
  }
  if (slot.kind == 'R') {
    input.meta.type = VarType::kSelectedRows;
    input.persistable = true;
  }
  draft.made.push_back(input);
  return input.name;
}

// Slots from the declaration: of the shape that their doc begins with, else the first of any shape
// and the others like it.
std::vector<SlotHint> OpDrawer::PlainSlots(const OpSpec& def) {
  std::vector<SlotHint> slots;
  for (const SlotDef& declared : def.inputs) {
    if (const auto told = SlotFromDoc(declared)) {
      slots.push_back(*told);
      continue;
    }
    if (declared.optional && !choose_.OneIn(8)) continue;
    SlotHint slot;
    slot.name = declared.name;
    slot.variadic = declared.variadic;
    slot.any_shape = false;
    slot.rest_at = 0;
    slots.push_back(slot);
  }
  return slots;
}

bool OpDrawer::FillInputs(const std::vector<SlotHint>& slots, OpDraft& draft) {
  for (const SlotHint& slot : slots) {
    if (slot.optional && choose_.OneIn(2)) continue;
    Slot filled{slot.name, {}};
    for (size_t n = slot.variadic ? 1 + choose_.Below(3) : 1; n > 0; --n) {
      filled.args.push_back(Choose(slot, draft));
      if (filled.args.back().empty()) return false;
    }
    draft.inputs.push_back(std::move(filled));
  }
  return true;
}

double OpDrawer::Real(const AttrDef& def) {
  constexpr double kReals[] = {0.5, 1, 0.25, 2, 0.1, 1e-5, 0, -1, 3};
  double value = choose_.Of(kReals);
  if (def.min) value = std::max(value, *def.min);
  if (def.max) value = std::min(value, *def.max);
  return value;
}
template <class T>
T OpDrawer::Integer(const AttrDef& def) {
  constexpr int64_t kNumbers[] = {0, 1, -1, 2, 3, 1, 0, 4, -2};
  if (def.name.find("dtype") != std::string::npos)
    return static_cast<T>(choose_.OneIn(3) ? DType::kFloat64 : DType::kFloat32);
  double value = static_cast<double>(choose_.Of(kNumbers));
  if (def.min) value = std::max(value, *def.min);
  if (def.max) value = std::min(value, *def.max);
  return static_cast<T>(value);
}
template <class F>
auto OpDrawer::List(F&& element) {
  std::vector<decltype(element())> list;
  for (size_t n = choose_.Below(4); n > 0; --n) list.push_back(element());
  return list;
}
std::optional<Attribute> OpDrawer::AnyValue(const AttrDef& def) {
  switch (def.type) {
    case AttrType::kInt:
      return Integer<int32_t>(def);
    case AttrType::kLong:
      return Integer<int64_t>(def);
    case AttrType::kFloat:
      return static_cast<float>(Real(def));
    case AttrType::kFloat64:
      return Real(def);
    case AttrType::kBoolean:
      return choose_.OneIn(2);
    case AttrType::kString:
      if (def.one_of.empty()) return std::nullopt;
      return choose_.Of(def.one_of);
    case AttrType::kInts:
      return List([&] { return Integer<int32_t>(def); });
    case AttrType::kLongs:
      return List([&] { return Integer<int64_t>(def); });
    case AttrType::kFloats:
      return List([&] { return static_cast<float>(Real(def)); });
    case AttrType::kFloat64s:
      return List([&] { return Real(def); });
    default:
      return std::nullopt;
  }
}
void OpDrawer::FillAttrs(const Recipe* recipe, OpDraft& draft) {
  if (recipe) {
    for (const auto& [name, values] : recipe->attrs) {
      const AttrDef* def = draft.def.FindAttr(name);
      if (def) draft.Set(name, ParseAttr(choose_.Of(values), def->type, draft.dims));
    }
    if (recipe->finish) recipe->finish(draft);
  }
  for (const AttrDef& def : draft.def.attrs) {
    if (draft.Has(def.name) || (def.default_value && !choose_.OneIn(3))) continue;
    if (auto value = AnyValue(def)) draft.Set(def.name, std::move(*value));
  }
}

SlotList OpDrawer::NewOutputs(const OpDraft& draft) {
  SlotList outputs;
  for (const SlotDef& def : draft.def.outputs) {
    const auto given = draft.outputs.find(def.name);
    // An op that is to be differentiated needs those that backward reads.
    const bool needed = smooth_ && IsConstant(draft.def, def.name);
    if (given == draft.outputs.end() && def.optional && !needed && choose_.OneIn(2)) continue;
    Slot slot{def.name, {}};
    for (int n = given == draft.outputs.end() ? 1 : given->second; n > 0; --n)
      slot.args.push_back(NewName("v"));
    outputs.push_back(std::move(slot));
  }
  return outputs;
}

bool OpDrawer::IsConstant(const OpSpec& def, const std::string& slot) {
  static const std::set<std::string> kStatistics = {"MeanOut",  "VarianceOut", "Mean",
                                                    "Variance", "Mask",        "DropoutState"};
  const SlotDef* declared = def.FindOutput(slot);
  return (declared && declared->intermediate) || kStatistics.count(slot) > 0;
}

std::optional<DrawnOp> OpDrawer::Draw(const OpSpec& def, const BlockDesc& block,
                                      const std::vector<Live>& live, bool may_make_inputs) {
  block_ = &block;
  live_ = &live;
  may_make_inputs_ = may_make_inputs;
  large_left_ = large_dims_ ? 2 : 0;
  const std::vector<Recipe>& recipes = RecipesFor(def.type, smooth_);
  const Recipe* recipe = recipes.empty() ? nullptr : &choose_.Of(recipes);
  OpDraft draft{choose_, def, block};
  draft.dtype = AnyDType();
  draft.next_name = &next_name_;
  const bool plain = !recipe || (recipe->slots.empty() && !def.inputs.empty());
  if (!FillInputs(plain ? PlainSlots(def) : recipe->slots, draft)) return std::nullopt;
  // Attrs that must fit shapes cannot be chosen for shapes that only the run knows.
  if (recipe && recipe->finish && !AllKnown(draft)) return std::nullopt;
  FillAttrs(recipe, draft);
  if (!may_make_inputs && !draft.made.empty()) return std::nullopt;
  SlotList outputs = NewOutputs(draft);
  const OpDesc op(def.type, draft.inputs, outputs, draft.attrs);
  std::vector<VerifyProblem> problems;
  CheckOp(def, op, 0, 0, &problems);
  for (const VerifyProblem& problem : problems) {
    if (problem.severity == VerifyProblem::Severity::kError) return std::nullopt;
  }
  Outcome outcome(draft);
  try {
    InferContext context(def, op, outcome);
    RunInfer(context);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) throw;
    return std::nullopt;
  }
  for (const auto& [name, meta] : outcome.metas) {
    if (meta.shape.IsKnown() && meta.shape.numel() > kMaxNumel) return std::nullopt;
  }
  return DrawnOp{std::move(draft.inputs), std::move(outputs), std::move(draft.attrs),
                 std::move(draft.made), std::move(outcome.metas)};
}

}  // namespace coracle
