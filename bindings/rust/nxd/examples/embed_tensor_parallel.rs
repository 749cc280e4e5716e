//! Tensor parallelism and ZeRO-1 inside a program that owns all of its memory: weights, gradients
//! and activations are vectors of the program's. libnxd multiplies what each rank has of the
//! weights, sums over the ranks, and divides the optimizer's state; the rest is plain Rust. Needs no
//! libtorch. Losses do not depend on the ranks.
//!
//!     cargo run --no-default-features --example embed_tensor_parallel 2 2   # ranks, tensor parallel
//!     cargo run --no-default-features --example embed_tensor_parallel 2 1   # ZeRO-1 over two ranks
use nxd::layers::*;
use nxd::{
    AdamwOptions, Array, Axis, Context, Ddp, DdpOptions, Error, FinishOptions, Optimizer, Owned,
    ParallelOptions, Placement, Reduce, Result,
};

const FEATURES: usize = 12;
const HIDDEN: usize = 32;
const CLASSES: usize = 4;
const SAMPLES: usize = 64;
const STEPS: usize = 40;

/// Indices of the parameters, in the order of use.
const W1: usize = 0;
const B1: usize = 1;
const W2: usize = 2;
const B2: usize = 3;

struct Program {
    ctx: Owned<Context>,
    ddp: Ddp,
    optimizer: Optimizer,
    /// Units between the layers that this rank has, and samples that it takes.
    part: usize,
    count: usize,
    x: Vec<f32>,
    labels: Vec<i32>,
}

/// Class c is where a wave of the features is in its c-th quarter.
fn sample(index: usize) -> (Vec<f32>, i32) {
    let x: Vec<f32> = (0..FEATURES)
        .map(|i| (0.7 * (index + 1) as f64 * (i + 1) as f64 + 0.2 * i as f64).sin() as f32)
        .collect();
    let sum: f64 = x.iter().enumerate().map(|(i, &x)| f64::from(x) * (1.1 * i as f64).cos()).sum();
    let place = 0.5 + 0.5 * sum.sin();
    (x, ((place * CLASSES as f64) as usize).min(CLASSES - 1) as i32)
}

/// This rank's part of a weight that starts the same, however many ranks divide it.
fn weight(ctx: &Context, name: &str, rows: usize, cols: usize, dim: i32) -> Result<Array> {
    let mut values = vec![0f32; rows * cols];
    let shape = [rows as i64, cols as i64];
    let part = ShardOptions { has_dim: 1, dim, ..Default::default() };
    let mut shard = Out::new(&mut values, &shape);
    shard_initialize(ctx, name, Init::NORMAL, 0.0, 0.3, &part, &mut shard)?;
    Array::new(name, &shape, values)
}

fn make(tensor_parallel_size: i32) -> Result<Program> {
    let ctx = Context::create()?;
    ctx.init_model_parallel(&ParallelOptions { tensor_parallel_size, ..Default::default() })?;
    let (tp, dp) = (ctx.parallel_size(Axis::TENSOR)?, ctx.parallel_size(Axis::DATA)?);
    let (tp, dp) = (tp as usize, dp as usize);
    if HIDDEN % tp != 0 || SAMPLES % dp != 0 {
        return Err(Error::user(format!(
            "{} units do not divide by {} ranks, or {} samples by {}",
            HIDDEN, tp, SAMPLES, dp
        )));
    }
    let (part, count) = (HIDDEN / tp, SAMPLES / dp);
    let first = count * ctx.parallel_rank(Axis::DATA)? as usize;
    let (rows, labels): (Vec<_>, Vec<_>) = (first..first + count).map(sample).unzip();

    let arrays = vec![
        weight(&ctx, "w1", part, FEATURES, 0)?,
        Array::new("b1", &[part as i64], vec![0f32; part])?,
        weight(&ctx, "w2", CLASSES, part, 1)?,
        Array::new("b2", &[CLASSES as i64], vec![0f32; CLASSES])?,
    ];
    // Two buckets, so that there is something to overlap.
    let options = DdpOptions { zero_stage: 1, bucket_bytes: 1024, ..Default::default() };
    let ddp = Ddp::over_arrays(&ctx, None, arrays, &options)?;
    // So that the norm that gradients are clipped by is that of the undivided network.
    ddp.set_placements(&[
        Placement::Sharded(0),
        Placement::Sharded(0),
        Placement::Sharded(1),
        Placement::Replicated,
    ])?;
    let adamw = AdamwOptions { learning_rate: 0.02, ..Default::default() };
    let optimizer = Optimizer::adamw(&ddp, &adamw)?;
    Ok(Program { ctx, ddp, optimizer, part, count, x: rows.concat(), labels })
}

/// The loss of this rank's samples, and the gradient of the logits: softmax, less one for the right
/// class.
fn cross_entropy(z: &[f32], labels: &[i32]) -> (f64, Vec<f32>) {
    let (mut loss, mut dz) = (0.0, vec![0f32; z.len()]);
    for ((z, dz), &label) in z.chunks(CLASSES).zip(dz.chunks_mut(CLASSES)).zip(labels) {
        let largest = z.iter().fold(f64::MIN, |most, &z| most.max(f64::from(z)));
        let sum: f64 = z.iter().map(|&z| (f64::from(z) - largest).exp()).sum();
        for (c, (dz, &z)) in dz.iter_mut().zip(z).enumerate() {
            let p = (f64::from(z) - largest).exp() / sum;
            let wrong = if c == label as usize { 1.0 } else { 0.0 };
            *dz = ((p - wrong) / SAMPLES as f64) as f32;
        }
        loss -= (f64::from(z[label as usize]) - largest - sum.ln()) / SAMPLES as f64;
    }
    (loss, dz)
}

impl Program {
    /// softmax(w2 tanh(w1 x + b1) + b2), and its gradients.
    fn forward_and_backward(&self) -> Result<f64> {
        let (ctx, p) = (&*self.ctx, self.ddp.arrays());
        let (n, part) = (self.count as i64, self.part as i64);
        let (features, classes) = (FEATURES as i64, CLASSES as i64);
        let x = In::new(&self.x, &[n, features]);
        let (column, row) = (ColumnLinearOptions::default(), RowLinearOptions::default());
        let (w1, b1) = (p[W1].values::<f32>()?, p[B1].values::<f32>()?);
        let (w2, b2) = (p[W2].values::<f32>()?, p[B2].values::<f32>()?);
        let w1 = In::new(&w1, &[part, features]);
        let w2 = In::new(&w2, &[classes, part]);

        // Column-parallel: every rank has x, and gets its own units of h.
        let mut h = vec![0f32; self.count * self.part];
        let bias = In::new(&b1, &[part]);
        let mut out = Out::new(&mut h, &[n, part]);
        column_linear_forward(ctx, &x, &w1, Some(&bias), &column, &mut out)?;
        h.iter_mut().for_each(|h| *h = h.tanh());
        // Row-parallel: z is the sum over ranks, the same on all of them.
        let mut z = vec![0f32; self.count * CLASSES];
        let (units, bias) = (In::new(&h, &[n, part]), In::new(&b2, &[classes]));
        let mut out = Out::new(&mut z, &[n, classes]);
        row_linear_forward(ctx, &units, &w2, Some(&bias), &row, &mut out)?;

        let (loss, dz) = cross_entropy(&z, &self.labels);
        let mut dh = vec![0f32; h.len()];
        {
            let mut g_w2 = p[W2].gradient_mut::<f32>()?;
            let mut g_b2 = p[B2].gradient_mut::<f32>()?;
            row_linear_backward(
                ctx,
                &units,
                &w2,
                &In::new(&dz, &[n, classes]),
                &row,
                Some(&mut Out::new(&mut dh, &[n, part])),
                Some(&mut Out::new(&mut g_w2, &[classes, part])),
                Some(&mut Out::new(&mut g_b2, &[classes])),
            )?;
        }
        self.ddp.mark_ready(B2)?;
        self.ddp.mark_ready(W2)?; // their bucket may travel during what follows
        dh.iter_mut().zip(&h).for_each(|(dh, h)| *dh *= 1.0 - h * h);
        {
            let mut g_w1 = p[W1].gradient_mut::<f32>()?;
            let mut g_b1 = p[B1].gradient_mut::<f32>()?;
            // x has no gradient to ask for, so nothing is summed here.
            column_linear_backward(
                ctx,
                &x,
                &w1,
                &In::new(&dh, &[n, part]),
                &column,
                None,
                Some(&mut Out::new(&mut g_w1, &[part, features])),
                Some(&mut Out::new(&mut g_b1, &[part])),
            )?;
        }
        self.ddp.mark_ready(B1)?;
        self.ddp.mark_ready(W1)?;
        Ok(loss)
    }

    fn train_step(&mut self, step: usize) -> Result<()> {
        let mut loss = [self.forward_and_backward()?];
        let finish = FinishOptions { max_norm: 0.5, ..Default::default() };
        let report = self.optimizer.step(&finish)?;
        let samples = self.ctx.parallel_group(Axis::DATA)?;
        samples.all_reduce_in_place(&mut loss, Reduce::SUM)?;
        let line = format!("step {} loss {:.6} norm {:.6}", step, loss[0], report.norm);
        self.ctx.master_print(&line)
    }
}

fn main() -> Result<()> {
    let arguments: Vec<i32> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let ranks = arguments.first().copied().unwrap_or(2);
    if nxd::launch(ranks)? {
        return Ok(());
    }
    let mut program = make(arguments.get(1).copied().unwrap_or(ranks))?;
    for step in 0..STEPS {
        program.train_step(step)?;
    }
    let Program { ctx, .. } = program;
    ctx.finalize()
}
