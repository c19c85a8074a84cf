#pragma once
// Limits under which the work of one op must stop: long loops must notice.

#include <coracle/framework/base/resource_limits.h>

#include <atomic>
#include <memory>

namespace coracle {

class Stopped {
 public:
  Stopped() : scoped_(std::make_shared<ResourceLimits>(ResourceOptions{.stop = MakeStop()})) {}

 private:
  // The first check is that before the op.
  static std::function<bool()> MakeStop() {
    const auto checks = std::make_shared<std::atomic<int>>(0);
    return [checks] { return (*checks)++ > 0; };
  }
  ScopedLimits scoped_;
};

}  // namespace coracle
