#pragma once
// Databases that Caffe's tools write: values in the order of their keys.

#include <cstdint>
#include <memory>
#include <string>

namespace coracle {

// Any number of threads may read it.
class Database {
 public:
  virtual ~Database() = default;
  virtual int64_t size() const = 0;
  // Throws kDataLoss where the file is damaged or has become shorter.
  virtual std::string value(int64_t i) const = 0;
};

// `path`: a directory with data.mdb, or that file, which is only read. Every page of the tree is
// checked here. Throws kNotFound for no file, kDataLoss for a damaged one.
std::unique_ptr<Database> OpenLmdb(const std::string& path);

// A directory of a LevelDB, through its library, which changes nothing in it and follows no links
// (leveldb_env.h). Throws kNotFound for no database, kDataLoss for a damaged one, kIo where a
// process may write to it, kUnimplemented in a build without the library.
std::unique_ptr<Database> OpenLevelDb(const std::string& path);

}  // namespace coracle
