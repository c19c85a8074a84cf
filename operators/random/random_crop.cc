#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/random/generator.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/same_type.h>

#include <cstring>

namespace coracle::random_crop_op {

void InferRandomCrop(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  const auto shape = ctx.Attr<std::vector<int32_t>>("shape");
  const int cropped = static_cast<int>(shape.size()), rank = x.shape.rank();
  ctx.Require("C1", cropped > 0 && cropped <= rank, "shape", shape, "X", x.shape);
  for (int i = 0; i < cropped; ++i) {
    int64_t& dim = x.shape[rank - cropped + i];
    const int32_t size = shape[static_cast<size_t>(i)];
    ctx.Require("C2", size > 0 && (dim < 0 || size <= dim), "shape", shape, "X", x.shape);
    dim = size;
  }
  if (ctx.HasInput("Seed")) {
    const VarMeta& seed = ctx.Input("Seed");
    const bool one = seed.dtype == DType::kInt64 && InferContext::Matches(NumelOf(seed.shape), 1);
    ctx.Require("C3", one, seed);
  }
  ctx.SetOutput("Out", x);
  ctx.SetOutput("SeedOut", DType::kInt64, {1});
}

// The window of each instance is drawn axis by axis.
Kernel RandomCrop(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), seed = ctx.Input("Seed"), out = ctx.Output("Out");
  const TensorArg seed_out = ctx.Output("SeedOut");
  const int64_t fixed = ctx.Attr<int32_t>("startup_seed");
  const uint64_t stream = ctx.RandomStream("Out");
  const int cropped = static_cast<int>(ctx.Attr<std::vector<int32_t>>("shape").size());
  const int rank = x.shape.rank(), lead = rank - cropped;
  const int64_t instances = x.shape.Product(0, lead);
  const int64_t from_size = x.shape.Product(lead, rank), to_size = out.shape.Product(lead, rank);
  const int64_t row = out.shape[rank - 1];
  const size_t size = SizeOf(x.dtype);
  return [=](Workspace& ws) {
    const int64_t given = seed && seed.numel > 0 ? ws.Data<const int64_t>(seed)[0] : fixed;
    const uint64_t key = given != 0 ? static_cast<uint64_t>(given) : ws.seed();
    const Philox random(key, stream, ws.step());
    const char* in = ws.Data<const char>(x);
    char* to = ws.Data<char>(out);
    uint64_t draw = 0;
    for (int64_t n = 0; n < instances; ++n) {
      int64_t start[Shape::kMaxRank];
      for (int i = lead; i < rank; ++i)
        start[i] = UniformBelow(random, draw++, x.shape[i] - out.shape[i] + 1);
      for (int64_t r = 0; r < to_size / row; ++r) {
        // The offset of row r in the window, computed from its last axis but one to the first.
        int64_t rest = r, at = start[rank - 1], step = x.shape[rank - 1];
        for (int i = rank - 2; i >= lead; --i) {
          at += (start[i] + rest % out.shape[i]) * step;
          rest /= out.shape[i];
          step *= x.shape[i];
        }
        std::memcpy(to + static_cast<size_t>(n * to_size + r * row) * size,
                    in + static_cast<size_t>(n * from_size + at) * size,
                    static_cast<size_t>(row) * size);
      }
    }
    if (seed_out) ws.Data<int64_t>(seed_out)[0] = UniformBelow(random, draw, int64_t{1} << 53);
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("random_crop")
              .Doc("Out = windows of X of the given shape in its last dims, one window at a random "
                   "position for each index of the dims before them.")
              .Constraint("C1",
                          "shape must have at least one number, and at most one for each dim of X")
              .Constraint("C2", "the window must be positive and fit into X")
              .Constraint("C3", "Seed must be one int64 number")
              .Input("X", "tensor of any dtype")
              .OptionalInput("Seed", "int64 tensor [1]; replaces attr startup_seed")
              .Output("Out", "the windows")
              .IntermediateOutput("SeedOut", "int64 tensor [1], a random number: the next seed")
              .Attr<std::vector<int32_t>>("shape", "sizes of the last dims of Out")
              .Attr<int32_t>("startup_seed", 0, "seed of this op; 0: the program's seed")
              .Random()
              .NoGradient("crops are applied before the layers of a model")
              .Rows(RowRule::kEach)
              .Infer(InferRandomCrop)
              .Reference(RandomCrop));
}

}  // namespace coracle::random_crop_op
