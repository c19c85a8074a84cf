#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/serve/http_message.h>
#include <coracle/serve/json_elements.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
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

constexpr size_t kCheck = 65'536;  // elements between two looks at the time

// The value of an element whose kind is kInteger.
template <class T>
T NumberOf(uint64_t word, bool is_unsigned) {
  return is_unsigned ? static_cast<T>(word) : static_cast<T>(static_cast<int64_t>(word));
}

[[noreturn]] void ThrowElement(const std::string& name, size_t i, const std::string& what) {
  throw HttpError(400, fmt::format("input {}: element {} {}", Quote(name), i, what));
}

}  // namespace

void JsonElements::Become(Kind kind) {
  if (kind_ == Kind::kNone) kind_ = kind;
  if (kind_ == Kind::kInteger && kind == Kind::kFloat) BecomeFloats();
  if (kind_ != kind) {
    throw HttpError(
        400, fmt::format("the elements of one tensor are {} and {}", NameOf(kind_), NameOf(kind)));
  }
  ++size_;
}

void JsonElements::BecomeFloats() {
  ForEachWord([&](size_t i, uint64_t word, bool is_unsigned) {
    const auto value = NumberOf<double>(word, is_unsigned);
    NoteSingle(i, value, NumberOf<float>(word, is_unsigned));
    words_[i] = std::bit_cast<uint64_t>(value);
  });
  for (const size_t i : negative_zeros_) words_[i] = std::bit_cast<uint64_t>(-0.0);
  unsigned_ = {};
  negative_zeros_ = {};
  kind_ = Kind::kFloat;
}

void JsonElements::NoteSingle(size_t i, double value, float single) {
  if (single != static_cast<float>(value)) singles_.emplace_back(i, single);
}

void JsonElements::AddBool(bool value) {
  Become(Kind::kBool);
  bools_.push_back(value);
}
void JsonElements::AddInteger(int64_t value) {
  if (kind_ == Kind::kFloat) return AddFloat(static_cast<double>(value), static_cast<float>(value));
  Become(Kind::kInteger);
  words_.push_back(static_cast<uint64_t>(value));
}
void JsonElements::AddUnsigned(uint64_t value) {
  if (kind_ == Kind::kFloat) return AddFloat(static_cast<double>(value), static_cast<float>(value));
  Become(Kind::kInteger);
  unsigned_.push_back(words_.size());
  words_.push_back(value);
}
void JsonElements::AddNegativeZero() {
  if (kind_ == Kind::kFloat) return AddFloat(-0.0, -0.0f);
  Become(Kind::kInteger);
  negative_zeros_.push_back(words_.size());
  words_.push_back(0);
}
void JsonElements::AddFloat(double value, float single) {
  Become(Kind::kFloat);
  NoteSingle(words_.size(), value, single);
  words_.push_back(std::bit_cast<uint64_t>(value));
}
void JsonElements::AddText(std::string_view value) {
  Become(Kind::kText);
  texts_ += value;
  text_ends_.push_back(texts_.size());
}

template <class F>
void JsonElements::ForEachWord(const F& f) const {
  auto next = unsigned_.begin();
  size_t i = 0;
  for (uint64_t word : words_) {
    if (i % kCheck == 0) CheckTimeLimit("a request is read");
    const bool is_unsigned = next != unsigned_.end() && *next == i;
    if (is_unsigned) ++next;
    f(i++, word, is_unsigned);
  }
}

template <class T>
void JsonElements::FillIntegers(const std::string& name, Tensor* to) const {
  T* out = to->data<T>();
  ForEachWord([&](size_t i, uint64_t word, bool is_unsigned) {
    const auto value = static_cast<int64_t>(word);
    const bool fits = std::is_same_v<T, uint64_t> ? is_unsigned || value >= 0
                                                  : !is_unsigned && std::in_range<T>(value);
    if (!fits) {
      ThrowElement(name, i,
                   fmt::format("is {}, which {} does not hold",
                               is_unsigned ? std::to_string(word) : std::to_string(value),
                               ToString(to->dtype())));
    }
    out[i] = static_cast<T>(word);
  });
}

template <class T>
void JsonElements::FillFloats(const std::string& name, Tensor* to) const {
  T* out = to->data<T>();
  ForEachWord([&](size_t i, uint64_t word, bool is_unsigned) {
    const bool whole = kind_ == Kind::kInteger;
    out[i] = whole ? NumberOf<T>(word, is_unsigned) : static_cast<T>(std::bit_cast<double>(word));
    if (!std::isfinite(out[i]))
      ThrowElement(name, i,
                   fmt::format("is {}, which {} does not hold", std::bit_cast<double>(word),
                               ToString(to->dtype())));
  });
  for (const size_t i : negative_zeros_) out[i] = -T{0};
  if constexpr (std::is_same_v<T, float>)
    for (const auto& [i, single] : singles_) out[i] = single;
}

Tensor JsonElements::Texts(const Shape& shape) const {
  std::vector<StringRef> elements;
  elements.reserve(size_);
  size_t begin = 0;
  for (size_t end : text_ends_) {
    elements.push_back({texts_.data() + begin, end - begin});
    begin = end;
  }
  CheckTimeLimit("a request is read");
  return Tensor::View(DType::kString, shape, elements.data()).Clone();
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
  if (dtype == DType::kString) return Texts(shape);
  Tensor tensor(dtype, shape);
  if (dtype == DType::kBool) {
    std::copy(bools_.begin(), bools_.end(), tensor.data<bool>());
  } else if (dtype == DType::kFloat32) {
    FillFloats<float>(name, &tensor);
  } else if (dtype == DType::kFloat64) {
    FillFloats<double>(name, &tensor);
  } else if (dtype == DType::kUInt64) {
    FillIntegers<uint64_t>(name, &tensor);
  } else {
    DispatchDType(dtype, [&]<class T>() {
      if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
        FillIntegers<T>(name, &tensor);
    });
  }
  return tensor;
}

}  // namespace coracle::serve
