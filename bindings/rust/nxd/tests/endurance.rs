//! Ten thousand objects of each type, made and dropped, leave memory as it was.
//! NXD_LONG=1: as many processes and files too.
#[path = "common/mod.rs"]
mod common;

use common::alone;
use nxd::{
    Array, Chunk, Context, Ddp, DdpOptions, Group, Job, Optimizer, PipelineSchedule,
    PipelineScheduleKind, Result, SpawnOptions, Stage, StageCall, StageOptions, StagePipeline,
    Store, View, ViewMut,
};

/// Resident memory of this process, in bytes.
fn resident() -> i64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    4096 * pages.split(' ').nth(1).unwrap().parse::<i64>().unwrap()
}

/// Less than 32 bytes for each object. Allocators take memory in steps, now and then; a leak takes it
/// in every round.
fn hold_flat(what: &str, times: i64, mut body: impl FnMut() -> Result<()>) {
    for _ in 0..times / 10 {
        body().unwrap();
    }
    let mut rounds = Vec::new();
    for _ in 0..3 {
        let before = resident();
        for _ in 0..times {
            body().unwrap();
        }
        rounds.push(resident() - before);
        if rounds[rounds.len() - 1] < 32 * times {
            break;
        }
    }
    println!("{}: {} objects, {:?} bytes more", what, times, rounds);
    assert!(rounds[rounds.len() - 1] < 32 * times, "{}: {:?} bytes more", what, rounds);
}

fn ddp(ctx: &Context) -> Result<Ddp> {
    let arrays = vec![Array::new("w", &[16], vec![0f32; 16])?];
    Ddp::over_arrays(ctx, None, arrays, &DdpOptions::default())
}

struct Nothing(Vec<u8>);

impl Stage for Nothing {
    fn forward(
        &mut self,
        _: &StageCall,
        _: &[View<'_>],
        _: &mut [ViewMut<'_>],
    ) -> Result<Option<f64>> {
        Ok(Some(self.0.len() as f64))
    }

    fn backward(
        &mut self,
        _: &StageCall,
        _: &[View<'_>],
        _: &[Option<View<'_>>],
        _: &mut [Option<ViewMut<'_>>],
    ) -> Result<()> {
        Ok(())
    }
}

fn communication(n: i64, long: bool) {
    hold_flat("stores", n, || Store::local()?.set("key", &[1; 100]));
    hold_flat("contexts", n, || {
        drop(alone());
        Ok(())
    });
    let ctx = alone();
    hold_flat("groups", n, || Group::create(&ctx, &[0], "g").map(drop));
    let world = ctx.world_group().unwrap();
    hold_flat("works", n, || {
        let work = world.all_reduce_async(vec![1f32; 64], nxd::Reduce::SUM)?;
        work.wait().map(drop)
    });
    hold_flat("works without a wait", n, || {
        drop(world.barrier_async()?);
        // Cancelled ones keep their places until their turn comes.
        world.barrier()
    });
    hold_flat("arenas", n, || ctx.arena::<f32>(64).map(drop));
    hold_flat("errors", n, || {
        world.broadcast(&mut [0f32], 5).unwrap_err();
        Ok(())
    });
    hold_flat("ddps", n, || ddp(&ctx).map(drop));
    hold_flat("optimizers", n, || Optimizer::adamw(&ddp(&ctx)?, &Default::default()).map(drop));
    hold_flat("rules", n, || {
        let held = vec![0u8; 1000];
        let rule = move |_: &mut nxd::Update<'_>| {
            assert!(!held.is_empty());
            Ok(())
        };
        let mut optimizer = Optimizer::custom(&ddp(&ctx)?, &Default::default(), rule)?;
        optimizer.step(&Default::default()).map(drop)
    });
    let kind = PipelineScheduleKind::_1F1B;
    hold_flat("schedules", n, || PipelineSchedule::create(kind, 2, 1, 4).map(drop));
    ctx.init_model_parallel(&Default::default()).unwrap();
    let options = StageOptions { num_microbatches: 1, ..Default::default() };
    hold_flat("pipelines", n, || {
        let chunks = [Chunk::default()];
        StagePipeline::create(&ctx, &options, &chunks, Nothing(vec![0; 1000]))?.train().map(drop)
    });
    let program = vec!["/bin/true".to_string()];
    let options = SpawnOptions { processes: 1, arguments: program, ..Default::default() };
    let jobs = if long { n } else { n / 50 };
    hold_flat("jobs", jobs, || Job::spawn(&options)?.wait(None));
}

#[cfg(feature = "engine")]
fn engine(n: i64, long: bool) {
    use nxd::{layers, DType, Function, Module, Op, ParameterOptions, Tensor};
    let ctx = alone();
    ctx.init_model_parallel(&Default::default()).unwrap();
    hold_flat("tensors", n, || Tensor::from_vec(vec![0f32; 256], &[256])?.retain().map(drop));
    hold_flat("dlpack", n, || Tensor::from_slice(&[0f32; 256], &[256])?.to_dlpack().map(drop));
    let x = Tensor::from_slice(&[1f32; 8], &[2, 4]).unwrap();
    x.set_requires_grad(true).unwrap();
    hold_flat("operators", n, || {
        let op = Op::new("square", "")?;
        op.set("self", &*x)?.run()?.tensor(0)?.shape().map(drop)
    });
    hold_flat("functions", n, || {
        let held = vec![0u8; 1000];
        let same = Function::builder("endurance::same", move |call, inputs| {
            assert!(!held.is_empty());
            call.save(inputs.get(0)?)?;
            Ok(vec![inputs.get(0)?.retain()?])
        });
        let same = same.backward(|_, grads| Ok(vec![Some(grads.get(0)?.retain()?)])).build()?;
        let y = same.apply(&[&*x], 1)?.remove(0);
        Op::call("sum", &[&*y])?.backward()
    });
    hold_flat("modules", n, || {
        let held = vec![0u8; 1000];
        let module = Module::create(&ctx, "Same", move |_, inputs, _| {
            assert!(!held.is_empty());
            Ok(vec![inputs.get(0)?.retain()?])
        })?;
        module.add_parameter("w", &[4], &ParameterOptions::default())?;
        module.parameter("w")?.set_grad_hook(|_| Ok(()))?;
        module.forward(&[&*x]).map(drop)
    });
    let bare = layers::LinearOptions { dtype: DType::F32, ..Default::default() };
    let layer = layers::column_parallel_linear(&ctx, 4, 4, &bare).unwrap();
    hold_flat("layers", n, || layers::column_parallel_linear(&ctx, 4, 4, &bare).map(drop));
    hold_flat("tapes", n, || {
        let (y, tape) = layer.forward_tape(&[Some(&x)], 1)?;
        tape.backward(&[Some(&y[0])], 1).map(drop)
    });
    hold_flat("optimizers of modules", n, || {
        Optimizer::adamw(&layer, &Default::default()).map(drop)
    });
    hold_flat("ddps of modules", n, || Ddp::over_module(&layer, &Default::default()).map(drop));
    let path = std::env::temp_dir().join(format!("nxd-endurance-{}", std::process::id()));
    let path = path.to_str().unwrap();
    layer.save_safetensors(path).unwrap();
    let loads = if long { n } else { n / 10 };
    hold_flat("load reports", loads, || layer.load_safetensors(path, true).map(drop));
    std::fs::remove_file(path).unwrap();
}

/// One test, so that nothing else moves the process's memory meanwhile.
#[test]
fn memory_holds_flat() {
    let long = std::env::var_os("NXD_LONG").is_some();
    communication(10_000, long);
    #[cfg(feature = "engine")]
    engine(10_000, long);
}
