use crate::callback::{guard, Shared};
use crate::data_parallel::Ddp;
use crate::engine::module::{told_texts, Module, Texts};
use crate::engine::parameter::Parameter;
use crate::engine::tensor::{maybe_outputs, maybe_pointers, Tensor};
use crate::error::{c_string, check, string, Result, Status};
use crate::object::{borrow, create, get, list, Owned};
use crate::pipeline::{Pipeline, PipelineSchedule, PipelineScheduleKind};
use crate::planner::Partition;
use nxd_sys as sys;
use std::ffi::CString;
use std::os::raw::{c_char, c_void};
use std::ptr::{null, null_mut};

pub use sys::nxd_pp_loss_t as PipelineLoss;

/// True if a module that tracing could enter is called as a whole: module, path, and what the other
/// options say. The same answers on all ranks.
pub type LeafRule = dyn Fn(&Module, &str, bool) -> Result<bool>;

/// Gives a parameter on the meta device its first values: parameter, name, and the shard to fill.
pub type ParameterInit<'a> = dyn Fn(&Parameter, &str, &Tensor) -> Result<()> + 'a;

/// Options of [`ModelPipeline::create`], see `nxd_pp_options_t`; the same on all ranks.
#[derive(Default)]
pub struct PipelineOptions<'a> {
    pub num_microbatches: i32,
    pub virtual_size: i32,
    pub schedule: PipelineScheduleKind,
    pub partition: Partition,
    pub custom_schedule: Option<&'a PipelineSchedule>,
    pub transformer_layer_class: Option<&'a str>,
    pub pipeline_cuts: Vec<String>,
    pub leaf_modules: Vec<String>,
    pub input_names: Vec<String>,
    pub num_outputs: i32,
    pub loss_output: i32,
    pub loss: PipelineLoss,
    pub labels_input: Option<i32>,
    pub ignore_index: Option<i64>,
    pub labels_shifted: bool,
    pub broadcast_and_average_loss: bool,
    pub return_mb_loss: bool,
    pub keep_outputs: bool,
    pub param_init: Option<&'a ParameterInit<'a>>,
    pub trace_file_path: Option<&'a str>,
    pub leaf_rule: Option<Box<LeafRule>>,
    /// Where the loss lies in nested outputs, such as "losses.lm", in place of `loss_output`.
    pub loss_path: Option<&'a str>,
}

/// The texts of options, as the C interface takes them.
struct OptionTexts {
    cuts: Texts,
    leaves: Texts,
    names: Texts,
    class: Option<CString>,
    trace: Option<CString>,
    loss_path: Option<CString>,
}

impl OptionTexts {
    fn new(options: &PipelineOptions<'_>) -> Result<OptionTexts> {
        Ok(OptionTexts {
            cuts: Texts::new(&options.pipeline_cuts)?,
            leaves: Texts::new(&options.leaf_modules)?,
            names: Texts::new(&options.input_names)?,
            class: options.transformer_layer_class.map(c_string).transpose()?,
            trace: options.trace_file_path.map(c_string).transpose()?,
            loss_path: options.loss_path.map(c_string).transpose()?,
        })
    }
}

/// A model that is traced, cut into stages and run by a schedule.
pub struct ModelPipeline {
    // Released before what it uses.
    pp: Owned<Pipeline>,
    ddp: Option<Ddp>,
    _leaf_rule: Option<Shared<Box<LeafRule>>>,
}

impl ModelPipeline {
    /// Traces a model on examples of its inputs, cuts it, and keeps this rank's stages. Collective:
    /// the pipeline-parallel group, and with [`Partition::COST`] the tensor-parallel one.
    pub fn create(
        model: &Module,
        inputs: &[Option<&Tensor>],
        options: PipelineOptions<'_>,
    ) -> Result<ModelPipeline> {
        let OptionTexts { cuts, leaves, names, class, trace, loss_path } =
            OptionTexts::new(&options).map_err(|error| {
                // The peers are in the call already, or about to be: one without an array of inputs fails
                // on all ranks, those that would count costs with it too.
                let raw = sys::nxd_pp_options_t {
                    partition: options.partition,
                    ..Default::default()
                };
                let mut none = null_mut();
                unsafe { sys::nxd_pp_create(model.as_raw(), null(), 1, &raw, &mut none) };
                error
            })?;
        let mut raw = sys::nxd_pp_options_t {
            num_microbatches: options.num_microbatches,
            virtual_size: options.virtual_size,
            schedule: options.schedule,
            partition: options.partition,
            custom_schedule: options.custom_schedule.map_or(null_mut(), PipelineSchedule::as_raw),
            transformer_layer_class: class.as_ref().map_or(null(), |text| text.as_ptr()),
            trace_file_path: trace.as_ref().map_or(null(), |text| text.as_ptr()),
            loss_path: loss_path.as_ref().map_or(null(), |text| text.as_ptr()),
            num_outputs: options.num_outputs,
            loss_output: options.loss_output,
            loss: options.loss,
            has_labels_input: options.labels_input.is_some().into(),
            labels_input: options.labels_input.unwrap_or(0),
            has_ignore_index: options.ignore_index.is_some().into(),
            ignore_index: options.ignore_index.unwrap_or(0),
            labels_shifted: options.labels_shifted.into(),
            broadcast_and_average_loss: options.broadcast_and_average_loss.into(),
            return_mb_loss: options.return_mb_loss.into(),
            keep_outputs: options.keep_outputs.into(),
            ..Default::default()
        };
        (raw.pipeline_cuts, raw.num_cuts) = cuts.pointers();
        (raw.leaf_modules, raw.num_leaf_modules) = leaves.pointers();
        (raw.input_names, raw.num_input_names) = names.pointers();
        if let Some(init) = &options.param_init {
            raw.param_init = Some(initialise);
            raw.param_init_data =
                (init as *const &ParameterInit<'_> as *mut &ParameterInit<'_>).cast();
        }
        let leaf_rule = options.leaf_rule.map(Shared::new);
        if let Some(rule) = &leaf_rule {
            raw.leaf_rule = Some(is_leaf);
            raw.leaf_rule_data = rule.as_ptr().cast();
        }
        let pp = create(|out| unsafe {
            let (list, n) = (maybe_pointers(inputs), inputs.len());
            sys::nxd_pp_create(model.as_raw(), list, n, &raw, out)
        })?;
        Ok(ModelPipeline { pp, ddp: None, _leaf_rule: leaf_rule })
    }

    /// Forwards and backwards of all microbatches of a batch; gives the loss where it is known, 0
    /// elsewhere. Collective: the pipeline-parallel group, and the data-parallel one with a loss
    /// over tokens or averaged.
    pub fn train(&mut self, inputs: &[Option<&Tensor>]) -> Result<f64> {
        get(|out| unsafe {
            let (list, n) = (maybe_pointers(inputs), inputs.len());
            sys::nxd_pp_run_train(self.pp.as_raw(), list, n, out)
        })
    }

    /// Forwards alone, in evaluation mode; the outputs are there on the rank with the last stage.
    pub fn evaluate(
        &mut self,
        inputs: &[Option<&Tensor>],
        num_outputs: usize,
    ) -> Result<(f64, Vec<Option<Owned<Tensor>>>)> {
        let mut loss = 0.0;
        let outputs = maybe_outputs(num_outputs, |out| unsafe {
            let (list, n) = (maybe_pointers(inputs), inputs.len());
            sys::nxd_pp_run_eval(self.pp.as_raw(), list, n, &mut loss, out, num_outputs)
        })?;
        Ok((loss, outputs))
    }

    /// [`train`](Self::train) with inputs by their names; those that are not named are left out.
    pub fn train_named(&mut self, inputs: &[(&str, &Tensor)]) -> Result<f64> {
        let (names, inputs) = split_names(inputs);
        told_texts(&names, |list, n| {
            get(|out| unsafe {
                let inputs = maybe_pointers(&inputs);
                sys::nxd_pp_run_train_named(self.pp.as_raw(), list, inputs, n, out)
            })
        })
    }

    /// [`evaluate`](Self::evaluate) with inputs by their names.
    pub fn evaluate_named(
        &mut self,
        inputs: &[(&str, &Tensor)],
        num_outputs: usize,
    ) -> Result<(f64, Vec<Option<Owned<Tensor>>>)> {
        let mut loss = 0.0;
        let (names, inputs) = split_names(inputs);
        let outputs = told_texts(&names, |list, n| {
            maybe_outputs(num_outputs, |out| unsafe {
                let (pp, inputs) = (self.pp.as_raw(), maybe_pointers(&inputs));
                sys::nxd_pp_run_eval_named(pp, list, inputs, n, &mut loss, out, num_outputs)
            })
        })?;
        Ok((loss, outputs))
    }

    /// Losses of the last run's microbatches, with `return_mb_loss`, on the rank with the last stage.
    pub fn losses(&self) -> Result<Vec<f64>> {
        list(|data, cap, count| unsafe {
            sys::nxd_pp_get_losses(self.pp.as_raw(), data, cap, count)
        })
    }

    /// Reduces gradients while runs go on, by a ddp over the local module; gives back the one before.
    pub fn set_ddp(&mut self, ddp: Option<Ddp>) -> Result<Option<Ddp>> {
        let raw = ddp.as_ref().map_or(null_mut(), Ddp::as_raw);
        check(unsafe { sys::nxd_pp_set_ddp(self.pp.as_raw(), raw) })?;
        Ok(std::mem::replace(&mut self.ddp, ddp))
    }

    pub fn ddp(&self) -> Option<&Ddp> {
        self.ddp.as_ref()
    }

    /// The part of the model that this rank has. Optimizers, ddps, saving and loading take it.
    pub fn local_module(&self) -> Result<&Module> {
        // Runs, which may trace anew, borrow the pipeline mutably.
        unsafe { borrow(|out| sys::nxd_pp_get_local_module(self.pp.as_raw(), out)) }
    }

    /// Paths of the modules that this rank's stages call.
    pub fn local_module_names(&self) -> Result<Vec<String>> {
        self.names(sys::nxd_pp_get_local_module_count, sys::nxd_pp_get_local_module_name)
    }

    /// Paths of the modules that cuts come after.
    pub fn cuts(&self) -> Result<Vec<String>> {
        self.names(sys::nxd_pp_get_cut_count, sys::nxd_pp_get_cut)
    }

    /// Paths of the outputs that [`evaluate`](Self::evaluate) gives, in its order.
    pub fn output_paths(&self) -> Result<Vec<String>> {
        self.names(sys::nxd_pp_get_output_count, sys::nxd_pp_get_output_path)
    }

    /// Modules of this rank's stages that cannot put their weight gradients off.
    pub fn unsplit_names(&self) -> Result<Vec<String>> {
        self.names(sys::nxd_pp_get_unsplit_count, sys::nxd_pp_get_unsplit_name)
    }

    fn names(
        &self,
        count: unsafe extern "C" fn(*mut sys::nxd_pp_t, *mut usize) -> Status,
        name: unsafe extern "C" fn(*mut sys::nxd_pp_t, usize, *mut *const c_char) -> Status,
    ) -> Result<Vec<String>> {
        let n = get(|out| unsafe { count(self.pp.as_raw(), out) })?;
        (0..n)
            .map(|i| {
                let mut text = null();
                check(unsafe { name(self.pp.as_raw(), i, &mut text) })?;
                Ok(unsafe { string(text) })
            })
            .collect()
    }

    /// The traced graph as text.
    pub fn graph_text(&self) -> Result<String> {
        let mut text = null();
        check(unsafe { sys::nxd_pp_get_graph_text(self.pp.as_raw(), &mut text) })?;
        Ok(unsafe { string(text) })
    }

    pub fn pipeline(&self) -> &Pipeline {
        &self.pp
    }
}

fn split_names<'a>(inputs: &[(&'a str, &'a Tensor)]) -> (Vec<&'a str>, Vec<Option<&'a Tensor>>) {
    inputs.iter().map(|&(name, tensor)| (name, Some(tensor))).unzip()
}

unsafe extern "C" fn initialise(
    parameter: *mut sys::nxd_parameter_t,
    name: *const c_char,
    tensor: *mut sys::nxd_tensor_t,
    data: *mut c_void,
) -> Status {
    guard(|| {
        let init = *data.cast::<&ParameterInit<'_>>();
        init(&*parameter.cast::<Parameter>(), &string(name), &*tensor.cast::<Tensor>())
    })
}

unsafe extern "C" fn is_leaf(
    module: *mut sys::nxd_module_t,
    path: *const c_char,
    is_leaf: *mut i32,
    data: *mut c_void,
) -> Status {
    guard(|| {
        let rule = &*data.cast::<Box<LeafRule>>();
        *is_leaf = rule(&*module.cast::<Module>(), &string(path), *is_leaf != 0)?.into();
        Ok(())
    })
}
