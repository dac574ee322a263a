#include "common/net/wake_event.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "common/base/check.h"

namespace helios {

WakeEvent::WakeEvent() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { HELIOS_CHECK(fd_ >= 0, "eventfd", errno); }

WakeEvent::~WakeEvent() { ::close(fd_); }

void WakeEvent::notify() noexcept {
  const int saved = errno;
  const uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(fd_, &one, sizeof one);  // full: it is set already
  errno = saved;
}

}  // namespace helios
