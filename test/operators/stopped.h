#pragma once
// Limits under which the work of one op must stop: long loops must notice.

#include <coracle/framework/base/resource_limits.h>

#include <atomic>
#include <memory>

namespace coracle {

class Stopped {
 public:
  // The first check is before the op; this number of checks passes.
  explicit Stopped(int passing = 1)
      : scoped_(std::make_shared<ResourceLimits>(ResourceOptions{.stop = MakeStop(passing)})) {}

 private:
  static std::function<bool()> MakeStop(int passing) {
    const auto checks = std::make_shared<std::atomic<int>>(0);
    return [checks, passing] { return (*checks)++ >= passing; };
  }
  ScopedLimits scoped_;
};

}  // namespace coracle
