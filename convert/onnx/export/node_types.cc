#include <coracle/convert/narrow.h>
#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/export/node_types.h>
#include <coracle/framework/base/words.h>

namespace coracle::onnx {
namespace {

using proto::onnx::AttributeProto;
using proto::onnx::NodeProto;

constexpr unsigned kBool = 1, kInt8 = 2, kUInt8 = 4, kInt16 = 8, kInts = 16, kHalf = 32,
                   kBFloat16 = 64, kFloats = 128, kUInt64 = 256, kOther = 512;
constexpr unsigned kReals = kHalf | kFloats, kAllReals = kReals | kBFloat16;
constexpr unsigned kWide = kInts | kUInt64 | kAllReals, kNumbers = kWide | kInt8 | kUInt8 | kInt16;

unsigned MaskOf(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return kBool;
    case DType::kInt8:
      return kInt8;
    case DType::kUInt8:
      return kUInt8;
    case DType::kInt16:
      return kInt16;
    case DType::kInt32:
    case DType::kInt64:
      return kInts;
    case DType::kUInt64:
      return kUInt64;
    case DType::kFloat16:
      return kHalf;
    case DType::kBFloat16:
      return kBFloat16;
    case DType::kFloat32:
    case DType::kFloat64:
      return kFloats;
    default:
      return kOther;
  }
}

// Op types with the dtypes that they accept since an operator set; 13 also means earlier ones. Op
// types without a rule accept all.
struct Rule {
  int since;
  unsigned types;
  const char* op_types;
};

constexpr Rule kRules[] = {
    {13, kBool, "And If Not Or Xor"},
    {13, kReals,
     "Acos Asin Atan AveragePool BatchNormalization Conv ConvTranspose Cos Cosh Elu GRU "
     "GlobalAveragePool GlobalMaxPool HardSigmoid HardSwish InstanceNormalization LSTM LeakyRelu "
     "NegativeLogLikelihoodLoss RNN RoiAlign Round Selu Sin Sinh Softplus Softsign Tan"},
    {14, kAllReals, "BatchNormalization"},
    {16, kAllReals, "LeakyRelu"},
    {22, kAllReals,
     "Acos Asin Atan AveragePool Conv ConvTranspose Cos Cosh Elu GRU GlobalAveragePool "
     "GlobalMaxPool HardSigmoid HardSwish InstanceNormalization LSTM NegativeLogLikelihoodLoss RNN "
     "RoiAlign Round Selu Sin Sinh Softplus Softsign Tan"},
    {13, kAllReals,
     "Ceil Exp Floor IsNaN LRN LayerNormalization Log LogSoftmax Reciprocal Relu Sigmoid Softmax "
     "Sqrt Sum Tanh"},
    {14, kNumbers & ~kUInt8 & ~kUInt64, "Relu"},
    {13, kWide,
     "Add Div MatMul Mul ReduceL1 ReduceL2 ReduceLogSumExp ReduceMean ReduceProd ReduceSum "
     "ReduceSumSquare Sub"},
    {14, kNumbers, "Add Div Mul Sub"},
    {13, kNumbers, "Abs ArgMax ArgMin Clip Erf Greater Less Max Min Mod Sign"},
    {13, kNumbers & ~kUInt8 & ~kUInt64, "Neg"},
    {13, kNumbers & ~kBFloat16, "GreaterOrEqual LessOrEqual TopK"},
    {16, kNumbers, "GreaterOrEqual LessOrEqual"},
    {13, kWide & ~kBFloat16, "PRelu"},
    {13, kInts | kReals, "Pow"},
    {15, kInts | kAllReals, "Pow"},
    {16, kWide, "PRelu"},
    {13, kInts | kUInt64 | kFloats, "CumSum"},
    {14, kWide, "CumSum"},
    {13, kInt16 | kInts | kFloats, "Range"},
    {13, kFloats, "IsInf"},
    {20, kAllReals, "IsInf"},
    {13, kWide | kInt8 | kUInt8, "ReduceMax ReduceMin"},
    {20, kWide | kInt8 | kUInt8 | kBool, "ReduceMax ReduceMin"},
    {13, kReals | kInt8 | kUInt8, "MaxPool"},
    {22, kAllReals | kInt8 | kUInt8, "MaxPool"},
    {13, (kNumbers & ~kBFloat16) | kBool, "Compress ConstantOfShape EyeLike GridSample Where"},
    {16, kNumbers | kBool, "Where"},
    {20, kNumbers | kBool, "ConstantOfShape"},
    {22, kNumbers | kBool, "EyeLike GridSample"},
};

bool IsOneOf(const NodeProto& node, const char* op_types) {
  return HasWord(op_types, ' ', node.op_type());
}

const AttributeProto* FindAttribute(const NodeProto& node, const char* name) {
  for (const AttributeProto& attr : node.attribute())
    if (attr.name() == name) return &attr;
  return nullptr;
}

MaybeDType At(const std::vector<MaybeDType>& types, size_t i) {
  return i < types.size() ? types[i] : std::nullopt;
}

}  // namespace

MaybeDType ResultType(const NodeProto& node, const std::vector<MaybeDType>& inputs, int i) {
  if (IsOneOf(node,
              "And Equal Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual Not Or "
              "RegexFullMatch Xor"))
    return DType::kBool;
  if (IsOneOf(node, "ArgMax ArgMin NonMaxSuppression NonZero Shape Size")) return DType::kInt64;
  if (IsOneOf(node, "ConvInteger MatMulInteger")) return DType::kInt32;
  if (IsOneOf(node, "DynamicQuantizeLinear")) return i == 1 ? DType::kFloat32 : DType::kUInt8;
  if (IsOneOf(node, "QLinearConv QLinearMatMul")) return At(inputs, 7);
  if (IsOneOf(node, "QuantizeLinear")) return At(inputs, 2);
  if (IsOneOf(node, "DequantizeLinear")) return At(inputs, 1);
  if (IsOneOf(node, "TfIdfVectorizer")) return DType::kFloat32;
  if (IsOneOf(node, "StringSplit") && i == 1) return DType::kInt64;
  if (IsOneOf(node, "MaxPool TopK") && i == 1) return DType::kInt64;
  if (IsOneOf(node, "If Loop Scan")) return std::nullopt;
  if (IsOneOf(node, "Where")) return At(inputs, 1);
  const char* typed = IsOneOf(node, "Cast") ? "to" : IsOneOf(node, "EyeLike") ? "dtype" : nullptr;
  if (const auto* attr = typed ? FindAttribute(node, typed) : nullptr)
    return FromDataType(ToInt32(attr->i(), "attribute " + attr->name()));
  if (IsOneOf(node, "ConstantOfShape")) {
    const auto* value = FindAttribute(node, "value");
    return value ? FromDataType(value->t().data_type()) : DType::kFloat32;
  }
  return At(inputs, 0);
}

bool IsTypedByResult(const std::string& op_type) {
  return HasWord("ConstantOfShape EyeLike Where", ' ', op_type);
}

bool TakesType(const std::string& op_type, int opset, DType dtype) {
  const Rule* last = nullptr;
  for (const Rule& rule : kRules) {
    if (rule.since <= opset && (!last || rule.since > last->since) &&
        HasWord(rule.op_types, ' ', op_type))
      last = &rule;
  }
  return !last || (last->types & MaskOf(dtype)) != 0;
}

}  // namespace coracle::onnx
