// Fuses consecutive ops on images into one op fused_images, which runs all of them on a few images
// at a time.

#include <coracle/framework/ir/role.h>
#include <coracle/framework/op/check/flow_types.h>
#include <coracle/framework/op/recomputed.h>
#include <coracle/passes/op_group.h>
#include <coracle/passes/passes.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>
#include <unordered_set>

namespace coracle::inline internal {
namespace {

// Visits the ops and ends a group at an op that cannot join it.
class ImageGroups {
 public:
  ImageGroups(BlockDesc& root, const PassContext& context)
      : root_(root), context_(context), types_(root) {}

  std::vector<OpGroup> Run() {
    for (size_t i = 0; i < root_.NumOps(); ++i) {
      const OpDesc& op = root_.op(i);
      if (HasRole(op, ~kNotSpecified)) return {};  // the program trains
      const OpSpec* spec = context_.ops.Find(op.type());
      const bool infers = spec && !op.HasSubBlock() && types_.Infer(*spec, op);
      if (!infers || !CanJoin(*spec, op)) {
        End();
        continue;
      }
      const int64_t images = types_.Find(op.FirstOutput())->shape[0];
      if (!members_.empty() && images != images_) End();
      images_ = images;
      members_.push_back(i);
      gains_.push_back(Gain(op));
    }
    End();
    return std::move(groups_);
  }

 private:
  bool CanJoin(const OpSpec& spec, const OpDesc& op) const {
    if (!IsFunction(spec) || spec.makes_lod || !spec.lod_axis.empty() || spec.NumItems(op) != 1 ||
        op.FindAttr(kRecomputedFromAttr))
      return false;
    if (!spec.each_image && !spec.elementwise) return false;
    bool suits = !op.FirstOutput().empty(), reads_image = false;
    op.ForEachOutput([&](const std::string& name) {
      const VarMeta* meta = types_.Find(name);
      const VarDesc* var = root_.FindVar(name);
      suits = suits && var && !var->persistable() && IsImage(meta) && !context_.feeds.count(name) &&
              root_.Uses(name).writers.size() == 1 && !op.Reads(name);
    });
    op.ForEachInput([&](const std::string& name) {
      const VarMeta* meta = types_.Find(name);
      suits = suits && meta && meta->type == VarType::kLoDTensor && IsValid(meta->dtype);
      reads_image = reads_image || (IsImage(meta) && !IsPersistable(name));
    });
    return suits && reads_image;
  }
  // Whether it holds at least two images, or an unknown number.
  static bool IsImage(const VarMeta* meta) {
    return meta && meta->type == VarType::kLoDTensor &&
           (meta->dtype == DType::kFloat32 || meta->dtype == DType::kBFloat16) &&
           meta->shape.rank() == 4 && meta->shape[0] != 0 && meta->shape[0] != 1;
  }
  bool IsPersistable(const std::string& name) const {
    const VarDesc* var = root_.FindVarRecursive(name);
    return var && var->persistable();
  }

  // The number of elements of one image that the op reads and writes, which now stay in the cache,
  // minus the elements that it reads again for each image; 0 if it is unknown.
  double Gain(const OpDesc& op) const {
    double gain = 0;
    bool known = true;
    const auto add = [&](const std::string& name) {
      Shape shape = types_.Find(name)->shape;
      const bool again = IsPersistable(name);
      if (!again && shape.rank() > 0) shape[0] = 1;
      known = known && shape.IsKnown();
      if (known) gain += (again ? -1.0 : 1.0) * static_cast<double>(shape.numel());
    };
    op.ForEachInput(add);
    op.ForEachOutput(add);
    return known ? gain : 0;
  }

  // Divides the run after ops whose results other ops need, because a result of an op in the middle
  // of a group would need memory while the whole group runs.
  void End() {
    const std::vector<size_t> run = std::exchange(members_, {});
    const std::vector<double> gains = std::exchange(gains_, {});
    std::unordered_set<const OpDesc*> ops;
    for (const size_t i : run) ops.insert(&root_.op(i));
    size_t begin = 0;
    for (size_t k = 0; k < run.size(); ++k) {
      const bool needed = root_.op(run[k]).AnyOutput([&](const std::string& name) {
        return context_.IsVisible(root_, name) || IsReadOutside(ops, name);
      });
      if (!needed && k + 1 < run.size()) continue;
      const auto at = static_cast<ptrdiff_t>(begin), end = static_cast<ptrdiff_t>(k + 1);
      AddGroup({run.begin() + at, run.begin() + end}, {gains.begin() + at, gains.begin() + end});
      begin = k + 1;
    }
  }
  bool IsReadOutside(const std::unordered_set<const OpDesc*>& run, const std::string& name) const {
    const auto readers = root_.Uses(name).readers;
    return std::any_of(readers.begin(), readers.end(),
                       [&](const OpDesc* reader) { return run.count(reader) == 0; });
  }

  // Makes a group of the first ops, up to the op with the largest total gain.
  void AddGroup(const std::vector<size_t>& run, const std::vector<double>& gains) {
    OpGroup group;
    double gain = 0, most = 0;
    size_t size = 0;
    for (size_t k = 0; k < run.size(); ++k) {
      gain += gains[k];
      if (gain >= most) {
        most = gain;
        size = k + 1;
      }
    }
    group.members.assign(run.begin(), run.begin() + static_cast<ptrdiff_t>(size));
    const auto heavy = std::count_if(group.members.begin(), group.members.end(), [&](size_t i) {
      return context_.ops.Get(root_.op(i).type()).multiply_adds != nullptr;
    });
    if (heavy < 2) return;
    for (size_t i : group.members) {
      const OpDesc& op = root_.op(i);
      op.ForEachInput([&](const std::string& name) { group.AddInput({name, *types_.Find(name)}); });
      op.ForEachOutput([&](const std::string& name) {
        group.outputs.push_back({name, *types_.Find(name)});
      });
    }
    std::vector<int32_t> images;
    for (size_t i = 0; i < group.inputs.size(); ++i) {
      const GroupVar& var = group.inputs[i];
      if (!IsPersistable(var.name) && var.meta.shape.rank() > 0 && var.meta.shape[0] == images_)
        images.push_back(static_cast<int32_t>(i));
    }
    group.attrs = {{"images", std::move(images)}};
    groups_.push_back(std::move(group));
  }

  BlockDesc& root_;
  const PassContext& context_;
  FlowTypes types_;
  int64_t images_ = -1;
  std::vector<size_t> members_;
  std::vector<double> gains_;  // by member
  std::vector<OpGroup> groups_;
};

}  // namespace

void FuseImages(ProgramDesc& program, const PassContext& context) {
  ReplaceGroups(program, context, "fused_images", false,
                ImageGroups(program.Root(), context).Run());
}

}  // namespace coracle::inline internal
