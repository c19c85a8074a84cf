#pragma once
// Files. Writing is all or nothing: data goes to a temporary file in the same directory, which
// is synced and then renamed. Errors are Error(kIo / kNotFound / kResourceExhausted) that name
// the path.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace coracle::inline internal {

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 40;

// Returns the contents of a regular file. Refuses pipes and devices, which may never end, and files
// larger than `max_bytes` or the machine's memory.
std::string ReadFile(const std::string& path, uint64_t max_bytes = kMaxFileBytes);
// Like ReadFile, but for "-" reads all of standard input, which may be a pipe or device.
std::string ReadFileOrStdin(const std::string& path, uint64_t max_bytes = kMaxFileBytes);

// Replaces `path` by `contents`; writes to standard output for "-". Makes parent directories,
// follows symbolic links and keeps the mode of an existing file. Devices, pipes with a reader and
// open files (/dev/stdout) are written directly.
void WriteFileAtomic(const std::string& path, std::string_view contents);

// Makes the directory `path` appear complete: `fill(temporary_directory)` writes into a fresh
// sibling directory, whose files are then synced and which takes the place of `path`. An existing
// directory is replaced, in one step if the file system can exchange names.
void WriteDirectoryAtomic(const std::string& path,
                          const std::function<void(const std::string&)>& fill);

// Makes the directory `path` disappear at once: renames it to a temporary name, then removes its
// files. Files that cannot be removed stay, without an error.
void RemoveDirectory(const std::string& path);

// Removes temporary files and directories that killed processes left in `directory`.
void RemoveStaleTemporaries(const std::string& directory);

// Whether `path` exists, as a file, directory or device. False for an impossible name.
bool FileExists(const std::string& path);
bool IsDirectory(const std::string& path);
void MakeDirectories(const std::string& path);  // with their parents; existing ones are fine

}  // namespace coracle::inline internal
