#include <coracle/framework/op/check/run_rules.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/operators.h>
#include <coracle/test/fuzz/any_program.h>
#include <coracle/test/fuzz/random_program.h>
#include <coracle/test/fuzz/targets.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace coracle {
namespace {

constexpr int64_t kNumbers[] = {
    1,  0,  -1,  2,          3,           4,         5,         -2, 6,     7,         8,
    -3, 16, 100, 2147483647, -2147483648, INT64_MAX, INT64_MIN, -5, 65536, 1000000007};

// Every shape known, and the values that decide shapes too, as when a plan is made.
class ExactTable : public MetaTable {
 public:
  ExactTable(const BlockDesc& block, Choices choose) : choose_(choose) {
    for (size_t i = 0; i < block.NumVars(); ++i) {
      VarMeta meta = block.var(i).meta();
      for (int k = 0; k < meta.shape.rank(); ++k) {
        if (meta.shape[k] < 0) meta.shape[k] = 3;
      }
      known_[block.var(i).name()] = meta;
    }
  }
  const VarMeta* Find(const std::string& name) const override {
    auto found = known_.find(name);
    return found == known_.end() ? nullptr : &found->second;
  }
  void Set(const std::string& name, const VarMeta& meta) override { known_[name] = meta; }
  bool exact() const override { return true; }
  std::optional<std::vector<int64_t>> LevelSizes(const std::string&) const override {
    return std::vector<int64_t>(choose_.Below(3), 2);
  }
  const Tensor* Constant(const std::string& name) const override {
    const VarMeta* meta = Find(name);
    if (!meta || !IsValid(meta->dtype)) return nullptr;
    int64_t numel = 1;
    for (int64_t dim : meta->shape) {
      if (dim < 0 || dim > 64) return nullptr;
      numel *= dim;
      if (numel > 64) return nullptr;
    }
    values_.push_back(std::make_unique<Tensor>(Tensor::Zeros(meta->dtype, meta->shape)));
    Tensor& tensor = *values_.back();
    if (meta->dtype == DType::kInt32) Draw<int32_t>(tensor, numel);
    if (meta->dtype == DType::kInt64) Draw<int64_t>(tensor, numel);
    return &tensor;
  }

 private:
  template <class T>
  void Draw(Tensor& tensor, int64_t numel) const {
    for (int64_t i = 0; i < numel; ++i) {
      tensor.data<T>()[i] = static_cast<T>(choose_.Of(kNumbers));
    }
  }
  mutable Choices choose_;
  std::map<std::string, VarMeta> known_;
  mutable std::vector<std::unique_ptr<Tensor>> values_;
};

void InferExactly(const ProgramDesc& program, std::string_view bytes) {
  const BlockDesc& block = program.Root();
  ExactTable table(block, Choices(bytes.substr(bytes.size() / 2)));
  for (size_t i = 0; i < block.NumOps(); ++i) {
    const OpDesc& op = block.op(i);
    const OpSpec& def = DefaultOps().Get(op.type());
    std::vector<VerifyProblem> problems;
    CheckOp(def, op, 0, static_cast<int>(i), &problems);
    bool sound = std::all_of(problems.begin(), problems.end(), [](const VerifyProblem& problem) {
      return problem.severity != VerifyProblem::Severity::kError;
    });
    if (!sound) continue;
    try {
      InferContext context(def, op, table);
      RunInfer(context);
    } catch (const NeedsValue&) {
    } catch (const Error& error) {
      CheckError(error);
    }
  }
}

}  // namespace

void FuzzOps(std::string_view bytes) {
  Choices choose(bytes);
  RandomProgramOptions options;
  options.smooth = choose.OneIn(4);
  ProgramDesc program = MakeRandomProgram(choose, options).program;
  for (int n = 0; n < 4 && !choose.empty(); ++n) Spoil(program, choose);
  Refusable([&] { InferExactly(program, bytes); });
  Refusable([&] { UseProgram(program); });
}

}  // namespace coracle
