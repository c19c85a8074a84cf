#include <coracle/framework/base/text.h>
#include <coracle/train/data/row_error.h>
#include <coracle/train/run/feeder.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace coracle::inline internal {
namespace {

// If an input is bound twice, the last binding counts.
const BindConfig* BoundTo(const std::string& input, const std::vector<BindConfig>& bind) {
  const BindConfig* found = nullptr;
  for (const BindConfig& b : bind)
    if (b.var == input) found = &b;
  return found;
}

const std::string& PlaceOf(const BindConfig* bound, const std::string& source) {
  return bound && !bound->where.empty() ? bound->where : source;
}

size_t ColumnOf(const std::string& input, const DataSource& data,
                const std::vector<BindConfig>& bind, const std::string& source) {
  std::string wanted = input;
  const BindConfig* bound = BoundTo(input, bind);
  if (bound) wanted = bound->column;
  int column = data.FindColumn(wanted);
  if (column >= 0) return static_cast<size_t>(column);
  std::vector<std::string> names;
  for (const DataColumn& c : data.columns()) names.push_back(c.name);
  if (bound) {
    throw Error(
        ErrorCode::kNotFound,
        fmt::format("{}: bind: {} has no column {}, but {}{}", PlaceOf(bound, source),
                    data.Describe(), Quote(wanted), Join(names, ", "), DidYouMean(wanted, names)));
  }
  throw Error(
      ErrorCode::kNotFound,
      fmt::format("{}: nothing feeds model input {}: {} has the columns {}; bind one: bind "
                  "{{ column: \"{}\" var: \"{}\" }}",
                  source, Quote(input), data.Describe(), Join(names, ", "), names[0], input));
}

bool IsPadded(const VarDesc& var, const DataColumn& column) {
  return column.sequences && var.lod_level() == 0;
}

// The same labels may be classes for one model and targets for another, so int64 and float32 are
// converted to each other.
bool IsConverted(const VarDesc& var, const DataColumn& column) {
  const auto pair = [&](DType a, DType b) { return var.dtype() == a && column.dtype == b; };
  return !column.sequences &&
         (pair(DType::kFloat32, DType::kInt64) || pair(DType::kInt64, DType::kFloat32));
}

// Whether the conversion to the other type is exact. It may not be beyond 2^24 and 2^63.
bool IsExact(int64_t value) { return value >= -(int64_t{1} << 24) && value <= int64_t{1} << 24; }
bool IsExact(float value) {
  return std::abs(value) < 0x1p63f && std::trunc(value) == value;  // false for nan
}

template <class From, class To>
Tensor Converted(const Tensor& column, DType dtype, const std::string& input, size_t place) {
  Tensor converted(dtype, column.shape());
  const auto from = column.span<From>();
  To* to = converted.data<To>();
  for (size_t i = 0; i < from.size(); ++i) {
    if (!IsExact(from[i])) {
      const size_t rows = static_cast<size_t>(column.shape()[0]);
      throw BadRow(fmt::format("model input {} is {}, and its column holds {}", Quote(input),
                               ToString(dtype), from[i]),
                   place, static_cast<int64_t>(i / (from.size() / rows)));
    }
    to[i] = static_cast<To>(from[i]);
  }
  return converted;
}

// The shape of the feed: the input's shape, with its unknown dimensions taken from the column. The
// length of padded sequences may stay unknown (-1).
Shape FeedShape(const VarDesc& var, const DataColumn& column, const std::string& source) {
  const Shape& want = var.shape();
  const bool padded = IsPadded(var, column);
  Shape row{0};
  if (padded) row.Append(-1);
  for (int64_t dim : column.shape) row.Append(dim);
  Shape feed = want.rank() == 0 ? row : want;
  if (feed.rank() > 0) feed[0] = 0;
  for (int i = 1; i < feed.rank(); ++i)
    if (feed[i] < 0 && row.rank() == feed.rank()) feed[i] = row[i];
  Shape one = feed;
  if (one.rank() > 0) one[0] = 1;
  if (padded && one.rank() > 1) one[1] = 1;
  const bool fits =
      feed.rank() >= (padded ? 2 : 0) && one.IsKnown() && one.numel() == column.shape.numel();
  if (!fits || (var.dtype() != column.dtype && !IsConverted(var, column))) {
    ThrowInvalid(fmt::format("{}: model input {} is {}, but the rows of column {} are {}{}{}",
                             source, Quote(var.name()), var.meta().ToString(), Quote(column.name),
                             column.sequences ? "sequences of " : "", ToString(column.dtype),
                             column.shape.ToString()));
  }
  return feed;
}

// With several ranks, each rank feeds its own rows of a batch.
void RequireOpenRows(const VarDesc& var, const std::string& source) {
  if (var.shape().rank() == 0 || var.shape()[0] < 0) return;
  ThrowInvalid(
      fmt::format("{}: model input {} is {}, but ranks divide the batch: its first dimension must "
                  "be -1",
                  source, Quote(var.name()), var.meta().ToString()));
}

// Pads the sequences of `column` with zeros at the end, to the length of the longest sequence on
// any rank.
Tensor Padded(const Tensor& column, Shape shape, const std::string& input, const Ranks& ranks,
              size_t place) {
  const std::vector<uint64_t>& offsets = column.lod().at(0);
  const size_t count = offsets.size() - 1;
  uint64_t longest = 0;
  size_t row = 0;
  for (size_t i = 0; i < count; ++i) {
    if (offsets[i + 1] - offsets[i] <= longest) continue;
    longest = offsets[i + 1] - offsets[i];
    row = i;
  }
  if (shape[1] < 0) {
    shape[1] = static_cast<int64_t>(longest);
    if (ranks.several()) ranks.communicator()->AllReduce(&shape[1], 1, Reduction::kMax);
  }
  if (longest > static_cast<uint64_t>(shape[1])) {
    throw BadRow(fmt::format("model input {} has room for sequences of length {}, one has {}",
                             Quote(input), shape[1], longest),
                 place, static_cast<int64_t>(row));
  }
  shape[0] = static_cast<int64_t>(count);
  Tensor padded = Tensor::Zeros(column.dtype(), shape);
  if (column.empty()) return padded;
  const size_t bytes = column.nbytes() / static_cast<size_t>(column.shape()[0]);
  const char* from = static_cast<const char*>(column.raw());
  char* to = static_cast<char*>(padded.raw());
  for (size_t i = 0; i < count; ++i) {
    const size_t size = (offsets[i + 1] - offsets[i]) * bytes;
    if (size > 0)
      std::memcpy(to + i * static_cast<size_t>(shape[1]) * bytes, from + offsets[i] * bytes, size);
  }
  return padded;
}

}  // namespace

Feeder::Feeder(const ProgramDesc& program, const std::vector<std::string>& inputs,
               const DataSource& data, const std::vector<BindConfig>& bind,
               const std::string& source, const Ranks& ranks)
    : inputs_(inputs), feeds_(inputs.size()), ranks_(ranks) {
  for (const std::string& input : inputs) {
    const VarDesc* var = program.Root().FindVar(input);
    if (var == nullptr)
      throw Error(ErrorCode::kNotFound,
                  fmt::format("{}: the model has no variable {}", source, Quote(input)));
    column_.push_back(ColumnOf(input, data, bind, source));
    const DataColumn& column = data.columns()[column_.back()];
    const std::string& place = PlaceOf(BoundTo(input, bind), source);
    if (ranks.several()) RequireOpenRows(*var, place);
    shape_.push_back(FeedShape(*var, column, place));
    padded_.push_back(IsPadded(*var, column));
    dtype_.push_back(var->dtype());
  }
}

const std::vector<Tensor>& Feeder::Bind(const std::vector<Tensor>& batch) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    Tensor column = batch[column_[i]];
    if (column.dtype() != dtype_[i]) {
      column = dtype_[i] == DType::kInt64
                   ? Converted<float, int64_t>(column, dtype_[i], inputs_[i], column_[i])
                   : Converted<int64_t, float>(column, dtype_[i], inputs_[i], column_[i]);
    }
    if (padded_[i]) {
      feeds_[i] = Padded(column, shape_[i], inputs_[i], ranks_, column_[i]);
      continue;
    }
    shape_[i][0] = column.shape()[0];
    feeds_[i] = column.shape() == shape_[i] ? column : column.Reshaped(shape_[i]);
  }
  return feeds_;
}

std::vector<std::string> FindInputs(const ProgramDesc& program) {
  std::vector<std::string> inputs;
  const BlockDesc& root = program.Root();
  for (size_t i = 0; i < root.NumVars(); ++i) {
    const VarDesc& var = root.var(i);
    const VarUses& uses = root.Uses(var.name());
    if (!var.persistable() && uses.writers.empty() && !uses.readers.empty())
      inputs.push_back(var.name());
  }
  return inputs;
}

}  // namespace coracle::inline internal
