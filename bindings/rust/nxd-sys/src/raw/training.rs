//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

#[cfg(feature = "engine")]
extern "C" {
    /// [collective: tensor-, pipeline- and data-parallel groups] Finishes the gradients of a model
    /// after backward: sums those of norms under sequence parallelism and of replicated key and value
    /// heads, reduces over data-parallel ranks, scales, takes the norm of the whole model and clips.
    ///
    /// Every rank calls it once per step, with gradients for the same parameters.
    /// @param[out] out_norm  of all gradients before clipping, with the same bits on all ranks; may be
    /// NULL.
    /// @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (a norm that is not finite, or too large for F32
    /// to clip from: gradients are left unclipped; or a ddp of the model's, which
    /// nxd_ddp_finish is for); TIMEOUT; PEER_LOST.
    /// @since 0.1
    pub fn nxd_finish_grads(root: *mut nxd_module_t, options: *const nxd_finish_options_t, out_norm: *mut f64) -> nxd_status_t;

    /// [collective: the data-parallel group] Data parallelism over a tree's trainable parameters, over
    /// the data-parallel group.
    ///
    /// Gradients become views into the buckets, and buckets are reduced during backward passes, in the
    /// reverse order of the parameters. With zero_stage 1 parameters become views as well. One ddp at a
    /// time has a parameter; when it and its optimizers are gone, the model has its tensors back.
    /// @return NXD_OK; INVALID_ARGUMENT, also when ranks differ; INVALID_STATE (a parameter that
    /// another ddp has, that is on the meta device, or of another layout than the context has);
    /// OUT_OF_MEMORY; ABI_MISMATCH; TIMEOUT; PEER_LOST. All ranks fail when one does.
    /// @since 0.1
    pub fn nxd_ddp_create(root: *mut nxd_module_t, options: *const nxd_ddp_options_t, out_ddp: *mut *mut nxd_ddp_t) -> nxd_status_t;

    /// [local] AdamW over all trainable parameters of a tree (Loshchilov and Hutter 2019).
    ///
    /// State is kept in f32 (f64 for F64 parameters), sized like this rank's shards.
    /// @since 0.1
    pub fn nxd_optimizer_create_adamw(root: *mut nxd_module_t, options: *const nxd_adamw_options_t, out_optimizer: *mut *mut nxd_optimizer_t) -> nxd_status_t;

    /// [local] SGD over all trainable parameters of a tree.
    /// @since 0.1
    pub fn nxd_optimizer_create_sgd(root: *mut nxd_module_t, options: *const nxd_sgd_options_t, out_optimizer: *mut *mut nxd_optimizer_t) -> nxd_status_t;

    /// [local] A caller's own update rule over all trainable parameters of a tree.
    /// @return NXD_OK; INVALID_ARGUMENT. After a failure destroy is not called.
    /// @since 0.1
    pub fn nxd_optimizer_create_custom(root: *mut nxd_module_t, options: *const nxd_custom_optimizer_options_t, out_optimizer: *mut *mut nxd_optimizer_t) -> nxd_status_t;

    /// [local] Adds the parameters of a module, such as a model or this rank's part of a pipeline's, to
    /// a training state, which keeps it alive.
    /// @param name  such as "model", whose file is model.safetensors; as for
    /// nxd_training_state_add_optimizer.
    /// @return NXD_OK; INVALID_ARGUMENT (also for a module of another context).
    /// @since 0.1
    pub fn nxd_training_state_add_module(state: *mut nxd_training_state_t, name: *const c_char, root: *mut nxd_module_t) -> nxd_status_t;

    /// [collective: the data-parallel group] Weights that make mean losses of microbatches add up to
    /// the mean over all valid tokens of the step: each one's valid labels divided by those of all
    /// microbatches of all data-parallel ranks, or of the world's without nxd_init_model_parallel.
    ///
    /// Multiply each loss by its weight, or give the weight as its gradient to nxd_backward, and reduce
    /// gradients with SUM. Leave out a microbatch of weight 0 whose loss is not finite, as one without
    /// tokens is by a mean of 0 / 0: its gradients times 0 would not be 0.
    /// @param labels   [.., sequence] I64 each; NULL among them: no tokens.
    /// @param shifted  1: as models take them, whose first label of a row predicts nothing.
    /// @param[out] out_weights  num_labels; all 0 when no rank has a valid label.
    /// @return the same on all ranks: NXD_OK; INVALID_ARGUMENT; UNSUPPORTED (a layout with context- or
    /// expert-parallel ranks); TIMEOUT; PEER_LOST.
    /// @since 0.1
    pub fn nxd_loss_weights(ctx: *mut nxd_context_t, labels: *const *mut nxd_tensor_t, num_labels: usize, ignore_index: i64, shifted: i32, out_weights: *mut f64) -> nxd_status_t;

    /// [local] Recomputes the activations of modules in their backward pass, instead of keeping them
    /// (Chen et al. 2016). Names and state do not change: of two forwards the first writes to buffers,
    /// and the second to copies that begin as the first found them, if a caller's forward asks
    /// nxd_module_share_buffer for them. May be called before or after nxd_pp_create, with the model or
    /// with nxd_pp_get_local_module, which knows the names of all stages.
    ///
    /// @param names  paths from the root, or class names, of the modules; NULL with num_names 0: all
    /// transformer layers of a built-in model.
    /// @param on     1; 0: no longer.
    /// @return NXD_OK; INVALID_ARGUMENT (a name that is neither a path nor a class: the nearest are
    /// given).
    /// @since 0.1
    pub fn nxd_apply_checkpoint(root: *mut nxd_module_t, names: *const *const c_char, num_names: usize, on: i32) -> nxd_status_t;
}
