#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/mismatch.h>
#include <coracle/train/run/ranks/carry.h>
#include <fmt/format.h>

#include <cstring>

namespace coracle::inline internal {
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

// The only unknown dimension, or -1 if there is not exactly one.
int BatchAxis(const Shape& shape) {
  int axis = -1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] >= 0) continue;
    if (axis >= 0) return -1;
    axis = i;
  }
  return axis;
}

// Copies rows along `axis` between `part` and `whole`, where they begin at `begin`. Copies into
// `whole` if `into_whole` is set, else into `part`.
void CopyRows(Tensor& whole, Tensor& part, int axis, int64_t begin, bool into_whole) {
  const Shape& shape = part.shape();
  const int64_t inner =
      shape.Product(axis + 1, shape.rank()) * static_cast<int64_t>(SizeOf(part.dtype()));
  const int64_t outer = shape.Product(0, axis), line = shape[axis] * inner;
  for (int64_t i = 0; i < outer; ++i) {
    char* at = static_cast<char*>(whole.raw()) + (i * whole.shape()[axis] + begin) * inner;
    char* own = static_cast<char*>(part.raw()) + i * line;
    if (into_whole)
      std::memcpy(at, own, static_cast<size_t>(line));
    else
      std::memcpy(own, at, static_cast<size_t>(line));
  }
}

size_t Bytes(const Tensor& t) { return t.nbytes(); }

void CopyInto(const Tensor& from, Tensor& to) {
  if (Bytes(to) > 0) std::memcpy(to.raw(), from.raw(), Bytes(to));
}

}  // namespace

StateCarry::StateCarry(const ProgramDesc& program, const std::vector<CarryConfig>& config,
                       int64_t batch_size, const std::string& source, const Ranks& ranks)
    : ranks_(ranks), batch_size_(batch_size) {
  for (const CarryConfig& c : config) {
    const std::string& place = c.where.empty() ? source : c.where;
    const VarDesc &from = Find(program, c.from, place), &to = Find(program, c.to, place);
    if (from.dtype() != to.dtype() || !from.shape().CompatibleWith(to.shape())) {
      ThrowInvalid(fmt::format("{}: {} cannot be carried to {}: it {}", place, Quote(c.from),
                               Quote(c.to), DescribeMismatch(to.meta(), from.meta())));
    }
    from_.push_back(c.from);
    to_.push_back(c.to);
    states_.push_back(MakeState(to, ranks.RowsOf(batch_size).count));
    axes_.push_back(BatchAxis(to.shape()));
    if (ranks.several() && axes_.back() < 0) {
      ThrowInvalid(
          fmt::format("{}: {} of {} cannot be divided among {} ranks: one dimension must "
                      "be -1, that of the batch",
                      place, Quote(c.to), to.shape().ToString(), ranks.size()));
    }
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
  for (size_t i = 0; i < states_.size(); ++i) {
    saved.emplace_back(to_[i], states_[i]);
    if (!ranks_.several()) continue;
    const Tensor& own = states_[i];
    const std::vector<std::string> parts =
        ranks_.Gather(std::string(static_cast<const char*>(own.raw()), Bytes(own)));
    Shape shape = own.shape();
    shape[axes_[i]] = batch_size_;
    Tensor all = Tensor::Zeros(own.dtype(), shape);
    for (int r = 0; r < ranks_.size(); ++r) {
      const RankRows rows = RowsOfRank(batch_size_, r, ranks_.size());
      shape[axes_[i]] = rows.count;
      Tensor part = Tensor::Zeros(own.dtype(), shape);
      if (Bytes(part) > 0)
        std::memcpy(part.raw(), parts[static_cast<size_t>(r)].data(), Bytes(part));
      CopyRows(all, part, axes_[i], rows.begin, true);
    }
    saved.back().second = all;
  }
  return saved;
}

void StateCarry::Load(const std::vector<std::pair<std::string, Tensor>>& saved) {
  bool same = saved.size() == states_.size();
  for (size_t i = 0; i < states_.size() && same; ++i) {
    const Tensor& state = saved[i].second;
    Shape whole = states_[i].shape();
    if (ranks_.several()) whole[axes_[i]] = batch_size_;
    same =
        saved[i].first == to_[i] && state.dtype() == states_[i].dtype() && state.shape() == whole;
  }
  if (!same) ThrowInvalid("the carried states of the snapshot are not those of the job");
  for (size_t i = 0; i < states_.size(); ++i) {
    if (ranks_.several()) {
      Tensor all = saved[i].second;
      CopyRows(all, states_[i], axes_[i], ranks_.RowsOf(batch_size_).begin, false);
    } else {
      CopyInto(saved[i].second, states_[i]);
    }
  }
}

}  // namespace coracle::inline internal
