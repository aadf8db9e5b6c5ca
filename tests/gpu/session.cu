// Kernels of the suite's hand-made programs; each waits before it touches what another one writes.
typedef long long i64;

struct Faults {
  unsigned kind, step;
  i64 index, extent, reserved;
};

__device__ __forceinline__ void begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#define EACH(i, n) \
  for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < (n); i += (i64)gridDim.x * blockDim.x)

// out[s, :] = table[rows[s], :]; dims[0] rows.
extern "C" __global__ void gather_rows(const i64* dims, Faults* faults, unsigned step, float* out,
                                       const float* table, const i64* rows, i64 extent,
                                       i64 columns) {
  begin();
  EACH(i, dims[0] * columns) {
    i64 index = rows[i / columns], row = index < 0 ? index + extent : index;
    if (row < 0 || row >= extent) {
      if (atomicCAS(&faults->kind, 0u, 1u) == 0u) {
        faults->step = step;
        faults->index = index;
        faults->extent = extent;
      }
      out[i] = 0.0f;
    } else {
      out[i] = table[row * columns + i % columns];
    }
  }
}

// out = -in; dims[0] rows.
extern "C" __global__ void negate(const i64* dims, float* out, const float* in, i64 columns) {
  begin();
  EACH(i, dims[0] * columns) { out[i] = -in[i]; }
}

// out = a + b; dims[0] rows.
extern "C" __global__ void add(const i64* dims, float* out, const float* a, const float* b,
                               i64 columns) {
  begin();
  EACH(i, dims[0] * columns) { out[i] = a[i] + b[i]; }
}

// Copies dims[0] rows into a workspace.
extern "C" __global__ void keep(const i64* dims, float* scratch, const float* in, i64 columns) {
  begin();
  EACH(i, dims[0] * columns) { scratch[i] = in[i]; }
}

// state[b, past + s, :] = fresh[b, s, :] at a capacity of rows; dims are batch, past, fresh rows.
extern "C" __global__ void append(const i64* dims, float* state, const float* fresh, i64 capacity,
                                  i64 columns) {
  begin();
  i64 rows = dims[2];
  EACH(i, dims[0] * rows * columns) {
    i64 column = i % columns, row = i / columns % rows, batch = i / columns / rows;
    state[(batch * capacity + dims[1] + row) * columns + column] = fresh[i];
  }
}

// state = |state| + one.
extern "C" __global__ void count(float* state, const float* one) {
  begin();
  if (threadIdx.x == 0 && blockIdx.x == 0) { state[0] = fabsf(state[0]) + one[0]; }
}

// Ends at once, after its wait.
extern "C" __global__ void nothing() { begin(); }

// Copies a box of a tensor of f32 by the tensor memory accelerator: 8 rows of 32.
#if __CUDA_ARCH__ >= 900
struct alignas(64) TensorMap {
  unsigned long long words[16];
};
extern "C" __global__ void copy_box(const __grid_constant__ TensorMap map, float* out) {
  __shared__ alignas(128) float box[8 * 32];
  __shared__ alignas(8) unsigned long long barrier;
  begin();
  unsigned into = (unsigned)__cvta_generic_to_shared(box);
  unsigned on = (unsigned)__cvta_generic_to_shared(&barrier);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(on) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(on),
                 "r"((unsigned)sizeof(box))
                 : "memory");
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
        "%3}], [%4];" ::"r"(into),
        "l"(&map), "r"(0), "r"(0), "r"(on)
        : "memory");
  }
  __syncthreads();
  unsigned done = 0;
  while (!done) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; "
        "}"
        : "=r"(done)
        : "r"(on)
        : "memory");
  }
  EACH(i, 8 * 32) { out[i] = box[i]; }
}

// The number of the block in its cluster.
extern "C" __global__ void cluster_rank(float* out) {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  begin();
  if (threadIdx.x == 0) { out[blockIdx.x] = (float)rank; }
}
#endif

// Writes where nothing is.
extern "C" __global__ void trespass() { *(volatile unsigned*)16 = 1u; }
