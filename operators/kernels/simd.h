#pragma once
// Loops over floats in the widest SIMD of the machine, chosen at run time. Pointers may be
// unaligned; an output may be exactly one of the inputs; n may be 0. The result of an element
// depends only on its operands, not on its position in the array, so callers may split arrays
// freely (except for sums).

#include <cstddef>
#include <cstdint>

namespace coracle::simd {

enum class Binary { kAdd, kSub, kMul, kDiv, kMax, kMin };
// Which operand is a single element that is repeated.
enum class Form { kVectorVector, kVectorScalar, kScalarVector };
using BinaryLoop = void (*)(const float* x, const float* y, float* out, int64_t n);
BinaryLoop FindBinary(Binary op, Form form);

struct Params {
  float a = 0, b = 0, c = 0;
};

// With the attrs a, b, c:
enum class Unary {
  kScale,        // a x + b
  kShiftScale,   // a (x + b)
  kRelu,         // x < 0 ? 0 : x
  kLeakyRelu,    // x < 0 ? a x : x
  kRelu6,        // clamp(x, 0, a)
  kSigmoid,      // 1 / (1 + e^-x)
  kTanh,         //
  kExp,          //
  kSqrt,         //
  kAbs,          //
  kSquare,       //
  kGeluErf,      // x Phi(x)
  kGeluTanh,     // x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
  kHardSigmoid,  // clamp(a x + b, 0, 1)
  kHardSwish,    // x clamp(x + c, 0, a) / b
  kSwish,        // x sigmoid(a x)
};
using UnaryLoop = void (*)(const float* x, float* out, int64_t n, Params params);
UnaryLoop FindUnary(Unary op);

// dx = dout f'(v), where v is the forward output for relu, relu6, sigmoid, tanh, exp, sqrt and
// hard_sigmoid, and the forward input for the others. nullptr for kScale and kShiftScale.
using GradLoop = void (*)(const float* v, const float* dout, float* dx, int64_t n, Params params);
GradLoop FindUnaryGrad(Unary op);

// --- formulas on registers ---
//
// A tape of instructions runs on a tile of as many elements as fit into eight vectors. The
// instructions pass on one value, the accumulator, in eight registers; other operands are in
// memory. So a sequence of elementwise ops needs no loop over memory for each op. The results have
// the same bits as those of the loops above.

using LaneRun = void (*)();  // a function of the machine's SIMD target

struct LaneInstruction {
  LaneRun run = nullptr;
  int32_t pointer = 0;  // index of the operand among the pointers of RunLanes
  bool moves = false;   // advances from tile to tile; otherwise it is one tile of memory
  Params params;
};

// The instructions for a formula. With one operand: f(accumulator). With two operands, the
// accumulator is the left or the right one, and the other is in memory.
struct Lanes {
  LaneRun one = nullptr, left = nullptr, right = nullptr;
};
Lanes FindLanes(Unary op);
Lanes FindGradLanes(Unary op);  // for v and dout; none for kScale and kShiftScale
Lanes FindLanes(Binary op);

// The instructions that move the accumulator: from memory, to memory, and past the caches to memory
// aligned to 64 bytes. `end` is the last instruction of every tape.
struct LaneMoves {
  LaneRun load, store, stream, end;
  int64_t tile;  // elements
};
LaneMoves FindLaneMoves();

// Runs the tape on `tiles` tiles, starting at the first elements of the pointers. The pointers with
// the indices `ahead` are prefetched. After a tape with `stream`, the caller must issue a fence.
void RunLanes(const LaneInstruction* tape, char* const* pointers, int64_t tiles,
              const int32_t* ahead, size_t num_ahead);

float Sum(const float* x, int64_t n);
float Dot(const float* x, const float* y, int64_t n);
bool AllFinite(const float* x, int64_t n);

}  // namespace coracle::simd
