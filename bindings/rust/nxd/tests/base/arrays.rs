use crate::common::{alone, on_ranks};
use std::ptr::null_mut;
use nxd::{
    lr_schedule_factor, AdamwOptions, Array, Bf16, Context, CustomOptions, DType, Ddp, DdpOptions,
    Error, FinishOptions, Hyperparameter, LrScheduleKind, LrScheduleOptions, Optimizer, Owned,
    ParameterState, Placement, Result, Sampler, SgdOptions, Status,
};

fn make_ddp(ctx: &Context, zero_stage: i32) -> Result<Ddp> {
    let arrays = vec![
        Array::new("w", &[4, 3], vec![1f32; 12])?,
        Array::new("b", &[3], vec![0.5f64; 3])?,
        Array::with_gradient("h", &[2], vec![Bf16::from_f32(2.0); 2], vec![0f32; 2])?,
    ];
    Ddp::over_arrays(ctx, None, arrays, &DdpOptions { zero_stage, ..Default::default() })
}

fn fill(ddp: &Ddp) -> Result<()> {
    ddp.arrays()[0].gradient_mut::<f32>()?.fill(1.0);
    ddp.arrays()[1].gradient_mut::<f64>()?.fill(2.0);
    ddp.arrays()[2].gradient_mut::<f32>()?.fill(4.0);
    Ok(())
}

/// With gradients 1, 2 and 4 of each of two ranks and a rate of 1/8.
fn check_step(ddp: &Ddp) -> Result<()> {
    assert!(ddp.arrays()[0].values::<f32>()?.iter().all(|&w| w == 0.75));
    assert!(ddp.arrays()[1].values::<f64>()?.iter().all(|&b| b == 0.0));
    assert!(ddp.arrays()[2].values::<Bf16>()?.iter().all(|&h| h.to_f32() == 1.0));
    Ok(())
}

#[test]
fn sgd_over_arrays() {
    for zero_stage in [0, 1] {
        on_ranks(2, |ctx| {
            let ddp = make_ddp(&ctx, zero_stage)?;
            let rate = SgdOptions { learning_rate: 0.125, ..Default::default() };
            let mut sgd = Optimizer::sgd(&ddp, &rate)?;
            fill(&ddp)?;
            let report = sgd.step(&FinishOptions::default())?;
            assert_eq!((report.updates, report.skipped), (1, 0));
            let squares = 12.0 * 4.0 + 3.0 * 16.0 + 2.0 * 64.0f64;
            assert!((report.norm - squares.sqrt()).abs() < 1e-9);
            check_step(&ddp)?;
            assert_eq!(sgd.parameter_state()?, (ParameterState::NEW, Some(0)));
            assert_eq!((ddp.count()?, ddp.name(1)?), (3, "b".to_string()));
            // The optimizer keeps the memory.
            drop(ddp);
            sgd.step(&FinishOptions::default())?;
            ctx.finalize()
        });
    }
}

/// Memory of the program is updated where it is, and a gradient may come in new memory.
#[test]
fn memory_of_another_owner() {
    on_ranks(2, |ctx| {
        let (mut w, mut first, mut second) = ([1f32; 6], [1f32; 6], [2f32; 6]);
        let array = unsafe {
            Array::over_memory("w", &[2, 3], w.as_mut_ptr(), first.as_mut_ptr())?
        };
        let array = array.with_strides(&[1, 2])?;
        let own = Array::new("own", &[2], vec![0f32; 2])?;
        let options = DdpOptions { zero_stage: 1, ..Default::default() };
        let ddp = Ddp::over_arrays(&ctx, None, vec![array, own], &options)?;
        let rate = SgdOptions { learning_rate: 0.125, ..Default::default() };
        let mut sgd = Optimizer::sgd(&ddp, &rate)?;
        sgd.step(&FinishOptions::default())?;
        unsafe { ddp.rebind::<f32, f32>(0, None, Some(second.as_mut_ptr()))? };
        sgd.step(&FinishOptions::default())?;
        assert_eq!(ddp.arrays()[0].values::<f32>()?[..], [0.25; 6]); // 1 - (2 + 4) / 8
        for bad in [1, 2] {
            let refused = unsafe { ddp.rebind::<f32, f32>(bad, None, None) };
            assert_eq!(refused.unwrap_err().status(), Status::INVALID_ARGUMENT);
        }
        let wrong = [0f64; 6].as_mut_ptr();
        let refused = unsafe { ddp.rebind::<f32, f64>(0, None, Some(wrong)) };
        assert_eq!(refused.unwrap_err().status(), Status::INVALID_ARGUMENT);
        drop((sgd, ddp));
        assert_eq!(w, [0.25; 6]);
        let none = unsafe { Array::over_memory::<f32, f32>("w", &[1], null_mut(), null_mut()) };
        assert!(none.err().unwrap().message().contains("got a null pointer"));
        // Frameworks have no memory for what has no elements.
        let empty = unsafe { Array::over_memory::<f32, f32>("w", &[0], null_mut(), null_mut())? };
        assert!(empty.values::<f32>()?.is_empty() && empty.gradient_mut::<f32>()?.is_empty());
        ctx.finalize()
    });
}

/// A channels-last array trains as the same one in C order does, and their saved states are one.
#[test]
fn dimensions_in_another_order() {
    const SHAPE: [i64; 4] = [2, 3, 2, 2];
    const LAST: [i64; 4] = [12, 1, 6, 3];
    // Where the element of an index of C order lies.
    let place = |i: usize| i / 12 * 12 + i / 4 % 3 + i / 2 % 2 * 6 + i % 2 * 3;
    let turned = |f: &dyn Fn(usize) -> f32| {
        let mut values = vec![0f32; 24];
        (0..24).for_each(|i| values[place(i)] = f(i));
        values
    };
    let path = std::env::temp_dir().join(format!("nxd-order-{}", std::process::id()));
    let path = path.to_str().unwrap();
    on_ranks(2, |ctx| {
        let options = DdpOptions { zero_stage: 1, ..Default::default() };
        let sgd = SgdOptions { learning_rate: 0.5, momentum: 0.5, ..Default::default() };
        let gradient = turned(&|i| i as f32);
        let last = Array::with_gradient("w", &SHAPE, turned(&|i| 100.0 - i as f32), gradient)?;
        let ddp = Ddp::over_arrays(&ctx, None, vec![last.with_strides(&LAST)?], &options)?;
        let mut optimizer = Optimizer::sgd(&ddp, &sgd)?;
        optimizer.step(&FinishOptions::default())?;
        optimizer.save(path)?;
        let after: Vec<f32> = (0..24).map(|i| 100.0 - 2.0 * i as f32).collect();
        {
            let values = ddp.arrays()[0].values::<f32>()?;
            assert!((0..24).all(|i| values[place(i)] == after[i]), "{:?}", values);
        }
        let c = Ddp::over_arrays(&ctx, None, vec![Array::new("w", &SHAPE, after)?], &options)?;
        let mut loaded = Optimizer::sgd(&c, &sgd)?;
        loaded.load(path)?;
        let report = loaded.step(&FinishOptions::default())?;
        assert_eq!((report.updates, report.norm), (2, 0.0));
        ddp.arrays()[0].gradient_mut::<f32>()?.fill(0.0);
        optimizer.step(&FinishOptions::default())?;
        let (x, y) = (ddp.arrays()[0].values::<f32>()?, c.arrays()[0].values::<f32>()?);
        assert!((0..24).all(|i| y[i] == 100.0 - 2.5 * i as f32), "{:?}", y);
        assert!((0..24).all(|i| x[place(i)] == y[i]), "{:?}", x);
        ctx.finalize()
    });
    std::fs::remove_file(path).unwrap();

    let array = || Array::new("w", &SHAPE, vec![0f32; 24]).unwrap();
    for bad in [&[12, 1, 6][..], &[12, -1, 6, 3], &[12, 1, 6, 4], &[i64::MAX, 1, 6, 3]] {
        let error = array().with_strides(bad).err().unwrap();
        assert_eq!(error.status(), Status::INVALID_ARGUMENT, "{:?}", bad);
    }
    // Two elements in one place are found by the library, on all ranks.
    let ctx = alone();
    let twice = array().with_strides(&[12, 1, 6, 0]).unwrap();
    let error = Ddp::over_arrays(&ctx, None, vec![twice], &DdpOptions::default()).err().unwrap();
    assert!(error.message().contains("a dense array"), "{}", error);
}

#[test]
fn a_rule_of_ones_own() {
    on_ranks(2, |ctx| {
        let ddp = make_ddp(&ctx, 1)?;
        let options = CustomOptions { learning_rate: 0.125, num_states: 1, ..Default::default() };
        let mut rule = Optimizer::custom(&ddp, &options, move |update| {
            let (scale, rate) = (update.grad_scale(), update.learning_rate());
            assert_eq!(update.step(), 1);
            match update.dtype() {
                DType::F64 => {
                    let mut a = update.arrays::<f64, f64, f64>()?;
                    for ((p, g), s) in a.param.iter_mut().zip(a.grad).zip(&mut *a.states[0]) {
                        *s += g * scale;
                        *p -= rate * *s;
                    }
                }
                _ => {
                    // Masters of bf16 parameters are f32 too.
                    let mut a = update.arrays::<f32, f32, f32>()?;
                    for ((p, g), s) in a.param.iter_mut().zip(a.grad).zip(&mut *a.states[0]) {
                        *s += g * scale as f32;
                        *p -= rate as f32 * *s;
                    }
                }
            }
            Ok(())
        })?;
        fill(&ddp)?;
        rule.step(&FinishOptions::default())?;
        check_step(&ddp)?;
        ctx.finalize()
    });
}

#[test]
fn a_rule_that_fails_or_panics() {
    let ctx = alone();
    let ddp = make_ddp(&ctx, 0).unwrap();
    let options = CustomOptions::default();
    let mut fails = Optimizer::custom(&ddp, &options, |update| {
        Err(Error::user(format!("no rule for {}", update.parameter())))
    })
    .unwrap();
    fill(&ddp).unwrap();
    let error = fails.step(&FinishOptions::default()).unwrap_err();
    assert_eq!(error.status(), Status::USER);
    assert!(error.message().contains("no rule for w"), "{}", error);

    let ddp = make_ddp(&ctx, 0).unwrap();
    let mut panics = Optimizer::custom(&ddp, &options, |_| panic!("no more")).unwrap();
    fill(&ddp).unwrap();
    let step = || panics.step(&FinishOptions::default());
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(step)).unwrap_err();
    assert_eq!(*panic.downcast::<&str>().unwrap(), "no more");

    let ddp = make_ddp(&ctx, 0).unwrap();
    let mut asks =
        Optimizer::custom(&ddp, &options, |update| update.arrays::<i32, f32, f32>().map(drop))
            .unwrap();
    fill(&ddp).unwrap();
    let error = asks.step(&FinishOptions::default()).unwrap_err();
    assert_eq!(error.status(), Status::INVALID_ARGUMENT);
}

#[test]
fn memory_is_borrowed_by_one() {
    let ctx = alone();
    let ddp = make_ddp(&ctx, 0).unwrap();
    let mut adamw = Optimizer::adamw(&ddp, &AdamwOptions::default()).unwrap();
    let w = &ddp.arrays()[0];
    assert_eq!(w.values::<f64>().unwrap_err().status(), Status::INVALID_ARGUMENT);
    let values = w.values::<f32>().unwrap();
    assert!(w.values_mut::<f32>().is_err());
    let error = adamw.step(&FinishOptions::default()).unwrap_err();
    assert_eq!(error.status(), Status::INVALID_STATE, "{}", error);
    drop(values);
    let gradient = w.gradient_mut::<f32>().unwrap();
    assert_eq!(ddp.mark_ready(0).unwrap_err().status(), Status::INVALID_STATE);
    drop(gradient);
    ddp.mark_ready(0).unwrap();
    assert_eq!(w.gradient::<f32>().unwrap_err().status(), Status::INVALID_STATE);
    ddp.mark_unused(1).unwrap();
    adamw.step(&FinishOptions::default()).unwrap();
    assert_eq!(w.gradient::<f32>().unwrap().len(), 12);
    assert!(ddp.mark_ready(9).is_err());
    assert!(Array::new("short", &[4], vec![0f32; 3]).is_err());
    assert!(Array::new("negative", &[-1], vec![0f32; 3]).is_err());
}

/// A rank that has borrowed values makes the ends of steps and saves fail on all; then all go on.
#[test]
fn values_borrowed_on_one_rank() {
    let path = std::env::temp_dir().join(format!("nxd-borrowed-{}", std::process::id()));
    let path = path.to_str().unwrap();
    on_ranks(2, |ctx| {
        let rank = ctx.rank()?;
        let ddp = make_ddp(&ctx, 0)?;
        let rate = SgdOptions { learning_rate: 0.125, ..Default::default() };
        let mut sgd = Optimizer::sgd(&ddp, &rate)?;
        let refused = |error: Error| match rank {
            0 => assert!(error.message().contains("rank 1"), "{}", error),
            _ => assert_eq!(error.status(), Status::INVALID_STATE, "{}", error),
        };
        let w = &ddp.arrays()[0];
        fill(&ddp)?;
        let borrowed = (rank == 1).then(|| w.values::<f32>()).transpose()?;
        refused(ddp.finish(&FinishOptions::default()).unwrap_err());
        drop(borrowed);
        fill(&ddp)?;
        let borrowed = (rank == 1).then(|| w.values_mut::<f32>()).transpose()?;
        refused(sgd.step(&FinishOptions::default()).unwrap_err());
        refused(sgd.step_without_report(&FinishOptions::default()).unwrap_err());
        refused(sgd.save(path).unwrap_err());
        drop(borrowed);
        sgd.step(&FinishOptions::default())?;
        check_step(&ddp)?;
        // To read values beside a reader is no harm.
        let lent = w.values::<f32>()?;
        sgd.save(path)?;
        drop(lent);
        ctx.finalize()
    });
    std::fs::remove_file(path).unwrap();
}

/// A rank that has borrowed a gradient does so too, whatever has been marked. The gradient is left alone,
/// and with new ones all go on.
#[test]
fn gradients_borrowed_on_one_rank() {
    for (zero_stage, writes) in [(0, false), (0, true), (1, true)] {
        on_ranks(2, |ctx| {
            let rank = ctx.rank()?;
            let ddp = make_ddp(&ctx, zero_stage)?;
            let rate = SgdOptions { learning_rate: 0.125, ..Default::default() };
            let mut sgd = Optimizer::sgd(&ddp, &rate)?;
            let refused = |error: Error| match rank {
                0 => assert!(error.message().contains("rank 1"), "{}", error),
                _ => assert_eq!(error.status(), Status::INVALID_STATE, "{}", error),
            };
            fill(&ddp)?;
            ddp.mark_ready(2)?;
            let w = &ddp.arrays()[0];
            let mine = rank == 1;
            let written = (mine && writes).then(|| w.gradient_mut::<f32>()).transpose()?;
            let read = (mine && !writes).then(|| w.gradient::<f32>()).transpose()?;
            refused(sgd.step(&FinishOptions::default()).unwrap_err());
            if zero_stage == 0 {
                refused(ddp.finish(&FinishOptions::default()).unwrap_err());
            }
            let left = written.as_deref().or(read.as_deref());
            assert!(left.map_or(true, |gradient| gradient.iter().all(|&g| g == 1.0)));
            drop((written, read));
            fill(&ddp)?;
            ddp.mark_ready(0)?;
            sgd.step(&FinishOptions::default())?;
            check_step(&ddp)?;
            ctx.finalize()
        });
    }
}

#[test]
fn finished_before_the_update() {
    on_ranks(2, |ctx| {
        let ddp = make_ddp(&ctx, 0)?;
        let rate = SgdOptions { learning_rate: 0.125, ..Default::default() };
        let mut sgd = Optimizer::sgd(&ddp, &rate)?;
        ddp.set_sync(false)?;
        fill(&ddp)?;
        ddp.set_sync(true)?;
        assert!(ddp.finish(&FinishOptions::default())? > 0.0);
        assert!(ddp.arrays()[0].gradient::<f32>()?.iter().all(|&g| g == 2.0));
        sgd.update()?;
        check_step(&ddp)?;
        assert!(ddp.buffer_bytes()? < 1 << 20);
        ctx.finalize()
    });
}

fn saved(ctx: &Owned<Context>) -> Result<()> {
    let ddp = make_ddp(ctx, 0)?;
    let mut adamw = Optimizer::adamw(&ddp, &AdamwOptions::default())?;
    fill(&ddp)?;
    adamw.step(&FinishOptions::default())?;
    assert!(adamw.state_bytes()? > 0);
    let path = std::env::temp_dir().join(format!("nxd-state-{}", std::process::id()));
    let path = path.to_str().unwrap();
    adamw.save(path)?;
    adamw.load(path)?;
    assert_eq!(adamw.load("/no/such/file").unwrap_err().status(), Status::IO);
    std::fs::remove_file(path)?;
    Ok(())
}

#[test]
fn hyperparameters_and_state() {
    let ctx = alone();
    let ddp = make_ddp(&ctx, 0).unwrap();
    let mut adamw = Optimizer::adamw(&ddp, &AdamwOptions::default()).unwrap();
    let group = adamw.add_group(&["b*"]).unwrap();
    adamw.set(Some(group), Hyperparameter::WEIGHT_DECAY, 0.25).unwrap();
    assert_eq!(adamw.hyperparameter(group, Hyperparameter::WEIGHT_DECAY).unwrap(), 0.25);
    assert_eq!(adamw.hyperparameter(0, Hyperparameter::WEIGHT_DECAY).unwrap(), 0.0);
    assert!(adamw.set(None, Hyperparameter::MOMENTUM, 0.5).is_err());
    assert!(adamw.add_group(&["nothing like it"]).is_err());
    adamw.set_learning_rate(0.5).unwrap();
    let linear = LrScheduleOptions {
        kind: LrScheduleKind::LINEAR,
        warmup_steps: 2,
        total_steps: 10,
        ..Default::default()
    };
    adamw.set_lr_schedule(&linear).unwrap();
    assert_eq!(lr_schedule_factor(&linear, 0).unwrap(), 0.5);
    assert_eq!(adamw.learning_rate().unwrap(), 0.25);
    saved(&ctx).unwrap();
}

#[test]
fn samples_are_shared_out() {
    let sampler = Sampler { samples: 10, ranks: 2, seed: 3, shuffle: true, ..Default::default() };
    let mut all = sampler.epoch(1).unwrap();
    all.extend(Sampler { rank: 1, ..sampler }.epoch(1).unwrap());
    all.sort_unstable();
    assert_eq!(all, (0..10).collect::<Vec<_>>());
    assert!(Sampler { rank: 5, ..sampler }.epoch(1).is_err());
}

/// A failure leaves the program no gradient that the library uses, and takes none that it does not.
#[test]
fn gradients_after_a_failure() {
    let ctx = alone();
    let ddp = make_ddp(&ctx, 0).unwrap();
    fill(&ddp).unwrap();
    ddp.arrays()[1].gradient_mut::<f64>().unwrap()[0] = f64::NAN;
    (0..3).for_each(|index| ddp.mark_ready(index).unwrap());
    // The reductions that a rejected call had started end with it.
    let error = ddp.finish(&FinishOptions { max_norm: -1.0, ..Default::default() }).unwrap_err();
    assert_eq!(error.status(), Status::INVALID_ARGUMENT);
    assert!(ddp.arrays()[0].gradient::<f32>().is_ok());
    let mut sgd = Optimizer::sgd(&ddp, &Default::default()).unwrap();
    ddp.mark_ready(0).unwrap();
    let error = sgd.step(&FinishOptions { max_norm: -1.0, ..Default::default() }).unwrap_err();
    assert_eq!(error.status(), Status::INVALID_ARGUMENT);
    assert!(ddp.arrays()[0].gradient::<f32>().is_ok());
    // Gradients are finished, but for their clipping.
    let error = ddp.finish(&FinishOptions::default()).unwrap_err();
    assert!(error.message().contains("the norm of the gradients is nan"), "{}", error);
    fill(&ddp).unwrap();
    ddp.set_sync(false).unwrap();
    assert_eq!(ddp.mark_ready(0).unwrap_err().status(), Status::INVALID_STATE);
    fill(&ddp).unwrap();
    ddp.set_sync(true).unwrap();
    assert!(ddp.finish(&FinishOptions::default()).unwrap() > 0.0);
    ctx.finalize().unwrap();
}

/// A parameter that another stage counts is left out of this rank's part of the norm.
#[test]
fn tied_parameters() {
    let ctx = alone();
    ctx.init_model_parallel(&Default::default()).unwrap();
    let ddp = make_ddp(&ctx, 0).unwrap();
    fill(&ddp).unwrap();
    let placements = [Placement::Replicated; 3];
    let error = ddp.set_placements_tied(&placements, &[3]).unwrap_err();
    assert!(error.message().contains("tied: expected less than 3, got 3"), "{}", error);
    ddp.set_placements_tied(&placements, &[1, 2]).unwrap();
    let norm = ddp.finish(&FinishOptions::default()).unwrap();
    assert!((norm - 12f64.sqrt()).abs() < 1e-9, "{}", norm);
    ctx.finalize().unwrap();
}
