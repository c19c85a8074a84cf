#pragma once
// Means and deviations of training data.

#include <coracle/train/data/data_source.h>

#include <cstdint>
#include <string>
#include <vector>

namespace coracle::inline internal {

// The rows that `choice` chooses of `size` rows; all rows if it is empty.
std::vector<int64_t> ChosenRows(const RowChoice& choice, int64_t size);

// (x - mean) * scale
struct ValueScale {
  float mean = 0;
  float scale = 1;
};

// Of values with this mean and deviation. Values whose deviation is 0, or too small for a scale of
// float32, keep the scale 1; a warning tells so. `file` and `name` name the values.
ValueScale ScaleFor(double mean, double deviation, const std::string& file,
                    const std::string& name);

// Computes the scale that gives the chosen rows of a column mean 0 and deviation 1, and applies it
// to all rows. Rows of `width` values lie one after the other. Throws kInvalidArgument for a result
// that float32 cannot hold.
ValueScale ScaleOf(std::vector<float>& values, int64_t width, int64_t column,
                   const std::vector<int64_t>& rows, const std::string& file,
                   const std::string& name);

}  // namespace coracle::inline internal
