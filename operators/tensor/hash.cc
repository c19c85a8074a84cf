#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/rules/rows.h>

#include <bit>
#include <cstring>

namespace coracle::hash_op {

void InferHash(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  ctx.Require("C1", out.shape.rank() == 2, out.shape);
  const int64_t hashes = ctx.Attr<int32_t>("num_hash"), mod = ctx.Attr<int64_t>("mod_by");
  ctx.Require("C2", hashes >= 0 && mod > 0, "num_hash", hashes, "mod_by", mod);
  out.shape = {out.shape[0], hashes, 1};
  ctx.SetOutput("Out", out);
}

// XXH64 (Yann Collet: "xxHash fast digest algorithm", the specification).
constexpr uint64_t kPrime1 = 11400714785074694791u, kPrime2 = 14029467366897019727u;
constexpr uint64_t kPrime3 = 1609587929392839161u, kPrime4 = 9650029242287828579u;
constexpr uint64_t kPrime5 = 2870177450012600261u;

uint64_t Round(uint64_t lane, uint64_t value) {
  return std::rotl(lane + value * kPrime2, 31) * kPrime1;
}
template <class Word>
uint64_t Read(const unsigned char* from) {
  static_assert(std::endian::native == std::endian::little);
  Word word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

uint64_t Xxh64(const unsigned char* data, int64_t size, uint64_t seed) {
  const unsigned char* const end = data + size;
  uint64_t h = seed + kPrime5;
  if (size >= 32) {
    uint64_t lanes[4] = {seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1};
    for (; end - data >= 32; data += 32) {
      for (int k = 0; k < 4; ++k) lanes[k] = Round(lanes[k], Read<uint64_t>(data + 8 * k));
    }
    h = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) +
        std::rotl(lanes[3], 18);
    for (const uint64_t lane : lanes) h = (h ^ Round(0, lane)) * kPrime1 + kPrime4;
  }
  h += static_cast<uint64_t>(size);
  for (; end - data >= 8; data += 8)
    h = std::rotl(h ^ Round(0, Read<uint64_t>(data)), 27) * kPrime1 + kPrime4;
  for (; end - data >= 4; data += 4)
    h = std::rotl(h ^ (Read<uint32_t>(data) * kPrime1), 23) * kPrime2 + kPrime3;
  for (; data < end; ++data) h = std::rotl(h ^ (*data * kPrime5), 11) * kPrime1;
  h = (h ^ (h >> 33)) * kPrime2;
  h = (h ^ (h >> 29)) * kPrime3;
  return h ^ (h >> 32);
}

template <class T>
KernelOf<T> Hash(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const int64_t hashes = ctx.Attr<int32_t>("num_hash");
  const auto mod = static_cast<uint64_t>(ctx.Attr<int64_t>("mod_by"));
  const int64_t rows = x.shape[0], bytes = x.shape[1] * static_cast<int64_t>(sizeof(T));
  return [=](Workspace& ws) {
    const auto* in = ws.Data<const unsigned char>(x);
    T* o = ws.Data<T>(out);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t k = 0; k < hashes; ++k)
        *o++ = static_cast<T>(Xxh64(in + i * bytes, bytes, static_cast<uint64_t>(k)) % mod);
    }
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("hash")
              .Doc("Out[i][k] = XXH64 of the bytes of row i of X with seed k, modulo mod_by.")
              .Constraint("C1", "X must be a matrix")
              .Constraint("C2", "num_hash must not be negative, and mod_by must be positive")
              .Input("X", "integers [T, D]")
              .Output("Out", "tensor [T, num_hash, 1] of X's dtype")
              .Attr<int32_t>("num_hash", 1, "number of hashes of a row")
              .Attr<int64_t>("mod_by", 100000, "upper bound of a hash, exclusive")
              .NotDifferentiable("integers have no gradient")
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer(InferHash)
              .Reference(Hash<int32_t>, Hash<int64_t>));
}

}  // namespace coracle::hash_op
