#include <coracle/executor/internal/compiled_program.h>
#include <coracle/executor/internal/frame.h>
#include <coracle/executor/internal/planner.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/verifier.h>
#include <coracle/passes/inline_calls.h>
#include <coracle/passes/pass.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>

namespace coracle {
namespace {

// Takes the feed and fetch ops out of the root block; their variables, by col, are added where the
// caller named none.
void TakeFeedAndFetchOps(ProgramDesc& program, const OpRegistry& ops,
                         std::vector<std::string>* feeds, std::vector<std::string>* fetches) {
  std::map<int32_t, std::string> fed, fetched;
  auto note = [&](const OpDesc& op, OpKind kind, const std::vector<std::string>& vars,
                  auto& by_col) {
    const OpDef* def = ops.Find(op.type());
    if (!def || def->kind() != kind || vars.size() != 1) return;
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
    const OpDef* def = ops.Find(op.type());
    return def && def->kind() != OpKind::kCompute;
  });
  if (feeds->empty()) {
    for (const auto& [col, name] : fed) feeds->push_back(name);
  }
  if (fetches->empty()) {
    for (const auto& [col, name] : fetched) fetches->push_back(name);
  }
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

uint64_t MachineMemory() {
  return static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(::sysconf(_SC_PAGE_SIZE));
}

VarMeta MetaOf(const Tensor& tensor) {
  return {VarType::kLoDTensor, tensor.dtype(), tensor.shape(), 0};
}

}  // namespace

CompiledProgram::CompiledProgram(const ProgramDesc& program, std::vector<std::string> feeds,
                                 std::vector<std::string> fetches, const CompileOptions& options,
                                 const OpRegistry& ops)
    : program_(program),
      feeds_(std::move(feeds)),
      fetches_(std::move(fetches)),
      options_(options),
      ops_(&ops),
      seed_(program.random_seed ? program.random_seed : options.seed),
      memory_limit_(options.memory_limit ? options.memory_limit : MachineMemory() / 5 * 4) {
  VerifyOrThrow(program_, ops);
  TakeFeedAndFetchOps(program_, ops, &feeds_, &fetches_);
  InlineCalls(program_);
  RequireVars(program_, feeds_, "feed");
  RequireVars(program_, fetches_, "fetch");
  if (options_.optimize) {
    PassContext context{ops, {feeds_.begin(), feeds_.end()}, {fetches_.begin(), fetches_.end()}};
    RunPasses(program_, context);
  }
}

void CompiledProgram::CheckFeeds(std::span<const Tensor> feeds) const {
  if (feeds.size() != feeds_.size()) {
    ThrowInvalid(fmt::format("the program takes {} feeds ({}), got {}", feeds_.size(),
                             Join(feeds_, ", "), feeds.size()));
  }
  for (size_t i = 0; i < feeds.size(); ++i) {
    const VarDesc* var = program_.Root().FindVar(feeds_[i]);
    if (!var || var->type() != VarType::kLoDTensor) continue;
    if (feeds[i].dtype() != var->dtype()) {
      ThrowInvalid(fmt::format("feed {} must be {}, got {}", Quote(feeds_[i]),
                               var->meta().ToString(), feeds[i].ToString()));
    }
    // Files declare the shape of their export; only where they ask for it does it bind a feed.
    if (var->need_check_feed() && !feeds[i].shape().CompatibleWith(var->shape())) {
      ThrowInvalid(fmt::format("feed {} must have the shape {}, got {}", Quote(feeds_[i]),
                               var->shape().ToString(), feeds[i].shape().ToString()));
    }
  }
}

std::shared_ptr<const Plan> CompiledProgram::GetPlan(std::span<const Tensor> feeds,
                                                     const Scope& scope) const {
  CheckFeeds(feeds);
  return FindOrMake(0, feeds_, feeds, "", scope);
}

std::shared_ptr<const Plan> CompiledProgram::GetNextPlan(const Plan& before,
                                                         std::span<const Tensor> feeds,
                                                         const Scope& scope) const {
  return FindOrMake(static_cast<size_t>(before.next_op), before.carried, feeds, before.needs,
                    scope);
}

std::shared_ptr<const Plan> CompiledProgram::FindOrMake(size_t first_op,
                                                        const std::vector<std::string>& names,
                                                        std::span<const Tensor> feeds,
                                                        const std::string& needs,
                                                        const Scope& scope) const {
  Tensor needed;
  if (!needs.empty()) {
    auto it = std::find(names.begin(), names.end(), needs);
    needed = it != names.end() ? feeds[static_cast<size_t>(it - names.begin())] : scope.Get(needs);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto it = plans_.begin(); it != plans_.end(); ++it) {
    bool same = it->first_op == first_op &&
                std::equal(it->feeds.begin(), it->feeds.end(), feeds.begin(), feeds.end(),
                           [](const VarMeta& m, const Tensor& t) {
                             return m.dtype == t.dtype() && m.shape == t.shape();
                           });
    if (!same || !BitEqual(it->needed, needed) || !Frame::Fits(*it->plan, scope)) continue;
    plans_.splice(plans_.begin(), plans_, it);
    return plans_.front().plan;
  }
  PlanRequest request;
  request.program = &program_;
  request.ops = ops_;
  request.kernels = options_.kernels;
  request.feeds = names;
  for (const Tensor& feed : feeds) request.feed_metas.push_back(MetaOf(feed));
  request.fetches = fetches_;
  request.scope = &scope;
  request.first_op = first_op;
  if (!needs.empty()) request.known.emplace(needs, needed = needed.Clone());
  plans_.push_front(
      {first_op, request.feed_metas, needed, std::make_shared<const Plan>(MakePlan(request))});
  if (plans_.size() > std::max<size_t>(1, options_.max_plans)) plans_.pop_back();
  return plans_.front().plan;
}

}  // namespace coracle
