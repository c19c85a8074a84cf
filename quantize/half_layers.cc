#include <coracle/framework/base/error.h>
#include <coracle/framework/op/writer.h>
#include <coracle/operators/operators.h>
#include <coracle/quantize/half_layers.h>
#include <coracle/quantize/layers.h>
#include <coracle/quantize/measure.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>

namespace coracle::inline internal {
namespace {

// Copies the program and lets layers compute with rounded operands: the layers themselves, or
// copies of them that read what the layers read.
class RoundingWriter {
 public:
  RoundingWriter(const FloatModel& model, const std::vector<const QuantLayer*>& layers, bool copies)
      : result_(model.Copy()),
        root_(result_.program.Root()),
        writer_(root_, DefaultOps()),
        copies_(copies) {
    for (const QuantLayer* layer : layers) {
      for (size_t op : layer->ops) layer_of_[op] = layer;
    }
  }

  FloatModel Run() {
    std::vector<std::unique_ptr<OpDesc>> ops = root_.ReleaseOps();
    for (size_t i = 0; i < ops.size(); ++i) {
      const auto found = layer_of_.find(i);
      if (found == layer_of_.end()) {
        root_.AppendOp(std::move(ops[i]));
        continue;
      }
      const QuantLayer& layer = *found->second;
      if (!copies_) {
        Round(layer, i, std::move(ops[i]));
        continue;
      }
      pending_[&layer].push_back(std::make_unique<OpDesc>(*ops[i]));
      root_.AppendOp(std::move(ops[i]));
      if (i == layer.ops.back()) AppendCopy(layer);
    }
    return std::move(result_);
  }

  std::map<std::string, std::string> copy_of;  // the copy's output, by the output of the layer

 private:
  // The variable's numbers, rounded to bfloat16.
  const std::string& Rounded(const std::string& name) {
    std::string& rounded = rounded_[name];
    if (rounded.empty()) {
      rounded = Cast(Cast(writer_.Var(name), DType::kBFloat16), DType::kFloat32).name();
    }
    return rounded;
  }

  void RoundOperands(const QuantLayer& layer, OpDesc& op) {
    const std::string data = Rounded(layer.data[0]);
    const std::string weight = Rounded(layer.weight[0].name);
    op.RenameInputs([&](const std::string& name, const std::string& slot) {
      if (slot == layer.weight[0].slot) return weight;
      return name == layer.data[0] && slot != "ResidualData" ? data : name;
    });
  }

  static bool RoundsResult(const QuantLayer& layer) { return layer.type == "conv2d"; }

  void RoundResult(const std::string& sums, const std::string& out) {
    const Variable half = Cast(writer_.Var(sums), DType::kBFloat16);
    writer_.Into(out, "cast", {{"X", {half.name()}}},
                 {{"in_dtype", static_cast<int32_t>(DType::kBFloat16)},
                  {"out_dtype", static_cast<int32_t>(DType::kFloat32)}});
  }

  void Round(const QuantLayer& layer, size_t position, std::unique_ptr<OpDesc> op) {
    if (position == layer.ops.front()) RoundOperands(layer, *op);
    const bool last = position == layer.ops.back() && RoundsResult(layer);
    const std::string sums = result_.program.FreeName(layer.output + "@SUMS");
    if (last) op->RenameOutput(layer.output, sums);
    writer_.Append(std::move(op));
    if (last) RoundResult(sums, layer.output);
  }

  void AppendCopy(const QuantLayer& layer) {
    std::vector<std::unique_ptr<OpDesc>>& ops = pending_[&layer];
    std::unordered_map<std::string, std::string> renamed;
    for (size_t i = 0; i < ops.size(); ++i) {
      OpDesc& op = *ops[i];
      if (i == 0) RoundOperands(layer, op);
      op.RenameInputs([&](const std::string& name, const std::string&) {
        const auto found = renamed.find(name);
        return found == renamed.end() ? name : found->second;
      });
      op.RenameOutputs([&](const std::string& name, const std::string&) {
        return renamed[name] = result_.program.FreeName(name + "@COPY");
      });
      writer_.Append(std::move(ops[i]));
    }
    std::string copy = renamed.at(layer.output);
    if (RoundsResult(layer)) {
      const std::string sums = std::exchange(copy, result_.program.FreeName(copy + "@ROUNDED"));
      RoundResult(sums, copy);
    }
    copy_of[layer.output] = copy;
  }

  FloatModel result_;
  BlockDesc& root_;
  Writer writer_;
  const bool copies_;
  std::unordered_map<size_t, const QuantLayer*> layer_of_;
  std::unordered_map<const QuantLayer*, std::vector<std::unique_ptr<OpDesc>>> pending_;
  std::unordered_map<std::string, std::string> rounded_;
};

// The layers that the pass use_bfloat16 may take.
bool MayNarrow(const FloatModel& model, const QuantLayer& layer) {
  if (layer.data.size() != 1 || layer.weight.size() != 1) return false;
  if (layer.type == "conv2d") return true;
  const bool product = layer.type == "mul" || layer.type == "matmul" || layer.type == "matmul_v2";
  return product && model.Weight(layer.weight[0].name)->shape().rank() == 2 &&
         layer.weight[0].slot == "Y";
}

}  // namespace

HalfLayers MeasureBFloat16(const ProgramDesc& program, const Scope& parameters,
                           const CalibrationFeeds& feeds, double min_snr,
                           const CompileOptions& compile, const OpRegistry& ops) {
  const FloatModel model = PrepareFloatModel(program, parameters, ops);
  const std::vector<QuantLayer> all = FindProducts(model, {.connectors = false});
  std::vector<const QuantLayer*> layers;
  for (const QuantLayer& layer : all)
    if (MayNarrow(model, layer)) layers.push_back(&layer);
  if (layers.empty()) {
    ThrowInvalid(
        "the program has no layer to compute in bfloat16: no convolution or matrix product in "
        "float32 reads an activation and a parameter");
  }
  RoundingWriter copies(model, layers, true);
  const FloatModel with_copies = copies.Run();
  const auto measure = [&](const std::vector<const QuantLayer*>& narrow) {
    const FloatModel rounded = RoundingWriter(model, narrow, false).Run();
    Compared compared{with_copies, rounded, {}};
    for (const QuantLayer* layer : layers)
      compared.names.emplace_back(layer->output, copies.copy_of.at(layer->output));
    return MeasureNoise(compared, feeds, compile, ops);
  };
  std::vector<NoiseOf> noise = measure(layers);
  HalfLayers result;
  std::vector<const QuantLayer*> narrow;
  for (size_t i = 0; i < layers.size(); ++i) {
    const SignalNoise& own = noise[i].own;
    // A layer without a signal loses nothing.
    const bool loses = std::isnan(own.noise) || (own.signal > 0 && own.Decibels() < min_snr);
    if (loses)
      result.in_float32.push_back(layers[i]->output);
    else
      narrow.push_back(layers[i]);
  }
  const std::vector<NoiseOf> total = result.in_float32.empty() ? noise : measure(narrow);
  const std::set<std::string> wide(result.in_float32.begin(), result.in_float32.end());
  for (size_t i = 0; i < layers.size(); ++i) {
    LayerReport report;
    report.output = layers[i]->output;
    report.type = layers[i]->type;
    report.quantized = wide.count(report.output) == 0;
    report.own = noise[i].own.Decibels();
    report.total = total[i].total.Decibels();
    report.bytes_before = model.Weight(layers[i]->weight[0].name)->nbytes();
    report.bytes_after = report.quantized ? report.bytes_before / 2 : report.bytes_before;
    result.layers.push_back(std::move(report));
  }
  return result;
}

}  // namespace coracle::inline internal
