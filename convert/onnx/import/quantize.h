#pragma once
// Shared by importers of integers with scales and zero points.

#include <coracle/convert/onnx/import/node_context.h>

#include <cstddef>
#include <string>

namespace coracle::onnx {

// --- operands ---

// Input i, a scale, in float32: [1] for one element, else in its own shape.
Variable ScaleIn(NodeContext& node, size_t i);
// Input i, a zero point: [1] for one element, else in its own shape. Empty if it is not given.
Variable ZeroPointIn(NodeContext& node, size_t i);
// Adds a slot with the variable, unless that is empty.
void AddSlot(SlotList& slots, const std::string& name, const Variable& var);

// Whether the ONNX type is int8 or uint8, in which the quantized ops compute.
bool IsByteType(int data_type);
bool HasBytes(NodeContext& node, size_t i);
// Refuses types that are not integers of at most 32 bits.
void RequireQuantizedType(NodeContext& node, int data_type);

// --- conversions ---

// Integers of an ONNX type with a scale and, if it is not empty, a zero point.
struct Affine {
  Variable scale, zero_point;
};
// `attrs`: axis and block_size, if there are several scales.
Variable Quantized(NodeContext& node, const Variable& x, const Affine& affine, int data_type,
                   AttrList attrs = {});
Variable Dequantized(NodeContext& node, const Variable& x, const Affine& affine, DType dtype,
                     AttrList attrs = {});
// Input i with the scale and zero point after it, as float32 or float64.
Variable RealIn(NodeContext& node, size_t i, DType dtype = DType::kFloat32);

// x as DynamicQuantizeLinear rounds it: uint8 with one scale and zero point.
struct DynamicBytes {
  Variable numbers;
  Affine affine;
};
DynamicBytes QuantizedByRange(NodeContext& node, const Variable& x);

// Sets output i to integers of an ONNX type, which may have a wider dtype.
void SetQuantized(NodeContext& node, size_t i, const Variable& y, int data_type,
                  bool scalar = false);

void AddQuantizedConvImporters(NodeImporters& importers);
void AddQuantizedElementImporters(NodeImporters& importers);

}  // namespace coracle::onnx
