//! The examples, two ranks each, and where there is a C program of the same name its output.
mod common;

use common::LIMIT;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Output of a program that ends well within the limit.
fn run(program: PathBuf, arguments: &[&str]) -> String {
    let (status, text) = end(&program, arguments);
    let good = status.map_or(false, |status| status.success());
    assert!(good, "{} {:?}: {:?}\n{}", program.display(), arguments, status, text);
    text
}

/// How a program ends within the limit, and its output.
fn end(program: &Path, arguments: &[&str]) -> (Option<ExitStatus>, String) {
    let name = program.display().to_string();
    let out = std::env::temp_dir().join(format!(
        "nxd-{}-{}",
        std::process::id(),
        name.replace('/', "_") + &arguments.concat().replace('/', "_")
    ));
    let log = std::fs::File::create(&out).unwrap();
    let mut child = Command::new(program)
        .args(arguments)
        .envs([("NXD_CPU_MODE", "1"), ("OMP_NUM_THREADS", "1"), ("NEURON_NUM_DEVICES", "2")])
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .stdin(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {}", name, error));
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if start.elapsed() > LIMIT {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let text = std::fs::read_to_string(&out).unwrap();
    std::fs::remove_file(&out).unwrap();
    (status, text)
}

fn example_path(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.parent().unwrap().parent().unwrap().join("examples").join(name)
}

/// An example of this package, which `cargo test` has built beside this program.
fn example(name: &str, arguments: &[&str]) -> String {
    run(example_path(name), arguments)
}

/// A C program of the same purpose, where NXD_C_EXAMPLES says there are some.
fn c_example(name: &str, arguments: &[&str]) -> Option<String> {
    match std::env::var_os("NXD_C_EXAMPLES") {
        Some(directory) => Some(run(PathBuf::from(directory).join(name), arguments)),
        None => {
            println!("not compared with {}: NXD_C_EXAMPLES is not set", name);
            None
        }
    }
}

/// The loss of each step, as text.
fn losses(output: &str) -> Vec<&str> {
    let words =
        |line| -> Option<&str> { str::split(line, "loss ").nth(1)?.split_whitespace().next() };
    output.lines().filter_map(words).collect()
}

fn falls(losses: &[f64], share: f64) {
    assert!(losses.len() > 2 && losses[losses.len() - 1] < share * losses[0], "{:?}", losses);
}

fn numbers(output: &str) -> Vec<f64> {
    losses(output).into_iter().map(|loss| loss.parse().unwrap()).collect()
}

/// An example with variables of a launcher, and without those that tests may be started with.
fn launched(name: &str, argument: &str, variables: &[(&str, &str)]) -> std::process::Child {
    let tests = std::env::current_exe().unwrap();
    Command::new(tests.parent().unwrap().parent().unwrap().join("examples").join(name))
        .arg(argument)
        .env_remove("RANK")
        .env_remove("WORLD_SIZE")
        .envs([("NXD_CPU_MODE", "1"), ("OMP_NUM_THREADS", "1")])
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Ranks of mpirun's, which tells them so by other variables than RANK, join it and start none.
#[test]
fn launched_by_mpirun() {
    for (name, argument) in [("show_error", ""), ("interrupted", "handled")] {
        let size = ("OMPI_COMM_WORLD_SIZE", "2");
        let ranks = ["0", "1"]
            .map(|rank| launched(name, argument, &[size, ("OMPI_COMM_WORLD_RANK", rank)]));
        for rank in ranks {
            let output = rank.wait_with_output().unwrap();
            assert!(output.status.success(), "{:?}", output);
        }
    }
}

/// The program of a batch script is no rank, whatever its variables say.
#[test]
fn launched_by_sbatch() {
    let step = [("SLURM_STEP_ID", "4294967291"), ("SLURM_STEP_NUM_TASKS", "2")];
    let output = launched("show_error", "", &step).wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("the group goes on: 2 ranks"), "{:?}", output);
}

#[cfg(feature = "engine")]
#[test]
fn tensor_parallel_mlp() {
    let mine = example("mlp_tensor_parallel", &[]);
    let sum = |text: &str| {
        text.split("sum is ").nth(1).and_then(|t| t.split(';').next().map(String::from))
    };
    assert!(mine.contains("largest difference"), "{}", mine);
    if let Ok(launcher) = std::env::var("NXD_RUN") {
        let c = std::env::var("NXD_C_EXAMPLES").unwrap() + "/mlp_tensor_parallel";
        let c = run(PathBuf::from(launcher), &["-n", "2", &c]);
        assert_eq!(sum(&mine).unwrap(), sum(&c).unwrap());
    }
}

#[cfg(feature = "engine")]
#[test]
fn forward_in_rust() {
    let mine = numbers(&example("custom_model", &[]));
    assert_eq!(mine.len(), 30);
    falls(&mine, 0.9);
}

#[test]
fn zero1_over_arrays() {
    let mine = example("zero1_arrays", &[]);
    falls(&numbers(&mine), 0.5);
    if let Ok(launcher) = std::env::var("NXD_RUN") {
        let c = std::env::var("NXD_C_EXAMPLES").unwrap() + "/embed_zero1";
        let c = run(PathBuf::from(launcher), &["-n", "2", &c]);
        assert_eq!(losses(&mine), losses(&c));
    }
}

#[test]
fn stages_in_rust() {
    // The schedule that asks most of a stage.
    let mine = numbers(&example("pipeline_stages", &["zero-bubble"]));
    assert_eq!(mine.len(), 30);
    falls(&mine, 0.5);
    if let Some(c) = c_example("pipeline_callbacks", &[]) {
        assert_eq!(mine, numbers(&c));
    }
    if std::env::var_os("NXD_LONG").is_some() {
        assert_eq!(mine, numbers(&example("pipeline_stages", &["1f1b"])));
        assert_eq!(mine, numbers(&example("pipeline_stages", &["gpipe"])));
    }
}

/// Two ranks that are tensor parallel, or divide the optimizer's state, have the losses and norms of
/// one.
#[test]
fn layers_over_vectors() {
    let norms = |text: &str| -> Vec<f64> {
        let norm = |line: &str| line.split("norm ").nth(1).map(|norm| norm.parse().unwrap());
        text.lines().filter_map(norm).collect()
    };
    let one = example("embed_tensor_parallel", &["1", "1"]);
    let losses = numbers(&one);
    assert_eq!((losses.len(), norms(&one).len()), (40, 40));
    falls(&losses, 0.7);
    for layout in [["2", "2"], ["2", "1"], ["4", "2"]] {
        let many = example("embed_tensor_parallel", &layout);
        for (found, expected) in [(numbers(&many), &losses), (norms(&many), &norms(&one))] {
            assert_eq!(found.len(), 40);
            for (a, b) in found.iter().zip(expected) {
                assert!((a - b).abs() < 1e-5, "{:?}: {} is not {}", layout, a, b);
            }
        }
    }
    for (tp, message) in [("3", "32 units do not divide by 3"), ("1", "64 samples by 3")] {
        let (status, text) = end(&example_path("embed_tensor_parallel"), &["3", tp]);
        assert!(status.map_or(false, |status| !status.success()), "{:?}: {}", status, text);
        assert!(text.contains(message), "{}", text);
    }
}

#[test]
fn an_error_is_shown() {
    let text = example("show_error", &[]);
    assert!(text.contains("INVALID_ARGUMENT: all_reduce"), "{}", text);
    assert!(text.contains("rank 0 calls all_reduce of 1 x f32"), "{}", text);
    assert!(text.contains("the group goes on: 2 ranks"), "{}", text);
}

#[test]
fn a_peer_is_lost() {
    let text = example("lost_peer", &[]);
    assert!(text.contains("lost rank Some(1)"), "{}", text);
}

#[test]
fn ctrl_c_with_and_without_a_handler() {
    let handled = example("interrupted", &["handled"]);
    assert!(handled.contains("USER"), "{}", handled);
    let default = example("interrupted", &["default"]);
    assert!(default.contains("PEER_LOST") && !default.contains("USER"), "{}", default);
}

#[test]
fn benchmark_prints_two_lines() {
    let text = example("bench", &[]);
    let names: Vec<_> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names, ["empty_call_ns", "all_reduce_1k_us"], "{}", text);
}
