#pragma once
// The threads behind ParallelFor.

#include <cstdint>

namespace coracle::internal {

// The most threads of one loop.
constexpr int kMaxThreads = 1024;

// Calls part(context, i) once for each i in [0, parts), parts <= kMaxThreads, from the caller and
// from `threads - 1` others at most. Several threads may call it at a time; they share the others.
// Not to be called from a part. `part` must not throw.
//
// A part that no other thread has begun is run by the caller: a loop waits for parts that are under
// way, never for a thread to start. While other programs take processors, so that threads have to
// wait for them, loops use fewer threads; which thread runs a part is all that this changes.
void RunParts(int threads, int parts, void (*part)(void* context, int i), void* context);

}  // namespace coracle::internal
