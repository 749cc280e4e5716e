//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

/// Processes started together on this host.
#[repr(C)]
pub struct nxd_job_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Options of nxd_spawn.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_spawn_options_t {
    pub struct_size: usize,
    /// at most 65536; 0: NEURON_NUM_DEVICES, NEURONCORE_NUM_DEVICES, or 1
    pub num_processes: i32,
    /// OMP_NUM_THREADS of each; 0: as inherited, or 1 with more than one process
    pub omp_num_threads: i32,
    /// NULL-terminated program, which is looked for in PATH where it has no '/', and arguments; NULL: this program, re-executed with the arguments it was started with
    pub argv: *const *const c_char,
}

unsafe impl Versioned for nxd_spawn_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_spawn_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_spawn_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

extern "C" {
    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_spawn_options_init(options: *mut nxd_spawn_options_t, size: usize) -> nxd_status_t;

    /// [local] Starts n processes with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT set,
    /// so that nxd_context_create(NULL, ...) joins them.
    ///
    /// The processes are ended when this process ends. A process so started must not spawn again.
    /// @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (this process was itself started by a launcher);
    /// IO (the program cannot be executed; none is left running).
    /// @since 0.1
    pub fn nxd_spawn(options: *const nxd_spawn_options_t, out_job: *mut *mut nxd_job_t) -> nxd_status_t;

    /// [blocking] Waits until all processes have ended, and ends them when one has failed.
    ///
    /// When one fails, the others have 3 seconds to report, get SIGTERM, and 2 seconds later SIGKILL.
    /// A call whose time ends before they do returns TIMEOUT, and the next goes on with that.
    /// @param timeout_ms  0 asks once; negative waits without bound.
    /// @return NXD_OK (all ended with 0); PEER_LOST (one failed, and all have ended: rank and exit
    /// code in the message); TIMEOUT (some still run).
    /// @since 0.1
    pub fn nxd_job_wait(job: *mut nxd_job_t, timeout_ms: i64) -> nxd_status_t;

    /// [local] Sends a signal to every process still running.
    /// @since 0.1
    pub fn nxd_job_kill(job: *mut nxd_job_t, signal_number: i32) -> nxd_status_t;

    /// [local] Number of processes of the job.
    /// @since 0.1
    pub fn nxd_job_get_size(job: *mut nxd_job_t, out_size: *mut i32) -> nxd_status_t;

    /// [local] How a process ended.
    ///
    /// @param[out] out_running    1 while it runs; the code is then 0.
    /// @param[out] out_exit_code  exit status, or 128 + signal number.
    /// @since 0.1
    pub fn nxd_job_get_exit_code(job: *mut nxd_job_t, rank: i32, out_running: *mut i32, out_exit_code: *mut i32) -> nxd_status_t;

    /// [local] Process id of a rank.
    /// @since 0.1
    pub fn nxd_job_get_pid(job: *mut nxd_job_t, rank: i32, out_pid: *mut i64) -> nxd_status_t;

    /// [blocking] Ends what still runs, and releases the job.
    /// @since 0.1
    pub fn nxd_job_destroy(job: *mut nxd_job_t);
}
