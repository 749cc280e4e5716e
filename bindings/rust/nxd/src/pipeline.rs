//! Pipelines: their schedules, and stages that the program computes itself.
use crate::callback::{guard, Shared};
use crate::context::Context;
use crate::element::{dlpack_dtype, DType, Element};
use crate::error::{c_path, c_string, check, invalid, string, told, Error, Result, Status};
use crate::object::{create, get, list, object, Owned};
use crate::parallel::Axis;
use nxd_sys as sys;
use std::os::raw::c_void;
use std::path::Path;
use std::ptr::{null, null_mut, NonNull};

pub use sys::nxd_pp_call_t as StageCall;
pub use sys::nxd_pp_report_t as ScheduleReport;
pub use sys::nxd_pp_schedule_kind_t as PipelineScheduleKind;
pub use sys::nxd_pp_task_kind_t as TaskKind;
pub use sys::nxd_pp_task_t as Task;

object! {
    /// The tasks of all ranks of a pipeline, known to be complete and free of deadlock.
    PipelineSchedule, nxd_pp_schedule_t, nxd_pp_schedule_destroy
}

// Immutable.
unsafe impl Send for Owned<PipelineSchedule> {}
unsafe impl Sync for Owned<PipelineSchedule> {}
unsafe impl Sync for PipelineSchedule {}

/// Durations to judge a schedule by, in any one unit; an empty slice: 1, or as forward.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs<'a> {
    /// Duration of one microbatch in each stage.
    pub forward: &'a [f64],
    pub backward_input: &'a [f64],
    pub backward_weight: &'a [f64],
    pub transfer: f64,
}

impl PipelineSchedule {
    /// One of the library's schedules.
    pub fn create(
        kind: PipelineScheduleKind,
        ranks: i32,
        chunks: i32,
        microbatches: i32,
    ) -> Result<Owned<PipelineSchedule>> {
        create(|out| unsafe { sys::nxd_pp_schedule_create(kind, ranks, chunks, microbatches, out) })
    }

    /// The program's own, which is proved: the tasks of each rank in order.
    pub fn from_tasks(
        chunks: i32,
        microbatches: i32,
        tasks: &[Vec<Task>],
    ) -> Result<Owned<PipelineSchedule>> {
        let counts: Vec<usize> = tasks.iter().map(Vec::len).collect();
        let all: Vec<Task> = tasks.iter().flatten().copied().collect();
        create(|out| unsafe {
            let (data, counts) = (all.as_ptr(), counts.as_ptr());
            let ranks = tasks.len() as i32;
            sys::nxd_pp_schedule_create_tasks(ranks, chunks, microbatches, data, counts, out)
        })
    }

    /// The tasks of a rank, in order.
    pub fn tasks(&self, rank: i32) -> Result<Vec<Task>> {
        #[derive(Clone, Copy)]
        #[repr(transparent)]
        struct Blank(Task);
        impl Default for Blank {
            fn default() -> Self {
                Blank(Task { kind: TaskKind::FORWARD, microbatch: 0, chunk: 0 })
            }
        }
        let tasks = list(|tasks: *mut Blank, cap, count| unsafe {
            sys::nxd_pp_schedule_get_tasks(self.as_raw(), rank, tasks.cast(), cap, count)
        })?;
        Ok(tasks.into_iter().map(|task| task.0).collect())
    }

    /// Such as "1F1B".
    pub fn name(&self) -> Result<String> {
        let mut name = null();
        check(unsafe { sys::nxd_pp_schedule_get_name(self.as_raw(), &mut name) })?;
        Ok(unsafe { string(name) })
    }

    /// Stages of the pipeline: ranks times chunks.
    pub fn stages(&self) -> Result<usize> {
        let chunks = |tasks: Vec<Task>| tasks.iter().map(|task| task.chunk + 1).max().unwrap_or(0);
        let first = chunks(self.tasks(0)?) as usize;
        // One past the last rank is rejected.
        let ranks = (1..).take_while(|&rank| self.tasks(rank).is_ok()).count() + 1;
        Ok(first * ranks)
    }

    /// Plays the schedule through. Each slice of costs has one duration for each stage.
    pub fn report(&self, costs: &Costs<'_>) -> Result<ScheduleReport> {
        let stages = self.stages()?;
        let pointer = |durations: &[f64]| match durations.len() {
            0 => Ok(null()),
            n if n == stages => Ok(durations.as_ptr()),
            n => invalid(format!("costs: expected one for each of {} stages, got {}", stages, n)),
        };
        let raw = sys::nxd_pp_costs_t {
            forward: pointer(costs.forward)?,
            backward_input: pointer(costs.backward_input)?,
            backward_weight: pointer(costs.backward_weight)?,
            transfer: costs.transfer,
            ..Default::default()
        };
        let mut report = ScheduleReport::default();
        check(unsafe { sys::nxd_pp_schedule_get_report(self.as_raw(), &raw, &mut report) })?;
        Ok(report)
    }
}

object! {
    /// Functions that pipelines of all kinds have.
    Pipeline, nxd_pp_t, nxd_pp_destroy
}

impl Pipeline {
    /// True if this rank has the last stage, and so the losses.
    pub fn has_loss(&self) -> Result<bool> {
        Ok(get(|out| unsafe { sys::nxd_pp_has_loss(self.as_raw(), out) })? != 0)
    }

    /// The schedule of training runs.
    pub fn schedule(&self) -> Result<&PipelineSchedule> {
        // The pipeline's, and never exchanged.
        unsafe { crate::object::borrow(|out| sys::nxd_pp_get_schedule(self.as_raw(), out)) }
    }

    /// Bytes of the buffers that the pipeline receives into on this rank.
    pub fn buffer_bytes(&self) -> Result<u64> {
        get(|out| unsafe { sys::nxd_pp_get_buffer_bytes(self.as_raw(), out) })
    }

    /// Records when tasks, messages and waits begin and end, from now on or no longer.
    pub fn set_timeline(&self, on: bool) -> Result<()> {
        check(unsafe { sys::nxd_pp_set_timeline(self.as_raw(), on.into()) })
    }

    /// Writes what all ranks recorded, as a trace (".json"). Collective: world.
    pub fn write_timeline(&self, path: impl AsRef<Path>) -> Result<()> {
        told(c_path(path), |path| check(unsafe { sys::nxd_pp_write_timeline(self.as_raw(), path) }))
    }
}

/// A tensor in C order that the library lends to a stage.
#[derive(Clone, Copy)]
pub struct View<'a>(&'a sys::DLTensor);

/// The same, to be filled.
pub struct ViewMut<'a>(&'a sys::DLTensor);

fn elements<T: Element>(tensor: &sys::DLTensor) -> Result<(*mut T, usize)> {
    let (has, asked) = (tensor.dtype, dlpack_dtype(T::DTYPE));
    if (has.code, has.bits, has.lanes) != (asked.code, asked.bits, 1) {
        return invalid(format!("a tensor of {:?} was asked for elements of {:?}", has, T::DTYPE));
    }
    let n = shape(tensor).iter().product::<i64>() as usize;
    if n == 0 {
        return Ok((NonNull::dangling().as_ptr(), 0));
    }
    // byte_offset stays within the tensor's memory.
    let data = unsafe { tensor.data.cast::<u8>().add(tensor.byte_offset as usize) };
    Ok((data.cast(), n))
}

fn shape(tensor: &sys::DLTensor) -> &[i64] {
    if tensor.ndim == 0 {
        return &[];
    }
    unsafe { std::slice::from_raw_parts(tensor.shape, tensor.ndim as usize) }
}

impl<'a> View<'a> {
    pub fn shape(&self) -> &'a [i64] {
        shape(self.0)
    }

    pub fn slice<T: Element>(&self) -> Result<&'a [T]> {
        let (data, n) = elements::<T>(self.0)?;
        // Lent for 'a, and not written meanwhile.
        Ok(unsafe { std::slice::from_raw_parts(data, n) })
    }
}

impl ViewMut<'_> {
    pub fn shape(&self) -> &[i64] {
        shape(self.0)
    }

    pub fn slice_mut<T: Element>(&mut self) -> Result<&mut [T]> {
        let (data, n) = elements::<T>(self.0)?;
        // Lent to this view alone.
        Ok(unsafe { std::slice::from_raw_parts_mut(data, n) })
    }
}

/// A rank's stages, computed by the program. Views are lent for a call.
pub trait Stage: 'static {
    /// True if there are `backward_input` and `backward_weight`; without them schedules that call
    /// them are rejected.
    const SPLIT: bool = false;

    /// Fills outputs; the last stage gives the loss.
    fn forward(
        &mut self,
        call: &StageCall,
        inputs: &[View<'_>],
        outputs: &mut [ViewMut<'_>],
    ) -> Result<Option<f64>>;

    /// Fills grad_inputs and adds to the parameters' gradients. `None` stands for a value without a
    /// gradient; the last stage has no grad_outputs and differentiates its loss.
    fn backward(
        &mut self,
        call: &StageCall,
        inputs: &[View<'_>],
        grad_outputs: &[Option<View<'_>>],
        grad_inputs: &mut [Option<ViewMut<'_>>],
    ) -> Result<()>;

    /// Fills grad_inputs alone.
    fn backward_input(
        &mut self,
        _call: &StageCall,
        _inputs: &[View<'_>],
        _grad_outputs: &[Option<View<'_>>],
        _grad_inputs: &mut [Option<ViewMut<'_>>],
    ) -> Result<()> {
        Err(Error::new(Status::UNSUPPORTED, "this stage has no backward_input"))
    }

    /// Adds to the parameters' gradients, some time after `backward_input`.
    fn backward_weight(
        &mut self,
        _call: &StageCall,
        _inputs: &[View<'_>],
        _grad_outputs: &[Option<View<'_>>],
    ) -> Result<()> {
        Err(Error::new(Status::UNSUPPORTED, "this stage has no backward_weight"))
    }
}

/// A tensor that goes from one stage to the next.
#[derive(Clone, Debug)]
pub struct Value {
    /// For messages.
    pub name: String,
    /// Shape for one microbatch.
    pub shape: Vec<i64>,
    pub dtype: DType,
    /// Its gradient comes back.
    pub needs_grad: bool,
}

/// Values that a chunk gets from the stage before it and gives to the stage after it. The first
/// stage has no inputs, the last no outputs.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    pub inputs: Vec<Value>,
    pub outputs: Vec<Value>,
}

/// How a pipeline of stages runs; the same on all its ranks.
#[derive(Clone, Copy, Default)]
pub struct StageOptions<'a> {
    pub num_microbatches: i32,
    pub schedule: PipelineScheduleKind,
    pub custom_schedule: Option<&'a PipelineSchedule>,
    /// Every rank gets the mean over data-parallel ranks.
    pub broadcast_and_average_loss: bool,
}

struct Stages<S> {
    stage: S,
    /// Inputs and outputs of each chunk.
    counts: Vec<(usize, usize)>,
}

/// A pipeline whose stages the program computes.
pub struct StagePipeline<S: Stage> {
    // Released before the stages that it calls.
    pp: Owned<Pipeline>,
    stages: Shared<Stages<S>>,
}

impl<S: Stage> StagePipeline<S> {
    /// `chunks`: what this rank's stages take and give. Collective: the pipeline-parallel group.
    pub fn create(
        ctx: &Context,
        options: &StageOptions<'_>,
        chunks: &[Chunk],
        stage: S,
    ) -> Result<StagePipeline<S>> {
        // The peers are in the call already, or about to be.
        let told = |error: Error| match ctx.parallel_group(Axis::PIPELINE) {
            Ok(group) => group.reject("", error.message().to_string()),
            Err(none) => none,
        };
        if chunks.is_empty() {
            let none = "chunks: expected at least 1 chunk of the rank's, got none";
            return Err(told(Error::new(Status::INVALID_ARGUMENT, none)));
        }
        let inputs = Values::new(chunks.iter().map(|chunk| &chunk.inputs[..])).map_err(told)?;
        let outputs = Values::new(chunks.iter().map(|chunk| &chunk.outputs[..])).map_err(told)?;
        let counts = chunks.iter().map(|c| (c.inputs.len(), c.outputs.len())).collect();
        let stages = Shared::new(Stages { stage, counts });
        let callbacks = sys::nxd_pp_stage_callbacks_t {
            user_data: stages.as_ptr().cast(),
            forward: Some(forward::<S>),
            backward: Some(backward::<S>),
            ..Default::default()
        };
        let callbacks = match S::SPLIT {
            false => callbacks,
            true => sys::nxd_pp_stage_callbacks_t {
                backward_input: Some(backward_input::<S>),
                backward_weight: Some(backward_weight::<S>),
                ..callbacks
            },
        };
        let raw = sys::nxd_pp_callbacks_options_t {
            num_microbatches: options.num_microbatches,
            virtual_size: chunks.len() as i32,
            schedule: options.schedule,
            broadcast_and_average_loss: options.broadcast_and_average_loss.into(),
            custom_schedule: options.custom_schedule.map_or(null_mut(), PipelineSchedule::as_raw),
            ..Default::default()
        };
        let pp = create(|out| unsafe {
            let (inputs, num_inputs) = inputs.pointers();
            let (outputs, num_outputs) = outputs.pointers();
            sys::nxd_pp_create_callbacks(
                ctx.as_raw(),
                &raw,
                inputs,
                num_inputs,
                outputs,
                num_outputs,
                &callbacks,
                out,
            )
        })?;
        Ok(StagePipeline { pp, stages })
    }

    /// Forwards and backwards of all microbatches; gives the mean loss, 0 where there is none.
    /// Collective: the pipeline-parallel group, and the data-parallel one for an averaged loss.
    pub fn train(&mut self) -> Result<f64> {
        self.run(1)
    }

    /// Forwards alone.
    pub fn evaluate(&mut self) -> Result<f64> {
        self.run(0)
    }

    fn run(&mut self, training: i32) -> Result<f64> {
        get(|out| unsafe { sys::nxd_pp_run(self.pp.as_raw(), training, out) })
    }

    pub fn stage(&self) -> &S {
        // The library uses it within run alone, which borrows the pipeline mutably.
        unsafe { &(*self.stages.as_ptr()).stage }
    }

    pub fn stage_mut(&mut self) -> &mut S {
        unsafe { &mut (*self.stages.as_ptr()).stage }
    }

    pub fn pipeline(&self) -> &Pipeline {
        &self.pp
    }
}

/// Values for the C interface, with what they point to.
struct Values {
    values: Vec<sys::nxd_pp_value_t>,
    counts: Vec<usize>,
    _kept: Vec<(std::ffi::CString, Vec<i64>)>,
}

impl Values {
    fn new<'a>(chunks: impl Iterator<Item = &'a [Value]>) -> Result<Values> {
        let (mut values, mut counts, mut kept) = (Vec::new(), Vec::new(), Vec::new());
        for chunk in chunks {
            counts.push(chunk.len());
            for value in chunk {
                let (name, shape) = (c_string(&value.name)?, value.shape.clone());
                values.push(sys::nxd_pp_value_t {
                    name: name.as_ptr(),
                    shape: shape.as_ptr(),
                    ndim: shape.len() as i32,
                    dtype: value.dtype,
                    needs_grad: value.needs_grad.into(),
                    reserved: 0,
                });
                kept.push((name, shape));
            }
        }
        Ok(Values { values, counts, _kept: kept })
    }

    fn pointers(&self) -> (*const sys::nxd_pp_value_t, *const usize) {
        let values = if self.values.is_empty() { null() } else { self.values.as_ptr() };
        (values, self.counts.as_ptr())
    }
}

type Tensors = *const *mut sys::DLTensor;

/// A list of n tensors, some of which may be missing.
unsafe fn tensors<'a>(list: Tensors, n: usize) -> impl Iterator<Item = Option<&'a sys::DLTensor>> {
    (0..n).map(move |i| if list.is_null() { None } else { (*list.add(i)).as_ref() })
}

unsafe fn views<'a>(list: Tensors, n: usize) -> Vec<View<'a>> {
    tensors(list, n).flatten().map(View).collect()
}

unsafe fn maybe_views<'a>(list: Tensors, n: usize) -> Vec<Option<View<'a>>> {
    tensors(list, n).map(|tensor| tensor.map(View)).collect()
}

unsafe fn maybe_views_mut<'a>(list: Tensors, n: usize) -> Vec<Option<ViewMut<'a>>> {
    tensors(list, n).map(|tensor| tensor.map(ViewMut)).collect()
}

impl<S: Stage> Stages<S> {
    fn counts(&self, call: &StageCall) -> Result<(usize, usize)> {
        match self.counts.get(call.chunk as usize) {
            Some(&counts) => Ok(counts),
            None => Err(Error::new(Status::INTERNAL, "a stage was called for a chunk it has not")),
        }
    }
}

// Called inside of StagePipeline::run alone, which has the stages exclusively; tensors are lent for
// the call, by the contract of nxd_pp_stage_callbacks_t.
unsafe extern "C" fn forward<S: Stage>(
    call: *const StageCall,
    inputs: Tensors,
    outputs: Tensors,
    out_loss: *mut f64,
    data: *mut c_void,
) -> Status {
    guard(|| {
        let stages = &mut *data.cast::<Stages<S>>();
        let (num_inputs, num_outputs) = stages.counts(&*call)?;
        let mut outputs: Vec<_> = tensors(outputs, num_outputs).flatten().map(ViewMut).collect();
        let loss = stages.stage.forward(&*call, &views(inputs, num_inputs), &mut outputs)?;
        if let (Some(loss), false) = (loss, out_loss.is_null()) {
            *out_loss = loss;
        }
        Ok(())
    })
}

unsafe extern "C" fn backward<S: Stage>(
    call: *const StageCall,
    inputs: Tensors,
    grad_outputs: Tensors,
    grad_inputs: Tensors,
    data: *mut c_void,
) -> Status {
    guard(|| {
        let stages = &mut *data.cast::<Stages<S>>();
        let (n_in, n_out) = stages.counts(&*call)?;
        let mut grads = maybe_views_mut(grad_inputs, n_in);
        let (inputs, grad_outputs) = (views(inputs, n_in), maybe_views(grad_outputs, n_out));
        stages.stage.backward(&*call, &inputs, &grad_outputs, &mut grads)
    })
}

unsafe extern "C" fn backward_input<S: Stage>(
    call: *const StageCall,
    inputs: Tensors,
    grad_outputs: Tensors,
    grad_inputs: Tensors,
    data: *mut c_void,
) -> Status {
    guard(|| {
        let stages = &mut *data.cast::<Stages<S>>();
        let (n_in, n_out) = stages.counts(&*call)?;
        let mut grads = maybe_views_mut(grad_inputs, n_in);
        let (inputs, grad_outputs) = (views(inputs, n_in), maybe_views(grad_outputs, n_out));
        stages.stage.backward_input(&*call, &inputs, &grad_outputs, &mut grads)
    })
}

unsafe extern "C" fn backward_weight<S: Stage>(
    call: *const StageCall,
    inputs: Tensors,
    grad_outputs: Tensors,
    data: *mut c_void,
) -> Status {
    guard(|| {
        let stages = &mut *data.cast::<Stages<S>>();
        let (n_in, n_out) = stages.counts(&*call)?;
        let (inputs, grad_outputs) = (views(inputs, n_in), maybe_views(grad_outputs, n_out));
        stages.stage.backward_weight(&*call, &inputs, &grad_outputs)
    })
}
