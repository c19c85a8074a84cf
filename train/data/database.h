#pragma once
// Readers of the databases that Caffe's tools write. Values are in the order of their keys.

#include <cstdint>
#include <memory>
#include <string>

namespace coracle::inline internal {

// Any number of threads may read one database.
class Database {
 public:
  virtual ~Database() = default;
  virtual int64_t size() const = 0;
  // Throws kDataLoss if the file is damaged or has become shorter.
  virtual std::string value(int64_t i) const = 0;
};

// `path` is a directory with data.mdb, or that file. The file is only read. OpenLmdb checks every
// page of the tree. Throws kNotFound for a missing file and kDataLoss for a damaged one.
std::unique_ptr<Database> OpenLmdb(const std::string& path);

// Opens the directory of a LevelDB with the LevelDB library, without changing any file and without
// following links (leveldb_env.h). Throws kNotFound for a missing database, kDataLoss for a damaged
// one, kIo if another process may be writing to it, and kUnimplemented in a build without
// the library.
std::unique_ptr<Database> OpenLevelDb(const std::string& path);

}  // namespace coracle::inline internal
