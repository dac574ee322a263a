#include "worker/collective/shm_segment.h"

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/collective/communicator.h"

namespace helios {
namespace {

constexpr uint64_t kShmMagic = 0x48454c494f530001;  // "HELIOS", layout version 1

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free,
              "atomics in shared memory must not hide a lock of one process");

struct FileDescriptor {
  int fd;
  ~FileDescriptor() {
    if (fd >= 0) ::close(fd);
  }
};

[[noreturn]] void fail(const std::string& name, const char* what, int error) {
  throw CollectiveError(fmt::format("shared memory {}: {}: {}", name, what, std::strerror(error)));
}

}  // namespace

std::string ShmSegment::name_for(const std::string& group_key) {
  std::string name = "/helios-";
  for (const unsigned char c : group_key) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-';
    if (plain) {
      name += static_cast<char>(c);
    } else {
      name += fmt::format("_{:02x}", c);
    }
  }
  if (group_key.empty() || name.size() > 200) {
    throw CollectiveError(fmt::format("a group key of {} characters cannot name shared memory", group_key.size()));
  }
  return name;
}

size_t ShmSegment::data_offset(int world_size) {
  const size_t records_end = sizeof(ShmHeader) + static_cast<size_t>(world_size) * sizeof(ShmRankRecord);
  return (records_end + 4095) / 4096 * 4096;
}

size_t ShmSegment::total_bytes(int world_size) {
  return data_offset(world_size) + static_cast<size_t>(world_size) * 2 * kShmSlotBytes;
}

std::byte* ShmSegment::map(int fd, int world_size, const std::string& name) {
  // Populated now: the first exchanges should not pay for page faults.
  void* base = ::mmap(nullptr, total_bytes(world_size), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (base == MAP_FAILED) fail(name, "cannot map", errno);
  return static_cast<std::byte*>(base);
}

std::shared_ptr<ShmSegment> ShmSegment::create(const std::string& group_key, int world_size) {
  const std::string name = name_for(group_key);
  const FileDescriptor file{::shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600)};
  if (file.fd < 0) fail(name, "cannot create", errno);
  std::byte* base = nullptr;
  try {
    // Reserves the pages. A plain ftruncate() would succeed in a full /dev/shm, and the first write end in SIGBUS.
    if (const int error = ::posix_fallocate(file.fd, 0, static_cast<off_t>(total_bytes(world_size)))) {
      fail(name, "cannot reserve its pages", error);
    }
    base = map(file.fd, world_size, name);
  } catch (...) {
    ::shm_unlink(name.c_str());
    throw;
  }
  std::shared_ptr<ShmSegment> segment(new ShmSegment(name, base, world_size));
  ShmHeader& header = segment->header();
  header.world_size = static_cast<uint32_t>(world_size);
  header.slot_bytes = kShmSlotBytes;
  header.created.store(kShmMagic, std::memory_order_release);
  return segment;
}

std::shared_ptr<ShmSegment> ShmSegment::attach(const std::string& group_key, int world_size,
                                               std::chrono::milliseconds limit) {
  const std::string name = name_for(group_key);
  const auto deadline = std::chrono::steady_clock::now() + limit;
  std::shared_ptr<ShmSegment> segment;
  for (;; std::this_thread::sleep_for(std::chrono::microseconds(500))) {
    if (!segment) {
      const FileDescriptor file{::shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0600)};
      if (file.fd < 0 && errno != ENOENT) fail(name, "cannot open", errno);
      struct stat info {};
      if (file.fd >= 0 && ::fstat(file.fd, &info) != 0) fail(name, "cannot read its size", errno);
      // Empty or short: rank 0 has made the name and is about to reserve the pages.
      const auto size = static_cast<size_t>(info.st_size);
      if (file.fd >= 0 && size > total_bytes(world_size)) {
        throw CollectiveError(fmt::format("shared memory {}: made for another world size than {}", name, world_size));
      }
      if (file.fd >= 0 && size == total_bytes(world_size)) {
        segment.reset(new ShmSegment(name, map(file.fd, world_size, name), world_size));
      }
    }
    if (segment && segment->header().created.load(std::memory_order_acquire) == kShmMagic) break;
    if (std::chrono::steady_clock::now() >= deadline) {
      throw CollectiveError(
          fmt::format("rank 0 did not come within {} ms (no usable shared memory {} for world size {})", limit.count(),
                      name, world_size));
    }
  }
  const ShmHeader& header = segment->header();
  if (header.world_size != static_cast<uint32_t>(world_size) || header.slot_bytes != kShmSlotBytes) {
    throw CollectiveError(fmt::format("shared memory {}: made for world size {} with slots of {} bytes, not {} and {}",
                                      name, header.world_size, header.slot_bytes, world_size, kShmSlotBytes));
  }
  return segment;
}

ShmSegment::~ShmSegment() { ::munmap(base_, total_bytes(world_size_)); }

void ShmSegment::remove_name() noexcept { ::shm_unlink(name_.c_str()); }

}  // namespace helios
