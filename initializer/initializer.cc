#include <coracle/framework/base/text.h>
#include <coracle/initializer/initializer.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <optional>

namespace coracle {
namespace {

// NormalInitializer's numbers, and the share that only texts and importers give.
struct NormalOptions {
  double mean = 0, std = 1;
  std::optional<double> share = std::nullopt;
  int32_t seed = 0;
};

KindsWithFields MakeInitializerFields() {
  const std::string seed = "0: numbers of its own", fan = "default: from the shape";
  const std::string uniform = "else normal";
  using X = XavierOptions;
  using M = MsraOptions;
  using N = NormalOptions;
  return {
      {"constant", FieldTable::Of("One value.", ConstantInitializer())},
      {"uniform",
       FieldTable::Of("Uniform in [low, high).", UniformInitializer(), {{"seed", seed}})},
      {"normal", Fields<N>("Normal.")
                     .Add("mean", &N::mean, "")
                     .Add("std", &N::std, "")
                     .Add("share", &N::share,
                          "of elements that are drawn, default 1; the others, chosen at random, "
                          "are 0")
                     .Add("seed", &N::seed, seed)},
      {"truncated_normal", FieldTable::Of("Normal within two std of the mean.",
                                          TruncatedNormalInitializer(), {{"seed", seed}})},
      {"xavier", Fields<X>("Uniform in +-sqrt(6 / (fan_in + fan_out)), or normal.")
                     .Add("uniform", &X::uniform, uniform)
                     .Add("fan_in", &X::fan_in, fan)
                     .Add("fan_out", &X::fan_out, fan)
                     .Add("seed", &X::seed, seed)},
      {"msra", Fields<M>("Uniform in +-sqrt(6 / fan_in), or normal.")
                   .Add("uniform", &M::uniform, uniform)
                   .Add("fan_in", &M::fan_in, fan)
                   .Add("seed", &M::seed, seed)}};
}

const KindsWithFields& AllFields() {
  static const KindsWithFields all = MakeInitializerFields();
  return all;
}

// The attr of that name, or the default of the kind.
template <class T>
T ValueOf(const Setting& setting, const char* name) {
  if (const Attribute* given = setting.Find(name)) return AttributeAs<T>(*given);
  for (const auto& [kind, fields] : AllFields())
    if (kind == setting.kind) return AttributeAs<T>(*fields.Find(name)->default_value);
  throw InternalError("an initializer without fields: " + setting.kind);
}

// A finite parameter of an initializer, as float for the ops.
float Number(const Setting& setting, const char* name) {
  const auto value = ValueOf<double>(setting, name);
  if (!(std::abs(value) <= std::numeric_limits<float>::max())) {
    ThrowInvalid(
        fmt::format("initializer {}: {} must be finite, got {}", setting.kind, name, value));
  }
  return static_cast<float>(value);
}

double Fan(const Setting& setting, const char* name, double of_shape) {
  const double fan = setting.Get<double>(name, of_shape);
  if (!(fan >= 0) || std::isinf(fan)) {
    ThrowInvalid(fmt::format("initializer {}: {} must be finite and not negative, got {}",
                             setting.kind, name, fan));
  }
  return fan;
}

class OpMaker {
 public:
  OpMaker(const Setting& setting, const std::string& var, const Shape& shape, DType dtype)
      : setting_(setting), var_(var), shape_(shape), dtype_(dtype) {}

  OpDesc Make() const {
    const std::string& kind = setting_.kind;
    if (kind == "constant") return Constant();
    if (kind == "uniform") return Uniform(Number(setting_, "low"), Number(setting_, "high"));
    if (kind == "normal") return Sparse(Normal(Mean(), Number(setting_, "std"), false));
    if (kind == "truncated_normal") return Normal(Mean(), Number(setting_, "std"), true);
    if (kind == "xavier") return Xavier();
    if (kind == "msra") return Msra();
    if (kind == "array") return Array();
    std::vector<std::string> known;
    for (const auto& entry : AllFields()) known.push_back(entry.first);
    known.push_back("array");
    ThrowInvalid(fmt::format("unknown initializer {}{}", Quote(kind), DidYouMean(kind, known)));
  }

 private:
  OpDesc Op(std::string type, AttrList attrs) const {
    attrs.push_back({"dtype", static_cast<int32_t>(dtype_)});
    return OpDesc(std::move(type), {}, {{"Out", {var_}}}, std::move(attrs));
  }
  int32_t seed() const { return ValueOf<int32_t>(setting_, "seed"); }
  float Mean() const { return Number(setting_, "mean"); }

  OpDesc Sparse(OpDesc normal) const {
    const auto share = setting_.Get<double>("share", 1);
    if (!(share >= 0 && share <= 1))
      ThrowInvalid(fmt::format("initializer normal: share must lie in [0, 1], got {}", share));
    if (share < 1) normal.SetAttr("share", static_cast<float>(share));
    return normal;
  }

  std::vector<int32_t> NarrowShape() const {
    std::vector<int32_t> dims;
    for (int64_t dim : shape_) {
      if (dim > std::numeric_limits<int32_t>::max()) {
        ThrowInvalid(fmt::format("initializer {}: a dimension of {} passes 2^31 - 1", setting_.kind,
                                 shape_.ToString()));
      }
      dims.push_back(static_cast<int32_t>(dim));
    }
    return dims;
  }

  OpDesc Constant() const {
    const auto exact = ValueOf<double>(setting_, "value");
    const float value = Number(setting_, "value");
    AttrList attrs = {{"shape", shape_.ToVector()}, {"value", value}};
    if (static_cast<double>(value) != exact)
      attrs.push_back({"str_value", fmt::format("{}", exact)});
    return Op("fill_constant", std::move(attrs));
  }
  OpDesc Uniform(float low, float high) const {
    return Op("uniform_random",
              {{"shape", shape_.ToVector()}, {"min", low}, {"max", high}, {"seed", seed()}});
  }
  OpDesc Normal(float mean, float std, bool truncated) const {
    if (truncated) {
      return Op("truncated_gaussian_random",
                {{"shape", NarrowShape()}, {"mean", mean}, {"std", std}, {"seed", seed()}});
    }
    return Op("gaussian_random",
              {{"shape", shape_.ToVector()}, {"mean", mean}, {"std", std}, {"seed", seed()}});
  }
  OpDesc Scaled(double fans, bool uniform) const {
    if (fans <= 0) return Uniform(0, 0);
    if (uniform) {
      auto limit = static_cast<float>(std::sqrt(6 / fans));
      return Uniform(-limit, limit);
    }
    return Normal(0, static_cast<float>(std::sqrt(2 / fans)), false);
  }
  OpDesc Xavier() const {
    FanCounts fans = FansOf(shape_);
    return Scaled(Fan(setting_, "fan_in", fans.in) + Fan(setting_, "fan_out", fans.out),
                  ValueOf<bool>(setting_, "uniform"));
  }
  OpDesc Msra() const {
    return Scaled(Fan(setting_, "fan_in", FansOf(shape_).in), ValueOf<bool>(setting_, "uniform"));
  }

  OpDesc Array() const {
    const Attribute* values = setting_.Find("values");
    if (!values) ThrowInvalid("initializer array: it has no values");
    Shape given(setting_.Get<std::vector<int64_t>>("shape", {}));
    int64_t numel = given.numel();
    if (numel != shape_.numel() || (given.rank() != 1 && !(given == shape_))) {
      ThrowInvalid(fmt::format("initializer array: the parameter has shape {}, the array {}",
                               shape_.ToString(), given.ToString()));
    }
    return Op("assign_value", {{"shape", NarrowShape()}, ArrayValues(*values)});
  }
  NamedAttr ArrayValues(const Attribute& values) const {
    switch (dtype_) {
      case DType::kFloat32:
        return {"fp32_values", AttributeAs<std::vector<float>>(values)};
      case DType::kInt32:
        return {"int32_values", AttributeAs<std::vector<int32_t>>(values)};
      case DType::kInt64:
        return {"int64_values", AttributeAs<std::vector<int64_t>>(values)};
      case DType::kBool:
        return {"bool_values", AttributeAs<std::vector<int32_t>>(values)};
      default:
        ThrowInvalid(fmt::format(
            "initializer array: a parameter must be float32, int32, int64 or bool, got {}",
            ToString(dtype_)));
    }
  }

  const Setting& setting_;
  const std::string& var_;
  const Shape& shape_;
  DType dtype_;
};

}  // namespace

Setting ConstantInitializer(double value) { return {"constant", {{"value", value}}}; }

Setting UniformInitializer(double low, double high, int32_t seed) {
  return {"uniform", {{"low", low}, {"high", high}, {"seed", seed}}};
}

Setting NormalInitializer(double mean, double std, int32_t seed) {
  return {"normal", {{"mean", mean}, {"std", std}, {"seed", seed}}};
}

Setting TruncatedNormalInitializer(double mean, double std, int32_t seed) {
  return {"truncated_normal", {{"mean", mean}, {"std", std}, {"seed", seed}}};
}

Setting XavierInitializer(const XavierOptions& options) {
  Setting setting{"xavier", {{"uniform", options.uniform}}};
  if (options.fan_in) setting.attrs.push_back({"fan_in", *options.fan_in});
  if (options.fan_out) setting.attrs.push_back({"fan_out", *options.fan_out});
  setting.attrs.push_back({"seed", options.seed});
  return setting;
}

Setting MsraInitializer(const MsraOptions& options) {
  Setting setting{"msra", {{"uniform", options.uniform}}};
  if (options.fan_in) setting.attrs.push_back({"fan_in", *options.fan_in});
  setting.attrs.push_back({"seed", options.seed});
  return setting;
}

Setting ArrayInitializer(const Tensor& values) {
  if (IsComplex(values.dtype()))
    ThrowInvalid("the array initializer takes real numbers, got " + values.ToString());
  Setting setting{"array", {{"shape", values.shape().ToVector()}}};
  if (IsFloating(values.dtype())) {
    Tensor floats = values.Cast(DType::kFloat32);
    auto span = floats.span<float>();
    setting.attrs.push_back({"values", std::vector<float>(span.begin(), span.end())});
  } else {
    Tensor integers = values.Cast(DType::kInt64);
    auto span = integers.span<int64_t>();
    setting.attrs.push_back({"values", std::vector<int64_t>(span.begin(), span.end())});
  }
  return setting;
}

KindsWithFields InitializerFields() { return AllFields(); }

FanCounts FansOf(const Shape& shape) {
  if (shape.rank() == 0) return {};
  auto dim = [&](int axis) { return static_cast<double>(shape[axis]); };
  if (shape.rank() == 1) return {dim(0), dim(0)};
  if (shape.rank() == 2) return {dim(0), dim(1)};
  double window = 1;
  for (int axis = 2; axis < shape.rank(); ++axis) window *= dim(axis);
  return {dim(1) * window, dim(0) * window};
}

OpDesc InitializerOp(const Setting& initializer, const std::string& var, const Shape& shape,
                     DType dtype) {
  return OpMaker(initializer, var, shape, dtype).Make();
}

}  // namespace coracle
