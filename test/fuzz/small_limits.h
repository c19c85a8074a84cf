#pragma once
// The limits under which targets read and run.

#include <coracle/framework/base/resource_limits.h>

#include <cstdint>
#include <memory>

namespace coracle {

inline std::shared_ptr<ResourceLimits> SmallLimits() {
  return std::make_shared<ResourceLimits>(
      ResourceOptions{.memory = uint64_t{64} << 20, .seconds = 2});
}

}  // namespace coracle
