//! Parts that train_lm, finetune_hf and pretrain_bert share: options, corpora, draws, a pass.
#![allow(dead_code)] // each of them uses a part
use nxd::{Axis, Context, DType, Error, Group, Module, Reduce, Result, Tensor};
use std::path::Path;
use std::str::FromStr;

/// Words of a command line that have not been asked for yet.
pub struct Options(Vec<String>);

impl Options {
    pub fn read() -> Options {
        Options(std::env::args().skip(1).collect())
    }

    /// True if a name is there.
    pub fn flag(&mut self, name: &str) -> bool {
        let words = self.0.len();
        self.0.retain(|word| word != name);
        self.0.len() != words
    }

    /// The word behind a name, the last where there are several.
    pub fn text(&mut self, name: &str) -> Result<Option<String>> {
        let mut found = None;
        while let Some(at) = self.0.iter().position(|word| word == name) {
            if at + 1 == self.0.len() {
                return Err(Error::user(format!("{}: expected a value", name)));
            }
            found = self.0.drain(at..at + 2).nth(1);
        }
        Ok(found)
    }

    pub fn number<T: FromStr>(&mut self, name: &str, default: T) -> Result<T> {
        match self.text(name)? {
            None => Ok(default),
            Some(text) => text
                .parse()
                .map_err(|_| Error::user(format!("{}: cannot understand {}", name, text))),
        }
    }

    /// A rate of learning, which the library takes for its own default where it is 0.
    pub fn rate(&mut self, default: f64) -> Result<f64> {
        let rate = self.number("--lr", default)?;
        if rate > 0.0 {
            return Ok(rate);
        }
        Err(Error::user(format!("--lr: expected a rate above 0, got {}", rate)))
    }

    /// One of several values by its name; the first where none is named.
    pub fn choice<T: Copy>(&mut self, name: &str, values: &[(&str, T)]) -> Result<T> {
        match self.text(name)? {
            None => Ok(values[0].1),
            Some(text) => values
                .iter()
                .find_map(|&(known, value)| (known == text).then_some(value))
                .ok_or_else(|| Error::user(format!("{}: cannot understand {}", name, text))),
        }
    }

    /// Fails where one of the names, which has no effect beside one of the others, is there with it.
    /// Before any of them is read.
    pub fn idle(&self, names: &[&str], others: &[&str]) -> Result<()> {
        let has = |name: &str| self.0.iter().any(|word| word == name);
        for name in names.iter().filter(|name| has(name)) {
            if let Some(other) = others.iter().find(|other| has(other)) {
                return Err(Error::user(format!("{} has no effect beside {}", name, other)));
            }
        }
        Ok(())
    }

    /// Fails where a word is left over.
    pub fn done(self) -> Result<()> {
        match self.0.first() {
            None => Ok(()),
            Some(word) => Err(Error::user(format!("cannot understand {}", word))),
        }
    }
}

/// By rank 0, with its parents. Before a training: no result of one is lost to a bad path.
pub fn make_directory(ctx: &Context, path: impl AsRef<Path>) -> Result<()> {
    if ctx.rank()? == 0 {
        std::fs::create_dir_all(path)?;
    }
    Ok(())
}

/// The file given, or the licence texts that Debian installs, in order of their names.
pub fn read_text(path: &Option<String>) -> Result<Vec<u8>> {
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

/// Each byte as an id.
pub fn ids_of_bytes(bytes: &[u8]) -> Vec<i64> {
    bytes.iter().map(|&byte| byte.into()).collect()
}

/// 16-bit ids of a tokenizer, the least byte first.
pub fn read_ids(path: &str) -> Result<Vec<i64>> {
    let bytes = std::fs::read(path)?;
    Ok(bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]).into()).collect())
}

/// The draw-th value of a stream: the finaliser of SplitMix64 (Steele et al. 2014).
pub fn random_bits(seed: u64, draw: u64) -> u64 {
    let z = seed.wrapping_add(1).wrapping_mul(0xD1B5_4A32_D192_ED03);
    let z = z.wrapping_add(draw.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A batch of random windows; copies of the model, a group, take different ones.
pub fn random_windows(
    ids: &[i64],
    seed: u64,
    step: i64,
    copies: &Group,
    batch: usize,
    length: usize,
) -> Result<Vec<i64>> {
    let first = (step as u64 * copies.size()? as u64 + copies.rank()? as u64) * batch as u64;
    let window = |row| {
        let at = (random_bits(seed, first + row) % (ids.len() - length) as u64) as usize;
        ids[at..at + length].iter().copied()
    };
    Ok((0..batch as u64).flat_map(window).collect())
}

/// Adds to the gradients; the loss is the mean over all copies of the model.
pub fn forward_backward(
    ctx: &Context,
    model: &Module,
    inputs: &[Option<&Tensor>],
    autocast: DType,
) -> Result<f64> {
    let loss = nxd::with_autocast(autocast, || model.forward_all(inputs, 1))?.remove(0);
    loss.backward()?;
    let mut mean = [loss.item()?];
    ctx.parallel_group(Axis::DATA)?.all_reduce_in_place(&mut mean, Reduce::AVG)?;
    Ok(mean[0])
}

/// A path as the library takes it.
pub fn join(directory: &str, name: &str) -> String {
    Path::new(directory).join(name).display().to_string()
}
