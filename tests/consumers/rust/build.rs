fn main() {
    if let Ok(libdir) = std::env::var("DEP_NXD_RUST_LIBDIR") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{}", libdir);
    }
}
