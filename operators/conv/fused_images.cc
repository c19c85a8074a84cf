#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/kernel_choice.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/elementwise/fused_group.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

namespace coracle::fused_images_op {

// Bytes of a chunk's images that the largest op may read and write: the second-level cache holds
// them together with its filter.
constexpr int64_t kChunkBytes = int64_t{1} << 20;

// Whether the op's result for an image depends on that image alone.
bool TakesImages(const OpSpec& spec, const OpDesc& op) {
  static const std::set<std::string> types = {"conv2d", "depthwise_conv2d", "pool2d", "transpose2"};
  return spec.elementwise || types.count(op.type()) > 0;
}

// The memory of a variable of the group while a chunk is computed.
struct Place {
  TensorArg outer;         // the X or Out
  int64_t image_step = 0;  // bytes of an image in `outer`; 0: the same for all chunks
  int64_t offset = -1;     // in the part's memory, if not in X or Out
};

// The kernels of the ops for chunks of one size.
struct ChunkKernels {
  std::vector<Kernel> ops;
  ScratchPlaces scratch;
};

struct ImagesPlan {
  std::vector<Place> places;                  // by variable
  int64_t images = 0, chunk = 0, chunks = 0;  // two chunks or more; the last may be smaller
  int64_t parts = 1, part_bytes = 0;          // number of threads that share the chunks
  ChunkKernels kernels[2];                    // for the last chunk; for the others
  size_t pointers = 0;                        // to variables, then to scratch memory
  TensorArg memory;
};

void RunPart(const ImagesPlan& plan, Workspace& ws, int64_t part) {
  char* base = ws.Data<char>(plan.memory) + part * plan.part_bytes;
  void** pointers = reinterpret_cast<void**>(base);
  GroupWorkspace chunk_ws(ws, pointers);
  const int64_t end = (part + 1) * plan.chunks / plan.parts;
  for (int64_t chunk = part * plan.chunks / plan.parts; chunk < end; ++chunk) {
    CheckTimeLimit("running the chunks of a fused_images");
    const ChunkKernels& kernels = plan.kernels[chunk + 1 < plan.chunks];
    for (size_t v = 0; v < plan.places.size(); ++v) {
      const Place& place = plan.places[v];
      pointers[v] = place.offset >= 0
                        ? base + place.offset
                        : ws.Data<char>(place.outer) + chunk * plan.chunk * place.image_step;
    }
    for (const auto& [at, offset] : kernels.scratch) pointers[at] = base + offset;
    for (const Kernel& kernel : kernels.ops) kernel(chunk_ws);
  }
}

class ImagesPlanner {
 public:
  ImagesPlanner(const PrepareContext& context, const OpRegistry& ops, KernelMode mode)
      : context_(context),
        group_(FusedGroupOf(context.op(), context.spec(), ops)),
        mode_(mode),
        vars_(context, group_),
        cut_(vars_.size(), false) {
    for (int32_t i : context.Attr<std::vector<int32_t>>("images"))
      cut_[static_cast<size_t>(i)] = true;
  }

  Kernel Plan() {
    if (!IsCut() || !ChooseChunk()) return {};
    PlaceVars();
    plan_->pointers = vars_.size();
    PrepareOps(plan_->images - (plan_->chunks - 1) * plan_->chunk, plan_->kernels[0]);
    PrepareOps(plan_->chunk, plan_->kernels[1]);
    ReadPlain();
    // The op has several kernels, so a single name would be misleading.
    context_.NoteKernel("");
    return RunInParts(context_, plan_, plan_->pointers, slot_bytes_, scratch_bytes_, RunPart);
  }

 private:
  const OpDesc& Op(size_t i) const { return group_.block->op(i); }
  const OpSpec& SpecOf(const OpDesc& op) const { return group_.ops->Get(op.type()); }
  size_t IndexOf(const std::string& name) const { return vars_.IndexOf(name); }
  // The elements of an argument that is constant for all images.
  const Tensor* ConstantOf(const std::string& name) const {
    const auto it = vars_.index.find(name);
    if (it == vars_.index.end() || vars_[it->second].argument < 0 || cut_[it->second])
      return nullptr;
    return context_.Constant("X", static_cast<size_t>(vars_[it->second].argument));
  }

  // --- shapes ---

  Shape ShapeOf(size_t var, int64_t images) const {
    Shape shape = vars_[var].meta.shape;
    if (cut_[var]) shape[0] = images;
    return shape;
  }
  int64_t BytesOf(size_t var, int64_t images) const {
    return static_cast<int64_t>(ByteSize(vars_[var].meta.dtype, ShapeOf(var, images)));
  }

  // Whether all results have the images in their first dim, and the shape rules give the expected
  // shapes for this number of images.
  bool HoldsFor(int64_t images) const {
    GroupTypes types(true, [this](const std::string& name) { return ConstantOf(name); });
    for (size_t v = 0; v < vars_.inputs.size(); ++v) {
      VarMeta meta = vars_[v].meta;
      meta.shape = ShapeOf(v, images);
      types.Set(vars_[v].name, meta);
    }
    if (!group_.CanInfer(types)) return false;
    for (size_t v = 0; v < vars_.size(); ++v) {
      const VarMeta* meta = types.Find(vars_[v].name);
      if (!meta || meta->shape != ShapeOf(v, images)) return false;
    }
    return true;
  }

  // Finds the number of images. False if the ops must see all images at once. A trial with a number
  // that is not a dim of any variable shows that exactly the first dims are the images.
  bool IsCut() {
    int64_t images = -1, unlike = 2;
    for (size_t v = 0; v < vars_.size(); ++v) {
      const Shape& shape = vars_[v].meta.shape;
      if (vars_[v].argument < 0) cut_[v] = true;
      if (!cut_[v]) continue;
      if (shape.rank() == 0 || (images >= 0 && shape[0] != images)) return false;
      images = shape[0];
    }
    const auto is_dim = [&](int64_t n) {
      return std::any_of(vars_.list.begin(), vars_.list.end(), [&](const FusedVar& var) {
        for (int i = 0; i < var.meta.shape.rank(); ++i) {
          if (var.meta.shape[i] == n) return true;
        }
        return false;
      });
    };
    while (is_dim(unlike)) ++unlike;
    plan_->images = images;
    return images >= 2 && HoldsFor(unlike);
  }

  // The bytes per image that the op with the most traffic reads and writes.
  int64_t MostBytes() const {
    int64_t most = 1;
    group_.block->ForEachOp([&](const OpDesc& op) {
      int64_t bytes = 0;
      const auto add = [&](const std::string& name) {
        if (cut_[IndexOf(name)]) bytes += BytesOf(IndexOf(name), 1);
      };
      op.ForEachInput(add);
      op.ForEachOutput(add);
      most = std::max(most, bytes);
    });
    return most;
  }

  // False if one chunk would hold all images.
  bool ChooseChunk() {
    const int64_t images = plan_->images, threads = NumThreads();
    const bool deals = threads > 1 && (images % threads == 0 || images >= 4 * threads);
    const int64_t each = deals ? images / threads : images;
    int64_t chunk = std::clamp<int64_t>(kChunkBytes / MostBytes(), 1, each);
    while (!HoldsFor(chunk) || each % chunk != 0) {
      if (--chunk == 0) return false;
    }
    plan_->chunk = chunk;
    plan_->chunks = (images + chunk - 1) / chunk;
    plan_->parts = deals ? threads : 1;
    return plan_->chunks > 1;
  }

  // --- places ---

  void PlaceVars() {
    plan_->places.resize(vars_.size());
    std::map<int64_t, std::pair<int64_t, size_t>> used;  // begin: end, last use
    std::vector<bool> overwritten(vars_.size(), false);
    for (size_t v = 0; v < vars_.inputs.size(); ++v) plan_->places[v].outer = vars_.inputs[v];
    for (size_t t = 0; t < group_.block->NumOps(); ++t) {
      std::erase_if(used, [&](const auto& slot) { return slot.second.second < t; });
      Op(t).ForEachOutput([&](const std::string& name) {
        const size_t v = IndexOf(name);
        Place& place = plan_->places[v];
        if (vars_[v].result >= 0) {
          place.outer = context_.Output("Out", static_cast<size_t>(vars_[v].result));
          return;
        }
        if (const int64_t dying = DyingInput(v, t, overwritten); dying >= 0) {
          place.offset = plan_->places[static_cast<size_t>(dying)].offset;
          overwritten[static_cast<size_t>(dying)] = true;
          used.at(place.offset).second = vars_.last_use[v];
          return;
        }
        // The first gap. One more line keeps slots from being a power of two apart.
        const int64_t bytes = LineAligned(BytesOf(v, plan_->chunk)) + kFusedLine;
        int64_t begin = 0;
        for (const auto& [from, slot] : used) {
          if (begin + bytes <= from) break;
          begin = slot.first;
        }
        place.offset = begin;
        used[begin] = {CheckedAdd(begin, bytes), vars_.last_use[v]};
        slot_bytes_ = std::max(slot_bytes_, begin + bytes);
      });
    }
    for (size_t v = 0; v < vars_.size(); ++v) {
      if (cut_[v]) plan_->places[v].image_step = BytesOf(v, 1);
    }
  }

  // An input that op t reads last, and may overwrite with v; -1 if there is none.
  int64_t DyingInput(size_t v, size_t t, const std::vector<bool>& overwritten) const {
    const OpDesc& op = Op(t);
    for (const auto& [in, out] : SpecOf(op).inplace) {
      const auto &ins = op.Input(in), &outs = op.Output(out);
      if (ins.size() != 1 || outs.size() != 1 || IsEmptyName(ins[0]) || IndexOf(outs[0]) != v)
        continue;
      const size_t x = IndexOf(ins[0]);
      int reads = 0;
      op.ForEachInput([&](const std::string& name) { reads += name == ins[0]; });
      if (reads == 1 && plan_->places[x].offset >= 0 && !overwritten[x] && vars_.last_use[x] == t &&
          vars_[x].meta.dtype == vars_[v].meta.dtype && vars_[x].meta.shape == vars_[v].meta.shape)
        return static_cast<int64_t>(x);
    }
    return -1;
  }

  // --- kernels ---

  // Gives the kernels the args of a chunk.
  class ChunkArgs : public PartArgs {
   public:
    ChunkArgs(ImagesPlanner& planner, int64_t images, ChunkKernels& kernels)
        : PartArgs(planner.plan_->pointers, planner.scratch_bytes_, kernels.scratch),
          planner_(planner),
          images_(images) {}

    TensorArg Read(const std::string& name) override {
      reads_.insert(name);
      return Arg(name);
    }
    TensorArg Write(const std::string& name) override { return Arg(name); }
    const Tensor* Constant(const std::string& name) override { return planner_.ConstantOf(name); }
    std::shared_ptr<const Tensor> Packed(const std::string& name,
                                         const PackedLayout& layout) override {
      const size_t v = planner_.IndexOf(name);
      const int argument = planner_.vars_[v].argument;
      if (argument < 0 || planner_.cut_[v]) return nullptr;
      auto packed = planner_.context_.args().Packed(planner_.OuterName(argument), layout);
      if (packed) reads_.erase(name);
      return packed;
    }
    Kernel Choose(const PrepareContext& context, const std::vector<TensorArg>& tensors,
                  const std::vector<KernelWay>& ways) override {
      return planner_.context_.args().Choose(context, tensors, ways);
    }
    void EndOp() {
      planner_.plain_reads_.insert(reads_.begin(), reads_.end());
      reads_.clear();
    }

   private:
    TensorArg Arg(const std::string& name) const {
      const size_t v = planner_.IndexOf(name);
      const Shape shape = planner_.ShapeOf(v, images_);
      return {static_cast<int32_t>(v), planner_.vars_[v].meta.dtype, shape, shape.numel()};
    }
    ImagesPlanner& planner_;
    int64_t images_;
    std::set<std::string> reads_;  // of this op
  };

  const std::string& OuterName(int argument) const {
    return context_.op().Input("X")[static_cast<size_t>(argument)];
  }

  void PrepareOps(int64_t images, ChunkKernels& kernels) {
    ChunkArgs args(*this, images, kernels);
    group_.block->ForEachOp([&](const OpDesc& op) {
      args.BeginOp();
      kernels.ops.push_back(PrepareKernel(PrepareContext(SpecOf(op), op, args), mode_));
      args.EndOp();
    });
  }

  // A filter that one op reads in its plain layout is kept, even if another op reads it packed.
  void ReadPlain() {
    for (const std::string& name : plain_reads_) {
      const int argument = vars_[IndexOf(name)].argument;
      if (argument >= 0) context_.args().Read(OuterName(argument));
    }
  }

  const PrepareContext& context_;
  FusedGroup group_;
  KernelMode mode_;
  std::shared_ptr<ImagesPlan> plan_ = std::make_shared<ImagesPlan>();
  FusedVars vars_;
  std::vector<bool> cut_;  // by variable: its first dim counts the images
  std::set<std::string> plain_reads_;
  int64_t slot_bytes_ = 0, scratch_bytes_ = 0;
};

void InferImages(InferContext& ctx, const OpRegistry& ops) {
  for (int32_t i : ctx.Attr<std::vector<int32_t>>("images"))
    ctx.Require("C9", i >= 0 && i < static_cast<int64_t>(ctx.NumInputs("X")), i);
  InferGroup(ctx, ops, TakesImages);
}

void Register(OpRegistry& ops) {
  const OpRegistry* all = &ops;
  ops.Add(OpDef("fused_images")
              .Doc("Runs the ops of a block on a few images at a time: the variables `arguments` "
                   "of the block get the values of X, and Out gets the values of its variables "
                   "`results`. All ops run on one chunk of images before the next chunk, so that "
                   "intermediate results stay in the cache; each thread takes chunks of its own. "
                   "If the first dims are not the images, or one chunk would hold all of them, the "
                   "ops run one by one, each in all threads, as they would outside of this op. The "
                   "pass fuse_images makes these ops.")
              .Apply(DeclareGroup, "be elementwise, conv2d, depthwise_conv2d, pool2d or transpose2")
              .Constraint("C9", "images must be indices of X")
              .Attr<std::vector<int32_t>>("images", {},
                                          "indices of the X whose first dim is the images")
              .Infer([all](InferContext& ctx) { InferImages(ctx, *all); })
              .Reference([all](const PrepareContext& ctx) {
                return ImagesPlanner(ctx, *all, KernelMode::kReference).Plan();
              })
              .Fast([all](const PrepareContext& ctx) {
                return ImagesPlanner(ctx, *all, KernelMode::kAuto).Plan();
              }));
}

}  // namespace coracle::fused_images_op
