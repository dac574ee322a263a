#include "common/net/cluster_key.h"

#include <fmt/format.h>
#include <zmq.h>

#include <array>

#include "common/base/check.h"

namespace helios {
namespace {

constexpr size_t kKeyCharacters = 40;

bool stays_on_host(std::string_view endpoint) {
  constexpr std::string_view kTcp = "tcp://";
  if (!endpoint.starts_with(kTcp)) return true;
  const std::string_view host = endpoint.substr(kTcp.size(), endpoint.rfind(':') - kTcp.size());
  return host == "localhost" || host.starts_with("127.") || host == "[::1]";
}

}  // namespace

Result<std::optional<ClusterKey>> cluster_key_for(std::string_view endpoint, const char* text) {
  const std::string_view given = text ? text : "";
  if (given == "none" || (given.empty() && stays_on_host(endpoint))) return std::optional<ClusterKey>();
  if (given.empty()) {
    return Error{Errc::kInvalidArgument,
                 fmt::format("{} can be reached from other hosts and {} is not set: give every process the key that "
                             "`helios-launch --new-cluster-key` prints, or `none` on a network that you trust",
                             endpoint, kClusterKeyVariable)};
  }
  ClusterKey key{.secret = std::string(given)};
  std::array<char, kKeyCharacters + 1> public_half{};
  if (given.size() != kKeyCharacters || zmq_curve_public(public_half.data(), key.secret.c_str()) != 0) {
    return Error{Errc::kInvalidArgument,
                 fmt::format("{}: expected the {} characters that `helios-launch --new-cluster-key` prints, found {}",
                             kClusterKeyVariable, kKeyCharacters,
                             given.size() == kKeyCharacters ? "others" : fmt::format("{}", given.size()))};
  }
  key.public_half.assign(public_half.data(), kKeyCharacters);
  return std::optional(std::move(key));
}

std::string new_cluster_key() {
  std::array<char, kKeyCharacters + 1> public_half{}, secret{};
  HELIOS_CHECK(zmq_curve_keypair(public_half.data(), secret.data()) == 0, "libzmq was built without CURVE");
  return {secret.data(), kKeyCharacters};
}

}  // namespace helios
