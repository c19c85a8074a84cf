#pragma once
// Adds the op that ran out of memory to the error.

#include <coracle/framework/base/resource_limits.h>

#include <new>
#include <stdexcept>
#include <string>

namespace coracle {
class OpDesc;
}

namespace coracle::inline internal {

struct OpName {
  std::string type;
  std::string output;  // its first output, or ""
  std::string where;   // as returned by Locate
};
OpName NameOf(const OpDesc& op);

// Throws "fill_constant: out of memory: float32[1000000000] takes ... (output var 'x')".
[[noreturn]] void ThrowOutOfMemory(const OpName& op, const std::string& message);

// Runs `run`. Turns OutOfMemory, and standard library errors for lack of memory, into an Error that
// names the op `op()`. Enclosing ops leave that error unchanged.
template <class Run, class Op>
void NameOutOfMemory(Run&& run, Op&& op) {
  try {
    run();
  } catch (const OutOfMemory& e) {
    ThrowOutOfMemory(op(), e.message());
  } catch (const std::bad_alloc&) {
    ThrowOutOfMemory(op(), "out of memory");
  } catch (const std::length_error&) {
    ThrowOutOfMemory(op(), "out of memory: a list would be too long");
  }
}

}  // namespace coracle::inline internal
