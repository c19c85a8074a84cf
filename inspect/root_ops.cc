#include <coracle/inspect/root_ops.h>
#include <coracle/operators/operators.h>

namespace coracle::inline internal {

RootOps::RootOps(const ProgramDesc& program) : root_(program.Root()), reads_(root_.NumOps()) {
  for (size_t i = 0; i < root_.NumOps(); ++i) {
    const OpDesc& op = root_.op(i);
    op.ForEachInput([&](const std::string& name) {
      const auto written = writers_.find(name);
      reads_[i].push_back({name, written == writers_.end() ? -1 : written->second.back()});
    });
    const OpSpec* spec = DefaultOps().Find(op.type());
    if (spec && (spec->kind == OpKind::kFeed || spec->kind == OpKind::kFetch)) continue;
    const int number = static_cast<int>(i);
    op.ForEachOutput([&](const std::string& name) {
      std::vector<int>& writers = writers_[name];
      if (writers.empty()) written_.push_back(name);
      if (writers.empty() || writers.back() != number) writers.push_back(number);
    });
  }
}

}  // namespace coracle::inline internal
