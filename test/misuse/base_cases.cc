// framework/base and framework/tensor.

#include <coracle/framework/base/error.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/test/misuse/misuse.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

// NOLINTBEGIN(bugprone-use-after-move): that is what is tested
namespace coracle::misuse {
namespace base_cases {

template <class Enum>
Enum Unknown() {
  return static_cast<Enum>(99);
}

void AddErrors(Cases& cases) {
  cases.Of("ErrorCode").Works("unknown", [] { ToString(Unknown<ErrorCode>()); });
  cases.Of("Error")
      .Works("moved from",
             [] {
               Error error(ErrorCode::kIo, "what", "details");
               Error moved = std::move(error);
               error.WithDetail("more").WithPrefix("before");
               error = moved;
               Require(error.message() == "what", "assigned");
             })
      .Works("an empty message", [] { Error(ErrorCode::kIo, "").WithDetail(""); });
  cases.Of("InternalError").Works("an empty message", [] { InternalError("", "", 0).what(); });
  cases.Of("MessageLevel").Works("unknown", [] { LogMessage(Unknown<MessageLevel>(), ""); });
  cases.Of("OutOfMemory").Works("an empty message", [] { OutOfMemory("").what(); });
}

void AddLimits(Cases& cases) {
  cases.Plain<ResourceOptions>("ResourceOptions");
  cases.Of("ResourceLimits")
      .Fails("a time that is no number", "time limit",
             [] { ResourceLimits({.seconds = std::nan("")}, nullptr); })
      .Fails("a negative time", "time limit", [] { ResourceLimits({.seconds = -1}, nullptr); })
      .Fails("more than the memory", "out of memory", [] {
        ResourceLimits limits({.memory = 1}, nullptr);
        limits.Reserve(std::numeric_limits<uint64_t>::max(), [] { return std::string("x"); });
      });
  cases.Of("ScopedLimits").Works("null", [] {
    const ScopedLimits scoped(nullptr);
    Tensor(DType::kFloat32, {4});
  });
  cases.Of("ScopedRun").Fails("null", "null", [] { const ScopedRun run(nullptr); });
}

void AddShape(Cases& cases) {
  cases.Of("DType")
      .Works("unknown",
             [] {
               Require(SizeOf(Unknown<DType>()) == 0, "no size");
               ToString(Unknown<DType>());
             })
      .Fails("a null result", "null", [] { ParseDType("float32", nullptr); })
      .Works("an empty name", [] {
        DType dtype = DType::kBool;
        Require(!ParseDType("", &dtype), "no dtype has an empty name");
      });
  cases.Of("float16").Works("of a nan", [] { Require(std::isnan(float(float16(NAN))), "nan"); });
  cases.Of("bfloat16").Works("of a nan", [] { Require(std::isnan(float(bfloat16(NAN))), "nan"); });
  cases.Of("StringRef").Works("default", [] { Require(StringRef().view().empty(), "empty"); });
  cases.Of("Shape")
      .Fails("too many dims", "rank", [] { Shape(std::vector<int64_t>(10, 1)); })
      .Fails("a dim too many", "rank",
             [] {
               Shape shape(std::vector<int64_t>(9, 1));
               shape.Append(1);
             })
      .Fails("elements of an unknown dim", "unknown",
             [] {
               Shape{-1, 2}.numel();
             })
      .Fails("too many elements", "too many",
             [] {
               Shape{1 << 30, 1 << 30, 1 << 30}.numel();
             })
      .Fails("a null result", "null", [] { Shape{2}.NormalizeAxis(0, nullptr); })
      .Works("an axis outside", [] {
        int axis = 7;
        Require(!Shape{2}.NormalizeAxis(1, &axis) && !Shape().NormalizeAxis(0, &axis), "none");
        Require(axis == 7, "unchanged");
      });
}

Tensor NullView() { return Tensor::View(DType::kFloat32, {4}, nullptr); }

void AddTensor(Cases& cases) {
  cases.Of("Tensor")
      .Fails("an unknown dtype", "dtype", [] { Tensor(Unknown<DType>(), {2}); })
      .Fails("an unknown dim", "shape", [] { Tensor(DType::kFloat32, {-1}); })
      .Fails("more than any machine holds", "too many",
             [] { Tensor(DType::kFloat32, {int64_t{1} << 50}); })
      .Works("default and moved from",
             [] {
               Tensor empty;
               empty.Clone().Cast(DType::kInt64);
               Tensor tensor(DType::kInt32, {3});
               Tensor moved = std::move(tensor);
               Require(tensor.empty() && tensor.raw() == nullptr, "empty");
               tensor.Resize(DType::kInt32, {2});
               moved.CopyFrom(tensor);
               Tensor& itself = moved;
               moved = std::move(itself);
               moved.CopyFrom(moved);
               Require(moved.numel() == 2, "kept");
             })
      .Fails("another type of elements", "read as",
             [] { Tensor(DType::kInt32, {1}).data<float>(); })
      .Fails("the only one of two", "one element",
             [] { Tensor::Zeros(DType::kInt32, {2}).Item<int32_t>(); })
      .Fails("the only one of none", "one element", [] { Tensor().Item<float>(); })
      .Fails("another number of elements", "view", [] { Tensor().Reshaped({2}); })
      .Fails("fewer values", "values",
             [] {
               Tensor::Of<float>({3}, {1, 2});
             })
      .Fails("fewer strings", "strings", [] { Tensor::OfStrings({3}, {}); })
      .Fails("a copy of a view of null", "null", [] { NullView().Clone(); })
      .Fails("a cast of a view of null", "null", [] { NullView().Cast(DType::kFloat64); })
      .Fails("the only element of a view of null", "null",
             [] { Tensor::View(DType::kFloat32, {1}, nullptr).Item<float>(); })
      .Fails("a copy into a tensor", "null", [] { Tensor().CopyFrom(NullView()); })
      .Fails("a cast to an unknown dtype", "dtype", [] { Tensor().Cast(Unknown<DType>()); })
      .Fails("a LoD that leaves rows out", "lod", [] {
        Tensor tensor = Tensor::Zeros(DType::kFloat32, {4});
        tensor.lod() = {{0, 2}};
        CheckLod("lod", tensor);
      });
  cases.Plain<SelectedRows>("SelectedRows");
  cases.Of("TensorArray")
      .Fails("an element past the end", "no element", [] { TensorArray()[0]; })
      .Works("moved from", [] {
        TensorArray array(3);
        TensorArray moved = std::move(array);
        Require(array.empty(), "empty");
        array.Unset(7);
        array.Set(2, Tensor(DType::kInt32, {1}));
        Require(array.size() == 3 && !array.IsWritten(0), "grown");
      });
  cases.Plain<RankTable>("RankTable");
  cases.Plain<VarCell>("VarCell");
  cases.Of("StepScopes").Works("counts without values", [] {
    StepScopes scopes;
    scopes.Count();
    scopes.Push();
    StepScopes moved = std::move(scopes);
    CopyValue(std::make_shared<StepScopes>(moved), std::make_unique<VarValue>().get());
  });
}

void AddScope(Cases& cases) {
  cases.Of("Scope")
      .Fails("an absent name", "no var", [] { Scope().Get(""); })
      .Fails("a variable without a value", "no tensor",
             [] {
               Scope scope;
               scope.Var("x");
               scope.Get("x");
             })
      .Fails("a copy to null", "null", [] { CopyValue(Tensor(), nullptr); })
      .Works("moved from, assigned to itself", [] {
        Scope scope;
        scope.Set("x", Tensor(DType::kInt32, {1}));
        Scope& itself = scope;
        scope = std::move(itself);
        Require(scope.Has("x"), "a scope assigned to itself keeps its values");
        const Scope moved = std::move(scope);
        Require(!scope.Has("x") && moved.Has("x"), "moved");
        scope.Erase("x");
        scope.Clone();
      });
  cases.Of("Philox").Works("no blocks", [] { Philox(0, 0, 0).Blocks(0, 0, nullptr); });
}

}  // namespace base_cases

void AddBase(Cases& cases) {
  using namespace base_cases;
  AddErrors(cases);
  AddLimits(cases);
  AddShape(cases);
  AddTensor(cases);
  AddScope(cases);
}

}  // namespace coracle::misuse
// NOLINTEND(bugprone-use-after-move)
