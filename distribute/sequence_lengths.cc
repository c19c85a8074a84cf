#include <coracle/distribute/exchange_ops.h>
#include <coracle/distribute/part_values.h>
#include <coracle/distribute/sequence_lengths.h>
#include <coracle/framework/ir/training_stage.h>
#include <coracle/framework/op/recomputed.h>
#include <coracle/operators/operators.h>

#include <map>
#include <utility>

namespace coracle {
namespace {

// Makes the longest of all ranks before an op that needs it.
class LengthWriter {
 public:
  LengthWriter(ProgramDesc& program, const WholeValueOptions& options, OpInserter* inserter)
      : program_(program), root_(program.Root()), options_(options), inserter_(*inserter) {}

  // Of lengths, an element for each row, or of the sequences of the LoD of a tensor.
  std::string LongestOf(const std::string& x, bool lengths, const OpDesc& before) {
    std::string& whole = longest_[{x, lengths}];
    if (!whole.empty()) return whole;
    before_ = &before;
    whole = lengths ? LargestOf(x) : LongestSequenceOf(x);
    return whole = Make("c_allreduce_max", "X", whole, DType::kInt64,
                        {{"ring_id", int32_t{options_.ring_id}}});
  }

  // The op gives new values to what it writes.
  void Forget(const OpDesc& op) {
    op.ForEachOutput([&](const std::string& name) {
      longest_.erase({name, true});
      longest_.erase({name, false});
    });
  }

 private:
  std::string Make(const std::string& type, const char* slot, const std::string& x, DType dtype,
                   AttrList attrs = {}, VarType made = VarType::kLoDTensor) {
    const std::string name = program_.UniqueName("longest_sequence");
    VarDesc& var = root_.Var(name);
    var.SetMeta({made, dtype, made == VarType::kLoDTensor ? Shape{1} : Shape{}, 0});
    var.SetStopGradient(true);
    inserter_.Before(*before_,
                     MakeOp(type, {{slot, {x}}}, {{"Out", {name}}}, std::move(attrs), kForward));
    return name;
  }

  std::string LargestOf(const std::string& lengths) {
    const DType dtype = VarOf(root_, lengths).dtype();
    std::string largest = Make("reduce_max", "X", lengths, dtype,
                               {{"reduce_all", true}, {"dim", std::vector<int32_t>{0}}});
    if (IsFloating(dtype)) largest = Make("ceil", "X", largest, dtype);
    if (dtype == DType::kInt64) return largest;
    return Make("cast", "X", largest, DType::kInt64, CastAttrs(dtype, DType::kInt64));
  }

  std::string LongestSequenceOf(const std::string& x) {
    const std::string table =
        Make("lod_rank_table", "X", x, DType::kFloat32, {}, VarType::kLoDRankTable);
    return Make("max_sequence_len", "RankTable", table, DType::kInt64);
  }

  ProgramDesc& program_;
  BlockDesc& root_;
  const WholeValueOptions& options_;
  OpInserter& inserter_;
  const OpDesc* before_ = nullptr;
  // By the variable, and whether it has lengths (else sequences).
  std::map<std::pair<std::string, bool>, std::string> longest_;
};

}  // namespace

bool PadsToLongest(const OpDesc& op) {
  if (op.type() == "sequence_mask")
    return !op.HasInput("MaxLenTensor") && op.GetAttr<int32_t>("maxlen", -1) < 0;
  return op.type() == "sequence_pad" && !op.HasInput("PaddedLengthTensor") &&
         op.GetAttr<int32_t>("padded_length", -1) < 0;
}

void AgreeOnLengths(ProgramDesc& program, const WholeValueOptions& options) {
  const OpRegistry& ops = options.ops ? *options.ops : DefaultOps();
  const PartValues parts(program, ops);
  OpInserter inserter;
  LengthWriter writer(program, options, &inserter);
  std::map<std::vector<std::string>, std::string> given;  // "": none; by the outputs of the op
  program.Root().ForEachOp([&](OpDesc& op) {
    if (!PadsToLongest(op)) return writer.Forget(op);
    const bool lengths = op.type() == "sequence_mask";
    const std::string& x = op.Input("X").at(0);
    std::string longest;
    // A copy that computes the op again takes the same length.
    const auto first = given.find(op.GetAttr<std::vector<std::string>>(kRecomputedFromAttr, {}));
    if (first != given.end())
      longest = first->second;
    else if (parts.Of(x).kind != PartKind::kSame)
      longest = writer.LongestOf(x, lengths, op);
    given[OutputNames(op)] = longest;
    if (!longest.empty()) op.SetInput(lengths ? "MaxLenTensor" : "PaddedLengthTensor", {longest});
  });
  Insert(inserter, program, ops);
}

}  // namespace coracle
