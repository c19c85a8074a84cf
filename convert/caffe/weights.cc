#include <coracle/convert/caffe/weights.h>
#include <coracle/convert/file_stream.h>
#include <coracle/convert/for_model.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/proto/caffe.pb.h>
#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <limits>

namespace coracle::caffe {
namespace {

namespace pb = google::protobuf;
using Wire = pb::internal::WireFormatLite;

// Size limit of a protobuf message.
constexpr int64_t kMaxBytes = std::numeric_limits<int>::max();

// The fields of a message with weights, by their published numbers. Messages are walked instead of
// parsed, since a parsed message would be a second copy of the weights.
struct LayerFields {
  int name, blobs;
  int older;  // field with a layer of the previous format; 0: none
};
constexpr LayerFields kLayer = {proto::caffe::LayerParameter::kNameFieldNumber,
                                proto::caffe::LayerParameter::kBlobsFieldNumber, 0};
constexpr LayerFields kV1Layer = {proto::caffe::V1LayerParameter::kNameFieldNumber,
                                  proto::caffe::V1LayerParameter::kBlobsFieldNumber,
                                  proto::caffe::V1LayerParameter::kLayerFieldNumber};
constexpr LayerFields kV0Layer = {proto::caffe::V0LayerParameter::kNameFieldNumber,
                                  proto::caffe::V0LayerParameter::kBlobsFieldNumber, 0};

// Returns what is wrong with the dims of these values; "" if nothing is.
std::string ProblemOf(const std::vector<int64_t>& dims, const Tensor& values) {
  if (dims.size() > static_cast<size_t>(Shape::kMaxRank))
    return fmt::format("{} dims, but at most {} are supported", dims.size(), Shape::kMaxRank);
  constexpr __int128 kMost = int64_t{1} << 62;
  __int128 numel = 1;
  for (const int64_t dim : dims) {
    if (dim < 0) return fmt::format("a dim of {}", dim);
    numel = std::min(numel * dim, kMost);
  }
  if (numel == values.numel()) return "";
  return fmt::format("shape {} for {} values", Shape(dims).ToString(), values.numel());
}

class Reader {
 public:
  Reader(pb::io::ZeroCopyInputStream* stream, int64_t size, const std::string& source)
      : in_(stream), source_(source) {
    in_.SetTotalBytesLimit(static_cast<int>(kMaxBytes));
    in_.PushLimit(static_cast<int>(size));
  }

  CaffeWeights Read() {
    CaffeWeights weights;
    weights.source = source_;
    ForFields([&](int field, uint32_t tag) {
      const bool layer = field == proto::caffe::NetParameter::kLayerFieldNumber;
      if (layer || field == proto::caffe::NetParameter::kLayersFieldNumber)
        return InMessage(tag, [&] { ReadLayer(layer ? kLayer : kV1Layer, &weights); });
      Skip(tag);
    });
    return weights;
  }

 private:
  struct Layer {
    std::string name;
    std::vector<Tensor> blobs;
  };

  [[noreturn]] void Fail(const std::string& what) {
    const std::string at = place_.empty() ? "" : place_ + ": ";
    throw Error(ErrorCode::kDataLoss,
                fmt::format("{}: {}{} at byte {}: not a .caffemodel, or a damaged one",
                            PrintableLine(source_), at, what, in_.CurrentPosition()));
  }

  // Calls f(field number, tag) for the fields up to the limit.
  template <class F>
  void ForFields(F&& f) {
    while (in_.BytesUntilLimit() > 0) {
      const uint32_t tag = in_.ReadTag();
      if (tag == 0) Fail("the data ends in the middle of a field");
      f(Wire::GetTagFieldNumber(tag), tag);
    }
  }

  void Skip(uint32_t tag) {
    if (!Wire::SkipField(&in_, tag)) Fail("the data ends in the middle of a field");
  }

  int ReadLength(uint32_t tag) {
    int length = 0;
    if (Wire::GetTagWireType(tag) != Wire::WIRETYPE_LENGTH_DELIMITED)
      Fail("a field of a wrong type");
    if (!in_.ReadVarintSizeAsInt(&length) || length > in_.BytesUntilLimit())
      Fail("the data ends in the middle of a field");
    return length;
  }

  template <class F>
  void InMessage(uint32_t tag, F&& f) {
    const auto limit = in_.PushLimit(ReadLength(tag));
    f();
    in_.PopLimit(limit);
  }

  // In all files written by Caffe, the name precedes the blobs, but a message may have any order.
  void ReadLayer(const LayerFields& fields, CaffeWeights* weights) {
    Layer layer;
    place_ = "a layer";
    CollectLayer(fields, &layer);
    place_.clear();
    if (layer.blobs.empty()) return;
    if (!weights->layers.emplace(layer.name, std::move(layer.blobs)).second)
      Fail(fmt::format("a second layer {}", Quote(layer.name)));
  }

  void CollectLayer(const LayerFields& fields, Layer* layer) {
    ForFields([&](int field, uint32_t tag) {
      if (field == fields.name) {
        const int length = ReadLength(tag);
        if (!in_.ReadString(&layer->name, length)) Fail("the data ends in a name");
        place_ = "layer " + Quote(layer->name);
      } else if (field == fields.blobs) {
        InMessage(tag, [&] { layer->blobs.push_back(ReadBlob(layer->blobs.size())); });
      } else if (field == fields.older && fields.older != 0) {
        InMessage(tag, [&] { CollectLayer(kV0Layer, layer); });
      } else {
        Skip(tag);
      }
    });
  }

  Tensor ReadBlob(size_t index) {
    const std::string layer = place_;
    place_ = fmt::format("{}, blob {}", layer, index);
    using Blob = proto::caffe::BlobProto;
    Tensor data(DType::kFloat32, {0});
    std::vector<float> loose;  // values that are not packed
    std::vector<int64_t> dims, old(4, 0);
    bool any_old = false;
    ForFields([&](int field, uint32_t tag) {
      if (field == Blob::kDataFieldNumber || field == Blob::kDoubleDataFieldNumber) {
        ReadData(tag, field == Blob::kDoubleDataFieldNumber, &data, &loose);
      } else if (field == Blob::kShapeFieldNumber) {
        InMessage(tag, [&] { ReadDims(&dims); });
      } else if (field >= Blob::kNumFieldNumber && field <= Blob::kWidthFieldNumber &&
                 Wire::GetTagWireType(tag) == Wire::WIRETYPE_VARINT) {
        any_old = true;
        old[static_cast<size_t>(field - 1)] = ReadVarint();
      } else {
        Skip(tag);
      }
    });
    if (!loose.empty()) data = Tensor::Of<float>({static_cast<int64_t>(loose.size())}, loose);
    if (dims.empty() && any_old) dims = old;
    if (const std::string problem = ProblemOf(dims, data); !problem.empty()) Fail(problem);
    place_ = layer;
    return data.Reshaped(Shape(dims));
  }

  int64_t ReadVarint() {
    uint64_t value = 0;
    if (!in_.ReadVarint64(&value)) Fail("the data ends in a number");
    return static_cast<int64_t>(value);
  }

  void ReadDims(std::vector<int64_t>* dims) {
    ForFields([&](int field, uint32_t tag) {
      if (field != proto::caffe::BlobShape::kDimFieldNumber) return Skip(tag);
      if (Wire::GetTagWireType(tag) == Wire::WIRETYPE_VARINT) return dims->push_back(ReadVarint());
      InMessage(tag, [&] {
        while (in_.BytesUntilLimit() > 0 && dims->size() < 64) dims->push_back(ReadVarint());
      });
    });
  }

  void ReadData(uint32_t tag, bool doubles, Tensor* data, std::vector<float>* loose) {
    const int size = doubles ? 8 : 4;
    if (Wire::GetTagWireType(tag) != Wire::WIRETYPE_LENGTH_DELIMITED) {
      const auto type = doubles ? Wire::WIRETYPE_FIXED64 : Wire::WIRETYPE_FIXED32;
      if (Wire::GetTagWireType(tag) != type) Fail("a field of a wrong type");
      return loose->push_back(ReadValue(doubles));
    }
    const int length = ReadLength(tag);
    if (length % size != 0) Fail(fmt::format("{} bytes of numbers of {}", length, size));
    if (!data->empty() || !loose->empty()) Fail("the values are given twice");
    *data = Tensor(DType::kFloat32, {int64_t{length} / size});
    if (doubles) {
      for (float& value : data->span<float>()) value = ReadValue(true);
    } else if (length > 0 && !in_.ReadRaw(data->raw(), length)) {
      Fail("the data ends in the values");
    }
  }

  float ReadValue(bool is_double) {
    uint64_t wide = 0;
    uint32_t narrow = 0;
    if (is_double ? !in_.ReadLittleEndian64(&wide) : !in_.ReadLittleEndian32(&narrow))
      Fail("the data ends in the values");
    return is_double ? static_cast<float>(Wire::DecodeDouble(wide)) : Wire::DecodeFloat(narrow);
  }

  pb::io::CodedInputStream in_;
  std::string source_;
  std::string place_;  // position in the message, for errors
};

void CheckSize(uintmax_t size, const std::string& source) {
  if (size <= static_cast<uintmax_t>(kMaxBytes)) return;
  throw Error(ErrorCode::kResourceExhausted,
              fmt::format("{}: {}, but protobuf's binary format ends at 2 GiB",
                          PrintableLine(source), HumanBytes(size)));
}

// The signature that opens every HDF5 file, by the HDF Group's format specification.
constexpr std::string_view kHdf5Signature = "\x89HDF\r\n\x1a\n";

void RefuseHdf5(std::string_view begin, const std::string& source) {
  if (!begin.starts_with(kHdf5Signature)) return;
  throw Error(
      ErrorCode::kUnimplemented,
      fmt::format("{}: HDF5 files are not read: save the weights as .caffemodel, with Caffe's "
                  "Python Net(TEXT, WEIGHTS, caffe.TEST).save(FILE.caffemodel), or arrays "
                  "as .npz",
                  PrintableLine(source)));
}

}  // namespace

CaffeWeights ParseCaffeModel(std::string_view bytes, const std::string& source) {
  return ForModel(source, [&] {
    RefuseHdf5(bytes, source);
    CheckSize(bytes.size(), source);
    pb::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
    return Reader(&stream, static_cast<int64_t>(bytes.size()), source).Read();
  });
}

CaffeWeights ReadCaffeModel(const std::string& path) {
  return ForModel(path, [&] {
    FileReader file(path);
    std::string begin(std::min<uint64_t>(file.left(), kHdf5Signature.size()), '\0');
    file.Read(begin.data(), begin.size());
    RefuseHdf5(begin, path);
    file.Seek(0);
    const uint64_t size = file.left();
    CheckSize(size, path);
    FileStream stream(file);
    return Reader(stream.get(), static_cast<int64_t>(size), path).Read();
  });
}

}  // namespace coracle::caffe
