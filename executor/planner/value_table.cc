#include <coracle/executor/planner/value_table.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

namespace coracle::inline internal {

ValueId ValueTable::AddTemporary(const std::string& name, const VarMeta& meta) {
  const Place place = meta.type == VarType::kLoDTensor ? Place(InArena()) : Place(InFrame());
  return Add(name, meta, {.place = place, .bytes = CheckAffordable(name, meta)});
}

ValueId ValueTable::AddAt(const Place& place, const std::string& name, const VarMeta& meta) {
  return Add(name, meta, {.place = place});
}

ValueId ValueTable::AddConstant(const std::string& name, const Tensor& value) {
  const ConstantId constant = plan_.constants.Add(value.Clone());
  plan_.constant_bytes += value.nbytes();
  return Add(name, VarMeta{VarType::kLoDTensor, value.dtype(), value.shape(), 0},
             {.place = constant, .bytes = static_cast<uint64_t>(value.nbytes())});
}

// Sums of such sizes cannot overflow if the limit is at most a machine's memory.
uint64_t ValueTable::CheckAffordable(const std::string& name, const VarMeta& meta) const {
  if (meta.type != VarType::kLoDTensor || !meta.shape.IsKnown()) return 0;
  const uint64_t bytes =
      meta.shape.HasTooManyElements() ? UINT64_MAX : ByteSize(meta.dtype, meta.shape);
  if (bytes <= memory_limit_) return bytes;
  throw OutOfMemory(fmt::format("{} takes {}, more than the memory limit of {}",
                                name.empty() ? meta.ToString() : DescribeVar(name, meta),
                                HumanBytes(bytes), HumanBytes(memory_limit_)));
}

ValueId ValueTable::Current(const std::string& name) const {
  auto it = current_.find(name);
  return it == current_.end() ? ValueId() : it->second;
}

ValueId ValueTable::Add(const std::string& name, const VarMeta& meta, Storage storage) {
  PlanValue value;
  value.name = name;
  value.SetMeta(meta);
  value.storage = plan_.storages.Add(std::move(storage));
  return plan_.values.Add(std::move(value));
}

}  // namespace coracle::inline internal
