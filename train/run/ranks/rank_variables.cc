#include <coracle/train/run/ranks/rank_variables.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace coracle::inline internal {
namespace {

// Replaces a float tensor by its mean over the ranks; 16-bit floats are summed as float32.
Tensor MeanOverRanks(const Ranks& ranks, const Tensor& own) {
  const bool is_double = own.dtype() == DType::kFloat64;
  Tensor mean = is_double ? own.Clone() : own.Cast(DType::kFloat32);
  ranks.Sum(&mean);
  const auto divide = [&]<class T>() {
    for (T& element : mean.span<T>()) element /= static_cast<T>(ranks.size());
  };
  is_double ? divide.template operator()<double>() : divide.template operator()<float>();
  return mean.Cast(own.dtype());
}

// The whole of a state, of which each rank has a shard.
Tensor JoinShards(const Ranks& ranks, const ShardedState& state, const Tensor& shard) {
  Tensor whole = Tensor::Zeros(shard.dtype(), state.shape);
  std::vector<int64_t> counts;
  for (int r = 0; r < ranks.size(); ++r) {
    const int64_t begin = std::min(r * shard.numel(), whole.numel());
    counts.push_back(std::min(shard.numel(), whole.numel() - begin));
  }
  ranks.communicator()->Run(
      {Exchange::Kind::kAllGather, shard.dtype(), counts, shard.raw(), whole.raw()});
  return whole;
}

// The rank's shard of a whole state, padded with zeros.
Tensor ShardOf(const Ranks& ranks, const Tensor& whole) {
  const int64_t size = (whole.numel() + ranks.size() - 1) / ranks.size();
  const int64_t begin = std::min(ranks.rank() * size, whole.numel());
  const auto bytes = static_cast<int64_t>(SizeOf(whole.dtype()));
  Tensor shard = Tensor::Zeros(whole.dtype(), {size});
  std::memcpy(shard.raw(), static_cast<const char*>(whole.raw()) + begin * bytes,
              static_cast<size_t>(std::min(size, whole.numel() - begin) * bytes));
  return shard;
}

}  // namespace

RankVariables::RankVariables(const Ranks& ranks, const RankPrograms& programs)
    : ranks_(ranks), local_(programs.local), states_(programs.states) {}

NamedTensors RankVariables::MakeEqual(Scope& scope) {
  NamedTensors own;
  if (!ranks_.several()) return own;
  // Updates of running statistics are linear, and no step reads them, so the mean may be taken now.
  for (const std::string& name : local_) {
    if (!scope.Has(name)) continue;
    own.emplace_back(name, scope.Get(name).Clone());
    scope.Set(name, MeanOverRanks(ranks_, own.back().second));
  }
  return own;
}

NamedTensors RankVariables::Gather(const NamedTensors& own) const {
  NamedTensors gathered;
  if (own.empty()) return gathered;
  std::string bytes;
  for (const auto& [name, value] : own)
    bytes.append(static_cast<const char*>(value.raw()), value.nbytes());
  const std::vector<std::string> all = ranks_.Gather(bytes);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const char* from = all[rank].data();
    for (const auto& [name, value] : own) {
      Tensor& copy = gathered.emplace_back(fmt::format("{}@{}", name, rank), value.Clone()).second;
      std::memcpy(copy.raw(), from, copy.nbytes());
      from += copy.nbytes();
    }
  }
  return gathered;
}

void RankVariables::JoinStates(Scope& scope) {
  if (!ranks_.several()) return;
  for (const ShardedState& state : states_) {
    Tensor whole = JoinShards(ranks_, state, scope.Get(state.shard));
    if (ranks_.first()) scope.Set(state.name, std::move(whole));
  }
}

void RankVariables::RemoveJoinedStates(Scope& scope) const {
  for (const ShardedState& state : states_) scope.Erase(state.name);
}

void RankVariables::DivideStates(Scope& scope) {
  if (!ranks_.several()) return;
  for (const ShardedState& state : states_) {
    if (!scope.Has(state.name)) continue;
    scope.Set(state.shard, ShardOf(ranks_, scope.Get(state.name)));
    scope.Erase(state.name);
  }
}

void RestoreStatistics(NamedTensors own, Scope& scope) {
  for (auto& [name, value] : own) scope.Set(name, std::move(value));
}

}  // namespace coracle::inline internal
