// complex, real, imag, conj, and complex elements in the other ops that take them.

#include <coracle/backward/backward.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>

#include <functional>

namespace coracle::complex_test {

using variable_functions::AddAll;

using C = complex128;
using Values = std::vector<double>;  // real and imaginary parts in turn

Tensor Complexes(const Shape& shape, const std::vector<C>& values, DType dtype) {
  return Tensor::Of<C>(shape, values).Cast(dtype);
}

// Runs f with each complex type.
void ForBoth(const std::function<void(DType dtype)>& f) {
  for (DType dtype : {DType::kComplex64, DType::kComplex128}) {
    SCOPED_TRACE(ToString(dtype));
    f(dtype);
  }
}

// A program on complex variables x, y, ..., each made of two real inputs, "xr" and "xi".
struct Formula {
  Variable Input(const std::string& name, const Shape& shape) {
    return writer.Make("complex", {{"X", {Real(name + "r", shape).name()}},
                                   {"Y", {Real(name + "i", shape).name()}}});
  }
  // Numbers between 0.5 and 1.5 with both signs.
  Variable Real(const std::string& name, const Shape& shape, bool wanted = true) {
    VarDesc& var = program.Root().Var(name);
    var.SetShape(shape);
    var.SetDType(DType::kFloat64);
    var.SetStopGradient(!wanted);
    Tensor value(DType::kFloat64, shape);
    for (int64_t i = 0; i < value.numel(); ++i) {
      const auto k = static_cast<int64_t>(values.size()) * 5 + i * 7;
      value.data<double>()[i] = (k % 3 == 0 ? -1 : 1) * (0.5 + 0.1 * static_cast<double>(k % 11));
    }
    values[name] = value;
    if (wanted) wrt.push_back(name);
    return writer.Var(name);
  }
  Variable Op(const std::string& type, const SlotList& inputs, const AttrList& attrs = {}) {
    return writer.Make(type, inputs, attrs);
  }
  Variable Binary(const std::string& type, const Variable& x, const Variable& y,
                  const AttrList& attrs = {}) {
    return Op(type, {{"X", {x.name()}}, {"Y", {y.name()}}}, attrs);
  }
  Variable Unary(const std::string& type, const Variable& x, const AttrList& attrs = {}) {
    return Op(type, {{"X", {x.name()}}}, attrs);
  }
  // A weighted sum of the parts of `out`, which is real or complex.
  Variable Loss(const Variable& out) {
    if (!IsComplex(out.dtype())) return Sum(out * Real("w", out.shape(), false));
    const Variable re = Unary("real", out), im = Unary("imag", out);
    return Sum(re * Real("w", out.shape(), false)) + Sum(im * Real("v", out.shape(), false));
  }

  ProgramDesc program;
  Writer writer{program.Root(), DefaultOps()};
  VarValues values;
  std::vector<std::string> wrt;
};

// The gradients of `make`'s result, and, if requested, the gradients of the square of its
// first gradients.
void CheckGradients(const std::vector<std::string>& types, bool twice,
                    const std::function<Variable(Formula& f)>& make) {
  SCOPED_TRACE(types.front());
  Formula f;
  const Variable loss = f.Loss(make(f));
  CheckProgramGradient(types, f.program, loss.name(), f.wrt, f.values);
  if (!twice) return;
  SCOPED_TRACE("second order");
  Formula g;
  // Not linear in what `make` gives, so that no gradient is constant.
  const Variable first = Square(g.Loss(make(g)));
  std::vector<Variable> inputs;
  for (const std::string& name : g.wrt) inputs.push_back(g.writer.Var(name));
  std::vector<Variable> squares;
  for (const std::string& grad : Gradients({first}, inputs))
    squares.push_back(Sum(Square(g.writer.Var(grad))));
  CheckProgramGradient(types, g.program, AddAll(squares).name(), g.wrt, g.values);
  for (const std::string& type : types) HigherGradientsAreChecked(type);
}

TEST(Complex, MadeOfParts) {
  OpTest("complex")
      .Input("X", {2, 2}, {1, 2, 3, 4})
      .Input("Y", {2, 2}, {-1, 0, 0.5, 8})
      .Expect("Out", {2, 2}, {1, -1, 2, 0, 3, 0.5, 4, 8})
      .ExpectDType("Out", DType::kComplex64);
  OpTest("complex")
      .Input("X", {2, 1}, {1, 2})
      .Input("Y", {2}, {5, 6})
      .Expect("Out", {2, 2}, {1, 5, 1, 6, 2, 5, 2, 6});
  OpTest("complex").Input("X", {0}, {}).Input("Y", {0}, {}).Expect("Out", {0}, {});
  OpTest("complex").Input("X", {}, {3}).Input("Y", {}, {4}).Expect("Out", {}, {3, 4});
}

TEST(Complex, Constraints) {
  OpTest("complex").RandomInput("X", {2}).RandomInput("Y", {3}).ExpectError("complex.C3");
  OpTest("complex").RandomInput("X", {2}).IntInput("Y", {2}, {1, 2}).ExpectError("complex.C4");
  const Tensor half = Tensor::Zeros(DType::kFloat16, {2});
  OpTest("complex").TensorInput("X", half).TensorInput("Y", half).ExpectError("complex.C5");
}

TEST(Complex, PartsAndConjugates) {
  ForBoth([](DType dtype) {
    const Tensor x = Complexes({3}, {{1, 2}, {-3, 0}, {0, -4}}, dtype);
    OpTest("real")
        .TensorInput("X", x)
        .Expect("Out", {3}, {1, -3, 0})
        .ExpectDType("Out", RealOf(dtype));
    OpTest("imag")
        .TensorInput("X", x)
        .Expect("Out", {3}, {2, 0, -4})
        .ExpectDType("Out", RealOf(dtype));
    OpTest("conj")
        .TensorInput("X", x)
        .Expect("Out", {3}, {1, -2, -3, 0, 0, 4})
        .ExpectDType("Out", dtype);
    OpTest("conj").TensorInput("X", x).InPlace("X", "Out").Expect("Out", {3}, {1, -2, -3, 0, 0, 4});
    OpTest("real").TensorInput("X", Tensor(dtype, {0, 2})).Expect("Out", {0, 2}, {});
  });
  OpTest("conj").Input("X", {2}, {1.5, -2}).Expect("Out", {2}, {1.5, -2}).CheckGradient({"X"});
  for (DType dtype : {DType::kInt32, DType::kInt64})
    OpTest("conj").IntInput("X", {2}, {1, -2}, dtype).Expect("Out", {2}, {1, -2});
  OpTest("real").RandomInput("X", {2}).ExpectError("no kernel for input X");
  OpTest("imag").RandomInput("X", {2}).ExpectError("no kernel for input X");
}

TEST(Complex, GradientsOfPartsAndConjugates) {
  CheckGradients({"complex", "real", "imag"}, true, [](Formula& f) {
    return f.Input("x", {2, 3});
  });
  CheckGradients({"complex"}, true, [](Formula& f) {  // stretched
    return f.Binary("complex", f.Real("a", {2, 1}), f.Real("b", {3}));
  });
  CheckGradients({"conj"}, true, [](Formula& f) { return f.Unary("conj", f.Input("x", {4})); });
  CheckGradients({"real"}, false, [](Formula& f) { return f.Unary("real", f.Input("x", {4})); });
  CheckGradients({"imag"}, false, [](Formula& f) { return f.Unary("imag", f.Input("x", {4})); });
}

TEST(Complex, Casts) {
  ForBoth([](DType dtype) {
    const Tensor x = Complexes({3}, {{1.5, 2}, {0, -3}, {0, 0}}, dtype);
    const auto cast = [&](DType to) {
      return OpTest("cast").Attr("out_dtype", static_cast<int32_t>(to)).TensorInput("X", x);
    };
    for (DType to : {DType::kFloat32, DType::kFloat64, DType::kFloat16})
      cast(to).Expect("Out", {3}, {1.5, 0, 0});
    cast(DType::kInt32).Expect("Out", {3}, {1, 0, 0});
    cast(DType::kBool).Expect("Out", {3}, {1, 1, 0});
    for (DType to : {DType::kComplex64, DType::kComplex128})
      cast(to).Expect("Out", {3}, {1.5, 2, 0, -3, 0, 0}).ExpectDType("Out", to);
    for (DType from : {DType::kFloat32, DType::kBFloat16, DType::kInt64, DType::kBool}) {
      OpTest("cast")
          .Attr("out_dtype", static_cast<int32_t>(dtype))
          .TensorInput("X", Tensor::Of<float>({2}, {0, 1}).Cast(from))
          .Expect("Out", {2}, {0, 0, 1, 0});
    }
  });
  const AttrList to_complex = {{"out_dtype", static_cast<int32_t>(DType::kComplex128)}};
  const AttrList to_real = {{"out_dtype", static_cast<int32_t>(DType::kFloat64)}};
  CheckGradients({"cast"}, true, [&](Formula& f) {
    return f.Unary("cast", f.Real("a", {3}), to_complex) * f.Input("x", {3});
  });
  CheckGradients({"cast"}, false,
                 [&](Formula& f) { return f.Unary("cast", f.Input("x", {3}), to_real); });
}

TEST(Complex, Arithmetic) {
  ForBoth([](DType dtype) {
    const Tensor x = Complexes({2}, {{1, 2}, {3, -1}}, dtype);
    const Tensor y = Complexes({1}, {{0, 2}}, dtype);
    const auto binary = [&](const char* type) {
      return OpTest(type).TensorInput("X", x).TensorInput("Y", y);
    };
    binary("elementwise_add").Expect("Out", {2}, {1, 4, 3, 1}).ExpectDType("Out", dtype);
    binary("elementwise_sub").Expect("Out", {2}, {1, 0, 3, -3});
    binary("elementwise_mul").Expect("Out", {2}, {-4, 2, 2, 6});
    binary("elementwise_div").Expect("Out", {2}, {1, -0.5, -0.5, -1.5});
    OpTest("scale")
        .Attr("scale", 2.f)
        .Attr("bias", 1.f)
        .TensorInput("X", x)
        .Expect("Out", {2}, {3, 4, 7, -2});
    OpTest("scale")
        .Input("ScaleTensor", {1}, {3})
        .TensorInput("X", x)
        .Expect("Out", {2}, {3, 6, 9, -3});
    OpTest("scale").TensorInput("ScaleTensor", y).TensorInput("X", x).ExpectError("scale.C2");
    OpTest("sum").TensorInput("X", x).TensorInput("X", x).Expect("Out", {2}, {2, 4, 6, -2});
    // Integers do not become complex numbers, and what needs an order takes none.
    OpTest("elementwise_mul")
        .TensorInput("X", x)
        .IntInput("Y", {2}, {1, 2})
        .ExpectError("elementwise_mul.C4");
    OpTest("elementwise_max").TensorInput("X", x).RandomInput("Y", {2}).ExpectError("complex");
    OpTest("elementwise_max").TensorInput("X", x).TensorInput("Y", x).ExpectError("complex");
  });
  for (const char* type :
       {"elementwise_add", "elementwise_sub", "elementwise_mul", "elementwise_div"}) {
    CheckGradients({type}, true, [&](Formula& f) {
      return f.Binary(type, f.Input("x", {2, 3}), f.Input("y", {3}));
    });
  }
  for (const char* type : {"elementwise_add", "elementwise_mul"}) {
    CheckGradients({type}, false, [&](Formula& f) {
      const Variable x = f.Input("x", {3});
      return f.Binary(type, x, x);  // two gradients of x are added up
    });
  }
  CheckGradients({"scale", "sum"}, false, [](Formula& f) {
    const Variable x = f.Input("x", {2});
    return AddAll({2.0 * x, 0.1 * x, x - 0.3, x / 3.0, 1.0 / x});
  });
}

// As in Paddle, a real operand of a complex one counts as complex.
TEST(Complex, RealOperands) {
  for (const DType complex : {DType::kComplex64, DType::kComplex128}) {
    for (const DType real : {DType::kFloat32, DType::kFloat64, DType::kComplex64}) {
      if (real == complex) continue;
      SCOPED_TRACE(std::string(ToString(complex)) + " and " + ToString(real));
      const DType out = real == DType::kFloat64 ? DType::kComplex128 : complex;
      const Tensor x = Complexes({2}, {{1, 2}, {3, -1}}, complex);
      const Tensor y = Tensor::Of<double>({2}, {2, -4}).Cast(real);
      const auto expect = [&](const char* type, const Values& xy, const Values& yx) {
        const Shape shape = {static_cast<int64_t>(xy.size()) / 2};
        OpTest(type)
            .TensorInput("X", x)
            .TensorInput("Y", y)
            .Expect("Out", shape, xy)
            .ExpectDType("Out", out);
        OpTest(type)
            .TensorInput("X", y)
            .TensorInput("Y", x)
            .Expect("Out", shape, yx)
            .ExpectDType("Out", out);
      };
      expect("elementwise_add", {3, 2, -1, -1}, {3, 2, -1, -1});
      expect("elementwise_sub", {-1, 2, 7, -1}, {1, -2, -7, 1});
      expect("elementwise_mul", {2, 4, -12, 4}, {2, 4, -12, 4});
      expect("elementwise_div", {0.5, 1, -0.75, 0.25}, {0.4, -0.8, -1.2, -0.4});
      expect("matmul_v2", {-10, 8}, {-10, 8});
      expect("dot", {-10, 8}, {-10, 8});
      expect("kron", {2, 4, -4, -8, 6, -2, -12, 4}, {2, 4, 6, -2, -4, -8, -12, 4});
    }
  }
  for (const char* type : {"elementwise_add", "elementwise_sub", "elementwise_mul",
                           "elementwise_div", "matmul_v2", "dot", "kron"}) {
    CheckGradients({type}, true, [&](Formula& f) {
      const Variable x = f.Input("x", {2, 2});
      return f.Binary(type, x, f.Real("y", {2, 2}));
    });
    CheckGradients({type}, true, [&](Formula& f) {
      const Variable y = f.Input("y", {2, 2});
      return f.Binary(type, f.Real("x", {2, 2}), y);
    });
  }
  CheckGradients({"elementwise_mul"}, false, [&](Formula& f) {
    const Variable x = f.Input("x", {2, 3});
    return f.Binary("elementwise_mul", x, f.Real("y", {3}));  // summed to its shape
  });
}

TEST(Complex, AbsoluteValues) {
  ForBoth([](DType dtype) {
    OpTest("abs")
        .TensorInput("X", Complexes({3}, {{3, -4}, {0, 0}, {-2, 0}}, dtype))
        .Expect("Out", {3}, {5, 0, 2})
        .ExpectDType("Out", RealOf(dtype));
    OpTest("abs_grad")
        .TensorInput("X", Complexes({2}, {{3, -4}, {0, 0}}, dtype))
        .TensorInput("Out@GRAD", Tensor::Of<double>({2}, {10, 1}).Cast(RealOf(dtype)))
        .Expect("X@GRAD", {2}, {6, -8, 0, 0})
        .ExpectDType("X@GRAD", dtype);
  });
  CheckGradients({"abs"}, true, [](Formula& f) { return f.Unary("abs", f.Input("x", {2, 2})); });
  // At 0 the gradient is 0.
  Formula f;
  const Variable loss = Sum(Abs(f.Input("x", {2})));
  const std::string grad = Gradients({loss}, {f.writer.Var("xr")}).at(0);
  f.values["xr"] = Tensor::Of<double>({2}, {0, -4});
  f.values["xi"] = Tensor::Of<double>({2}, {0, 0});
  Interpret(f.program.Root(), DefaultOps(), f.values);
  EXPECT_TRUE(BitEqual(std::get<Tensor>(f.values.at(grad)), Tensor::Of<double>({2}, {0, -1})));
}

// A program from elsewhere may hold abs_grad with an X that is the only way to a parameter.
TEST(Complex, SecondDerivativesOfAbsAreRefused) {
  Formula f;
  const Variable x = f.Input("x", {2}), d = f.Real("d", {2}, false);
  const Variable dx =
      f.writer.Make("abs_grad", {{"X", {x.name()}}, {"Out@GRAD", {d.name()}}}, {}, "X@GRAD");
  const Variable loss = Sum(f.Unary("real", dx));
  try {
    Gradients({loss}, {f.writer.Var("xr")});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnimplemented) << error.what();
  }
}

TEST(Complex, Products) {
  ForBoth([](DType dtype) {
    const Tensor x = Complexes({2, 2}, {{1, 1}, {2, 0}, {0, 1}, {0, 0}}, dtype);
    const Tensor y = Complexes({2, 1}, {{1, -1}, {0, 3}}, dtype);
    for (const char* type : {"matmul", "matmul_v2"}) {
      // (1+i)(1-i) + 2 3i = 2 + 6i,  i (1-i) = 1 + i
      OpTest(type).TensorInput("X", x).TensorInput("Y", y).Expect("Out", {2, 1}, {2, 6, 1, 1});
    }
    OpTest("matmul_v2")
        .Attr("trans_x", true)
        .TensorInput("X", x)
        .TensorInput("Y", y)
        .Expect("Out", {2, 1}, {-1, 0, 2, -2});
    const Tensor a = Complexes({2}, {{1, 2}, {0, 1}}, dtype);
    const Tensor b = Complexes({2}, {{3, -1}, {2, 2}}, dtype);
    // (1+2i)(3-i) + i (2+2i) = 5+5i - 2+2i, nothing conjugated
    OpTest("dot").TensorInput("X", a).TensorInput("Y", b).Expect("Out", {1}, {3, 7});
    OpTest("kron").TensorInput("X", a).TensorInput("Y", b).Expect("Out", {4},
                                                                  {5, 5, -2, 6, 1, 3, -2, 2});
    OpTest("trace").TensorInput("Input", x).Expect("Out", {1}, {1, 1});
    OpTest("diagonal").TensorInput("Input", x).Expect("Out", {2}, {1, 1, 0, 0});
  });
  for (const bool tx : {false, true}) {
    for (const bool ty : {false, true}) {
      CheckGradients({"matmul_v2"}, true, [&](Formula& f) {
        return f.Binary("matmul_v2", f.Input("x", tx ? Shape{2, 4, 3} : Shape{2, 3, 4}),
                        f.Input("y", ty ? Shape{2, 4} : Shape{4, 2}),
                        {{"trans_x", tx}, {"trans_y", ty}});
      });
    }
  }
  CheckGradients({"matmul"}, false, [](Formula& f) {
    return f.Binary("matmul", f.Input("x", {3, 2}), f.Input("y", {2, 3}), {{"alpha", 0.5f}});
  });
  CheckGradients({"dot"}, true, [](Formula& f) {
    return f.Binary("dot", f.Input("x", {2, 3}), f.Input("y", {2, 3}));
  });
  CheckGradients({"kron"}, true, [](Formula& f) {
    return f.Binary("kron", f.Input("x", {2, 2}), f.Input("y", {1, 3}));
  });
  CheckGradients({"trace"}, false, [](Formula& f) {
    return f.Op("trace", {{"Input", {f.Input("x", {2, 3, 3}).name()}}},
                {{"axis1", int32_t{1}}, {"axis2", int32_t{2}}});
  });
}

TEST(Complex, Reductions) {
  ForBoth([](DType dtype) {
    const Tensor x = Complexes({2, 2}, {{1, 1}, {2, 0}, {0, 1}, {0, -4}}, dtype);
    const std::vector<int32_t> rows = {1};
    const auto reduce = [&](const char* type) {
      return OpTest(type).TensorInput("X", x).Attr("dim", rows);
    };
    reduce("reduce_sum").Expect("Out", {2}, {3, 1, 0, -3}).ExpectDType("Out", dtype);
    reduce("reduce_mean").Expect("Out", {2}, {1.5, 0.5, 0, -1.5});
    OpTest("mean").TensorInput("X", x).Expect("Out", {1}, {0.75, -0.5});
    reduce("reduce_sum").Attr("out_dtype", 5).ExpectError("reduce_sum.C3");
    reduce("reduce_max").ExpectError("reduce_max: there is no kernel for input X");
  });
  const AttrList rows = {{"dim", std::vector<int32_t>{1}}};
  CheckGradients({"reduce_sum"}, true, [&](Formula& f) {
    return f.Unary("reduce_sum", f.Input("x", {2, 3}), rows);
  });
  CheckGradients({"reduce_mean"}, false, [&](Formula& f) {
    return f.Unary("reduce_mean", f.Input("x", {2, 3}), rows);
  });
  CheckGradients({"mean"}, false, [&](Formula& f) {
    return f.Unary("mean", f.Input("x", {2, 3}));
  });
}

TEST(Complex, Constants) {
  ForBoth([](DType dtype) {
    const auto number = static_cast<int32_t>(dtype);
    OpTest("fill_constant")
        .Attr("shape", std::vector<int64_t>{2})
        .Attr("dtype", number)
        .Attr("value", 1.5f)
        .Expect("Out", {2}, {1.5, 0, 1.5, 0})
        .ExpectDType("Out", dtype);
    const Tensor x = Complexes({3}, {{1, 2}, {3, 4}, {5, 6}}, dtype);
    OpTest("fill_any_like")
        .Attr("value", 2.f)
        .TensorInput("X", x)
        .Expect("Out", {3}, {2, 0, 2, 0, 2, 0});
    OpTest("fill_zeros_like").TensorInput("X", x).Expect("Out", {3}, {0, 0, 0, 0, 0, 0});
    OpTest("assign_value")
        .Attr("shape", std::vector<int32_t>{1})
        .Attr("dtype", number)
        .Attr("fp32_values", std::vector<float>{1})
        .ExpectError("assign_value.C2");
    OpTest("uniform_random")
        .Attr("shape", std::vector<int64_t>{1})
        .Attr("dtype", number)
        .ExpectError("uniform_random.C");
  });
}

// Ops that move elements whatever these are.
TEST(Complex, Moved) {
  ForBoth([](DType dtype) {
    const Tensor x =
        Complexes({2, 3}, {{1, -1}, {2, -2}, {3, -3}, {4, -4}, {5, -5}, {6, -6}}, dtype);
    const auto op = [&](const char* type, const char* slot = "X") {
      return OpTest(type).TensorInput(slot, x);
    };
    const auto ints = [](std::vector<int32_t> values) { return values; };
    const Values columns = {1, -1, 4, -4, 2, -2, 5, -5, 3, -3, 6, -6};
    op("transpose2").Attr("axis", ints({1, 0})).NoOutput("XShape").Expect("Out", {3, 2}, columns);
    op("reshape2")
        .Attr("shape", ints({-1}))
        .NoOutput("XShape")
        .Expect("Out", {6}, {1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6, -6});
    op("slice", "Input")
        .Attr("axes", ints({1}))
        .Attr("starts", ints({1}))
        .Attr("ends", ints({2}))
        .Expect("Out", {2, 1}, {2, -2, 5, -5});
    op("flip")
        .Attr("axis", ints({1}))
        .Expect("Out", {2, 3}, {3, -3, 2, -2, 1, -1, 6, -6, 5, -5, 4, -4});
    op("roll")
        .Attr("shifts", std::vector<int64_t>{1})
        .Attr("axis", std::vector<int64_t>{0})
        .Expect("Out", {2, 3}, {4, -4, 5, -5, 6, -6, 1, -1, 2, -2, 3, -3});
    op("gather").IntInput("Index", {1}, {1}).Expect("Out", {1, 3}, {4, -4, 5, -5, 6, -6});
    op("stack").TensorInput("X", x).Attr("axis", int32_t{0}).Expect("Y", {2, 2, 3}, {1, -1, 2, -2,
                                                                                     3, -3, 4, -4,
                                                                                     5, -5, 6, -6,
                                                                                     1, -1, 2, -2,
                                                                                     3, -3, 4, -4,
                                                                                     5, -5, 6, -6});
    op("concat").TensorInput("X", x).Attr("axis", int32_t{1}).Expect("Out", {2, 6}, {1, -1, 2, -2,
                                                                                     3, -3, 1, -1,
                                                                                     2, -2, 3, -3,
                                                                                     4, -4, 5, -5,
                                                                                     6, -6, 4, -4,
                                                                                     5, -5, 6, -6});
    const Tensor row = Complexes({1, 2}, {{1, 2}, {3, 4}}, dtype);
    OpTest("expand_v2")
        .TensorInput("X", row)
        .Attr("shape", ints({2, 2}))
        .Expect("Out", {2, 2}, {1, 2, 3, 4, 1, 2, 3, 4});
    OpTest("where")
        .TensorInput("Condition", Tensor::Of<bool>({1, 2}, {true, false}))
        .TensorInput("X", row)
        .TensorInput("Y", Tensor::Zeros(dtype, {1, 2}))
        .Expect("Out", {1, 2}, {1, 2, 0, 0});
    OpTest("assign").TensorInput("X", row).Expect("Out", {1, 2}, {1, 2, 3, 4});
  });
  // Gradients go back the same ways.
  const auto ints = [](std::vector<int32_t> values) { return values; };
  CheckGradients(
      {"transpose", "reshape", "slice", "gather", "tile", "expand_v2", "concat"}, false,
      [&](Formula& f) {
        Variable x = f.Unary("transpose", f.Input("x", {2, 3}), {{"axis", ints({1, 0})}});
        x = f.Unary("reshape", x, {{"shape", ints({2, 3})}});
        x = f.Op("slice", {{"Input", {x.name()}}},
                 {{"axes", ints({1})}, {"starts", ints({0})}, {"ends", ints({2})}});
        const Variable index = FillConstant(f.writer, DType::kInt64, 1, {3});
        x = f.Op("gather", {{"X", {x.name()}}, {"Index", {index.name()}}});
        x = f.Unary("tile", x, {{"repeat_times", ints({2, 1})}});
        const Variable y = f.Unary("expand_v2", f.Input("y", {1, 2}), {{"shape", ints({6, 2})}});
        return f.Op("concat", {{"X", {x.name(), (x * y).name()}}}, {{"axis", int32_t{0}}});
      });
}

TEST(Complex, Refused) {
  const Tensor x = Tensor::Zeros(DType::kComplex64, {2});
  const std::string why = "X is complex64[2]; complex elements are not supported";
  for (const char* type : {"equal", "less_than", "logical_and"})
    OpTest(type).TensorInput("X", x).TensorInput("Y", x).ExpectError(std::string(type) + ": " +
                                                                     why);
  for (const char* type : {"logical_not", "isfinite", "isnan", "isnan_v2"})
    OpTest(type).TensorInput("X", x).ExpectError(std::string(type) + ": " + why);
  for (const char* type : {"relu", "sigmoid", "square", "exp", "sqrt", "softmax"})
    OpTest(type).TensorInput("X", x).ExpectError(std::string(type) + ": there is no kernel");
}

TEST(Complex, ALossIsReal) {
  Formula f;
  const Variable out = f.Unary("reduce_sum", f.Input("x", {2}), {{"reduce_all", true}});
  BackwardOptions options;
  options.parameter_list = f.wrt;
  try {
    AppendBackward(out, options);
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("complex128[1]; it must be a floating-point tensor (take its real"),
              std::string::npos)
        << e.message();
  }
  // With a gradient given it is a target like others: of the seed 2 + 3i, dL/dRe = 2, dL/dIm = 3.
  VarDesc& seed = f.program.Root().Var("seed");
  seed.SetMeta(out.desc().meta());
  options.target_gradients = {"seed"};
  const auto pairs = AppendBackward(out, options);
  f.values["seed"] = Tensor::Of<C>({1}, {C(2, 3)});
  Interpret(f.program.Root(), DefaultOps(), f.values);
  EXPECT_TRUE(
      BitEqual(std::get<Tensor>(f.values.at(pairs[0].grad)), Tensor::Of<double>({2}, {2, 2})));
  EXPECT_TRUE(
      BitEqual(std::get<Tensor>(f.values.at(pairs[1].grad)), Tensor::Of<double>({2}, {3, 3})));
}

// Integers together with complex numbers: matmul_v2 multiplies those too.
TEST(Complex, IntegersMultiply) {
  for (DType dtype : {DType::kInt32, DType::kInt64}) {
    OpTest("matmul_v2")
        .IntInput("X", {2, 2}, {1, 2, 3, 4}, dtype)
        .IntInput("Y", {2, 2}, {5, 6, 7, -8}, dtype)
        .Expect("Out", {2, 2}, {19, -10, 43, -14})
        .ExpectDType("Out", dtype);
    OpTest("matmul_v2")
        .Attr("trans_y", true)
        .IntInput("X", {2, 1, 2}, {1, 2, 3, 4}, dtype)
        .IntInput("Y", {1, 2}, {5, 6}, dtype)
        .Expect("Out", {2, 1, 1}, {17, 39});
    OpTest("abs").IntInput("X", {2}, {-3, 4}, dtype).Expect("Out", {2}, {3, 4});
    OpTest("reduce_sum")
        .IntInput("X", {2}, {-3, 4}, dtype)
        .Expect("Out", {1}, {1})
        .ExpectDType("Out", dtype);
  }
}

}  // namespace coracle::complex_test
