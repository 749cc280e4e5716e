//! Linear layers that own this rank's weights and gradients, as vectors.
use super::*;
use crate::arrays::Float;

macro_rules! linear {
    ($(#[$doc:meta])* $name:ident, $options:ident, $forward:ident, $backward:ident,
        split: $split:expr) => {
        $(#[$doc])*
        pub struct $name<T> {
            /// Sizes of this rank's weight.
            pub out_features: usize,
            pub in_features: usize,
            /// `[out_features, in_features]`, in C order.
            pub weight: Vec<T>,
            pub bias: Option<Vec<T>>,
            pub grad_weight: Vec<T>,
            pub grad_bias: Option<Vec<T>>,
            /// Options of both passes; `accumulate_grads` adds to the gradients that are there.
            pub options: $options,
        }

        impl<T: Float> $name<T> {
            /// A layer of these features on all ranks together. The weight starts as the part of the
            /// undivided one of that name, from a normal distribution; the bias as zeros. Local.
            pub fn new(
                ctx: &Context,
                name: &str,
                in_features: usize,
                out_features: usize,
                deviation: f64,
                bias: bool,
            ) -> Result<$name<T>> {
                let ranks = ctx.parallel_size(Axis::TENSOR)? as usize;
                let mut sizes = [out_features, in_features];
                if sizes[$split] % ranks != 0 {
                    return invalid(format!(
                        "{}: expected a number of features that {} ranks divide, got {}",
                        name, ranks, sizes[$split]
                    ));
                }
                sizes[$split] /= ranks;
                let [out_features, in_features] = sizes;
                let mut weight = vec![T::default(); out_features * in_features];
                let part = ShardOptions { has_dim: 1, dim: $split as i32, ..Default::default() };
                let shape = [out_features as i64, in_features as i64];
                let mut shard = Out::new(&mut weight, &shape);
                let init = sys::nxd_init_t::NORMAL;
                let full_name = format!("{}.weight", name);
                shard_initialize(ctx, &full_name, init, 0.0, deviation, &part, &mut shard)?;
                let bias = if bias { Some(vec![T::default(); out_features]) } else { None };
                Ok($name {
                    out_features,
                    in_features,
                    grad_weight: vec![T::default(); weight.len()],
                    grad_bias: bias.clone(),
                    weight,
                    bias,
                    options: $options::default(),
                })
            }

            fn shape(&self) -> [i64; 2] {
                [self.out_features as i64, self.in_features as i64]
            }

            /// `x` is `[rows, in_features]` in C order; gives `[rows, out_features]`. Options that
            /// change these sizes are for the functions of the module above. Collective: the
            /// tensor-parallel group.
            pub fn forward(&self, ctx: &Context, x: &[T]) -> Result<Vec<T>> {
                let rows = x.len() / self.in_features.max(1);
                let mut y = vec![T::default(); rows * self.out_features];
                let bias_shape = [self.out_features as i64];
                let bias = self.bias.as_ref().map(|bias| In::new(bias, &bias_shape));
                $forward(
                    ctx,
                    &In::new(x, &[rows as i64, self.in_features as i64]),
                    &In::new(&self.weight, &self.shape()),
                    bias.as_ref(),
                    &self.options,
                    &mut Out::new(&mut y, &[rows as i64, self.out_features as i64]),
                )?;
                Ok(y)
            }

            /// The gradient of `x`; those of weight and bias go to the layer's own. Collective: the
            /// tensor-parallel group.
            pub fn backward(&mut self, ctx: &Context, x: &[T], grad_y: &[T]) -> Result<Vec<T>> {
                let rows = (x.len() / self.in_features.max(1)) as i64;
                let mut grad_x = vec![T::default(); x.len()];
                let (shape, bias_shape) = (self.shape(), [self.out_features as i64]);
                let mut grad_bias =
                    self.grad_bias.as_mut().map(|grad| Out::new(grad, &bias_shape));
                $backward(
                    ctx,
                    &In::new(x, &[rows, shape[1]]),
                    &In::new(&self.weight, &shape),
                    &In::new(grad_y, &[rows, shape[0]]),
                    &self.options,
                    Some(&mut Out::new(&mut grad_x, &[rows, shape[1]])),
                    Some(&mut Out::new(&mut self.grad_weight, &shape)),
                    grad_bias.as_mut(),
                )?;
                Ok(grad_x)
            }
        }
    };
}

linear! {
    /// A linear layer whose output features are split over ranks.
    ColumnLinear, ColumnLinearOptions, column_linear_forward, column_linear_backward,
    split: 0
}

linear! {
    /// A linear layer whose input features are split over ranks. Its output is the sum over them.
    RowLinear, RowLinearOptions, row_linear_forward, row_linear_backward,
    split: 1
}
