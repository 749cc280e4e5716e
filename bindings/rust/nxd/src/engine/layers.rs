//! Layers: modules over the tensor-parallel group of the context, whose layout must be initialised.
use crate::context::Context;
use crate::element::DType;
use crate::engine::module::Module;
use crate::engine::parameter::dimension;
use crate::engine::tensor::Device;
use crate::error::{c_string, Result};
use crate::object::{create, get, Owned};
use nxd_sys as sys;
use std::ffi::CStr;
use std::ptr::null;
use sys::Versioned;

pub use crate::engine::parameter::Init;
pub use sys::nxd_activation_t as Activation;
pub use sys::nxd_qkv_fusion_t as QkvFusion;
pub use sys::nxd_rope_options_t as RopeOptions;
pub use sys::nxd_rope_t as Rope;
pub use sys::nxd_toggle_t as Toggle;

/// Options that have a name: the fields of the C struct, whose comments apply.
macro_rules! options {
    ($(#[$doc:meta])* $name:ident, $raw:ident { $($field:ident: $kind:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name<'a> {
            /// Canonical name of the layer for its initial weights.
            pub name: &'a str,
            $(pub $field: $kind,)*
        }

        impl Default for $name<'_> {
            fn default() -> Self {
                let raw = sys::$raw::default();
                $name { name: "", $($field: raw.$field,)* }
            }
        }

        impl $name<'_> {
            fn raw(&self, name: &CStr) -> sys::$raw {
                let mut raw = sys::$raw::default();
                raw.name = name.as_ptr();
                $(raw.$field = self.$field;)*
                raw.with_size()
            }
        }
    };
}

options! {
    /// Options of [`parallel_embedding`], see `nxd_embedding_options_t`.
    EmbeddingOptions, nxd_embedding_options_t {
        dtype: DType, device: Device, init: Init, has_padding_idx: i32, init_a: f64, init_b: f64,
        padding_idx: i64, shard_across_embedding: i32, sequence_parallel: i32, sequence_dim: i32,
    }
}

options! {
    /// Options of the linear layers, see `nxd_linear_options_t`.
    LinearOptions, nxd_linear_options_t {
        dtype: DType, device: Device, bias: Toggle, gather_output: Toggle, reduce_output: Toggle,
        input_is_parallel: i32, sequence_parallel: i32, sequence_dim: i32, skip_bias_add: i32,
        keep_master_weight: i32, stride: i32, init: Init, init_a: f64, init_b: f64, pad: i32,
    }
}

options! {
    /// Options of the norms, see `nxd_norm_options_t`.
    NormOptions, nxd_norm_options_t {
        dtype: DType, device: Device, eps: f64, affine: Toggle, bias: Toggle, sequence_parallel: i32,
    }
}

options! {
    /// Options of [`attention`], see `nxd_attention_options_t`.
    AttentionOptions, nxd_attention_options_t {
        dtype: DType, device: Device, num_kv_heads: i64, head_dim: i64, causal: Toggle,
        qkv_bias: Toggle, output_bias: Toggle, sequence_parallel: i32, init: Init, init_a: f64,
        init_b: f64,
    }
}

options! {
    /// Options of [`qkv_linear`], see `nxd_qkv_options_t`.
    QkvOptions, nxd_qkv_options_t {
        dtype: DType, device: Device, num_kv_heads: i64, head_dim: i64, fusion: QkvFusion,
        bias: Toggle, sequence_parallel: i32, init: Init, init_a: f64, init_b: f64,
    }
}

options! {
    /// Options of [`gated_mlp`], see `nxd_mlp_options_t`.
    MlpOptions, nxd_mlp_options_t {
        dtype: DType, device: Device, activation: Activation, bias: Toggle, sequence_parallel: i32,
        init: Init, init_a: f64, init_b: f64,
    }
}

/// Embedding table split over the tensor-parallel ranks.
pub fn parallel_embedding(
    ctx: &Context,
    num_embeddings: i64,
    embedding_dim: i64,
    options: &EmbeddingOptions<'_>,
) -> Result<Owned<Module>> {
    let name = c_string(options.name)?;
    let raw = options.raw(&name);
    create(|out| unsafe {
        sys::nxd_layer_create_parallel_embedding(
            ctx.as_raw(),
            num_embeddings,
            embedding_dim,
            &raw,
            out,
        )
    })
}

/// Linear layer whose output features are split over the tensor-parallel ranks.
pub fn column_parallel_linear(
    ctx: &Context,
    in_features: i64,
    out_features: i64,
    options: &LinearOptions<'_>,
) -> Result<Owned<Module>> {
    let name = c_string(options.name)?;
    let raw = options.raw(&name);
    create(|out| unsafe {
        sys::nxd_layer_create_column_parallel_linear(
            ctx.as_raw(),
            in_features,
            out_features,
            &raw,
            out,
        )
    })
}

/// Linear layer whose input features are split over the tensor-parallel ranks.
pub fn row_parallel_linear(
    ctx: &Context,
    in_features: i64,
    out_features: i64,
    options: &LinearOptions<'_>,
) -> Result<Owned<Module>> {
    let name = c_string(options.name)?;
    let raw = options.raw(&name);
    create(|out| unsafe {
        sys::nxd_layer_create_row_parallel_linear(
            ctx.as_raw(),
            in_features,
            out_features,
            &raw,
            out,
        )
    })
}

/// Linear layer that each rank has all of.
pub fn linear(
    ctx: &Context,
    in_features: i64,
    out_features: i64,
    options: &LinearOptions<'_>,
) -> Result<Owned<Module>> {
    let name = c_string(options.name)?;
    let raw = options.raw(&name);
    create(|out| unsafe {
        sys::nxd_layer_create_linear(ctx.as_raw(), in_features, out_features, &raw, out)
    })
}

/// Layer normalisation over the last dimension.
pub fn layer_norm(ctx: &Context, size: i64, options: &NormOptions<'_>) -> Result<Owned<Module>> {
    let name = c_string(options.name)?;
    let raw = options.raw(&name);
    create(|out| unsafe { sys::nxd_layer_create_layer_norm(ctx.as_raw(), size, &raw, out) })
}

/// Root-mean-square normalisation over the last dimension.
pub fn rms_norm(ctx: &Context, size: i64, options: &NormOptions<'_>) -> Result<Owned<Module>> {
    let name = c_string(options.name)?;
    let raw = options.raw(&name);
    create(|out| unsafe { sys::nxd_layer_create_rms_norm(ctx.as_raw(), size, &raw, out) })
}

/// Rotates query or key heads by their position.
pub fn rotary_embedding(
    ctx: &Context,
    head_dim: i64,
    options: &RopeOptions,
) -> Result<Owned<Module>> {
    let raw = options.with_size();
    create(|out| unsafe {
        sys::nxd_layer_create_rotary_embedding(ctx.as_raw(), head_dim, &raw, out)
    })
}

/// Self-attention with grouped key and value heads; `rope` `None`: no rotary embedding.
pub fn attention(
    ctx: &Context,
    hidden: i64,
    num_heads: i64,
    options: &AttentionOptions<'_>,
    rope: Option<&RopeOptions>,
) -> Result<Owned<Module>> {
    let name = c_string(options.name)?;
    let rope = rope.map(|rope| rope.with_size());
    let mut raw = options.raw(&name);
    raw.rope = rope.as_ref().map_or(null(), |rope| rope as *const _);
    create(|out| unsafe {
        sys::nxd_layer_create_attention(ctx.as_raw(), hidden, num_heads, &raw, out)
    })
}

/// Queries, keys and values for attention: three outputs of [`Module::forward_all`].
pub fn qkv_linear(
    ctx: &Context,
    hidden: i64,
    num_heads: i64,
    options: &QkvOptions<'_>,
) -> Result<Owned<Module>> {
    let name = c_string(options.name)?;
    let raw = options.raw(&name);
    create(|out| unsafe {
        sys::nxd_layer_create_qkv_linear(ctx.as_raw(), hidden, num_heads, &raw, out)
    })
}

/// down_proj(activation(gate_proj(x)) * up_proj(x)).
pub fn gated_mlp(
    ctx: &Context,
    hidden: i64,
    intermediate: i64,
    options: &MlpOptions<'_>,
) -> Result<Owned<Module>> {
    let name = c_string(options.name)?;
    let raw = options.raw(&name);
    create(|out| unsafe {
        sys::nxd_layer_create_gated_mlp(ctx.as_raw(), hidden, intermediate, &raw, out)
    })
}

/// Dropout whose bits are the same in every layout; `shard_dim`: dimension of the input that is
/// split over the tensor-parallel ranks.
pub fn dropout(
    ctx: &Context,
    p: f64,
    name: &str,
    shard_dim: Option<usize>,
) -> Result<Owned<Module>> {
    let name = c_string(name)?;
    let dim = shard_dim.map_or(-1, dimension);
    create(|out| unsafe { sys::nxd_layer_create_dropout(ctx.as_raw(), p, name.as_ptr(), dim, out) })
}

/// Heads that are to be added to `num_heads` for a multiple of `tp_degree`.
pub fn number_of_extra_heads(num_heads: i64, tp_degree: i32) -> Result<i64> {
    get(|out| unsafe { sys::nxd_get_number_of_extra_heads(num_heads, tp_degree, out) })
}
