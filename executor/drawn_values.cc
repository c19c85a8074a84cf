#include <coracle/executor/drawn_values.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/role.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_set>
#include <utility>

namespace coracle::inline internal {
namespace {

// An integer input whose values are indices into a dim of another input of the same op. These slots
// have the same meaning in all ops of Paddle that have both.
struct IndexSlot {
  const char *index, *into;
  // Dim of `into`; -1: the last one; kAny: the values are only compared with others.
  int dim;
};
constexpr int kAny = -2;
constexpr std::array<IndexSlot, 8> kIndexSlots = {{{"Ids", "W", 0},
                                                   {"Label", "Centers", 0},
                                                   {"Label", "Weight", 0},
                                                   {"Label", "Emission", -1},
                                                   {"Label", "Logits", -1},
                                                   {"Label", "Softmax", -1},
                                                   {"Label", "X", -1},
                                                   {"Label", "Indices", kAny}}};
constexpr int64_t kNoLimit = INT64_MAX;
constexpr int64_t kUnknownLimit = 2;
constexpr int kMaxLevels = 8;  // each level of LoD doubles the number of sequences

bool Reads(const OpDesc& op, const char* slot, const std::string& name) {
  const auto& args = op.Input(slot);
  return std::find(args.begin(), args.end(), name) != args.end();
}

// The limit that the op implies for the integers that it reads from the variable; it may use them
// in several slots.
int64_t LimitBy(const BlockDesc& block, const OpDesc& op, const std::string& name) {
  for (const IndexSlot& slot : kIndexSlots) {
    if (!Reads(op, slot.index, name) || op.Input(slot.into).empty()) continue;
    if (slot.dim == kAny) return kNoLimit;
    const VarDesc* into = block.FindVarRecursive(op.Input(slot.into)[0]);
    if (!into || into->shape().rank() == 0) return kUnknownLimit;
    const int64_t dim = into->shape()[slot.dim < 0 ? into->shape().rank() - 1 : slot.dim];
    return dim > 0 ? dim : 1;
  }
  return kUnknownLimit;
}

// The output with the same elements in another shape, as for reshape; "" if there is none. An op
// that keeps an XShape for its gradient changes only the shape.
std::string SameElements(const OpDesc& op, const std::string& name) {
  const OpSpec* spec = DefaultOps().Find(op.type());
  const bool alias = spec && std::count(spec->alias.begin(), spec->alias.end(),
                                        std::pair<std::string, std::string>("X", "Out")) > 0;
  const bool same = (alias || !op.Output("XShape").empty()) && Reads(op, "X", name);
  return same && op.Output("Out").size() == 1 ? op.Output("Out")[0] : "";
}

// `levels` of LoD over `rows` rows: the outermost has `sequences`; in each lower level, every
// sequence has two parts.
LoD DrawnLod(int levels, int64_t sequences, int64_t rows) {
  LoD lod;
  for (int level = 0; level < levels; ++level) {
    const bool last = level + 1 == levels;
    const int64_t parts = last ? rows : 2 * sequences;
    std::vector<uint64_t>& offsets = lod.emplace_back();
    for (int64_t i = 0; i <= sequences; ++i)
      offsets.push_back(
          static_cast<uint64_t>(parts / sequences * i + std::min(i, parts % sequences)));
    sequences = parts;
  }
  return lod;
}

class Drawing {
 public:
  explicit Drawing(const std::string& name) : random_(1, HashName(name), 0) {}

  // Computes each element as f of a number in [0, 1).
  template <class F>
  Tensor Fill(DType dtype, const Shape& shape, F f) const {
    const bool wide = dtype == DType::kInt64 || dtype == DType::kFloat64;
    return wide ? FillAs<double>(shape, f).Cast(dtype) : FillAs<float>(shape, f).Cast(dtype);
  }

 private:
  template <class T, class F>
  Tensor FillAs(const Shape& shape, F f) const {
    Tensor tensor(std::is_same_v<T, float> ? DType::kFloat32 : DType::kFloat64, shape);
    T* values = tensor.data<T>();
    ParallelFor(tensor.numel(), 1 << 14, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        values[i] = static_cast<T>(f(random_.UniformFloat(static_cast<uint64_t>(i))));
    });
    return tensor;
  }

  Philox random_;
};

// Numbers with the variance 1 / fan-in, as in Xavier initialisation for a matrix product.
double Range(const Shape& shape) {
  const double rows = static_cast<double>(shape[0]), all = static_cast<double>(shape.numel());
  const double fan_in = shape.rank() == 2 ? rows : all / std::max(1.0, rows);
  return std::sqrt(3 / std::max(1.0, fan_in));
}

bool IsLearningRate(const BlockDesc& root, const std::string& name) {
  const VarUses uses = root.Uses(name);
  return std::any_of(uses.readers.begin(), uses.readers.end(),
                     [&](const OpDesc* op) { return Reads(*op, "LearningRate", name); });
}

// Whether the variable is state of an optimizer: moments, powers, learning rates.
bool IsState(const BlockDesc& root, const VarDesc& var) {
  if (var.is_parameter()) return false;
  const VarUses uses = root.Uses(var.name());
  return IsLearningRate(root, var.name()) ||
         std::any_of(uses.writers.begin(), uses.writers.end(),
                     [](const OpDesc* op) { return IsUpdate(*op); });
}

Tensor DrawParameter(const BlockDesc& root, const VarDesc& var) {
  const Shape& shape = var.shape();
  const bool real = IsFloating(var.dtype()) || IsComplex(var.dtype());
  if (!real || IsState(root, var)) return Tensor::Zeros(var.dtype(), shape);
  const Drawing drawing(var.name());
  if (shape.rank() < 2) return drawing.Fill(var.dtype(), shape, [](float u) { return u + 0.5f; });
  const auto range = static_cast<float>(Range(shape));
  return drawing.Fill(var.dtype(), shape, [range](float u) { return range * (2 * u - 1); });
}

bool IsMissing(const VarDesc& var, const Scope& scope) {
  return var.persistable() && var.type() == VarType::kLoDTensor && IsValid(var.dtype()) &&
         !scope.Has(var.name());
}

// Calls f(op, variable) for each op that reads the elements of the variable, perhaps in other
// shapes under other names.
template <class F>
void ForEachReader(const BlockDesc& root, const std::string& name, const F& f) {
  std::vector<std::string> names = {name};  // all variables with the same elements
  std::unordered_set<std::string> seen = {name};
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string of = names[i];
    for (const OpDesc* op : root.Uses(of).readers) {
      const std::string same = SameElements(*op, of);
      if (same.empty()) f(*op, of);
      if (!same.empty() && seen.insert(same).second) names.push_back(same);
    }
  }
}

// The texts from which a feed is drawn: the keys of a table in which an op looks them up, or words.
std::vector<std::string> TextsFor(const BlockDesc& root, const std::string& name) {
  std::vector<std::string> keys;
  ForEachReader(root, name, [&](const OpDesc& op, const std::string&) {
    if (keys.empty()) keys = op.GetAttr<std::vector<std::string>>("keys_strings", {});
  });
  if (!keys.empty()) return keys;
  return {"a", "word", "Two words", "3.5", "", "one more line of text."};
}

Tensor DrawTexts(const BlockDesc& root, const std::string& name, const Shape& shape) {
  const std::vector<std::string> texts = TextsFor(root, name);
  const double count = static_cast<double>(texts.size());
  const Tensor drawn = Drawing(name).Fill(DType::kInt64, shape, [=](float u) {
    return std::min(count - 1, std::floor(count * double{u}));
  });
  std::vector<std::string> chosen;
  for (const int64_t i : drawn.span<int64_t>()) chosen.push_back(texts[static_cast<size_t>(i)]);
  return Tensor::OfStrings(shape, chosen);
}

}  // namespace

int64_t DrawnIdLimit(const ProgramDesc& program, const std::string& name) {
  const BlockDesc& root = program.Root();
  int64_t limit = kNoLimit;
  ForEachReader(root, name, [&](const OpDesc& op, const std::string& of) {
    limit = std::min(limit, LimitBy(root, op, of));
  });
  return limit == kNoLimit ? kUnknownLimit : limit;
}

Shape DrawnShape(const VarDesc& var, int64_t batch_size) {
  Shape shape = var.shape();
  if (shape.rank() > 0 && shape[0] < 0)
    shape[0] = batch_size * (var.lod_level() > 0 ? kDrawnSequence : 1);
  return shape;
}

Tensor DrawFeed(const ProgramDesc& program, const std::string& name, const Shape& shape,
                int64_t sequences) try {
  const VarDesc* var = program.Root().FindVar(name);
  if (!var) throw Error(ErrorCode::kNotFound, "the program has no variable " + Quote(name));
  if (var->lod_level() > kMaxLevels) {
    ThrowInvalid(fmt::format("cannot draw sequences of {} levels for {}: at most {}",
                             var->lod_level(), Quote(name), kMaxLevels));
  }
  const bool texts = var->dtype() == DType::kString;
  const bool real = IsFloating(var->dtype()) || IsComplex(var->dtype());
  const double limit = real ? 1 : static_cast<double>(DrawnIdLimit(program, name));
  const double most = limit - 1;
  const auto number = [=](float u) {
    return real ? double{u} : std::min(most, std::floor(limit * double{u}));
  };
  Tensor value = texts ? DrawTexts(program.Root(), name, shape)
                       : Drawing(name).Fill(var->dtype(), shape, number);
  if (var->lod_level() > 0 && shape.rank() > 0)
    value.lod() = DrawnLod(var->lod_level(), std::max<int64_t>(sequences, 1), shape[0]);
  return value;
} catch (const OutOfMemory& e) {
  throw e.WithPrefix("the feed " + Quote(name));
}

std::vector<std::string> DrawMissingParameters(const ProgramDesc& program, Scope& scope) {
  const BlockDesc& root = program.Root();
  std::vector<std::string> names;
  for (size_t i = 0; i < root.NumVars(); ++i) {
    const VarDesc& var = root.var(i);
    if (!IsMissing(var, scope)) continue;
    if (!var.shape().IsKnown()) {
      if (root.Uses(var.name()).readers.empty()) continue;
      ThrowInvalid(fmt::format("cannot draw the parameter {} {}: its shape is not known",
                               Quote(var.name()), var.meta().ToString()));
    }
    try {
      scope.Set(var.name(), DrawParameter(root, var));
    } catch (const OutOfMemory& e) {
      throw e.WithPrefix("the parameter " + Quote(var.name()));
    }
    names.push_back(var.name());
  }
  return names;
}

}  // namespace coracle::inline internal
