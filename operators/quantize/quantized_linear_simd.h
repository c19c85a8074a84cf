#pragma once
// Products of floats and panels of packed integers, in the widest SIMD of the machine.

#include <cstdint>

namespace coracle::inline internal {

// Columns of a panel, and numbers of a column in a group.
constexpr int64_t kPanelColumns = 16, kPanelGroup = 8;
// The most rows that MultiplyPanel takes.
constexpr int64_t kPanelRows = 8;

// The rows of a weight as columns of panels. A panel has `blocks` blocks of `block` numbers of each
// column, the last one of fewer. Blocks consist of groups of kPanelGroup numbers of each column;
// the last group is filled up. A group of bytes has the first numbers of all columns, then the
// second ones, ... A group of 4 bits has a little-endian word for each column, the first number in
// its lowest bits. Signed numbers of 4 bits are stored plus 8.
struct LinearPanels {
  const uint8_t* weights = nullptr;
  const float* scales = nullptr;   // [panels, blocks, kPanelColumns]
  const int16_t* zeros = nullptr;  // zero points in the same order; nullptr: all are `zero`
  float zero = 0;
  int64_t k = 0, block = 1, blocks = 0;
  int32_t bits = 8;
  bool is_signed = false;  // of bytes

  int64_t GroupBytes() const { return kPanelColumns * bits; }
  int64_t GroupsOf(int64_t numbers) const { return (numbers + kPanelGroup - 1) / kPanelGroup; }
  int64_t PanelBytes() const {
    if (blocks == 0) return 0;
    const int64_t last = k - (blocks - 1) * block;
    return ((blocks - 1) * GroupsOf(block) + GroupsOf(last)) * GroupBytes();
  }
  // Where number i of a column is, as an index of its group and within the group.
  int64_t GroupAt(int64_t i) const { return i / block * GroupsOf(block) + i % block / kPanelGroup; }
  static int64_t Rest(int64_t i, int64_t block) { return i % block % kPanelGroup; }
};

// out[r * out_step + c] = the sum of x[r * x_step + i] w[i][c] for rows r < rows <= kPanelRows and
// columns c < columns <= kPanelColumns of a panel. Scales multiply the sums of blocks, so a result
// that overflows on the way is infinite or nan.
void MultiplyPanel(const LinearPanels& panels, int64_t panel, const float* x, int64_t x_step,
                   int64_t rows, float* out, int64_t out_step, int64_t columns);

// to[i * step + c] = w[i][c] of a panel as floats, for the columns c < columns.
void DequantizePanel(const LinearPanels& panels, int64_t panel, float* to, int64_t step,
                     int64_t columns);

}  // namespace coracle::inline internal
