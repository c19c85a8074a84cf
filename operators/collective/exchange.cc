#include <coracle/operators/collective/exchange.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {

int NumRanks(const Workspace& ws) { return ws.comm() ? ws.comm()->size() : 1; }
int RankOf(const Workspace& ws) { return ws.comm() ? ws.comm()->rank() : 0; }

void RequireRanks(const Workspace& ws, int nranks, const std::string& what) {
  const int ranks = NumRanks(ws);
  if (nranks == ranks || (nranks == 0 && ranks == 1)) return;  // 0: not given
  const std::string start =
      nranks > 0 ? fmt::format("start it with as many ranks (mpirun -n {}), or ", nranks) : "";
  ThrowInvalid(fmt::format("{}: nranks is {}, but {} the program; {}set nranks to {}", what, nranks,
                           ranks == 1 ? "one rank runs" : fmt::format("{} ranks run", ranks), start,
                           ranks));
}

bool IsForRanks(const OpSpec& spec) { return spec.for_ranks || spec.FindAttr("ring_id"); }

Exchanger::Exchanger(const PrepareContext& ctx, bool own_input)
    : outs_(ctx.op().Output("Out")),
      name_(outs_.size() == 1 ? outs_[0]
                              : fmt::format("{} and {} more", outs_[0], outs_.size() - 1)),
      ring_(ctx.spec().FindAttr("ring_id") ? ctx.Attr<int32_t>("ring_id") : 0),
      overlap_(ctx.spec().FindAttr(kOverlapAttr) && ctx.Attr<bool>(kOverlapAttr)),
      own_input_(own_input) {}

void Exchanger::operator()(Workspace& ws, Exchange exchange) const {
  exchange.name = name_;
  const bool in_place =
      own_input_ || (exchange.in == exchange.out &&
                     std::all_of(exchange.more.begin(), exchange.more.end(),
                                 [](const Exchange::Buffer& b) { return b.in == b.out; }));
  if (overlap_ && in_place)
    ws.comm()->Start(ring_, outs_, exchange);
  else
    ws.comm()->Run(exchange);
}

void Exchanger::Run(Workspace& ws, Exchange exchange) const {
  exchange.name = name_;
  ws.comm()->Run(exchange);
}

}  // namespace coracle::inline internal
