#pragma once
// Equations of einsum, computed by a loop over all values of all labels.

#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace coracle::einsum_reference {

inline const std::map<char, int64_t> kSizes = {{'b', 2}, {'h', 3}, {'i', 4}, {'j', 5}, {'k', 2}};

// The sizes of the labels; -1 for those in `open`.
inline std::vector<int64_t> DimsOf(const std::string& labels, const std::string& open = "") {
  std::vector<int64_t> dims;
  for (const char label : labels)
    dims.push_back(open.find(label) == open.npos ? kSizes.at(label) : -1);
  return dims;
}

// The elements of the output, whose labels differ. A term may have a label twice.
inline std::vector<double> EinsumOf(const std::vector<std::string>& terms,
                                    const std::vector<Tensor>& tensors, const std::string& output) {
  std::string labels = output;
  for (const auto& [label, size] : kSizes) {
    bool used = false;
    for (const std::string& term : terms) used |= term.find(label) != term.npos;
    if (used && output.find(label) == output.npos) labels += label;
  }
  int64_t results = 1, all = 1;
  for (const char label : output) results *= kSizes.at(label);
  for (const char label : labels) all *= kSizes.at(label);
  std::vector<double> sums(static_cast<size_t>(results), 0.0);
  for (int64_t n = 0; n < all; ++n) {
    std::map<char, int64_t> at;
    int64_t rest = n;
    for (size_t k = labels.size(); k-- > 0; rest /= kSizes.at(labels[k]))
      at[labels[k]] = rest % kSizes.at(labels[k]);
    double product = 1;
    for (size_t t = 0; t < terms.size(); ++t) {
      int64_t place = 0;
      for (const char label : terms[t]) place = place * kSizes.at(label) + at[label];
      product *= double{tensors[t].data<float>()[place]};
    }
    sums[static_cast<size_t>(n / (all / results))] += product;
  }
  return sums;
}

}  // namespace coracle::einsum_reference
