//! Asks pkg-config where libnxd is, and hands its directory to dependents as DEP_NXD_LIBDIR.
use std::env;
use std::process::Command;

fn pkg_config(arguments: &[&str]) -> String {
    let tool = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".into());
    let output = match Command::new(&tool).args(arguments).output() {
        Ok(output) => output,
        Err(error) => panic!("cannot run {}, which finds libnxd: {}", tool, error),
    };
    if !output.status.success() {
        panic!(
            "{} {}: {}\nIs libnxd installed, and its pkgconfig directory in PKG_CONFIG_PATH?",
            tool,
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for name in ["PKG_CONFIG", "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR"] {
        println!("cargo:rerun-if-env-changed={}", name);
    }
    let engine = env::var_os("CARGO_FEATURE_ENGINE").is_some();
    let package = if engine { "nxd" } else { "nxd-core" };
    for flag in pkg_config(&["--libs", &format!("{} >= 0.1", package)]).split_whitespace() {
        if let Some(directory) = flag.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={}", directory);
        } else if let Some(library) = flag.strip_prefix("-l") {
            println!("cargo:rustc-link-lib=dylib={}", library);
        } else {
            println!("cargo:rustc-link-arg={}", flag);
        }
    }
    let libdir = pkg_config(&["--variable=libdir", "nxd-core"]);
    let libdir = std::fs::canonicalize(&libdir).map_or(libdir, |path| path.display().to_string());
    println!("cargo:libdir={}", libdir);
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", libdir);
}
