use crate::callback::guard;
use crate::element::Element;
use crate::error::{c_string, check, Error, Result, Status};
use crate::group::Group;
use crate::object::{borrow, create, get, list, object, Owned};
use crate::store::{milliseconds, Store};
use nxd_sys as sys;
use std::ffi::CString;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::os::raw::{c_char, c_void};
use std::time::Duration;

pub use sys::nxd_toggle_t as Toggle;
pub use sys::nxd_transport_t as Transport;

object! {
    /// One rank: its identity, its groups and its failure state. Normally one per process; several
    /// on several threads of one process work too.
    Context, nxd_context_t, nxd_context_destroy
}

// One thread at a time uses it; which thread does not matter.
unsafe impl Send for Owned<Context> {}

/// Where a context learns its rank and meets its peers.
#[derive(Clone, Copy)]
pub enum World<'a> {
    /// From the variables that launchers set; without them a world of one rank.
    Environment,
    Store {
        store: &'a Store,
        rank: i32,
        size: i32,
    },
}

/// How a rank joins its world.
#[derive(Clone, Copy)]
pub struct ContextOptions<'a> {
    pub world: World<'a>,
    /// Rank on this host; with `World::Environment` the launcher's.
    pub local_rank: i32,
    /// Bound of every collective; `None`: NXD_TIMEOUT_MS or half an hour.
    pub timeout: Option<Duration>,
    /// Network interface or address; `None`: NXD_SOCKET_IFNAME or a fitting one.
    pub interface_name: Option<&'a str>,
    /// Seed of initial weights and random bits; 0: NXD_SEED or 0.
    pub seed: u64,
    /// Layers run through plain ATen operators; `DEFAULT`: by NXD_PLAIN_KERNELS, or `OFF`.
    pub plain_kernels: Toggle,
    pub transport: Transport,
    /// Ranks that give the same name share memory.
    pub host_id: Option<&'a str>,
    /// Asked every few tens of milliseconds while a call blocks, on its thread: `true` ends the call
    /// with status `USER`. A function rather than a closure, as whatever was made from the context
    /// may ask it, however long it lives.
    pub interrupt: Option<fn() -> bool>,
}

impl Default for ContextOptions<'_> {
    fn default() -> Self {
        ContextOptions {
            world: World::Environment,
            local_rank: 0,
            timeout: None,
            interface_name: None,
            seed: 0,
            plain_kernels: Toggle::DEFAULT,
            transport: Transport::AUTO,
            host_id: None,
            interrupt: None,
        }
    }
}

unsafe extern "C" fn interrupted(data: *mut c_void) -> Status {
    // create_with has put it there.
    let interrupt = std::mem::transmute::<*mut c_void, fn() -> bool>(data);
    guard(|| match interrupt() {
        true => Err(Error::user("interrupted")),
        false => Ok(()),
    })
}

impl Context {
    /// Joins the world that the environment describes. Collective: world.
    pub fn create() -> Result<Owned<Context>> {
        Context::create_with(&ContextOptions::default())
    }

    /// Joins a world. Collective: world.
    pub fn create_with(options: &ContextOptions<'_>) -> Result<Owned<Context>> {
        let interface_name = options.interface_name.map(c_string).transpose();
        let host_id = options.host_id.map(c_string).transpose();
        let pointer = |text: &Result<Option<CString>>| match text {
            Ok(Some(text)) => text.as_ptr(),
            _ => std::ptr::null(),
        };
        // With a text that is none the peers, who wait for this rank, are told by a transport that is none.
        let all_good = interface_name.is_ok() && host_id.is_ok();
        let transport = if all_good { options.transport } else { Transport::INVALID };
        let mut raw = sys::nxd_context_options_t {
            local_rank: options.local_rank,
            timeout_ms: options.timeout.map_or(0, |timeout| milliseconds(timeout).max(1)),
            interface_name: pointer(&interface_name),
            seed: options.seed,
            plain_kernels: options.plain_kernels,
            transport,
            host_id: pointer(&host_id),
            ..Default::default()
        };
        if let World::Store { store, rank, size } = options.world {
            raw.rendezvous = sys::nxd_rendezvous_t::STORE;
            raw.store = store.as_raw();
            raw.rank = rank;
            raw.size = size;
        }
        if let Some(interrupt) = options.interrupt {
            raw.interrupt = Some(interrupted);
            raw.interrupt_data = interrupt as *mut c_void;
        }
        let made = create(|out| unsafe { sys::nxd_context_create(&raw, out) });
        interface_name.and(host_id).and(made)
    }

    pub fn rank(&self) -> Result<i32> {
        get(|out| unsafe { sys::nxd_context_get_rank(self.as_raw(), out) })
    }

    /// Ranks in the world.
    pub fn size(&self) -> Result<i32> {
        get(|out| unsafe { sys::nxd_context_get_size(self.as_raw(), out) })
    }

    pub fn local_rank(&self) -> Result<i32> {
        get(|out| unsafe { sys::nxd_context_get_local_rank(self.as_raw(), out) })
    }

    /// Group of all ranks.
    pub fn world_group(&self) -> Result<&Group> {
        // Lives as long as the context.
        unsafe { borrow(|out| sys::nxd_context_get_world_group(self.as_raw(), out)) }
    }

    /// A handle that any thread may abort this context with.
    pub fn aborter(&self) -> Aborter<'_> {
        Aborter { ctx: self.as_raw(), _borrowed: PhantomData }
    }

    /// The last collectives and messages of each group as one line of JSON.
    pub fn flight_record(&self) -> Result<String> {
        self.aborter().flight_record()
    }

    pub fn set_plain_kernels(&self, plain: bool) -> Result<()> {
        check(unsafe { sys::nxd_context_set_plain_kernels(self.as_raw(), plain.into()) })
    }

    pub fn plain_kernels(&self) -> Result<bool> {
        Ok(get(|out| unsafe { sys::nxd_context_get_plain_kernels(self.as_raw(), out) })? != 0)
    }

    /// Sets the training step and microbatch that random bits are drawn for.
    pub fn set_step(&self, step: i64, microbatch: i64) -> Result<()> {
        check(unsafe { sys::nxd_context_set_step(self.as_raw(), step, microbatch) })
    }

    /// The training step and microbatch that random bits are drawn for.
    pub fn step(&self) -> Result<(i64, i64)> {
        let (mut step, mut microbatch) = (0, 0);
        check(unsafe { sys::nxd_context_get_step(self.as_raw(), &mut step, &mut microbatch) })?;
        Ok((step, microbatch))
    }

    /// Writes a line on world rank 0; does nothing elsewhere.
    pub fn master_print(&self, text: &str) -> Result<()> {
        let text = c_string(text)?;
        check(unsafe { sys::nxd_master_print(self.as_raw(), text.as_ptr()) })
    }

    /// Zeroed memory that the other ranks of this host can read and write too: collectives over
    /// shared memory work on it in place.
    pub fn arena<T: Element>(&self, count: usize) -> Result<ArenaBuffer<'_, T>> {
        let size = count.saturating_mul(std::mem::size_of::<T>());
        let data: *mut c_void = {
            let mut data = std::ptr::null_mut();
            check(unsafe { sys::nxd_arena_alloc(self.as_raw(), size, &mut data) })?;
            data
        };
        // Undefined at first, and as large as was asked for; aligned for any type, and not NULL without
        // elements.
        unsafe { std::ptr::write_bytes(data.cast::<u8>(), 0, size) };
        Ok(ArenaBuffer { ctx: self, data: data.cast(), count })
    }
}

impl Owned<Context> {
    /// Leaves in agreement with all ranks. Collective: world. Merely dropping a context leaves at
    /// once: peers that wait for this rank get `PEER_LOST`.
    pub fn finalize(self) -> Result<()> {
        check(unsafe { sys::nxd_context_finalize(self.as_raw()) })
    }

    /// Forgets the layout, so that [`Context::init_model_parallel`] may be called again. Its groups
    /// are no longer borrowed then; modules keep theirs.
    pub fn destroy_model_parallel(&mut self) -> Result<()> {
        check(unsafe { sys::nxd_destroy_model_parallel(self.as_raw()) })
    }
}

/// Functions of a context that any thread may call.
#[derive(Clone, Copy)]
pub struct Aborter<'a> {
    ctx: *mut sys::nxd_context_t,
    _borrowed: PhantomData<&'a ()>,
}

// nxd_context_abort and nxd_context_get_flight_record are safe from any thread.
unsafe impl Send for Aborter<'_> {}
unsafe impl Sync for Aborter<'_> {}

impl Aborter<'_> {
    /// Makes every pending and later collective of the context fail with `ABORTED`.
    pub fn abort(&self) -> Result<()> {
        check(unsafe { sys::nxd_context_abort(self.ctx) })
    }

    /// See [`Context::flight_record`].
    pub fn flight_record(&self) -> Result<String> {
        // It may grow between a look and the next.
        let mut room: Vec<c_char> = Vec::new();
        loop {
            let mut needed = 0;
            let status = unsafe {
                let (buf, cap) = (room.as_mut_ptr(), room.len());
                let buf = if cap == 0 { std::ptr::null_mut() } else { buf };
                sys::nxd_context_get_flight_record(self.ctx, buf, cap, &mut needed)
            };
            if needed > room.len() {
                room.resize(needed + 4096, 0);
                continue;
            }
            check(status)?;
            return Ok(unsafe { crate::error::string(room.as_ptr()) });
        }
    }
}

/// Memory of [`Context::arena`].
pub struct ArenaBuffer<'c, T> {
    ctx: &'c Context,
    data: *mut T,
    count: usize,
}

impl<T> Deref for ArenaBuffer<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // This buffer's alone until drop.
        unsafe { std::slice::from_raw_parts(self.data, self.count) }
    }
}

impl<T> DerefMut for ArenaBuffer<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        unsafe { std::slice::from_raw_parts_mut(self.data, self.count) }
    }
}

impl<T> Drop for ArenaBuffer<'_, T> {
    fn drop(&mut self) {
        // A buffer without elements has a block too.
        unsafe { sys::nxd_arena_free(self.ctx.as_raw(), self.data.cast()) };
    }
}

/// True if NXD_CPU_MODE asks for execution on the CPU.
pub fn cpu_mode() -> bool {
    unsafe { sys::nxd_cpu_mode() != 0 }
}

/// Ranks of a group that the C interface gives by the rule of nxd_layout_get_group.
pub(crate) fn ranks(call: impl FnMut(*mut i32, usize, *mut usize) -> Status) -> Result<Vec<i32>> {
    list(call)
}
