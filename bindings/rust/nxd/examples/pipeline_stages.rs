//! A pipeline whose stages are plain Rust: a network of tanh layers with its own forward and backward
//! pass, cut over two ranks. libnxd runs the schedule and carries the values; plain SGD on the
//! stage's arrays follows each step. Needs no libtorch. Losses are the same to the last digit for
//! every number of ranks and every schedule.
//!
//!     cargo run --no-default-features --example pipeline_stages -- zero-bubble
use nxd::{
    Chunk, Context, DType, Error, ParallelOptions, PipelineScheduleKind, Result, Stage, StageCall,
    StageOptions, StagePipeline, Value, View, ViewMut,
};

const LAYERS: usize = 8;
const WIDTH: usize = 24;
const ROWS: usize = 16;
const MICROBATCHES: usize = 8;
const STEPS: usize = 30;
const RATE: f32 = 0.5;

/// A layer's weights, and what its backward pass adds up.
#[derive(Clone)]
struct Layer {
    w: Vec<f32>,
    b: Vec<f32>,
}

type Rows = Vec<f32>;

/// This rank's part of h = h + tanh(w h + b), eight times, with the mean squared error at the end.
struct Network {
    stages: usize,
    step: usize,
    layers: Vec<Layer>,
    grads: Vec<Layer>,
}

/// The data: waves, and what is to be made of them.
fn read_sample(step: usize, microbatch: i32) -> Rows {
    let mut x = Vec::with_capacity(ROWS * WIDTH);
    for r in 0..ROWS {
        let sample = (step % 4 * MICROBATCHES + microbatch as usize) * ROWS + r;
        for i in 0..WIDTH {
            let angle = 0.11 * (sample + 1) as f64 * (i % 5 + 1) as f64 + i as f64;
            x.push(angle.sin() as f32);
        }
    }
    x
}

fn layer_forward(layer: &Layer, h: &[f32]) -> Rows {
    let mut y = Vec::with_capacity(h.len());
    for row in h.chunks(WIDTH) {
        for o in 0..WIDTH {
            let w = &layer.w[o * WIDTH..(o + 1) * WIDTH];
            let z = w.iter().zip(row).fold(layer.b[o], |z, (w, h)| z + w * h);
            y.push(row[o] + z.tanh());
        }
    }
    y
}

/// dy becomes dh; g, if there is one, takes the weights' part.
fn layer_backward(layer: &Layer, h: &[f32], y: &[f32], dy: &mut [f32], mut g: Option<&mut Layer>) {
    for r in 0..ROWS {
        let row = r * WIDTH..(r + 1) * WIDTH;
        let (h, y, dy) = (&h[row.clone()], &y[row.clone()], &mut dy[row]);
        let mut dh = dy.to_vec();
        for o in 0..WIDTH {
            let t = y[o] - h[o];
            let dz = dy[o] * (1.0 - t * t);
            if let Some(g) = &mut g {
                g.b[o] += dz;
            }
            for i in 0..WIDTH {
                if let Some(g) = &mut g {
                    g.w[o * WIDTH + i] += dz * h[i];
                }
                dh[i] += dz * layer.w[o * WIDTH + i];
            }
        }
        dy.copy_from_slice(&dh);
    }
}

impl Network {
    fn new(stages: usize) -> Network {
        let layers: Vec<Layer> = (0..LAYERS)
            .map(|l| Layer {
                w: (0..WIDTH * WIDTH)
                    .map(|i| (0.1 * (1.7 * i as f64 + 5.3 * l as f64).sin()) as f32)
                    .collect(),
                b: vec![0.0; WIDTH],
            })
            .collect();
        let zeros = Layer { w: vec![0.0; WIDTH * WIDTH], b: vec![0.0; WIDTH] };
        Network { stages, step: 0, layers, grads: vec![zeros; LAYERS] }
    }

    fn first_layer(&self, stage: i32) -> usize {
        stage as usize * LAYERS / self.stages
    }

    fn is_last(&self, call: &StageCall) -> bool {
        call.stage as usize + 1 == self.stages
    }

    /// The rows before each of the stage's layers and after the last.
    fn run(&self, call: &StageCall, inputs: &[View<'_>]) -> Result<Vec<Rows>> {
        let mut h = vec![match call.stage {
            0 => read_sample(self.step, call.microbatch),
            _ => inputs[0].slice::<f32>()?.to_vec(),
        }];
        for layer in &self.layers[self.first_layer(call.stage)..self.first_layer(call.stage + 1)] {
            h.push(layer_forward(layer, &h[h.len() - 1]));
        }
        Ok(h)
    }

    /// The loss and its gradient. The data are read again: every stage can.
    fn loss(&self, call: &StageCall, y: &[f32]) -> (f64, Rows) {
        let x = read_sample(self.step, call.microbatch);
        let (mut sum, mut dy) = (0.0, Vec::with_capacity(y.len()));
        for (at, &y) in y.iter().enumerate() {
            let row = at / WIDTH * WIDTH;
            let target = 0.5 * x[at] * x[row + (at - row + 1) % WIDTH];
            let error = y - target;
            sum += f64::from(error) * f64::from(error);
            dy.push(call.loss_weight as f32 * 2.0 * error / (ROWS * WIDTH) as f32);
        }
        (sum / (ROWS * WIDTH) as f64, dy)
    }

    /// Computes the stage's rows anew from its inputs, which libnxd has kept.
    fn go_back(
        &mut self,
        call: &StageCall,
        inputs: &[View<'_>],
        grad_outputs: &[Option<View<'_>>],
        weights: bool,
    ) -> Result<Rows> {
        let h = self.run(call, inputs)?;
        let mut d = match grad_outputs.first() {
            Some(Some(grad)) => grad.slice::<f32>()?.to_vec(),
            _ => self.loss(call, &h[h.len() - 1]).1,
        };
        let first = self.first_layer(call.stage);
        for l in (0..h.len() - 1).rev() {
            let grads = if weights { Some(&mut self.grads[first + l]) } else { None };
            layer_backward(&self.layers[first + l], &h[l], &h[l + 1], &mut d, grads);
        }
        Ok(d)
    }

    /// Plain SGD on the layers of this rank; the others' gradients are zeros.
    fn update(&mut self) {
        for (layer, grad) in self.layers.iter_mut().zip(&mut self.grads) {
            for (w, g) in layer.w.iter_mut().zip(&mut grad.w) {
                *w -= RATE * std::mem::take(g);
            }
            for (b, g) in layer.b.iter_mut().zip(&mut grad.b) {
                *b -= RATE * std::mem::take(g);
            }
        }
        self.step += 1;
    }
}

fn put(d: &[f32], grad_inputs: &mut [Option<ViewMut<'_>>]) -> Result<()> {
    if let Some(Some(grad)) = grad_inputs.first_mut() {
        grad.slice_mut::<f32>()?.copy_from_slice(d);
    }
    Ok(())
}

impl Stage for Network {
    const SPLIT: bool = true;

    fn forward(
        &mut self,
        call: &StageCall,
        inputs: &[View<'_>],
        outputs: &mut [ViewMut<'_>],
    ) -> Result<Option<f64>> {
        let h = self.run(call, inputs)?;
        let y = &h[h.len() - 1];
        if self.is_last(call) {
            return Ok(Some(self.loss(call, y).0));
        }
        outputs[0].slice_mut::<f32>()?.copy_from_slice(y);
        Ok(None)
    }

    fn backward(
        &mut self,
        call: &StageCall,
        inputs: &[View<'_>],
        grad_outputs: &[Option<View<'_>>],
        grad_inputs: &mut [Option<ViewMut<'_>>],
    ) -> Result<()> {
        put(&self.go_back(call, inputs, grad_outputs, true)?, grad_inputs)
    }

    fn backward_input(
        &mut self,
        call: &StageCall,
        inputs: &[View<'_>],
        grad_outputs: &[Option<View<'_>>],
        grad_inputs: &mut [Option<ViewMut<'_>>],
    ) -> Result<()> {
        put(&self.go_back(call, inputs, grad_outputs, false)?, grad_inputs)
    }

    fn backward_weight(
        &mut self,
        call: &StageCall,
        inputs: &[View<'_>],
        grad_outputs: &[Option<View<'_>>],
    ) -> Result<()> {
        self.go_back(call, inputs, grad_outputs, true).map(|_| ())
    }
}

fn main() -> Result<()> {
    let schedule = match std::env::args().nth(1).as_deref() {
        None => PipelineScheduleKind::DEFAULT,
        Some("1f1b") => PipelineScheduleKind::_1F1B,
        Some("gpipe") => PipelineScheduleKind::GPIPE,
        Some("zero-bubble") => PipelineScheduleKind::ZERO_BUBBLE,
        Some(other) => {
            return Err(Error::user(format!("expected 1f1b, gpipe or zero-bubble, got {}", other)))
        }
    };
    if nxd::launch(2)? {
        return Ok(());
    }
    let ctx = Context::create()?;
    let (rank, ranks) = (ctx.rank()?, ctx.size()?);
    let layout = ParallelOptions { pipeline_parallel_size: ranks, ..Default::default() };
    ctx.init_model_parallel(&layout)?;
    let value = Value {
        name: "h".into(),
        shape: vec![ROWS as i64, WIDTH as i64],
        dtype: DType::F32,
        needs_grad: true,
    };
    let chunk = Chunk {
        inputs: if rank > 0 { vec![value.clone()] } else { vec![] },
        outputs: if rank + 1 < ranks { vec![value] } else { vec![] },
    };
    let options = StageOptions {
        num_microbatches: MICROBATCHES as i32,
        schedule,
        broadcast_and_average_loss: true,
        ..Default::default()
    };
    let network = Network::new(ranks as usize);
    let mut pipeline = StagePipeline::create(&ctx, &options, &[chunk], network)?;
    for step in 0..STEPS {
        let loss = pipeline.train()?;
        pipeline.stage_mut().update();
        ctx.master_print(&format!("step {} loss {}", step, loss))?;
    }
    ctx.finalize()
}
