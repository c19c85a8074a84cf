#include <coracle/framework/base/text.h>
#include <coracle/framework/base/trace.h>
#include <coracle/framework/ir/origin.h>
#include <coracle/framework/op/check/refused_ops.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/passes/passes.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace coracle::inline internal {
namespace {

void RequireAmong(const std::vector<std::string>& known, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw Error(ErrorCode::kNotFound,
                  fmt::format("unknown pass {}{}; known passes: {}", Quote(name),
                              DidYouMean(name, known), Join(known, ", ")));
    }
  }
}

// Whether the problem is that an op reads a fed variable which a later op overwrites. The feed ops,
// which write it first, are no longer in the program.
bool IsReadOfFeed(const VerifyProblem& problem, const PassContext& context) {
  if (problem.rule != "use_before_def") return false;
  return context.feeds.count(problem.var) > 0 ||
         std::any_of(context.feeds.begin(), context.feeds.end(),
                     [&](const std::string& feed) { return BriefName(feed) == problem.var; });
}

// The first defect of the program; "" if it is sound.
std::string Defect(const ProgramDesc& program, const PassContext& context) {
  for (const VerifyProblem& problem : Verify(program, context.ops)) {
    // It may be one that the compiler adds on this machine.
    if (problem.rule == "unknown_op" && IsLeftOutOp(problem.op_type))
      throw Error(ErrorCode::kUnimplemented, "a pass makes an op: " + problem.message);
    if (problem.severity != VerifyProblem::Severity::kNote && !IsReadOfFeed(problem, context))
      return problem.ToString();
  }
  return "";
}

void RequireSound(const ProgramDesc& program, const PassContext& context, const std::string& who) {
  const std::string defect = Defect(program, context);
  if (!defect.empty()) throw InternalError(fmt::format("{} broke the program: {}", who, defect));
}

int64_t CountOps(const ProgramDesc& program) {
  size_t count = 0;
  for (int i = 0; i < program.NumBlocks(); ++i) count += program.Block(i).NumOps();
  return static_cast<int64_t>(count);
}

void RunPass(const Pass& pass, ProgramDesc& program, const PassContext& context) {
  TraceSpan span("pass", pass.name);
  span.Set("ops before", CountOps(program));
  PassContext own = context;
  own.captured = NamesInSubBlocks(program);
  pass.run(program, own);
  span.Set("ops after", CountOps(program));
}

// The program before the passes, for finding out which pass broke it. Stores only the types of
// frozen parameters, because passes release parameters that they fold.
class Beginning {
 public:
  Beginning(const ProgramDesc& program, const PassContext& context) : program_(program) {
    if (!context.frozen) return;
    for (const auto& [name, value] : *context.frozen)
      types_.emplace_back(name, VarMeta{VarType::kLoDTensor, value.dtype(), value.shape(), 0});
  }

  // Runs the passes again, with zeros for released values, and verifies after each pass. Throws
  // InternalError with the name of the pass that broke the program.
  void ThrowIfBroken(const PassContext& context, const std::vector<Pass>& passes) const {
    ProgramDesc program = program_;
    if (!Defect(program, context).empty()) return;
    PassContext again = context;
    FrozenValues values;
    for (const auto& [name, type] : types_) {
      const Tensor* value = context.FrozenValue(name);
      values.emplace(name, value ? *value : Tensor::Zeros(type.dtype, type.shape));
    }
    if (context.frozen) again.frozen = &values;
    for (const Pass& pass : passes) {
      try {
        RunPass(pass, program, again);
      } catch (const Error&) {
        return;  // the program was sound, so the pass itself failed
      }
      RequireSound(program, context, "pass " + pass.name);
    }
  }

 private:
  ProgramDesc program_;
  std::vector<std::pair<std::string, VarMeta>> types_;
};

}  // namespace

const std::vector<Pass>& Pipeline() {
  static const std::vector<Pass> passes = {
      {"dead_code", "removes ops whose results are unused, which also shortens the later passes",
       EliminateDeadCode},
      {"remove_identities",
       "dropout in a test, assign, scale by 1, ... hide patterns from the later passes",
       RemoveIdentities},
      {"widen_filters",
       "if the machine has no fast products of bfloat16, convolutions convert their images in the "
       "cache and need no 16-bit filters; before fold_constants, which would make such filters of "
       "frozen parameters",
       WidenFilters},
      {"unify_quantization",
       "Paddle's quantized forms and ONNX's sums of integers become pairs of affine_quantize and "
       "affine_dequantize, the only form that later passes know; before fold_constants, which "
       "would make float32 of their weights",
       UnifyQuantization},
      {"fold_constants",
       "computes results that depend only on parameters once; before the passes that use values. "
       "Leaves weights of 8 bits to fuse_quantized",
       FoldConstants},
      {"move_quantization",
       "reshapes, transposes and maxima work on integers of 8 bits as on real numbers, so that "
       "quantizations meet convolutions and products; before the passes that look for those, and "
       "before common_subexpressions, because ops that read different copies become equal",
       MoveQuantization},
      {"common_subexpressions",
       "computes equal ops only once; after fold_constants, which leaves fewer ops to compare",
       JoinCommonSubexpressions},
      {"hoist_invariants", "computes results that are equal in all rounds of a loop only once",
       HoistInvariants},
      {"move_squeezes",
       "the ops between 1-D convolutions work on images of height 1, so that later passes fuse "
       "them",
       MoveSqueezes},
      {"widen_halves",
       "float16 nets whose convolutions compute in float32 convert values once between two of "
       "them, and the convolutions apply relu; before the fusions",
       WidenHalves},
      {"find_activations",
       "an activation that is one op can be computed by the convolution or product before it; "
       "after fold_constants, which computes the bounds and factors",
       FindActivations, true},
      {"fold_batch_norm",
       "multiplies a known scale and shift into the filter and its bias, which saves one sweep "
       "over the image; before fuse_conv_bias, because a bias between is folded too",
       FoldBatchNorm},
      {"fold_scales",
       "factors and shifts of channels cost a sweep over the image each, and nothing as parts of "
       "the filters and biases around them; after fold_batch_norm, which may stand between, and "
       "before fuse_conv_bias, which only takes plain biases",
       FoldScales},
      {"fuse_conv_bias", "a convolution adds its bias while the result is in registers",
       FuseConvBias},
      {"fuse_conv_epilogue",
       "a convolution adds a residual and applies an activation while the sums are in registers or "
       "in the cache; after fuse_conv_bias, because the bias is added first",
       FuseConvEpilogue},
      {"fuse_batch_norm_activation",
       "in training, batch_norm also computes a sum and relu after it, and its gradient theirs, "
       "without extra sweeps and without storing the values between them",
       FuseBatchNormActivation},
      {"fuse_fc",
       "applies bias and activation while the product is in the cache; sums the bias's gradient "
       "while computing relu's, and runs both products in one parallel region; after "
       "fold_batch_norm, which makes products with a bias",
       FuseFc},
      {"fuse_quantized",
       "convolutions, products, sums and functions of quantized values compute in integers, which "
       "takes a fraction of the time; after the fusions of bias, residual and activation, which it "
       "takes over",
       FuseQuantized},
      {"fuse_weight_only",
       "products with weights of integers read a fraction of the bytes, also if their activations "
       "are real numbers; after fuse_quantized, which takes products whose activations are "
       "quantized "
       "too",
       FuseWeightOnly},
      {"fold_dequantized",
       "computes the real numbers of quantized weights that no integer op uses, once instead of in "
       "each run",
       FoldDequantized},
      {"fuse_softmax_cross_entropy",
       "the softmax of many classes is larger than a cache: one sweep reads the logits and writes "
       "their gradient",
       FuseSoftmaxCrossEntropy},
      {"fuse_attention",
       "keeps scores and weights of an attention in the cache; backward stores the weights of "
       "short sequences and computes those of long ones again; reads heads where a projection "
       "wrote them",
       FuseAttention, true},
      {"fuse_layer_norm",
       "computes a sum, the dropout of one of its terms and the norm of the sum in one sweep, and "
       "also their gradients; after fuse_attention, which fuses the dropouts of weights",
       FuseLayerNorm},
      {"use_bfloat16",
       "if bfloat16 is asked for (--precision), convolutions and products compute in it; after the "
       "fusions, so that bias, residual and activation are added to float32 sums, and scales are "
       "folded before weights are rounded",
       UseBfloat16},
      {"nhwc",
       "oneDNN is fastest on NHWC: blocked layouts pad 20 or 50 channels to 32 or 64; after the "
       "fusions, which look for NCHW",
       UseNhwcLayout},
      {"move_transposes",
       "moves the conversions around concat, mul by a gate and the like, which work in any layout, "
       "until they cancel; after nhwc, which inserts them",
       MoveTransposes},
      {"fuse_elementwise",
       "one sweep over memory instead of one for each op; after the passes that look for single "
       "elementwise ops",
       FuseElementwise, true},
      {"fuse_images",
       "the values that convolutions pass on for one image stay in the cache, and threads need not "
       "wait for each other; after the passes that look for single ops",
       FuseImages, true},
      {"early_updates",
       "updates a parameter as soon as its gradient is complete: the gradient is still in the "
       "cache, and its memory is free earlier; after the passes that depend on backward's order. "
       "Off if a step must stop before it changes parameters (check_nan_inf)",
       UpdateEarly, true},
      {"merge_updates",
       "one op updates all parameters in one sweep, and others compute the gradients' norms and "
       "scaling; last: of the other passes, only overlap_exchanges knows ops with several items",
       MergeUpdates},
      {"overlap_exchanges",
       "backward continues while gradients are exchanged; last: no other pass may put an op that "
       "uses a gradient between its exchange and the op that waits for it",
       OverlapExchanges, true},
  };
  return passes;
}

std::unordered_set<std::string> NamesInSubBlocks(const ProgramDesc& program) {
  std::unordered_set<std::string> names;
  auto add = [&](const std::string& name) { names.insert(name); };
  for (int b = 1; b < program.NumBlocks(); ++b) {
    program.Block(b).ForEachOp([&](const OpDesc& op) {
      op.ForEachInput(add);
      op.ForEachOutput(add);
    });
  }
  return names;
}

std::vector<std::string> PassesWithout(const std::vector<std::string>& disabled) {
  std::vector<std::string> names;
  for (const Pass& pass : Pipeline()) names.push_back(pass.name);
  RequireAmong(names, disabled);
  for (const std::string& name : disabled) std::erase(names, name);
  return names;
}

bool PassContext::IsVisible(const BlockDesc& block, const std::string& name) const {
  if (fetches.count(name) || captured.count(name)) return true;
  const VarDesc* var = block.FindVarRecursive(name);
  return var && var->persistable();
}

const Tensor* PassContext::FrozenValue(const std::string& name) const {
  if (!frozen) return nullptr;
  auto it = frozen->find(name);
  return it == frozen->end() ? nullptr : &it->second;
}

std::string PassContext::AddFrozen(ProgramDesc& program, const std::string& prefix,
                                   Tensor value) const {
  std::string name = program.FreeName(prefix);
  VarDesc& var = program.Root().Var(name);
  var.SetMeta({VarType::kLoDTensor, value.dtype(), value.shape(), 0});
  var.SetPersistable(true);
  frozen->emplace(name, std::move(value));
  return name;
}

std::string PassContext::AddFrozenForm(ProgramDesc& program, const std::string& from,
                                       const char* suffix, Tensor value,
                                       const std::vector<int32_t>& axes) const {
  std::string name = AddFrozen(program, from + suffix, std::move(value));
  NoteMade(name, from, axes);
  return name;
}

void PassContext::ReleaseFrozen(const std::string& name) const {
  if (!fetches.count(name)) frozen->erase(name);
}

void PassContext::NoteMade(const std::string& made, const std::string& from,
                           const std::vector<int32_t>& axes,
                           std::shared_ptr<const OpDesc> writer) const {
  if (origins) origins->Add(made, from, axes, std::move(writer));
}

std::string PassContext::AddForm(ProgramDesc& program, const std::string& from, const char* suffix,
                                 const VarMeta& meta, const std::vector<int32_t>& axes,
                                 std::shared_ptr<const OpDesc> writer) const {
  std::string name = program.FreeName(from + suffix);
  program.Root().Var(name).SetMeta(meta);
  NoteMade(name, from, axes, std::move(writer));
  return name;
}

std::string PassContext::AddForm(ProgramDesc& program, const std::string& from, const char* suffix,
                                 DType dtype) const {
  VarMeta meta = program.Root().FindVarRecursive(from)->meta();
  meta.dtype = dtype;
  return AddForm(program, from, suffix, meta);
}

void RunPasses(ProgramDesc& program, const PassContext& context,
               const std::vector<std::string>& names, const PassObserver& after_each) {
  std::vector<std::string> known;
  for (const Pass& pass : Pipeline()) known.push_back(pass.name);
  RequireAmong(known, names);
  const std::vector<std::string> enabled = PassesWithout(context.disabled);
  std::vector<Pass> passes;
  for (const Pass& pass : Pipeline()) {
    if (!names.empty() && std::find(names.begin(), names.end(), pass.name) == names.end()) continue;
    if (std::find(enabled.begin(), enabled.end(), pass.name) == enabled.end()) continue;
    passes.push_back(pass);
  }
  RunPassList(program, context, passes, after_each);
}

void RunPassList(ProgramDesc& program, const PassContext& context, const std::vector<Pass>& passes,
                 const PassObserver& after_each) {
  if (!after_each) {
    const Beginning beginning(program, context);
    try {
      for (const Pass& pass : passes) RunPass(pass, program, context);
    } catch (const Error& error) {
      // Perhaps an earlier pass broke the program.
      const bool stopped =
          error.code() == ErrorCode::kDeadlineExceeded || error.code() == ErrorCode::kCancelled;
      if (!stopped) beginning.ThrowIfBroken(context, passes);
      throw;
    }
    const std::string defect = Defect(program, context);
    if (defect.empty()) return;
    beginning.ThrowIfBroken(context, passes);
    throw InternalError(fmt::format("passes broke the program: {}", defect));
  }
  ProgramDesc before = program;
  for (const Pass& pass : passes) {
    const auto start = std::chrono::steady_clock::now();
    RunPass(pass, program, context);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    const bool changed = !(program == before);
    if (changed) RequireSound(program, context, "pass " + pass.name);
    after_each({pass, before, program, time.count()});
    if (changed) before = program;
  }
}

}  // namespace coracle::inline internal
