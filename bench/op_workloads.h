#pragma once
// The workloads of op_step_bench and of its peer, with the same drawn inputs in both. Uses only
// C++17 and its standard library.

#include <coracle/bench/timing.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace coracle {

enum class Draw {
  kWanted,    // floats in [low, high) that get a gradient
  kConstant,  // floats without a gradient
  kWhole,     // int64 in [low, high)
  kBoxes,     // rows (x1, y1, x2, y2)
};

struct OpInput {
  std::string name;
  std::vector<int64_t> dims;
  Draw draw = Draw::kWanted;
  double low = -1, high = 1;
};

struct OpWorkload {
  std::vector<OpInput> inputs;
  std::vector<int64_t> out;           // the dims of the result; {}: it has no gradient
  std::vector<int64_t> lengths = {};  // lengths of the sequences that form the rows of "x"
};

inline std::vector<int64_t> SequenceLengths() {
  std::mt19937 random(7);
  std::vector<int64_t> lengths(64);
  for (int64_t& n : lengths) n = 10 + static_cast<int64_t>(random() % 41);
  return lengths;
}

inline OpWorkload LstmWorkload(int64_t hidden) {
  const std::vector<int64_t> lengths = SequenceLengths();
  const int64_t rows = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const double bound = 1 / std::sqrt(static_cast<double>(hidden));
  return {{{"x", {rows, 128}},
           {"w", {128, 4 * hidden}, Draw::kWanted, -bound, bound},
           {"u", {hidden, 4 * hidden}, Draw::kWanted, -bound, bound},
           {"bias", {1, 4 * hidden}, Draw::kWanted, -bound, bound}},
          {rows, hidden},
          lengths};
}

// The workload of that name (without "_train").
inline OpWorkload OpWorkloadOf(const std::string& name) {
  static const std::map<std::string, OpWorkload> all = {
      {"conv3d",
       {{{"x", {4, 32, 16, 56, 56}}, {"filter", {64, 32, 3, 3, 3}, Draw::kWanted, -0.1, 0.1}},
        {4, 64, 16, 56, 56}}},
      {"conv3d_transpose",  // kernel 4, stride 2, padding 1
       {{{"x", {4, 64, 8, 28, 28}}, {"filter", {64, 32, 4, 4, 4}, Draw::kWanted, -0.1, 0.1}},
        {4, 32, 16, 56, 56}}},
      {"conv2d_transpose",  // kernel 4, stride 2, padding 1
       {{{"x", {8, 128, 28, 28}}, {"filter", {128, 64, 4, 4}, Draw::kWanted, -0.1, 0.1}},
        {8, 64, 56, 56}}},
      {"pool3d_max", {{{"x", {4, 32, 16, 56, 56}}}, {4, 32, 8, 28, 28}}},  // kernel 3, stride 2
      {"pool3d_avg", {{{"x", {4, 32, 16, 56, 56}}}, {4, 32, 8, 28, 28}}},
      {"bmm", {{{"x", {32, 256, 256}}, {"y", {32, 256, 256}}}, {32, 256, 256}}},
      {"attention",
       {{{"x", {8, 8, 1024, 64}}, {"keys", {8, 8, 1024, 64}}, {"values", {8, 8, 1024, 64}}},
        {8, 8, 1024, 64}}},
      {"group_norm",
       {{{"x", {16, 64, 56, 56}}, {"scale", {64}}, {"bias", {64}}}, {16, 64, 56, 56}}},
      {"bilinear_interp", {{{"x", {8, 64, 56, 56}}}, {8, 64, 112, 112}}},
      {"grid_sampler",
       {{{"x", {8, 64, 56, 56}}, {"grid", {8, 56, 56, 2}, Draw::kWanted, -1.1, 1.1}},
        {8, 64, 56, 56}}},
      {"lstm_128", LstmWorkload(128)},
      {"lstm_256", LstmWorkload(256)},
      {"warpctc",
       {{{"x", {200, 32, 80}},
         {"label", {32, 30}, Draw::kWhole, 1, 80},
         {"frames", {32}, Draw::kWhole, 200, 201},
         {"symbols", {32}, Draw::kWhole, 30, 31}},
        {32, 1}}},
      {"scatter",
       {{{"x", {10000, 64}}, {"ids", {100000}, Draw::kWhole, 0, 10000}, {"updates", {100000, 64}}},
        {10000, 64}}},
      {"gather", {{{"x", {10000, 64}}, {"ids", {100000}, Draw::kWhole, 0, 10000}}, {100000, 64}}},
      {"argsort", {{{"x", {64, 10000}}}, {64, 10000}}},
      {"top_k", {{{"x", {64, 10000}}}, {64, 10}}},
      {"cumsum", {{{"x", {64, 10000}}}, {64, 10000}}},
      {"nms",
       {{{"boxes", {1, 10000, 4}, Draw::kBoxes}, {"scores", {1, 1, 10000}, Draw::kConstant, 0, 1}},
        {}}},
  };
  const auto found = all.find(name);
  if (found == all.end()) throw std::invalid_argument("no such workload: " + name);
  return found->second;
}

// Draws the inputs of a workload in order.
class Drawing {
 public:
  void Fill(const OpInput& input, float* to, int64_t count) {
    for (int64_t i = 0; i < count; ++i) to[i] = Between(input.low, input.high);
    if (input.draw != Draw::kBoxes) return;
    for (int64_t i = 0; i + 3 < count; i += 4) {  // sides of 0.02 to 0.1
      for (int64_t k = i; k < i + 2; ++k) to[k + 2] = to[k] + 0.06f + 0.04f * to[k + 2];
    }
  }
  void Fill(const OpInput& input, int64_t* to, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      to[i] = static_cast<int64_t>(input.low) +
              static_cast<int64_t>(random_() % static_cast<uint32_t>(input.high - input.low));
  }

 private:
  float Between(double low, double high) {
    const double unit = static_cast<double>(random_() >> 8) / (1 << 24);
    return static_cast<float>(low + (high - low) * unit);
  }
  std::mt19937 random_{1};
};

// Parses --workload=NAME or NAME_train.
struct OpRun {
  std::string name;
  bool train;
  OpWorkload workload;

  explicit OpRun(const std::string& given)
      : name(given), train(given.size() > 6 && given.compare(given.size() - 6, 6, "_train") == 0) {
    if (train) name.resize(name.size() - 6);
    workload = OpWorkloadOf(name);
    if (train && workload.out.empty()) throw std::invalid_argument(name + " has no gradient");
    if (train) workload.inputs.push_back({"weight", workload.out, Draw::kConstant});
  }
};

// Prints sums of a result for --check; they do not depend on the order of elements.
template <class T>
void PrintSums(const std::string& name, const T* data, int64_t count) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto v = static_cast<double>(data[i]);
    sum += v;
    squares += v * v;
  }
  std::printf("%-16s %10lld elements  sum %.6g  squares %.6g\n", name.c_str(),
              static_cast<long long>(count), sum, squares);
}

}  // namespace coracle
