//! A rank is killed in the middle of a training loop: the survivor gets an error that names it,
//! within the timeout, and ends well.
//!
//!     cargo run --no-default-features --example lost_peer
use nxd::{Context, ContextOptions, Error, Exit, Job, Reduce, Result, SpawnOptions, Status};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(60);
const SIGKILL: i32 = 9;

extern "C" {
    fn kill(pid: i32, signal: i32) -> i32;
}

/// Starts both ranks, of which rank 1 does not come back; `false` in one of them, by a launcher too.
fn start() -> Result<bool> {
    let job = match Job::spawn(&SpawnOptions { processes: 2, ..Default::default() }) {
        Err(error) if error.status() == Status::INVALID_STATE => return Ok(false),
        job => job?,
    };
    let failed = job.wait(None).err().map_or(Status::OK, |error| error.status());
    let exits = [job.exit(0)?, job.exit(1)?];
    println!("rank 0 ended with {:?}, rank 1 with {:?}", exits[0], exits[1]);
    match (failed, exits) {
        (Status::PEER_LOST, [Exit::Code(0), Exit::Code(137)]) => Ok(true),
        _ => Err(Error::user("expected rank 1 to be killed and rank 0 to end well")),
    }
}

fn main() -> Result<()> {
    if start()? {
        return Ok(());
    }
    let ctx =
        Context::create_with(&ContextOptions { timeout: Some(TIMEOUT), ..Default::default() })?;
    let world = ctx.world_group()?;
    let mut gradient = vec![1.0f32; 1 << 16];
    for step in 0.. {
        if step == 20 && ctx.rank()? == 1 {
            // This process's own end, as unfriendly as it comes.
            unsafe { kill(std::process::id() as i32, SIGKILL) };
        }
        let start = Instant::now();
        if let Err(error) = world.all_reduce_in_place(&mut gradient, Reduce::AVG) {
            println!("step {}: {}", step, error);
            println!(
                "lost rank {:?} after {:.1} s",
                error.root_rank(),
                start.elapsed().as_secs_f64()
            );
            let bounded = start.elapsed() < 2 * TIMEOUT;
            let named = error.status() == Status::PEER_LOST && error.root_rank() == Some(1);
            return if bounded && named { Ok(()) } else { Err(error) };
        }
    }
    Ok(())
}
