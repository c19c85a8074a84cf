#ifdef CORACLE_ONEDNN
#include <coracle/operators/common/onednn.h>
#include <fmt/format.h>

namespace coracle::onednn {

const dnnl::engine& Engine() {
  static const auto* engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

dnnl::stream& ThreadStream() {
  thread_local dnnl::stream stream(Engine());
  return stream;
}

void Rethrow(const dnnl::error& error, const char* what) {
  ErrorCode code = error.status == dnnl_unimplemented   ? ErrorCode::kUnimplemented
                   : error.status == dnnl_out_of_memory ? ErrorCode::kResourceExhausted
                                                        : ErrorCode::kInternal;
  throw Error(code, fmt::format("{}: oneDNN: {}", what, error.what()));
}

dnnl::memory::desc Desc(const dnnl::memory::dims& dims, dnnl::memory::format_tag tag) {
  return dnnl::memory::desc(dims, dnnl::memory::data_type::f32, tag);
}

dnnl::memory::desc Vector(int64_t n) { return Desc({n}, dnnl::memory::format_tag::x); }

dnnl::memory::desc Dense(const Shape& shape) {
  dnnl::memory::dims dims(shape.begin(), shape.end()), strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return dnnl::memory::desc(dims, dnnl::memory::data_type::f32, strides);
}

TensorArg ScratchFor(const PrepareContext& ctx, const dnnl::memory::desc& desc) {
  int64_t floats = static_cast<int64_t>((desc.get_size() + sizeof(float) - 1) / sizeof(float));
  return ctx.Scratch(DType::kFloat32, {floats});
}

void Call::Run(std::initializer_list<const void*> pointers) const {
  dnnl::stream& stream = ThreadStream();
  dnnl::memory memories[kMaxArgs];
  dnnl_exec_arg_t exec[kMaxArgs];
  if (pointers.size() != args_.size() || args_.size() > kMaxArgs) {
    throw InternalError("a oneDNN call with the wrong number of arguments");
  }
  Translate("running a primitive", [&] {
    size_t i = 0;
    for (const void* p : pointers) {
      memories[i] = dnnl::memory(args_[i].second, Engine(), const_cast<void*>(p));
      exec[i] = {args_[i].first, memories[i].get()};
      ++i;
    }
    dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), stream.get(),
                                                   static_cast<int>(args_.size()), exec),
                            "could not execute a primitive");
    stream.wait();
  });
}

Call Reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to) {
  dnnl::reorder::primitive_desc pd(Engine(), from, Engine(), to);
  Call call{dnnl::reorder(pd)};
  call.Arg(DNNL_ARG_FROM, from).Arg(DNNL_ARG_TO, to);
  return call;
}

}  // namespace coracle::onednn
#endif
