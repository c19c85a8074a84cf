#include <coracle/executor/compiled_program.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file_access.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/base/trace.h>
#include <coracle/framework/ir/mismatch.h>
#include <coracle/framework/ir/role.h>
#include <coracle/framework/op/check/file_use.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/passes/freeze.h>
#include <coracle/passes/pass.h>
#include <coracle/passes/share_coalesced.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <unordered_set>

namespace coracle::inline internal {
namespace {

// Removes the feed and fetch ops from the root block. If the caller named no feeds (fetches), their
// variables are added, ordered by col.
void RemoveFeedAndFetchOps(ProgramDesc& program, const OpRegistry& ops,
                           std::vector<std::string>* feeds, std::vector<std::string>* fetches) {
  std::map<int32_t, std::string> fed, fetched;
  auto note = [&](const OpDesc& op, OpKind kind, const std::vector<std::string>& vars,
                  auto& by_col) {
    const OpSpec* def = ops.Find(op.type());
    if (!def || def->kind != kind || vars.size() != 1) return;
    if (!by_col.emplace(def->AttrOf<int32_t>(op, "col"), vars[0]).second) {
      ThrowInvalid(fmt::format("{}: two ops have the same col", op.type()), "  " + Locate(op));
    }
  };
  BlockDesc& root = program.Root();
  for (size_t i = 0; i < root.NumOps(); ++i) {
    note(root.op(i), OpKind::kFeed, root.op(i).Output("Out"), fed);
    note(root.op(i), OpKind::kFetch, root.op(i).Input("X"), fetched);
  }
  root.RemoveOpsIf([&](const OpDesc& op) {
    const OpSpec* def = ops.Find(op.type());
    return def && def->kind != OpKind::kCompute;
  });
  if (feeds->empty()) {
    for (const auto& [col, name] : fed) feeds->push_back(name);
  }
  if (fetches->empty()) {
    for (const auto& [col, name] : fetched) fetches->push_back(name);
  }
}

// Removes Python stacks, which may be the larger part of a saved program: no message quotes them,
// and passes copy ops often.
void RemoveForeignStacks(ProgramDesc& program) {
  program.ForEachOp([](OpDesc& op) {
    if (op.creation_site().empty()) op.RemoveAttr(kOpCallstackAttr);
  });
}

void RequireVars(const ProgramDesc& program, const std::vector<std::string>& names,
                 const char* what) {
  for (const std::string& name : names) {
    if (program.Root().FindVar(name)) continue;
    std::vector<std::string> known;
    for (size_t i = 0; i < program.Root().NumVars(); ++i)
      known.push_back(program.Root().var(i).name());
    throw Error(ErrorCode::kNotFound, fmt::format("cannot {} {}: the program has no such var{}",
                                                  what, Quote(name), DidYouMean(name, known)));
  }
}

void CheckPrecision(const ProgramDesc& program, DType precision) {
  if (precision == DType::kFloat32) return;
  if (precision != DType::kBFloat16) {
    ThrowInvalid(fmt::format("precision must be float32 or bfloat16, got {}", ToString(precision)));
  }
  program.ForEachOp([](const OpDesc& op) {
    if (!HasRole(op, kBackward | kOptimize)) return;
    ThrowInvalid(fmt::format("precision bfloat16 is for inference, and the program has gradient or "
                             "update ops ({}); train with mixed_precision instead",
                             op.type()),
                 "  " + Locate(op));
  });
}

// The ops that write one of the variables, sorted.
std::vector<OpOrigin> WritersOf(const ProgramDesc& program, const std::vector<std::string>& vars) {
  const std::unordered_set<std::string> names(vars.begin(), vars.end());
  std::vector<OpOrigin> found;
  program.ForEachOp([&](const OpDesc& op) {
    if (!op.AnyOutput([&](const std::string& name) { return names.count(name) > 0; })) return;
    const std::vector<OpOrigin> here = OriginsOf(op);
    found.insert(found.end(), here.begin(), here.end());
  });
  std::sort(found.begin(), found.end());
  return found;
}

int64_t NextNumber() {
  static std::atomic<int64_t> last = 0;
  return ++last;
}

}  // namespace

CompiledProgram::CompiledProgram(const ProgramDesc& program, std::vector<std::string> feeds,
                                 std::vector<std::string> fetches, const CompileOptions& options,
                                 const OpRegistry& ops, const FrozenFrom& parameters,
                                 const PassObserver& observer,
                                 std::shared_ptr<ShapeWarningLog> warning_log)
    : number_(NextNumber()),
      program_(program),
      feeds_(std::move(feeds)),
      fetches_(std::move(fetches)),
      options_(options),
      warning_log_(warning_log ? std::move(warning_log)
                               : std::make_shared<ShapeWarningLog>(options.shape_warnings)),
      seed_(program.random_seed ? program.random_seed : options.seed),
      memory_limit_(options.memory_limit ? options.memory_limit : DefaultMemoryLimit()) {
  if (!(options.time_limit >= 0))
    ThrowInvalid(fmt::format("time_limit must not be negative, got {}", options.time_limit));
  Compile(ops, parameters, observer);
  const PlanContext context{program_,
                            origins_,
                            uses_,
                            ops,
                            options_.kernels,
                            FileAccess(options_.allow_files),
                            frozen_,
                            memory_limit_,
                            options_.tune,
                            options_.optimize};
  plans_ = std::make_unique<PlanCache>(context, feeds_, fetches_, options_.max_plans, warning_log_);
}

void CompiledProgram::Compile(const OpRegistry& ops, const FrozenFrom& parameters,
                              const PassObserver& observer) {
  const TraceSpan span("compile", "compile");
  PassesWithout(options_.disabled_passes);  // throws for an unknown name
  {
    const TraceSpan verify("compile", "verify");
    VerifyOrThrow(program_, ops);
  }
  SetOrigins(program_);
  CheckPrecision(program_, options_.precision);
  RequireVars(program_, options_.float32_vars, "keep in float32");
  const std::vector<OpOrigin> float32_ops = WritersOf(program_, options_.float32_vars);
  const ScopedOrigins origins(origins_);
  for (const FileUse& use : FilesOf(program_, ops))
    RequireAllowed(use, FileAccess(options_.allow_files));
  RemoveForeignStacks(program_);
  // The ops of functions are checked now, in the calling block with its types. The feed ops are
  // still there, since an op may read a fed variable that a later op overwrites.
  bool changed = InlineCalls(program_, &origins_);
  if (options_.expand && ExpandOps(program_, ops, false)) changed = true;
  if (changed) VerifyOrThrow(program_, ops);
  RemoveFeedAndFetchOps(program_, ops, &feeds_, &fetches_);
  RequireVars(program_, feeds_, "feed");
  RequireVars(program_, fetches_, "fetch");
  ShareCoalesced(program_, fetches_);
  BindKeptOutputs(program_, ops, feeds_);
  FrozenValues frozen = FreezeParameters(parameters, ops);
  if (options_.optimize)
    RunAllPasses(ops, parameters.scope ? &frozen : nullptr, float32_ops, observer);
  AddFrozen(std::move(frozen));
  uses_ = FindBlockUses(program_);
}

// Declares the shapes of frozen values, since passes rely on declared shapes. Warns of differences,
// as the first run does for other variables.
void CompiledProgram::DeclareHeldShapes(const FrozenValues& frozen, const OpRegistry& ops) {
  Scope held;
  for (const auto& [name, value] : frozen) held.Set(name, value);
  const std::vector<ShapeWarning> warnings = ShapeWarnings(program_).New({}, {}, held);
  warning_log_->Log(warnings);
  if (warnings.empty()) return;
  const auto problems = [&] {
    const std::vector<VerifyProblem> found = Verify(program_, ops);
    return std::count_if(found.begin(), found.end(), [](const VerifyProblem& problem) {
      return problem.severity != VerifyProblem::Severity::kNote;
    });
  };
  const auto before = problems();
  std::vector<std::pair<VarDesc*, Shape>> declared;
  for (const auto& [name, value] : frozen) {
    VarDesc* var = program_.Root().FindVar(name);
    if (!var || var->shape().rank() == 0 || value.shape().CompatibleWith(var->shape())) continue;
    declared.emplace_back(var, var->shape());
    var->SetShape(value.shape());
  }
  if (problems() <= before) return;
  // An op does not accept the actual shape. The run will report that, unless it does not need
  // the op.
  for (const auto& [var, shape] : declared) var->SetShape(shape);
}

FrozenValues CompiledProgram::FreezeParameters(const FrozenFrom& parameters,
                                               const OpRegistry& ops) {
  if (!parameters.scope) return {};
  const TraceSpan span("compile", "freeze parameters");
  FrozenValues frozen = Freeze(program_, *parameters.scope, {feeds_.begin(), feeds_.end()});
  guard_ = FrozenGuard(frozen);
  DeclareHeldShapes(frozen, ops);
  if (!parameters.erase_from) return frozen;
  for (const auto& [name, value] : frozen) parameters.erase_from->Erase(name);
  return frozen;
}

void CompiledProgram::RunAllPasses(const OpRegistry& ops, FrozenValues* frozen,
                                   const std::vector<OpOrigin>& float32_ops,
                                   const PassObserver& observer) {
  PassContext context{ops, {feeds_.begin(), feeds_.end()}, {fetches_.begin(), fetches_.end()}};
  context.disabled = options_.disabled_passes;
  context.frozen = frozen;
  context.kernels = options_.kernels;
  context.origins = &origins_;
  context.precision = options_.precision;
  context.float32_ops = float32_ops;
  if (options_.check_nan_inf) {
    for (const Pass& pass : Pipeline()) {
      if (pass.hides_results) context.disabled.push_back(pass.name);
    }
  }
  RunPasses(program_, context, {}, observer);
}

// Adds only values that are still read, so that values which passes folded away are released.
void CompiledProgram::AddFrozen(FrozenValues values) {
  const auto add = [&](const std::string& name) {
    auto found = values.find(name);
    if (found != values.end()) frozen_.Add(name, found->second);
  };
  for (const std::string& name : fetches_) add(name);
  program_.ForEachOp([&](const OpDesc& op) { op.ForEachInput(add); });
}

const ProgramDesc& CompiledProgram::ProgramWithoutOrigins() const {
  std::call_once(made_without_origins_, [&] {
    without_origins_ = program_;
    RemoveOrigins(without_origins_);
  });
  return without_origins_;
}

void CompiledProgram::CheckFeeds(std::span<const Tensor> feeds) const {
  if (feeds.size() != feeds_.size()) {
    ThrowInvalid(fmt::format("the program takes {} feeds ({}), got {}", feeds_.size(),
                             Join(feeds_, ", "), feeds.size()));
  }
  for (size_t i = 0; i < feeds.size(); ++i) {
    if (feeds[i].numel() > 0 && !feeds[i].raw()) {
      ThrowInvalid(fmt::format("feed {} is {} without elements: a view of a null pointer",
                               Quote(feeds_[i]), feeds[i].ToString()));
    }
    CheckLod(feeds_[i], feeds[i]);
    const VarDesc* var = program_.Root().FindVar(feeds_[i]);
    if (!var || var->type() != VarType::kLoDTensor) continue;
    const bool fits = feeds[i].shape().CompatibleWith(var->shape());
    if (feeds[i].dtype() == var->dtype() && (fits || !var->need_check_feed())) continue;
    VarMeta wanted = var->meta();
    if (!var->need_check_feed()) wanted.shape = feeds[i].shape();
    const VarMeta fed{VarType::kLoDTensor, feeds[i].dtype(), feeds[i].shape(), 0};
    ThrowInvalid(fmt::format("feed {} {}", Quote(feeds_[i]), DescribeMismatch(wanted, fed)));
  }
}

}  // namespace coracle::inline internal
