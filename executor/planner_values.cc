#include <coracle/executor/internal/planner_impl.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/interpreter.h>
#include <fmt/format.h>

namespace coracle {

const VarMeta* Planner::Find(const std::string& name) const {
  auto it = current_.find(name);
  if (it != current_.end()) return &plan_.values[Index(it->second)].meta;
  const VarDesc* var = block_.FindVarRecursive(name);
  return var ? &var->meta() : nullptr;
}

TensorArg Planner::Read(const std::string& name) {
  int32_t value = CurrentOrPersistable(name);
  if (value < 0) ThrowUndefined(name);
  return ArgOf(value);
}

TensorArg Planner::Write(const std::string& name) {
  auto it = writes_.find(name);
  if (it == writes_.end()) ThrowWithoutShape(*op_, name);
  return ArgOf(it->second);
}

// Sums of such bytes cannot overflow where the limit is that of a machine.
uint64_t Planner::AffordableBytes(const std::string& name, const VarMeta& meta) const {
  if (meta.type != VarType::kLoDTensor || !meta.shape.IsKnown()) return 0;
  const uint64_t bytes =
      meta.shape.HasTooManyElements() ? UINT64_MAX : ByteSize(meta.dtype, meta.shape);
  if (bytes <= request_.memory_limit) return bytes;
  throw OutOfMemory(fmt::format("{}{} takes {}, more than the memory limit of {}",
                                name.empty() ? "" : Quote(name) + " ", meta.ToString(),
                                HumanBytes(bytes), HumanBytes(request_.memory_limit)));
}

TensorArg Planner::Scratch(DType dtype, const Shape& shape) {
  int32_t value = NewValue("", VarMeta{VarType::kLoDTensor, dtype, shape, 0});
  op_values_.push_back(value);
  return ArgOf(value);
}

TensorArg Planner::ScratchArray() {
  op_values_.push_back(NewValue("", VarMeta{VarType::kLoDTensorArray, DType::kFloat32, {}, 0}));
  return ArgOf(op_values_.back());
}

const Tensor* Planner::ConstantOf(const std::string& name) const {
  auto it = current_.find(name);
  if (it == current_.end()) return nullptr;
  const Storage& s = plan_.storages[Index(plan_.values[Index(it->second)].storage)];
  if (s.kind == StorageKind::kConstant) return &plan_.constants[Index(s.source)];
  bool as_given = s.kind == StorageKind::kFeed ||
                  (s.kind == StorageKind::kPersistable && !written_.count(name));
  as_given |= s.kind == StorageKind::kSlot;
  for (const ValueGuard& known : request_.relies) {
    if (as_given && known.name == name) return &known.value;
  }
  return nullptr;
}

void Planner::ThrowUndefined(const std::string& name) const {
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{}: the var {} has no value: nothing before the op writes it{}; feed "
                          "it or make it persistable",
                          op_ ? op_->type() : "fetch", Quote(name),
                          unit_.FindSlot(name) < 0 ? "" : ", and no sub-block that ran did"),
              op_ ? "  " + Locate(*op_) : "");
}

TensorArg Planner::ArgOf(int32_t value) const {
  const PlanValue& v = plan_.values[Index(value)];
  return {value, v.meta.dtype, v.meta.shape, v.numel, v.meta.type};
}

int32_t Planner::NewStorage(StorageKind kind, int32_t source, uint64_t bytes) {
  plan_.storages.push_back({kind, source, bytes, 0, -1, -1});
  return static_cast<int32_t>(plan_.storages.size()) - 1;
}

int32_t Planner::NewValue(const std::string& name, const VarMeta& meta, int32_t storage) {
  const bool dense = meta.type == VarType::kLoDTensor;
  if (storage < 0) {
    storage = NewStorage(dense ? StorageKind::kArena : StorageKind::kValue, -1,
                         AffordableBytes(name, meta));
  }
  const int64_t numel = dense && meta.shape.IsKnown() ? meta.shape.numel() : 0;
  plan_.values.push_back({name, meta, numel, storage, -1});
  return static_cast<int32_t>(plan_.values.size()) - 1;
}

void Planner::CountWrites() {
  std::vector<int> queue = {unit_.block};
  std::unordered_set<int> seen(queue.begin(), queue.end());
  for (size_t k = 0; k < queue.size(); ++k) {
    const BlockDesc& block = request_.program->Block(queue[k]);
    for (size_t i = 0; i < block.NumOps(); ++i) {
      ForEachName(block.op(i).outputs(), [&](const std::string& name) { ++write_count_[name]; });
      for (int sub : SubBlocksOf(block.op(i))) {
        if (sub < request_.program->NumBlocks() && seen.insert(sub).second) queue.push_back(sub);
      }
    }
  }
}

void Planner::BindFeeds() {
  for (size_t i = 0; i < request_.feeds.size(); ++i) {
    int32_t storage = NewStorage(StorageKind::kFeed, static_cast<int32_t>(i), 0);
    int32_t value = NewValue(request_.feeds[i], request_.feed_metas[i], storage);
    plan_.values.back().lod_source = value;
    current_[request_.feeds[i]] = value;
    plan_.feed_values.push_back(value);
  }
  plan_.feed_names = request_.feeds;
  plan_.feed_metas = request_.feed_metas;
}

int32_t Planner::CurrentOrPersistable(const std::string& name) {
  auto it = current_.find(name);
  if (it != current_.end()) return it->second;
  const int32_t in_slot = ValueInSlot(name);
  if (in_slot >= 0) return in_slot;
  const VarDesc* var = block_.FindVarRecursive(name);
  if (!var || !var->persistable()) return -1;
  VarMeta meta = var->meta();
  const VarValue* held = request_.scope ? request_.scope->Find(name) : nullptr;
  if (const auto* tensor = held ? std::get_if<Tensor>(held) : nullptr) {
    meta.type = VarType::kLoDTensor;
    meta.dtype = tensor->dtype();
    meta.shape = tensor->shape();
  } else if (const auto* rows = held ? std::get_if<SelectedRows>(held) : nullptr) {
    if (rows->height < 0) {
      ThrowInvalid(fmt::format("the persistable var {} in the scope has selected rows of height {}",
                               Quote(name), rows->height));
    }
    meta = MetaOfValue(*held);
  } else if (meta.type == VarType::kLoDTensor && !meta.shape.IsKnown()) {
    return -1;  // its first write will tell the shape
  }
  return BindPersistable(name, meta, true);
}

int32_t Planner::CopyLater(const std::string& name, const VarMeta& meta, int32_t target) {
  int32_t temporary = NewValue(name, meta);
  copies_.emplace_back(temporary, target);
  is_copied_.insert(name);
  return temporary;
}

int32_t Planner::BindPersistable(const std::string& name, const VarMeta& meta, bool read_first) {
  int32_t source = static_cast<int32_t>(plan_.persistables.size());
  int32_t storage = NewStorage(StorageKind::kPersistable, source, 0);
  plan_.persistables.push_back({name, meta, storage, read_first});
  int32_t value = NewValue(name, meta, storage);
  current_[name] = value;
  return value;
}

void Planner::ShareLod() {
  int32_t source = -1;
  int64_t rows = -1;
  ForEachName(op_->inputs(), [&](const std::string& name) {
    auto it = current_.find(name);
    if (source >= 0 || it == current_.end()) return;
    const PlanValue& value = plan_.values[Index(it->second)];
    if (value.lod_source < 0 || value.meta.shape.rank() == 0) return;
    source = value.lod_source;
    rows = value.meta.shape[0];
  });
  if (source < 0) return;
  for (const auto& [name, index] : writes_) {
    PlanValue& value = plan_.values[Index(index)];
    const bool same = value.meta.type == VarType::kLoDTensor && value.meta.shape.rank() > 0 &&
                      value.meta.shape[0] == rows;
    if (same && value.lod_source < 0) value.lod_source = source;
  }
}

bool Planner::Reads(const std::string& name) const {
  bool reads = false;
  ForEachName(op_->inputs(), [&](const std::string& in) { reads |= in == name; });
  return reads;
}

void Planner::MakeOutput(const std::string& name, const VarMeta& meta) {
  const VarDesc* var = block_.FindVarRecursive(name);
  if (var && var->persistable()) {
    writes_[name] = PersistableOutput(name, meta);
  } else if (meta.type == VarType::kLoDTensorArray) {
    writes_[name] = ArrayOutput(name, meta);
  } else if (meta.type == VarType::kLoDTensor && !meta.shape.IsKnown()) {
    const std::string place = fmt::format("#{}#{}", op_index_, name);
    writes_[name] = NewSlotValue(name, meta, unit_.Slot(place, true));
    ends_stage_ = true;
  } else if (meta.type != VarType::kLoDTensor && meta.type != VarType::kSelectedRows) {
    const int32_t slot = unit_.Slot(name, true);
    plan_.new_slots.emplace_back(slot, meta.type);
    writes_[name] = NewSlotValue(name, meta, slot);
  } else {
    writes_[name] = NewValue(name, meta);
  }
}

int32_t Planner::PersistableOutput(const std::string& name, const VarMeta& meta) {
  if (!request_.scope || !request_.scope->Find(name)) AffordableBytes(name, meta);
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
  if (!Reads(name) || def_->UpdatesInPlace(*op_, name) || meta.type != VarType::kLoDTensor)
    return bound;
  return CopyLater(name, meta, bound);
}

int32_t Planner::RebindPersistable(int32_t bound, const VarMeta& meta) {
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

void Planner::BindFetches() {
  op_ = nullptr;
  for (const std::string& name : plan_.next_op >= 0 ? plan_.carried : request_.fetches) {
    int32_t value = CurrentOrPersistable(name);
    if (value < 0) ThrowUndefined(name);
    read_.insert(name);
    plan_.fetch_values.push_back(value);
  }
}

Storage& Planner::StorageOf(int32_t value) {
  return plan_.storages[Index(plan_.values[Index(value)].storage)];
}

}  // namespace coracle
