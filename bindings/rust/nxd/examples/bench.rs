//! Cost of the safe layer: two ranks, two lines.
//!
//!     NXD_CPU_MODE=1 cargo run --release --example bench
use nxd::{Context, Reduce, Result};
use std::time::Instant;

/// Median time of a call, in seconds, over batches of calls.
fn median(batches: usize, calls: usize, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut times = Vec::with_capacity(batches);
    for _ in 0..batches {
        let start = Instant::now();
        for _ in 0..calls {
            call()?;
        }
        times.push(start.elapsed().as_secs_f64() / calls as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[batches / 2])
}

fn main() -> Result<()> {
    if nxd::launch(2)? {
        return Ok(());
    }
    let ctx = Context::create()?;
    let world = ctx.world_group()?;
    let mut ranks = 0;
    let empty = median(51, 20_000, || {
        ranks += i64::from(ctx.rank()?);
        Ok(())
    })?;
    // The compiler keeps a value that is used.
    assert_eq!(ranks, 51 * 20_000 * i64::from(ctx.rank()?));
    let mut values = [0f32; 256];
    world.barrier()?;
    let reduce = median(51, 200, || world.all_reduce_in_place(&mut values, Reduce::SUM))?;
    ctx.master_print(&format!(
        "empty_call_ns {:.1}\nall_reduce_1k_us {:.2}",
        empty * 1e9,
        reduce * 1e6
    ))?;
    ctx.finalize()
}
