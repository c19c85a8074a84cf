#pragma once
// Where a Caffe net's data comes from.

#include <coracle/convert/caffe/net_writer.h>

#include <map>
#include <string>
#include <vector>

namespace coracle::caffe {

// The dims [C, H, W] of the images of a Data or ImageData layer, as the net sees them. They are in
// the database, or beside transform_param's crop_size; where the database is not at hand, those of
// the well-known data set that its name tells of. *note says what was assumed. Throws where nothing
// tells.
Dims ImageDims(const Layer& layer, std::string* note);

struct DataPlaces {
  std::string solver;    // the solver's text: files are looked for around it
  std::string data_dir;  // "": none
  std::map<std::string, std::string> files = {};  // by "train" and "test": in place of the layer's
};

// A layer's data as a job reads it.
struct JobData {
  std::string text;                         // "idx { ... } transform { ... }"
  std::map<std::string, std::string> bind;  // the variables of columns of another name
  Dims dims;                                // of an image as the net sees it; empty: not known
  int64_t rows = 0;                         // 0: not known
  int64_t batch_size = 0;
  bool shuffle = false;
  std::string note;     // for the user; "": none
  std::string missing;  // the database that the text names and that is not there
};

inline constexpr char kDataAdvice[] =
    "--data_dir=DIR names a directory with the database, MNIST's files or train.npz and test.npz, "
    "--data=train:FILE,test:FILE the files themselves";

// The files of a data layer: what `files` names, the database where it is, in data_dir the four
// files of MNIST or the arrays train.npz and test.npz. A database that is nowhere stays named.
JobData FindData(const Layer& layer, bool train, const DataPlaces& places);

// A path in a text of Caffe, which is relative to the working directory of `caffe train`, mostly
// Caffe's root: looked for from the working directory, from the directories above `text` and beside
// it. "" where it is nowhere.
std::string FindFile(const std::string& path, const std::string& text);

}  // namespace coracle::caffe
