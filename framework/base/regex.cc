#include <coracle/framework/base/error.h>
#include <coracle/framework/base/regex.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>
#include <re2/re2.h>

namespace coracle::inline internal {
namespace {

constexpr int64_t kMaxMemory = int64_t{8} << 20;

re2::RE2::Options Settings(Regex::Characters characters) {
  re2::RE2::Options options(characters == Regex::kUtf8 ? re2::RE2::DefaultOptions
                                                       : re2::RE2::Latin1);
  options.set_log_errors(false);
  options.set_max_mem(kMaxMemory);
  return options;
}

re2::StringPiece Piece(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

Regex::Regex(const std::string& pattern, Characters characters, size_t most) {
  if (pattern.size() > most) {
    ThrowInvalid(fmt::format("{} is a regular expression of {} characters; at most {}",
                             Quote(pattern), pattern.size(), most));
  }
  regex_ = std::make_unique<re2::RE2>(Piece(pattern), Settings(characters));
  if (!regex_->ok())
    ThrowInvalid(
        fmt::format("{} is not a regular expression: {}", Quote(pattern), regex_->error()));
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

bool Regex::MatchesAll(std::string_view text) const {
  return re2::RE2::FullMatch(Piece(text), *regex_);
}

bool Regex::MatchesPart(std::string_view text) const {
  return re2::RE2::PartialMatch(Piece(text), *regex_);
}

std::string Regex::Replaced(const std::string& text, const std::string& with) const {
  std::string error;
  if (!regex_->CheckRewriteString(Piece(with), &error))
    ThrowInvalid(fmt::format("{} is not a valid replacement: {}", Quote(with), error));
  std::string replaced = text;
  re2::RE2::GlobalReplace(&replaced, *regex_, Piece(with));
  return replaced;
}

}  // namespace coracle::inline internal
