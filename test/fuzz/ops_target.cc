#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/verifier.h>
#include <coracle/operators/default_ops.h>
#include <coracle/test/fuzz/any_program.h>
#include <coracle/test/fuzz/targets.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace coracle {
namespace {

constexpr size_t kMaxOps = 8;
constexpr int64_t kDims[] = {2,
                             3,
                             1,
                             4,
                             5,
                             8,
                             6,
                             -1,
                             0,
                             7,
                             16,
                             28,
                             3,
                             12,
                             32,
                             64,
                             -2,
                             224,
                             1 << 20,
                             2147483647,
                             2147483648,
                             int64_t{1} << 40,
                             int64_t{1} << 61,
                             INT64_MAX,
                             INT64_MIN};
constexpr int64_t kNumbers[] = {
    1,  0,  -1,  2,          3,           4,         5,         -2, 6,     7,         8,
    -3, 16, 100, 2147483647, -2147483648, INT64_MAX, INT64_MIN, -5, 65536, 1000000007};
constexpr double kReals[] = {0.5, 0, 1, -1, 2, 1e-5, 1e30, 0.1, 3, -0.0};
constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat32, DType::kInt64,   DType::kFloat64,
                             DType::kInt32,   DType::kBool,    DType::kUInt8,   DType::kInt8,
                             DType::kInt16,   DType::kFloat16, DType::kBFloat16};

// The bytes as choices; zeros when they are used up.
class Choices {
 public:
  explicit Choices(std::string_view bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  size_t Below(size_t n) {
    size_t value = Byte();
    if (n > 256) value = value << 8 | Byte();
    return value % n;
  }
  bool Rarely() { return Below(16) == 15; }
  template <class T, size_t N>
  T Of(const T (&table)[N]) {
    return table[Below(N)];
  }

 private:
  size_t Byte() {
    if (bytes_.empty()) return 0;
    auto byte = static_cast<unsigned char>(bytes_[0]);
    bytes_.remove_prefix(1);
    return byte;
  }
  std::string_view bytes_;
};

class ProgramMaker {
 public:
  explicit ProgramMaker(std::string_view bytes) : choose_(bytes), types_(DefaultOps().Types()) {}

  ProgramDesc Make() {
    // What most ops of a program share, so that shapes fit more often than chance has it.
    shape_ = AnyShape();
    dtype_ = choose_.Of(kDTypes);
    for (size_t i = 0; i < kMaxOps && !choose_.empty(); ++i) AddOp();
    return std::move(program_);
  }

 private:
  BlockDesc& block() { return program_.Root(); }

  Shape AnyShape() {
    Shape shape;
    size_t rank = choose_.Below(Shape::kMaxRank + 3) % (Shape::kMaxRank + 1);
    for (size_t i = 0; i < rank; ++i) {
      // The tame half of the table twice as often.
      size_t pick = choose_.Below(2 * std::size(kDims));
      shape.Append(kDims[pick < std::size(kDims) ? pick : pick % 7]);
    }
    return shape;
  }

  std::string NewVar() {
    VarDesc& var = block().Var("v" + std::to_string(block().NumVars()));
    size_t how = choose_.Below(8);
    var.SetDType(how < 5 ? dtype_ : choose_.Of(kDTypes));
    var.SetShape(how % 2 == 0 ? shape_ : AnyShape());
    if (choose_.Rarely()) {
      constexpr VarType kTypes[] = {VarType::kSelectedRows, VarType::kLoDTensorArray,
                                    VarType::kFetchList, VarType::kRaw};
      var.SetType(choose_.Of(kTypes));
    }
    return var.name();
  }

  std::string AnyVar() {
    size_t n = block().NumVars();
    if (n == 0 || choose_.Below(2) == 0) return NewVar();
    return choose_.Rarely() ? std::string(kEmptyVarName) : block().var(choose_.Below(n)).name();
  }

  SlotList Fill(const std::vector<SlotDef>& defs, bool inputs) {
    SlotList slots;
    for (const SlotDef& def : defs) {
      if (choose_.Rarely() || (def.optional && choose_.Below(2) == 1)) continue;
      size_t count = def.variadic ? 1 + choose_.Below(3) : 1;
      Slot slot{def.name, {}};
      for (size_t i = 0; i < count; ++i) {
        slot.args.push_back(inputs || choose_.Rarely() ? AnyVar() : NewVar());
      }
      slots.push_back(std::move(slot));
    }
    return slots;
  }

  double Within(const AttrDef& def, double value) {
    if (choose_.Rarely()) return value;
    if (def.min) value = std::max(value, *def.min);
    if (def.max) value = std::min(value, *def.max);
    return value;
  }

  template <class T>
  T Integer(const AttrDef& def) {
    int64_t value = choose_.Of(kNumbers);
    if (value < std::numeric_limits<T>::min() || value > std::numeric_limits<T>::max()) {
      return static_cast<T>(value);
    }
    double bounded = Within(def, static_cast<double>(value));
    return std::abs(bounded) < 1e9 ? static_cast<T>(bounded) : static_cast<T>(value);
  }

  std::string String(const AttrDef& def) {
    if (!def.one_of.empty() && !choose_.Rarely()) {
      return def.one_of[choose_.Below(def.one_of.size())];
    }
    constexpr const char* kWords[] = {"", "NCHW", "NHWC", "sum", "x", "ij,jk->ik", "..."};
    return choose_.Of(kWords);
  }

  template <class F>
  auto List(F&& element) {
    std::vector<decltype(element())> list;
    for (size_t n = choose_.Below(7); n > 0; --n) list.push_back(element());
    return list;
  }

  BlockRef NewBlock() {
    if (program_.NumBlocks() < 4) program_.AppendBlock(0);
    return {program_.NumBlocks() - 1};
  }

  Attribute Value(const AttrDef& def) {
    switch (def.type) {
      case AttrType::kInt:
        return Integer<int32_t>(def);
      case AttrType::kLong:
        return Integer<int64_t>(def);
      case AttrType::kFloat:
        return static_cast<float>(Within(def, choose_.Of(kReals)));
      case AttrType::kFloat64:
        return Within(def, choose_.Of(kReals));
      case AttrType::kString:
        return String(def);
      case AttrType::kBoolean:
        return choose_.Below(2) == 1;
      case AttrType::kInts:
        return List([&] { return Integer<int32_t>(def); });
      case AttrType::kLongs:
        return List([&] { return Integer<int64_t>(def); });
      case AttrType::kFloats:
        return List([&] { return static_cast<float>(Within(def, choose_.Of(kReals))); });
      case AttrType::kFloat64s:
        return List([&] { return Within(def, choose_.Of(kReals)); });
      case AttrType::kStrings:
        return List([&] { return String(def); });
      case AttrType::kBooleans:
        return List([&] { return choose_.Below(2) == 1; });
      case AttrType::kBlock:
        return NewBlock();
      case AttrType::kBlocks:
        return List([&] { return NewBlock(); });
      case AttrType::kScalar:
        return Scalar{choose_.Of(kReals)};
      case AttrType::kScalars:
        return List([&] { return Scalar{choose_.Of(kNumbers)}; });
      default:
        return int32_t{0};
    }
  }

  void AddOp() {
    const OpDef& def = DefaultOps().Get(types_[choose_.Below(types_.size())]);
    SlotList inputs = Fill(def.inputs(), true), outputs = Fill(def.outputs(), false);
    AttrList attrs;
    for (const AttrDef& attr : def.attrs()) {
      if (attr.default_value && choose_.Below(3) == 0) continue;
      attrs.push_back({attr.name, Value(attr)});
    }
    block().AppendOp(def.type(), std::move(inputs), std::move(outputs), std::move(attrs));
  }

  Choices choose_;
  std::vector<std::string> types_;
  ProgramDesc program_;
  Shape shape_;
  DType dtype_ = DType::kFloat32;
};

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
    const OpDef& def = DefaultOps().Get(op.type());
    std::vector<Problem> problems;
    CheckOp(def, op, 0, static_cast<int>(i), &problems);
    bool sound = std::all_of(problems.begin(), problems.end(), [](const Problem& problem) {
      return problem.severity != Problem::Severity::kError;
    });
    if (!sound) continue;
    try {
      InferContext context(def, op, table);
      def.RunInfer(context);
    } catch (const NeedsValue&) {
    } catch (const Error& error) {
      CheckError(error);
    }
  }
}

}  // namespace

void FuzzOps(std::string_view bytes) {
  ProgramDesc program = ProgramMaker(bytes).Make();
  Refusable([&] { InferExactly(program, bytes); });
  Refusable([&] { UseProgram(program); });
}

}  // namespace coracle
