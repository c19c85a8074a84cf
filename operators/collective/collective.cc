// Collective communication: ops in which all ranks of a program take part. With a single rank,
// every op returns its input. The gradient ops are Paddle's, except for c_split: Paddle uses
// c_allgather, which joins rows instead of columns.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/collective/exchange.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/kernels/selected_rows.h>
#include <coracle/operators/rules/dims.h>
#include <fmt/format.h>

#include <cstring>
#include <numeric>

namespace coracle::collective_op {

// Attrs of a row, in addition to those that every op of its kind has.
enum Attrs : unsigned {
  kRing = 1,        // ring_id, use_calc_stream
  kCalcStream = 2,  // use_calc_stream is true by default
  kTag = 4,
  kRoot = 8,
  kRootId = 16,
  kRanks = 32,  // nranks
  kRank = 64,
  kModelParallel = 128,  // use_model_parallel
  kOldReduce = 256,      // reduce_type, sync_mode
  kSyncMode = 512,
  kReduction = 1024,  // reduction, of the nccl ops
  kCommunicator = 2048,
  kOverlap = 4096,  // overlap
};

using Kind = Exchange::Kind;

// --- kernels ---

// The elements of X and Out, and their exchange between several ranks.
struct Operands {
  TensorArg x, out;
  Exchanger exchange;
  std::string type;
  int32_t nranks = 1;  // for ops whose shapes depend on it

  explicit Operands(const PrepareContext& ctx)
      : x(ctx.Input("X")), out(ctx.Output("Out")), exchange(ctx), type(ctx.op().type()) {
    if (ctx.spec().FindAttr("nranks")) nranks = ctx.Attr<int32_t>("nranks");
  }
  // An exchange of `counts` elements of X's dtype.
  Exchange Make(Kind kind, std::vector<int64_t> counts, const void* in, void* to) const {
    return {kind, x.dtype, std::move(counts), in, to};
  }
  // Gathers `count` elements from every rank.
  void Gather(Workspace& ws, int64_t count, const void* in, void* to) const {
    const auto ranks = static_cast<size_t>(NumRanks(ws));
    exchange(ws, Make(Kind::kAllGather, std::vector<int64_t>(ranks, count), in, to));
  }
  const char* In(Workspace& ws) const { return ws.Data<const char>(x); }
  char* To(Workspace& ws) const { return ws.Data<char>(out); }
  int64_t element() const { return static_cast<int64_t>(SizeOf(x.dtype)); }
};

// A kernel that runs `among_several(ws)`, or copies if there is a single rank.
template <class F>
Kernel OrCopy(const Operands& op, F among_several) {
  return [op, among_several](Workspace& ws) {
    if (ws.comm()) return among_several(ws);
    RequireRanks(ws, op.nranks, op.type);
    CopyBytes(op.In(ws), op.To(ws), op.x.nbytes());
  };
}

// The sum of the selected rows of all ranks.
class SumOfRows {
 public:
  SumOfRows(const RowsView& mine, const Exchanger& exchange, Workspace& ws)
      : mine_(mine),
        exchange_(exchange),
        ws_(ws),
        counts_(static_cast<size_t>(NumRanks(ws)), mine.count()) {
    const int64_t count = mine.count();
    exchange_.Run(ws_, {Kind::kAllGather, DType::kInt64, std::vector<int64_t>(counts_.size(), 1),
                        &count, counts_.data()});
    total_ = std::accumulate(counts_.begin(), counts_.end(), int64_t{0});
  }

  SelectedRows Run() const { return IsDense() ? Dense() : Gathered(); }

 private:
  // In a ring, gathering sends the elements of all ranks once; summing the dense table sends each
  // of its elements twice. All ranks know the counts and reach the same decision.
  bool IsDense() const {
    return total_ / 2 > mine_.height &&
           (mine_.value->dtype() == DType::kFloat32 || mine_.value->dtype() == DType::kFloat64);
  }

  // The rows of all ranks, one rank after the other.
  SelectedRows Gathered() const {
    SelectedRows all;
    all.height = mine_.height;
    all.rows.resize(static_cast<size_t>(total_));
    all.value = Tensor::Zeros(mine_.value->dtype(), ShapeOf(total_));
    exchange_.Run(ws_,
                  {Kind::kAllGather, DType::kInt64, counts_, mine_.rows.data(), all.rows.data()});
    std::vector<int64_t> elements = counts_;
    for (int64_t& number : elements) number *= mine_.width;
    exchange_.Run(ws_, {Kind::kAllGather, mine_.value->dtype(), elements, mine_.value->raw(),
                        all.value.raw()});
    return all;
  }

  // Sums the whole table and takes from the result the rows that some rank has.
  SelectedRows Dense() const {
    Tensor sum = Tensor::Zeros(mine_.value->dtype(), ShapeOf(mine_.height));
    std::vector<int32_t> present(static_cast<size_t>(mine_.height), 0);
    AddOwnRows(&sum);
    for (const int64_t row : mine_.rows) present[static_cast<size_t>(row)] = 1;
    exchange_.Run(ws_, {Kind::kAllReduce, sum.dtype(), {sum.numel()}, sum.raw(), sum.raw()});
    exchange_.Run(ws_, {Kind::kAllReduce,
                        DType::kInt32,
                        {mine_.height},
                        present.data(),
                        present.data(),
                        Reduction::kMax});
    SelectedRows all;
    all.height = mine_.height;
    for (int64_t row = 0; row < mine_.height; ++row)
      if (present[static_cast<size_t>(row)]) all.rows.push_back(row);
    all.value = Tensor::Zeros(sum.dtype(), ShapeOf(static_cast<int64_t>(all.rows.size())));
    const auto bytes = static_cast<int64_t>(ByteSize(sum.dtype(), {mine_.width}));
    char* to = static_cast<char*>(all.value.raw());
    for (const int64_t row : all.rows) {
      CopyBytes(static_cast<const char*>(sum.raw()) + row * bytes, to, bytes);
      to += bytes;
    }
    return all;
  }
  void AddOwnRows(Tensor* sum) const {
    const auto add = [&](auto* to) {
      using T = std::remove_pointer_t<decltype(to)>;
      const T* from = static_cast<const T*>(mine_.value->raw());
      for (const int64_t row : mine_.rows) {
        for (int64_t k = 0; k < mine_.width; ++k) to[row * mine_.width + k] += *from++;
      }
    };
    if (sum->dtype() == DType::kFloat64)
      add(sum->data<double>());
    else
      add(sum->data<float>());
  }
  Shape ShapeOf(int64_t rows) const {
    std::vector<int64_t> dims = mine_.value->shape().ToVector();
    dims[0] = rows;
    return Shape(dims);
  }

  const RowsView& mine_;
  const Exchanger& exchange_;
  Workspace& ws_;
  std::vector<int64_t> counts_;  // by rank
  int64_t total_ = 0;
};

Kernel SumRows(const PrepareContext& ctx) {
  return [rows = RowsInput(ctx, "X"), out = RowsOutput(ctx, "Out"),
          exchange = Exchanger(ctx)](Workspace& ws) {
    const RowsView mine = rows(ws);
    if (ws.comm()) {
      out.Of(ws) = SumOfRows(mine, exchange, ws).Run();
      return;
    }
    SelectedRows all;
    all.height = mine.height;
    all.rows.assign(mine.rows.begin(), mine.rows.end());
    all.value = mine.value->Clone();
    out.Of(ws) = std::move(all);
  };
}

Kernel Reduced(const PrepareContext& ctx, Reduction reduction) {
  const Operands op(ctx);
  return OrCopy(op, [op, reduction](Workspace& ws) {
    Exchange all = op.Make(Kind::kAllReduce, {op.x.numel}, op.In(ws), op.To(ws));
    all.reduction = reduction;
    op.exchange(ws, all);
  });
}
template <Reduction reduction>
Kernel AllReduce(const PrepareContext& ctx) {
  if (IsSparse(ctx.Input("X"))) return SumRows(ctx);
  return Reduced(ctx, reduction);
}

// The root gets the reduction; the other ranks get X.
Kernel ReducedAt(const PrepareContext& ctx, int32_t root, Reduction reduction) {
  const Operands op(ctx);
  const TensorArg sums = ctx.Scratch(op.x.dtype, op.x.shape);
  return OrCopy(op, [op, root, sums, reduction](Workspace& ws) {
    char* to = RankOf(ws) == root ? op.To(ws) : ws.Data<char>(sums);
    Exchange all = op.Make(Kind::kAllReduce, {op.x.numel}, op.In(ws), to);
    all.reduction = reduction;
    all.root = root;
    op.exchange(ws, all);
    if (RankOf(ws) != root) CopyBytes(op.In(ws), op.To(ws), op.x.nbytes());
  });
}
template <Reduction reduction>
Kernel Reduce(const PrepareContext& ctx) {
  return ReducedAt(ctx, ctx.Attr<int32_t>("root_id"), reduction);
}

// allreduce, with NCCL's numbers: 0 sum, 1 product, 2 maximum, 3 minimum.
Kernel OldAllReduce(const PrepareContext& ctx) {
  constexpr Reduction kByNumber[] = {Reduction::kSum, Reduction::kProd, Reduction::kMax,
                                     Reduction::kMin};
  return Reduced(ctx, kByNumber[ctx.Attr<int32_t>("reduce_type")]);
}

Reduction NcclReduction(const PrepareContext& ctx) {
  const auto name = ctx.Attr<std::string>("reduction");
  return name == "ncclProd"  ? Reduction::kProd
         : name == "ncclMax" ? Reduction::kMax
         : name == "ncclMin" ? Reduction::kMin
                             : Reduction::kSum;
}
Kernel NcclAllReduce(const PrepareContext& ctx) { return Reduced(ctx, NcclReduction(ctx)); }
Kernel NcclReduce(const PrepareContext& ctx) {
  return ReducedAt(ctx, ctx.Attr<int32_t>("root"), NcclReduction(ctx));
}

Kernel Broadcast(const PrepareContext& ctx) {
  const Operands op(ctx);
  return OrCopy(op, [op, root = ctx.Attr<int32_t>("root")](Workspace& ws) {
    Exchange from_root = op.Make(Kind::kBroadcast, {op.x.numel}, op.In(ws), op.To(ws));
    from_root.root = root;
    op.exchange(ws, from_root);
  });
}

Kernel Copy(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  return [=](Workspace& ws) { CopyBytes(ws.Data<const void>(x), ws.Data<void>(out), x.nbytes()); };
}

Kernel Barrier(const PrepareContext& ctx) {
  const Operands op(ctx);
  return OrCopy(op, [op](Workspace& ws) {
    op.exchange(ws, {});
    CopyBytes(op.In(ws), op.To(ws), op.x.nbytes());
  });
}

Kernel AllGather(const PrepareContext& ctx) {
  const Operands op(ctx);
  return OrCopy(op, [op](Workspace& ws) {
    RequireRanks(ws, op.nranks, op.type);
    op.Gather(ws, op.x.numel, op.In(ws), op.To(ws));
  });
}

Kernel ReduceScatter(const PrepareContext& ctx) {
  const Operands op(ctx);
  return OrCopy(op, [op](Workspace& ws) {
    RequireRanks(ws, op.nranks, op.type);
    const auto ranks = static_cast<size_t>(NumRanks(ws));
    op.exchange(ws, op.Make(Kind::kReduceScatter, std::vector<int64_t>(ranks, op.out.numel),
                            op.In(ws), op.To(ws)));
  });
}

// The rank's part of the root's rows.
Kernel Scatter(const PrepareContext& ctx) {
  const Operands op(ctx);
  const TensorArg all = ctx.Scratch(op.x.dtype, op.x.shape);
  return OrCopy(op, [op, all, root = ctx.Attr<int32_t>("root")](Workspace& ws) {
    RequireRanks(ws, op.nranks, op.type);
    Exchange from_root = op.Make(Kind::kBroadcast, {op.x.numel}, op.In(ws), ws.Data<void>(all));
    from_root.root = root;
    op.exchange(ws, from_root);
    CopyBytes(ws.Data<const char>(all) + RankOf(ws) * op.out.nbytes(), op.To(ws), op.out.nbytes());
  });
}

// Part r of Out's rows is this rank's part of rank r's rows.
Kernel AllToAll(const PrepareContext& ctx) {
  const Operands op(ctx);
  const TensorArg arrays = ctx.ScratchArray();
  const int64_t rows = op.x.shape.rank() > 0 ? op.x.shape[0] : 1;
  return OrCopy(op, [op, arrays, rows](Workspace& ws) {
    const int ranks = NumRanks(ws);
    if (rows % ranks != 0)
      ThrowInvalid(fmt::format("alltoall: X has {} rows, which is not a multiple of the {} ranks",
                               rows, ranks));
    auto& array = std::get<TensorArray>(ws.ValueOf(arrays));
    Tensor& all = array.Write(0, op.x.dtype, {op.x.numel * ranks});
    op.Gather(ws, op.x.numel, op.In(ws), all.raw());
    const int64_t bytes = op.x.nbytes(), part = bytes / ranks;
    for (int r = 0; r < ranks; ++r) {
      const char* from = static_cast<const char*>(all.raw()) + r * bytes + RankOf(ws) * part;
      CopyBytes(from, op.To(ws) + r * part, part);
    }
  });
}

// Columns are parts of the last axis. Copies one part of `line` bytes from each of `lines` lines.
void CopyColumns(const char* from, int64_t from_step, char* to, int64_t to_step, int64_t line,
                 int64_t lines) {
  if (line == 0) return;
  for (int64_t i = 0; i < lines; ++i)
    std::memcpy(to + i * to_step, from + i * from_step, static_cast<size_t>(line));
}

// The columns of all ranks side by side.
Kernel Concat(const PrepareContext& ctx) {
  const Operands op(ctx);
  const TensorArg all = ctx.Scratch(op.out.dtype, op.out.shape);
  const Shape& shape = op.x.shape;
  const int64_t line = shape.rank() > 0 ? shape[shape.rank() - 1] * op.element() : op.element();
  return OrCopy(op, [op, all, line](Workspace& ws) {
    RequireRanks(ws, op.nranks, op.type);
    op.Gather(ws, op.x.numel, op.In(ws), ws.Data<void>(all));
    const int64_t ranks = NumRanks(ws), lines = line == 0 ? 0 : op.x.nbytes() / line;
    for (int64_t r = 0; r < ranks; ++r)
      CopyColumns(ws.Data<const char>(all) + r * op.x.nbytes(), line, op.To(ws) + r * line,
                  ranks * line, line, lines);
  });
}

// The rank's part of the columns: nothing is exchanged.
Kernel Split(const PrepareContext& ctx) {
  const Operands op(ctx);
  const Shape& shape = op.out.shape;
  const int64_t line = shape.rank() > 0 ? shape[shape.rank() - 1] * op.element() : op.element();
  return OrCopy(op, [op, line](Workspace& ws) {
    RequireRanks(ws, op.nranks, op.type);
    CopyColumns(op.In(ws) + RankOf(ws) * line, NumRanks(ws) * line, op.To(ws), line, line,
                line == 0 ? 0 : op.out.nbytes() / line);
  });
}

// X, in which part r of the elements comes from rank r.
Kernel PartialAllGather(const PrepareContext& ctx) {
  const Operands op(ctx);
  return OrCopy(op, [op](Workspace& ws) {
    RequireRanks(ws, op.nranks, op.type);
    const int64_t count = op.x.numel / NumRanks(ws);
    const int64_t offset = RankOf(ws) * count * op.element();
    // The rank's own part may stay in place; other overlaps are not allowed.
    if (op.In(ws) != op.To(ws))
      CopyBytes(op.In(ws) + offset, op.To(ws) + offset, count * op.element());
    op.Gather(ws, count, op.To(ws) + offset, op.To(ws));
  });
}

// --- declarations ---

constexpr unsigned kReduceAttrs = kRing | kTag | kModelParallel;
constexpr unsigned kShardAttrs = kRing | kRanks | kRank | kModelParallel;

// How Out's shape differs from X's with several ranks.
enum class Parts { kSame, kMoreRows, kFewerRows, kMoreColumns, kFewerColumns, kEqual };

struct Collective {
  const char* type;
  const char* out;       // formula of Out, for its doc
  const char* gradient;  // type of its gradient op; nullptr: none
  unsigned attrs;
  PrepareFn kernel;
  Parts parts = Parts::kSame;
  RowRule rows = RowRule::kMixes;
};

const std::vector<Collective>& Collectives() {
  using R = Reduction;
  static const std::vector<Collective> collectives = {
      {"c_allreduce_sum", "the sum of all ranks' X", "c_allreduce_sum", kReduceAttrs | kOverlap,
       AllReduce<R::kSum>, Parts::kSame, RowRule::kSame},
      {"c_allreduce_max", "the largest of all ranks' X", nullptr, kReduceAttrs | kOverlap,
       AllReduce<R::kMax>, Parts::kSame, RowRule::kSame},
      {"c_allreduce_min", "the smallest of all ranks' X", nullptr, kReduceAttrs | kOverlap,
       AllReduce<R::kMin>, Parts::kSame, RowRule::kSame},
      {"c_allreduce_prod", "the product of all ranks' X", nullptr, kReduceAttrs | kOverlap,
       AllReduce<R::kProd>, Parts::kSame, RowRule::kSame},
      {"c_reduce_sum", "the sum of all ranks' X on rank root_id, elsewhere X", nullptr,
       kReduceAttrs | kRootId, Reduce<R::kSum>},
      {"c_reduce_max", "the largest of all ranks' X on rank root_id, elsewhere X", nullptr,
       kReduceAttrs | kRootId, Reduce<R::kMax>},
      {"c_reduce_min", "the smallest of all ranks' X on rank root_id, elsewhere X", nullptr,
       kReduceAttrs | kRootId, Reduce<R::kMin>},
      {"c_reduce_prod", "the product of all ranks' X on rank root_id, elsewhere X", nullptr,
       kReduceAttrs | kRootId, Reduce<R::kProd>},
      {"c_broadcast", "X of rank root", nullptr, kRing | kRoot, Broadcast, Parts::kSame,
       RowRule::kSame},
      {"c_identity", "X, whose gradient is the sum over all ranks", "c_allreduce_sum",
       kRing | kCalcStream | kModelParallel, Copy, Parts::kSame, RowRule::kMoves},
      {"c_scatter", "the rank's part of the rows of rank root", nullptr, kRing | kRoot | kRanks,
       Scatter, Parts::kFewerRows},
      {"c_concat", "the columns of all ranks side by side", "c_split", kShardAttrs | kCalcStream,
       Concat, Parts::kMoreColumns},
      {"c_split", "the rank's part of the columns", "c_concat", kShardAttrs, Split,
       Parts::kFewerColumns},
      {"alltoall", "the rank's part of the rows of each rank, one rank after the other", "alltoall",
       kRing, AllToAll},
      {"barrier", "X, after all ranks have reached this op", nullptr, kRing, Barrier, Parts::kSame,
       RowRule::kMoves},
      {"c_allgather", "the rows of all ranks, one rank after the other", "c_reducescatter",
       kRing | kRanks, AllGather, Parts::kMoreRows},
      {"c_reducescatter", "the rank's part of the rows of the sum of all ranks' X", "c_allgather",
       kRing | kRanks, ReduceScatter, Parts::kFewerRows},
      {"partial_allgather", "X, in which part r of the elements comes from rank r", nullptr,
       kRing | kRanks | kRank, PartialAllGather, Parts::kEqual},
      {"allreduce", "the sum of all ranks' X, or another reduction", nullptr,
       kOldReduce | kSyncMode, OldAllReduce, Parts::kSame, RowRule::kSame},
      {"broadcast", "X of rank root", nullptr, kRoot | kSyncMode, Broadcast, Parts::kSame,
       RowRule::kSame},
      {"ncclAllReduce", "the sum of all ranks' X, or another reduction", nullptr,
       kReduction | kCommunicator, NcclAllReduce, Parts::kSame, RowRule::kSame},
      {"ncclReduce", "the sum of all ranks' X, or another reduction, on rank root, elsewhere X",
       nullptr, kReduction | kRoot | kCommunicator, NcclReduce},
      {"ncclBcast", "X of rank root", nullptr, kRoot | kCommunicator, Broadcast, Parts::kSame,
       RowRule::kSame},
  };
  return collectives;
}

Shape ResizedShape(const InferContext& ctx, Parts parts, int64_t ranks) {
  const Shape& shape = ctx.InputShape("X");
  if (ranks <= 1 || parts == Parts::kSame) return shape;
  if (parts == Parts::kEqual) {
    const int64_t numel = NumelOf(shape);
    ctx.Require("C1", numel < 0 || numel % ranks == 0, shape, ranks);
    return shape;
  }
  ctx.Require("C1", shape.rank() > 0, shape, ranks);
  const bool rows = parts == Parts::kMoreRows || parts == Parts::kFewerRows;
  std::vector<int64_t> dims = shape.ToVector();
  int64_t& dim = rows ? dims.front() : dims.back();
  if (parts == Parts::kMoreRows || parts == Parts::kMoreColumns) {
    dim = MulDims(dim, ranks);
  } else if (dim >= 0) {
    ctx.Require("C1", dim % ranks == 0, shape, ranks);
    dim /= ranks;
  }
  return Shape(dims);
}

void InferCollective(InferContext& ctx, Parts parts) {
  const int64_t ranks = ctx.spec().FindAttr("nranks") ? ctx.Attr<int32_t>("nranks") : 1;
  VarMeta out = ctx.Input("X");
  out.shape = ResizedShape(ctx, parts, ranks);
  ctx.SetOutput("Out", out);
}

// With use_model_parallel all ranks have the same loss, so the gradient of the sum is passed
// on once.
void SetGradient(GradientContext& g, std::string type) {
  if (g.op().type() == "c_allreduce_sum" && g.Attr<bool>("use_model_parallel")) type = "c_identity";
  g.Set("X", g.Make(type, {{"X", {g.OutputGrad("Out")}}}, g.ForwardAttrs(type)));
}

void DeclareAttrs(OpDef& def, unsigned attrs) {
  if (attrs & kRing)
    def.Attr<int32_t>("ring_id", 0, "which ranks take part: all, whatever the number")
        .Attr<bool>("use_calc_stream", (attrs & kCalcStream) != 0, "ignored");
  if (attrs & kTag) def.Attr<std::string>("tag", "tag", "ignored");
  if (attrs & kModelParallel)
    def.Attr<bool>("use_model_parallel", (attrs & kTag) == 0,
                   "decides which op computes the gradient of a sum");
  if (attrs & kRoot) def.Attr<int32_t>("root", 0, "rank that sends the data or gets the result");
  if (attrs & kRootId) def.Attr<int32_t>("root_id", 0, "rank that gets the result");
  if (attrs & kRank) def.Attr<int32_t>("rank", 0, "ignored: a rank knows its number");
  if (attrs & kOldReduce)
    def.Attr<int32_t>("reduce_type", 0, "0: sum, 1: product, 2: maximum, 3: minimum").Range(0, 3);
  if (attrs & kSyncMode) def.Attr<bool>("sync_mode", false, "ignored");
  if (attrs & kOverlap)
    def.Attr<bool>(kOverlapAttr, false,
                   "the exchange runs in the background until a c_sync_comm_stream or c_wait_comm "
                   "names Out; no op may use Out before");
  if (attrs & kReduction)
    def.Attr<std::string>("reduction", "ncclSum", "the reduction")
        .OneOf({"ncclSum", "ncclProd", "ncclMax", "ncclMin"});
}

// nranks is required in c_allgather.
void DeclareRanks(OpDef& def, Parts parts) {
  constexpr const char* kDoc = "number of ranks that run the program; 0 means 1";
  def.Constraint("C1", parts == Parts::kEqual       ? "nranks must divide the elements of X"
                       : parts == Parts::kFewerRows ? "nranks must divide the rows of X"
                       : parts == Parts::kFewerColumns
                           ? "nranks must divide the last dimension of X"
                           : "X must have a rank above 0");
  if (def.type() == "c_allgather")
    def.Attr<int32_t>("nranks", kDoc);
  else
    def.Attr<int32_t>("nranks", def.type() == "c_scatter" ? 0 : 1, kDoc);
}

OpDef Define(const Collective& row) {
  OpDef def(row.type);
  def.ForRanks()
      .Doc(std::string("Out = ") + row.out + ". With one rank, Out = X.")
      .Input("X", "tensor of any dtype");
  if (row.attrs & kCommunicator) {
    def.OptionalInput("Communicator", "ignored")
        .Takes(VarType::kRaw, {"Communicator"})
        .NoGradientTo({"Communicator"});
  }
  def.Output("Out", "elements of X's dtype").Apply(DeclareAttrs, row.attrs);
  if (row.attrs & kRanks) def.Apply(DeclareRanks, row.parts);
  if (row.parts == Parts::kSame) def.Inplace("X", "Out");
  if (def.type() == "c_identity") {  // it exchanges nothing
    def.Alias("X", "Out");
  } else {
    const bool sparse = def.type() == "c_allreduce_sum";
    def.SideEffect().Takes(sparse ? VarType::kSelectedRows : VarType::kLoDTensor, {"X"});
  }
  def.Rows(row.rows)
      .Infer([parts = row.parts](InferContext& ctx) { InferCollective(ctx, parts); })
      .Reference(row.kernel);
  if (row.gradient)
    def.Gradient([type = std::string(row.gradient)](GradientContext& g) { SetGradient(g, type); });
  else
    def.NoGradient("Paddle has no gradient for it either");
  return def;
}

void Register(OpRegistry& ops) {
  for (const Collective& row : Collectives()) ops.Add(Define(row));
}

}  // namespace coracle::collective_op
