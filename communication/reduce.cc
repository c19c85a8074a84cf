#include <coracle/communication/reduce.h>
#include <coracle/framework/tensor/complex.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace coracle::inline internal {
namespace {

// The type in which elements are reduced.
template <class T>
struct WideType {
  using type = T;
};
template <>
struct WideType<float16> {
  using type = float;
};
template <>
struct WideType<bfloat16> {
  using type = float;
};

// Integers wrap around, as in the elementwise ops.
template <class W>
W Add(W a, W b) {
  if constexpr (std::is_integral_v<W> && !std::is_same_v<W, bool>) {
    using U = std::make_unsigned_t<W>;
    return static_cast<W>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  } else {
    return a + b;
  }
}

template <class W>
W Multiply(W a, W b) {
  if constexpr (std::is_integral_v<W> && !std::is_same_v<W, bool>) {
    return static_cast<W>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else {
    return a * b;
  }
}

template <class W>
// Whether a is the maximum of a and b: a nan is.
bool KeepsMax(W a, W b) {
  if constexpr (std::is_floating_point_v<W>) return std::isnan(a) || (!std::isnan(b) && a >= b);
  return a >= b;
}

template <class W>
bool KeepsMin(W a, W b) {
  if constexpr (std::is_floating_point_v<W>) return std::isnan(a) || (!std::isnan(b) && a <= b);
  return a <= b;
}

template <class T, class F>
void Loop(std::span<const void* const> ins, const ReducedRange& range, std::span<void* const> outs,
          const F& join) {
  using W = typename WideType<T>::type;
  constexpr int64_t kPiece = 1024;  // small enough for the sums to stay in the L1 cache
  W sums[kPiece];
  for (int64_t begin = range.begin; begin < range.end; begin += kPiece) {
    const int64_t count = std::min(kPiece, range.end - begin);
    for (size_t rank = 0; rank < ins.size(); ++rank) {
      const T* in = static_cast<const T*>(ins[rank]) + begin;
      if (rank == 0)
        for (int64_t i = 0; i < count; ++i) sums[i] = static_cast<W>(in[i]);
      else
        for (int64_t i = 0; i < count; ++i) sums[i] = join(sums[i], static_cast<W>(in[i]));
    }
    for (void* out : outs) {
      T* to = static_cast<T*>(out) + (begin - range.out_begin);
      for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(sums[i]);
    }
  }
}

template <class T>
void Reduce(Reduction reduction, std::span<const void* const> ins, const ReducedRange& range,
            std::span<void* const> outs) {
  using W = typename WideType<T>::type;
  constexpr bool kComplex = std::is_same_v<T, complex64> || std::is_same_v<T, complex128>;
  if constexpr (!std::is_same_v<T, bool>) {
    // Lambdas are inlined; functions passed by address would be called for each element.
    if (reduction == Reduction::kSum)
      return Loop<T>(ins, range, outs, [](W a, W b) { return Add<W>(a, b); });
    if (reduction == Reduction::kProd)
      return Loop<T>(ins, range, outs, [](W a, W b) { return Multiply<W>(a, b); });
  }
  if constexpr (!kComplex) {
    if (reduction == Reduction::kMax)
      return Loop<T>(ins, range, outs, [](W a, W b) { return KeepsMax(a, b) ? a : b; });
    if (reduction == Reduction::kMin)
      return Loop<T>(ins, range, outs, [](W a, W b) { return KeepsMin(a, b) ? a : b; });
  }
  throw InternalError("a reduction that Exchange::Check refuses");
}

}  // namespace

void ReduceParts(DType dtype, Reduction reduction, std::span<const void* const> ins,
                 const ReducedRange& range, std::span<void* const> outs) {
  switch (dtype) {
    case DType::kBool:
      return Reduce<bool>(reduction, ins, range, outs);
    case DType::kInt8:
      return Reduce<int8_t>(reduction, ins, range, outs);
    case DType::kUInt8:
      return Reduce<uint8_t>(reduction, ins, range, outs);
    case DType::kInt16:
      return Reduce<int16_t>(reduction, ins, range, outs);
    case DType::kInt32:
      return Reduce<int32_t>(reduction, ins, range, outs);
    case DType::kInt64:
      return Reduce<int64_t>(reduction, ins, range, outs);
    case DType::kUInt64:
      return Reduce<uint64_t>(reduction, ins, range, outs);
    case DType::kFloat16:
      return Reduce<float16>(reduction, ins, range, outs);
    case DType::kBFloat16:
      return Reduce<bfloat16>(reduction, ins, range, outs);
    case DType::kFloat32:
      return Reduce<float>(reduction, ins, range, outs);
    case DType::kFloat64:
      return Reduce<double>(reduction, ins, range, outs);
    case DType::kComplex64:
      return Reduce<complex64>(reduction, ins, range, outs);
    case DType::kComplex128:
      return Reduce<complex128>(reduction, ins, range, outs);
    case DType::kString:  // Exchange::Check refuses it
      break;
  }
  throw InternalError("an unknown element type");
}

}  // namespace coracle::inline internal
