#pragma once
// What the classifiers and regressors of ai.onnx.ml share: rows as numbers, post_transform, and
// labels of classes.

#include <coracle/convert/onnx/import/node_context.h>

#include <string>
#include <vector>

namespace coracle::onnx {

enum class PostTransform { kNone, kLogistic, kSoftmax, kSoftmaxZero, kProbit };

PostTransform PostTransformAttr(NodeContext& node);
// The transform of the last axis.
Variable Transformed(NodeContext& node, PostTransform transform, const Variable& scores);
// Two columns from the score of the second class, as ONNX Runtime makes them. For kLogistic, they
// are the logistic function of -score and of score. For all other transforms, they are `first` and
// score, transformed one by one; softmax changes neither.
Variable TwoColumns(NodeContext& node, PostTransform transform, const Variable& first,
                    const Variable& score);

std::string LowerCase(std::string name);  // of ASCII letters

// Input 0 as rows [N, F] of this dtype; a vector is one row.
Variable RowsIn(NodeContext& node, DType dtype);

struct ClassLabels {
  std::vector<int64_t> integers;
  std::vector<std::string> strings;

  int64_t size() const { return static_cast<int64_t>(integers.size() + strings.size()); }
};

// The only one of the attributes classlabels_strings and `integers` that has labels.
ClassLabels LabelsAttr(NodeContext& node, const char* integers);
Tensor LabelTensor(const ClassLabels& labels);
// Sets output 0 to the labels at these indices [N], and output 1 to the scores.
void SetClasses(NodeContext& node, const ClassLabels& labels, const Variable& index,
                const Variable& scores);
// The indices [N] of the largest number of each row.
Variable TopClass(NodeContext& node, const Variable& scores);
// The class indices [N] of a condition [N, 1]: 1 where it is true, else 0.
Variable SecondIf(NodeContext& node, const Variable& condition);

}  // namespace coracle::onnx
