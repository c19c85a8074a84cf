#pragma once
// The layers of model text. Each is declared next to the builder function that it calls.

#include <coracle/layers/layer.h>

#include <vector>

namespace coracle::inline internal {

std::vector<LayerDef> DenseLayers();
std::vector<LayerDef> ImageLayers();
std::vector<LayerDef> NormLayers();
std::vector<LayerDef> RecurrentLayers();
std::vector<LayerDef> AttentionLayers();
std::vector<LayerDef> LossLayers();
std::vector<LayerDef> MathLayers();
std::vector<LayerDef> ShapeLayers();
std::vector<LayerDef> ArrayLayers();
std::vector<LayerDef> ProgramLayers();

// The layers of this library, the registered ones, and one for each op of the registry that has at
// most the inputs X and Y and the output Out ("relu", "elementwise_add", "fill_constant") and is
// not among them.
std::vector<LayerDef> LayerDefs(const OpRegistry& ops);
// The number of registered layers.
size_t NumRegisteredLayers();

// One field for each attr of the op, except those that name a block.
std::vector<FieldDef> AttrFields(const OpSpec& def);

}  // namespace coracle::inline internal
