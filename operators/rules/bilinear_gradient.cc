#include <coracle/operators/operators.h>
#include <coracle/operators/rules/bilinear_gradient.h>

#include <vector>

namespace coracle::inline internal {

void SetBilinearGradGradient(GradientContext& g, const std::string& type, const AttrList& attrs) {
  std::vector<Variable> terms;
  const auto add = [&](const char* other, const std::string& x, const std::string& y) {
    SlotList operands = {{"X", {x}}, {"Y", {y}}};
    terms.push_back(g.Make(type, operands, attrs));
    operands.push_back({"Out@GRAD", {g.Input("Out@GRAD")}});
    g.Set(other, g.Make(type + "_grad", operands, attrs, std::string(other) + "@GRAD"));
  };
  if (g.HasOutputGrad("X@GRAD")) add("Y", g.OutputGrad("X@GRAD"), g.Input("Y"));
  if (g.HasOutputGrad("Y@GRAD")) add("X", g.Input("X"), g.OutputGrad("Y@GRAD"));
  g.Set("Out@GRAD", AddAll(terms));
}

}  // namespace coracle::inline internal
