#include <coracle/framework/base/text.h>
#include <coracle/layers/internal/text_index.h>
#include <coracle/layers/internal/text_parse.h>
#include <fmt/format.h>

#include <cctype>
#include <limits>

namespace coracle::inline internal {
namespace {

class Expander {
 public:
  Expander(const std::vector<Index>& indices, const std::string& where)
      : indices_(indices), where_(where) {}

  std::string Expand(const std::string& text) const {
    if (indices_.empty() || text.find('$') == std::string::npos) return text;
    std::string out;
    for (size_t i = 0; i < text.size();) {
      if (text[i] != '$') {
        out += text[i++];
      } else if (i + 1 < text.size() && text[i + 1] == '$') {
        out += '$';
        i += 2;
      } else {
        i = Reference(text, i + 1, out);
      }
    }
    return out;
  }

 private:
  size_t Reference(const std::string& text, size_t i, std::string& out) const {
    const bool braces = i < text.size() && text[i] == '{';
    if (!braces) {
      size_t stop = i;
      while (stop < text.size() && std::isalnum(static_cast<unsigned char>(text[stop]))) ++stop;
      out += std::to_string(Find(text.substr(i, stop - i), text).value);
      return stop;
    }
    size_t end = text.find('}', i);
    if (end == std::string::npos) {
      throw LocatedError(where_, fmt::format("{}: a closing brace is missing", Quote(text)));
    }
    std::string_view inner = std::string_view(text).substr(i + 1, end - i - 1);
    size_t sign = inner.find_first_of("+-");
    const Index& index = Find(std::string(Trim(inner.substr(0, sign))), text);
    int64_t value = index.value, offset = 0;
    if (sign != std::string_view::npos) {
      if (!ParseInt64(Trim(inner.substr(sign + 1)), &offset) || offset < 0 ||
          offset > std::numeric_limits<int32_t>::max()) {
        throw LocatedError(where_,
                           fmt::format("{}: a number is wanted after the sign", Quote(text)));
      }
      value += inner[sign] == '+' ? offset : -offset;
    }
    out += std::to_string(value);
    return end + 1;
  }

  const Index& Find(const std::string& name, const std::string& text) const {
    for (auto index = indices_.rbegin(); index != indices_.rend(); ++index) {
      if (index->name == name) return *index;
    }
    std::string known;
    for (const Index& index : indices_) known += (known.empty() ? "$" : ", $") + index.name;
    throw LocatedError(where_, fmt::format("{}: no repeat around it counts {}; known: {} ($$ for a "
                                           "dollar)",
                                           Quote(text), Quote(name), known));
  }

  const std::vector<Index>& indices_;
  const std::string& where_;
};

}  // namespace

std::string ExpandIndices(const std::string& text, const std::vector<Index>& indices,
                          const std::string& where) {
  return Expander(indices, where).Expand(text);
}

}  // namespace coracle::inline internal
