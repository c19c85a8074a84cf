#pragma once
// Quantised values of a program: integers of 8 bits that stand for real numbers, with frozen scales
// and zero points. Internal to passes/.

#include <coracle/passes/pass.h>
#include <coracle/passes/value_flow.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace coracle::inline internal {

// How integers q stand for numbers: scale * (q - zero point).
struct QuantizedForm {
  DType dtype = DType::kInt8;
  std::vector<float> scales;         // one, or one for each position of `axis`
  std::vector<int32_t> zero_points;  // as many as scales, or none: 0
  int axis = -1;                     // -1: one scale serves all elements
  std::string scale, zero_point;     // the frozen parameters; zero_point is "" if all are 0
  // The range of the integers that an affine_quantize writes.
  int64_t least = 0, most = 0;
  bool rounds_away = false;  // whether it rounds halves away from 0

  bool HasOneScale() const { return axis < 0; }
  float Scale() const { return scales[0]; }
  int32_t ZeroPoint() const { return zero_points.empty() ? 0 : zero_points[0]; }
  // Whether it uses all integers of the dtype.
  bool HasWholeRange() const;
  // Whether every scale is usual and greater than 0.
  bool HasPositiveScales() const;
};

// Whether sums of numbers with the scale stay finite in float32: it is finite and not huge.
inline bool IsUsualScale(float scale) { return std::abs(scale) <= 1e30f; }

// The least and the largest integer of int8 or uint8.
int64_t LeastOf(DType dtype);
int64_t MostOf(DType dtype);
bool IsByteType(DType dtype);

// Whether equal integers stand for the same numbers, bit by bit.
bool MeansSame(const QuantizedForm& a, const QuantizedForm& b);

// Whether the op is an affine_dequantize or affine_quantize with one frozen scale and zero point,
// which works on each element by itself.
bool QuantizesElements(const OpDesc& op, const PassContext& context);
// Whether it is an affine_quantize or affine_dequantize with one scale and zero point, which may be
// those that a dynamic_scale computes in each run.
bool HasOneStep(const OpDesc& op, const BlockDesc& block, const PassContext& context);
// Whether the op gives numbers that do not depend on the order of the elements of its X.
bool IgnoresOrder(const OpDesc& op);
// Whether an op works on each element by itself if the shapes of its variables, other than
// OpDef::Tables, are equal.
bool WorksOnElements(const OpDesc& op, const OpSpec& spec, const BlockDesc& block,
                     const PassContext& context);
// Whether the slot is one of OpDef::Tables: its axes are not those of the other variables.
bool IsTable(const OpSpec& spec, std::string_view slot);

// The form of the integers that an affine_quantize of float32 writes, or that an affine_dequantize
// to float32 reads. nullopt, with the reason in `why` if given, if it is another op, its parameters
// are not frozen, or the integers have another number of bits.
std::optional<QuantizedForm> FormWritten(const BlockDesc& block, const PassContext& context,
                                         const OpDesc& quantize, std::string* why = nullptr);
std::optional<QuantizedForm> FormRead(const BlockDesc& block, const PassContext& context,
                                      const OpDesc& dequantize, std::string* why = nullptr);

// An affine_dequantize with frozen parameters, and what it reads.
struct QuantizedValue {
  const OpDesc* dequantize = nullptr;
  std::string integers;  // does not change during a run
  QuantizedForm form;
};

// The float32 variables of the root block that such ops write.
class QuantizedValues {
 public:
  QuantizedValues(const BlockDesc& block, const PassContext& context, const ValueFlow& flow);
  // nullptr for any other variable.
  const QuantizedValue* Find(const std::string& var) const;
  // One whose single scale or zero point a dynamic_scale computes: its form has no scales, only the
  // names of the parameters.
  const QuantizedValue* FindOfARun(const std::string& var) const;
  bool empty() const { return values_.empty(); }

 private:
  std::unordered_map<std::string, QuantizedValue> values_, of_a_run_;
};

// The slots Scale and ZeroPoint of the form, for an op that has them under `prefix`.
void SetForm(OpDesc& op, const std::string& prefix, const QuantizedForm& form);

}  // namespace coracle::inline internal
