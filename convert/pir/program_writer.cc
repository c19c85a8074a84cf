#include <coracle/convert/pir/program_writer.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/framework/ir/role.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/inspect/inspect.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace coracle::pir {
namespace {

constexpr const char* kRaw = ".raw";  // see ProgramBuilder::MoveAside

// The number in the name of a variable that the reader has named: "conv2d_236.tmp_0".
std::optional<int64_t> NumberIn(std::string_view name, std::string_view op) {
  if (!name.starts_with(op)) return std::nullopt;
  name.remove_prefix(op.size());
  const size_t end = name.find(".tmp_");
  int64_t number = 0;
  if (!name.starts_with('_') || end == name.npos) return std::nullopt;
  if (!ParseInt64(std::string(name.substr(1, end - 1)), &number)) return std::nullopt;
  if (number < 1 || number >= kMostExact) return std::nullopt;
  return number;
}

std::string LayerOf(const OpDesc& op) { return op.GetAttr<std::string>(kOpNamescopeAttr, ""); }

std::string PlaceOf(const OpDesc& op) {
  return fmt::format("block {} op {} ({})", op.block()->idx(), op.block()->IndexOf(op),
                     PrintableLine(op.type()));
}

bool IsOfKind(const OpRegistry& ops, const OpDesc& op, OpKind kind) {
  const OpSpec* spec = ops.Find(op.type());
  return spec && spec->kind == kind;
}

// The op's first output that is not the shape of its input (XShape).
std::string MadeBy(const BlockDesc& root, const OpDesc& op) {
  std::string made;
  op.AnyOutput([&](const std::string& out) {
    const VarDesc* var = root.FindVar(out);
    const bool shape = var && var->shape().rank() > 0 && var->shape()[0] == 0;
    if (!shape) made = out;
    return !made.empty();
  });
  return made;
}

// Whether the op makes what ProgramBuilder::FitDType or FitRank makes of a variable.
bool Fits(const OpDesc& op, const VarDesc& from, const VarDesc& to) {
  if (op.type() == "cast") return IsInteger(from.dtype()) && IsInteger(to.dtype());
  return op.type() == "reshape2" && !op.HasInput("Shape") && !op.HasInput("ShapeTensor") &&
         from.shape().numel() == 1 && to.shape().numel() == 1;
}

}  // namespace

ProgramWriter::ProgramWriter(ProgramDesc program, const OpRegistry& ops)
    : program_(std::move(program)), root_(program_.Root()), ops_(ops) {
  ReserveIds();
  FindPersistables();
  FindMerged();
}

void ProgramWriter::Refuse(const OpDesc& op, const std::string& why) const {
  throw Error(ErrorCode::kUnimplemented,
              fmt::format("writing for Paddle 3: {}: {}", PlaceOf(op), why), Locate(op));
}

// Names that hold a number keep it if it is free: the reader makes the same names of them.
void ProgramWriter::ReserveIds() {
  for (size_t i = 0; i < root_.NumVars(); ++i) {
    const std::string& name = root_.var(i).name();
    const size_t end = name.find(".tmp_");
    const size_t begin = end == name.npos ? name.npos : name.rfind('_', end - 1);
    if (begin == name.npos) continue;
    if (const auto number = NumberIn(std::string_view(name).substr(begin), ""))
      reserved_.insert(*number);
  }
}

// Variables that an op writes and none reads: the parameters of a startup program.
void ProgramWriter::FindPersistables() {
  for (size_t i = 0; i < root_.NumVars(); ++i) {
    const VarDesc& var = root_.var(i);
    if (!var.persistable()) continue;
    const VarUses uses = root_.Uses(var.name());
    if (!uses.writers.empty() && uses.readers.empty()) set_.insert(var.name());
  }
}

// The variable that the next ops make of a raw result; counts these ops.
std::string ProgramWriter::AfterRaw(size_t op, const std::string& name, size_t* ops) const {
  std::string now = name;
  while (now.find(kRaw) != now.npos && op + *ops + 1 < root_.NumOps()) {
    const OpDesc& next = root_.op(op + *ops + 1);
    if (!next.Reads(now) || root_.Uses(now).readers.size() != 1) break;
    const std::string made = MadeBy(root_, next);
    const VarDesc *from = root_.FindVar(now), *to = root_.FindVar(made);
    if (!from || !to || !Fits(next, *from, *to) ||
        !now.starts_with(made.substr(0, made.find(kRaw))))
      break;
    now = made;
    ++*ops;
  }
  return now.find(kRaw) == now.npos ? now : name;
}

void ProgramWriter::FindMerged() {
  for (size_t i = 0; i < root_.NumOps(); ++i) {
    root_.op(i).ForEachOutput([&](const std::string& name) {
      if (name.find(kRaw) == name.npos) return;
      size_t ops = 0;
      std::string after = AfterRaw(i, name, &ops);
      if (after != name) merged_[name] = {std::move(after), ops};
    });
  }
}

std::string ProgramWriter::FinalName(const std::string& var) const {
  const auto found = merged_.find(var);
  return found == merged_.end() ? var : found->second.var;
}

std::string ProgramWriter::Run() {
  if (program_.NumBlocks() > 1) {
    root_.ForEachOp([&](const OpDesc& op) {
      if (op.HasSubBlock()) Refuse(op, "ops with blocks of their own are not written");
    });
  }
  AddParameters();
  AddInputs();
  for (size_t i = 0; i < root_.NumOps(); ++i) {
    if (skipped_ > 0) {
      --skipped_;
      continue;
    }
    const OpDesc& op = root_.op(i);
    if (IsOfKind(ops_, op, OpKind::kFeed)) continue;
    if (IsOfKind(ops_, op, OpKind::kFetch))
      CheckFetch(op);
    else
      WriteOp(op);
  }
  AddOutputs();
  return R"({"base_code":{"magic":"pir","trainable":true,"version":1},"program":{"regions":[)"
         R"({"#":"region_0","blocks":[{"#":"block_0","args":[],"ops":[)" +
         text_ + "]}]}]}}";
}

// The written program fetches at its end.
void ProgramWriter::CheckFetch(const OpDesc& fetch) const {
  fetch.ForEachInput([&](const std::string& name) {
    const VarUses uses = root_.Uses(name);
    if (uses.writers.empty() || root_.IndexOf(*uses.writers.back()) < root_.IndexOf(fetch)) return;
    Refuse(fetch, fmt::format("a later op overwrites {}; fetch a copy of it", Quote(name)));
  });
}

void ProgramWriter::WriteOp(const OpDesc& op) {
  if (!IsForward(op)) Refuse(op, "it is a training op; save the program for inference first");
  if (WriteSpecial(*this, op)) return;
  std::string why = "the op has no counterpart in Paddle 3";
  if (!WriteByRow(*this, op, &why)) Refuse(op, why);
}

// --- the program's own variables ---

void ProgramWriter::AddParameters() {
  for (size_t i = 0; i < root_.NumVars(); ++i) {
    const VarDesc& var = root_.var(i);
    if (!var.persistable() || set_.count(var.name()) > 0) continue;
    if (var.type() != VarType::kLoDTensor) continue;  // feed and fetch ops use lists
    const Result result = {NewId(), TensorType(var.dtype(), var.shape())};
    parameters_.insert(var.name());
    text_ +=
        ParameterJson(var.name(), result, var.stop_gradient(), var.is_parameter()).dump() + ",";
    values_[var.name()] = result;
  }
}

void ProgramWriter::AddInputs() {
  for (const std::string& name : InputNames(program_, ops_)) {
    const VarDesc* var = root_.FindVar(name);
    if (!var || var->type() != VarType::kLoDTensor) {
      throw Error(
          ErrorCode::kUnimplemented,
          fmt::format("writing for Paddle 3: the input {} must be a dense tensor", Quote(name)));
    }
    if (var->lod_level() > 0) {
      throw Error(ErrorCode::kUnimplemented,
                  fmt::format("writing for Paddle 3: the input {} holds sequences (LoD), which its "
                              "inputs do not have",
                              Quote(name)));
    }
    const Result result = {NewId(), TensorType(var->dtype(), var->shape())};
    const auto dtype = static_cast<int32_t>(var->dtype());
    Write({"1.data",
           {},
           {result},
           {AttrJson("name", 's', name), AttrJson("shape", 'A', var->shape().ToVector()),
            AttrJson("dtype", 't', dtype), AttrJson("place", 'p', {})},
           {var->stop_gradient()},
           ""});
    values_[name] = result;
  }
}

void ProgramWriter::AddOutputs() {
  const std::vector<std::string> outputs = OutputNames(program_, ops_);
  if (outputs.empty() && set_.empty())
    ThrowInvalid("writing for Paddle 3: the program has no output");
  int32_t column = 0;
  for (const std::string& name : outputs) {
    const auto value = values_.find(name);
    if (value == values_.end())
      ThrowInvalid("writing for Paddle 3: the output " + Quote(name) + " has no value at the end");
    Json op = OpJson({"1.fetch",
                      {value->second.id},
                      {{NewId(), value->second.type}},
                      {AttrJson("name", 's', name), AttrJson("col", 'i', column++)},
                      {false},
                      ""});
    text_ += op.dump() + ",";
  }
  if (!text_.empty()) text_.pop_back();
}

// --- values ---

int64_t ProgramWriter::NewId() {
  while (reserved_.count(next_id_) > 0 || used_.count(next_id_) > 0) ++next_id_;
  used_.insert(next_id_);
  return next_id_++;
}

// The id of an op's first result, from the names of its variables.
int64_t ProgramWriter::FirstId(const std::string& name, const std::vector<std::string>& vars) {
  for (const std::string& var : vars) {
    const auto number = NumberIn(var, name);
    if (number && used_.insert(*number).second) return *number;
  }
  return NewId();
}

Type ProgramWriter::TypeOf(const OpDesc& op, const std::string& name) const {
  const VarDesc* var = root_.FindVar(name);
  if (!var || var->type() != VarType::kLoDTensor)
    Refuse(op, fmt::format("{} must be a dense tensor", Quote(name)));
  return TensorType(var->dtype(), var->shape());
}

Type ProgramWriter::TypeOfSlot(const OpDesc& op, const char* slot) const {
  for (const auto* slots : {&op.inputs(), &op.outputs()}) {
    for (const Slot& one : *slots)
      if (one.name == slot && !one.args.empty()) return TypeOf(op, one.args[0]);
  }
  Refuse(op, fmt::format("it has no {}", slot));
}

Type ProgramWriter::ResultType(const OpDesc& op, const char* slot) const {
  for (const Slot& output : op.outputs())
    if (output.name == slot && !output.args.empty()) return TypeOf(op, FinalName(output.args[0]));
  return {};
}

int64_t ProgramWriter::ValueOf(const OpDesc& op, const std::string& name) {
  if (IsEmptyName(name)) return 0;
  const auto found = values_.find(name);
  if (found != values_.end()) return found->second.id;
  Refuse(op, fmt::format("it reads {}, which no op before it writes", Quote(name)));
}

int64_t ProgramWriter::Combined(const OpDesc& op, const std::vector<std::string>& names) {
  WrittenOp combine{"0.combine", {}, {}, {}, {false}, LayerOf(op)};
  std::vector<Type> items;
  for (const std::string& name : names) {
    combine.operands.push_back(ValueOf(op, name));
    items.push_back(values_.at(name).type);
  }
  const int64_t id = NewId();
  combine.results.push_back({id, ListType(std::move(items))});
  Write(combine);
  return id;
}

int64_t ProgramWriter::Operand(const OpDesc& op, const char* slot) {
  const SlotDef* def = ops_.Get(op.type()).FindInput(slot);
  for (const Slot& input : op.inputs()) {
    if (input.name != slot || input.args.empty()) continue;
    if (def && def->variadic) return Combined(op, input.args);
    return ValueOf(op, input.args[0]);
  }
  return 0;
}

int64_t ProgramWriter::Numbers(const OpDesc& op, const std::vector<int64_t>& values) {
  const Result result = {NewId(), TensorType(DType::kInt64, {static_cast<int64_t>(values.size())})};
  Write({"1.full_int_array",
         {},
         {result},
         {AttrJson("value", 'L', values),
          AttrJson("dtype", 't', static_cast<int32_t>(DType::kInt64)), AttrJson("place", 'p', {})},
         {true},
         LayerOf(op)});
  return result.id;
}

int64_t ProgramWriter::Number(const OpDesc& op, DType dtype, double value) {
  const Result result = {NewId(), TensorType(dtype, {1})};
  Write({"1.full",
         {},
         {result},
         {AttrJson("shape", 'A', std::vector<int64_t>{1}), AttrJson("value", 'd', value),
          AttrJson("dtype", 't', static_cast<int32_t>(dtype)), AttrJson("place", 'p', {})},
         {true},
         LayerOf(op)});
  return result.id;
}

double ProgramWriter::ExactNumber(const OpDesc& op, int64_t value) const {
  if (value > kMostExact || value < -kMostExact)
    Refuse(op, fmt::format("no constant of Paddle 3 holds {} exactly", value));
  return static_cast<double>(value);
}

int64_t ProgramWriter::Reshaped(const OpDesc& op, int64_t value, const Type& type, int ones) {
  std::vector<int64_t> dims(static_cast<size_t>(type.shape.rank()), 0);  // 0: as it is
  Shape shape = type.shape;
  for (int i = 0; i < ones; ++i) {
    dims.push_back(1);
    shape.Append(1);
  }
  const int64_t numbers = Numbers(op, dims);
  const Result result = {NewId(), TensorType(type.dtype, shape)};
  Write({"1.reshape", {value, numbers}, {result}, {}, {false}, LayerOf(op)});
  return result.id;
}

Attribute ProgramWriter::AttrOf(const OpDesc& op, const std::string& name) const {
  if (const Attribute* given = op.FindAttr(name)) return *given;
  const AttrDef* def = ops_.Get(op.type()).FindAttr(name);
  if (def && def->default_value) return *def->default_value;
  Refuse(op, fmt::format("it has no attribute {}", name));
}

// --- ops ---

void ProgramWriter::Write(const WrittenOp& op) { text_ += OpJson(op).dump() + ","; }

// The result of a slot; *vars are its variables.
Result ProgramWriter::ResultOf(const OpDesc& op, const std::string& slot, int64_t id,
                               std::vector<std::string>* vars) {
  if (slot == "_") return {id, TensorType(DType::kUInt8, {-1})};
  const SlotDef* def = ops_.Get(op.type()).FindOutput(slot);
  for (const Slot& output : op.outputs()) {
    if (output.name == slot) *vars = output.args;
  }
  std::erase_if(*vars, [](const std::string& name) { return IsEmptyName(name); });
  if (vars->empty()) return {id, {}};
  std::vector<Type> types;
  for (std::string& var : *vars) {
    var = FinalName(var);
    types.push_back(TypeOf(op, var));
    if (types.back().shape == Shape{1} && GivesRank0(*this, op, slot)) types.back().shape = {};
  }
  if (def && def->variadic) return {id, ListType(std::move(types))};
  return {id, types[0]};
}

void ProgramWriter::Emit(const OpDesc& op, const std::string& name, std::vector<int64_t> operands,
                         const std::vector<std::string>& slots, std::vector<Json> attrs) {
  std::vector<std::vector<std::string>> vars(slots.size());
  std::vector<Result> results;
  std::vector<std::string> all;
  for (size_t i = 0; i < slots.size(); ++i) {
    results.push_back(ResultOf(op, slots[i], 0, &vars[i]));
    all.insert(all.end(), vars[i].begin(), vars[i].end());
  }
  std::string number = name.substr(name.find('.') + 1);
  const bool in_place = number.ends_with('_');
  if (in_place) number.pop_back();
  for (const std::string& var : all) CheckChange(op, var, in_place);
  WrittenOp written{name, std::move(operands), {}, std::move(attrs), {}, LayerOf(op)};
  for (size_t i = 0; i < results.size(); ++i) {
    results[i].id = i == 0 ? FirstId(number, all) : NewId();
    const VarDesc* var = vars[i].empty() ? nullptr : root_.FindVar(vars[i][0]);
    written.stop_gradients.push_back(var && (var->stop_gradient() || !IsFloating(var->dtype())));
  }
  written.results = results;
  Write(written);
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].type.kind == Type::Kind::kList) {
      WrittenOp apart{"0.split", {results[i].id}, {}, {}, {}, written.layer};
      for (const Type& item : results[i].type.items) {
        apart.results.push_back({NewId(), item});
        apart.stop_gradients.push_back(written.stop_gradients[i]);
      }
      Write(apart);
      for (size_t k = 0; k < vars[i].size(); ++k) Define(op, vars[i][k], apart.results[k]);
    } else if (!vars[i].empty()) {
      Define(op, vars[i][0], results[i]);
    }
  }
  size_t most = 0;
  op.ForEachOutput([&](const std::string& out) {
    const auto found = merged_.find(out);
    if (found != merged_.end()) most = std::max(most, found->second.ops);
  });
  skipped_ = most;
}

// Refuses an op that would change a parameter in Coracle, but only make another value in Paddle 3.
void ProgramWriter::CheckChange(const OpDesc& op, const std::string& name, bool in_place) const {
  const VarDesc* var = root_.FindVar(name);
  if (!var || !var->persistable() || set_.count(name) > 0 || (in_place && op.Reads(name))) return;
  Refuse(op, fmt::format("it overwrites the parameter {}, which the program also reads; the op's "
                         "counterpart in Paddle 3 cannot",
                         Quote(name)));
}

void ProgramWriter::Define(const OpDesc& op, const std::string& name, Result result) {
  const VarDesc* var = root_.FindVar(name);
  if (set_.count(name) > 0) return SetParameter(op, result, name);
  const bool scalar = var && var->shape() == Shape{1} && result.type.shape.rank() == 0;
  if (scalar && result.type.kind == Type::Kind::kTensor) return Reshape(op, result, name);
  values_[name] = std::move(result);
}

// Rank 0 as the shape [1] of the variable.
void ProgramWriter::Reshape(const OpDesc& op, const Result& from, const std::string& name) {
  const int64_t shape = Numbers(op, {1});
  const Result result = {NewId(), TensorType(from.type.dtype, {1})};
  const VarDesc& var = *root_.FindVar(name);
  Write({"1.reshape",
         {from.id, shape},
         {result},
         {},
         {var.stop_gradient() || !IsFloating(var.dtype())},
         LayerOf(op)});
  values_[name] = result;
}

void ProgramWriter::SetParameter(const OpDesc& op, const Result& from, const std::string& name) {
  Write(
      {"0.set_parameter", {from.id}, {}, {AttrJson("parameter_name", 's', name)}, {}, LayerOf(op)});
}

}  // namespace coracle::pir
