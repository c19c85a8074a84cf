#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/mismatch.h>
#include <coracle/train/data/carry.h>
#include <fmt/format.h>

#include <cstring>

namespace coracle {
namespace {

const VarDesc& Find(const ProgramDesc& program, const std::string& name,
                    const std::string& source) {
  const BlockDesc& root = program.Root();
  if (const VarDesc* var = root.FindVar(name)) return *var;
  std::vector<std::string> names;
  for (size_t i = 0; i < root.NumVars(); ++i) names.push_back(root.var(i).name());
  throw Error(ErrorCode::kNotFound, fmt::format("{}: carry {}: the model has no such variable{}",
                                                source, Quote(name), DidYouMean(name, names)));
}

Tensor MakeState(const VarDesc& to, int64_t batch_size) {
  Shape shape = to.shape();
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] < 0) shape[i] = batch_size;
  return Tensor::Zeros(to.dtype(), shape);
}

size_t Bytes(const Tensor& t) { return t.nbytes(); }

void CopyInto(const Tensor& from, Tensor& to) {
  if (Bytes(to) > 0) std::memcpy(to.raw(), from.raw(), Bytes(to));
}

}  // namespace

StateCarry::StateCarry(const ProgramDesc& program, const std::vector<CarryConfig>& config,
                       int64_t batch_size, const std::string& source) {
  for (const CarryConfig& c : config) {
    const std::string& place = c.where.empty() ? source : c.where;
    const VarDesc &from = Find(program, c.from, place), &to = Find(program, c.to, place);
    if (from.dtype() != to.dtype() || !from.shape().CompatibleWith(to.shape())) {
      ThrowInvalid(fmt::format("{}: {} cannot be carried to {}: it {}", place, Quote(c.from),
                               Quote(c.to), DescribeMismatch(to.meta(), from.meta())));
    }
    from_.push_back(c.from);
    to_.push_back(c.to);
    states_.push_back(MakeState(to, batch_size));
  }
}

void StateCarry::Reset() {
  for (Tensor& state : states_)
    if (Bytes(state) > 0) std::memset(state.raw(), 0, Bytes(state));
}

void StateCarry::Receive(std::span<const Tensor> fetched) {
  for (size_t i = 0; i < states_.size(); ++i) {
    if (!(fetched[i].shape() == states_[i].shape()) || fetched[i].dtype() != states_[i].dtype()) {
      ThrowInvalid(fmt::format("{} came out as {}, but {} takes {}", Quote(from_[i]),
                               fetched[i].ToString(), Quote(to_[i]), states_[i].ToString()));
    }
    CopyInto(fetched[i], states_[i]);
  }
}

const std::vector<Tensor>& StateCarry::Append(const std::vector<Tensor>& feeds) {
  if (states_.empty()) return feeds;
  feeds_.assign(feeds.begin(), feeds.end());
  feeds_.insert(feeds_.end(), states_.begin(), states_.end());
  return feeds_;
}

std::vector<std::pair<std::string, Tensor>> StateCarry::Save() const {
  std::vector<std::pair<std::string, Tensor>> saved;
  for (size_t i = 0; i < states_.size(); ++i) saved.emplace_back(to_[i], states_[i]);
  return saved;
}

void StateCarry::Load(const std::vector<std::pair<std::string, Tensor>>& saved) {
  bool same = saved.size() == states_.size();
  for (size_t i = 0; i < states_.size() && same; ++i) {
    const Tensor& state = saved[i].second;
    same = saved[i].first == to_[i] && state.dtype() == states_[i].dtype() &&
           state.shape() == states_[i].shape();
  }
  if (!same) ThrowInvalid("the carried states of the snapshot are not those of the job");
  for (size_t i = 0; i < states_.size(); ++i) CopyInto(saved[i].second, states_[i]);
}

}  // namespace coracle
