#include <coracle/framework/base/text.h>
#include <coracle/train/data/feeder.h>
#include <fmt/format.h>

namespace coracle {
namespace {

// The last one counts.
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

// The shape of the feed: the input's, with what it leaves open taken from the column.
Shape FeedShape(const VarDesc& var, const DataColumn& column, const std::string& source) {
  const Shape& want = var.shape();
  Shape row{0};
  for (int64_t dim : column.shape) row.Append(dim);
  Shape feed = want.rank() == 0 ? row : want;
  if (feed.rank() > 0) feed[0] = 0;
  for (int i = 1; i < feed.rank(); ++i)
    if (feed[i] < 0 && row.rank() == feed.rank()) feed[i] = row[i];
  bool fits = feed.IsKnown();
  if (fits) {
    Shape one = feed;
    one[0] = 1;
    fits = one.numel() == column.shape.numel();
  }
  if (!fits || var.dtype() != column.dtype) {
    ThrowInvalid(fmt::format("{}: model input {} is {}, but the rows of column {} are {}{}", source,
                             Quote(var.name()), var.meta().ToString(), Quote(column.name),
                             ToString(column.dtype), column.shape.ToString()));
  }
  return feed;
}

}  // namespace

Feeder::Feeder(const ProgramDesc& program, const std::vector<std::string>& inputs,
               const DataSource& data, const std::vector<BindConfig>& bind,
               const std::string& source)
    : inputs_(inputs), feeds_(inputs.size()) {
  for (const std::string& input : inputs) {
    const VarDesc* var = program.Root().FindVar(input);
    if (var == nullptr)
      throw Error(ErrorCode::kNotFound,
                  fmt::format("{}: the model has no variable {}", source, Quote(input)));
    column_.push_back(ColumnOf(input, data, bind, source));
    shape_.push_back(
        FeedShape(*var, data.columns()[column_.back()], PlaceOf(BoundTo(input, bind), source)));
  }
}

const std::vector<Tensor>& Feeder::Bind(const std::vector<Tensor>& batch) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Tensor& column = batch[column_[i]];
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

}  // namespace coracle
