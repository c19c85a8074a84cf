#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/origin.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace coracle::inline internal {
namespace {

// Both numbers of an origin, with the block in the upper 32 bits.
using PackedOrigin = int64_t;

PackedOrigin PackOrigin(int block, size_t op) {
  return (static_cast<PackedOrigin>(block) << 32) | static_cast<PackedOrigin>(op & UINT32_MAX);
}

std::vector<PackedOrigin> PackedOrigins(const OpDesc& op) {
  const Attribute* attr = op.FindAttr(kOpOriginAttr);
  if (!attr) return {};
  if (const auto* one = std::get_if<int64_t>(attr)) return {*one};
  const auto* many = std::get_if<std::vector<int64_t>>(attr);
  return many ? *many : std::vector<PackedOrigin>();
}

thread_local const ProgramOrigins* current_origins = nullptr;

}  // namespace

void SetOrigins(ProgramDesc& program) {
  for (int b = 0; b < program.NumBlocks(); ++b) {
    BlockDesc& block = program.Block(b);
    for (size_t i = 0; i < block.NumOps(); ++i)
      block.op(i).SetAttr(kOpOriginAttr, PackOrigin(b, i));
  }
}

void RemoveOrigins(ProgramDesc& program) {
  program.ForEachOp([](OpDesc& op) { op.RemoveAttr(kOpOriginAttr); });
}

std::vector<OpOrigin> OriginsOf(const OpDesc& op) {
  std::vector<OpOrigin> origins;
  for (const PackedOrigin packed : PackedOrigins(op)) {
    const auto block = static_cast<int>(packed >> 32);
    const auto at = static_cast<int>(packed & UINT32_MAX);
    if (block >= 0 && at >= 0) origins.push_back({block, at});
  }
  return origins;
}

std::vector<OpOrigin> TrustedOriginsOf(const OpDesc& op) {
  return current_origins ? OriginsOf(op) : std::vector<OpOrigin>();
}

void AddOrigins(const OpDesc& from, OpDesc& to) {
  const std::vector<PackedOrigin> added = PackedOrigins(from);
  if (added.empty()) return;
  std::vector<PackedOrigin> all = PackedOrigins(to), joined;
  std::set_union(all.begin(), all.end(), added.begin(), added.end(), std::back_inserter(joined));
  if (joined.size() == 1)
    to.SetAttr(kOpOriginAttr, joined[0]);
  else
    to.SetAttr(kOpOriginAttr, std::move(joined));
}

std::string DescribePlaces(const std::vector<OpOrigin>& origins) {
  constexpr size_t kMost = 8;
  std::string text;
  for (auto first = origins.begin(); first != origins.end();) {
    const auto next = std::find_if(
        first, origins.end(), [&](const OpOrigin& other) { return other.block != first->block; });
    std::vector<std::string> ops;
    for (auto it = first; it != next && ops.size() < kMost; ++it)
      ops.push_back(std::to_string(it->op));
    const auto count = static_cast<size_t>(next - first);
    if (count > kMost) ops.push_back(fmt::format("{} more", count - kMost));
    const std::string last = ops.back();
    ops.pop_back();
    text +=
        fmt::format("{}op{} {}{}{} of block {}", text.empty() ? "" : " and ", count > 1 ? "s" : "",
                    Join(ops, ", "), ops.empty() ? "" : " and ", last, first->block);
    first = next;
  }
  return text;
}

// --- variables ---

void ProgramOrigins::Add(const std::string& made, const std::string& from,
                         const std::vector<int32_t>& axes, std::shared_ptr<const OpDesc> writer) {
  VarOrigin origin{from, axes, std::move(writer)};
  if (const VarOrigin* before = Find(from)) {
    origin.name = before->name;
    if (!origin.writer) origin.writer = before->writer;
    if (axes.empty()) origin.axes = before->axes;
    for (size_t i = 0; i < axes.size() && axes.size() == before->axes.size(); ++i)
      origin.axes[i] = before->axes[static_cast<size_t>(axes[i])];
  }
  vars_.insert_or_assign(made, std::move(origin));
}

const VarOrigin* ProgramOrigins::Find(const std::string& name) const {
  const auto found = vars_.find(name);
  return found == vars_.end() ? nullptr : &found->second;
}

const std::string& ProgramOrigins::NameOf(const std::string& name) const {
  const VarOrigin* origin = Find(name);
  return origin ? origin->name : name;
}

VarMeta ProgramOrigins::MetaOf(const std::string& name, VarMeta meta) const {
  const VarOrigin* origin = Find(name);
  if (!origin || static_cast<size_t>(meta.shape.rank()) != origin->axes.size()) return meta;
  const Shape now = meta.shape;
  for (int i = 0; i < now.rank(); ++i) meta.shape[origin->axes[static_cast<size_t>(i)]] = now[i];
  return meta;
}

int64_t ProgramOrigins::IndexOf(const std::string& name, const Shape& shape, int64_t index) const {
  const VarOrigin* origin = Find(name);
  if (!origin || static_cast<size_t>(shape.rank()) != origin->axes.size()) return index;
  const Shape given = MetaOf(name, {VarType::kLoDTensor, DType::kFloat32, shape, 0}).shape;
  Shape at = given;  // the coordinates
  for (int i = shape.rank(); i-- > 0;) {
    at[origin->axes[static_cast<size_t>(i)]] = index % shape[i];
    index /= shape[i];
  }
  int64_t there = 0;
  for (int i = 0; i < given.rank(); ++i) there = there * given[i] + at[i];
  return there;
}

// --- blocks ---

void ProgramOrigins::AddBlock(int made, int from) {
  const int given = GivenBlock(from);
  while (blocks_.size() <= static_cast<size_t>(made))
    blocks_.push_back(static_cast<int>(blocks_.size()));
  blocks_[static_cast<size_t>(made)] = given;
}

void ProgramOrigins::ReorderBlocks(const std::vector<int>& order) {
  std::vector<int> given;
  for (const int before : order) given.push_back(GivenBlock(before));
  blocks_ = std::move(given);
}

int ProgramOrigins::GivenBlock(int block) const {
  const auto at = static_cast<size_t>(block);
  return at < blocks_.size() ? blocks_[at] : block;
}

// --- the current program of a thread ---

ScopedOrigins::ScopedOrigins(const ProgramOrigins& origins)
    : before_(std::exchange(current_origins, &origins)) {}
ScopedOrigins::~ScopedOrigins() { current_origins = before_; }

const ProgramOrigins& ScopedOrigins::Current() {
  static const ProgramOrigins none;
  return current_origins ? *current_origins : none;
}

std::string QuoteVar(const std::string& name) {
  return Quote(ScopedOrigins::Current().NameOf(name));
}

std::string DescribeVar(const std::string& name, const VarMeta& meta) {
  return QuoteVar(name) + " " + ScopedOrigins::Current().MetaOf(name, meta).ToString();
}

}  // namespace coracle::inline internal
