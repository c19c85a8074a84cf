#pragma once
// The base of sources that change the rows of another source.

#include <coracle/train/data/data_source.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace coracle::inline internal {

class WrappedSource : public DataSource {
 public:
  explicit WrappedSource(DataSourcePtr source) : source_(std::move(source)) {}
  const std::vector<DataColumn>& columns() const override { return source_->columns(); }
  int64_t size() const override { return source_->size(); }
  std::string Describe() const override { return source_->Describe(); }
  std::string Place(int64_t row) const override { return source_->Place(row); }
  std::string PlaceInEpoch(int64_t epoch, int64_t row) const override {
    return source_->PlaceInEpoch(epoch, row);
  }
  std::shared_ptr<const FittedOptions> fitted() const override { return source_->fitted(); }
  std::vector<int64_t> Labels() const override { return source_->Labels(); }

 protected:
  DataSourcePtr source_;
};

}  // namespace coracle::inline internal
