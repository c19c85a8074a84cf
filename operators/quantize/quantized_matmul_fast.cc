// The fast kernel of quantized_matmul. X and Y become uint8 and int8 (the highest bit of a number
// is flipped where needed, which moves the zero point by 128). With zero points x and y, column
// sums C and row sums R:
//   sum of (X - x) (Y - y) = sum of X Y - x (C - K y) - y R
// The products are computed in blocks, which a sweep turns into Out while they are in the cache.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/quantize/byte_products.h>
#include <coracle/operators/quantize/quantized_fast.h>
#include <coracle/operators/quantize/quantized_matmul.h>
#include <coracle/operators/quantize/quantized_matmul_simd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

namespace coracle::quantized_matmul_fast {
namespace {

// How the work is cut.
struct Cut {
  int64_t products = 1, rows = 1;  // products of the batch, rows of one
  int64_t block = 1, blocks = 1;   // rows of a block, blocks of one product
  int64_t panels = 1, parts = 1;
  int64_t last() const { return rows - (blocks - 1) * block; }
  int64_t units() const { return products * blocks * panels; }
};

// If one Y is used for all X, their rows form one matrix.
Cut CutOf(const QuantizedProduct& p) {
  Cut cut;
  cut.products = p.batch.numel;
  cut.rows = p.m;
  if (p.batch.rank == 1 && (p.batch.numel == 1 || p.batch.y_repeats()) && !p.transposed_x) {
    cut.rows = p.m * p.batch.numel;
    cut.products = 1;
  }
  const double work = static_cast<double>(cut.products) * static_cast<double>(cut.rows) *
                      static_cast<double>(p.n * p.k);
  const auto threads = static_cast<int64_t>(std::min<double>(NumThreads(), 1 + work / 1e6));
  constexpr int64_t kUnit = 16, kBlockSums = 65536, kPanel = 64;
  if (cut.products == 1 && cut.rows < kUnit * threads)
    cut.panels = std::min(threads, (p.n + kPanel - 1) / kPanel);
  const int64_t units = (cut.rows + kUnit - 1) / kUnit;
  const int64_t sharing = cut.products >= threads ? 1 : threads / cut.panels;
  const int64_t wanted =
      std::clamp<int64_t>(std::max(sharing, cut.rows * p.n / cut.panels / kBlockSums), 1, units);
  cut.block = std::min(cut.rows, kUnit * ((units + wanted - 1) / wanted));
  cut.blocks = (cut.rows + cut.block - 1) / cut.block;
  cut.parts = std::min(threads, cut.units());
  return cut;
}

// Parameters of the columns as the sweep reads them, in arrays of one tensor: see SumsRow.
struct Columns {
  int32_t *offset, *sums, *zeros;  // offset and sums for each matrix of Y
  float *factor, *bias;

  static int64_t Stride(int64_t n) { return (n + kSumsPadding + 15) / 16 * 16; }
  static int64_t Size(int64_t n, int64_t matrices) { return Stride(n) * (2 * matrices + 3); }
  Columns(int32_t* memory, int64_t n, int64_t matrices)
      : offset(memory),
        sums(offset + Stride(n) * matrices),
        zeros(sums + Stride(n) * matrices),
        factor(reinterpret_cast<float*>(zeros + Stride(n))),
        bias(factor + Stride(n)) {}
};

// What a run knows besides the columns.
struct Facts {
  bool tame = true;        // whether float32 serves
  bool corrected = false;  // whether zero points differ by row, or Y has any
  bool needs_sums = false;
  int32_t x_zero = 0;  // if it is one for all rows
  float unit = 1;      // 1 / OutScale if the sweep includes it, else 1
  float rest = 1;      // 1 / OutScale / unit
};

class FastProduct {
 public:
  FastProduct(const PrepareContext& ctx, const QuantizedProduct& p)
      : p_(p), bounds_(ctx), cut_(CutOf(p)) {
    const ByteFactor factor{p.k, p.n, p.transposed_y, p.y.dtype == DType::kUInt8};
    const bool constant = p.y.numel == p.k * p.n && IsConstant(ctx, "Y");
    const auto make = [&](bool packed) {
      return std::make_shared<ByteProducts>(factor, cut_.block, cut_.last(), cut_.panels,
                                            cut_.parts, packed);
    };
    factor_ = factor;
    products_ = make(constant);
    cut_.panels = static_cast<int64_t>(products_->panels().size());
    cut_.parts = std::min(cut_.parts, cut_.units());
    ctx.NoteKernel(products_->in_floats() ? "float32" : "onednn");
    matrices_ = p.y.numel / (p.k * p.n);
    if (constant)
      packed_ = ctx.Packed("Y", products_->Layout(p.y.dtype, p.y.shape));
    else
      ReserveY(ctx);
    ReserveScratch(ctx);
    if (packed_) FixColumns(ctx);
    if (!fixed_) columns_ = ctx.Scratch(DType::kInt32, {Columns::Size(p.n, matrices_)});
  }

  void Run(Workspace& ws) const {
    Facts facts;
    Columns columns = ColumnsOf(ws, &facts);
    const SumFinish finish(p_, ws);
    ParallelFor(cut_.parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        const int64_t units = cut_.units();
        for (int64_t i = units * part / cut_.parts; i < units * (part + 1) / cut_.parts; ++i)
          RunUnit(ws, part, i, columns, facts, finish);
      }
    });
  }

 private:
  struct Scratch {
    TensorArg sums, bytes, row_sums, reals;
  };
  // Parameters that never change.
  struct Fixed {
    Facts facts;
    std::vector<int32_t> memory;
  };

  static bool IsConstant(const PrepareContext& ctx, const char* slot) {
    const PackedLayout probe{"nothing", [](const Tensor&) { return Tensor(); }, {}};
    return ctx.Packed(slot, probe) != nullptr;
  }

  // Y in the type that the products read, and unless it changes nothing, a copy of it.
  void ReserveY(const PrepareContext& ctx) {
    y_ = ctx.Input("Y");
    if (products_->in_floats())
      converted_ = ctx.Scratch(DType::kFloat32, {p_.y.numel});
    else if (factor_.flipped)
      converted_ = ctx.Scratch(DType::kInt8, {p_.y.numel});
  }
  bool CopiesX() const { return p_.x.dtype == DType::kInt8 || p_.transposed_x; }
  void ReserveScratch(const PrepareContext& ctx) {
    products_->ReserveScratch(ctx);
    for (int64_t i = 0; i < cut_.parts; ++i) {
      Scratch s;
      const int64_t sums = cut_.block * p_.n + kSumsPadding;
      s.sums = ctx.Scratch(DType::kInt32, {sums});
      if (CopiesX()) s.bytes = ctx.Scratch(DType::kUInt8, {cut_.block * p_.k});
      s.row_sums = ctx.Scratch(DType::kInt32, {cut_.block});
      if (!bounds_.given) s.reals = ctx.Scratch(DType::kFloat32, {p_.n});
      scratch_.push_back(s);
    }
  }

  // Parameters as arrays; an absent one is empty.
  struct Values {
    const float *x_scale = nullptr, *y_scale = nullptr, *out_scale = nullptr;
    const void *x_zero = nullptr, *y_zero = nullptr, *bias = nullptr;
    const float* residual_scale = nullptr;
  };
  Values ValuesOf(const Workspace& ws) const {
    const auto find = [&](const TensorArg& arg) {
      return arg ? ws.Data<const void>(arg) : nullptr;
    };
    const auto reals = [&](const TensorArg& arg) { return static_cast<const float*>(find(arg)); };
    return {reals(p_.x_scale), reals(p_.y_scale), reals(p_.out_q.scale),     find(p_.x_zero),
            find(p_.y_zero),   find(p_.bias),     reals(p_.residual_q.scale)};
  }

  // Computes the parameters once if all are constant.
  void FixColumns(const PrepareContext& ctx) {
    bool all = true;
    const auto find = [&](const char* slot) -> const void* {
      if (!ctx.HasInput(slot)) return nullptr;
      const Tensor* value = ctx.Constant(slot);
      all = all && value;
      return value ? value->raw() : nullptr;
    };
    const auto reals = [&](const char* slot) { return static_cast<const float*>(find(slot)); };
    const Values values = {reals("XScale"),       reals("YScale"),    reals("OutScale"),
                           find("XZeroPoint"),    find("YZeroPoint"), find("Bias"),
                           reals("ResidualScale")};
    if (!all) return;
    auto fixed = std::make_shared<Fixed>();
    fixed->memory.resize(static_cast<size_t>(Columns::Size(p_.n, matrices_)));
    const Columns columns(fixed->memory.data(), p_.n, matrices_);
    std::copy_n(products_->ColumnSums(*packed_), p_.n, columns.sums);
    fixed->facts = FactsOf(values);
    Compute(values, columns, &fixed->facts);
    fixed_ = std::move(fixed);
  }

  Columns ColumnsOf(Workspace& ws, Facts* facts) const {
    if (fixed_) {
      *facts = fixed_->facts;
      return {const_cast<int32_t*>(fixed_->memory.data()), p_.n, matrices_};
    }
    const Columns columns(ws.Data<int32_t>(columns_), p_.n, matrices_);
    const Values values = ValuesOf(ws);
    *facts = FactsOf(values);
    if (packed_)
      std::copy_n(products_->ColumnSums(*packed_), p_.n, columns.sums);
    else
      ConvertY(ws, columns, *facts);
    Compute(values, columns, facts);
    return columns;
  }

  void ConvertY(Workspace& ws, const Columns& columns, const Facts& facts) const {
    const auto* y = ws.Data<const uint8_t>(y_);
    const int64_t size = p_.k * p_.n;
    if (!converted_ && !facts.needs_sums) return;
    auto* to = converted_ ? ws.Data<uint8_t>(converted_) : nullptr;
    const int64_t width = products_->in_floats() ? 4 : 1;
    ParallelFor(matrices_, 1 + 65536 / size, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        ConvertFactor(factor_, products_->in_floats(), y + i * size,
                      to ? to + i * size * width : nullptr,
                      columns.sums + i * Columns::Stride(p_.n));
    });
  }

  // Factors of rows and columns, whose product must be tame.
  static constexpr double kMostOfTwo = 1e12;
  bool HasRowScales() const { return p_.x_scale && p_.x_scale.numel > 1; }

  int32_t ShiftX() const { return p_.x.dtype == DType::kInt8 ? kFlip : 0; }
  int32_t ShiftY() const { return p_.y.dtype == DType::kUInt8 ? -kFlip : 0; }

  Facts FactsOf(const Values& v) const {
    Facts facts;
    facts.x_zero = ShiftX();
    facts.corrected = p_.x_zero && p_.x_zero.numel > 1;
    if (p_.x_zero && !facts.corrected) facts.x_zero += IntegerAt(p_.x_zero.dtype, v.x_zero, 0);
    const int64_t zeros = p_.y_zero ? p_.y_zero.numel : 1;
    for (int64_t j = 0; j < zeros; ++j) {
      const int32_t zero = p_.y_zero ? IntegerAt(p_.y_zero.dtype, v.y_zero, j) : 0;
      facts.corrected = facts.corrected || zero + ShiftY() != 0;
    }
    facts.needs_sums = facts.corrected || facts.x_zero != 0;
    const double inverse = v.out_scale ? 1 / static_cast<double>(*v.out_scale) : 1;
    facts.tame = IsTame(inverse) && inverse > 0;
    if (v.residual_scale) facts.tame = facts.tame && IsTame(static_cast<double>(*v.residual_scale));
    facts.unit = bounds_.given ? static_cast<float>(inverse) : 1;
    facts.rest = bounds_.given ? 1 : static_cast<float>(inverse);
    for (int64_t i = 0; HasRowScales() && i < p_.x_scale.numel; ++i)
      facts.tame = facts.tame && IsTame(static_cast<double>(v.x_scale[i]), kMostOfTwo);
    return facts;
  }

  // Fills the columns, whose sums are known.
  void Compute(const Values& v, const Columns& c, Facts* facts) const {
    const int64_t n = p_.n, stride = Columns::Stride(n);
    const bool reals = p_.out.dtype != DType::kInt32;
    const double shared = p_.x_scale && !HasRowScales() ? static_cast<double>(*v.x_scale) : 1;
    const auto unit = static_cast<double>(facts->unit);
    const bool integers = p_.bias && p_.bias.dtype == DType::kInt32;
    const int64_t most = std::numeric_limits<int32_t>::max() - 65025 * p_.k;
    for (int64_t j = 0; j < n; ++j) {
      const int64_t at = p_.y_scale && p_.y_scale.numel > 1 ? j : 0;
      const double factor = reals ? shared * static_cast<double>(v.y_scale[at]) * unit : 1;
      const double bias = p_.bias && !integers
                              ? static_cast<double>(static_cast<const float*>(v.bias)[j]) * unit
                              : 0;
      c.factor[j] = static_cast<float>(factor);
      c.bias[j] = static_cast<float>(bias);
      const int32_t added = integers ? static_cast<const int32_t*>(v.bias)[j] : 0;
      facts->tame = facts->tame && IsTame(factor, HasRowScales() ? kMostOfTwo : 1e25) &&
                    IsTame(bias) && std::abs(int64_t{added}) <= most;
      const int64_t zero_at = p_.y_zero && p_.y_zero.numel > 1 ? j : 0;
      c.zeros[j] = ShiftY() + (p_.y_zero ? IntegerAt(p_.y_zero.dtype, v.y_zero, zero_at) : 0);
      c.offset[j] = added;
    }
    if (!facts->tame) std::fill_n(c.offset, n, 0);
    Complete(c, *facts);
    for (int64_t i = 1; i < matrices_ && !facts->corrected && !facts->needs_sums; ++i)
      std::copy_n(c.offset, n, c.offset + i * stride);
  }

  // Adds the zero points to the offsets. The arithmetic is that of 32 bits without a sign.
  void Complete(const Columns& c, const Facts& facts) const {
    if (!facts.needs_sums) return;
    const int64_t n = p_.n, stride = Columns::Stride(n);
    const auto wrapped = [](int32_t x) { return static_cast<uint32_t>(x); };
    for (int64_t i = matrices_ - 1; i >= 0; --i) {
      int32_t *offset = c.offset + i * stride, *sums = c.sums + i * stride;
      for (int64_t j = 0; j < n; ++j) {
        const uint32_t sum = wrapped(sums[j]) - static_cast<uint32_t>(p_.k) * wrapped(c.zeros[j]);
        sums[j] = static_cast<int32_t>(sum);
        const uint32_t by_zero = facts.corrected ? 0 : sum * wrapped(facts.x_zero);
        offset[j] = static_cast<int32_t>(wrapped(c.offset[j]) - by_zero);
      }
    }
  }

  void RunUnit(Workspace& ws, int64_t part, int64_t unit, const Columns& columns,
               const Facts& facts, const SumFinish& finish) const {
    const int64_t panel = unit % cut_.panels, block = unit / cut_.panels % cut_.blocks;
    const int64_t product = unit / cut_.panels / cut_.blocks, first = block * cut_.block;
    const int64_t rows = std::min(cut_.block, cut_.rows - first);
    const QuantizedProduct::Pair at = p_.MatricesAt(cut_.products == 1 ? 0 : product);
    const Scratch& s = scratch_[static_cast<size_t>(part)];
    const uint8_t* a = Rows(ws, s, at.x, first, rows);
    int32_t* row_sums = ws.Data<int32_t>(s.row_sums);
    for (int64_t i = 0; facts.corrected && i < rows; ++i)
      row_sums[i] = static_cast<int32_t>(SumBytes(a + i * p_.k, p_.k, false));
    int32_t* sums = ws.Data<int32_t>(s.sums);
    products_->Run(ws, part, panel, rows, a, Factor(ws, at.y), sums);
    const ByteProducts::Panel& columns_of = products_->panels()[static_cast<size_t>(panel)];
    for (int64_t i = 0; i < rows; ++i) {
      const RowOf row{at.x * p_.m + first + i, product * p_.m + first + i, row_sums[i],
                      sums + i * columns_of.columns, at.y};
      FinishRow(ws, s, row, columns_of, columns, facts, finish);
    }
  }

  // Rows of X as uint8, one after the other.
  const uint8_t* Rows(Workspace& ws, const Scratch& s, int64_t matrix, int64_t first,
                      int64_t rows) const {
    const auto* x = ws.Data<const uint8_t>(p_.x) + matrix * p_.m * p_.k;
    if (!CopiesX()) return x + first * p_.k;
    auto* to = ws.Data<uint8_t>(s.bytes);
    if (!p_.transposed_x) {
      FlipBytes(x + first * p_.k, to, rows * p_.k);
      return to;
    }
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t r = 0; r < p_.k; ++r) to[i * p_.k + r] = x[r * p_.m + first + i];
    }
    if (ShiftX() != 0) FlipBytes(to, to, rows * p_.k);
    return to;
  }

  const void* Factor(Workspace& ws, int64_t matrix) const {
    if (packed_) return packed_->raw();
    const int64_t width = products_->in_floats() ? 4 : 1;
    return ws.Data<const uint8_t>(converted_ ? converted_ : y_) + matrix * p_.k * p_.n * width;
  }

  struct RowOf {
    int64_t x, out;  // counted through all matrices of X and of Out
    int32_t sum;     // of the row of X
    const int32_t* sums;
    int64_t y;  // the matrix of Y
  };
  // The zero point of a row of X, if they differ.
  int32_t ZeroOf(const Workspace& ws, int64_t row, const Facts& facts) const {
    if (!p_.x_zero || p_.x_zero.numel == 1) return facts.x_zero;
    const RowParameters zeros(ws, p_.x_zero);
    return ShiftX() + static_cast<int32_t>(zeros.Zero(row % p_.m, row));
  }
  float ScaleOf(const Workspace& ws, int64_t row) const {
    if (!HasRowScales()) return 1;
    return static_cast<float>(RowParameters(ws, p_.x_scale).Scale(row % p_.m, row));
  }

  void FinishRow(Workspace& ws, const Scratch& s, const RowOf& row,
                 const ByteProducts::Panel& panel, const Columns& columns, const Facts& facts,
                 const SumFinish& finish) const {
    const int64_t begin = panel.column, n = panel.columns, at = row.out * p_.n + begin;
    const int64_t of_y = row.y * Columns::Stride(p_.n) + begin;
    SumsRow to;
    to.sums = row.sums;
    to.offset = columns.offset + of_y;
    to.corrected = facts.corrected;
    to.column_sums = columns.sums + of_y;
    to.column_zeros = columns.zeros + begin;
    to.x_zero = ZeroOf(ws, row.x, facts);
    to.row_sum = row.sum;
    to.factor = columns.factor + begin;
    to.bias = columns.bias + begin;
    to.scale = ScaleOf(ws, row.x);
    to.out_dtype = p_.out.dtype;
    to.out = At(ws, p_.out, at);
    if (!facts.tame) return FinishOneByOne(ws, to, row, panel, finish);
    if (p_.residual) {
      const float unit = facts.unit, scale = p_.residual_q.Scale(ws);
      to.residual = At(ws, p_.residual, at);
      to.residual_dtype = p_.residual.dtype;
      to.residual_factor = scale * unit;
      to.residual_zero = p_.residual_q.Zero(ws);
    }
    to.zero = p_.out_q.Zero(ws);
    to.low = bounds_.low * facts.unit;
    to.high = bounds_.high * facts.unit;
    if (bounds_.given || p_.out.dtype == DType::kInt32) return FinishSums(to, n);
    const bool bytes = IsByte(p_.out.dtype);
    float* reals = bytes ? ws.Data<float>(s.reals) : static_cast<float*>(to.out);
    to.out_dtype = DType::kFloat32;
    void* out = std::exchange(to.out, reals);
    FinishSums(to, n);
    p_.activation.ApplyFast(reals, n);
    if (bytes) RoundToBytes(reals, n, {facts.rest, to.zero, p_.out.dtype}, out);
  }

  // For values that float32 does not hold: exact sums, finished like those of the reference.
  void FinishOneByOne(Workspace& ws, const SumsRow& row, const RowOf& of,
                      const ByteProducts::Panel& panel, const SumFinish& finish) const {
    const RowParameters x_scale(ws, p_.x_scale), y_scale(ws, p_.y_scale);
    const double scale = x_scale.Scale(of.x % p_.m, of.x);
    for (int64_t i = 0; i < panel.columns; ++i) {
      const int64_t j = panel.column + i;
      auto sum = static_cast<uint32_t>(row.sums[i]) + static_cast<uint32_t>(row.offset[i]);
      if (row.corrected) {
        sum -= static_cast<uint32_t>(row.x_zero) * static_cast<uint32_t>(row.column_sums[i]);
        sum -= static_cast<uint32_t>(row.row_sum) * static_cast<uint32_t>(row.column_zeros[i]);
      }
      finish(static_cast<int32_t>(sum), scale * y_scale.Scale(j, j), j, of.out * p_.n + j);
    }
  }

  static void* At(const Workspace& ws, const TensorArg& arg, int64_t i) {
    return ws.Data<uint8_t>(arg) + i * static_cast<int64_t>(SizeOf(arg.dtype));
  }

  QuantizedProduct p_;
  ActivationBounds bounds_;
  Cut cut_;
  ByteFactor factor_;
  std::shared_ptr<ByteProducts> products_;
  std::shared_ptr<const Tensor> packed_;  // Y, if it is constant
  TensorArg y_, converted_, columns_;
  int64_t matrices_ = 1;  // of Y
  std::vector<Scratch> scratch_;
  std::shared_ptr<const Fixed> fixed_;
};

}  // namespace
}  // namespace coracle::quantized_matmul_fast

namespace coracle::inline internal {

Kernel QuantizedMatmulFast(const PrepareContext& ctx) {
  const QuantizedProduct p(ctx);
  if (p.out.numel == 0 || p.k == 0 || p.k > kLongestByteSum) return {};
  const auto product = std::make_shared<const quantized_matmul_fast::FastProduct>(ctx, p);
  return [product](Workspace& ws) { product->Run(ws); };
}

}  // namespace coracle::inline internal
