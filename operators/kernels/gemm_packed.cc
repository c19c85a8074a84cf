#include <coracle/operators/kernels/gemm_packed.h>

#ifdef CORACLE_ONEDNN
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/kernels/bfloat16_products.h>
#include <coracle/operators/kernels/onednn.h>
#include <coracle/operators/kernels/onednn_scope.h>
#include <coracle/operators/kernels/window_products.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>
#endif

namespace coracle::inline internal {

#ifdef CORACLE_ONEDNN
namespace {

using dnnl::memory;

// T: float or bfloat16.
template <class T>
constexpr auto kType = sizeof(T) == sizeof(float) ? memory::data_type::f32
                                                  : memory::data_type::bf16;
template <class T>
constexpr DType kDType = sizeof(T) == sizeof(float) ? DType::kFloat32 : DType::kBFloat16;

template <class T>
memory::desc Matrix(int64_t rows, int64_t columns, int64_t stride) {
  return {{rows, columns}, kType<T>, memory::dims{stride, 1}};
}
int64_t FloatsOf(const memory::desc& desc) {
  constexpr size_t kLine = 64;
  return static_cast<int64_t>((desc.get_size() + kLine - 1) / kLine * kLine / sizeof(float));
}

// Some columns of B, in a layout of their own.
struct Panel {
  int64_t column, columns, offset;  // offset among the packed numbers
  memory::desc desc;
};

// A block of C: some rows of the columns of a panel.
struct Block {
  onednn::Call call;
  int64_t row, rows;
  size_t panel;
  TensorArg scratchpad;
  TensorArg rows_in_halves;  // of A, for B of bfloat16
};

// Shared by blocks of one shape. A and B have elements T, C has floats.
template <class T>
class Product {
 public:
  Product() = default;
  Product(const GemmSpec& s, int64_t rows, int64_t columns, const memory::desc& b, bool with_bias)
      : a_(Matrix<T>(rows, s.k, s.k)), c_(Matrix<float>(rows, columns, s.n)) {
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (with_bias) bias_ = Matrix<float>(1, columns, columns);
    const dnnl::matmul::desc desc =
        with_bias ? dnnl::matmul::desc(a_, b, bias_, c_) : dnnl::matmul::desc(a_, b, c_);
    pd_ = dnnl::matmul::primitive_desc(desc, attr, onednn::Engine());
    if (std::strstr(pd_.impl_info_str(), "brg") == nullptr)
      throw dnnl::error(dnnl_unimplemented, "no fast product with this layout");
    primitive_ = dnnl::matmul(pd_);
    with_bias_ = with_bias;
  }
  explicit operator bool() const { return static_cast<bool>(primitive_); }

  memory::desc weight() const { return pd_.weights_desc(); }
  int64_t ScratchFloats() const { return FloatsOf(pd_.scratchpad_desc()); }
  // A call with the arguments A, B, C, scratch memory, and the bias if there is one. A second
  // thread running the same call would create memory objects each time, so each block has its
  // own call.
  onednn::Call MakeCall() const {
    onednn::Call call(primitive_);
    call.Arg(DNNL_ARG_SRC, a_).Arg(DNNL_ARG_WEIGHTS, weight()).Arg(DNNL_ARG_DST, c_);
    call.Arg(DNNL_ARG_SCRATCHPAD, pd_.scratchpad_desc());
    if (with_bias_) call.Arg(DNNL_ARG_BIAS, bias_);
    return call;
  }

 private:
  memory::desc a_, c_, bias_;
  dnnl::matmul::primitive_desc pd_;
  dnnl::matmul primitive_;
  bool with_bias_ = false;
};

template <class T>
memory::desc AnyLayout(int64_t rows, int64_t columns) {
  return {{rows, columns}, kType<T>, memory::format_tag::any};
}

// B has elements T.
template <class T>
class PackedProduct {
 public:
  // Throws dnnl::error if oneDNN cannot compute all blocks in the same way.
  PackedProduct(const GemmSpec& spec, const GemmFinish& finish, bool with_bias)
      : spec_(spec), finish_(finish), with_bias_(with_bias) {
    const onednn::Scope inside;
    const double products = static_cast<double>(spec.m) * static_cast<double>(spec.n * spec.k);
    const auto threads = static_cast<int64_t>(std::min<double>(NumThreads(), 1 + products / 300e3));
    // With few rows, threads share the columns. With many rows, blocks stay in the cache until they
    // are finished.
    constexpr int64_t kUnit = 64, kBlockFloats = 65536;
    const int64_t units = (spec.n + kUnit - 1) / kUnit;
    const int64_t panels = spec.m < 16 * threads ? std::min(threads, units) : 1;
    for (int64_t i = 0; i < panels; ++i) {
      const int64_t begin = units * i / panels * kUnit;
      const int64_t end = std::min(spec.n, units * (i + 1) / panels * kUnit);
      panels_.push_back({begin, end - begin, packed_size_, {}});
      AddBlocks(threads / panels, kBlockFloats);
      packed_size_ += FloatsOf(panels_.back().desc) * kPerFloat;
    }
  }

  // Whether the packed layout pays.
  bool IsPacked() const {
    bool same = true;
    for (const Panel& p : panels_) same = same && p.desc == Plain(p);
    return !same && packed_size_ <= spec_.k * spec_.n / 2 * 3 + 16384;
  }

  PackedLayout Layout() const {
    PackedLayout layout{"onednn matmul ", {}, {}};
    for (const Panel& p : panels_) {
      layout.id.append(reinterpret_cast<const char*>(&p.column), sizeof p.column);
      layout.id.append(reinterpret_cast<const char*>(&p.desc.data), sizeof p.desc.data);
    }
    layout.pack = [panels = panels_, n = spec_.n, size = packed_size_](const Tensor& plain) {
      Tensor packed(kDType<T>, {size});
      for (const Panel& p : panels)
        Reorder(Matrix<T>(plain.shape()[0], p.columns, n), p.desc, plain.data<T>() + p.column,
                packed.data<T>() + p.offset);
      return packed;
    };
    layout.unpack = [panels = panels_, n = spec_.n, k = spec_.k](const Tensor& packed) {
      Tensor plain(kDType<T>, {k, n});
      for (const Panel& p : panels)
        Reorder(p.desc, Matrix<T>(k, p.columns, n), packed.data<T>() + p.offset,
                plain.data<T>() + p.column);
      return plain;
    };
    return layout;
  }

  void ReserveScratch(const PrepareContext& ctx) {
    for (Block& block : blocks_) {
      block.scratchpad = ctx.Scratch(DType::kFloat32, {scratch_floats_});
      if (kPerFloat > 1) block.rows_in_halves = ctx.Scratch(kDType<T>, {block_rows_, spec_.k});
    }
  }

  void Run(Workspace& ws, const float* a, const T* b, const float* bias, float* c) const {
    ParallelFor(static_cast<int64_t>(blocks_.size()), 1, [&](int64_t begin, int64_t end) {
      // They run one after the other, so they can share scratch memory.
      const Block& first = blocks_[static_cast<size_t>(begin)];
      const float* pad = ws.Data<const float>(first.scratchpad);
      for (int64_t i = begin; i < end; ++i) {
        const Block& block = blocks_[static_cast<size_t>(i)];
        const Panel& panel = panels_[block.panel];
        float* to = c + block.row * spec_.n + panel.column;
        const T* from = Rows(ws, a + block.row * spec_.k, block.rows, first);
        const T* w = b + panel.offset;
        if (with_bias_)
          block.call.Run({from, w, to, pad, bias + panel.column});
        else
          block.call.Run({from, w, to, pad});
        for (int64_t r = 0; finish_.activation && r < block.rows; ++r)
          finish_.activation(to + r * spec_.n, to + r * spec_.n, panel.columns, finish_.params);
      }
    });
  }

 private:
  static constexpr int64_t kPerFloat = sizeof(float) / sizeof(T);

  // Rows of A as the products read them.
  const T* Rows(Workspace& ws, const float* a, int64_t rows, const Block& scratch) const {
    if constexpr (kPerFloat == 1) {
      return a;
    } else {
      T* halves = ws.Data<T>(scratch.rows_in_halves);
      ConvertArray(a, halves, rows * spec_.k);
      return halves;
    }
  }
  static void Reorder(const memory::desc& from, const memory::desc& to, const T* source,
                      T* target) {
    const onednn::Scope inside;
    onednn::Translate("reorder", [&] { onednn::Reorder(from, to).Run(source, target); });
  }
  memory::desc Plain(const Panel& p) const { return Matrix<T>(spec_.k, p.columns, spec_.n); }

  // The blocks of the last panel, at least one for each of its threads.
  void AddBlocks(int64_t threads, int64_t floats) {
    Panel& panel = panels_.back();
    constexpr int64_t kRows = 16;
    const int64_t units = (spec_.m + kRows - 1) / kRows;
    const int64_t wanted = std::max(threads, spec_.m * panel.columns / floats);
    const int64_t size = kRows * ((units + wanted - 1) / std::max<int64_t>(1, wanted));
    block_rows_ = std::min(size, spec_.m);
    Product<T> whole, last;
    for (int64_t row = 0; row < spec_.m; row += size) {
      const int64_t rows = std::min(size, spec_.m - row);
      Product<T>& product = rows == size || row == 0 ? whole : last;
      if (!product) {
        const bool first = row == 0;
        product = Product<T>(spec_, rows, panel.columns,
                             first ? AnyLayout<T>(spec_.k, panel.columns) : panel.desc, with_bias_);
        if (first) panel.desc = product.weight();
        scratch_floats_ = std::max(scratch_floats_, product.ScratchFloats());
      }
      blocks_.push_back({product.MakeCall(), row, rows, panels_.size() - 1, {}, {}});
    }
    constexpr int64_t kMostScratch = int64_t{1} << 20;
    if (static_cast<int64_t>(blocks_.size()) * scratch_floats_ > kMostScratch)
      throw dnnl::error(dnnl_unimplemented, "a product with much scratch memory");
  }

  GemmSpec spec_;
  GemmFinish finish_;
  bool with_bias_;
  std::vector<Panel> panels_;
  std::vector<Block> blocks_;
  int64_t packed_size_ = 0, scratch_floats_ = 1;
  int64_t block_rows_ = 0;  // of all blocks except the last of each panel
};

// Whether the variable is constant. Does not read its elements, which may have been released: it
// requests an empty layout, which is made once.
bool IsConstant(const PrepareContext& ctx, const char* slot) {
  const PackedLayout nothing{"nothing", [](const Tensor&) { return Tensor(DType::kFloat32, {0}); }};
  return ctx.Packed(slot, nothing) != nullptr;
}

// Whether our own panels pay: without AVX-512, oneDNN copies B into panels in each run. Requires
// that the panels are not much larger than B.
bool HasPanels(const GemmSpec& spec) {
  constexpr int64_t kWidest = 16;
  return PackedWindowSize(1, 1) <= kWidest &&
         PackedWindowSize(spec.k, spec.n) <= spec.k * spec.n / 2 * 3 + 16384;
}

PackedLayout PanelLayout(const GemmSpec& spec) {
  const int64_t k = spec.k, n = spec.n, size = PackedWindowSize(k, n);
  PackedLayout layout{"window_products", {}, {}};
  layout.pack = [=](const Tensor& plain) {
    Tensor packed = Tensor::Zeros(DType::kFloat32, {size});
    const float* from = plain.data<float>();
    for (int64_t i = 0; i < k * n; ++i)
      packed.data<float>()[PackedWindowAt(k, i / n, i % n)] = from[i];
    return packed;
  };
  layout.unpack = [=](const Tensor& packed) {
    Tensor plain(DType::kFloat32, {k, n});
    const float* from = packed.data<float>();
    for (int64_t i = 0; i < k * n; ++i)
      plain.data<float>()[i] = from[PackedWindowAt(k, i / n, i % n)];
    return plain;
  };
  return layout;
}

PackedGemm MakePanelGemm(const PrepareContext& ctx, const char* slot, const GemmSpec& spec,
                         const GemmFinish& finish) {
  const std::shared_ptr<const Tensor> packed = ctx.Packed(slot, PanelLayout(spec));
  return [=](Workspace&, const float* a, const float* bias, float* c) {
    WindowProducts products;
    products.in = a;
    products.channels = spec.k;
    products.pixels = spec.m;
    products.columns = spec.n;
    products.filter = packed->data<float>();
    products.bias = bias;
    products.out = c;
    const int64_t units = NumWindowUnits(products);
    const int64_t each = 1 + spec.m * spec.k * spec.n / units;
    ParallelFor(units, 1 + 100000 / each,
                [&](int64_t begin, int64_t end) { RunWindowUnits(products, begin, end); });
    if (!finish.activation) return;
    ParallelFor(spec.m * spec.n, 32768, [&](int64_t begin, int64_t end) {
      finish.activation(c + begin, c + begin, end - begin, finish.params);
    });
  };
}

// Empty if oneDNN has no packed layout.
template <class T>
PackedGemm PackedByOneDnn(const PrepareContext& ctx, const char* slot, const GemmSpec& spec,
                          const GemmFinish& finish, bool with_bias) {
  try {
    PackedProduct<T> product(spec, finish, with_bias);
    if (!product.IsPacked()) return {};
    const std::shared_ptr<const Tensor> packed = ctx.Packed(slot, product.Layout());
    product.ReserveScratch(ctx);
    return [product, packed](Workspace& ws, const float* a, const float* bias, float* c) {
      product.Run(ws, a, packed->data<T>(), bias, c);
    };
  } catch (const dnnl::error&) {
    return {};
  }
}

}  // namespace

PackedGemm MakePackedGemm(const PrepareContext& ctx, const char* slot, const GemmSpec& spec,
                          const GemmFinish& finish, bool with_bias) {
  if (spec.m == 0 || spec.n == 0 || spec.k == 0 || !IsConstant(ctx, slot)) return {};
  if (PackedGemm gemm = PackedByOneDnn<float>(ctx, slot, spec, finish, with_bias)) return gemm;
  if (HasPanels(spec)) return MakePanelGemm(ctx, slot, spec, finish);
  // Declares that the plain elements are read.
  ctx.Input(slot);
  return {};
}

PackedGemm MakePackedHalfGemm(const PrepareContext& ctx, const char* slot, const GemmSpec& spec,
                              const GemmFinish& finish, bool with_bias) {
  if (spec.m == 0 || spec.n == 0 || spec.k == 0 || !BFloat16ProductsPay()) return {};
  if (!IsConstant(ctx, slot)) return {};
  if (PackedGemm gemm = PackedByOneDnn<bfloat16>(ctx, slot, spec, finish, with_bias)) return gemm;
  ctx.Input(slot);
  return {};
}

#else

PackedGemm MakePackedGemm(const PrepareContext&, const char*, const GemmSpec&, const GemmFinish&,
                          bool) {
  return {};
}
PackedGemm MakePackedHalfGemm(const PrepareContext&, const char*, const GemmSpec&,
                              const GemmFinish&, bool) {
  return {};
}

#endif

}  // namespace coracle::inline internal
