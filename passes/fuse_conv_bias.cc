#include <coracle/framework/op/recomputed.h>
#include <coracle/passes/pass.h>

#include <span>
#include <unordered_map>

namespace coracle {
namespace {

bool IsConv(const OpDesc& op) { return op.type() == "conv2d" || op.type() == "depthwise_conv2d"; }

// The parts of conv -> add (-> add_grad -> conv_grad) around one convolution.
struct Match {
  OpDesc* add = nullptr;
  OpDesc* add_grad = nullptr;
  OpDesc* conv_grad = nullptr;
};

class ConvBiasFuser {
 public:
  ConvBiasFuser(ProgramDesc& program, const PassContext& context)
      : context_(context), block_(program.Root()) {}

  void Run() {
    NoteCopies();
    std::vector<std::pair<OpDesc*, Match>> found;
    for (size_t i = 0; i < block_.NumOps(); ++i) {
      Match match;
      if (IsConv(block_.op(i)) && Find(block_.op(i), &match))
        found.emplace_back(&block_.op(i), match);
    }
    for (auto& [conv, match] : found) Fuse(*conv, match);
    block_.RemoveOpsIf([&](const OpDesc& op) { return removed_.count(&op) > 0; });
  }

 private:
  const std::string& Only(const std::vector<std::string>& args) const {
    static const std::string none;
    return args.size() == 1 ? args[0] : none;
  }

  // What recomputed ops write holds the bits of what their originals wrote.
  void NoteCopies() {
    block_.ForEachOp([&](const OpDesc& op) {
      const Attribute* attr = op.FindAttr(kRecomputedFromAttr);
      const auto* from = attr ? std::get_if<std::vector<std::string>>(attr) : nullptr;
      if (!from) return;
      size_t at = 0;
      ForEachPosition(op.outputs(), [&](const std::string& name) {
        if (at < from->size()) original_.emplace(name, (*from)[at]);
        ++at;
      });
    });
  }
  const std::string& Original(const std::string& name) const {
    auto it = original_.find(name);
    return it == original_.end() ? name : it->second;
  }

  bool WrittenOnce(const std::string& name) const { return block_.Uses(name).writers.size() == 1; }
  // Made and read inside the block only: nobody sees whether it exists.
  bool IsPrivate(const std::string& name) const {
    return !name.empty() && WrittenOnce(name) && !context_.IsVisible(block_, name);
  }

  // One number for each filter: a shorter one would be broadcast, a longer one would broadcast the
  // product.
  bool IsChannelBias(const OpDesc& conv, const OpDesc& add, const std::string& bias) const {
    const VarDesc* var = block_.FindVarRecursive(bias);
    const VarDesc* filter = block_.FindVarRecursive(Only(conv.Input("Filter")));
    return var && filter && var->shape().rank() == 1 && filter->shape().rank() > 0 &&
           var->shape()[0] > 0 && var->shape()[0] == filter->shape()[0] &&
           add.GetAttr<int32_t>("axis", -1) == 1;
  }

  bool Find(OpDesc& conv, Match* match) const {
    if (conv.HasInput("Bias") || conv.HasInput("ResidualData")) return false;
    if (conv.GetAttr<std::string>("data_format", "NCHW") == "NHWC") return false;
    const std::string& product = Only(conv.Output("Output"));
    if (!IsPrivate(product) || block_.Uses(product).readers.size() != 1) return false;
    OpDesc* add = block_.Uses(product).readers[0];
    if (add->type() != "elementwise_add" || Only(add->Input("X")) != product) return false;
    const std::string& bias = Only(add->Input("Y"));
    if (bias == product || !IsChannelBias(conv, *add, bias)) return false;
    if (!WrittenOnce(Only(add->Output("Out"))) || Rewritten(conv, *add)) return false;
    match->add = add;
    FindGradient(conv, bias, match);
    return true;
  }

  static bool AnyBetween(const BlockDesc& block, std::span<const OpDesc* const> ops,
                         const OpDesc& from, const OpDesc& to) {
    for (const OpDesc* op : ops) {
      size_t at = block.IndexOf(*op);
      if (at > block.IndexOf(from) && at < block.IndexOf(to)) return true;
    }
    return false;
  }

  // The convolution will run where the addition stands: what it reads must not change on the way.
  bool Rewritten(const OpDesc& conv, const OpDesc& add) const {
    return conv.AnyInput([&](const std::string& name) {
      return AnyBetween(block_, block_.Uses(name).writers, conv, add);
    });
  }

  // add_grad -> conv_grad, where nobody else reads what links them.
  void FindGradient(const OpDesc& conv, const std::string& bias, Match* match) const {
    for (OpDesc* conv_grad : block_.Uses(Only(conv.Input("Filter"))).readers) {
      if (conv_grad->type() != conv.type() + "_grad" || conv_grad->HasInput("Bias") ||
          Original(Only(conv_grad->Input("Input"))) != Original(Only(conv.Input("Input")))) {
        continue;
      }
      const std::string& link = Only(conv_grad->Input("Output@GRAD"));
      if (!IsPrivate(link) || block_.Uses(link).readers.size() != 1) continue;
      OpDesc* add_grad = block_.Uses(link).writers[0];
      if (add_grad->type() != "elementwise_add_grad" || Only(add_grad->Output("X@GRAD")) != link ||
          Only(add_grad->Input("Y")) != bias) {
        continue;
      }
      // The bias's gradient will come later than it did.
      const VarUses& bias_grad = block_.Uses(Only(add_grad->Output("Y@GRAD")));
      if (AnyBetween(block_, bias_grad.readers, *add_grad, *conv_grad) ||
          AnyBetween(block_, bias_grad.writers, *add_grad, *conv_grad)) {
        continue;
      }
      match->add_grad = add_grad;
      match->conv_grad = conv_grad;
      return;
    }
  }

  void Fuse(OpDesc& conv, const Match& match) {
    std::string bias = Only(match.add->Input("Y"));
    std::string out = Only(match.add->Output("Out"));
    // The convolution moves to where the addition stood: everything that it reads is there still.
    match.add->SetType(conv.type());
    SlotList inputs = conv.inputs();
    match.add->RemoveInput("X");
    match.add->RemoveInput("Y");
    for (const Slot& slot : inputs) match.add->SetInput(slot.name, slot.args);
    match.add->SetInput("Bias", {bias});
    match.add->RemoveOutput("Out");
    match.add->SetOutput("Output", {out});
    match.add->RemoveAttr("axis");
    for (const NamedAttr& attr : conv.attrs()) match.add->SetAttr(attr.name, attr.value);
    removed_.insert(&conv);
    if (!match.add_grad) return;
    match.conv_grad->SetInput("Output@GRAD", match.add_grad->Input("Out@GRAD"));
    match.conv_grad->SetInput("Bias", {bias});
    if (match.add_grad->HasOutput("Y@GRAD"))
      match.conv_grad->SetOutput("Bias@GRAD", match.add_grad->Output("Y@GRAD"));
    removed_.insert(match.add_grad);
  }

  const PassContext& context_;
  BlockDesc& block_;
  std::unordered_set<const OpDesc*> removed_;
  std::unordered_map<std::string, std::string> original_;  // by recomputed variable
};

}  // namespace

void FuseConvBias(ProgramDesc& program, const PassContext& context) {
  ConvBiasFuser(program, context).Run();
}

}  // namespace coracle
