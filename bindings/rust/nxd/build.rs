//! Lets this crate's tests and examples find libnxd where it was linked, and hands the directory on.
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if let Ok(libdir) = std::env::var("DEP_NXD_LIBDIR") {
        println!("cargo:libdir={}", libdir);
        println!("cargo:rustc-link-arg=-Wl,-rpath,{}", libdir);
    }
}
