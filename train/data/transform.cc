// Preprocesses images like Caffe's data layers (caffe/data_transformer.cpp): (value - mean) * scale
// of a crop, which may be mirrored. augment.h has the other changes of training.

#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/proto/caffe.pb.h>
#include <coracle/train/data/augment.h>
#include <coracle/train/data/batch_check.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/data/wrapped_source.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace coracle {
namespace {

// Reads a mean image: a .binaryproto file of Caffe (a BlobProto), or an .npy file.
Tensor ReadMean(const std::string& path) {
  if (path.ends_with(".npy")) return ReadNpy(path).Cast(DType::kFloat32);
  constexpr uint64_t kMaxBytes = uint64_t{1} << 30;
  proto::caffe::BlobProto blob;
  if (!blob.ParseFromString(ReadFile(path, kMaxBytes)))
    throw Error(
        ErrorCode::kDataLoss,
        PrintableLine(path) + ": not a mean image of Caffe (.binaryproto), or a damaged one");
  const std::vector<float> values(blob.data().begin(), blob.data().end());
  return Tensor::Of<float>({static_cast<int64_t>(values.size())}, values);
}

struct Draw {
  bool mirror = false, flip = false;
  int64_t top = 0, left = 0;
};

class Transformed : public WrappedSource {
 public:
  Transformed(DataSourcePtr source, const TransformOptions& options)
      : WrappedSource(std::move(source)), options_(options) {
    RequireSource(source_, "transform");
    if (options.crop_size < 0)
      ThrowInvalid(fmt::format("crop_size must not be negative, got {}", options.crop_size));
    columns_ = source_->columns();
    FindImages();
    const Shape& in = source_->columns()[column_].shape;
    c_ = in[0], h_ = in[1], w_ = in[2];
    out_h_ = out_w_ = options.crop_size;
    if (options.crop_size == 0) out_h_ = h_, out_w_ = w_;
    CheckAugmentation(options, c_);
    if (options.pad > 0 && (h_ == 0 || w_ == 0))
      ThrowInvalid(fmt::format("transform: there is nothing to pad in images {}", in.ToString()));
    const int64_t pad = 2 * options.pad;
    if (out_h_ > h_ + pad || out_w_ > w_ + pad) {
      ThrowInvalid(fmt::format("crop_size {} is larger than the images {} of {}", options.crop_size,
                               in.ToString(), source_->Describe()));
    }
    columns_[column_].shape = {c_, out_h_, out_w_};
    columns_[column_].dtype = DType::kFloat32;
    SetMean();
  }

  const std::vector<DataColumn>& columns() const override { return columns_; }

  void Get(std::span<const int64_t> rows, std::span<Tensor> out) const override {
    GetInEpoch(0, rows, out);
  }

  void GetInEpoch(int64_t epoch, std::span<const int64_t> rows,
                  std::span<Tensor> out) const override {
    CheckBatch(*this, rows, out);
    std::vector<Tensor> whole(out.begin(), out.end());
    const DataColumn& images = source_->columns()[column_];
    whole[column_] = Tensor(images.dtype, {static_cast<int64_t>(rows.size()), c_, h_, w_});
    source_->GetInEpoch(epoch, rows, whole);
    if (images.dtype != DType::kFloat32) whole[column_] = whole[column_].Cast(DType::kFloat32);
    for (size_t i = 0; i < out.size(); ++i)
      if (i != column_ && columns_[i].sequences) out[i] = whole[i];
    float* from = whole[column_].data<float>();
    float* to = out[column_].data<float>();
    for (size_t i = 0; i < rows.size(); ++i) {
      const AugmentedRow at = {epoch, rows[i]};
      if (options_.random_crop) ChangeImage(options_, at, {c_, h_, w_}, from);
      Write(DrawFor(epoch, rows[i]), from, to);
      if (options_.random_crop) ChangeResult(options_, at, {c_, out_h_, out_w_}, to);
      from += c_ * h_ * w_;
      to += c_ * out_h_ * out_w_;
    }
  }

 private:
  // Finds the first column that holds images [C, H, W].
  void FindImages() {
    for (column_ = 0; column_ < columns_.size(); ++column_)
      if (columns_[column_].shape.rank() == 3 && !columns_[column_].sequences) return;
    ThrowInvalid(
        fmt::format("transform: {} has no column of images [C, H, W]", source_->Describe()));
  }

  void SetMean() {
    const int64_t plane = h_ * w_;
    mean_.assign(static_cast<size_t>(c_ * plane), 0);
    const std::vector<float>& values = options_.mean_value;
    if (!options_.mean_file.empty()) {
      const Tensor mean = ReadMean(options_.mean_file);
      if (mean.numel() != c_ * plane) {
        ThrowInvalid(fmt::format("{}: a mean of {} values for images of {}",
                                 PrintableLine(options_.mean_file), mean.numel(), c_ * plane));
      }
      std::copy_n(mean.data<float>(), mean_.size(), mean_.begin());
    } else if (!values.empty()) {
      if (values.size() != 1 && static_cast<int64_t>(values.size()) != c_)
        ThrowInvalid(fmt::format("transform: {} mean_value for {} channels", values.size(), c_));
      for (int64_t i = 0; i < c_ * plane; ++i)
        mean_[static_cast<size_t>(i)] =
            values[values.size() == 1 ? 0 : static_cast<size_t>(i / plane)];
    }
  }

  // The random choices for a row of an epoch. They do not depend on the caller or on the order of
  // the calls.
  Draw DrawFor(int64_t epoch, int64_t row) const {
    const bool crops = options_.crop_size > 0 || options_.pad > 0;
    Draw draw{false, false, (h_ - out_h_) / 2, (w_ - out_w_) / 2};
    if (options_.random_crop) draw.flip = DrawsFlip(options_, {epoch, row});
    if (!options_.mirror && !(crops && options_.random_crop)) return draw;
    const Philox random(options_.seed, HashName("transform"), static_cast<uint64_t>(epoch));
    const auto words = random.Block(static_cast<uint64_t>(row));
    if (options_.mirror) draw.mirror = words[0] & 1;
    if (crops && options_.random_crop) {
      const auto begin = [this](uint32_t word, int64_t room) {
        const auto places = static_cast<uint64_t>(room + 2 * options_.pad + 1);
        return static_cast<int64_t>(uint64_t{word} * places >> 32) - options_.pad;
      };
      draw.top = begin(words[1], h_ - out_h_);
      draw.left = begin(words[2], w_ - out_w_);
    }
    return draw;
  }

  // Outside the image lies `fill`, from which the mean of the nearest pixel is subtracted.
  void Write(const Draw& draw, const float* from, float* to) const {
    for (int64_t c = 0; c < c_; ++c) {
      for (int64_t y = 0; y < out_h_; ++y) {
        const int64_t in_y = draw.top + (draw.flip ? out_h_ - 1 - y : y);
        const int64_t row = (c * h_ + std::clamp<int64_t>(in_y, 0, h_ - 1)) * w_;
        for (int64_t x = 0; x < out_w_; ++x) {
          const int64_t in_x = draw.left + x, at = row + std::clamp<int64_t>(in_x, 0, w_ - 1);
          const bool inside = in_y >= 0 && in_y < h_ && in_x >= 0 && in_x < w_;
          const float value = inside ? from[at] : options_.fill;
          to[draw.mirror ? out_w_ - 1 - x : x] =
              (value - mean_[static_cast<size_t>(at)]) * options_.scale;
        }
        to += out_w_;
      }
    }
  }

  TransformOptions options_;
  std::vector<DataColumn> columns_;
  size_t column_ = 0;
  int64_t c_ = 0, h_ = 0, w_ = 0, out_h_ = 0, out_w_ = 0;
  std::vector<float> mean_;
};

}  // namespace

DataSourcePtr MakeTransformed(DataSourcePtr source, const TransformOptions& options) {
  return std::make_shared<Transformed>(std::move(source), options);
}

}  // namespace coracle
