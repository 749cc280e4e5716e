//! A classifier with two layers in candle alone, in one process, with AdamW. mlp_parallel.rs is the
//! same over several ranks.
mod problem;
use candle_core::{Result, Tensor, Var};
use problem::*;

fn mlp(p: &[Var], x: &Tensor) -> Result<Tensor> {
    let h = x.matmul(&p[0].t()?)?.broadcast_add(&p[1])?.tanh()?;
    h.matmul(&p[2].t()?)?.broadcast_add(&p[3])
}

/// Moments of one parameter.
struct Moments {
    first: Tensor,
    second: Tensor,
}

fn adamw(value: &Var, gradient: &Tensor, moments: &mut Moments, count: i32) -> Result<()> {
    moments.first = ((&moments.first * 0.9)? + (gradient * 0.1)?)?;
    moments.second = ((&moments.second * 0.999)? + (gradient.sqr()? * 0.001)?)?;
    let first = (&moments.first / (1.0 - 0.9f64.powi(count)))?;
    let second = (&moments.second / (1.0 - 0.999f64.powi(count)))?;
    let scaled = (first / (second.sqrt()? + 1e-8)?)?;
    let decayed = (value.as_tensor() * (1.0 - RATE * DECAY))?;
    value.set(&(decayed - (scaled * RATE)?)?)
}

fn main() -> Result<()> {
    let (x, labels) = samples()?;
    let params = weights(0, 1)?;
    let zeros = |p: &Var| Ok(Moments { first: p.zeros_like()?, second: p.zeros_like()? });
    let mut moments = params.iter().map(zeros).collect::<Result<Vec<_>>>()?;
    for step in 0..STEPS {
        let loss = loss_of(&mlp(&params, &x)?, &labels)?;
        let gradients = loss.backward()?;
        for (p, m) in params.iter().zip(&mut moments) {
            adamw(p, gradients.get(p).expect("a gradient"), m, step as i32 + 1)?;
        }
        println!("step {} loss {:.6}", step, loss.to_scalar::<f32>()?);
    }
    Ok(())
}
