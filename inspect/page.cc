#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/base/version.h>
#include <coracle/inspect/page.h>
#include <coracle/inspect/page_assets.h>
#include <coracle/inspect/page_data.h>
#include <fmt/format.h>
#include <zlib.h>

#include <string_view>
#include <utility>

namespace coracle::inline internal {
namespace {

// Larger data is compressed: browsers decompress it faster than they read the plain text.
constexpr size_t kPlainBytes = size_t{1} << 20;

std::string BytesOfHex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return bytes;
}

std::string Gzip(const std::string& text) {
  z_stream stream{};
  if (deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw Error(ErrorCode::kResourceExhausted, "no memory to pack the page's data");
  std::string packed(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  const int result = deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  if (result != Z_STREAM_END) throw InternalError("the page's data could not be packed");
  return packed;
}

// Escapes JSON so that no browser sees the end of the script element, or a comment, in it.
std::string ForScript(const std::string& json) {
  std::string text;
  text.reserve(json.size());
  for (char c : json) c == '<' ? (void)(text += "\\u003c") : (void)(text += c);
  return text;
}

std::string ForHtml(std::string_view text) {
  std::string escaped;
  for (char c : text) {
    if (c == '&' || c == '<' || c == '>' || c == '"' || c == '\'')
      escaped += fmt::format("&#{};", static_cast<int>(c));
    else
      escaped += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return escaped;
}

// Allows only the page's own script and style, by their hashes; nothing is loaded.
std::string Policy() {
  const std::string script = Base64(BytesOfHex(page_assets::kScriptSha256));
  const std::string style = Base64(BytesOfHex(page_assets::kStyleSha256));
  return fmt::format(
      "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; worker-src blob:; "
      "img-src data:; base-uri 'none'; form-action 'none'",
      script, style);
}

// Fills in each @NAME@, which the page contains once, in this order.
std::string Fill(std::string_view page,
                 const std::vector<std::pair<std::string, std::string>>& values) {
  std::string text;
  for (const auto& [name, value] : values) {
    const std::string mark = "@" + name + "@";
    const size_t at = page.find(mark);
    if (at == page.npos) throw InternalError("the page has no " + mark);
    text += page.substr(0, at);
    text += value;
    page.remove_prefix(at + mark.size());
  }
  return text.append(page);
}

}  // namespace

std::string ProgramPage(const std::vector<PageProgram>& programs, const OpRegistry& ops,
                        const PageOptions& options) {
  const std::string json = PageData(programs, ops, options);
  const bool plain = json.size() <= kPlainBytes;
  if (json.size() > UINT32_MAX / 2)
    throw Error(ErrorCode::kResourceExhausted, "the programs are too large for a page");
  return Fill(page_assets::kHtml,
              {{"POLICY", Policy()},
               {"VERSION", fmt::format("{}.{}.{}", CORACLE_VERSION_MAJOR, CORACLE_VERSION_MINOR,
                                       CORACLE_VERSION_PATCH)},
               {"TITLE", ForHtml(TitleOf(programs, options))},
               {"STYLE", page_assets::kStyle},
               {"DATA_TYPE", plain ? "application/json" : "application/gzip"},
               {"DATA", plain ? ForScript(json) : Base64(Gzip(json))},
               {"SCRIPT", page_assets::kScript}});
}

}  // namespace coracle::inline internal
