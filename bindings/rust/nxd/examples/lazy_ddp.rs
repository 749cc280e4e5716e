//! Data parallelism in its smallest form: a network of two linear layers, of which every rank has a
//! copy, on samples that the ranks share out anew each epoch. Eagerly on the CPU, or recorded on
//! device XLA, where a step is one graph:
//!
//!     NXD_CPU_MODE=1 cargo run --example lazy_ddp
//!     NXD_XLA_BACKEND=replay cargo run --example lazy_ddp
use nxd::layers::{column_parallel_linear, LinearOptions};
use nxd::{
    Axis, Context, Ddp, DdpOptions, DeviceLoader, Error, Module, Op, Optimizer, Owned,
    ParallelOptions, Reduce, Result, Sampler, SgdOptions, Status, Tensor,
};

const IN: usize = 10;
const HIDDEN: usize = 10;
const OUT: usize = 5;
const SAMPLES: i64 = 240;
const BATCH: usize = 24;
const EPOCHS: i64 = 10;

/// (x, target) -> mean squared error of net2(relu(net1(x)))
fn make_model(ctx: &Context) -> Result<Owned<Module>> {
    let model = Module::create(ctx, "Model", |this, inputs, _| {
        let z = this.module("net1")?.forward(&[inputs.get(0)?])?;
        let h = Op::call("relu", &[&*z])?;
        let y = this.module("net2")?.forward(&[&*h])?;
        Ok(vec![Op::call("mse_loss", &[&*y, inputs.get(1)?])?])
    })?;
    for (name, from, to) in [("net1", IN, HIDDEN), ("net2", HIDDEN, OUT)] {
        // Without tensor parallelism a column-parallel layer is a linear layer.
        let options = LinearOptions { name, device: nxd::device()?, ..Default::default() };
        let layer = column_parallel_linear(ctx, from as i64, to as i64, &options)?;
        model.add_child(name, &*layer)?;
    }
    Ok(model)
}

/// Features are waves of a sample's index, targets a function of the features.
fn make_batch(indices: &[i64]) -> Result<Vec<Owned<Tensor>>> {
    let (mut x, mut target) = (Vec::<f32>::new(), Vec::<f32>::new());
    for &index in indices {
        let wave = |i| (0.37 * index as f64 * (i + 1) as f64 + i as f64).sin() as f32;
        let row: Vec<f32> = (0..IN).map(wave).collect();
        target.extend((0..OUT).map(|o| row[o] * row[o + 1] + 0.5 * row[2 * o]));
        x.extend(row);
    }
    let rows = indices.len() as i64;
    Ok(vec![
        Tensor::from_vec(x, &[rows, IN as i64])?,
        Tensor::from_vec(target, &[rows, OUT as i64])?,
    ])
}

/// A thread makes the batches, which wait on the device.
fn load(indices: Vec<i64>, share: usize) -> Result<Owned<DeviceLoader>> {
    let mut at = 0;
    let next = move || {
        let batch = indices.get(at..at + share).map(make_batch).transpose();
        at += share;
        batch
    };
    DeviceLoader::from_fn(next, 2, nxd::device()?, &Default::default())
}

/// The mean of this rank's losses.
fn train_epoch(model: &Module, sgd: &mut Optimizer, loader: &DeviceLoader) -> Result<f64> {
    let (mut sum, mut steps) = (0.0, 0);
    while let Some(batch) = loader.next(2)? {
        model.zero_grad()?;
        let loss = model.forward(&[&*batch[0], &*batch[1]])?;
        loss.backward()?;
        sgd.step_without_report(&Default::default())?;
        nxd::mark_step(true)?;
        sum += loss.item()?; // known by now
        steps += 1;
    }
    Ok(sum / f64::from(steps))
}

fn main() -> Result<()> {
    if nxd::launch(2)? {
        return Ok(());
    }
    let ctx = Context::create()?;
    ctx.init_model_parallel(&ParallelOptions::default())?;
    let group = ctx.parallel_group(Axis::DATA)?;
    let (ranks, rank) = (group.size()?, group.rank()?);
    let share = BATCH / ranks as usize;
    if share == 0 {
        let message = format!("expected at most {} ranks, got {}", BATCH, ranks);
        return Err(Error::new(Status::USER, message));
    }
    let model = make_model(&ctx)?;
    let averaging = DdpOptions { reduce: Reduce::AVG, ..Default::default() };
    let ddp = Ddp::over_module(&model, &averaging)?;
    let options = SgdOptions { learning_rate: 0.05, ..Default::default() };
    let mut sgd = Optimizer::sgd(&ddp, &options)?;
    let sampler =
        Sampler { samples: SAMPLES, ranks, rank, seed: 1, shuffle: true, drop_last: true };
    for epoch in 0..EPOCHS {
        let loader = load(sampler.epoch(epoch)?, share)?;
        let mut mean = [train_epoch(&model, &mut sgd, &loader)?];
        group.all_reduce_in_place(&mut mean, Reduce::AVG)?;
        ctx.master_print(&format!("epoch {} loss {:.6}", epoch, mean[0]))?;
    }
    let m = nxd::device_metrics()?;
    ctx.master_print(&format!(
        "steps {} compiles {} loads {} executions {} implicit_syncs {} fallbacks {}",
        m.steps, m.compiles, m.loads, m.executions, m.implicit_syncs, m.fallbacks
    ))?;
    ctx.finalize()
}
