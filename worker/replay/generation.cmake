# Logprobs and sampling of the rows that emit; included by this folder's CMakeLists.txt.
helios_room(helios_generation_logprobs
  SOURCES generation_logprobs.cc
  LINKS helios_base helios_contract helios_backend helios_collective helios_device_logprobs)

# Calls the sampling kernels of whichever device a program links.
helios_room(helios_sampler
  SOURCES sampler.cc
  LINKS helios_device_sampling helios_backend helios_collective)
