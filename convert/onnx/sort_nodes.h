#pragma once
// The order of nodes: ONNX requires that a node comes after those whose results it reads, but many
// editors of models do not keep that.

#include <coracle/proto/onnx.pb.h>

namespace coracle::onnx {

// Moves each node of each graph and function of the model after the nodes of the same graph that
// give its inputs, and the values that its inner graphs read. Nodes keep their order where they
// may. Takes time linear in the size of the model. Throws kInvalidArgument, which names the nodes,
// if nodes read each other's results in a cycle.
void SortNodes(proto::onnx::ModelProto* model);

}  // namespace coracle::onnx
