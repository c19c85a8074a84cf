// Lets ops between affine_dequantize and affine_quantize compute in integers. The rules are in
// fuse_quantized_products.cc, fuse_quantized_elements.cc and fuse_quantized_functions.cc. Each
// looks for the integers of its inputs (QuantizedScene::Integers) and for the quantization of its
// result (ExtendEpilogue). A dequantization without readers is removed in the end; one that other
// ops read stays, so each reader is handled by itself.

#include <coracle/operators/quantize/quantized.h>
#include <coracle/passes/fuse_quantized.h>
#include <coracle/passes/passes.h>
#include <coracle/passes/quantization_notes.h>
#include <coracle/passes/unify_quantization.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace coracle::inline internal {
namespace {

thread_local ScopedQuantizationNotes* current_notes = nullptr;

using Rule = std::string (*)(QuantizedScene&, const OpDesc&);
struct RuleOf {
  const char* type;
  Rule rule;
};

// In the order in which they are tried on the whole block: functions of one value before sums, so
// that x + x is one.
constexpr RuleOf kRules[] = {{"affine_quantize", QuantizeFunction},
                             {"conv2d", QuantizeConvolution},
                             {"depthwise_conv2d", QuantizeConvolution},
                             {"mul", QuantizeProduct},
                             {"matmul", QuantizeProduct},
                             {"matmul_v2", QuantizeProduct},
                             {"fc", QuantizeProduct},
                             {"elementwise_add", QuantizeSum},
                             {"elementwise_mul", QuantizeSum},
                             {"concat", QuantizeConcat},
                             {"pool2d", QuantizePool}};

using Reasons = std::unordered_map<std::string, std::string>;  // by first output

void ApplyRules(ProgramDesc& program, const PassContext& context, Reasons& reasons) {
  QuantizedScene scene(program, context);
  std::unordered_map<std::string, std::vector<const OpDesc*>> by_type;
  scene.block().ForEachOp([&](const OpDesc& op) { by_type[op.type()].push_back(&op); });
  for (const RuleOf& row : kRules) {
    for (const OpDesc* op : by_type[row.type]) {
      if (scene.IsDone(*op)) continue;
      std::string reason = row.rule(scene, *op);
      if (!reason.empty()) reasons[op->FirstOutput()] = std::move(reason);
    }
  }
  scene.Apply();
}

bool IsQuantization(const OpDesc& op) {
  return op.type() == "affine_quantize" || op.type() == "affine_dequantize" ||
         op.type() == "dynamic_scale";
}

// The notes on the ops of the block, except those that only compute shapes.
class Notes {
 public:
  Notes(const ProgramDesc& program, const PassContext& context, const Reasons& reasons)
      : block_(program.Root()), context_(context), reasons_(reasons) {}

  std::vector<QuantizationNote> List() const {
    std::vector<QuantizationNote> notes;
    block_.ForEachOp([&](const OpDesc& op) {
      QuantizationNote note = {op.type(), op.FirstOutput(), RunsIn::kReals, ""};
      const VarDesc* var = block_.FindVarRecursive(note.output);
      const bool bytes = op.AnyInput([&](const std::string& name) { return IsOfBytes(name); });
      if (IsQuantization(op)) {
        note.runs_in = RunsIn::kConverts;
      } else if (bytes) {
        note.runs_in = RunsIn::kIntegers;
      } else if (var && !IsFloating(var->dtype())) {
        return;
      } else if (TouchesQuantized(op)) {
        const auto reason = reasons_.find(note.output);
        note.reason =
            reason != reasons_.end() ? reason->second : op.type() + " has no integer form here";
      }
      if (const std::string why = WhyNotUnified(op, context_); !why.empty()) note.reason = why;
      notes.push_back(std::move(note));
    });
    return notes;
  }

 private:
  bool IsOfBytes(const std::string& name) const {
    const VarDesc* var = block_.FindVarRecursive(name);
    return var && IsByteType(var->dtype());
  }
  // Whether it reads dequantized values, or its results are quantized.
  bool TouchesQuantized(const OpDesc& op) const {
    return op.AnyInput([&](const std::string& name) {
      const auto writers = block_.Uses(name).writers;
      return writers.size() == 1 && writers[0]->type() == "affine_dequantize";
    }) || op.AnyOutput([&](const std::string& name) {
      const auto readers = block_.Uses(name).readers;
      return std::any_of(readers.begin(), readers.end(),
                         [](const OpDesc* reader) { return reader->type() == "affine_quantize"; });
    });
  }

  const BlockDesc& block_;
  const PassContext& context_;
  const Reasons& reasons_;
};

}  // namespace

ScopedQuantizationNotes::ScopedQuantizationNotes() : before_(std::exchange(current_notes, this)) {}
ScopedQuantizationNotes::~ScopedQuantizationNotes() { current_notes = before_; }
ScopedQuantizationNotes* ScopedQuantizationNotes::Current() { return current_notes; }

void FuseQuantized(ProgramDesc& program, const PassContext& context) {
  if (!context.frozen) return;
  const auto quantizes = [&](const OpDesc& op) {
    return IsQuantization(op) || !WhyNotUnified(op, context).empty();
  };
  if (!AnyOp(program.Root(), quantizes)) return;
  Reasons reasons;
  if (IntegerProductsPay()) {
    ApplyRules(program, context, reasons);
    EliminateDeadCode(program, context);
  } else {
    std::as_const(program).Root().ForEachOp([&](const OpDesc& op) {
      reasons[op.FirstOutput()] = "this machine multiplies float32 as fast as integers";
    });
  }
  if (current_notes) current_notes->Set(Notes(program, context, reasons).List());
}

}  // namespace coracle::inline internal
