helios_test(generation_logprobs_test LABEL unit IN replay_tests SOURCES
  generation_logprobs_test.cc ${PROJECT_SOURCE_DIR}/tests/support/count_allocations.cc
  LINKS helios_generation_logprobs helios_logprobs_reference)
helios_test(generation_logprobs_simt_test LABEL unit EMULATED SANITIZED TIMEOUT 300 IN replay_simt_tests SOURCES
  generation_logprobs_test.cc ${PROJECT_SOURCE_DIR}/tests/support/count_allocations.cc
  LINKS helios_generation_logprobs helios_logprobs_reference helios_simt_backend)

helios_test(sampler_test LABEL unit IN replay_tests SOURCES
  sampler_test.cc ${PROJECT_SOURCE_DIR}/tests/support/count_allocations.cc
  LINKS helios_sampler helios_sampling_reference)
# The same body over the CUDA sources, captured once and replayed.
helios_test(sampler_simt_test LABEL unit SANITIZED EMULATED TIMEOUT 300 IN replay_simt_tests SOURCES
  sampler_test.cc ${PROJECT_SOURCE_DIR}/tests/support/count_allocations.cc
  LINKS helios_sampler helios_simt_backend helios_sampling_reference)
