//! Attention in one kernel: from operands with any strides, masks of any form and a group around it
//! to the library's loop. Must never compute a score itself.

mod tile;

use super::EmitError;
use super::dims::{compute_type, storage_type};
use super::factor::{Factor, alignment, lie, vector};
use super::group::{Anchor, Group};
use super::headers::{ATTENTION, ATTENTION_MMA, ATTENTION_WGMMA, GEMM, GEMM_MMA, SM80, SM90};
use super::index::Index;
use super::kernel::{Emitted, Geometry, KernelBuilder, StepContext};
use membar_ir::dim::Dim;
use membar_ir::dtype::DType;
use membar_ir::ops::{Attention, MaskKind, Op, Position, Scores};
use membar_ir::program::{Argument, TensorMap};
use membar_ir::types::TensorType;
use tile::{Choice, GREATEST_WIDTH, Problem, Tile, WgmmaTile};

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
    /// Elements of the batch.
    batch: Dim,
    /// Heads that a batch of the kernel's is one of: those of keys, or of queries.
    heads: Dim,
    /// Heads of queries whose rows a batch of the kernel's has.
    group: Dim,
    /// Batches of the kernel's that share a head of keys.
    sharing: Dim,
    queries: Dim,
    keys: Dim,
    problem: Problem,
    choice: Choice,
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
            queries_side.along_k = true;
            queries_side.vector = 1;
        }
        let width = |factor: &Factor| factor.shape[3].as_constant().and_then(|w| w.try_into().ok());
        let problem = Problem {
            batches: step.greatest_product(&[q.shape[0].clone(), k.shape[1].clone()]),
            rows: step.extent(&rows)?,
            keys: step.extent(&keys)?,
            mapped_queries: mapped_queries(step, op, [&q, &k, &v]),
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
        let choice = tile::choose(&problem);
        // Tensor maps have no dimension for several heads.
        let (heads, group, sharing) = match choice {
            Choice::Mma(_) => (k.shape[1].clone(), group, Dim::ONE),
            Choice::Wgmma(_) => (q.shape[1].clone(), Dim::ONE, group),
        };
        let problem = match choice {
            Choice::Mma(_) => problem,
            Choice::Wgmma(_) => Problem {
                batches: step.greatest_product(&[q.shape[0].clone(), heads.clone()]),
                rows: step.extent(&queries)?,
                ..problem
            },
        };
        Some(Parts {
            op,
            anchor,
            batch: q.shape[0].clone(),
            heads,
            group,
            sharing,
            queries,
            keys,
            choice,
            problem,
            q,
            k,
            v,
        })
    }

    fn write(&self, step: &StepContext<'_>) -> Result<Emitted, EmitError> {
        let mut kernel = KernelBuilder::new(step);
        kernel.header(SM80);
        if matches!(self.choice, Choice::Wgmma(_)) {
            kernel.header(SM90);
        }
        kernel.header(GEMM);
        kernel.header(ATTENTION);
        self.write_rule(&mut kernel)?;
        self.write_epilogue(&mut kernel)?;
        let batches = kernel.product(&[self.batch.clone(), self.heads.clone()]);
        let rows = kernel.product(&[self.group.clone(), self.queries.clone()]);
        let [columns, queries, keys] =
            [&self.v.shape[3], &self.queries, &self.keys].map(|dim| kernel.dim(dim));
        kernel.line(format!(
            "const AttentionShape shape = {{i64({batches}), int({rows}), int({columns}), \
             int({queries}), int({keys})}};"
        ));
        match self.choice {
            Choice::Mma(tile) => Ok(self.write_mma(kernel, &tile)),
            Choice::Wgmma(tile) => self.write_wgmma(kernel, &tile),
        }
    }

    fn write_mma(&self, mut kernel: KernelBuilder<'_>, tile: &Tile) -> Emitted {
        kernel.header(GEMM_MMA);
        kernel.header(ATTENTION_MMA);
        self.write_sources(&mut kernel);
        let [width, value_width] = self.problem.padded();
        let product = if self.q.dtype == DType::F16 { "MmaF16" } else { "MmaBf16" };
        let Tile { row_tiles, warps, parts, keys } = *tile;
        kernel.line(format!(
            "typedef AttentionTile<{product}, {width}, {value_width}, {row_tiles}, {warps}, \
             {parts}, {keys}> Tile;"
        ));
        let shared_bytes = tile.shared_bytes(&self.problem);
        kernel.shared(16, "AttentionLayout<Tile, Q, K, V>::SHARED_BYTES", shared_bytes);
        kernel.line("attend_mma<Tile>(queries, keys, values, rule, epilogue, shape, shared);");
        let blocks = self.problem.rows.div_ceil(tile.rows().into()) * self.problem.batches;
        // Of a range of sizes the grid is for the greatest: blocks loop over tiles.
        let is_fixed =
            [&self.batch, &self.heads, &self.queries].iter().all(|dim| dim.as_constant().is_some());
        let resident = self.problem.units * u64::from((512 / tile.threads()).max(1));
        let blocks = if is_fixed { blocks.min(1 << 20) } else { blocks.min(resident) };
        let size = format!("{}x{}x{width}", tile.rows(), tile.keys * tile.parts);
        let geometry =
            Geometry { blocks: blocks.max(1) as u32, threads: tile.threads(), shared_bytes };
        kernel.finish(&format!("attention_mma_{}_{size}", self.q.dtype), geometry)
    }

    fn write_wgmma(
        &self,
        mut kernel: KernelBuilder<'_>,
        tile: &WgmmaTile,
    ) -> Result<Emitted, EmitError> {
        kernel.header(ATTENTION_WGMMA);
        kernel.waits_itself();
        for (name, factor) in [("q", &self.q), ("k", &self.k), ("v", &self.v)] {
            let map = tensor_map(kernel.step, factor)
                .ok_or_else(|| EmitError::NoKernel { operator: kernel.step.op.to_string() })?;
            let declaration = format!("const __grid_constant__ TensorMap map_{name}");
            kernel.parameter(&declaration, Argument::TensorMap(map));
        }
        let [width, value_width] = tile.widths;
        let ty = storage_type(self.q.dtype);
        kernel.line(format!("typedef AttentionWgmmaTile<{ty}, {width}, {value_width}> Tile;"));
        let shared_bytes = tile.shared_bytes();
        kernel.shared(1024, "Tile::SHARED_BYTES", shared_bytes);
        let (heads, group) = (kernel.dim(&self.heads), kernel.dim(&self.sharing));
        kernel.line(format!(
            "attend_wgmma<Tile>(map_q, map_k, map_v, rule, epilogue, shape, int({heads}), \
             int({group}), shared);"
        ));
        let tiles = self.problem.rows.div_ceil(WgmmaTile::ROWS.into()) * self.problem.batches;
        let blocks = tiles.min(self.problem.units).max(1) as u32;
        let geometry = Geometry { blocks, threads: WgmmaTile::THREADS, shared_bytes };
        let name = format!("attention_wgmma_{}_{}x{width}", self.q.dtype, WgmmaTile::ROWS);
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
            let batch = [&self.batch, &self.heads].map(|dim| number(kernel, "i64", dim));
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
            let heads = kernel.dim(&self.heads);
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
        let of_batch = [self.batch.clone(), self.heads.clone()];
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

/// The greatest number of queries of a head, if `attention_wgmma.cuh` computes what the operator
/// says: it has no masks but by position, and no mean of values for a query that sees none.
fn mapped_queries(step: &StepContext<'_>, op: &Attention, [q, k, v]: [&Factor; 3]) -> Option<u64> {
    if op.mask != MaskKind::None || op.lengths {
        return None;
    }
    if !op.empty_rows_zero && !sees_a_key(op, &q.shape[2], &k.shape[2]) {
        return None;
    }
    // Rows behind the last key must be beyond the map, where zeros are read.
    k.shape[2].as_constant()?;
    for factor in [q, k, v] {
        tensor_map(step, factor)?;
    }
    step.extent(&q.shape[2])
}

/// Whether the window of every query has a key in it.
fn sees_a_key(op: &Attention, queries: &Dim, keys: &Dim) -> bool {
    let (Some(queries), Some(keys)) = (queries.as_constant(), keys.as_constant()) else {
        return false;
    };
    let Position::Offset(offset) = &op.position else { return false };
    let windowed = op.before.is_some() || op.after.is_some();
    let Some(offset) = offset.as_constant().or((!windowed).then_some(0)) else { return false };
    let last = offset.saturating_add(queries - 1);
    keys > 0
        && op.after.is_none_or(|after| offset.saturating_add(after) >= 0)
        && op.before.is_none_or(|before| last.saturating_sub(before) < keys)
}

/// The map of an operand `[B, H, S, D]` for boxes of 64 elements of 128 rows.
fn tensor_map(step: &StepContext<'_>, factor: &Factor) -> Option<TensorMap> {
    const SIZE: u64 = 2;
    if factor.dtype.bits() != 16 || factor.alignment < 16 || !factor.strides[3].is(1) {
        return None;
    }
    let extent = |axis: usize| {
        step.greatest(&factor.shape[axis]).filter(|extent| *extent > 0 && *extent < 1 << 31)
    };
    let bytes = |axis: usize| {
        let stride = u64::try_from(factor.strides[axis].as_constant()?).ok()?;
        let bytes = stride.checked_mul(SIZE)?;
        (bytes.is_multiple_of(16) && bytes > 0 && bytes < 1 << 40).then_some(bytes)
    };
    Some(TensorMap {
        base: Box::new(Argument::Operand(factor.operand as u32)),
        dtype: factor.dtype,
        extents: vec![extent(3)?, extent(2)?, extent(1)?, extent(0)?],
        strides: vec![bytes(2)?, bytes(1)?, bytes(0)?],
        box_extents: vec![64, WgmmaTile::ROWS, 1, 1],
        swizzle: 128,
    })
}
