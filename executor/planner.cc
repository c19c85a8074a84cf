#include <coracle/executor/internal/planner.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/interpreter.h>
#include <coracle/framework/op/prepare_context.h>
#include <fmt/format.h>

#include <cstring>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace coracle {
namespace {

// Larger results of constant ops are computed in each run rather than kept.
constexpr int64_t kMaxFoldedElements = 65536;

bool SameType(const VarMeta& a, const VarMeta& b) {
  return a.type == b.type && a.dtype == b.dtype && a.shape == b.shape;
}

size_t Index(int32_t i) { return static_cast<size_t>(i); }

template <class F>
void ForEachName(const SlotList& slots, F f) {
  for (const Slot& slot : slots) {
    for (const std::string& name : slot.args) {
      if (!IsEmptyName(name)) f(name);
    }
  }
}

class Planner : public MetaTable, public ArgTable {
 public:
  // `parent` plans the block that holds the op whose sub-block this is.
  explicit Planner(const PlanRequest& request, Planner* parent = nullptr)
      : request_(request), block_(request.program->Block(request.block)), parent_(parent) {}

  Plan Make() {
    CountWrites();
    BindFeeds();
    PlanOps();
    BindFetches();
    usage_.writes_of_names = &write_count_;
    ShareMemory(plan_, usage_);
    LayOutArena(plan_);
    return std::move(plan_);
  }

  // --- MetaTable: the types as the op being planned sees them ---
  const VarMeta* Find(const std::string& name) const override {
    auto it = current_.find(name);
    if (it != current_.end()) return &plan_.values[Index(it->second)].meta;
    const VarDesc* var = block_.FindVarRecursive(name);
    return var ? &var->meta() : nullptr;
  }
  void Set(const std::string& name, const VarMeta& meta) override { inferred_[name] = meta; }
  const Tensor* Constant(const std::string& name) const override { return ConstantOf(name); }
  bool exact() const override { return true; }

  // --- ArgTable: names as args of the op being prepared ---
  TensorArg Read(const std::string& name) override {
    int32_t value = CurrentOrPersistable(name);
    if (value < 0) ThrowUndefined(name);
    return ArgOf(value);
  }
  TensorArg Write(const std::string& name) override {
    auto it = writes_.find(name);
    if (it == writes_.end())
      throw InternalError(fmt::format("{}: no shape was inferred for '{}'", op_->type(), name));
    return ArgOf(it->second);
  }
  TensorArg Scratch(DType dtype, const Shape& shape) override {
    int32_t value = NewValue("", VarMeta{VarType::kLoDTensor, dtype, shape, 0});
    op_values_.push_back(value);
    return ArgOf(value);
  }
  TensorArg ScratchArray() override {
    op_values_.push_back(NewValue("", VarMeta{VarType::kLoDTensorArray, DType::kFloat32, {}, 0}));
    return ArgOf(op_values_.back());
  }
  const Tensor* Constant(const std::string& name) override { return ConstantOf(name); }
  int32_t SubBlock(BlockRef block) override {
    if (block.idx <= request_.block || block.idx >= request_.program->NumBlocks()) {
      ThrowInvalid(fmt::format("{}: block {} is not a sub-block", op_->type(), block.idx),
                   "  " + Locate(*op_));
    }
    PlanRequest request;
    request.program = request_.program;
    request.block = block.idx;
    request.ops = request_.ops;
    request.kernels = request_.kernels;
    request.scope = request_.scope;
    plan_.sub_plans.push_back(std::make_shared<const Plan>(Planner(request, this).Make()));
    return static_cast<int32_t>(plan_.sub_plans.size()) - 1;
  }

 private:
  const Tensor* ConstantOf(const std::string& name) const {
    auto it = current_.find(name);
    if (it == current_.end()) return nullptr;
    const Storage& s = plan_.storages[Index(plan_.values[Index(it->second)].storage)];
    if (s.kind == StorageKind::kConstant) return &plan_.constants[Index(s.source)];
    bool as_given = s.kind == StorageKind::kFeed ||
                    (s.kind == StorageKind::kPersistable && !written_.count(name));
    auto known = request_.known.find(name);
    return as_given && known != request_.known.end() ? &known->second : nullptr;
  }

  [[noreturn]] void ThrowUndefined(const std::string& name) const {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: the var {} has no value: nothing before the op writes it; feed it "
                            "or make it persistable",
                            op_ ? op_->type() : "fetch", Quote(name)),
                op_ ? "  " + Locate(*op_) : "");
  }

  TensorArg ArgOf(int32_t value) const {
    const PlanValue& v = plan_.values[Index(value)];
    return {value, v.meta.dtype, v.meta.shape, v.numel, v.meta.type};
  }

  int32_t NewStorage(StorageKind kind, int32_t source, uint64_t bytes) {
    plan_.storages.push_back({kind, source, bytes, 0, -1, -1});
    return static_cast<int32_t>(plan_.storages.size()) - 1;
  }

  // A value in an arena storage of its own (or, when it is no dense tensor, a Value of the frame).
  int32_t NewValue(const std::string& name, const VarMeta& meta, int32_t storage = -1) {
    bool dense = meta.type == VarType::kLoDTensor;
    int64_t numel = dense ? meta.shape.numel() : 0;
    if (storage < 0) {
      uint64_t bytes = static_cast<uint64_t>(numel) * SizeOf(meta.dtype);
      storage = NewStorage(dense ? StorageKind::kArena : StorageKind::kValue, -1, bytes);
    }
    plan_.values.push_back({name, meta, numel, storage});
    return static_cast<int32_t>(plan_.values.size()) - 1;
  }

  // How often each name is written by the block and the blocks that its ops run.
  void CountWrites() {
    std::vector<int> queue = {request_.block};
    std::unordered_set<int> seen(queue.begin(), queue.end());
    for (size_t k = 0; k < queue.size(); ++k) {
      const BlockDesc& block = request_.program->Block(queue[k]);
      for (size_t i = 0; i < block.NumOps(); ++i) {
        ForEachName(block.op(i).outputs(), [&](const std::string& name) { ++write_count_[name]; });
        for (const NamedAttr& attr : block.op(i).attrs()) {
          const auto* ref = std::get_if<BlockRef>(&attr.value);
          if (ref && ref->idx < request_.program->NumBlocks() && seen.insert(ref->idx).second)
            queue.push_back(ref->idx);
        }
      }
    }
  }

  void BindFeeds() {
    for (size_t i = 0; i < request_.feeds.size(); ++i) {
      int32_t storage = NewStorage(StorageKind::kFeed, static_cast<int32_t>(i), 0);
      int32_t value = NewValue(request_.feeds[i], request_.feed_metas[i], storage);
      current_[request_.feeds[i]] = value;
      plan_.feed_values.push_back(value);
    }
  }

  // The value that the name stands for now; a persistable variable is bound to the scope when it is
  // first met.
  int32_t CurrentOrPersistable(const std::string& name) {
    auto it = current_.find(name);
    if (it != current_.end()) return it->second;
    if (parent_ && !block_.FindVar(name)) {
      int32_t outer = parent_->UseFromSubBlock(name, write_count_.count(name) > 0);
      return outer < 0 ? -1 : BindOuter(name, outer);
    }
    const VarDesc* var = block_.FindVarRecursive(name);
    if (!var || !var->persistable()) return -1;
    VarMeta meta = var->meta();
    const Value* held = request_.scope ? request_.scope->Find(name) : nullptr;
    if (const auto* tensor = held ? std::get_if<Tensor>(held) : nullptr) {
      meta.type = VarType::kLoDTensor;
      meta.dtype = tensor->dtype();
      meta.shape = tensor->shape();
    } else if (held && std::holds_alternative<SelectedRows>(*held)) {
      meta = MetaOfValue(*held);
    } else if (meta.type == VarType::kLoDTensor && !meta.shape.IsKnown()) {
      return -1;  // its first write will tell the shape
    }
    return BindPersistable(name, meta, true);
  }

  // --- variables of enclosing blocks ---

  // A value of the enclosing plan under its name here.
  int32_t BindOuter(const std::string& name, int32_t outer) {
    int32_t storage = NewStorage(StorageKind::kOuter, outer, 0);
    const VarMeta meta = parent_->plan_.values[Index(outer)].meta;
    return current_[name] = NewValue(name, meta, storage);
  }

  // Called by the planner of a sub-block: the value that it reads, and perhaps writes, in place.
  int32_t UseFromSubBlock(const std::string& name, bool written) {
    int32_t value = CurrentOrPersistable(name);
    if (value < 0) return -1;
    StorageKind kind = StorageOf(value).kind;
    if (written && (kind == StorageKind::kFeed || kind == StorageKind::kConstant)) {
      value = CopyForWriting(name, value);
    }
    if (written) usage_.written_inside.insert(plan_.values[Index(value)].storage);
    if (written) written_.insert(name);
    inside_uses_.push_back(value);
    return value;
  }

  // The value that a sub-block writes and nothing has written before.
  int32_t WriteFromSubBlock(const std::string& name, const VarMeta& meta) {
    int32_t value = CurrentOrPersistable(name);
    const VarDesc* var = block_.FindVarRecursive(name);
    if (value < 0 && parent_ && !block_.FindVar(name)) {
      int32_t outer = parent_->WriteFromSubBlock(name, meta);
      value = BindOuter(name, outer);
    } else if (value < 0 && var && var->persistable()) {
      value = BindPersistable(name, meta, false);
    } else if (value < 0) {
      value = current_[name] = NewValue(name, meta);
    }
    usage_.written_inside.insert(plan_.values[Index(value)].storage);
    inside_uses_.push_back(value);
    return value;
  }

  // Feeds and constants are not ours to write.
  int32_t CopyForWriting(const std::string& name, int32_t from) {
    int32_t to = NewValue(name, plan_.values[Index(from)].meta);
    AppendCopy(from, to);
    return current_[name] = to;
  }

  int32_t OuterOutput(const std::string& name, const VarMeta& meta) {
    int32_t bound = CurrentOrPersistable(name);
    if (bound < 0) bound = BindOuter(name, parent_->WriteFromSubBlock(name, meta));
    if (!SameType(plan_.values[Index(bound)].meta, meta)) {
      ThrowInvalid(
          fmt::format("{}: a sub-block cannot change the outer var {} from {} to {}", op_->type(),
                      Quote(name), plan_.values[Index(bound)].meta.ToString(), meta.ToString()),
          "  " + Locate(*op_));
    }
    if (!Reads(name) || UpdatesInPlace(name) || meta.type != VarType::kLoDTensor) return bound;
    return CopyLater(name, meta, bound);
  }

  // A temporary for the op to write, copied to `target` after it.
  int32_t CopyLater(const std::string& name, const VarMeta& meta, int32_t target) {
    int32_t temporary = NewValue(name, meta);
    copies_.emplace_back(temporary, target);
    is_copied_.insert(name);
    return temporary;
  }

  int32_t BindPersistable(const std::string& name, const VarMeta& meta, bool read_first) {
    int32_t source = static_cast<int32_t>(plan_.persistables.size());
    int32_t storage = NewStorage(StorageKind::kPersistable, source, 0);
    plan_.persistables.push_back({name, meta, storage, read_first});
    int32_t value = NewValue(name, meta, storage);
    current_[name] = value;
    return value;
  }

  void PlanOps() {
    for (size_t i = request_.first_op; i < block_.NumOps(); ++i) {
      try {
        PlanOp(block_.op(i));
      } catch (const NeedsValue& needed) {
        EndStage(i, needed.var);
        return;
      }
    }
  }

  // Everything dense that the ops from `next` on (or the caller) read is handed over.
  void EndStage(size_t next, const std::string& needs) {
    plan_.next_op = static_cast<int32_t>(next);
    plan_.needs = needs;
    std::set<std::string> reads(request_.fetches.begin(), request_.fetches.end());
    for (size_t i = next; i < block_.NumOps(); ++i) {
      ForEachName(block_.op(i).inputs(), [&](const std::string& name) { reads.insert(name); });
    }
    for (const std::string& name : reads) {
      auto it = current_.find(name);
      if (it == current_.end() || StorageOf(it->second).kind == StorageKind::kPersistable) continue;
      if (plan_.values[Index(it->second)].meta.type != VarType::kLoDTensor) {
        throw Error(
            ErrorCode::kUnimplemented,
            fmt::format(
                "{}: the output shape depends on the value of {}, while the var {} holds {}",
                op_->type(), Quote(needs), Quote(name),
                plan_.values[Index(it->second)].meta.ToString()),
            "  " + Locate(*op_));
      }
      plan_.carried.push_back(name);
    }
    if (current_.count(needs) == 0 || parent_) {
      throw Error(
          ErrorCode::kUnimplemented,
          fmt::format("{}: an output shape in a sub-block depends on the value of {}, which "
                      "is known only at run time",
                      op_->type(), Quote(needs)),
          "  " + Locate(*op_));
    }
  }

  void PlanOp(const OpDesc& op) {
    op_ = &op;
    def_ = &request_.ops->Get(op.type());
    inferred_.clear();
    writes_.clear();
    op_values_.clear();
    inside_uses_.clear();
    ForEachName(op.inputs(), [&](const std::string& name) {
      if (CurrentOrPersistable(name) < 0) ThrowUndefined(name);
    });
    Infer();
    if (Fold()) return;
    for (auto& [name, meta] : inferred_) MakeOutput(name, meta);
    Kernel kernel = def_->Prepare(PrepareContext(*def_, op, *this), request_.kernels);
    AppendStep(std::move(kernel), op.type(), Locate(op));
    CopyBack();
    for (const auto& [name, value] : writes_) {
      if (!is_copied_.count(name)) current_[name] = value;
    }
    is_copied_.clear();
  }

  void Infer() {
    InferContext context(*def_, *op_, *this);
    def_->RunInfer(context);
    for (auto& [name, meta] : inferred_) {
      if (meta.type == VarType::kLoDTensor && !meta.shape.IsKnown()) {
        throw InternalError(fmt::format("{}: the shape {} inferred for '{}' is not known",
                                        op_->type(), meta.shape.ToString(), name));
      }
    }
  }

  // Runs the op now when its result can be known: all inputs are constant, or only their shapes
  // matter.
  bool Fold() {
    if (def_->random() || def_->side_effect() || def_->kind() != OpKind::kCompute ||
        inferred_.empty())
      return false;
    for (const auto& [name, meta] : inferred_) {
      const VarDesc* var = block_.FindVarRecursive(name);
      if (meta.type != VarType::kLoDTensor || (var && var->persistable())) return false;
      if (meta.shape.numel() > kMaxFoldedElements) return false;
    }
    Environment env;
    bool known = true;
    ForEachName(op_->inputs(), [&](const std::string& name) {
      const VarMeta& meta = *Find(name);
      if (const Tensor* constant = ConstantOf(name))
        env[name] = *constant;
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

  // True when some declared in-place pair has this variable on both sides.
  bool UpdatesInPlace(const std::string& name) const {
    for (const auto& [in, out] : def_->inplace()) {
      const auto& ins = op_->Input(in);
      const auto& outs = op_->Output(out);
      for (size_t i = 0; i < ins.size() && i < outs.size(); ++i) {
        if (ins[i] == name && outs[i] == name) return true;
      }
    }
    return false;
  }

  bool Reads(const std::string& name) const {
    bool reads = false;
    ForEachName(op_->inputs(), [&](const std::string& in) { reads |= in == name; });
    return reads;
  }

  void MakeOutput(const std::string& name, const VarMeta& meta) {
    if (parent_ && !block_.FindVar(name)) {
      writes_[name] = OuterOutput(name, meta);
      return;
    }
    const VarDesc* var = block_.FindVarRecursive(name);
    if (var && var->persistable()) {
      writes_[name] = PersistableOutput(name, meta);
      return;
    }
    // An array is kept by name: ops append to it (write_to_array).
    auto it = current_.find(name);
    bool keep = it != current_.end() && meta.type != VarType::kLoDTensor &&
                meta.type != VarType::kSelectedRows;
    writes_[name] = keep ? it->second : NewValue(name, meta);
  }

  // The scope's memory itself, unless the op reads the variable elsewhere than where it writes it.
  int32_t PersistableOutput(const std::string& name, const VarMeta& meta) {
    int32_t bound = CurrentOrPersistable(name);
    if (bound < 0 || !SameType(plan_.values[Index(bound)].meta, meta)) {
      if (bound >= 0 && Reads(name)) {
        ThrowInvalid(
            fmt::format("{}: cannot change the persistable var {} from {} to {}", op_->type(),
                        Quote(name), plan_.values[Index(bound)].meta.ToString(), meta.ToString()),
            "  " + Locate(*op_));
      }
      if (bound >= 0) return RebindPersistable(bound, meta);
      return BindPersistable(name, meta, false);
    }
    PlanPersistable& p =
        plan_.persistables[Index(plan_.storages[Index(plan_.values[Index(bound)].storage)].source)];
    if (!written_.count(name) && !Reads(name) && !read_.count(name)) p.read_first = false;
    written_.insert(name);
    if (!Reads(name) || UpdatesInPlace(name) || meta.type != VarType::kLoDTensor) return bound;
    return CopyLater(name, meta, bound);
  }

  int32_t RebindPersistable(int32_t bound, const VarMeta& meta) {
    PlanValue& value = plan_.values[Index(bound)];
    PlanPersistable& p = plan_.persistables[Index(plan_.storages[Index(value.storage)].source)];
    if (read_.count(value.name) || written_.count(value.name)) {
      ThrowInvalid(
          fmt::format("{}: the persistable var {} would change from {} to {} within a run",
                      op_->type(), Quote(value.name), value.meta.ToString(), meta.ToString()),
          "  " + Locate(*op_));
    }
    p.meta = meta;
    p.read_first = false;
    value.meta = meta;
    value.numel = meta.type == VarType::kLoDTensor ? meta.shape.numel() : 0;
    written_.insert(value.name);
    return bound;
  }

  void AppendStep(Kernel kernel, std::string type, std::string where) {
    int32_t step = static_cast<int32_t>(plan_.steps.size());
    PlanStep made{std::move(kernel), std::move(type), {}, std::move(where)};
    usage_.step_inputs.emplace_back();
    ForEachName(op_->inputs(), [&](const std::string& name) {
      usage_.uses.emplace_back(step, current_.at(name));
      usage_.step_inputs.back().push_back(current_.at(name));
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

  // Pairs of this op that may share memory; decided when all lifetimes are known.
  void NoteSharing(int32_t step) {
    auto note = [&](const auto& pairs, bool alias) {
      for (const auto& [in, out] : pairs) {
        const auto& ins = op_->Input(in);
        const auto& outs = op_->Output(out);
        if (ins.empty() || outs.empty() || IsEmptyName(ins[0]) || IsEmptyName(outs[0])) continue;
        auto written = writes_.find(outs[0]);
        if (written == writes_.end()) continue;
        usage_.sharing.push_back({step, current_.at(ins[0]), written->second, alias});
      }
    };
    note(def_->alias(), true);
    note(def_->inplace(), false);
  }

  void CopyBack() {
    for (auto [from, to] : copies_) AppendCopy(from, to);
    copies_.clear();
  }

  void AppendCopy(int32_t from, int32_t to) {
    TensorArg source = ArgOf(from), target = ArgOf(to);
    size_t bytes = static_cast<size_t>(source.numel) * SizeOf(source.dtype);
    int32_t step = static_cast<int32_t>(plan_.steps.size());
    Kernel copy = [=](Workspace& ws) {
      if (bytes > 0) std::memcpy(ws.Data<char>(target), ws.Data<char>(source), bytes);
    };
    plan_.steps.push_back({std::move(copy), "copy", {to}, Locate(*op_)});
    usage_.step_inputs.push_back({from});
    usage_.uses.emplace_back(step, from);
    usage_.uses.emplace_back(step, to);
  }

  void BindFetches() {
    op_ = nullptr;
    for (const std::string& name : plan_.next_op >= 0 ? plan_.carried : request_.fetches) {
      int32_t value = CurrentOrPersistable(name);
      if (value < 0) ThrowUndefined(name);
      read_.insert(name);
      plan_.fetch_values.push_back(value);
    }
  }

  Storage& StorageOf(int32_t value) {
    return plan_.storages[Index(plan_.values[Index(value)].storage)];
  }

  const PlanRequest& request_;
  const BlockDesc& block_;
  Planner* parent_;
  Plan plan_;
  const OpDesc* op_ = nullptr;
  const OpDef* def_ = nullptr;
  std::unordered_map<std::string, int32_t> current_;
  std::unordered_map<std::string, VarMeta> inferred_;
  std::unordered_map<std::string, int32_t> writes_;
  std::unordered_map<std::string, int> write_count_;
  std::unordered_set<std::string> read_, written_, is_copied_;
  std::vector<int32_t> op_values_;
  std::vector<int32_t> inside_uses_;                 // values that the op's sub-blocks use
  std::vector<std::pair<int32_t, int32_t>> copies_;  // (from, to)
  MemoryUsage usage_;
};

}  // namespace

Plan MakePlan(const PlanRequest& request) { return Planner(request).Make(); }

}  // namespace coracle
