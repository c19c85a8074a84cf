#pragma once
// Files and directories under a temporary name, which a signal that ends the process must not leave
// behind.

#include <functional>
#include <string>

namespace coracle {

// Notes a path that a signal handler removes. Each call is thread-safe against the handler, which
// may run in any thread; an object belongs to one thread. There is room for some dozens of paths;
// one that finds none, or that is longer than the system takes, is not noted.
class NotedTemporary {
 public:
  NotedTemporary() = default;
  ~NotedTemporary() { Withdraw(); }
  NotedTemporary(const NotedTemporary&) = delete;
  NotedTemporary& operator=(const NotedTemporary&) = delete;

  // Calls `create` and notes `path` unless the result is negative, which is returned with the errno
  // of `create`. This thread handles no signal between the two, so that a handler never removes
  // what somebody else has at `path`. `directory` is an open directory in which a relative path
  // begins, or AT_FDCWD; it must stay open until Withdraw.
  int Create(int directory, const std::string& path, const std::function<int()>& create);
  // Notes another path in the place of the one before.
  void Note(int directory, const std::string& path);
  // Ends the note. Waits for a handler that is removing the path in another thread, and returns
  // false once a handler has removed it.
  bool Withdraw();
  // Calls `publish`, which puts what is at the path in the place of `target`, and ends the note.
  // This thread handles no signal meanwhile. Throws Error(kIo) instead where a handler has removed
  // the path. If `publish` throws, the path stays noted.
  void Publish(const std::string& target, const std::function<void()>& publish);

 private:
  int slot_ = -1;
};

// Removes all that is noted, directories with their contents. May be called by a signal handler.
void RemoveNotedTemporaries();

}  // namespace coracle
