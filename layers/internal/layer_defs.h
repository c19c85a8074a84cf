#pragma once
// The layers that model text knows. Each is declared beside the builder function that it calls.

#include <coracle/layers/layer.h>

#include <vector>

namespace coracle {

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

// The layers of this library, those that were registered, and one for each op of the registry with
// at most the inputs X and Y and the output Out ("relu", "elementwise_add", "fill_constant") that
// is not among them.
std::vector<LayerDef> LayerDefs(const OpRegistry& ops);
// How many were registered.
size_t NumRegisteredLayers();

// One field for each attr of the op (those that name a block excepted).
std::vector<FieldDef> AttrFields(const OpSpec& def);

}  // namespace coracle
