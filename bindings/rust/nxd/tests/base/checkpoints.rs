use crate::common::{on_ranks, LIMIT};
use nxd::{
    AdamwOptions, Array, Checkpoint, Context, DataLoader, DataLoaderOptions, Ddp, DdpOptions,
    FinishOptions, Optimizer, Result, Status, Store, TrainingState,
};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

fn ddp(ctx: &Context) -> Result<Ddp> {
    let arrays = vec![Array::new("w", &[4, 3], vec![1f32; 12])?];
    Ddp::over_arrays(ctx, None, arrays, &DdpOptions::default())
}

fn adamw(ctx: &Context) -> Result<Optimizer> {
    Optimizer::adamw(&ddp(ctx)?, &AdamwOptions::default())
}

#[test]
fn saved_and_gone_on_from() {
    let directory = std::env::temp_dir().join(format!("nxd-rust-{}", std::process::id()));
    let root = directory.to_str().unwrap().to_string();
    on_ranks(2, |ctx| {
        assert!(Checkpoint::open_newest(&ctx, &root, true)?.is_none());
        let mut rule = adamw(&ctx)?;
        rule.step(&FinishOptions::default())?;
        for step in 1..=3 {
            let checkpoint = Checkpoint::create(&ctx, &root, step)?;
            rule.snapshot(&checkpoint, "state")?;
            checkpoint.set_value("position", &format!("batch {}", step))?;
            assert_eq!(checkpoint.wait(None).unwrap_err().status(), Status::INVALID_STATE);
            checkpoint.publish_async(2)?;
            rule.step(&FinishOptions::default())?;
            checkpoint.wait(Some(LIMIT))?;
            assert!(checkpoint.is_done()?);
        }
        let newest = Checkpoint::open_newest(&ctx, &root, true)?.expect("three were published");
        assert_eq!(newest.step()?, 3);
        assert_eq!(newest.value("position")?.as_deref(), Some("batch 3"));
        assert_eq!(newest.value("absent")?, None);
        newest.restore_random_state()?;
        adamw(&ctx)?.load(&newest.path("state")?)?;
        assert_eq!(Checkpoint::open(&ctx, &root, 2, false)?.step()?, 2);
        let missing = Checkpoint::open(&ctx, &root, 1, false).unwrap_err();
        assert_eq!(missing.status(), Status::IO);
        ctx.finalize()
    });
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn paths_that_are_no_utf8() {
    let mut name = OsString::from_vec(b"nxd-rust-\xfe\xff-".to_vec());
    name.push(std::process::id().to_string());
    let directory = &std::env::temp_dir().join(name);
    on_ranks(2, |ctx| {
        let rule = adamw(&ctx)?;
        let checkpoint = Checkpoint::create(&ctx, directory, 1)?;
        assert!(checkpoint.path("more")?.starts_with(directory));
        if ctx.rank()? == 0 {
            std::fs::write(checkpoint.path("more")?, "text").unwrap();
        }
        rule.snapshot(&checkpoint, "state")?;
        checkpoint.publish(0)?;
        let newest = Checkpoint::open_newest(&ctx, directory, true)?.expect("one was published");
        assert_eq!(std::fs::read(newest.path("more")?).unwrap(), b"text");
        adamw(&ctx)?.load(newest.path("state")?)?;
        rule.save(directory.join("copy"))?;
        adamw(&ctx)?.load(&directory.join("copy"))?;
        let mut state = TrainingState::new(&ctx)?;
        state.save(directory.join("run"), 7, 0)?;
        assert_eq!(state.load_newest(directory.join("run"), true)?, Some(7));
        ctx.finalize()
    });
    let store = Store::file(directory.join("store")).unwrap();
    store.set("key", b"value").unwrap();
    assert!(directory.join("store").exists());
    drop(store);
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn the_whole_state_by_one_call() {
    let directory = std::env::temp_dir().join(format!("nxd-rust-state-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let root = directory.join("run").to_str().unwrap().to_string();
    let corpus = directory.join("text.txt");
    std::fs::write(&corpus, "one two three four five six").unwrap();
    on_ranks(2, |ctx| {
        let mut rule = adamw(&ctx)?;
        let paths = [&corpus];
        let loader = DataLoader::open(&ctx, &paths, 1, 4, &DataLoaderOptions::default())?;
        let mut state = TrainingState::new(&ctx)?;
        state.add_optimizer("optimizer", &rule)?;
        state.add_data_loader("data", &loader)?;
        assert_eq!(state.load_newest(&root, true)?, None);
        state.set_value("note", "first")?;
        loader.next(&mut [0; 4], None)?;
        rule.step(&FinishOptions::default())?;
        state.save(&root, 1, 0)?;
        loader.next(&mut [0; 4], None)?;
        rule.step(&FinishOptions::default())?;
        state.set_value("note", "second")?;
        state.save_async(&root, 2, 0)?;
        state.wait(Some(LIMIT))?;
        let first = Checkpoint::open(&ctx, &root, 1, true)?;
        state.restore(&first)?;
        assert_eq!((state.value("note")?.as_deref(), loader.position()?), (Some("first"), 2));
        drop(rule);
        assert_eq!(state.load_newest(&root, true)?, Some(2));
        assert_eq!((state.value("note")?.as_deref(), loader.position()?), (Some("second"), 4));
        let own = Checkpoint::create(&ctx, &root, 3)?;
        state.snapshot(&own)?;
        assert_eq!(state.restore(&own).unwrap_err().status(), Status::INVALID_STATE);
        own.publish(1)?;
        ctx.finalize()
    });
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_text_of_one_rank_fails_all() {
    let directory = std::env::temp_dir().join(format!("nxd-rust-texts-{}", std::process::id()));
    let root = directory.to_str().unwrap().to_string();
    on_ranks(2, |ctx| {
        let mut rule = adamw(&ctx)?;
        let mut state = TrainingState::new(&ctx)?;
        let begun = Checkpoint::create(&ctx, &root, 1)?;
        let own = ctx.rank()? == 1;
        let path = format!("{}{}", root, if own { "\0" } else { "" });
        let name = if own { "a\0" } else { "a" };
        rule.step(&FinishOptions::default())?;
        let ends = [
            Checkpoint::create(&ctx, &path, 2).map(drop),
            Checkpoint::open(&ctx, &path, 1, true).map(drop),
            Checkpoint::open_newest(&ctx, &path, true).map(drop),
            state.save(&path, 2, 0),
            state.save_async(&path, 2, 0),
            state.load_newest(&path, true).map(drop),
            rule.save(&path),
            rule.snapshot(&begun, name),
        ];
        for end in ends {
            let error = end.unwrap_err();
            assert_eq!(error.status(), Status::INVALID_ARGUMENT);
            let part = if own { "expected no NUL" } else { "rank 1 rejected its arguments" };
            assert!(error.message().contains(part), "{}", error);
        }
        drop(begun);
        ctx.finalize()
    });
    std::fs::remove_dir_all(directory).unwrap();
}

/// The library reads no values that a rank may write meanwhile, and no rank waits for that one.
#[test]
fn values_borrowed_on_one_rank_fail_all() {
    let directory = std::env::temp_dir().join(format!("nxd-rust-borrowed-{}", std::process::id()));
    let root = directory.to_str().unwrap().to_string();
    on_ranks(2, |ctx| {
        let ddp = ddp(&ctx)?;
        let rule = Optimizer::adamw(&ddp, &AdamwOptions::default())?;
        let mut state = TrainingState::new(&ctx)?;
        state.add_optimizer("optimizer", &rule)?;
        let begun = Checkpoint::create(&ctx, &root, 1)?;
        let own = ctx.rank()? == 1;
        let values = own.then(|| ddp.arrays()[0].values_mut::<f32>()).transpose()?;
        let ends = [
            rule.snapshot(&begun, "a"),
            state.save(&root, 2, 0),
            state.save_async(&root, 2, 0),
            state.snapshot(&begun),
        ];
        let wanted = if own { Status::INVALID_STATE } else { Status::INVALID_ARGUMENT };
        for end in ends {
            let error = end.unwrap_err();
            assert_eq!(error.status(), wanted, "{}", error);
        }
        drop((values, begun));
        ctx.world_group()?.barrier()?;
        state.save(&root, 2, 0)?;
        ctx.finalize()
    });
    std::fs::remove_dir_all(directory).unwrap();
}
