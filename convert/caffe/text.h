#pragma once
// Caffe's texts (.prototxt), parsed, with the places of their fields, and brought up to date: what
// the rest of convert/caffe sees is LayerParameter and SolverParameter as they are today.

#include <coracle/framework/base/text_columns.h>
#include <coracle/proto/caffe.pb.h>
#include <google/protobuf/text_format.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace coracle::caffe {

// Where the parts of a text stand: "lenet.prototxt:7:22".
class TextPlaces {
 public:
  using Tree = google::protobuf::TextFormat::ParseInfoTree;

  TextPlaces(std::string_view text, std::string source);

  // Of protobuf's line and column, counted from 0, a tab to the next multiple of 8.
  std::string At(int line, int column, const std::string& name = "") const;
  const std::string& source() const { return source_; }

 private:
  std::string text_;
  TextColumns columns_;
  std::string source_;
};

// A layer, and where the text has it.
struct Layer {
  proto::caffe::LayerParameter def;
  std::string where;
  std::shared_ptr<const TextPlaces> places;
  const TextPlaces::Tree* tree = nullptr;  // of `def`; null for a layer of an old format

  // Of a field, named by its path from the layer on; the layer's where it is not known.
  std::string Where(std::initializer_list<const char*> path) const;
  // "FILE:LINE:COLUMN: layer 'conv1' (Convolution): WHAT".
  [[noreturn]] void Fail(const std::string& what) const { Fail({}, what); }
  [[noreturn]] void Fail(std::initializer_list<const char*> path, const std::string& what) const;
};

struct Net {
  std::string name, source;
  std::vector<Layer> layers;
  proto::caffe::NetState state;  // what the text says of its own state
  bool force_backward = false, debug_info = false;
  std::shared_ptr<const TextPlaces::Tree> tree;  // keeps what layers point to
};

// A network's text. Layers of the formats of 2013 and 2014 and the fields `input`, `input_dim` and
// `input_shape` are rewritten as Caffe's upgrade_net_proto_text does. Throws kInvalidArgument for
// the first mistake, with its place and the nearest known name.
Net ParseNet(std::string_view text, const std::string& source);
// Layers of a network that stands in another text, such as a solver's net_param. `where` is its
// place.
Net UpgradeNet(proto::caffe::NetParameter net, const std::string& source, const std::string& where);

struct SolverText {
  proto::caffe::SolverParameter def;
  std::shared_ptr<const TextPlaces> places;
  std::shared_ptr<const TextPlaces::Tree> tree;

  std::string Where(const char* field, int index = -1) const;
  [[noreturn]] void Fail(const char* field, const std::string& what, int index = -1) const;
};

// A solver's text; the old solver_type becomes `type`.
SolverText ParseSolver(std::string_view text, const std::string& source);

// Whether a text is a solver's and not a network's, by the first field that only one of them has.
bool LooksLikeSolver(std::string_view text);

// The layers that a net has in a state, by their include and exclude rules.
std::vector<Layer> LayersOf(const Net& net, const proto::caffe::NetState& state);

}  // namespace coracle::caffe
