#include <coracle/framework/base/error.h>
#include <coracle/operators/elementwise/fused_pieces.h>

#include <algorithm>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace coracle::inline internal {
namespace {

constexpr int64_t kLine = kFusedLine;

// Prefetches the bytes [begin, end) of `from`; `begin` is a multiple of a line.
void Prefetch(const char* from, int64_t begin, int64_t end) {
  for (int64_t at = begin; at < end; at += kLine) __builtin_prefetch(from + at, 0, 2);
}

// Writes without first reading the old contents into the caches.
void CopyPastCaches(const char* from, char* to, int64_t bytes) {
#ifdef __SSE2__
  const int64_t head = std::min<int64_t>(bytes, -reinterpret_cast<intptr_t>(to) & (kLine - 1));
  std::memcpy(to, from, static_cast<size_t>(head));
  int64_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    for (int64_t k = at; k < at + kLine; k += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + k),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + k)));
    }
  }
  from += at, to += at, bytes -= at;
#endif
  std::memcpy(to, from, static_cast<size_t>(bytes));
}
void EndPastCaches() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

// Runs the pieces of one part of the work.
class PartRun {
 public:
  PartRun(const FusedPlan& plan, Workspace& ws, int64_t part)
      : plan_(plan),
        outer_(ws),
        base_(ws.Data<char>(plan.memory) + part * plan.part_bytes),
        pointers_(reinterpret_cast<void**>(base_)),
        pieces_(ws, pointers_) {
    for (size_t v = 0; v < plan.places.size(); ++v) {
      const FusedPlace& place = plan.places[v];
      pointers_[v] = place.offset >= 0 ? base_ + place.offset : ws.Data<char>(place.outer);
    }
  }

  void Run(int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      LookAhead(piece + 1 < end ? piece + 1 : piece);
      RunPiece(piece);
    }
    if (!plan_.flushes.empty()) EndPastCaches();
  }

 private:
  using Index = std::array<int64_t, Shape::kMaxRank>;

  const FusedKernels& KernelsOf(int64_t piece) const {
    return plan_.kernels[piece % plan_.cut.chunks + 1 < plan_.cut.chunks];
  }
  void** ahead() const { return pointers_ + plan_.pointers; }

  void LookAhead(int64_t piece) {
    ahead_sizes_ = KernelsOf(piece).ahead.data();
    const Index next = IndexOf(piece);
    for (size_t i = 0; i < plan_.ahead.size(); ++i) {
      const size_t v = plan_.ahead[i];
      ahead()[i] = outer_.Data<char>(plan_.places[v].outer) + OffsetOf(v, next);
    }
  }

  void RunPiece(int64_t piece) {
    const FusedKernels& kernels = KernelsOf(piece);
    const Index index = IndexOf(piece);
    for (size_t v = 0; v < plan_.places.size(); ++v) {
      if (plan_.places[v].offset < 0)
        pointers_[v] = outer_.Data<char>(plan_.places[v].outer) + OffsetOf(v, index);
    }
    for (const auto& [at, offset] : kernels.scratch) pointers_[at] = base_ + offset;
    for (size_t t = 0; t < kernels.ops.size(); ++t) {
      ReadAhead(static_cast<int64_t>(t));
      kernels.ops[t](pieces_);
    }
    for (size_t i = 0; i < plan_.flushes.size(); ++i)
      FlushTo(plan_.flushes[i], OffsetOf(plan_.flushes[i].var, index), kernels.flush_bytes[i]);
  }

  // Prefetches the share of the next piece before op t.
  void ReadAhead(int64_t t) const {
    for (size_t i = 0; i < plan_.ahead.size(); ++i) {
      const auto& [bytes, share] = ahead_sizes_[i];
      Prefetch(static_cast<const char*>(ahead()[i]), t * share, std::min(bytes, (t + 1) * share));
    }
  }

  Index IndexOf(int64_t piece) const {
    const FusedCut& cut = plan_.cut;
    Index index = {};
    int64_t outer = piece / cut.chunks;
    index[static_cast<size_t>(cut.dim)] = piece % cut.chunks * cut.rows;
    for (int d = cut.dim - 1; d >= 0; --d) {
      index[static_cast<size_t>(d)] = outer % cut.shape[d];
      outer /= cut.shape[d];
    }
    return index;
  }
  int64_t OffsetOf(size_t var, const Index& index) const {
    int64_t offset = 0;
    for (size_t d = 0; d <= static_cast<size_t>(plan_.cut.dim); ++d)
      offset += index[d] * plan_.steps[var][d];
    return offset;
  }

  void FlushTo(const FusedFlush& flush, int64_t offset, int64_t bytes) {
    const auto* from = static_cast<const char*>(pointers_[flush.var]);
    char* to = outer_.Data<char>(flush.to);
    const bool overwrites =
        std::any_of(plan_.inputs.begin(), plan_.inputs.end(),
                    [&](const TensorArg& x) { return outer_.Data<char>(x) == to; });
    to += offset;
    if (flush.past_caches && !overwrites)
      CopyPastCaches(from, to, bytes);
    else
      std::memcpy(to, from, static_cast<size_t>(bytes));
  }

  const FusedPlan& plan_;
  Workspace& outer_;
  char* base_;
  void** pointers_;
  GroupWorkspace pieces_;
  const FusedAhead* ahead_sizes_ = nullptr;
};

}  // namespace

void RunFusedPart(const FusedPlan& plan, Workspace& ws, int64_t part) {
  const int64_t pieces = plan.cut.pieces();
  PartRun(plan, ws, part).Run(part * pieces / plan.parts, (part + 1) * pieces / plan.parts);
}

}  // namespace coracle::inline internal
