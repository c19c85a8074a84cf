#pragma once
// Loops of sequence labelling in the widest SIMD of the machine. They use double, since they sum
// logarithms or shares over whole sequences.

#include <cstdint>

namespace coracle::inline internal {

// --- connectionist temporal classification ---

// The log-probability of an impossible event: far below all others, but finite, so that differences
// of two such numbers are finite.
constexpr double kCtcNever = -1e200;

// The frames of a sequence with finite `log_sums`, and the symbols that they should spell. Frames
// are `step` elements apart.
struct CtcSequence {
  const float* logits;
  int64_t count, step;
  const double* log_sums;  // log of the sum of exp(logits) of each frame
  const int64_t* symbols;
  int64_t size;  // of symbols
  int64_t blank;
};

// Doubles in a row of states, and in the rows of a whole sequence. Blanks and symbols are stored
// separately: blank k, before symbol k, at k, and symbol k at CtcWidth + k + 1; the rest
// is padding.
inline int64_t CtcWidth(int64_t symbols) { return (symbols + 8) / 8 * 8; }
inline int64_t CtcRowSize(int64_t symbols) { return 2 * CtcWidth(symbols) + 8; }

// alpha[t + 1, s] = the log-probability that frames 0 to t take a path that ends in state s, after
// a row for the time before the first frame. Returns the log-probability of all whole paths, below
// kCtcNever / 2 if there are none. `room`: 3 rows.
double CtcForward(const CtcSequence& x, double* alpha, double* room);

// grad[t, v] -= the share of paths that are at symbol v in frame t. `room`: 3 rows.
void CtcBackward(const CtcSequence& x, const double* alpha, double total, double* room, float* grad,
                 int64_t grad_step);

// --- matrices that are too small for a gemm ---

// out[j] = the sum over i of v[i] m[i, j], for m of n x n elements.
void VectorTimesSquare(const double* v, const double* m, int64_t n, double* out);
// out[i] = the sum over j of m[i, j] v[j].
void SquareTimesVector(const double* m, const double* v, int64_t n, double* out);
// sums[i, j] += a[i] m[i, j] b[j].
void AddScaledSquare(const double* a, const double* m, const double* b, int64_t n, double* sums);
// The same for numbers given by their logarithms: out[j] = log of the sum over i of exp(v[i] + m[i,
// j]) and out[i] = log of the sum over j of exp(m[i, j] + v[j]); sums[i, j] += scale exp(a[i] +
// m[i, j] + b[j]), whose arguments must not be positive. REQUIRES: n > 0.
void LogVectorTimesSquare(const double* v, const double* m, int64_t n, double* out);
void LogSquareTimesVector(const double* m, const double* v, int64_t n, double* out);
void AddExpSquare(const double* a, const double* m, const double* b, int64_t n, double scale,
                  double* sums);

// x *= y; returns the sum of the products.
double MultiplyBy(const double* y, int64_t n, double* x);
// x[i] = exp(x[i] - max), approximately 0 below exp(-700). REQUIRES: max >= x[i].
void ExpBelow(double max, int64_t n, double* x);

}  // namespace coracle::inline internal
