//! An MLP of three layers that learns ten labels by SGD, made of operators alone. One switch runs
//! it eagerly on the CPU or recorded on device XLA:
//!
//!     NXD_CPU_MODE=1 cargo run --example lazy_mlp
//!     NXD_XLA_BACKEND=replay cargo run --example lazy_mlp
//!
//! It prints the losses, and what the device has done. The learning rate falls at every step, which
//! compiles nothing.
use nxd::{Op, Owned, Result, Tensor};

const SIZES: [i64; 4] = [784, 64, 64, 10];
const ROWS: i64 = 8;
const STEPS: i32 = 40;

/// Numbers in [-1, 1), the same on every machine and in every language.
struct Random(u32);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(1664525).wrapping_add(1013904223);
        (self.0 >> 8) as f32 / 8388608.0 - 1.0
    }

    fn matrix(&mut self, rows: i64, cols: i64, scale: f32) -> Result<Owned<Tensor>> {
        let values: Vec<f32> = (0..rows * cols).map(|_| self.next() * scale).collect();
        Tensor::from_vec(values, &[rows, cols])?.to_device(nxd::device()?)
    }
}

fn forward(weights: &[Owned<Tensor>], x: &Tensor, labels: &Tensor) -> Result<Owned<Tensor>> {
    let mut hidden = x.retain()?;
    for (i, weight) in weights.iter().enumerate() {
        hidden = Op::call("linear", &[&*hidden, &**weight])?;
        if i + 1 < weights.len() {
            hidden = Op::call("relu", &[&*hidden])?;
        }
    }
    Op::call("cross_entropy_loss", &[&*hidden, labels])
}

/// weight -= rate * gradient, outside of the graph that backward walks.
fn update(weight: &Tensor, rate: f64) -> Result<()> {
    let (value, gradient) = (weight.detach()?, weight.grad()?);
    let op = Op::new("sub_", "Tensor")?;
    op.set("self", &value)?.set("other", gradient.as_deref())?.set("alpha", rate)?.run()?;
    weight.set_grad(None)
}

fn main() -> Result<()> {
    let mut random = Random(1);
    let mut weights = Vec::new();
    for size in SIZES.windows(2) {
        let weight = random.matrix(size[1], size[0], 0.1)?;
        weight.set_requires_grad(true)?;
        weights.push(weight);
    }
    let x = random.matrix(ROWS, SIZES[0], 1.0)?;
    let labels = Tensor::from_vec((0..ROWS).collect(), &[ROWS])?.to_device(nxd::device()?)?;
    for step in 0..STEPS {
        let loss = forward(&weights, &x, &labels)?;
        loss.backward()?;
        for weight in &weights {
            update(weight, 0.05 / f64::from(1 + step))?;
        }
        nxd::mark_step(true)?;
        println!("step {} loss {:.7}", step, loss.item()?); // known by now: no sync
    }
    let m = nxd::device_metrics()?;
    println!(
        "steps {} compiles {} loads {} executions {} implicit_syncs {} fallbacks {}",
        m.steps, m.compiles, m.loads, m.executions, m.implicit_syncs, m.fallbacks
    );
    Ok(())
}
