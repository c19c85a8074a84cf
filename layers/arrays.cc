// Layers for tensor arrays, and layers that change an existing variable.

#include <coracle/layers/builder.h>
#include <coracle/layers/internal/layer_defs.h>

namespace coracle::inline internal {
namespace {

using Vars = std::vector<Variable>;

LayerFields<OutputOptions> Changing(const char* name, const char* doc) {
  return LayerFields<OutputOptions>(name, doc).Result(LayerDef::Result::kMetric);
}

}  // namespace

std::vector<LayerDef> ArrayLayers() {
  struct ArrayOptions {
    DType dtype = DType::kFloat32;
  };
  struct IncrementOptions {
    float step = 1;
  };
  return {LayerFields<ArrayOptions>("create_array",
                                    "A tensor array, empty at the begin of each run of the block.")
              .Field("dtype", &ArrayOptions::dtype, "of the elements")
              .Result(LayerDef::Result::kMetric)
              .Build([](Builder& net, const LayerArgs& args, const ArrayOptions& options) {
                return Vars{CreateArray(net, options.dtype, args.output.output)};
              }),
          Changing("array_write", "Element i of the array becomes x.")
              .Input("x", "tensor")
              .Input("i", "int64 of one element")
              .Input("array", "the array")
              .Build([](Builder& net, const LayerArgs& args, const OutputOptions&) {
                ArrayWrite(net, args.Var("x"), args.Var("i"), args.Var("array"));
                return Vars{args.Var("array")};
              }),
          LayerFields<OutputOptions>("array_read", "A copy of element i of the array.")
              .Input("array", "the array")
              .Input("i", "int64 of one element")
              .Build([](Builder& net, const LayerArgs& args, const OutputOptions& options) {
                return Vars{ArrayRead(net, args.Var("array"), args.Var("i"), options)};
              }),
          Changing("array_length", "The number of elements of the array, int64 [1].")
              .Input("array", "the array")
              .Build([](Builder& net, const LayerArgs& args, const OutputOptions& options) {
                return Vars{
                    net.Make("lod_array_length", {{"X", {args.Var("array").name()}}}, {}, options)};
              }),
          Changing("assign_to",
                   "A variable that exists becomes x: how a body changes a variable "
                   "around it.")
              .Input("x", "tensor")
              .Input("var", "the variable")
              .Build([](Builder& net, const LayerArgs& args, const OutputOptions&) {
                Assign(net, args.Var("x"), args.Var("var"));
                return Vars{args.Var("var")};
              }),
          LayerFields<IncrementOptions>("increment_by",
                                        "Adds step to an existing variable with one element.")
              .Input("var", "the variable")
              .Field("step", &IncrementOptions::step, "what is added")
              .Result(LayerDef::Result::kMetric)
              .Build([](Builder& net, const LayerArgs& args, const IncrementOptions& options) {
                return Vars{Increment(net, args.Var("var"), options.step)};
              })};
}

}  // namespace coracle::inline internal
