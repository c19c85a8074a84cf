#include <coracle/convert/caffe/steps.h>

namespace coracle::caffe {

std::string Cast(const Layer& layer, NetWriter& net, const std::string& x, const char* dtype,
                 const char* name) {
  return net.Step(layer, Entry("cast").Text("input", x).Field("dtype", dtype), name);
}

std::string Reshape(const Layer& layer, NetWriter& net, const std::string& x, const Dims& shape,
                    const char* name) {
  return net.Step(layer, Entry("reshape").Text("input", x).Field("shape", ListText(shape)), name);
}

std::string Slice(const Layer& layer, NetWriter& net, const std::string& x, int64_t axis,
                  int64_t begin, int64_t end, const char* name) {
  Entry op("slice");
  op.Text("Input", x).Field("axes", ListText({axis}));
  op.Field("starts", ListText({begin})).Field("ends", ListText({end}));
  return net.StepOp(layer, op, "Out", name);
}

std::string Number(const Layer& layer, NetWriter& net, double value, const char* dtype,
                   const char* name) {
  Entry entry("fill_constant");
  entry.Field("shape", "[1]").Float("value", static_cast<float>(value)).Field("dtype", dtype);
  return net.Step(layer, entry, name);
}

std::string Times(const Layer& layer, NetWriter& net, const std::string& x, const std::string& y,
                  const char* name) {
  return net.Step(layer, Entry("elementwise_mul").Text("x", x).Text("y", y), name);
}

std::string SumOf(const Layer& layer, NetWriter& net, const std::string& x, const char* name) {
  return net.Step(layer, Entry("reduce_sum").Text("input", x), name);
}

std::string OffsetsOf(const Layer& layer, NetWriter& net, const std::string& features,
                      const std::string& images) {
  const std::string shape =
      net.StepOp(layer, Entry("shape").Text("Input", features), "Out", "shape");
  const std::string number = Slice(layer, net, shape, 0, 0, 1, "number");
  Entry hot("one_hot_v2"), cumsum("cumsum");
  hot.Text("X", Cast(layer, net, images, "INT64", "ids")).Text("depth_tensor", number);
  const std::string belongs = net.StepOp(layer, hot, "Out", "belongs");
  Entry sum("reduce_sum");
  const std::string counts =
      net.Step(layer, sum.Text("input", belongs).Field("dim", "[0]"), "counts");
  const std::string ends =
      net.StepOp(layer, cumsum.Text("X", counts).Int("axis", 0), "Out", "ends");
  const std::string zero = Number(layer, net, 0, "FP32", "begin");
  Entry all("concat");
  return Cast(layer, net,
              net.Step(layer, all.Texts("input", {zero, ends}).Int("axis", 0), "bounds"), "INT64",
              "offsets");
}

std::string SortedPlaces(const Layer& layer, NetWriter& net, const std::string& keys,
                         const char* name) {
  return net.StepOp(layer, Entry("argsort").Text("X", keys).Int("axis", 0), "Indices", name);
}

std::string SortedRows(const Layer& layer, NetWriter& net, const std::string& x,
                       const std::string& order, const std::string& offsets, const char* name) {
  Entry gather("gather"), reset("lod_reset");
  gather.Text("X", x).Text("Index", order);
  reset.Text("X", net.StepOp(layer, gather, "Out", "sorted")).Text("Y", offsets);
  return net.StepOp(layer, reset, "Out", name);
}

}  // namespace coracle::caffe
