//! Raw declarations of libnxd, generated from `nxd.h`: functions, handles, structs, enums and
//! callbacks under their C names. Comments are the header's; the crate `nxd` is the safe layer.
//!
//! Enums are transparent structs over `i32`, as a newer library may know more values than this
//! crate. Structs that begin with `struct_size` implement `Default`, with the library's own
//! defaults.
#![allow(non_camel_case_types)]

// The header's comments are not written for rustdoc. A topic that has functions of the engine alone is
// empty without it.
#[allow(clippy::all, rustdoc::all, unused_imports)]
#[rustfmt::skip]
mod raw;
pub use raw::*;
