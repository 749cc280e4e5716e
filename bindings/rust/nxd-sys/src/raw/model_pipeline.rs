//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

/// A caller's rule for tracing: whether a module is a leaf, which the graph calls as one node.
/// Built-in layers, and modules without children, always are. All ranks must answer alike.
///
/// @param path             from the root; of a module that is in no place of the tree its class.
/// @param[in,out] is_leaf  comes with what leaf_modules and transformer_layer_class say, 0 or 1.
pub type nxd_leaf_fn = Option<
    unsafe extern "C" fn(module: *mut nxd_module_t, path: *const c_char, is_leaf: *mut i32, user_data: *mut c_void) -> nxd_status_t,
>;

/// Gives a parameter on the meta device its initial values. name is its path from the root; tensor
/// is this rank's shard, to be filled.
pub type nxd_param_init_fn = Option<
    unsafe extern "C" fn(parameter: *mut nxd_parameter_t, name: *const c_char, tensor: *mut nxd_tensor_t, user_data: *mut c_void) -> nxd_status_t,
>;

/// Options of nxd_pp_create; the same on all ranks. Strings and lists are copied.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_pp_options_t {
    pub struct_size: usize,
    /// 0: 1; divides the batch, dimension 0 of every input
    pub num_microbatches: i32,
    /// virtual_pipeline_size, chunks of each rank; 0: 1
    pub virtual_size: i32,
    /// of training
    pub schedule: nxd_pp_schedule_kind_t,
    pub partition: nxd_pp_partition_t,
    /// instead of schedule; NULL: none
    pub custom_schedule: *mut nxd_pp_schedule_t,
    /// a leaf, and what EVEN and COST count in; NULL: that of a built-in model
    pub transformer_layer_class: *const c_char,
    /// paths of modules, each the last of its stage
    pub pipeline_cuts: *const *const c_char,
    pub num_cuts: usize,
    /// more leaves, by class name or by path
    pub leaf_modules: *const *const c_char,
    pub num_leaf_modules: usize,
    /// of the model's inputs; NULL: a built-in model's own, else "input_0" and so on
    pub input_names: *const *const c_char,
    pub num_input_names: usize,
    /// of the model's forward; 0: 1, or with loss_path all that a module of a TorchScript file gives
    pub num_outputs: i32,
    /// which of them is the loss: a scalar
    pub loss_output: i32,
    pub loss: nxd_pp_loss_t,
    /// with TOKENS: 1: labels_input has the labels; 0: the input named "labels"
    pub has_labels_input: i32,
    pub labels_input: i32,
    /// with TOKENS: 1: labels of ignore_index do not count; 0: of -100
    pub has_ignore_index: i32,
    pub ignore_index: i64,
    /// with TOKENS: 1: labels are used as they are; 0: the first label of a row predicts nothing, but for a BERT
    pub labels_shifted: i32,
    /// 1: every rank gets the loss of all data-parallel ranks; not with return_mb_loss
    pub broadcast_and_average_loss: i32,
    /// 1: losses of microbatches: nxd_pp_get_losses
    pub return_mb_loss: i32,
    /// 1: a stage's outputs are kept until their backward; 0: let go once sent (deallocate_pipeline_outputs)
    pub keep_outputs: i32,
    /// for parameters on the meta device; NULL: the built-in initialisers, by seed and name
    pub param_init: nxd_param_init_fn,
    pub param_init_data: *mut c_void,
    /// the graph as text, or as DOT if it ends in ".dot"; written on rank 0; NULL: not
    pub trace_file_path: *const c_char,
    /// NULL: leaves are those named above
    pub leaf_rule: nxd_leaf_fn,
    /// used as long as the pipeline lives
    pub leaf_rule_data: *mut c_void,
    /// output_loss_value_spec: the path of the loss in the outputs of the model's forward (nxd_module_get_output_path), such as "losses.lm"; NULL: the loss is loss_output, which is 0 otherwise
    pub loss_path: *const c_char,
}

unsafe impl Versioned for nxd_pp_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        if self.labels_input != 0 {
            self.has_labels_input = 1;
        }
        if self.ignore_index != 0 {
            self.has_ignore_index = 1;
        }
        self
    }
}

#[cfg(feature = "engine")]
impl Default for nxd_pp_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_pp_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

#[cfg(feature = "engine")]
extern "C" {
    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_pp_options_init(options: *mut nxd_pp_options_t, size: usize) -> nxd_status_t;

    /// [collective: the pipeline-parallel group] Traces a model, cuts it and keeps this rank's stages.
    ///
    /// Parameters outside of this rank's stages lose their values; those inside that are on the meta
    /// device get theirs. Parameters that several stages share are made equal to their owner's, that of
    /// the first stage that has them, and their gradients are summed by every training run, in F32
    /// where a ddp keeps them so; their gradient hooks are called at its end, once. A call that is
    /// rejected on one rank is rejected on all, and leaves the model whole on all of them. With
    /// NXD_PP_PARTITION_COST the tensor-parallel group takes part as well, whose ranks add up costs.
    ///
    /// A parameter may be frozen and thawed later (nxd_parameter_set_trainable) on the ranks whose
    /// stages have it, all of them: the next run traces the model again.
    /// @param model    the root; kept alive. Its forward runs once, on tensors without data: reading a
    /// value fails, and the message names the module and the operation.
    /// @param inputs   examples of the inputs of one run, whose shapes and dtypes count: dimension 0 is
    /// the batch. They may be on the meta device; NULL: left out in every run.
    /// @return NXD_OK; INVALID_ARGUMENT (names of cuts, leaves or inputs, or the path of the loss,
    /// unknown: the nearest are given; a path that leads to several outputs, or to one that is
    /// no scalar; sizes that do not divide; a schedule that does not admit the shape; cuts,
    /// inputs or settings of the loss that differ between ranks of the pipeline; a parameter of
    /// several stages that is frozen on some of their ranks alone);
    /// INVALID_STATE (model parallel not initialised; a value is read; a ddp has a parameter
    /// of another rank's stages); UNSUPPORTED (an operator without a shape function; context-
    /// or expert-parallel ranks); IO (trace_file_path, in the pipeline of rank 0 alone); a
    /// callback's error; TIMEOUT; PEER_LOST.
    /// @since 0.1
    pub fn nxd_pp_create(model: *mut nxd_module_t, inputs: *const *mut nxd_tensor_t, num_inputs: usize, options: *const nxd_pp_options_t, out_pp: *mut *mut nxd_pp_t) -> nxd_status_t;

    /// [collective: pipeline- and data-parallel groups] Forwards and backwards of all microbatches of
    /// a batch.
    ///
    /// The data-parallel group takes part with a loss over tokens, or broadcast_and_average_loss.
    ///
    /// With a loss over tokens, a microbatch that has none has no part in loss and gradients, whatever
    /// the model's loss of it is.
    ///
    /// Gradients add to those there are, microbatch by microbatch, and are partial as after
    /// nxd_backward: a ddp given by nxd_pp_set_ddp reduces them as they become complete;
    /// nxd_optimizer_step or nxd_finish_grads over nxd_pp_get_local_module completes them.
    ///
    /// Random bits are drawn for the context's step, and for microbatches from the context's on
    /// (nxd_context_set_step). A run that succeeds moves the context on by num_microbatches, so that
    /// another run of the step draws other bits; nxd_optimizer_step goes back to microbatch 0. A run
    /// that fails on a rank, or evaluates, leaves the context there as it was. After a failure, set it
    /// on all ranks.
    /// @param inputs  those of nxd_pp_create, the same on all ranks of the pipeline; another batch or
    /// sequence length makes the model be traced again, and so do training after
    /// evaluation and parameters that were frozen or thawed.
    /// @param[out] out_loss  on the rank with the last stage, or with broadcast_and_average_loss
    /// everywhere; else 0. May be NULL.
    /// @since 0.1
    pub fn nxd_pp_run_train(pp: *mut nxd_pp_t, inputs: *const *mut nxd_tensor_t, num_inputs: usize, out_loss: *mut f64) -> nxd_status_t;

    /// [collective: as nxd_pp_run_train] Forwards alone, without recording gradients, in evaluation
    /// mode.
    ///
    /// @param[out] out_loss  as of nxd_pp_run_train; 0 when the model gives no loss. May be NULL.
    /// @param outputs  filled, on the rank with the last stage, with num_outputs new handles: the
    /// model's outputs of all microbatches, joined along dimension 0, scalars as a
    /// vector; the caller destroys them. NULL elsewhere. outputs itself may be NULL
    /// when num_outputs is 0. They come in the order of nxd_pp_get_output_path.
    /// @since 0.1
    pub fn nxd_pp_run_eval(pp: *mut nxd_pp_t, inputs: *const *mut nxd_tensor_t, num_inputs: usize, out_loss: *mut f64, outputs: *mut *mut nxd_tensor_t, num_outputs: usize) -> nxd_status_t;

    /// [collective: as nxd_pp_run_train] nxd_pp_run_train with inputs by their names, in any order.
    ///
    /// @param names   num_inputs names: those of the options' input_names, or a built-in model's own
    /// ("input_ids", "labels" and so on), each once. An input that no name gives is left
    /// out, and must have been left out of nxd_pp_create's.
    /// @param inputs  their tensors.
    /// @return as nxd_pp_run_train; INVALID_ARGUMENT on all ranks of the pipeline for a name that is
    /// unknown (the nearest are given) or comes twice.
    /// @since 0.1
    pub fn nxd_pp_run_train_named(pp: *mut nxd_pp_t, names: *const *const c_char, inputs: *const *mut nxd_tensor_t, num_inputs: usize, out_loss: *mut f64) -> nxd_status_t;

    /// [collective: as nxd_pp_run_train] nxd_pp_run_eval with inputs by their names, as of
    /// nxd_pp_run_train_named.
    /// @since 0.1
    pub fn nxd_pp_run_eval_named(pp: *mut nxd_pp_t, names: *const *const c_char, inputs: *const *mut nxd_tensor_t, num_inputs: usize, out_loss: *mut f64, outputs: *mut *mut nxd_tensor_t, num_outputs: usize) -> nxd_status_t;

    /// [local] Losses of the last run's microbatches, on the rank with the last stage, by the rule of
    /// nxd_layout_get_group; with return_mb_loss.
    /// @since 0.1
    pub fn nxd_pp_get_losses(pp: *mut nxd_pp_t, losses: *mut f64, cap: usize, out_count: *mut usize) -> nxd_status_t;

    /// [local] Reduces gradients during training runs: the ddp is off for all microbatches but the
    /// last. NULL ends that. The pipeline does not keep the ddp alive: set NULL before the ddp is
    /// destroyed. While nxd_ddp_set_sync is off, gradients of runs add up, and none is reduced.
    /// @param ddp  over nxd_pp_get_local_module.
    /// @since 0.1
    pub fn nxd_pp_set_ddp(pp: *mut nxd_pp_t, ddp: *mut nxd_ddp_t) -> nxd_status_t;

    /// [local] Number of outputs that nxd_pp_run_eval gives at most.
    /// @since 0.1
    pub fn nxd_pp_get_output_count(pp: *mut nxd_pp_t, out_count: *mut usize) -> nxd_status_t;

    /// [local] Path of an output, on any rank: as nxd_module_get_output_path gives it. Borrowed until
    /// the next run: one with other shapes may give others.
    /// @since 0.1
    pub fn nxd_pp_get_output_path(pp: *mut nxd_pp_t, index: usize, out_path: *mut *const c_char) -> nxd_status_t;

    /// [local] The part of the model that this rank has: a tree of the same names whose modules and
    /// parameters are those of its stages; borrowed. Optimizers, ddps, saving and loading take it as a
    /// root.
    /// @since 0.1
    pub fn nxd_pp_get_local_module(pp: *mut nxd_pp_t, out_module: *mut *mut nxd_module_t) -> nxd_status_t;

    /// [local] Number of modules that this rank's stages call, and the path of each; borrowed.
    /// @since 0.1
    pub fn nxd_pp_get_local_module_count(pp: *mut nxd_pp_t, out_count: *mut usize) -> nxd_status_t;

    /// [local] Path of a module that this rank's stages call; borrowed.
    /// @since 0.1
    pub fn nxd_pp_get_local_module_name(pp: *mut nxd_pp_t, index: usize, out_name: *mut *const c_char) -> nxd_status_t;

    /// [local] Number of cuts: one less than stages.
    /// @since 0.1
    pub fn nxd_pp_get_cut_count(pp: *mut nxd_pp_t, out_count: *mut usize) -> nxd_status_t;

    /// [local] Path of the module that a cut comes after; borrowed.
    /// @since 0.1
    pub fn nxd_pp_get_cut(pp: *mut nxd_pp_t, index: usize, out_name: *mut *const c_char) -> nxd_status_t;

    /// [local] The traced graph as text; borrowed.
    /// @since 0.1
    pub fn nxd_pp_get_graph_text(pp: *mut nxd_pp_t, out_text: *mut *const c_char) -> nxd_status_t;

    /// [local] Number of modules and operators of this rank's stages whose weight gradients cannot be
    /// put off: in a zero-bubble schedule these are made together with their input gradients.
    /// @since 0.1
    pub fn nxd_pp_get_unsplit_count(pp: *mut nxd_pp_t, out_count: *mut usize) -> nxd_status_t;

    /// [local] Name of such a parameter's node; borrowed. Known after a first training run.
    /// @since 0.1
    pub fn nxd_pp_get_unsplit_name(pp: *mut nxd_pp_t, index: usize, out_name: *mut *const c_char) -> nxd_status_t;
}
