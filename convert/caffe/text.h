#pragma once
// Parses Caffe's texts (.prototxt), keeps the positions of their fields, and upgrades them: the
// rest of convert/caffe sees only the current forms of LayerParameter and SolverParameter.

#include <coracle/framework/base/text_columns.h>
#include <coracle/proto/caffe.pb.h>
#include <google/protobuf/text_format.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace coracle::caffe {

// Positions of the parts of a text: "lenet.prototxt:7:22".
class TextPlaces {
 public:
  using Tree = google::protobuf::TextFormat::ParseInfoTree;

  TextPlaces(std::string_view text, std::string source);

  // The position for protobuf's line and column, which count from 0 and expand tabs to multiples
  // of 8.
  std::string At(int line, int column, const std::string& name = "") const;
  const std::string& source() const { return source_; }

 private:
  std::string text_;
  TextColumns columns_;
  std::string source_;
};

// A layer, and its position in the text.
struct Layer {
  proto::caffe::LayerParameter def;
  std::string where;
  std::shared_ptr<const TextPlaces> places;
  const TextPlaces::Tree* tree = nullptr;  // of `def`; null for a layer of an old format
  // Problems with the unknown fields of a data layer. Such fields may say how pictures are read.
  std::vector<std::string> unknown = {};

  // The position of a field, given by its path from the layer on; the layer's position if unknown.
  std::string Where(std::initializer_list<const char*> path) const;
  // "FILE:LINE:COLUMN: layer 'conv1' (Convolution): WHAT".
  [[noreturn]] void Fail(const std::string& what) const { Fail({}, what); }
  [[noreturn]] void Fail(std::initializer_list<const char*> path, const std::string& what) const;
};

struct Net {
  std::string name, source;
  std::vector<Layer> layers;
  proto::caffe::NetState state;  // the net's own state in the text
  bool force_backward = false, debug_info = false;
  std::shared_ptr<const TextPlaces::Tree> tree;  // owns the trees that layers point to
};

// Parses a network's text. Layers in the formats of 2013 and 2014 and the fields `input`,
// `input_dim` and `input_shape` are rewritten like in Caffe's upgrade_net_proto_text. Throws
// kInvalidArgument for the first mistake, with its position and the nearest known name.
Net ParseNet(std::string_view text, const std::string& source);
// Upgrades the layers of a network inside another text, such as a solver's net_param. `where` is
// its position.
Net UpgradeNet(proto::caffe::NetParameter net, const std::string& source, const std::string& where);

struct SolverText {
  proto::caffe::SolverParameter def;
  std::shared_ptr<const TextPlaces> places;
  std::shared_ptr<const TextPlaces::Tree> tree;

  std::string Where(const char* field, int index = -1) const;
  [[noreturn]] void Fail(const char* field, const std::string& what, int index = -1) const;
};

// Whether layers of this type are converted, so that their fields matter. Old formats name the
// type otherwise, in an enumeration whose types are all converted: "".
bool IsConverted(const std::string& type);

// Parses a solver's text; the old solver_type becomes `type`.
SolverText ParseSolver(std::string_view text, const std::string& source);

// Whether a text is a solver's instead of a network's, judged by the first field that only one of
// them has.
bool LooksLikeSolver(std::string_view text);

// The layers of a net in a state, by their include and exclude rules.
std::vector<Layer> LayersOf(const Net& net, const proto::caffe::NetState& state);

}  // namespace coracle::caffe
