//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

/// Scaling of rotary frequencies, as in Hugging Face configurations.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_rope_t(pub i32);

impl nxd_rope_t {
    pub const INVALID: Self = Self(-1);
    pub const DEFAULT: Self = Self(0);
    pub const LINEAR: Self = Self(1);
    /// NTK-aware, by the length of the input
    pub const DYNAMIC: Self = Self(2);
    /// Peng et al. 2023
    pub const YARN: Self = Self(3);
    pub const LLAMA3: Self = Self(4);
}

impl std::fmt::Debug for nxd_rope_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::DEFAULT => f.write_str("DEFAULT"),
            Self::LINEAR => f.write_str("LINEAR"),
            Self::DYNAMIC => f.write_str("DYNAMIC"),
            Self::YARN => f.write_str("YARN"),
            Self::LLAMA3 => f.write_str("LLAMA3"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_rope_t {
    fn default() -> Self {
        Self(0)
    }
}

/// The weights of queries, keys and values.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_qkv_fusion_t(pub i32);

impl nxd_qkv_fusion_t {
    pub const INVALID: Self = Self(-1);
    /// q_proj, k_proj and v_proj, three weights
    pub const SEPARATE: Self = Self(0);
    /// one weight: all queries, then all keys, then all values
    pub const BY_PART: Self = Self(1);
    /// one weight: of each key head its queries, its key and its value
    pub const BY_HEAD: Self = Self(2);
}

impl std::fmt::Debug for nxd_qkv_fusion_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::SEPARATE => f.write_str("SEPARATE"),
            Self::BY_PART => f.write_str("BY_PART"),
            Self::BY_HEAD => f.write_str("BY_HEAD"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_qkv_fusion_t {
    fn default() -> Self {
        Self(0)
    }
}

/// Activation of a gated MLP.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct nxd_activation_t(pub i32);

impl nxd_activation_t {
    pub const INVALID: Self = Self(-1);
    pub const SILU: Self = Self(0);
    pub const GELU: Self = Self(1);
    pub const GELU_TANH: Self = Self(2);
    pub const RELU: Self = Self(3);
}

impl std::fmt::Debug for nxd_activation_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::INVALID => f.write_str("INVALID"),
            Self::SILU => f.write_str("SILU"),
            Self::GELU => f.write_str("GELU"),
            Self::GELU_TANH => f.write_str("GELU_TANH"),
            Self::RELU => f.write_str("RELU"),
            Self(other) => write!(f, "{}", other),
        }
    }
}

impl Default for nxd_activation_t {
    fn default() -> Self {
        Self(0)
    }
}

/// Called for each module that nxd_pad_model visits, children before their parent, so that what a
/// caller's forward knows of its heads can follow. The module's parameters are not padded yet.
pub type nxd_pad_hook_fn = Option<
    unsafe extern "C" fn(module: *mut nxd_module_t, num_heads: i64, num_padded_heads: i64, user_data: *mut c_void) -> nxd_status_t,
>;

/// Options of nxd_layer_create_parallel_embedding.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_embedding_options_t {
    pub struct_size: usize,
    /// canonical name of the layer for its initial weights; NULL: ""
    pub name: *const c_char,
    /// of the weight: F32 (0), F64, BF16
    pub dtype: nxd_dtype_t,
    pub device: nxd_device_t,
    /// DEFAULT: normal(0, 1)
    pub init: nxd_init_t,
    /// 1: padding_idx gets no gradient, and starts as zeros
    pub has_padding_idx: i32,
    pub init_a: f64,
    pub init_b: f64,
    pub padding_idx: i64,
    /// 1: embedding_dim is split instead of the vocabulary
    pub shard_across_embedding: i32,
    /// 1: the output is scattered along sequence_dim
    pub sequence_parallel: i32,
    /// of the output
    pub sequence_dim: i32,
    pub reserved: i32,
}

unsafe impl Versioned for nxd_embedding_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        if self.padding_idx != 0 {
            self.has_padding_idx = 1;
        }
        self
    }
}

#[cfg(feature = "engine")]
impl Default for nxd_embedding_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_embedding_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Options of the linear layers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_linear_options_t {
    pub struct_size: usize,
    /// canonical name of the layer for its initial weights; NULL: ""
    pub name: *const c_char,
    /// of weight and bias: F32 (0), F64, BF16
    pub dtype: nxd_dtype_t,
    pub device: nxd_device_t,
    /// default on
    pub bias: nxd_toggle_t,
    /// column only; default on, off with sequence_parallel
    pub gather_output: nxd_toggle_t,
    /// row only; default on; off: the partial sums are the output
    pub reduce_output: nxd_toggle_t,
    /// row only; 1: the input is split along its last dimension already
    pub input_is_parallel: i32,
    pub sequence_parallel: i32,
    pub sequence_dim: i32,
    /// 1: a second output gives the bias, which is not added
    pub skip_bias_add: i32,
    /// 1: nxd_module_get_master_weight gives the whole initial weight
    pub keep_master_weight: i32,
    /// 0: 1; blocks per rank of the split dimension, for fused weights; above 1 without gather_output, and with input_is_parallel
    pub stride: i32,
    /// DEFAULT: uniform(-1/sqrt(in), 1/sqrt(in)), the bias too
    pub init: nxd_init_t,
    pub init_a: f64,
    pub init_b: f64,
    /// column and row; 1: features that the ranks do not divide are split all the same, with zeros behind the last, as by nxd_pad_model; 0: they must divide
    pub pad: i32,
    pub reserved: i32,
}

unsafe impl Versioned for nxd_linear_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

#[cfg(feature = "engine")]
impl Default for nxd_linear_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_linear_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Options of the norms.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_norm_options_t {
    pub struct_size: usize,
    pub name: *const c_char,
    pub dtype: nxd_dtype_t,
    pub device: nxd_device_t,
    /// 0: 1e-5
    pub eps: f64,
    /// default on: a weight (and a bias, LayerNorm)
    pub affine: nxd_toggle_t,
    /// LayerNorm only; default on
    pub bias: nxd_toggle_t,
    /// 1: inputs are slices, and the gradients of its parameters partial
    pub sequence_parallel: i32,
    pub reserved: i32,
}

unsafe impl Versioned for nxd_norm_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

#[cfg(feature = "engine")]
impl Default for nxd_norm_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_norm_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Rotary position embedding (Su et al. 2021): pairs are the two halves of a head.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_rope_options_t {
    pub struct_size: usize,
    pub r#type: nxd_rope_t,
    /// leading features that turn; 0: the whole head
    pub rotary_dim: i32,
    /// 0: 10000
    pub theta: f64,
    /// of LINEAR, DYNAMIC, YARN and LLAMA3; 0: 1
    pub factor: f64,
    /// LLAMA3; 0: 1
    pub low_freq_factor: f64,
    /// LLAMA3; 0: 4
    pub high_freq_factor: f64,
    /// YARN; 0: 32
    pub beta_fast: f64,
    /// YARN; 0: 1
    pub beta_slow: f64,
    /// YARN; 0: 0.1 ln(factor) + 1, at least 1
    pub attention_factor: f64,
    /// DYNAMIC, YARN, LLAMA3: more than 0
    pub original_max_position_embeddings: i64,
}

unsafe impl Versioned for nxd_rope_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

#[cfg(feature = "engine")]
impl Default for nxd_rope_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_rope_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Options of nxd_layer_create_attention.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_attention_options_t {
    pub struct_size: usize,
    pub name: *const c_char,
    pub dtype: nxd_dtype_t,
    pub device: nxd_device_t,
    /// 0: num_heads
    pub num_kv_heads: i64,
    /// 0: hidden_size / num_heads
    pub head_dim: i64,
    /// NULL: no rotary embedding; copied
    pub rope: *const nxd_rope_options_t,
    /// default on
    pub causal: nxd_toggle_t,
    /// default off
    pub qkv_bias: nxd_toggle_t,
    /// default off
    pub output_bias: nxd_toggle_t,
    pub sequence_parallel: i32,
    /// DEFAULT: as the linear layers
    pub init: nxd_init_t,
    pub reserved: i32,
    pub init_a: f64,
    pub init_b: f64,
}

unsafe impl Versioned for nxd_attention_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

#[cfg(feature = "engine")]
impl Default for nxd_attention_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_attention_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Options of nxd_layer_create_qkv_linear.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_qkv_options_t {
    pub struct_size: usize,
    pub name: *const c_char,
    pub dtype: nxd_dtype_t,
    pub device: nxd_device_t,
    /// 0: num_heads
    pub num_kv_heads: i64,
    /// 0: hidden_size / num_heads
    pub head_dim: i64,
    pub fusion: nxd_qkv_fusion_t,
    /// default on
    pub bias: nxd_toggle_t,
    pub sequence_parallel: i32,
    /// DEFAULT: as the linear layers
    pub init: nxd_init_t,
    pub init_a: f64,
    pub init_b: f64,
}

unsafe impl Versioned for nxd_qkv_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

#[cfg(feature = "engine")]
impl Default for nxd_qkv_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_qkv_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Options of nxd_layer_create_gated_mlp.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_mlp_options_t {
    pub struct_size: usize,
    pub name: *const c_char,
    pub dtype: nxd_dtype_t,
    pub device: nxd_device_t,
    pub activation: nxd_activation_t,
    /// default off
    pub bias: nxd_toggle_t,
    /// 1: x is a slice of dimension 0
    pub sequence_parallel: i32,
    /// DEFAULT: as the linear layers
    pub init: nxd_init_t,
    pub init_a: f64,
    pub init_b: f64,
}

unsafe impl Versioned for nxd_mlp_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

#[cfg(feature = "engine")]
impl Default for nxd_mlp_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_mlp_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

#[cfg(feature = "engine")]
extern "C" {
    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_embedding_options_init(options: *mut nxd_embedding_options_t, size: usize) -> nxd_status_t;

    /// [local] Embedding table split over the tensor-parallel ranks.
    ///
    /// Forward: ids [...], I64, the same on all ranks -> [..., embedding_dim]. Ids outside of the table
    /// are INVALID_ARGUMENT on every rank.
    /// @param num_embeddings  rows; must divide by the group's size (embedding_dim with
    /// shard_across_embedding).
    /// @since 0.1
    pub fn nxd_layer_create_parallel_embedding(ctx: *mut nxd_context_t, num_embeddings: i64, embedding_dim: i64, options: *const nxd_embedding_options_t, out_module: *mut *mut nxd_module_t) -> nxd_status_t;

    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_linear_options_init(options: *mut nxd_linear_options_t, size: usize) -> nxd_status_t;

    /// [local] Linear layer whose output features are split over the tensor-parallel ranks.
    ///
    /// Forward: x [..., in_features], replicated (or a slice of sequence_dim with sequence_parallel)
    /// -> [..., out_features / tp], or [..., out_features] with gather_output. With pad the division is
    /// rounded up, and so is that of a row-parallel layer.
    /// @return NXD_OK; INVALID_ARGUMENT (out_features does not divide; gather_output together with
    /// sequence_parallel or a stride above 1); INVALID_STATE (model parallel not initialised).
    /// @since 0.1
    pub fn nxd_layer_create_column_parallel_linear(ctx: *mut nxd_context_t, in_features: i64, out_features: i64, options: *const nxd_linear_options_t, out_module: *mut *mut nxd_module_t) -> nxd_status_t;

    /// [local] Linear layer whose input features are split over the tensor-parallel ranks.
    ///
    /// Forward: x [..., in_features / tp] with input_is_parallel, else [..., in_features], which is
    /// split -> [..., out_features], summed over ranks in f32 or wider, or this rank's slice of the sum
    /// along sequence_dim with sequence_parallel.
    /// @return NXD_OK; INVALID_ARGUMENT (in_features does not divide; sequence_parallel or a stride
    /// above 1 without input_is_parallel; sequence_parallel without reduce_output);
    /// INVALID_STATE.
    /// @since 0.1
    pub fn nxd_layer_create_row_parallel_linear(ctx: *mut nxd_context_t, in_features: i64, out_features: i64, options: *const nxd_linear_options_t, out_module: *mut *mut nxd_module_t) -> nxd_status_t;

    /// [local] Linear layer that each rank has all of, for products that are too small to split.
    ///
    /// Forward: x [..., in_features] -> [..., out_features]. With sequence_parallel x is a slice, and
    /// nxd_finish_grads sums the parameters' gradients over the ranks.
    /// @param options  those of the parallel layers, of which the fields that say how the layer is
    /// split are passed over; keep_master_weight is rejected.
    /// @return NXD_OK; INVALID_ARGUMENT; INVALID_STATE (model parallel not initialised).
    /// @since 0.1
    pub fn nxd_layer_create_linear(ctx: *mut nxd_context_t, in_features: i64, out_features: i64, options: *const nxd_linear_options_t, out_module: *mut *mut nxd_module_t) -> nxd_status_t;

    /// [local] The whole initial weight of a layer made with keep_master_weight; borrowed.
    /// @return NXD_OK; INVALID_STATE (not kept).
    /// @since 0.1
    pub fn nxd_module_get_master_weight(module: *mut nxd_module_t, out_weight: *mut *mut nxd_tensor_t) -> nxd_status_t;

    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_norm_options_init(options: *mut nxd_norm_options_t, size: usize) -> nxd_status_t;

    /// [local] Layer normalisation over the last dimension (Ba et al. 2016).
    ///
    /// Forward: x [..., size], and optionally a residual to add to it first -> the normalised sum and,
    /// when two outputs are asked for, the sum. The weight starts as ones, the bias as zeros.
    /// @since 0.1
    pub fn nxd_layer_create_layer_norm(ctx: *mut nxd_context_t, size: i64, options: *const nxd_norm_options_t, out_module: *mut *mut nxd_module_t) -> nxd_status_t;

    /// [local] Root-mean-square normalisation over the last dimension (Zhang and Sennrich 2019).
    ///
    /// Forward: as nxd_layer_create_layer_norm's, computed in f32 or wider. The weight starts as ones.
    /// @since 0.1
    pub fn nxd_layer_create_rms_norm(ctx: *mut nxd_context_t, size: i64, options: *const nxd_norm_options_t, out_module: *mut *mut nxd_module_t) -> nxd_status_t;

    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_rope_options_init(options: *mut nxd_rope_options_t, size: usize) -> nxd_status_t;

    /// [local] Rotates query or key heads by their position.
    ///
    /// Forward: x [batch, sequence, heads, head_dim] -> the same shape. Positions count from 0.
    /// @since 0.1
    pub fn nxd_layer_create_rotary_embedding(ctx: *mut nxd_context_t, head_dim: i64, options: *const nxd_rope_options_t, out_module: *mut *mut nxd_module_t) -> nxd_status_t;

    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_attention_options_init(options: *mut nxd_attention_options_t, size: usize) -> nxd_status_t;

    /// [local] Self-attention with grouped key and value heads (Ainslie et al. 2023), heads split over
    /// the tensor-parallel ranks.
    ///
    /// Parameters q_proj, k_proj, v_proj, o_proj. With fewer key heads than ranks, each is held by
    /// several ranks and its gradients are summed by nxd_finish_grads.
    /// Forward: x [batch, sequence, hidden], or a slice of [sequence, batch, hidden] with
    /// sequence_parallel; optionally a key mask [batch, sequence] of integers or BOOL, 0 where a
    /// position is padding -> the shape of x. All ranks have the same mask, which is not compared.
    /// Infinities and NaN at padding may reach other positions: x is finite there too.
    /// @param num_heads  at least the least multiple of num_kv_heads that is no less than the group's
    /// size: each rank has a head. Ranks have nearly equal numbers of key heads with
    /// all their queries; with fewer key heads than ranks, nearly equal numbers of
    /// the queries of one.
    /// @since 0.1
    pub fn nxd_layer_create_attention(ctx: *mut nxd_context_t, hidden_size: i64, num_heads: i64, options: *const nxd_attention_options_t, out_module: *mut *mut nxd_module_t) -> nxd_status_t;

    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_qkv_options_init(options: *mut nxd_qkv_options_t, size: usize) -> nxd_status_t;

    /// [local] Queries, keys and values for attention, heads split over the tensor-parallel ranks.
    ///
    /// Weights are [features, hidden_size]: the separate ones have num_heads * head_dim features, or
    /// num_kv_heads * head_dim; a fused one has all of them, as GPT-2's (BY_PART) and GPT-NeoX's
    /// (BY_HEAD). With fewer key heads than ranks, which is for separate weights alone, each is held by
    /// several ranks, and its gradients are summed by nxd_finish_grads.
    ///
    /// Forward: x [.., hidden_size], replicated, or with sequence_parallel a slice of dimension 0 ->
    /// up to three outputs: queries [.., heads of this rank, head_dim], keys and values
    /// [.., key heads of this rank, head_dim].
    /// @param num_heads  at least the least multiple of num_kv_heads that is no less than the group's
    /// size: each rank has a head. Ranks have nearly equal numbers of key heads with
    /// all their queries; with fewer key heads than ranks, nearly equal numbers of
    /// the queries of one.
    /// @return NXD_OK; INVALID_ARGUMENT (also key heads that ranks would share in a fused weight);
    /// INVALID_STATE (model parallel not initialised).
    /// @since 0.1
    pub fn nxd_layer_create_qkv_linear(ctx: *mut nxd_context_t, hidden_size: i64, num_heads: i64, options: *const nxd_qkv_options_t, out_module: *mut *mut nxd_module_t) -> nxd_status_t;

    /// [local] Fills options with defaults.
    /// @since 0.1
    pub fn nxd_mlp_options_init(options: *mut nxd_mlp_options_t, size: usize) -> nxd_status_t;

    /// [local] down_proj(activation(gate_proj(x)) * up_proj(x)), split over the tensor-parallel ranks
    /// (Shazeer 2020).
    ///
    /// Forward: x [..., hidden] -> [..., hidden].
    /// @since 0.1
    pub fn nxd_layer_create_gated_mlp(ctx: *mut nxd_context_t, hidden_size: i64, intermediate_size: i64, options: *const nxd_mlp_options_t, out_module: *mut *mut nxd_module_t) -> nxd_status_t;

    /// [local] Dropout whose bits depend on the seed, the layer's name, the global index of each
    /// element, the step and the microbatch, and on nothing else.
    ///
    /// Forward: x, any shape -> the same shape. In training, elements are zeroed with probability p and
    /// the others scaled by 1 / (1 - p); in evaluation x itself.
    /// @param name       canonical name of the site; sites with one name draw the same bits.
    /// nxd_module_initialize replaces it by the module's path.
    /// @param shard_dim  dimension of x that is split over the tensor-parallel ranks, so that each rank
    /// drops its own part of the whole; -1: x is replicated and dropped alike.
    /// @return NXD_OK; INVALID_ARGUMENT (p not in [0, 1)).
    /// @since 0.1
    pub fn nxd_layer_create_dropout(ctx: *mut nxd_context_t, p: f64, name: *const c_char, shard_dim: i32, out_module: *mut *mut nxd_module_t) -> nxd_status_t;

    /// [local] Heads that are to be added to num_heads for a multiple of tp_degree.
    /// @param[out] out_extra  0 where it is one already.
    /// @return NXD_OK; INVALID_ARGUMENT (num_heads or tp_degree below 1, or a sum beyond INT64_MAX).
    /// @since 0.1
    pub fn nxd_get_number_of_extra_heads(num_heads: i64, tp_degree: i32, out_extra: *mut i64) -> nxd_status_t;

    /// [collective: tensor-parallel group] Has the column- and row-parallel layers of a tree share
    /// whole heads, where the ranks do not divide num_heads: as if heads of zeros followed the last
    /// one, up to a multiple of tp_degree.
    ///
    /// The features that a layer splits grow by num_padded_heads / num_heads, and each rank has an
    /// equal part of them: with 3 heads of 4 features on two ranks, 8 features each, of which the last
    /// 4 are padding. So outputs of column-parallel layers that are split, and inputs of row-parallel
    /// ones, have features of num_padded_heads / tp whole heads on each rank; whole ones are as they
    /// were. Padding is zero, has no gradient, changes no output, and is in no file:
    /// nxd_parameter_get_global_shape and what is saved stay as they were, and any layout loads it.
    ///
    /// Parameters keep their handles, values, hooks and groups; their gradients are forgotten. Values
    /// move between ranks, one parameter at a time; a failure leaves all as they were. It comes before
    /// optimizers, ddps and pipelines are made. Calling it again with the same numbers changes nothing.
    ///
    /// Only layers below the caller's modules and below nxd_module_create_sequential are padded. Other
    /// modules of the library, such as attention, a gated MLP and built-in models, share heads and
    /// features that ranks do not divide by themselves, and are passed over.
    /// @param tp_degree  ranks that num_heads is to be padded for; the padded heads must divide by the
    /// ranks of this layout too.
    /// @param wrapped_classes  class names; only modules of these and what is below them are padded.
    /// NULL with num_wrapped_classes 0: all of the tree.
    /// @param hook       may be NULL. A status other than NXD_OK ends the call on all ranks before any
    /// parameter is padded.
    /// @return NXD_OK; INVALID_ARGUMENT (a layer whose features do not grow to a whole number or do not
    /// divide by the ranks; nothing to pad; a class that no module has; a parameter that is
    /// tied to one which is not padded; ranks that differ); UNSUPPORTED (a QKV layer, whose
    /// heads need no padding, among the layers to pad); INVALID_STATE (a ddp has a parameter;
    /// nxd_pp_create has cut the model; parameters are PARTIAL); TIMEOUT; PEER_LOST. All ranks
    /// fail alike.
    /// @since 0.1
    pub fn nxd_pad_model(root: *mut nxd_module_t, tp_degree: i32, num_heads: i64, wrapped_classes: *const *const c_char, num_wrapped_classes: usize, hook: nxd_pad_hook_fn, user_data: *mut c_void) -> nxd_status_t;
}
