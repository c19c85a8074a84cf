#pragma once
// Sets the number of threads while it lives.

#include <coracle/framework/base/resource_limits.h>

namespace coracle {

class Threads {
 public:
  explicit Threads(int n) { SetNumThreads(n); }
  ~Threads() { SetNumThreads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_ = NumThreads();
};

}  // namespace coracle
