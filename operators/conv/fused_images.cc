#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/kernel/kernel_choice.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/elementwise/fused_group.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

namespace coracle::fused_images_op {

// Bytes of a chunk's images that the largest op may read and write: the second-level cache holds
// them together with its filter.
constexpr int64_t kChunkBytes = int64_t{1} << 20;

// Whether the op's result for an image depends on that image alone.
bool TakesImages(const OpSpec& spec) { return spec.elementwise || spec.each_image; }

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

// A fused_images to be prepared, and its plan.
struct ImagesScene {
  ImagesScene(const PrepareContext& prepare, const OpRegistry& ops, KernelMode kernel_mode)
      : context(prepare),
        group(FusedGroupOf(context.op(), context.spec(), ops)),
        mode(kernel_mode),
        vars(context, group),
        cut(vars.size(), false) {
    for (int32_t i : context.Attr<std::vector<int32_t>>("images"))
      cut[static_cast<size_t>(i)] = true;
  }

  const OpSpec& SpecOf(const OpDesc& op) const { return group.ops->Get(op.type()); }
  size_t IndexOf(const std::string& name) const { return vars.IndexOf(name); }
  const std::string& OuterName(int argument) const {
    return context.op().Input("X")[static_cast<size_t>(argument)];
  }

  // The elements of an argument that is constant for all images.
  const Tensor* ConstantOf(const std::string& name) const {
    const auto it = vars.index.find(name);
    if (it == vars.index.end() || vars[it->second].argument < 0 || cut[it->second]) return nullptr;
    return context.Constant("X", static_cast<size_t>(vars[it->second].argument));
  }

  Shape ShapeOf(size_t var, int64_t images) const {
    Shape shape = vars[var].meta.shape;
    if (cut[var]) shape[0] = images;
    return shape;
  }
  int64_t BytesOf(size_t var, int64_t images) const {
    return static_cast<int64_t>(ByteSize(vars[var].meta.dtype, ShapeOf(var, images)));
  }

  // Whether all results have the images in their first dim, and the shape rules give the expected
  // shapes for this number of images.
  bool HoldsFor(int64_t images) const {
    GroupTypes types(true, [this](const std::string& name) { return ConstantOf(name); });
    for (size_t v = 0; v < vars.inputs.size(); ++v) {
      VarMeta meta = vars[v].meta;
      meta.shape = ShapeOf(v, images);
      types.Set(vars[v].name, meta);
    }
    if (!group.CanInfer(types)) return false;
    for (size_t v = 0; v < vars.size(); ++v) {
      const VarMeta* meta = types.Find(vars[v].name);
      if (!meta || meta->shape != ShapeOf(v, images)) return false;
    }
    return true;
  }

  const PrepareContext& context;
  const FusedGroup group;
  const KernelMode mode;
  const std::shared_ptr<ImagesPlan> shared = std::make_shared<ImagesPlan>();
  ImagesPlan& plan = *shared;
  FusedVars vars;
  std::vector<bool> cut;  // variables whose first dim is the images
};

// Finds the number of images. False if the ops must see all images at once. A trial with a number
// that is not a dim of any variable shows that exactly the first dims are the images.
bool FindImages(ImagesScene& scene) {
  int64_t images = -1, unlike = 2;
  for (size_t v = 0; v < scene.vars.size(); ++v) {
    const Shape& shape = scene.vars[v].meta.shape;
    if (scene.vars[v].argument < 0) scene.cut[v] = true;
    if (!scene.cut[v]) continue;
    if (shape.rank() == 0 || (images >= 0 && shape[0] != images)) return false;
    images = shape[0];
  }
  const auto is_dim = [&](int64_t n) {
    return std::any_of(scene.vars.list.begin(), scene.vars.list.end(), [&](const FusedVar& var) {
      for (int i = 0; i < var.meta.shape.rank(); ++i) {
        if (var.meta.shape[i] == n) return true;
      }
      return false;
    });
  };
  while (is_dim(unlike)) ++unlike;
  scene.plan.images = images;
  return images >= 2 && scene.HoldsFor(unlike);
}

// The bytes per image that the op with the most traffic reads and writes.
int64_t MostBytes(const ImagesScene& scene) {
  int64_t most = 1;
  scene.group.block->ForEachOp([&](const OpDesc& op) {
    int64_t bytes = 0;
    const auto add = [&](const std::string& name) {
      if (scene.cut[scene.IndexOf(name)]) bytes += scene.BytesOf(scene.IndexOf(name), 1);
    };
    op.ForEachInput(add);
    op.ForEachOutput(add);
    most = std::max(most, bytes);
  });
  return most;
}

// False if one chunk would hold all images.
bool ChooseChunk(ImagesScene& scene) {
  const int64_t images = scene.plan.images, threads = NumThreads();
  const bool deals = threads > 1 && (images % threads == 0 || images >= 4 * threads);
  const int64_t each = deals ? images / threads : images;
  int64_t chunk = std::clamp<int64_t>(kChunkBytes / MostBytes(scene), 1, each);
  while (!scene.HoldsFor(chunk) || each % chunk != 0) {
    if (--chunk == 0) return false;
  }
  scene.plan.chunk = chunk;
  scene.plan.chunks = (images + chunk - 1) / chunk;
  scene.plan.parts = deals ? threads : 1;
  return scene.plan.chunks > 1;
}

// An input that op t reads last, and may overwrite with v; -1 if there is none.
int64_t DyingInput(const ImagesScene& scene, size_t v, size_t t,
                   const std::vector<bool>& overwritten) {
  const OpDesc& op = scene.group.block->op(t);
  for (const auto& [in, out] : scene.SpecOf(op).inplace) {
    const auto &ins = op.Input(in), &outs = op.Output(out);
    if (ins.size() != 1 || outs.size() != 1 || IsEmptyName(ins[0]) || scene.IndexOf(outs[0]) != v)
      continue;
    const size_t x = scene.IndexOf(ins[0]);
    int reads = 0;
    op.ForEachInput([&](const std::string& name) { reads += name == ins[0]; });
    if (reads == 1 && scene.plan.places[x].offset >= 0 && !overwritten[x] &&
        scene.vars.last_use[x] == t && scene.vars[x].meta.dtype == scene.vars[v].meta.dtype &&
        scene.vars[x].meta.shape == scene.vars[v].meta.shape)
      return static_cast<int64_t>(x);
  }
  return -1;
}

// Gives each variable a place. Returns the bytes of memory that a part needs.
int64_t PlaceVars(ImagesScene& scene) {
  int64_t slot_bytes = 0;
  scene.plan.places.resize(scene.vars.size());
  std::map<int64_t, std::pair<int64_t, size_t>> used;  // begin: end, last use
  std::vector<bool> overwritten(scene.vars.size(), false);
  for (size_t v = 0; v < scene.vars.inputs.size(); ++v)
    scene.plan.places[v].outer = scene.vars.inputs[v];
  for (size_t t = 0; t < scene.group.block->NumOps(); ++t) {
    std::erase_if(used, [&](const auto& slot) { return slot.second.second < t; });
    scene.group.block->op(t).ForEachOutput([&](const std::string& name) {
      const size_t v = scene.IndexOf(name);
      Place& place = scene.plan.places[v];
      if (scene.vars[v].result >= 0) {
        place.outer = scene.context.Output("Out", static_cast<size_t>(scene.vars[v].result));
        return;
      }
      if (const int64_t dying = DyingInput(scene, v, t, overwritten); dying >= 0) {
        place.offset = scene.plan.places[static_cast<size_t>(dying)].offset;
        overwritten[static_cast<size_t>(dying)] = true;
        used.at(place.offset).second = scene.vars.last_use[v];
        return;
      }
      // The first gap. One more line keeps slots from being a power of two apart.
      const int64_t bytes = LineAligned(scene.BytesOf(v, scene.plan.chunk)) + kFusedLine;
      int64_t begin = 0;
      for (const auto& [from, slot] : used) {
        if (begin + bytes <= from) break;
        begin = slot.first;
      }
      place.offset = begin;
      used[begin] = {CheckedAdd(begin, bytes), scene.vars.last_use[v]};
      slot_bytes = std::max(slot_bytes, begin + bytes);
    });
  }
  for (size_t v = 0; v < scene.vars.size(); ++v) {
    if (scene.cut[v]) scene.plan.places[v].image_step = scene.BytesOf(v, 1);
  }
  return slot_bytes;
}

// Gives the kernels the args of a chunk.
class ChunkArgs : public PartArgs {
 public:
  // Notes in `plain_reads` the variables that ops read in their plain layout.
  ChunkArgs(const ImagesScene& scene, int64_t images, ScratchPlaces& scratch,
            int64_t& scratch_bytes, std::set<std::string>* plain_reads)
      : PartArgs(scene.plan.pointers, scratch_bytes, scratch),
        scene_(scene),
        images_(images),
        plain_reads_(plain_reads) {}

  TensorArg Read(const std::string& name) override {
    reads_.insert(name);
    return Arg(name);
  }
  TensorArg Write(const std::string& name) override { return Arg(name); }
  const Tensor* Constant(const std::string& name) override { return scene_.ConstantOf(name); }
  std::shared_ptr<const Tensor> Packed(const std::string& name,
                                       const PackedLayout& layout) override {
    const size_t v = scene_.IndexOf(name);
    const int argument = scene_.vars[v].argument;
    if (argument < 0 || scene_.cut[v]) return nullptr;
    auto packed = scene_.context.args().Packed(scene_.OuterName(argument), layout);
    if (packed) reads_.erase(name);
    return packed;
  }
  Kernel Choose(const PrepareContext& context, const std::vector<TensorArg>& tensors,
                const std::vector<KernelWay>& ways) override {
    return scene_.context.args().Choose(context, tensors, ways);
  }
  void EndOp() {
    plain_reads_->insert(reads_.begin(), reads_.end());
    reads_.clear();
  }

 private:
  TensorArg Arg(const std::string& name) const {
    const size_t v = scene_.IndexOf(name);
    const Shape shape = scene_.ShapeOf(v, images_);
    return {static_cast<int32_t>(v), scene_.vars[v].meta.dtype, shape, shape.numel()};
  }
  const ImagesScene& scene_;
  int64_t images_;
  std::set<std::string>* plain_reads_;
  std::set<std::string> reads_;  // of this op
};

void PrepareChunk(ImagesScene& scene, int64_t images, ChunkKernels& kernels, int64_t& scratch_bytes,
                  std::set<std::string>* plain_reads) {
  ChunkArgs args(scene, images, kernels.scratch, scratch_bytes, plain_reads);
  scene.group.block->ForEachOp([&](const OpDesc& op) {
    args.BeginOp();
    kernels.ops.push_back(PrepareKernel(PrepareContext(scene.SpecOf(op), op, args), scene.mode));
    args.EndOp();
  });
}

// An empty Kernel if the ops cannot run on some images at a time, or need not.
Kernel PlanImages(const PrepareContext& context, const OpRegistry& ops, KernelMode mode) {
  ImagesScene scene(context, ops, mode);
  if (!FindImages(scene) || !ChooseChunk(scene)) return {};
  const int64_t slot_bytes = PlaceVars(scene);
  int64_t scratch_bytes = 0;
  std::set<std::string> plain_reads;
  ImagesPlan& plan = scene.plan;
  plan.pointers = scene.vars.size();
  PrepareChunk(scene, plan.images - (plan.chunks - 1) * plan.chunk, plan.kernels[0], scratch_bytes,
               &plain_reads);
  PrepareChunk(scene, plan.chunk, plan.kernels[1], scratch_bytes, &plain_reads);
  // A filter that one op reads in its plain layout is kept, even if another op reads it packed.
  for (const std::string& name : plain_reads) {
    const int argument = scene.vars[scene.IndexOf(name)].argument;
    if (argument >= 0) context.args().Read(scene.OuterName(argument));
  }
  // The op has several kernels, so a single name would be misleading.
  context.NoteKernel("");
  return RunInParts(context, scene.shared, plan.pointers, slot_bytes, scratch_bytes, RunPart);
}

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
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer([all](InferContext& ctx) { InferImages(ctx, *all); })
              .Reference([all](const PrepareContext& ctx) {
                return PlanImages(ctx, *all, KernelMode::kReference);
              })
              .Fast([all](const PrepareContext& ctx) {
                return PlanImages(ctx, *all, KernelMode::kAuto);
              }));
}

}  // namespace coracle::fused_images_op
