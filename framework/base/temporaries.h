#pragma once
// Files and directories under a temporary name, which a signal that ends the process must not leave
// behind.

#include <string>

namespace coracle {

// Notes a name while it lives. `directory` is an open directory in which a relative path begins, or
// AT_FDCWD. Thread-safe. There is room for some dozens; what finds none, or has a longer path than
// the system takes, is not noted.
class NotedTemporary {
 public:
  NotedTemporary(int directory, const std::string& path);
  ~NotedTemporary();
  NotedTemporary(const NotedTemporary&) = delete;
  NotedTemporary& operator=(const NotedTemporary&) = delete;

 private:
  int slot_ = -1;
};

// Removes all that is noted, directories with their contents. May be called by a signal handler.
void RemoveNotedTemporaries();

}  // namespace coracle
