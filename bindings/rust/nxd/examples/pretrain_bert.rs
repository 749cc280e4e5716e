//! Pre-trains a BERT on masked words and next sentences (Devlin et al. 2019), tensor- and
//! data-parallel, with the optimizer's state split over the copies (--zero1). It is
//! examples/c/pretrain_bert.c in Rust, with the same rows and losses.
//!
//!     cargo run --release --example pretrain_bert -- --tp 2 --dp 2 --zero1 --text my.txt --out bert
//!     ... --data corpus.u16 --vocab 30522 --config config.json --cls 101 --sep 102 --mask 103
//!
//! A row is [CLS] first [SEP] second [SEP]. In half of the rows the second part goes on where the
//! first one ends, in the others it is from anywhere; the model tells which. It also guesses 15 % of
//! the words: of these 80 % are hidden by [MASK], 10 % are other words, 10 % stay as they are.
//!
//! The words are the bytes of a text, or with --data 16-bit ids of a tokenizer, the least byte first.
//! The three special ids follow the words where they are not given. A batch of --batch rows is
//! shared by all copies. --out gets what Hugging Face's BertForPreTraining loads: config.json and
//! model.safetensors.
mod common;

use common::{
    forward_backward, ids_of_bytes, join, make_directory, random_bits, read_ids, read_text, Options,
};
use nxd::model::{self, ModelOptions};
use nxd::{
    AdamwOptions, Axis, Context, ContextOptions, DType, Ddp, DdpOptions, Error, FinishOptions,
    LrScheduleKind, LrScheduleOptions, Module, Optimizer, Owned, ParallelOptions, Reduce, Result,
    Tensor,
};

/// Special ids of a row: [CLS] and two [SEP].
const SPECIALS: usize = 3;

/// The dtype that parameters are kept in, and automatic casts.
const DTYPES: [(&str, (DType, DType)); 3] = [
    ("f32", (DType::F32, DType::INVALID)),
    ("bf16", (DType::BF16, DType::INVALID)),
    ("autocast", (DType::F32, DType::BF16)),
];

struct Arguments {
    tp: i32,
    dp: i32,
    zero1: bool,
    sequence_parallel: bool,
    dtype: DType,
    autocast: DType,
    steps: i64,
    warmup: i64,
    batch: i64,
    sequence: usize,
    hidden: i64,
    layers: i64,
    heads: i64,
    intermediate: i64,
    vocabulary: i64,
    cls: i64,
    sep: i64,
    mask: i64,
    learning_rate: f64,
    seed: u64,
    text: Option<String>,
    data: Option<String>,
    config: Option<String>,
    out: Option<String>,
}

impl Arguments {
    fn read() -> Result<Arguments> {
        let mut o = Options::read();
        let (dtype, autocast) = o.choice("--dtype", &DTYPES)?;
        let steps = o.number("--steps", 300)?;
        let (text, data) = (o.text("--text")?, o.text("--data")?);
        let vocabulary = match o.number("--vocab", -1)? {
            // Ids of words would serve as [CLS] and others.
            count if count < 0 && data.is_some() => {
                return Err(Error::user("expected --vocab with --data"))
            }
            count if count < 0 => 256, // bytes
            count => count,
        };
        let a = Arguments {
            tp: o.number("--tp", 1)?,
            dp: o.number("--dp", 1)?,
            zero1: o.flag("--zero1"),
            sequence_parallel: o.flag("--sequence-parallel"),
            dtype,
            autocast,
            steps,
            warmup: o.number("--warmup", steps / 20 + 1)?,
            batch: o.number("--batch", 16)?,
            sequence: o.number("--seq", 64)?,
            hidden: o.number("--hidden", 128)?,
            layers: o.number("--layers", 2)?,
            heads: o.number("--heads", 4)?,
            intermediate: o.number("--intermediate", 512)?,
            vocabulary,
            cls: o.number("--cls", vocabulary)?,
            sep: o.number("--sep", vocabulary + 1)?,
            mask: o.number("--mask", vocabulary + 2)?,
            learning_rate: o.rate(1e-3)?,
            seed: o.number("--seed", 1)?,
            text,
            data,
            config: o.text("--config")?,
            out: o.text("--out")?,
        };
        o.done()?;
        if a.text.is_some() && a.data.is_some() {
            return Err(Error::user("expected --text or --data, got both"));
        }
        Ok(a)
    }

    /// A Hugging Face configuration: a file's, or one made of the sizes given.
    fn config(&self) -> Result<String> {
        if let Some(path) = &self.config {
            return Ok(std::fs::read_to_string(path)?);
        }
        Ok(format!(
            "{{\"model_type\": \"bert\", \"architectures\": [\"BertForPreTraining\"], \
             \"hidden_size\": {}, \"num_hidden_layers\": {}, \"num_attention_heads\": {}, \
             \"intermediate_size\": {}, \"vocab_size\": {}, \"max_position_embeddings\": {}, \
             \"type_vocab_size\": 2, \"hidden_act\": \"gelu\", \"hidden_dropout_prob\": 0.1, \
             \"attention_probs_dropout_prob\": 0.1, \"initializer_range\": 0.02, \
             \"layer_norm_eps\": 1e-12, \"pad_token_id\": null}}\n",
            self.hidden,
            self.layers,
            self.heads,
            self.intermediate,
            self.vocabulary + SPECIALS as i64,
            self.sequence
        ))
    }

    fn words(&self) -> Result<Vec<i64>> {
        let words = match &self.data {
            Some(path) => read_ids(path)?,
            None => ids_of_bytes(&read_text(&self.text)?),
        };
        if words.len() < 2 * self.sequence {
            let (wanted, given) = (2 * self.sequence, words.len());
            return Err(Error::user(format!("expected at least {} words, got {}", wanted, given)));
        }
        Ok(words)
    }
}

/// Draws of one row, which hang on the row's number in all of the training alone: any number of
/// copies sees the same rows.
struct Draws {
    seed: u64,
    next: u64,
}

impl Draws {
    fn of_row(seed: u64, row: u64) -> Draws {
        Draws { seed, next: row << 32 } // far more than a row needs
    }

    fn below(&mut self, bound: usize) -> usize {
        self.next += 1;
        (random_bits(self.seed, self.next - 1) % bound as u64) as usize
    }
}

struct Row {
    ids: Vec<i64>,
    labels: Vec<i64>,
    types: Vec<i64>,
    /// 0 where the second part follows the first, 1 where it does not.
    next: i64,
}

impl Row {
    fn make(a: &Arguments, words: &[i64], row: u64) -> Row {
        let mut draws = Draws::of_row(a.seed, row);
        let mut row = Row::make_pair(a, words, &mut draws);
        row.hide_words(a, &mut draws);
        row
    }

    fn make_pair(a: &Arguments, words: &[i64], draws: &mut Draws) -> Row {
        let room = a.sequence - SPECIALS;
        let first = 1 + draws.below(room - 1);
        let second = room - first;
        let at = draws.below(words.len() - room + 1);
        let is_other = draws.below(2) == 1;
        let from = if is_other { draws.below(words.len() - second + 1) } else { at + first };
        let (one, two) = (&words[at..at + first], &words[from..from + second]);
        let ids = [&[a.cls][..], one, &[a.sep], two, &[a.sep]].concat();
        let types = (0..a.sequence).map(|i| (i > 1 + first).into()).collect();
        Row { ids, labels: vec![-100; a.sequence], types, next: is_other.into() }
    }

    /// Hides words, whose labels they become. Each row has as many, so that the mean over copies of
    /// their mean losses is the mean over all hidden words.
    fn hide_words(&mut self, a: &Arguments, draws: &mut Draws) {
        let mut left = (a.sequence * 15 + 99) / 100;
        while left > 0 {
            let at = 1 + draws.below(a.sequence - 2);
            let is_separator = self.types[at] != self.types[at + 1];
            if self.labels[at] != -100 || is_separator {
                continue;
            }
            self.labels[at] = self.ids[at];
            match draws.below(10) {
                0..=7 => self.ids[at] = a.mask,
                8 => self.ids[at] = draws.below(a.vocabulary as usize) as i64,
                _ => {}
            }
            left -= 1;
        }
    }
}

/// The model's inputs but for an attention mask, as every row is full: ids, labels, types, next.
fn make_batch(
    ctx: &Context,
    a: &Arguments,
    words: &[i64],
    step: i64,
) -> Result<[Owned<Tensor>; 4]> {
    let rows = a.batch / i64::from(ctx.parallel_size(Axis::DATA)?);
    let first = step * a.batch + i64::from(ctx.parallel_rank(Axis::DATA)?) * rows;
    let batch: Vec<_> = (first..first + rows).map(|row| Row::make(a, words, row as u64)).collect();
    let tensor = |part: fn(&Row) -> &[i64]| {
        let values: Vec<_> = batch.iter().flat_map(part).copied().collect();
        Tensor::from_vec(values, &[rows, a.sequence as i64])
    };
    let next = batch.iter().map(|row| row.next).collect();
    Ok([
        tensor(|row| &row.ids)?,
        tensor(|row| &row.labels)?,
        tensor(|row| &row.types)?,
        Tensor::from_vec(next, &[rows])?,
    ])
}

fn make_optimizer(a: &Arguments, model: &Module) -> Result<(Optimizer, Option<Ddp>)> {
    let adamw =
        AdamwOptions { learning_rate: a.learning_rate, weight_decay: 0.01, ..Default::default() };
    let options = DdpOptions { zero_stage: 1, reduce: Reduce::AVG, ..Default::default() };
    let ddp = if a.zero1 { Some(Ddp::over_module(model, &options)?) } else { None };
    let mut optimizer = match &ddp {
        Some(ddp) => Optimizer::adamw(ddp, &adamw)?,
        None => Optimizer::adamw(model, &adamw)?,
    };
    optimizer.set_lr_schedule(&LrScheduleOptions {
        kind: LrScheduleKind::LINEAR,
        warmup_steps: a.warmup,
        total_steps: a.warmup + a.steps,
        ..Default::default()
    })?;
    Ok((optimizer, ddp))
}

fn train(ctx: &Context, a: &Arguments, model: &Module, words: &[i64]) -> Result<()> {
    let copies = i64::from(ctx.parallel_size(Axis::DATA)?);
    if a.batch % copies != 0 {
        return Err(Error::user(format!(
            "--batch: expected a multiple of the {} copies, got {}",
            copies, a.batch
        )));
    }
    let (mut optimizer, _ddp) = make_optimizer(a, model)?;
    let finish =
        FinishOptions { max_norm: 1.0, data_parallel_reduce: Reduce::AVG, ..Default::default() };
    for step in 0..a.steps {
        model.zero_grad()?;
        let [ids, labels, types, next] = &make_batch(ctx, a, words, step)?;
        let inputs = [Some(&**ids), Some(&**labels), None, Some(&**types), Some(&**next)];
        let loss = forward_backward(ctx, model, &inputs, a.autocast)?;
        optimizer.step(&finish)?;
        if (step + 1) % (a.steps / 20).max(1) == 0 || step == 0 {
            ctx.master_print(&format!("step {}/{}  loss {:.6}", step + 1, a.steps, loss))?;
        }
    }
    let shared = if a.zero1 { format!(" (ZeRO-1 over {} copies)", copies) } else { String::new() };
    let bytes = optimizer.state_bytes()?;
    ctx.master_print(&format!("rank 0 keeps {} bytes of the optimizer's state{}", bytes, shared))
}

fn write_directory(ctx: &Context, model: &Module, config: &str, out: &str) -> Result<()> {
    if ctx.rank()? == 0 {
        std::fs::write(join(out, "config.json"), config)?;
    }
    model.save_safetensors(&join(out, "model.safetensors"))?; // written by rank 0, whole
    ctx.master_print(&format!("wrote {}", out))
}

fn main() -> Result<()> {
    let a = Arguments::read()?;
    if a.tp * a.dp > 1 && nxd::launch(a.tp * a.dp)? {
        return Ok(());
    }
    let (words, config) = (a.words()?, a.config()?);
    let ctx = Context::create_with(&ContextOptions { seed: a.seed, ..Default::default() })?;
    if let Some(out) = &a.out {
        make_directory(&ctx, out)?;
    }
    ctx.init_model_parallel(&ParallelOptions { tensor_parallel_size: a.tp, ..Default::default() })?;
    let options = ModelOptions {
        dtype: a.dtype,
        sequence_parallel: a.sequence_parallel.into(),
        ..Default::default()
    };
    let model = model::from_config(&ctx, &config, &options)?;
    train(&ctx, &a, &model, &words)?;
    if let Some(out) = &a.out {
        write_directory(&ctx, &model, &config, out)?;
    }
    ctx.finalize()
}
