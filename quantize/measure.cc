#include <coracle/quantize/measure.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace coracle::inline internal {

void SignalNoise::Add(const Tensor& exact, const Tensor& approximation) {
  const std::span<const float> x = exact.span<float>(), y = approximation.span<float>();
  if (exact.shape() != approximation.shape()) {
    throw InternalError(fmt::format("a quantised result has the shape {}, and in floating point {}",
                                    approximation.shape().ToString(), exact.shape().ToString()));
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const auto value = static_cast<double>(x[i]);
    const double error = static_cast<double>(y[i]) - value;
    signal += value * value;
    noise += error * error;
  }
}

double SignalNoise::Decibels() const {
  if (signal == 0 || std::isnan(noise)) return std::numeric_limits<double>::quiet_NaN();
  return noise == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(signal / noise);
}

std::vector<NoiseOf> MeasureNoise(const Compared& compared, const CalibrationFeeds& feeds,
                                  const CompileOptions& compile, const OpRegistry& ops) {
  std::vector<std::string> exact, copies;
  std::vector<int> place;  // of the copy among the fetches
  for (const auto& [name, copy] : compared.names) exact.push_back(name);
  std::vector<std::string> fetches = exact;
  for (const auto& [name, copy] : compared.names) {
    place.push_back(copy.empty() ? -1 : static_cast<int>(fetches.size()));
    if (!copy.empty()) fetches.push_back(copy);
  }
  const Executor executor(compile, ops);
  Scope scope = SharedCopy(compared.with_copies.parameters);
  Scope quantized_scope = SharedCopy(compared.quantized.parameters);
  const std::vector<std::string>& inputs = compared.with_copies.feeds;
  PreparedProgram program =
      executor.PrepareFrozen(compared.with_copies.program, scope, inputs, fetches);
  PreparedProgram quantized =
      executor.PrepareFrozen(compared.quantized.program, quantized_scope, inputs, exact);
  std::vector<NoiseOf> noise(exact.size());
  feeds([&](const std::vector<Tensor>& batch) {
    const std::vector<Tensor> values = program.Run(scope, batch);
    const std::vector<Tensor> others = quantized.Run(quantized_scope, batch);
    ParallelFor(static_cast<int64_t>(exact.size()), 1, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        noise[i].total.Add(values[i], others[i]);
        if (place[i] >= 0) noise[i].own.Add(values[i], values[static_cast<size_t>(place[i])]);
      }
    });
  });
  return noise;
}

}  // namespace coracle::inline internal
