use crate::common::LIMIT;
use nxd::{machine, DType, Exit, Job, SpawnOptions, Status};
use std::time::Duration;

fn shell(script: &str, processes: i32) -> SpawnOptions {
    let arguments = vec!["/bin/sh".into(), "-c".into(), script.into()];
    SpawnOptions { processes, arguments, ..Default::default() }
}

#[test]
fn processes_end_well() {
    let job = Job::spawn(&shell("test $WORLD_SIZE = 2 && test -n \"$MASTER_PORT\"", 2)).unwrap();
    assert_eq!(job.size().unwrap(), 2);
    assert!(job.pid(0).unwrap() > 0);
    job.wait(Some(LIMIT)).unwrap();
    assert_eq!(job.exit(1).unwrap(), Exit::Code(0));
}

#[test]
fn processes_that_fail_are_named() {
    let job = Job::spawn(&shell("exit $((RANK * 3))", 2)).unwrap();
    let error = job.wait(None).unwrap_err();
    assert_eq!(error.status(), Status::PEER_LOST);
    assert!(error.message().contains('3'), "{}", error);
    assert_eq!(job.exit(1).unwrap(), Exit::Code(3));
}

#[test]
fn processes_are_killed() {
    let job = Job::spawn(&shell("exec sleep 300", 2)).unwrap();
    assert_eq!(job.wait(Some(Duration::ZERO)).unwrap_err().status(), Status::TIMEOUT);
    assert_eq!(job.exit(0).unwrap(), Exit::Running);
    job.kill(15).unwrap();
    assert!(job.wait(Some(LIMIT)).is_err());
    assert_eq!(job.exit(0).unwrap(), Exit::Code(128 + 15));
    let missing = SpawnOptions { arguments: vec!["/no/such/program".into()], ..Default::default() };
    assert_eq!(Job::spawn(&missing).unwrap_err().status(), Status::IO);
}

#[test]
fn figures_of_the_machine() {
    assert!(machine::measure_gemm_peak(DType::F32, 64).unwrap() > 0.0);
    machine::release_threads().unwrap();
    machine::set_memory_cap(1 << 40).unwrap();
    assert_eq!(machine::memory_stats().unwrap().cap_bytes, 1 << 40);
    machine::set_memory_cap(0).unwrap();
    machine::trim_memory().unwrap();
    machine::start_profile().unwrap();
    machine::stop_profile().unwrap();
    let phases = machine::profile().unwrap();
    assert_eq!(phases[0].name, "GEMM forward");
    assert_eq!(phases.len(), 8);
}
