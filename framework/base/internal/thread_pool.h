#pragma once
// The threads that run ParallelFor.

#include <cstdint>

namespace coracle::inline internal {

// The limit on the threads of one loop.
constexpr int kMaxThreads = 1024;

// Calls part(context, i) once for each i in [0, parts), parts <= kMaxThreads, from the caller and
// from at most `threads - 1` others. Several threads may call it at a time; they share the pool. It
// must not be called from a part. `part` must not throw.
//
// The caller runs parts that no other thread has begun, so a loop waits only for running parts,
// never for a thread to start. While other programs take processors and threads have to wait for
// them, loops use fewer threads; this only changes which thread runs a part.
void RunParts(int threads, int parts, void (*part)(void* context, int i), void* context);

}  // namespace coracle::inline internal
