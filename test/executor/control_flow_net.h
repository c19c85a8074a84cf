#pragma once
// Programs with loops and branches, as the tests of the executor make them.

#include <coracle/executor/executor.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/layers/builder.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace coracle {

struct LoopNet {
  ProgramDesc main, startup;
  Builder net{main, startup};

  Variable Int(int64_t value) { return FillConstant(net, {1}, DType::kInt64, value); }
  Variable Less(const Variable& a, const Variable& b) { return net.Binary("less_than", a, b); }
  // for (i = 0; i < n; ++i) body(i)
  void For(const Variable& n, const std::function<void(Variable)>& body,
           const WhileOptions& options = {}) {
    Variable i = Int(0);
    Variable condition = Less(i, n);
    While(
        net, condition,
        [&] {
          body(i);
          Increment(net, i);
          Assign(net, Less(i, n), condition);
        },
        options);
  }
  PreparedProgram Prepare(const std::vector<std::string>& feeds,
                          const std::vector<std::string>& fetches,
                          const CompileOptions& options = {}) {
    return Executor(options).Prepare(main, feeds, fetches);
  }
  // The executor's result, after a comparison with the interpreter's.
  std::vector<Tensor> Run(const std::map<std::string, Tensor>& feeds,
                          const std::vector<std::string>& fetches) {
    Scope scope;
    std::vector<Tensor> results = Executor().Run(main, scope, feeds, fetches);
    VarValues env;
    for (const auto& [name, tensor] : feeds) env[name] = tensor.Clone();
    Interpret(main.Root(), DefaultOps(), env, {.kernels = KernelMode::kAuto});
    for (size_t i = 0; i < fetches.size(); ++i)
      EXPECT_TRUE(BitEqual(results[i], std::get<Tensor>(env.at(fetches[i])))) << fetches[i];
    return results;
  }
};

inline Tensor OneInt(int64_t value) { return Tensor::Full<int64_t>({1}, value); }

}  // namespace coracle
