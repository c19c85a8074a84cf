#include <coracle/convert/caffe/entry.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>
#include <google/protobuf/stubs/strutil.h>

#include <algorithm>

namespace coracle::caffe {

std::string Quoted(std::string_view text) {
  return '"' + google::protobuf::CEscape(std::string(text)) + '"';
}

std::string Number(float value) { return fmt::format("{}", value); }

std::string ListText(const std::vector<int64_t>& numbers) {
  return fmt::format("[{}]", fmt::join(numbers, ", "));
}

std::string SizeText(const std::vector<int64_t>& sizes) {
  const bool same = std::equal(sizes.begin() + 1, sizes.end(), sizes.begin());
  return same ? std::to_string(sizes.front()) : ListText(sizes);
}

Entry& Entry::Texts(const std::string& name, const std::vector<std::string>& texts) {
  std::vector<std::string> quoted;
  for (const std::string& text : texts) quoted.push_back(Quoted(text));
  return Field(name, "[" + Join(quoted, ", ") + "]");
}

Entry& Entry::Message(const std::string& name, const std::string& text) {
  if (!text.empty()) parts_.push_back(name + " { " + text + " }");
  return *this;
}

std::string Entry::Body() const { return Join(parts_, " "); }

std::string Entry::Layer(const std::string& head, const std::string& tail) const {
  constexpr size_t kWidth = 100;
  const std::string begin = head + " { " + (kind_.empty() ? "" : kind_ + " { ");
  const std::string end = (kind_.empty() ? " }" : " } }");
  std::string text = begin;
  size_t at = begin.size();
  for (size_t i = 0; i < parts_.size(); ++i) {
    const bool last = i + 1 == parts_.size();
    const size_t needed = parts_[i].size() + (last ? end.size() : 0);
    if (i > 0 && at + 1 + needed > kWidth) {
      text += "\n" + std::string(begin.size(), ' ');
      at = begin.size();
    } else if (i > 0) {
      text += ' ';
      ++at;
    }
    text += parts_[i];
    at += parts_[i].size();
  }
  const std::string rest = tail.empty() ? "" : (kind_.empty() ? " " : " } ") + tail + " }";
  if (tail.empty()) return text + end;
  if (at + rest.size() <= kWidth) return text + rest;
  return text + (kind_.empty() ? "" : " }") + "\n" + std::string(head.size() + 3, ' ') + tail +
         " }";
}

}  // namespace coracle::caffe
