#include <coracle/distribute/part_values.h>
#include <coracle/edit/written_shapes.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/op/kernel/random_draws.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/passes/freeze.h>
#include <coracle/serve/row_analysis.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace coracle::serve {
namespace {

constexpr int64_t kMostElements = 64;  // of a constant that can be a part of a shape
constexpr size_t kMostClasses = 1024;  // of shapes, whose answers are kept

bool HasOpenRows(const std::vector<Port>& ports) {
  return std::all_of(ports.begin(), ports.end(), [](const Port& port) {
    return port.shape.rank() > 0 && port.shape[0] < 0 && port.dtype != DType::kString;
  });
}

bool HasOtherOpenDims(const Port& port) {
  return std::any_of(port.shape.begin() + 1, port.shape.end(), [](int64_t dim) { return dim < 0; });
}

// In any block.
template <class Holds>
bool AnyOp(const ProgramDesc& program, const Holds& holds) {
  bool any = false;
  for (int i = 0; i < program.NumBlocks(); ++i)
    program.Block(i).ForEachOp([&](const OpDesc& op) { any = any || holds(op); });
  return any;
}

// Norms with fixed statistics write these back as they were.
bool WritesState(const ProgramDesc& program) {
  const std::vector<std::string> names = PersistableNames(program);
  const std::unordered_set<std::string> persistable(names.begin(), names.end());
  return AnyOp(program, [&](const OpDesc& op) {
    bool writes = false;
    op.ForEachOutput([&](const std::string& name, const std::string& slot) {
      const bool statistic = slot == "MeanOut" || slot == "VarianceOut";
      if (!statistic || !HasFixedStatistics(op)) writes = writes || persistable.count(name) > 0;
    });
    return writes;
  });
}

// The numbers of a row depend on its place in the batch, and on how many runs there were before.
bool DrawsForRows(const OpDesc& op, const OpSpec& spec) {
  if (!DrawsNumbers(op, DefaultOps())) return false;
  return !spec.FindAttr("dropout_prob") || spec.AttrOf<float>(op, "dropout_prob") != 0;
}

// PartValues does not count that as mixed rows, since ranks that train have their own statistics.
bool UsesStatisticsOfRows(const OpDesc& op, const OpSpec& spec) {
  return spec.FindOutput("MeanOut") && !HasFixedStatistics(op);
}

bool DependsOnBatch(const OpDesc& op) {
  const OpSpec* spec = DefaultOps().Find(op.type());
  return spec && (DrawsForRows(op, *spec) || UsesStatisticsOfRows(op, *spec));
}

// Whether dim 0 of the variable is the number of rows, in the order of the inputs, and no op before
// it reads a value of all rows, such as their mean.
bool HasRowsFirst(const PartValues& parts, const std::string& name) {
  const Part& part = parts.Of(name);
  return part.kind == PartKind::kRows && part.place == RowPlace{} && !part.ragged &&
         parts.ReadsOf(name).empty();
}

bool HaveRowsFirst(const PartValues& parts, const std::vector<Port>& ports) {
  return std::all_of(ports.begin(), ports.end(),
                     [&](const Port& port) { return HasRowsFirst(parts, port.name); });
}

Scope ConstantsOf(const ProgramDesc& program, const Scope& values) {
  Scope constants;
  for (const std::string& name : PersistableNames(program)) {
    const VarValue* value = values.Find(name);
    const Tensor* tensor = value ? std::get_if<Tensor>(value) : nullptr;
    const bool fits = tensor && tensor->numel() <= kMostElements &&
                      (tensor->dtype() == DType::kInt32 || tensor->dtype() == DType::kInt64);
    if (fits) constants.Set(name, tensor->Clone());
  }
  return constants;
}

}  // namespace

RowAnalysis::RowAnalysis(const ProgramDesc& program, std::vector<Port> inputs,
                         std::vector<Port> outputs, const Scope& values)
    : inputs_(std::move(inputs)), outputs_(std::move(outputs)), program_(program) {
  // Outputs that would write a parameter back as it was become temporaries.
  static_cast<void>(Freeze(program_, values, {}));
  keeps_state_ = WritesState(program_);
  if (!keeps_state_ && !inputs_.empty() && HasOpenRows(inputs_) && HasOpenRows(outputs_) &&
      !AnyOp(program_, DependsOnBatch))
    Decide(values);
  if (!depends_) program_ = ProgramDesc();
}

void RowAnalysis::Decide(const Scope& values) {
  always_ = HaveRowsFirst(PartValues(program_, DefaultOps()), outputs_);
  if (always_) return;
  constants_ = ConstantsOf(program_, values);
  depends_ = std::any_of(inputs_.begin(), inputs_.end(), HasOtherOpenDims);
  if (depends_) return;
  std::vector<Shape> shapes;
  for (const Port& input : inputs_) shapes.push_back(input.shape);
  always_ = Proves(shapes);
}

// A joined run that succeeds computes what the program with written shapes computes. If its rows
// stay apart, so does each request alone. One that fails runs alone again.
bool RowAnalysis::Proves(const std::vector<Shape>& shapes) const {
  InputShapes declared;
  for (size_t i = 0; i < inputs_.size(); ++i) declared.emplace_back(inputs_[i].name, shapes[i]);
  try {
    const WrittenShapes written = WriteShapes(program_, declared, constants_, DefaultOps());
    const PartValues parts(written.program, DefaultOps());
    const auto& equal = written.equal_dims;
    return HaveRowsFirst(parts, outputs_) &&
           std::all_of(equal.begin(), equal.end(),
                       [&](const std::string& name) { return HasRowsFirst(parts, name); });
  } catch (const Error&) {  // an op does not accept the shapes
    return false;
  }
}

bool RowAnalysis::Joins(const std::vector<Tensor>& inputs, Clock::time_point deadline) {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i].shape().CompatibleWith(inputs_[i].shape)) return false;
  if (!depends_) return always_;
  std::vector<Shape> shapes;
  ClassOfShapes shape_class;
  for (const Tensor& input : inputs) {
    Shape shape = input.shape();
    shape_class.insert(shape_class.end(), shape.begin() + 1, shape.end());
    shape[0] = -1;
    shapes.push_back(shape);
  }
  std::promise<bool> answer;
  std::shared_future<bool> known;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto found = answers_.find(shape_class); found != answers_.end()) {
      known = found->second;
    } else {
      if (answers_.size() >= kMostClasses) answers_.clear();
      answers_[shape_class] = answer.get_future().share();
    }
  }
  if (!known.valid()) return Prove(shape_class, shapes, std::move(answer));
  if (deadline == Clock::time_point::max()) return known.get();
  return known.wait_until(deadline) == std::future_status::ready && known.get();
}

// An exception that is not about a shape (no memory) leaves no answer.
bool RowAnalysis::Prove(const ClassOfShapes& shape_class, const std::vector<Shape>& shapes,
                        std::promise<bool> answer) {
  try {
    const bool proved = Proves(shapes);
    answer.set_value(proved);
    return proved;
  } catch (...) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      answers_.erase(shape_class);
    }
    answer.set_value(false);
    throw;
  }
}

}  // namespace coracle::serve
