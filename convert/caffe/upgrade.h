#pragma once
// Upgrades old forms of Caffe's texts like Caffe's own upgrade (util/upgrade_proto.cpp).

#include <coracle/convert/caffe/text.h>

namespace coracle::caffe {

// The layers of a network, with the positions `at`, one for each layer (or for each of the old
// `layers`, if there are any). Like Caffe, rejects a net with both kinds of layers.
Net UpgradeLayers(proto::caffe::NetParameter message, std::vector<Layer> at,
                  const std::string& source);

// "SGD", "Nesterov", ...
std::string SolverTypeName(proto::caffe::SolverParameter::SolverType type);

}  // namespace coracle::caffe
