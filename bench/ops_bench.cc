// Times single ops, prepared once and run in a loop, on the shapes of LeNet and ResNet.
//
//   ops_bench --benchmark_filter=Conv     (threads: OMP_NUM_THREADS)

#include <benchmark/benchmark.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/kernel/kernel_choice.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/operators/operators.h>

#include <deque>
#include <map>
#include <string>
#include <vector>

namespace coracle {
namespace {

// One op with its variables in its own memory.
class PreparedOp : public ArgTable, public Workspace {
 public:
  struct In {
    std::string slot;
    Shape shape;
    DType dtype = DType::kFloat32;
  };

  // With `frozen`, all inputs but the first are constants.
  PreparedOp(const std::string& type, const std::vector<In>& inputs,
             const std::vector<std::string>& outputs, AttrList attrs, bool frozen = false)
      : frozen_(frozen) {
    BlockDesc& block = program_.Root();
    SlotList ins, outs;
    for (const auto& [slot, shape, dtype] : inputs) {
      VarDesc& var = block.Var(slot);
      var.SetShape(shape);
      var.SetDType(dtype);
      ins.push_back({slot, {slot}});
    }
    for (const std::string& slot : outputs) {
      block.Var(slot);
      outs.push_back({slot, {slot}});
    }
    const OpDesc& op = block.AppendOp(type, ins, outs, std::move(attrs));
    InferOp(block, op, DefaultOps());
    const OpSpec& def = DefaultOps().Get(type);
    kernel_ = PrepareKernel(PrepareContext(def, op, *this), KernelMode::kAuto);
    for (Tensor& tensor : tensors_) pointers_.push_back(tensor.raw());
    data_ = pointers_.data();
  }

  void Run() { kernel_(*this); }

  TensorArg Read(const std::string& name) override { return Write(name); }
  TensorArg Write(const std::string& name) override {
    auto it = args_.find(name);
    if (it != args_.end()) return it->second;
    const VarMeta& meta = program_.Root().FindVarRecursive(name)->meta();
    return args_[name] = Scratch(meta.dtype, meta.shape);
  }
  TensorArg Scratch(DType dtype, const Shape& shape) override {
    TensorArg arg{static_cast<int32_t>(tensors_.size()), dtype, shape, shape.numel()};
    tensors_.push_back(Tensor::Zeros(dtype, shape));
    if (dtype == DType::kFloat32) {
      for (int64_t i = 0; i < arg.numel; ++i)
        tensors_.back().data<float>()[i] = static_cast<float>(i * 7919 % 1000 + 1) * 0.001f;
    } else if (SizeOf(dtype) == 1) {
      for (int64_t i = 0; i < arg.numel; ++i)
        static_cast<uint8_t*>(tensors_.back().raw())[i] = static_cast<uint8_t>(i * 7919 % 251);
    }
    return arg;
  }
  // The measured ops do not use these.
  TensorArg ScratchArray() override { throw InternalError("ops_bench has no arrays"); }
  TensorArg ScratchValue() override { throw InternalError("ops_bench has no values"); }
  int32_t SubBlock(BlockRef, const BlockArgs&) override {
    throw InternalError("ops_bench runs no sub-blocks");
  }
  bool HasGradientBlock(BlockRef) override { return false; }
  const Tensor* Constant(const std::string& name) override {
    return frozen_ ? &tensors_[static_cast<size_t>(Write(name).index)] : nullptr;
  }
  VarValue& ValueOf(const TensorArg&) override {
    throw InternalError("ops_bench has dense tensors");
  }
  const LoD& LodOf(const TensorArg&) override { return lod_; }
  LoD& OutputLod(const TensorArg&) override { return lod_; }

 private:
  ProgramDesc program_;
  std::map<std::string, TensorArg> args_;
  bool frozen_;
  std::deque<Tensor> tensors_;
  std::vector<void*> pointers_;
  LoD lod_;
  Kernel kernel_;
};

void RunLoop(benchmark::State& state, PreparedOp& op, double flops) {
  for (int i = 0; i < 3; ++i) op.Run();
  for (auto _ : state) op.Run();
  if (flops > 0) {
    state.counters["GFLOP/s"] =
        benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  }
}

// Args: batch, channels, size, filters, kernel, stride, padding. Channels last.
struct Conv {
  int64_t batch, channels, size, filters, kernel, stride, padding;

  explicit Conv(const benchmark::State& s)
      : batch(s.range(0)),
        channels(s.range(1)),
        size(s.range(2)),
        filters(s.range(3)),
        kernel(s.range(4)),
        stride(s.range(5)),
        padding(s.range(6)) {}
  int64_t out() const { return (size + 2 * padding - kernel) / stride + 1; }
  Shape input() const { return {batch, size, size, channels}; }
  Shape filter() const { return {filters, channels, kernel, kernel}; }
  Shape output() const { return {batch, out(), out(), filters}; }
  double flops() const {
    return 2.0 * static_cast<double>(batch * out() * out() * filters * channels * kernel * kernel);
  }
  AttrList attrs() const {
    const auto s = static_cast<int32_t>(stride), p = static_cast<int32_t>(padding);
    return {{"strides", std::vector<int32_t>{s, s}},
            {"paddings", std::vector<int32_t>{p, p}},
            {"data_format", std::string("NHWC")}};
  }
};

void ConvForward(benchmark::State& state) {
  const Conv c(state);
  PreparedOp op("conv2d", {{"Input", c.input()}, {"Filter", c.filter()}, {"Bias", {c.filters}}},
                {"Output"}, c.attrs());
  RunLoop(state, op, c.flops());
}

void ConvBackward(benchmark::State& state, const std::vector<std::string>& outputs) {
  const Conv c(state);
  PreparedOp op("conv2d_grad",
                {{"Input", c.input()}, {"Filter", c.filter()}, {"Output@GRAD", c.output()}},
                outputs, c.attrs());
  RunLoop(state, op, c.flops());
}

void ConvFilterGrad(benchmark::State& state) { ConvBackward(state, {"Filter@GRAD", "Bias@GRAD"}); }
void ConvDataGrad(benchmark::State& state) { ConvBackward(state, {"Input@GRAD"}); }

void ConvShapes(benchmark::internal::Benchmark* b) {
  b->Args({64, 1, 28, 20, 5, 1, 0});
  b->Args({64, 20, 12, 50, 5, 1, 0});
  b->Args({64, 3, 32, 16, 3, 1, 1});
  b->Args({64, 16, 32, 16, 3, 1, 1});
  b->Args({64, 16, 32, 32, 3, 2, 1});
  b->Args({64, 64, 8, 64, 3, 1, 1});
  b->Args({8, 3, 128, 64, 7, 2, 3});
  b->Args({8, 128, 16, 128, 3, 1, 1});
  b->Args({1, 24, 56, 72, 1, 1, 0});
  b->Args({1, 80, 14, 184, 1, 1, 0});
  b->Args({1, 3, 224, 16, 3, 2, 1});
  b->UseRealTime()->Unit(benchmark::kMicrosecond)->MinTime(0.1);
}
BENCHMARK(ConvForward)->Apply(ConvShapes);
BENCHMARK(ConvFilterGrad)->Apply(ConvShapes);
BENCHMARK(ConvDataGrad)->Apply(ConvShapes);

// Inference with frozen weights in float32 and in 8 bits, with bias and relu. Args: channels, size,
// filters, kernel, stride, groups.
struct FrozenConv {
  int64_t channels, size, filters, kernel, stride, groups;

  explicit FrozenConv(const benchmark::State& s)
      : channels(s.range(0)),
        size(s.range(1)),
        filters(s.range(2)),
        kernel(s.range(3)),
        stride(s.range(4)),
        groups(s.range(5)) {}
  Shape input() const { return {1, size, size, channels}; }
  Shape filter() const { return {filters, channels / groups, kernel, kernel}; }
  double flops() const {
    const int64_t out = (size - 1) / stride + 1;
    return 2.0 * static_cast<double>(out * out * filters * channels / groups * kernel * kernel);
  }
  AttrList attrs() const {
    const auto s = static_cast<int32_t>(stride), p = static_cast<int32_t>(kernel / 2);
    return {{"strides", std::vector<int32_t>{s, s}},
            {"paddings", std::vector<int32_t>{p, p}},
            {"groups", static_cast<int32_t>(groups)},
            {"fuse_activation", std::string("relu")},
            {"data_format", std::string("NHWC")}};
  }
};

void FrozenConvFloat(benchmark::State& state) {
  const FrozenConv c(state);
  PreparedOp op(c.groups == c.channels ? "depthwise_conv2d" : "conv2d",
                {{"Input", c.input()}, {"Filter", c.filter()}, {"Bias", {c.filters}}}, {"Output"},
                c.attrs(), true);
  RunLoop(state, op, c.flops());
}
void FrozenConvBytes(benchmark::State& state) {
  const FrozenConv c(state);
  AttrList attrs = c.attrs();
  attrs.push_back({"out_dtype", static_cast<int32_t>(DType::kUInt8)});
  PreparedOp op("quantized_conv2d",
                {{"Input", c.input(), DType::kUInt8},
                 {"InputScale", {1}},
                 {"Filter", c.filter(), DType::kInt8},
                 {"FilterScale", {c.filters}},
                 {"Bias", {c.filters}},
                 {"OutScale", {1}}},
                {"Output"}, attrs, true);
  RunLoop(state, op, c.flops());
}

void FrozenConvShapes(benchmark::internal::Benchmark* b) {
  b->Args({3, 224, 64, 7, 2, 1});
  b->Args({64, 56, 64, 3, 1, 1});
  b->Args({128, 28, 128, 3, 1, 1});
  b->Args({256, 14, 256, 3, 1, 1});
  b->Args({512, 7, 512, 3, 1, 1});
  b->Args({64, 56, 256, 1, 1, 1});
  b->Args({512, 28, 128, 1, 1, 1});
  b->Args({1024, 14, 256, 1, 1, 1});
  b->Args({144, 56, 144, 3, 1, 144});
  b->Args({384, 14, 384, 3, 1, 384});
  b->UseRealTime()->Unit(benchmark::kMicrosecond)->MinTime(0.1);
}
BENCHMARK(FrozenConvFloat)->Apply(FrozenConvShapes);
BENCHMARK(FrozenConvBytes)->Apply(FrozenConvShapes);

const AttrList kPool = {{"pooling_type", std::string("max")},
                        {"ksize", std::vector<int32_t>{2, 2}},
                        {"strides", std::vector<int32_t>{2, 2}},
                        {"data_format", std::string("NHWC")}};

// Args: batch, size, channels.
void MaxPool(benchmark::State& state) {
  PreparedOp op("pool2d", {{"X", {state.range(0), state.range(1), state.range(1), state.range(2)}}},
                {"Out"}, kPool);
  RunLoop(state, op, 0);
}
void MaxPoolGrad(benchmark::State& state) {
  const int64_t n = state.range(0), in = state.range(1), out = in / 2, c = state.range(2);
  PreparedOp op("pool2d_grad",
                {{"X", {n, in, in, c}}, {"Out", {n, out, out, c}}, {"Out@GRAD", {n, out, out, c}}},
                {"X@GRAD"}, kPool);
  RunLoop(state, op, 0);
}
void PoolShapes(benchmark::internal::Benchmark* b) {
  b->Args({64, 24, 20})->Args({64, 8, 50})->UseRealTime()->Unit(benchmark::kMicrosecond);
  b->MinTime(0.1);
}
BENCHMARK(MaxPool)->Apply(PoolShapes);
BENCHMARK(MaxPoolGrad)->Apply(PoolShapes);

// Args: batch, size, channels. Channels last.
void BatchNorm(benchmark::State& state) {
  const int64_t c = state.range(2);
  PreparedOp op("batch_norm",
                {{"X", {state.range(0), state.range(1), state.range(1), c}},
                 {"Scale", {c}},
                 {"Bias", {c}},
                 {"Mean", {c}},
                 {"Variance", {c}}},
                {"Y", "MeanOut", "VarianceOut", "SavedMean", "SavedVariance"},
                {{"data_layout", std::string("NHWC")}});
  RunLoop(state, op, 0);
}
void BatchNormGrad(benchmark::State& state) {
  const int64_t n = state.range(0), s = state.range(1), c = state.range(2);
  PreparedOp op("batch_norm_grad",
                {{"X", {n, s, s, c}},
                 {"Scale", {c}},
                 {"SavedMean", {c}},
                 {"SavedVariance", {c}},
                 {"Y@GRAD", {n, s, s, c}}},
                {"X@GRAD", "Scale@GRAD", "Bias@GRAD"}, {{"data_layout", std::string("NHWC")}});
  RunLoop(state, op, 0);
}
void NormShapes(benchmark::internal::Benchmark* b) {
  b->Args({64, 32, 16})->Args({64, 8, 64})->Args({8, 64, 64})->UseRealTime();
  b->Unit(benchmark::kMicrosecond)->MinTime(0.1);
}
BENCHMARK(BatchNorm)->Apply(NormShapes);
BENCHMARK(BatchNormGrad)->Apply(NormShapes);

// Args: rows, columns.
void LayerNorm(benchmark::State& state) {
  const int64_t columns = state.range(1);
  PreparedOp op("layer_norm",
                {{"X", {state.range(0), columns}}, {"Scale", {columns}}, {"Bias", {columns}}},
                {"Y", "Mean", "Variance"}, {});
  RunLoop(state, op, 0);
}
void LayerNormGrad(benchmark::State& state) {
  const int64_t rows = state.range(0), columns = state.range(1);
  PreparedOp op("layer_norm_grad",
                {{"X", {rows, columns}},
                 {"Scale", {columns}},
                 {"Mean", {rows}},
                 {"Variance", {rows}},
                 {"Y@GRAD", {rows, columns}}},
                {"X@GRAD", "Scale@GRAD", "Bias@GRAD"}, {});
  RunLoop(state, op, 0);
}
BENCHMARK(LayerNorm)->Args({1024, 256})->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(LayerNormGrad)->Args({1024, 256})->UseRealTime()->Unit(benchmark::kMicrosecond);

// Ops on images, forward and backward. Inputs are float32.
struct ImageOp {
  std::string name, type;
  std::vector<PreparedOp::In> inputs;
  std::vector<std::string> outputs;
  AttrList attrs;
};

std::vector<ImageOp> ImageOps() {
  const AttrList groups = {{"groups", 32}},
                 twice = {
                     {"out_h", 112}, {"out_w", 112}, {"align_corners", false}, {"align_mode", 0}};
  const auto last = [](AttrList attrs) {
    attrs.push_back({"data_layout", std::string("NHWC")});
    return attrs;
  };
  const Shape x{16, 64, 56, 56}, nhwc{16, 56, 56, 64}, small{8, 64, 56, 56}, large{8, 64, 112, 112};
  const Shape small_nhwc{8, 56, 56, 64}, large_nhwc{8, 112, 112, 64}, grid{8, 56, 56, 2};
  const std::vector<int32_t> two = {2, 2}, one = {1, 1}, three = {3, 3};
  const std::vector<int32_t> around = {1, 1, 1, 1};
  const AttrList unfold = {
      {"kernel_sizes", three}, {"strides", one}, {"paddings", around}, {"dilations", one}};
  const AttrList padded = {{"paddings", one}};
  const Shape offset{8, 18, 56, 56}, mask{8, 9, 56, 56}, filter{64, 64, 3, 3};
  std::vector<ImageOp> ops = {
      {"group_norm", "group_norm", {{"X", x}, {"Scale", {64}}, {"Bias", {64}}}, {"Y"}, groups},
      {"group_norm_grad",
       "group_norm_grad",
       {{"X", x}, {"Scale", {64}}, {"Bias", {64}}, {"Y@GRAD", x}},
       {"X@GRAD", "Scale@GRAD", "Bias@GRAD"},
       groups},
      {"nhwc", "group_norm", {{"X", nhwc}, {"Scale", {64}}, {"Bias", {64}}}, {"Y"}, last(groups)},
      {"nhwc",
       "group_norm_grad",
       {{"X", nhwc}, {"Scale", {64}}, {"Bias", {64}}, {"Y@GRAD", nhwc}},
       {"X@GRAD", "Scale@GRAD", "Bias@GRAD"},
       last(groups)},
      {"instance_norm", "instance_norm", {{"X", x}}, {"Y", "SavedMean", "SavedVariance"}, {}},
      {"instance_norm_grad",
       "instance_norm_grad",
       {{"X", x}, {"SavedMean", {1024}}, {"SavedVariance", {1024}}, {"Y@GRAD", x}},
       {"X@GRAD"},
       {}},
      {"lrn", "lrn", {{"X", small}}, {"Out", "MidOut"}, {}},
      {"lrn_grad",
       "lrn_grad",
       {{"X", small}, {"Out", small}, {"MidOut", small}, {"Out@GRAD", small}},
       {"X@GRAD"},
       {}},
      {"affine_channel",
       "affine_channel",
       {{"X", x}, {"Scale", {64}}, {"Bias", {64}}},
       {"Out"},
       {}},
      {"grid_sampler", "grid_sampler", {{"X", small}, {"Grid", grid}}, {"Output"}, {}},
      {"grid_sampler_grad",
       "grid_sampler_grad",
       {{"X", small}, {"Grid", grid}, {"Output@GRAD", small}},
       {"X@GRAD", "Grid@GRAD"},
       {}},
      {"maxout", "maxout", {{"X", x}}, {"Out"}, {{"groups", 2}}},
      {"maxout_grad",
       "maxout_grad",
       {{"X", x}, {"Out@GRAD", {16, 32, 56, 56}}},
       {"X@GRAD"},
       {{"groups", 2}}},
      {"unfold", "unfold", {{"X", small}}, {"Y"}, unfold},
      {"unfold_grad",
       "unfold_grad",
       {{"X", small}, {"Y@GRAD", {8, 576, 3136}}},
       {"X@GRAD"},
       unfold},
      {"pad2d", "pad2d", {{"X", x}}, {"Out"}, {{"paddings", around}}},
      {"pad2d_grad",
       "pad2d_grad",
       {{"X", x}, {"Out@GRAD", {16, 64, 58, 58}}},
       {"X@GRAD"},
       {{"paddings", around}}},
      {"pixel_shuffle", "pixel_shuffle", {{"X", x}}, {"Out"}, {{"upscale_factor", 2}}},
      {"pixel_shuffle_grad",
       "pixel_shuffle_grad",
       {{"X", x}, {"Out@GRAD", {16, 16, 112, 112}}},
       {"X@GRAD"},
       {{"upscale_factor", 2}}},
      {"space_to_depth", "space_to_depth", {{"X", x}}, {"Out"}, {}},
      {"shuffle_channel", "shuffle_channel", {{"X", x}}, {"Out"}, {{"group", 4}}},
      {"temporal_shift", "temporal_shift", {{"X", x}}, {"Out"}, {{"seg_num", 4}}},
      {"deformable_conv",
       "deformable_conv",
       {{"Input", small}, {"Offset", offset}, {"Mask", mask}, {"Filter", filter}},
       {"Output"},
       padded},
      {"deformable_conv_grad",
       "deformable_conv_grad",
       {{"Input", small},
        {"Offset", offset},
        {"Mask", mask},
        {"Filter", filter},
        {"Output@GRAD", small}},
       {"Input@GRAD", "Offset@GRAD", "Mask@GRAD", "Filter@GRAD"},
       padded},
  };
  for (const std::string name : {"nearest", "bilinear", "bicubic"}) {
    const std::string type = name + "_interp_v2", back = type + "_grad";
    ops.push_back({name, type, {{"X", small}}, {"Out"}, twice});
    ops.push_back({name, back, {{"X", small}, {"Out@GRAD", large}}, {"X@GRAD"}, twice});
    ops.push_back({name + "_nhwc", type, {{"X", small_nhwc}}, {"Out"}, last(twice)});
    ops.push_back({name + "_nhwc",
                   back,
                   {{"X", small_nhwc}, {"Out@GRAD", large_nhwc}},
                   {"X@GRAD"},
                   last(twice)});
  }
  const std::pair<const char*, Shape> slopes[] = {
      {"all", {1}}, {"channel", {64}}, {"element", {64, 56, 56}}};
  for (const auto& [mode, alpha] : slopes) {
    const AttrList attrs = {{"mode", std::string(mode)}};
    ops.push_back({mode, "prelu", {{"X", x}, {"Alpha", alpha}}, {"Out"}, attrs});
    ops.push_back({mode,
                   "prelu_grad",
                   {{"X", x}, {"Alpha", alpha}, {"Out@GRAD", x}},
                   {"X@GRAD", "Alpha@GRAD"},
                   attrs});
  }
  return ops;
}
const bool kImageOpsAreRegistered = [] {
  for (const ImageOp& row : ImageOps()) {
    benchmark::RegisterBenchmark(("Image/" + row.type + "/" + row.name).c_str(),
                                 [row](benchmark::State& state) {
                                   PreparedOp op(row.type, row.inputs, row.outputs, row.attrs);
                                   RunLoop(state, op, 0);
                                 })
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond)
        ->MinTime(0.1);
  }
  return true;
}();

// Args: rows, columns.
void Argsort(benchmark::State& state) {
  PreparedOp op("argsort", {{"X", {state.range(0), state.range(1)}}}, {"Out", "Indices"}, {});
  RunLoop(state, op, 0);
}
void TopK(benchmark::State& state) {
  PreparedOp op("top_k", {{"X", {state.range(0), state.range(1)}}}, {"Out", "Indices"},
                {{"k", static_cast<int32_t>(state.range(2))}});
  RunLoop(state, op, 0);
}
// Args: boxes of both inputs.
void IouSimilarity(benchmark::State& state) {
  const Shape boxes{state.range(0), 4};
  PreparedOp op("iou_similarity", {{"X", boxes}, {"Y", boxes}}, {"Out"}, {});
  RunLoop(state, op, 0);
}
BENCHMARK(Argsort)->Args({64, 10000})->Args({10000, 64})->UseRealTime()->MinTime(0.1);
BENCHMARK(TopK)->Args({64, 10000, 10})->Args({64, 10000, 2000})->UseRealTime()->MinTime(0.1);
BENCHMARK(IouSimilarity)->Args({1000})->UseRealTime()->MinTime(0.1);

}  // namespace
}  // namespace coracle

BENCHMARK_MAIN();
