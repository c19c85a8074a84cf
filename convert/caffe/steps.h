#pragma once
// Ops that layers of detectors are composed of. Each function writes one op into a temporary, and
// returns its name.

#include <coracle/convert/caffe/net_writer.h>

#include <string>

namespace coracle::caffe {

std::string Cast(const Layer& layer, NetWriter& net, const std::string& x, const char* dtype,
                 const char* name);
std::string Reshape(const Layer& layer, NetWriter& net, const std::string& x, const Dims& shape,
                    const char* name);
std::string Slice(const Layer& layer, NetWriter& net, const std::string& x, int64_t axis,
                  int64_t begin, int64_t end, const char* name);
// One number.
std::string Number(const Layer& layer, NetWriter& net, double value, const char* dtype,
                   const char* name);
std::string Times(const Layer& layer, NetWriter& net, const std::string& x, const std::string& y,
                  const char* name);
std::string SumOf(const Layer& layer, NetWriter& net, const std::string& x, const char* name);

// Rows that belong to images, whose numbers `images` [R] holds: the offsets of the images' rows
// once they are sorted, [N + 1] with N the size of the batch of `features`.
std::string OffsetsOf(const Layer& layer, NetWriter& net, const std::string& features,
                      const std::string& images);
// The places of the sorted keys.
std::string SortedPlaces(const Layer& layer, NetWriter& net, const std::string& keys,
                         const char* name);
// The rows of `x` in that order, with LoD.
std::string SortedRows(const Layer& layer, NetWriter& net, const std::string& x,
                       const std::string& order, const std::string& offsets, const char* name);

}  // namespace coracle::caffe
