#pragma once
// A text as training data for a model that predicts each character from those before it.

#include <coracle/train/data/data_source.h>
#include <coracle/train/data/vocabulary.h>

#include <cstdint>
#include <string>

namespace coracle {

struct TextOptions {
  std::string file = "";         // UTF-8
  int64_t sequence_length = 64;  // characters of one row
  double holdout = 0.1;          // share of the text, at its end, that is only for tests
  std::string vocabulary = "";   // a saved vocabulary (see Vocabulary); "": from `vocabulary_text`
  std::string vocabulary_text =
      "";  // a text whose characters are the vocabulary; "": the file itself
};

enum class TextPart {
  kTrain,  // all but the held-out end
  kTest,   // the held-out end; its first character is predicted from the one before
};

// Columns "text" int64 [sequence_length] and "next" int64 [sequence_length, 1], the characters that
// follow those of "text", as numbers in the vocabulary. The part is cut into `streams` pieces of
// one length; row r holds the sequence number r / streams of stream r % streams: batches of
// `streams` rows in order continue each other, row by row. What does not fill the streams, fewer
// than streams * sequence_length characters, is left out at the streams' ends. Throws
// kInvalidArgument for a text too short to give a row per stream.
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
  std::vector<int64_t> ids_;  // of the part, and the character after (train: none) its last
  TextPart part_;
  int64_t streams_, length_;
  int64_t per_stream_ = 0;   // rows
  int64_t stream_step_ = 0;  // characters from one stream's begin to the next's
};

}  // namespace coracle
