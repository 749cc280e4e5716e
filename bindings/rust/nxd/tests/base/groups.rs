use crate::common::{alone, on_ranks, Event, TIMEOUT};
use nxd::{Array, Bf16, Ddp, DdpOptions, Element, Group, Reduce, Status, Transport};
use std::time::Duration;

#[test]
fn collectives_over_slices() {
    on_ranks(3, |ctx| {
        let world = ctx.world_group()?;
        let rank = world.rank()?;
        let mut sum = [0i64; 2];
        world.all_reduce(&[1, i64::from(rank)], &mut sum, Reduce::SUM)?;
        assert_eq!(sum, [3, 3]);
        let mut most = [f64::from(rank)];
        world.all_reduce_in_place(&mut most, Reduce::MAX)?;
        assert_eq!(most, [2.0]);
        let mut all = [0i32; 6];
        world.all_gather(&[rank, -rank], &mut all)?;
        assert_eq!(all, [0, 0, 1, -1, 2, -2]);
        let mut part = [0f32; 1];
        world.reduce_scatter(&[0.0, 1.0, 2.0], &mut part, Reduce::SUM)?;
        assert_eq!(part, [3.0 * rank as f32]);
        let mut bytes = [rank as u8; 4];
        world.broadcast(&mut bytes, 2)?;
        assert_eq!(bytes, [2; 4]);
        let mut from = [0i32; 3];
        world.all_to_all(&[10 * rank, 10 * rank + 1, 10 * rank + 2], &mut from)?;
        assert_eq!(from, [rank, 10 + rank, 20 + rank]);
        let mut halves = [Bf16::from_f32(0.5); 3];
        world.all_reduce_in_place(&mut halves, Reduce::SUM)?;
        assert_eq!(halves[0].to_f32(), 1.5);
        world.barrier()?;
        ctx.finalize()
    });
}

#[test]
fn rendezvous() {
    on_ranks(2, |ctx| {
        let (world, rank) = (ctx.world_group()?, ctx.rank()?);
        let brought = world.rendezvous("here", &vec![rank as u8; 3 * rank as usize])?;
        assert_eq!(brought, [vec![], vec![1, 1, 1]]);
        let error = world.rendezvous(&format!("place {}", rank), b"").unwrap_err();
        assert_eq!(error.status(), Status::INVALID_ARGUMENT);
        assert!(error.message().contains("\"place 1\" on rank 1"), "{}", error);
        ctx.finalize()
    });
}

#[test]
fn messages() {
    on_ranks(2, |ctx| {
        let world = ctx.world_group()?;
        let mut values = [1.5f64, -2.0];
        if ctx.rank()? == 0 {
            world.send(&values, 1, 7)?;
            world.receive(&mut values, 1, 8)?;
            assert_eq!(values, [3.0, -4.0]);
        } else {
            world.receive(&mut values, 0, 7)?;
            world.send(&[2.0 * values[0], 2.0 * values[1]], 0, 8)?;
        }
        ctx.finalize()
    });
}

#[test]
fn groups_of_some_ranks() {
    on_ranks(3, |ctx| {
        if ctx.rank()? != 1 {
            let pair = Group::create(&ctx, &[2, 0], "pair")?;
            assert_eq!((pair.size()?, pair.ranks()?), (2, vec![2, 0]));
            pair.set_timeout(TIMEOUT)?;
            assert_ne!(pair.transport()?, Transport::AUTO);
            let mut first = [ctx.rank()?];
            pair.set_next_key(first[0] as u64 + 1)?;
            let message = pair.broadcast(&mut first, 0).unwrap_err().to_string();
            assert!(message.contains("with key 1") && message.contains("with key 3"));
            pair.broadcast(&mut first, 0)?;
            assert_eq!(first, [2]);
            assert_eq!(
                pair.set_timeout(Duration::from_secs(0)).unwrap_err().status(),
                Status::INVALID_ARGUMENT
            );
        }
        ctx.finalize()
    });
}

/// Slices that do not fit are rejected at once on every rank, and the group goes on.
#[test]
fn lengths_that_do_not_fit() {
    on_ranks(2, |ctx| {
        let world = ctx.world_group()?;
        let rank = ctx.rank()? as usize;
        let refused = |outcome: nxd::Result<()>| {
            let error = outcome.unwrap_err();
            assert_eq!(error.status(), Status::INVALID_ARGUMENT);
            error
        };
        let error = refused(world.all_reduce(&[1f32; 3], &mut vec![0.0; 3 - rank], Reduce::SUM));
        assert!(error.message().contains("receive: expected the 3 elements"), "{}", error);
        let told = "rank 1 rejected its arguments: all_reduce: receive";
        assert!(rank == 1 || error.message().contains(told), "{}", error);
        let error = refused(world.all_gather(&[1i32; 2], &mut vec![0; 4 + rank]));
        assert!(error.message().contains("expected 2 times the 2"), "{}", error);
        let work = world.all_gather_async(vec![1i32; 2], vec![0; 4 + rank])?;
        let error = refused(work.wait().map(drop));
        assert!(error.message().contains("expected 2 times the 2"), "{}", error);
        // A name that C does not take is found before the call, too.
        let name = if rank == 0 { "weight" } else { "wei\0ght" };
        for group in [None, Some(world)] {
            let arrays = vec![Array::new(name, &[2], vec![1f32; 2])?];
            let ddp = Ddp::over_arrays(&ctx, group, arrays, &DdpOptions::default());
            let error = refused(ddp.map(drop));
            assert!(error.message().contains("expected no NUL within a string"), "{}", error);
        }
        let pair = Group::create(&ctx, &[0, 1], if rank == 0 { "pair" } else { "pa\0r" });
        let error = refused(pair.map(drop));
        let told = "arguments that they cannot read";
        assert!(rank == 1 || error.message().contains("rank 1 rejected"), "{}", error);
        assert!(rank == 1 || error.message().contains(told), "{}", error);
        refused(world.reduce_scatter(&vec![1f64; 4 + rank], &mut [0.0; 2], Reduce::SUM));
        refused(world.all_to_all(&[0u8; 2], &mut vec![0; 2 + 2 * rank]));
        // No elements on one side is no way around it.
        refused(world.all_gather(&[0i32; 0], &mut vec![0; rank]));
        // A program may find that it cannot make a call, too.
        let error = refused(if rank == 1 {
            Err(world.reject("all_reduce", "bias: expected a contiguous tensor"))
        } else {
            world.all_reduce_in_place(&mut [1f32], Reduce::SUM)
        });
        assert!(error.message().contains("bias: expected a contiguous tensor"), "{}", error);
        let mut sum = [1f32];
        world.all_reduce_in_place(&mut sum, Reduce::SUM)?;
        assert_eq!(sum, [2.0]);
        ctx.finalize()
    });
}

#[test]
fn arenas_are_slices() {
    on_ranks(2, |ctx| {
        let mut shared = ctx.arena::<f32>(1000)?;
        assert!(shared.iter().all(|&value| value == 0.0));
        shared.fill(1.0 + ctx.rank()? as f32);
        ctx.world_group()?.all_reduce_in_place(&mut shared, Reduce::SUM)?;
        assert!(shared.iter().all(|&value| value == 3.0));
        assert_eq!(ctx.arena::<f64>(0)?.len(), 0);
        drop(shared);
        ctx.finalize()
    });
}

#[test]
fn arenas_without_elements_are_given_back() {
    let ctx = alone();
    let place = || ctx.arena::<f32>(1).unwrap().as_ptr();
    let first = place();
    for _ in 0..100 {
        assert!(ctx.arena::<f64>(0).unwrap().is_empty());
    }
    assert_eq!(place(), first);
}

#[test]
fn abort_of_a_group() {
    let aborted = Event::default();
    let errors = on_ranks(2, |ctx| {
        let pair = Group::create(&ctx, &[0, 1], "pair")?;
        if ctx.rank()? == 1 {
            aborted.wait(); // to leave before would be the error
            return Ok(None);
        }
        let aborter = pair.aborter();
        let error = std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(100)); // most likely rank 0 waits
                aborter.abort().unwrap();
            });
            pair.barrier().err()
        });
        aborted.set();
        Ok(error)
    });
    assert_eq!(errors[0].as_ref().unwrap().status(), Status::ABORTED);
}

#[test]
fn sixteen_bit_floats() {
    assert_eq!(Bf16::from_f32(1.0), Bf16(0x3f80));
    assert_eq!(Bf16::from_f32(1.0 + 1.0 / 256.0), Bf16(0x3f80), "ties to even");
    assert_eq!(Bf16::from_f32(1.0 + 3.0 / 256.0), Bf16(0x3f82), "ties to even");
    assert!(Bf16::from_f32(f32::NAN).to_f32().is_nan());
    assert_eq!(<Bf16 as Element>::DTYPE, nxd::DType::BF16);
}
