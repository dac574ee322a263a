// Sorts the tokens by their bytes and lays the tree of their beginnings out in preorder.
#include "coordinator/grammar/grammar_vocabulary.h"

#include <algorithm>
#include <utility>

#include "coordinator/tokenizer/tokenizer.h"

namespace helios {
namespace {

constexpr size_t kMaxTokenBytes = 0xFFFF;

}  // namespace

Result<std::shared_ptr<const GrammarVocabulary>> GrammarVocabulary::make(std::vector<std::string> token_bytes,
                                                                         std::vector<TokenId> stop_ids) {
  std::sort(stop_ids.begin(), stop_ids.end());
  stop_ids.erase(std::unique(stop_ids.begin(), stop_ids.end()), stop_ids.end());
  for (const TokenId id : stop_ids) {
    if (id < 0 || static_cast<size_t>(id) >= token_bytes.size())
      return Error{Errc::kInvalidArgument, "stop token " + std::to_string(id) + " is not in the vocabulary of " +
                                               std::to_string(token_bytes.size())};
    token_bytes[static_cast<size_t>(id)].clear();
  }
  for (std::string& bytes : token_bytes)
    if (bytes.size() > kMaxTokenBytes) bytes.clear();  // no text that a grammar would let through as one piece
  std::shared_ptr<GrammarVocabulary> vocabulary(new GrammarVocabulary);
  vocabulary->token_bytes_ = std::move(token_bytes);
  vocabulary->stop_ids_ = std::move(stop_ids);
  vocabulary->build_tree();
  return std::shared_ptr<const GrammarVocabulary>(std::move(vocabulary));
}

Result<std::shared_ptr<const GrammarVocabulary>> GrammarVocabulary::from_tokenizer(const Tokenizer& tokenizer,
                                                                                   int64_t vocab_size,
                                                                                   std::vector<TokenId> stop_ids) {
  std::vector<std::string> token_bytes(static_cast<size_t>(std::max<int64_t>(vocab_size, 0)));
  const int64_t known = std::min(vocab_size, tokenizer.vocab_size());
  for (TokenId id = 0; id < known; ++id)
    if (tokenizer.contains(id) && !tokenizer.is_special(id))
      token_bytes[static_cast<size_t>(id)] = std::string(tokenizer.token_bytes(id));
  return make(std::move(token_bytes), std::move(stop_ids));
}

bool GrammarVocabulary::is_stop(TokenId id) const { return std::binary_search(stop_ids_.begin(), stop_ids_.end(), id); }

void GrammarVocabulary::build_tree() {
  for (TokenId id = 0; id < vocab_size(); ++id)
    if (!token_bytes(id).empty()) tokens_.push_back(id);
  std::sort(tokens_.begin(), tokens_.end(),
            [&](TokenId a, TokenId b) { return std::pair(token_bytes(a), a) < std::pair(token_bytes(b), b); });
  nodes_.push_back({0, 0, 0, 0});
  std::vector<uint32_t> path{0};  // the nodes of the token before, by depth
  std::string_view before;
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view bytes = token_bytes(tokens_[i]);
    const size_t common = static_cast<size_t>(
        std::mismatch(before.begin(), before.end(), bytes.begin(), bytes.end()).second - bytes.begin());
    for (; path.size() > common + 1; path.pop_back()) nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
    for (size_t depth = common; depth < bytes.size(); ++depth) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({0, i, static_cast<uint16_t>(depth + 1), static_cast<uint8_t>(bytes[depth])});
    }
    before = bytes;
  }
  for (; !path.empty(); path.pop_back()) nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({static_cast<uint32_t>(nodes_.size()), static_cast<uint32_t>(tokens_.size()), 0, 0});
}

}  // namespace helios
