#include <coracle/framework/base/text_columns.h>

#include <algorithm>

namespace coracle::inline internal {

TextColumns::TextColumns(std::string_view text) : begins_{0}, size_(text.size()) {
  size_t column = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') {
      begins_.push_back(i + 1);
      column = 0;
    } else if (text[i] == '\t') {
      const size_t after = (column / 8 + 1) * 8;
      tabs_.push_back({i, column, after});
      column = after;
    } else {
      ++column;
    }
  }
}

size_t TextColumns::LineEnd(size_t line) const {
  return line + 1 < begins_.size() ? begins_[line + 1] - 1 : size_;
}

size_t TextColumns::LineAt(size_t offset) const {
  const auto next = std::upper_bound(begins_.begin(), begins_.end(), offset);
  return static_cast<size_t>(next - begins_.begin()) - 1;
}

size_t TextColumns::OffsetOf(int line, int column) const {
  if (line < 0 || static_cast<size_t>(line) >= begins_.size()) return size_;
  const size_t begin = begins_[static_cast<size_t>(line)];
  const size_t wanted = static_cast<size_t>(std::max(column, 0));
  // Finds the last tab of the line that begins before the column.
  auto tab = std::lower_bound(tabs_.begin(), tabs_.end(), 0, [&](const Tab& one, int) {
    return one.offset < begin ||
           (one.offset < LineEnd(static_cast<size_t>(line)) && one.before < wanted);
  });
  size_t offset = begin + wanted;
  if (tab != tabs_.begin() && (--tab)->offset >= begin)
    offset = tab->offset + 1 + (wanted > tab->after ? wanted - tab->after : 0);
  return std::min(offset, LineEnd(static_cast<size_t>(line)));
}

}  // namespace coracle::inline internal
