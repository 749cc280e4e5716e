//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

/// How a graph is written down.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_graph_format_t(pub i32);

impl nxd_graph_format_t {
    pub const INVALID: Self = Self(-1);
    /// a line for each node, with the shapes of results and arguments
    pub const TEXT: Self = Self(0);
    /// for Graphviz
    pub const DOT: Self = Self(1);
    /// a StableHLO module, as a compiler is given it
    pub const STABLEHLO: Self = Self(2);
}

impl std::fmt::Debug for nxd_graph_format_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::TEXT => f.write_str("TEXT"),
            Self::DOT => f.write_str("DOT"),
            Self::STABLEHLO => f.write_str("STABLEHLO"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_graph_format_t {
    fn default() -> Self {
        Self(0)
    }
}

/// Batches that a thread reads, and moves to a device, ahead of the steps that take them.
#[repr(C)]
pub struct nxd_device_loader_t {
    _data: [u8; 0],
    _one_thread: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Called at the end of a step, on the thread that marks it. A failure is that of nxd_mark_step.
pub type nxd_step_closure_fn = Option<
    unsafe extern "C" fn(user_data: *mut c_void) -> nxd_status_t,
>;

/// Makes a batch, on the device loader's thread, which is no thread of the program's.
///
/// It may wait as long as it likes, for no call on the loader. A failure is that of the
/// nxd_device_loader_next that would have given the batch; the one after it calls again.
/// @param[out] outputs  all NULL: room for new handles, which are the library's from then on, also
/// after a failure.
/// @param[out] out_end  0. Set to 1 it says that there are no more: then no handles are given, and
/// it is not called again.
pub type nxd_read_batch_fn = Option<
    unsafe extern "C" fn(outputs: *mut *mut nxd_tensor_t, num_outputs: usize, out_end: *mut i32, user_data: *mut c_void) -> nxd_status_t,
>;

/// How a device loader works.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_device_loader_options_t {
    pub struct_size: usize,
    /// batches that one step takes; 0: 1; at most 2^20
    pub batches_per_execution: i32,
    /// batches on the device that wait; 0: 2; at most 1024
    pub prefetch: i32,
}

unsafe impl Versioned for nxd_device_loader_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

#[cfg(feature = "engine")]
impl Default for nxd_device_loader_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_device_loader_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Counts of device XLA in this process, on all threads.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_device_metrics_t {
    pub struct_size: usize,
    /// operators
    pub recorded: u64,
    /// calls of nxd_mark_step that had something recorded before them
    pub steps: u64,
    /// different ones that are kept compiled
    pub graphs: u64,
    /// graphs that were compiled: new, or had left, and not on the disk
    pub compiles: u64,
    /// executions of a graph that was compiled already
    pub cache_hits: u64,
    /// graphs that have run
    pub executions: u64,
    /// executions because a value was read, not because a step ended
    pub implicit_syncs: u64,
    /// calls of operators that ran on the CPU as they cannot be recorded
    pub fallbacks: u64,
    /// of compiles
    pub compile_seconds: f64,
    pub execute_seconds: f64,
    /// graphs that were not kept, and whose programs were on the disk
    pub loads: u64,
    /// of loads, with waits for a process that compiles the program
    pub load_seconds: f64,
    /// of tensors that executions took: parameters, states, batches
    pub argument_bytes: u64,
    /// of tensors that executions gave, new ones and updated ones
    pub result_bytes: u64,
    /// of both: copied, as the plug-in could not take them as they lay
    pub copied_bytes: u64,
}

unsafe impl Versioned for nxd_device_metrics_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_device_metrics_t {
    fn default() -> Self {
        zeroed::<Self>().with_size()
    }
}

#[cfg(feature = "engine")]
extern "C" {
    /// [local] The tensor's values on another device; the tensor itself if it is there already.
    ///
    /// Recorded by autograd. From XLA to the CPU it runs what this thread has recorded, unless the
    /// value is known.
    /// @param device  NXD_DEVICE_CPU, NXD_DEVICE_XLA or NXD_DEVICE_META.
    /// @return NXD_OK; INVALID_ARGUMENT; UNSUPPORTED (device, or a tensor on the meta device, which has
    /// no values); the error of a recorded operator that fails when it runs.
    /// @since 0.1
    pub fn nxd_tensor_to_device(tensor: *mut nxd_tensor_t, device: nxd_device_t, out_tensor: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// [blocking] Ends a step: runs what this thread has recorded on device XLA since the last step, as
    /// one graph. A graph that was not seen before is compiled first.
    ///
    /// Does nothing where nothing was recorded, so that a program that calls it trains on the CPU, too.
    /// After a failure the tensors that the graph should have given stay without values.
    /// @param wait  1: returns when the graph has run. 0: it runs on a thread of the library's, and the
    /// next call of this thread that needs its values waits, and fails as this one would.
    /// @return NXD_OK; INVALID_ARGUMENT (wait); the error of an operator that fails, whose message
    /// names the operator; that of a step closure.
    /// @since 0.1
    pub fn nxd_mark_step(wait: i32) -> nxd_status_t;

    /// [local] Has a function called by the next nxd_mark_step of this thread, once, when the step's
    /// graph has run. The values of the step are known then, so that reading one runs nothing.
    ///
    /// Closures run in the order in which they were added, and also where nothing was recorded. One
    /// that is added by another belongs to the next step. When the graph or a closure fails, those that
    /// have not run are dropped.
    /// @param destroy  called with user_data when the closure has run, is dropped, or its thread ends;
    /// may be NULL. On failure it is not called.
    /// @return NXD_OK; INVALID_ARGUMENT (closure).
    /// @since 0.1
    pub fn nxd_add_step_closure(closure: nxd_step_closure_fn, user_data: *mut c_void, destroy: nxd_destroy_fn) -> nxd_status_t;

    /// [local] The same on a thread of the library's, while this thread goes on: for what takes long,
    /// such as writing to a file. The thread runs the closures of this thread one after another, in
    /// order.
    ///
    /// A failure is that of the next nxd_mark_step or nxd_wait_step_closures, which carries out its
    /// work first; closures behind it run. The closure may read tensors: a read waits for a graph that
    /// is running. It does not call nxd_wait_step_closures. When this thread ends, closures that have
    /// not begun are dropped: wait for them.
    /// @param destroy  as for nxd_add_step_closure, on either thread.
    /// @return NXD_OK; INVALID_ARGUMENT (closure); OUT_OF_MEMORY (no thread to be had).
    /// @since 0.1
    pub fn nxd_add_step_closure_async(closure: nxd_step_closure_fn, user_data: *mut c_void, destroy: nxd_destroy_fn) -> nxd_status_t;

    /// [blocking] Returns when the closures that this thread's steps have handed to the other thread
    /// have run.
    /// @return NXD_OK; the error of the first that failed and was not reported yet.
    /// @since 0.1
    pub fn nxd_wait_step_closures() -> nxd_status_t;

    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_device_loader_options_init(options: *mut nxd_device_loader_options_t, size: usize) -> nxd_status_t;

    /// [local] Begins to move the batches of a data loader to a device.
    ///
    /// A batch is one tensor, ids [batch_size, sequence_length] of I64, and with next_labels a second
    /// one, labels of the same shape. It goes on at the data loader's position. As long as the device
    /// loader exists the data loader is its own: nxd_data_loader_next and set_position are
    /// INVALID_STATE, and its position, which a training state saves, is that behind the last
    /// batch that was taken. Afterwards the data loader stands there.
    /// @param device  NXD_DEVICE_CPU or NXD_DEVICE_XLA.
    /// @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (another device loader reads it); UNSUPPORTED
    /// (device); OUT_OF_MEMORY.
    /// @since 0.1
    pub fn nxd_device_loader_create(loader: *mut nxd_data_loader_t, device: nxd_device_t, options: *const nxd_device_loader_options_t, out_loader: *mut *mut nxd_device_loader_t) -> nxd_status_t;

    /// [local] Begins to call a function for batches, and to move them to a device.
    ///
    /// @param num_tensors  of a batch, 1 to 1024.
    /// @param device       as nxd_device_loader_create.
    /// @param destroy      called with user_data when the loader is destroyed; may be NULL. On failure
    /// it is not called.
    /// @return as nxd_device_loader_create.
    /// @since 0.1
    pub fn nxd_device_loader_create_callback(read: nxd_read_batch_fn, user_data: *mut c_void, destroy: nxd_destroy_fn, num_tensors: usize, device: nxd_device_t, options: *const nxd_device_loader_options_t, out_loader: *mut *mut nxd_device_loader_t) -> nxd_status_t;

    /// [blocking] Takes the next batch.
    ///
    /// Once batches_per_execution batches were taken it marks the step of this thread first, by
    /// nxd_mark_step; at the end of the batches too. A program that trains in a loop over batches needs
    /// no nxd_mark_step, then. One of its own in between does no harm, since a step without operators
    /// does nothing.
    /// @param[out] outputs  the batch's tensors on the device, new handles; all NULL at the end.
    /// @param num_outputs   tensors of a batch.
    /// @param[out] out_end  1: there are no more batches. A data loader's never end.
    /// @return NXD_OK; INVALID_ARGUMENT; the error of the step, after which the next call takes the
    /// batch; of the reading, after which the next call tries again.
    /// @since 0.1
    pub fn nxd_device_loader_next(loader: *mut nxd_device_loader_t, outputs: *mut *mut nxd_tensor_t, num_outputs: usize, out_end: *mut i32) -> nxd_status_t;

    /// [local] The place behind the last batch that was taken, whatever was read ahead: samples of all
    /// ranks, as nxd_data_loader_get_position gives them; of a function's batches their number.
    /// @since 0.1
    pub fn nxd_device_loader_get_position(loader: *mut nxd_device_loader_t, out_position: *mut i64) -> nxd_status_t;

    /// [blocking] Goes on at a position of the data loader, as nxd_data_loader_set_position does.
    /// Batches that were read ahead are dropped.
    /// @return NXD_OK; INVALID_ARGUMENT; UNSUPPORTED (batches of a function).
    /// @since 0.1
    pub fn nxd_device_loader_set_position(loader: *mut nxd_device_loader_t, position: i64) -> nxd_status_t;

    /// [blocking] Ends the reading: waits for the function that makes a batch, if it is running. Marks
    /// no step. Tensors that were taken stay.
    /// @since 0.1
    pub fn nxd_device_loader_destroy(loader: *mut nxd_device_loader_t);

    /// [local] Counts since the process began, or since nxd_device_reset_metrics.
    ///
    /// @param[in,out] out_metrics  struct_size set by the caller.
    /// @return NXD_OK; INVALID_ARGUMENT (NULL); ABI_MISMATCH (struct_size).
    /// @since 0.1
    pub fn nxd_device_get_metrics(out_metrics: *mut nxd_device_metrics_t) -> nxd_status_t;

    /// [local] Starts all counts from 0 again; compiled graphs are kept.
    /// @since 0.1
    pub fn nxd_device_reset_metrics() -> nxd_status_t;

    /// [local] The counts as text, a line of name and number each, a line for each operator that made
    /// an implicit sync or fell back, and a line "implicit_sync_at SITE OPERATOR NUMBER" for each place
    /// that asked for one: the function of this header, or code of the program that called libtorch.
    ///
    /// @param buf  room for cap bytes; may be NULL when cap is 0.
    /// @param[out] out_needed  bytes with the terminator. When they exceed cap nothing is copied, and a
    /// cap other than 0 is INVALID_ARGUMENT.
    /// @since 0.1
    pub fn nxd_device_get_report(buf: *mut c_char, cap: usize, out_needed: *mut usize) -> nxd_status_t;

    /// [local] The graph of the last step that this thread has marked; the largest, where reads of
    /// values made several of it. Before the first step it has no nodes.
    ///
    /// @param buf  as nxd_device_get_report.
    /// @return NXD_OK; INVALID_ARGUMENT (format, cap); UNSUPPORTED (STABLEHLO of a graph that cannot be
    /// a program, such as one with complex numbers).
    /// @since 0.1
    pub fn nxd_device_get_step_graph(format: nxd_graph_format_t, buf: *mut c_char, cap: usize, out_needed: *mut usize) -> nxd_status_t;
}
