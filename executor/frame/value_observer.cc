#include <coracle/executor/frame/value_observer.h>

#include <utility>

namespace coracle::inline internal {
namespace {

thread_local const ValueObserver* current = nullptr;

}  // namespace

ScopedValueObserver::ScopedValueObserver(ValueObserver observer)
    : observer_(std::move(observer)), before_(std::exchange(current, &observer_)) {}
ScopedValueObserver::~ScopedValueObserver() { current = before_; }
const ValueObserver* ScopedValueObserver::Current() { return current; }

}  // namespace coracle::inline internal
