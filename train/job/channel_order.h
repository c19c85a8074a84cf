#pragma once
// The order of the colours in a job's images.

#include <coracle/train/job/job.h>

#include <string>

namespace coracle::inline internal {

// The order of images of 3 channels: as declared, else as tools of the data's format write it.
ChannelOrder ChannelOrderOf(const DataConfig& data);

// A warning if the training data has images of 3 channels in an order that is only assumed;
// otherwise "". `data` is the opened training data.
std::string AssumedChannelOrder(const JobConfig& config, const DataSource& data);

}  // namespace coracle::inline internal
