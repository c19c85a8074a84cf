#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/kernels/gemm.h>
#include <coracle/operators/quantize/byte_products.h>
#include <coracle/operators/quantize/quantized.h>
#include <coracle/operators/quantize/quantized_matmul_simd.h>

#include <algorithm>
#include <cstring>
#include <string>

#ifdef CORACLE_ONEDNN
#include <coracle/operators/kernels/onednn.h>
#include <coracle/operators/kernels/onednn_scope.h>
#endif

namespace coracle::inline internal {
namespace {

constexpr int64_t kPackedLine = 64;
int64_t WholeLines(int64_t bytes) { return (bytes + kPackedLine - 1) / kPackedLine * kPackedLine; }
int64_t BytesOfSums(int64_t n) {
  return (n + kSumsPadding) * static_cast<int64_t>(sizeof(int32_t));
}

}  // namespace

void ConvertFactor(const ByteFactor& f, bool in_floats, const uint8_t* b, void* to, int32_t* sums) {
  if (!f.transposed) {
    SumColumns(b, f.k, f.n, f.flipped, sums);
    if (in_floats) SignedBytesToFloats(b, static_cast<float*>(to), f.k * f.n, f.flipped);
  } else {
    for (int64_t j = 0; j < f.n; ++j) {
      const uint8_t* column = b + j * f.k;
      sums[j] = static_cast<int32_t>(SumBytes(column, f.k, !f.flipped) - 128 * f.k);
      for (int64_t r = 0; in_floats && r < f.k; ++r) {
        const int32_t x = f.flipped ? column[r] - 128 : static_cast<int8_t>(column[r]);
        static_cast<float*>(to)[r * f.n + j] = static_cast<float>(x);
      }
    }
  }
  if (!in_floats && f.flipped) FlipBytes(b, static_cast<uint8_t*>(to), f.k * f.n);
}

// What copies of the products share.
struct ByteProducts::State {
  ByteFactor factor;
  int64_t rows = 0, parts = 1;
  std::vector<Panel> panels;
  bool in_floats = true;
  // Of each part: floats of A, and of C.
  std::vector<TensorArg> a_floats, c_floats;
#ifdef CORACLE_ONEDNN
  struct Shape {
    dnnl::memory::desc a, b, c, scratchpad;
    dnnl::matmul primitive;
  };
  // Of panel p, with all rows of a block or those of the last one.
  std::vector<Shape> whole, last;
  std::vector<onednn::Call> calls;  // [part, panel, whole or last]
  std::vector<int64_t> offsets;     // of the panels in the packed B
  std::vector<TensorArg> scratchpads;
  int64_t scratch_bytes = 1;
#endif
  int64_t packed_bytes = 0;  // without the sums

  void UseFloats() {
    in_floats = true;
    panels = {{0, factor.n}};
    packed_bytes = WholeLines(factor.k * factor.n * static_cast<int64_t>(sizeof(float)));
  }
  // Elements between two columns of the stored matrix.
  int64_t ColumnStep() const { return factor.transposed ? factor.k : 1; }
  void Pack(const int8_t* stored, int8_t* packed) const;
  void Unpack(const int8_t* packed, int8_t* stored) const;
};

#ifdef CORACLE_ONEDNN
namespace {

using dnnl::memory;

memory::desc PlainFactor(const ByteFactor& f, int64_t columns) {
  const memory::dims strides = f.transposed ? memory::dims{1, f.k} : memory::dims{f.n, 1};
  return {{f.k, columns}, memory::data_type::s8, strides};
}

}  // namespace
#endif

ByteProducts::ByteProducts(const ByteFactor& factor, int64_t rows, int64_t last_rows,
                           int64_t panels, int64_t parts, bool packed)
    : state_(std::make_shared<State>()) {
  State& s = *state_;
  s.factor = factor;
  s.rows = rows;
  s.parts = parts;
  s.in_floats = !ExactIntegerProducts();
#ifdef CORACLE_ONEDNN
  constexpr int64_t kUnit = 64;
  const int64_t units = (factor.n + kUnit - 1) / kUnit;
  try {
    const onednn::Scope inside;
    const auto make = [&](int64_t height, int64_t columns, const memory::desc& b) {
      State::Shape shape;
      shape.a = {{height, factor.k}, memory::data_type::u8, memory::dims{factor.k, 1}};
      shape.c = {{height, columns}, memory::data_type::s32, memory::dims{columns, 1}};
      dnnl::primitive_attr attr;
      attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
      const dnnl::matmul::primitive_desc pd({shape.a, b, shape.c}, attr, onednn::Engine());
      if (std::strstr(pd.impl_info_str(), "ref"))
        throw dnnl::error(dnnl_unimplemented, "no fast product of bytes");
      shape.b = pd.weights_desc();
      shape.scratchpad = pd.scratchpad_desc();
      shape.primitive = dnnl::matmul(pd);
      s.scratch_bytes =
          std::max(s.scratch_bytes, static_cast<int64_t>(shape.scratchpad.get_size()));
      return shape;
    };
    for (int64_t i = 0; i < panels && !s.in_floats; ++i) {
      const int64_t begin = units * i / panels * kUnit;
      const int64_t end = std::min(factor.n, units * (i + 1) / panels * kUnit);
      s.panels.push_back({begin, end - begin});
      const memory::desc any({factor.k, end - begin}, memory::data_type::s8,
                             memory::format_tag::any);
      s.whole.push_back(make(rows, end - begin, packed ? any : PlainFactor(factor, end - begin)));
      const memory::desc b = s.whole.back().b;
      s.last.push_back(last_rows == rows ? s.whole.back() : make(last_rows, end - begin, b));
      s.offsets.push_back(s.packed_bytes);
      s.packed_bytes += WholeLines(static_cast<int64_t>(b.get_size()));
    }
  } catch (const dnnl::error&) {
    s.in_floats = true;
  }
  for (int64_t part = 0; part < parts && !s.in_floats; ++part) {
    for (size_t i = 0; i < s.panels.size(); ++i) {
      for (const State::Shape* shape : {&s.whole[i], &s.last[i]}) {
        onednn::Call call(shape->primitive);
        call.Arg(DNNL_ARG_SRC, shape->a).Arg(DNNL_ARG_WEIGHTS, shape->b);
        call.Arg(DNNL_ARG_DST, shape->c).Arg(DNNL_ARG_SCRATCHPAD, shape->scratchpad);
        s.calls.push_back(call);
      }
    }
  }
#else
  s.in_floats = true;
#endif
  if (s.in_floats) s.UseFloats();
}

const std::vector<ByteProducts::Panel>& ByteProducts::panels() const { return state_->panels; }
bool ByteProducts::in_floats() const { return state_->in_floats; }

const int32_t* ByteProducts::ColumnSums(const Tensor& packed) const {
  return reinterpret_cast<const int32_t*>(packed.data<int8_t>() + state_->packed_bytes);
}

// Fills the packed elements without their sums from the stored int8 matrix.
void ByteProducts::State::Pack(const int8_t* stored, int8_t* packed) const {
#ifdef CORACLE_ONEDNN
  for (size_t i = 0; i < panels.size(); ++i) {
    const onednn::Scope inside;
    onednn::Translate("packing a matrix", [&] {
      onednn::Reorder(PlainFactor(factor, panels[i].columns), whole[i].b)
          .Run(stored + panels[i].column * ColumnStep(), packed + offsets[i]);
    });
  }
#endif
}

// The inverse. Converts from float32 as well.
void ByteProducts::State::Unpack(const int8_t* packed, int8_t* stored) const {
  const ByteFactor& f = factor;
  if (in_floats) {
    const auto* reals = reinterpret_cast<const float*>(packed);
    for (int64_t i = 0; i < f.k * f.n; ++i)
      stored[f.transposed ? i % f.n * f.k + i / f.n : i] = static_cast<int8_t>(reals[i]);
    return;
  }
#ifdef CORACLE_ONEDNN
  for (size_t i = 0; i < panels.size(); ++i) {
    const onednn::Scope inside;
    onednn::Translate("unpacking a matrix", [&] {
      onednn::Reorder(whole[i].b, PlainFactor(factor, panels[i].columns))
          .Run(packed + offsets[i], stored + panels[i].column * ColumnStep());
    });
  }
#endif
}

PackedLayout ByteProducts::Layout(DType dtype, const Shape& shape) const {
  const State& s = *state_;
  PackedLayout layout;
  layout.id = s.in_floats ? "bytes as floats " : "onednn bytes ";
  layout.id += s.factor.flipped ? "flipped " : "";
  layout.id += s.factor.transposed ? "transposed " : "";
#ifdef CORACLE_ONEDNN
  for (size_t i = 0; i < s.whole.size() && !s.in_floats; ++i) {
    layout.id.append(reinterpret_cast<const char*>(&s.panels[i]), sizeof s.panels[i]);
    layout.id.append(reinterpret_cast<const char*>(&s.whole[i].b.data), sizeof s.whole[i].b.data);
  }
#endif
  layout.pack = [state = state_](const Tensor& plain) {
    const ByteFactor& f = state->factor;
    Tensor packed = Tensor::Zeros(DType::kInt8, {state->packed_bytes + BytesOfSums(f.n)});
    auto* to = packed.data<int8_t>();
    auto* sums = reinterpret_cast<int32_t*>(to + state->packed_bytes);
    const auto* from = static_cast<const uint8_t*>(plain.raw());
    if (state->in_floats) {
      ConvertFactor(f, true, from, to, sums);
      return packed;
    }
    Tensor flipped;
    if (f.flipped) flipped = Tensor(DType::kInt8, {f.k * f.n});
    ConvertFactor(f, false, from, flipped.raw(), sums);
    state->Pack(reinterpret_cast<const int8_t*>(f.flipped ? flipped.raw() : from), to);
    return packed;
  };
  layout.unpack = [state = state_, dtype, shape](const Tensor& packed) {
    Tensor plain(dtype, shape);
    auto* to = static_cast<uint8_t*>(plain.raw());
    state->Unpack(packed.data<int8_t>(), reinterpret_cast<int8_t*>(to));
    if (state->factor.flipped) FlipBytes(to, to, plain.numel());
    return plain;
  };
  return layout;
}

void ByteProducts::ReserveScratch(const PrepareContext& ctx) {
  State& s = *state_;
  for (int64_t part = 0; part < s.parts; ++part) {
    if (s.in_floats) {
      const int64_t steps = std::min(kFloatSteps, s.factor.k);
      s.a_floats.push_back(ctx.Scratch(DType::kFloat32, {CheckedMul(s.rows, steps)}));
      s.c_floats.push_back(ctx.Scratch(DType::kFloat32, {CheckedMul(s.rows, s.factor.n)}));
      continue;
    }
#ifdef CORACLE_ONEDNN
    s.scratchpads.push_back(ctx.Scratch(DType::kUInt8, {s.scratch_bytes}));
#endif
  }
}

void ByteProducts::Run(Workspace& ws, int64_t part, int64_t panel, int64_t rows, const uint8_t* a,
                       const void* b, int32_t* sums) const {
  const State& s = *state_;
  const int64_t k = s.factor.k, n = s.factor.n;
  const auto at = static_cast<size_t>(part);
  if (s.in_floats) {
    float *a_part = ws.Data<float>(s.a_floats[at]), *c = ws.Data<float>(s.c_floats[at]);
    std::fill_n(sums, rows * n, 0);
    for (int64_t step = 0; step < k; step += kFloatSteps) {
      const int64_t steps = std::min(kFloatSteps, k - step);
      for (int64_t i = 0; i < rows; ++i) BytesToFloats(a + i * k + step, a_part + i * steps, steps);
      RunGemm<float>({.m = rows, .n = n, .k = steps}, KernelMode::kAuto, a_part,
                     static_cast<const float*>(b) + step * n, c);
      AddIntegers(c, rows * n, sums);
    }
    return;
  }
#ifdef CORACLE_ONEDNN
  const auto p = static_cast<size_t>(panel);
  const auto* from = static_cast<const int8_t*>(b);
  const bool is_plain = s.whole[p].b == PlainFactor(s.factor, s.panels[p].columns);
  from += is_plain ? s.panels[p].column * s.ColumnStep() : s.offsets[p];
  const size_t call = 2 * (at * s.panels.size() + p) + (rows == s.rows ? 0 : 1);
  s.calls[call].Run({a, from, sums, ws.Data<const uint8_t>(s.scratchpads[at])});
#endif
}

}  // namespace coracle::inline internal
