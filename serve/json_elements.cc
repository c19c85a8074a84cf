#include <coracle/framework/base/text.h>
#include <coracle/serve/http_message.h>
#include <coracle/serve/json_elements.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace coracle::serve {
namespace {

const char* NameOf(JsonElements::Kind kind) {
  switch (kind) {
    case JsonElements::Kind::kBool:
      return "true and false";
    case JsonElements::Kind::kInteger:
      return "whole numbers";
    case JsonElements::Kind::kFloat:
      return "numbers";
    case JsonElements::Kind::kText:
      return "texts";
    case JsonElements::Kind::kNone:
      break;
  }
  return "no elements";
}

[[noreturn]] void ThrowElement(const std::string& name, size_t i, const std::string& what) {
  throw HttpError(400, fmt::format("input {}: element {} {}", Quote(name), i, what));
}

template <class T>
void FillIntegers(const std::string& name, const std::vector<int64_t>& from,
                  const std::vector<size_t>& above, Tensor* to) {
  T* out = to->data<T>();
  for (size_t i = 0; i < from.size(); ++i) {
    const bool big = std::binary_search(above.begin(), above.end(), i);
    const bool fits =
        std::is_same_v<T, uint64_t> ? big || from[i] >= 0 : !big && std::in_range<T>(from[i]);
    if (!fits) {
      const std::string text =
          big ? std::to_string(static_cast<uint64_t>(from[i])) : std::to_string(from[i]);
      ThrowElement(name, i,
                   fmt::format("is {}, which {} does not hold", text, ToString(to->dtype())));
    }
    out[i] = static_cast<T>(from[i]);
  }
}

template <class T>
void FillFloats(const std::string& name, const std::vector<double>& from, Tensor* to) {
  T* out = to->data<T>();
  for (size_t i = 0; i < from.size(); ++i) {
    out[i] = static_cast<T>(from[i]);
    if (!std::isfinite(out[i]))
      ThrowElement(name, i,
                   fmt::format("is {}, which {} does not hold", from[i], ToString(to->dtype())));
  }
}

double AsDouble(int64_t value, bool big) {
  return big ? static_cast<double>(static_cast<uint64_t>(value)) : static_cast<double>(value);
}

}  // namespace

void JsonElements::Become(Kind kind) {
  if (kind_ == Kind::kNone) kind_ = kind;
  if (kind_ == Kind::kInteger && kind == Kind::kFloat) {
    for (size_t i = 0; i < integers_.size(); ++i)
      floats_.push_back(
          AsDouble(integers_[i], std::binary_search(unsigned_.begin(), unsigned_.end(), i)));
    integers_ = {};
    unsigned_ = {};
    kind_ = kind;
  }
  if (kind_ != kind) {
    throw HttpError(
        400, fmt::format("the elements of one tensor are {} and {}", NameOf(kind_), NameOf(kind)));
  }
  ++size_;
}

void JsonElements::AddBool(bool value) {
  Become(Kind::kBool);
  bools_.push_back(value);
}
void JsonElements::AddInteger(int64_t value) {
  if (kind_ == Kind::kFloat) return AddFloat(static_cast<double>(value));
  Become(Kind::kInteger);
  integers_.push_back(value);
}
void JsonElements::AddUnsigned(uint64_t value) {
  if (kind_ == Kind::kFloat) return AddFloat(static_cast<double>(value));
  Become(Kind::kInteger);
  unsigned_.push_back(integers_.size());
  integers_.push_back(static_cast<int64_t>(value));
}
void JsonElements::AddFloat(double value) {
  Become(Kind::kFloat);
  floats_.push_back(value);
}
void JsonElements::AddText(std::string value) {
  Become(Kind::kText);
  texts_.push_back(std::move(value));
}

Tensor JsonElements::ToTensor(const std::string& name, DType dtype, const Shape& shape) const {
  if (static_cast<uint64_t>(shape.numel()) != size_) {
    throw HttpError(400, fmt::format("input {}: a tensor of shape {} has {} elements, got {}",
                                     Quote(name), shape.ToString(), shape.numel(), size_));
  }
  if (dtype == DType::kFloat16 || dtype == DType::kBFloat16) {
    throw HttpError(400, fmt::format("input {}: JSON has no {}; send it as a binary tensor",
                                     Quote(name), DType::kFloat16 == dtype ? "FP16" : "BF16"));
  }
  if (size_ == 0) return Tensor(dtype, shape);
  const bool floats = dtype == DType::kFloat32 || dtype == DType::kFloat64;
  const Kind wanted = dtype == DType::kString ? Kind::kText
                      : dtype == DType::kBool ? Kind::kBool
                      : floats                ? Kind::kFloat
                                              : Kind::kInteger;
  if (kind_ != wanted && !(floats && kind_ == Kind::kInteger)) {
    throw HttpError(400, fmt::format("input {}: its elements must be {}, got {}", Quote(name),
                                     NameOf(wanted), NameOf(kind_)));
  }
  if (dtype == DType::kString) return Tensor::OfStrings(shape, texts_);
  Tensor tensor(dtype, shape);
  if (dtype == DType::kBool) {
    std::copy(bools_.begin(), bools_.end(), tensor.data<bool>());
  } else if (floats) {
    std::vector<double> values = floats_;
    for (size_t i = 0; i < integers_.size(); ++i)
      values.push_back(
          AsDouble(integers_[i], std::binary_search(unsigned_.begin(), unsigned_.end(), i)));
    if (dtype == DType::kFloat32)
      FillFloats<float>(name, values, &tensor);
    else
      FillFloats<double>(name, values, &tensor);
  } else if (dtype == DType::kUInt64) {
    FillIntegers<uint64_t>(name, integers_, unsigned_, &tensor);
  } else {
    DispatchDType(dtype, [&]<class T>() {
      if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
        FillIntegers<T>(name, integers_, unsigned_, &tensor);
    });
  }
  return tensor;
}

}  // namespace coracle::serve
