// The split follows the Hugging Face library's find_matches(), its treatment of overlapping white space included.
#include "coordinator/tokenizer/added_tokens.h"

#include <algorithm>

#include "coordinator/tokenizer/utf8.h"

namespace helios {
namespace {

size_t leading_white_space(std::string_view text) {
  size_t size = 0;
  while (size < text.size()) {
    const Utf8Step step = next_utf8(text.substr(size));
    if (step.status != Utf8Status::kComplete || !is_white_space(step.code_point)) break;
    size += step.size;
  }
  return size;
}

size_t trailing_white_space(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0) {
    size_t start = begin - 1;
    while (start > 0 && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) --start;
    const Utf8Step step = next_utf8(text.substr(start, begin - start));
    if (step.status != Utf8Status::kComplete || !is_white_space(step.code_point)) break;
    begin = start;
  }
  return text.size() - begin;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher() : nodes_(1) { root_children_.fill(-1); }

int32_t AddedTokenMatcher::child(int32_t node, uint8_t byte) const {
  int32_t c = nodes_[node].first_child;
  while (c >= 0 && nodes_[c].byte != byte) c = nodes_[c].next_sibling;
  return c;
}

void AddedTokenMatcher::add(std::string_view content, TokenId id, bool lstrip, bool rstrip) {
  int32_t node = 0;
  for (const char c : content) {
    const auto byte = static_cast<uint8_t>(c);
    int32_t next = node == 0 ? root_children_[byte] : child(node, byte);
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      nodes_.push_back({byte, -1, -1, node == 0 ? -1 : nodes_[node].first_child});
      if (node == 0) {
        root_children_[byte] = next;
      } else {
        nodes_[node].first_child = next;
      }
    }
    node = next;
  }
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back({id, lstrip, rstrip});
}

size_t AddedTokenMatcher::longest(std::string_view text, int32_t* token) const {
  size_t length = 0;
  int32_t node = root_children_[static_cast<uint8_t>(text[0])];
  for (size_t depth = 1; node >= 0; ++depth) {
    if (nodes_[node].token >= 0) {
      length = depth;
      *token = nodes_[node].token;
    }
    if (depth == text.size()) break;
    node = child(node, static_cast<uint8_t>(text[depth]));
  }
  return length;
}

void AddedTokenMatcher::split(std::string_view text, std::vector<Piece>* pieces) const {
  size_t stretch_begin = 0;
  for (size_t at = 0; at < text.size();) {
    int32_t index = -1;
    const size_t length = longest(text.substr(at), &index);
    if (length == 0) {
      ++at;
      continue;
    }
    const Token& token = tokens_[index];
    size_t begin = at;
    size_t end = at + length;
    at = end;  // the search goes on here, whatever rstrip takes
    if (token.lstrip) begin = std::max(begin - trailing_white_space(text.substr(0, begin)), stretch_begin);
    if (token.rstrip) end += leading_white_space(text.substr(end));
    if (stretch_begin < begin) pieces->push_back({text.substr(stretch_begin, begin - stretch_begin), -1});
    pieces->push_back({text.substr(begin, end - begin), token.id});
    stretch_begin = end;
  }
  if (stretch_begin < text.size()) pieces->push_back({text.substr(stretch_begin), -1});
}

}  // namespace helios
