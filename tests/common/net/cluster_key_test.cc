// Who holds the cluster's key is heard, and nobody else, in either direction.
#include "common/net/cluster_key.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "common/net/zmq_socket.h"

namespace helios {
namespace {

using namespace std::chrono_literals;

ClusterKey make_key() { return **cluster_key_for("tcp://10.0.0.1:1", new_cluster_key().c_str()); }

/// Whether the router hears the dealer and the dealer hears the answer, given time enough for a handshake.
bool converse(const std::optional<ClusterKey>& router_key, const std::optional<ClusterKey>& dealer_key,
              std::chrono::milliseconds limit) {
  ZmqContext context;
  ZmqSocket router = ZmqSocket::router(context);
  if (router_key) router.encrypt(*router_key);
  const auto bound = router.bind("tcp://127.0.0.1:0");
  EXPECT_TRUE(bound.ok());
  ZmqSocket dealer = ZmqSocket::dealer(context, "rank-0");
  if (dealer_key) dealer.encrypt(*dealer_key);
  EXPECT_TRUE(dealer.connect(*bound).ok());
  const std::vector<std::string> hello{"hello"}, welcome{"welcome"};
  bool sent = false;
  ZmqSocket* const both[] = {&router, &dealer};
  for (const auto end = std::chrono::steady_clock::now() + limit; std::chrono::steady_clock::now() < end;) {
    sent = sent || dealer.send("", hello).ok();
    zmq_wait(both, -1, 10ms);
    if (const auto heard = router.try_receive()) {
      EXPECT_EQ(heard->frames, hello);
      EXPECT_TRUE(router.send(heard->identity, welcome).ok());
    }
    if (const auto answer = dealer.try_receive()) return answer->frames == welcome;
  }
  return false;
}

TEST(ClusterKey, PeersWithTheSameKeyConverse) {
  const ClusterKey key = make_key();
  EXPECT_TRUE(converse(key, key, 20s));
  EXPECT_TRUE(converse(std::nullopt, std::nullopt, 20s));
}

TEST(ClusterKey, APeerWithAnotherKeyOrNoneIsNotHeard) {
  const ClusterKey key = make_key();
  EXPECT_FALSE(converse(key, make_key(), 400ms));
  EXPECT_FALSE(converse(key, std::nullopt, 400ms));
  EXPECT_FALSE(converse(std::nullopt, key, 400ms));
}

// Even a rank with the right expectation of the coordinator needs the secret half to connect as itself, and a stranger
// who guesses the key pair of the client but not the coordinator's public half gets nowhere.
TEST(ClusterKey, TheCoordinatorsPublicHalfIsWhatAdmits) {
  const ClusterKey key = make_key(), other = make_key();
  EXPECT_FALSE(converse(key, ClusterKey{.secret = key.secret, .public_half = other.public_half}, 400ms));
}

TEST(ClusterKey, IsNeededExactlyWhereOtherHostsCanConnect) {
  for (const char* here : {"ipc:///tmp/x", "tcp://127.0.0.1:29500", "tcp://localhost:1", "tcp://[::1]:1"}) {
    const auto key = cluster_key_for(here, nullptr);
    ASSERT_TRUE(key.ok()) << here;
    EXPECT_FALSE(key->has_value());
    EXPECT_TRUE((*cluster_key_for(here, new_cluster_key().c_str())).has_value()) << "one that is given is used";
  }
  for (const char* there :
       {"tcp://10.0.0.1:29500", "tcp://node0:1", "tcp://*:1", "tcp://0.0.0.0:1", "tcp://[fd00::1]:1"}) {
    for (const char* none : {static_cast<const char*>(nullptr), ""}) {
      const auto key = cluster_key_for(there, none);
      ASSERT_FALSE(key.ok()) << there;
      EXPECT_NE(key.error().message.find("HELIOS_CLUSTER_KEY is not set"), std::string::npos) << key.error().message;
      EXPECT_NE(key.error().message.find(there), std::string::npos);
    }
    EXPECT_FALSE((*cluster_key_for(there, "none")).has_value()) << "left open on purpose";
    EXPECT_TRUE((*cluster_key_for(there, new_cluster_key().c_str())).has_value());
  }
}

TEST(ClusterKey, AMalformedOneIsRefusedWithoutBeingRepeated) {
  for (const std::string& text :
       {std::string("short"), std::string(41, 'a'), std::string(40, ' '), std::string(40, '~')}) {
    const auto key = cluster_key_for("tcp://10.0.0.1:1", text.c_str());
    ASSERT_FALSE(key.ok()) << text;
    EXPECT_EQ(key.error().message.find(text), std::string::npos) << "a secret stays out of logs";
  }
  EXPECT_NE(new_cluster_key(), new_cluster_key());
}

}  // namespace
}  // namespace helios
