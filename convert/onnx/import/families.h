#pragma once
// The families of importers: one file each. A new one gets a line in each of these lists.

#include "node_importers.h"

namespace coracle::onnx {

void AddConstantImporters(NodeImporters& importers);
void AddControlImporters(NodeImporters& importers);
void AddConvImporters(NodeImporters& importers);
void AddElementwiseImporters(NodeImporters& importers);
void AddGatherImporters(NodeImporters& importers);
void AddNormImporters(NodeImporters& importers);
void AddPadImporters(NodeImporters& importers);
void AddPoolImporters(NodeImporters& importers);
void AddReduceImporters(NodeImporters& importers);
void AddScatterImporters(NodeImporters& importers);
void AddSequenceImporters(NodeImporters& importers);
void AddShapeImporters(NodeImporters& importers);
void AddSoftmaxImporters(NodeImporters& importers);
void AddSortImporters(NodeImporters& importers);

inline constexpr void (*kFamilies[])(NodeImporters&) = {
    AddConstantImporters,
    AddControlImporters,
    AddConvImporters,
    AddElementwiseImporters,
    AddGatherImporters,
    AddNormImporters,
    AddPadImporters,
    AddPoolImporters,
    AddReduceImporters,
    AddScatterImporters,
    AddSequenceImporters,
    AddShapeImporters,
    AddSoftmaxImporters,
    AddSortImporters,
};

}  // namespace coracle::onnx
