#include <coracle/backward/open_types.h>
#include <coracle/backward/verify_program.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/passes/pass.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

void ThrowFirstError(const std::vector<VerifyProblem>& problems) {
  for (const VerifyProblem& problem : problems) {
    if (problem.severity != VerifyProblem::Severity::kError || problem.rule == "unknown_op")
      continue;
    throw Error(ErrorCode::kInvalidArgument, problem.ToString(), problem.details);
  }
}

// Throws unless the op's block sees the variable.
auto Declared(const OpDesc& op, const char* verb) {
  return [&op, verb](const std::string& name, const std::string& slot) {
    const BlockDesc& block = *op.block();
    if (block.FindVarRecursive(name)) return;
    ThrowInvalid(fmt::format("block {} op {} ({}) slot {}: {} the var {}, which no block declares",
                             block.idx(), block.IndexOf(op), op.type(), BriefName(slot), verb,
                             Quote(name)));
  };
}

// Whether the op's attrs name valid sub-blocks. (If not, the verifier determines the error.)
bool NamesBlocks(const OpDesc& op, const OpSpec& spec) {
  const bool anywhere = spec.block.runs == BlockRuns::kFunction;
  const std::vector<int> blocks = op.SubBlocks();
  return std::all_of(blocks.begin(), blocks.end(), [&](int idx) {
    return (idx > op.block()->idx() || anywhere) && idx > 0 && idx != op.block()->idx() &&
           idx < op.block()->program().NumBlocks();
  });
}

}  // namespace

void RequireBlocks(const ProgramDesc& program, const OpRegistry& ops) {
  if (program.NumBlocks() != 1 || program.Root().parent_idx() >= 0 ||
      program.Root().forward_block_idx() >= 0)
    VerifyOrThrow(program, ops, {.blocks_only = true});
}

void RequireOp(const OpDesc& op, const OpRegistry& ops) {
  const OpSpec* def = ops.Find(op.type());
  if (!def) return;
  std::vector<VerifyProblem> problems;
  CheckOp(*def, op, op.block()->idx(), -1, &problems);
  if (!problems.empty()) {
    for (VerifyProblem& problem : problems) problem.op = static_cast<int>(op.block()->IndexOf(op));
    ThrowFirstError(problems);
  }
  if (op.HasSubBlock() && !NamesBlocks(op, *def)) RequireProgram(op.block()->program(), ops);
}

void RequireDeclared(const OpDesc& op) {
  op.ForEachInput(Declared(op, "reads"));
  op.ForEachOutput(Declared(op, "writes"));
}

void RequireProgram(const ProgramDesc& program, const OpRegistry& ops) {
  ThrowFirstError(Verify(program, ops));
}

void CheckAndFillTypes(ProgramDesc& program, const OpRegistry& ops) {
  RequireBlocks(program, ops);
  OpenTypes open(program, ops);
  open.FillWhereOpen();
  RequireProgram(program, ops);
  open.Commit();
}

void ReplaceCalls(ProgramDesc& program, const OpRegistry& ops) {
  const auto is_call = [&](const OpDesc& op) {
    const OpSpec* spec = ops.Find(op.type());
    return spec && spec->block.runs == BlockRuns::kFunction;
  };
  bool any = false;
  for (int b = 0; b < program.NumBlocks() && !any; ++b) {
    for (const OpDesc* op : program.Block(b).SubBlockOps()) any |= is_call(*op);
  }
  if (!any) return;
  RequireProgram(program, ops);
  InlineDerivedCalls(program);
}

BlockDesc& BlockOf(const Variable& variable) {
  BlockDesc* block = &variable.block();
  while (block->parent() && block->FindVar(variable.name()) != &variable.desc() &&
         block->Uses(variable.name()).writers.empty())
    block = block->parent();
  return *block;
}

}  // namespace coracle::inline internal
