#include <coracle/test/fuzz/api_sequences.h>
#include <coracle/test/fuzz/api_state.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace coracle {
namespace api {
namespace {

constexpr size_t kMostOps = 400;  // a sequence ends where a program has more
constexpr int kCalls = 40;

// A program that was moved from has no bytes.
std::string BytesOf(const ProgramDesc& program) {
  return program.NumBlocks() == 0 ? "" : SerializeProgram(program);
}

// State that a refused edit must leave unchanged.
class State {
 public:
  explicit State(ProgramDesc& program) : bytes_(BytesOf(program)), copy_(program) {
    for (int b = 1; b < program.NumBlocks(); ++b)
      for (size_t i = 0; i < program.Block(b).NumVars(); ++i)
        inner_names_.push_back(program.Block(b).var(i).name());
    found_ = Found(program);
  }

  // Draws names, which later names of the program depend on.
  bool IsOf(ProgramDesc& program) {
    if (bytes_ != BytesOf(program)) return false;
    if (found_ != Found(program)) return false;
    return program.NumBlocks() == 0 || Drawn(program) == Drawn(copy_);
  }

 private:
  std::vector<const VarDesc*> Found(ProgramDesc& program) const {
    std::vector<const VarDesc*> found;
    for (int b = 0; b < program.NumBlocks(); ++b)
      for (const std::string& name : inner_names_)
        found.push_back(program.Block(b).FindVarRecursive(name));
    return found;
  }
  std::vector<std::string> Drawn(ProgramDesc& program) const {
    std::vector<std::string> drawn = {program.UniqueName("tmp")};
    for (const std::string& name : inner_names_) drawn.push_back(program.FreeName(name));
    return drawn;
  }

  std::string bytes_;
  ProgramDesc copy_;
  std::vector<std::string> inner_names_;
  std::vector<const VarDesc*> found_;
};

}  // namespace

Sequence::Sequence(Choices choices, std::string in, ApiCounts* counts)
    : choose(choices), directory(std::move(in)), counts_(counts) {
  for (Net& made : nets) {
    Builder net(made.main, made.startup);
    net.Data("x", {-1, 4});
    net.Data("y", {3, 4}, DType::kFloat32, {.stop_gradient = false});
    net.Data("ids", {-1, 1}, DType::kInt64);
    net.Data("image", {-1, 2, 6, 6});
    FillConstant(net, {1}, DType::kBool, 1, "yes");
    made.names = {"x", "y", "ids", "image", "yes"};
  }
}

void Sequence::Run() {
  using Call = void (*)(Sequence&);
  constexpr Call kCallsOf[] = {CallBuilder,   CallBuilder,   CallBuilder,     CallBuilder,
                               CallFormula,   CallFormula,   CallControlFlow, EditByHand,
                               EditByHand,    CallEdit,      CallBackward,    CallBackward,
                               CallOptimizer, CallOptimizer, CallFiles,       CallExecutor,
                               CallExecutor,  CallInspect,   CallData,        MoveObjects};
  for (int i = 0; i < kCalls && !choose.empty(); ++i) {
    which = choose.OneIn(8) ? 1 : 0;
    choose.Of(kCallsOf)(*this);
    size_t ops = 0;
    for (const Net& made : nets) {
      made.main.ForEachOp([&](const OpDesc&) { ++ops; });
      made.startup.ForEachOp([&](const OpDesc&) { ++ops; });
    }
    if (ops > kMostOps) return;
  }
}

std::string Sequence::History() const { return history_; }

bool Sequence::Try(const std::string& name, const std::function<void()>& f, Edits edits) {
  history_ += name;
  std::optional<State> before[2];
  if (edits == Edits::kPrograms) before[0].emplace(main()), before[1].emplace(startup());
  // Loops that do not end, and giants.
  const ScopedLimits scoped(std::make_shared<ResourceLimits>(
      ResourceOptions{.memory = uint64_t{1} << 27, .seconds = 3}, nullptr));
  try {
    f();
    ++counts_->done[name];
    history_ += "\n";
    return true;
  } catch (const InternalError& error) {
    throw Failed{fmt::format("{}: an internal error: {}", name, error.what())};
  } catch (const Error& error) {
    ++counts_->refused[name];
    history_ += ": " + error.message() + "\n";
    const std::string& line = error.message();
    if (line.empty() || line.find('\n') != std::string::npos)
      throw Failed{fmt::format("{}: the first line must stand alone: {}", name, error.what())};
  } catch (const std::exception& error) {
    throw Failed{fmt::format("{}: {}: {}", name, typeid(error).name(), error.what())};
  }
  if (edits == Edits::kPrograms && !(before[0]->IsOf(main()) && before[1]->IsOf(startup()))) {
    throw Failed{name + ": it was refused and has changed the programs"};
  }
  return false;
}

void Sequence::NoteNames() {
  std::vector<std::string>& names = net().names;
  if (main().NumBlocks() == 0) return;
  const BlockDesc& root = main().Root();
  names.clear();
  for (size_t i = 0; i < root.NumVars(); ++i) names.push_back(root.var(i).name());
}

std::string Sequence::AnyName() {
  if (choose.OneIn(12)) return choose.Of({"", "@EMPTY@", "none", "x@GRAD", "a b\n", "fc_0.w_0"});
  return net().names.empty() ? "x" : choose.Of(net().names);
}

Variable Sequence::AnyVariable() {
  if (choose.OneIn(15)) return {};
  if (choose.OneIn(25)) {
    Net& other = nets[1 - which];
    if (other.main.NumBlocks() > 0 && other.main.Root().FindVar("x"))
      return Variable::Of(other.main.Root(), "x");
  }
  if (main().NumBlocks() == 0) return {};
  BlockDesc& root = main().Root();
  VarDesc* found = root.FindVar(AnyName());
  if (!found) return {};
  if (choose.OneIn(6)) return {&root, found};  // without a Writer
  Variable made = Writer(root, DefaultOps()).Var(root, *found);
  if (!choose.OneIn(20)) return made;
  Variable moved = std::move(made);
  return made;  // NOLINT(bugprone-use-after-move): that is what is tested
}

std::vector<Variable> Sequence::AnyVariables(size_t most) {
  std::vector<Variable> all(choose.Below(most + 1));
  for (Variable& one : all) one = AnyVariable();
  return all;
}

std::vector<std::string> Sequence::AnyNames(size_t most) {
  std::vector<std::string> all(choose.Below(most + 1));
  for (std::string& one : all) one = AnyName();
  return all;
}

Shape Sequence::AnyShape() {
  if (choose.OneIn(3)) return {-1, 4};
  Shape shape;
  const size_t rank = choose.Below(choose.OneIn(8) ? 10 : 4);
  for (size_t i = 0; i < rank; ++i)
    shape.Append(choose.Of<int64_t>({1, 2, 3, 4, 6, 1, 2, 0, -1, -7, int64_t{1} << 40}));
  return shape;
}

DType Sequence::AnyDType() {
  if (choose.OneIn(20)) return static_cast<DType>(choose.Of({-1, 7, 19, 99}));
  return choose.Of({DType::kFloat32, DType::kFloat32, DType::kFloat64, DType::kFloat16,
                    DType::kBFloat16, DType::kInt64, DType::kInt32, DType::kBool, DType::kUInt8,
                    DType::kComplex64});
}

double Sequence::AnyNumber() {
  return choose.Of({0.1, 0.5, 1.0, 2.0, 3.0, 0.0, -1.0, 1e-300, 1e300, -0.0,
                    std::numeric_limits<double>::quiet_NaN(),
                    std::numeric_limits<double>::infinity()});
}

Tensor Sequence::AnyTensor() {
  if (choose.OneIn(12)) return {};
  if (!tensors.empty() && choose.OneIn(3)) return choose.Of(tensors);
  Tensor made(DType::kFloat32, {1});
  Try("Tensor", [&] {
    Shape shape = AnyShape();
    for (int64_t& dim : std::span(&shape[0], static_cast<size_t>(shape.rank())))
      if (dim == -1) dim = 3;
    made = Tensor(AnyDType(), shape);
    if (made.nbytes() > 0 && made.nbytes() < 100000)
      std::fill_n(static_cast<char*>(made.raw()), made.nbytes(), 0);
  });
  if (choose.OneIn(6)) made.lod() = {{0, choose.Below(4), choose.Below(5)}};
  tensors.push_back(made);
  if (tensors.size() > 8) tensors.erase(tensors.begin());
  return made;
}

std::string Sequence::AnyOpType() {
  static const std::vector<std::string> all = DefaultOps().Types();
  return choose.OneIn(20) ? choose.Of({"", "no_such_op", "relu\n"}) : choose.Of(all);
}

Attribute Sequence::AnyAttribute() {
  switch (choose.Below(9)) {
    case 0:
      return static_cast<int32_t>(choose.Below(9)) - 3;
    case 1:
      return static_cast<float>(AnyNumber());
    case 2:
      return AnyName();
    case 3:
      return std::vector<int32_t>{1, -1, static_cast<int32_t>(choose.Below(5))};
    case 4:
      return choose.OneIn(2);
    case 5:
      return BlockRef{static_cast<int32_t>(choose.Below(6)) - 2};
    case 6:
      return int64_t{1} << choose.Below(63);
    case 7:
      return AnyNames(3);
    default:
      return AnyNumber();
  }
}

ErrorClip Sequence::AnyErrorClip() {
  switch (choose.Below(3)) {
    case 0:
      return ErrorClipByValue(AnyNumber());
    case 1:
      return ErrorClipByNorm(AnyNumber());
    default:
      return nullptr;
  }
}

std::optional<Setting> Sequence::AnyClip() {
  const GradientNormOptions norm = {.norm_type = choose.Of({2.0, 1.0, 3.0, AnyNumber()}),
                                    .non_finite = static_cast<NonFinite>(choose.Below(4))};
  switch (choose.Below(7)) {
    case 0:
      return ClipGradByValue(AnyNumber(), AnyNumber());
    case 1:
      return ClipGradByNorm(AnyNumber(), norm);
    case 2:
      return ClipGradByGlobalNorm(AnyNumber(), choose.Of({"", "a", "default_group"}), norm);
    case 3:
      return AdaptiveGradientClip({.clip_factor = AnyNumber(), .epsilon = AnyNumber()});
    case 4:
      return NoGradientClip();
    case 5:
      return Setting{choose.Of({"by_value", "by_norm", "none", "zzz"}), {{"max", AnyAttribute()}}};
    default:
      return std::nullopt;
  }
}

}  // namespace api

std::optional<std::string> RunApiSequence(Choices choices, const std::string& directory,
                                          ApiCounts* counts) {
  api::Sequence sequence(choices, directory, counts);
  try {
    sequence.Run();
  } catch (const api::Failed& failed) {
    return failed.what + "\nafter\n" + sequence.History();
  } catch (const std::exception& error) {
    return std::string("between calls: ") + error.what() + "\nafter\n" + sequence.History();
  }
  return std::nullopt;
}

}  // namespace coracle
