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
  explicit Planner(const PlanRequest& request)
      : request_(request), block_(request.program->Block(request.block)) {}

  Plan Make() {
    FindVisible();
    BindFeeds();
    PlanOps();
    BindFetches();
    FindLifetimes();
    ShareMemory();
    PlaceFetched();
    LayOutArena(plan_);
    return std::move(plan_);
  }

  // --- MetaTable: the types as the op being planned sees them ---
  const VarMeta* Find(const std::string& name) const override {
    int32_t value = const_cast<Planner*>(this)->CurrentOrPersistable(name);
    if (value >= 0) return &plan_.values[Index(value)].meta;
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
  const Tensor* Constant(const std::string& name) override { return ConstantOf(name); }

 private:
  struct Sharing {
    int32_t step, in, out;
    bool alias;
  };

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
    return {value, v.meta.dtype, v.meta.shape, v.numel};
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

  void FindVisible() {
    for (size_t i = 0; i < block_.NumOps(); ++i) {
      ForEachName(block_.op(i).outputs(), [&](const std::string& name) { ++write_count_[name]; });
    }
    for (const std::string& name : request_.fetches) fetched_.insert(name);
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
    const VarDesc* var = block_.FindVarRecursive(name);
    if (!var || !var->persistable()) return -1;
    VarMeta meta = var->meta();
    const Value* held = request_.scope ? request_.scope->Find(name) : nullptr;
    if (const auto* tensor = held ? std::get_if<Tensor>(held) : nullptr) {
      meta.type = VarType::kLoDTensor;
      meta.dtype = tensor->dtype();
      meta.shape = tensor->shape();
    } else if (held && std::holds_alternative<SelectedRows>(*held)) {
      meta.type = VarType::kSelectedRows;
    } else if (meta.type == VarType::kLoDTensor && !meta.shape.IsKnown()) {
      return -1;  // its first write will tell the shape
    }
    return BindPersistable(name, meta, true);
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
    if (current_.count(needs) == 0) ThrowUndefined(needs);
  }

  void PlanOp(const OpDesc& op) {
    op_ = &op;
    def_ = &request_.ops->Get(op.type());
    inferred_.clear();
    writes_.clear();
    op_values_.clear();
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
    const VarDesc* var = block_.FindVarRecursive(name);
    if (var && var->persistable()) {
      writes_[name] = PersistableOutput(name, meta);
      return;
    }
    // A value that is no dense tensor is kept by name: ops append to it (write_to_array).
    auto it = current_.find(name);
    bool keep = it != current_.end() && meta.type != VarType::kLoDTensor;
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
    int32_t temporary = NewValue(name, meta);
    copies_.emplace_back(temporary, bound);
    is_copied_.insert(name);
    return temporary;
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
    step_inputs_.emplace_back();
    ForEachName(op_->inputs(), [&](const std::string& name) {
      uses_.emplace_back(step, current_.at(name));
      step_inputs_.back().push_back(current_.at(name));
      read_.insert(name);
    });
    for (const Slot& slot : op_->outputs()) {
      for (const std::string& name : slot.args) {
        auto it = writes_.find(name);
        if (it == writes_.end()) continue;
        made.outputs.push_back(it->second);
        uses_.emplace_back(step, it->second);
      }
    }
    for (int32_t value : op_values_) uses_.emplace_back(step, value);
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
        sharing_.push_back({step, current_.at(ins[0]), written->second, alias});
      }
    };
    note(def_->alias(), true);
    note(def_->inplace(), false);
  }

  void CopyBack() {
    for (auto [from, to] : copies_) {
      TensorArg source = ArgOf(from), target = ArgOf(to);
      size_t bytes = static_cast<size_t>(source.numel) * SizeOf(source.dtype);
      int32_t step = static_cast<int32_t>(plan_.steps.size());
      plan_.steps.push_back({[=](Workspace& ws) {
                               if (bytes > 0)
                                 std::memcpy(ws.Data<char>(target), ws.Data<char>(source), bytes);
                             },
                             "copy",
                             {to},
                             Locate(*op_)});
      step_inputs_.push_back({from});
      uses_.emplace_back(step, from);
    }
    copies_.clear();
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

  void FindLifetimes() {
    for (auto [step, value] : uses_) {
      Storage& s = StorageOf(value);
      if (s.first < 0 || step < s.first) s.first = step;
      if (step > s.last) s.last = step;
    }
    for (int32_t value : plan_.fetch_values) {
      Storage& s = StorageOf(value);
      if (s.kind == StorageKind::kArena) s.kind = StorageKind::kFetched;
    }
  }

  // In program order, so that chains (relu, then reshape) end in one storage. Until now each arena
  // value has its own.
  void ShareMemory() {
    for (const Sharing& pair : sharing_) {
      PlanValue& in = plan_.values[Index(pair.in)];
      PlanValue& out = plan_.values[Index(pair.out)];
      Storage& a = plan_.storages[Index(in.storage)];
      Storage& b = plan_.storages[Index(out.storage)];
      if (in.storage == out.storage || b.kind != StorageKind::kArena) continue;
      if (in.numel != out.numel || SizeOf(in.meta.dtype) != SizeOf(out.meta.dtype)) continue;
      if (!(pair.alias ? MayAlias(in, a) : MayOverwrite(pair, in.storage))) continue;
      if (!pair.alias) overwritten_at_[in.storage] = pair.step;
      a.last = std::max(a.last, b.last);
      b.first = b.last = -1;
      out.storage = in.storage;
    }
  }

  // Two live names for one memory: only where nothing writes it while they live.
  bool MayAlias(const PlanValue& in, const Storage& storage) const {
    switch (storage.kind) {
      case StorageKind::kArena:
      case StorageKind::kFeed:
      case StorageKind::kConstant:
        return true;
      case StorageKind::kPersistable: {
        auto it = write_count_.find(in.name);
        return it == write_count_.end();
      }
      default:
        return false;
    }
  }

  // The op is the last to use the storage, reads it through one input only, and has not given it to
  // another output.
  bool MayOverwrite(const Sharing& pair, int32_t storage) const {
    const Storage& s = plan_.storages[Index(storage)];
    if (s.kind != StorageKind::kArena || s.last != pair.step) return false;
    auto taken = overwritten_at_.find(storage);
    if (taken != overwritten_at_.end() && taken->second == pair.step) return false;
    int readers = 0;
    for (int32_t value : step_inputs_[Index(pair.step)])
      readers += plan_.values[Index(value)].storage == storage;
    return readers == 1;
  }

  void PlaceFetched() {
    for (Storage& s : plan_.storages) {
      if (s.kind != StorageKind::kFetched) continue;
      s.offset = plan_.fetch_bytes;
      plan_.fetch_bytes += (s.bytes + 63) / 64 * 64;
    }
  }

  const PlanRequest& request_;
  const BlockDesc& block_;
  Plan plan_;
  const OpDesc* op_ = nullptr;
  const OpDef* def_ = nullptr;
  std::unordered_map<std::string, int32_t> current_;
  std::unordered_map<std::string, VarMeta> inferred_;
  std::unordered_map<std::string, int32_t> writes_;
  std::unordered_map<std::string, int> write_count_;
  std::unordered_set<std::string> fetched_, read_, written_, is_copied_;
  std::vector<int32_t> op_values_;
  std::vector<std::pair<int32_t, int32_t>> uses_;    // (step, value)
  std::vector<std::pair<int32_t, int32_t>> copies_;  // (from, to)
  std::vector<Sharing> sharing_;
  std::vector<std::vector<int32_t>> step_inputs_;
  std::unordered_map<int32_t, int32_t> overwritten_at_;  // storage -> step
};

}  // namespace

Plan MakePlan(const PlanRequest& request) { return Planner(request).Make(); }

}  // namespace coracle
