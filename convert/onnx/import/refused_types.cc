#include <coracle/convert/onnx/import/refused_types.h>

#include <algorithm>
#include <iterator>

namespace coracle::onnx {
namespace {

struct Refusal {
  const char* op_type;
  const char* why;
};

constexpr const char* kSearch =
    "the op runs the whole search for a text around a decoder: export the decoder alone (one step, "
    "with past keys and values) and search outside of the model";
constexpr const char* kSharedBuffer =
    "the op writes its keys and values into a buffer of a search: export the decoder with "
    "MultiHeadAttention or Attention, without that buffer";
constexpr const char* kPacked =
    "the op reads a batch without its padding: export the model without the packing mode of the "
    "optimizer";
constexpr const char* kExperts =
    "the op chooses experts for each token: export the model without its fusion";
constexpr const char* kSparse =
    "the op attends to chosen blocks of keys: export the model without its fusion, with a mask";

// Sorted. All are of com.microsoft.
constexpr Refusal kRefusals[] = {
    {"BeamSearch", kSearch},
    {"DecoderMaskedMultiHeadAttention", kSharedBuffer},
    {"DecoderMaskedSelfAttention", kSharedBuffer},
    {"EPContext",
     "the op holds a program of an accelerator: convert the model from which it was compiled"},
    {"GreedySearch", kSearch},
    {"LongformerAttention", kSparse},
    {"MoE", kExperts},
    {"PackedAttention", kPacked},
    {"PackedMultiHeadAttention", kPacked},
    {"PagedAttention",
     "the op keeps keys and values in pages of a server: export the model with a cache of its own"},
    {"QMoE", kExperts},
    {"RemovePadding", kPacked},
    {"RestorePadding", kPacked},
    {"Sampling", kSearch},
    {"SparseAttention", kSparse},
    {"WhisperBeamSearch", kSearch},
};

bool ComesBefore(const Refusal& refusal, const std::string& op_type) {
  return refusal.op_type < op_type;
}

}  // namespace

const char* WhyRefused(const std::string& domain, const std::string& op_type) {
  if (domain.empty() && op_type == "ImageDecoder")
    return "the op reads files of images (JPEG, PNG, ...), and programs hold no such decoder: cut "
           "it off the model, and feed the pixels";
  if (domain != "com.microsoft") return nullptr;
  const auto* found =
      std::lower_bound(std::begin(kRefusals), std::end(kRefusals), op_type, ComesBefore);
  return found != std::end(kRefusals) && found->op_type == op_type ? found->why : nullptr;
}

}  // namespace coracle::onnx
