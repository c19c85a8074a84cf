// Flat shards: the elements of a tensor, in row-major order, divided among the ranks. Each has
// ceil(elements / nranks) of them; the last ones may have fewer, and zeros behind them.

#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/collective/exchange.h>
#include <coracle/operators/rules/dims.h>

#include <algorithm>
#include <cstring>

namespace coracle {
namespace {

int64_t ShardSize(int64_t numel, int64_t nranks) { return (numel + nranks - 1) / nranks; }

void InferShard(InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  const int64_t nranks = ctx.Attr<int32_t>("nranks");
  ctx.SetOutput("Out", ctx.InputDType("X"), {x.IsKnown() ? ShardSize(x.numel(), nranks) : -1});
}

void InferGather(InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  const Shape shape = ToShape(ctx, "C1", ctx.Attr<std::vector<int64_t>>("shape"));
  const int64_t nranks = ctx.Attr<int32_t>("nranks");
  const bool fits = shape.IsKnown() && x.rank() == 1 &&
                    InferContext::Matches(x[0], ShardSize(shape.numel(), nranks));
  ctx.Require("C1", fits, x, shape);
  ctx.SetOutput("Out", ctx.InputDType("X"), shape);
}

// Which elements of `whole` each rank has.
struct Parts {
  TensorArg whole, shard;
  int nranks;
  std::string type;
  std::vector<int64_t> counts;  // by rank

  Parts(const PrepareContext& ctx, const char* whole_slot, bool whole_is_input)
      : whole(whole_is_input ? ctx.Input(whole_slot) : ctx.Output(whole_slot)),
        shard(whole_is_input ? ctx.Output("Out") : ctx.Input("X")),
        nranks(ctx.Attr<int32_t>("nranks")),
        type(ctx.op().type()) {
    for (int r = 0; r < nranks; ++r) counts.push_back(Begin(r + 1) - Begin(r));
  }

  int64_t Begin(int rank) const { return std::min(rank * shard.numel, whole.numel); }
  size_t Bytes(int64_t elements) const {
    return static_cast<size_t>(ByteSize(whole.dtype, {elements}));
  }
  // Checks the number of ranks; returns this one's.
  int Rank(Workspace& ws) const {
    RequireRanks(ws, nranks, type);
    return RankOf(ws);
  }
  void ZeroTail(Workspace& ws, int rank) const {
    const int64_t own = counts[static_cast<size_t>(rank)];
    if (own < shard.numel)
      std::memset(ws.Data<char>(shard) + Bytes(own), 0, Bytes(shard.numel - own));
  }
};

Kernel Shard(const PrepareContext& ctx) {
  return [parts = Parts(ctx, "X", true)](Workspace& ws) {
    const int rank = parts.Rank(ws);
    const int64_t begin = parts.Begin(rank), own = parts.counts[static_cast<size_t>(rank)];
    if (own > 0) {
      std::memcpy(ws.Data<char>(parts.shard), ws.Data<const char>(parts.whole) + parts.Bytes(begin),
                  parts.Bytes(own));
    }
    parts.ZeroTail(ws, rank);
  };
}

Kernel ReduceScatter(const PrepareContext& ctx) {
  const Kernel shard = Shard(ctx);
  return [=, parts = Parts(ctx, "X", true), exchange = Exchanger(ctx)](Workspace& ws) {
    if (!ws.comm()) return shard(ws);
    const int rank = parts.Rank(ws);
    exchange(ws, {Exchange::Kind::kReduceScatter, parts.whole.dtype, parts.counts,
                  ws.Data<const void>(parts.whole), ws.Data<void>(parts.shard)});
    parts.ZeroTail(ws, rank);
  };
}

Kernel Gather(const PrepareContext& ctx) {
  return [parts = Parts(ctx, "Out", false), exchange = Exchanger(ctx)](Workspace& ws) {
    const void* in = ws.Data<const void>(parts.shard);
    void* out = ws.Data<void>(parts.whole);
    parts.Rank(ws);
    if (!ws.comm()) {
      if (parts.whole.numel > 0) std::memcpy(out, in, parts.whole.nbytes());
      return;
    }
    exchange(ws, {Exchange::Kind::kAllGather, parts.whole.dtype, parts.counts, in, out});
  };
}

OpDef Def(const std::string& type, const std::string& doc) {
  return OpDef(type)
      .Doc(doc + " With one rank the shard is all of the elements.")
      .Attr<int32_t>("nranks", 1, "the ranks that run the program; another number is refused")
      .Range(1, 1 << 20)
      .Attr<int32_t>("ring_id", 0, "which ranks take part: all, whatever the number")
      .NoGradient("it is a part of the update of parameters");
}

}  // namespace

void RegisterFlatShard(OpRegistry& ops) {
  ops.Add(Def("c_flat_shard", "Out = this rank's part of X's elements, with zeros behind them.")
              .Input("X", "tensor, the same on all ranks")
              .Output("Out", "[ceil(elements of X / nranks)]")
              .Infer(InferShard)
              .Reference(Shard));
  ops.Add(Def("c_flat_reducescatter",
              "Out = this rank's part of the sum of all ranks' X, with zeros behind it.")
              .Input("X", "tensor")
              .Output("Out", "[ceil(elements of X / nranks)]")
              .SideEffect()
              .Infer(InferShard)
              .Reference(ReduceScatter));
  ops.Add(
      Def("c_flat_allgather", "Out = the tensor of which each rank's X is its part.")
          .Constraint("C1", "X must be [ceil(elements / nranks)], by attr shape, which is known")
          .Input("X", "a rank's part")
          .Output("Out", "of attr shape")
          .Attr<std::vector<int64_t>>("shape", {}, "of Out")
          .SideEffect()
          .Infer(InferGather)
          .Reference(Gather));
}

}  // namespace coracle
