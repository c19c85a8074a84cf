#include <coracle/convert/onnx/export/rows.h>

#include <unordered_map>

namespace coracle::onnx {

std::vector<ExportRow> AllRows() {
  std::vector<ExportRow> all;
  for (const ExportRows& family :
       {ActivationRows(), ArithmeticRows(), ConvRows(),      PoolRows(),     NormRows(),
        MatmulRows(),     ReduceRows(),     ShapeRows(),     SliceRows(),    GatherRows(),
        FillRows(),       InterpRows(),     RnnRows(),       SequenceRows(), LossRows(),
        AttentionRows(),  ControlRows(),    DetectionRows(), TextRows(),     MlRows(),
        QuantizeRows(),   QuantizedRows(),  WeightOnlyRows()}) {
    all.insert(all.end(), family.begin(), family.end());
  }
  return all;
}

const ExportRow* FindRow(const std::string& op_type) {
  static const std::unordered_map<std::string, ExportRow> rows = [] {
    std::unordered_map<std::string, ExportRow> by_type;
    for (const ExportRow& row : AllRows()) by_type.emplace(row.op_type, row);
    return by_type;
  }();
  const auto found = rows.find(op_type);
  return found == rows.end() ? nullptr : &found->second;
}

}  // namespace coracle::onnx
