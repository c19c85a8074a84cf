// Inputs that a text does not describe: fed blobs without dims, and the tops of layers that are not
// converted. The option --shape gives their dims. A message proposes it whole: a second writer goes
// through the net, and takes the dims of each such blob from the first layer that reads it.

#include <coracle/convert/caffe/net_writer.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

namespace coracle::caffe {
namespace {

const Dims kNumber = {-1, 1};
// Sizes of pictures, in the order in which they are tried: the first with which the whole net is
// converted is proposed, else the first one. In `shapes` of a writer that guesses, "" has it.
const Dims kImages[] = {{3, 224, 224}, {3, 300, 300}, {3, 360, 480}, {3, 512, 512},
                        {3, 48, 48},   {3, 24, 24},   {3, 12, 12},   {1, 28, 28}};
constexpr size_t kMostLayers = 2000;  // larger nets are tried with one picture size only

bool Contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// "data:3x224x224", without the batch if three dims say it all.
std::string DimsText(const std::string& blob, const Dims& dims) {
  Dims shown(dims.begin() + 1, dims.end());
  if (shown.size() > 3) shown.insert(shown.begin(), 1);
  if (shown.empty()) shown = {1};
  for (int64_t& dim : shown) dim = std::max<int64_t>(dim, 1);
  return fmt::format("{}:{}", PrintableLine(blob), fmt::join(shown, "x"));
}

// By the name of the blob alone.
Dims DimsByName(const WriterOptions& options, const std::string& blob) {
  if (Contains(blob, "label")) return kNumber;
  if (Contains(blob, "rois")) return {-1, 5};
  if (Contains(blob, "im_info")) return {-1, 3};
  Dims image = options.shapes.at("");
  image.insert(image.begin(), -1);
  return image;
}

// A blob that Slice cuts: as many channels as its pieces need.
Dims DimsOfPieces(const WriterOptions& options, const Layer& layer, const std::string& blob) {
  const auto& p = layer.def.slice_param();
  const int64_t axis = p.has_slice_dim() ? p.slice_dim() : p.axis();
  const int points = p.slice_point_size();
  Dims dims = DimsByName(options, blob);
  if (axis != 1 || points > (1 << 20)) return dims;
  const int64_t last = points > 0 ? p.slice_point(points - 1) : 0;
  const int64_t before = points > 1 ? p.slice_point(points - 2) : 0;
  dims[1] = points > 0 ? last + (last - before) : layer.def.top_size() * dims[1];
  return dims;
}

// The dims of labels for these scores.
Dims LabelDims(const Layer& layer, Dims scores) {
  const bool accuracy = layer.def.type() == "Accuracy";
  const int64_t axis =
      accuracy ? layer.def.accuracy_param().axis() : layer.def.softmax_param().axis();
  const size_t at = axis >= 0 && axis < static_cast<int64_t>(scores.size())
                        ? static_cast<size_t>(axis)
                        : scores.size() - 1;
  scores[at] = 1;
  return scores;
}

// An image with as many channels as a convolution needs: a multiple of its groups, or one for each
// filter of a depthwise one.
Dims DimsOfChannels(const Layer& layer, Dims image) {
  const auto& p = layer.def.convolution_param();
  const bool depthwise = layer.def.type().find("epthwise") != std::string::npos;
  const int64_t group = depthwise ? p.num_output() : p.group();
  if (image.size() != 4 || group < 1 || group > (1 << 20)) return image;
  image[1] = depthwise ? group : (image[1] + group - 1) / group * group;
  return image;
}

// Whether the option can name the blob: a comma ends a name there, and a shell's word has neither
// control characters nor, in quotes, a quote.
bool CanBeNamed(const std::string& blob) {
  return !blob.empty() && blob.find_first_of(",'") == std::string::npos &&
         PrintableLine(blob) == blob;
}

// For a shell.
std::string OptionText(const std::string& shapes) {
  const bool plain = std::all_of(shapes.begin(), shapes.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) ||
           std::string_view("_-./:,@%+=").find(c) != std::string_view::npos;
  });
  return plain ? "--shape=" + shapes : "--shape='" + shapes + "'";
}

bool IsConvolution(const std::string& type) {  // with and without De, Depthwise
  return type.find("onvolution") != std::string::npos;
}

// Whether the top of a layer with one bottom has as many channels as the bottom, of any number.
bool KeepsChannels(const proto::caffe::LayerParameter& layer) {
  static const std::set<std::string_view> types = {
      "AbsVal", "BN",    "BatchNorm", "Bias",  "BNLL",  "CuDNNBatchNorm", "Dropout",  "ELU",
      "Exp",    "LRN",   "Log",       "MVN",   "PReLU", "Pooling",        "Power",    "ReLU",
      "ReLU6",  "Scale", "Sigmoid",   "Split", "Swish", "TanH",           "Threshold"};
  return layer.bottom_size() == 1 && layer.top_size() > 0 && types.count(layer.type()) > 0;
}

bool TakesEqualDims(const std::string& type) {
  return type == "Eltwise" || type == "Concat" || type == "Scale" || type == "Crop" ||
         type == "Bias" || type.ends_with("Loss");
}

}  // namespace

// The convolution that needs certain channels of a bottom of the current layer: the layer itself,
// or the first reader of what it passes on. nullptr if another layer reads that.
const Layer* NetWriter::ConvolutionOf(const Layer& layer) const {
  const Layer* next = &layer;
  size_t at = at_;
  while (next && KeepsChannels(next->def)) {
    const std::vector<size_t>& readers = UsesOf(next->def.top(0)).read;
    const auto found = std::upper_bound(readers.begin(), readers.end(), at);
    at = found == readers.end() ? at : *found;
    next = found == readers.end() ? nullptr : &layers_[at];
  }
  return next && IsConvolution(next->def.type()) ? next : nullptr;
}

// Guesses the dims of a bottom. `other`: the dims of another bottom, which are known, or empty.
Dims NetWriter::GuessFor(const Layer& layer, int bottom, const Dims& other) const {
  const std::string& blob = layer.def.bottom(bottom);
  const std::string& type = layer.def.type();
  const bool counts_classes = type == "SoftmaxWithLoss" || type == "Accuracy" ||
                              type == "MultinomialLogisticLoss" || type == "HingeLoss";
  if (counts_classes && bottom == 1) return other.size() < 3 ? kNumber : LabelDims(layer, other);
  if (bottom == 1 && (type == "ROIPooling" || type == "PSROIPooling")) return {-1, 5};
  if (bottom == 2 && type == "ContrastiveLoss") return kNumber;
  if (bottom == 3 && type == "MultiBoxLoss") return {-1, 1, 1, 8};
  if (type == "Slice") return DimsOfPieces(options_, layer, blob);
  if (TakesEqualDims(type) && other.size() > 1) return other;
  if (const Layer* convolution = ConvolutionOf(layer))
    return DimsOfChannels(*convolution, DimsByName(options_, blob));
  return type == "Embed" ? kNumber : DimsByName(options_, blob);
}

// Defines the dims of blobs that this layer is the first to read.
void NetWriter::ResolveGuesses(const Layer& layer) {
  const auto guessed = [&](int i) { return pending_.count(layer.def.bottom(i)) > 0; };
  Dims other;
  for (int i = 0; i < layer.def.bottom_size() && other.empty(); ++i) {
    const auto blob = blobs_.find(layer.def.bottom(i));
    if (!guessed(i) && blob != blobs_.end()) other = blob->second.dims;
  }
  for (int i = 0; i < layer.def.bottom_size(); ++i) {
    if (!guessed(i)) continue;
    const std::string& name = layer.def.bottom(i);
    const Dims dims = GuessFor(layer, i, other);
    blobs_[name].dims = IsClassLabel(name) && dims == kNumber ? Dims{-1} : dims;
    guesses_[name] = dims;
    pending_.erase(name);
  }
}

bool NetWriter::FeedGuess(const Layer& layer, int top) {
  if (!options_.guess) return false;
  const std::string& name = layer.def.top(top);
  if (blobs_.count(name) > 0) return true;
  Feed(layer, top, {-1}, IsClassLabel(name));
  if (IsRead(name)) pending_.insert(name);
  guesses_[name] = DimsByName(options_, name);
  wanted_.push_back(name);
  return true;
}

std::string NetWriter::ShapeOption() const {
  WriterOptions options = options_;
  options.guess = true;
  std::unique_ptr<NetWriter> guesser;
  for (const Dims& image : kImages) {
    options.shapes[""] = image;
    auto next = std::make_unique<NetWriter>(layers_, all_, options);
    bool whole = true;
    try {
      next->WriteLayers();
    } catch (const Error&) {
      whole = false;  // the dims that it has found are proposed
    }
    if (whole || !guesser) guesser = std::move(next);
    if (whole || layers_.size() > kMostLayers) break;
  }
  std::vector<std::string> parts;
  for (const auto& [blob, dims] : options_.shapes) {
    if (!UsesOf(blob).written.empty())
      parts.push_back(fmt::format("{}:{}", PrintableLine(blob), fmt::join(dims, "x")));
  }
  for (const std::string& blob : guesser->wanted_) {
    if (!CanBeNamed(blob)) {
      return fmt::format(
          "with --shape, which cannot name the blob {}; first rename it in the text, to a name "
          "without commas, quotes and control characters",
          Quote(blob, 100));
    }
    parts.push_back(DimsText(blob, guesser->guesses_.at(blob)));
  }
  return OptionText(Join(parts, ","));
}

// Feeds the tops that later layers read; false if the options do not give the dims of all of them.
// A layer without such tops is left out if the options name one of its tops.
bool NetWriter::FeedResults(const Layer& layer) {
  std::vector<int> fed;
  bool named = false;
  for (int i = 0; i < layer.def.top_size(); ++i) {
    const std::string& top = layer.def.top(i);
    const bool given = options_.shapes.count(top) > 0;
    named |= given;
    if (!IsRead(top)) continue;
    if (!given && !options_.guess) return false;
    fed.push_back(i);
  }
  if (fed.empty() && layer.def.top_size() == 0) return false;
  if (fed.empty() && !named) {
    if (!FeedGuess(layer, 0)) return false;
    guesses_[layer.def.top(0)] = kNumber;
    return true;
  }
  for (const int i : fed) {
    const std::string& top = layer.def.top(i);
    if (options_.shapes.count(top) > 0)
      Feed(layer, i, GivenDims(top), IsClassLabel(top));
    else
      FeedGuess(layer, i);
  }
  if (fed.empty()) {
    net_.notes.push_back(
        fmt::format("{}: layer {} ({}) is left out: --shape names its top, which "
                    "no layer reads",
                    layer.where, Quote(layer.def.name()), PrintableLine(layer.def.type())));
  }
  return true;
}

Dims NetWriter::GivenDims(const std::string& blob) const {
  const Dims& given = options_.shapes.at(blob);
  Dims dims = {-1};
  dims.insert(dims.end(), given.begin() + (given.size() > 3 ? 1 : 0), given.end());
  return dims;
}

// The words that propose --shape for the tops of a layer that is not converted; "" if it has none.
std::string NetWriter::OrInputs(const Layer& layer, const std::string& what) const {
  const auto& tops = layer.def.top();
  if (tops.empty()) return what;
  const bool read =
      std::any_of(tops.begin(), tops.end(), [&](const std::string& top) { return IsRead(top); });
  return fmt::format("{}{}{}: {}", what, what.ends_with('?') ? " Or " : "; ",
                     read ? "inputs can replace it, with their dims without the batch"
                          : "leave it out, since no layer reads its tops",
                     ShapeOption());
}

}  // namespace coracle::caffe
