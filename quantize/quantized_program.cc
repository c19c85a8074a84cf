#include <coracle/framework/op/writer.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/quantize/packed_rows.h>
#include <coracle/quantize/quantized_program.h>

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <unordered_set>

namespace coracle::inline internal {
namespace {

using OpList = std::vector<std::unique_ptr<OpDesc>>;

// Writes the parameters and ops of quantised numbers at the end of the root block.
class NumberWriter {
 public:
  NumberWriter(const QuantizedParts& parts, FloatModel* result)
      : parts_(parts), result_(*result), writer_(result->program.Root(), parts.ops) {}

  // Writes the quantised numbers of a variable, and the numbers that they represent.
  void WritePair(const std::string& name) {
    if (parts_.options.scheme == QuantScheme::kWeightOnly || pairs_.count(name)) return;
    if (WritesLinearOps()) return WriteLinearPair(name);
    const bool dynamic = parts_.options.scheme == QuantScheme::kDynamic;
    const bool bytes = dynamic || parts_.options.form == QuantForm::kOnnx;
    const Variable x = writer_.Var(name);
    const auto [scale, zero] =
        dynamic ? RunTimeScale(x) : ScaleVariables(parts_.selection.range_of.at(name));
    const auto dtype = static_cast<int32_t>(bytes ? DType::kUInt8 : DType::kInt8);
    const Variable q =
        writer_.Into(result_.program.FreeName(name + "@QUANTIZED"), "affine_quantize",
                     WithSteps(x, scale, zero), {{"out_dtype", dtype}});
    const Variable y = writer_.Into(result_.program.FreeName(name + "@DEQUANTIZED"),
                                    "affine_dequantize", WithSteps(q, scale, zero));
    pairs_[name] = y.name();
  }

  // The floats that the integers of a weight represent.
  const std::string& FloatWeight(const LayerParameters& made) {
    std::string& name = weights_[made.weight_name];
    if (!name.empty()) return name;
    const IntegerWeight& weight = *made.weight;
    Variable values;
    if (weight.format.bits == 4) {
      values = writer_.Var(AddParameter(made.weight_name, PackedForm(weight.values, 4)));
      values = WriteUnpacked(writer_, values, weight.values.shape(), 4);
    } else {
      values = writer_.Var(AddParameter(made.weight_name, weight.values));
    }
    if (WritesLinearOps()) {
      const bool one = HasOneScale(weight.format);
      const Tensor scale =
          one ? Tensor::Of<float>({1}, {weight.scale.span<float>()[0]}) : weight.scale;
      name = writer_
                 .Into(result_.program.FreeName(made.weight_name + "@DEQUANTIZED"),
                       "dequantize_linear", LinearInputs(values, made.weight_name, scale),
                       LinearAttrs(one ? -1 : weight.format.axis), "Y")
                 .name();
      return name;
    }
    const Variable scale = writer_.Var(AddParameter(made.weight_name + "@SCALE", weight.scale));
    AttrList attrs = {{"axis", weight.format.axis}};
    if (weight.format.block_size > 0) attrs.push_back({"block_size", weight.format.block_size});
    name = writer_
               .Into(result_.program.FreeName(made.weight_name + "@DEQUANTIZED"),
                     "affine_dequantize", WithSteps(values, scale, {}), attrs)
               .name();
    return name;
  }

  std::string BiasName(const QuantLayer& layer, const LayerParameters& made) {
    const std::string prefix = layer.bias.empty() ? layer.output + "@BIAS" : layer.bias;
    if (!made.integer_bias) {
      return made.bias ? AddParameter(prefix + "@CORRECTED", *made.bias) : layer.bias;
    }
    const Variable values = writer_.Var(AddParameter(prefix + "@INT32", *made.integer_bias));
    const Variable units = writer_.Var(AddParameter(prefix + "@UNITS", *made.bias_units));
    return writer_
        .Into(result_.program.FreeName(prefix + "@DEQUANTIZED"), "affine_dequantize",
              WithSteps(values, units, {}), {{"axis", int32_t{0}}})
        .name();
  }

  // The variables that hold a variable's numbers after their quantisation.
  const std::unordered_map<std::string, std::string>& pairs() const { return pairs_; }

 private:
  std::string AddParameter(const std::string& prefix, Tensor value) {
    return AddConstant(result_.program, result_.parameters, prefix, std::move(value));
  }

  // The scale and the zero point of a range; variables with one range share them.
  std::pair<Variable, Variable> ScaleVariables(const std::string& range) {
    const auto [it, added] = scale_names_.try_emplace(range);
    if (added) {
      const ByteScale& scale = parts_.scales.at(range);
      it->second.first =
          AddParameter(range + "@QUANT_SCALE", Tensor::Of<float>({1}, {scale.scale}));
      if (parts_.options.form == QuantForm::kOnnx) {
        it->second.second =
            AddParameter(range + "@QUANT_ZERO",
                         Tensor::Of<uint8_t>({1}, {static_cast<uint8_t>(scale.zero_point)}));
      }
    }
    return {writer_.Var(it->second.first),
            it->second.second.empty() ? Variable() : writer_.Var(it->second.second)};
  }

  // Of the range of each run.
  std::pair<Variable, Variable> RunTimeScale(const Variable& x) {
    const std::string scale = result_.program.FreeName(x.name() + "@QUANT_SCALE");
    const std::string zero = result_.program.FreeName(x.name() + "@QUANT_ZERO");
    writer_.Append("dynamic_scale", {{"X", {x.name()}}},
                   {{"Scale", {scale}}, {"ZeroPoint", {zero}}});
    return {writer_.Var(scale), writer_.Var(zero)};
  }

  SlotList WithSteps(const Variable& x, const Variable& scale, const Variable& zero) const {
    SlotList inputs = {{"X", {x.name()}}, {"Scale", {scale.name()}}};
    if (zero) inputs.push_back({"ZeroPoint", {zero.name()}});
    return inputs;
  }

  bool WritesLinearOps() const { return HasLinearOps(parts_.options); }

  // Inputs of quantize_linear and dequantize_linear, whose scales are numbers that 127 represents.
  SlotList LinearInputs(const Variable& x, const std::string& prefix, const Tensor& scales) {
    std::string& name = thresholds_[prefix];
    if (name.empty()) {
      Tensor thresholds = scales.Clone();
      for (float& t : thresholds.span<float>()) t *= 127;
      name = AddParameter(prefix + "@THRESHOLD", std::move(thresholds));
    }
    if (no_shift_.empty())
      no_shift_ = AddParameter("quant_zero_point", Tensor::Zeros(DType::kInt32, {1}));
    return {{"X", {x.name()}}, {"Scale", {name}}, {"ZeroPoint", {no_shift_}}};
  }
  static AttrList LinearAttrs(int32_t axis) {
    return {{"quant_axis", axis}, {"bit_length", int32_t{8}}, {"round_type", int32_t{0}}};
  }

  void WriteLinearPair(const std::string& name) {
    const std::string& range = parts_.selection.range_of.at(name);
    const Tensor scale = Tensor::Of<float>({1}, {parts_.scales.at(range).scale});
    const Variable q =
        writer_.Into(result_.program.FreeName(name + "@QUANTIZED"), "quantize_linear",
                     LinearInputs(writer_.Var(name), range, scale), LinearAttrs(-1), "Y");
    pairs_[name] = writer_
                       .Into(result_.program.FreeName(name + "@DEQUANTIZED"), "dequantize_linear",
                             LinearInputs(q, range, scale), LinearAttrs(-1), "Y")
                       .name();
  }

  const QuantizedParts& parts_;
  FloatModel& result_;
  Writer writer_;
  std::unordered_map<std::string, std::pair<std::string, std::string>> scale_names_;
  std::unordered_map<std::string, std::string> pairs_, weights_, thresholds_;
  std::string no_shift_;
};

class ProgramWriter {
 public:
  ProgramWriter(const QuantizedParts& parts, bool copies)
      : parts_(parts),
        copies_(copies),
        result_(parts.model.Copy()),
        root_(result_.program.Root()),
        writer_(root_, parts.ops),
        numbers_(parts, &result_) {
    for (size_t l = 0; l < parts.selection.layers.size(); ++l) {
      const QuantLayer& layer = parts.selection.layers[l];
      for (const size_t op : layer.ops) layer_of_[op] = l;
    }
  }

  ProgramWithCopies Run() {
    OpList old = root_.ReleaseOps();
    for (const auto& [name, range] : parts_.selection.range_of)
      if (parts_.model.program.Root().Uses(name).writers.empty()) numbers_.WritePair(name);
    for (size_t i = 0; i < old.size(); ++i) {
      const std::unique_ptr<OpDesc> original = std::make_unique<OpDesc>(*old[i]);
      if (!copies_) Quantise(i, old[i].get());
      root_.AppendOp(std::move(old[i]));
      const auto layer = layer_of_.find(i);
      if (copies_ && layer != layer_of_.end() && LayerAt(i).ops.back() == i) WriteCopy(LayerAt(i));
      std::vector<std::string> written;
      original->ForEachOutput([&](const std::string& name) { written.push_back(name); });
      for (const std::string& name : written)
        if (parts_.selection.range_of.count(name)) numbers_.WritePair(name);
    }
    RemoveUnusedVariables(&result_);
    return {std::move(result_), std::move(copy_of_)};
  }

 private:
  const QuantLayer& LayerAt(size_t op) const { return parts_.selection.layers[layer_of_.at(op)]; }
  const LayerParameters& ParametersAt(size_t op) const {
    return parts_.parameters[layer_of_.at(op)];
  }

  // Lets an op read quantised operands; writes what it needs before it.
  void Quantise(size_t i, OpDesc* op) {
    op->RenameInputs([&](const std::string& name) {
      const bool quantised = parts_.selection.operands.count({i, name}) > 0;
      return quantised && numbers_.pairs().count(name) ? numbers_.pairs().at(name) : name;
    });
    const auto found = layer_of_.find(i);
    if (found == layer_of_.end()) return;
    const QuantLayer& layer = LayerAt(i);
    const LayerParameters& made = ParametersAt(i);
    if (layer.ops[0] == i && !layer.weight.empty())
      op->SetInput(layer.weight[0].slot, {numbers_.FloatWeight(made)});
    if (!made.bias && !made.integer_bias) return;
    const bool own_slot = layer.bias.empty() || layer.bias_in_slot;
    if (own_slot && layer.ops[0] == i) op->SetInput("Bias", {numbers_.BiasName(layer, made)});
    if (!own_slot && layer.ops.size() > 1 && layer.ops[1] == i)
      op->RenameInput(layer.bias, numbers_.BiasName(layer, made));
  }

  // Appends the quantised ops of a layer with other names of their outputs.
  void WriteCopy(const QuantLayer& layer) {
    std::unordered_map<std::string, std::string> renamed;
    for (const size_t i : layer.ops) {
      auto copy = std::make_unique<OpDesc>(parts_.model.program.Root().op(i));
      Quantise(i, copy.get());
      copy->RenameInputs([&](const std::string& name) {
        const auto it = renamed.find(name);
        return it == renamed.end() ? name : it->second;
      });
      copy->RenameOutputs([&](const std::string& name) {
        return renamed[name] = result_.program.FreeName(name + "@OWN");
      });
      writer_.Append(std::move(copy));
    }
    copy_of_[layer.output] = renamed.at(layer.output);
  }

  const QuantizedParts& parts_;
  const bool copies_;
  FloatModel result_;
  BlockDesc& root_;
  Writer writer_;
  std::unordered_map<size_t, size_t> layer_of_;
  std::map<std::string, std::string> copy_of_;
  NumberWriter numbers_;
};

// Calls f(op) for each op of the root block in order; f appends the ops that replace it.
template <class F>
void Rebuild(BlockDesc& root, const F& f) {
  for (std::unique_ptr<OpDesc>& op : root.ReleaseOps()) f(std::move(op));
}

}  // namespace

FloatModel QuantizedProgram(const QuantizedParts& parts) {
  return ProgramWriter(parts, false).Run().model;
}

ProgramWithCopies FloatProgramWithCopies(const QuantizedParts& parts) {
  return ProgramWriter(parts, true).Run();
}

void SplitConvolutionBiases(FloatModel* model, const OpRegistry& ops) {
  BlockDesc& root = model->program.Root();
  const Writer writer(root, ops);
  Rebuild(root, [&](std::unique_ptr<OpDesc> op) {
    const bool has_bias = (IsConvolution(*op) || IsTransposedConvolution(*op)) &&
                          op->HasInput("Bias") && !op->HasInput("ResidualData") &&
                          op->GetAttr<std::string>("fuse_activation", "").empty();
    if (!has_bias) {
      root.AppendOp(std::move(op));
      return;
    }
    const std::string bias = op->Input("Bias")[0], out = op->Output("Output")[0];
    const int32_t axis = HasChannelsLast(*op) ? 3 : 1;
    const std::string sums = model->program.FreeName(out + "@SUMS");
    op->RemoveInput("Bias");
    op->SetOutput("Output", {sums});
    writer.Append(std::move(op));
    writer.Into(out, "elementwise_add", {{"X", {sums}}, {"Y", {bias}}}, {{"axis", axis}});
  });
}

void ComputeInBfloat16(FloatModel* model, const OpRegistry& ops) {
  BlockDesc& root = model->program.Root();
  const Writer writer(root, ops);
  std::unordered_map<std::string, std::string> weights;
  Rebuild(root, [&](std::unique_ptr<OpDesc> op) {
    const auto append = [&] { root.AppendOp(std::move(op)); };
    if (KindOf(*op) != QuantKind::kProduct) return append();
    const ProductSlots slots = SlotsOfProduct(*op);
    if (op->Input(slots.data).size() != 1 || op->Input(slots.weight).size() != 1) return append();
    const std::string x = op->Input(slots.data)[0], w = op->Input(slots.weight)[0];
    const Tensor* value = model->Weight(w);
    const VarDesc* data = root.FindVar(x);
    const bool fused =
        op->HasInput("ResidualData") || !op->GetAttr<std::string>("fuse_activation", "").empty();
    if (!value || !data || data->persistable() || data->dtype() != DType::kFloat32 || fused)
      return append();
    if (weights.try_emplace(w).second) {
      const std::string name = weights[w] = model->program.FreeName(w + "@BFLOAT16");
      Tensor halves = value->Cast(DType::kBFloat16);
      VarDesc& var = root.Var(name);
      var.SetMeta({VarType::kLoDTensor, DType::kBFloat16, halves.shape(), 0});
      var.SetPersistable(true);
      model->parameters.Set(name, std::move(halves));
    }
    const std::string out = op->Output(slots.output)[0];
    const std::string halves = model->program.FreeName(out + "@BFLOAT16");
    op->SetInput(slots.data, {Cast(writer.Var(x), DType::kBFloat16).name()});
    op->SetInput(slots.weight, {weights[w]});
    op->SetOutput(slots.output, {halves});
    // A bias is added in float32.
    const std::vector<std::string> bias = op->Input(slots.bias);
    const int32_t axis = HasChannelsLast(*op) ? 3 : 1;
    if (!bias.empty()) op->RemoveInput(slots.bias);
    writer.Append(std::move(op));
    const std::string sums = bias.empty() ? out : model->program.FreeName(out + "@SUMS");
    writer.Into(sums, "cast", {{"X", {halves}}},
                {{"in_dtype", static_cast<int32_t>(DType::kBFloat16)},
                 {"out_dtype", static_cast<int32_t>(DType::kFloat32)}});
    if (!bias.empty())
      writer.Into(out, "elementwise_add", {{"X", {sums}}, {"Y", {bias[0]}}}, {{"axis", axis}});
  });
  RemoveUnusedVariables(model);
}

void RemoveUnusedVariables(FloatModel* model) {
  std::unordered_set<std::string> used(model->feeds.begin(), model->feeds.end());
  used.insert(model->fetches.begin(), model->fetches.end());
  model->program.ForEachOp([&](const OpDesc& op) {
    op.ForEachInput([&](const std::string& name) { used.insert(name); });
    op.ForEachOutput([&](const std::string& name) { used.insert(name); });
  });
  for (int b = 0; b < model->program.NumBlocks(); ++b) {
    model->program.Block(b).RemoveVarsIf(
        [&](const VarDesc& var) { return used.count(var.name()) == 0; });
  }
  for (const std::string& name : model->parameters.LocalNames())
    if (used.count(name) == 0) model->parameters.Erase(name);
}

}  // namespace coracle::inline internal
