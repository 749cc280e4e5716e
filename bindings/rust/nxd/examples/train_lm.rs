//! Trains a small Llama on text, byte by byte, with each layer split over tensor-parallel ranks, and
//! its layers over the stages of a pipeline. It starts one process per rank itself; under a launcher
//! it joins the ranks that are there, and more ranks than --tp times --pp train data-parallel copies.
//!
//!     NXD_CPU_MODE=1 cargo run --release --example train_lm -- --tp 2 --text my.txt --out results
//!
//! Losses go to OUT/loss.csv, with the digits that the C program of the same name gives.
use nxd::machine::measure_gemm_peak;
use nxd::model::{self, ModelOptions};
use nxd::planner::Partition;
use nxd::{
    AdamwOptions, Axis, Bf16Update, Context, ContextOptions, DType, Device, Error, FinishOptions,
    LrScheduleKind, LrScheduleOptions, ModelPipeline, Module, Optimizer, Owned, ParallelOptions,
    PipelineOptions, Reduce, Result, Tensor,
};
use std::time::{Duration, Instant};

/// Ways to train: what parameters are kept in, how those of bf16 are updated, automatic casts.
#[derive(Clone, Copy)]
struct Precision {
    name: &'static str,
    dtype: DType,
    update: Bf16Update,
    autocast: DType,
}

const fn precision(name: &'static str, dtype: DType, update: Bf16Update) -> Precision {
    Precision { name, dtype, update, autocast: DType::INVALID }
}

const PRECISIONS: [Precision; 5] = [
    precision("f32", DType::F32, Bf16Update::MASTER),
    precision("bf16", DType::BF16, Bf16Update::MASTER),
    precision("bf16-stochastic", DType::BF16, Bf16Update::STOCHASTIC),
    precision("bf16-nearest", DType::BF16, Bf16Update::NEAREST),
    Precision {
        name: "autocast",
        dtype: DType::F32,
        update: Bf16Update::MASTER,
        autocast: DType::BF16,
    },
];

struct Arguments {
    tp: i32,
    pp: i32,
    microbatches: i32,
    steps: i64,
    layers: i64,
    heads: i64,
    kv_heads: i64,
    hidden: i64,
    intermediate: i64,
    sequence: usize,
    batch: usize,
    learning_rate: f64,
    seed: u64,
    precision: Precision,
    sequence_parallel: bool,
    text: Option<String>,
    out: String,
    save: Option<String>,
}

fn parse<T: std::str::FromStr>(name: &str, value: &str) -> Result<T> {
    value.parse().map_err(|_| Error::user(format!("{}: cannot understand {}", name, value)))
}

impl Arguments {
    fn read() -> Result<Arguments> {
        let mut a = Arguments {
            tp: 2,
            pp: 1,
            microbatches: 1,
            steps: 240,
            layers: 4,
            heads: 8,
            kv_heads: 4,
            hidden: 256,
            intermediate: 704,
            sequence: 256,
            batch: 8,
            learning_rate: 2e-3,
            seed: 1,
            precision: PRECISIONS[0],
            sequence_parallel: false,
            text: None,
            out: "out".into(),
            save: None,
        };
        let mut given = std::env::args().skip(1);
        while let Some(name) = given.next() {
            if name == "--sequence-parallel" {
                a.sequence_parallel = true;
                continue;
            }
            let missing = || Error::user(format!("{}: expected a value", name));
            let value = given.next().ok_or_else(missing)?;
            a.set(&name, &value)?;
        }
        Ok(a)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "--tp" => self.tp = parse(name, value)?,
            "--pp" => self.pp = parse(name, value)?,
            "--microbatches" => self.microbatches = parse(name, value)?,
            "--steps" => self.steps = parse(name, value)?,
            "--layers" => self.layers = parse(name, value)?,
            "--heads" => self.heads = parse(name, value)?,
            "--kv-heads" => self.kv_heads = parse(name, value)?,
            "--hidden" => self.hidden = parse(name, value)?,
            "--intermediate" => self.intermediate = parse(name, value)?,
            "--seq" => self.sequence = parse(name, value)?,
            "--batch" => self.batch = parse(name, value)?,
            "--lr" => self.learning_rate = parse(name, value)?,
            "--seed" => self.seed = parse(name, value)?,
            "--text" => self.text = Some(value.into()),
            "--out" => self.out = value.into(),
            "--save" => self.save = Some(value.into()),
            "--dtype" => match PRECISIONS.iter().find(|p| p.name == value) {
                Some(&precision) => self.precision = precision,
                None => return Err(Error::user(format!("--dtype: cannot understand {}", value))),
            },
            _ => return Err(Error::user(format!("cannot understand {}", name))),
        }
        Ok(())
    }

    /// A Hugging Face configuration.
    fn config(&self) -> String {
        format!(
            "{{\"model_type\": \"llama\", \"hidden_size\": {}, \"num_hidden_layers\": {}, \
             \"num_attention_heads\": {}, \"num_key_value_heads\": {}, \"intermediate_size\": {}, \
             \"vocab_size\": 256, \"rms_norm_eps\": 1e-5, \"max_position_embeddings\": {}, \
             \"initializer_range\": 0.02}}",
            self.hidden, self.layers, self.heads, self.kv_heads, self.intermediate, self.sequence
        )
    }
}

/// The file given, or the licence texts that Debian installs, in order of their names.
fn read_text(path: &Option<String>) -> Result<Vec<u8>> {
    if let Some(path) = path {
        return Ok(std::fs::read(path)?);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir("/usr/share/common-licenses")? {
        let entry = entry?;
        // Links are other names of files that are there under their own.
        if entry.file_type()?.is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    let texts = files.iter().map(std::fs::read).collect::<std::io::Result<Vec<_>>>()?;
    Ok(texts.concat())
}

/// The draw-th value of a stream: the finaliser of SplitMix64 (Steele et al. 2014).
fn random_bits(seed: u64, draw: u64) -> u64 {
    let z = seed.wrapping_add(1).wrapping_mul(0xD1B5_4A32_D192_ED03);
    let z = z.wrapping_add(draw.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The whole model, or what a pipeline has of it on this rank.
enum Model {
    Whole(Owned<Module>),
    Cut(Owned<Module>, ModelPipeline),
}

impl Model {
    fn create(ctx: &Context, a: &Arguments) -> Result<Model> {
        let cut = a.pp > 1 || a.microbatches > 1;
        let options = ModelOptions {
            dtype: a.precision.dtype,
            device: if cut { Device::META } else { Device::CPU },
            sequence_parallel: a.sequence_parallel.into(),
            ..Default::default()
        };
        let model = model::from_config(ctx, &a.config(), &options)?;
        if !cut {
            return Ok(Model::Whole(model));
        }
        let shape = [a.batch as i64, a.sequence as i64];
        let example = Tensor::zeros(&shape, DType::I64, Device::META)?;
        let options = PipelineOptions {
            num_microbatches: a.microbatches,
            partition: Partition::COST,
            broadcast_and_average_loss: true,
            ..Default::default()
        };
        let inputs = [Some(&*example), Some(&*example)];
        let pipeline = ModelPipeline::create(&model, &inputs, options)?;
        Ok(Model::Cut(model, pipeline))
    }

    fn whole(&self) -> &Module {
        match self {
            Model::Whole(model) | Model::Cut(model, _) => model,
        }
    }

    /// The module that is trained on this rank.
    fn trained(&self) -> Result<&Module> {
        match self {
            Model::Whole(model) => Ok(model),
            Model::Cut(_, pipeline) => pipeline.local_module(),
        }
    }

    /// Forward and backward; the loss is the mean over all copies. The model shifts its labels.
    fn run(&mut self, ctx: &Context, ids: &Tensor, autocast: DType) -> Result<f64> {
        match self {
            Model::Cut(_, pipeline) => {
                nxd::with_autocast(autocast, || pipeline.train(&[Some(ids), Some(ids)]))
            }
            Model::Whole(model) => {
                let loss = nxd::with_autocast(autocast, || model.forward(&[ids, ids]))?;
                loss.backward()?;
                let mut mean = [loss.item()?];
                let copies = ctx.parallel_group(Axis::DATA)?;
                copies.all_reduce_in_place(&mut mean, Reduce::AVG)?;
                Ok(mean[0])
            }
        }
    }

    /// A pipeline has divided by the tokens of all copies.
    fn reduce(&self) -> Reduce {
        match self {
            Model::Whole(_) => Reduce::AVG,
            Model::Cut(..) => Reduce::SUM,
        }
    }
}

/// Ids of a batch of random windows; copies of the model take different ones.
fn make_batch(ctx: &Context, a: &Arguments, text: &[u8], step: i64) -> Result<Owned<Tensor>> {
    let copies = ctx.parallel_size(Axis::DATA)? as u64;
    let copy = ctx.parallel_rank(Axis::DATA)? as u64;
    let mut ids = Vec::with_capacity(a.batch * a.sequence);
    for row in 0..a.batch as u64 {
        let draw = (step as u64 * copies + copy) * a.batch as u64 + row;
        let at = (random_bits(a.seed, draw) % (text.len() - a.sequence) as u64) as usize;
        ids.extend(text[at..at + a.sequence].iter().map(|&byte| i64::from(byte)));
    }
    Tensor::from_vec(ids, &[a.batch as i64, a.sequence as i64])
}

fn make_optimizer(a: &Arguments, trained: &Module) -> Result<Optimizer> {
    let adamw = AdamwOptions {
        learning_rate: a.learning_rate,
        beta2: 0.95,
        weight_decay: 0.1,
        bf16_update: a.precision.update,
        ..Default::default()
    };
    let mut optimizer = Optimizer::adamw(trained, &adamw)?;
    optimizer.set_lr_schedule(&LrScheduleOptions {
        kind: LrScheduleKind::COSINE,
        warmup_steps: a.steps / 20 + 1,
        total_steps: a.steps + 1,
        final_factor: 0.1,
        ..Default::default()
    })?;
    Ok(optimizer)
}

/// Peak rate of all ranks together, measured while all of them compute.
fn measure_peak(ctx: &Context, a: &Arguments) -> Result<f64> {
    let products = match a.precision.autocast {
        DType::BF16 => DType::BF16,
        _ => a.precision.dtype,
    };
    let world = ctx.world_group()?;
    world.barrier()?;
    let mut peak = [measure_gemm_peak(products, 0)?];
    world.all_reduce_in_place(&mut peak, Reduce::SUM)?;
    Ok(peak[0])
}

fn train(ctx: &Context, a: &Arguments, text: &[u8], model: &mut Model) -> Result<Vec<f32>> {
    let mut optimizer = make_optimizer(a, model.trained()?)?;
    let copies = i64::from(ctx.parallel_size(Axis::DATA)?);
    let (batch, sequence) = (a.batch as i64 * copies, a.sequence as i64);
    let flops = model::step_flops(model.whole(), batch, sequence)?;
    let peak = measure_peak(ctx, a)?;
    let every = (a.steps / 20).max(1);
    let start = Instant::now();
    let (mut last, mut last_step) = (start, 0);
    let mut losses = Vec::new();
    for step in 0..a.steps {
        let ids = make_batch(ctx, a, text, step)?;
        model.trained()?.zero_grad()?;
        let loss = model.run(ctx, &ids, a.precision.autocast)?;
        losses.push(loss as f32);
        let data_parallel_reduce = model.reduce();
        let finish = FinishOptions { max_norm: 1.0, data_parallel_reduce, ..Default::default() };
        if optimizer.step(&finish)?.skipped != 0 {
            ctx.master_print(&format!("step {}: skipped, gradients overflow", step + 1))?;
        }
        if (step + 1) % every == 0 || step + 1 == a.steps || step == 0 {
            let each = last.elapsed().as_secs_f64() / (step + 1 - last_step) as f64;
            let left =
                start.elapsed().as_secs_f64() / (step + 1) as f64 * (a.steps - step - 1) as f64;
            ctx.master_print(&format!(
                "step {:4}/{}  loss {:6.3}  {:7.0} tokens/s  {:3.0}% of the GEMM peak  {:4.0} s left",
                step + 1,
                a.steps,
                loss,
                (batch * sequence) as f64 / each,
                100.0 * flops / each / peak,
                left
            ))?;
            (last, last_step) = (Instant::now(), step + 1);
        }
    }
    Ok(losses)
}

fn main() -> Result<()> {
    let a = Arguments::read()?;
    if a.tp * a.pp > 1 && nxd::launch(a.tp * a.pp)? {
        return Ok(());
    }
    let text = read_text(&a.text)?;
    if text.len() <= a.sequence {
        let message =
            format!("expected a text of more than {} bytes, got {}", a.sequence, text.len());
        return Err(Error::user(message));
    }
    let options = ContextOptions {
        seed: a.seed,
        timeout: Some(Duration::from_secs(120)),
        ..Default::default()
    };
    let ctx = Context::create_with(&options)?;
    ctx.init_model_parallel(&ParallelOptions {
        tensor_parallel_size: a.tp,
        pipeline_parallel_size: a.pp,
        ..Default::default()
    })?;
    let mut model = Model::create(&ctx, &a)?;
    let losses = train(&ctx, &a, &text, &mut model)?;
    if ctx.rank()? == 0 {
        std::fs::create_dir_all(&a.out)?;
        let rows = losses.iter().enumerate().map(|(i, loss)| format!("{},{:.6}\n", i + 1, loss));
        std::fs::write(
            format!("{}/loss.csv", a.out),
            format!("step,loss\n{}", rows.collect::<String>()),
        )?;
        println!("wrote {}/loss.csv", a.out);
    }
    if let Some(path) = &a.save {
        model.trained()?.save_safetensors(path)?;
    }
    ctx.finalize()
}
