// Caffe's image databases, whose values are Datum messages.

#include <coracle/framework/base/text.h>
#include <coracle/proto/caffe.pb.h>
#include <coracle/train/data/batch_check.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/data/database.h>
#include <fmt/format.h>

#include <filesystem>

namespace coracle {
namespace {

using proto::caffe::Datum;

std::string LastPart(const std::string& path) {
  const std::filesystem::path given(path);
  return (given.has_filename() ? given : given.parent_path()).filename().string();
}

class DatumSource : public DataSource {
 public:
  DatumSource(std::unique_ptr<Database> database, const std::string& name)
      : database_(std::move(database)), name_(name) {
    if (size() == 0) ThrowInvalid(Describe() + " has no rows");
    const Datum first = Parse(0);
    shape_ = ShapeOf(first);
    columns_ = {{"data", DType::kFloat32, shape_}, {"label", DType::kInt64, {1}}};
    Check(first, 0);
  }

  const std::vector<DataColumn>& columns() const override { return columns_; }
  int64_t size() const override { return database_->size(); }
  std::string Describe() const override { return name_; }

  void Get(std::span<const int64_t> rows, std::span<Tensor> out) const override {
    CheckBatch(*this, rows, out);
    float* to = out[0].data<float>();
    int64_t* label = out[1].data<int64_t>();
    for (const int64_t row : rows) {
      const Datum datum = Parse(row);
      Check(datum, row);
      to = CopyValues(datum, to);
      *label++ = datum.label();
    }
  }

 private:
  Datum Parse(int64_t row) const {
    const std::string bytes = database_->value(row);
    Datum datum;
    if (!datum.ParseFromString(bytes))
      throw Error(ErrorCode::kDataLoss, Place(row) + ": not a Datum of Caffe, or a damaged one");
    if (datum.encoded()) {
      throw Error(ErrorCode::kUnimplemented,
                  Place(row) +
                      ": it is an encoded picture (JPEG or PNG), which is not decoded; "
                      "make the database without --encoded");
    }
    return datum;
  }

  static Shape ShapeOf(const Datum& datum) {
    return {datum.channels(), datum.height(), datum.width()};
  }

  // Copies the bytes if there are any, else the floats; their number is the numel of the shape.
  static float* CopyValues(const Datum& datum, float* to) {
    if (datum.data().empty())
      return std::copy(datum.float_data().begin(), datum.float_data().end(), to);
    for (const char byte : datum.data())
      *to++ = static_cast<float>(static_cast<unsigned char>(byte));
    return to;
  }

  void Check(const Datum& datum, int64_t row) const {
    const Shape shape = ShapeOf(datum);
    if (datum.channels() < 1 || datum.height() < 1 || datum.width() < 1)
      ThrowInvalid(fmt::format("{}: an image of the dims {}", Place(row), shape.ToString()));
    if (shape != shape_) {
      ThrowInvalid(fmt::format("{}: its image is {}, that of row 0 {}", Place(row),
                               shape.ToString(), shape_.ToString()));
    }
    const size_t values =
        datum.data().empty() ? static_cast<size_t>(datum.float_data_size()) : datum.data().size();
    if (static_cast<size_t>(shape.numel()) != values) {
      ThrowInvalid(
          fmt::format("{}: {} values for an image {}", Place(row), values, shape.ToString()));
    }
  }

  std::unique_ptr<Database> database_;
  std::string name_;
  Shape shape_;
  std::vector<DataColumn> columns_;
};

}  // namespace

DataSourcePtr MakeDatumSource(const DatumOptions& options) {
  const bool lmdb = options.format == DatumOptions::Format::kLmdb;
  return std::make_shared<DatumSource>(
      lmdb ? OpenLmdb(options.file) : OpenLevelDb(options.file),
      fmt::format("{} {}", lmdb ? "lmdb" : "leveldb", Quote(LastPart(options.file), 300)));
}

}  // namespace coracle
