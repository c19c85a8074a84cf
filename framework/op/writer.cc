#include <coracle/framework/base/text.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/writer.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle {

inline namespace internal {
struct WriterState {
  BlockDesc* block;
  const OpRegistry* ops;
  WriterOptions options;
  std::vector<std::string> site = {};
  std::string last_hint = {};  // of the variable made by the last Make
};
}  // namespace internal

namespace {

void CheckAgainstDef(const OpDesc& op, const OpRegistry& ops) {
  std::vector<VerifyProblem> problems;
  CheckOp(ops.Get(op.type()), op, 0, 0, &problems);
  for (const VerifyProblem& problem : problems) {
    if (problem.severity == VerifyProblem::Severity::kError) {
      ThrowInvalid(fmt::format("{}: {}", op.type(), problem.message), problem.details);
    }
  }
}

// The op with every declared attr, in the order and with the types of its OpDef: the way Paddle
// writes programs, so that the result does not depend on how the attrs were given.
std::unique_ptr<OpDesc> WithDefaults(const OpDesc& op, const OpSpec& def) {
  AttrList attrs;
  for (const AttrDef& attr : def.attrs) {
    const Attribute* given = op.FindAttr(attr.name);
    // A missing block attr means no block; its default only marks that.
    const bool names_block = attr.type == AttrType::kBlock || attr.type == AttrType::kBlocks;
    if (!given && (!attr.default_value || names_block)) continue;
    Attribute value = given ? *given : *attr.default_value;
    ConvertAttribute(value, attr.type, &value);
    attrs.push_back({attr.name, std::move(value)});
  }
  for (const NamedAttr& attr : op.attrs()) {
    if (!def.FindAttr(attr.name)) attrs.push_back(attr);
  }
  return std::make_unique<OpDesc>(op.type(), op.inputs(), op.outputs(), std::move(attrs));
}

// Why the two cannot write one expression; nullptr if they can.
const char* DifferenceOf(const internal::WriterState& a, const internal::WriterState& b) {
  if (a.block != b.block) return "to different blocks";
  if (a.ops != b.ops) return "ops of different registries";
  return a.options.role == b.options.role ? nullptr : "ops of different roles";
}

// Ops find operands by name, so a variable of another program would be another one of that name.
void RequireProgram(std::initializer_list<const Variable*> vars, const ProgramDesc& program) {
  for (const Variable* var : vars) {
    if (&var->program() == &program) continue;
    ThrowInvalid(fmt::format("{} is a variable of another program than the other operands",
                             Quote(var->name())));
  }
}

// Infers the types of the outputs of the block's last op. On failure, removes the op and the
// variables that it made.
void InferLast(BlockDesc& block, const OpRegistry& ops, size_t first_var) {
  const size_t last = block.NumOps() - 1;
  try {
    InferOp(block, block.op(last), ops);
  } catch (...) {
    block.TruncateOps(last);
    block.RemoveVarsIf([](const VarDesc&) { return true; }, first_var);
    throw;
  }
}

}  // namespace

Writer::Writer(BlockDesc& block, const OpRegistry& ops, WriterOptions options)
    : state_(std::make_shared<internal::WriterState>(
          internal::WriterState{&block, &ops, std::move(options)})) {}

Writer Writer::Of(std::initializer_list<const Variable*> vars) {
  const Variable* first = nullptr;
  for (const Variable* var : vars) {
    if (!*var) ThrowInvalid("an empty Variable is an operand of a function on Variables");
    if (!var->writer_) continue;
    if (!first) first = var;
    const char* difference = DifferenceOf(*first->writer_, *var->writer_);
    if (!difference) continue;
    ThrowInvalid(
        fmt::format("the Writers of {} and {} append {}; take both from one Writer: "
                    "writer.Var(name)",
                    Quote(first->name()), Quote(var->name()), difference));
  }
  if (first) {
    RequireProgram(vars, first->writer_->block->program());
    return Writer(first->writer_);
  }
  ThrowInvalid(
      fmt::format("{} has no Writer, so it is unknown where ops on it belong; "
                  "Writer(block, ops).Var({}) or a Builder's Var returns one with a Writer",
                  Quote((*vars.begin())->name()), Quote((*vars.begin())->name())));
}

BlockDesc& Writer::block() const { return *state_->block; }
const OpRegistry& Writer::ops() const { return *state_->ops; }
void Writer::SetBlock(BlockDesc& block) { state_->block = &block; }
void Writer::SetSite(std::vector<std::string> site) { state_->site = std::move(site); }
const std::vector<std::string>& Writer::site() const { return state_->site; }

Writer Writer::Part(TrainingPart part, std::string of) const {
  auto state = std::make_shared<internal::WriterState>(*state_);
  state->options.mark.part = part;
  state->options.mark.of = std::move(of);
  return Writer(std::move(state));
}

Variable Writer::Var(const std::string& name) const {
  Variable var = Variable::Of(block(), name);
  var.writer_ = state_;
  return var;
}

Variable Writer::Var(BlockDesc& block, VarDesc& desc) const {
  Variable var(&block, &desc);
  var.writer_ = state_;
  return var;
}

std::vector<Variable> Writer::Vars(const std::vector<std::string>& names) const {
  std::vector<Variable> vars;
  vars.reserve(names.size());
  for (const std::string& name : names) vars.push_back(Var(name));
  return vars;
}

OpDesc& Writer::Append(std::unique_ptr<OpDesc> op) const {
  const WriterOptions& options = state_->options;
  if (!op) ThrowInvalid("a null op was given to a Writer");
  CheckAgainstDef(*op, ops());
  if (options.all_attrs) op = WithDefaults(*op, ops().Get(op->type()));
  if (!state_->site.empty() && !op->HasAttr(kOpCallstackAttr))
    op->SetAttr(kOpCallstackAttr, state_->site);
  if (options.role != kForward && !op->HasAttr(kOpRoleAttr))
    op->SetAttr(kOpRoleAttr, int32_t{options.role});
  SetMark(*op, options.mark);
  state_->last_hint.clear();
  const size_t first_var = block().NumVars();
  OpDesc& appended = block().AppendOp(std::move(op));
  InferLast(block(), ops(), first_var);
  return appended;
}

OpDesc& Writer::Append(std::string type, SlotList inputs, SlotList outputs, AttrList attrs) const {
  return Append(std::make_unique<OpDesc>(std::move(type), std::move(inputs), std::move(outputs),
                                         std::move(attrs)));
}

std::string Writer::NewName(const std::string& hint) const {
  const WriterOptions& options = state_->options;
  if (options.name) return options.name(hint);
  return block().program().UniqueName(options.prefix.empty() ? hint : options.prefix + "." + hint);
}

Variable Writer::Make(const std::string& type, SlotList inputs, AttrList attrs,
                      const std::string& output) const {
  Variable made = Into(NewName(type), type, std::move(inputs), std::move(attrs), output);
  state_->last_hint = type;
  if (state_->options.stop_gradient) made.desc().SetStopGradient(true);
  return made;
}

Variable Writer::Into(const std::string& name, const std::string& type, SlotList inputs,
                      AttrList attrs, const std::string& output) const {
  Append(type, std::move(inputs), {{output, {name}}}, std::move(attrs));
  return Var(name);
}

Variable Writer::Named(const std::string& hint, const Variable& made) const {
  BlockDesc& at = block();
  if (at.NumOps() == 0 || !at.op(at.NumOps() - 1).Writes(made.name()) || &made.block() != &at)
    throw InternalError(fmt::format("{} is not what the last op made", Quote(made.name())));
  if (hint == state_->last_hint) return made;  // it has that name already
  const std::string name = NewName(hint);
  at.op(at.NumOps() - 1).RenameOutput(made.name(), name);
  at.RenameVar(made.desc(), name);
  return made;
}

std::vector<std::string> variable_functions::NamesOf(const std::vector<Variable>& vars) {
  std::vector<std::string> names;
  names.reserve(vars.size());
  for (const Variable& var : vars) names.push_back(var.name());
  return names;
}

}  // namespace coracle
