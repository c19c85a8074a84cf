#pragma once
// LSTM and GRU over sequences, one sequence and one step after the other: what the tests of the
// recurrent ops compare with.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace coracle::naive {

using Values = std::vector<double>;

inline Values Draw(int64_t count, uint32_t seed, double most = 0.8) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-most, most);
  Values values(static_cast<size_t>(count));
  for (double& v : values) v = uniform(random);
  return values;
}

inline double Activate(const std::string& name, double x) {
  if (name == "sigmoid") return 1 / (1 + std::exp(-x));
  if (name == "tanh") return std::tanh(x);
  return name == "relu" ? std::max(x, 0.0) : x;
}

inline double Clip(double x, double limit) {
  return limit > 0 ? std::min(limit, std::max(-limit, x)) : x;
}

// Row `row` of x [.., columns].
inline Values Row(const Values& x, int64_t row, int64_t columns) {
  if (x.empty()) return Values(static_cast<size_t>(columns), 0);
  return Values(x.begin() + row * columns, x.begin() + (row + 1) * columns);
}

// v M for a matrix of `columns` columns whose first element is at `from`.
inline Values Times(const Values& v, const Values& matrix, int64_t columns, size_t from = 0) {
  Values out(static_cast<size_t>(columns), 0);
  const auto n = static_cast<size_t>(columns);
  for (size_t k = 0; k < v.size(); ++k) {
    for (size_t c = 0; c < n; ++c) out[c] += v[k] * matrix[from + k * n + c];
  }
  return out;
}

struct Lstm {
  int64_t d = 1, p = 0;  // p > 0: columns of a projection
  bool reverse = false, peepholes = true;
  std::string gate = "sigmoid", cell = "tanh", candidate = "tanh", projection_act = "tanh";
  double cell_clip = 0, projection_clip = 0;
  Values weight, bias, projection, h0, c0;
  Values out, cells;  // the results

  void Run(const std::vector<uint64_t>& offsets, const Values& input) {
    const int64_t width = p > 0 ? p : d;
    const auto n = static_cast<size_t>(d);
    out.assign(offsets.back() * static_cast<size_t>(width), 0);
    cells.assign(offsets.back() * n, 0);
    for (size_t s = 0; s + 1 < offsets.size(); ++s) {
      Values h = Row(h0, static_cast<int64_t>(s), width), c = Row(c0, static_cast<int64_t>(s), d);
      for (uint64_t step = offsets[s]; step < offsets[s + 1]; ++step) {
        const uint64_t t = reverse ? offsets[s] + offsets[s + 1] - 1 - step : step;
        Values z = Row(input, static_cast<int64_t>(t), 4 * d);
        const Values u = Times(h, weight, 4 * d);
        Values hidden(n);
        for (size_t k = 0; k < n; ++k) {
          const auto a = [&](size_t g) { return z[g * n + k] + u[g * n + k] + bias[g * n + k]; };
          const auto peep = [&](size_t g) { return peepholes ? bias[(4 + g) * n + k] : 0.0; };
          const double i = Activate(gate, a(1) + peep(0) * c[k]);
          const double f = Activate(gate, a(2) + peep(1) * c[k]);
          c[k] = Clip(f * c[k] + i * Activate(candidate, a(0)), cell_clip);
          hidden[k] = Activate(gate, a(3) + peep(2) * c[k]) * Activate(cell, c[k]);
        }
        h = hidden;
        if (p > 0) {
          h = Times(hidden, projection, p);
          for (double& v : h) v = Clip(Activate(projection_act, v), projection_clip);
        }
        std::copy(h.begin(), h.end(), out.begin() + static_cast<int64_t>(t) * width);
        std::copy(c.begin(), c.end(), cells.begin() + static_cast<int64_t>(t) * d);
      }
    }
  }
};

struct Gru {
  int64_t d = 1;
  bool reverse = false, origin = false;
  std::string gate = "sigmoid", candidate = "tanh";
  Values weight, bias, h0;
  Values out;  // the result

  void Run(const std::vector<uint64_t>& offsets, const Values& input) {
    const auto n = static_cast<size_t>(d);
    out.assign(offsets.back() * n, 0);
    for (size_t s = 0; s + 1 < offsets.size(); ++s) {
      Values h = Row(h0, static_cast<int64_t>(s), d);
      for (uint64_t step = offsets[s]; step < offsets[s + 1]; ++step) {
        const uint64_t t = reverse ? offsets[s] + offsets[s + 1] - 1 - step : step;
        Values z = Row(input, static_cast<int64_t>(t), 3 * d);
        for (size_t k = 0; k < z.size() && !bias.empty(); ++k) z[k] += bias[k];
        const Values a = Times(h, weight, 2 * d);
        Values u(n), rh(n);
        for (size_t k = 0; k < n; ++k) {
          u[k] = Activate(gate, z[k] + a[k]);
          rh[k] = Activate(gate, z[n + k] + a[n + k]) * h[k];
        }
        const Values b = Times(rh, weight, d, 2 * n * n);
        for (size_t k = 0; k < n; ++k) {
          const double c = Activate(candidate, z[2 * n + k] + b[k]);
          h[k] = origin ? u[k] * h[k] + (1 - u[k]) * c : (1 - u[k]) * h[k] + u[k] * c;
        }
        std::copy(h.begin(), h.end(), out.begin() + static_cast<int64_t>(t) * d);
      }
    }
  }
};

}  // namespace coracle::naive
