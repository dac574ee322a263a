#include "worker/cuda/cuda_module.h"

#include <dlfcn.h>

#include <filesystem>

#include <fmt/format.h>

namespace helios {

Result<const CudaModule*> load_cuda_module() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string path = (error ? std::filesystem::path(".") : self.parent_path()) / "helios_cuda.so";
  if (!std::filesystem::exists(path)) {
    return Error{Errc::kUnsupported, fmt::format("this build has no CUDA module: {} does not exist", path)};
  }
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: its destructors belong to the process
  if (!handle) return Error{Errc::kUnsupported, fmt::format("cannot open the CUDA module: {}", dlerror())};
  const auto factory = reinterpret_cast<const CudaModule* (*)()>(dlsym(handle, "helios_cuda_module"));
  if (!factory) return Error{Errc::kMismatch, fmt::format("{} is not a Helios CUDA module", path)};
  const CudaModule* module = factory();
  if (module->version != kCudaModuleVersion) {
    return Error{Errc::kMismatch,
                 fmt::format("{}: expected module version {}, found {}", path, kCudaModuleVersion, module->version)};
  }
  return module;
}

}  // namespace helios
