#include <coracle/convert/narrow.h>
#include <coracle/convert/pir/op_reader.h>
#include <coracle/convert/pir/program_builder.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coracle::pir {
namespace {

constexpr size_t kMaxCopies = 1 << 20;

// Whether `block` is `inner` or one of the blocks around it.
bool Encloses(const BlockDesc* block, const BlockDesc* inner) {
  for (; inner; inner = inner->parent())
    if (inner == block) return true;
  return false;
}

std::string TextOf(const Op& op, const char* attr) {
  const Attribute* value = op.Find(attr);
  const auto* text = value ? std::get_if<std::string>(value) : nullptr;
  return text ? *text : "";
}

// Programs that are no inference programs name their outputs by builtin.shadow_output.
bool IsOutput(const Op& op) {
  return op.name == "pd_op.fetch" || op.name == "builtin.shadow_output";
}

std::string OutputName(const Op& op) {
  return TextOf(op, op.name == "pd_op.fetch" ? "name" : "output_name");
}

VarMeta MetaOf(const Type& type) {
  const bool array = type.kind == Type::Kind::kArray;
  return {array ? VarType::kLoDTensorArray : VarType::kLoDTensor, type.dtype, type.shape, 0};
}

bool IsOne(const Shape& shape) {
  return std::all_of(shape.begin(), shape.end(), [](int64_t dim) { return dim == 1; });
}

// Whether ops give persistable variables their values, as in a startup program.
bool SetsParameters(const BlockDesc& root) {
  bool sets = false;
  root.ForEachOp([&](const OpDesc& op) {
    sets |= op.AnyOutput([&](const std::string& name) {
      const VarDesc* var = root.FindVar(name);
      return var && var->persistable() && !op.Reads(name);
    });
  });
  return sets;
}

// The value of a constant as text that keeps all its digits.
std::string FillText(const Constant& constant) {
  if (constant.exact) return fmt::format("{}", *constant.exact);
  if (IsFloating(constant.dtype)) return fmt::format("{}", *constant.fill);
  return fmt::format("{}", static_cast<int64_t>(*constant.fill));
}

}  // namespace

ProgramBuilder::ProgramBuilder(const OpRegistry& ops, const std::string& source)
    : ops_(ops),
      source_(source),
      writer_(program_.Root(), ops,
              {.name = [this](const std::string& hint) { return UniqueName(hint); }}) {}

std::string ProgramBuilder::UniqueName(const std::string& hint) {
  int64_t& counter = counters_[hint];
  while (true) {
    std::string name = fmt::format("{}_{}", hint, counter++);
    if (names_.insert(name).second) return name;
  }
}

std::string ProgramBuilder::FreeName(const std::string& name) {
  return names_.insert(name).second ? name : UniqueName(name);
}

VarDesc& ProgramBuilder::DeclareNew(const std::string& hint) {
  return writer_.block().Var(UniqueName(hint));
}

VarDesc& ProgramBuilder::AddNamed(const Op& op, const std::string& name) {
  if (!names_.insert(name).second) {
    throw Error(ErrorCode::kDataLoss,
                fmt::format("{}: the name {} is in use", PlaceOf(op), Quote(name)));
  }
  return program_.Root().Var(name);
}

std::string ProgramBuilder::PlaceOf(const Op& op) const {
  const auto number = numbers_.find(&op);
  const std::string at =
      number == numbers_.end() ? "" : fmt::format("op {} of its block, ", number->second);
  const std::string layer = op.layer.empty() ? "" : " in " + Quote(op.layer, 300);
  return fmt::format("{}: {}{}{}", source_, at, Quote(op.name), layer);
}

void ProgramBuilder::Refuse(const Op& op, const std::string& why) const {
  throw Error(ErrorCode::kUnimplemented, fmt::format("{}: {}", PlaceOf(op), why));
}

ProgramDesc ProgramBuilder::Build(const Block& block) {
  if (!block.arguments.empty())
    throw Error(ErrorCode::kDataLoss, source_ + ": the outermost block has arguments");
  in_place_.emplace(block);
  NameFetches(block);
  ReadOps(block);
  if (fetches_.empty() && !SetsParameters(program_.Root()))
    throw Error(ErrorCode::kDataLoss, source_ + ": the program has no fetch op");
  std::stable_sort(fetches_.begin(), fetches_.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> fetches;
  for (const auto& [column, var] : fetches_) fetches.push_back(var);
  if (!feeds_.empty() || !fetches.empty()) SetFeedsAndFetches(program_, feeds_, fetches);
  return std::move(program_);
}

// A fetched value has the name of its fetch op, by which users know it.
void ProgramBuilder::NameFetches(const Block& block) {
  for (const Op& op : block.ops) {
    if (!IsOutput(op) || op.operands.size() != 1) continue;
    const std::string name = OutputName(op);
    if (!name.empty() && !IsShared(op.operands[0])) fetch_names_.emplace(op.operands[0], name);
  }
}

std::vector<ValuePtr> ProgramBuilder::ReadOps(const Block& block) {
  for (size_t i = 0; i < block.ops.size(); ++i) {
    const Op& op = block.ops[i];
    numbers_[&op] = i;
    const size_t before = writer_.block().NumOps();
    try {
      if (op.name == "cf.yield") {
        if (i + 1 < block.ops.size()) Refuse(op, "ops after the end of the block");
        std::vector<ValuePtr> values;
        for (size_t k = 0; k < op.operands.size(); ++k) values.push_back(Operand(op, k));
        return values;
      }
      ReadOp(op);
      for (const InPlace& pair : InPlaceOf(op)) WriteBack(op, pair);
      if (!op.layer.empty()) {
        for (size_t k = before; k < writer_.block().NumOps(); ++k)
          writer_.block().op(k).SetAttr(kOpNamescopeAttr, op.layer);
      }
    } catch (const Error& e) {
      if (e.message().starts_with(source_ + ": ")) throw;
      throw e.WithPrefix(PlaceOf(op));
    }
  }
  return {};
}

void ProgramBuilder::ReadOp(const Op& op) {
  if (op.name == "builtin.parameter") return AddParameter(op);
  if (op.name == "pd_op.data" || op.name == "pd_op.feed") return AddInput(op);
  if (IsOutput(op)) return AddOutput(op);
  if (ReadSpecial(*this, op)) return;
  if (!op.name.starts_with("pd_op.")) Refuse(op, "no op of this dialect is known");
  if (!op.blocks.empty()) Refuse(op, "no counterpart of an op with blocks of its own");
  const Row* row = FindRow(op.ShortName());
  if (!row || !ops_.Find(row->type)) Refuse(op, "the op has no counterpart in a ProgramDesc");
  ReadRow(*this, op, *row);
}

// --- values ---

ValuePtr ProgramBuilder::Operand(const Op& op, size_t i) const {
  if (i >= op.operands.size() || op.operands[i] == 0) return nullptr;
  const int64_t id = op.operands[i];
  const auto found = values_.find(id);
  if (found == values_.end() || !Encloses(found->second->block, &writer_.block())) {
    throw Error(ErrorCode::kDataLoss,
                fmt::format("{}: operand {} is the value {}, which no op before it gives",
                            PlaceOf(op), i, id));
  }
  return found->second;
}

void ProgramBuilder::Define(const Op& op, const Result& result, ValuePtr value) {
  if (result.id == 0) return;  // an optional result that is absent
  if (value->constant && IsShared(result.id)) {
    // An op changes it in place, so it is no constant.
    if (value->var.empty()) Materialize(*value);
    value->constant.reset();
  }
  if (!values_.emplace(result.id, std::move(value)).second) {
    throw Error(ErrorCode::kDataLoss,
                fmt::format("{}: the value {} is defined twice", PlaceOf(op), result.id));
  }
}

// Lets the readers of the operand see the result of an op that works in place. Most operands have
// no such reader.
void ProgramBuilder::WriteBack(const Op& op, const InPlace& pair) {
  if (const std::string why = in_place_->WhyNot(op); !why.empty()) Refuse(op, why);
  const int64_t id = op.results[pair.result].id;
  if (!IsShared(id)) return;
  ValuePtr target = Operand(op, pair.operand);
  if (target->type.kind == Type::Kind::kList && !target->items.empty()) target = target->items[0];
  const auto result = values_.find(id);
  if (result == values_.end()) Refuse(op, "its result has no counterpart");
  const std::string from = VarOf(op, result->second), to = VarOf(op, target);
  const Type &old = target->type, &now = result->second->type;
  if (old.kind != now.kind || old.dtype != now.dtype || !old.shape.CompatibleWith(now.shape)) {
    Refuse(op, fmt::format("it changes its operand {} in place from {} {} to {} {}, and an op "
                           "reads that operand later",
                           pair.operand, ToString(old.dtype), old.shape.ToString(),
                           ToString(now.dtype), now.shape.ToString()));
  }
  VarDesc& var = writer_.Var(to).desc();
  const VarMeta declared = var.meta();
  writer_.Append("assign", {{"X", {from}}}, {{"Out", {to}}});
  var.SetMeta(declared);
  result->second = target;
}

void ProgramBuilder::DefineArgument(const Op& op, const Result& argument, ValuePtr value) {
  Define(op, argument, std::move(value));
}

std::string ProgramBuilder::VarOf(const Op& op, const ValuePtr& value) {
  if (value->type.kind == Type::Kind::kList) Refuse(op, "a list of tensors instead of one tensor");
  if (value->constant && value->var.empty()) Materialize(*value);
  if (value->var.empty()) Refuse(op, "it reads a result that has no counterpart");
  return value->var;
}

std::vector<std::string> ProgramBuilder::VarsOf(const Op& op, const ValuePtr& value) {
  if (value->type.kind != Type::Kind::kList) return {VarOf(op, value)};
  CountCopies(op, value->items.size());
  std::vector<std::string> names;
  for (const ValuePtr& item : value->items) names.push_back(VarOf(op, item));
  return names;
}

void ProgramBuilder::CountCopies(const Op& op, size_t count) {
  copies_ += count;
  if (copies_ <= kMaxCopies) return;
  Refuse(op, fmt::format("up to this op, the ops of the program read more than {} tensors and "
                         "numbers in lists",
                         kMaxCopies));
}

// Appends the constant to the block where the file defines it, so that all its readers see it.
void ProgramBuilder::Materialize(Value& value) {
  BlockDesc& current = writer_.block();
  writer_.SetBlock(*value.block);
  const Constant& constant = *value.constant;
  const auto dtype = static_cast<int32_t>(constant.dtype);
  const std::string name = UniqueName("constant");
  if (constant.fill) {
    writer_.Into(name, "fill_constant", {},
                 {{"shape", constant.shape.ToVector()},
                  {"dtype", dtype},
                  {"value", static_cast<float>(*constant.fill)},
                  {"str_value", FillText(constant)}});
  } else {
    AttrList attrs = {{"shape", ToInt32(constant.shape.ToVector(), "a size")}, {"dtype", dtype}};
    if (constant.dtype == DType::kInt64)
      attrs.push_back({"int64_values", constant.integers});
    else
      attrs.push_back({"int32_values", ToInt32(constant.integers, "a number")});
    writer_.Into(name, "assign_value", {}, std::move(attrs));
  }
  writer_.SetBlock(current);
  value.var = name;
}

// --- the program's own variables ---

void ProgramBuilder::AddParameter(const Op& op) {
  const std::string name = TextOf(op, "parameter_name");
  if (name.empty() || op.results.size() != 1) Refuse(op, "a parameter without name or type");
  const Result& result = op.results[0];
  if (result.type.kind != Type::Kind::kTensor)
    Refuse(op, fmt::format("the parameter {} is no dense tensor", Quote(name)));
  if (!result.type.shape.IsKnown())
    Refuse(op, fmt::format("the parameter {} has an unknown dim", Quote(name)));
  VarDesc* var = &AddNamed(op, name);
  var->SetMeta(MetaOf(result.type));
  var->SetPersistable(true);
  const bool fixed = !op.stop_gradients.empty() && op.stop_gradients[0];
  var->SetStopGradient(fixed);
  var->SetIsParameter(op.trainable && !fixed);
  Define(
      op, result,
      std::make_shared<Value>(Value{.type = result.type, .block = &program_.Root(), .var = name}));
}

void ProgramBuilder::AddInput(const Op& op) {
  const std::string name = TextOf(op, "name");
  if (name.empty() || op.results.size() != 1) Refuse(op, "an input without name or type");
  if (&writer_.block() != &program_.Root()) Refuse(op, "an input of an inner block");
  const Result& result = op.results[0];
  if (result.type.kind != Type::Kind::kTensor)
    Refuse(op, fmt::format("the input {} is no dense tensor", Quote(name)));
  VarDesc* var = &AddNamed(op, name);
  var->SetMeta(MetaOf(result.type));
  var->SetNeedCheckFeed(true);
  var->SetStopGradient(op.stop_gradients.empty() || op.stop_gradients[0]);
  feeds_.push_back(name);
  // An op that changes the input in place changes a copy.
  const std::string own =
      IsShared(result.id) ? writer_.Make("assign", {{"X", {name}}}).name() : name;
  Define(
      op, result,
      std::make_shared<Value>(Value{.type = result.type, .block = &program_.Root(), .var = own}));
}

void ProgramBuilder::AddOutput(const Op& op) {
  const ValuePtr value = Operand(op, 0);
  if (!value) Refuse(op, "it names no value");
  if (&writer_.block() != &program_.Root()) Refuse(op, "an output of an inner block");
  std::string var = VarOf(op, value);
  const std::string wanted = OutputName(op);
  // A parameter or an input keeps its name, and a value that is fetched twice has one already.
  // A later op may change a shared value.
  const bool copy = IsShared(op.operands[0]);
  if (copy || (!wanted.empty() && var != wanted)) {
    const std::string name = FreeName(wanted.empty() ? var : wanted);
    writer_.Into(name, "assign", {{"X", {var}}});
    var = name;
  }
  const Attribute* column = op.Find("col");
  Attribute number;
  if (column && !ConvertAttribute(*column, AttrType::kLong, &number))
    Refuse(op, "its column is no number");
  fetches_.emplace_back(column ? std::get<int64_t>(number) : 0, var);
}

// --- appending ops ---

// "conv2d_236.tmp_0": the part before the dot names the layer, as in Paddle's programs.
std::string ProgramBuilder::NewName(const Op& op, const Result& result, size_t i) {
  const auto fetched = fetch_names_.find(result.id);
  const bool root = &writer_.block() == &program_.Root();
  if (fetched != fetch_names_.end() && root) return FreeName(fetched->second);
  const int64_t number = op.results.empty() ? result.id : op.results[0].id;
  return FreeName(fmt::format("{}_{}.tmp_{}", op.ShortName(), number, i));
}

VarDesc& ProgramBuilder::Declare(const Op& op, size_t result) {
  const Result& r = op.results.at(result);
  VarDesc& var = writer_.block().Var(NewName(op, r, result));
  var.SetMeta(MetaOf(r.type));
  Define(
      op, r,
      std::make_shared<Value>(Value{.type = r.type, .block = &writer_.block(), .var = var.name()}));
  return var;
}

void ProgramBuilder::Append(const Op& op, std::string type, SlotList inputs,
                            const std::vector<OutSlot>& outputs, AttrList attrs) {
  const OpSpec& spec = ops_.Get(type);
  BlockDesc* block = &writer_.block();
  SlotList slots;
  std::vector<std::pair<std::string, ValuePtr>> made;  // with "": of an intermediate slot
  std::vector<std::pair<size_t, ValuePtr>> defined;
  for (const OutSlot& out : outputs) {
    const Result& result = op.results.at(out.result);
    const Type& kind = result.type;
    if (kind.kind == Type::Kind::kNone || kind.kind == Type::Kind::kOther) continue;
    const auto value = std::make_shared<Value>(Value{.type = kind, .block = block});
    defined.emplace_back(out.result, value);
    if (!out.same_as.empty()) {
      value->var = out.same_as;
      slots.push_back({out.name, {out.same_as}});
      continue;
    }
    const SlotDef* slot = spec.FindOutput(out.name);
    Slot names{out.name, {}};
    const bool list = kind.kind == Type::Kind::kList;
    for (size_t i = 0; i < (list ? kind.items.size() : 1); ++i) {
      ValuePtr item = value;
      if (list) {
        item = std::make_shared<Value>(Value{.type = kind.items[i], .block = block});
        value->items.push_back(item);
      }
      item->var = NewName(op, result, list ? i : out.result);
      block->Var(item->var);
      names.args.push_back(item->var);
      if (!slot || !slot->intermediate) made.emplace_back(item->var, item);
    }
    slots.push_back(std::move(names));
  }
  writer_.Append(std::move(type), std::move(inputs), std::move(slots), std::move(attrs));
  for (const auto& [name, value] : made) Settle(op, name, value->type);
  for (auto& [result, value] : defined) {
    const bool stop = result < op.stop_gradients.size() && op.stop_gradients[result];
    VarDesc* var = value->var.empty() ? nullptr : block->FindVar(value->var);
    if (var && stop && IsFloating(var->dtype())) var->SetStopGradient(true);
    Define(op, op.results[result], std::move(value));
  }
}

// Completes the type of a variable that the last op wrote by what the file says.
void ProgramBuilder::Settle(const Op& op, const std::string& name, const Type& type) {
  if (type.kind != Type::Kind::kTensor) return;
  VarDesc* var = writer_.block().FindVar(name);
  if (var->type() != VarType::kLoDTensor) return;
  if (var->shape().rank() != type.shape.rank()) FitRank(op, name, type.shape);
  var = writer_.block().FindVar(name);
  if (var->dtype() != type.dtype) FitDType(op, name, type.dtype);
  var = writer_.block().FindVar(name);
  Shape shape = var->shape();
  if (!shape.CompatibleWith(type.shape)) {
    Refuse(op, fmt::format("the file says that a result is {}, but it is {}", type.shape.ToString(),
                           shape.ToString()));
  }
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] < 0) shape[i] = type.shape[i];
  var->SetShape(shape);
}

// Gives the output of the last op another name and returns that; the old one becomes free.
std::string ProgramBuilder::MoveAside(const std::string& name) {
  BlockDesc& block = writer_.block();
  std::string aside = FreeName(name + ".raw");
  for (size_t i = block.NumOps(); i-- > 0;) {
    if (!block.op(i).Writes(name)) continue;
    block.op(i).RenameOutput(name, aside);
    break;
  }
  block.RenameVar(*block.FindVar(name), aside);
  return aside;
}

// A ProgramDesc of Paddle 2 has the shape [1] where Paddle 3 has rank 0.
void ProgramBuilder::FitRank(const Op& op, const std::string& name, const Shape& shape) {
  const Shape made = writer_.block().FindVar(name)->shape();
  if (!IsOne(made) || !IsOne(shape)) {
    Refuse(op, fmt::format("the file says that a result is {}, but it is {}", shape.ToString(),
                           made.ToString()));
  }
  const std::string raw = MoveAside(name);
  writer_.Into(name, "reshape2", {{"X", {raw}}}, {{"shape", ToInt32(shape.ToVector(), "a size")}});
}

// Counts and indices are int32 in some ops of a ProgramDesc and int64 in Paddle 3.
void ProgramBuilder::FitDType(const Op& op, const std::string& name, DType dtype) {
  const DType made_dtype = writer_.block().FindVar(name)->dtype();
  if (!IsInteger(made_dtype) || !IsInteger(dtype)) {
    Refuse(op, fmt::format("the file says that a result is {}, but it is {}", ToString(dtype),
                           ToString(made_dtype)));
  }
  const std::string raw = MoveAside(name);
  writer_.Into(
      name, "cast", {{"X", {raw}}},
      {{"in_dtype", static_cast<int32_t>(made_dtype)}, {"out_dtype", static_cast<int32_t>(dtype)}});
}

}  // namespace coracle::pir
