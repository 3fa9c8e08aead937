// Lets a torch without CUDA think that there is one device of it, on which nothing is done: indexing asks for a guard,
// autograd for an accelerator and its streams. Loaded before torch, which looks for hooks once.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {
using namespace c10;

struct Guard : impl::NoOpDeviceGuardImpl<DeviceType::CUDA> {
  static Device here() { return Device(DeviceType::CUDA, 0); }
  Device exchangeDevice(Device) const override { return here(); }
  Device getDevice() const override { return here(); }
  Stream getStream(Device) const noexcept override { return Stream(Stream::DEFAULT, here()); }
  Stream exchangeStream(Stream) const noexcept override { return Stream(Stream::DEFAULT, here()); }
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

struct CUDAHooks : at::CUDAHooksInterface {  // by this name torch looks for it
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
};
}  // namespace

namespace at {
REGISTER_CUDA_HOOKS(CUDAHooks)
}
