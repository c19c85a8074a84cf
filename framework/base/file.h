#pragma once
// Files. Writing is all or nothing: a temporary name in the same directory, synced, then renamed.
// Errors are Error(kIo / kNotFound / kResourceExhausted) that name the path.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace coracle {

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 40;

// The whole of a regular file. Refuses pipes and devices, which may never end, and more than
// `max_bytes` or than the machine's memory holds.
std::string ReadFile(const std::string& path, uint64_t max_bytes = kMaxFileBytes);
// The same, but for "-" all of standard input, whatever that is.
std::string ReadFileOrStdin(const std::string& path, uint64_t max_bytes = kMaxFileBytes);

// Replaces `path` by `contents`; standard output for "-". Parent directories are made, symbolic
// links are followed, the mode of a file that exists is kept. Devices, pipes that somebody reads
// and files that are open (/dev/stdout) are written as they are.
void WriteFileAtomic(const std::string& path, std::string_view contents);

// Makes the directory `path` appear whole: `fill(temporary_directory)` writes into a fresh sibling
// directory, whose files are then synced and which takes the place of `path` (an existing directory
// is replaced, in one step where the file system can exchange names).
void WriteDirectoryAtomic(const std::string& path,
                          const std::function<void(const std::string&)>& fill);

// Makes the directory `path` disappear whole: it gets a temporary name before its files are
// removed. What cannot be removed stays, without an error.
void RemoveDirectory(const std::string& path);

// Removes the temporary files and directories that processes left in `directory` when
// they were killed.
void RemoveStaleTemporaries(const std::string& directory);

// Of any kind: directories and devices too. A name that no file can have names none.
bool FileExists(const std::string& path);
bool IsDirectory(const std::string& path);
void MakeDirectories(const std::string& path);  // with their parents; those that exist are fine

}  // namespace coracle
