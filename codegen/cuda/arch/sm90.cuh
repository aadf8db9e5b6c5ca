// Instructions of sm_90 and sm_90a as functions: barriers in shared memory, the tensor memory
// accelerator, and the matrix products of warpgroups. It stands behind the prelude and
// arch/sm80.cuh; it must never decide a layout or a schedule.

// A tensor map, which kernels take as a `const __grid_constant__` parameter.
struct alignas(128) TensorMap {
    u64 words[16];
};

DEVICE void prefetch_tensor_map(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Barriers, each 8 bytes of shared memory.

DEVICE void barrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the cluster and to the asynchronous proxy.
DEVICE void barrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
}

// Arrives once, and lets the phase wait for that many more bytes.
DEVICE void barrier_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

DEVICE void barrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives at the barrier that lies at this address in another block of the cluster.
DEVICE void barrier_arrive_at(u32 barrier, u32 block) {
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n"
        "}" ::"r"(barrier),
        "r"(block)
        : "memory");
}

// Waits for the end of the phase of that parity.
DEVICE void barrier_wait(u32 barrier, u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1;\n"
        "@done bra finished;\n"
        "bra again;\n"
        "finished:\n"
        "}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

// The same where other blocks of the cluster arrive.
DEVICE void barrier_wait_cluster(u32 barrier, u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
        "@done bra finished;\n"
        "bra again;\n"
        "finished:\n"
        "}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

// Makes this thread's writes of shared memory visible to the asynchronous proxy.
DEVICE void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Orders all that this thread sees written, by steps before too, in front of its asynchronous reads.
DEVICE void proxy_fence_everywhere() { asm volatile("fence.proxy.async;" ::: "memory"); }

DEVICE u32 cluster_block() {
    u32 block;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(block));
    return block;
}

DEVICE void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Boxes of a tensor to shared memory, with zeros where the tensor ends; bytes count at `barrier`.
DEVICE void load_box(u32 target, const TensorMap& map, u32 barrier, int x, int y, int z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(target),
        "l"(&map), "r"(x), "r"(y), "r"(z), "r"(barrier)
        : "memory");
}

DEVICE void load_box(u32 target, const TensorMap& map, u32 barrier, int x, int y, int z, int w) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(target),
        "l"(&map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier)
        : "memory");
}

// The same to this address of every block of the cluster whose bit is set; bytes count at each
// block's own barrier.
DEVICE void load_box_to(u32 target, const TensorMap& map, u32 barrier, int x, int y, int z,
                        u16 blocks) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(target),
        "l"(&map), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"(blocks)
        : "memory");
}

// Registers of the threads of a warpgroup; all of them execute it.
template <int COUNT> DEVICE void raise_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> DEVICE void lower_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// Matrix products of a warpgroup. Operands lie in shared memory in rows of 128 swizzled bytes,
// which begin at multiples of 1024 bytes.

// Describes an operand at `address`. `inner` is the distance in bytes between blocks of 64 elements
// along mn and only matters where rows lie along mn; `outer` is that between groups of 8 rows.
DEVICE u64 operand_descriptor(u32 address, u32 inner, u32 outer) {
    return u64((address & 0x3ffff) >> 4) | u64(inner >> 4) << 16 | u64(outer >> 4) << 32 |
           u64(1) << 62;
}

DEVICE void warpgroup_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void warpgroup_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> DEVICE void warpgroup_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Keeps the compiler from moving accesses of a sum over this point.
template <int COUNT> DEVICE void hold(f32 (&sum)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(sum[i])::"memory");
}

// `Wgmma<T, COLUMNS>::multiply` adds the product of 64 × 16 elements of A and 16 × COLUMNS of B, or
// gives that product alone if `adds` is 0. An operand is TURNED if its rows lie along mn. Thread
// `32 w + 4 g + t` has of the sum, for every 8 columns c: (16 w + g, 8 c + 2 t), the next column, and
// both of row 16 w + g + 8. `multiply_kept` takes A from registers, which hold pairs along k: (g, 2 t),
// (g + 8, 2 t), (g, 2 t + 8), (g + 8, 2 t + 8) of each warp's 16 rows.
template <class T, int COLUMNS> struct Wgmma;

#define NAMES_32 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15" \
    ", " "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_64 NAMES_32 \
    ", " "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
    ", " "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_128 NAMES_64 \
    ", " "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
    ", " "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95" \
    ", " "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
    ", " "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define SUMS_8(i)                                                                                 \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),    \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define SUMS_32(i) SUMS_8(i), SUMS_8(i + 8), SUMS_8(i + 16), SUMS_8(i + 24)
#define SUMS_64 SUMS_32(0), SUMS_32(32)
#define SUMS_128 SUMS_64, SUMS_32(64), SUMS_32(96)
// P0 to P6 are the numbers of the operands behind the sums.
#define WGMMA(TYPE, PTX, COLUMNS, COUNT, SUMS, P0, P1, P2, P3, P4, P5, P6)                          \
    template <> struct Wgmma<TYPE, COLUMNS> {                                                       \
        template <bool TURNED_A, bool TURNED_B>                                                     \
        static DEVICE void multiply(f32 (&d)[COUNT], u64 a, u64 b, u32 adds) {                      \
            asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " P2 ", 0;\n"                      \
                         "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32." PTX "." PTX " {"    \
                         NAMES_##COUNT "}, " P0 ", " P1 ", adds, 1, 1, " P3 ", " P4 ";\n}"          \
                         : SUMS                                                                     \
                         : "l"(a), "l"(b), "r"(adds), "n"(TURNED_A ? 1 : 0),                        \
                           "n"(TURNED_B ? 1 : 0));                                                  \
        }                                                                                           \
        template <bool TURNED_B>                                                                    \
        static DEVICE void multiply_kept(f32 (&d)[COUNT], const u32 (&a)[4], u64 b, u32 adds) {     \
            asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " P5 ", 0;\n"                      \
                         "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32." PTX "." PTX " {"    \
                         NAMES_##COUNT "}, {" P0 ", " P1 ", " P2 ", " P3 "}, " P4                   \
                         ", adds, 1, 1, " P6 ";\n}"                                                \
                         : SUMS                                                                     \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds),           \
                           "n"(TURNED_B ? 1 : 0));                                                  \
        }                                                                                           \
    };
WGMMA(f16, "f16", 64, 32, SUMS_32(0), "%32", "%33", "%34", "%35", "%36", "%37", "%38")
WGMMA(f16, "f16", 128, 64, SUMS_64, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
WGMMA(f16, "f16", 256, 128, SUMS_128, "%128", "%129", "%130", "%131", "%132", "%133", "%134")
WGMMA(bf16, "bf16", 64, 32, SUMS_32(0), "%32", "%33", "%34", "%35", "%36", "%37", "%38")
WGMMA(bf16, "bf16", 128, 64, SUMS_64, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
WGMMA(bf16, "bf16", 256, 128, SUMS_128, "%128", "%129", "%130", "%131", "%132", "%133", "%134")
#undef WGMMA
#undef SUMS_128
#undef SUMS_64
#undef SUMS_32
#undef SUMS_8
#undef NAMES_128
#undef NAMES_64
#undef NAMES_32
