#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/ir/role.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/optimizer/mixed_precision.h>
#include <coracle/passes/half_rewrite.h>
#include <coracle/passes/pass.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace coracle {
namespace {

// --- parameters of 16 bits ---

// Makes the op that initialises the parameter write 16 bits, or appends a cast to it.
void NarrowInitializer(ProgramDesc& startup, const std::string& name, DType dtype,
                       const OpRegistry& ops) {
  BlockDesc& root = startup.Root();
  VarDesc* var = root.FindVar(name);
  if (!var) return;
  for (size_t i = 0; i < root.NumOps(); ++i) {
    OpDesc& op = root.op(i);
    if (!op.Writes(name)) continue;
    const OpSpec* def = ops.Find(op.type());
    if (op.HasAttr("dtype") || (def && def->FindAttr("dtype"))) {
      op.SetAttr("dtype", static_cast<int32_t>(dtype));
      InferOp(root, op, ops);
      if (var->dtype() == dtype) continue;
      op.SetAttr("dtype", static_cast<int32_t>(DType::kFloat32));
    }
    const std::string wide = startup.FreeName(name + ".cast_fp32");
    VarMeta meta = var->meta();
    meta.dtype = DType::kFloat32;
    root.Var(wide).SetMeta(meta);
    op.RenameOutput(name, wide);
    OpDesc cast("cast", {{"X", {wide}}}, {{"Out", {name}}},
                {{"in_dtype", static_cast<int32_t>(DType::kFloat32)},
                 {"out_dtype", static_cast<int32_t>(dtype)}});
    root.InsertOp(i + 1, cast);
    var->SetDType(dtype);
    ++i;
  }
}

// Persistable float32 tensors that ops read as 16 bits: all except states and slots that norms keep
// in float32.
void NarrowParameters(ProgramDesc& main, ProgramDesc& startup, const MixedPrecisionOptions& options,
                      const PrecisionLists& lists) {
  const OpRegistry& ops = options.ops ? *options.ops : DefaultOps();
  const bool float32_norms = options.float32_norms.value_or(options.level != PrecisionLevel::kO3);
  std::set<std::string> kept(options.float32_vars.begin(), options.float32_vars.end());
  kept.insert(options.black_vars.begin(), options.black_vars.end());
  main.ForEachOp([&](const OpDesc& op) {
    const bool black = lists.black.count(op.type()) > 0;
    const OpSpec* spec = ops.Find(op.type());
    op.ForEachInput([&](const std::string& name, const std::string& slot) {
      if (black || (float32_norms && spec && spec->StaysFloat32(slot))) kept.insert(name);
    });
    op.ForEachOutput([&](const std::string& name) { kept.insert(name); });
  });
  for (int b = 0; b < main.NumBlocks(); ++b) {
    BlockDesc& block = main.Block(b);
    for (size_t i = 0; i < block.NumVars(); ++i) {
      VarDesc& var = block.var(i);
      const bool takes = var.persistable() && var.type() == VarType::kLoDTensor &&
                         var.dtype() == DType::kFloat32 && !kept.count(var.name());
      if (!takes) continue;
      var.SetDType(options.dtype);
      NarrowInitializer(startup, var.name(), options.dtype, ops);
    }
  }
}

// --- checks ---

PrecisionLists ListsOf(const MixedPrecisionOptions& options) {
  const OpRegistry& ops = options.ops ? *options.ops : DefaultOps();
  PrecisionLists lists = DefaultPrecisionLists(ops);
  // O3 computes everything in 16 bits.
  if (options.level == PrecisionLevel::kO3) lists.black.clear();
  for (const auto* custom : {&options.custom_white, &options.custom_black}) {
    for (const std::string& type : *custom) {
      if (ops.Find(type)) continue;
      throw Error(ErrorCode::kNotFound, fmt::format("mixed precision: there is no op {}{}",
                                                    Quote(type), DidYouMean(type, ops.Types())));
    }
  }
  for (const std::string& type : options.custom_white) {
    const auto& black = options.custom_black;
    if (std::find(black.begin(), black.end(), type) != black.end()) {
      ThrowInvalid(
          fmt::format("mixed precision: {} is in custom_white and in custom_black", Quote(type)));
    }
    lists.white.insert(type);
    lists.black.erase(type);
  }
  for (const std::string& type : options.custom_black) {
    lists.black.insert(type);
    lists.white.erase(type);
  }
  return lists;
}

void CheckProgram(const ProgramDesc& main, const MixedPrecisionOptions& options) {
  if (!IsHalf(options.dtype)) {
    ThrowInvalid(fmt::format("mixed precision: dtype must be float16 or bfloat16, got {}",
                             ToString(options.dtype)));
  }
  if (options.level <= PrecisionLevel::kO1 && (options.master_weights || options.float32_norms)) {
    ThrowInvalid(
        fmt::format("mixed precision: {} contradicts the level O{}, which leaves parameters "
                    "float32; use O2 or O3",
                    options.master_weights ? "master_weights" : "float32_norms",
                    static_cast<int>(options.level)));
  }
  std::vector<std::string> names;
  for (int b = 0; b < main.NumBlocks(); ++b) {
    const BlockDesc& block = main.Block(b);
    for (size_t i = 0; i < block.NumVars(); ++i) names.push_back(block.var(i).name());
    for (size_t i = 0; i < block.NumOps(); ++i) {
      if (!HasRole(block.op(i), kBackward | kOptimize)) continue;
      ThrowInvalid(
          fmt::format("mixed precision: the program has gradient or update ops already ({}); "
                      "decorate it before Minimize",
                      block.op(i).type()),
          "  " + Locate(block.op(i)));
    }
  }
  for (const auto* list : {&options.black_vars, &options.float32_vars}) {
    for (const std::string& name : *list) {
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
      throw Error(ErrorCode::kNotFound,
                  fmt::format("mixed precision: the program has no variable {}{}", Quote(name),
                              DidYouMean(name, names)));
    }
  }
}

}  // namespace

MixedPrecisionReport DecorateMixedPrecision(ProgramDesc& main, ProgramDesc& startup,
                                            const MixedPrecisionOptions& options) {
  const EditGuard guard(main, startup);
  CheckProgram(main, options);
  const PrecisionLists lists = ListsOf(options);
  if (options.level == PrecisionLevel::kO0) return {};
  ExpandOps(main, options.ops ? *options.ops : DefaultOps());
  const bool masters = options.master_weights.value_or(options.level != PrecisionLevel::kO3);
  if (!masters) NarrowParameters(main, startup, options, lists);
  HalfRewriteOptions rewrite{options.ops ? options.ops : &DefaultOps()};
  rewrite.dtype = options.dtype;
  rewrite.white = lists.white;
  rewrite.black = lists.black;
  rewrite.all_low = options.level >= PrecisionLevel::kO2;
  rewrite.float32_norms = options.float32_norms.value_or(options.level != PrecisionLevel::kO3);
  rewrite.black_vars = options.black_vars;
  rewrite.float32_vars = options.float32_vars;
  const HalfRewriteReport report = RewriteForHalves(main, rewrite);
  return {report.casts, report.low_ops, report.float_ops};
}

}  // namespace coracle
