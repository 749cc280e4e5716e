use crate::common::{on_ranks, Event, AT_ONCE, TIMEOUT};
use nxd::{Buffer, Context, ContextOptions, Reduce, Result, Status, Store, StoreBackend, World};
use std::os::unix::io::AsRawFd;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn buffers_come_back() {
    on_ranks(2, |ctx| {
        let world = ctx.world_group()?;
        let rank = ctx.rank()?;
        let sum = world.all_reduce_async(vec![1.0f32; 4], Reduce::SUM)?;
        let all = world.all_gather_async(vec![rank], vec![0; 2])?;
        let part = world.reduce_scatter_async(vec![1i64, 2], vec![0], Reduce::SUM)?;
        let root = world.broadcast_async(vec![rank as u8], 1)?;
        let turned = world.all_to_all_async(vec![rank, rank + 10], vec![0; 2])?;
        let done = world.barrier_async()?;
        assert_eq!(sum.wait()?, [2.0; 4]);
        assert_eq!(all.wait()?.1, [0, 1]);
        assert_eq!(part.wait()?.1, [2 * (1 + i64::from(rank))]);
        assert_eq!(root.wait()?, [1]);
        assert_eq!(turned.wait()?.1, [10 * rank, 10 * rank + 1]);
        done.wait()?;
        let peer = 1 - rank;
        let (sent, received) =
            (world.send_async(vec![rank], peer, 3)?, world.receive_async(vec![0], peer, 3)?);
        assert_eq!(received.wait()?, [peer]);
        assert_eq!(sent.wait()?, [rank]);
        let shared = ctx.arena::<f32>(8)?;
        assert_eq!(world.all_reduce_async(shared, Reduce::SUM)?.wait()?.len(), 8);
        ctx.finalize()
    });
}

#[test]
fn waits_have_bounds() {
    on_ranks(2, |ctx| {
        let world = ctx.world_group()?;
        if ctx.rank()? == 0 {
            let mut work = world.all_reduce_async(vec![1i32], Reduce::SUM)?;
            let error = work.wait_timeout(Duration::from_millis(20)).unwrap_err();
            assert_eq!(error.status(), Status::TIMEOUT);
            assert!(!work.test()?);
            assert_eq!(work.error().unwrap_err().status(), Status::INVALID_STATE);
            assert!(work.descriptor()?.as_raw_fd() >= 0);
            world.send(&[0u8], 1, 0)?;
            work.wait_timeout(TIMEOUT)?;
            assert!(work.test()?);
            assert!(work.error()?.is_none());
            assert_eq!(work.wait()?, [2]);
        } else {
            world.receive(&mut [0u8], 0, 0)?;
            world.all_reduce_in_place(&mut [1i32], Reduce::SUM)?;
        }
        ctx.finalize()
    });
}

#[test]
fn failures_give_the_buffers_too() {
    on_ranks(2, |ctx| {
        let world = ctx.world_group()?;
        let n = 2 + ctx.rank()? as usize;
        let (buffer, outcome) = world.all_reduce_async(vec![1f32; n], Reduce::SUM)?.finish();
        assert_eq!(outcome.unwrap_err().status(), Status::INVALID_ARGUMENT);
        assert_eq!(buffer.unwrap(), vec![1f32; n], "unchanged");
        let work = world.all_gather_async(vec![1u8; 2], vec![0u8; 2 + n])?;
        let (buffers, outcome) = work.finish();
        assert_eq!(outcome.unwrap_err().status(), Status::INVALID_ARGUMENT);
        assert_eq!(buffers.unwrap().1.len(), 2 + n);
        world.barrier()?;
        ctx.finalize()
    });
}

#[test]
fn cancelled_before_its_turn() {
    on_ranks(2, |ctx| {
        let world = ctx.world_group()?;
        if ctx.rank()? == 0 {
            let first = world.all_reduce_async(vec![1i32], Reduce::SUM)?;
            let mut second = world.all_reduce_async(vec![1i32], Reduce::SUM)?;
            second.cancel()?;
            let (_, outcome) = second.finish();
            assert_eq!(outcome.unwrap_err().status(), Status::ABORTED);
            world.send(&[0u8], 1, 0)?;
            assert_eq!(first.wait()?, [2]);
        } else {
            world.receive(&mut [0u8], 0, 0)?;
            world.all_reduce_in_place(&mut [1i32], Reduce::SUM)?;
            let error = world.all_reduce_in_place(&mut [1i32], Reduce::SUM).unwrap_err();
            assert_eq!(error.status(), Status::INVALID_ARGUMENT);
        }
        ctx.world_group()?.barrier()?;
        ctx.finalize()
    });
}

#[test]
fn moves_to_another_thread() {
    on_ranks(2, |ctx| {
        let work = ctx.world_group()?.all_reduce_async(vec![1i64; 100], Reduce::SUM)?;
        let sum = std::thread::spawn(move || work.wait()).join().unwrap()?;
        assert_eq!(sum, [2; 100]);
        ctx.finalize()
    });
}

/// A store that panics leaves it for the next call, when its own is one of the raw layer.
fn leave_a_panic() {
    struct Panics;
    impl StoreBackend for Panics {
        fn set(&self, _: &str, _: &[u8]) -> Result<()> {
            panic!("left over")
        }
        fn get(&self, _: &str) -> Result<Option<Vec<u8>>> {
            Ok(None)
        }
        fn add(&self, _: &str, _: i64) -> Result<i64> {
            Ok(0)
        }
    }
    let store = Store::over(Panics).unwrap();
    let (key, none) = (b"key\0".as_ptr().cast(), std::ptr::null());
    let status = unsafe { nxd::sys::nxd_store_set(store.as_raw(), key, none, 0) };
    assert_eq!(status, Status::USER);
}

/// A panic that goes on from the call which starts a work leaves none behind that has its buffer.
#[test]
fn a_panic_ends_the_work_first() {
    const COUNT: usize = 16;
    /// Memory that stays, and has another use once the buffer is dropped.
    struct Lent(*mut f32);
    unsafe impl Buffer for Lent {
        type Item = f32;
        fn data(&mut self) -> *mut f32 {
            self.0
        }
        fn len(&self) -> usize {
            COUNT
        }
    }
    impl Drop for Lent {
        fn drop(&mut self) {
            unsafe { std::slice::from_raw_parts_mut(self.0, COUNT) }.fill(7.0);
        }
    }
    on_ranks(2, |ctx| {
        let world = ctx.world_group()?;
        if ctx.rank()? == 0 {
            let memory = Box::into_raw(vec![1f32; COUNT].into_boxed_slice());
            leave_a_panic();
            let start = || world.all_reduce_async(Lent(memory.cast()), Reduce::SUM).map(drop);
            let panic = catch_unwind(AssertUnwindSafe(start)).unwrap_err();
            assert_eq!(panic.downcast_ref::<&str>(), Some(&"left over"));
            world.barrier()?;
            assert_eq!(*unsafe { Box::from_raw(memory) }, [7.0; COUNT]);
        } else {
            std::thread::sleep(Duration::from_secs(1)); // the work does not end by itself
            // It has begun, or was taken back.
            let outcome = world.all_reduce_in_place(&mut [1f32; COUNT], Reduce::SUM);
            let refused = outcome.err().map(|error| error.status());
            assert!([None, Some(Status::INVALID_ARGUMENT)].contains(&refused), "{:?}", refused);
            world.barrier()?;
        }
        ctx.finalize()
    });
}

static STOP: AtomicBool = AtomicBool::new(false);

/// The wait ends at once, however long the group's timeout; the memory stays the work's.
#[test]
fn an_interrupt_ends_the_wait() {
    let (store, left) = (Store::local().unwrap(), Event::default());
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let (store, left) = (&*store, &left);
            scope.spawn(move || {
                let interrupt: fn() -> bool = || STOP.load(Ordering::Relaxed);
                let world = World::Store { store, rank, size: 2 };
                let timeout = Some(TIMEOUT);
                let interrupt = if rank == 0 { Some(interrupt) } else { None };
                let options = ContextOptions { world, timeout, interrupt, ..Default::default() };
                let ctx = Context::create_with(&options).unwrap();
                if rank == 1 {
                    left.wait();
                    return;
                }
                std::thread::spawn(|| {
                    std::thread::sleep(Duration::from_millis(100)); // most likely rank 0 waits
                    STOP.store(true, Ordering::Relaxed);
                });
                let start = Instant::now();
                let work = ctx.world_group().unwrap().all_reduce_async(vec![1f32], Reduce::SUM);
                let (buffer, outcome) = work.unwrap().finish();
                assert!(buffer.is_none());
                assert_eq!(outcome.unwrap_err().status(), Status::USER);
                assert!(start.elapsed() < AT_ONCE);
                left.set();
            });
        }
    });
}
