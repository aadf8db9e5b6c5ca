//! The library's headers, which emitted kernels stand behind. Must never hold text of its own.

macro_rules! headers {
    ($($name:ident = $file:literal),* $(,)?) => {
        $(pub(super) const $name: &str = include_str!(concat!("../../cuda/", $file));)*
    };
}

headers! {
    SM80 = "arch/sm80.cuh",
    SM90 = "arch/sm90.cuh",
    ATTENTION = "attention.cuh",
    ATTENTION_MMA = "attention_mma.cuh",
    ATTENTION_WGMMA = "attention_wgmma.cuh",
    GEMM = "gemm.cuh",
    GEMM_MMA = "gemm_mma.cuh",
    GEMM_SIMT = "gemm_simt.cuh",
    GEMM_VECTOR = "gemm_vector.cuh",
    GEMM_WGMMA = "gemm_wgmma.cuh",
    ORDER = "order.cuh",
    PRELUDE = "prelude.cuh",
    SAMPLE = "sample.cuh",
}
