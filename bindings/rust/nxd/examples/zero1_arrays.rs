//! ZeRO-1 inside a program that has its own model: a two-layer network, its backward pass and its
//! arrays are plain Rust, and libnxd reduces the gradients while the backward pass goes on, keeps the
//! optimizer's state divided over the ranks and updates the weights in place. Needs no libtorch.
//! Losses do not depend on the number of ranks.
//!
//!     cargo run --no-default-features --example zero1_arrays
use nxd::{
    AdamwOptions, Array, Context, Ddp, DdpOptions, FinishOptions, Hyperparameter, Optimizer,
    Reduce, Result,
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

/// Class c is where a wave of the features is in its c-th quarter.
fn sample(index: usize) -> (Vec<f32>, usize) {
    let x: Vec<f32> = (0..FEATURES)
        .map(|i| (0.7 * (index + 1) as f64 * (i + 1) as f64 + 0.2 * i as f64).sin() as f32)
        .collect();
    let sum: f64 = x.iter().enumerate().map(|(i, &x)| f64::from(x) * (1.1 * i as f64).cos()).sum();
    let place = 0.5 + 0.5 * sum.sin();
    (x, ((place * CLASSES as f64) as usize).min(CLASSES - 1))
}

struct Activations {
    x: Vec<f32>,
    h: Vec<f32>,
    /// Probabilities of the classes, less one for the right one.
    dz: Vec<f32>,
}

/// softmax(w2 tanh(w1 x + b1) + b2), and its cross entropy.
fn forward(ddp: &Ddp, index: usize) -> Result<(f64, Activations)> {
    let p = ddp.arrays();
    let (w1, b1) = (p[W1].values::<f32>()?, p[B1].values::<f32>()?);
    let (w2, b2) = (p[W2].values::<f32>()?, p[B2].values::<f32>()?);
    let dot = |b: f32, w: &[f32], x: &[f32]| -> f64 {
        w.iter().zip(x).fold(f64::from(b), |sum, (&w, &x)| sum + f64::from(w) * f64::from(x))
    };
    let (x, label) = sample(index);
    let h: Vec<f32> =
        w1.chunks(FEATURES).zip(b1.iter()).map(|(w, &b)| dot(b, w, &x).tanh() as f32).collect();
    let z: Vec<f64> = w2.chunks(HIDDEN).zip(b2.iter()).map(|(w, &b)| dot(b, w, &h)).collect();
    let largest = z.iter().copied().fold(f64::MIN, f64::max);
    let sum: f64 = z.iter().map(|z| (z - largest).exp()).sum();
    let mut dz: Vec<f32> = z.iter().map(|z| ((z - largest).exp() / sum) as f32).collect();
    dz[label] -= 1.0;
    Ok((-(z[label] - largest - sum.ln()), Activations { x, h, dz }))
}

/// Adds the gradients of the second layer; gives those of the first layer's output.
fn backward_head(ddp: &Ddp, a: &Activations) -> Result<Vec<f32>> {
    let p = ddp.arrays();
    let w2 = p[W2].values::<f32>()?;
    let (mut g_w2, mut g_b2) = (p[W2].gradient_mut::<f32>()?, p[B2].gradient_mut::<f32>()?);
    let mut dh = vec![0.0; HIDDEN];
    for c in 0..CLASSES {
        let dz = a.dz[c] / SAMPLES as f32;
        g_b2[c] += dz;
        for j in 0..HIDDEN {
            g_w2[c * HIDDEN + j] += dz * a.h[j];
            dh[j] += dz * w2[c * HIDDEN + j];
        }
    }
    Ok(dh)
}

fn backward_body(ddp: &Ddp, a: &Activations, dh: &[f32]) -> Result<()> {
    let p = ddp.arrays();
    let (mut g_w1, mut g_b1) = (p[W1].gradient_mut::<f32>()?, p[B1].gradient_mut::<f32>()?);
    for j in 0..HIDDEN {
        let ds = dh[j] * (1.0 - a.h[j] * a.h[j]);
        g_b1[j] += ds;
        for i in 0..FEATURES {
            g_w1[j * FEATURES + i] += ds * a.x[i];
        }
    }
    Ok(())
}

fn make_optimizer(ctx: &Context) -> Result<(Ddp, Optimizer)> {
    // Only rank 0's weights count: the others get them from it.
    let wave = |n: usize, f: fn(f64) -> f64| -> Vec<f32> {
        (0..n).map(|i| (0.3 * f(i as f64)) as f32).collect()
    };
    let (features, hidden, classes) = (FEATURES as i64, HIDDEN as i64, CLASSES as i64);
    let arrays = vec![
        Array::new("w1", &[hidden, features], wave(HIDDEN * FEATURES, |i| (1.7 * i).sin()))?,
        Array::new("b1", &[hidden], vec![0f32; HIDDEN])?,
        Array::new("w2", &[classes, hidden], wave(CLASSES * HIDDEN, |i| (2.3 * i).cos()))?,
        Array::new("b2", &[classes], vec![0f32; CLASSES])?,
    ];
    // Two buckets, so that there is something to overlap.
    let options = DdpOptions { zero_stage: 1, bucket_bytes: 1024, ..Default::default() };
    let ddp = Ddp::over_arrays(ctx, None, arrays, &options)?;
    let adamw = AdamwOptions { learning_rate: 0.02, weight_decay: 0.01, ..Default::default() };
    let mut optimizer = Optimizer::adamw(&ddp, &adamw)?;
    let biases = optimizer.add_group(&["b?"])?;
    optimizer.set(Some(biases), Hyperparameter::WEIGHT_DECAY, 0.0)?;
    Ok((ddp, optimizer))
}

/// Every rank takes its share of the samples; the sum of the ranks' gradients is the whole's.
fn train_step(ctx: &Context, ddp: &Ddp, optimizer: &mut Optimizer, step: usize) -> Result<()> {
    let (rank, size) = (ctx.rank()? as usize, ctx.size()? as usize);
    for array in ddp.arrays() {
        array.gradient_mut::<f32>()?.fill(0.0);
    }
    let mut loss = [0.0];
    let mut activations = Vec::new();
    for s in SAMPLES * rank / size..SAMPLES * (rank + 1) / size {
        let (value, a) = forward(ddp, s)?;
        loss[0] += value / SAMPLES as f64;
        activations.push(a);
    }
    let heads = activations.iter().map(|a| backward_head(ddp, a)).collect::<Result<Vec<_>>>()?;
    ddp.mark_ready(B2)?;
    ddp.mark_ready(W2)?; // its bucket may travel during what follows
    for (a, dh) in activations.iter().zip(&heads) {
        backward_body(ddp, a, dh)?;
    }
    ddp.mark_ready(B1)?;
    ddp.mark_ready(W1)?;
    let report = optimizer.step(&FinishOptions { max_norm: 1.0, ..Default::default() })?;
    ctx.world_group()?.all_reduce_in_place(&mut loss, Reduce::SUM)?;
    ctx.master_print(&format!("step {} loss {:.6} norm {:.6}", step, loss[0], report.norm))
}

fn main() -> Result<()> {
    if nxd::launch(2)? {
        return Ok(());
    }
    let ctx = Context::create()?;
    let (ddp, mut optimizer) = make_optimizer(&ctx)?;
    for step in 0..STEPS {
        train_step(&ctx, &ddp, &mut optimizer, step)?;
    }
    let weights: usize =
        ddp.arrays().iter().map(|a| 4 * a.values::<f32>().map_or(0, |v| v.len())).sum();
    ctx.master_print(&format!(
        "{} ranks; rank 0 keeps {} bytes of state for {} of weights",
        ctx.size()?,
        optimizer.state_bytes()?,
        weights
    ))?;
    ctx.finalize()
}
