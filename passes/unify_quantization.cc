#include <coracle/passes/match.h>
#include <coracle/passes/passes.h>
#include <coracle/passes/quantized_form.h>
#include <coracle/passes/unify_quantization.h>
#include <coracle/passes/value_flow.h>

#include <cmath>
#include <utility>

namespace coracle::inline internal {
namespace {

// Rewrites oneDNN's ops. A Scale there is a number of integers for 1, the reciprocal of a step.
class OneDnnRaiser {
 public:
  OneDnnRaiser(ProgramDesc& program, const PassContext& context)
      : program_(program),
        context_(context),
        block_(program.Root()),
        flow_(program, context),
        rewrites_(block_) {}

  void Run() {
    std::as_const(block_).ForEachOp([&](const OpDesc& op) {
      const bool plain = op.Input("Input").size() == 1 && op.Output("Output").size() == 1 &&
                         op.inputs().size() == 1 && !op.Reads(op.Output("Output")[0]);
      if (!plain || flow_.IsRecomputed(op)) return;
      if (op.type() == "quantize") RaiseQuantize(op);
      if (op.type() == "dequantize") RaiseDequantize(op);
      if (op.type() == "requantize") RaiseRequantize(op);
    });
    rewrites_.Apply();
  }

 private:
  float Number(const OpDesc& op, const char* attr) const {
    return context_.ops.Get(op.type()).AttrOf<float>(op, attr);
  }
  // Whether 1 / scale is a step of float32.
  static bool IsStep(float scale) { return scale > 1e-30f && scale < 1e30f; }
  const VarDesc* VarOf(const std::string& name) const { return block_.FindVarRecursive(name); }

  // The sum of an odd shift and a number halfway between two integers is rounded the other way.
  void RaiseQuantize(const OpDesc& op) {
    const float scale = Number(op, "Scale"), shift = Number(op, "Shift");
    const VarDesc* out = VarOf(op.Output("Output")[0]);
    if (!IsStep(scale) || std::fmod(shift, 2.0f) != 0 || !out || !IsByteType(out->dtype())) return;
    OpDesc made = OpOf("affine_quantize", op.Input("Input")[0], scale, shift, out->dtype(),
                       op.Output("Output")[0]);
    made.SetAttr("out_dtype", static_cast<int32_t>(out->dtype()));
    rewrites_.Replace({&op}, op, {made});
  }
  void RaiseDequantize(const OpDesc& op) {
    const float scale = Number(op, "Scale"), shift = Number(op, "Shift");
    const VarDesc* in = VarOf(op.Input("Input")[0]);
    if (!IsStep(scale) || !in || !IsZeroPoint(shift, in->dtype())) return;
    rewrites_.Replace({&op}, op,
                      {OpOf("affine_dequantize", op.Input("Input")[0], scale, shift, in->dtype(),
                            op.Output("Output")[0])});
  }
  void RaiseRequantize(const OpDesc& op) {
    const float from = Number(op, "Scale_in"), to = Number(op, "Scale_out");
    const VarDesc* in = VarOf(op.Input("Input")[0]);
    if (!IsStep(from) || !IsStep(to) || Number(op, "Shift_in") != 0 ||
        Number(op, "Shift_out") != 0 || !in || !IsByteType(in->dtype()))
      return;
    const std::string real = context_.AddForm(program_, in->name(), "@REAL", DType::kFloat32);
    OpDesc quantize = OpOf("affine_quantize", real, to, 0, in->dtype(), op.Output("Output")[0]);
    quantize.SetAttr("out_dtype", static_cast<int32_t>(in->dtype()));
    rewrites_.Replace(
        {&op}, op, {OpOf("affine_dequantize", in->name(), from, 0, in->dtype(), real), quantize});
  }

  static bool IsZeroPoint(float shift, DType dtype) {
    return IsByteType(dtype) && shift == std::nearbyint(shift) && shift >= 0 &&
           shift <= static_cast<float>(MostOf(dtype));
  }
  OpDesc OpOf(const char* type, const std::string& x, float scale, float shift, DType dtype,
              const std::string& out) {
    const Tensor step = Tensor::Of<float>({1}, {1 / scale});
    OpDesc made(type, {{"X", {x}}, {"Scale", {context_.AddFrozen(program_, out + "@STEP", step)}}},
                {{"Out", {out}}});
    if (shift == 0) return made;
    Tensor zero = Tensor::Zeros(dtype, {1});
    *static_cast<uint8_t*>(zero.raw()) = static_cast<uint8_t>(shift);
    made.SetInput("ZeroPoint", {context_.AddFrozen(program_, out + "@ZERO", zero)});
    return made;
  }

  ProgramDesc& program_;
  const PassContext& context_;
  BlockDesc& block_;
  const ValueFlow flow_;
  Rewrites rewrites_;
};

}  // namespace

void RaiseOneDnnQuantization(ProgramDesc& program, const PassContext& context) {
  const auto is_of_onednn = [](const OpDesc& op) {
    return op.type() == "quantize" || op.type() == "dequantize" || op.type() == "requantize";
  };
  if (AnyOp(program.Root(), is_of_onednn)) OneDnnRaiser(program, context).Run();
}

void UnifyQuantization(ProgramDesc& program, const PassContext& context) {
  if (!context.frozen) return;
  RaisePaddleQuantization(program, context);
  RaiseOneDnnQuantization(program, context);
  RaiseSums(program, context);
}

}  // namespace coracle::inline internal
