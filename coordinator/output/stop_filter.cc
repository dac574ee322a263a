// Children are sibling lists: most nodes of a few long strings have one child, and a dense table would be megabytes.
#include "coordinator/output/stop_filter.h"

namespace helios {

StopFilter::StopFilter(std::span<const std::string> stops) : nodes_(1) {
  root_children_.fill(-1);
  for (size_t i = 0; i < stops.size(); ++i) {
    stop_bytes_.push_back(static_cast<int64_t>(stops[i].size()));
    int32_t node = 0;
    for (const char c : stops[i]) {
      const int32_t known = child(node, static_cast<uint8_t>(c));
      node = known >= 0 ? known : add_child(node, static_cast<uint8_t>(c));
    }
    if (node != 0 && nodes_[node].stop < 0) nodes_[node].stop = static_cast<int32_t>(i);
  }
  link_failures();
}

int32_t StopFilter::child(int32_t node, uint8_t byte) const {
  if (node == 0) return root_children_[byte];
  int32_t c = nodes_[node].first_child;
  while (c >= 0 && nodes_[c].byte != byte) c = nodes_[c].next_sibling;
  return c;
}

int32_t StopFilter::add_child(int32_t node, uint8_t byte) {
  const auto added = static_cast<int32_t>(nodes_.size());
  nodes_.push_back({-1, nodes_[node].first_child, 0, nodes_[node].depth + 1, -1, byte});
  nodes_[node].first_child = added;
  if (node == 0) root_children_[byte] = added;
  return added;
}

void StopFilter::link_failures() {
  std::vector<int32_t> order(1, 0);  // breadth first: a failure is shallower than its node
  order.reserve(nodes_.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const int32_t parent = order[i];
    for (int32_t c = nodes_[parent].first_child; c >= 0; c = nodes_[c].next_sibling) {
      Node& node = nodes_[c];
      node.failure = parent == 0 ? 0 : next(nodes_[parent].failure, node.byte);
      const int32_t shorter = nodes_[node.failure].stop;
      if (shorter >= 0 && (node.stop < 0 || shorter < node.stop)) node.stop = shorter;
      order.push_back(c);
    }
  }
}

int32_t StopFilter::next(int32_t node, uint8_t byte) const {
  int32_t to = child(node, byte);
  while (to < 0 && node != 0) {
    node = nodes_[node].failure;
    to = child(node, byte);
  }
  return to < 0 ? 0 : to;
}

std::optional<StopFilter::Match> StopFilter::feed(std::string_view text, bool armed) {
  if (nodes_.size() == 1) {
    read_ += static_cast<int64_t>(text.size());
    return std::nullopt;
  }
  for (const char c : text) {
    state_ = next(state_, static_cast<uint8_t>(c));
    ++read_;
    const int32_t stop = nodes_[state_].stop;
    if (armed && stop >= 0) return Match{static_cast<size_t>(stop), read_ - stop_bytes_[stop], read_};
  }
  return std::nullopt;
}

}  // namespace helios
