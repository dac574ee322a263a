// Does a submission fit the core? Every field is compared with it before anything is uploaded; a submission comes from
// another process, so nothing in it may crash this one.
#pragma once

#include <cstdint>
#include <vector>

#include "common/contract/submission.h"
#include "worker/catalog/core_catalog.h"

namespace helios {

class SubmissionCheck {
 public:
  explicit SubmissionCheck(const CoreShape& shape);

  /// Errors: kInvalidArgument, naming the field, what was found and what the core allows. Allocates only for an error.
  Status check(const Submission& submission);

 private:
  Status check_copies(const Submission& submission);
  Status check_admissions(const Submission& submission);
  Status check_block_updates(const Submission& submission);
  Status check_lanes(const Submission& submission);
  Status check_lane(const Lane& lane, Operation operation) const;
  Status check_mask(const Lane& lane) const;
  Status check_proposals(const Lane& lane) const;
  Status check_prompt_targets(const Submission& submission) const;
  Status check_logprobs(const Submission& submission);
  Status check_selected_ids(const Submission& submission);
  bool first_mark(int32_t slot);

  const CoreShape shape_;
  const int32_t max_blocks_;
  std::vector<uint64_t> marks_;  // [capacity] round in which a slot was last seen
  // [capacity] its admission announced masks, or has penalties: so far, and with the submission at hand.
  std::vector<bool> masked_, masked_then_, penalized_, penalized_then_;
  // The host tier's: rounds in which a block of the cache, and of the tier, was last seen, and which of the latter hold
  // something.
  std::vector<uint64_t> cache_marks_, host_marks_;
  std::vector<bool> host_filled_;
  std::vector<uint64_t> block_marks_;  // [capacity, max_blocks] and an entry of its block table
  uint64_t round_ = 0;
};

}  // namespace helios
