//! The data and first weights of the examples with frameworks: those of examples/c/embed_zero1.c.
use candle_core::{Device, Result, Tensor, Var};

pub const FEATURES: usize = 12;
pub const HIDDEN: usize = 32;
pub const CLASSES: usize = 4;
pub const SAMPLES: usize = 64;
pub const STEPS: usize = 40;
pub const RATE: f64 = 0.02;
pub const DECAY: f64 = 0.01;

/// Class c is where a wave of the features is in its c-th quarter.
pub fn samples() -> Result<(Tensor, Tensor)> {
    let (mut xs, mut labels) = (Vec::new(), Vec::new());
    for index in 1..=SAMPLES {
        let wave = |i: usize| (0.7 * index as f64 * (i + 1) as f64 + 0.2 * i as f64).sin();
        let sum: f64 = (0..FEATURES).map(|i| wave(i) * (1.1 * i as f64).cos()).sum();
        xs.extend((0..FEATURES).map(|i| wave(i) as f32));
        let class = (0.5 + 0.5 * sum.sin()) * CLASSES as f64;
        labels.push((class as u32).min(CLASSES as u32 - 1));
    }
    let x = Tensor::from_vec(xs, (SAMPLES, FEATURES), &Device::Cpu)?;
    Ok((x, Tensor::from_vec(labels, SAMPLES, &Device::Cpu)?))
}

/// An equal part of so many for each rank along an axis.
pub fn part(count: usize, what: &str, ranks: usize, axis: &str) -> Result<usize> {
    if count % ranks != 0 {
        candle_core::bail!("{} {} do not divide by {} {}-parallel ranks", count, what, ranks, axis);
    }
    Ok(count / ranks)
}

/// w1, b1, w2, b2: this rank's parts of the first layer's outputs and of the second one's inputs.
pub fn weights(rank: usize, ranks: usize) -> Result<Vec<Var>> {
    let grid = |count: usize, value: &dyn Fn(f64) -> f64, shape: (usize, usize)| {
        let values: Vec<f32> = (0..count).map(|i| (0.3 * value(i as f64)) as f32).collect();
        Tensor::from_vec(values, shape, &Device::Cpu)
    };
    let part = part(HIDDEN, "hidden units", ranks, "tensor")?;
    let w1 = grid(HIDDEN * FEATURES, &|i| (1.7 * i).sin(), (HIDDEN, FEATURES))?;
    let w2 = grid(CLASSES * HIDDEN, &|i| (2.3 * i).cos(), (CLASSES, HIDDEN))?;
    let zeros = |count: usize| Tensor::zeros(count, candle_core::DType::F32, &Device::Cpu);
    [
        w1.narrow(0, rank * part, part)?.copy()?,
        zeros(part)?,
        w2.narrow(1, rank * part, part)?.copy()?,
        zeros(CLASSES)?,
    ]
    .iter()
    .map(Var::from_tensor)
    .collect()
}

/// Cross entropy, summed over these samples and divided by the number of all.
pub fn loss_of(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    let largest = logits.max_keepdim(1)?.detach();
    let shifted = logits.broadcast_sub(&largest)?;
    let log_sum = shifted.exp()?.sum_keepdim(1)?.log()?;
    let ours = shifted.broadcast_sub(&log_sum)?.gather(&labels.unsqueeze(1)?, 1)?;
    ours.sum_all()? * (-1.0 / SAMPLES as f64)
}
