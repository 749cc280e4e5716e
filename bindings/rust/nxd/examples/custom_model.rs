//! A model, an activation and a loss of one's own, in Rust: a two-layer network split over two ranks
//! whose forward function, snake activation (Ziyin et al. 2020) and Huber loss are closures, trained
//! on data made by a formula. Losses do not depend on the number of ranks.
//!
//!     NXD_CPU_MODE=1 cargo run --example custom_model
use nxd::layers::{column_parallel_linear, row_parallel_linear, LinearOptions, Toggle};
use nxd::{
    AdamwOptions, Context, Function, Module, Optimizer, Owned, ParallelOptions, Result, Tensor,
};

const SAMPLES: i64 = 16;
const FEATURES: i64 = 6;
const HIDDEN: i64 = 8;
const STEPS: usize = 30;
/// Frequency of snake.
const FREQUENCY: f64 = 1.5;
/// Where Huber's loss turns from a square to a line.
const DELTA: f64 = 0.5;

/// A tensor of values with the shape of another.
fn like(values: Vec<f32>, other: &Tensor) -> Result<Owned<Tensor>> {
    Tensor::from_vec(values, &other.shape()?)
}

/// snake(z) = z + sin(a z)^2 / a, with the slope 1 + sin(2 a z).
fn snake() -> Result<Owned<Function>> {
    Function::builder("example::snake", |call, inputs| {
        let z = inputs.get(0)?;
        call.save(z)?;
        let wave = |z: f32| {
            let wave = (FREQUENCY * f64::from(z)).sin();
            (f64::from(z) + wave * wave / FREQUENCY) as f32
        };
        Ok(vec![like(z.to_vec::<f32>()?.into_iter().map(wave).collect(), z)?])
    })
    .backward(|call, grads| {
        let grad = match grads.optional(0) {
            Some(grad) => grad.to_vec::<f32>()?,
            None => return Ok(vec![None]), // zero, so the input's gradient is none
        };
        let z = call.saved(0)?;
        let slope = |(g, z): (f32, f32)| {
            (f64::from(g) * (1.0 + (2.0 * FREQUENCY * f64::from(z)).sin())) as f32
        };
        let values = grad.into_iter().zip(z.to_vec::<f32>()?).map(slope).collect();
        Ok(vec![Some(like(values, z)?)])
    })
    .build()
}

fn differences(prediction: &Tensor, target: &Tensor) -> Result<Vec<f64>> {
    let (prediction, target) = (prediction.to_vec::<f32>()?, target.to_vec::<f32>()?);
    Ok(prediction.iter().zip(&target).map(|(&p, &t)| f64::from(p) - f64::from(t)).collect())
}

/// The mean of Huber's loss of prediction - target; the target gets no gradient.
fn huber() -> Result<Owned<Function>> {
    Function::builder("example::huber", |call, inputs| {
        let (prediction, target) = (inputs.get(0)?, inputs.get(1)?);
        call.save(prediction)?;
        call.save(target)?;
        let loss = |error: &f64| match error.abs() {
            error if error <= DELTA => 0.5 * error * error,
            error => DELTA * (error - 0.5 * DELTA),
        };
        let errors = differences(prediction, target)?;
        let mean = errors.iter().map(loss).sum::<f64>() / errors.len() as f64;
        Ok(vec![Tensor::scalar(mean as f32)?])
    })
    .backward(|call, grads| {
        let scale = match grads.optional(0) {
            Some(grad) => grad.item()?,
            None => return Ok(vec![None, None]),
        };
        let (prediction, target) = (call.saved(0)?, call.saved(1)?);
        let errors = differences(prediction, target)?;
        let n = errors.len() as f64;
        let grad = errors.iter().map(|e| (e.clamp(-DELTA, DELTA) * scale / n) as f32).collect();
        Ok(vec![Some(like(grad, prediction)?), None])
    })
    .build()
}

/// Overwrites a parameter, wherever its shards are, with amplitude * sin(rate * index + phase).
fn set_wave(model: &Module, name: &str, amplitude: f64, rate: f64, phase: f64) -> Result<()> {
    let parameter = model.parameter(name)?;
    let shape = parameter.global_shape()?;
    let wave = |i: i64| (amplitude * (rate * i as f64 + phase).sin()) as f32;
    let values = (0..shape.iter().product()).map(wave).collect();
    parameter.set_full(&*Tensor::from_vec::<f32>(values, &shape)?)
}

/// The model: (x, target) -> loss.
fn make_model(ctx: &Context) -> Result<Owned<Module>> {
    let (snake, huber) = (snake()?, huber()?);
    let model = Module::create(ctx, "SnakeNetwork", move |this, inputs, _| {
        let z = this.module("up")?.forward(&[inputs.get(0)?])?;
        let h = snake.apply(&[&*z], 1)?;
        let y = this.module("down")?.forward(&[&*h[0]])?;
        huber.apply(&[&*y, inputs.get(1)?], 1)
    })?;
    let up = LinearOptions { gather_output: Toggle::OFF, ..Default::default() };
    let down = LinearOptions { input_is_parallel: 1, ..Default::default() };
    model.add_child("up", &*column_parallel_linear(ctx, FEATURES, HIDDEN, &up)?)?;
    model.add_child("down", &*row_parallel_linear(ctx, HIDDEN, 1, &down)?)?;
    let quarter = std::f64::consts::FRAC_PI_2; // a sine so much further on is a cosine
    set_wave(&model, "up.weight", 0.5, 0.7, 0.3)?;
    set_wave(&model, "up.bias", 0.1, 1.0, quarter)?;
    set_wave(&model, "down.weight", 0.4, 0.9, 0.2 + quarter)?;
    set_wave(&model, "down.bias", 0.05, 0.0, quarter)?;
    Ok(model)
}

fn main() -> Result<()> {
    if nxd::launch(2)? {
        return Ok(());
    }
    let ctx = Context::create()?;
    let layout = ParallelOptions { tensor_parallel_size: ctx.size()?, ..Default::default() };
    ctx.init_model_parallel(&layout)?;
    let model = make_model(&ctx)?;
    let x = (0..SAMPLES * FEATURES).map(|i| (0.37 * i as f64 + 0.1).sin() as f32).collect();
    let x = Tensor::from_vec::<f32>(x, &[SAMPLES, FEATURES])?;
    let target = |i: f64| ((1.3 * i).sin() + 0.5 * (0.4 * i).cos()) as f32;
    let target = (0..SAMPLES).map(|i| target(i as f64)).collect();
    let target = Tensor::from_vec::<f32>(target, &[SAMPLES, 1])?;
    let adamw = AdamwOptions { learning_rate: 0.02, weight_decay: 0.01, ..Default::default() };
    let mut optimizer = Optimizer::adamw(&model, &adamw)?;
    for step in 0..STEPS {
        model.zero_grad()?;
        let loss = model.forward(&[&*x, &*target])?;
        loss.backward()?;
        optimizer.step(&Default::default())?;
        ctx.master_print(&format!("step {} loss {}", step, loss.item()?))?;
    }
    ctx.finalize()
}
