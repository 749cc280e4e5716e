//! Errors as values: two ranks that disagree about a collective. Nothing hangs, nothing is lost, and
//! the group goes on.
//!
//!     cargo run --no-default-features --example show_error
use nxd::{Context, Error, Reduce, Result, Status};

fn main() -> Result<()> {
    if nxd::launch(2)? {
        return Ok(());
    }
    let ctx = Context::create()?;
    let world = ctx.world_group()?;
    // Rank 0 brings one element, rank 1 two.
    let mut values = vec![1.0f32; 1 + ctx.rank()? as usize];
    let error = match world.all_reduce_in_place(&mut values, Reduce::SUM) {
        Err(error) => error,
        Ok(()) => return Err(Error::user("expected a refusal")),
    };
    if error.status() != Status::INVALID_ARGUMENT {
        return Err(error);
    }
    ctx.master_print(&format!(
        "{}\nstatus {:?}, operation {}, group {}, collective number {}",
        error,
        error.status(),
        error.operation(),
        error.group(),
        error.sequence()
    ))?;
    let mut sum = [1.0f32];
    world.all_reduce_in_place(&mut sum, Reduce::SUM)?;
    ctx.master_print(&format!("and the group goes on: {} ranks", sum[0]))?;
    ctx.finalize()
}
