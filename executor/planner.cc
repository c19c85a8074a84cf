#include <coracle/executor/internal/planner_impl.h>
#include <coracle/framework/op/interpreter.h>
#include <fmt/format.h>

#include <cstring>

namespace coracle {
namespace {

// Larger results of constant ops are computed in each run rather than kept.
constexpr int64_t kMaxFoldedElements = 65536;

}  // namespace

Plan Planner::Make() {
  plan_.first_op = request_.first_op;
  plan_.relies = request_.relies;
  DeclareSlots();
  CountWrites();
  BindFeeds();
  PlanOps();
  if (plan_.next_op < 0) Deliver();
  BindFetches();
  usage_.writes_of_names = &write_count_;
  ShareMemory(plan_, usage_);
  LayOutArena(plan_);
  plan_.own_slots = unit_.own;
  return std::move(plan_);
}

void Planner::PlanOps() {
  for (op_index_ = request_.first_op; op_index_ < block_.NumOps(); ++op_index_) {
    const OpDesc& op = block_.op(op_index_);
    CheckTimeLimit("planning ops");
    try {
      NameOutOfMemory([&] { PlanOp(op); }, [&] { return NameOf(op); });
    } catch (const NeedsValue& needed) {
      RequireValue(needed.var);
      EndStage(op_index_, needed.var);
      return;
    }
    if (ends_stage_) {
      EndStage(op_index_ + 1, "");
      return;
    }
  }
}

void Planner::PlanOp(const OpDesc& op) {
  op_ = &op;
  def_ = &request_.ops->Get(op.type());
  inferred_.clear();
  writes_.clear();
  op_values_.clear();
  inside_uses_.clear();
  changed_.clear();
  sub_blocks_of_op_ = scratch_slots_of_op_ = 0;
  // What a sub-block reads may also be written by it first.
  const bool runs_blocks = !SubBlocksOf(op).empty();
  ForEachName(op.inputs(), [&](const std::string& name) {
    if (CurrentOrPersistable(name) < 0 && !runs_blocks) ThrowUndefined(name);
  });
  Infer();
  if (!runs_blocks && Fold()) return;
  for (auto& [name, meta] : inferred_) MakeOutput(name, meta);
  ShareLod();
  Kernel kernel = def_->Prepare(PrepareContext(*def_, op, *this), request_.kernels);
  AppendStep(std::move(kernel), op.type(), Locate(op));
  CopyBack();
  for (const auto& [name, value] : writes_) {
    if (!is_copied_.count(name)) current_[name] = value;
  }
  is_copied_.clear();
  for (const std::string& name : changed_) current_.erase(name);
  ends_stage_ |= !changed_.empty();
}

void Planner::Infer() {
  InferContext context(*def_, *op_, *this);
  def_->RunInfer(context);
  for (auto& [name, meta] : inferred_) {
    if (meta.type == VarType::kLoDTensor && !meta.shape.IsKnown() && !def_->run_time_shape()) {
      throw InternalError(fmt::format("{}: the shape {} inferred for '{}' is not known",
                                      op_->type(), meta.shape.ToString(), name));
    }
  }
}

bool Planner::Fold() {
  if (def_->random() || def_->side_effect() || def_->kind() != OpKind::kCompute ||
      def_->run_time_shape() || inferred_.empty())
    return false;
  for (const auto& [name, meta] : inferred_) {
    const VarDesc* var = block_.FindVarRecursive(name);
    if (meta.type != VarType::kLoDTensor || (var && var->persistable())) return false;
    if (meta.shape.numel() > kMaxFoldedElements) return false;
  }
  VarValues env;
  bool known = true;
  ForEachName(op_->inputs(), [&](const std::string& name) {
    const VarMeta& meta = *Find(name);
    if (const Tensor* constant = ConstantOf(name))
      env[name] = constant->Clone();  // an op in place must not change the constant
    else if (def_->shape_only() && meta.type == VarType::kLoDTensor)
      env[name] = Tensor::View(meta.dtype, meta.shape, nullptr);
    else
      known = false;
  });
  if (!known) return false;
  InterpretOp(*op_, *request_.ops, env, {.kernels = request_.kernels});
  for (const auto& [name, meta] : inferred_) {
    const Tensor& result = std::get<Tensor>(env.at(name));
    int32_t source = static_cast<int32_t>(plan_.constants.size());
    plan_.constants.push_back(result.Clone());
    plan_.constant_bytes += result.nbytes();
    int32_t storage = NewStorage(StorageKind::kConstant, source, result.nbytes());
    current_[name] =
        NewValue(name, VarMeta{VarType::kLoDTensor, result.dtype(), result.shape(), 0}, storage);
  }
  return true;
}

void Planner::AppendStep(Kernel kernel, std::string type, std::string where) {
  int32_t step = static_cast<int32_t>(plan_.steps.size());
  PlanStep made{std::move(kernel), std::move(type), {}, std::move(where)};
  usage_.step_inputs.emplace_back();
  ForEachName(op_->inputs(), [&](const std::string& name) {
    auto it = current_.find(name);
    if (it == current_.end()) return;
    usage_.uses.emplace_back(step, it->second);
    usage_.step_inputs.back().push_back(it->second);
    read_.insert(name);
  });
  for (const Slot& slot : op_->outputs()) {
    for (const std::string& name : slot.args) {
      auto it = writes_.find(name);
      if (it == writes_.end()) continue;
      made.outputs.push_back(it->second);
      usage_.uses.emplace_back(step, it->second);
    }
  }
  for (int32_t value : op_values_) usage_.uses.emplace_back(step, value);
  for (int32_t value : inside_uses_) {
    usage_.uses.emplace_back(step, value);
    usage_.step_inputs.back().push_back(value);
  }
  plan_.steps.push_back(std::move(made));
  NoteSharing(step);
}

void Planner::NoteSharing(int32_t step) {
  auto note = [&](const auto& pairs, bool alias) {
    for (const auto& [in, out] : pairs) {
      const auto& ins = op_->Input(in);
      const auto& outs = op_->Output(out);
      for (size_t i = 0; i < ins.size() && i < outs.size(); ++i) {
        auto written = writes_.find(outs[i]);  // not there: @EMPTY@
        if (IsEmptyName(ins[i]) || written == writes_.end()) continue;
        usage_.sharing.push_back({step, current_.at(ins[i]), written->second, alias});
      }
    }
  };
  note(def_->alias(), true);
  note(def_->inplace(), false);
}

void Planner::CopyBack() {
  for (auto [from, to] : copies_) AppendCopy(from, to);
  copies_.clear();
}

void Planner::AppendCopy(int32_t from, int32_t to) {
  TensorArg source = ArgOf(from), target = ArgOf(to);
  size_t bytes = static_cast<size_t>(source.nbytes());
  int32_t step = static_cast<int32_t>(plan_.steps.size());
  Kernel copy = [=](Workspace& ws) {
    if (bytes > 0) std::memcpy(ws.Data<char>(target), ws.Data<char>(source), bytes);
  };
  plan_.steps.push_back({std::move(copy), "copy", {to}, Locate(*op_)});
  usage_.step_inputs.push_back({from});
  usage_.uses.emplace_back(step, from);
  usage_.uses.emplace_back(step, to);
}

Plan MakePlan(const PlanRequest& request) { return Planner(request).Make(); }

}  // namespace coracle
