//! Two linear layers split over two ranks, the first by columns and the second by rows, and the same
//! computed unsplit with plain operators: both must agree.
//!
//!     NXD_CPU_MODE=1 cargo run --example mlp_tensor_parallel
use nxd::layers::{column_parallel_linear, row_parallel_linear, LinearOptions, Toggle};
use nxd::{Context, Error, Module, Op, Owned, ParallelOptions, Result, Tensor};

const HIDDEN: i64 = 1024;
const ROWS: i64 = 4;

/// The same inputs on every rank, in [0, 1).
fn make_input() -> Result<Owned<Tensor>> {
    let mut state = 1u32;
    let data: Vec<f32> = (0..ROWS * HIDDEN)
        .map(|_| {
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            (state >> 8) as f32 / 16777216.0
        })
        .collect();
    Tensor::from_vec(data, &[ROWS, HIDDEN])
}

fn make_layers(ctx: &Context) -> Result<Owned<Module>> {
    let column = LinearOptions {
        name: "0",
        bias: Toggle::OFF,
        gather_output: Toggle::OFF,
        keep_master_weight: 1,
        ..Default::default()
    };
    let row = LinearOptions {
        name: "1",
        bias: Toggle::OFF,
        input_is_parallel: 1,
        keep_master_weight: 1,
        ..Default::default()
    };
    let mlp = Module::container(ctx, "Sequential")?;
    mlp.add_child("0", &*column_parallel_linear(ctx, HIDDEN, HIDDEN, &column)?)?;
    mlp.add_child("1", &*row_parallel_linear(ctx, HIDDEN, HIDDEN, &row)?)?;
    mlp.move_to(nxd::device()?)?;
    Ok(mlp)
}

/// x W^T with the whole weight that the layer's shards were cut from.
fn plain_linear(layer: &Module, x: &Tensor) -> Result<Owned<Tensor>> {
    let linear = Op::new("linear", "")?;
    let weight = layer.master_weight()?;
    linear.set("input", x)?.set("weight", &weight)?.run()?.tensor(0)
}

fn main() -> Result<()> {
    if nxd::launch(2)? {
        return Ok(());
    }
    let ctx = Context::create()?;
    let layout = ParallelOptions { tensor_parallel_size: ctx.size()?, ..Default::default() };
    ctx.init_model_parallel(&layout)?;
    let (x, mlp) = (make_input()?, make_layers(&ctx)?);
    let (column, row) = (mlp.module("0")?, mlp.module("1")?);

    let y = row.forward(&[&*column.forward(&[&*x])?])?.to_vec::<f32>()?;
    let unsplit = plain_linear(row, &*plain_linear(column, &x)?)?.to_vec::<f32>()?;

    let sum: f64 = y.iter().map(|&y| f64::from(y)).sum();
    let largest = unsplit.iter().fold(0f32, |most, y| most.max(y.abs()));
    let difference = y.iter().zip(&unsplit).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
    ctx.master_print(&format!(
        "Output sum is {:.6}; largest difference to the unsplit MLP {:.1e} of {:.1e}",
        sum, difference, largest
    ))?;
    if difference > 1e-5 * largest {
        return Err(Error::user("the two do not agree"));
    }
    ctx.finalize()
}
