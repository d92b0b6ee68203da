#include "contexts.hpp"
#include "cuda_driver.hpp"

namespace stf_places::cuda {

Status CudaDriver::host_function(StreamHandle stream, HostFunction function, void* argument) {
  auto handle = from_handle<CUstream>(stream);
  return on_stream(api_, greens_, handle, [&] { return api_.LaunchHostFunc(handle, function, argument); });
}

// A CUkernel may be given as a CUfunction (the driver tells them apart); its context is then the stream's.
Status CudaDriver::launch(const KernelLaunch& kernel, StreamHandle stream, const Work& work) {
  auto handle = from_handle<CUstream>(stream);
  Status status = on_stream(api_, greens_, handle, [&] {
    return api_.LaunchKernel(from_handle<CUfunction>(kernel.function), kernel.grid[0], kernel.grid[1],
                             kernel.grid[2], kernel.block[0], kernel.block[1], kernel.block[2],
                             kernel.shared_bytes, handle, kernel.parameters, nullptr);
  });
  if (status.ok() || work.symbol.empty()) return status;
  return explained(std::move(status), "kernel of task '" + std::string(work.symbol) + "'");
}

}  // namespace stf_places::cuda
