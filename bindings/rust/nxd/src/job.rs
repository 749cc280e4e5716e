use crate::error::{c_string, check, Result, Status};
use crate::object::{create, get, object, Owned};
use crate::store::milliseconds;
use nxd_sys as sys;
use std::ptr::null;
use std::time::Duration;

object! {
    /// Processes started together on this host; ended when it is dropped.
    Job, nxd_job_t, nxd_job_destroy
}

// One thread at a time uses it; which thread does not matter.
unsafe impl Send for Owned<Job> {}

/// The processes to start.
#[derive(Clone, Debug, Default)]
pub struct SpawnOptions {
    /// 0: NEURON_NUM_DEVICES, NEURONCORE_NUM_DEVICES, or 1.
    pub processes: i32,
    /// OMP_NUM_THREADS of each; 0: as inherited, or 1 with more than one process.
    pub omp_num_threads: i32,
    /// Program and arguments; empty: this program with its own arguments.
    pub arguments: Vec<String>,
}

/// How a process of a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Running,
    /// Exit status, or 128 + signal number.
    Code(i32),
}

impl Job {
    /// Starts processes that [`Context::create`](crate::Context::create) joins into one world.
    pub fn spawn(options: &SpawnOptions) -> Result<Owned<Job>> {
        let arguments =
            options.arguments.iter().map(|a| c_string(a)).collect::<Result<Vec<_>>>()?;
        let mut argv: Vec<_> = arguments.iter().map(|a| a.as_ptr()).collect();
        argv.push(null());
        let raw = sys::nxd_spawn_options_t {
            num_processes: options.processes,
            omp_num_threads: options.omp_num_threads,
            argv: if arguments.is_empty() { null() } else { argv.as_ptr() },
            ..Default::default()
        };
        create(|out| unsafe { sys::nxd_spawn(&raw, out) })
    }

    /// Waits until all processes have ended, or one has failed: then the others are ended, and the
    /// error says which one it was. `None` waits without bound.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<()> {
        check(unsafe { sys::nxd_job_wait(self.as_raw(), timeout.map_or(-1, milliseconds)) })
    }

    /// Sends a signal to every process still running.
    pub fn kill(&self, signal_number: i32) -> Result<()> {
        check(unsafe { sys::nxd_job_kill(self.as_raw(), signal_number) })
    }

    pub fn size(&self) -> Result<i32> {
        get(|out| unsafe { sys::nxd_job_get_size(self.as_raw(), out) })
    }

    pub fn exit(&self, rank: i32) -> Result<Exit> {
        let (mut running, mut code) = (0, 0);
        check(unsafe { sys::nxd_job_get_exit_code(self.as_raw(), rank, &mut running, &mut code) })?;
        Ok(if running != 0 { Exit::Running } else { Exit::Code(code) })
    }

    /// Process id of a rank.
    pub fn pid(&self, rank: i32) -> Result<i64> {
        get(|out| unsafe { sys::nxd_job_get_pid(self.as_raw(), rank, out) })
    }
}

/// Starts this program again as the ranks of one world and waits for them, unless torchrun, nxdrun,
/// mpirun or srun has started it as one already. `true`: they have all ended well, and there is no
/// more to do here.
pub fn launch(processes: i32) -> Result<bool> {
    let job = match Job::spawn(&SpawnOptions { processes, ..Default::default() }) {
        // By the variables that contexts go by too.
        Err(error) if error.status() == Status::INVALID_STATE => return Ok(false),
        job => job?,
    };
    job.wait(None)?;
    Ok(true)
}
