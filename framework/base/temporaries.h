#pragma once
// Temporary files and directories that are removed if a signal ends the process.

#include <functional>
#include <string>

namespace coracle::inline internal {

// Registers a path that a signal handler removes. Each call is safe against the handler, which may
// run in any thread; an object belongs to one thread. There is room for some dozens of paths; a
// path that finds no room, or is longer than the system allows, is not registered.
class NotedTemporary {
 public:
  NotedTemporary() = default;
  ~NotedTemporary() { Withdraw(); }
  NotedTemporary(const NotedTemporary&) = delete;
  NotedTemporary& operator=(const NotedTemporary&) = delete;

  // Calls `create` and registers `path` unless the result is negative, which is returned with the
  // errno of `create`. This thread handles no signal between the two, so a handler never removes a
  // file that someone else has at `path`. A relative `path` begins at `directory`, an open
  // directory or AT_FDCWD; it must stay open until Withdraw.
  int Create(int directory, const std::string& path, const std::function<int()>& create);
  // Registers another path instead of the previous one.
  void Note(int directory, const std::string& path);
  // Unregisters the path. Waits for a handler that is removing it in another thread. Returns false
  // if a handler has removed it.
  bool Withdraw();
  // Calls `publish`, which puts what is at the path in the place of `target`, and ends the note.
  // This thread handles no signal meanwhile. Throws Error(kIo) instead where a handler has removed
  // the path. If `publish` throws, the path stays noted.
  void Publish(const std::string& target, const std::function<void()>& publish);

 private:
  int slot_ = -1;
};

// Removes all registered paths, directories with their contents. May be called by a signal handler.
void RemoveNotedTemporaries();

}  // namespace coracle::inline internal
