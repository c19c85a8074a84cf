#include <coracle/capi/border.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/version.h>
#include <coracle/framework/tensor/tensor.h>
#include <fmt/format.h>

#include <mutex>
#include <new>
#include <string>

namespace coracle::capi {
namespace {

struct LastError {
  int32_t status = CORACLE_OK;
  std::string text;
};
thread_local LastError last_error;

static_assert(CORACLE_INTERNAL == static_cast<int32_t>(ErrorCode::kInternal) + 1);
static_assert(CORACLE_CANCELLED == static_cast<int32_t>(ErrorCode::kCancelled) + 1);
static_assert(CORACLE_STRING == static_cast<int32_t>(DType::kString));
static_assert(sizeof(coracle_string) == sizeof(StringRef));

int32_t Keep(int32_t status, const char* text) noexcept {
  last_error.status = status;
  try {
    last_error.text = text;
  } catch (...) {
    last_error.text.clear();  // no memory even for the message
  }
  return status;
}

// The caller's log function. The lock is held while it runs, so that SetLog waits for its end.
struct CallersLog {
  std::mutex mutex;
  coracle_log_function log = nullptr;
  void* user = nullptr;
};
CallersLog callers_log;
thread_local bool in_log = false;  // the function runs in this thread, which has the lock

void CallLog(MessageLevel level, const std::string& message) {
  if (in_log) return;
  const std::lock_guard<std::mutex> lock(callers_log.mutex);
  if (!callers_log.log) return;
  in_log = true;
  callers_log.log(static_cast<int32_t>(level), message.c_str(), callers_log.user);
  in_log = false;
}

void SetLog(coracle_log_function log, void* user) {
  std::unique_lock<std::mutex> lock(callers_log.mutex, std::defer_lock);
  if (!in_log) lock.lock();
  callers_log.log = log;
  callers_log.user = user;
  SetLogSink(log ? LogSink(CallLog) : LogSink());
}

}  // namespace

int32_t KeepError() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return Keep(static_cast<int32_t>(error.code()) + 1, error.what());
  } catch (const std::bad_alloc&) {
    return Keep(CORACLE_RESOURCE_EXHAUSTED, "out of memory");
  } catch (const std::exception& error) {
    return Keep(CORACLE_INTERNAL, error.what());
  } catch (...) {
    return Keep(CORACLE_INTERNAL, "an exception of an unknown type");
  }
}

InUse::InUse(std::atomic<bool>& used, const char* message) : used_(used) {
  if (used_.exchange(true)) ThrowInvalid(message);
}

void RequireArgument(const void* pointer, const char* name) {
  if (!pointer) ThrowInvalid(fmt::format("the argument {} is NULL", name));
}

}  // namespace coracle::capi

using coracle::capi::Guard;

extern "C" {

int32_t coracle_api_version(void) { return CORACLE_API_VERSION; }

const char* coracle_version(void) {
#define CORACLE_TEXT_OF(x) #x
#define CORACLE_TEXT(x) CORACLE_TEXT_OF(x)
  return CORACLE_TEXT(CORACLE_VERSION_MAJOR) "." CORACLE_TEXT(
      CORACLE_VERSION_MINOR) "." CORACLE_TEXT(CORACLE_VERSION_PATCH);
}

const char* coracle_last_error(void) { return coracle::capi::last_error.text.c_str(); }
int32_t coracle_last_status(void) { return coracle::capi::last_error.status; }

int32_t coracle_set_threads(int32_t threads) {
  return Guard([&] {
    if (threads < 1)
      coracle::ThrowInvalid(fmt::format("there must be at least 1 thread, got {}", threads));
    coracle::SetNumThreads(threads);
  });
}

void coracle_set_log(coracle_log_function log, void* user) {
  (void)Guard([&] { coracle::capi::SetLog(log, user); });
}

uint64_t coracle_dtype_size(int32_t dtype) {
  return coracle::SizeOf(static_cast<coracle::DType>(dtype));
}
const char* coracle_dtype_name(int32_t dtype) {
  return coracle::ToString(static_cast<coracle::DType>(dtype));
}

}  // extern "C"
