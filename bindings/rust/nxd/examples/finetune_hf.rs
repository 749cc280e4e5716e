//! Fine-tunes a model of a Hugging Face directory and writes one that Hugging Face's libraries load:
//! weights under their names, and config.json, tokenizer and other files as they were, but no
//! directories and no names with a dot in front. It is examples/c/finetune_hf.c in Rust, with the
//! same losses.
//!
//!     cargo run --release --example finetune_hf -- --model gpt2/ --ids corpus.u16 --out tuned/ --tp 2
//!
//! The ids are those of the model's own tokenizer, as 16-bit numbers, the least byte first. With
//! --text the bytes of a file are the ids. More ranks than --tp, as of a launcher, train
//! data-parallel copies.
mod common;

use common::{
    forward_backward, ids_of_bytes, join, make_directory, random_windows, read_ids, Options,
};
use nxd::{
    model, AdamwOptions, Axis, Context, DType, Error, FinishOptions, Module, Optimizer,
    ParallelOptions, Reduce, Result, Tensor,
};

struct Arguments {
    model: String,
    out: String,
    ids: Option<String>,
    text: Option<String>,
    tp: i32,
    dp: i32,
    steps: i64,
    batch: usize,
    sequence: usize,
    learning_rate: f64,
}

impl Arguments {
    fn read() -> Result<Arguments> {
        let mut o = Options::read();
        o.idle(&["--text"], &["--ids"])?;
        let missing = |name| move || Error::user(format!("{}: expected a directory", name));
        let a = Arguments {
            model: o.text("--model")?.ok_or_else(missing("--model"))?,
            out: o.text("--out")?.ok_or_else(missing("--out"))?,
            ids: o.text("--ids")?,
            text: o.text("--text")?,
            tp: o.number("--tp", 1)?,
            dp: o.number("--dp", 1)?,
            steps: o.number("--steps", 20)?,
            batch: o.number("--batch", 4)?,
            sequence: o.number("--seq", 32)?,
            learning_rate: o.rate(1e-4)?,
        };
        o.done().map(|()| a)
    }

    fn corpus(&self) -> Result<Vec<i64>> {
        let ids = match (&self.ids, &self.text) {
            (Some(path), _) => read_ids(path)?,
            (None, Some(path)) => ids_of_bytes(&std::fs::read(path)?),
            (None, None) => return Err(Error::user("expected --ids or --text")),
        };
        if ids.len() <= self.sequence {
            let message = format!("expected more than {} ids, got {}", self.sequence, ids.len());
            return Err(Error::user(message));
        }
        Ok(ids)
    }
}

fn train(ctx: &Context, a: &Arguments, model: &Module, corpus: &[i64]) -> Result<()> {
    let copies = ctx.parallel_group(Axis::DATA)?;
    let adamw = AdamwOptions { learning_rate: a.learning_rate, ..Default::default() };
    let mut optimizer = Optimizer::adamw(model, &adamw)?;
    let finish =
        FinishOptions { max_norm: 1.0, data_parallel_reduce: Reduce::AVG, ..Default::default() };
    for step in 0..a.steps {
        let ids = random_windows(corpus, 1, step, copies, a.batch, a.sequence)?;
        let ids = Tensor::from_vec(ids, &[a.batch as i64, a.sequence as i64])?;
        // The model shifts its labels itself.
        let loss = forward_backward(ctx, model, &[Some(&*ids), Some(&*ids)], DType::INVALID)?;
        optimizer.step(&finish)?;
        model.zero_grad()?;
        ctx.master_print(&format!("step {}/{}  loss {:.6}", step + 1, a.steps, loss))?;
    }
    Ok(())
}

/// Endings of weights, of any program's, and of indices of them: in each format they would be the
/// old ones.
const WEIGHTS: [&str; 13] = [
    ".safetensors",
    ".index.json",
    ".bin",
    ".ckpt",
    ".gguf",
    ".h5",
    ".msgpack",
    ".onnx",
    ".onnx_data",
    ".ot",
    ".pt",
    ".pth",
    ".tflite",
];

/// All of a directory's files but the weights, which are new.
fn copy_other_files(from: &str, to: &str) -> Result<()> {
    for entry in std::fs::read_dir(from)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_weights = WEIGHTS.iter().any(|ending| name.ends_with(ending));
        if path.is_file() && !name.starts_with('.') && !is_weights {
            std::fs::copy(&path, join(to, &name))?;
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let a = Arguments::read()?;
    if a.tp * a.dp > 1 && nxd::launch(a.tp * a.dp)? {
        return Ok(());
    }
    let corpus = a.corpus()?;
    let ctx = Context::create()?;
    make_directory(&ctx, &a.out)?;
    ctx.init_model_parallel(&ParallelOptions { tensor_parallel_size: a.tp, ..Default::default() })?;
    let model = model::from_pretrained(&ctx, &a.model, &Default::default())?;
    train(&ctx, &a, &model, &corpus)?;
    model.save_safetensors(&join(&a.out, "model.safetensors"))?; // written by rank 0, whole
    if ctx.rank()? == 0 {
        copy_other_files(&a.model, &a.out)?;
    }
    ctx.master_print(&format!("wrote {}", a.out))?;
    ctx.finalize()
}
