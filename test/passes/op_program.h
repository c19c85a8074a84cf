#pragma once
// A program that tests write op by op, before and after passes, and its values with and
// without them.

#include <coracle/executor/executor.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/operators/operators.h>
#include <coracle/passes/freeze.h>
#include <coracle/test/passes/listing.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace coracle {

class OpProgram {
 public:
  ProgramDesc program;
  Scope scope;
  std::map<std::string, Tensor> feeds;  // with 2 for unknown dimensions

  BlockDesc& root() { return program.Root(); }

  std::string Data(const std::string& name, const Shape& shape, DType dtype = DType::kFloat32) {
    Declare(name, shape, dtype);
    Shape fed = shape;
    for (int i = 0; i < fed.rank(); ++i) fed[i] = fed[i] < 0 ? 2 : fed[i];
    feeds[name] = Drawn(fed).Cast(dtype);
    return name;
  }
  std::string Parameter(const std::string& name, const Shape& shape,
                        DType dtype = DType::kFloat32) {
    Declare(name, shape, dtype).SetPersistable(true);
    scope.Set(name, Drawn(shape).Cast(dtype));
    return name;
  }
  OpDesc& Append(const std::string& type, SlotList in, SlotList out, AttrList attrs = {}) {
    OpDesc& op = root().AppendOp(type, std::move(in), std::move(out), std::move(attrs));
    InferOp(root(), op, DefaultOps());
    return op;
  }
  // With the slots X and Out.
  std::string Unary(const std::string& type, const std::string& x, const std::string& out,
                    AttrList attrs = {}) {
    Append(type, {{"X", {x}}}, {{"Out", {out}}}, std::move(attrs));
    return out;
  }
  std::string Transpose(const std::string& x, const std::string& out, std::vector<int32_t> axis,
                        bool keeps_lod = true) {
    return Unary("transpose2", x, out, {{"axis", std::move(axis)}, {"keeps_lod", keeps_lod}});
  }

  std::string Listing() const { return coracle::Listing(program); }

  // After these passes; with `frozen`, of parameters that are frozen.
  std::string After(const std::vector<std::string>& passes, const std::vector<std::string>& fetches,
                    bool frozen = false) const {
    ProgramDesc copy = program;
    std::unordered_set<std::string> fed;
    for (const auto& [name, value] : feeds) fed.insert(name);
    PassContext context{DefaultOps(), fed, {fetches.begin(), fetches.end()}};
    FrozenValues values;
    if (frozen) {
      values = Freeze(copy, scope, fed);
      context.frozen = &values;
    }
    RunPasses(copy, context, passes);
    return coracle::Listing(copy);
  }
  // The same values, shapes, dtypes and LoD with all passes, frozen or not, as without any.
  void ExpectSame(const std::vector<std::string>& fetches) {
    const CompileOptions plain{.kernels = KernelMode::kReference, .optimize = false};
    const std::vector<Tensor> expected = Executor(plain).Run(program, scope, feeds, fetches);
    Compare(fetches, expected, Executor().Run(program, scope, feeds, fetches));
    std::vector<std::string> names;
    std::vector<Tensor> fed;
    for (const auto& [name, value] : feeds) {
      names.push_back(name);
      fed.push_back(value);
    }
    Compare(fetches, expected,
            Executor().PrepareFrozen(program, scope, names, fetches).Run(scope, fed));
  }

  static Tensor Drawn(const Shape& shape) {
    Tensor value(DType::kFloat64, shape);
    static int drawn = 0;
    for (double& x : value.span<double>()) x = 3 * std::sin(1.7 * ++drawn);
    return value;
  }

 private:
  VarDesc& Declare(const std::string& name, const Shape& shape, DType dtype) {
    VarDesc& var = root().Var(name);
    var.SetDType(dtype);
    var.SetShape(shape);
    return var;
  }

  static void Compare(const std::vector<std::string>& names, const std::vector<Tensor>& expected,
                      const std::vector<Tensor>& got) {
    for (size_t i = 0; i < names.size(); ++i) {
      SCOPED_TRACE(names[i]);
      ASSERT_EQ(got[i].ToString(), expected[i].ToString());
      EXPECT_EQ(got[i].lod(), expected[i].lod());
      const Tensor a = got[i].Cast(DType::kFloat64), b = expected[i].Cast(DType::kFloat64);
      // Terms of a sum are as large as other elements, and so are its rounding errors.
      double scale = 1;
      for (double x : b.span<double>())
        if (std::isfinite(x)) scale = std::max(scale, 1 + std::abs(x));
      for (int64_t k = 0; k < a.numel(); ++k) {
        ASSERT_NEAR(a.data<double>()[k], b.data<double>()[k], 1e-5 * scale) << k;
      }
    }
  }
};

}  // namespace coracle
