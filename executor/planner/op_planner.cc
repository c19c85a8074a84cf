#include <coracle/executor/planner/block_ops.h>
#include <coracle/executor/planner/constant_folding.h>
#include <coracle/executor/planner/kernel_trial.h>
#include <coracle/executor/planner/op_planner.h>
#include <coracle/framework/op/check/run_rules.h>
#include <coracle/framework/op/kernel/kernel_choice.h>
#include <fmt/format.h>

namespace coracle::inline internal {

OpPlanner::OpPlanner(PlanDraft& draft, const OpDesc& op, size_t position)
    : draft_(draft),
      position_(position),
      op_(op),
      def_(draft.context.ops.Get(op_.type())),
      runs_blocks_(!op_.SubBlocks().empty()),
      sub_blocks_(draft, op_, position) {}

// The order matters. Outputs must be placed before the kernel is prepared, since preparing asks for
// args. Names get their new values last, since an op may read a variable that it also writes.
void OpPlanner::Plan() {
  RequireInputs();
  InferOutputs();
  const bool known = Fold();
  if (!known) {
    for (Output& output : outputs_) output.place = PlaceOutput(output);
  }
  PassLod();
  if (known) return FinishOutputs();
  Kernel kernel = PrepareKernel(PrepareContext(def_, op_, *this), draft_.context.kernels);
  if (kernel)
    AddKernelStep(std::move(kernel));
  else
    PlanOpsOfBlock();
  FinishOutputs();
}

void OpPlanner::RequireInputs() {
  op_.ForEachInput([&](const std::string& name) {
    // A sub-block may write a variable before it reads it, so the variable need not have a
    // value yet.
    if (runs_blocks_)
      draft_.Find(name);
    else
      draft_.Get(name, &op_);
  });
}

// In an exact context the rule must determine all shapes; only an op with a run-time shape may
// leave one to its kernel.
void OpPlanner::InferOutputs() {
  InferContext context(def_, op_, *this);
  RunInfer(context);
  for (const Output& output : outputs_) {
    const VarMeta& meta = output.meta;
    if (meta.type == VarType::kLoDTensor && !meta.shape.IsKnown() && !def_.run_time_shape) {
      // If the op runs a block, RequireInputs accepts an input without a value: Get names it in
      // its error.
      op_.ForEachInput([&](const std::string& name) { draft_.Get(name, &op_); });
      throw InternalError(fmt::format("{}: the shape {} inferred for '{}' is not known", op_.type(),
                                      meta.shape.ToString(), output.name));
    }
  }
}

bool OpPlanner::Fold() {
  // All outputs must be foldable, since the op runs either at planning time or in each run.
  if (runs_blocks_ || outputs_.empty() || !IsFoldable(def_)) return false;
  if (def_.shape_only && reads_levels_) return false;  // the inputs have no values yet
  for (const Output& output : outputs_) {
    if (!IsFoldableOutput(draft_.block, output.name, output.meta)) return false;
  }
  const std::optional<VarValues> results = RunNow(draft_, op_, def_, *this);
  if (!results) return false;
  for (Output& output : outputs_) {
    const Tensor& result = std::get<Tensor>(results->at(output.name));
    output.place.value = draft_.values.AddConstant(output.name, result);
  }
  return true;
}

// --- where outputs are written ---

OutputPlace OpPlanner::PlaceOutput(const Output& output) {
  const auto& [name, meta, place] = output;
  if (draft_.persistables.IsPersistable(name)) {
    const ValueId bound = draft_.Find(name);
    // A persistable variable that is fed, or set by the caller, is treated as an ordinary one in
    // this plan.
    if (!bound || draft_.plan.StorageOf(bound).IsIn<PersistableId>())
      return draft_.persistables.AddOutput(op_, def_, name, meta, bound);
  }
  switch (meta.type) {
    case VarType::kLoDTensor:
      if (meta.shape.IsKnown()) return {draft_.values.AddTemporary(name, meta), {}};
      // Only the kernel knows the shape. A cell can hold any shape, and the next stage reads
      // it there.
      has_open_shape_ = true;
      return {draft_.cells.Add(draft_.procedure.OutputCell(position_, name), name, meta), {}};
    case VarType::kSelectedRows:
      return {draft_.values.AddTemporary(name, meta), {}};
    case VarType::kLoDTensorArray:
      return PlaceArray(name, meta);
    default: {
      // Rank tables and step scopes are read in later stages, which find values only in cells.
      const CellId cell = draft_.procedure.CellOf(name);
      draft_.cells.EmptyAtStart(cell, meta.type);
      return {draft_.cells.Add(cell, name, meta), {}};
    }
  }
}

// All versions of an array share one cell, because ops change it in place (write_to_array). Its
// elements have one type only if the written element has the type of the others.
OutputPlace OpPlanner::PlaceArray(const std::string& name, VarMeta meta) {
  const ValueId now = draft_.Find(name);
  const CellId cell = draft_.procedure.CellOf(name);
  if (now) {
    const VarMeta& held = draft_.values[now].meta;
    const bool no_element_yet = held.shape == Shape{-1, -1};
    if (!no_element_yet && !SameType(held, meta)) meta.shape = Shape{-1};
  } else {
    draft_.cells.EmptyAtStart(cell, VarType::kLoDTensorArray);
  }
  return {draft_.cells.Add(cell, name, meta), {}};
}

void OpPlanner::PassLod() {
  ForEachPosition(op_.outputs(), [&](const std::string& name, const std::string& slot, size_t i) {
    const Output* output = FindOutput(name);
    if (!output) return;
    PlanValue& value = draft_.values[output->place.value];
    const Storage& storage = draft_.plan.storages[value.storage];
    // A tensor in a cell has its own LoD.
    if (!value.IsDense() || storage.IsIn<CellId>()) return;
    ValueId lod = def_.makes_lod ? output->place.value : ValueId();
    const std::string* source = def_.LodSource(op_, slot, i);
    if (const ValueId input = source ? draft_.values.Current(*source) : ValueId()) {
      const PlanValue& from = draft_.values[input];
      // An op that makes its LoD from inputs' LoDs has none if those inputs have none.
      if (!from.lod_source || def_.PassesLod(op_, from.meta.shape, value.meta.shape))
        lod = from.lod_source;
    }
    if (const PersistableId persistable = storage.As<PersistableId>())
      PassToPersistable(draft_.plan.persistables[persistable], lod);
    else
      SetLodSource(output->place.value, lod);
  });
}

void OpPlanner::SetLodSource(ValueId value, ValueId lod) {
  draft_.values[value].lod_source = lod;
  if (lod && draft_.plan.StorageOf(lod).IsIn<PersistableId>() &&
      draft_.values[lod].lod_source == lod)
    draft_.lod_users[lod].push_back(value);
}

// In the scope a tensor keeps its LoD until another is set. A variable that the plan writes first
// has no LoD when the run begins, and has one only after a write that sets it.
void OpPlanner::PassToPersistable(PlanPersistable& persistable, ValueId lod) {
  const bool may_have_lod = persistable.read_first || persistable.given_lod;
  persistable.given_lod |= static_cast<bool>(lod);
  if (lod == persistable.value && def_.makes_lod) return draft_.KeepLodOf(lod);
  if (lod == persistable.value || (!lod && !may_have_lod)) return;
  draft_.KeepLodOf(persistable.value);
  lods_.push_back({lod, persistable.value});
}

// --- steps ---

void OpPlanner::AddKernelStep(Kernel kernel) {
  std::vector<ValueId> reads;
  op_.ForEachInput([&](const std::string& name) {
    // If the variable moved to a cell for a sub-block, this is the cell's value. A frozen parameter
    // that the kernel reads only in packed form does not count as read, so that its plain elements
    // can be released.
    const ValueId value = draft_.values.Current(name);
    if (!value || (draft_.persistables.IsFrozen(value) && !plain_reads_.count(name))) return;
    reads.push_back(value);
    draft_.persistables.NoteRead(name);
  });
  reads.insert(reads.end(), sub_blocks_.used().begin(), sub_blocks_.used().end());
  NoteRebindings();
  PlanStep step{RunKernel{op_.type(), std::move(kernel), std::move(lods_), std::move(how_)},
                {},
                Locate(op_),
                OriginsOf(op_)};
  op_.ForEachOutput([&](const std::string& name) {
    if (const Output* output = FindOutput(name)) step.outputs.push_back(output->place.value);
  });
  NoteSharing(draft_.AddStep(std::move(step), std::move(reads), scratch_));
}

void OpPlanner::PlanOpsOfBlock() {
  for (const std::unique_ptr<OpDesc>& op : OpsInPlaceOf(op_, draft_)) {
    OpPlanner planner(draft_, *op, position_);
    NameOutOfMemory([&] { planner.Plan(); }, [&] { return NameOf(*op); });
  }
  for (Output& output : outputs_) output.place = {draft_.values.Current(output.name), {}};
  PassLod();
}

// A variable that the kernel has as an arg must keep its type while the kernel runs.
void OpPlanner::NoteRebindings() {
  for (const CallId call : sub_blocks_.calls()) {
    for (Rebinding& written : draft_.plan.calls[call].rebindings) {
      const std::string& name = draft_.plan.persistables[written.persistable].name;
      written.used = plain_reads_.count(name) > 0 || FindOutput(name) != nullptr;
    }
  }
}

void OpPlanner::NoteSharing(StepId step) {
  const auto note = [&](const auto& pairs, bool alias) {
    for (const auto& [in, out] : pairs) {
      const auto& ins = op_.Input(in);
      const auto& outs = op_.Output(out);
      for (size_t i = 0; i < ins.size() && i < outs.size(); ++i) {
        const ValueId input = draft_.values.Current(ins[i]);
        const Output* output = FindOutput(outs[i]);
        if (!input || !output) continue;  // @EMPTY@
        draft_.usage.sharing.push_back({step, input, output->place.value, alias});
      }
    }
  };
  note(def_.alias, true);  // first, since an alias is possible even if the input is used later
  note(def_.inplace, false);
}

void OpPlanner::FinishOutputs() {
  for (const auto& [name, meta, place] : outputs_) {
    if (place.copy_to) {
      if (draft_.values[place.value].lod_source != place.copy_to) draft_.KeepLodOf(place.copy_to);
      draft_.AddCopy(place.value, place.copy_to, Locate(op_));
    } else {
      draft_.values.SetCurrent(name, place.value);
    }
  }
  // A sub-block has changed these in their cells or in the scope, where the next stage finds them.
  for (const std::string& name : sub_blocks_.changed()) draft_.values.Forget(name);
}

const OpPlanner::Output* OpPlanner::FindOutput(const std::string& name) const {
  auto it = output_index_.find(name);
  return it == output_index_.end() ? nullptr : &outputs_[it->second];
}

// --- what the shape rule sees ---

const VarMeta* OpPlanner::Find(const std::string& name) const {
  if (const ValueId value = draft_.values.Current(name)) return &draft_.values[value].meta;
  const VarDesc* var = draft_.block.FindVarRecursive(name);
  return var ? &var->meta() : nullptr;
}

void OpPlanner::Set(const std::string& name, const VarMeta& meta) {
  auto [it, added] = output_index_.try_emplace(name, outputs_.size());
  if (added) outputs_.push_back({name, meta});
  outputs_[it->second].meta = meta;
}

std::optional<std::vector<int64_t>> OpPlanner::LevelSizes(const std::string& name) const {
  const ValueId value = draft_.values.Current(name);
  const ValueId source = value ? draft_.values[value].lod_source : ValueId();
  if (!source) return std::vector<int64_t>();
  const Storage& storage = draft_.plan.StorageOf(source);
  if (const ConstantId constant = storage.As<ConstantId>()) {
    const LoD& lod = draft_.plan.constants[constant].lod();
    reads_levels_ = reads_levels_ || !lod.empty();
    return coracle::LevelSizes(lod);
  }
  LodGuard guard{draft_.values[source].name, InScope(), {}};
  const PersistableId persistable = storage.As<PersistableId>();
  if (const FeedId feed = storage.As<FeedId>())
    guard.place = feed;
  else if (const CellId cell = storage.As<CellId>())
    guard.place = cell;
  else if (!persistable || draft_.plan.persistables[persistable].written)
    throw NeedsLod{};  // an op of this stage makes the LoD
  guard.level_sizes = LevelSizesAt(guard.place, guard.name, draft_.request.input);
  reads_levels_ = reads_levels_ || !guard.level_sizes.empty();
  draft_.plan.guards.lods.push_back(guard);
  return guard.level_sizes;
}

// --- what Prepare sees ---

TensorArg OpPlanner::Read(const std::string& name) {
  plain_reads_.insert(name);
  return draft_.plan.ArgOf(draft_.Get(name, &op_));
}

std::shared_ptr<const Tensor> OpPlanner::Packed(const std::string& name,
                                                const PackedLayout& layout) {
  if (!draft_.persistables.IsFrozen(draft_.values.Current(name)))
    return ArgTable::Packed(name, layout);
  plain_reads_.erase(name);
  return draft_.context.frozen.Packed(name, layout);
}

TensorArg OpPlanner::Write(const std::string& name) {
  const Output* output = FindOutput(name);
  if (!output) ThrowWithoutShape(op_, name);
  return draft_.plan.ArgOf(output->place.value);
}

TensorArg OpPlanner::Scratch(DType dtype, const Shape& shape) {
  const ValueId value =
      draft_.values.AddTemporary("", VarMeta{VarType::kLoDTensor, dtype, shape, 0});
  draft_.values[value].lod_source = value;  // a copy of an input has its LoD
  scratch_.push_back(value);
  return draft_.plan.ArgOf(value);
}

TensorArg OpPlanner::ScratchArray() {
  const VarMeta array{VarType::kLoDTensorArray, DType::kFloat32, {}, 0};
  scratch_.push_back(draft_.values.AddTemporary("", array));
  return draft_.plan.ArgOf(scratch_.back());
}

TensorArg OpPlanner::ScratchValue() {
  return draft_.plan.ArgOf(draft_.cells.AddScratch(position_, scratch_cells_++));
}

int32_t OpPlanner::SubBlock(BlockRef block, const BlockArgs& args) {
  return sub_blocks_.AddCall(block, args).ToNumber();
}

Kernel OpPlanner::Choose(const PrepareContext& context, const std::vector<TensorArg>& tensors,
                         const std::vector<KernelWay>& ways) {
  KernelTrials trials;
  if (draft_.context.tune) trials = TryKernels(context, tensors, ways);
  if (trials.fastest < 0) return ArgTable::Choose(context, tensors, ways);
  const KernelWay& way = ways[static_cast<size_t>(trials.fastest)];
  Kernel kernel = way.prepare(context, trials.by_rule);
  NoteKernel(fmt::format("{}: {}", way.name, trials.times));
  return kernel;
}

bool OpPlanner::HasGradientBlock(BlockRef block) { return sub_blocks_.UseOf(block).has_gradient; }

}  // namespace coracle::inline internal
