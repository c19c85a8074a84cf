#include <coracle/backward/backward.h>
#include <coracle/framework/op/check/run_rules.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/passes/pass.h>
#include <coracle/test/completeness.h>
#include <coracle/test/guarded_op.h>
#include <coracle/test/hostile.h>
#include <coracle/test/op_test.h>
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <map>
#include <set>

namespace coracle {
namespace {

// A number for each string.
Tensor HashesOf(const Tensor& strings) {
  Tensor hashes(DType::kFloat64, strings.shape());
  for (int64_t i = 0; i < strings.numel(); ++i) {
    const size_t hash = std::hash<std::string_view>()(strings.data<StringRef>()[i].view());
    hashes.data<double>()[i] = static_cast<double>(hash >> 12);
  }
  return hashes;
}

// Complex elements give the real and imaginary parts in turn.
std::vector<double> ToDoubles(const Tensor& tensor) {
  if (tensor.dtype() == DType::kString) return ToDoubles(HashesOf(tensor));
  Tensor wide = PartsOf(tensor).Cast(DType::kFloat64);
  auto span = wide.span<double>();
  return {span.begin(), span.end()};
}

bool IsFloat(const VarValue& value) {
  const VarMeta meta = MetaOfValue(value);
  const bool elements = meta.type == VarType::kLoDTensor || meta.type == VarType::kSelectedRows;
  return elements && IsFloating(meta.dtype);
}

// The elements that change with the variable: all of a tensor, the stored ones of selected rows.
Tensor& ElementsOf(VarValue& value) {
  auto* sparse = std::get_if<SelectedRows>(&value);
  return sparse ? sparse->value : std::get<Tensor>(value);
}
const Tensor& ElementsOf(const VarValue& value) { return ElementsOf(const_cast<VarValue&>(value)); }

// The tensor in double that the value represents.
Tensor Dense(const VarValue& value) {
  const auto* sparse = std::get_if<SelectedRows>(&value);
  if (!sparse) {
    const auto& tensor = std::get<Tensor>(value);
    if (tensor.dtype() == DType::kString) return HashesOf(tensor);
    return tensor.Cast(IsComplex(tensor.dtype()) ? DType::kComplex128 : DType::kFloat64);
  }
  Tensor dense = Tensor::Zeros(DType::kFloat64, MetaOfValue(value).shape);
  const Tensor stored = sparse->value.Cast(DType::kFloat64);
  const int64_t width = stored.shape().Product(1, stored.shape().rank());
  for (size_t i = 0; i < sparse->rows.size(); ++i) {
    for (int64_t j = 0; j < width; ++j) {
      dense.data<double>()[sparse->rows[i] * width + j] +=
          stored.data<double>()[static_cast<int64_t>(i) * width + j];
    }
  }
  return dense;
}

// Elements of `dense` for the elements of `value`.
std::vector<double> GradientOfElements(const Tensor& dense, const VarValue& value) {
  const auto* sparse = std::get_if<SelectedRows>(&value);
  if (!sparse) return ToDoubles(dense);
  const int64_t width = dense.shape().Product(1, dense.shape().rank());
  std::vector<double> picked;
  for (int64_t row : sparse->rows) {
    const double* from = dense.data<double>() + row * width;
    picked.insert(picked.end(), from, from + width);
  }
  return picked;
}

void ExpectClose(const std::vector<double>& expected, const Tensor& actual, double tolerance,
                 const std::string& what) {
  std::vector<double> got = ToDoubles(actual);
  ASSERT_EQ(expected.size(), got.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(got[i])) << what << " at " << i << ": " << got[i];
    } else if (std::isinf(expected[i])) {
      EXPECT_EQ(expected[i], got[i]) << what << " at " << i;
    } else {
      EXPECT_NEAR(expected[i], got[i], tolerance * (1 + std::abs(expected[i])))
          << what << " at " << i;
    }
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace

// A program that computes outputs and (after them) gradients.
struct OpTest::Graph {
  ProgramDesc program;
  VarValues inputs;                            // of the forward op, and the output gradients
  std::map<std::string, std::string> grad_of;  // variable -> its gradient
  std::vector<std::string> outputs;  // floating-point outputs that have a gradient w in `inputs`
};

OpTest::OpTest(std::string_view type, const OpRegistry& ops) : ops_(ops), type_(type) {}
OpTest::OpTest(const OpTest&) = default;
OpTest::~OpTest() = default;

template <class T>
ListOf<T>::ListOf(std::initializer_list<T> values) : values_(values) {}
template <class T>
ListOf<T>::ListOf(const std::vector<T>& values) : values_(values) {}
template <class T>
ListOf<T>::~ListOf() = default;
template class ListOf<double>;
template class ListOf<int64_t>;

OpTest& OpTest::Attr(std::string_view name, const Attribute& value) {
  std::erase_if(attrs_, [&](const NamedAttr& attr) { return attr.name == name; });
  attrs_.push_back({std::string(name), value});
  return *this;
}

OpTest& OpTest::TensorInput(std::string_view slot, Tensor tensor) {
  int count = 0;
  for (const InputVar& var : inputs_) count += var.slot == slot;
  inputs_.push_back(
      {std::string(slot), fmt::format("{}.{}", slot, count), std::move(tensor), false, {}});
  return *this;
}

OpTest& OpTest::Lod(LoD lod) {
  inputs_.back().value.lod() = std::move(lod);
  return *this;
}

OpTest& OpTest::RowsInput(std::string_view slot, const Shape& shape, const ListOf<int64_t>& rows,
                          const ListOf<double>& values) {
  Shape stored = shape;
  const std::vector<int64_t>& stored_rows = rows;
  stored[0] = static_cast<int64_t>(stored_rows.size());
  Input(slot, stored, values);
  inputs_.back().sparse = SelectedRows{stored_rows, shape[0], Tensor()};
  return *this;
}

OpTest& OpTest::Input(std::string_view slot, const Shape& shape, const ListOf<double>& values) {
  TensorInput(slot, Tensor::Of<double>(shape, values));
  inputs_.back().floating = true;
  return *this;
}

OpTest& OpTest::IntInput(std::string_view slot, const Shape& shape, const ListOf<int64_t>& values,
                         DType dtype) {
  return TensorInput(slot, Tensor::Of<int64_t>(shape, values).Cast(dtype));
}

OpTest& OpTest::RandomInput(std::string_view slot, const Shape& shape, double low, double high,
                            double gap) {
  Philox random(11, HashName(fmt::format("{}{}", slot, inputs_.size())), 0);
  std::vector<double> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) {
    double v = low + (high - low) * random.UniformDouble(i);
    if (std::abs(v) < gap) v = v < 0 ? v - gap : v + gap;
    values[i] = v;
  }
  return Input(slot, shape, values);
}

OpTest& OpTest::Outputs(std::string_view slot, int count) {
  output_counts_.emplace_back(slot, count);
  return *this;
}

OpTest& OpTest::NoOutput(std::string_view slot) { return Outputs(slot, 0); }

OpTest& OpTest::InPlace(std::string_view input, std::string_view output) {
  in_place_.emplace_back(input, output);
  return *this;
}

VarValues OpTest::Inputs(bool in_double) const {
  VarValues env;
  for (const InputVar& var : inputs_) {
    Tensor value = var.floating ? var.value.Cast(in_double ? DType::kFloat64 : DType::kFloat32)
                                : var.value.Clone();
    value.lod() = var.value.lod();
    if (var.sparse)
      env[var.name] = SelectedRows{var.sparse->rows, var.sparse->height, std::move(value)};
    else
      env[var.name] = std::move(value);
  }
  return env;
}

void OpTest::Build(ProgramDesc& program, bool in_double) const {
  BlockDesc& block = program.Root();
  const OpSpec& def = ops_.Get(type_);
  SlotList ins, outs;
  for (const InputVar& var : inputs_) {
    VarDesc& desc = block.Var(var.name);
    desc.SetShape(var.value.shape());
    if (var.sparse) {
      Shape shape = var.value.shape();
      shape[0] = var.sparse->height;
      desc.SetShape(shape);
      desc.SetType(VarType::kSelectedRows);
    }
    desc.SetDType(var.floating ? (in_double ? DType::kFloat64 : DType::kFloat32)
                               : var.value.dtype());
    auto it =
        std::find_if(ins.begin(), ins.end(), [&](const Slot& s) { return s.name == var.slot; });
    if (it == ins.end())
      ins.push_back({var.slot, {var.name}});
    else
      it->args.push_back(var.name);
  }
  for (const SlotDef& slot : def.outputs) {
    int count = 1;
    for (const auto& [name, n] : output_counts_) {
      if (name == slot.name) count = n;
    }
    std::vector<std::string> args;
    for (int i = 0; i < count; ++i) {
      std::string name = slot.name + "." + std::to_string(i);
      for (const auto& [in, out] : in_place_) {
        if (out == slot.name) name = in + "." + std::to_string(i);
      }
      args.push_back(name);
      block.Var(name);
    }
    if (count > 0) outs.push_back({slot.name, args});
  }
  const OpDesc& op = block.AppendOp(type_, ins, outs, attrs_);
  InferOp(block, op, ops_);
}

VarValues OpTest::Run(KernelMode mode, bool in_double) {
  ProgramDesc program;
  Build(program, in_double);
  VarValues env = Inputs(in_double);
  Interpret(program.Root(), ops_, env,
            {.kernels = mode, .seed = seed_, .step = step_, .allow_files = files_});
  if (ops_.Get(type_).Expands()) CheckExpansion();
  if (mode == KernelMode::kReference) RunHostileVariants(program.Root().op(0), env, ops_);
  return env;
}

Tensor OpTest::Output(std::string_view slot, KernelMode mode, size_t i) {
  return std::get<Tensor>(Run(mode, false).at(OutputName(slot, i)));
}

std::string OpTest::OutputName(std::string_view slot, size_t i) const {
  for (const auto& [in, out] : in_place_) {
    if (out == slot) return in + "." + std::to_string(i);
  }
  return fmt::format("{}.{}", slot, i);
}

// check(env) for the outcome of each kernel.
template <class Check>
void OpTest::ForEachKernel(const Check& check) {
  bool floating =
      std::any_of(inputs_.begin(), inputs_.end(), [](const InputVar& v) { return v.floating; });
  struct Case {
    const char* title;
    KernelMode mode;
    bool in_double;
  };
  for (const Case& c : {Case{"reference float32", KernelMode::kReference, false},
                        Case{"reference float64", KernelMode::kReference, true},
                        Case{"fast float32", KernelMode::kAuto, false}}) {
    if (c.in_double && !floating) continue;
    SCOPED_TRACE(type_ + ", " + c.title);
    check(Run(c.mode, c.in_double));
  }
}

OpTest& OpTest::Expect(std::string_view slot, const Shape& shape, const ListOf<double>& values,
                       double tolerance, size_t i) {
  const std::string name = OutputName(slot, i);
  ForEachKernel([&](const VarValues& env) {
    const Tensor* got = std::get_if<Tensor>(&env.at(name));
    ASSERT_NE(got, nullptr) << name << " holds no tensor";
    EXPECT_EQ(shape.ToString(), got->shape().ToString());
    ExpectClose(values, *got, tolerance, name);
  });
  return *this;
}

OpTest& OpTest::ExpectRows(std::string_view slot, int64_t height, const ListOf<int64_t>& rows,
                           const ListOf<double>& values, double tolerance) {
  const std::vector<int64_t>& stored_rows = rows;
  const std::string name = OutputName(slot, 0);
  ForEachKernel([&](const VarValues& env) {
    const auto* got = std::get_if<SelectedRows>(&env.at(name));
    ASSERT_NE(got, nullptr) << name << " holds no selected rows";
    EXPECT_EQ(height, got->height);
    EXPECT_EQ(stored_rows, got->rows);
    EXPECT_EQ(got->value.shape()[0], static_cast<int64_t>(stored_rows.size()));
    ExpectClose(values, got->value, tolerance, name);
  });
  return *this;
}

OpTest& OpTest::ExpectLod(std::string_view slot, const LoD& lod, size_t i) {
  const std::string name = OutputName(slot, i);
  ForEachKernel(
      [&](const VarValues& env) { EXPECT_EQ(lod, std::get<Tensor>(env.at(name)).lod()); });
  return *this;
}

OpTest& OpTest::ExpectDType(std::string_view slot, DType dtype) {
  EXPECT_STREQ(ToString(dtype), ToString(Output(slot).dtype()));
  return *this;
}

void OpTest::ExpectError(std::string_view text) {
  try {
    Run(KernelMode::kReference, false);
  } catch (const InternalError& e) {
    ADD_FAILURE() << "an internal error instead of a user's: " << e.what();
    return;
  } catch (const Error& e) {
    NoteConstraint(e.message());
    EXPECT_NE(e.message().find(text), std::string::npos)
        << "the message lacks '" << text << "': " << e.what();
    EXPECT_EQ(e.message().find('\n'), std::string::npos) << "the message is not one line";
    return;
  }
  ADD_FAILURE() << type_ << ": no error; expected one with '" << text << "'";
}

// The ops that the op expands to are sound, and compute its outputs in a compiled program.
void OpTest::CheckExpansion() const {
  NoteExpansion(type_);
  ProgramDesc program;
  Build(program, true);
  EXPECT_TRUE(ExpandOps(program, ops_));
  for (const VerifyProblem& problem : Verify(program, ops_)) ADD_FAILURE() << problem.ToString();
  EXPECT_FALSE(ExpandOps(program, ops_)) << type_ << " expands to an op that expands";
}

namespace {

// Appends the ops of the expansion of the only op, and those that compute the gradients of
// `outputs` with respect to `inputs`, given under GradName(output). Returns the gradients' names.
std::vector<std::string> AppendExpandedGradients(ProgramDesc& program, const OpRegistry& ops,
                                                 const std::vector<std::string>& outputs,
                                                 const std::vector<std::string>& inputs) {
  ProgramDesc expanded = program;
  std::vector<Variable> targets, wanted;
  GradientsOptions options;
  options.ops = &ops;
  for (const std::string& name : outputs) {
    targets.push_back(Variable::Of(expanded.Root(), name));
    options.target_gradients.push_back(GradName(name));
  }
  for (const std::string& name : inputs) wanted.push_back(Variable::Of(expanded.Root(), name));
  const std::vector<std::string> gradients = Gradients(targets, wanted, options);
  BlockDesc &from = expanded.Root(), &to = program.Root();
  for (size_t i = 0; i < from.NumVars(); ++i) {
    if (!to.FindVar(from.var(i).name())) to.AppendVar(from.var(i));
  }
  for (size_t i = 0; i < from.NumOps(); ++i) to.AppendOp(from.op(i));
  return gradients;
}

}  // namespace

OpTest::Graph OpTest::BuildGradient(const std::vector<std::string>& slots, bool in_double) const {
  Graph graph;
  Build(graph.program, in_double);
  graph.inputs = Inputs(in_double);
  BlockDesc& block = graph.program.Root();
  const OpDesc& op = block.op(0);
  const OpSpec& def = ops_.Get(type_);
  VarValues forward = graph.inputs;
  InterpretOp(op, ops_, forward, {.seed = seed_, .step = step_});

  GradientContext::Request request;
  request.op = &op;
  request.block = &block;
  ForEachPosition(op.outputs(), [&](const std::string& name, const std::string& slot) {
    if (def.FindOutput(slot)->intermediate || !IsFloat(forward.at(name))) {
      request.output_grads.push_back("");
      return;
    }
    const VarMeta out = MetaOfValue(forward.at(name));
    Philox random(5, HashName(name), 0);
    Tensor w(DType::kFloat64, out.shape);
    for (int64_t k = 0; k < w.numel(); ++k)
      w.data<double>()[k] = 0.5 + random.UniformDouble(static_cast<uint64_t>(k));
    graph.inputs[GradName(name)] = w.Cast(out.dtype);
    VarDesc& var = block.Var(GradName(name));
    var.SetShape(out.shape);
    var.SetDType(out.dtype);
    request.output_grads.push_back(GradName(name));
    graph.outputs.push_back(name);
  });
  ForEachPosition(op.inputs(), [&](const std::string& name, const std::string& slot) {
    const bool wanted = std::find(slots.begin(), slots.end(), slot) != slots.end();
    request.input_grads.push_back(wanted ? GradName(name) : "");
    if (wanted) graph.grad_of[name] = GradName(name);
  });
  if (def.Expands()) {
    std::vector<std::string> wanted;
    for (const auto& [name, gradient] : graph.grad_of) wanted.push_back(name);
    const auto gradients = AppendExpandedGradients(graph.program, ops_, graph.outputs, wanted);
    for (size_t i = 0; i < wanted.size(); ++i) graph.grad_of[wanted[i]] = gradients[i];
    return graph;
  }
  request.fresh_name = [&](const std::string& hint) { return graph.program.UniqueName(hint); };
  GradientContext context(ops_, request);
  RunGradient(def, context);
  for (const auto& appended : context.ReleaseOps()) {
    const OpDesc& added = block.AppendOp(*appended);
    std::vector<VerifyProblem> problems;
    CheckOp(ops_.Get(added.type()), added, 0, static_cast<int>(block.NumOps()) - 1, &problems);
    for (const VerifyProblem& p : problems) ADD_FAILURE() << p.ToString();
    InferOp(block, added, ops_);
  }
  return graph;
}

void OpTest::CheckDirections(const Graph& graph, const std::vector<std::string>& wrt,
                             const OpRegistry& ops, const DifferenceCheck& check,
                             const InterpretOptions& options, const std::string& title) {
  VarValues env = graph.inputs;
  Interpret(graph.program.Root(), ops, env, options);
  const OpDesc& forward = graph.program.Root().op(0);
  auto loss = [&](const VarValues& inputs) {
    VarValues e = inputs;
    InterpretOp(forward, ops, e, options);
    double sum = 0;
    for (const std::string& out : graph.outputs) {
      std::vector<double> y = ToDoubles(Dense(e.at(out)));
      std::vector<double> w = ToDoubles(std::get<Tensor>(inputs.at(GradName(out))));
      for (size_t i = 0; i < y.size(); ++i) sum += y[i] * w[i];
    }
    return sum;
  };
  double largest = 0;
  bool any = false;
  for (const std::string& name : wrt) {
    ASSERT_TRUE(env.count(graph.grad_of.at(name)))
        << title << ": no gradient of " << name << " was computed";
    const Tensor grad_tensor = Dense(env.at(graph.grad_of.at(name)));
    const VarValue& x = graph.inputs.at(name);
    ASSERT_EQ(MetaOfValue(x).shape.ToString(), grad_tensor.shape().ToString())
        << title << ": shape of the gradient of " << name;
    std::vector<double> grad = GradientOfElements(grad_tensor, x);
    if (grad.empty()) continue;
    any = true;
    for (double g : grad) largest = std::max(largest, std::abs(g));
    for (int d = 0; d < check.directions; ++d) {
      Philox random(101, HashName(name), static_cast<uint64_t>(d));
      VarValues plus = graph.inputs, minus = graph.inputs;
      Tensor xp = ElementsOf(x).Clone(), xm = ElementsOf(x).Clone();
      double analytic = 0;
      for (size_t i = 0; i < grad.size(); ++i) {
        double direction = random.Normal(i);
        xp.data<double>()[i] += check.step * direction;
        xm.data<double>()[i] -= check.step * direction;
        analytic += grad[i] * direction;
      }
      ElementsOf(plus[name]) = xp;
      ElementsOf(minus[name]) = xm;
      double numeric = (loss(plus) - loss(minus)) / (2 * check.step);
      EXPECT_NEAR(analytic, numeric, check.tolerance * std::max(1.0, std::abs(numeric)))
          << title << ": gradient of " << name << ", direction " << d;
    }
  }
  if (any) {
    EXPECT_GT(largest, 1e-8) << title << ": all gradients are zero";
  }
}

OpTest& OpTest::CheckGradient(const NameList& slots, const DifferenceCheck& check) {
  NoteCheckedGradient(type_);
  Graph graph = BuildGradient(slots, true);
  std::vector<std::string> wrt;
  for (const auto& [name, grad] : graph.grad_of) wrt.push_back(name);
  CheckDirections(graph, wrt, ops_, check, {.seed = seed_, .step = step_}, type_);
  VarValues env = graph.inputs;
  Interpret(graph.program.Root(), ops_, env, {.seed = seed_, .step = step_});
  for (size_t i = 1; i < graph.program.Root().NumOps(); ++i)
    RunHostileVariants(graph.program.Root().op(i), env, ops_);
  return *this;
}

OpTest& OpTest::CheckSecondGradient(const NameList& slots, const DifferenceCheck& check) {
  Graph graph = BuildGradient(slots, true);
  VarValues env = graph.inputs;
  const BlockDesc& block = graph.program.Root();
  Interpret(block, ops_, env, {.seed = seed_, .step = step_});
  for (size_t i = 1; i < block.NumOps(); ++i) {
    const OpDesc& grad_op = block.op(i);
    const OpSpec& def = ops_.Get(grad_op.type());
    OpTest second(grad_op.type(), ops_);
    std::vector<std::string> wanted;
    for (const Slot& slot : grad_op.inputs()) {
      const SlotDef* slot_def = def.FindInput(slot.name);
      bool differentiable = slot_def && !slot_def->no_gradient;
      for (const std::string& name : slot.args) {
        const VarValue& value = env.at(name);
        const auto* sparse = std::get_if<SelectedRows>(&value);
        second.TensorInput(slot.name, ElementsOf(value).Clone());  // with its LoD
        bool floating = IsFloat(value);
        second.inputs_.back().floating = floating;
        if (sparse) second.inputs_.back().sparse = {sparse->rows, sparse->height, Tensor()};
        differentiable = differentiable && floating;
      }
      if (differentiable) wanted.push_back(slot.name);
    }
    for (const SlotDef& slot : def.outputs)
      second.Outputs(slot.name, static_cast<int>(grad_op.Output(slot.name).size()));
    for (const NamedAttr& attr : grad_op.attrs()) second.Attr(attr.name, attr.value);
    SCOPED_TRACE("second order through " + grad_op.type());
    second.Seed(seed_).Step(step_).CheckGradient(wanted, check);
  }
  return *this;
}

OpTest& OpTest::CheckHigherGradients(int highest) {
  HigherOrderCase all{type_, {}, attrs_, output_counts_};
  for (const InputVar& var : inputs_) {
    all.inputs.push_back({var.slot, var.floating ? var.value.Cast(DType::kFloat64) : var.value});
    all.inputs.back().value.lod() = var.value.lod();
  }
  coracle::CheckHigherGradients(all, highest);
  return *this;
}

void OpTest::CompareEnvironments(const VarValues& expected, const VarValues& actual,
                                 double tolerance) const {
  for (const auto& [name, value] : expected) {
    if (std::holds_alternative<TensorArray>(value)) continue;
    ASSERT_TRUE(actual.count(name)) << name;
    ASSERT_EQ(MetaOfValue(value), MetaOfValue(actual.at(name))) << name;
    ExpectClose(ToDoubles(Dense(value)), Dense(actual.at(name)), tolerance,
                type_ + ": fast against reference: " + name);
  }
}

OpTest& OpTest::CheckFast(double tolerance, const NameList& slots) {
  ProgramDesc forward;
  Build(forward, false);
  VarValues made = Inputs(false);
  const InterpretOptions quick{.kernels = KernelMode::kAuto, .seed = seed_, .step = step_};
  InterpretGuarded(forward.Root(), ops_, made, quick);
  CompareEnvironments(Run(KernelMode::kReference, false), made, tolerance);
  const OpSpec& def = ops_.Get(type_);
  if (!def.HasGradient()) return *this;
  std::vector<std::string> wanted = slots;
  const bool all = wanted.empty();
  for (const SlotDef& slot : def.inputs) {
    bool floating = std::any_of(inputs_.begin(), inputs_.end(), [&](const InputVar& v) {
      return v.slot == slot.name && v.floating;
    });
    if (all && floating && !slot.no_gradient) wanted.push_back(slot.name);
  }
  Graph graph = BuildGradient(wanted, false);
  VarValues reference = graph.inputs, fast = graph.inputs;
  Interpret(graph.program.Root(), ops_, reference,
            {.kernels = KernelMode::kReference, .seed = seed_, .step = step_});
  InterpretGuarded(graph.program.Root(), ops_, fast, quick);
  CompareEnvironments(reference, fast, tolerance);
  return *this;
}

}  // namespace coracle
