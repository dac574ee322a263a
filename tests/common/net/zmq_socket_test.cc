// Real sockets over tcp and ipc: whole messages, peers that are gone, full, stale or rude.
#include "common/net/zmq_socket.h"

#include <gtest/gtest.h>
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "common/net/process_id.h"
#include "common/net/wake_event.h"

namespace helios {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 20s;  // reached only by a failing test

std::string ipc_endpoint() {
  static std::atomic<int> next{0};
  return "ipc:///tmp/helios-net-test-" + std::to_string(::getpid()) + "-" + std::to_string(next++);
}

template <class Try>
bool eventually(Try attempt) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < end) {
    if (attempt()) return true;
    std::this_thread::sleep_for(2ms);
  }
  return false;
}

bool send_when_connected(ZmqSocket& dealer, const std::vector<std::string>& frames) {
  return eventually([&] { return dealer.send("", frames).ok(); });
}

std::optional<ZmqMessage> receive(ZmqSocket& socket) {
  std::optional<ZmqMessage> message;
  ZmqSocket* const sockets[] = {&socket};
  eventually([&] {
    zmq_wait(sockets, -1, 50ms);
    message = socket.try_receive();
    return message.has_value();
  });
  return message;
}

class ZmqSocketOver : public ::testing::TestWithParam<const char*> {
 protected:
  std::string endpoint() const { return std::string(GetParam()) == "ipc" ? ipc_endpoint() : "tcp://127.0.0.1:0"; }
  ZmqContext context_;
};

INSTANTIATE_TEST_SUITE_P(Transports, ZmqSocketOver, ::testing::Values("tcp", "ipc"),
                         [](const auto& transport) { return std::string(transport.param); });

TEST_P(ZmqSocketOver, WholeMessagesGoBothWays) {
  ZmqSocket router = ZmqSocket::router(context_);
  const auto bound = router.bind(endpoint());
  ASSERT_TRUE(bound.ok()) << bound.error().message;
  EXPECT_EQ(bound->find(":0"), std::string::npos) << *bound;
  ZmqSocket dealer = ZmqSocket::dealer(context_, "rank0-abc");
  ASSERT_TRUE(dealer.connect(*bound).ok());

  ASSERT_TRUE(send_when_connected(dealer, {"\x01", std::string("a\0b", 3)}));
  const auto request = receive(router);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->identity, "rank0-abc");
  EXPECT_EQ(request->frames, (std::vector<std::string>{"\x01", std::string("a\0b", 3)}));

  ASSERT_TRUE(router.send("rank0-abc", std::vector<std::string>{"\x02", ""}).ok());
  const auto reply = receive(dealer);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->identity, "");
  EXPECT_EQ(reply->frames, (std::vector<std::string>{"\x02", ""}));
}

TEST_P(ZmqSocketOver, FramesOfAnySizeArriveAlignedForWords) {
  ZmqSocket router = ZmqSocket::router(context_);
  const std::string bound = router.bind(endpoint()).value();
  ZmqSocket dealer = ZmqSocket::dealer(context_, "a");
  ASSERT_TRUE(dealer.connect(bound).ok());
  for (const size_t size : {8u, 40u, 64u, 1000u, 8184u, 8192u, 100000u}) {
    ASSERT_TRUE(send_when_connected(dealer, {"\x01", std::string(size, 'x')}));
    const auto message = receive(router);
    ASSERT_TRUE(message);
    ASSERT_EQ(message->frames[1].size(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(message->frames[1].data()) % 8, 0u) << size;
  }
}

TEST_P(ZmqSocketOver, SendingToAPeerThatIsGoneIsAnError) {
  ZmqSocket router = ZmqSocket::router(context_);
  const std::string bound = router.bind(endpoint()).value();
  EXPECT_EQ(router.send("nobody", std::vector<std::string>{"x"}).error().code, Errc::kUnavailable);
  {
    ZmqSocket dealer = ZmqSocket::dealer(context_, "short-lived");
    ASSERT_TRUE(dealer.connect(bound).ok());
    ASSERT_TRUE(send_when_connected(dealer, {"hello"}));
    ASSERT_TRUE(receive(router));
    ASSERT_TRUE(router.send("short-lived", std::vector<std::string>{"x"}).ok());
  }
  EXPECT_TRUE(eventually([&] { return !router.send("short-lived", std::vector<std::string>{"x"}).ok(); }));
}

TEST_P(ZmqSocketOver, SendingToAPeerThatDoesNotReadIsAnErrorSoonerOrLater) {
  ZmqSocket router = ZmqSocket::router(context_);
  const std::string bound = router.bind(endpoint()).value();
  ZmqSocket dealer = ZmqSocket::dealer(context_, "sleeper");
  ASSERT_TRUE(dealer.connect(bound).ok());
  ASSERT_TRUE(send_when_connected(dealer, {"hello"}));
  ASSERT_TRUE(receive(router));
  const std::vector<std::string> frames = {std::string(4096, 'x')};
  int accepted = 0;
  Status last = Ok{};
  while (accepted < 20000 && (last = router.send("sleeper", frames)).ok()) ++accepted;
  ASSERT_FALSE(last.ok()) << accepted << " messages vanished into a peer that reads none";
  EXPECT_EQ(last.error().code, Errc::kUnavailable);
  for (int i = 0; i < accepted; ++i) ASSERT_TRUE(receive(dealer)) << "message " << i << " of " << accepted;
}

TEST_P(ZmqSocketOver, NothingIsQueuedForACoordinatorThatIsNotThere) {
  // A port that is bound but does not listen refuses connections; a ZeroMQ listener would close in its own time.
  const int reserved = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
  socklen_t length = sizeof address;
  ASSERT_EQ(::bind(reserved, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(::getsockname(reserved, reinterpret_cast<sockaddr*>(&address), &length), 0);
  const std::string fixed = std::string(GetParam()) == "ipc"
                                ? ipc_endpoint()
                                : "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  ZmqSocket dealer = ZmqSocket::dealer(context_, "early");
  ASSERT_TRUE(dealer.connect(fixed).ok());
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(dealer.send("", std::vector<std::string>{"stale"}).error().code, Errc::kUnavailable);
  }
  ::close(reserved);
  ZmqSocket router = ZmqSocket::router(context_);
  ASSERT_TRUE(eventually([&] { return router.bind(fixed).ok(); }));
  ASSERT_TRUE(send_when_connected(dealer, {"fresh"}));
  const auto message = receive(router);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->frames[0], "fresh");
}

TEST_P(ZmqSocketOver, TheNewerConnectionOfAnIdentityTakesOver) {
  ZmqSocket router = ZmqSocket::router(context_);
  const std::string bound = router.bind(endpoint()).value();
  ZmqSocket before = ZmqSocket::dealer(context_, "same");
  ASSERT_TRUE(before.connect(bound).ok());
  ASSERT_TRUE(send_when_connected(before, {"one"}));
  ASSERT_TRUE(receive(router));
  ZmqSocket after = ZmqSocket::dealer(context_, "same");
  ASSERT_TRUE(after.connect(bound).ok());
  ASSERT_TRUE(send_when_connected(after, {"two"}));
  ASSERT_EQ(receive(router)->frames[0], "two");
  ASSERT_TRUE(router.send("same", std::vector<std::string>{"for the newer"}).ok());
  EXPECT_EQ(receive(after)->frames[0], "for the newer");
  EXPECT_FALSE(before.try_receive());
}

TEST_P(ZmqSocketOver, MessagesOfManyFramesAreDroppedWhole) {
  ZmqSocket router = ZmqSocket::router(context_);
  const std::string bound = router.bind(endpoint()).value();
  void* rude = zmq_socket(context_.handle(), ZMQ_DEALER);
  ASSERT_EQ(zmq_connect(rude, bound.c_str()), 0);
  for (int i = 0; i < 9; ++i) ASSERT_EQ(zmq_send(rude, "x", 1, i < 8 ? ZMQ_SNDMORE : 0), 1);
  for (int i = 0; i < 8; ++i) ASSERT_EQ(zmq_send(rude, "y", 1, i < 7 ? ZMQ_SNDMORE : 0), 1);
  const auto message = receive(router);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->frames, std::vector<std::string>(8, "y"));
  EXPECT_EQ(router.dropped(), 1u);
  zmq_close(rude);
}

TEST_P(ZmqSocketOver, AnOversizeFrameNeverArrivesAndTheSocketLivesOn) {
  ZmqSocket router = ZmqSocket::router(context_);
  const std::string bound = router.bind(endpoint()).value();
  void* rude = zmq_socket(context_.handle(), ZMQ_DEALER);
  const int linger = 0;
  zmq_setsockopt(rude, ZMQ_LINGER, &linger, sizeof linger);
  ASSERT_EQ(zmq_connect(rude, bound.c_str()), 0);
  {
    const std::string huge(kMaxFrameBytes + 1, 'x');
    ASSERT_EQ(zmq_send(rude, huge.data(), huge.size(), 0), static_cast<int>(huge.size()));
  }
  ZmqSocket dealer = ZmqSocket::dealer(context_, "polite");
  ASSERT_TRUE(dealer.connect(bound).ok());
  ASSERT_TRUE(send_when_connected(dealer, {"small"}));
  const auto message = receive(router);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->identity, "polite");
  EXPECT_EQ(message->frames[0], "small");
  EXPECT_FALSE(router.try_receive());
  zmq_close(rude);
}

TEST_P(ZmqSocketOver, ALastWordIsDeliveredWithinTheLingerTime) {
  ZmqSocket router = ZmqSocket::router(context_);
  const std::string bound = router.bind(endpoint()).value();
  std::thread leaver([&] {
    ZmqContext own;
    ZmqSocket dealer = ZmqSocket::dealer(own, "leaver");
    ASSERT_TRUE(dealer.connect(bound).ok());
    ASSERT_TRUE(send_when_connected(dealer, {"hello"}));
    dealer.set_linger(5s);
    ASSERT_TRUE(dealer.send("", std::vector<std::string>{"last word"}).ok());
  });
  leaver.join();
  EXPECT_EQ(receive(router)->frames[0], "hello");
  const auto last = receive(router);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->frames[0], "last word");
}

TEST(ZmqSocket, EndpointsThatAreNoneAreRefusedByName) {
  ZmqContext context;
  ZmqSocket router = ZmqSocket::router(context);
  for (const char* bad : {"", "tcp://", "tcp://host", "udp://127.0.0.1:1", "ipc://", "127.0.0.1:80", "inproc://x",
                          "tcp://127.0.0.1:notaport", "tcp://127.0.0.1:99999"}) {
    const auto result = router.bind(bad);
    ASSERT_FALSE(result.ok()) << bad;
    EXPECT_EQ(result.error().code, Errc::kInvalidArgument) << bad << ": " << result.error().message;
    EXPECT_NE(result.error().message.find(bad), std::string::npos);
  }
  EXPECT_FALSE(router.connect("tcp//127.0.0.1:80").ok());
}

TEST(ZmqSocket, APortInUseIsAnErrorNotACrash) {
  ZmqContext context;
  ZmqSocket first = ZmqSocket::router(context);
  const std::string bound = first.bind("tcp://127.0.0.1:0").value();
  ZmqSocket second = ZmqSocket::router(context);
  EXPECT_EQ(second.bind(bound).error().code, Errc::kUnavailable);
}

TEST(ZmqSocket, ASocketMayBeHandedToAThread) {
  ZmqContext context;
  ZmqSocket router = ZmqSocket::router(context);
  const std::string bound = router.bind("tcp://127.0.0.1:0").value();
  ZmqSocket dealer = ZmqSocket::dealer(context, "a");
  ASSERT_TRUE(dealer.connect(bound).ok());
  std::thread other([moved = std::move(dealer)]() mutable { EXPECT_TRUE(send_when_connected(moved, {"hi"})); });
  other.join();
  EXPECT_TRUE(receive(router));
}

TEST(ZmqSocketDeathTest, UseFromAnotherThreadIsAFailedCheck) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto misuse = [] {
    ZmqContext context;
    ZmqSocket router = ZmqSocket::router(context);
    std::thread([&] { (void)router.try_receive(); }).join();
  };
  EXPECT_DEATH(misuse(), "a ZeroMQ socket belongs to one thread");
}

// The library must find it too: that is what it is for.
TEST(ProcessId, IsRememberedForTheLibrariesTooAndRenewedByAFork) {
  remember_process_id();
  const auto as_libraries_find_it = reinterpret_cast<pid_t (*)()>(::dlsym(RTLD_DEFAULT, "getpid"));
  ASSERT_EQ(as_libraries_find_it, &::getpid);
  EXPECT_EQ(::getpid(), ::syscall(SYS_getpid));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::getpid() == ::syscall(SYS_getpid) && ::getpid() != ::getppid() ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(ZmqWait, AWakeEventEndsTheWaitAndIsDrained) {
  ZmqContext context;
  ZmqSocket router = ZmqSocket::router(context);
  ZmqSocket* const sockets[] = {&router};
  WakeEvent wake;
  std::thread waker([&] {
    std::this_thread::sleep_for(10ms);
    wake.notify();
    wake.notify();
  });
  EXPECT_FALSE(zmq_wait(sockets, wake.fd(), 20s));
  waker.join();
  wake.notify();
  EXPECT_FALSE(zmq_wait(sockets, wake.fd(), 20s));
  uint64_t left = 0;
  EXPECT_EQ(::read(wake.fd(), &left, sizeof left), -1) << "drained";
}

// A send takes in what has come when the last look is over a millisecond old, and the descriptor then shows nothing.
TEST(ZmqWait, NoMessageIsSleptOverThatCameBeforeASend) {
  constexpr int kMessages = 1000, kUnderWay = 3;
  ZmqContext context;
  ZmqSocket router = ZmqSocket::router(context);
  const std::string bound = router.bind(ipc_endpoint()).value();
  std::jthread peer([&] {
    ZmqSocket dealer = ZmqSocket::dealer(context, "a");
    ASSERT_TRUE(dealer.connect(bound).ok());
    ZmqSocket* const sockets[] = {&dealer};
    int sent = 0;
    for (; sent < kUnderWay; ++sent) ASSERT_TRUE(send_when_connected(dealer, {"x"}));
    for (int received = 0; received < kMessages; ++received) {
      while (!dealer.try_receive()) ASSERT_TRUE(zmq_wait(sockets, -1, kPatience));
      if (received % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(received % 7 * 300));
      if (sent < kMessages) sent += dealer.send("", std::vector<std::string>{"x"}).ok() ? 1 : 0;
    }
    EXPECT_EQ(sent, kMessages);
  });
  ZmqSocket* const sockets[] = {&router};
  for (int received = 0, turn = 0; received < kMessages; ++turn) {
    ASSERT_TRUE(zmq_wait(sockets, -1, kPatience)) << received;
    int owed = 0;
    while ((turn % 3 != 0 || owed == 0) && router.try_receive()) ++owed;
    ASSERT_GT(owed, 0) << "it said that one is there";
    if (turn % 5 == 0) std::this_thread::sleep_for(std::chrono::microseconds(turn % 11 * 200));
    for (received += owed; owed > 0; --owed) ASSERT_TRUE(router.send("a", std::vector<std::string>{"y"}).ok());
  }
}

TEST(ZmqWait, ASignalNeitherBreaksNorHangsIt) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  ZmqContext context;
  ZmqSocket router = ZmqSocket::router(context);
  const std::string bound = router.bind("tcp://127.0.0.1:0").value();
  ZmqSocket dealer = ZmqSocket::dealer(context, "a");
  ASSERT_TRUE(dealer.connect(bound).ok());
  std::atomic<bool> done{false};
  std::thread pest([&, target = pthread_self()] {
    while (!done) {
      pthread_kill(target, SIGUSR1);
      std::this_thread::sleep_for(200us);
    }
  });
  bool all = true;
  for (int i = 0; i < 200 && all; ++i) all = send_when_connected(dealer, {"x"}) && receive(router).has_value();
  done = true;
  pest.join();
  EXPECT_TRUE(all);
  sigaction(SIGUSR1, &before, nullptr);
}

}  // namespace
}  // namespace helios
