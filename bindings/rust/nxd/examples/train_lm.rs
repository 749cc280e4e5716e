//! Trains a language model on token ids, or on text byte by byte, with each layer split over
//! tensor-parallel ranks, its layers over the stages of a pipeline, and the batch over data-parallel
//! copies: examples/c/train_lm.c in Rust, with its options and its losses to the last digit. It
//! starts one process per rank itself; under a launcher it joins the ranks that are there, and more
//! ranks than --tp times --pp train data-parallel copies.
//!
//!     NXD_CPU_MODE=1 cargo run --release --example train_lm -- --tp 2 --text my.txt --out results
//!     ... --tp 1 --pp 2 --dp 2 --microbatches 4 --zero1
//!     ... --data corpus.u16 --config config.json --save-every 100 --keep 3 --resume
//!
//! The model is a small Llama of the sizes given, that of a configuration (--config), or one of a
//! Hugging Face directory, with its weights (--weights).
mod common;

use common::{forward_backward, join, make_directory, random_bits, random_windows, Options};
use nxd::functional::gather_from_tensor_region;
use nxd::machine::measure_gemm_peak;
use nxd::model::{self, ModelOptions};
use nxd::planner::Partition;
use nxd::{
    AdamwOptions, Axis, Bf16Update, Checkpoint, Context, ContextOptions, DType, DataLoader, Ddp,
    DdpOptions, Device, Error, FinishOptions, LrScheduleKind, LrScheduleOptions, ModelPipeline,
    Module, Op, Optimizer, Owned, ParallelOptions, PipelineOptions, Reduce, Result, Tensor,
    TrainingState,
};
use std::path::Path;
use std::time::{Duration, Instant};

/// A way to train: what parameters are kept in, how those of bf16 are updated, automatic casts.
#[derive(Clone, Copy)]
struct Precision {
    dtype: DType,
    update: Bf16Update,
    autocast: DType,
}

const fn precision(dtype: DType, update: Bf16Update, autocast: DType) -> Precision {
    Precision { dtype, update, autocast }
}

const PRECISIONS: [(&str, Precision); 5] = [
    ("f32", precision(DType::F32, Bf16Update::MASTER, DType::INVALID)),
    ("bf16", precision(DType::BF16, Bf16Update::MASTER, DType::INVALID)),
    ("bf16-stochastic", precision(DType::BF16, Bf16Update::STOCHASTIC, DType::INVALID)),
    ("bf16-nearest", precision(DType::BF16, Bf16Update::NEAREST, DType::INVALID)),
    ("autocast", precision(DType::F32, Bf16Update::MASTER, DType::BF16)),
];

/// Options of a model that no file describes.
const SIZES: [&str; 5] = ["--hidden", "--layers", "--heads", "--kv-heads", "--intermediate"];

struct Arguments {
    tp: i32,
    pp: i32,
    dp: i32,
    virtual_size: i32,
    microbatches: i32,
    zero1: bool,
    sequence_parallel: bool,
    precision: Precision,
    hidden: i64,
    layers: i64,
    heads: i64,
    kv_heads: i64,
    intermediate: i64,
    sequence: usize,
    batch: usize,
    steps: i64,
    stop_at: i64,
    learning_rate: f64,
    seed: u64,
    sample: usize,
    save_every: i64,
    keep: i32,
    resume: bool,
    config: Option<String>,
    weights: Option<String>,
    text: Option<String>,
    data: Option<String>,
    save: Option<String>,
    out: String,
}

impl Arguments {
    fn read() -> Result<Arguments> {
        let mut o = Options::read();
        o.idle(&["--text"], &["--data"])?;
        o.idle(&SIZES, &["--config", "--weights"])?;
        let steps = o.number("--steps", 240)?;
        let a = Arguments {
            tp: o.number("--tp", 2)?,
            pp: o.number("--pp", 1)?,
            dp: o.number("--dp", 1)?,
            virtual_size: o.number("--virtual", 1)?,
            microbatches: o.number("--microbatches", 1)?,
            zero1: o.flag("--zero1"),
            sequence_parallel: o.flag("--sequence-parallel"),
            precision: o.choice("--dtype", &PRECISIONS)?,
            hidden: o.number("--hidden", 256)?,
            layers: o.number("--layers", 4)?,
            heads: o.number("--heads", 8)?,
            kv_heads: o.number("--kv-heads", 4)?,
            intermediate: o.number("--intermediate", 704)?,
            sequence: o.number("--seq", 256)?,
            batch: o.number("--batch", 8)?,
            steps,
            stop_at: o.number("--stop-at", steps)?,
            learning_rate: o.rate(2e-3)?,
            seed: o.number("--seed", 1)?,
            sample: o.number("--sample", 400)?,
            save_every: o.number("--save-every", 0)?,
            keep: o.number("--keep", 3)?,
            resume: o.flag("--resume"),
            config: o.text("--config")?,
            weights: o.text("--weights")?,
            text: o.text("--text")?,
            data: o.text("--data")?,
            save: o.text("--save")?,
            out: o.text("--out")?.unwrap_or_else(|| "out".into()),
        };
        if a.virtual_size > 1 && a.pp == 1 && a.microbatches == 1 {
            return Err(Error::user("--virtual has no effect without --pp or --microbatches"));
        }
        o.done().map(|()| a)
    }

    /// A Hugging Face configuration: a file's, or one made of the sizes given.
    fn config(&self) -> Result<String> {
        if let Some(path) = &self.config {
            return Ok(std::fs::read_to_string(path)?);
        }
        if let Some(directory) = &self.weights {
            return Ok(std::fs::read_to_string(join(directory, "config.json"))?);
        }
        Ok(format!(
            "{{\"model_type\": \"llama\", \"hidden_size\": {}, \"num_hidden_layers\": {}, \
             \"num_attention_heads\": {}, \"num_key_value_heads\": {}, \"intermediate_size\": {}, \
             \"vocab_size\": 256, \"rms_norm_eps\": 1e-5, \"max_position_embeddings\": {}, \
             \"initializer_range\": 0.02}}",
            self.hidden, self.layers, self.heads, self.kv_heads, self.intermediate, self.sequence
        ))
    }
}

/// The model of this rank, and what trains it.
struct Trainer {
    model: Owned<Module>,
    pipeline: Option<ModelPipeline>,
    ddp: Option<Ddp>,
}

impl Trainer {
    fn create(ctx: &Context, a: &Arguments) -> Result<Trainer> {
        let cut = a.pp > 1 || a.microbatches > 1;
        let options = ModelOptions {
            dtype: a.precision.dtype,
            device: if cut { Device::META } else { Device::CPU },
            sequence_parallel: a.sequence_parallel.into(),
            ..Default::default()
        };
        let model = model::from_config(ctx, &a.config()?, &options)?;
        let pipeline = if cut { Some(Trainer::cut(&model, a)?) } else { None };
        let mut trainer = Trainer { model, pipeline, ddp: None };
        if let Some(directory) = &a.weights {
            trainer.trained()?.load_safetensors(directory, true)?;
        }
        if a.zero1 {
            let options =
                DdpOptions { zero_stage: 1, reduce: trainer.reduce(), ..Default::default() };
            trainer.ddp = Some(Ddp::over_module(trainer.trained()?, &options)?);
        }
        Ok(trainer)
    }

    /// This rank's stages of the model, whose weights are made here.
    fn cut(model: &Module, a: &Arguments) -> Result<ModelPipeline> {
        let shape = [a.batch as i64, a.sequence as i64];
        let example = Tensor::zeros(&shape, DType::I64, Device::META)?;
        let options = PipelineOptions {
            num_microbatches: a.microbatches,
            virtual_size: a.virtual_size,
            partition: Partition::COST,
            broadcast_and_average_loss: true,
            ..Default::default()
        };
        ModelPipeline::create(model, &[Some(&*example), Some(&*example)], options)
    }

    fn optimizer(&mut self, a: &Arguments) -> Result<Optimizer> {
        let adamw = AdamwOptions {
            learning_rate: a.learning_rate,
            beta2: 0.95,
            weight_decay: 0.1,
            bf16_update: a.precision.update,
            ..Default::default()
        };
        let mut optimizer = match &self.ddp {
            Some(ddp) => Optimizer::adamw(ddp, &adamw)?,
            None => Optimizer::adamw(self.trained()?, &adamw)?,
        };
        set_rates(&mut optimizer, a)?;
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.set_ddp(self.ddp.take())?;
        }
        Ok(optimizer)
    }

    /// The module that is trained on this rank.
    fn trained(&self) -> Result<&Module> {
        self.pipeline.as_ref().map_or(Ok(&*self.model), ModelPipeline::local_module)
    }

    /// Forward and backward; the loss is the mean over all copies. The model shifts its labels.
    fn run(&mut self, ctx: &Context, ids: &Tensor, autocast: DType) -> Result<f64> {
        let inputs = [Some(ids), Some(ids)];
        match &mut self.pipeline {
            Some(pipeline) => nxd::with_autocast(autocast, || pipeline.train(&inputs)),
            None => forward_backward(ctx, &self.model, &inputs, autocast),
        }
    }

    /// A pipeline has divided by the tokens of all copies.
    fn reduce(&self) -> Reduce {
        if self.pipeline.is_some() {
            Reduce::SUM
        } else {
            Reduce::AVG
        }
    }
}

/// A checkpoint that the run goes on from has those of the run that saved it: the options count.
fn set_rates(optimizer: &mut Optimizer, a: &Arguments) -> Result<()> {
    optimizer.set_lr_schedule(&LrScheduleOptions {
        kind: LrScheduleKind::COSINE,
        warmup_steps: a.steps / 20 + 1,
        total_steps: a.steps + 1,
        final_factor: 0.1,
        ..Default::default()
    })?;
    optimizer.set_learning_rate(a.learning_rate)
}

/// Batches of ids: of a file of tokens, or windows of a text.
enum Data {
    Loader(Owned<DataLoader>),
    Text(Vec<i64>),
}

impl Data {
    fn open(ctx: &Context, a: &Arguments) -> Result<Data> {
        if let Some(path) = &a.data {
            let (batch, sequence) = (a.batch as i64, a.sequence as i64);
            let loader = DataLoader::open(ctx, &[path], batch, sequence, &Default::default())?;
            return Ok(Data::Loader(loader));
        }
        let text = common::read_text(&a.text)?;
        if text.len() <= a.sequence {
            let (wanted, given) = (a.sequence, text.len());
            let message = format!("expected a text of more than {} bytes, got {}", wanted, given);
            return Err(Error::user(message));
        }
        Ok(Data::Text(common::ids_of_bytes(&text)))
    }

    fn batch(&self, ctx: &Context, a: &Arguments, step: i64) -> Result<Owned<Tensor>> {
        let ids = match self {
            Data::Loader(loader) => {
                let mut ids = vec![0; a.batch * a.sequence];
                loader.next(&mut ids, None)?;
                ids
            }
            Data::Text(text) => {
                let copies = ctx.parallel_group(Axis::DATA)?;
                random_windows(text, a.seed, step, copies, a.batch, a.sequence)?
            }
        };
        Tensor::from_vec(ids, &[a.batch as i64, a.sequence as i64])
    }
}

/// Saves a run while it goes on: its state, and beside it the losses so far.
struct Checkpoints<'a> {
    ctx: &'a Context,
    directory: String,
    keep: i32,
    state: TrainingState,
    saving: Option<Owned<Checkpoint>>,
}

const LOSSES: &str = "losses.f32";

impl Checkpoints<'_> {
    fn save(&mut self, losses: &[f32]) -> Result<()> {
        self.wait()?;
        let saving = Checkpoint::create(self.ctx, &self.directory, losses.len() as i64)?;
        self.state.snapshot(&saving)?;
        if self.ctx.rank()? == 0 {
            let bytes: Vec<u8> = losses.iter().flat_map(|loss| loss.to_ne_bytes()).collect();
            std::fs::write(saving.path(LOSSES)?, bytes)?;
        }
        saving.publish_async(self.keep)?;
        self.saving = Some(saving);
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        self.saving.take().map_or(Ok(()), |saving| saving.wait(None))
    }

    /// Goes on from the newest complete one; gives the losses until then.
    fn resume(&mut self, max_steps: i64) -> Result<Vec<f32>> {
        let newest = match Checkpoint::open_newest(self.ctx, &self.directory, true)? {
            Some(newest) => newest,
            None => return Ok(Vec::new()),
        };
        let step = newest.step()?;
        if step > max_steps {
            return Err(Error::user(format!(
                "the checkpoint is of step {}, and the run is to have {}",
                step, max_steps
            )));
        }
        self.state.restore(&newest)?;
        let bytes = std::fs::read(newest.path(LOSSES)?)?;
        let word = |word: &[u8]| f32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
        Ok(bytes.chunks_exact(4).map(word).collect())
    }
}

/// Peak rate of all ranks together, measured while all of them compute.
fn measure_peak(ctx: &Context, precision: &Precision) -> Result<f64> {
    let products = match precision.autocast {
        DType::BF16 => DType::BF16,
        _ => precision.dtype,
    };
    let world = ctx.world_group()?;
    world.barrier()?;
    let mut peak = [measure_gemm_peak(products, 1024)?];
    world.all_reduce_in_place(&mut peak, Reduce::SUM)?;
    Ok(peak[0])
}

fn open_checkpoints<'a>(
    ctx: &'a Context,
    a: &Arguments,
    trainer: &Trainer,
    optimizer: &Optimizer,
    data: &Data,
) -> Result<Checkpoints<'a>> {
    let mut state = TrainingState::new(ctx)?;
    state.add_module("model", trainer.trained()?)?;
    state.add_optimizer("optimizer", optimizer)?;
    if let Data::Loader(loader) = data {
        state.add_data_loader("data", loader)?;
    }
    let directory = join(&a.out, "checkpoints");
    Ok(Checkpoints { ctx, directory, keep: a.keep, state, saving: None })
}

/// The losses of all steps.
fn train(ctx: &Context, a: &Arguments, trainer: &mut Trainer, data: &Data) -> Result<Vec<f32>> {
    let mut optimizer = trainer.optimizer(a)?;
    let mut checkpoints = open_checkpoints(ctx, a, trainer, &optimizer, data)?;
    let mut losses = if a.resume { checkpoints.resume(a.steps)? } else { Vec::new() };
    let first = losses.len() as i64;
    if a.resume {
        set_rates(&mut optimizer, a)?;
        ctx.master_print(&format!("going on after step {}", first))?;
    }
    let copies = i64::from(ctx.parallel_size(Axis::DATA)?);
    let (batch, sequence) = (a.batch as i64 * copies, a.sequence as i64);
    let flops = model::step_flops(&trainer.model, batch, sequence)?;
    let peak = measure_peak(ctx, &a.precision)?;
    let every = (a.steps / 20).max(1);
    let (mut last, mut last_step) = (Instant::now(), first);
    for step in first..a.steps.min(a.stop_at) {
        let ids = data.batch(ctx, a, step)?;
        trainer.trained()?.zero_grad()?;
        let loss = trainer.run(ctx, &ids, a.precision.autocast)?;
        losses.push(loss as f32);
        let data_parallel_reduce = trainer.reduce();
        let finish = FinishOptions { max_norm: 1.0, data_parallel_reduce, ..Default::default() };
        if optimizer.step(&finish)?.skipped != 0 {
            ctx.master_print(&format!("step {}: skipped, gradients overflow", step + 1))?;
        }
        if a.save_every > 0 && (step + 1) % a.save_every == 0 {
            checkpoints.save(&losses)?;
        }
        if (step + 1) % every == 0 || step + 1 == a.steps || step == 0 {
            let each = last.elapsed().as_secs_f64() / (step + 1 - last_step) as f64;
            ctx.master_print(&format!(
                "step {:4}/{}  loss {:6.3}  {:7.0} tokens/s  {:3.0}% of the GEMM peak",
                step + 1,
                a.steps,
                loss,
                (batch * sequence) as f64 / each,
                100.0 * flops / each / peak
            ))?;
            (last, last_step) = (Instant::now(), step + 1);
        }
    }
    checkpoints.wait()?;
    Ok(losses)
}

/// Logits over the whole vocabulary behind the last of the bytes. Tokens after them are padding,
/// which a causal model does not see.
fn last_logits(ctx: &Context, model: &Module, seen: &[u8], window: usize) -> Result<Vec<f32>> {
    let mut ids = common::ids_of_bytes(seen);
    ids.resize(window, 0);
    let parts = model.forward(&[&*Tensor::from_vec(ids, &[1, window as i64])?])?;
    let last = Tensor::from_slice(&[seen.len() as i64 - 1], &[1])?;
    let select = Op::new("index_select", "")?;
    select.set("self", &parts)?.set("dim", 1)?.set("index", &last)?.run()?;
    let whole = gather_from_tensor_region(ctx, &*select.tensor(0)?)?;
    let widen = Op::new("to", "dtype")?;
    widen.set("self", &whole)?.set("dtype", DType::F32)?.run()?.tensor(0)?.to_vec()
}

fn draw_byte(logits: &[f32], temperature: f64, u: f64) -> u8 {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |&logit: &f32| (f64::from(logit - most) / temperature).exp();
    let weights: Vec<f64> = logits.iter().map(weight).collect();
    let mut left = u * weights.iter().sum::<f64>();
    let place = weights.iter().position(|weight| {
        left -= weight;
        left < 0.0
    });
    place.unwrap_or(255) as u8
}

/// Text of the model's own: all ranks draw the same byte behind those that it sees.
fn sample(ctx: &Context, a: &Arguments, model: &Module, prompt: &str) -> Result<String> {
    let mut text = prompt.as_bytes().to_vec();
    nxd::with_grad(false, || {
        for n in text.len()..text.len() + a.sample {
            let seen = &text[n.saturating_sub(a.sequence)..];
            let logits = last_logits(ctx, model, seen, a.sequence)?;
            let u = (random_bits(a.seed ^ 0x5A17, n as u64) >> 11) as f64 / (1u64 << 53) as f64;
            text.push(draw_byte(&logits, 0.7, u));
        }
        Ok(())
    })?;
    let shown = |byte| if byte == b'\n' || (b' '..=b'~').contains(&byte) { byte } else { b'.' };
    Ok(text.into_iter().map(|byte| char::from(shown(byte))).collect())
}

fn finish(ctx: &Context, a: &Arguments, trainer: &Trainer, losses: &[f32]) -> Result<()> {
    if ctx.rank()? == 0 {
        let row = |(i, loss): (usize, &f32)| format!("{},{:.6}\n", i + 1, loss);
        let rows: String = losses.iter().enumerate().map(row).collect();
        std::fs::write(join(&a.out, "loss.csv"), format!("step,loss\n{}", rows))?;
    }
    if let Some(path) = &a.save {
        trainer.trained()?.save_safetensors(path)?;
    }
    // Generation needs the whole model, and one that knows bytes.
    if a.sample > 0 && a.pp == 1 && a.weights.is_none() && a.data.is_none() {
        trainer.model.set_training(false)?; // without dropout
        let text = sample(ctx, a, &trainer.model, "This License")?;
        trainer.model.set_training(true)?;
        ctx.master_print(&format!("the model writes:\n{}", text))?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let a = Arguments::read()?;
    let ranks = a.tp * a.pp * a.dp;
    if ranks > 1 && nxd::launch(ranks)? {
        return Ok(());
    }
    let options = ContextOptions {
        seed: a.seed,
        timeout: Some(Duration::from_secs(120)),
        ..Default::default()
    };
    let ctx = Context::create_with(&options)?;
    make_directory(&ctx, &a.out)?;
    if let Some(parent) = a.save.as_ref().and_then(|file| Path::new(file).parent()) {
        make_directory(&ctx, parent)?;
    }
    ctx.init_model_parallel(&ParallelOptions {
        tensor_parallel_size: a.tp,
        pipeline_parallel_size: a.pp,
        ..Default::default()
    })?;
    let data = Data::open(&ctx, &a)?;
    let mut trainer = Trainer::create(&ctx, &a)?;
    let losses = train(&ctx, &a, &mut trainer, &data)?;
    finish(&ctx, &a, &trainer, &losses)?;
    ctx.finalize()
}
