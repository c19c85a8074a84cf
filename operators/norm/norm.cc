#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/norm/norm.h>

namespace coracle::inline internal {
namespace {

// Calls body(group) for all groups.
template <class Body>
void ForGroups(const NormView& v, Body&& body) {
  ParallelFor(v.groups, 1 + 16384 / (1 + v.size), [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) body(g);
  });
}

// Mean over the group of f(i).
template <class F>
double Mean(const NormView& v, F&& f) {
  double sum = 0;
  for (int64_t i = 0; i < v.size; ++i) sum += f(i);
  return sum / static_cast<double>(v.size);
}

// One group's elements as doubles.
template <class T>
struct GroupReader {
  const NormView& v;
  int64_t g;
  double mean, inv;
  const T *x, *scale, *dy, *ddx;
  // The index in scale and bias of element i is first + step i.
  int64_t first = v.Param(g, 0), step = v.per_group ? 0 : 1;

  int64_t Param(int64_t i) const { return first + step * i; }

  double Xh(int64_t i) const { return (static_cast<double>(x[v.At(g, i)]) - mean) * inv; }
  double Scale(int64_t i) const { return scale ? static_cast<double>(scale[Param(i)]) : 1.0; }
  double Dy(int64_t i) const { return static_cast<double>(dy[v.At(g, i)]); }
  double G(int64_t i) const { return Scale(i) * Dy(i); }
  double U(int64_t i) const { return ddx ? static_cast<double>(ddx[v.At(g, i)]) : 0.0; }
};

// P(f) = f - mean(f) - xh mean(f xh), or the identity.
template <class T, class F>
auto Project(const GroupReader<T>& r, bool fixed, F f) {
  const double mean = fixed ? 0 : Mean(r.v, f);
  const double along = fixed ? 0 : Mean(r.v, [&](int64_t i) { return f(i) * r.Xh(i); });
  return [&r, f, mean, along](int64_t i) { return f(i) - mean - r.Xh(i) * along; };
}

// out[param] = sum of f(reader of the group, i) over the elements that share the param.
template <class T, class Reader, class F>
void SumToParams(const NormView& v, Reader&& reader, F&& f, T* out) {
  if (!out) return;
  ParallelFor(v.params(), 1 + 16384 / (1 + v.numel()), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      double sum = 0;
      if (v.per_group) {
        for (int64_t g = p; g < v.groups; g += v.channels) {
          const auto r = reader(g);
          for (int64_t i = 0; i < v.size; ++i) sum += f(r, i);
        }
      } else {
        for (int64_t g = 0; g < v.groups; ++g) sum += f(reader(g), p);
      }
      out[p] = static_cast<T>(sum);
    }
  });
}

}  // namespace

NormView ChannelView(int64_t batch, int64_t channels, int64_t inner, bool channels_last) {
  NormView v;
  v.groups = channels;
  v.size = batch * inner;
  v.per_group = true;
  v.channels = channels;
  if (channels_last || inner == 1) {
    v.inner = 1;
    v.outer_stride = channels;
    v.group_stride = 1;
  } else {
    v.inner = inner;
    v.outer_stride = channels * inner;
    v.group_stride = inner;
  }
  return v;
}

NormView RowView(int64_t rows, int64_t columns) {
  NormView v;
  v.groups = rows;
  v.size = columns;
  v.inner = columns > 0 ? columns : 1;
  v.group_stride = columns;
  return v;
}

template <class T>
void NormMoments(const NormView& v, const T* x, double* mean, double* variance) {
  ForGroups(v, [&](int64_t g) {
    const double m = Mean(v, [&](int64_t i) { return static_cast<double>(x[v.At(g, i)]); });
    mean[g] = m;
    variance[g] = Mean(v, [&](int64_t i) {
      const double d = static_cast<double>(x[v.At(g, i)]) - m;
      return d * d;
    });
  });
}

template <class T>
void NormApply(const NormView& v, const T* x, const double* mean, const double* inv, const T* scale,
               const T* bias, T* y) {
  ForGroups(v, [&](int64_t g) {
    const GroupReader<T> r{v, g, mean[g], inv[g], x, scale, nullptr, nullptr};
    for (int64_t i = 0; i < v.size; ++i) {
      const double b = bias ? static_cast<double>(bias[r.Param(i)]) : 0.0;
      y[v.At(g, i)] = static_cast<T>(r.Scale(i) * r.Xh(i) + b);
    }
  });
}

template <class T>
void NormGrad(const NormView& v, const NormGradArgs<T>& a) {
  auto reader = [&](int64_t g) {
    return GroupReader<T>{v, g, a.mean[g], a.inv[g], a.x, a.scale, a.dy, nullptr};
  };
  SumToParams(
      v, reader, [](const auto& r, int64_t i) { return r.Dy(i) * r.Xh(i); }, a.dscale);
  SumToParams(
      v, reader, [](const auto& r, int64_t i) { return r.Dy(i); }, a.dbias);
  if (a.dx) {
    ForGroups(v, [&](int64_t g) {
      const auto r = reader(g);
      auto p = Project(r, a.fixed, [&](int64_t i) { return r.G(i); });
      for (int64_t i = 0; i < v.size; ++i) a.dx[v.At(g, i)] = static_cast<T>(r.inv * p(i));
    });
  }
}

// scale' = sum of dy inv P(U); P(U) is computed once for each group.
template <class T, class Reader>
void SumScaleGradGrad(const NormView& v, Reader&& reader, const NormGradGradArgs<T>& a) {
  if (!a.scale_out) return;
  for (int64_t p = 0; p < v.params(); ++p) a.scale_out[p] = T(0);
  for (int64_t g = 0; g < v.groups; ++g) {
    const auto r = reader(g);
    auto pu = Project(r, a.fixed, [&](int64_t i) { return r.U(i); });
    for (int64_t i = 0; i < v.size; ++i)
      a.scale_out[r.Param(i)] += static_cast<T>(r.Dy(i) * r.inv * pu(i));
  }
}

template <class T>
void NormGradGrad(const NormView& v, const NormGradGradArgs<T>& a) {
  auto reader = [&](int64_t g) {
    return GroupReader<T>{v, g, a.mean[g], a.inv[g], a.x, a.scale, a.dy, a.ddx};
  };
  SumScaleGradGrad(v, reader, a);
  ForGroups(v, [&](int64_t g) {
    const auto r = reader(g);
    auto param = [&](const T* p, int64_t i) {
      return p ? static_cast<double>(p[r.Param(i)]) : 0.0;
    };
    auto pu = Project(r, a.fixed, [&](int64_t i) { return r.U(i); });
    for (int64_t i = 0; a.dy_out && i < v.size; ++i) {
      const double value =
          r.Scale(i) * r.inv * pu(i) + param(a.ddscale, i) * r.Xh(i) + param(a.ddbias, i);
      a.dy_out[v.At(g, i)] = static_cast<T>(value);
    }
    if (!a.x_out) return;
    const double g_along = a.fixed ? 0 : Mean(v, [&](int64_t i) { return r.G(i) * r.Xh(i); });
    const double u_along = a.fixed ? 0 : Mean(v, [&](int64_t i) { return r.U(i) * r.Xh(i); });
    const double q = a.fixed ? 0 : Mean(v, [&](int64_t i) { return r.G(i) * pu(i); });
    auto h = [&](int64_t i) {
      return param(a.ddscale, i) * r.Dy(i) - r.inv * (r.U(i) * g_along + r.G(i) * u_along);
    };
    auto fixed_h = [&](int64_t i) { return param(a.ddscale, i) * r.Dy(i); };
    auto ph = Project(r, a.fixed, h);
    for (int64_t i = 0; i < v.size; ++i) {
      const double value =
          a.fixed ? r.inv * fixed_h(i) : r.inv * ph(i) - q * r.inv * r.inv * r.Xh(i);
      a.x_out[v.At(g, i)] = static_cast<T>(value);
    }
  });
}

template void NormMoments(const NormView&, const float*, double*, double*);
template void NormMoments(const NormView&, const double*, double*, double*);
template void NormApply(const NormView&, const float*, const double*, const double*, const float*,
                        const float*, float*);
template void NormApply(const NormView&, const double*, const double*, const double*, const double*,
                        const double*, double*);
template void NormGrad(const NormView&, const NormGradArgs<float>&);
template void NormGrad(const NormView&, const NormGradArgs<double>&);
template void NormGradGrad(const NormView&, const NormGradGradArgs<float>&);
template void NormGradGrad(const NormView&, const NormGradGradArgs<double>&);

}  // namespace coracle::inline internal
