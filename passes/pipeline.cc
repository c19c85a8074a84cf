#include <coracle/framework/base/text.h>
#include <coracle/framework/base/trace.h>
#include <coracle/framework/ir/origin.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/passes/passes.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace coracle {
namespace {

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

void RequireAmong(const std::vector<std::string>& known, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw Error(ErrorCode::kNotFound,
                  fmt::format("unknown pass {}{}; known passes: {}", Quote(name),
                              DidYouMean(name, known), Join(known, ", ")));
    }
  }
}

// What is wrong with the program; "" if nothing is.
std::string Defect(const ProgramDesc& program, const OpRegistry& ops) {
  for (const VerifyProblem& problem : Verify(program, ops)) {
    if (problem.severity != VerifyProblem::Severity::kNote) return problem.ToString();
  }
  return "";
}

void RequireSound(const ProgramDesc& program, const OpRegistry& ops, const std::string& who) {
  const std::string defect = Defect(program, ops);
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

// What the passes began with, kept to find out which of them broke the program. Of frozen
// parameters only the types are kept, since passes release those that they fold away.
class Beginning {
 public:
  Beginning(const ProgramDesc& program, const PassContext& context) : program_(program) {
    if (!context.frozen) return;
    for (const auto& [name, value] : *context.frozen)
      types_.emplace_back(name, VarMeta{VarType::kLoDTensor, value.dtype(), value.shape(), 0});
  }

  // Runs the passes again, on zeros in place of values that are gone, and verifies after each.
  // Throws InternalError with the name of the pass that broke the program.
  void ThrowIfBroken(const PassContext& context, const std::vector<Pass>& passes) const {
    ProgramDesc program = program_;
    if (!Defect(program, context.ops).empty()) return;
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
        return;  // on a sound program: its error is its own
      }
      RequireSound(program, context.ops, "pass " + pass.name);
    }
  }

 private:
  ProgramDesc program_;
  std::vector<std::pair<std::string, VarMeta>> types_;
};

}  // namespace

const std::vector<Pass>& Pipeline() {
  static const std::vector<Pass> passes = {
      {"dead_code", "what nobody reads need not be computed, nor looked at by the passes below",
       EliminateDeadCode},
      {"remove_identities",
       "the patterns below do not see through dropout in a test, assign, scale by 1, ...",
       RemoveIdentities},
      {"widen_filters",
       "where the machine has no fast products of bfloat16, convolutions convert their images in "
       "the cache, and need no filters of 16 bits; before fold_constants, which makes those of "
       "frozen "
       "parameters",
       WidenFilters},
      {"fold_constants",
       "what depends on parameters alone is computed once; before the passes that look at values",
       FoldConstants},
      {"common_subexpressions",
       "what is computed twice is needed once; after fold_constants, which leaves less to compare",
       JoinCommonSubexpressions},
      {"hoist_invariants", "what is the same in each round of a loop is needed once",
       HoistInvariants},
      {"fold_batch_norm",
       "a scale and a shift that are known become part of the filter and its bias: one sweep less "
       "over the image; before fuse_conv_bias, since the bias between is folded too",
       FoldBatchNorm},
      {"fuse_conv_bias", "a convolution adds its bias while the result is in registers",
       FuseConvBias},
      {"fuse_conv_epilogue",
       "a convolution adds a residual and applies an activation while the sums are in registers or "
       "in cache; after fuse_conv_bias, since the bias comes first",
       FuseConvEpilogue},
      {"fuse_batch_norm_activation",
       "in training, relu and a sum before it cost no sweep of their own behind batch_norm, and "
       "their gradients none before batch_norm's; what lies between is not stored",
       FuseBatchNormActivation},
      {"fuse_fc",
       "bias and activation are applied while the product is in the cache; the bias's gradient is "
       "summed while relu's is made, and both products run in one parallel region; after "
       "fold_batch_norm, which makes products with a bias",
       FuseFc},
      {"fuse_softmax_cross_entropy",
       "the softmax of many classes is larger than a cache: one sweep reads the logits and writes "
       "their gradient",
       FuseSoftmaxCrossEntropy},
      {"fuse_attention",
       "scores and weights of an attention stay in the cache; its backward keeps the weights of "
       "short sequences, and computes those of long ones again; heads are read where a projection "
       "wrote them",
       FuseAttention, true},
      {"fuse_layer_norm",
       "a sum, the dropout of a term of it and the norm of the sum are one sweep, and so are their "
       "gradients; after fuse_attention, which takes the dropouts of weights",
       FuseLayerNorm},
      {"nhwc",
       "oneDNN is fastest on NHWC: blocked layouts pad 20 or 50 channels to 32 or 64; after the "
       "fusions, which look for NCHW",
       UseNhwcLayout},
      {"move_transposes",
       "concat, mul by a gate and the like do not know layouts: the conversions around them meet "
       "and cancel; after nhwc, which makes them",
       MoveTransposes},
      {"fuse_elementwise",
       "one sweep over memory instead of one for each op; behind the passes that look for single "
       "elementwise ops",
       FuseElementwise, true},
      {"fuse_images",
       "what convolutions pass to each other of one image stays near, and threads need not wait "
       "for each other; behind the passes that look for single ops",
       FuseImages, true},
      {"early_updates",
       "a gradient's memory is free again, and the gradient still in the cache, when the parameter "
       "is updated as soon as it is complete; behind the passes that look at backward's order. Not "
       "where a step must stop before it changes parameters (check_nan_inf)",
       UpdateEarly, true},
      {"merge_updates",
       "one op updates all parameters in one sweep, as do the gradients' norms and scaling; last: "
       "no other pass but overlap_exchanges looks at ops with several items",
       MergeUpdates},
      {"overlap_exchanges",
       "backward goes on while gradients are exchanged; last: no other pass may put an op that "
       "uses "
       "a gradient between its exchange and the op that waits for it",
       OverlapExchanges, true},
  };
  return passes;
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

void PassContext::ReleaseFrozen(const std::string& name) const {
  if (!fetches.count(name)) frozen->erase(name);
}

void PassContext::NoteMade(const std::string& made, const std::string& from,
                           const std::vector<int32_t>& axes,
                           std::shared_ptr<const OpDesc> writer) const {
  if (origins) origins->Add(made, from, axes, std::move(writer));
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
      // Perhaps the pass could not read what one before it left.
      const bool stopped =
          error.code() == ErrorCode::kDeadlineExceeded || error.code() == ErrorCode::kCancelled;
      if (!stopped) beginning.ThrowIfBroken(context, passes);
      throw;
    }
    const std::string defect = Defect(program, context.ops);
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
    if (changed) RequireSound(program, context.ops, "pass " + pass.name);
    after_each({pass, before, program, time.count()});
    if (changed) before = program;
  }
}

}  // namespace coracle
