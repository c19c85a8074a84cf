// Layers that change shapes.

#include <coracle/framework/ir/edit_guard.h>
#include <coracle/layers/internal/layer_defs.h>
#include <coracle/layers/internal/layer_scope.h>
#include <fmt/format.h>

namespace coracle {
namespace {

// A layer with one tensor input and one list of numbers. The example has the input `x` and `list`.
LayerDef ListLayer(const char* name, const char* doc, const char* field, const char* field_doc,
                   const char* x, const char* list,
                   Variable (Builder::*method)(const Variable&, const std::vector<int32_t>&,
                                               const OutputOptions&)) {
  struct ListOptions {
    std::vector<int32_t> values;
  };
  return LayerFields<ListOptions>(name, doc)
      .Input("input", "tensor of any shape")
      .Field(field, &ListOptions::values, field_doc, kRequired)
      .Example(x, fmt::format("input: \"x\" {}: {} output: \"out\"", field, list))
      .Build([method](Builder& net, const LayerArgs& args, const ListOptions& options) {
        return std::vector<Variable>{(net.*method)(args.Var("input"), options.values, args.output)};
      });
}

}  // namespace

// Appends an op whose second output keeps the shape of X for its gradient.
Variable Builder::WithXShape(const char* type, const Variable& x, AttrList attrs,
                             const OutputOptions& options) {
  const EditGuard guard(*main_, *startup_);
  LayerScope layer(*this, type, options);
  const std::string out = layer.Out(), x_shape = layer.Temp();
  Append(type, {{"X", {NameIn(*this, x)}}}, {{"Out", {out}}, {"XShape", {x_shape}}},
         std::move(attrs));
  Var(x_shape).desc().SetStopGradient(true);
  return layer.Finish(out);
}

Variable Builder::Reshape(const Variable& x, const std::vector<int32_t>& shape,
                          const OutputOptions& options) {
  return WithXShape("reshape2", x, {{"shape", shape}}, options);
}
Variable Builder::Flatten(const Variable& x, const FlattenOptions& options) {
  const EditGuard guard(*main_, *startup_);
  return WithXShape("flatten_contiguous_range", x,
                    {{"start_axis", options.start_axis}, {"stop_axis", options.stop_axis}},
                    OutputOf(options));
}
Variable Builder::Transpose(const Variable& x, const std::vector<int32_t>& axis,
                            const OutputOptions& options) {
  return WithXShape("transpose2", x, {{"axis", axis}}, options);
}
Variable Builder::Squeeze(const Variable& x, const std::vector<int32_t>& axes,
                          const OutputOptions& options) {
  return WithXShape("squeeze2", x, {{"axes", axes}}, options);
}
Variable Builder::Unsqueeze(const Variable& x, const std::vector<int32_t>& axes,
                            const OutputOptions& options) {
  return WithXShape("unsqueeze2", x, {{"axes", axes}}, options);
}

Variable Builder::Concat(const std::vector<Variable>& x, const ConcatOptions& options) {
  const EditGuard guard(*main_, *startup_);
  LayerScope layer(*this, "concat", OutputOf(options));
  const std::string out = layer.Out();
  Append("concat", {{"X", NamesIn(*this, x)}}, {{"Out", {out}}}, {{"axis", options.axis}});
  return layer.Finish(out);
}

Variable Builder::Stack(const std::vector<Variable>& x, int32_t axis,
                        const OutputOptions& options) {
  const EditGuard guard(*main_, *startup_);
  LayerScope layer(*this, "stack", options);
  const std::string out = layer.Out();
  Append("stack", {{"X", NamesIn(*this, x)}}, {{"Y", {out}}}, {{"axis", axis}});
  return layer.Finish(out);
}

std::vector<Variable> Builder::Split(const Variable& x, const SplitOptions& options) {
  const EditGuard guard(*main_, *startup_);
  const size_t parts = options.num > 0 ? static_cast<size_t>(options.num) : options.sections.size();
  constexpr size_t kMaxParts = 65536;
  if (parts == 0 || parts > kMaxParts) {
    ThrowInvalid(
        fmt::format("split: num or sections must give 1 to {} parts, got {}", kMaxParts, parts));
  }
  if (!options.outputs.empty() && options.outputs.size() != parts) {
    ThrowInvalid(
        fmt::format("split: {} outputs are named for {} parts", options.outputs.size(), parts));
  }
  OutputOptions result;
  result.name = options.name;
  LayerScope layer(*this, "split", result);
  std::vector<std::string> names;
  for (size_t i = 0; i < parts; ++i) {
    if (!options.outputs.empty()) RequireFreeOutput(*this, "split", options.outputs[i]);
    bool named = !options.outputs.empty() && !options.outputs[i].empty();
    names.push_back(named ? options.outputs[i] : layer.Temp());
  }
  Append("split", {{"X", {NameIn(*this, x)}}}, {{"Out", names}},
         {{"num", options.num}, {"sections", options.sections}, {"axis", options.axis}});
  std::vector<Variable> vars;
  for (const std::string& name : names) vars.push_back(Var(name));
  return vars;
}

Variable Builder::OneHot(const Variable& ids, int32_t depth, const OutputOptions& options) {
  const EditGuard guard(*main_, *startup_);
  return Unary("one_hot_v2", ids, {{"depth", depth}}, options);
}

std::vector<LayerDef> internal::ShapeLayers() {
  struct DepthOptions {
    int32_t depth = 0;
  };
  const char *kAny = "tensor of any shape", *kOneOrMore = "one or more tensors";
  return {
      ListLayer("reshape", "The elements in another shape.", "shape",
                "0 keeps the dim of that place, one -1 is worked out", "x: [-1, 3, 8]", "[-1, 24]",
                &Builder::Reshape),
      ListLayer("transpose", "The dims in another order.", "axis",
                "for each dim of the result the dim of the input", "x: [-1, 3, 8]", "[0, 2, 1]",
                &Builder::Transpose),
      ListLayer("squeeze", "Without some dims of 1.", "axes", "the dims to leave out",
                "x: [-1, 1, 8]", "[1]", &Builder::Squeeze),
      ListLayer("unsqueeze", "With more dims of 1.", "axes", "places of the new dims", "x: [-1, 8]",
                "[1]", &Builder::Unsqueeze),
      LayerFields<FlattenOptions>("flatten", "Dims start_axis to stop_axis become one.")
          .Input("input", kAny)
          .Field("start_axis", &FlattenOptions::start_axis, "first dim")
          .Field("stop_axis", &FlattenOptions::stop_axis, "last dim; from the end if negative")
          .Build(&Builder::Flatten),
      LayerFields<ConcatOptions>("concat", "Tensors side by side along one axis.")
          .Inputs("input", kOneOrMore)
          .Field("axis", &ConcatOptions::axis, "the axis")
          .Example("x: [-1, 8]; y: [-1, 4]", R"(input: ["x", "y"] axis: 1 output: "out")")
          .BuildOfMany(&Builder::Concat),
      LayerFields<ConcatOptions>("stack", "Tensors of one shape along a new axis.")
          .Inputs("input", kOneOrMore)
          .Field("axis", &ConcatOptions::axis, "the axis")
          .Example("x: [-1, 8]; y: [-1, 8]", R"(input: ["x", "y"] axis: 1 output: "out")")
          .Build([](Builder& net, const LayerArgs& args, const ConcatOptions& options) {
            return std::vector<Variable>{net.Stack(args.Vars("input"), options.axis, args.output)};
          }),
      LayerFields<SplitOptions>(
          "split", "Cuts a tensor along one axis: num equal parts, or parts of the sizes sections.")
          .Input("input", kAny)
          .Field("num", &SplitOptions::num, "equal parts")
          .Field("sections", &SplitOptions::sections, "sizes, one of which may be -1")
          .Field("axis", &SplitOptions::axis, "the axis")
          .Result(LayerDef::Result::kSeveral)
          .Example("x: [-1, 8]", R"(input: "x" num: 2 axis: 1 output: ["left", "right"])")
          .Build([](Builder& net, const LayerArgs& args, const SplitOptions& options) {
            return net.Split(args.Var("input"), options);
          }),
      LayerFields<DepthOptions>("one_hot", "One more dim of `depth`: 1 at the id, else 0.")
          .Input("input", "integer tensor of any shape")
          .Field("depth", &DepthOptions::depth, "number of ids", kRequired)
          .Build([](Builder& net, const LayerArgs& args, const DepthOptions& options) {
            return std::vector<Variable>{net.OneHot(args.Var("input"), options.depth, args.output)};
          })};
}

}  // namespace coracle
