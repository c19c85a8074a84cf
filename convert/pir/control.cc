// Ops with blocks: if and while.

#include <coracle/convert/pir/op_reader.h>
#include <coracle/framework/op/check/block_use.h>
#include <fmt/format.h>

#include <unordered_set>

namespace coracle::pir {
namespace {

// During its lifetime, ops go to a new block inside the current one.
class InBlock {
 public:
  explicit InBlock(ProgramBuilder& builder)
      : writer_(builder.writer()),
        outer_(writer_.block()),
        inner_(builder.program().AppendBlock(outer_)) {
    writer_.SetBlock(inner_);
  }
  ~InBlock() { writer_.SetBlock(outer_); }
  InBlock(const InBlock&) = delete;
  InBlock& operator=(const InBlock&) = delete;
  BlockDesc& block() { return inner_; }

 private:
  Writer& writer_;
  BlockDesc& outer_;
  BlockDesc& inner_;
};

// Assigns without changing the declared type of `to`.
void Assign(ProgramBuilder& builder, const Op& op, const std::string& from, VarDesc& to) {
  const VarMeta declared = to.meta();
  builder.writer().Append("assign", {{"X", {from}}}, {{"Out", {to.name()}}});
  const VarMeta made = to.meta();
  if (made.dtype != declared.dtype || !made.shape.CompatibleWith(declared.shape)) {
    builder.Refuse(op, fmt::format("a block gives {} where the file says {}", made.ToString(),
                                   declared.ToString()));
  }
  to.SetMeta(declared);
}

// The variables of the op's results, which its blocks write.
std::vector<VarDesc*> DeclareResults(ProgramBuilder& builder, const Op& op) {
  std::vector<VarDesc*> vars;
  for (size_t i = 0; i < op.results.size(); ++i) {
    if (op.results[i].type.kind != Type::Kind::kTensor)
      builder.Refuse(op, fmt::format("its result {} is no dense tensor", i));
    vars.push_back(&builder.Declare(op, i));
  }
  return vars;
}

void ReadBranchOps(ProgramBuilder& builder, const Op& op, const Block& branch,
                   const std::vector<VarDesc*>& results) {
  if (!branch.arguments.empty()) builder.Refuse(op, "a branch with arguments");
  const std::vector<ValuePtr> values = builder.ReadOps(branch);
  if (values.size() != results.size()) {
    builder.Refuse(
        op, fmt::format("a branch gives {} values for {} results", values.size(), results.size()));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (!values[i]) builder.Refuse(op, "a branch gives no value for a result");
    Assign(builder, op, builder.VarOf(op, values[i]), *results[i]);
  }
}

void ReadBranch(ProgramBuilder& builder, const Op& op, const Block& branch,
                const std::vector<VarDesc*>& results, const std::string& condition) {
  BlockDesc* block = nullptr;
  {
    InBlock inside(builder);
    block = &inside.block();
    try {
      ReadBranchOps(builder, op, branch, results);
    } catch (const Error& e) {
      // An op that cannot run with these shapes fails only if its branch is taken.
      if (e.code() != ErrorCode::kInvalidArgument) throw;
      block->TruncateOps(0);
      builder.writer().Append("branch_error", {}, {}, {{"message", e.message()}});
    }
  }
  VarDesc& scope = builder.DeclareNew("conditional_block.scope");
  scope.SetType(VarType::kStepScopes);
  builder.writer().Append("conditional_block",
                          {{"Cond", {condition}}, {"Input", OuterReads(*block)}},
                          {{"Out", OuterWrites(*block)}, {"Scope", {scope.name()}}},
                          {{"sub_block", BlockRef{block->idx()}}, {"is_scalar_condition", true}});
}

// A variable of the loop, which each turn replaces.
struct Carried {
  VarDesc* var = nullptr;  // nullptr for a tensor array, which the body changes in place
  std::string name;
};

Shape CommonShape(const Shape& a, const Shape& b) {
  Shape common = a;
  for (int i = 0; i < a.rank(); ++i)
    if (a[i] != b[i]) common[i] = -1;
  return common;
}

Carried StartCarried(ProgramBuilder& builder, const Op& op, size_t i) {
  const ValuePtr start = builder.Operand(op, i + 1);
  if (!start) builder.Refuse(op, "a carried value is absent");
  const std::string from = builder.VarOf(op, start);
  const Result& result = op.results[i];
  const Result& argument = op.blocks[0].arguments[i];
  if (result.type.kind == Type::Kind::kArray) {
    builder.Define(op, result, start);
    builder.DefineArgument(op, argument, start);
    return {nullptr, from};
  }
  if (result.type.kind != Type::Kind::kTensor ||
      result.type.shape.rank() != argument.type.shape.rank())
    builder.Refuse(op, fmt::format("its carried value {} changes its kind or rank", i));
  VarDesc& var = builder.Declare(op, i);
  var.SetShape(CommonShape(result.type.shape, argument.type.shape));
  if (start->type.shape.rank() == var.shape().rank())
    var.SetShape(CommonShape(var.shape(), start->type.shape));
  Assign(builder, op, from, var);
  builder.DefineArgument(
      op, argument,
      std::make_shared<Value>(
          Value{.type = argument.type, .block = &builder.writer().block(), .var = var.name()}));
  return {&var, var.name()};
}

// Writes the values of the next turn. All are read before the first is written.
void EndTurn(ProgramBuilder& builder, const Op& op, const std::vector<ValuePtr>& next,
             const std::vector<Carried>& carried, VarDesc& condition) {
  std::unordered_set<std::string> replaced;
  for (const Carried& c : carried)
    if (c.var) replaced.insert(c.name);
  std::vector<std::string> from;
  for (const ValuePtr& value : next) {
    if (!value) builder.Refuse(op, "the body gives no value for a carried value");
    std::string name = builder.VarOf(op, value);
    const size_t i = from.size();
    const bool same = i > 0 && carried[i - 1].name == name;
    if (!same && replaced.count(name) > 0)
      name = builder.writer().Make("assign", {{"X", {name}}}).name();
    from.push_back(std::move(name));
  }
  for (size_t i = 0; i < carried.size(); ++i) {
    if (from[i + 1] == carried[i].name) continue;
    if (!carried[i].var) builder.Refuse(op, "the body gives another tensor array");
    Assign(builder, op, from[i + 1], *carried[i].var);
  }
  Assign(builder, op, from[0], condition);
}

}  // namespace

// Two conditional_block ops, which write the same variables.
void ReadIf(ProgramBuilder& builder, const Op& op) {
  const ValuePtr condition = builder.Operand(op, 0);
  if (!condition || op.operands.size() != 1 || op.blocks.size() != 2)
    builder.Refuse(op, "it needs a condition and two blocks");
  const std::string holds = builder.VarOf(op, condition);
  const std::string fails = builder.writer().Make("logical_not", {{"X", {holds}}}).name();
  const std::vector<VarDesc*> results = DeclareResults(builder, op);
  ReadBranch(builder, op, op.blocks[0], results, holds);
  ReadBranch(builder, op, op.blocks[1], results, fails);
}

void ReadWhile(ProgramBuilder& builder, const Op& op) {
  const ValuePtr start = builder.Operand(op, 0);
  if (!start || op.blocks.size() != 1 || op.operands.size() != op.results.size() + 1 ||
      op.blocks[0].arguments.size() != op.results.size())
    builder.Refuse(op, "it needs a condition, and as many arguments of its block as results");
  Writer& writer = builder.writer();
  const std::string from = builder.VarOf(op, start);
  VarDesc& condition = builder.DeclareNew("while.condition");
  condition.SetMeta(writer.Var(from).desc().meta());
  Assign(builder, op, from, condition);
  std::vector<Carried> carried;
  for (size_t i = 0; i < op.results.size(); ++i) carried.push_back(StartCarried(builder, op, i));
  BlockDesc* body = nullptr;
  {
    InBlock inside(builder);
    body = &inside.block();
    const std::vector<ValuePtr> next = builder.ReadOps(op.blocks[0]);
    if (next.size() != carried.size() + 1) {
      builder.Refuse(op, fmt::format("its body gives {} values for {} carried ones", next.size(),
                                     carried.size()));
    }
    EndTurn(builder, op, next, carried, condition);
  }
  VarDesc& scopes = builder.DeclareNew("while.scopes");
  scopes.SetType(VarType::kStepScopes);
  writer.Append("while", {{"X", OuterReads(*body)}, {"Condition", {condition.name()}}},
                {{"Out", OuterWrites(*body)}, {"StepScopes", {scopes.name()}}},
                {{"sub_block", BlockRef{body->idx()}}});
}

}  // namespace coracle::pir
