#pragma once
// Where training data comes from: a table of rows, each with one small tensor per column.

#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace coracle {

class Vocabulary;

struct DataColumn {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;  // of one row: [1, 28, 28] for a grey image, [1] for a label
};

// Immutable: any number of threads may call Get. The same object gives the same rows always.
class DataSource {
 public:
  virtual ~DataSource() = default;

  virtual const std::vector<DataColumn>& columns() const = 0;
  virtual int64_t size() const = 0;  // rows
  // Copies row rows[i] to place i of each batch tensor. `out` has one tensor per column, of the
  // column's dtype, contiguous, with at least rows.size() times the column's elements. Throws
  // kOutOfRange for a row that is not there.
  virtual void Get(std::span<const int64_t> rows, std::span<Tensor> out) const = 0;
  // One line that names the data (without where it lies), for logs and for the check that a resumed
  // job has the same data.
  virtual std::string Describe() const = 0;

  // Where a row comes from, for errors: "row 7 of csv 'iris.csv'", or with its line "iris.csv:9".
  virtual std::string Place(int64_t row) const;

  // When not 0, batches of so many rows, in order, continue each other row by row.
  virtual int64_t streams() const { return 0; }
  // The characters that the integers stand for; nullptr when they do not.
  virtual const Vocabulary* vocabulary() const { return nullptr; }

  // Index of the column of that name, or -1.
  int FindColumn(const std::string& name) const;
};

using DataSourcePtr = std::shared_ptr<const DataSource>;

// A column kept in memory: `rows` is [n, ...]. Bytes with `scaled` set are handed out as float32:
// (byte - mean) * scale.
struct MemoryColumn {
  std::string name = {};
  Tensor rows = {};
  Shape shape = {};  // of one row; its numel must be that of rows' dimensions 1 and up
  bool scaled = false;
  float mean = 0;
  float scale = 1;
};

// The lines of a text file that rows come from, for errors.
struct FileLines {
  std::string file;
  std::vector<int64_t> lines;  // of each row, from 1
};

// In memory. Throws kInvalidArgument for no columns, two of a name, or other numbers of rows.
DataSourcePtr MakeMemorySource(std::vector<MemoryColumn> columns, std::string description,
                               FileLines lines = {});

// Rows [first, first + limit) of another source; a limit of 0 means all that follow. Throws
// kOutOfRange when they are not there.
DataSourcePtr MakeSubset(DataSourcePtr source, int64_t first, int64_t limit);

// A random part of another source: round(share * size) rows that the seed draws, or all but those,
// in their order. Throws kOutOfRange when there are none.
DataSourcePtr MakeRandomPart(DataSourcePtr source, double share, uint64_t seed, bool drawn);

}  // namespace coracle
