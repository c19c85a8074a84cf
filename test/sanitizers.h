#pragma once
// Whether the process runs under a sanitizer, which takes terabytes of address space and has a
// malloc of its own. Tests are not instrumented themselves, so that no macro of the compiler says
// it; the sanitizer's library does.
//
// Weak: there under sanitizers only; the name is theirs.
// NOLINTNEXTLINE(bugprone-reserved-identifier)
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

namespace coracle {

inline bool UnderSanitizer() { return __sanitizer_set_death_callback != nullptr; }

}  // namespace coracle
