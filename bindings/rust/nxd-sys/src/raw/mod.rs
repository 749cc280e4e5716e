//! Generated from nxd.h by scripts/bindings.

use std::marker::{PhantomData, PhantomPinned};
use std::os::raw::{c_char, c_void};

/// Structs that begin with their own size.
///
/// # Safety
///
/// All bytes zero is a value of such a struct.
pub unsafe trait Versioned: Copy {
    /// The same with the size that this crate knows, and the flags of fields that are not 0.
    fn with_size(self) -> Self;
}

fn zeroed<T: Versioned>() -> T {
    // By the contract of Versioned.
    unsafe { std::mem::zeroed() }
}

pub const NXD_ABI_VERSION: u32 = 0;
pub const NXD_VERSION_MAJOR: i32 = 0;
pub const NXD_VERSION_MINOR: i32 = 1;
pub const NXD_VERSION_PATCH: i32 = 0;

mod base;
pub use base::*;
mod store;
pub use store::*;
mod context;
pub use context::*;
mod parallel;
pub use parallel::*;
mod tensor_parallel;
pub use tensor_parallel::*;
mod buffer_layers;
pub use buffer_layers::*;
mod checkpoint;
pub use checkpoint::*;
mod data;
pub use data::*;
mod group;
pub use group::*;
mod weights;
pub use weights::*;
mod data_parallel;
pub use data_parallel::*;
mod job;
pub use job::*;
mod machine;
pub use machine::*;
mod memory;
pub use memory::*;
mod optimizer;
pub use optimizer::*;
mod pipeline;
pub use pipeline::*;
mod planner;
pub use planner::*;
mod training_state;
pub use training_state::*;
mod work;
pub use work::*;
mod tensor;
pub use tensor::*;
mod autograd;
pub use autograd::*;
mod device;
pub use device::*;
mod functional;
pub use functional::*;
mod module;
pub use module::*;
mod layers;
pub use layers::*;
mod model;
pub use model::*;
mod model_pipeline;
pub use model_pipeline::*;
mod op;
pub use op::*;
mod serialization;
pub use serialization::*;
mod training;
pub use training::*;
mod dlpack;
pub use dlpack::*;
