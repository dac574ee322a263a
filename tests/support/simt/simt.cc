// Engine of the host SIMT shim. Compile this file without -fsanitize=thread and with -DSIMT_TSAN in a TSan build:
// its bookkeeping is shared by all fibers on purpose and must stay invisible to the race checker.
#include "kernels/base/simt.h"

#include <sys/mman.h>

#include <boost/context/detail/fcontext.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <vector>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(SIMT_TSAN)
#include <sanitizer/tsan_interface.h>
#else
static void __tsan_acquire(void*) {}
static void __tsan_release(void*) {}
#endif

extern const char __executable_start;  // the linker's: where this program lies

namespace simt::detail {
namespace {
enum class State : uint8_t { ready, barrier, warp, done };
constexpr unsigned kMain = ~0u;

struct Thread {  // one CUDA thread, or (tid == kMain) the OS thread that drives the block
  boost::context::detail::fcontext_t ctx = nullptr;
  char* stack = nullptr;
  size_t stack_size = 0;
  void* fake_stack = nullptr;  // ASan
  void* tsan = nullptr;
  unsigned tid = kMain;
  uint3 idx{};
  State state = State::done;
  Kind kind{};
  uint32_t mask = 0;
  int arg = 0, width = 32;
  uint64_t in = 0, out = 0;
  void (*together)(void* const*) = nullptr;  // of a joined operation
  Loc loc;
};

struct Engine {  // per OS thread
  Thread main;
  std::vector<std::unique_ptr<Thread>> pool;
  std::vector<uint32_t> waiting;  // per warp: lanes blocked in a warp operation
  std::vector<Thread*> queue;     // ring of runnable threads, a power of two
  size_t head = 0, count = 0;
  unsigned n = 0, live = 0, at_barrier = 0, pauses = 0;
  uint64_t rng = 1;
  Thread* cur = nullptr;
  void (*body)(void*) = nullptr;
  void* body_arg = nullptr;
  void* dyn = nullptr;
  char begin = 0, end = 0;  // TSan sync points of a block

  ~Engine() {
    for (auto& t : pool) {
#if defined(__SANITIZE_ADDRESS__)  // its frames never returned; whoever gets these addresses next is not to blame
      ASAN_UNPOISON_MEMORY_REGION(t->stack, t->stack_size);
#endif
      munmap(t->stack - 4096, t->stack_size + 4096);
#if defined(SIMT_TSAN)
      __tsan_destroy_fiber(t->tsan);
#endif
    }
    std::free(dyn);
  }
  size_t at(size_t i) const { return i & (queue.size() - 1); }
  void push(Thread* t) {
    t->state = State::ready;
    queue[at(head + count++)] = t;
  }
  Thread* pop() {
    if (!count) return nullptr;
    --count;
    if (options.order == Order::reverse) return queue[at(head + count)];
    if (options.order == Order::shuffle) {
      rng = rng * 6364136223846793005u + 1442695040888963407u;
      std::swap(queue[at(head)], queue[at(head + (rng >> 33) % (count + 1))]);
    }
    Thread* t = queue[head];
    head = at(head + 1);
    return t;
  }
};
Engine& engine() {
  static thread_local Engine e;
  return e;
}
constinit thread_local Engine* tls = nullptr;

[[noreturn]] void fail(const char* what, const Loc& loc) {
  std::fprintf(stderr, "simt: %s at %s:%u, block (%u,%u,%u) thread (%u,%u,%u)\n", what, loc.file, loc.line, blockIdx.x,
               blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
  int shown = 0;
  for (unsigned i = 0; i < tls->n && shown < 8; ++i)
    if (auto& t = *tls->pool[i]; t.state == State::barrier || t.state == State::warp)
      std::fprintf(stderr, "simt:   thread %u waits in a %s at %s:%u, mask %08x\n", t.tid,
                   t.state == State::barrier ? "barrier" : "warp operation", t.loc.file, t.loc.line, t.mask), ++shown;
  std::abort();
}

void switch_to(Thread* to) {
  Thread* from = std::exchange(tls->cur, to);
  if (to->tid != kMain) threadIdx = to->idx;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->stack_size);
#endif
#if defined(SIMT_TSAN)
  __tsan_switch_to_fiber(to->tsan, __tsan_switch_to_fiber_no_sync);
#endif
  auto t = boost::context::detail::jump_fcontext(to->ctx, from);
  static_cast<Thread*>(t.data)->ctx = t.fctx;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
#endif
}
void block_current() {  // the caller has recorded why the current thread waits
  Thread* next = tls->pop();
  if (!next) fail("deadlock, no runnable thread: divergent barrier, or a lane is missing from a warp operation", tls->cur->loc);
  switch_to(next);
}
void release_barrier() {
  Engine& e = *tls;
  int count = 0, all = 1, any = 0;
  for (unsigned i = 0; i < e.n; ++i)
    if (auto& t = *e.pool[i]; t.state == State::barrier) count += t.arg, all &= t.arg, any |= t.arg;
  e.at_barrier = 0;
  for (unsigned i = 0; i < e.n; ++i)
    if (auto& t = *e.pool[i]; t.state == State::barrier) {
      t.out = t.kind == sync_count ? count : t.kind == sync_and ? all : any;
      if (&t == e.cur) t.state = State::ready;
      else e.push(&t);
    }
}
void finish_current() {
  Engine& e = *tls;
  e.cur->state = State::done;
  __tsan_release(&e.end);
  if (--e.live && e.at_barrier == e.live) release_barrier();
  Thread* next = e.pop();
  if (!next && e.live) fail("deadlock, the remaining threads wait for an exited thread", e.cur->loc);
  switch_to(next ? next : &e.main);
}
void entry(boost::context::detail::transfer_t from) {
  static_cast<Thread*>(from.data)->ctx = from.fctx;
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom;
  size_t size;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
  if (static_cast<Thread*>(from.data)->tid == kMain)
    tls->main.stack = static_cast<char*>(const_cast<void*>(bottom)), tls->main.stack_size = size;
#endif
  for (;;) {
    __tsan_acquire(&tls->begin);
    tls->body(tls->body_arg);
    finish_current();
  }
}
void prepare(Engine& e, dim3 block, size_t shared) {
  e.n = block.x * block.y * block.z;
  e.waiting.assign((e.n + 31) / 32, 0);
  e.queue.assign(std::bit_ceil(e.n), nullptr);
  e.head = e.count = 0;
  e.rng = options.seed;
#if defined(SIMT_TSAN)
  e.main.tsan = __tsan_get_current_fiber();
#endif
  while (e.pool.size() < e.waiting.size() * 32) {
    auto t = std::make_unique<Thread>();
    t->tid = e.pool.size();
    t->stack_size = options.stack;
    void* m = mmap(nullptr, t->stack_size + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED || mprotect(m, 4096, PROT_NONE)) std::perror("simt: stack"), std::abort();
    t->stack = static_cast<char*>(m) + 4096;  // above a guard page
    t->ctx = boost::context::detail::make_fcontext(t->stack + t->stack_size, t->stack_size, entry);
#if defined(SIMT_TSAN)
    t->tsan = __tsan_create_fiber(0);
#endif
    e.pool.push_back(std::move(t));
  }
  std::free(e.dyn);
  e.dyn = nullptr;
  if (shared && posix_memalign(&e.dyn, 128, shared)) std::abort();  // exact size: ASan sees overruns
}
void run_blocks(dim3 grid, dim3 block, size_t shared, std::atomic<unsigned>& next, void (*body)(void*), void* arg) {
  Engine& e = engine();
  if (std::exchange(tls, &e)) std::fprintf(stderr, "simt: nested launch\n"), std::abort();
  prepare(e, block, shared);
  e.body = body, e.body_arg = arg;
  blockDim = block, gridDim = grid;
  for (unsigned b, total = grid.x * grid.y * grid.z; (b = next.fetch_add(1)) < total;) {
    blockIdx = {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
    if (options.poison && shared) std::memset(e.dyn, 0xff, shared);
    e.live = e.n;
    for (unsigned i = 0; i < e.n; ++i) {
      e.pool[i]->idx = {i % block.x, i / block.x % block.y, i / block.x / block.y};
      e.push(e.pool[i].get());
    }
    e.cur = &e.main;
    __tsan_release(&e.begin);
    switch_to(e.pop());
    __tsan_acquire(&e.end);
  }
  tls = nullptr;
}
}  // namespace

void* dynamic_shared() { return tls->dyn; }
unsigned lane() { return tls->cur->tid % 32; }

uint64_t barrier(Kind kind, int predicate, const Loc& loc) {
  Engine& e = *tls;
  Thread& t = *e.cur;
  t.state = State::barrier, t.kind = kind, t.arg = predicate != 0, t.loc = loc, t.mask = ~0u;
  __tsan_release(&e);
  if (e.at_barrier++)
    for (unsigned i = 0; i < e.n; ++i)
      if (auto& o = *e.pool[i]; o.state == State::barrier && &o != &t) {
        if (o.loc.line != loc.line || o.kind != kind) fail("threads of one block wait at different barriers", loc);
        break;
      }
  if (e.at_barrier == e.live) release_barrier();
  else block_current();
  __tsan_acquire(&e);
  return t.out;
}

// Joins the lanes of `mask`; the last lane to arrive computes every lane's result.
uint64_t warp_op(Kind kind, uint32_t mask, uint64_t in, int arg, int width, const Loc& loc) {
  Engine& e = *tls;
  Thread& t = *e.cur;
  uint32_t& waiting = e.waiting[t.tid / 32];
  uint32_t bit = 1u << (t.tid % 32);
  if (!(mask & bit)) fail("the calling lane is not in the mask", loc);
  t.state = State::warp, t.kind = kind, t.mask = mask, t.in = in, t.arg = arg, t.width = width, t.loc = loc;
  __tsan_release(&waiting);
  waiting |= bit;
  if ((waiting & mask) != mask) {
    block_current();
  } else {
    const std::unique_ptr<Thread>* lanes = &e.pool[t.tid / 32 * 32];
    uint64_t acc = lanes[std::countr_zero(mask)]->in;
    for (uint32_t m = mask; m; m &= m - 1) {
      Thread& o = *lanes[std::countr_zero(m)];
      if (o.mask != mask || o.kind != kind) fail("lanes of one warp wait in different warp operations", loc);
      if (kind == bit_or) acc |= o.in;
      else if (kind == max64) acc = std::max(acc, o.in);
      else if (kind == min64) acc = std::min(acc, o.in);
      else if (kind == add32 && m != mask) acc = static_cast<uint32_t>(acc + o.in);
    }
    for (uint32_t m = mask; m; m &= m - 1) {
      int l = std::countr_zero(m), s = l;
      Thread& o = *lanes[l];
      int base = l & ~(o.width - 1);
      if (kind == shfl_idx) s = base + (o.arg & (o.width - 1));
      else if (kind == shfl_xor && (l ^ o.arg) < base + o.width) s = l ^ o.arg;
      else if (kind == shfl_up && l - o.arg >= base) s = l - o.arg;
      else if (kind == shfl_down && l + o.arg < base + o.width) s = l + o.arg;
      if (!(mask >> s & 1)) fail("a shuffle reads a lane outside the mask", o.loc);
      o.out = kind < bit_or ? lanes[s]->in : acc;
      if (&o != &t) e.push(&o);
    }
    if (kind == joined) {
      __tsan_acquire(&waiting);  // what the lanes wrote before they came
      void* all[32];
      for (int l = 0; l < 32; ++l) all[l] = reinterpret_cast<void*>(lanes[l]->in);
      t.together(all);
      __tsan_release(&waiting);
    }
    waiting &= ~mask;
    t.state = State::ready;
  }
  __tsan_acquire(&waiting);
  return t.out;
}

void join_warp(void* mine, void (*together)(void* const*), const Loc& loc) {
  tls->cur->together = together;
  warp_op(joined, ~0u, reinterpret_cast<uint64_t>(mine), 0, 32, loc);
}

namespace {
/// Kernels that were launched, by their place in the program, for tests/gpu/check_launches.py.
class LaunchLog {
 public:
  ~LaunchLog() {
    const char* path = std::getenv("HELIOS_SIMT_LAUNCHES");
    std::FILE* file = path ? std::fopen(path, "w") : nullptr;
    if (!file) return;
    for (const auto& [kernel, threads, shared] : launches_) std::fprintf(file, "%zx %u %zu\n", kernel, threads, shared);
    std::fclose(file);
  }
  void add(const void* kernel, unsigned threads, size_t shared) {
    const auto at = static_cast<size_t>(static_cast<const char*>(kernel) - &__executable_start);
    const std::lock_guard lock(mutex_);
    launches_.emplace(at, threads, shared);
  }

 private:
  std::mutex mutex_;
  std::set<std::tuple<size_t, unsigned, size_t>> launches_;
};
}  // namespace

/// The limits hold on every architecture, without asking for more: a block of 256 threads even with 255 registers each.
void note_launch(const void* kernel, dim3 grid, dim3 block, size_t shared) {
  constexpr unsigned kMaxThreads = 256, kMaxGridYZ = 65535;
  constexpr size_t kMaxShared = 48 << 10;
  const unsigned threads = block.x * block.y * block.z;
  const bool whole = threads > 0 && grid.x > 0 && grid.y > 0 && grid.z > 0;
  if (!whole || threads > kMaxThreads || grid.x > 0x7fffffffu || grid.y > kMaxGridYZ || grid.z > kMaxGridYZ ||
      shared > kMaxShared) {
    std::fprintf(stderr, "simt: no GPU takes a grid of %u x %u x %u blocks, %u threads, %zu bytes of shared memory\n",
                 grid.x, grid.y, grid.z, threads, shared);
    std::abort();
  }
  static LaunchLog log;
  log.add(kernel, threads, shared);
}

void launch(dim3 grid, dim3 block, size_t shared, bool cooperative, void (*body)(void*), void* arg) {
#if defined(SIMT_SINGLE_THREAD)  // shared memory is the process's own: one launch at a time, whoever launches
  static std::mutex one_launch;
  const std::lock_guard lock(one_launch);
#endif
  std::atomic<unsigned> next{0};
  std::vector<std::jthread> helpers;
  unsigned workers = cooperative ? grid.x * grid.y * grid.z : options.os_threads;
#if defined(SIMT_SINGLE_THREAD)
  if (!cooperative) workers = 1;
#endif
  for (unsigned i = 1; i < workers; ++i) helpers.emplace_back([&] { run_blocks(grid, block, shared, next, body, arg); });
  run_blocks(grid, block, shared, next, body, arg);
}
}  // namespace simt::detail

void simt::pause() {
  auto& e = *detail::tls;
  if (++e.pauses % 64 == 0 || !e.count) std::this_thread::yield();
  if (!e.count) return;
  auto* self = e.cur;
  auto* next = e.pop();
  e.push(self);
  detail::switch_to(next);
}
