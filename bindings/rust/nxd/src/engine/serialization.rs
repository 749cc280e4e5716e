use crate::context::Context;
use crate::engine::module::Texts;
use crate::engine::tensor::{Device, Tensor};
use crate::error::{c_path, c_string, check, string, Result};
use crate::object::{create, get, object, Owned};
use nxd_sys as sys;
use std::path::Path;
use std::ptr::null;

/// Texts that a file of tensors has beside them, and which ranks write it.
#[derive(Clone, Copy, Debug)]
pub struct SaveOptions<'a> {
    /// Texts by key.
    pub texts: &'a [(&'a str, &'a str)],
    /// True: one rank writes; false: each rank, at a path of its own.
    pub master_only: bool,
    /// The first rank of each host writes, not that of the world alone.
    pub each_host: bool,
}

impl Default for SaveOptions<'_> {
    fn default() -> Self {
        SaveOptions { texts: &[], master_only: true, each_host: false }
    }
}

type Save = unsafe extern "C" fn(
    *mut sys::nxd_context_t,
    *const std::os::raw::c_char,
    *const *const std::os::raw::c_char,
    *const *mut sys::nxd_tensor_t,
    usize,
    *const sys::nxd_save_options_t,
) -> crate::error::Status;

fn write(
    function: Save,
    ctx: &Context,
    path: &Path,
    tensors: &[(&str, &Tensor)],
    options: &SaveOptions,
) -> Result<()> {
    let handles: Vec<_> = tensors.iter().map(|(_, tensor)| tensor.as_raw()).collect();
    let texts = || -> Result<_> {
        let names = Texts::new(&tensors.iter().map(|(name, _)| *name).collect::<Vec<_>>())?;
        let keys = Texts::new(&options.texts.iter().map(|(key, _)| *key).collect::<Vec<_>>())?;
        let values = Texts::new(&options.texts.iter().map(|(_, text)| *text).collect::<Vec<_>>())?;
        Ok((c_path(path)?, names, keys, values))
    };
    let (path, names, keys, values) = match texts() {
        Ok(texts) => texts,
        // The peers are in the call already, or about to be.
        Err(error) => return Err(ctx.world_group()?.reject("", error.message().to_string())),
    };
    let only = match options.master_only {
        true => sys::nxd_toggle_t::ON,
        false => sys::nxd_toggle_t::OFF,
    };
    let options = sys::nxd_save_options_t {
        master_only: only,
        each_host: options.each_host.into(),
        keys: keys.pointers().0,
        values: values.pointers().0,
        num_values: keys.pointers().1,
        ..Default::default()
    };
    let (list, n) = names.pointers();
    check(unsafe { function(ctx.as_raw(), path.as_ptr(), list, handles.as_ptr(), n, &options) })
}

/// Writes tensors and texts as one safetensors file, once they are all in the host's memory.
/// Collective: world.
pub fn save(
    ctx: &Context,
    path: impl AsRef<Path>,
    tensors: &[(&str, &Tensor)],
    options: &SaveOptions,
) -> Result<()> {
    write(sys::nxd_save, ctx, path.as_ref(), tensors, options)
}

/// The same file, tensor by tensor: one of them is copied to the host's memory at a time.
/// Collective: world.
pub fn serialization_save(
    ctx: &Context,
    path: impl AsRef<Path>,
    tensors: &[(&str, &Tensor)],
    options: &SaveOptions,
) -> Result<()> {
    write(sys::nxd_serialization_save, ctx, path.as_ref(), tensors, options)
}

object! {
    /// An open file of tensors and texts.
    Serialization, nxd_serialization_t, nxd_serialization_destroy
}

/// Opens a file of [`save`], [`serialization_save`], or any other safetensors.
pub fn serialization_load(path: impl AsRef<Path>) -> Result<Owned<Serialization>> {
    let path = c_path(path)?;
    create(|out| unsafe { sys::nxd_serialization_load(path.as_ptr(), out) })
}

impl Serialization {
    /// The names of the tensors, in alphabetical order.
    pub fn names(&self) -> Result<Vec<String>> {
        let count = get(|out| unsafe { sys::nxd_serialization_get_count(self.as_raw(), out) })?;
        (0..count)
            .map(|i| {
                let mut name = null();
                check(unsafe { sys::nxd_serialization_get_name(self.as_raw(), i, &mut name) })?;
                Ok(unsafe { string(name) })
            })
            .collect()
    }

    /// Reads a tensor, to the CPU or the recorded device.
    pub fn read(&self, name: &str, device: Device) -> Result<Owned<Tensor>> {
        let name = c_string(name)?;
        create(|out| unsafe {
            sys::nxd_serialization_create_tensor(self.as_raw(), name.as_ptr(), device, out)
        })
    }

    /// Texts by key, in alphabetical order.
    pub fn texts(&self) -> Result<Vec<(String, String)>> {
        let count =
            get(|out| unsafe { sys::nxd_serialization_get_value_count(self.as_raw(), out) })?;
        (0..count)
            .map(|i| {
                let (mut key, mut value) = (null(), null());
                check(unsafe {
                    sys::nxd_serialization_get_value(self.as_raw(), i, &mut key, &mut value)
                })?;
                Ok(unsafe { (string(key), string(value)) })
            })
            .collect()
    }
}
