//! Tests that need no libtorch.
#[path = "../common/mod.rs"]
mod common;

mod arrays;
mod checkpoints;
mod contexts;
mod data;
mod groups;
mod jobs;
mod layers;
mod lifetimes;
mod pipelines;
mod plans;
mod stores;
mod works;
