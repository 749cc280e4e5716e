//! The classifier of mlp.rs over several ranks: its layers are split over the tensor-parallel ones,
//! its samples over the others, which also divide the optimizer's state (ZeRO-1). Losses are those of
//! mlp.rs.
//!
//!     nxdrun -n 2 mlp_parallel 2        (two tensor-parallel ranks)
//!     nxdrun -n 2 mlp_parallel 1        (two data-parallel ranks)
//!     nxdrun -n 4 mlp_parallel 2        (two of two)
mod nxd_candle;
mod problem;
use candle_core::{Error, Result, Tensor, Var};
use nxd::{AdamwOptions, Axis, Context, ParallelOptions, Placement, Reduce};
use nxd_candle::{column_linear, row_linear, to_candle, AdamW, Shared};
use problem::*;

fn mlp(ctx: Shared, p: &[Var], x: &Tensor) -> Result<Tensor> {
    let h = column_linear(ctx, x, &p[0], &p[1])?.tanh()?;
    row_linear(ctx, &h, &p[2], &p[3])
}

fn train(ctx: Shared) -> Result<()> {
    let along = |axis| -> nxd::Result<(usize, usize)> {
        Ok((ctx.0.parallel_size(axis)? as usize, ctx.0.parallel_rank(axis)? as usize))
    };
    let (tp, tp_rank) = along(Axis::TENSOR).map_err(to_candle)?;
    let (dp, dp_rank) = along(Axis::DATA).map_err(to_candle)?;
    let (x, labels) = samples()?;
    let part = part(SAMPLES, "samples", dp, "data")?;
    let (x, labels) =
        (x.narrow(0, dp_rank * part, part)?, labels.narrow(0, dp_rank * part, part)?);
    let params = weights(tp_rank, tp)?;
    let placements = [
        Placement::Sharded(0),
        Placement::Sharded(0),
        Placement::Sharded(1),
        Placement::Replicated,
    ];
    let options = AdamwOptions { learning_rate: RATE, weight_decay: DECAY, ..Default::default() };
    let mut optimizer = AdamW::new(ctx, &params, &placements, &options)?;
    let data = ctx.0.parallel_group(Axis::DATA).map_err(to_candle)?;
    for step in 0..STEPS {
        let loss = loss_of(&mlp(ctx, &params, &x)?, &labels)?;
        let norm = optimizer.step(&loss.backward()?)?;
        let mut total = [f64::from(loss.to_scalar::<f32>()?)];
        data.all_reduce_in_place(&mut total, Reduce::SUM).map_err(to_candle)?;
        let line = format!("step {} loss {:.6} norm {:.6}", step, total[0], norm);
        ctx.0.master_print(&line).map_err(to_candle)?;
    }
    let bytes = optimizer.optimizer.state_bytes().map_err(to_candle)?;
    ctx.0.master_print(&format!("rank 0 keeps {} bytes of state", bytes)).map_err(to_candle)
}

fn main() -> Result<()> {
    let tp = match std::env::args().nth(1) {
        Some(text) => text.parse().map_err(|e| Error::Msg(format!("{}: {}", text, e)))?,
        None => 1,
    };
    // Operations of candle hold it without a lifetime; all of them are gone when train returns.
    let owned = Box::into_raw(Box::new(Context::create().map_err(to_candle)?));
    let ctx: &'static Context = unsafe { &*owned };
    let options = ParallelOptions { tensor_parallel_size: tp, ..Default::default() };
    ctx.init_model_parallel(&options).map_err(to_candle)?;
    train(Shared(ctx))?;
    unsafe { Box::from_raw(owned) }.finalize().map_err(to_candle)
}
