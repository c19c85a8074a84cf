#pragma once
// Whether the address sanitizer is on: GCC defines a macro, clang 14 reports a feature.

#if defined(__SANITIZE_ADDRESS__)
#define CORACLE_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CORACLE_ADDRESS_SANITIZER 1
#endif
#endif
