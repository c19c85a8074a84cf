#pragma once
// The families of importers: one file each. A new family needs a line in each of these lists.

#include <coracle/convert/onnx/import/node_importers.h>

namespace coracle::onnx {

void AddActivationImporters(NodeImporters& importers);
void AddAttentionImporters(NodeImporters& importers);
void AddBlockQuantizedImporters(NodeImporters& importers);
void AddConstantImporters(NodeImporters& importers);
void AddControlImporters(NodeImporters& importers);
void AddConvImporters(NodeImporters& importers);
void AddDiffusionImporters(NodeImporters& importers);
void AddEinsumImporters(NodeImporters& importers);
void AddElementwiseImporters(NodeImporters& importers);
void AddGatherImporters(NodeImporters& importers);
void AddGroupQueryAttentionImporters(NodeImporters& importers);
void AddImageImporters(NodeImporters& importers);
void AddLinearAttentionImporters(NodeImporters& importers);
void AddLossImporters(NodeImporters& importers);
void AddMatmulImporters(NodeImporters& importers);
void AddMlImporters(NodeImporters& importers);
void AddMlModelImporters(NodeImporters& importers);
void AddMlTreeImporters(NodeImporters& importers);
void AddMultiHeadAttentionImporters(NodeImporters& importers);
void AddNormImporters(NodeImporters& importers);
void AddOptimizerImporters(NodeImporters& importers);
void AddPadImporters(NodeImporters& importers);
void AddPoolImporters(NodeImporters& importers);
void AddQuantizeImporters(NodeImporters& importers);
void AddQuantizedMatmulImporters(NodeImporters& importers);
void AddRandomImporters(NodeImporters& importers);
void AddReduceImporters(NodeImporters& importers);
void AddResizeImporters(NodeImporters& importers);
void AddRnnImporters(NodeImporters& importers);
void AddRotaryImporters(NodeImporters& importers);
void AddSampleImporters(NodeImporters& importers);
void AddScanImporters(NodeImporters& importers);
void AddScatterImporters(NodeImporters& importers);
void AddSequenceImporters(NodeImporters& importers);
void AddShapeImporters(NodeImporters& importers);
void AddSignalImporters(NodeImporters& importers);
void AddSliceImporters(NodeImporters& importers);
void AddSoftmaxImporters(NodeImporters& importers);
void AddSortImporters(NodeImporters& importers);
void AddStringImporters(NodeImporters& importers);

inline constexpr void (*kFamilies[])(NodeImporters&) = {
    AddActivationImporters,
    AddAttentionImporters,
    AddBlockQuantizedImporters,
    AddConstantImporters,
    AddControlImporters,
    AddConvImporters,
    AddDiffusionImporters,
    AddEinsumImporters,
    AddElementwiseImporters,
    AddGatherImporters,
    AddGroupQueryAttentionImporters,
    AddImageImporters,
    AddLinearAttentionImporters,
    AddLossImporters,
    AddMatmulImporters,
    AddMlImporters,
    AddMlModelImporters,
    AddMlTreeImporters,
    AddMultiHeadAttentionImporters,
    AddNormImporters,
    AddOptimizerImporters,
    AddPadImporters,
    AddPoolImporters,
    AddQuantizeImporters,
    AddQuantizedMatmulImporters,
    AddRandomImporters,
    AddReduceImporters,
    AddResizeImporters,
    AddRnnImporters,
    AddRotaryImporters,
    AddSampleImporters,
    AddScanImporters,
    AddScatterImporters,
    AddSequenceImporters,
    AddShapeImporters,
    AddSignalImporters,
    AddSliceImporters,
    AddSoftmaxImporters,
    AddSortImporters,
    AddStringImporters,
};

}  // namespace coracle::onnx
