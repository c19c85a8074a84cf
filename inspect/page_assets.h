#pragma once
// The parts of the page, which the build generates from inspect/page/ (see
// cmake/page_assets.cmake). Internal to inspect/.

namespace coracle::page_assets {

extern const char* const kHtml;  // with @NAMES@ to fill in
extern const char* const kStyle;
extern const char* const kScript;
extern const char* const kStyleSha256;  // in hexadecimal digits
extern const char* const kScriptSha256;

}  // namespace coracle::page_assets
