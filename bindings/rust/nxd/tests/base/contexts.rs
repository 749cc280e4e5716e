use crate::common::{is_child, on_ranks, run_child_with, Event, AT_ONCE, TIMEOUT};
use nxd::{
    find_rank, layout_groups, Axis, Context, ContextOptions, LogLevel, ParallelOptions, Status,
    Store, Toggle, World,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

#[test]
fn knows_its_place() {
    on_ranks(2, |ctx| {
        assert_eq!(ctx.size()?, 2);
        assert!(ctx.local_rank()? <= 1);
        assert_eq!(ctx.step()?, (0, 0));
        ctx.set_step(3, 1)?;
        assert_eq!(ctx.step()?, (3, 1));
        assert_eq!(ctx.set_step(-1, 0).unwrap_err().status(), Status::INVALID_ARGUMENT);
        ctx.set_plain_kernels(true)?;
        assert!(ctx.plain_kernels()?);
        ctx.world_group()?.barrier()?;
        assert!(ctx.flight_record()?.contains("barrier"));
        ctx.finalize()
    });
}

/// A rank whose text is none does not join, and the other hears of it at once.
#[test]
fn bad_texts_are_told() {
    let store = Store::local().unwrap();
    let start = Instant::now();
    let join = |rank, host_id| {
        let world = World::Store { store: &store, rank, size: 2 };
        let timeout = Some(TIMEOUT);
        Context::create_with(&ContextOptions { world, timeout, host_id, ..Default::default() })
            .unwrap_err()
            .status()
    };
    let told = std::thread::scope(|scope| {
        let other = scope.spawn(|| join(0, None));
        assert_eq!(join(1, Some("a\0b")), Status::INVALID_ARGUMENT);
        other.join().unwrap()
    });
    assert_eq!(told, Status::PEER_LOST);
    assert!(start.elapsed() < AT_ONCE);
}

#[test]
fn lays_out_its_world() {
    on_ranks(4, |mut ctx| {
        assert!(!ctx.model_parallel_is_initialized());
        assert_eq!(ctx.parallel_size(Axis::TENSOR).unwrap_err().status(), Status::INVALID_STATE);
        let layout = ParallelOptions { tensor_parallel_size: 2, ..Default::default() };
        ctx.init_model_parallel(&layout)?;
        let rank = ctx.rank()?;
        assert_eq!(ctx.parallel_size(Axis::DATA)?, 2);
        assert_eq!(ctx.parallel_rank(Axis::TENSOR)?, rank % 2);
        assert_eq!(ctx.source_rank(Axis::TENSOR)?, rank / 2 * 2);
        assert_eq!(ctx.parallel_groups(Axis::DATA)?, [[0, 2], [1, 3]]);
        assert_eq!(ctx.parallel_group(Axis::DATA)?.ranks()?, [rank % 2, rank % 2 + 2]);
        assert_eq!(ctx.next_pipeline_rank()?, rank);
        assert_eq!(ctx.previous_pipeline_rank()?, rank);
        ctx.destroy_model_parallel()?;
        assert!(!ctx.model_parallel_is_initialized());
        let odd = ParallelOptions { tensor_parallel_size: 3, ..Default::default() };
        assert_eq!(ctx.init_model_parallel(&odd).unwrap_err().status(), Status::INVALID_ARGUMENT);
        ctx.finalize()
    });
}

#[test]
fn layouts_need_no_context() {
    let layout = ParallelOptions { tensor_parallel_size: 2, ..Default::default() };
    assert_eq!(layout_groups(&layout, 4, Axis::TENSOR).unwrap(), [[0, 1], [2, 3]]);
    assert_eq!(find_rank(&layout, 4, Axis::DATA, 3).unwrap(), (1, 1));
    // A size from elsewhere is set right before the library reads beyond it.
    let torn = ParallelOptions { struct_size: 1 << 20, ..layout };
    assert_eq!(layout_groups(&torn, 4, Axis::WORLD).unwrap(), [[0, 1, 2, 3]]);
}

#[test]
fn abort_from_another_thread() {
    let aborted = Event::default();
    let errors = on_ranks(2, |ctx| {
        if ctx.rank()? == 1 {
            aborted.wait(); // to leave before would be the error
            return Ok(None);
        }
        let aborter = ctx.aborter();
        let error = std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(100)); // most likely rank 0 waits
                aborter.abort().unwrap();
            });
            ctx.world_group().unwrap().barrier().err()
        });
        aborted.set();
        Ok(error)
    });
    assert_eq!(errors[0].as_ref().unwrap().status(), Status::ABORTED);
}

static STOP: AtomicBool = AtomicBool::new(false);

#[test]
fn interrupt_ends_a_wait() {
    let store = Store::local().unwrap();
    let world = World::Store { store: &store, rank: 0, size: 2 };
    let interrupt: fn() -> bool = || STOP.load(Ordering::Relaxed);
    let timeout = Some(TIMEOUT);
    let options =
        ContextOptions { world, timeout, interrupt: Some(interrupt), ..Default::default() };
    let start = Instant::now();
    // Rank 1 never comes.
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            STOP.store(true, Ordering::Relaxed);
        });
        Context::create_with(&options).unwrap_err()
    });
    assert_eq!(error.status(), Status::USER);
    assert!(start.elapsed() < AT_ONCE);
}

#[test]
fn panic_of_the_interrupt_goes_on() {
    let store = Store::local().unwrap();
    let world = World::Store { store: &store, rank: 0, size: 2 };
    let interrupt: fn() -> bool = || panic!("enough");
    let options = ContextOptions { world, interrupt: Some(interrupt), ..Default::default() };
    let panic = std::panic::catch_unwind(|| Context::create_with(&options)).unwrap_err();
    assert_eq!(*panic.downcast::<&str>().unwrap(), "enough");
}

#[test]
fn errors_have_parts() {
    let errors = on_ranks(2, |ctx| {
        let mut values = vec![0f32; 1 + ctx.rank()? as usize];
        let error = ctx.world_group()?.broadcast(&mut values, 0).unwrap_err();
        ctx.finalize()?;
        Ok(error)
    });
    for error in errors {
        assert_eq!(error.status(), Status::INVALID_ARGUMENT);
        assert_eq!((error.operation(), error.group()), ("broadcast", "world"));
        assert_eq!(error.step(), None);
        assert!(format!("{}", error).starts_with("INVALID_ARGUMENT: broadcast"), "{}", error);
    }
}

/// The program's word counts, and without one the environment's.
#[test]
fn plain_kernels_beside_their_variable() {
    const TEST: &str = "contexts::plain_kernels_beside_their_variable";
    if !is_child(TEST) {
        assert_eq!(run_child_with(TEST, &[("NXD_PLAIN_KERNELS", "1")]), Some(0));
    }
    for (plain_kernels, on) in
        [(Toggle::DEFAULT, is_child(TEST)), (Toggle::ON, true), (Toggle::OFF, false)]
    {
        let options = ContextOptions { plain_kernels, ..Default::default() };
        assert_eq!(Context::create_with(&options).unwrap().plain_kernels().unwrap(), on);
    }
}

/// A group that fails cannot write its flight record, and says so.
#[test]
fn log_lines_come_to_a_closure() {
    const TEST: &str = "contexts::log_lines_come_to_a_closure";
    static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
    if !is_child(TEST) {
        let variables = [("NXD_FLIGHT_RECORD", "/no/such/directory/record.")];
        assert_eq!(run_child_with(TEST, &variables), Some(0));
        return;
    }
    nxd::set_log(|level, line| LINES.lock().unwrap().push(format!("{:?} {}", level, line)))
        .unwrap();
    let lost = || {
        on_ranks(2, |ctx| {
            if ctx.rank()? == 0 {
                ctx.world_group()?.barrier().unwrap_err();
            }
            Ok(())
        })
    };
    lost();
    let lines = std::mem::take(&mut *LINES.lock().unwrap());
    assert!(lines.iter().any(|line| line.starts_with("WARN flight record")), "{:?}", lines);
    nxd::set_log_level(LogLevel::OFF).unwrap();
    lost();
    nxd::reset_log().unwrap();
    assert!(LINES.lock().unwrap().is_empty());
    assert_eq!(nxd::set_log_level(LogLevel(77)).unwrap_err().status(), Status::INVALID_ARGUMENT);
}

#[test]
fn says_what_it_is() {
    assert_eq!(nxd::version(), "0.1.0");
    assert!(nxd::build_info().starts_with('{'));
    assert!(nxd::environment_table().contains("NXD_TIMEOUT_MS"));
}
