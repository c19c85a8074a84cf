#pragma once
// NetWriter turns the layers that a Caffe net has in one state into entries of model text. What a
// type of layer becomes stands in the files layers_*.cc, a function for each type.

#include <coracle/convert/caffe/entry.h>
#include <coracle/convert/caffe/text.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace coracle::caffe {

using Dims = std::vector<int64_t>;  // -1: not known

int64_t NumelOf(const Dims& dims, size_t begin = 0, size_t end = SIZE_MAX);  // -1: not known
std::string ToText(const Dims& dims);                                        // "[-1, 3, 227, 227]"

struct Blob {
  std::string var;  // of the model text
  Dims dims;        // Caffe's
  // Classes: an int64 variable [N, 1] for Caffe's floats [N], or one of Caffe's own dims.
  bool is_label = false;
};

// A parameter of the model text and the blob of a .caffemodel that it starts with.
struct ParamSource {
  enum class Layout {
    kSame,
    kTransposed,  // [outputs, inputs] there, [inputs, outputs] here
    kScaledSum,   // a sum, to be divided by the last blob of its layer (BatchNorm's statistics)
  };
  std::string var;
  std::string layer;
  int blob = 0;
  Dims dims;  // Caffe's
  Layout layout = Layout::kSame;
  std::string where;
  std::vector<std::string> sharers = {};  // further layers that use it
  bool operator==(const ParamSource& other) const { return var == other.var; }
};

struct LossTerm {
  std::string var;
  float weight = 1;
};

// What a loss compares with its target: what a net with this loss gives in use.
struct LossResult {
  enum class Kind { kSame, kSoftmax, kSigmoid };
  std::string var;
  Kind kind = Kind::kSame;
  int64_t axis = 1;  // of the classes, for kSoftmax
};

// What one state of a net becomes.
struct WrittenNet {
  std::vector<std::string> data;     // entries of what is fed
  std::vector<std::string> entries;  // and the layers
  std::vector<ParamSource> params;
  std::vector<LossTerm> losses;
  std::string objective;             // the variable to minimise; "" for a net without losses
  std::vector<std::string> metrics;  // variables of Accuracy layers, and losses without weight
  std::vector<std::string> inputs;   // the names of `data`
  std::vector<std::string> labels;   // those of them that are classes
  std::vector<std::string> outputs;  // what no layer reads, losses and metrics apart
  std::vector<std::string> numbers;  // those of them that hold one
  std::vector<LossResult> results;   // of the losses, for use
  std::vector<std::string> notes;    // for the user: what is not quite as in Caffe
};

struct WriterOptions {
  // Dims of fed blobs without the batch, by their names, where the text does not have them.
  std::map<std::string, Dims> shapes = {};
  bool test = false;     // the phase
  bool trained = false;  // the net has a loss: fillers matter
};

class NetWriter {
 public:
  // `layers` are those of one state; `all` those of every state.
  NetWriter(const std::vector<Layer>& layers, const std::vector<Layer>& all, WriterOptions options);

  WrittenNet Write();

  // --- for the functions of layers_*.cc ---
  const WriterOptions& options() const { return options_; }
  size_t index() const { return at_; }  // of the layer that is being written

  // The bottom that a layer reads; throws if nothing makes it.
  const Blob& In(const Layer& layer, int bottom = 0) const;
  // A bottom whose dims from 1 on must be known.
  const Blob& KnownIn(const Layer& layer, int bottom = 0) const;
  void RequireBottoms(const Layer& layer, int least, int most) const;

  // A top that is fed: a data entry. Its first dim becomes -1.
  void Feed(const Layer& layer, int top, const Dims& dims, bool is_label = false);
  // The batch that an Input's text gives; -1 for none. What covers the batch needs it.
  void DeclareBatch(int64_t batch) { batch_ = batch_ == 0 || batch_ == batch ? batch : -1; }
  int64_t declared_batch() const { return batch_ > 0 ? batch_ : -1; }
  // The name of a top, which is the blob's unless a later layer writes it in place; then the blob's
  // name with the layer's behind it. Sets the blob.
  std::string Out(const Layer& layer, int top, const Dims& dims, bool is_label = false);
  // A top that the layer has made.
  const Blob& Top(const Layer& layer, int top) const { return blobs_.at(layer.def.top(top)); }
  // A variable that Caffe does not have.
  std::string Temp(const Layer& layer, const std::string& suffix);
  // A name of a variable that nothing else has: `name`, or that with underscores or a number after
  // it.
  std::string Free(const std::string& name);

  // Adds an entry whose result is that top. An activation that the next layers apply to it in place
  // is made its `act`.
  void AddResult(const Layer& layer, Entry entry, const Dims& dims) {
    AddResultOf(layer, layer, std::move(entry), dims);
  }
  // The same where the entry stands for all layers from `layer` to `last`.
  void AddResultOf(const Layer& layer, const Layer& last, Entry entry, const Dims& dims);
  void Add(const Entry& entry) { net_.entries.push_back(entry.Layer()); }
  void AddOp(const Entry& entry) { net_.entries.push_back(entry.Layer("layer { op", "}")); }
  // One unary or binary layer into a temporary, whose name is returned.
  std::string Step(const Layer& layer, Entry entry, const std::string& suffix);

  // The next layer that reads the top, if it alone does; nullptr otherwise.
  const Layer* OnlyReader(const std::string& blob) const;
  void MarkWritten(const Layer& layer);  // a layer that another entry stands for

  struct ParamWish {
    int blob = 0;     // number in the layer
    Dims dims = {};   // Caffe's
    std::string var;  // name in the model text, unless the layer shares it
    ParamSource::Layout layout = ParamSource::Layout::kSame;
    const proto::caffe::FillerParameter* filler = nullptr;
    // Without filler; absent: 0 in a net with a loss, else left to the weights file.
    std::optional<float> constant = std::nullopt;
    float model_default = 0;  // what the model text's layer starts with when nothing is said; a nan
                              // for random values
  };
  // The text of `param { ... }` for it, and the parameter on the list.
  std::string Param(const Layer& layer, const ParamWish& wish) {
    return ParamText(layer, wish, Claim(layer, wish));
  }
  // The same as an entry `parameter`; returns its name.
  std::string Parameter(const Layer& layer, const ParamWish& wish);
  // The parameter that the layer has: one of its own, or that of an earlier layer with which it
  // shares a name. Throws where that one has other dims or another layout.
  struct Claimed {
    std::string var;
    bool first = true;  // no earlier layer has it
  };
  Claimed Claim(const Layer& layer, const ParamWish& wish);
  // The variable of a shared parameter that an earlier layer has in the other layout, transposed;
  // "" where there is none.
  std::string ClaimTransposed(const Layer& layer, const ParamWish& wish);

  // The top of a layer that is a loss of Caffe's as a part of the objective.
  void AddLoss(const Layer& layer, const std::string& var);
  WrittenNet& net() { return net_; }

  bool IsClassLabel(const std::string& blob) const;
  bool IsRead(const std::string& blob) const;  // by any layer of the state

 private:
  struct BlobUses {
    std::vector<size_t> read, written;  // by layers, in order
  };
  const BlobUses& UsesOf(const std::string& blob) const;

  struct SharedParam {
    proto::caffe::ParamSpec spec;  // of all the layers that share it
    int index = -1;                // in net_.params; -1: no layer has it yet
  };

  void CheckLayer(const Layer& layer) const;
  void CollectShared();
  void WriteLayer(const Layer& layer);
  void StopGradients(const Layer& layer);
  void AddWeightedTops(const Layer& layer);
  SharedParam* Shared(const Layer& layer, int blob);
  std::string ParamText(const Layer& layer, const ParamWish& wish, const Claimed& claimed);
  bool IsFinal(size_t layer, const std::string& blob) const;
  std::string FusedActivation(const Layer& layer, const std::string& blob, const Layer** end);
  void CheckDims(const Layer& layer, const Dims& dims) const;
  void WriteOutputs();
  void WriteObjective();

  std::vector<Layer> layers_;
  std::vector<Layer> all_;
  WriterOptions options_;
  WrittenNet net_;
  std::map<std::string, Blob> blobs_;
  std::unordered_map<std::string, BlobUses> uses_;
  std::unordered_map<std::string, bool>
      only_classes_;                                // whether all readers of a blob read classes
  std::set<std::string> taken_;                     // names of variables
  std::unordered_map<std::string, int64_t> tried_;  // of Free, by the wanted name
  std::set<std::string> fed_;                       // blobs of data layers
  std::map<std::string, SharedParam> shared_;       // by their names in Caffe
  std::set<std::string> own_;                       // names of parameters that are not shared
  std::map<int, Blob> stopped_;  // bottoms of the layer that is being written without gradient
  std::vector<bool> written_;
  size_t at_ = 0;
  int64_t batch_ = 0;  // 0: none was declared yet
};

// How a parameter starts: `xavier { fan_in: 25 fan_out: 25 }`. Throws for a filler without a
// counterpart. `dims` are Caffe's.
std::string InitializerText(const Layer& layer, const proto::caffe::FillerParameter& filler,
                            const Dims& dims);

// A type of layer: what it becomes, in words for docs/caffe.md, and the function that writes it.
// One that is refused has no function, and advice in these words.
struct LayerRow {
  const char* type;
  void (*write)(const Layer& layer, NetWriter& net);
  const char* becomes;
};
using LayerTable = std::vector<LayerRow>;
// The types by families.
LayerTable DataLayers();
LayerTable VisionLayers();
LayerTable ParameterLayers();
LayerTable ElementLayers();
LayerTable ShapeLayers();
LayerTable LossLayers();
LayerTable RefusedLayers();
// All of them, in alphabetical order.
const LayerTable& AllLayers();

// Whether a layer gives any of its tops a weight in the objective.
bool HasLossWeight(const Layer& layer);
// Whether an entry may stand for both: the objective does not have the first one's result, and
// gradients go through the second.
bool MayFuse(const Layer& first, const Layer& second);

// An axis of a tensor of that rank, from 0.
int64_t AxisOf(const Layer& layer, int64_t axis, size_t rank);

}  // namespace coracle::caffe
