#pragma once
// Programs of ops on sequences, fed with one sequence by LoD.

#include <coracle/convert/models.h>
#include <coracle/coracle.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/framework/op/op_context.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace coracle::one_sequence {

inline Tensor Drawn(const Shape& shape) {
  Tensor value(DType::kFloat64, shape);
  static int drawn = 0;
  for (double& x : value.span<double>()) x = std::sin(1.7 * ++drawn);
  return value.Cast(DType::kFloat32);
}

struct Net {
  ProgramDesc program;
  Scope scope;
  std::map<std::string, Tensor> feeds;

  // `rows` rows are fed; with a LoD level they are one sequence.
  void Data(const std::string& name, const Shape& shape, int lod_level, int64_t rows) {
    VarDesc& var = program.Root().Var(name);
    var.SetDType(DType::kFloat32);
    var.SetShape(shape);
    var.SetLoDLevel(lod_level);
    Shape fed = shape;
    fed[0] = rows;
    Tensor value = Drawn(fed);
    if (lod_level == 1) value.lod() = {{0, static_cast<uint64_t>(rows)}};
    feeds[name] = std::move(value);
  }
  void Parameter(const std::string& name, const Shape& shape) {
    VarDesc& var = program.Root().Var(name);
    var.SetDType(DType::kFloat32);
    var.SetShape(shape);
    var.SetPersistable(true);
    scope.Set(name, Drawn(shape));
  }
  void Append(const std::string& type, SlotList in, SlotList out, AttrList attrs = {}) {
    for (const Slot& slot : out)
      for (const std::string& name : slot.args) program.Root().Var(name);
    OpDesc& op = program.Root().AppendOp(type, std::move(in), std::move(out), std::move(attrs));
    InferOp(program.Root(), op, DefaultOps());
  }
  void Fetch(const std::vector<std::string>& fetches) {
    std::vector<std::string> names;
    for (const auto& [name, value] : feeds) names.push_back(name);
    SetFeedsAndFetches(program, names, fetches);
  }
  std::vector<Tensor> Run() const {
    Scope own = scope.Clone();
    return Executor().Run(program, own, feeds, {});
  }
};

inline void ExpectNear(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.shape(), want.shape());
  ASSERT_EQ(got.dtype(), want.dtype());
  const Tensor a = got.Cast(DType::kFloat64), b = want.Cast(DType::kFloat64);
  for (int64_t i = 0; i < a.numel(); ++i)
    EXPECT_NEAR(a.data<double>()[i], b.data<double>()[i], 1e-5) << i;
}

inline std::vector<Net> GruNets() {
  std::vector<Net> nets;
  for (int variant = 0; variant < 8; ++variant) {
    const bool start = (variant & 1) > 0, reverse = (variant & 2) > 0, origin = (variant & 4) > 0;
    Net net;
    net.Data("x", {-1, 9}, 1, 5);
    net.Parameter("w", {3, 9});
    SlotList in = {{"Input", {"x"}}, {"Weight", {"w"}}};
    if (start) {
      net.Data("h0", {1, 3}, 0, 1);
      net.Parameter("b", {1, 9});
      in.push_back({"H0", {"h0"}});
      in.push_back({"Bias", {"b"}});
    }
    net.Append("gru", std::move(in),
               {{"BatchGate", {"g"}},
                {"BatchResetHiddenPrev", {"r"}},
                {"BatchHidden", {"bh"}},
                {"Hidden", {"h"}}},
               {{"is_reverse", reverse},
                {"origin_mode", origin},
                {"activation", std::string(reverse ? "relu" : "tanh")}});
    net.Fetch({"h"});
    nets.push_back(std::move(net));
  }
  return nets;
}

inline std::vector<Net> LstmNets() {
  std::vector<Net> nets;
  for (int variant = 0; variant < 8; ++variant) {
    const bool start = (variant & 1) > 0, reverse = (variant & 2) > 0, holes = (variant & 4) > 0;
    Net net;
    net.Data("x", {-1, 12}, 1, 5);
    net.Parameter("w", {3, 12});
    net.Parameter("b", {1, holes ? 21 : 12});
    SlotList in = {{"Input", {"x"}}, {"Weight", {"w"}}, {"Bias", {"b"}}};
    if (start) {
      net.Data("h0", {1, 3}, 0, 1);
      net.Data("c0", {1, 3}, 0, 1);
      in.push_back({"H0", {"h0"}});
      in.push_back({"C0", {"c0"}});
    }
    net.Append(
        "lstm", std::move(in),
        {{"Hidden", {"h"}}, {"Cell", {"c"}}, {"BatchGate", {"g"}}, {"BatchCellPreAct", {"p"}}},
        {{"is_reverse", reverse},
         {"use_peepholes", holes},
         {"candidate_activation", std::string(holes ? "relu" : "tanh")},
         {"cell_activation", std::string(start ? "identity" : "tanh")}});
    net.Fetch({"h", "c"});
    nets.push_back(std::move(net));
  }
  return nets;
}

// Projections, with and without clips.
inline std::vector<Net> LstmpNets() {
  std::vector<Net> nets;
  for (int variant = 0; variant < 8; ++variant) {
    const bool start = (variant & 1) > 0, reverse = (variant & 2) > 0, clips = (variant & 4) > 0;
    Net net;
    net.Data("x", {-1, 12}, 1, 5);
    net.Parameter("w", {2, 12});
    net.Parameter("p", {3, 2});
    net.Parameter("b", {1, start ? 21 : 12});
    SlotList in = {{"Input", {"x"}}, {"Weight", {"w"}}, {"ProjWeight", {"p"}}, {"Bias", {"b"}}};
    if (start) {
      net.Data("h0", {1, 2}, 0, 1);
      net.Data("c0", {1, 3}, 0, 1);
      in.push_back({"H0", {"h0"}});
      in.push_back({"C0", {"c0"}});
    }
    net.Append("lstmp", std::move(in),
               {{"Projection", {"r"}},
                {"Cell", {"c"}},
                {"BatchGate", {"g"}},
                {"BatchCellPreAct", {"a"}},
                {"BatchHidden", {"h"}}},
               {{"is_reverse", reverse},
                {"use_peepholes", start},
                {"proj_activation", std::string(reverse ? "identity" : "tanh")},
                {"cell_clip", clips ? 0.4f : 0.0f},
                {"proj_clip", clips ? 0.2f : 0.0f}});
    net.Fetch({"r", "c"});
    nets.push_back(std::move(net));
  }
  return nets;
}

// Sequences as rows of a batch, and back; other sequences for the same rows.
inline std::vector<Net> PadNets() {
  std::vector<Net> nets;
  for (const int32_t length : {-1, 5, 7}) {
    for (const bool of_row : {false, true}) {
      Net net;
      net.Data("x", {-1, 3}, 1, 5);
      net.Parameter("v", of_row ? Shape{3} : Shape{1});
      net.Append("sequence_pad", {{"X", {"x"}}, {"PadValue", {"v"}}},
                 {{"Out", {"pad"}}, {"Length", {"n"}}}, {{"padded_length", length}});
      net.Append("scale", {{"X", {"pad"}}}, {{"Out", {"y"}}}, {{"scale", 2.0f}});
      net.Append("sequence_unpad", {{"X", {"y"}}, {"Length", {"n"}}}, {{"Out", {"back"}}});
      net.Append("sequence_pool", {{"X", {"back"}}}, {{"Out", {"sum"}}},
                 {{"pooltype", std::string("SUM")}});
      net.Fetch({"y", "n", "back", "sum"});
      nets.push_back(std::move(net));
    }
  }
  for (const bool by_y : {false, true}) {
    Net net;
    net.Data("x", {-1, 3}, 0, 5);
    SlotList in = {{"X", {"x"}}};
    if (by_y) {
      net.Data("y", {-1, 2}, 1, 5);
      in.push_back({"Y", {"y"}});
    }
    net.Append("lod_reset", std::move(in), {{"Out", {"z"}}},
               {{"target_lod", by_y ? std::vector<int32_t>{} : std::vector<int32_t>{0, 5}}});
    net.Append("sequence_pool", {{"X", {"z"}}}, {{"Out", {"sum"}}},
               {{"pooltype", std::string("SQRT")}});
    net.Fetch({"z", "sum"});
    nets.push_back(std::move(net));
  }
  return nets;
}

// Pools of each type; contexts with and without rows of padding; ops that move rows.
inline std::vector<Net> RowNets() {
  std::vector<Net> nets;
  for (const char* type : {"SUM", "AVERAGE", "SQRT", "MAX", "FIRST", "LAST"}) {
    for (const int64_t rows : {5, 1, 0}) {
      if (rows == 0 && type == std::string("MAX")) continue;  // ONNX has no maximum of no rows
      Net net;
      net.Data("x", {-1, 4}, 1, rows);
      net.Append("sequence_pool", {{"X", {"x"}}}, {{"Out", {"pool"}}, {"MaxIndex", {"index"}}},
                 {{"pooltype", std::string(type)}, {"pad_value", 0.5f}});
      net.Append("scale", {{"X", {"pool"}}}, {{"Out", {"scaled"}}}, {{"scale", 2.0f}});
      net.Append("sequence_expand", {{"X", {"scaled"}}, {"Y", {"x"}}}, {{"Out", {"again"}}});
      net.Append("sequence_expand_as", {{"X", {"pool"}}, {"Y", {"x"}}}, {{"Out", {"as"}}});
      net.Fetch({"pool", "again", "as"});
      nets.push_back(std::move(net));
    }
  }
  for (const auto& [length, start, trained] :
       {std::tuple{3, -1, false}, std::tuple{3, -1, true}, std::tuple{2, 1, false},
        std::tuple{2, -3, true}, std::tuple{1, 0, false}}) {
    Net net;
    net.Data("x", {-1, 4}, 1, 5);
    net.Parameter("w", {length * 4, 2});
    SlotList in = {{"X", {"x"}}, {"Filter", {"w"}}};
    if (trained) {
      net.Parameter("p", {std::max(0, -start) + std::max(0, start + length - 1), 4});
      in.push_back({"PaddingData", {"p"}});
    }
    net.Append("sequence_conv", std::move(in), {{"Out", {"y"}}},
               {{"contextLength", int32_t{length}},
                {"contextStart", int32_t{start}},
                {"paddingTrainable", trained}});
    net.Append("sequence_reverse", {{"X", {"y"}}}, {{"Y", {"back"}}});
    net.Append("sequence_concat", {{"X", {"y", "back"}}}, {{"Out", {"both"}}});
    net.Fetch({"y", "both"});
    nets.push_back(std::move(net));
  }
  Net net;
  net.Data("x", {-1, 1}, 1, 5);
  net.Append("sequence_softmax", {{"X", {"x"}}}, {{"Out", {"y"}}});
  net.Fetch({"y"});
  nets.push_back(std::move(net));
  return nets;
}

inline std::vector<Net> TagNets() {
  std::vector<Net> nets;
  for (const bool labelled : {false, true}) {
    Net net;
    net.Data("x", {-1, 3}, 1, 6);
    net.Parameter("t", {5, 3});
    SlotList in = {{"Emission", {"x"}}, {"Transition", {"t"}}};
    if (labelled) {
      net.Data("label", {-1, 1}, 1, 6);
      VarDesc& var = *net.program.Root().FindVar("label");
      var.SetDType(DType::kInt64);
      Tensor label = Tensor::Of<int64_t>({6, 1}, {0, 1, 2, 0, 1, 2});
      label.lod() = {{0, 6}};
      net.feeds["label"] = std::move(label);
      in.push_back({"Label", {"label"}});
    }
    net.Append("crf_decoding", std::move(in), {{"ViterbiPath", {"path"}}});
    net.Fetch({"path"});
    nets.push_back(std::move(net));
  }
  return nets;
}

}  // namespace coracle::one_sequence
