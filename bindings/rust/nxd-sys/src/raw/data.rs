//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

/// The elements of token files, which have no header.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_token_format_t(pub i32);

impl nxd_token_format_t {
    pub const INVALID: Self = Self(-1);
    /// BYTES where paths end in .txt, UINT32 where they end in .u32, else UINT16; paths of several are rejected
    pub const DEFAULT: Self = Self(0);
    /// ids of 16 bits, little-endian
    pub const UINT16: Self = Self(1);
    /// ids of 32 bits, little-endian
    pub const UINT32: Self = Self(2);
    /// text: each byte is an id from 0 to 255
    pub const BYTES: Self = Self(3);
}

impl std::fmt::Debug for nxd_token_format_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::DEFAULT => f.write_str("DEFAULT"),
            Self::UINT16 => f.write_str("UINT16"),
            Self::UINT32 => f.write_str("UINT32"),
            Self::BYTES => f.write_str("BYTES"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_token_format_t {
    fn default() -> Self {
        Self(0)
    }
}

/// Reads samples, which are sequences of token ids.
#[repr(C)]
pub struct nxd_data_loader_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
}

/// How a loader reads. All fields are the same on all ranks.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_data_loader_options_t {
    pub struct_size: usize,
    /// 0: ids are not checked. Else an id that is not below it is CORRUPT, when it is read
    pub vocab_size: i64,
    /// of the order of samples; has_seed 0: the context's
    pub seed: u64,
    pub has_seed: i32,
    pub format: nxd_token_format_t,
    /// default on: each epoch has an order of its own, that of nxd_sample_epoch for one rank; off: the order of the files
    pub shuffle: nxd_toggle_t,
    /// 1: nxd_data_loader_next gives labels too, which are the ids one place on. Models of libnxd want none: they shift their labels, which are the ids themselves
    pub next_labels: i32,
    /// batches that are read ahead; 0: 2; at most 1024
    pub prefetch: i32,
    pub reserved: i32,
}

unsafe impl Versioned for nxd_data_loader_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        if self.seed != 0 {
            self.has_seed = 1;
        }
        self
    }
}

impl Default for nxd_data_loader_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_data_loader_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

extern "C" {
    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_data_loader_options_init(options: *mut nxd_data_loader_options_t, size: usize) -> nxd_status_t;

    /// [collective: world] Opens files, and begins to read ahead.
    ///
    /// A file is cut into samples of sequence_length tokens, one after another; tokens that are left at
    /// its end belong to none. With next_labels a sample has one more token, which is the first of the
    /// sample behind it.
    ///
    /// Samples of one epoch follow those of the one before, and batches may begin in the one and end in
    /// the other: none is left out, and none is given twice. Rank r of the data-parallel group takes
    /// places r, r + ranks and so on, of the world's where nxd_init_model_parallel has not been called.
    /// Ranks of one place in it, such as tensor-parallel ones, get the same batches.
    ///
    /// The files are read by offset, not mapped. They may be unlinked meanwhile; where one is cut
    /// short, reading it fails.
    /// @param paths  of files that have equal contents on all ranks, of which ranks compare the sizes
    /// alone; UTF-8. They stay open.
    /// @param batch_size       samples of a batch of one rank.
    /// @param sequence_length  tokens.
    /// @return NXD_OK; INVALID_ARGUMENT; IO; CORRUPT (a size that is no number of elements, too few
    /// tokens for one sample), on all ranks when it is so on one; INVALID_ARGUMENT also where
    /// options or the files' sizes differ.
    /// @since 0.1
    pub fn nxd_data_loader_create(ctx: *mut nxd_context_t, paths: *const *const c_char, num_paths: usize, batch_size: i64, sequence_length: i64, options: *const nxd_data_loader_options_t, out_loader: *mut *mut nxd_data_loader_t) -> nxd_status_t;

    /// [local] Takes this rank's next batches. It may wait for the disk, and for no rank.
    /// @param ids     [batches, batch_size, sequence_length] in C order, of the caller's.
    /// @param labels  the same, NULL without next_labels.
    /// @param count   elements of each, which says how many batches there are: several at once are
    /// those of as many calls.
    /// @return NXD_OK; INVALID_ARGUMENT; IO; CORRUPT (names the file and the token). After a failure
    /// the position is as before, and what ids and labels hold is undefined.
    /// @since 0.1
    pub fn nxd_data_loader_next(loader: *mut nxd_data_loader_t, ids: *mut i64, labels: *mut i64, count: usize) -> nxd_status_t;

    /// [local] Samples of an epoch, over all ranks.
    /// @since 0.1
    pub fn nxd_data_loader_get_sample_count(loader: *mut nxd_data_loader_t, out_count: *mut i64) -> nxd_status_t;

    /// [local] Samples that all ranks together have taken when each of them has taken as many batches
    /// as this one. It is what a checkpoint needs to keep.
    /// @since 0.1
    pub fn nxd_data_loader_get_position(loader: *mut nxd_data_loader_t, out_position: *mut i64) -> nxd_status_t;

    /// [local] Goes on behind so many samples: in the order that a loader over the same files, with the
    /// same seed and sequence_length, would have gone on, whatever its numbers of ranks and batch sizes
    /// were. Every rank sets the same position.
    /// @param position  0 to 2^53, of less than 2^39 epochs.
    /// @since 0.1
    pub fn nxd_data_loader_set_position(loader: *mut nxd_data_loader_t, position: i64) -> nxd_status_t;

    /// [local] Ends the reading, and closes the files.
    /// @since 0.1
    pub fn nxd_data_loader_destroy(loader: *mut nxd_data_loader_t);
}
