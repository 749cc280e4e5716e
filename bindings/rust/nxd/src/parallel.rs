use crate::context::{ranks, Context};
use crate::error::{check, check_abi, Result};
use crate::group::Group;
use crate::object::{borrow, get};
use nxd_sys as sys;
use sys::Versioned;

pub use sys::nxd_axis_t as Axis;
pub use sys::nxd_parallel_options_t as ParallelOptions;
pub use sys::nxd_platform_t as Platform;

impl Context {
    /// Lays out the world and makes its groups. Collective: world.
    pub fn init_model_parallel(&self, options: &ParallelOptions) -> Result<()> {
        let options = options.with_size();
        check(unsafe { sys::nxd_init_model_parallel(self.as_raw(), &options) })
    }

    pub fn model_parallel_is_initialized(&self) -> bool {
        unsafe { sys::nxd_model_parallel_is_initialized(self.as_raw()) != 0 }
    }

    /// Ranks in this rank's group along an axis.
    pub fn parallel_size(&self, axis: Axis) -> Result<i32> {
        get(|out| unsafe { sys::nxd_parallel_get_size(self.as_raw(), axis, out) })
    }

    /// This rank's place in its group along an axis.
    pub fn parallel_rank(&self, axis: Axis) -> Result<i32> {
        get(|out| unsafe { sys::nxd_parallel_get_rank(self.as_raw(), axis, out) })
    }

    /// World rank of the first member of this rank's group along an axis.
    pub fn source_rank(&self, axis: Axis) -> Result<i32> {
        get(|out| unsafe { sys::nxd_parallel_get_source_rank(self.as_raw(), axis, out) })
    }

    /// This rank's group along an axis, borrowed until the layout is destroyed.
    pub fn parallel_group(&self, axis: Axis) -> Result<&Group> {
        // destroy_model_parallel borrows the context mutably.
        unsafe { borrow(|out| sys::nxd_parallel_get_group(self.as_raw(), axis, out)) }
    }

    /// The data-parallel group, or the world where model parallelism is not initialised.
    pub(crate) fn data_group(&self) -> Result<&Group> {
        if self.model_parallel_is_initialized() {
            self.parallel_group(Axis::DATA)
        } else {
            self.world_group()
        }
    }

    /// The ranks of all groups along an axis.
    pub fn parallel_groups(&self, axis: Axis) -> Result<Vec<Vec<i32>>> {
        let mut groups = Vec::new();
        let mut count = 1;
        while groups.len() < count as usize {
            let index = groups.len() as i32;
            groups.push(ranks(|data, cap, size| unsafe {
                sys::nxd_parallel_get_group_list(
                    self.as_raw(),
                    axis,
                    index,
                    data,
                    cap,
                    size,
                    &mut count,
                )
            })?);
        }
        Ok(groups)
    }

    pub fn next_pipeline_rank(&self) -> Result<i32> {
        get(|out| unsafe { sys::nxd_parallel_get_pipeline_next_rank(self.as_raw(), out) })
    }

    pub fn previous_pipeline_rank(&self) -> Result<i32> {
        get(|out| unsafe { sys::nxd_parallel_get_pipeline_previous_rank(self.as_raw(), out) })
    }
}

/// The ranks of all groups along an axis of a layout; no context needed.
pub fn layout_groups(
    options: &ParallelOptions,
    world_size: i32,
    axis: Axis,
) -> Result<Vec<Vec<i32>>> {
    check_abi()?;
    let options = options.with_size();
    let count =
        get(|out| unsafe { sys::nxd_layout_get_group_count(&options, world_size, axis, out) })?;
    (0..count)
        .map(|index| {
            ranks(|data, cap, size| unsafe {
                sys::nxd_layout_get_group(&options, world_size, axis, index, data, cap, size)
            })
        })
        .collect()
}

/// The group that a rank belongs to along an axis, and its place in it; no context needed.
pub fn find_rank(
    options: &ParallelOptions,
    world_size: i32,
    axis: Axis,
    rank: i32,
) -> Result<(i32, i32)> {
    check_abi()?;
    let options = options.with_size();
    let (mut group, mut place) = (0, 0);
    check(unsafe {
        sys::nxd_layout_find_rank(&options, world_size, axis, rank, &mut group, &mut place)
    })?;
    Ok((group, place))
}
