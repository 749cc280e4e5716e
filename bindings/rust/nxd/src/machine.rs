//! The machine: limits to compare with, memory, and where the time goes.
use crate::element::DType;
use crate::error::{check, check_abi, Result};
use crate::object::get;
use nxd_sys as sys;

pub use sys::nxd_memory_stats_t as MemoryStats;
pub use sys::nxd_phase_t as Phase;

/// Floating-point operations per second of square matrix products; `n` 0: of size 2048.
pub fn measure_gemm_peak(dtype: DType, n: i32) -> Result<f64> {
    check_abi()?;
    get(|out| unsafe { sys::nxd_measure_gemm_peak(dtype, n, out) })
}

/// Ends the threads that are kept for the calling thread between calls.
pub fn release_threads() -> Result<()> {
    check(unsafe { sys::nxd_release_threads() })
}

/// Figures of the pool that tensors are drawn from, and of the contexts' arenas.
pub fn memory_stats() -> Result<MemoryStats> {
    check_abi()?;
    let mut stats = MemoryStats::default();
    check(unsafe { sys::nxd_memory_get_stats(&mut stats) })?;
    Ok(stats)
}

/// Bounds what the pool hands out; 0: no cap.
pub fn set_memory_cap(bytes: u64) -> Result<()> {
    check(unsafe { sys::nxd_memory_set_cap(bytes) })
}

/// Gives the pool's unused memory back to the system.
pub fn trim_memory() -> Result<()> {
    check(unsafe { sys::nxd_memory_trim() })
}

/// Where the time went in one phase.
#[derive(Clone, Copy, Debug)]
pub struct PhaseStats {
    pub phase: Phase,
    pub name: &'static str,
    pub seconds: f64,
    pub operations: f64,
    pub calls: u64,
    /// The part of the seconds in which peers had not yet come.
    pub waiting_seconds: f64,
}

/// Clears the phases of the process and counts from now on.
pub fn start_profile() -> Result<()> {
    check_abi()?;
    check(unsafe { sys::nxd_profile_start() })
}

pub fn stop_profile() -> Result<()> {
    check(unsafe { sys::nxd_profile_stop() })
}

/// All phases, while counting or later.
pub fn profile() -> Result<Vec<PhaseStats>> {
    check_abi()?;
    let mut phases = Vec::new();
    loop {
        let phase = sys::nxd_phase_t(phases.len() as i32);
        let mut stats = sys::nxd_phase_stats_t::default();
        let status = unsafe { sys::nxd_profile_get_phase(phase, &mut stats) };
        // The library may know more phases than this crate; they end with a rejection.
        if status == sys::nxd_status_t::INVALID_ARGUMENT && !phases.is_empty() {
            return Ok(phases);
        }
        check(status)?;
        // Static storage of the library, in ASCII.
        let name = unsafe { std::ffi::CStr::from_ptr(stats.name) }.to_str().unwrap_or("");
        let sys::nxd_phase_stats_t { seconds, operations, calls, waiting_seconds, .. } = stats;
        phases.push(PhaseStats { phase, name, seconds, operations, calls, waiting_seconds });
    }
}
