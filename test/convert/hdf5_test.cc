// Files of the HDF5 library: test/fuzz/corpus/caffe_weights/caffe_weights.h5 was written by
// libhdf5 1.10 with the calls of Caffe's Net::ToHDF5.
#include <coracle/convert/caffe/hdf5_weights.h>
#include <coracle/convert/hdf5_file.h>
#include <coracle/framework/base/file.h>
#include <coracle/test/error_of.h>
#include <coracle/test/test_data.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace coracle::hdf5_test {

class Hdf5 : public testing::Test {
 protected:
  void SetUp() override {
    const char* sources = std::getenv("CORACLE_SOURCE_DIR");
    if (!sources) GTEST_SKIP() << "CORACLE_SOURCE_DIR is not set";
    path_ = std::string(sources) + "/test/fuzz/corpus/caffe_weights/caffe_weights.h5";
    bytes_ = ReadFile(path_);
  }
  std::string ParseError(const std::string& bytes) {
    return ErrorOf([&] { ParseHdf5(bytes, "a", "data"); });
  }

  std::string path_, bytes_;
};

TEST_F(Hdf5, DatasetsByPath) {
  std::string names;
  const NamedTensors read = ReadHdf5(path_, "data");
  for (const auto& [name, tensor] : read) names += name + " " + tensor.ToString() + "\n";
  EXPECT_EQ(names,
            "conv1/0 float32[2, 3, 1, 1]\nconv2/0 float32[2, 3, 1, 1]\nconv2/1 float64[2]\n"
            "conv3/0 float32[2, 3, 1, 1]\n");
  EXPECT_TRUE(BitEqual(read[2].second, Tensor::Of<double>({2}, {-1, 0.5})));
  const NamedTensors parsed = ParseHdf5(bytes_, "a", "data");
  ASSERT_EQ(parsed.size(), read.size());
  for (size_t i = 0; i < read.size(); ++i)
    EXPECT_TRUE(BitEqual(parsed[i].second, read[i].second)) << i;
  EXPECT_EQ(ErrorOf([&] { ParseHdf5(bytes_, "a", "diff"); }), "a: it has no group 'diff'");
}

TEST_F(Hdf5, WeightsOfCaffe) {
  const caffe::CaffeWeights weights = caffe::ReadCaffeModel(path_);
  ASSERT_EQ(weights.layers.size(), 3u);  // a layer without blobs has an empty group
  EXPECT_TRUE(BitEqual(weights.layers.at("conv3").at(0),
                       Tensor::Of<float>({2, 3, 1, 1}, {2, 3, 4, 5, 6, 7})));
  EXPECT_TRUE(BitEqual(weights.layers.at("conv2").at(1), Tensor::Of<float>({2}, {-1, 0.5})));
}

TEST_F(Hdf5, CutOffAnywhere) {
  for (size_t size = 0; size < bytes_.size(); size += 7)
    EXPECT_NE(ParseError(bytes_.substr(0, size)), "no error") << size;
}

// Every byte changed in turn: an error or other values, nothing else.
TEST_F(Hdf5, DamagedAnywhere) {
  for (size_t i = 0; i < bytes_.size(); ++i) {
    for (const int bit : {1, 0x80}) {
      std::string bytes = bytes_;
      bytes[i] = static_cast<char>(bytes[i] ^ bit);
      ParseError(bytes);
    }
  }
}

TEST_F(Hdf5, RefusedWithAReason) {
  EXPECT_EQ(ParseError("PK"), "a: damaged HDF5 file: it is too short");
  EXPECT_EQ(ParseError(std::string(200, 'x')), "a: damaged HDF5 file: it does not begin as one");
  std::string newer = bytes_;
  newer[8] = 2;
  EXPECT_EQ(ParseError(newer),
            "a: superblock version 2 is not read: save the file in HDF5's default (earliest) "
            "format");
}

// The group conv1 in itself.
TEST_F(Hdf5, CyclesEnd) {
  std::string bytes = bytes_;
  const size_t node = bytes.find("SNOD", bytes.find("conv1"));
  ASSERT_NE(node, bytes.npos);
  size_t changed = 0;
  for (size_t at = bytes.find("SNOD"); at != bytes.npos; at = bytes.find("SNOD", at + 1)) {
    // Each entry's object becomes the group `data`, whose header the root's entry names.
    const size_t root = bytes.find("SNOD");
    bytes.replace(at + 16, 8, bytes.substr(root + 16, 8));
    ++changed;
  }
  EXPECT_GT(changed, 2u);
  const std::string message = ParseError(bytes);
  EXPECT_TRUE(message.find("overlap") != message.npos || message.find("deep") != message.npos)
      << message;
}
}  // namespace coracle::hdf5_test
