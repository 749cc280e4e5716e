//! Fits a tide gauge on two ranks, each of which has every other reading: ZeRO-1 over this program's
//! own array.
mod gauge;

use nxd::{AdamwOptions, Array, Context, Ddp, DdpOptions, Optimizer, Result};

const HOURS: usize = 24 * 60;

/// Adds this rank's gradient of the mean squared error; gives its part of the error.
fn add_gradient(weights: &[f64], gradient: &mut [f64], rank: usize, ranks: usize) -> f64 {
    let mut error = 0.0;
    for hour in (rank..HOURS).step_by(ranks) {
        let x = gauge::features(hour as f64);
        let height: f64 = x.iter().zip(weights).map(|(x, w)| x * w).sum();
        let off = height - gauge::reading(hour as f64);
        error += off * off / HOURS as f64;
        for (g, x) in gradient.iter_mut().zip(x) {
            *g += 2.0 * off * x / HOURS as f64;
        }
    }
    error
}

fn main() -> Result<()> {
    if nxd::launch(2)? {
        return Ok(());
    }
    let ctx = Context::create()?;
    let (rank, ranks) = (ctx.rank()? as usize, ctx.size()? as usize);
    let arrays = vec![Array::new("waves", &[5], vec![0f64; 5])?];
    let ddp = Ddp::over_arrays(&ctx, None, arrays, &DdpOptions { zero_stage: 1, ..Default::default() })?;
    let options = AdamwOptions { learning_rate: 0.05, ..Default::default() };
    let mut adamw = Optimizer::adamw(&ddp, &options)?;
    let waves = &ddp.arrays()[0];
    let mut error = [0.0];
    for _ in 0..400 {
        let mut gradient = waves.gradient_mut::<f64>()?;
        gradient.fill(0.0);
        error = [add_gradient(&waves.values::<f64>()?, &mut gradient, rank, ranks)];
        drop(gradient);
        adamw.step(&Default::default())?;
    }
    ctx.world_group()?.all_reduce_in_place(&mut error, nxd::Reduce::SUM)?;
    let found = waves.values::<f64>()?;
    let worst = found.iter().zip(gauge::TRUTH).fold(0f64, |most, (a, b)| most.max((a - b).abs()));
    ctx.master_print(&format!("ranks {} error {:.1e} worst {:.4} level {:.2}", ranks, error[0], worst, found[0]))?;
    drop(found);
    ctx.finalize()
}
