#pragma once
// The source of the bytes that readers of tensors consume: memory or a file. Private
// to framework/io.

#include <coracle/framework/base/file_reader.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace coracle::inline internal {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual uint64_t left() const = 0;
  virtual uint64_t offset() const = 0;
  virtual void Read(void* to, uint64_t size) = 0;  // REQUIRES: size <= left()
};

class BytesInMemory final : public ByteSource {
 public:
  explicit BytesInMemory(std::string_view bytes, size_t offset = 0)
      : bytes_(bytes), offset_(std::min(offset, bytes.size())) {}
  uint64_t left() const override { return bytes_.size() - offset_; }
  uint64_t offset() const override { return offset_; }
  void Read(void* to, uint64_t size) override {
    std::memcpy(to, bytes_.data() + offset_, size);
    offset_ += size;
  }

 private:
  std::string_view bytes_;
  size_t offset_;
};

class BytesOfFile final : public ByteSource {
 public:
  explicit BytesOfFile(FileReader& file) : file_(file) {}
  uint64_t left() const override { return file_.left(); }
  uint64_t offset() const override { return file_.offset(); }
  void Read(void* to, uint64_t size) override { file_.Read(to, size); }

 private:
  FileReader& file_;
};

}  // namespace coracle::inline internal
