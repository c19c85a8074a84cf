#include <coracle/edit/edit.h>
#include <coracle/executor/compiled_program.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <unordered_set>

namespace coracle {
namespace {

using Names = std::vector<std::string>;
using NameSet = std::unordered_set<std::string>;

bool Contains(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

CompileOptions OptionsOf(const OptimizeOptions& options) {
  CompileOptions compile = options.compile;
  if (options.paddle_only) compile.expand = false;
  PassesWithout(options.passes);  // throws for an unknown name
  for (const Pass& pass : Pipeline()) {
    const bool chosen = options.passes.empty() || Contains(options.passes, pass.name);
    const bool allowed = !options.paddle_only || IsPaddlePass(pass.name);
    if (!chosen || !allowed) compile.disabled_passes.push_back(pass.name);
  }
  return compile;
}

// Appends copies of the feed ops (or fetch ops) of the original, in their order. Skips fetch ops
// whose variables are no longer fetched.
void AppendEnds(const ProgramDesc& original, OpKind kind, const Names& fetches,
                const OpRegistry& ops, std::vector<std::unique_ptr<OpDesc>>* list) {
  const NameSet fetched(fetches.begin(), fetches.end());
  original.Root().ForEachOp([&](const OpDesc& op) {
    const OpSpec* spec = ops.Find(op.type());
    if (!spec || spec->kind != kind) return;
    const bool gone = op.AnyInput([&](const std::string& name) { return !fetched.count(name); });
    if (kind == OpKind::kFeed || !gone) list->push_back(std::make_unique<OpDesc>(op));
  });
}

void RestoreEnds(const ProgramDesc& original, const Names& fetches, const OpRegistry& ops,
                 ProgramDesc* program) {
  std::vector<std::unique_ptr<OpDesc>> list;
  AppendEnds(original, OpKind::kFeed, fetches, ops, &list);
  for (std::unique_ptr<OpDesc>& op : program->Root().ReleaseOps()) list.push_back(std::move(op));
  AppendEnds(original, OpKind::kFetch, fetches, ops, &list);
  program->Root().SetOps(std::move(list));
}

// Removes variables that no op uses; of persistable variables, only those that were frozen or that
// a pass made.
void RemoveUnused(const ProgramDesc& original, const NameSet& ends, const NameSet& frozen,
                  ProgramDesc* program) {
  NameSet used = ends;
  program->ForEachOp([&](const OpDesc& op) {
    op.ForEachInput([&](const std::string& name) { used.insert(name); });
    op.ForEachOutput([&](const std::string& name) { used.insert(name); });
  });
  for (int b = 0; b < program->NumBlocks(); ++b) {
    program->Block(b).RemoveVarsIf([&](const VarDesc& var) {
      if (used.count(var.name()) > 0) return false;
      return !var.persistable() || frozen.count(var.name()) > 0 ||
             !original.Root().FindVar(var.name());
    });
  }
}

Scope ParametersOf(const ProgramDesc& program, const Scope& given, const FrozenValues& frozen) {
  Scope parameters;
  for (const std::string& name : PersistableNames(program)) {
    const auto made = frozen.find(name);
    if (made != frozen.end())
      parameters.Set(name, made->second);
    else if (const VarValue* value = given.Find(name))
      parameters.Var(name) = *value;
  }
  return parameters;
}

// Allows types of the original, and those that remove_identities and move_transposes make, which
// Paddle has always had.
void RequireTypesOf(const ProgramDesc& original, const ProgramDesc& program) {
  NameSet known = {"scale", "transpose2"};
  original.ForEachOp([&](const OpDesc& op) { known.insert(op.type()); });
  program.ForEachOp([&](const OpDesc& op) {
    if (known.count(op.type())) return;
    throw Error(ErrorCode::kUnimplemented,
                fmt::format("the passes made the op {}, which the program does not have and Paddle "
                            "may not know",
                            Quote(op.type())));
  });
}

}  // namespace

bool IsPaddlePass(const std::string& pass) {
  static const Names passes = {"dead_code",       "remove_identities",
                               "fold_constants",  "common_subexpressions",
                               "move_transposes", "early_updates"};
  return Contains(passes, pass);
}

OptimizedProgram OptimizeProgram(const ProgramDesc& program, const Scope& parameters,
                                 const Names& feeds, const Names& fetches,
                                 const OptimizeOptions& options, const PassObserver& observer,
                                 const OpRegistry& ops) {
  const CompiledProgram compiled(program, feeds, fetches, OptionsOf(options), ops,
                                 {options.freeze_parameters ? &parameters : nullptr, nullptr},
                                 observer);
  OptimizedProgram result;
  result.program = compiled.ProgramWithoutOrigins();
  if (options.paddle_only) RequireTypesOf(program, result.program);
  RestoreEnds(program, compiled.fetches(), ops, &result.program);
  NameSet ends(compiled.feeds().begin(), compiled.feeds().end());
  ends.insert(compiled.fetches().begin(), compiled.fetches().end());
  const Names& frozen = compiled.frozen().names();
  const FrozenValues values = compiled.FrozenElements();
  RemoveUnused(program, ends, {frozen.begin(), frozen.end()}, &result.program);
  result.parameters = ParametersOf(result.program, parameters, values);
  return result;
}

}  // namespace coracle
