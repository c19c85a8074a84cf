#pragma once
// LMDB files in tests, without the library.

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace coracle {

// A data file with the values on one leaf, written from the description of the format; a value of
// more than 100 bytes lies on overflow pages. Up to 150 values fit.
inline std::string MakeLmdb(const std::vector<std::string>& values) {
  constexpr size_t kPage = 4096;
  std::string file(3 * kPage, '\0');
  const auto put = [&file](size_t at, auto value) {
    std::memcpy(file.data() + at, &value, sizeof value);
  };
  for (uint64_t meta = 0; meta < 2; ++meta) {
    const size_t at = meta * kPage;
    put(at, meta);
    put(at + 10, uint16_t{8});
    put(at + 16, uint32_t{0xBEEFC0DE});
    put(at + 20, uint32_t{1});
    put(at + 40, uint32_t{kPage});
    put(at + 80, ~uint64_t{0});
    put(at + 128, uint64_t{2});  // the root
    put(at + 144, meta);         // the transaction
  }
  put(2 * kPage, uint64_t{2});
  put(2 * kPage + 10, uint16_t{2});
  size_t end = kPage;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool big = values[i].size() > 100;
    const size_t size = 8 + 8 + (big ? 8 : values[i].size());
    end = (end - size) & ~size_t{1};
    put(2 * kPage + 16 + 2 * i, static_cast<uint16_t>(end));
    const size_t node = 2 * kPage + end;
    put(node, static_cast<uint32_t>(values[i].size()));
    put(node + 4, static_cast<uint16_t>(big ? 1 : 0));
    put(node + 6, uint16_t{8});
    std::memcpy(file.data() + node + 8, fmt::format("{:08}", i).data(), 8);
    if (!big) {
      std::memcpy(file.data() + node + 16, values[i].data(), values[i].size());
      continue;
    }
    const uint64_t page = file.size() / kPage;
    put(node + 16, page);
    file.resize(file.size() + (16 + values[i].size() + kPage - 1) / kPage * kPage);
    put(page * kPage, page);
    put(page * kPage + 10, uint16_t{4});
    std::memcpy(file.data() + page * kPage + 16, values[i].data(), values[i].size());
  }
  put(2 * kPage + 12, static_cast<uint16_t>(16 + 2 * values.size()));
  put(2 * kPage + 14, static_cast<uint16_t>(end));
  return file;
}

}  // namespace coracle
