#include <coracle/executor/planner/persistable_values.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <fmt/format.h>

namespace coracle::inline internal {

bool PersistableValues::IsPersistable(const std::string& name) const {
  const VarDesc* var = block_.FindVarRecursive(name);
  return var && var->persistable();
}

ValueId PersistableValues::Find(const std::string& name) {
  if (!IsPersistable(name)) return ValueId();
  if (const VarMeta* frozen = parameters_.Find(name)) return BindFrozen(name, *frozen);
  // The type in the scope takes precedence over the declared one, since files often declare less.
  VarMeta meta = block_.FindVarRecursive(name)->meta();
  const VarValue* held = scope_.Find(name);
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
    return ValueId();  // its first write will determine the shape
  }
  return Bind(name, meta, true);
}

ValueId PersistableValues::Bind(const std::string& name, const VarMeta& meta, bool read_first) {
  const PersistableId id =
      plan_.persistables.Add({name, meta, StorageId(), ValueId(), read_first, !read_first});
  const ValueId value = values_.AddAt(id, name, meta);
  values_[value].lod_source = value;
  plan_.persistables[id].storage = values_[value].storage;
  plan_.persistables[id].value = value;
  values_.SetCurrent(name, value);
  return value;
}

// Binds an empty constant until it is known whether any kernel reads the elements.
ValueId PersistableValues::BindFrozen(const std::string& name, const VarMeta& meta) {
  const ValueId value = values_.AddAt(plan_.constants.Add(Tensor()), name, meta);
  frozen_.insert(value);
  values_.SetCurrent(name, value);
  return value;
}

void PersistableValues::AddFrozenElements(const std::set<StorageId>& read) {
  for (const ValueId value : frozen_) {
    const PlanValue& frozen = values_[value];
    if (read.count(frozen.storage) == 0) continue;
    const ConstantId constant = plan_.storages[frozen.storage].As<ConstantId>();
    plan_.constants[constant] = parameters_.Elements(frozen.name);
  }
}

OutputPlace PersistableValues::AddOutput(const OpDesc& op, const OpSpec& def,
                                         const std::string& name, const VarMeta& meta,
                                         ValueId bound) {
  // Memory that the scope already holds is not checked again.
  if (!scope_.Find(name)) values_.CheckAffordable(name, meta);
  if (!bound) return {Bind(name, meta, false), ValueId()};
  PersistableOf(bound).written = true;
  const bool reads = op.Reads(name);
  if (!SameType(values_[bound].meta, meta)) {
    if (!reads) return {Rebind(op, bound, meta), ValueId()};
    ThrowInvalid(fmt::format("{}: cannot change the persistable var {} from {} to {}", op.type(),
                             Quote(name), values_[bound].meta.ToString(), meta.ToString()),
                 "  " + Locate(op));
  }
  // If the variable is bound for a write and not a read, the run creates it if the scope lacks it.
  if (!IsWritten(name) && !reads && !read_.count(name)) PersistableOf(bound).read_first = false;
  written_.insert(name);
  if (!reads || def.UpdatesInPlace(op, name) || meta.type != VarType::kLoDTensor)
    return {bound, ValueId()};
  // Written directly, the kernel would overwrite elements that it still reads.
  return {values_.AddTemporary(name, meta), bound};
}

// The variable was bound with its type in the scope, but has not been read yet.
ValueId PersistableValues::Rebind(const OpDesc& op, ValueId bound, const VarMeta& meta) {
  PlanValue& value = values_[bound];
  if (read_.count(value.name) || IsWritten(value.name)) {
    ThrowInvalid(fmt::format("{}: the persistable var {} would change from {} to {} within a run",
                             op.type(), Quote(value.name), value.meta.ToString(), meta.ToString()),
                 "  " + Locate(op));
  }
  PlanPersistable& persistable = PersistableOf(bound);
  persistable.meta = meta;
  persistable.read_first = false;
  value.SetMeta(meta);
  written_.insert(value.name);
  return bound;
}

PlanPersistable& PersistableValues::PersistableOf(ValueId value) {
  return plan_.persistables[plan_.StorageOf(value).As<PersistableId>()];
}

}  // namespace coracle::inline internal
