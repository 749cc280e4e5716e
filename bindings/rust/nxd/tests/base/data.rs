use crate::common::{alone, on_ranks};
use nxd::{DataLoader, DataLoaderOptions, Status, TokenFormat};

/// A file of sixteen samples of four tokens, 0 to 63, which goes with its directory.
struct TokenFile(std::path::PathBuf);

impl TokenFile {
    fn new(name: &str) -> TokenFile {
        let path = std::env::temp_dir().join(format!("nxd-{}-{}", std::process::id(), name));
        let bytes: Vec<u8> = (0..64u16).flat_map(|token| token.to_le_bytes()).collect();
        std::fs::write(&path, bytes).unwrap();
        TokenFile(path)
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn ranks_share_an_epoch() {
    let file = TokenFile::new("epoch.bin");
    let mut samples: Vec<Vec<i64>> = on_ranks(2, |ctx| {
        let loader = DataLoader::open(&ctx, &[&file.0], 4, 4, &Default::default())?;
        assert_eq!(loader.num_samples()?, 16);
        let mut ids = vec![0; 32];
        loader.next(&mut ids, None)?;
        assert_eq!(loader.position()?, 16);
        Ok(ids.chunks(4).map(<[i64]>::to_vec).collect::<Vec<_>>())
    })
    .concat();
    samples.sort();
    let all: Vec<Vec<i64>> = (0..16).map(|s| (4 * s..4 * s + 4).collect()).collect();
    assert_eq!(samples, all);
}

#[test]
fn a_loader_goes_on_at_a_position() {
    let file = TokenFile::new("position.bin");
    let ctx = alone();
    let options = DataLoaderOptions {
        format: TokenFormat::UINT16,
        next_labels: 1,
        vocab_size: 64,
        ..Default::default()
    };
    let loader = DataLoader::open(&ctx, &[&file.0], 1, 4, &options).unwrap();
    assert_eq!(loader.num_samples().unwrap(), 15);
    let (mut first, mut again, mut labels) = (vec![0; 8], vec![0; 8], vec![0; 8]);
    loader.next(&mut first, Some(&mut labels)).unwrap();
    assert!(first.iter().zip(&labels).all(|(id, label)| id + 1 == *label));
    loader.set_position(0).unwrap();
    loader.next(&mut again, Some(&mut labels)).unwrap();
    assert_eq!(first, again);
    assert!(loader.next(&mut first, Some(&mut labels[1..])).is_err());
    assert!(loader.next(&mut first, None).is_err());
    assert_eq!(loader.position().unwrap(), 2);
}

#[test]
fn a_seed_counts() {
    let file = TokenFile::new("seed.bin");
    let ctx = alone();
    let order = |seed, has_seed| {
        let options = DataLoaderOptions { seed, has_seed, ..Default::default() };
        let loader = DataLoader::open(&ctx, &[&file.0], 1, 4, &options).unwrap();
        let mut ids = vec![0; 64];
        loader.next(&mut ids, None).unwrap();
        ids
    };
    assert_eq!(order(5, 0), order(5, 1));
    assert_ne!(order(5, 0), order(6, 0));
    assert_ne!(order(5, 0), order(0, 0));
}

#[test]
fn a_bad_path_of_one_rank_fails_all() {
    let file = TokenFile::new("bad.bin");
    let statuses = on_ranks(2, |ctx| {
        let good = file.0.to_string_lossy().to_string();
        let mut found = Vec::new();
        for bad in ["/nonexistent", "with\0nul"] {
            let path = if ctx.rank()? == 1 { bad } else { &good };
            let made = DataLoader::open(&ctx, &[path], 1, 4, &Default::default());
            found.push(made.err().map(|error| error.status()));
        }
        Ok(found)
    });
    assert_eq!(statuses, vec![vec![Some(Status::IO), Some(Status::INVALID_ARGUMENT)]; 2]);
}

/// Names of files need not be text.
#[test]
fn a_path_of_other_bytes() {
    use std::os::unix::ffi::OsStrExt;
    let file = TokenFile::new("bytes.bin");
    let other = TokenFile(file.0.with_file_name(std::ffi::OsStr::from_bytes(
        &[file.0.file_name().unwrap().as_bytes(), b"\xff"].concat(),
    )));
    std::fs::copy(&file.0, &other.0).unwrap();
    let loader = DataLoader::open(&alone(), &[&other.0], 1, 4, &Default::default()).unwrap();
    assert_eq!(loader.num_samples().unwrap(), 16);
}
