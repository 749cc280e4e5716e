//! Objects dropped at exit, out of order, on other threads, and after a lost peer.
use crate::common::{alone, is_child, on_ranks, on_ranks_within, run_child, Event, AT_ONCE, LIMIT};
use nxd::{Array, Context, Ddp, DdpOptions, Group, Optimizer, Owned, Reduce, Status, Work};
use std::cell::RefCell;
use std::time::{Duration, Instant};

type Objects = (Owned<Context>, Owned<Group>, Work<Vec<f32>>);

thread_local! {
    static KEPT: RefCell<Option<Objects>> = const { RefCell::new(None) };
}

fn make() -> Objects {
    let ctx = alone();
    let group = Group::create(&ctx, &[0], "kept").unwrap();
    let work = group.all_reduce_async(vec![1.0; 100], Reduce::SUM).unwrap();
    (ctx, group, work)
}

/// Destructors of thread-local values, as the main thread ends and as the process exits.
#[test]
fn lifetimes_end_with_the_process() {
    if is_child("lifetimes::lifetimes_end_with_the_process") {
        KEPT.with(|kept| *kept.borrow_mut() = Some(make()));
        std::mem::forget(make());
        std::thread::spawn(|| KEPT.with(|kept| *kept.borrow_mut() = Some(make()))).join().unwrap();
        std::process::exit(7);
    }
    assert_eq!(run_child("lifetimes::lifetimes_end_with_the_process"), Some(7));
}

/// A wait without an end is no reason not to exit.
#[test]
fn exit_during_a_collective() {
    if is_child("lifetimes::exit_during_a_collective") {
        on_ranks_within(2, 2 * LIMIT, |ctx| {
            if ctx.rank()? == 1 {
                std::thread::sleep(Duration::from_millis(200)); // most likely rank 0 waits
                std::process::exit(7);
            }
            let work = ctx.world_group()?.all_reduce_async(vec![1f32; 1 << 16], Reduce::SUM)?;
            work.wait().map(drop)
        });
    }
    assert_eq!(run_child("lifetimes::exit_during_a_collective"), Some(7));
}

#[test]
fn out_of_order() {
    let arrays = || vec![Array::new("w", &[8], vec![1f32; 8]).unwrap()];
    for turn in 0..3 {
        let (ctx, group, work) = make();
        let options = DdpOptions { zero_stage: 1, ..Default::default() };
        let ddp = Ddp::over_arrays(&ctx, None, arrays(), &options).unwrap();
        let optimizer = Optimizer::adamw(&ddp, &Default::default()).unwrap();
        ddp.mark_ready(0).unwrap();
        match turn {
            0 => drop((ctx, group, work, ddp, optimizer)),
            1 => drop((optimizer, ddp, work, group, ctx)),
            _ => drop((group, ddp, ctx, optimizer, work)),
        }
    }
}

#[test]
fn on_another_thread() {
    let (ctx, group, work) = make();
    std::thread::spawn(move || drop((group, work, ctx))).join().unwrap();
    let (ctx, group, work) = make();
    let first = std::thread::spawn(move || drop(ctx));
    let second = std::thread::spawn(move || drop(group));
    drop(work);
    first.join().unwrap();
    second.join().unwrap();
}

#[test]
fn after_a_lost_peer() {
    let start = Instant::now();
    on_ranks(2, |ctx| {
        let group = Group::create(&ctx, &[0, 1], "pair")?;
        let arrays = vec![Array::new("w", &[8], vec![1f32; 8])?];
        let ddp = Ddp::over_arrays(&ctx, None, arrays, &DdpOptions::default())?;
        let mut optimizer = Optimizer::adamw(&ddp, &Default::default())?;
        if ctx.rank()? == 1 {
            // Leaves without a word.
            drop(ctx);
            return Ok(());
        }
        let pending = group.all_reduce_async(vec![1f32; 4], Reduce::SUM)?;
        ddp.mark_ready(0)?;
        let error = optimizer.step(&Default::default()).unwrap_err();
        assert_eq!(error.status(), Status::PEER_LOST, "{}", error);
        assert_eq!(error.root_rank(), Some(1));
        let error = ctx.world_group()?.barrier().unwrap_err();
        assert_eq!((error.status(), error.root_rank()), (Status::PEER_LOST, Some(1)));
        drop(ctx);
        drop(optimizer);
        drop(group);
        drop(pending);
        drop(ddp);
        Ok(())
    });
    assert!(start.elapsed() < AT_ONCE);
}

/// A collective teardown is never a drop's: this rank leaves while the other is still at work.
#[test]
fn dropping_waits_for_nobody() {
    let left = Event::default();
    on_ranks(2, |ctx| {
        if ctx.rank()? == 0 {
            let start = Instant::now();
            drop(ctx);
            assert!(start.elapsed() < AT_ONCE);
            left.set();
        } else {
            left.wait();
        }
        Ok(())
    });
}
