#pragma once
// Where protobuf's columns are in a text: it counts from 0, and a tab reaches the next multiple
// of 8.

#include <cstddef>
#include <string_view>
#include <vector>

namespace coracle {

// A look-up takes no longer in a long line: a text of megabytes may be one line.
class TextColumns {
 public:
  TextColumns() = default;
  explicit TextColumns(std::string_view text);

  size_t lines() const { return begins_.size(); }
  size_t LineBegin(size_t line) const { return begins_[line]; }  // REQUIRES: line < lines()
  size_t LineEnd(size_t line) const;                             // without its newline
  // The line that holds the byte `offset`.
  size_t LineAt(size_t offset) const;
  // The byte of the text that is at that column, or the line's end; the text's end for a line that
  // there is not.
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

}  // namespace coracle
