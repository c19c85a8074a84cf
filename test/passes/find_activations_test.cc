// Activations that are written out become one op, and what looks similar stays.

#include <coracle/test/passes/op_program.h>

#include <algorithm>

namespace coracle::find_activations_test {

class Written : public OpProgram {
 public:
  Written() {
    Data("images", {-1, 4, 4, 3});
    // x has a certain rank and no LoD, which an op whose first input is a constant would drop.
    Transpose("images", "in", {0, 3, 1, 2}, false);
    Unary("abs", "in", "a");
    Append("elementwise_sub", {{"X", {"in"}}, {"Y", {"a"}}}, {{"Out", {"x"}}});
  }
  std::string Number(float value, const Shape& shape = {1}) {
    const std::string name = "c" + std::to_string(++count_);
    Parameter(name, shape);
    scope.Set(name, Tensor::Full<float>(shape, value));
    return name;
  }
  std::string Binary(const std::string& type, const std::string& x, const std::string& y,
                     const std::string& out = "") {
    const std::string name = out.empty() ? "t" + std::to_string(++count_) : out;
    Append("elementwise_" + type, {{"X", {x}}, {"Y", {y}}}, {{"Out", {name}}});
    return name;
  }
  std::string Function(const std::string& type, const std::string& x, AttrList attrs = {}) {
    return Unary(type, x, "t" + std::to_string(++count_), std::move(attrs));
  }
  // The ops after those that make x.
  std::string Found(const std::vector<std::string>& fetches = {"y"}) const {
    const std::string all = After({"find_activations"}, fetches, true);
    return all.substr(all.find('\n', all.find("Out=x")) + 1);
  }

 private:
  int count_ = 0;
};

TEST(FindActivations, HardSwishInEachForm) {
  for (int form = 0; form < 24; ++form) {
    Written p;
    const std::string three = p.Number(3);
    const std::string sum =
        form % 2 == 0 ? p.Binary("add", "x", three) : p.Binary("add", three, "x");
    std::string gate;
    if (form / 2 % 3 == 0) {
      gate = p.Function("clip", sum, {{"min", 0.0f}, {"max", 6.0f}});
    } else if (form / 2 % 3 == 1) {
      gate = p.Function("relu6", sum);
    } else {
      gate = p.Binary("min", p.Binary("max", sum, p.Number(0)), p.Number(6, {}));
    }
    const bool before = form / 6 % 2 == 0;
    if (before) gate = p.Binary("div", gate, p.Number(6));
    const std::string product =
        p.Binary("mul", form >= 12 ? gate : "x", form >= 12 ? "x" : gate, before ? "y" : "");
    if (!before) p.Binary("mul", product, p.Number(1.0f / 6), "y");
    EXPECT_EQ(p.Found(), "Out=y = hard_swish(X=x)\n") << form;
    p.ExpectSame({"y"});
  }
}

TEST(FindActivations, HardSigmoidTimesItsArgument) {
  Written p;
  p.Binary("mul", "x", p.Function("hard_sigmoid", "x", {{"slope", 0.1666667f}, {"offset", 0.5f}}),
           "y");
  EXPECT_EQ(p.Found(), "Out=y = hard_swish(X=x)\n");
  p.ExpectSame({"y"});
  Written other;  // the default slope is 0.2
  other.Binary("mul", "x", other.Function("hard_sigmoid", "x"), "y");
  EXPECT_EQ(other.Found().find("hard_swish"), std::string::npos);
}

TEST(FindActivations, FactorsAfterTheActivationStay) {
  Written p;
  const std::string gate =
      p.Function("clip", p.Binary("add", "x", p.Number(3)), {{"min", 0.0f}, {"max", 6.0f}});
  const std::string divided = p.Binary("div", p.Binary("mul", "x", gate), p.Number(6));
  p.Binary("mul", p.Number(2), divided, "y");
  EXPECT_NE(p.Found().find("hard_swish(X=x)"), std::string::npos);
  EXPECT_NE(p.Found().find("Out=y = elementwise_mul"), std::string::npos);
  p.ExpectSame({"y"});
}

TEST(FindActivations, Swish) {
  Written p;
  p.Binary("mul", "x", p.Function("sigmoid", "x"), "y");
  EXPECT_EQ(p.Found(), "Out=y = swish(X=x)\n");
  p.ExpectSame({"y"});
  Written beta;
  beta.Binary("mul", beta.Function("sigmoid", beta.Function("scale", "x", {{"scale", 1.5f}})), "x",
              "y");
  EXPECT_EQ(beta.Found(), "Out=y = swish(X=x)\n");
  beta.ExpectSame({"y"});
}

TEST(FindActivations, Gelu) {
  for (const bool half_first : {false, true}) {
    Written p;
    const std::string erf = p.Function("erf", p.Binary("div", "x", p.Number(std::sqrt(2.0f))));
    const std::string gate = p.Binary("add", erf, p.Number(1));
    if (half_first) {
      p.Binary("mul", p.Binary("mul", "x", p.Number(0.5f)), gate, "y");
    } else {
      p.Binary("mul", p.Binary("mul", "x", gate), p.Number(0.5f), "y");
    }
    EXPECT_EQ(p.Found(), "Out=y = gelu(X=x)\n") << half_first;
    p.ExpectSame({"y"});
  }
}

TEST(FindActivations, LeavesWhatIsSimilar) {
  struct Case {
    float offset = 3, least = 0, most = 6, divisor = 6;
  };
  for (const Case& c : {Case{2}, Case{3, -1}, Case{3, 0, 5}, Case{3, 0, 6, 5}}) {
    Written p;
    const std::string gate = p.Function("clip", p.Binary("add", "x", p.Number(c.offset)),
                                        {{"min", c.least}, {"max", c.most}});
    p.Binary("div", p.Binary("mul", "x", gate), p.Number(c.divisor), "y");
    EXPECT_EQ(p.Found().find("hard_swish"), std::string::npos);
    p.ExpectSame({"y"});
  }
  Written read;  // another op reads the gate
  const std::string gate = read.Function("sigmoid", "x");
  read.Binary("mul", "x", gate, "y");
  read.Unary("relu", gate, "z");
  EXPECT_EQ(read.Found({"y", "z"}).find("swish"), std::string::npos);
  Written fetched;
  const std::string seen = fetched.Function("sigmoid", "x");
  fetched.Binary("mul", "x", seen, "y");
  EXPECT_EQ(fetched.Found({"y", seen}).find("swish"), std::string::npos);
  Written other;  // the gate of another value
  other.Binary("mul", "x", other.Function("sigmoid", "a"), "y");
  EXPECT_EQ(other.Found().find("swish"), std::string::npos);
  Written lod;  // the product would have no LoD
  lod.Data("sequences", {-1, 3, 4, 4});
  lod.root().FindVar("sequences")->SetNeedCheckFeed(true);
  const std::string moved = lod.Binary("add", lod.Number(3), "sequences");
  lod.Binary("mul", lod.Function("relu6", moved), "sequences", "p");
  lod.Binary("div", "p", lod.Number(6), "y");
  EXPECT_EQ(lod.Found().find("hard_swish"), std::string::npos);
  Written wide;  // a constant with more axes than x
  const std::string five = wide.Binary("add", "x", wide.Number(3, {1, 1, 1, 1, 1}));
  wide.Binary("mul", "x", wide.Function("sigmoid", five), "y");
  EXPECT_EQ(wide.Found().find("swish"), std::string::npos);
  wide.ExpectSame({"y"});
}

}  // namespace coracle::find_activations_test
