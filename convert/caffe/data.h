#pragma once
// The sources of a Caffe net's data.

#include <coracle/convert/caffe/net_writer.h>

#include <map>
#include <string>
#include <vector>

namespace coracle::caffe {

// The database or list of files that a data layer names.
std::string SourceOf(const Layer& layer);

// The dims [C, H, W] of the images of a Data or ImageData layer, as the net gets them. They come
// from transform_param's crop_size and the database; if the database is missing, from the
// well-known data set that its name suggests. *note describes such assumptions. Empty if the dims
// cannot be determined.
Dims ImageDims(const Layer& layer, std::string* note);

struct DataPlaces {
  std::string solver;    // path of the solver's text: files are searched around it
  std::string data_dir;  // "": none
  // by "train" and "test": replace the layer's files
  std::map<std::string, std::string> files = {};
};

// A layer's data, in the form of a job.
struct JobData {
  std::string text;                         // "idx { ... } transform { ... }"
  std::map<std::string, std::string> bind;  // variables of columns with another name
  Dims dims;                                // of an image as the net gets it; empty: unknown
  int64_t rows = 0;                         // 0: unknown
  int64_t batch_size = 0;
  bool shuffle = false;
  std::string note;     // for the user; "": none
  std::string missing;  // a database that the text names but that does not exist
};

inline constexpr char kDataAdvice[] =
    "--data_dir=DIR names a directory with the database, MNIST's files or train.npz and test.npz, "
    "--data=train:FILE,test:FILE the files themselves";

// The files of a data layer: those given by `files`, else the database if it exists, else the four
// files of MNIST or the arrays train.npz and test.npz in data_dir. If nothing is found, the
// database is still named.
JobData FindData(const Layer& layer, bool train, const DataPlaces& places);

// Finds a path of a Caffe text. It is relative to the working directory of `caffe train`, usually
// Caffe's root, so it is searched from the working directory, from the directories above `text`,
// and next to it. Returns "" if it is not found.
std::string FindFile(const std::string& path, const std::string& text);

}  // namespace coracle::caffe
