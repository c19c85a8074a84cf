#include <coracle/operators/matmul/bilinear_gradient.h>

#include <vector>

namespace coracle {

void AppendBilinearGradGradient(GradientContext& g, const std::string& type,
                                const AttrList& attrs) {
  const std::string x = g.Input("X"), y = g.Input("Y"), dout = g.Input("Out@GRAD");
  std::vector<std::string> terms;
  for (bool of_x : {true, false}) {
    const char* arrived = of_x ? "X@GRAD" : "Y@GRAD";
    if (!g.HasOutputGrad(arrived)) continue;
    const std::string grad = g.OutputGrad(arrived);
    const SlotList operands = {{"X", {of_x ? grad : x}}, {"Y", {of_x ? y : grad}}};
    if (g.NeedsInputGrad("Out@GRAD")) {
      terms.push_back(g.Temp(dout + "@TERM"));
      g.Append(type, operands, {{"Out", {terms.back()}}}, attrs);
    }
    SlotList inputs = operands;
    inputs.push_back({"Out@GRAD", {dout}});
    const std::string other = of_x ? "Y" : "X";
    g.Append(type + "_grad", inputs, {{other + "@GRAD", {g.InputGrad(other)}}}, attrs);
  }
  if (!terms.empty()) g.Append("sum", {{"X", terms}}, {{"Out", {g.InputGrad("Out@GRAD")}}});
}

}  // namespace coracle
