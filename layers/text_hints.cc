#include <coracle/framework/base/text.h>
#include <coracle/layers/internal/text_hints.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <unordered_map>

namespace coracle::inline internal {
namespace {

// Names in PyTorch, TensorFlow, Keras and Caffe, in lower case and without underscores.
const std::unordered_map<std::string_view, const char*>& ElsewhereNames() {
  static const std::unordered_map<std::string_view, const char*> names = {
      {"add", "elementwise_add"},
      {"averagepooling2d", "pool2d { pool_type: \"avg\" }"},
      {"avgpool2d", "pool2d { pool_type: \"avg\" }"},
      {"batchnorm", "batch_norm"},
      {"batchnorm1d", "batch_norm"},
      {"batchnorm2d", "batch_norm"},
      {"batchnormalization", "batch_norm"},
      {"bceloss", "op { log_loss { ... } }"},
      {"bcewithlogitsloss", "sigmoid_cross_entropy_with_logits"},
      {"binarycrossentropy", "op { log_loss { ... } }"},
      {"cat", "concat"},
      {"categoricalcrossentropy", "cross_entropy { soft_label: true }"},
      {"concatenate", "concat"},
      {"conv", "conv2d"},
      {"convolution", "conv2d"},
      {"convolution2d", "conv2d"},
      {"conv2dtranspose", "op { conv2d_transpose { ... } }"},
      {"convtranspose2d", "op { conv2d_transpose { ... } }"},
      {"crossentropyloss", "softmax_with_cross_entropy"},
      {"deconvolution", "op { conv2d_transpose { ... } }"},
      {"dense", "fc"},
      {"depthwiseconv2d", "conv2d { groups: ... }"},
      {"eltwise", "elementwise_add (_mul, _max)"},
      {"euclideanloss", "square_error_cost"},
      {"fullyconnected", "fc"},
      {"globalaveragepooling2d", "pool2d { global_pooling: true pool_type: \"avg\" }"},
      {"innerproduct", "fc"},
      {"input", "data { ... } before the layers"},
      {"layernormalization", "layer_norm"},
      {"linear", "fc"},
      {"maxpool2d", "pool2d"},
      {"maxpooling2d", "pool2d"},
      {"meansquarederror", "square_error_cost"},
      {"mse", "square_error_cost"},
      {"mseloss", "square_error_cost"},
      {"multiheadattention", "attention"},
      {"multiply", "elementwise_mul"},
      {"nllloss", "op { nll_loss { ... } }"},
      {"permute", "transpose"},
      {"placeholder", "data { ... } before the layers"},
      {"pooling", "pool2d"},
      {"rnn", "simple_rnn"},
      {"sigmoidcrossentropyloss", "sigmoid_cross_entropy_with_logits"},
      {"simplernn", "simple_rnn"},
      {"softmaxcrossentropy", "softmax_with_cross_entropy"},
      {"softmaxwithloss", "softmax_with_cross_entropy"},
      {"sparsecategoricalcrossentropy", "cross_entropy"},
      {"subtract", "elementwise_sub"},
      {"view", "reshape"},
      // names of fields
      {"filters", "num_filters"},
      {"kernelsize", "filter_size"},
      {"numoutput", "size"},
      {"outchannels", "num_filters"},
      {"outfeatures", "size"},
      {"perm", "axis"},
      {"pool", "pool_type"},
      {"rate", "dropout_prob"},
      {"units", "size"},
  };
  return names;
}

std::string Elsewhere(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c != '_') plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  const auto found = ElsewhereNames().find(plain);
  return found == ElsewhereNames().end() ? "" : found->second;
}

bool IsNameCharacter(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// The end of the string or comment that begins at `at`, or `at` itself.
size_t SkipQuiet(std::string_view text, size_t at) {
  const char first = text[at];
  if (first == '#') return std::min(text.find('\n', at), text.size());
  if (first != '"' && first != '\'') return at;
  for (size_t i = at + 1; i < text.size() && text[i] != '\n'; ++i) {
    if (text[i] == '\\')
      ++i;
    else if (text[i] == first)
      return i;
  }
  return at;
}

}  // namespace

std::string CalledElsewhere(std::string_view name) {
  const std::string here = Elsewhere(name);
  return here.empty() ? "" : fmt::format("; here it is called {}", here);
}

std::string NameHint(const std::string& name, const std::vector<std::string>& known,
                     std::string_view command) {
  const std::string elsewhere = CalledElsewhere(name);
  const std::string hint = elsewhere.empty() ? DidYouMean(name, known) : elsewhere;
  if (!hint.empty()) return hint;
  return fmt::format("; `coracle {}` lists them, and --op_library adds those of a library",
                     command);
}

std::optional<OpenBrace> OpenBraceBefore(std::string_view text, size_t end) {
  std::vector<size_t> open;
  for (size_t i = 0; i < std::min(end, text.size()); ++i) {
    i = SkipQuiet(text, i);
    if (i >= end || i >= text.size()) break;
    if (text[i] == '{') open.push_back(i);
    if (text[i] == '}' && !open.empty()) open.pop_back();
  }
  if (open.empty()) return std::nullopt;
  size_t last = open.back();
  while (last > 0 &&
         (std::isspace(static_cast<unsigned char>(text[last - 1])) || text[last - 1] == ':'))
    --last;
  size_t first = last;
  while (first > 0 && IsNameCharacter(text[first - 1])) --first;
  return OpenBrace{first < last ? first : open.back(),
                   std::string(text.substr(first, last - first))};
}

bool IsOfRootAlone(const google::protobuf::Descriptor& root,
                   const google::protobuf::Descriptor& type, const std::string& name) {
  // "name" is excluded, since many messages might have it.
  return &root != &type && name != "name" && root.FindFieldByName(name) &&
         !type.FindFieldByName(name);
}

std::string QuotedIn(const std::string& message, int n) {
  size_t end = std::string::npos, begin = 0;
  for (int i = 0; i <= n; ++i) {
    begin = message.find('"', end + 1);
    if (begin == std::string::npos) return "";
    end = message.find('"', begin + 1);
    if (end == std::string::npos) return "";
  }
  return message.substr(begin + 1, end - begin - 1);
}

std::string TidyMessage(std::string message) {
  if (message.ends_with("got: "))
    message.replace(message.size() - 5, 5, "got the end of the text; is a closing brace missing?");
  while (message.ends_with('.')) message.pop_back();
  if (message.ends_with("found \"\""))
    message.replace(message.size() - 2, 2, "the end of the text");
  if (!message.empty()) {
    message[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(message[0])));
  }
  return message;
}

std::string FieldHint(const google::protobuf::Descriptor& type, const std::string& name) {
  constexpr size_t kMost = 24;
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  const std::string here = Elsewhere(name);
  if (std::find(names.begin(), names.end(), here) != names.end())
    return fmt::format("; here it is called {}", here);
  const std::string near = DidYouMean(name, names);
  if (!near.empty() || names.empty()) return near;
  const bool kinds = type.FindOneofByName("kind") != nullptr;
  const std::string library = kinds ? "; one from your own library needs --op_library" : "";
  if (names.size() > kMost) {
    names.resize(kMost);
    names.push_back("...");
  }
  return fmt::format("; it has {}{}", Join(names, ", "), library);
}

}  // namespace coracle::inline internal
