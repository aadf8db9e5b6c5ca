//! Tensor maps for the tensor memory accelerator, encoded by the driver; must never choose a box or
//! a swizzle.

use super::error::{CudaError, call};
use cudarc::driver::sys::{
    CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave,
    CUtensorMapL2promotion, CUtensorMapSwizzle,
};
use membar_ir::DType;
use membar_ir::program::TensorMap;

/// An encoded tensor map, as a kernel takes it by value.
pub(super) type Encoded = [u64; 16];

/// The dimensions that a tensor map can have at most.
const MAX_RANK: usize = 5;

/// Encodes a tensor map over a tensor that begins at `base`.
pub(super) fn encode(map: &TensorMap, base: u64) -> Result<Encoded, CudaError> {
    let refused = |reason: String| CudaError::TensorMap { reason };
    let rank = map.extents.len();
    if !(1..=MAX_RANK).contains(&rank) {
        return Err(refused(format!("it has {rank} dimensions; 1 to {MAX_RANK} are possible")));
    }
    if map.strides.len() != rank - 1 || map.box_extents.len() != rank {
        let (strides, boxes) = (map.strides.len(), map.box_extents.len());
        return Err(refused(format!("{rank} extents, {strides} strides, {boxes} box extents")));
    }
    let dtype = data_type(map.dtype)
        .ok_or_else(|| refused(format!("elements of type {} have none", map.dtype)))?;
    let swizzle = match map.swizzle {
        0 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
        32 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        64 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        128 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        other => return Err(refused(format!("there is no swizzle of {other} bytes"))),
    };
    // The driver wants a stride for each dimension but the first, and reads none for rank 1.
    let strides = if rank == 1 { &[0][..] } else { &map.strides[..] };
    let steps = [1u32; MAX_RANK];
    let mut encoded = CUtensorMap { opaque: [0; 16] };
    // SAFETY: the lists have `rank` items (strides one less), the struct has the alignment that
    // the driver asks for, and the driver only computes with the address.
    unsafe {
        call!(cuTensorMapEncodeTiled(
            &mut encoded,
            dtype,
            rank as u32,
            base as *mut std::ffi::c_void,
            map.extents.as_ptr(),
            strides.as_ptr(),
            map.box_extents.as_ptr(),
            steps.as_ptr(),
            CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        ))?;
    }
    Ok(encoded.opaque)
}

fn data_type(dtype: DType) -> Option<CUtensorMapDataType> {
    Some(match dtype {
        DType::F64 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
        DType::F32 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        DType::F16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        DType::Bf16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        DType::I64 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_INT64,
        DType::U64 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT64,
        DType::I32 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_INT32,
        DType::U32 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT32,
        // Outside a tensor is 0, and bytes are only moved: signs and exponents do not matter.
        DType::I16 | DType::U16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT16,
        DType::I8 | DType::U8 | DType::Bool | DType::F8E4m3fn | DType::F8E5m2 => {
            CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT8
        }
        DType::I4 | DType::U4 => return None,
    })
}
