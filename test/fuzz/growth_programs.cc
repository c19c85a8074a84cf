#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/fuzz/growth_programs.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle {
namespace {

VarDesc& Add(BlockDesc& block, const std::string& name, Shape shape = {-1, 4},
             DType dtype = DType::kFloat32) {
  VarDesc& var = block.Var(name);
  var.SetMeta({.dtype = dtype, .shape = std::move(shape)});
  return var;
}

void Unary(BlockDesc& block, const char* type, const std::string& x, const std::string& out) {
  block.AppendOp(type, {{"X", {x}}}, {{"Out", {out}}});
}

std::string Name(const char* stem, size_t i) { return fmt::format("{}{}", stem, i); }

// A program with x; `fill` makes the rest and returns the name of a value to sum up.
template <class Fill>
ProgramDesc Make(Fill&& fill) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  Add(root, "x").SetStopGradient(false);
  const std::string last = fill(program);
  Add(root, "loss", {1});
  root.AppendOp("reduce_sum", {{"X", {last}}}, {{"Out", {"loss"}}},
                {{"reduce_all", true}, {"dim", std::vector<int32_t>{0}}, {"keep_dim", false}});
  return program;
}

ProgramDesc Chain(size_t n) {
  return Make([n](ProgramDesc& program) {
    BlockDesc& root = program.Root();
    std::string last = "x";
    for (size_t i = 0; i < n; ++i) {
      Add(root, Name("v", i));
      Unary(root, "tanh", last, Name("v", i));
      last = Name("v", i);
    }
    return last;
  });
}

ProgramDesc ChainInPlace(size_t n) {
  return Make([n](ProgramDesc& program) {
    BlockDesc& root = program.Root();
    Add(root, "y");
    Unary(root, "tanh", "x", "y");
    for (size_t i = 0; i < n; ++i) Unary(root, "tanh", "y", "y");
    return "y";
  });
}

// Many ops read one variable, and one op reads all their results.
ProgramDesc Fan(size_t n) {
  return Make([n](ProgramDesc& program) {
    BlockDesc& root = program.Root();
    std::vector<std::string> all;
    for (size_t i = 0; i < n; ++i) {
      all.push_back(Name("v", i));
      Add(root, all.back());
      Unary(root, "tanh", "x", all.back());
    }
    Add(root, "sum");
    root.AppendOp("sum", {{"X", all}}, {{"Out", {"sum"}}});
    return "sum";
  });
}

// Each op reads its input twice: there are 2^n paths.
ProgramDesc Diamonds(size_t n) {
  return Make([n](ProgramDesc& program) {
    BlockDesc& root = program.Root();
    std::string last = "x";
    for (size_t i = 0; i < n; ++i) {
      Add(root, Name("v", i));
      root.AppendOp("elementwise_add", {{"X", {last}}, {"Y", {last}}}, {{"Out", {Name("v", i)}}});
      last = Name("v", i);
    }
    return last;
  });
}

void Conditional(BlockDesc& around, const BlockDesc& inner, const std::string& out) {
  if (!around.FindVarRecursive("yes")) Add(around, "yes", {1}, DType::kBool);
  VarDesc& scopes = around.Var("scopes" + std::to_string(inner.idx()));
  scopes.SetType(VarType::kStepScopes);
  around.AppendOp("conditional_block", {{"Cond", {"yes"}}, {"Input", {"x"}}},
                  {{"Out", {out}}, {"Scope", {scopes.name()}}},
                  {{"sub_block", BlockRef{inner.idx()}}, {"is_scalar_condition", true}});
}

// Blocks next to each other.
ProgramDesc Blocks(size_t n) {
  return Make([n](ProgramDesc& program) {
    Add(program.Root(), "y");
    Unary(program.Root(), "tanh", "x", "y");
    for (size_t i = 0; i < n; ++i) {
      BlockDesc& inner = program.AppendBlock(0);
      Unary(inner, "tanh", "x", "y");
      Conditional(program.Root(), inner, "y");
    }
    return "y";
  });
}

// Each block is inside the one before it.
ProgramDesc Nest(size_t n) {
  return Make([n](ProgramDesc& program) {
    Add(program.Root(), "y");
    Unary(program.Root(), "tanh", "x", "y");
    for (size_t i = 0; i < n; ++i) program.AppendBlock(static_cast<int>(i));
    for (size_t i = n; i > 0; --i) {
      BlockDesc& inner = program.Block(static_cast<int>(i));
      Unary(inner, "tanh", "x", "y");
      Conditional(program.Block(static_cast<int>(i - 1)), inner, "y");
    }
    return "y";
  });
}

// Nests of a hundred blocks, which the verifier accepts.
ProgramDesc Nests(size_t n) {
  return Make([n](ProgramDesc& program) {
    Add(program.Root(), "y");
    Unary(program.Root(), "tanh", "x", "y");
    for (size_t first = 0; first < n; first += 100) {
      int around = 0;
      for (size_t i = first; i < std::min(n, first + 100); ++i) {
        BlockDesc& inner = program.AppendBlock(around);
        Unary(inner, "tanh", "x", "y");
        Conditional(program.Block(around), inner, "y");
        around = inner.idx();
      }
    }
    return "y";
  });
}

// One op with many outputs, of which each is read.
ProgramDesc Outputs(size_t n) {
  return Make([n](ProgramDesc& program) {
    BlockDesc& root = program.Root();
    const auto parts = static_cast<int64_t>(n);
    Add(root, "one", {-1, 1});
    root.AppendOp("reduce_sum", {{"X", {"x"}}}, {{"Out", {"one"}}},
                  {{"dim", std::vector<int32_t>{1}}, {"keep_dim", true}, {"reduce_all", false}});
    Add(root, "wide", {-1, parts});
    root.AppendOp("expand_v2", {{"X", {"one"}}}, {{"Out", {"wide"}}},
                  {{"shape", std::vector<int32_t>{-1, static_cast<int32_t>(n)}}});
    std::vector<std::string> all;
    for (size_t i = 0; i < n; ++i) {
      all.push_back(Name("v", i));
      Add(root, all.back(), {-1, 1});
    }
    root.AppendOp("split", {{"X", {"wide"}}}, {{"Out", all}},
                  {{"num", static_cast<int32_t>(n)}, {"axis", 1}});
    Add(root, "sum", {-1, 1});
    root.AppendOp("sum", {{"X", all}}, {{"Out", {"sum"}}});
    return "sum";
  });
}

// Attrs that no op knows, lists and texts.
ProgramDesc Attrs(size_t n) {
  return Make([n](ProgramDesc& program) {
    BlockDesc& root = program.Root();
    Add(root, "y");
    Unary(root, "tanh", "x", "y");
    OpDesc& op = root.op(0);
    for (size_t i = 0; i < n / 4; ++i) op.SetAttr(Name("a", i), static_cast<int32_t>(i));
    op.SetAttr("list", std::vector<int64_t>(n, -1));
    op.SetAttr("text", std::string(n * 4, 't'));
    op.SetAttr("texts", std::vector<std::string>(n, "name"));
    return "y";
  });
}

// Long names with the same beginning.
ProgramDesc LongNames(size_t n) {
  return Make([n](ProgramDesc& program) {
    BlockDesc& root = program.Root();
    const std::string stem(1000, 'n');
    std::string last = "x";
    for (size_t i = 0; i < n; ++i) {
      const std::string name = stem + std::to_string(i);
      Add(root, name);
      Unary(root, "tanh", last, name);
      last = name;
    }
    return last;
  });
}

// Variables that no op uses, and parameters.
ProgramDesc Variables(size_t n) {
  return Make([n](ProgramDesc& program) {
    BlockDesc& root = program.Root();
    for (size_t i = 0; i < n; ++i) Add(root, Name("v", i)).SetPersistable(i % 2 == 0);
    Add(root, "y");
    Unary(root, "tanh", "x", "y");
    return "y";
  });
}

// Layers: each has a parameter, a product, a sum and an activation.
ProgramDesc Layers(size_t n) {
  return Make([n](ProgramDesc& program) {
    BlockDesc& root = program.Root();
    std::string last = "x";
    for (size_t i = 0; i < n; ++i) {
      VarDesc& w = Add(root, Name("w", i), {4, 4});
      w.SetPersistable(true);
      Add(root, Name("p", i));
      Add(root, Name("r", i));
      root.AppendOp("mul", {{"X", {last}}, {"Y", {w.name()}}}, {{"Out", {Name("p", i)}}});
      Unary(root, "relu", Name("p", i), Name("r", i));
      last = Name("r", i);
    }
    return last;
  });
}

}  // namespace

const std::vector<ProgramShape>& ProgramShapes() {
  static const std::vector<ProgramShape> shapes = {{"chain", Chain, "loss", "x"},
                                                   {"chain_in_place", ChainInPlace, "loss", "x"},
                                                   {"fan", Fan, "loss", "x"},
                                                   {"diamonds", Diamonds, "loss", "x"},
                                                   {"blocks", Blocks, "loss", "x"},
                                                   {"nest", Nest, "loss", "x"},
                                                   {"nests", Nests, "loss", "x"},
                                                   {"outputs", Outputs, "loss", "x"},
                                                   {"attrs", Attrs, "loss", "x"},
                                                   {"long_names", LongNames, "loss", "x"},
                                                   {"variables", Variables, "loss", "x"},
                                                   {"layers", Layers, "loss", "w0"}};
  return shapes;
}

ProgramDesc ProgramOfSize(const ProgramShape& shape, size_t bytes) {
  const size_t small = SerializeProgram(shape.make(100)).size();
  const size_t each = (SerializeProgram(shape.make(300)).size() - small) / 200;
  return shape.make(std::max<size_t>(100, bytes / std::max<size_t>(each, 1)));
}

}  // namespace coracle
