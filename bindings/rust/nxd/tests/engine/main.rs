//! Tensors, modules and models.
#![cfg(feature = "engine")]
#[path = "../common/mod.rs"]
mod common;

mod autograd;
mod device;
mod modules;
mod pipelines;
mod tensors;
mod training;
