#pragma once
// NetWriter converts the layers of a Caffe net in one state to entries of model text. The files
// layers_*.cc have a function for each type of layer.

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

using Dims = std::vector<int64_t>;  // -1: unknown

int64_t NumelOf(const Dims& dims, size_t begin = 0, size_t end = SIZE_MAX);  // -1: not known
std::string ToText(const Dims& dims);                                        // "[-1, 3, 227, 227]"

struct Blob {
  std::string var;  // in the model text
  Dims dims;        // in Caffe
  // Classes: an int64 variable [N, 1] for Caffe's floats [N], or one with Caffe's dims.
  bool is_label = false;
  bool is_index = false;  // positions of maxima: an int32 variable for Caffe's floats
};

// A parameter of the model text, and the blob of a .caffemodel with its values.
struct ParamSource {
  enum class Layout {
    kSame,
    kTransposed,  // [outputs, inputs] in Caffe, [inputs, outputs] here
    kScaledSum,   // a sum, to be divided by the last blob of its layer (BatchNorm's statistics)
  };
  std::string var;
  std::string layer;
  int blob = 0;
  Dims dims;  // in Caffe
  Layout layout = Layout::kSame;
  std::string where;
  std::vector<std::string> sharers = {};  // other layers that use it
  bool operator==(const ParamSource& other) const { return var == other.var; }
};

struct LossTerm {
  std::string var;
  float weight = 1;
};

// The input of a loss that is compared with its target, which is an output of the net
// for inference.
struct LossResult {
  enum class Kind { kSame, kSoftmax, kSigmoid };
  std::string var;
  Kind kind = Kind::kSame;
  int64_t axis = 1;  // of the classes, for kSoftmax
};

// The converted net in one state.
struct WrittenNet {
  std::vector<std::string> data;     // entries of fed variables
  std::vector<std::string> entries;  // entries of the layers
  std::vector<ParamSource> params;
  std::vector<LossTerm> losses;
  std::string objective;             // the variable to minimise; "" for a net without losses
  std::vector<std::string> metrics;  // variables of Accuracy layers and of losses without weight
  std::vector<std::string> inputs;   // the names of `data`
  std::vector<std::string> labels;   // the inputs that are classes
  std::vector<std::string> outputs;  // variables that no layer reads, except losses and metrics
  std::vector<std::string> numbers;  // the outputs that hold one number
  std::vector<LossResult> results;   // of the losses, for inference
  std::vector<std::string> notes;    // for the user: differences from Caffe
};

struct WriterOptions {
  // Dims of fed blobs, by their names, if the text lacks them: up to three without the batch, more
  // with it.
  std::map<std::string, Dims> shapes = {};
  bool test = false;     // the phase
  bool trained = false;  // the net has a loss, so fillers are used
  bool guess = false;    // feeds blobs of unknown dims with guesses, to propose `shapes`
};

class NetWriter {
 public:
  // `layers` has the layers of one state, `all` those of every state.
  NetWriter(const std::vector<Layer>& layers, const std::vector<Layer>& all, WriterOptions options);

  WrittenNet Write();

  // --- for the functions of layers_*.cc ---
  const WriterOptions& options() const { return options_; }
  size_t index() const { return at_; }  // of the current layer

  // The bottom of a layer; throws if no earlier layer has it as a top.
  const Blob& In(const Layer& layer, int bottom = 0) const;
  // A bottom whose dims from 1 on must be known.
  const Blob& KnownIn(const Layer& layer, int bottom = 0) const;
  void RequireBottoms(const Layer& layer, int least, int most) const;

  // The dims that the options give, with an open batch.
  Dims GivenDims(const std::string& blob) const;
  // The option "--shape=data:3x224x224,label:1" for all inputs of the net whose dims are not known.
  std::string ShapeOption() const;
  // Whether the dims of a fed top may be guessed; then it is fed.
  bool FeedGuess(const Layer& layer, int top);
  // Adds a data entry for a fed top. Its first dim becomes -1.
  void Feed(const Layer& layer, int top, const Dims& dims, bool is_label = false);
  // The batch given by an Input's text; -1 for none. Parameters that cover the batch need it.
  void DeclareBatch(int64_t batch) { batch_ = batch_ == 0 || batch_ == batch ? batch : -1; }
  int64_t declared_batch() const { return batch_ > 0 ? batch_ : -1; }
  // The name of a top: the blob's name or, if a later layer writes the blob in place, the blob's
  // name followed by the layer's. Defines the blob.
  std::string Out(const Layer& layer, int top, const Dims& dims, bool is_label = false);
  void MarkIndex(const Layer& layer, int top) { blobs_.at(layer.def.top(top)).is_index = true; }
  // A top that the layer has defined.
  const Blob& Top(const Layer& layer, int top) const { return blobs_.at(layer.def.top(top)); }
  // A variable without a counterpart in Caffe.
  std::string Temp(const Layer& layer, const std::string& suffix);
  // An unused variable name: `name`, possibly followed by underscores or a number.
  std::string Free(const std::string& name);

  // Adds an entry whose result is that top. If the following layers apply an activation to it in
  // place, that becomes the entry's `act`.
  void AddResult(const Layer& layer, Entry entry, const Dims& dims) {
    AddResultOf(layer, layer, std::move(entry), dims);
  }
  // Like AddResult, for an entry that represents all layers from `layer` to `last`.
  void AddResultOf(const Layer& layer, const Layer& last, Entry entry, const Dims& dims);
  void Add(const Entry& entry) { net_.entries.push_back(entry.Layer()); }
  void AddOp(const Entry& entry) { net_.entries.push_back(entry.Layer("layer { op", "}")); }
  // Writes a unary or binary layer into a temporary and returns its name.
  std::string Step(const Layer& layer, Entry entry, const std::string& suffix);

  // Writes an op into a temporary, its output `slot`, and returns the name.
  std::string StepOp(const Layer& layer, Entry op, const char* slot, const std::string& suffix) {
    const std::string var = Temp(layer, suffix);
    AddOp(op.Text(slot, var));
    return var;
  }

  // The next layer that reads the top, if it is the only one; else nullptr.
  const Layer* OnlyReader(const std::string& blob) const;
  void MarkWritten(const Layer& layer);  // a layer that another entry covers

  struct ParamWish {
    int blob = 0;     // index in the layer
    Dims dims = {};   // in Caffe
    std::string var;  // in the model text, unless the layer shares it
    ParamSource::Layout layout = ParamSource::Layout::kSame;
    const proto::caffe::FillerParameter* filler = nullptr;
    // The value without a filler; if absent, 0 in a net with a loss, else left to the weights file.
    std::optional<float> constant = std::nullopt;
    // The initial value that the layer of the model text has by default; nan for random values.
    float model_default = 0;
  };
  // Adds the parameter to the list and returns the text of its `param { ... }`.
  std::string Param(const Layer& layer, const ParamWish& wish) {
    return ParamText(layer, wish, Claim(layer, wish));
  }
  // Adds the parameter as an entry `parameter` and returns its name.
  std::string Parameter(const Layer& layer, const ParamWish& wish);
  // The parameter of the layer: its own, or that of an earlier layer if they share a name. Throws
  // if that one has other dims or another layout.
  struct Claimed {
    std::string var;
    bool first = true;  // no earlier layer has it
  };
  Claimed Claim(const Layer& layer, const ParamWish& wish);
  // The transposed variable of a shared parameter that an earlier layer has in the other layout; ""
  // if there is none.
  std::string ClaimTransposed(const Layer& layer, const ParamWish& wish);

  // Adds the top of a Caffe loss layer to the objective.
  void AddLoss(const Layer& layer, const std::string& var);
  WrittenNet& net() { return net_; }

  bool IsClassLabel(const std::string& blob) const;
  bool IsRead(const std::string& blob) const;  // whether any layer of the state reads it
  // Whether all its readers are of that type, and there is one.
  bool IsReadByAll(const std::string& blob, const char* type) const;

 private:
  struct BlobUses {
    std::vector<size_t> read, written;  // indices of layers, in order
  };
  const BlobUses& UsesOf(const std::string& blob) const;

  struct SharedParam {
    proto::caffe::ParamSpec spec;  // merged from all layers that share it
    int index = -1;                // in net_.params; -1: not used by a layer yet
  };

  void CheckLayer(const Layer& layer) const;
  void CollectShared();
  void WriteLayers();
  void WriteLayer(const Layer& layer);
  [[noreturn]] void Refuse(const Layer& layer) const;
  std::string OrInputs(const Layer& layer, const std::string& what) const;
  const Layer* ConvolutionOf(const Layer& layer) const;
  Dims GuessFor(const Layer& layer, int bottom, const Dims& other) const;
  void ResolveGuesses(const Layer& layer);
  bool FeedResults(const Layer& layer);
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
  std::unordered_map<std::string, int64_t> tried_;  // by Free, for each wanted name
  std::set<std::string> fed_;                       // blobs of data layers
  std::map<std::string, SharedParam> shared_;       // by their names in Caffe
  std::set<std::string> own_;                       // names of parameters that are not shared
  // Bottoms without gradient of the current layer.
  std::map<int, Blob> stopped_;
  std::set<std::string> pending_;        // fed blobs whose first reader decides about their dims
  std::map<std::string, Dims> guesses_;  // guessed dims of fed blobs
  std::vector<std::string> wanted_;      // the blobs with guesses, in the order of the text
  std::vector<bool> written_;
  size_t at_ = 0;
  int64_t batch_ = 0;  // 0: not declared yet
};

// The initializer of a parameter: `xavier { fan_in: 25 fan_out: 25 }`. Throws for a filler without
// a counterpart. `dims` are Caffe's.
std::string InitializerText(const Layer& layer, const proto::caffe::FillerParameter& filler,
                            const Dims& dims);
// The share of the elements that a gaussian filler draws: with `sparse`, as many inputs of each
// weight on average, where the first dim counts the outputs; 1 for all elements.
float DrawnShare(const proto::caffe::FillerParameter& filler, const Dims& dims);

// A type of layer: a description of its conversion for docs/caffe.md, and the function that writes
// it. An unsupported type has no function, and the description gives advice.
struct LayerRow {
  const char* type;
  void (*write)(const Layer& layer, NetWriter& net);
  const char* becomes;
};
using LayerTable = std::vector<LayerRow>;
// The types, by family.
LayerTable DataLayers();
LayerTable VisionLayers();
LayerTable ImageLayers();
LayerTable DetectionLayers();
LayerTable NormLayers();
LayerTable ParameterLayers();
LayerTable ElementLayers();
LayerTable ShapeLayers();
LayerTable LossLayers();
LayerTable MultiBoxLayers();
LayerTable RefusedLayers();
// All types in alphabetical order.
const LayerTable& AllLayers();

// Whether a layer gives any of its tops a weight in the objective.
bool HasLossWeight(const Layer& layer);
// Whether one entry may represent both: the first one's result is not in the objective, and
// gradients pass through the second.
bool MayFuse(const Layer& first, const Layer& second);

// The bottom, which must be images [N, C, H, W] of known size.
const Blob& ImagesIn(const Layer& layer, const NetWriter& net, int bottom = 0);

// An axis of a tensor of that rank, counted from 0.
int64_t AxisOf(const Layer& layer, int64_t axis, size_t rank);

}  // namespace coracle::caffe
