#pragma once
// Old forms of Caffe's texts as Caffe's own upgrade (util/upgrade_proto.cpp) rewrites them.

#include <coracle/convert/caffe/text.h>

namespace coracle::caffe {

// The layers of a network, with the places `at`, one for each layer (or, where it has any, for each
// of the old `layers`). Of a net with both kinds of layers Caffe says that it is not valid.
Net UpgradeLayers(proto::caffe::NetParameter message, std::vector<Layer> at,
                  const std::string& source);

// "SGD", "Nesterov", ...
std::string SolverTypeName(proto::caffe::SolverParameter::SolverType type);

}  // namespace coracle::caffe
