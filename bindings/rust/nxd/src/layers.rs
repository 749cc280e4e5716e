//! Layers over arrays of the program's own, forward and backward, without libtorch: slices or any
//! memory with strides ([`In`], [`Out`]). With the feature `engine` also the layers of models.
//!
//! Calls are collective over the tensor-parallel group. A rank whose arguments are bad makes the
//! call fail on all ranks.
use crate::context::Context;
use crate::element::{count, dlpack, reach, Element};
use crate::error::{c_path, c_string, check, invalid, Error, Result};
use crate::parallel::Axis;
use nxd_sys as sys;
use std::marker::PhantomData;
use std::os::raw::c_void;
use std::path::Path;
use std::ptr::null_mut;
use sys::Versioned;

mod linear;
pub use linear::{ColumnLinear, RowLinear};

#[cfg(feature = "engine")]
pub use crate::engine::layers::*;
#[cfg(not(feature = "engine"))]
pub use sys::nxd_init_t as Init;

pub use sys::nxd_column_linear_options_t as ColumnLinearOptions;
pub use sys::nxd_dropout_options_t as DropoutOptions;
pub use sys::nxd_linear_cross_entropy_options_t as LinearCrossEntropyOptions;
pub use sys::nxd_normalization_options_t as NormalizationOptions;
pub use sys::nxd_parallel_cross_entropy_options_t as ParallelCrossEntropyOptions;
pub use sys::nxd_reduction_t as Reduction;
pub use sys::nxd_region_mapping_t as RegionMapping;
pub use sys::nxd_row_linear_options_t as RowLinearOptions;
pub use sys::nxd_shard_options_t as ShardOptions;
pub use sys::nxd_smoothing_t as Smoothing;
pub use sys::nxd_vocab_parallel_embedding_options_t as VocabEmbeddingOptions;

/// An array that a call reads: borrowed memory, its sizes, and how far elements are apart.
#[derive(Clone)]
pub struct In<'a> {
    array: Described,
    borrowed: PhantomData<&'a ()>,
}

/// An array that a call writes, or adds to.
pub struct Out<'a> {
    array: Described,
    borrowed: PhantomData<&'a mut ()>,
}

/// The description of an array for DLPack. A problem with it is told in the call that it is for, so that the
/// other ranks hear of it.
#[derive(Clone)]
struct Described {
    data: *mut c_void,
    dtype: sys::nxd_dtype_t,
    shape: Vec<i64>,
    strides: Option<Vec<i64>>,
    problem: Option<String>,
}

impl Described {
    fn dense(data: *mut c_void, len: usize, dtype: sys::nxd_dtype_t, shape: &[i64]) -> Described {
        let problem = match count(shape) {
            Ok(wanted) if wanted == len => None,
            Ok(wanted) => {
                Some(format!("expected {} elements for the shape {:?}, got {}", wanted, shape, len))
            }
            Err(error) => Some(error.message().to_string()),
        };
        Described { data, dtype, shape: shape.to_vec(), strides: None, problem }
    }

    fn strided(
        data: *mut c_void,
        len: usize,
        dtype: sys::nxd_dtype_t,
        shape: &[i64],
        strides: &[i64],
    ) -> Described {
        // An array without elements has no last one.
        let empty = shape.contains(&0) && shape.len() == strides.len();
        let problem = reach(shape, strides).and_then(|last| {
            if last < len {
                return Ok(());
            }
            invalid(format!(
                "expected more than {} elements for the shape {:?} with strides {:?}, got {}",
                last, shape, strides, len
            ))
        });
        Described {
            data,
            dtype,
            shape: shape.to_vec(),
            strides: Some(strides.to_vec()),
            problem: problem.err().filter(|_| !empty).map(|e| e.message().to_string()),
        }
    }

    fn tensor(&self) -> sys::DLTensor {
        let mut tensor = dlpack(self.data, &self.shape, self.dtype);
        if let Some(strides) = &self.strides {
            tensor.strides = strides.as_ptr() as *mut i64;
        }
        tensor
    }
}

impl<'a> In<'a> {
    /// A slice in C order.
    pub fn new<T: Element>(values: &'a [T], shape: &[i64]) -> In<'a> {
        let data = values.as_ptr() as *mut c_void;
        let array = Described::dense(data, values.len(), T::DTYPE, shape);
        In { array, borrowed: PhantomData }
    }

    /// A slice whose element `(i, j, ...)` is that of the index `i * strides[0] + j * strides[1] ...`.
    pub fn strided<T: Element>(values: &'a [T], shape: &[i64], strides: &[i64]) -> In<'a> {
        let data = values.as_ptr() as *mut c_void;
        let array = Described::strided(data, values.len(), T::DTYPE, shape, strides);
        In { array, borrowed: PhantomData }
    }
}

impl<'a> Out<'a> {
    /// A slice in C order.
    pub fn new<T: Element>(values: &'a mut [T], shape: &[i64]) -> Out<'a> {
        let data = values.as_mut_ptr().cast();
        let array = Described::dense(data, values.len(), T::DTYPE, shape);
        Out { array, borrowed: PhantomData }
    }

    /// See [`In::strided`].
    pub fn strided<T: Element>(values: &'a mut [T], shape: &[i64], strides: &[i64]) -> Out<'a> {
        let data = values.as_mut_ptr().cast();
        let array = Described::strided(data, values.len(), T::DTYPE, shape, strides);
        Out { array, borrowed: PhantomData }
    }
}

/// The arrays of a call, as the library takes them; null for one that is left out.
struct Tensors {
    tensors: Vec<Option<sys::DLTensor>>,
    problem: Option<String>,
}

impl Tensors {
    fn of(arrays: &[(&str, Option<&Described>)]) -> Tensors {
        let problem = arrays.iter().find_map(|(name, array)| {
            array.and_then(|a| a.problem.as_ref().map(|why| format!("{}: {}", name, why)))
        });
        let tensors = arrays.iter().map(|(_, array)| array.map(Described::tensor)).collect();
        Tensors { tensors, problem }
    }

    fn get(&mut self, index: usize) -> *mut sys::DLTensor {
        self.tensors[index].as_mut().map_or(null_mut(), |tensor| tensor as *mut _)
    }

    /// The error of this rank, which its peers are told of.
    fn agree(&self, ctx: &Context) -> Result<()> {
        match &self.problem {
            None => Ok(()),
            Some(why) => Err(reject(ctx, why.clone())),
        }
    }

    /// The same of a call that no other rank makes.
    fn check(&self) -> Result<()> {
        self.problem.clone().map_or(Ok(()), invalid)
    }
}

fn reject(ctx: &Context, why: String) -> Error {
    match ctx.parallel_group(Axis::TENSOR) {
        Ok(group) => group.reject("", why),
        Err(error) => error,
    }
}

/// Functions of one form: arrays that are read, options, arrays that are written. The library takes
/// memory of its own for them: a workspace of the caller's is for the raw layer.
macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident, $raw:ident, $options:ident, $(name: $layer:ident,)?
        [$($input:ident: $kind:ident),*] -> [$($output:ident: $out_kind:ident),*];)*) => {$(
        $(#[$doc])*
        pub fn $name(
            ctx: &Context,
            $($layer: &str,)?
            $($input: calls!(@in $kind),)*
            options: &$options,
            $($output: calls!(@out $out_kind),)*
        ) -> Result<()> {
            let arrays = [
                $((stringify!($input), calls!(@array $kind $input)),)*
                $((stringify!($output), calls!(@array $out_kind $output)),)*
            ];
            let mut tensors = Tensors::of(&arrays);
            tensors.agree(ctx)?;
            $(let $layer = c_string($layer).map_err(|e| reject(ctx, e.message().to_string()))?;)?
            let mut options = options.with_size();
            options.workspace = null_mut();
            options.workspace_bytes = 0;
            let mut next = 0..;
            $(let $input = tensors.get(next.next().unwrap());)*
            $(let $output = tensors.get(next.next().unwrap());)*
            check(unsafe {
                sys::$raw(
                    ctx.as_raw(), $($layer.as_ptr(),)? $($input,)* &options, $($output,)*
                )
            })
        }
    )*};
    (@in one) => { &In };
    (@in maybe) => { Option<&In> };
    (@out one) => { &mut Out };
    (@out maybe) => { Option<&mut Out> };
    (@array one $array:ident) => { Some(&$array.array) };
    (@array maybe $array:ident) => { $array.as_ref().map(|a| &a.array) };
}

calls! {
    /// `y = x weight^T + bias`, of this rank's output features.
    column_linear_forward, nxd_column_linear_forward, ColumnLinearOptions,
        [x: one, weight: one, bias: maybe] -> [y: one];
    /// Gradients of [`column_linear_forward`]; that of `x` is summed over ranks.
    column_linear_backward, nxd_column_linear_backward, ColumnLinearOptions,
        [x: one, weight: one, grad_y: one] ->
        [grad_x: maybe, grad_weight: maybe, grad_bias: maybe];
    /// `y = x weight^T + bias`, of this rank's input features, summed over ranks.
    row_linear_forward, nxd_row_linear_forward, RowLinearOptions,
        [x: one, weight: one, bias: maybe] -> [y: one];
    /// Gradients of [`row_linear_forward`].
    row_linear_backward, nxd_row_linear_backward, RowLinearOptions,
        [x: one, weight: one, grad_y: one] ->
        [grad_x: maybe, grad_weight: maybe, grad_bias: maybe];
    /// Rows of a table by their ids; each rank has some of the rows.
    vocab_parallel_embedding_forward, nxd_vocab_parallel_embedding_forward, VocabEmbeddingOptions, [ids: one, weight: one] -> [y: one];
    /// Gradient of [`vocab_parallel_embedding_forward`].
    vocab_parallel_embedding_backward, nxd_vocab_parallel_embedding_backward, VocabEmbeddingOptions, [ids: one, grad_y: one] -> [grad_weight: one];
    /// The loss of logits whose vocabulary is split over ranks.
    parallel_cross_entropy_forward, nxd_parallel_cross_entropy_forward, ParallelCrossEntropyOptions, [logits: one, labels: one] -> [statistics: maybe, loss: one];
    /// Gradient of [`parallel_cross_entropy_forward`].
    parallel_cross_entropy_backward, nxd_parallel_cross_entropy_backward, ParallelCrossEntropyOptions,
        [logits: one, labels: one, statistics: one, grad_loss: maybe] -> [grad_logits: one];
    /// Root-mean-square norm over the last dimension.
    rms_norm_forward, nxd_rms_norm_forward, NormalizationOptions,
        [x: one, weight: maybe] -> [y: one, statistics: maybe];
    /// Gradients of [`rms_norm_forward`].
    rms_norm_backward, nxd_rms_norm_backward, NormalizationOptions,
        [x: one, weight: maybe, statistics: one, grad_y: one] ->
        [grad_x: maybe, grad_weight: maybe];
    /// Layer norm over the last dimension.
    layer_norm_forward, nxd_layer_norm_forward, NormalizationOptions,
        [x: one, weight: maybe, bias: maybe] -> [y: one, statistics: maybe];
    /// Gradients of [`layer_norm_forward`].
    layer_norm_backward, nxd_layer_norm_backward, NormalizationOptions,
        [x: one, weight: maybe, statistics: one, grad_y: one] ->
        [grad_x: maybe, grad_weight: maybe, grad_bias: maybe];
    /// Dropout whose bits no number of ranks changes.
    dropout_forward, nxd_dropout_forward, DropoutOptions, name: name, [x: one] -> [y: one];
    /// Gradient of [`dropout_forward`], by the same bits.
    dropout_backward, nxd_dropout_backward, DropoutOptions, name: name,
        [grad_y: one] -> [grad_x: one];
    /// The loss of the logits `x weight^T + bias`, which are never whole.
    linear_cross_entropy_forward, nxd_linear_cross_entropy_forward, LinearCrossEntropyOptions, [x: one, weight: one, bias: maybe, labels: one] ->
        [statistics: maybe, loss: one];
    /// Gradients of [`linear_cross_entropy_forward`].
    linear_cross_entropy_backward, nxd_linear_cross_entropy_backward, LinearCrossEntropyOptions,
        [x: one, weight: one, bias: maybe, labels: one, statistics: one, grad_loss: maybe] ->
        [grad_x: maybe, grad_weight: maybe, grad_bias: maybe];
}

/// Lists that have one array per weight; those that may be left out may also be empty.
fn check_lengths(ctx: &Context, count: usize, lists: &[(&str, usize, bool)]) -> Result<()> {
    for &(name, len, optional) in lists {
        if len != count && !(optional && len == 0) {
            let why = format!("{}: expected one for each of {} weights, got {}", name, count, len);
            return Err(reject(ctx, why));
        }
    }
    Ok(())
}

/// `count` of the pointers from an index on; null for a list that was left out.
fn list_at(
    pointers: &[*mut sys::DLTensor],
    from: usize,
    count: usize,
) -> *const *mut sys::DLTensor {
    if count == 0 {
        return std::ptr::null();
    }
    pointers[from..from + count].as_ptr()
}

/// [`column_linear_forward`] of one `x` by several weights, such as those of query, key and value:
/// under sequence parallelism `x` is gathered once. `biases` may be empty.
pub fn column_linears_forward(
    ctx: &Context,
    x: &In,
    weights: &[In],
    biases: &[Option<In>],
    options: &ColumnLinearOptions,
    ys: &mut [Out],
) -> Result<()> {
    let n = weights.len();
    check_lengths(ctx, n, &[("biases", biases.len(), true), ("ys", ys.len(), false)])?;
    let mut arrays = vec![("x", Some(&x.array))];
    arrays.extend(weights.iter().map(|w| ("weights", Some(&w.array))));
    arrays.extend(biases.iter().map(|b| ("biases", b.as_ref().map(|b| &b.array))));
    arrays.extend(ys.iter().map(|y| ("ys", Some(&y.array))));
    let mut tensors = Tensors::of(&arrays);
    tensors.agree(ctx)?;
    let all: Vec<_> = (0..arrays.len()).map(|i| tensors.get(i)).collect();
    let mut options = options.with_size();
    options.workspace = null_mut();
    options.workspace_bytes = 0;
    let (weights, biases) = (list_at(&all, 1, n), list_at(&all, 1 + n, biases.len()));
    let outputs = list_at(&all, all.len() - n, n);
    check(unsafe {
        sys::nxd_column_linears_forward(
            ctx.as_raw(),
            all[0],
            weights.cast(),
            biases.cast(),
            n,
            &options,
            outputs,
        )
    })
}

/// Gradients of [`column_linears_forward`]; that of `x` is one sum over weights and ranks.
/// `grad_weights` and `grad_biases` may be empty.
#[allow(clippy::too_many_arguments)]
pub fn column_linears_backward(
    ctx: &Context,
    x: &In,
    weights: &[In],
    grad_ys: &[In],
    options: &ColumnLinearOptions,
    grad_x: Option<&mut Out>,
    grad_weights: &mut [Option<Out>],
    grad_biases: &mut [Option<Out>],
) -> Result<()> {
    let n = weights.len();
    let (some_weights, some_biases) = (grad_weights.len(), grad_biases.len());
    let lengths = [
        ("grad_ys", grad_ys.len(), false),
        ("grad_weights", some_weights, true),
        ("grad_biases", some_biases, true),
    ];
    check_lengths(ctx, n, &lengths)?;
    let mut arrays = vec![("x", Some(&x.array)), ("grad_x", grad_x.map(|a| &a.array))];
    arrays.extend(weights.iter().map(|w| ("weights", Some(&w.array))));
    arrays.extend(grad_ys.iter().map(|y| ("grad_ys", Some(&y.array))));
    arrays.extend(grad_weights.iter().map(|w| ("grad_weights", w.as_ref().map(|w| &w.array))));
    arrays.extend(grad_biases.iter().map(|b| ("grad_biases", b.as_ref().map(|b| &b.array))));
    let mut tensors = Tensors::of(&arrays);
    tensors.agree(ctx)?;
    let all: Vec<_> = (0..arrays.len()).map(|i| tensors.get(i)).collect();
    let mut options = options.with_size();
    options.workspace = null_mut();
    options.workspace_bytes = 0;
    let (weights, grad_ys) = (list_at(&all, 2, n), list_at(&all, 2 + n, n));
    let grad_weights = list_at(&all, 2 + 2 * n, some_weights);
    let grad_biases = list_at(&all, 2 + 2 * n + some_weights, some_biases);
    check(unsafe {
        sys::nxd_column_linears_backward(
            ctx.as_raw(),
            all[0],
            weights.cast(),
            grad_ys.cast(),
            n,
            &options,
            all[1],
            grad_weights,
            grad_biases,
        )
    })
}

/// Moves `x` into or out of a region.
pub fn region_mapping_forward(
    ctx: &Context,
    mapping: RegionMapping,
    dim: i32,
    x: &In,
    y: &mut Out,
) -> Result<()> {
    let mut tensors = Tensors::of(&[("x", Some(&x.array)), ("y", Some(&y.array))]);
    tensors.agree(ctx)?;
    let (x, y) = (tensors.get(0), tensors.get(1));
    check(unsafe { sys::nxd_region_mapping_forward(ctx.as_raw(), mapping, dim, x, y) })
}

/// Gradient of [`region_mapping_forward`].
pub fn region_mapping_backward(
    ctx: &Context,
    mapping: RegionMapping,
    dim: i32,
    grad_y: &In,
    grad_x: &mut Out,
) -> Result<()> {
    let arrays = [("grad_y", Some(&grad_y.array)), ("grad_x", Some(&grad_x.array))];
    let mut tensors = Tensors::of(&arrays);
    tensors.agree(ctx)?;
    let (dy, dx) = (tensors.get(0), tensors.get(1));
    check(unsafe { sys::nxd_region_mapping_backward(ctx.as_raw(), mapping, dim, dy, dx) })
}

/// Fills a shard with the initial values that the undivided weight of that name has. Local.
pub fn shard_initialize(
    ctx: &Context,
    name: &str,
    init: Init,
    a: f64,
    b: f64,
    options: &ShardOptions,
    shard: &mut Out,
) -> Result<()> {
    let mut tensors = Tensors::of(&[("shard", Some(&shard.array))]);
    tensors.check()?;
    let (name, options) = (c_string(name)?, options.with_size());
    let (raw, shard) = (ctx.as_raw(), tensors.get(0));
    check(unsafe { sys::nxd_shard_initialize(raw, name.as_ptr(), init, a, b, &options, shard) })
}

/// Copies this rank's part of a whole weight. Local.
pub fn shard_set_full(
    ctx: &Context,
    full: &In,
    options: &ShardOptions,
    shard: &mut Out,
) -> Result<()> {
    let mut tensors = Tensors::of(&[("full", Some(&full.array)), ("shard", Some(&shard.array))]);
    tensors.check()?;
    let options = options.with_size();
    let (full, shard) = (tensors.get(0), tensors.get(1));
    check(unsafe { sys::nxd_shard_set_full(ctx.as_raw(), full, &options, shard) })
}

/// Puts a whole weight together on every rank.
pub fn shard_gather_full(
    ctx: &Context,
    shard: &In,
    options: &ShardOptions,
    full: &mut Out,
) -> Result<()> {
    let mut tensors = Tensors::of(&[("shard", Some(&shard.array)), ("full", Some(&full.array))]);
    tensors.agree(ctx)?;
    let options = options.with_size();
    let (shard, full) = (tensors.get(0), tensors.get(1));
    check(unsafe { sys::nxd_shard_gather_full(ctx.as_raw(), shard, &options, full) })
}

/// Reads this rank's part of a tensor, and no other bytes of it. Local.
pub fn shard_load_safetensors(
    ctx: &Context,
    path: impl AsRef<Path>,
    name: &str,
    options: &ShardOptions,
    shard: &mut Out,
) -> Result<()> {
    let mut tensors = Tensors::of(&[("shard", Some(&shard.array))]);
    tensors.check()?;
    let path = c_path(path)?;
    let (name, options) = (c_string(name)?, options.with_size());
    let (raw, shard) = (ctx.as_raw(), tensors.get(0));
    check(unsafe {
        sys::nxd_shard_load_safetensors(raw, path.as_ptr(), name.as_ptr(), &options, shard)
    })
}
