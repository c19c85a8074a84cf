#pragma once
// Maps protobuf's columns to offsets in a text. Columns count from 0, and a tab advances to the
// next multiple of 8.

#include <cstddef>
#include <string_view>
#include <vector>

namespace coracle::inline internal {

// Look-ups stay fast in long lines, since a text of megabytes may be one line.
class TextColumns {
 public:
  TextColumns() = default;
  explicit TextColumns(std::string_view text);

  size_t lines() const { return begins_.size(); }
  size_t LineBegin(size_t line) const { return begins_[line]; }  // REQUIRES: line < lines()
  size_t LineEnd(size_t line) const;                             // without its newline
  // The line that contains the byte `offset`.
  size_t LineAt(size_t offset) const;
  // The byte at that column of the line, at most the end of the line; the end of the text if the
  // line does not exist.
  size_t OffsetOf(int line, int column) const;

 private:
  struct Tab {
    size_t offset;
    size_t before, after;  // columns
  };
  std::vector<size_t> begins_;
  std::vector<Tab> tabs_;
  size_t size_ = 0;
};

}  // namespace coracle::inline internal
