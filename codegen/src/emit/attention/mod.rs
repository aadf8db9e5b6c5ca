//! Attention in one kernel: from operands with any strides, masks of any form and a group around it
//! to the library's loop. Must never compute a score itself.

mod tile;

use super::EmitError;
use super::dims::{compute_type, storage_type};
use super::factor::{Factor, alignment, lie, vector};
use super::group::{Anchor, Group};
use super::headers::{ATTENTION_MMA, GEMM, GEMM_MMA, SM80};
use super::index::Index;
use super::kernel::{Emitted, Geometry, KernelBuilder, StepContext};
use crate::select::Side;
use membar_ir::dim::Dim;
use membar_ir::dtype::DType;
use membar_ir::ops::{Attention, MaskKind, Op, Position, Scores};
use membar_ir::types::TensorType;
use tile::{GREATEST_WIDTH, Problem, Tile};

/// Whether there is a kernel for an attention on these types; the others run as what they are made
/// of.
pub(crate) fn takes(op: &Attention, operands: &[TensorType]) -> bool {
    let width = |operand: usize| {
        let width = operands[operand].shape[3].as_constant();
        width.is_some_and(|width| (1..=GREATEST_WIDTH as i64).contains(&width))
    };
    op.scores == Scores::None
        && tile::takes_dtype(operands[0].dtype)
        && (0..3).all(width)
        && operands[1].shape[1].as_constant() != Some(0)
}

/// The kernel of a step that is one `attention`, or of a group around one.
pub(crate) fn emit(
    step: &StepContext<'_>,
    group: Option<&Group>,
) -> Result<Vec<Emitted>, EmitError> {
    let no_kernel = || EmitError::NoKernel { operator: step.op.to_string() };
    let anchor = Anchor::of(step, group);
    let Op::Attention(op) = anchor.op else { return Err(no_kernel()) };
    let attention = Parts::of(step, op, &anchor).ok_or_else(no_kernel)?;
    Ok(vec![attention.write(step)?])
}

/// An attention as the kernel sees it.
struct Parts<'a> {
    op: &'a Attention,
    anchor: &'a Anchor<'a>,
    q: Factor,
    k: Factor,
    v: Factor,
    /// Elements of the batch, heads of keys, heads of queries to each, queries, keys.
    batch: Dim,
    key_heads: Dim,
    group: Dim,
    queries: Dim,
    keys: Dim,
    problem: Problem,
    tile: Tile,
}

impl<'a> Parts<'a> {
    fn of(step: &StepContext<'_>, op: &'a Attention, anchor: &'a Anchor<'a>) -> Option<Parts<'a>> {
        if !takes(op, &anchor.operands) {
            return None;
        }
        let [q, k, v] = [0, 1, 2].map(|operand| Factor::of(step, anchor, operand));
        let (q, k, v) = (q?, k?, v?);
        let group = q.shape[1].exact_div(&k.shape[1])?;
        let [queries, keys] = [&q, &k].map(|factor| factor.shape[2].clone());
        let rows = group.clone() * queries.clone();
        let side = |factor: &Factor, mn: usize, along: usize| {
            let strides = &factor.strides;
            let mn = (&strides[mn], &factor.shape[mn]);
            lie(factor, mn, &strides[along], &[&strides[0], &strides[1]])
        };
        let mut queries_side = side(&q, 2, 3);
        if !group.is(1) && !queries_side.along_k {
            queries_side = Side { along_k: true, vector: 1, ..queries_side };
        }
        let width = |factor: &Factor| factor.shape[3].as_constant().and_then(|w| w.try_into().ok());
        let problem = Problem {
            batches: step.greatest_product(&[q.shape[0].clone(), k.shape[1].clone()]),
            rows: limited(step, &rows)?,
            keys: limited(step, &keys)?,
            widths: [width(&q)?, width(&v)?],
            queries: Problem::side(queries_side),
            key_side: Problem::side(side(&k, 2, 3)),
            value_side: Problem::side(side(&v, 3, 2)),
            units: step.units.into(),
            capability: step.capability,
        };
        // Tiles are counted in 32 bits.
        if problem.batches.saturating_mul(problem.rows.div_ceil(16)) >= 1 << 31 {
            return None;
        }
        Some(Parts {
            op,
            anchor,
            batch: q.shape[0].clone(),
            key_heads: k.shape[1].clone(),
            group,
            queries,
            keys,
            tile: tile::choose(&problem),
            problem,
            q,
            k,
            v,
        })
    }

    fn write(&self, step: &StepContext<'_>) -> Result<Emitted, EmitError> {
        let mut kernel = KernelBuilder::new(step);
        for header in [SM80, GEMM, GEMM_MMA, ATTENTION_MMA] {
            kernel.header(header);
        }
        self.write_sources(&mut kernel);
        self.write_rule(&mut kernel)?;
        self.write_epilogue(&mut kernel)?;
        let batches = kernel.product(&[self.batch.clone(), self.key_heads.clone()]);
        let rows = kernel.product(&[self.group.clone(), self.queries.clone()]);
        let [columns, queries, keys] =
            [&self.v.shape[3], &self.queries, &self.keys].map(|dim| kernel.dim(dim));
        kernel.line(format!(
            "const AttentionShape shape = {{i64({batches}), int({rows}), int({columns}), \
             int({queries}), int({keys})}};"
        ));
        let (tile, [width, value_width]) = (self.tile, self.problem.padded());
        let product = if self.q.dtype == DType::F16 { "MmaF16" } else { "MmaBf16" };
        let Tile { row_tiles, warps, parts, keys } = tile;
        kernel.line(format!(
            "typedef AttentionTile<{product}, {width}, {value_width}, {row_tiles}, {warps}, \
             {parts}, {keys}> Tile;"
        ));
        let shared_bytes = tile.shared_bytes(&self.problem);
        kernel.line(format!(
            "static_assert(AttentionLayout<Tile, Q, K, V>::SHARED_BYTES == {shared_bytes}, \
             \"what the launch gives\");"
        ));
        kernel.line("extern __shared__ __align__(16) unsigned char shared[];");
        kernel.line("attend_mma<Tile>(queries, keys, values, rule, epilogue, shape, shared);");
        let blocks = self.problem.rows.div_ceil(tile.rows().into()) * self.problem.batches;
        // Of a range of sizes the grid is for the greatest: blocks loop over tiles.
        let is_fixed = [&self.batch, &self.key_heads, &self.queries]
            .iter()
            .all(|dim| dim.as_constant().is_some());
        let resident = self.problem.units * u64::from((512 / tile.threads()).max(1));
        let blocks = if is_fixed { blocks.min(1 << 20) } else { blocks.min(resident) };
        let name = format!(
            "attention_mma_{}_{}x{}x{width}",
            self.q.dtype,
            tile.rows(),
            tile.keys * tile.parts
        );
        let geometry =
            Geometry { blocks: blocks.max(1) as u32, threads: tile.threads(), shared_bytes };
        Ok(kernel.finish(&name, geometry))
    }

    /// Declares `queries`, `keys` and `values`, and their types `Q`, `K` and `V`.
    fn write_sources(&self, kernel: &mut KernelBuilder<'_>) {
        let ty = storage_type(self.q.dtype);
        let operands = [
            ("Q", "queries", &self.q, self.problem.queries, [2, 3]),
            ("K", "keys", &self.k, self.problem.key_side, [2, 3]),
            ("V", "values", &self.v, self.problem.value_side, [3, 2]),
        ];
        for (name, variable, factor, side, [mn, along]) in operands {
            let pointer = kernel.operand(factor.operand);
            let number = |kernel: &KernelBuilder<'_>, ty: &str, dim: &Dim| {
                format!("{ty}({})", kernel.dim(dim))
            };
            let [stride_mn, stride_k] =
                [mn, along].map(|axis| number(kernel, "i64", &factor.strides[axis]));
            let is_query = name == "Q";
            let group = if is_query { &self.group } else { &Dim::ONE };
            let rows = group.clone() * factor.shape[mn].clone();
            let [rows, depth] = [&rows, &factor.shape[along]].map(|dim| number(kernel, "int", dim));
            let batch = [&self.batch, &self.key_heads].map(|dim| number(kernel, "i64", dim));
            let between = [factor.strides[0].clone(), factor.strides[1].clone() * group.clone()];
            let between = between.map(|dim| number(kernel, "i64", &dim));
            let batches = format!("{{{{{}}}, {{{}}}}}", batch.join(", "), between.join(", "));
            let vector = side.vector;
            if is_query && !self.group.is(1) {
                let stride_group = number(kernel, "i64", &factor.strides[1]);
                let own = number(kernel, "int", &factor.shape[2]);
                kernel.line(format!("typedef GroupedMatrix<{ty}, {vector}, Batches<2>> {name};"));
                kernel.line(format!(
                    "const {name} {variable} = {{{pointer}, {stride_mn}, {stride_k}, \
                     {stride_group}, {own}, {rows}, {depth}, {batches}}};"
                ));
            } else {
                let along_k = side.along_k;
                kernel
                    .line(format!("typedef Matrix<{ty}, {vector}, {along_k}, Batches<2>> {name};"));
                kernel.line(format!(
                    "const {name} {variable} = {{{pointer}, {stride_mn}, {stride_k}, {rows}, \
                     {depth}, {batches}}};"
                ));
            }
        }
    }

    /// Declares `rule`: scale, cap, masks and positions.
    fn write_rule(&self, kernel: &mut KernelBuilder<'_>) -> Result<(), EmitError> {
        let (op, types) = (self.op, &self.anchor.operands);
        let form = self.write_mask(kernel)?;
        kernel.open("auto positions = [&](i64 batch) -> Positions");
        let all = kernel.dim(&self.keys);
        let length = if op.lengths {
            let heads = kernel.dim(&self.key_heads);
            let element = kernel.bind("idx", "b", format!("idx(batch) / {heads}"));
            let index = Index::at(&types[types.len() - 1].shape, vec![element]);
            let length = self.anchor.read(kernel, types.len() - 1, &index)?;
            kernel.bind("i64", "length", length)
        } else {
            format!("i64({all})")
        };
        let first = match &op.position {
            Position::Offset(offset) => kernel.dim(offset),
            Position::Lengths => format!("{length} - {}", kernel.dim(&self.queries)),
        };
        kernel
            .line(format!("return {{int(max(min({length}, i64({all})), i64(0))), i64({first})}};"));
        kernel.close_with("};");
        let (before, after) = (op.before, op.after);
        let late = op.softcap.is_none() && op.mask == MaskKind::None && op.scale.0 > 0.0;
        kernel.line(format!("typedef Window<{}, {}> Range;", before.is_some(), after.is_some()));
        kernel.line(format!(
            "const AttentionRule<{form}, {}, {late}, {}, Range, decltype(mask), \
             decltype(positions)> rule = {{f32({:e}), f32({:e}), {{{}LL, {}LL}}, mask, positions}};",
            op.softcap.is_some(),
            op.empty_rows_zero,
            op.scale.0,
            op.softcap.map_or(1.0, |cap| cap.0),
            before.unwrap_or(0),
            after.unwrap_or(0),
        ));
        Ok(())
    }

    /// Declares `mask`, and gives its form.
    fn write_mask(&self, kernel: &mut KernelBuilder<'_>) -> Result<&'static str, EmitError> {
        kernel.open("auto mask = [&](i64 batch, int row, int key) -> f32");
        if self.op.mask == MaskKind::None {
            kernel.line("return 0.0f;");
            kernel.close_with("};");
            return Ok("MASK_NONE");
        }
        let ty = &self.anchor.operands[3];
        // Whether all heads and queries have the same mask.
        let by_key = (1..3).all(|axis| match (axis + ty.rank()).checked_sub(4) {
            Some(own) => ty.shape[own].is(1),
            None => true,
        });
        let mut shape = self.anchor.outputs[0].shape.clone();
        shape[3] = self.keys.clone();
        let index = self.position(kernel, shape, "key");
        let value = self.anchor.read(kernel, 3, &index.broadcast_to(ty))?;
        match self.op.mask {
            MaskKind::Boolean => {
                kernel.line(format!("return {value} ? 0.0f : minus_infinity();"));
            }
            _ => kernel.line(format!("return f32({value});")),
        }
        kernel.close_with("};");
        Ok(if by_key { "MASK_BY_KEY" } else { "MASK_BY_ELEMENT" })
    }

    /// Declares `epilogue`.
    fn write_epilogue(&self, kernel: &mut KernelBuilder<'_>) -> Result<(), EmitError> {
        let output = &kernel.step.outputs[0];
        let dtype = output.ty.dtype;
        let strides = output.strides();
        let outer: Vec<&Dim> = strides.iter().rev().skip(1).collect();
        let mut aligned = vector(dtype, alignment(output.place), &outer);
        let keeps =
            self.anchor.keeps_positions() || (self.anchor.keeps_runs() && output.is_contiguous());
        if !keeps {
            aligned = 1;
        } else if !self.anchor.keeps_positions() {
            // Runs begin at multiples of the head size.
            let width = &self.v.shape[3];
            aligned = vector(dtype, alignment(output.place), &[width]);
        }
        let result = compute_type(dtype);
        for (name, ty) in [("element", result), ("place", "i64")] {
            kernel.open(format!(
                "auto {name} = [&](i64 batch, int row, int column, f32 sum) -> {ty}"
            ));
            let index = self.position(kernel, self.anchor.outputs[0].shape.clone(), "column");
            let (value, index) = self.anchor.apply(kernel, &index, "sum")?;
            let picked = match name {
                "element" => value,
                _ => index.offset(kernel, &kernel.step.outputs[0]),
            };
            kernel.line(format!("return {picked};"));
            kernel.close_with("};");
        }
        let (ty, y) = (storage_type(dtype), kernel.output(0));
        kernel.line(format!(
            "const StorePlaced<{ty}, {aligned}, decltype(place), decltype(element)> epilogue = \
             {{{y}, place, element}};"
        ));
        Ok(())
    }

    /// The position of `batch`, `row` and the last coordinate in a shape `[B, Hq, S, …]`.
    fn position(&self, kernel: &mut KernelBuilder<'_>, shape: Vec<Dim>, last: &str) -> Index {
        let of_batch = [self.batch.clone(), self.key_heads.clone()];
        let of_row = [self.group.clone(), self.queries.clone()];
        let batch = Index::unravel(kernel, "idx(batch)", &of_batch).axes;
        let row = Index::unravel(kernel, "idx(row)", &of_row).axes;
        let head = match (batch[1].as_str(), row[0].as_str()) {
            (head, "0") if self.group.is(1) => head.to_string(),
            (head, member) => {
                let group = kernel.dim(&self.group);
                kernel.bind("idx", "h", format!("{head} * {group} + {member}"))
            }
        };
        Index::at(&shape, vec![batch[0].clone(), head, row[1].clone(), last.to_string()])
    }
}

/// The greatest value of an extent, if it is one that kernels take: positions are 32-bit numbers,
/// and tiles may end beyond the extent.
fn limited(step: &StepContext<'_>, dim: &Dim) -> Option<u64> {
    step.greatest(dim).filter(|extent| *extent < (1 << 31) - 1024)
}
