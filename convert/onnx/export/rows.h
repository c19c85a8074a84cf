#pragma once
// The ops that can be exported: one row for each op type, in the file of its family.

#include <coracle/convert/onnx/export/op_context.h>

#include <string>
#include <vector>

namespace coracle::onnx {

ExportRows ActivationRows();
ExportRows ArithmeticRows();
ExportRows ConvRows();
ExportRows PoolRows();
ExportRows NormRows();
ExportRows MatmulRows();
ExportRows QuantizeRows();
ExportRows QuantizedRows();
ExportRows ReduceRows();
ExportRows ShapeRows();
ExportRows SliceRows();
ExportRows GatherRows();
ExportRows FillRows();
ExportRows InterpRows();
ExportRows RnnRows();
ExportRows SequenceRows();
ExportRows LossRows();
ExportRows AttentionRows();
ExportRows ControlRows();
ExportRows DetectionRows();
ExportRows TextRows();
ExportRows MlRows();
ExportRows WeightOnlyRows();

// The rows of all families.
std::vector<ExportRow> AllRows();
const ExportRow* FindRow(const std::string& op_type);  // nullptr: cannot be exported

}  // namespace coracle::onnx
