// Collective communication in a program that one process runs: every op returns what it was given.
// The ops of the gradients are Paddle's, so that a saved program means the same where several
// processes run it.

#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/kernels/copy.h>

namespace coracle {
namespace {

// The attrs of a row besides those that every op of its kind has.
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
};

constexpr unsigned kReduceAttrs = kRing | kTag | kModelParallel;
constexpr unsigned kShardAttrs = kRing | kRanks | kRank | kModelParallel;

struct Collective {
  const char* type;
  const char* among_several;  // what it does where several processes run the program
  const char* gradient;       // the op of its gradient; nullptr: none
  unsigned attrs;
};

constexpr Collective kCollectives[] = {
    {"c_allreduce_sum", "the sum over all processes", "c_allreduce_sum", kReduceAttrs},
    {"c_allreduce_max", "the largest over all processes", nullptr, kReduceAttrs},
    {"c_allreduce_min", "the smallest over all processes", nullptr, kReduceAttrs},
    {"c_allreduce_prod", "the product over all processes", nullptr, kReduceAttrs},
    {"c_reduce_sum", "the sum, in process root_id", nullptr, kReduceAttrs | kRootId},
    {"c_reduce_max", "the largest, in process root_id", nullptr, kReduceAttrs | kRootId},
    {"c_reduce_min", "the smallest, in process root_id", nullptr, kReduceAttrs | kRootId},
    {"c_reduce_prod", "the product, in process root_id", nullptr, kReduceAttrs | kRootId},
    {"c_broadcast", "X of process root", nullptr, kRing | kRoot},
    {"c_identity", "X, whose gradient is the sum over all processes", "c_allreduce_sum",
     kRing | kCalcStream | kModelParallel},
    {"c_scatter", "a part of the rows that process root has", nullptr, kRing | kRoot | kRanks},
    {"c_concat", "the columns of all processes side by side", "c_split", kShardAttrs | kCalcStream},
    {"c_split", "the process's part of the columns", "c_allgather", kShardAttrs},
    {"alltoall", "a part of the rows of each process", "alltoall", kRing},
    {"barrier", "X, when all processes have come here", nullptr, kRing},
    {"c_allgather", "the rows of all processes", "c_reducescatter", kRing | kRanks},
    {"c_reducescatter", "a part of the rows of the sum over all processes", "c_allgather",
     kRing | kRanks},
    {"partial_allgather", "X with the parts that other processes have", nullptr,
     kRing | kRanks | kRank},
    {"allreduce", "the sum (or another reduction) over all processes", nullptr,
     kOldReduce | kSyncMode},
    {"broadcast", "X of process root", nullptr, kRoot | kSyncMode},
    {"ncclAllReduce", "the sum (or another reduction) over all devices", nullptr,
     kReduction | kCommunicator},
    {"ncclReduce", "the sum (or another reduction), on device root", nullptr,
     kReduction | kRoot | kCommunicator},
    {"ncclBcast", "X of device root", nullptr, kRoot | kCommunicator},
};

void InferCollective(InferContext& ctx) {
  if (ctx.spec().FindAttr("nranks")) {
    const int32_t ranks = ctx.Attr<int32_t>("nranks");
    ctx.Require("C1", ranks <= 1, ranks);
  }
  ctx.SetOutput("Out", ctx.Input("X"));
}

Kernel Copy(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const int64_t bytes = x.nbytes();
  return [=](Workspace& ws) { CopyBytes(ws.Data<const void>(x), ws.Data<void>(out), bytes); };
}

// With use_model_parallel every process has the same loss, so that the gradient of their sum is
// taken once.
void SetGradient(GradientContext& g, std::string type) {
  if (g.op().type() == "c_allreduce_sum" && g.Attr<bool>("use_model_parallel")) type = "c_identity";
  g.Set("X", g.Make(type, {{"X", {g.OutputGrad("Out")}}}, g.ForwardAttrs(type)));
}

void DeclareAttrs(OpDef& def, unsigned attrs) {
  if (attrs & kRing)
    def.Attr<int32_t>("ring_id", 0, "ignored: which processes take part")
        .Attr<bool>("use_calc_stream", (attrs & kCalcStream) != 0, "ignored");
  if (attrs & kTag) def.Attr<std::string>("tag", "tag", "ignored");
  if (attrs & kModelParallel)
    def.Attr<bool>("use_model_parallel", (attrs & kTag) == 0,
                   "decides which op computes the gradient of a sum");
  if (attrs & kRoot) def.Attr<int32_t>("root", 0, "ignored: the process that has the data");
  if (attrs & kRootId) def.Attr<int32_t>("root_id", 0, "ignored: the process that gets the result");
  if (attrs & kRank) def.Attr<int32_t>("rank", 0, "ignored: the number of this process");
  if (attrs & kOldReduce) def.Attr<int32_t>("reduce_type", 0, "ignored: sum, product, ...");
  if (attrs & kSyncMode) def.Attr<bool>("sync_mode", false, "ignored");
  if (attrs & kReduction) def.Attr<std::string>("reduction", "ncclSum", "ignored: the reduction");
}

// nranks is required in c_allgather.
void DeclareRanks(OpDef& def) {
  constexpr const char* kDoc = "number of processes; 0 and 1 are one";
  def.Constraint("C1", "nranks must be 1, since one process runs the program");
  if (def.type() == "c_allgather")
    def.Attr<int32_t>("nranks", kDoc);
  else
    def.Attr<int32_t>("nranks", def.type() == "c_scatter" ? 0 : 1, kDoc);
}

OpDef Define(const Collective& row) {
  OpDef def(row.type);
  def.Doc(std::string("Out = X, as in a program that one process runs. Among several processes: ") +
          row.among_several + ".")
      .Input("X", "tensor of any dtype");
  if (row.attrs & kCommunicator) {
    def.OptionalInput("Communicator", "ignored")
        .Takes(VarType::kRaw, {"Communicator"})
        .NoGradientTo({"Communicator"});
  }
  def.Output("Out", "X's elements").Apply(DeclareAttrs, row.attrs);
  if (row.attrs & kRanks) def.Apply(DeclareRanks);
  def.Inplace("X", "Out").Alias("X", "Out").Infer(InferCollective).Reference(Copy);
  if (row.gradient)
    def.Gradient([type = std::string(row.gradient)](GradientContext& g) { SetGradient(g, type); });
  else
    def.NoGradient("Paddle has none either");
  return def;
}

}  // namespace

void RegisterCollective(OpRegistry& ops) {
  for (const Collective& row : kCollectives) ops.Add(Define(row));
}

}  // namespace coracle
