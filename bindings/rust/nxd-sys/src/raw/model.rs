//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

/// Options of nxd_model_create.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_model_options_t {
    pub struct_size: usize,
    /// of the parameters: F32 (0), F64, BF16
    pub dtype: nxd_dtype_t,
    pub device: nxd_device_t,
    /// 1: norms and residuals on slices of the sequence
    pub sequence_parallel: i32,
    pub reserved: i32,
}

unsafe impl Versioned for nxd_model_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

#[cfg(feature = "engine")]
impl Default for nxd_model_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_model_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

#[cfg(feature = "engine")]
extern "C" {
    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_model_options_init(options: *mut nxd_model_options_t, size: usize) -> nxd_status_t;

    /// [local] Builds a model from a Hugging Face configuration, initialised with the context's seed.
    ///
    /// Families by model_type: "llama" with "mistral", "qwen2" and "qwen3" as its forms, "gpt2",
    /// "gpt_neox", and "bert" for pre-training. Parameter names and shapes are Hugging Face's.
    /// Forward inputs: ids [batch, sequence], I64; optionally labels of the same shape, -100 where a
    /// token is not predicted, which are shifted inside as Hugging Face does; optionally a key mask
    /// [batch, sequence] of integers or booleans, 0 where a position is padding.
    /// Outputs: without labels the logits [batch, sequence, vocabulary / tp]; with labels the mean
    /// loss over valid tokens, and as a second output, if asked for, the logits. The vocabulary
    /// is rounded up to a multiple of tp; logits of ids beyond it are below
    /// -1e30. A BERT's labels are those of masked tokens, not shifted. Its further inputs are token
    /// types [batch, sequence], I64, 0 where they are left out, and the next sentence's labels [batch],
    /// I64: 0, 1, or -100 where there is none, given with the labels or not at all. The loss is the sum
    /// of both means; the last output, if asked for, has the next sentence's logits [batch, 2]. With
    /// sequence_parallel a sequence that the ranks do not divide is padded inside. All ranks of a
    /// tensor-parallel group have the same inputs: ids and labels that differ are rejected; masks,
    /// token types and next sentences' labels are not compared.
    /// @param config_json  text of config.json.
    /// @return NXD_OK; INVALID_ARGUMENT (not JSON, a field missing or out of range, sizes that do not
    /// divide); UNSUPPORTED (model_type, activation or rope_type unknown; the message lists the
    /// known ones; or a field that makes another model); INVALID_STATE (model parallel not
    /// initialised).
    /// @since 0.1
    pub fn nxd_model_create(ctx: *mut nxd_context_t, config_json: *const c_char, options: *const nxd_model_options_t, out_model: *mut *mut nxd_module_t) -> nxd_status_t;

    /// [local] Builds a model from a directory's config.json and loads its safetensors, strictly.
    /// @since 0.1
    pub fn nxd_model_from_pretrained(ctx: *mut nxd_context_t, directory: *const c_char, options: *const nxd_model_options_t, out_model: *mut *mut nxd_module_t) -> nxd_status_t;

    /// [local] Loads a module from a TorchScript file, as torch.jit.save writes it: the code of its
    /// forward, and its values. It runs with the file's program, so that the file must be trusted.
    ///
    /// The tree has the file's names and classes. Parameters are whole on each rank, and trained, saved
    /// and loaded as those of any module; so are buffers (nxd_module_share_buffer). Submodules that a
    /// forward calls with tensors alone are called one by one: there nxd_pp_create may cut it, and
    /// nxd_apply_checkpoint begin. Outputs are the tensors that it gives, also within tuples, lists and
    /// dictionaries. Dropout draws as nxd_layer_create_dropout's layer of the module's path does, and
    /// other bits at each further call of a forward; so do rand, randn and their like. Modules
    /// are in training or evaluation mode as the file has them. It is on the CPU;
    /// nxd_move_model_to_device moves it, and the tensors that its code makes go with it.
    /// @return NXD_OK; IO; INVALID_ARGUMENT (a file of another kind); UNSUPPORTED (a parameter that is
    /// no dense F32, F64 or BF16, or that shares memory otherwise than as one tensor under two
    /// names, or with a buffer; a root with forward hooks; a forward that draws random numbers
    /// otherwise: alpha dropout and dropouts of packed sequences are rejected by a forward in
    /// training, the others here).
    /// @since 0.1
    pub fn nxd_model_from_torchscript(ctx: *mut nxd_context_t, path: *const c_char, out_module: *mut *mut nxd_module_t) -> nxd_status_t;

    /// [local] Writes a module of nxd_model_from_torchscript back, with its values as they are now, for
    /// torch.jit.load; crash-safe. Ranks have the same values: one of them writes. On the recorded
    /// device it comes behind nxd_mark_step of all ranks, which meet in the step's graph.
    /// @param root  the root of the file, not this rank's part of a pipeline's.
    /// @return NXD_OK; INVALID_ARGUMENT (another module; parameters on the meta device); INVALID_STATE
    /// (parameters are PARTIAL); UNSUPPORTED (buffers or attributes of several dtypes have
    /// elements in common); IO.
    /// @since 0.1
    pub fn nxd_model_save_torchscript(root: *mut nxd_module_t, path: *const c_char) -> nxd_status_t;

    /// [local] Number of outputs that the last forward of a built-in model or of a TorchScript file's
    /// module could give, whether they were asked for or not; of another module those that were asked
    /// for. 0 before the first forward, which a trace of nxd_pp_create is, too.
    /// @since 0.1
    pub fn nxd_module_get_output_count(module: *mut nxd_module_t, out_count: *mut usize) -> nxd_status_t;

    /// [local] Path of an output of the last forward: the names, keys and positions that lead to it in
    /// the result, joined by dots.
    ///
    /// A module of a TorchScript file gives tuples, lists and dictionaries, also within one another:
    /// "losses.lm", "0.hidden.2"; a key that is no text or integer counts as its position. Built-in
    /// models have Hugging Face's names, such as "loss" and "logits". Other modules give lists: "0",
    /// "1" and so on, as one tensor alone is "0".
    /// @param index     of the output, as nxd_module_forward gives them.
    /// @param out_path  borrowed until the next forward.
    /// @return NXD_OK; INVALID_ARGUMENT (index).
    /// @since 0.1
    pub fn nxd_module_get_output_path(module: *mut nxd_module_t, index: usize, out_path: *mut *const c_char) -> nxd_status_t;

    /// [local] Floating-point operations of one training step of a built-in model, all ranks together:
    /// 6 per matrix parameter and token, and 6 layers * sequence * attention width per token for
    /// causal attention; the input embedding counts nothing.
    /// @since 0.1
    pub fn nxd_model_get_step_flops(model: *mut nxd_module_t, batch: i64, sequence: i64, out_flops: *mut f64) -> nxd_status_t;
}
