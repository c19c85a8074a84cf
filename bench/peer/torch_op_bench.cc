// The peer of op_step_bench in libtorch: the same workloads, inputs, arguments and output line.
// Built only with -DCORACLE_BENCH_TORCH=ON. It includes only two headers of Coracle, which use only
// the standard library.
//   torch_op_bench --workload=NAME|NAME_train --threads=1 [--seconds=2] [--warm=0.5] [--check]
//
// Differences from op_step_bench:
// - lstm: libtorch has two biases, one for the input and one for the recurrence; the second is
//   zero, and its gradient is computed too. The sequences are packed before the timing starts.
// - warpctc: log_softmax and ctc_loss, two ops.
// - gather is index_select. scatter is index_add on rows that index_fill has zeroed, because the
//   op with overwrite=false adds up the updates of a row in its place.
// - nms: libtorch has none. This is what a user would write: a sort, then for each kept box the
//   overlap with all remaining boxes, and a mask.
#include <coracle/bench/op_workloads.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>

namespace coracle {
namespace {

using torch::Tensor;

// The rows of consecutive sequences, in the order in which libtorch packs them: the longest
// sequence first, and all rows of one time step together.
struct Packing {
  std::vector<int64_t> rows;   // in packed order
  std::vector<int64_t> sizes;  // sequences with a row at each time

  explicit Packing(const std::vector<int64_t>& lengths) {
    std::vector<size_t> order(lengths.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return lengths[a] > lengths[b]; });
    std::vector<int64_t> starts(lengths.size(), 0);
    std::partial_sum(lengths.begin(), lengths.end() - 1, starts.begin() + 1);
    for (int64_t t = 0; t < lengths[order[0]]; ++t) {
      const size_t before = rows.size();
      for (const size_t s : order)
        if (t < lengths[s]) rows.push_back(starts[s] + t);
      sizes.push_back(static_cast<int64_t>(rows.size() - before));
    }
  }
  Tensor Pack(const Tensor& t) const {
    return t.index_select(0, torch::tensor(rows, torch::kLong)).contiguous();
  }
};

// Converts [D, 4 H] (candidate, input, forget, output) to [4 H, D] (input, forget,
// candidate, output).
Tensor GatesOf(const Tensor& t) {
  const std::vector<Tensor> parts = t.chunk(4, 1);
  return torch::cat({parts[1], parts[2], parts[0], parts[3]}, 1).t().contiguous();
}

Tensor Nms(const Tensor& boxes, const Tensor& scores, double threshold) {
  Tensor order = std::get<1>(scores.sort(/*dim=*/0, /*descending=*/true));
  Tensor sorted = boxes.index_select(0, order);
  const Tensor whole = sorted;
  Tensor left = torch::arange(sorted.size(0));
  Tensor area =
      (sorted.select(1, 2) - sorted.select(1, 0)) * (sorted.select(1, 3) - sorted.select(1, 1));
  std::vector<int64_t> kept;
  while (left.size(0) > 0) {
    kept.push_back(left.data_ptr<int64_t>()[0]);
    if (left.size(0) == 1) break;
    const Tensor best = sorted[0], rest = sorted.slice(0, 1), rest_area = area.slice(0, 1);
    const Tensor low = torch::max(rest.slice(1, 0, 2), best.slice(0, 0, 2));
    const Tensor high = torch::min(rest.slice(1, 2, 4), best.slice(0, 2, 4));
    const Tensor sides = (high - low).clamp_min_(0);
    const Tensor both = sides.select(1, 0) * sides.select(1, 1);
    const Tensor overlap = both / (rest_area + area[0] - both);
    const Tensor stays = (overlap <= threshold).nonzero().squeeze(1);
    sorted = rest.index_select(0, stays);
    area = rest_area.index_select(0, stays);
    left = left.slice(0, 1).index_select(0, stays);
  }
  const Tensor rows = torch::tensor(kept, torch::kLong);
  // label, score, box
  return torch::cat({torch::zeros({rows.size(0), 1}),
                     scores.index_select(0, order.index_select(0, rows)).unsqueeze(1),
                     whole.index_select(0, rows)},
                    1);
}

class TorchOp {
 public:
  explicit TorchOp(const OpRun& run) : run_(run) {
    Drawing drawing;
    for (const OpInput& input : run.workload.inputs) {
      const bool whole = input.draw == Draw::kWhole;
      Tensor t = torch::empty(input.dims, whole ? torch::kLong : torch::kFloat);
      if (whole) {
        drawing.Fill(input, t.data_ptr<int64_t>(), t.numel());
      } else {
        drawing.Fill(input, t.data_ptr<float>(), t.numel());
      }
      in_[input.name] = t;
    }
    if (!run.workload.lengths.empty()) PrepareLstm();
    for (const OpInput& input : run.workload.inputs) {
      if (!run.train || input.draw != Draw::kWanted) continue;
      in_[input.name].requires_grad_();
      wanted_.push_back(input.name);
    }
  }

  void Step() {
    if (!run_.train) {
      const torch::NoGradGuard none;
      results_ = Results();
      return;
    }
    for (const std::string& name : wanted_) in_[name].mutable_grad().reset();
    if (in_.count("bias2")) in_["bias2"].mutable_grad().reset();
    results_ = Results();
    results_[0].backward(in_["weight"]);
  }
  void Check() {
    Step();
    const char* names[] = {"out", "indices"};
    for (size_t i = 0; i < results_.size(); ++i) Print(names[i], results_[i]);
    for (const std::string& name : wanted_) Print(name + "@GRAD", in_[name].grad());
  }

 private:
  static void Print(const std::string& name, Tensor t) {
    t = t.detach().contiguous();
    if (t.scalar_type() == torch::kLong) {
      PrintSums(name, t.data_ptr<int64_t>(), t.numel());
    } else {
      PrintSums(name, t.data_ptr<float>(), t.numel());
    }
  }

  void PrepareLstm() {
    const Packing packing(run_.workload.lengths);
    in_["x"] = packing.Pack(in_["x"]);
    if (run_.train) in_["weight"] = packing.Pack(in_["weight"]);
    sizes_ = torch::tensor(packing.sizes, torch::kLong);
    in_["w"] = GatesOf(in_["w"]);
    in_["u"] = GatesOf(in_["u"]);
    in_["bias"] = GatesOf(in_["bias"]).reshape({-1});
    in_["bias2"] = torch::zeros_like(in_["bias"]);
    if (run_.train) in_["bias2"].requires_grad_();
    const Tensor zeros = torch::zeros({1, sizes_[0].item<int64_t>(), in_["u"].size(1)});
    state_ = {zeros, zeros};
  }

  Tensor WarpCtc() {
    return torch::ctc_loss(torch::log_softmax(in_["x"], 2), in_["label"], in_["frames"],
                           in_["symbols"], /*blank=*/0, /*reduction=*/0)
        .reshape({-1, 1});
  }

  std::vector<Tensor> Results() {
    const std::string& name = run_.name;
    const Tensor& x = in_["x"];
    if (name == "conv3d") return {torch::conv3d(x, in_["filter"], {}, 1, 1)};
    if (name == "conv3d_transpose") return {torch::conv_transpose3d(x, in_["filter"], {}, 2, 1)};
    if (name == "conv2d_transpose") return {torch::conv_transpose2d(x, in_["filter"], {}, 2, 1)};
    if (name == "pool3d_max") return {torch::max_pool3d(x, {3, 3, 3}, {2, 2, 2}, {1, 1, 1})};
    if (name == "pool3d_avg")  // excludes the padding
      return {torch::avg_pool3d(x, {3, 3, 3}, {2, 2, 2}, {1, 1, 1}, false, false)};
    if (name == "attention") {
      const auto scores = torch::matmul(x, in_["keys"].transpose(2, 3)) * 0.125;
      return {torch::matmul(torch::softmax(scores, -1), in_["values"])};
    }
    if (name == "bmm") return {torch::bmm(x, in_["y"])};
    if (name == "group_norm") return {torch::group_norm(x, 32, in_["scale"], in_["bias"], 1e-5)};
    if (name == "bilinear_interp") {
      namespace F = torch::nn::functional;
      return {F::interpolate(x, F::InterpolateFuncOptions()
                                    .size(std::vector<int64_t>{112, 112})
                                    .mode(torch::kBilinear)
                                    .align_corners(false))};
    }
    if (name == "grid_sampler") return {torch::grid_sampler(x, in_["grid"], 0, 0, true)};
    if (name.find("lstm") == 0) {
      return {std::get<0>(torch::lstm(x, sizes_, state_,
                                      {in_["w"], in_["u"], in_["bias"], in_["bias2"]}, true, 1, 0.0,
                                      run_.train, false))};
    }
    if (name == "warpctc") return {WarpCtc()};
    if (name == "scatter") {
      const Tensor kept = torch::index_fill(x, 0, in_["ids"], 0);
      return {torch::index_add(kept, 0, in_["ids"], in_["updates"])};
    }
    if (name == "gather") return {torch::index_select(x, 0, in_["ids"])};
    if (name == "cumsum") return {torch::cumsum(x, 1)};
    if (name == "nms") return {Nms(in_["boxes"].select(0, 0), in_["scores"].reshape({-1}), 0.5)};
    const auto pair = name == "top_k" ? torch::topk(x, 10) : torch::sort(x, 1);
    return {std::get<0>(pair), std::get<1>(pair)};
  }

  OpRun run_;
  std::map<std::string, Tensor> in_;
  std::vector<std::string> wanted_;
  Tensor sizes_;
  std::vector<Tensor> state_, results_;
};

int Main(const Arguments& arguments) {
  const RunName name = {"libtorch", arguments.Text("workload", "conv3d"),
                        arguments.Whole("threads", 1), ProcessMiB("VmRSS")};
  torch::set_num_threads(name.threads);
  at::set_num_interop_threads(1);
  const OpRun run(name.workload);
  TorchOp op(run);
  if (arguments.Text("check", "") == "true") {
    op.Check();
    return 0;
  }
  PrintTimes(
      name,
      TimeSteps(arguments.Real("warm", 0.5), arguments.Real("seconds", 2), [&] { op.Step(); }), "");
  return 0;
}

}  // namespace
}  // namespace coracle

int main(int argc, char** argv) { return coracle::RunMain(argc, argv, coracle::Main); }
