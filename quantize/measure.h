#pragma once
// Measures how far quantised programs are from the float program.

#include <coracle/quantize/calibration.h>

#include <map>
#include <string>
#include <vector>

namespace coracle::inline internal {

// Sums for a signal-to-noise ratio.
struct SignalNoise {
  double signal = 0, noise = 0;

  // Adds the elements of two float32 tensors. Throws InternalError if their shapes differ.
  void Add(const Tensor& exact, const Tensor& approximation);
  // 10 log10(signal / noise); infinite without noise, nan without a signal or with nan noise.
  double Decibels() const;
};

// The float program with its quantised copies of layers, and the quantised program.
struct Compared {
  const FloatModel& with_copies;
  const FloatModel& quantized;
  // Compared are the variable in the float program, its copy there ("" if it has none), and the
  // variable of the same name in the quantised program.
  std::vector<std::pair<std::string, std::string>> names;
};
struct NoiseOf {
  SignalNoise own, total;
};
// In the order of the names. Throws the errors of Executor::Prepare and Run.
std::vector<NoiseOf> MeasureNoise(const Compared& compared, const CalibrationFeeds& feeds,
                                  const CompileOptions& compile, const OpRegistry& ops);

}  // namespace coracle::inline internal
