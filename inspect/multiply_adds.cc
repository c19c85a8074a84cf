#include <coracle/inspect/multiply_adds.h>

#include <algorithm>
#include <functional>
#include <string>
#include <unordered_map>

namespace coracle {
namespace {

const VarDesc* Find(const OpDesc& op, const std::vector<std::string>& names) {
  return names.empty() ? nullptr : op.block()->FindVarRecursive(names[0]);
}

int64_t IntAttr(const OpDesc& op, const char* name, int64_t otherwise) {
  const Attribute* value = op.FindAttr(name);
  Attribute number;
  if (!value || !ConvertAttribute(*value, AttrType::kLong, &number)) return otherwise;
  return std::get<int64_t>(number);
}
bool BoolAttr(const OpDesc& op, const char* name) {
  const Attribute* value = op.FindAttr(name);
  Attribute flag;
  return value && ConvertAttribute(*value, AttrType::kBoolean, &flag) && std::get<bool>(flag);
}

// A forward op, or the forward op of a gradient op: the gradient op has the inputs of its forward
// op, and the shape of output `slot` is the shape of its input `slot`@GRAD.
struct Forward {
  const OpDesc& op;
  bool gradient;

  const VarDesc* In(const char* slot) const { return Find(op, op.Input(slot)); }
  const VarDesc* Out(const std::string& slot) const {
    return gradient ? Find(op, op.Input(slot + "@GRAD")) : Find(op, op.Output(slot));
  }
};

// Each output element sums as many products as a row of the filter [out, in / groups, ...]
// has elements.
double Convolution(const Forward& f) {
  const VarDesc *out = f.Out("Output"), *filter = f.In("Filter");
  if (!out || !filter) return 0;
  return Elements(out->shape()) * Elements(filter->shape(), 1, filter->shape().rank());
}

// Each input element is multiplied by all elements of a row of the filter [in, out / groups, ...].
double TransposedConvolution(const Forward& f) {
  const VarDesc *in = f.In("Input"), *filter = f.In("Filter");
  if (!in || !filter) return 0;
  return Elements(in->shape()) * Elements(filter->shape(), 1, filter->shape().rank());
}

double Mul(const Forward& f) {
  const VarDesc *x = f.In("X"), *y = f.In("Y");
  if (!x || !y) return 0;
  const int columns = static_cast<int>(
      std::clamp<int64_t>(IntAttr(f.op, "y_num_col_dims", 1), 0, y->shape().rank()));
  return Elements(x->shape()) * Elements(y->shape(), columns, y->shape().rank());
}

double Fc(const Forward& f) {
  const VarDesc *x = f.In("Input"), *w = f.In("W");
  return x && w && w->shape().rank() == 2 ? Elements(x->shape()) * Elements(w->shape(), 1, 2) : 0;
}

// The number of matrix products in a product of two tensors: the product of the leading dims, which
// are broadcast.
double Batch(const Shape& x, const Shape& y) {
  double batch = 1;
  for (int back = 3; back <= std::max(x.rank(), y.rank()); ++back) {
    const auto dim = [back](const Shape& shape) {
      const int axis = shape.rank() - back;
      return axis < 0 ? 1 : Elements(shape, axis, axis + 1);
    };
    batch *= dim(x) == 1 ? dim(y) : dim(x);
  }
  return batch;
}

double Matmul(const Forward& f) {
  const VarDesc *x = f.In("X"), *y = f.In("Y");
  if (!x || !y || x->shape().rank() < 1 || y->shape().rank() < 1) return 0;
  const bool transposed = BoolAttr(f.op, "transpose_Y") || BoolAttr(f.op, "trans_y");
  const int rank = y->shape().rank();
  const int n = transposed ? rank - 2 : rank - 1;
  const double columns = rank < 2 ? 1 : Elements(y->shape(), n, n + 1);
  const int rank_x = x->shape().rank();
  return Batch(x->shape(), y->shape()) * Elements(x->shape(), std::max(0, rank_x - 2), rank_x) *
         columns;
}

// Two products for each batch, head, query and key, by the shape of Q. Ignores that a causal mask
// needs only half of that.
double Attention(const Forward& f) {
  const VarDesc *q = f.In("Q"), *k = f.In("K"), *v = f.In("V");
  if (!q || q->shape().rank() < 2) return 0;
  const Shape& shape = q->shape();
  const int rank = shape.rank();
  // One tensor [batch, rows, 3, heads, columns] holds Q, K and V.
  if (!k || !v) return rank == 5 ? 2 * (Elements(shape) / 3) * Elements(shape, 1, 2) : 0;
  const Attribute* layout = f.op.FindAttr("layout");
  const bool inside = layout && *layout == Attribute(std::string("BSHD"));
  const int keys = k->shape().rank() - (inside ? 3 : 2);
  if (keys < 0 || v->shape().rank() < 1) return 0;
  const double columns = Elements(shape, rank - 1, rank) +
                         Elements(v->shape(), v->shape().rank() - 1, v->shape().rank());
  return Elements(shape, 0, rank - 1) * Elements(k->shape(), keys, keys + 1) * columns;
}

// rnn: each element of a weight matrix is multiplied by each row of the input [steps,
// batch, features].
double StackedRnn(const Forward& f) {
  const VarDesc* x = f.In("Input");
  if (!x || x->shape().rank() != 3) return 0;
  double weights = 0;
  for (const std::string& name : f.op.Input("WeightList")) {
    const VarDesc* weight = f.op.block()->FindVarRecursive(name);
    if (weight && weight->shape().rank() == 2) weights += Elements(weight->shape());
  }
  return Elements(x->shape(), 0, 2) * weights;
}

// lstm, gru: only the recurrent product, because the product of the input is a separate op.
double SequenceRnn(const Forward& f) {
  const VarDesc *x = f.In("Input"), *weight = f.In("Weight");
  if (!x || !weight || x->shape().rank() < 1) return 0;
  return Elements(x->shape(), 0, 1) * Elements(weight->shape());
}

using Count = double (*)(const Forward&);
const std::unordered_map<std::string, Count>& Counts() {
  static const std::unordered_map<std::string, Count> counts = {
      {"conv2d", Convolution},
      {"depthwise_conv2d", Convolution},
      {"conv3d", Convolution},
      {"conv2d_transpose", TransposedConvolution},
      {"depthwise_conv2d_transpose", TransposedConvolution},
      {"conv3d_transpose", TransposedConvolution},
      {"mul", Mul},
      {"fc", Fc},
      {"scaled_dot_product_attention", Attention},
      {"matmul", Matmul},
      {"matmul_v2", Matmul},
      {"bmm", Matmul},
      {"rnn", StackedRnn},
      {"lstm", SequenceRnn},
      {"gru", SequenceRnn},
  };
  return counts;
}

// The number of gradients of factors of the op's products. For a recurrent op, the gradient of the
// input represents the gradients of all factors of the weights.
double Gradients(const OpDesc& op) {
  // Computes gradients of scores and weights in between, whichever operands have a gradient.
  if (op.type() == "scaled_dot_product_attention_grad") return 2;
  double count = 0;
  for (const char* slot : {"X@GRAD", "Y@GRAD", "W@GRAD", "Input@GRAD", "Filter@GRAD", "Weight@GRAD",
                           "WeightList@GRAD"})
    count += op.HasOutput(slot) ? 1 : 0;
  return count;
}

}  // namespace

double Elements(const Shape& shape, int begin, int end) {
  double product = 1;
  for (int i = begin; i < end; ++i) product *= static_cast<double>(shape[i] < 0 ? 1 : shape[i]);
  return product;
}

double MultiplyAdds(const OpDesc& op) {
  for (const std::string suffix : {"_grad", "_gradients"}) {
    if (!op.type().ends_with(suffix)) continue;
    const auto found = Counts().find(op.type().substr(0, op.type().size() - suffix.size()));
    return found == Counts().end() ? 0 : found->second({op, true}) * Gradients(op);
  }
  const auto found = Counts().find(op.type());
  return found == Counts().end() ? 0 : found->second({op, false});
}

}  // namespace coracle
