#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/rules/index.h>

#include <algorithm>

namespace coracle::mean_iou_op {

void InferMeanIou(InferContext& ctx) {
  const VarMeta &p = ctx.Input("Predictions"), &labels = ctx.Input("Labels");
  ctx.Require("C1", p.shape.CompatibleWith(labels.shape) && p.dtype == labels.dtype, p, labels);
  const int64_t classes = ctx.Attr<int32_t>("num_classes");
  for (const char* slot : {"InWrongs", "InCorrects"}) {
    for (size_t i = 0; ctx.HasInput(slot) && i < ctx.NumInputs(slot); ++i) {
      const VarMeta& m = ctx.Input(slot, i);
      ctx.Require("C2", m.dtype == DType::kInt32 && m.shape.CompatibleWith({classes}), slot, m);
    }
  }
  for (size_t i = 0; ctx.HasInput("InMeanIou") && i < ctx.NumInputs("InMeanIou"); ++i) {
    const VarMeta& m = ctx.Input("InMeanIou", i);
    ctx.Require("C3", m.dtype == DType::kFloat32 && (!m.shape.IsKnown() || m.shape.numel() == 1),
                m);
  }
  ctx.SetOutput("OutMeanIou", DType::kFloat32, {1});
  ctx.SetOutput("OutWrong", DType::kInt32, {classes});
  ctx.SetOutput("OutCorrect", DType::kInt32, {classes});
}

// Sums of counts wrap around like unsigned integers.
void AddTo(int32_t* count, int32_t by) {
  *count = static_cast<int32_t>(static_cast<uint32_t>(*count) + static_cast<uint32_t>(by));
}

void SumInputs(Workspace& ws, const std::vector<TensorArg>& from, int64_t classes, int32_t* to) {
  std::fill_n(to, classes, 0);
  for (const TensorArg& arg : from) {
    for (int64_t c = 0; c < classes; ++c) AddTo(to + c, ws.Data<const int32_t>(arg)[c]);
  }
}

template <class T>
KernelOf<T> MeanIou(const PrepareContext& ctx) {
  const TensorArg predictions = ctx.Input("Predictions"), labels = ctx.Input("Labels");
  const TensorArg mean = ctx.Output("OutMeanIou");
  const TensorArg wrong_out = ctx.Output("OutWrong"), correct_out = ctx.Output("OutCorrect");
  const std::vector<TensorArg> wrongs = ctx.Inputs("InWrongs"), corrects = ctx.Inputs("InCorrects");
  const std::vector<TensorArg> means = ctx.Inputs("InMeanIou");
  const RunConstraint is_class(ctx, "C4");
  const int64_t classes = ctx.Attr<int32_t>("num_classes");
  return [=](Workspace& ws) {
    const T *p = ws.Data<const T>(predictions), *l = ws.Data<const T>(labels);
    int32_t *wrong = ws.Data<int32_t>(wrong_out), *correct = ws.Data<int32_t>(correct_out);
    SumInputs(ws, wrongs, classes, wrong);
    SumInputs(ws, corrects, classes, correct);
    for (int64_t i = 0; i < predictions.numel; ++i) {
      is_class.Require(p[i] >= 0 && p[i] < classes && l[i] >= 0 && l[i] < classes, "Predictions",
                       p[i], "Labels", l[i]);
      if (p[i] == l[i]) {
        AddTo(correct + p[i], 1);
      } else {
        AddTo(wrong + p[i], 1);
        AddTo(wrong + l[i], 1);
      }
    }
    double sum = 0;
    int64_t seen = 0;
    for (int64_t c = 0; c < classes; ++c) {
      const double all = double{1} * correct[c] + wrong[c];
      if (all <= 0) continue;
      ++seen;
      sum += correct[c] / all;
    }
    double result = seen > 0 ? sum / static_cast<double>(seen) : 0;
    for (const TensorArg& arg : means) result += ws.Data<const float>(arg)[0];
    ws.Data<float>(mean)[0] = static_cast<float>(result);
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("mean_iou")
              .Doc("OutCorrect[c] = how often both Predictions and Labels are c; OutWrong[c] = how "
                   "often exactly one of them is c; the sums of InCorrects and InWrongs are added. "
                   "OutMeanIou = the mean of correct / (correct + wrong) over the classes that "
                   "occur, plus the sum of InMeanIou.")
              .Constraint("C1", "Predictions and Labels must have one shape and dtype")
              .Constraint("C2", "InWrongs and InCorrects must be int32 vectors [num_classes]")
              .Constraint("C3", "InMeanIou must be one float32 number")
              .Constraint("C4", "Predictions and Labels must lie in [0, num_classes)")
              .Input("Predictions", "[...]; int32 or int64 classes")
              .Input("Labels", "[...]; the true classes")
              .OptionalVariadicInput("InWrongs", "counts of previous batches")
              .OptionalVariadicInput("InCorrects", "counts of previous batches")
              .OptionalVariadicInput("InMeanIou", "float32 numbers [1]")
              .Output("OutMeanIou", "float32 tensor [1]")
              .Output("OutWrong", "int32 vector [num_classes]")
              .Output("OutCorrect", "int32 vector [num_classes]")
              .Attr<int32_t>("num_classes", "how many classes there are")
              .Range(1, {})
              .NoLod()
              .NotDifferentiable("counts")
              .Rows(RowRule::kMixes)
              .Infer(InferMeanIou)
              .Reference(MeanIou<int32_t>, MeanIou<int64_t>));
}

}  // namespace coracle::mean_iou_op
