#pragma once
// The parts of the page, which the build makes of inspect/page/ (see cmake/page_assets.cmake).
// Internal to inspect/.

namespace coracle::page_assets {

extern const char* const kHtml;  // with @NAMES@ for what is filled in
extern const char* const kStyle;
extern const char* const kScript;
extern const char* const kStyleSha256;  // in hexadecimal digits
extern const char* const kScriptSha256;

}  // namespace coracle::page_assets
