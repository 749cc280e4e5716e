//! Whole models of Hugging Face configurations, such as of a "llama".
use crate::context::Context;
use crate::engine::module::Module;
use crate::error::{c_path, c_string, check, Result};
use crate::object::{create, get, Owned};
use nxd_sys as sys;
use std::path::Path;
use sys::Versioned;

pub use sys::nxd_model_options_t as ModelOptions;

/// Builds a model from the text of config.json, initialised with the context's seed.
pub fn from_config(
    ctx: &Context,
    config_json: &str,
    options: &ModelOptions,
) -> Result<Owned<Module>> {
    let (config, options) = (c_string(config_json)?, options.with_size());
    create(|out| unsafe { sys::nxd_model_create(ctx.as_raw(), config.as_ptr(), &options, out) })
}

/// Builds a model from a directory's config.json and loads its safetensors, strictly.
pub fn from_pretrained(
    ctx: &Context,
    directory: impl AsRef<Path>,
    options: &ModelOptions,
) -> Result<Owned<Module>> {
    let (directory, options) = (c_path(directory)?, options.with_size());
    create(|out| unsafe {
        sys::nxd_model_from_pretrained(ctx.as_raw(), directory.as_ptr(), &options, out)
    })
}

/// Loads a module of a file of torch.jit.save, which is to be trusted: its forward is a program.
pub fn from_torchscript(ctx: &Context, path: impl AsRef<Path>) -> Result<Owned<Module>> {
    let path = c_path(path)?;
    create(|out| unsafe { sys::nxd_model_from_torchscript(ctx.as_raw(), path.as_ptr(), out) })
}

/// Writes a module of such a file back, with its values as they are now.
pub fn save_torchscript(module: &Module, path: impl AsRef<Path>) -> Result<()> {
    let path = c_path(path)?;
    check(unsafe { sys::nxd_model_save_torchscript(module.as_raw(), path.as_ptr()) })
}

/// Floating-point operations of one training step of a built-in model, all ranks together.
pub fn step_flops(model: &Module, batch: i64, sequence: i64) -> Result<f64> {
    get(|out| unsafe { sys::nxd_model_get_step_flops(model.as_raw(), batch, sequence, out) })
}
