#pragma once
// Files written piece by piece, without a copy of the whole in memory, and several files that are
// replaced together.

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace coracle::inline internal {

using WritePieceFn = std::function<void(std::string_view)>;

// Like WriteFileAtomic (framework/base/file.h), with the pieces that `fill` passes to its argument
// as contents. If `fill` throws, the file stays unchanged.
void WriteFileInPieces(const std::string& path,
                       const std::function<void(const WritePieceFn& write)>& fill);

// A file under a temporary name, which takes the place of `path` at once. Files that belong
// together are all written and synced before the first is published, so that a full disk leaves all
// old ones. What WriteFileAtomic writes directly, is written directly here too.
class StagedFile {
 public:
  explicit StagedFile(const std::string& path);
  ~StagedFile();  // removes the temporary file unless it was published
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;

  void Write(std::string_view piece);
  // Returns when the system has stored all bytes. To be called once, before Publish.
  void Sync();
  void Publish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Writes files into an existing directory: `fill(temporary_directory)` writes all of them before
// the first one takes its place. Other files of the directory stay. The file `last`, if given,
// takes its place after all others, so a reader that finds it finds them too.
void WriteFilesTogether(const std::string& directory,
                        const std::function<void(const std::string&)>& fill,
                        const std::string& last = "");

}  // namespace coracle::inline internal
