#pragma once
// A text as training data for a model that predicts each character from the characters before it.

#include <coracle/train/data/data_source.h>

#include <cstdint>
#include <string>

namespace coracle::inline internal {

// See MakeTextSource.
class TextSource : public DataSource {
 public:
  TextSource(const TextOptions& options, TextPart part, int64_t streams);

  const std::vector<DataColumn>& columns() const override { return columns_; }
  int64_t size() const override { return streams_ * per_stream_; }
  void Get(std::span<const int64_t> rows, std::span<Tensor> out) const override;
  std::string Describe() const override;
  int64_t streams() const override { return streams_; }
  const Vocabulary* vocabulary() const override { return &vocabulary_; }

 private:
  Vocabulary vocabulary_;
  std::vector<DataColumn> columns_;
  std::vector<int64_t> ids_;  // of the part; for tests, also the character before it
  TextPart part_;
  int64_t streams_, length_;
  int64_t per_stream_ = 0;   // rows
  int64_t stream_step_ = 0;  // characters between the beginnings of two streams
};

}  // namespace coracle::inline internal
