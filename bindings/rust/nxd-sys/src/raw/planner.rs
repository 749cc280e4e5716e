//! Generated from nxd.h by scripts/bindings.

#[allow(unused_imports)]
use super::*;

/// Sizes of a decoder that predicts the next token, or of a BERT for pre-training.
/// nxd_plan_model_from_config fills it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_plan_model_t {
    pub struct_size: usize,
    pub hidden_size: i64,
    /// at most 1024
    pub num_layers: i64,
    pub num_heads: i64,
    /// 0: num_heads
    pub num_kv_heads: i64,
    /// 0: hidden_size / num_heads
    pub head_dim: i64,
    pub intermediate_size: i64,
    pub vocab_size: i64,
    /// rows of a table of positions that is learned; 0: there is none
    pub max_positions: i64,
    /// 1: three matrices, as Llama's; 0: two, as GPT-2's
    pub gated_mlp: i32,
    pub attention_bias: i32,
    pub mlp_bias: i32,
    /// 1: layers of that sort have biases; attention_bias 2: those of queries, keys and values alone, as Qwen2's
    pub norm_bias: i32,
    /// 1: the head's weight is the embedding's
    pub tied_embeddings: i32,
    /// rows of a BERT's table of token types; 0: a decoder
    pub num_token_types: i32,
    /// keys that a query sees at most; 0: all before it. Not of a BERT
    pub sliding_window: i64,
    /// layers that have the window; 0: all. They count as their mean
    pub num_window_layers: i64,
}

unsafe impl Versioned for nxd_plan_model_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_plan_model_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_plan_model_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Figures of a machine, per rank while all ranks work. Floating-point operations and bytes are per
/// second, latencies in seconds. The defaults are round figures of one core of a small host: they
/// serve to compare layouts, not to predict times.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_plan_machine_t {
    pub struct_size: usize,
    /// 0: all ranks are on one host
    pub ranks_per_host: i32,
    /// 0
    pub reserved: i32,
    /// of a rank, for what is predicted; 0: no bound
    pub memory_bytes: u64,
    /// of nxd_measure_gemm_peak; 0: 100e9
    pub gemm_rate_f32: f64,
    /// 0: 200e9
    pub gemm_rate_bf16: f64,
    /// of these, what attention's products reach; 0: 0.68
    pub attention_share_f32: f64,
    /// 0: 0.64
    pub attention_share_bf16: f64,
    /// read and written, of arrays that fit no cache; 0: 20e9
    pub memory_bandwidth: f64,
    /// received from ranks of the same host; 0: 20e9
    pub host_bandwidth: f64,
    /// 0: 1e-6
    pub host_latency: f64,
    /// of a host to all others, in one direction; 0: 1.25e9
    pub link_bandwidth: f64,
    /// 0: 50e-6
    pub link_latency: f64,
}

unsafe impl Versioned for nxd_plan_machine_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_plan_machine_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_plan_machine_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// How a model would be trained with AdamW.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_plan_layout_t {
    pub struct_size: usize,
    /// 0: 1
    pub tensor_parallel_size: i32,
    /// 0: 1
    pub pipeline_parallel_size: i32,
    /// 0: 1
    pub data_parallel_size: i32,
    /// chunks of each rank; 0: 1
    pub virtual_size: i32,
    /// not INFERENCE
    pub schedule: nxd_pp_schedule_kind_t,
    /// of each data-parallel rank; 0: 1
    pub num_microbatches: i32,
    /// sequences; 0: 1
    pub microbatch_size: i32,
    /// tokens; at least 1
    pub sequence_length: i32,
    /// of parameters: F32, or BF16 with F32 masters
    pub dtype: nxd_dtype_t,
    /// 0 or 1
    pub zero_stage: i32,
    /// 1: between layers each rank has a slice
    pub sequence_parallel: i32,
    /// 1: every layer keeps its input alone
    pub recompute: i32,
    /// DEFAULT: EVEN
    pub partition: nxd_pp_partition_t,
    /// 0
    pub reserved: i32,
}

unsafe impl Versioned for nxd_plan_layout_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_plan_layout_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_plan_layout_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

/// Estimated cost of a layout. Times are seconds of one step.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_plan_prediction_t {
    pub struct_size: usize,
    pub step_seconds: f64,
    /// of all ranks
    pub tokens_per_second: f64,
    /// of the ranks' GEMM peaks, by the operations of nxd_model_get_step_flops
    pub gemm_share: f64,
    /// of the pipeline, by nxd_pp_schedule_get_report
    pub bubble_share: f64,
    /// until the last rank has made its last task
    pub pipeline_seconds: f64,
    /// of the world; the first of those that are alike
    pub busiest_rank: i32,
    /// 1: total_bytes is at most the machine's memory_bytes
    pub fits: i32,
    pub gemm_seconds: f64,
    pub attention_seconds: f64,
    pub elementwise_seconds: f64,
    /// collectives of layers
    pub tensor_parallel_seconds: f64,
    /// one value or gradient to the next stage, the slowest
    pub transfer_seconds: f64,
    /// reduction of gradients and gathering of parameters
    pub data_parallel_seconds: f64,
    /// of these, those in which nothing else is done
    pub exposed_seconds: f64,
    pub optimizer_seconds: f64,
    pub fullest_rank: i32,
    pub reserved: i32,
    pub parameter_bytes: u64,
    pub grad_bytes: u64,
    pub optimizer_bytes: u64,
    pub activation_bytes: u64,
    /// received values, gradients of activations, workspaces, and what the memory pool holds beyond what is asked of it
    pub buffer_bytes: u64,
    pub total_bytes: u64,
}

unsafe impl Versioned for nxd_plan_prediction_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_plan_prediction_t {
    fn default() -> Self {
        zeroed::<Self>().with_size()
    }
}

/// Bounds of the layouts that nxd_plan_search looks for.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nxd_plan_search_options_t {
    pub struct_size: usize,
    /// 1 to 65536 ranks
    pub world_size: i32,
    /// tokens
    pub sequence_length: i32,
    /// sequences of a step, of all ranks together
    pub batch_size: i64,
    /// F32 or BF16
    pub dtype: nxd_dtype_t,
    /// 0: 4
    pub max_virtual_size: i32,
}

unsafe impl Versioned for nxd_plan_search_options_t {
    fn with_size(mut self) -> Self {
        self.struct_size = std::mem::size_of::<Self>();
        self
    }
}

impl Default for nxd_plan_search_options_t {
    fn default() -> Self {
        let mut value = zeroed::<Self>();
        // Cannot fail: neither NULL nor of another size.
        unsafe { nxd_plan_search_options_init(&mut value, std::mem::size_of::<Self>()) };
        value
    }
}

extern "C" {
    /// [local] Fills model with zeros. Only sizes that say so have defaults.
    /// @since 0.1
    pub fn nxd_plan_model_init(model: *mut nxd_plan_model_t, size: usize) -> nxd_status_t;

    /// [local] Reads the sizes of a Hugging Face configuration of a family that nxd_model_create
    /// knows.
    ///
    /// @param config_json  text of config.json.
    /// @param[in,out] out_model  struct_size set by the caller; the rest is filled.
    /// @return NXD_OK; INVALID_ARGUMENT (not JSON, a field missing or out of range); UNSUPPORTED
    /// (model_type).
    /// @since 0.1
    pub fn nxd_plan_model_from_config(config_json: *const c_char, out_model: *mut nxd_plan_model_t) -> nxd_status_t;

    /// [local] Fills machine with defaults.
    /// @since 0.1
    pub fn nxd_plan_machine_init(machine: *mut nxd_plan_machine_t, size: usize) -> nxd_status_t;

    /// [local] Fills layout with defaults.
    /// @since 0.1
    pub fn nxd_plan_layout_init(layout: *mut nxd_plan_layout_t, size: usize) -> nxd_status_t;

    /// [local] Predicts a layout, with the schedules that pipelines run and the rules by which they
    /// are cut. docs/planner.md says how, and how far off it is.
    ///
    /// @param machine  NULL: all defaults.
    /// @param[in,out] out_prediction  struct_size set by the caller; the rest is filled.
    /// @return NXD_OK; INVALID_ARGUMENT (a size that is missing or out of range, more ranks than a size
    /// has parts for).
    /// @since 0.1
    pub fn nxd_plan_predict(model: *const nxd_plan_model_t, machine: *const nxd_plan_machine_t, layout: *const nxd_plan_layout_t, out_prediction: *mut nxd_plan_prediction_t) -> nxd_status_t;

    /// [local] Fills options with defaults; sizes have none.
    /// @since 0.1
    pub fn nxd_plan_search_options_init(options: *mut nxd_plan_search_options_t, size: usize) -> nxd_status_t;

    /// [local] Finds the fastest layouts that fit, best first; of equally fast ones, those that need
    /// less memory come first. It tries all schedules and both kinds of partition, with and without
    /// ZeRO, sequence parallelism and recomputation.
    ///
    /// @param layouts  of length cap, at least 1, struct_size of each first set by the caller; or NULL.
    /// @param predictions  likewise.
    /// @param[out] out_count  how many were filled: at most cap.
    /// @return NXD_OK; INVALID_ARGUMENT (a size out of range; no layout suits the model; or none
    /// fits: the message gives the one that needs least).
    /// @since 0.1
    pub fn nxd_plan_search(model: *const nxd_plan_model_t, machine: *const nxd_plan_machine_t, options: *const nxd_plan_search_options_t, layouts: *mut nxd_plan_layout_t, predictions: *mut nxd_plan_prediction_t, cap: usize, out_count: *mut usize) -> nxd_status_t;
}
