#pragma once
// Adapts a file for protobuf.

#include <coracle/framework/base/file_reader.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>

namespace coracle::inline internal {

class FileStream {
 public:
  explicit FileStream(FileReader& file) : copying_(file), blocks_(&copying_, kBlockBytes) {}
  google::protobuf::io::ZeroCopyInputStream* get() { return &blocks_; }

 private:
  static constexpr int kBlockBytes = 1 << 16;  // to read at once

  class Copying final : public google::protobuf::io::CopyingInputStream {
   public:
    explicit Copying(FileReader& file) : file_(file) {}
    int Read(void* to, int size) override {
      const auto bytes = std::min(file_.left(), static_cast<uint64_t>(size));
      file_.Read(to, bytes);
      return static_cast<int>(bytes);
    }
    int Skip(int size) override {
      const auto bytes = std::min(file_.left(), static_cast<uint64_t>(size));
      file_.Seek(file_.offset() + bytes);
      return static_cast<int>(bytes);
    }

   private:
    FileReader& file_;
  };

  Copying copying_;
  google::protobuf::io::CopyingInputStreamAdaptor blocks_;
};

}  // namespace coracle::inline internal
