#include <coracle/framework/base/text.h>
#include <coracle/quantize/calibration.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace coracle::inline internal {
namespace {

void AddChannels(const Tensor& value, const ChannelKey& key, ChannelValues* channels) {
  const Shape& shape = value.shape();
  if (shape.rank() < key.end || channels->varies) return;
  const int64_t rows = shape.Product(0, key.begin), count = shape.Product(key.begin, key.end);
  const int64_t inner = shape.Product(key.end, shape.rank());
  const auto size = static_cast<size_t>(count);
  if (channels->sum.empty()) {
    channels->sum.resize(size);
    channels->magnitude.resize(size);
  }
  if (channels->sum.size() != size) {
    *channels = ChannelValues();
    channels->varies = true;
    return;
  }
  const float* x = value.data<float>();
  for (int64_t row = 0; row < rows; ++row) {
    for (size_t c = 0; c < size; ++c) {
      double sum = 0, magnitude = channels->magnitude[c];
      for (int64_t i = 0; i < inner; ++i, ++x) {
        sum += static_cast<double>(*x);
        magnitude = std::max(magnitude, std::abs(static_cast<double>(*x)));
      }
      channels->sum[c] += sum;
      channels->magnitude[c] = magnitude;
    }
  }
  channels->count += static_cast<uint64_t>(rows * inner);
}

ChannelKey KeyOf(const QuantLayer& layer) {
  const ProductAxes& axes = layer.weight[0].axes;
  return {layer.data[0], axes.data_begin, axes.data_end};
}

// The histograms and channels of one variable.
struct Recorded {
  std::string name;
  ValueHistogram* histogram = nullptr;
  std::vector<std::pair<ChannelKey, ChannelValues*>> channels;
};

std::vector<Recorded> MakeRecords(const std::vector<std::string>& names,
                                  const std::vector<QuantLayer>& products, Calibration* result) {
  std::map<std::string, Recorded> records;
  for (const std::string& name : names) records[name].histogram = &result->histograms[name];
  for (const QuantLayer& layer : products)
    if (!layer.weight.empty()) result->channels[KeyOf(layer)];
  for (auto& [key, values] : result->channels)
    records[key.name].channels.emplace_back(key, &values);
  std::vector<Recorded> list;
  for (auto& [name, recorded] : records) {
    recorded.name = name;
    list.push_back(std::move(recorded));
  }
  return list;
}

// The variable that is not finite and that the program computes first; nullptr if all are finite.
const Recorded* FirstBad(const BlockDesc& root, const std::vector<Recorded>& records,
                         const std::vector<char>& finite) {
  const Recorded* first = nullptr;
  size_t least = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    if (finite[i]) continue;
    const VarUses uses = root.Uses(records[i].name);
    const size_t place = uses.writers.empty() ? 0 : root.IndexOf(*uses.writers[0]) + 1;
    if (first && place >= least) continue;
    first = &records[i];
    least = place;
  }
  return first;
}

}  // namespace

Calibration Calibrate(const FloatModel& model, const std::vector<std::string>& names,
                      const std::vector<QuantLayer>& products, const CalibrationFeeds& feeds,
                      const CompileOptions& compile, const OpRegistry& ops) {
  Calibration result;
  const std::vector<Recorded> records = MakeRecords(names, products, &result);
  std::vector<std::string> fetches;
  for (const Recorded& each : records) fetches.push_back(each.name);
  if (fetches.empty()) fetches = model.fetches;
  Scope scope = SharedCopy(model.parameters);
  PreparedProgram program =
      Executor(compile, ops).PrepareFrozen(model.program, scope, model.feeds, fetches);
  feeds([&](const std::vector<Tensor>& batch) {
    const std::vector<Tensor>& values = program.Run(scope, batch);
    std::vector<char> finite(records.size(), 1);
    ParallelFor(static_cast<int64_t>(records.size()), 1, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        if (records[i].histogram) finite[i] = records[i].histogram->Add(values[i].span<float>());
        for (const auto& [key, channels] : records[i].channels)
          AddChannels(values[i], key, channels);
      }
    });
    if (const Recorded* bad = FirstBad(model.program.Root(), records, finite)) {
      throw Error(
          ErrorCode::kOutOfRange,
          fmt::format("{} is nan or infinite in batch {} of the samples: no range holds it; "
                      "leave out those samples, or exclude the layers that read it",
                      Quote(bad->name), result.batches));
    }
    ++result.batches;
  });
  if (result.batches == 0) ThrowInvalid("there are no samples to calibrate on");
  return result;
}

const ChannelValues* ChannelsOf(const Calibration& calibration, const QuantLayer& layer) {
  if (layer.weight.empty()) return nullptr;
  const auto found = calibration.channels.find(KeyOf(layer));
  if (found == calibration.channels.end()) return nullptr;
  const ChannelValues& values = found->second;
  return values.varies || values.count == 0 ? nullptr : &values;
}

}  // namespace coracle::inline internal
