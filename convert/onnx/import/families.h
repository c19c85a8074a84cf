#pragma once
// The families of importers: one file each. A new one gets a line in each of these lists.

#include "node_importers.h"

namespace coracle::onnx {

void AddConstantImporters(NodeImporters& importers);
void AddControlImporters(NodeImporters& importers);
void AddElementwiseImporters(NodeImporters& importers);
void AddShapeImporters(NodeImporters& importers);

inline constexpr void (*kFamilies[])(NodeImporters&) = {
    AddConstantImporters,
    AddControlImporters,
    AddElementwiseImporters,
    AddShapeImporters,
};

}  // namespace coracle::onnx
