//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

/// Figures of the pool that tensors are drawn from, and of the contexts' arenas.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_memory_stats_t {
    pub struct_size: usize,
    /// in live tensors
    pub bytes_in_use: u64,
    /// held from the system, live or ready for reuse
    pub bytes_reserved: u64,
    pub peak_bytes_in_use: u64,
    /// since the process started
    pub allocations: u64,
    /// of these, the ones that had to ask the system
    pub system_allocations: u64,
    /// of nxd_memory_set_cap; 0: none
    pub cap_bytes: u64,
    /// of all contexts' arenas: of nxd_arena_alloc, and in tensors that ranks of a host exchange in place
    pub arena_bytes_in_use: u64,
    /// address space of the arenas; pages never used take no memory
    pub arena_bytes_reserved: u64,
}

unsafe impl Versioned for nxd_memory_stats_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_memory_stats_t {
    fn default() -> Self {
        zeroed::<Self>().with_size()
    }
}

extern "C" {
    /// [local] Memory that the other ranks of this host can read and write too.
    ///
    /// Collectives over shared memory work on such buffers in place, which takes a third of the time or
    /// less; any other buffer works as well. Contents are undefined at first.
    /// @param size       bytes; 0 is allowed.
    /// @param[out] out_data  aligned to 64 bytes. Valid until nxd_arena_free, or until the context and
    /// all that was made from it are destroyed.
    /// @return NXD_OK; INVALID_ARGUMENT; OUT_OF_MEMORY; IO (the system has no shared memory).
    /// @since 0.1
    pub fn nxd_arena_alloc(ctx: *mut nxd_context_t, size: usize, out_data: *mut *mut c_void) -> nxd_status_t;

    /// [local] Takes back memory of nxd_arena_alloc for later calls of it; no call may be using it.
    /// @param data  NULL does nothing.
    /// @return NXD_OK; INVALID_ARGUMENT (not from this context's nxd_arena_alloc).
    /// @since 0.1
    pub fn nxd_arena_free(ctx: *mut nxd_context_t, data: *mut c_void) -> nxd_status_t;

    /// [local] Reads the pool's figures.
    /// @param[in,out] out_stats  struct_size set by the caller: of its own header, which may be older.
    /// @return NXD_OK; INVALID_ARGUMENT; ABI_MISMATCH (struct_size of no version).
    /// @since 0.1
    pub fn nxd_memory_get_stats(out_stats: *mut nxd_memory_stats_t) -> nxd_status_t;

    /// [local] Bounds the pool. A call that would exceed the cap fails with OUT_OF_MEMORY, and its
    /// message names the size asked for and the cap. Blocks in use stay, even beyond the cap.
    ///
    /// The cap is on bytes_in_use. Memory kept for reuse is given back before the pool holds more than
    /// the cap, as far as no block in use lies on it. Arenas are not counted.
    /// @param bytes  0: no cap, as at first.
    /// @since 0.1
    pub fn nxd_memory_set_cap(bytes: u64) -> nxd_status_t;

    /// [local] Gives the pool's unused memory back to the system.
    /// @since 0.1
    pub fn nxd_memory_trim() -> nxd_status_t;
}
