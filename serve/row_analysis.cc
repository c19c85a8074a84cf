#include <coracle/distribute/part_values.h>
#include <coracle/edit/written_shapes.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/passes/freeze.h>
#include <coracle/serve/row_analysis.h>

#include <algorithm>
#include <utility>

namespace coracle::serve {
namespace {

constexpr int64_t kMostElements = 64;  // of a constant that can be a part of a shape
constexpr size_t kMostKnown = 1024;    // classes of shapes

bool HasOpenRows(const std::vector<Port>& ports) {
  return std::all_of(ports.begin(), ports.end(), [](const Port& port) {
    return port.shape.rank() > 0 && port.shape[0] < 0 && port.dtype != DType::kString;
  });
}

bool HasOtherOpenDims(const Port& port) {
  return std::any_of(port.shape.begin() + 1, port.shape.end(), [](int64_t dim) { return dim < 0; });
}

bool WritesState(const ProgramDesc& program) {
  for (const std::string& name : PersistableNames(program)) {
    const BlockDesc& root = program.Root();
    for (size_t i = 0; i < root.NumOps(); ++i) {
      for (const Slot& slot : root.op(i).outputs())
        if (std::count(slot.args.begin(), slot.args.end(), name) > 0) return true;
    }
  }
  return false;
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
    : inputs_(std::move(inputs)), outputs_(std::move(outputs)) {
  if (inputs_.empty() || !HasOpenRows(inputs_) || !HasOpenRows(outputs_)) return;
  program_ = program;
  Decide(values);
  if (!depends_) program_ = ProgramDesc();
}

void RowAnalysis::Decide(const Scope& values) {
  // Norms with fixed statistics write these back as they were.
  static_cast<void>(Freeze(program_, values, {}));
  if (WritesState(program_)) return;
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

bool RowAnalysis::Joins(const std::vector<Tensor>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i].shape().CompatibleWith(inputs_[i].shape)) return false;
  if (!depends_) return always_;
  std::vector<Shape> shapes;
  std::vector<int64_t> key;
  for (const Tensor& input : inputs) {
    Shape shape = input.shape();
    key.insert(key.end(), shape.begin() + 1, shape.end());
    shape[0] = -1;
    shapes.push_back(shape);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  if (known_.size() >= kMostKnown) known_.clear();
  return known_[key] = Proves(shapes);
}

}  // namespace coracle::serve
