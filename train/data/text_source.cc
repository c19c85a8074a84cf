#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/data/batch_check.h>
#include <coracle/train/data/text_source.h>
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>

namespace coracle {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 32;

Vocabulary VocabularyOf(const TextOptions& options, const std::string& text) {
  if (!options.vocabulary.empty()) return Vocabulary::Read(options.vocabulary);
  if (options.vocabulary_text.empty() || options.vocabulary_text == options.file)
    return Vocabulary::Of(text, options.file);
  return Vocabulary::Of(ReadFile(options.vocabulary_text, kMaxBytes), options.vocabulary_text);
}

}  // namespace

TextSource::TextSource(const TextOptions& options, TextPart part, int64_t streams)
    : part_(part), streams_(streams), length_(options.sequence_length) {
  if (streams < 1 || length_ < 1 || !(options.holdout >= 0 && options.holdout <= 1)) {
    ThrowInvalid(fmt::format(
        "{}: streams and sequence_length must be at least 1 and holdout in [0, 1], got {}, {}, {}",
        options.file, streams, length_, options.holdout));
  }
  const std::string text = ReadFile(options.file, kMaxBytes);
  vocabulary_ = VocabularyOf(options, text);
  ids_ = vocabulary_.Encode(text, options.file);
  const auto all = static_cast<double>(ids_.size());
  const auto held = static_cast<ptrdiff_t>(std::ceil(options.holdout * all));
  const ptrdiff_t split = static_cast<ptrdiff_t>(ids_.size()) - held;
  if (part == TextPart::kTrain)
    ids_.erase(ids_.begin() + split, ids_.end());
  else if (split > 0)
    ids_.erase(ids_.begin(), ids_.begin() + split - 1);
  const int64_t predictions = std::max<int64_t>(static_cast<int64_t>(ids_.size()) - 1, 0);
  stream_step_ = predictions / streams;
  per_stream_ = stream_step_ / length_;
  if (per_stream_ == 0) {
    ThrowInvalid(fmt::format(
        "{}: its {} part has {} characters to predict, too few for {} streams of {}", options.file,
        part == TextPart::kTrain ? "training" : "test", predictions, streams, length_));
  }
  columns_ = {{"text", DType::kInt64, {length_}}, {"next", DType::kInt64, {length_, 1}}};
}

void TextSource::Get(std::span<const int64_t> rows, std::span<Tensor> out) const {
  CheckBatch(*this, rows, out);
  auto* text = out[0].data<int64_t>();
  auto* next = out[1].data<int64_t>();
  for (int64_t row : rows) {
    const int64_t* from = ids_.data() + row % streams_ * stream_step_ + row / streams_ * length_;
    text = std::copy_n(from, length_, text);
    next = std::copy_n(from + 1, length_, next);
  }
}

std::string TextSource::Describe() const {
  const auto* bytes = reinterpret_cast<const Bytef*>(ids_.data());
  const uLong crc = crc32_z(crc32(0, nullptr, 0), bytes, ids_.size() * sizeof(ids_[0]));
  const int64_t used = size() * length_, all = static_cast<int64_t>(ids_.size()) - 1;
  return fmt::format("{} of {} characters ({}, {} different, crc {:08x}) in {} streams of {} x {}",
                     used, all, part_ == TextPart::kTrain ? "training part" : "test part",
                     vocabulary_.size(), crc, streams_, per_stream_, length_);
}

DataSourcePtr MakeTextSource(const TextOptions& options, TextPart part, int64_t streams) {
  return std::make_shared<TextSource>(options, part, streams);
}

}  // namespace coracle
