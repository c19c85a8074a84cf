#ifdef CORACLE_ONEDNN
#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/kernels/onednn.h>
#include <coracle/operators/kernels/onednn_scope.h>
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>

namespace coracle::onednn {

// Outside of OpenMP regions omp_set_num_threads affects only the calling thread.
Scope::Scope() : threads_(omp_get_max_threads()) {
  if (threads_ != 1) omp_set_num_threads(1);
  calls_under_way.fetch_add(1, std::memory_order_relaxed);
}

Scope::~Scope() {
  calls_under_way.fetch_sub(1, std::memory_order_relaxed);
  if (threads_ != 1) omp_set_num_threads(threads_);
}

const dnnl::engine& Engine() {
  static const auto* engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

dnnl::stream& ThreadStream() {
  thread_local dnnl::stream stream(Engine());
  return stream;
}

void Rethrow(const dnnl::error& error, const char* what) {
  if (error.status == dnnl_out_of_memory)
    throw OutOfMemory(fmt::format("{}: oneDNN could not allocate its code and buffers", what));
  const ErrorCode code =
      error.status == dnnl_unimplemented ? ErrorCode::kUnimplemented : ErrorCode::kInternal;
  throw Error(code, fmt::format("{}: oneDNN: {}", what, error.what()));
}

dnnl::memory::desc Desc(const dnnl::memory::dims& dims, dnnl::memory::format_tag tag, DType dtype) {
  const bool half = dtype == DType::kBFloat16;
  return {dims, half ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32, tag};
}

dnnl::memory::desc Vector(int64_t n, DType dtype) {
  return Desc({n}, dnnl::memory::format_tag::x, dtype);
}

TensorArg ScratchFor(const PrepareContext& ctx, const dnnl::memory::desc& desc) {
  const size_t floats = (desc.get_size() + sizeof(float) - 1) / sizeof(float);
  return ctx.Scratch(DType::kFloat32, {static_cast<int64_t>(floats)});
}

namespace {

// Implementations based on matrix products have "gemm" in their names ("x64:gemm:jit"). An
// implementation without a name counts as one, which costs only the time to block
// signals (GemmScope).
bool UsesGemm(const dnnl::primitive& primitive) {
  const char* name = nullptr;
  const dnnl_status_t status =
      dnnl_primitive_desc_query(primitive.get_primitive_desc(), dnnl_query_impl_info_str, 0, &name);
  return status != dnnl_success || !name || std::strstr(name, "gemm") != nullptr ||
         std::strstr(name, "ref") != nullptr || std::strstr(name, "rnn") != nullptr;
}

}  // namespace

// Memory objects are made once and only get new addresses, since making them allocates.
// They serve one thread at a time; a second thread running the same call creates its own.
struct Call::State {
  dnnl::primitive primitive;
  bool uses_gemm = false;  // see GemmScope
  std::vector<std::pair<int, dnnl::memory::desc>> args;
  std::atomic<bool> busy{false};  // whether a thread uses `memories`
  std::vector<dnnl::memory> memories;
  std::vector<const void*> pointers;

  void Execute(const dnnl::memory* memory) const {
    dnnl::stream& stream = ThreadStream();
    dnnl_exec_arg_t exec[kMaxArgs];
    for (size_t i = 0; i < args.size(); ++i) exec[i] = {args[i].first, memory[i].get()};
    const auto execute = [&] {
      return dnnl_primitive_execute(primitive.get(), stream.get(), static_cast<int>(args.size()),
                                    exec);
    };
    dnnl::error::wrap_c_api(Guarded(execute), "could not execute a primitive");
  }

  template <class F>
  dnnl_status_t Guarded(const F& execute) const {
    if (uses_gemm) {
      const GemmScope inside;
      return execute();
    }
    const Scope inside;
    return execute();
  }

  void RunKept(std::initializer_list<const void*> given) {
    size_t i = 0;
    for (const void* p : given) {
      if (pointers[i] != p) {
        memories[i].set_data_handle(const_cast<void*>(p));
        pointers[i] = p;
      }
      ++i;
    }
    Execute(memories.data());
  }

  void RunFresh(std::initializer_list<const void*> given) const {
    dnnl::memory fresh[kMaxArgs];
    size_t i = 0;
    for (const void* p : given) {
      fresh[i] = dnnl::memory(args[i].second, Engine(), const_cast<void*>(p));
      ++i;
    }
    Execute(fresh);
  }
};

Call::Call(dnnl::primitive primitive) : state_(std::make_shared<State>()) {
  state_->primitive = std::move(primitive);
  state_->uses_gemm = UsesGemm(state_->primitive);
  state_->memories.reserve(kMaxArgs);
  state_->pointers.reserve(kMaxArgs);
}

Call& Call::Arg(int id, const dnnl::memory::desc& desc) {
  // Made now, since oneDNN 2.6 reads through null pointers if it finds no memory for one, and there
  // is room while kernels are prepared (PrepareKernel).
  state_->memories.emplace_back(desc, Engine(), static_cast<void*>(nullptr));
  state_->pointers.push_back(nullptr);
  state_->args.emplace_back(id, desc);
  return *this;
}

void Call::Run(std::initializer_list<const void*> pointers) const {
  State& state = *state_;
  if (pointers.size() != state.args.size() || state.args.size() > kMaxArgs) {
    throw InternalError("a oneDNN call with the wrong number of arguments");
  }
  Translate("running a primitive", [&] {
    if (state.busy.exchange(true, std::memory_order_acquire)) {
      state.RunFresh(pointers);
      return;
    }
    struct Release {
      std::atomic<bool>& busy;
      ~Release() { busy.store(false, std::memory_order_release); }
    } release{state.busy};
    state.RunKept(pointers);
  });
}

namespace {

// The block size of the layout along the first dimension; the tensor can be cut only
// between blocks.
int64_t FirstDimUnit(const dnnl::memory::desc& desc) {
  const dnnl_blocking_desc_t& blocking = desc.data.format_desc.blocking;
  int64_t unit = 1;
  for (int i = 0; i < blocking.inner_nblks; ++i) {
    if (blocking.inner_idxs[i] == 0) unit *= blocking.inner_blks[i];
  }
  return unit;
}

// Elements [begin, end) of the first dimension.
dnnl::memory::desc Part(const dnnl::memory::desc& desc, int64_t begin, int64_t end) {
  dnnl::memory::dims dims = desc.dims(), offsets(dims.size(), 0);
  dims[0] = end - begin;
  offsets[0] = begin;
  return desc.submemory_desc(dims, offsets);
}

Call ReorderCall(const dnnl::memory::desc& from, const dnnl::memory::desc& to) {
  dnnl::reorder::primitive_desc pd(Engine(), from, Engine(), to);
  Call call{dnnl::reorder(pd)};
  call.Arg(DNNL_ARG_FROM, from).Arg(DNNL_ARG_TO, to);
  return call;
}

}  // namespace

Reorder::Reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to) {
  const Scope inside;
  const int64_t size = from.dims()[0], unit = std::lcm(FirstDimUnit(from), FirstDimUnit(to));
  const int64_t units = (size + unit - 1) / unit;
  const auto most = static_cast<int64_t>(1 + from.get_size() / 65536);
  const int64_t parts = std::min({units, most, static_cast<int64_t>(NumThreads())});
  try {
    for (int64_t i = 0; parts > 1 && i < parts; ++i) {
      const int64_t begin = units * i / parts * unit;
      const int64_t end = std::min(size, units * (i + 1) / parts * unit);
      parts_.push_back(ReorderCall(Part(from, begin, end), Part(to, begin, end)));
    }
  } catch (const dnnl::error&) {
    // Some layouts cannot be cut into parts.
    parts_.clear();
  }
  if (parts_.empty()) parts_ = {ReorderCall(from, to)};
}

void Reorder::Run(const void* from, void* to) const {
  ParallelFor(static_cast<int64_t>(parts_.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) parts_[static_cast<size_t>(i)].Run({from, to});
  });
}

}  // namespace coracle::onednn
#endif
