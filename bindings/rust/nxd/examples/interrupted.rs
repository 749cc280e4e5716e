//! Ctrl-C while a rank waits in a collective: with a handler of the program's own the call ends with
//! an error, without one the process ends as any does; the other rank learns of it either way.
//!
//!     cargo run --no-default-features --example interrupted -- handled
//!     cargo run --no-default-features --example interrupted -- default
use nxd::{Context, ContextOptions, Error, Exit, Job, Result, SpawnOptions, Status};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SIGINT: i32 = 2;
const SIG_DFL: usize = 0;
const TIMEOUT: Duration = Duration::from_secs(120);

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" {
    fn signal(signal: i32, handler: usize) -> usize;
    fn kill(pid: i32, signal: i32) -> i32;
}

extern "C" fn on_interrupt(_: i32) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Starts both ranks; `false` in one of them, by a launcher too.
fn start(handled: bool) -> Result<bool> {
    let job = match Job::spawn(&SpawnOptions { processes: 2, ..Default::default() }) {
        Err(error) if error.status() == Status::INVALID_STATE => return Ok(false),
        job => job?,
    };
    let _ = job.wait(Some(2 * TIMEOUT));
    let exits = [job.exit(0)?, job.exit(1)?];
    println!("rank 0 ended with {:?}, rank 1 with {:?}", exits[0], exits[1]);
    let expected = Exit::Code(if handled { 0 } else { 128 + SIGINT });
    if exits != [expected, Exit::Code(0)] {
        return Err(Error::user(format!("expected rank 0 to end with {:?}", expected)));
    }
    Ok(true)
}

fn wait_for_the_other(ctx: &Context) -> Result<()> {
    let start = Instant::now();
    let world = ctx.world_group()?;
    // Each waits for what the other never does.
    let outcome = if ctx.rank()? == 1 {
        world.receive(&mut [0u8], 0, 0)
    } else {
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(200));
            unsafe { kill(std::process::id() as i32, SIGINT) }
        });
        world.barrier()
    };
    let error = match outcome {
        Err(error) => error,
        Ok(()) => return Err(Error::user("the other rank has come")),
    };
    println!("rank {} after {:.1} s: {}", ctx.rank()?, start.elapsed().as_secs_f64(), error);
    let expected = if ctx.rank()? == 0 { Status::USER } else { Status::PEER_LOST };
    if error.status() != expected || start.elapsed() > TIMEOUT / 2 {
        return Err(error);
    }
    Ok(())
}

fn main() -> Result<()> {
    let handled = std::env::args().nth(1).map_or(true, |mode| mode == "handled");
    if start(handled)? {
        return Ok(());
    }
    // A program that a shell starts in the background inherits that the signal is ignored.
    let handler = if handled { on_interrupt as *const () as usize } else { SIG_DFL };
    unsafe { signal(SIGINT, handler) };
    let interrupt: fn() -> bool = || INTERRUPTED.load(Ordering::Relaxed);
    let options = ContextOptions {
        timeout: Some(TIMEOUT),
        interrupt: Some(interrupt),
        ..Default::default()
    };
    wait_for_the_other(&*Context::create_with(&options)?)
}
