// Data layers. The model text contains only the fed variables; the source and the transformation of
// its images (transform_param) belong to a job.

#include <coracle/convert/caffe/data.h>
#include <coracle/convert/caffe/net_writer.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

namespace coracle::caffe {
namespace {

using proto::caffe::FillerParameter;

// Notes fields about reading that have no effect here.
void NoteReading(const Layer& layer, NetWriter& net) {
  const auto note = [&](const char* param, const char* field, const char* what) {
    net.net().notes.push_back(fmt::format("{}: {}: {}", layer.Where({param, field}), field, what));
  };
  const auto& images = layer.def.image_data_param();
  if (layer.def.data_param().rand_skip() > 0)
    note("data_param", "rand_skip", "data is read from its first row on");
  if (images.rand_skip() > 0)
    note("image_data_param", "rand_skip", "data is read from its first row on");
  if (!images.root_folder().empty())
    note("image_data_param", "root_folder", "pictures are not read; arrays replace them");
  for (const std::string& field : layer.unknown)
    net.net().notes.push_back(field + "; left out, since pictures are not read here");
}

// Whether the first top of a layer that reads images is a map of classes. Nets for segmentation
// read pictures from one database, and maps of classes from a second one.
bool IsLabels(const Layer& layer, const NetWriter& net) {
  return layer.def.top_size() == 1 && net.IsClassLabel(layer.def.top(0));
}

// Feeds the tops of a layer that reads images with a label each.
void FeedImages(const Layer& layer, NetWriter& net) {
  net.RequireBottoms(layer, 0, 0);
  if (layer.def.top_size() < 1 || layer.def.top_size() > 2)
    layer.Fail({"top"}, fmt::format("it takes 1 or 2 tops, got {}", layer.def.top_size()));
  NoteReading(layer, net);
  const std::string& data = layer.def.top(0);
  const auto given = net.options().shapes.find(data);
  std::string note;
  Dims batch = {-1};
  if (given != net.options().shapes.end()) {
    batch = net.GivenDims(data);
  } else {
    const Dims dims = ImageDims(layer, &note);
    if (!note.empty()) net.net().notes.push_back(note);
    batch.insert(batch.end(), dims.begin(), dims.end());
    if (dims.empty() && !net.FeedGuess(layer, 0)) {
      layer.Fail(fmt::format("the size of its images is in {}, which is not here; give it: {}",
                             Quote(SourceOf(layer), 200), net.ShapeOption()));
    }
  }
  if (batch.size() > 1) net.Feed(layer, 0, batch, IsLabels(layer, net));
  if (layer.def.top_size() < 2) return;
  const std::string& label = layer.def.top(1);
  if (!net.IsRead(label)) return;
  const auto shape = net.options().shapes.find(label);
  Dims label_dims = {-1};
  if (layer.def.type() == "AnnotatedData") label_dims = {-1, 1, -1, 8};  // rows of boxes
  if (shape != net.options().shapes.end()) label_dims = net.GivenDims(label);
  net.Feed(layer, 1, label_dims, net.IsClassLabel(label));
}

// HDF5Data: any tops; only the file has their dims.
void FeedArrays(const Layer& layer, NetWriter& net) {
  if (layer.def.transform_param().ByteSizeLong() > 0)
    layer.Fail({"transform_param"}, "HDF5Data does not transform its arrays");
  for (int i = 0; i < layer.def.top_size(); ++i) {
    const std::string& top = layer.def.top(i);
    const auto given = net.options().shapes.find(top);
    const bool label = net.IsClassLabel(top);
    if (given == net.options().shapes.end() && !label) {
      if (net.FeedGuess(layer, i)) continue;
      layer.Fail({"top"}, fmt::format("the dims of {} are in its HDF5 files, which are not read; "
                                      "give them: {}",
                                      PrintableLine(top), net.ShapeOption()));
    }
    net.Feed(layer, i, given == net.options().shapes.end() ? Dims{-1} : net.GivenDims(top), label);
  }
}

void FeedInput(const Layer& layer, NetWriter& net) {
  const auto& param = layer.def.input_param();
  if (param.shape_size() > 1 && param.shape_size() != layer.def.top_size()) {
    layer.Fail({"input_param"},
               fmt::format("{} shapes for {} tops", param.shape_size(), layer.def.top_size()));
  }
  for (int i = 0; i < layer.def.top_size(); ++i) {
    const std::string& top = layer.def.top(i);
    Dims dims;
    const auto given = net.options().shapes.find(top);
    if (given != net.options().shapes.end()) {
      dims = net.GivenDims(top);
    } else if (param.shape_size() > 0) {
      const auto& shape = param.shape(param.shape_size() > 1 ? i : 0);
      dims.assign(shape.dim().begin(), shape.dim().end());
    } else {
      if (net.FeedGuess(layer, i)) continue;
      layer.Fail({"input_param"}, fmt::format("it has no shape; give one: {}", net.ShapeOption()));
    }
    if (dims.size() > 8) layer.Fail({"input_param"}, "a shape has 8 dims at most");
    for (const int64_t dim : dims)
      if (dim == 0 || dim < -1) layer.Fail({"input_param"}, fmt::format("a dim of {}", dim));
    if (!dims.empty()) {
      net.DeclareBatch(dims.front());
      dims.front() = -1;  // any batch
    }
    net.Feed(layer, i, dims, net.IsClassLabel(top));
  }
}

void FeedMemory(const Layer& layer, NetWriter& net) {
  const auto& param = layer.def.memory_data_param();
  if (layer.def.top_size() < 1) layer.Fail({"top"}, "it needs a top");
  if (param.channels() == 0 || param.height() == 0 || param.width() == 0)
    layer.Fail({"memory_data_param"}, "channels, height and width must be positive");
  net.Feed(layer, 0, {-1, param.channels(), param.height(), param.width()});
  if (layer.def.top_size() > 1 && net.IsRead(layer.def.top(1)))
    net.Feed(layer, 1, {-1}, net.IsClassLabel(layer.def.top(1)));
}

// Values generated by the net: a constant, or new random numbers in every run.
void MakeDummy(const Layer& layer, NetWriter& net) {
  const auto& param = layer.def.dummy_data_param();
  const int tops = layer.def.top_size();
  for (int i = 0; i < tops; ++i) {
    Dims dims;
    const auto pick = [&](const auto& values) -> int64_t {
      if (values.empty()) layer.Fail({"dummy_data_param"}, "it has no shape");
      return values.Get(values.size() > i ? i : 0);
    };
    if (param.shape_size() > 0) {
      const auto& shape = param.shape(param.shape_size() > i ? i : 0);
      dims.assign(shape.dim().begin(), shape.dim().end());
    } else {
      dims = {pick(param.num()), pick(param.channels()), pick(param.height()), pick(param.width())};
    }
    for (const int64_t dim : dims)
      if (dim < 1 || dim > INT32_MAX)
        layer.Fail({"dummy_data_param"}, fmt::format("a dim of {}", dim));
    FillerParameter filler;
    if (param.data_filler_size() > 0)
      filler = param.data_filler(param.data_filler_size() > i ? i : 0);
    const std::string& type = filler.type();
    Entry entry(type == "constant"  ? "fill_constant"
                : type == "uniform" ? "uniform_random"
                                    : "gaussian_random");
    entry.Field("shape", ListText(dims));
    if (type == "constant") {
      entry.Float("value", filler.value());
    } else if (type == "uniform") {
      entry.Float("min", filler.min()).Float("max", filler.max());
    } else if (type == "gaussian") {
      entry.Float("mean", filler.mean()).Float("std", filler.std());
      if (const float share = DrawnShare(filler, dims); share < 1) entry.Float("share", share);
    } else {
      layer.Fail(
          {"dummy_data_param", "data_filler"},
          fmt::format("data of the filler {} is not made here: constant, uniform or gaussian",
                      Quote(type)));
    }
    entry.Text("output", net.Out(layer, i, dims));
    net.Add(entry);
  }
}

}  // namespace

LayerTable DataLayers() {
  return {{"AnnotatedData", FeedImages,
           "`data` entries, of the size in resize_param; no data source of a job"},
          {"Data", FeedImages, "`data` entries; in a job a database or what replaces it"},
          {"ImageData", FeedImages, "`data` entries; in a job arrays that replace the pictures"},
          {"HDF5Data", FeedArrays,
           "`data` entries; HDF5 is not read: in a job .npz arrays replace the files"},
          {"Input", FeedInput, "`data` entries"},
          {"MemoryData", FeedMemory, "`data` entries; in a job arrays"},
          {"DummyData", MakeDummy, "`fill_constant`, `uniform_random`, `gaussian_random`"}};
}

LayerTable RefusedLayers() {
  return {
      {"Filter", nullptr,
       "the number of its rows depends on values; leave rows out of the data instead"},
      {"BoxOutput", nullptr, "boxes of MS-CNN; write the model text's generate_proposals instead"},
      {"CenterLoss", nullptr, "its centres are changed by the layer itself; use op center_loss"},
      {"DenseImageData", nullptr, "pictures and maps of labels are not read; arrays replace them"},
      {"DetectionLoss", nullptr, "the loss of MS-CNN's proposals"},
      {"HDF5Output", nullptr,
       "HDF5 is not written, and no layer writes results; coracle run --out=FILE.npz does"},
      {"InfogainLoss", nullptr,
       "its matrix is in a file; only SoftmaxWithLoss and the like are converted"},
      {"LSTM", nullptr,
       "recurrent layers have no counterpart with Caffe's continuation markers; write the model "
       "text's lstm instead"},
      {"LSTMUnit", nullptr, "it is a part of LSTM, which has no counterpart here"},
      {"Proposal", nullptr,
       "forks differ in it; write the ops anchor_generator and generate_proposals instead"},
      {"Python", nullptr, "its code is Python; write the layer as model text"},
      {"RNN", nullptr,
       "recurrent layers have no counterpart with Caffe's continuation markers; write the model "
       "text's simple_rnn instead"},
      {"Recurrent", nullptr, "it is the base of LSTM and RNN, which have no counterpart here"},
      {"WindowData", nullptr,
       "windows of pictures are no data source here; cut them out into an .npz"}};
}

}  // namespace coracle::caffe
