#pragma once
// System calls of this process that fail on purpose. The binary has its own open, write, read,
// fsync, rename and mkdir, which replace the C library's.

#include <string>

namespace coracle::faults {

enum class Call { kNone, kOpen, kWrite, kRead, kSync, kRename, kMakeDirectory };
const char* ToString(Call call);

struct Fault {
  Call call = Call::kNone;
  int at = 0;     // the number of the call that fails, from 1
  int error = 0;  // its errno; 0: it moves only one byte
  int last = 0;   // also the calls up to this number; 0: only one call
  // The call before it moves only one byte, as on a disk that becomes full.
  bool after_one_byte = false;
};

// Counts the calls of this process on files, and lets some fail, while it lives. One at a time.
class ScopedFault {
 public:
  explicit ScopedFault(const Fault& fault = {});
  ~ScopedFault();
  ScopedFault(const ScopedFault&) = delete;
  ScopedFault& operator=(const ScopedFault&) = delete;

  static int Calls(Call call);  // so far
};

}  // namespace coracle::faults
