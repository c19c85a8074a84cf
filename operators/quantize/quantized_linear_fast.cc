// The fast kernel of quantized_linear. Few rows are multiplied by the integers, which become floats
// in registers; for many rows, some columns of the weight become floats in a buffer, and a product
// of floats follows.

#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/kernel/forwarding_args.h>
#include <coracle/operators/kernels/gemm.h>
#include <coracle/operators/kernels/gemm_packed.h>
#include <coracle/operators/quantize/quantized_linear.h>
#include <coracle/operators/quantize/quantized_linear_simd.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace coracle::quantized_linear_fast {
namespace {

// A plan for many rows keeps the weight as floats if it has at most so many numbers. A larger
// weight stays in integers: for many rows, columns of it become floats in a buffer.
constexpr int64_t kMostFloats = int64_t{1} << 22;
constexpr int64_t kBufferFloats = int64_t{1} << 20;

// The most rows that are multiplied by the integers, by measurements on AVX-512.
int64_t MostFusedRows(const QuantizedLayer& p) {
  const int64_t numbers = CheckedMul(p.k, p.n);
  return numbers > kMostFloats ? 48 : numbers > kMostFloats / 4 ? 8 : 4;
}

// What packing needs to know of an op.
struct PanelForm {
  LinearPanels panels;  // without pointers
  int64_t n = 0;
  bool is_signed = false;

  explicit PanelForm(const QuantizedLayer& p) : n(p.n), is_signed(p.IsSigned()) {
    panels.k = p.k;
    panels.block = p.block;
    panels.blocks = p.blocks;
    panels.bits = p.bits;
    panels.is_signed = is_signed;
  }
  int64_t count() const { return (n + kPanelColumns - 1) / kPanelColumns; }
  int64_t Steps() const { return CheckedMul(count(), panels.blocks * kPanelColumns); }
  int64_t Bytes() const { return CheckedMul(count(), panels.PanelBytes()); }
  // Signed numbers of 4 bits are stored plus this, and so are their zero points.
  int32_t Added() const { return panels.bits == 4 && is_signed ? 8 : 0; }
  std::string Id(const char* what) const {
    return fmt::format("quantized_linear {} {} {} {} {} {}", what, n, panels.k, panels.block,
                       panels.bits, is_signed);
  }
};

void PackWeight(const PanelForm& form, const uint8_t* from, uint8_t* to) {
  const LinearPanels& p = form.panels;
  const int64_t row_bytes = PackedBytes(p.k, p.bits), group_bytes = p.GroupBytes();
  std::fill_n(to, form.Bytes(), uint8_t{0});
  ParallelFor(form.count(), 1 + 65536 / (1 + p.k), [&](int64_t begin, int64_t end) {
    for (int64_t j = begin * kPanelColumns; j < std::min(form.n, end * kPanelColumns); ++j) {
      const PackedRow row{from + j * row_bytes, p.bits, form.is_signed};
      uint8_t* panel = to + j / kPanelColumns * p.PanelBytes();
      const int64_t column = j % kPanelColumns;
      for (int64_t i = 0; i < p.k; ++i) {
        uint8_t* group = panel + p.GroupAt(i) * group_bytes;
        const int64_t at = LinearPanels::Rest(i, p.block);
        const auto q = static_cast<uint8_t>(row.At(i) + form.Added());
        if (p.bits == 8)
          group[at * kPanelColumns + column] = q;
        else
          group[column * 4 + at / 2] |= static_cast<uint8_t>(q << at % 2 * 4);
      }
    }
  });
}

// Writes steps[panel][block][column] = get(row, block).
template <class T, class Get>
void PackSteps(const PanelForm& form, const Get& get, T* to) {
  std::fill_n(to, form.Steps(), T(0));
  for (int64_t j = 0; j < form.n; ++j) {
    for (int64_t b = 0; b < form.panels.blocks; ++b) {
      const int64_t at = j / kPanelColumns * form.panels.blocks + b;
      to[at * kPanelColumns + j % kPanelColumns] = get(j, b);
    }
  }
}

// How an input becomes what the loops read.
struct Packing {
  DType dtype;
  int64_t numel;
  std::function<void(const void* from, void* to)> pack;
};

// An input in its packed form: packed once if it is constant, or in each run.
class PackedInput {
 public:
  PackedInput() = default;
  PackedInput(const PrepareContext& ctx, const char* slot, const std::string& id, Packing packing)
      : packing_(std::move(packing)) {
    const auto pack = [p = packing_](const Tensor& plain) {
      Tensor packed(p.dtype, {p.numel});
      if (p.numel > 0) p.pack(plain.raw(), packed.raw());
      return packed;
    };
    constant_ = ctx.Packed(slot, {id, pack});
    if (constant_) return;
    from_ = ctx.Input(slot);
    scratch_ = ctx.Scratch(packing_.dtype, {packing_.numel});
  }
  template <class T>
  const T* Get(Workspace& ws) const {
    if (packing_.numel == 0) return nullptr;
    if (constant_) return static_cast<const T*>(constant_->raw());
    packing_.pack(ws.Data<const void>(from_), ws.Data<void>(scratch_));
    return ws.Data<const T>(scratch_);
  }

 private:
  Packing packing_;
  std::shared_ptr<const Tensor> constant_;
  TensorArg from_, scratch_;
};

Packing WeightPacking(const PanelForm& form) {
  return {DType::kUInt8, form.Bytes(), [form](const void* from, void* to) {
            PackWeight(form, static_cast<const uint8_t*>(from), static_cast<uint8_t*>(to));
          }};
}
Packing ScalePacking(const QuantizedLayer& p, const PanelForm& form) {
  return {DType::kFloat32, form.Steps(), [p, form](const void* from, void* to) {
            const auto get = [&](int64_t j, int64_t b) {
              return static_cast<const float*>(from)[p.StepAt(p.scale, j, b)];
            };
            PackSteps(form, get, static_cast<float*>(to));
          }};
}
Packing ZeroPacking(const QuantizedLayer& p, const PanelForm& form) {
  return {DType::kInt16, form.Steps(), [p, form](const void* from, void* to) {
            const auto get = [&](int64_t j, int64_t b) {
              return static_cast<int16_t>(IntegerAt(p.zero.dtype, from, p.StepAt(p.zero, j, b)) +
                                          form.Added());
            };
            PackSteps(form, get, static_cast<int16_t*>(to));
          }};
}

// The zero point that all numbers share, if it is known.
std::optional<int32_t> OneZero(const PrepareContext& ctx, const QuantizedLayer& p) {
  if (!p.zero) return 0;
  const auto zeros = ConstantZeroPoints(ctx, "ZeroPoint");
  if (!zeros || zeros->empty()) return std::nullopt;
  const bool equal =
      std::all_of(zeros->begin(), zeros->end(), [&](int32_t z) { return z == zeros->front(); });
  return equal ? std::optional(zeros->front()) : std::nullopt;
}

// The op's args with the weight as floats [k, n], in whatever layout a kernel asks for.
class FloatWeightArgs : public ForwardingArgs {
 public:
  FloatWeightArgs(const PrepareContext& ctx, const QuantizedLayer& p, const Tensor& scale,
                  const Tensor* zero)
      : ForwardingArgs(ctx.args()), p_(p), weight_(ctx.op().Input("Weight")[0]), scale_(scale) {
    if (zero) zero_ = *zero;
    id_ = fmt::format("quantized_linear in float {} {} {} {} ", p.k, p.block, p.bits,
                      ctx.op().Input("Scale")[0]);
    if (zero) id_ += ctx.op().Input("ZeroPoint")[0];
  }
  std::shared_ptr<const Tensor> Packed(const std::string& name,
                                       const PackedLayout& layout) override {
    if (name != weight_) return ForwardingArgs::Packed(name, layout);
    const auto pack = [p = p_, scale = scale_, zero = zero_, layout](const Tensor& plain) {
      return layout.pack(InFloat(p, plain, scale, zero));
    };
    return ForwardingArgs::Packed(name, {id_ + layout.id, pack});
  }

 private:
  static Tensor InFloat(const QuantizedLayer& p, const Tensor& plain, const Tensor& scale,
                        const Tensor& zero) {
    Tensor made(DType::kFloat32, {p.k, p.n});
    const int64_t bytes = PackedBytes(p.k, p.bits);
    for (int64_t j = 0; j < p.n; ++j) {
      const PackedRow row{static_cast<const uint8_t*>(plain.raw()) + j * bytes, p.bits,
                          p.IsSigned()};
      for (int64_t i = 0; i < p.k; ++i) {
        const int64_t b = i / p.block;
        const int32_t z = p.zero ? IntegerAt(zero.dtype(), zero.raw(), p.StepAt(p.zero, j, b)) : 0;
        made.data<float>()[i * p.n + j] =
            static_cast<float>(row.At(i) - z) * scale.data<float>()[p.StepAt(p.scale, j, b)];
      }
    }
    return made;
  }

  QuantizedLayer p_;
  std::string weight_, id_;
  Tensor scale_, zero_;
};

// Whether every weight, an integer times its scale, is finite in float32.
bool AreModerate(const Tensor& scales) {
  const auto* s = scales.data<float>();
  return std::all_of(s, s + scales.numel(), [](float x) { return !(std::abs(x) > 1e35f); });
}

// Many rows and a weight that is small also as floats: the product of floats, for which the plan
// keeps them. Empty if the weight may change, or is large.
Kernel FloatLayer(const PrepareContext& ctx, const QuantizedLayer& p) {
  if (p.m <= MostFusedRows(p) || CheckedMul(p.k, p.n) > kMostFloats) return {};
  const Tensor *scale = ctx.Constant("Scale"), *zero = ctx.Constant("ZeroPoint");
  if (!scale || (p.zero && !zero) || !AreModerate(*scale)) return {};
  FloatWeightArgs args(ctx, p, *scale, zero);
  const PrepareContext in_float(ctx, args);
  const GemmSpec spec{.m = p.m, .n = p.n, .k = p.k};
  PackedGemm gemm = MakePackedGemm(in_float, "Weight", spec, {}, static_cast<bool>(p.bias));
  if (!gemm) {
    const PackedLayout plain{"plain", [](const Tensor& weight) { return weight; }};
    const std::shared_ptr<const Tensor> weight = in_float.Packed("Weight", plain);
    if (!weight) return {};
    gemm = [spec, weight](Workspace&, const float* a, const float* bias, float* c) {
      RunGemms({{spec, a, weight->data<float>(), c, {.bias = bias}}});
    };
  }
  return [p, gemm](Workspace& ws) {
    float* out = ws.Data<float>(p.out);
    gemm(ws, ws.Data<const float>(p.x), p.bias ? ws.Data<const float>(p.bias) : nullptr, out);
    if (!p.activation) return;
    ParallelFor(p.out.numel, 32768, [&](int64_t begin, int64_t end) {
      p.activation.ApplyFast(out + begin, end - begin);
    });
  };
}

class FastLayer {
 public:
  FastLayer(const PrepareContext& ctx, const QuantizedLayer& p) : p_(p), form_(p) {
    const std::optional<int32_t> zero = OneZero(ctx, p);
    if (zero)
      form_.panels.zero = static_cast<float>(*zero + form_.Added());
    else
      zeros_ = PackedInput(ctx, "ZeroPoint", form_.Id("zeros"), ZeroPacking(p, form_));
    has_zeros_ = !zero;
    weight_ = PackedInput(ctx, "Weight", form_.Id("weight"), WeightPacking(form_));
    scales_ = PackedInput(ctx, "Scale", form_.Id("scales"), ScalePacking(p, form_));
    if (p.m <= MostFusedRows(p)) return;
    const int64_t fitting = std::max<int64_t>(kBufferFloats / p.k / kPanelColumns, 1);
    columns_ = std::min(p.n, fitting * kPanelColumns);
    buffer_ = ctx.Scratch(DType::kFloat32, {CheckedMul(p.k, columns_)});
    if (columns_ < p.n) sums_ = ctx.Scratch(DType::kFloat32, {CheckedMul(p.m, columns_)});
  }

  void Run(Workspace& ws) const {
    LinearPanels panels = form_.panels;
    panels.weights = weight_.Get<uint8_t>(ws);
    panels.scales = scales_.Get<float>(ws);
    if (has_zeros_) panels.zeros = zeros_.Get<int16_t>(ws);
    if (columns_ > 0) return RunInFloat(ws, panels);
    const int64_t cost = CheckedMul(p_.m, p_.k) * kPanelColumns;
    ParallelFor(form_.count(), 1 + 65536 / cost,
                [&](int64_t begin, int64_t end) { RunPanels(ws, panels, begin, end); });
  }

 private:
  void RunPanels(Workspace& ws, const LinearPanels& panels, int64_t begin, int64_t end) const {
    const auto* x = ws.Data<const float>(p_.x);
    float* out = ws.Data<float>(p_.out);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i * kPanelColumns, columns = std::min(kPanelColumns, p_.n - first);
      for (int64_t row = 0; row < p_.m; row += kPanelRows) {
        MultiplyPanel(panels, i, x + row * p_.k, p_.k, std::min(kPanelRows, p_.m - row),
                      out + row * p_.n + first, p_.n, columns);
      }
    }
    const int64_t first = begin * kPanelColumns,
                  columns = std::min(end * kPanelColumns, p_.n) - first;
    for (int64_t row = 0; row < p_.m; ++row) {
      float* to = out + row * p_.n + first;
      MendOverflow(panels, x + row * p_.k, first, columns, to);
      Finish(ws, first, columns, to);
    }
  }

  // Computes results again that are not finite: partial sums may have been too large.
  void MendOverflow(const LinearPanels& panels, const float* x, int64_t first, int64_t columns,
                    float* out) const {
    bool finite = true;
    for (int64_t j = 0; j < columns; ++j) finite = finite & (std::abs(out[j]) <= 3.402823466e38f);
    if (finite) return;
    for (int64_t j = 0; j < columns; ++j)
      if (!std::isfinite(out[j])) out[j] = static_cast<float>(ExactSum(panels, x, first + j));
  }

  double ExactSum(const LinearPanels& panels, const float* x, int64_t j) const {
    const int64_t panel = j / kPanelColumns, column = j % kPanelColumns;
    const uint8_t* weights = panels.weights + panel * panels.PanelBytes();
    double sum = 0;
    for (int64_t i = 0; i < p_.k; ++i) {
      const uint8_t* group = weights + panels.GroupAt(i) * panels.GroupBytes();
      const int64_t at = LinearPanels::Rest(i, panels.block);
      int32_t q = 0;
      if (panels.bits == 4)
        q = group[column * 4 + at / 2] >> at % 2 * 4 & 15;
      else if (panels.is_signed)
        q = static_cast<int8_t>(group[at * kPanelColumns + column]);
      else
        q = group[at * kPanelColumns + column];
      const int64_t step = (panel * panels.blocks + i / panels.block) * kPanelColumns + column;
      const double zero = panels.zeros ? panels.zeros[step] : static_cast<double>(panels.zero);
      sum += static_cast<double>(x[i]) * ((q - zero) * static_cast<double>(panels.scales[step]));
    }
    return sum;
  }

  void Finish(Workspace& ws, int64_t first, int64_t columns, float* out) const {
    if (p_.bias) {
      const float* bias = ws.Data<const float>(p_.bias) + first;
      for (int64_t j = 0; j < columns; ++j) out[j] += bias[j];
    }
    if (p_.activation) p_.activation.ApplyFast(out, columns);
  }

  void RunInFloat(Workspace& ws, const LinearPanels& panels) const {
    const auto* x = ws.Data<const float>(p_.x);
    float *out = ws.Data<float>(p_.out), *buffer = ws.Data<float>(buffer_);
    for (int64_t first = 0; first < p_.n; first += columns_) {
      const int64_t columns = std::min(columns_, p_.n - first);
      const int64_t count = (columns + kPanelColumns - 1) / kPanelColumns;
      ParallelFor(count, 1 + 16384 / (p_.k * kPanelColumns), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t at = i * kPanelColumns;
          DequantizePanel(panels, first / kPanelColumns + i, buffer + at, columns,
                          std::min(kPanelColumns, columns - at));
        }
      });
      float* sums = sums_ ? ws.Data<float>(sums_) : out;
      RunGemm({.m = p_.m, .n = columns, .k = p_.k}, KernelMode::kAuto, x, buffer, sums);
      ParallelFor(p_.m, 1 + 16384 / columns, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          float* to = out + row * p_.n + first;
          if (sums_) std::copy_n(sums + row * columns, columns, to);
          MendOverflow(panels, x + row * p_.k, first, columns, to);
          Finish(ws, first, columns, to);
        }
      });
    }
  }

  QuantizedLayer p_;
  PanelForm form_;
  PackedInput weight_, scales_, zeros_;
  bool has_zeros_ = false;
  int64_t columns_ = 0;  // of the weight that the buffer holds; 0: there is none
  TensorArg buffer_, sums_;
};

}  // namespace
}  // namespace coracle::quantized_linear_fast

namespace coracle::inline internal {

Kernel QuantizedLinearFast(const PrepareContext& ctx) {
  const QuantizedLayer p(ctx);
  if (p.x.dtype != DType::kFloat32 || p.out.numel == 0 || p.k == 0) return {};
  if (Kernel kernel = quantized_linear_fast::FloatLayer(ctx, p)) return kernel;
  const auto layer = std::make_shared<const quantized_linear_fast::FastLayer>(ctx, p);
  return [layer](Workspace& ws) { layer->Run(ws); };
}

}  // namespace coracle::inline internal
