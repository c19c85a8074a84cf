// Ops on sequences, with inputs of their own.

#include <coracle/test/fuzz/program_maker.h>

namespace coracle {

void ProgramMaker::AddSequences() {
  ProgramInput x;
  x.name = NewName("in");
  uint64_t rows = 0;
  x.lod = {{0}};
  for (size_t n = 1 + choose_.Below(3); n > 0; --n)
    x.lod[0].push_back(rows += 1 + choose_.Below(3));
  const int64_t width = 1 + static_cast<int64_t>(choose_.Below(3));
  x.meta = {VarType::kLoDTensor, DType::kFloat32, {static_cast<int64_t>(rows), width}, 1};
  AddInput(x);
  const std::string table = NewName("table"), array = NewName("array");
  block().Var(table).SetType(VarType::kLoDRankTable);
  net_.Append("lod_rank_table", {{"X", {x.name}}}, {{"Out", {table}}});
  block().Var(array).SetMeta({VarType::kLoDTensorArray, DType::kFloat32, {}, 0});
  net_.Append("lod_tensor_to_array", {{"X", {x.name}}, {"RankTable", {table}}}, {{"Out", {array}}});
  live_.push_back({array});
  net_.Append("max_sequence_len", {{"RankTable", {table}}}, {{"Out", {NewName("v")}}});
  const auto sequences = static_cast<int64_t>(x.lod[0].size()) - 1;
  ProgramInput memory;
  memory.name = NewName("in");
  memory.meta = {VarType::kLoDTensor, DType::kFloat32, {sequences, width}, 0};
  AddInput(memory);
  const Variable step = FillConstant(net_, {1}, DType::kInt64, 1);
  const std::string shrunk = NewName("v"), joined = NewName("v"), sorted = NewName("v");
  const std::string whole = NewName("v");
  net_.Append("shrink_rnn_memory",
              {{"X", {memory.name}}, {"RankTable", {table}}, {"I", {step.name()}}},
              {{"Out", {shrunk}}});
  net_.Append("array_to_lod_tensor", {{"X", {array}}, {"RankTable", {table}}}, {{"Out", {joined}}});
  net_.Append("reorder_lod_tensor_by_rank",
              {{"X", {choose_.OneIn(2) ? memory.name : joined}}, {"RankTable", {table}}},
              {{"Out", {sorted}}});
  net_.Append("tensor_array_to_tensor", {{"X", {array}}},
              {{"Out", {whole}}, {"OutIndex", {NewName("v")}}});
  for (const std::string& name : {shrunk, joined, sorted, whole}) live_.push_back({name});
}

void ProgramMaker::AddBeams() {
  AddSequenceOp("beam_search");
  const OpDesc search = block().op(block().NumOps() - 1);
  const Variable zero = FillConstant(net_, {1}, DType::kInt64, 0);
  const auto array_of = [&](const char* slot, DType dtype) {
    const std::string array = NewName("array"), from = search.Output(slot)[0];
    block().Var(array).SetMeta({VarType::kLoDTensorArray, dtype, {}, 0});
    net_.Append("write_to_array", {{"X", {from}}, {"I", {zero.name()}}}, {{"Out", {array}}});
    return array;
  };
  const std::string ids = array_of("selected_ids", DType::kInt64);
  const std::string scores = array_of("selected_scores", DType::kFloat32);
  net_.Append("beam_search_decode", {{"Ids", {ids}}, {"Scores", {scores}}},
              {{"SentenceIds", {NewName("v")}}, {"SentenceScores", {NewName("v")}}},
              {{"beam_size", int32_t{2}}, {"end_id", int32_t{0}}});
}

std::string ProgramMaker::SequenceInput(const std::vector<uint64_t>& lengths, int64_t width,
                                        int64_t limit) {
  ProgramInput input;
  input.name = NewName("in");
  input.lod = {{0}};
  for (uint64_t length : lengths) input.lod[0].push_back(input.lod[0].back() + length);
  input.meta = {VarType::kLoDTensor,
                limit > 0 ? DType::kInt64 : DType::kFloat32,
                {static_cast<int64_t>(input.lod[0].back()), width},
                1};
  input.limit = limit;
  AddInput(input);
  return input.name;
}

std::string ProgramMaker::PlainInput(const Shape& shape, int64_t limit) {
  ProgramInput input;
  input.name = NewName("in");
  input.meta = {VarType::kLoDTensor, limit > 0 ? DType::kInt64 : DType::kFloat32, shape, 0};
  input.limit = limit;
  AddInput(input);
  return input.name;
}

bool ProgramMaker::AddRecurrentInputs(const std::string& type, const std::vector<uint64_t>& lengths,
                                      SlotList& ins, AttrList& attrs) {
  const auto count = static_cast<int64_t>(lengths.size());
  const bool lstm = type.find("lstm") != type.npos, peepholes = choose_.OneIn(2);
  const int64_t gates = lstm ? 8 : 6;
  const auto add = [&](const char* slot, const Shape& shape) {
    ins.push_back({slot, {PlainInput(shape)}});
  };
  if (lstm && type != "attention_lstm") attrs = {{"use_peepholes", peepholes}};
  if (type == "lstm" || type == "lstmp" || type == "gru") {
    ins = {{"Input", {SequenceInput(lengths, gates)}}};
    add("Weight", {type == "lstmp" ? 3 : 2, gates});
    if (type == "lstmp") add("ProjWeight", {2, 3});
    add("Bias", {1, lstm && peepholes ? 14 : gates});
  } else if (type == "fusion_lstm" || type == "fusion_gru" || type == "fused_embedding_fc_lstm") {
    const bool ids = type == "fused_embedding_fc_lstm";
    ins = {{ids ? "Ids" : "X", {SequenceInput(lengths, ids ? 1 : 3, ids ? 3 : 0)}}};
    add(ids ? "Embeddings" : "WeightX", {3, gates});
    add("WeightH", {2, gates});
    add("Bias", {1, lstm && peepholes ? 14 : gates});
  } else if (type == "attention_lstm") {
    ins = {{"X", {SequenceInput(lengths, 3)}}};
    add("C0", {count, 2});
    add("AttentionWeight", {5, 1});
    add("LSTMWeight", {5, 8});
    add("LSTMBias", {1, 8});
  } else if (type == "fusion_seqconv_eltadd_relu") {
    ins = {{"X", {SequenceInput(lengths, 1)}}};
    add("Filter", {3, 2});
    add("Bias", {1, 2});
    attrs = {{"contextLength", int32_t{3}}, {"contextStart", int32_t{-1}}};
  } else if (type == "fusion_seqexpand_concat_fc") {
    ins = {{"X", {SequenceInput(lengths, 1), PlainInput({count, 2})}}};
    add("FCWeight", {3, 2});
  } else if (type == "fusion_seqpool_concat") {
    ins = {{"X", {SequenceInput(lengths, 2), SequenceInput(lengths, 1)}}};
  } else if (type == "fusion_seqpool_cvm_concat") {
    ins = {{"X", {PositiveSequences(lengths, 2)}}};
    add("CVM", {count, 2});
  } else if (type == "fused_embedding_seq_pool") {
    ins = {{"W", {PlainInput({3, 2})}}, {"Ids", {SequenceInput(lengths, 1, 3)}}};
  } else {
    return false;
  }
  return true;
}

std::string ProgramMaker::PositiveSequences(const std::vector<uint64_t>& lengths, int64_t width) {
  const std::string x = SequenceInput(lengths, width), out = NewName("v");
  net_.Append("abs", {{"X", {x}}}, {{"Out", {out}}});
  return out;
}

void ProgramMaker::AddSequenceOp(const std::string& type) {
  std::vector<uint64_t> lengths;
  for (size_t n = 1 + choose_.Below(3); n > 0; --n) lengths.push_back(1 + choose_.Below(3));
  const auto count = static_cast<int64_t>(lengths.size());
  const auto rows = static_cast<int64_t>(std::accumulate(lengths.begin(), lengths.end(), 0u));
  using Ints = std::vector<int32_t>;
  SlotList ins;
  AttrList attrs;
  if (AddRecurrentInputs(type, lengths, ins, attrs)) {
  } else if (type == "sequence_mask") {
    ins = {{"X", {PlainInput({count}, 4)}}};
    attrs = {{"maxlen", int32_t{3}}, {"out_dtype", static_cast<int32_t>(DType::kFloat32)}};
  } else if (type == "sequence_erase" || type == "sequence_enumerate") {
    ins = {{"X", {SequenceInput(lengths, 1, 5)}}};
    if (type == "sequence_erase")
      attrs = {{"tokens", Ints{1, 2}}};
    else
      attrs = {{"win_size", int32_t{2}}};
  } else if (type == "sequence_unpad") {
    ins = {{"X", {PlainInput({count, 3, 2})}}, {"Length", {PlainInput({count}, 4)}}};
  } else if (type == "sequence_scatter") {
    ins = {{"X", {PlainInput({count, 3})}},
           {"Ids", {SequenceInput(lengths, 1, 3)}},
           {"Updates", {PlainInput({rows, 1})}}};
  } else if (type == "sequence_expand_as") {
    ins = {{"X", {PlainInput({count, 2})}}, {"Y", {SequenceInput(lengths, 1)}}};
  } else if (type == "beam_search") {
    ins = {{"pre_ids", {PlainInput({rows, 1}, 3)}},
           {"pre_scores", {PlainInput({rows, 1})}},
           {"scores", {SequenceInput(lengths, 3)}}};
    attrs = {{"level", int32_t{0}}, {"beam_size", int32_t{2}}, {"end_id", int32_t{0}}};
  } else if (type == "filter_by_instag") {
    ins = {{"Ins", {PlainInput({count, 2})}},
           {"Ins_tag", {SequenceInput(lengths, 1, 3)}},
           {"Filter_tag", {PlainInput({2}, 3)}}};
    attrs = {{"is_lod", false}};
  } else if (type == "match_matrix_tensor") {
    ins = {{"X", {SequenceInput(lengths, 2)}},
           {"Y", {SequenceInput(lengths, 2)}},
           {"W", {PlainInput({2, 1, 2})}}};
  } else if (type == "var_conv_2d") {
    int64_t elements = 0;
    for (uint64_t length : lengths) elements += static_cast<int64_t>(length * length);
    const std::string size = SequenceInput(lengths, 1);
    ins = {{"X", {PlainInput({elements, 1})}},
           {"ROW", {size}},
           {"COLUMN", {size}},
           {"W", {PlainInput({1, 2})}}};
    attrs = {{"KernelW", int32_t{2}}};
  } else if (type == "im2sequence") {
    ins = {{"X", {PlainInput({count, 1, 2, 2})}}};
    attrs = {{"kernels", Ints{1, 2}}};
  } else if (type == "sequence_topk_avg_pooling") {
    int64_t elements = 0;
    for (uint64_t length : lengths) elements += static_cast<int64_t>(length * length);
    const std::string size = SequenceInput(lengths, 1);
    ins = {{"X", {PlainInput({elements, 1})}}, {"ROW", {size}}, {"COLUMN", {size}}};
    attrs = {{"topks", Ints{1, 2}}, {"channel_num", int32_t{1}}};
  } else {
    const std::string x = SequenceInput(lengths, 1);
    ins = {{"X", {x}}};
    if (type == "sequence_expand") ins.push_back({"Y", {x}});
    if (type == "sequence_concat") ins[0].args.push_back(SequenceInput(lengths, 1));
    if (type == "row_conv") ins.push_back({"Filter", {PlainInput({2, 1})}});
    if (type == "sequence_pad") ins.push_back({"PadValue", {PlainInput({1})}});
    if (type == "sequence_reshape") attrs = {{"new_dim", int32_t{1}}};
    if (type == "lod_reset") attrs = {{"target_lod", Ints{0, static_cast<int32_t>(rows)}}};
    if (type == "sequence_slice") {
      ins.push_back({"Offset", {PlainInput({count, 1}, 1)}});
      ins.push_back({"Length", {PlainInput({count, 1}, 2)}});
    }
    if (type == "sequence_conv") {
      ins.push_back({"Filter", {PlainInput({3, 2})}});
      attrs = {{"contextLength", int32_t{3}}, {"contextStart", int32_t{-1}}};
    }
  }
  SlotList outs;
  std::string result;  // the first output that others may read
  for (const SlotDef& slot : DefaultOps().Get(type).outputs) {
    outs.push_back({slot.name, {NewName("v")}});
    if (result.empty() && !slot.intermediate) result = outs.back().args[0];
  }
  net_.Append(type, ins, outs, attrs);
  live_.push_back({result});
}

}  // namespace coracle
