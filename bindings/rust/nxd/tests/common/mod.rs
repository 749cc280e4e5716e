//! Ranks as threads of one process.
#![allow(dead_code)]
use nxd::{Context, ContextOptions, Owned, Result, Store, World};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// Ends what hangs, however slow and busy the machine: no test is about how long it is.
pub const LIMIT: Duration = Duration::from_secs(300);

/// Bound of every collective, so that a rank that is missing is an error.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// Less than a collective's bound: what ended before it did not wait for a peer.
pub const AT_ONCE: Duration = Duration::from_secs(60);

/// Runs a body on every rank of a world, and gives what each has given.
pub fn on_ranks<R: Send>(n: i32, body: impl Fn(Owned<Context>) -> Result<R> + Sync) -> Vec<R> {
    on_ranks_within(n, TIMEOUT, body)
}

pub fn on_ranks_within<R: Send>(
    n: i32,
    timeout: Duration,
    body: impl Fn(Owned<Context>) -> Result<R> + Sync,
) -> Vec<R> {
    let store = Store::local().unwrap();
    std::thread::scope(|scope| {
        let (store, body) = (&*store, &body);
        let ranks: Vec<_> = (0..n)
            .map(|rank| {
                scope.spawn(move || {
                    let world = World::Store { store, rank, size: n };
                    let timeout = Some(timeout);
                    let options = ContextOptions { world, timeout, ..Default::default() };
                    body(Context::create_with(&options)?)
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap().unwrap()).collect()
    })
}

/// One rank does something after another has.
#[derive(Default)]
pub struct Event {
    happened: Mutex<bool>,
    told: Condvar,
}

impl Event {
    pub fn set(&self) {
        *self.happened.lock().unwrap() = true;
        self.told.notify_all();
    }

    pub fn wait(&self) {
        let happened = self.happened.lock().unwrap();
        let end = self.told.wait_timeout_while(happened, LIMIT, |happened| !*happened).unwrap();
        assert!(*end.0, "waited in vain");
    }
}

/// A world of one rank.
pub fn alone() -> Owned<Context> {
    let store = Store::local().unwrap();
    let world = World::Store { store: &store, rank: 0, size: 1 };
    Context::create_with(&ContextOptions { world, ..Default::default() }).unwrap()
}

/// True if this process is the child of a test that runs itself anew.
pub fn is_child(test: &str) -> bool {
    std::env::var("NXD_TEST_CHILD").map_or(false, |child| child == test)
}

/// Runs one test of this program as a process of its own; gives its exit code, or `None` when it was
/// ended by a signal or did not end in time.
pub fn run_child(test: &str) -> Option<i32> {
    run_child_with(test, &[])
}

/// The same with more variables in its environment.
pub fn run_child_with(test: &str, variables: &[(&str, &str)]) -> Option<i32> {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env("NXD_TEST_CHILD", test)
        .envs(variables.iter().copied())
        .spawn()
        .unwrap();
    let start = std::time::Instant::now();
    while start.elapsed() < LIMIT {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}
