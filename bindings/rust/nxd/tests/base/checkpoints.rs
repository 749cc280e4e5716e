use crate::common::on_ranks;
use nxd::{
    AdamwOptions, Array, Checkpoint, Context, Ddp, DdpOptions, FinishOptions, Optimizer, Result,
    Status,
};
use std::time::Duration;

fn adamw(ctx: &Context) -> Result<Optimizer> {
    let arrays = vec![Array::new("w", &[4, 3], vec![1f32; 12])?];
    let ddp = Ddp::over_arrays(ctx, None, arrays, &DdpOptions::default())?;
    Optimizer::adamw(&ddp, &AdamwOptions::default())
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
            checkpoint.wait(Some(Duration::from_secs(60)))?;
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
