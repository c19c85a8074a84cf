#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/rules/index.h>

namespace coracle::shard_index_op {

void InferShardIndex(InferContext& ctx) {
  const int32_t shards = ctx.Attr<int32_t>("nshards"), shard = ctx.Attr<int32_t>("shard_id");
  ctx.Require("C1", shard >= 0 && shard < shards, "shard_id", shard, "nshards", shards);
  ctx.SetOutput("Out", ctx.Input("X"));
}

template <class T>
KernelOf<T> ShardIndex(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const int64_t limit = ctx.Attr<int32_t>("index_num"), shards = ctx.Attr<int32_t>("nshards");
  const int64_t size = (limit + shards - 1) / shards, shard = ctx.Attr<int32_t>("shard_id");
  const T ignored = ctx.Attr<int32_t>("ignore_value");
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    for (int64_t i = 0; i < x.numel; ++i) {
      const int64_t value = in[i];
      if (value < 0 || value >= limit) ThrowIndexRange("shard_index", "X", i, value, limit);
      o[i] = value / size == shard ? static_cast<T>(value % size) : ignored;
    }
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("shard_index")
              .Doc("Distributes the indices in [0, index_num) over nshards shards, size = "
                   "index_num / nshards (rounded up) for each: Out = X mod size where X / size is "
                   "shard_id, else ignore_value. An index out of range is an error.")
              .Constraint("C1", "shard_id must lie in [0, nshards)")
              .Input("X", "int32 or int64 indices")
              .Output("Out", "tensor of X's shape and dtype")
              .Attr<int32_t>("index_num", "number of indices")
              .Range(1, {})
              .Attr<int32_t>("nshards", "number of shards")
              .Range(1, {})
              .Attr<int32_t>("shard_id", "the shard")
              .Attr<int32_t>("ignore_value", -1, "value for indices of other shards")
              .NotDifferentiable("indices are integers")
              .Inplace("X", "Out")
              .Rows(RowRule::kEach)
              .Infer(InferShardIndex)
              .Reference(ShardIndex<int32_t>, ShardIndex<int64_t>));
}

}  // namespace coracle::shard_index_op
