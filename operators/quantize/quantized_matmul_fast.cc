// The fast kernel of quantized_matmul. X and Y become uint8 and int8 (the highest bit of a number
// is flipped where needed, which moves the zero point by 128). With zero points x and y, column
// sums C and row sums R:
//   sum of (X - x) (Y - y) = sum of X Y - x (C - K y) - y R
// The products are computed in blocks, which a sweep turns into Out while they are in the cache.

#include <coracle/framework/base/checked.h>
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
#include <optional>
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

// What X and Y gain where their highest bits are flipped.
int32_t ShiftX(const QuantizedProduct& p) { return p.x.dtype == DType::kInt8 ? kFlip : 0; }
int32_t ShiftY(const QuantizedProduct& p) { return p.y.dtype == DType::kUInt8 ? -kFlip : 0; }
bool HasRowScales(const QuantizedProduct& p) { return p.x_scale && p.x_scale.numel > 1; }
bool CopiesX(const QuantizedProduct& p) { return p.x.dtype == DType::kInt8 || p.transposed_x; }

// Rows of a matrix of X as uint8, one after the other; in `to` if CopiesX.
const uint8_t* RowsOfX(const QuantizedProduct& p, const uint8_t* x, int64_t first, int64_t rows,
                       uint8_t* to) {
  if (!CopiesX(p)) return x + first * p.k;
  if (!p.transposed_x) {
    FlipBytes(x + first * p.k, to, rows * p.k);
    return to;
  }
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t r = 0; r < p.k; ++r) to[i * p.k + r] = x[r * p.m + first + i];
  }
  if (ShiftX(p) != 0) FlipBytes(to, to, rows * p.k);
  return to;
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

// Y in the type that the products read: packed if it is constant, else converted in each run.
class FactorY {
 public:
  FactorY(const PrepareContext& ctx, const QuantizedProduct& p, const Cut& cut)
      : factor_{p.k, p.n, p.transposed_y, p.y.dtype == DType::kUInt8},
        matrices_(p.y.numel / (p.k * p.n)),
        constant_(p.y.numel == p.k * p.n && IsConstant(ctx, "Y")),
        products_(factor_, cut.block, cut.last(), cut.panels, cut.parts, constant_) {
    ctx.NoteKernel(products_.in_floats() ? "float32" : "onednn");
    if (constant_) {
      packed_ = ctx.Packed("Y", products_.Layout(p.y.dtype, p.y.shape));
      return;
    }
    y_ = ctx.Input("Y");
    if (products_.in_floats())
      converted_ = ctx.Scratch(DType::kFloat32, {p.y.numel});
    else if (factor_.flipped)
      converted_ = ctx.Scratch(DType::kInt8, {p.y.numel});
  }

  int64_t matrices() const { return matrices_; }
  bool packed() const { return packed_ != nullptr; }
  const ByteProducts& products() const { return products_; }
  void ReserveScratch(const PrepareContext& ctx) { products_.ReserveScratch(ctx); }

  // The sums of columns of a packed Y.
  void CopySums(int32_t* sums) const {
    std::copy_n(products_.ColumnSums(*packed_), factor_.n, sums);
  }
  // Converts Y, where that changes it, and computes the sums of its columns.
  void Convert(Workspace& ws, int32_t* sums, bool needs_sums) const {
    if (!converted_ && !needs_sums) return;
    const auto* y = ws.Data<const uint8_t>(y_);
    auto* to = converted_ ? ws.Data<uint8_t>(converted_) : nullptr;
    const int64_t size = factor_.k * factor_.n;
    ParallelFor(matrices_, 1 + 65536 / size, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        ConvertFactor(factor_, products_.in_floats(), y + i * size,
                      to ? to + i * size * Width() : nullptr,
                      sums + i * Columns::Stride(factor_.n));
    });
  }
  const void* Matrix(const Workspace& ws, int64_t index) const {
    if (packed_) return packed_->raw();
    return ws.Data<const uint8_t>(converted_ ? converted_ : y_) +
           index * factor_.k * factor_.n * Width();
  }

 private:
  static bool IsConstant(const PrepareContext& ctx, const char* slot) {
    const PackedLayout probe{"nothing", [](const Tensor&) { return Tensor(); }, {}};
    return ctx.Packed(slot, probe) != nullptr;
  }
  int64_t Width() const { return products_.in_floats() ? 4 : 1; }  // bytes of an element

  ByteFactor factor_;
  int64_t matrices_ = 1;
  bool constant_ = false;
  ByteProducts products_;
  std::shared_ptr<const Tensor> packed_;
  TensorArg y_, converted_;
};

// Parameters as arrays; an absent one is empty.
struct Values {
  const float *x_scale = nullptr, *y_scale = nullptr, *out_scale = nullptr;
  const void *x_zero = nullptr, *y_zero = nullptr, *bias = nullptr;
  const float* residual_scale = nullptr;
};

Values ValuesOf(const QuantizedProduct& p, const Workspace& ws) {
  const auto find = [&](const TensorArg& arg) { return arg ? ws.Data<const void>(arg) : nullptr; };
  const auto reals = [&](const TensorArg& arg) { return static_cast<const float*>(find(arg)); };
  return {reals(p.x_scale), reals(p.y_scale), reals(p.out_q.scale),     find(p.x_zero),
          find(p.y_zero),   find(p.bias),     reals(p.residual_q.scale)};
}

// The parameters if all are constant.
std::optional<Values> ConstantValues(const PrepareContext& ctx) {
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
  if (!all) return std::nullopt;
  return values;
}

// What a run knows besides the columns.
struct Facts {
  bool tame = true;        // whether float32 serves
  bool corrected = false;  // whether zero points differ by row, or Y has any
  bool needs_sums = false;
  int32_t x_zero = 0;  // if it is one for all rows
  float unit = 1;      // 1 / OutScale if the sweep includes it, else 1
  float rest = 1;      // 1 / OutScale / unit
};

// Factors of rows and columns, whose product must be tame.
constexpr double kMostOfTwo = 1e12;

// `bounded`: whether the sweep includes the activation.
Facts FactsOf(const QuantizedProduct& p, const Values& v, bool bounded) {
  Facts facts;
  facts.x_zero = ShiftX(p);
  facts.corrected = p.x_zero && p.x_zero.numel > 1;
  if (p.x_zero && !facts.corrected) facts.x_zero += IntegerAt(p.x_zero.dtype, v.x_zero, 0);
  const int64_t zeros = p.y_zero ? p.y_zero.numel : 1;
  for (int64_t j = 0; j < zeros; ++j) {
    const int32_t zero = p.y_zero ? IntegerAt(p.y_zero.dtype, v.y_zero, j) : 0;
    facts.corrected = facts.corrected || zero + ShiftY(p) != 0;
  }
  facts.needs_sums = facts.corrected || facts.x_zero != 0;
  const double inverse = v.out_scale ? 1 / static_cast<double>(*v.out_scale) : 1;
  facts.tame = IsTame(inverse) && inverse > 0;
  if (v.residual_scale) {
    const double residual = static_cast<double>(*v.residual_scale);
    facts.tame = facts.tame && IsTame(residual) && IsTame(residual * inverse);
  }
  facts.unit = bounded ? static_cast<float>(inverse) : 1;
  facts.rest = bounded ? 1 : static_cast<float>(inverse);
  for (int64_t i = 0; HasRowScales(p) && i < p.x_scale.numel; ++i)
    facts.tame = facts.tame && IsTame(static_cast<double>(v.x_scale[i]), kMostOfTwo);
  return facts;
}

// Adds the zero points to the offsets. The arithmetic is that of 32 bits without a sign.
void AddZeroPoints(const QuantizedProduct& p, const Columns& c, int64_t matrices,
                   const Facts& facts) {
  const int64_t n = p.n, stride = Columns::Stride(n);
  const auto wrapped = [](int32_t x) { return static_cast<uint32_t>(x); };
  for (int64_t i = matrices - 1; i >= 0; --i) {
    int32_t *offset = c.offset + i * stride, *sums = c.sums + i * stride;
    for (int64_t j = 0; j < n; ++j) {
      const uint32_t sum = wrapped(sums[j]) - static_cast<uint32_t>(p.k) * wrapped(c.zeros[j]);
      sums[j] = static_cast<int32_t>(sum);
      const uint32_t by_zero = facts.corrected ? 0 : sum * wrapped(facts.x_zero);
      offset[j] = static_cast<int32_t>(wrapped(c.offset[j]) - by_zero);
    }
  }
}

// Fills the columns, whose sums are known.
void FillColumns(const QuantizedProduct& p, const Values& v, const Columns& c, int64_t matrices,
                 Facts* facts) {
  const int64_t n = p.n, stride = Columns::Stride(n);
  const bool reals = p.out.dtype != DType::kInt32;
  const double shared = p.x_scale && !HasRowScales(p) ? static_cast<double>(*v.x_scale) : 1;
  const auto unit = static_cast<double>(facts->unit);
  const bool integers = p.bias && p.bias.dtype == DType::kInt32;
  const int64_t most = std::numeric_limits<int32_t>::max() - 65025 * p.k;
  for (int64_t j = 0; j < n; ++j) {
    const int64_t at = p.y_scale && p.y_scale.numel > 1 ? j : 0;
    const double factor = reals ? shared * static_cast<double>(v.y_scale[at]) * unit : 1;
    const double bias =
        p.bias && !integers ? static_cast<double>(static_cast<const float*>(v.bias)[j]) * unit : 0;
    c.factor[j] = static_cast<float>(factor);
    c.bias[j] = static_cast<float>(bias);
    const int32_t added = integers ? static_cast<const int32_t*>(v.bias)[j] : 0;
    facts->tame = facts->tame && IsTame(factor, HasRowScales(p) ? kMostOfTwo : 1e25) &&
                  IsTame(bias) && std::abs(int64_t{added}) <= most;
    const int64_t zero_at = p.y_zero && p.y_zero.numel > 1 ? j : 0;
    c.zeros[j] = ShiftY(p) + (p.y_zero ? IntegerAt(p.y_zero.dtype, v.y_zero, zero_at) : 0);
    c.offset[j] = added;
  }
  if (!facts->tame) std::fill_n(c.offset, n, 0);
  if (facts->needs_sums) return AddZeroPoints(p, c, matrices, *facts);
  for (int64_t i = 1; i < matrices; ++i) std::copy_n(c.offset, n, c.offset + i * stride);
}

// Parameters that never change.
struct Fixed {
  Facts facts;
  std::vector<int32_t> memory;
};

// nullptr if Y or a parameter may change.
std::shared_ptr<const Fixed> FixedOf(const PrepareContext& ctx, const QuantizedProduct& p,
                                     const FactorY& y, bool bounded) {
  if (!y.packed()) return nullptr;
  const std::optional<Values> values = ConstantValues(ctx);
  if (!values) return nullptr;
  auto fixed = std::make_shared<Fixed>();
  fixed->memory.resize(static_cast<size_t>(Columns::Size(p.n, y.matrices())));
  const Columns columns(fixed->memory.data(), p.n, y.matrices());
  y.CopySums(columns.sums);
  fixed->facts = FactsOf(p, *values, bounded);
  FillColumns(p, *values, columns, y.matrices(), &fixed->facts);
  return fixed;
}

// A row of sums of products, in the columns of a panel.
struct RowOf {
  int64_t x, out;  // counted through all matrices of X and of Out
  int32_t sum;     // of the row of X
  const int32_t* sums;
  int64_t y;  // the matrix of Y
};

void* At(const Workspace& ws, const TensorArg& arg, int64_t i) {
  return ws.Data<uint8_t>(arg) + static_cast<int64_t>(ByteSize(arg.dtype, {i}));
}

// Turns rows of sums into Out.
class RowFinish {
 public:
  RowFinish(const QuantizedProduct& p, const ActivationBounds& bounds, const Workspace& ws,
            const Columns& columns, const Facts& facts)
      : p_(p), bounds_(bounds), ws_(ws), columns_(columns), facts_(facts), exact_(p, ws) {}

  const Facts& facts() const { return facts_; }

  // `reals`: memory for a row, if the activation does more than to limit values.
  void operator()(const RowOf& row, const ByteProducts::Panel& panel, float* reals) const {
    SumsRow to = SumsOf(row, panel);
    const int64_t n = panel.columns, at = row.out * p_.n + panel.column;
    to.out = At(ws_, p_.out, at);
    if (!facts_.tame) return FinishOneByOne(to, row, panel);
    if (p_.residual) {
      const float unit = facts_.unit, scale = p_.residual_q.Scale(ws_);
      to.residual = At(ws_, p_.residual, at);
      to.residual_dtype = p_.residual.dtype;
      to.residual_factor = scale * unit;
      to.residual_zero = p_.residual_q.Zero(ws_);
    }
    to.zero = p_.out_q.Zero(ws_);
    to.low = bounds_.low * facts_.unit;
    to.high = bounds_.high * facts_.unit;
    if (bounds_.given || p_.out.dtype == DType::kInt32) return FinishSums(to, n);
    const bool bytes = IsByte(p_.out.dtype);
    if (!bytes) reals = static_cast<float*>(to.out);
    to.out_dtype = DType::kFloat32;
    void* out = std::exchange(to.out, reals);
    FinishSums(to, n);
    p_.activation.ApplyFast(reals, n);
    if (bytes) RoundToBytes(reals, n, {facts_.rest, to.zero, p_.out.dtype}, out);
  }

 private:
  // The row without what follows the factors and the bias.
  SumsRow SumsOf(const RowOf& row, const ByteProducts::Panel& panel) const {
    const int64_t begin = panel.column, of_y = row.y * Columns::Stride(p_.n) + begin;
    SumsRow to;
    to.sums = row.sums;
    to.offset = columns_.offset + of_y;
    to.corrected = facts_.corrected;
    to.column_sums = columns_.sums + of_y;
    to.column_zeros = columns_.zeros + begin;
    to.x_zero = ZeroOf(row.x);
    to.row_sum = row.sum;
    to.factor = columns_.factor + begin;
    to.bias = columns_.bias + begin;
    to.scale = ScaleOf(row.x);
    to.out_dtype = p_.out.dtype;
    return to;
  }

  // The zero point of a row of X, if they differ.
  int32_t ZeroOf(int64_t row) const {
    if (!p_.x_zero || p_.x_zero.numel == 1) return facts_.x_zero;
    const RowParameters zeros(ws_, p_.x_zero);
    return ShiftX(p_) + static_cast<int32_t>(zeros.Zero(row % p_.m, row));
  }
  float ScaleOf(int64_t row) const {
    if (!HasRowScales(p_)) return 1;
    return static_cast<float>(RowParameters(ws_, p_.x_scale).Scale(row % p_.m, row));
  }

  // For values that float32 does not hold: exact sums, finished like those of the reference.
  void FinishOneByOne(const SumsRow& row, const RowOf& of, const ByteProducts::Panel& panel) const {
    const RowParameters x_scale(ws_, p_.x_scale), y_scale(ws_, p_.y_scale);
    const double scale = x_scale.Scale(of.x % p_.m, of.x);
    for (int64_t i = 0; i < panel.columns; ++i) {
      const int64_t j = panel.column + i;
      auto sum = static_cast<uint32_t>(row.sums[i]) + static_cast<uint32_t>(row.offset[i]);
      if (row.corrected) {
        sum -= static_cast<uint32_t>(row.x_zero) * static_cast<uint32_t>(row.column_sums[i]);
        sum -= static_cast<uint32_t>(row.row_sum) * static_cast<uint32_t>(row.column_zeros[i]);
      }
      exact_(static_cast<int32_t>(sum), scale * y_scale.Scale(j, j), j, of.out * p_.n + j);
    }
  }

  const QuantizedProduct& p_;
  const ActivationBounds& bounds_;
  const Workspace& ws_;
  Columns columns_;
  Facts facts_;
  SumFinish exact_;
};

// Memory of a part of the work.
struct PartScratch {
  TensorArg sums, bytes, row_sums, reals;

  PartScratch(const PrepareContext& ctx, const QuantizedProduct& p, int64_t block, bool bounded)
      : sums(ctx.Scratch(DType::kInt32, {CheckedMul(block, p.n) + kSumsPadding})) {
    if (CopiesX(p)) bytes = ctx.Scratch(DType::kUInt8, {CheckedMul(block, p.k)});
    row_sums = ctx.Scratch(DType::kInt32, {block});
    if (!bounded) reals = ctx.Scratch(DType::kFloat32, {p.n});
  }
};

class FastProduct {
 public:
  FastProduct(const PrepareContext& ctx, const QuantizedProduct& p)
      : p_(p), bounds_(ctx), cut_(CutOf(p)), y_(ctx, p, cut_) {
    cut_.panels = static_cast<int64_t>(y_.products().panels().size());
    cut_.parts = std::min(cut_.parts, cut_.units());
    y_.ReserveScratch(ctx);
    for (int64_t i = 0; i < cut_.parts; ++i)
      scratch_.emplace_back(ctx, p, cut_.block, bounds_.given);
    fixed_ = FixedOf(ctx, p, y_, bounds_.given);
    if (!fixed_) columns_ = ctx.Scratch(DType::kInt32, {Columns::Size(p.n, y_.matrices())});
  }

  void Run(Workspace& ws) const {
    Facts facts;
    const Columns columns = ColumnsOf(ws, &facts);
    const RowFinish finish(p_, bounds_, ws, columns, facts);
    ParallelFor(cut_.parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        const int64_t units = cut_.units();
        for (int64_t i = units * part / cut_.parts; i < units * (part + 1) / cut_.parts; ++i)
          RunUnit(ws, part, i, finish);
      }
    });
  }

 private:
  Columns ColumnsOf(Workspace& ws, Facts* facts) const {
    const int64_t matrices = y_.matrices();
    if (fixed_) {
      *facts = fixed_->facts;
      return {const_cast<int32_t*>(fixed_->memory.data()), p_.n, matrices};
    }
    const Columns columns(ws.Data<int32_t>(columns_), p_.n, matrices);
    const Values values = ValuesOf(p_, ws);
    *facts = FactsOf(p_, values, bounds_.given);
    if (y_.packed())
      y_.CopySums(columns.sums);
    else
      y_.Convert(ws, columns.sums, facts->needs_sums);
    FillColumns(p_, values, columns, matrices, facts);
    return columns;
  }

  void RunUnit(Workspace& ws, int64_t part, int64_t unit, const RowFinish& finish) const {
    const int64_t panel = unit % cut_.panels, block = unit / cut_.panels % cut_.blocks;
    const int64_t product = unit / cut_.panels / cut_.blocks, first = block * cut_.block;
    const int64_t rows = std::min(cut_.block, cut_.rows - first);
    const QuantizedProduct::Pair at = p_.MatricesAt(cut_.products == 1 ? 0 : product);
    const PartScratch& s = scratch_[static_cast<size_t>(part)];
    const uint8_t* a = RowsOfX(p_, ws.Data<const uint8_t>(p_.x) + at.x * p_.m * p_.k, first, rows,
                               s.bytes ? ws.Data<uint8_t>(s.bytes) : nullptr);
    int32_t* row_sums = ws.Data<int32_t>(s.row_sums);
    for (int64_t i = 0; finish.facts().corrected && i < rows; ++i)
      row_sums[i] = static_cast<int32_t>(SumBytes(a + i * p_.k, p_.k, false));
    int32_t* sums = ws.Data<int32_t>(s.sums);
    y_.products().Run(ws, part, panel, rows, a, y_.Matrix(ws, at.y), sums);
    const ByteProducts::Panel& columns = y_.products().panels()[static_cast<size_t>(panel)];
    float* reals = s.reals ? ws.Data<float>(s.reals) : nullptr;
    for (int64_t i = 0; i < rows; ++i) {
      const RowOf row{at.x * p_.m + first + i, product * p_.m + first + i, row_sums[i],
                      sums + i * columns.columns, at.y};
      finish(row, columns, reals);
    }
  }

  QuantizedProduct p_;
  ActivationBounds bounds_;
  Cut cut_;
  FactorY y_;
  TensorArg columns_;  // unless they are fixed
  std::vector<PartScratch> scratch_;
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
