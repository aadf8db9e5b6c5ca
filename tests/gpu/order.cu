// Kernels of the GPU suite: each element depends on one that another block wrote, so that a
// missing order shows in the result.
typedef unsigned int u32;

// out[i] = in[(i + shift) % n] + 1
__device__ __forceinline__ void shifted(u32* out, const volatile u32* in, u32 n, u32 shift) {
  for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    out[i] = in[(i + shift) % n] + 1u;
  }
}

extern "C" __global__ void shift_full(u32* out, const u32* in, u32 n, u32 shift) {
  shifted(out, in, n, shift);
}

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void trigger() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
__device__ __forceinline__ void wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

extern "C" __global__ void shift_programmatic(u32* out, const u32* in, u32 n, u32 shift) {
  trigger();
  wait();
  shifted(out, in, n, shift);
}

// out[i] = a[i] + b[(i + shift) % n]
extern "C" __global__ void join_programmatic(u32* out, const u32* a, const u32* b, u32 n,
                                             u32 shift) {
  trigger();
  wait();
  for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    out[i] = ((const volatile u32*)a)[i] + ((const volatile u32*)b)[(i + shift) % n];
  }
}
#endif

extern "C" __global__ void add(float* out, const float* a, const float* b, u32 n) {
  for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    out[i] = a[i] + b[i];
  }
}

extern "C" __global__ void nothing() {}
