#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/test/hostile.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

namespace coracle {
namespace {

constexpr int64_t kMaxNumel = 4096;
constexpr int kInstances = 16;  // of each type
constexpr int kVariants = 12;   // of each instance; times CORACLE_HOSTILE_ROUNDS

int Below(std::mt19937& random, size_t n) {
  return n == 0 ? 0 : static_cast<int>(random() % static_cast<uint32_t>(n));
}

bool IsSmall(const VarValues& env, const OpDesc& op) {
  return !op.AnyInput([&](const std::string& name) {
    auto it = env.find(name);
    const auto* tensor = it == env.end() ? nullptr : std::get_if<Tensor>(&it->second);
    return tensor && tensor->numel() > kMaxNumel;
  });
}

bool OutputsAreSmall(const OpDesc& op, const BlockDesc& block) {
  return !op.AnyOutput([&](const std::string& name) {
    const VarDesc* var = block.FindVar(name);
    if (!var) return false;
    int64_t numel = 1;
    for (int64_t dim : var->shape()) {
      if (dim > kMaxNumel || (numel *= std::max<int64_t>(dim, 1)) > 16 * kMaxNumel) return true;
    }
    return false;
  });
}

// The op, its inputs' declarations, and what it may be given.
class Variant {
 public:
  Variant(std::mt19937& random, const OpDesc& op, const VarValues& env, const OpSpec& def)
      : random_(random), op_(op), def_(def) {
    op.ForEachInput([&](const std::string& name) {
      auto it = env.find(name);
      if (it != env.end()) env_[name] = it->second;
    });
  }

  void Change() {
    switch (Below(random_, 12)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return ChangeShape();
      case 4:
        return Replace([&](const Tensor& t) {
          const DType dtype = HostileDType(random_);
          return t.dtype() == DType::kString ? Tensor::Zeros(dtype, t.shape()) : t.Cast(dtype);
        });
      case 5:
        return CopyShape();
      case 6:
        return Replace(
            [&](const Tensor& t) { return HostileTensor(random_, t.dtype(), t.shape()); });
      case 7:
        return DropOrAddInput();
      case 8:
      case 9:
        return ChangeAttr();
      case 10:
        return ChangeOutput();
      default:
        return ChangeList();
    }
  }

  const OpDesc& op() const { return op_; }
  const VarValues& env() const { return env_; }

 private:
  std::string* PickName() {
    names_.clear();
    for (const auto& [name, value] : env_) names_.push_back(name);
    std::sort(names_.begin(), names_.end());
    return names_.empty() ? nullptr : &names_[static_cast<size_t>(Below(random_, names_.size()))];
  }

  template <class F>
  void Replace(F f) {
    const std::string* name = PickName();
    if (!name) return;
    VarValue& value = env_[*name];
    DamageRows(value);
    if (const auto* tensor = std::get_if<Tensor>(&value)) value = f(*tensor);
  }

  // Rows outside of the height, more or fewer of them than elements, elements of other types.
  void DamageRows(VarValue& value) {
    auto* sparse = std::get_if<SelectedRows>(&value);
    if (!sparse) return;
    switch (Below(random_, 6)) {
      case 0:
        if (!sparse->rows.empty()) sparse->rows.back() = Below(random_, 2) ? -1 : sparse->height;
        return;
      case 1:
        return sparse->rows.push_back(0);
      case 2:
        sparse->height = Below(random_, 2) ? 0 : sparse->height + 1;
        return;
      case 3:
        sparse->value = sparse->value.Cast(HostileDType(random_));
        return;
      case 4:
        sparse->value = HostileTensor(random_, sparse->value.dtype(), HostileShape(random_));
        return;
      default:
        *sparse = SelectedRows{};
    }
  }

  void ChangeShape() {
    Replace([&](const Tensor& t) {
      Shape shape = t.shape();
      const int axis = Below(random_, static_cast<size_t>(shape.rank()));
      switch (Below(random_, 6)) {
        case 0:
          if (shape.rank() > 0) shape[axis] += 1;
          break;
        case 1:
          if (shape.rank() > 0) shape[axis] = std::max<int64_t>(0, shape[axis] - 1);
          break;
        case 2:
          if (shape.rank() > 0) shape[axis] = Below(random_, 2);
          break;
        case 3:
          if (shape.rank() < Shape::kMaxRank) shape.Append(1 + Below(random_, 2));
          break;
        case 4: {
          std::vector<int64_t> dims = shape.ToVector();
          if (!dims.empty()) dims.erase(dims.begin() + axis);
          shape = Shape(dims);
          break;
        }
        default:
          shape = HostileShape(random_);
      }
      return HostileTensor(random_, t.dtype(), shape);
    });
  }

  void CopyShape() {
    const std::string* from = PickName();
    if (!from) return;
    DamageRows(env_[*from]);
    const auto* source = std::get_if<Tensor>(&env_[*from]);
    if (!source) return;
    const Shape shape = source->shape();
    Replace([&](const Tensor& t) { return HostileTensor(random_, t.dtype(), shape); });
  }

  void DropOrAddInput() {
    const auto& slots = def_.inputs;
    if (slots.empty()) return;
    const SlotDef& slot = slots[static_cast<size_t>(Below(random_, slots.size()))];
    if (op_.HasInput(slot.name)) {
      if (slot.optional) return op_.RemoveInput(slot.name);
      const std::string name = op_.Input(slot.name).front();
      switch (Below(random_, 3)) {
        case 0:
          env_[name] = SelectedRows{{0, 1}, 4, Tensor::Zeros(DType::kFloat32, {2, 3})};
          break;
        case 1:
          env_[name] = TensorArray(2);
          break;
        default:
          env_[name] = Tensor();
      }
      return;
    }
    const std::string name = slot.name + ".added";
    env_[name] = HostileTensor(random_, HostileDType(random_), HostileShape(random_));
    op_.SetInput(slot.name, {name});
  }

  void ChangeAttr() {
    const auto& attrs = def_.attrs;
    if (attrs.empty()) return;
    const AttrDef& attr = attrs[static_cast<size_t>(Below(random_, attrs.size()))];
    op_.SetAttr(attr.name, HostileAttr(random_, attr));
  }

  void ChangeOutput() {
    const auto& slots = def_.outputs;
    if (slots.empty()) return;
    const SlotDef& slot = slots[static_cast<size_t>(Below(random_, slots.size()))];
    if (!op_.HasOutput(slot.name)) return op_.SetOutput(slot.name, {slot.name + ".added"});
    if (slot.optional && Below(random_, 2)) return op_.RemoveOutput(slot.name);
    for (const auto& [in, out] : def_.inplace) {
      if (out == slot.name && op_.HasInput(in)) op_.SetOutput(out, op_.Input(in));
    }
  }

  void ChangeList() {
    for (const SlotDef& slot : def_.inputs) {
      if (!slot.variadic || !op_.HasInput(slot.name)) continue;
      std::vector<std::string> args = op_.Input(slot.name);
      if (Below(random_, 2)) {
        args.push_back(args.front());
      } else {
        args.pop_back();
      }
      if (!args.empty()) op_.SetInput(slot.name, args);
    }
    for (const SlotDef& slot : def_.outputs) {
      if (!slot.variadic || !op_.HasOutput(slot.name) || Below(random_, 2)) continue;
      std::vector<std::string> args = op_.Output(slot.name);
      args.push_back(slot.name + ".added");
      op_.SetOutput(slot.name, args);
    }
  }

  std::mt19937& random_;
  OpDesc op_;
  const OpSpec& def_;
  VarValues env_;
  std::vector<std::string> names_;
};

template <class T>
std::vector<T> HostileList(std::mt19937& random) {
  std::vector<T> list(static_cast<size_t>(Below(random, 5)));
  for (T& v : list) v = static_cast<T>(Below(random, 7) - 2);
  if (!list.empty() && Below(random, 20) == 0) {
    list[0] = Below(random, 2) ? std::numeric_limits<T>::max() : std::numeric_limits<T>::lowest();
  }
  return list;
}

int64_t HostileInteger(std::mt19937& random, int64_t low, int64_t high) {
  if (Below(random, 12) == 0) return Below(random, 2) ? low : high;
  return Below(random, 8) - 2;
}

}  // namespace

DType HostileDType(std::mt19937& random) {
  constexpr DType kinds[] = {DType::kFloat32, DType::kFloat64,   DType::kInt32,
                             DType::kInt64,   DType::kBool,      DType::kFloat16,
                             DType::kUInt8,   DType::kComplex64, DType::kComplex128};
  return kinds[Below(random, std::size(kinds))];
}

Shape HostileShape(std::mt19937& random) {
  Shape shape;
  const int rank = Below(random, 5);
  for (int i = 0; i < rank; ++i) shape.Append(Below(random, 5));
  return shape;
}

Tensor HostileTensor(std::mt19937& random, DType dtype, const Shape& shape) {
  if (dtype == DType::kString) return Tensor(dtype, shape);
  Tensor tensor(DType::kFloat64, shape);
  for (double& v : tensor.span<double>()) v = Below(random, 5) - 1;
  return tensor.Cast(dtype);
}

Attribute HostileAttr(std::mt19937& random, const AttrDef& def) {
  if (!def.one_of.empty() && Below(random, 8))
    return def.one_of[static_cast<size_t>(Below(random, def.one_of.size()))];
  switch (def.type) {
    case AttrType::kInt:
      return static_cast<int32_t>(HostileInteger(random, INT32_MIN, INT32_MAX));
    case AttrType::kLong:
      return HostileInteger(random, INT64_MIN, INT64_MAX);
    case AttrType::kFloat:
      return static_cast<float>(Below(random, 9) - 2) / 2;
    case AttrType::kFloat64:
      return (Below(random, 9) - 2) / 2.0;
    case AttrType::kBoolean:
      return Below(random, 2) == 1;
    case AttrType::kInts:
      return HostileList<int32_t>(random);
    case AttrType::kLongs:
      return HostileList<int64_t>(random);
    case AttrType::kFloats:
      return HostileList<float>(random);
    case AttrType::kString:
      return std::string(Below(random, 2) ? "" : "NHWC");
    default:
      return def.default_value.value_or(Attribute(int32_t{0}));
  }
}

void RunHostile(const OpDesc& given, const VarValues& env, const OpRegistry& ops) {
  const OpSpec& def = ops.Get(given.type());
  ProgramDesc program;
  BlockDesc& block = program.Root();
  for (const auto& [name, value] : env) {
    VarDesc& var = block.Var(name);
    var.SetMeta(MetaOfValue(value));
  }
  const OpDesc& op = block.AppendOp(given);
  std::vector<VerifyProblem> problems;
  CheckOp(def, op, 0, 0, &problems);
  bool refused = false;
  for (const VerifyProblem& p : problems) refused |= p.severity == VerifyProblem::Severity::kError;
  auto attempt = [&](auto&& run) {
    try {
      run();
      return true;
    } catch (const InternalError& e) {
      if (!refused) ADD_FAILURE() << given.type() << ": internal error: " << e.what();
    } catch (const Error&) {
    } catch (const std::exception& e) {
      ADD_FAILURE() << given.type() << ": not an Error: " << e.what();
    }
    return false;
  };
  if (std::getenv("CORACLE_HOSTILE_PRINT")) {
    std::string text = given.type();
    given.ForEachInput([&](const std::string& name, const std::string& slot) {
      auto it = env.find(name);
      if (it == env.end()) return;
      const auto* tensor = std::get_if<Tensor>(&it->second);
      text += " " + slot + "=" + (tensor ? tensor->ToString() : "other");
    });
    for (const Slot& slot : given.outputs()) text += " ->" + slot.name;
    fprintf(stderr, "%s\n", text.c_str());
  }
  if (!attempt([&] { InferOp(block, op, ops); })) return;
  if (refused || !OutputsAreSmall(op, block)) return;
  for (KernelMode mode : {KernelMode::kReference, KernelMode::kAuto}) {
    VarValues copy;
    for (const auto& [name, value] : env) copy[name] = CloneValue(value);
    attempt([&] { InterpretOp(op, ops, copy, {.kernels = mode, .seed = 3}); });
  }
}

void RunHostileVariants(const OpDesc& op, const VarValues& env, const OpRegistry& ops) {
  static std::map<std::string, int> instances;
  const OpSpec& def = ops.Get(op.type());
  if (def.kind != OpKind::kCompute || def.side_effect || !IsSmall(env, op)) return;
  const int instance = instances[op.type()]++;
  if (instance >= kInstances) return;
  const char* text = std::getenv("CORACLE_HOSTILE_ROUNDS");
  const int variants = kVariants * (text ? std::max(1, std::atoi(text)) : 1);
  for (int v = 0; v < variants && !::testing::Test::HasFailure(); ++v) {
    std::mt19937 random(
        static_cast<uint32_t>(HashName(op.type()) + static_cast<uint64_t>(instance * 100000 + v)));
    Variant variant(random, op, env, def);
    for (int changes = 1 + Below(random, 2); changes > 0; --changes) variant.Change();
    RunHostile(variant.op(), variant.env(), ops);
  }
}

}  // namespace coracle
