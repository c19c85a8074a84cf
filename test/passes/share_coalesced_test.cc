// Variables that share memory in a coalesce_tensor: programs in which one side is written and the
// other read.

#include <coracle/framework/op/op_context.h>
#include <coracle/passes/share_coalesced.h>
#include <coracle/test/error_of.h>
#include <coracle/test/passes/op_program.h>

namespace coracle::share_coalesced_test {

// a [2] and b [3] of f [5].
OpProgram Fused() {
  OpProgram p;
  p.Data("x", {2});
  p.Data("y", {3});
  p.Append("coalesce_tensor", {{"Input", {"x", "y"}}},
           {{"Output", {"a", "b"}}, {"FusedOutput", {"f"}}},
           {{"dtype", 5}, {"copy_data", true}, {"use_align", false}});
  return p;
}

std::vector<std::string> TypesOf(ProgramDesc program) {
  ShareCoalesced(program);
  std::vector<std::string> types;
  program.ForEachOp([&](const OpDesc& op) { types.push_back(op.type()); });
  return types;
}

using Types = std::vector<std::string>;

Tensor RunOn(const OpProgram& p, const std::string& fetch, bool optimize) {
  Scope scope;
  return Executor(CompileOptions{.optimize = optimize})
      .Run(p.program, scope,
           {{"x", Tensor::Of<float>({2}, {1, 2})}, {"y", Tensor::Of<float>({3}, {3, 4, 5})}},
           {fetch})[0]
      .Clone();
}
void Expect(const OpProgram& p, const std::string& fetch, const std::vector<float>& values) {
  for (const bool optimize : {false, true}) {
    const Tensor out = RunOn(p, fetch, optimize);
    ASSERT_EQ(out.numel(), static_cast<int64_t>(values.size()));
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(out.data<float>()[i], values[i]) << fetch << " " << i;
  }
}

TEST(ShareCoalesced, ReadersOfTheOtherSide) {
  OpProgram p = Fused();
  p.Unary("scale", "f", "f", {{"scale", 10.0f}});
  p.Unary("scale", "a", "c", {{"bias", 1.0f}});  // reads a part of what was written
  p.Unary("scale", "b", "b", {{"bias", 2.0f}});  // writes a part
  p.Unary("scale", "f", "d");                    // reads the whole
  EXPECT_EQ(TypesOf(p.program), (Types{"coalesce_tensor", "scale", "divide_coalesced", "scale",
                                       "scale", "coalesce_tensor", "scale"}));
  Expect(p, "c", {11, 21});
  Expect(p, "d", {10, 20, 32, 42, 52});
  Expect(p, "b", {32, 42, 52});
  Expect(p, "f", {10, 20, 32, 42, 52});
}

// Fetched and kept variables are as new as the other side.
TEST(ShareCoalesced, AtTheEnd) {
  OpProgram p = Fused();
  p.Unary("scale", "f", "f", {{"scale", 10.0f}});
  Expect(p, "b", {30, 40, 50});
  OpProgram q = Fused();
  q.Unary("scale", "a", "a", {{"scale", 10.0f}});
  Expect(q, "f", {10, 20, 3, 4, 5});
}

TEST(ShareCoalesced, NothingToDo) {
  OpProgram p = Fused();
  p.Unary("scale", "a", "a");
  EXPECT_EQ(TypesOf(p.program), (Types{"coalesce_tensor", "scale"}));  // f is read by nobody
  OpProgram q = Fused();
  q.Unary("scale", "f", "c");
  q.Unary("scale", "a", "d");
  EXPECT_EQ(TypesOf(q.program), (Types{"coalesce_tensor", "scale", "scale"}));
}

// An op waits for the whole by the name of a part, and divides it afterwards.
TEST(ShareCoalesced, Waits) {
  OpProgram p = Fused();
  p.Unary("c_allreduce_sum", "f", "f");
  p.Append("c_sync_comm_stream", {{"X", {"a"}}}, {{"Out", {"a"}}});
  p.Unary("scale", "b", "c");
  ProgramDesc program = p.program;
  ShareCoalesced(program);
  EXPECT_EQ(TypesOf(p.program), (Types{"coalesce_tensor", "c_allreduce_sum", "c_sync_comm_stream",
                                       "divide_coalesced", "scale"}));
  EXPECT_EQ(program.Root().op(2).Input("X"), Types{"f"});
}

TEST(ShareCoalesced, UnknownOrderIsRefused) {
  OpProgram two = Fused();
  two.Append("coalesce_tensor", {{"Input", {"a"}}}, {{"Output", {"a"}}, {"FusedOutput", {"g"}}},
             {{"dtype", 5}});
  two.Unary("scale", "f", "c");
  two.Unary("scale", "g", "d");
  EXPECT_NE(ErrorOf([&] {
              ShareCoalesced(two.program);
            }).find("coalesce_tensor of 'g': it shares variables with another one"),
            std::string::npos);
  OpProgram both = Fused();
  BlockDesc& block = both.program.AppendBlock(both.root());
  block.AppendOp("scale", {{"X", {"a"}}}, {{"Out", {"f"}}});
  both.root().AppendOp("conditional_block", {{"Input", {"a"}}}, {{"Out", {"f"}}},
                       {{"sub_block", BlockRef{block.idx()}}});
  EXPECT_NE(ErrorOf([&] { ShareCoalesced(both.program); }).find("writes to them"),
            std::string::npos);
  OpProgram outside;
  BlockDesc& inner = outside.program.AppendBlock(outside.root());
  outside.Data("x", {2});
  outside.Data("f", {2});
  inner.AppendOp("coalesce_tensor", {{"Input", {"x"}}}, {{"Output", {"x"}}, {"FusedOutput", {"f"}}},
                 {{"dtype", 5}});
  outside.Unary("scale", "f", "c");
  EXPECT_NE(ErrorOf([&] { ShareCoalesced(outside.program); }).find("an op outside its block"),
            std::string::npos);
}
}  // namespace coracle::share_coalesced_test
