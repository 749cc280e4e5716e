//! libnxd's linear layers as operations of candle, with gradients, and its optimizer over candle's
//! variables.
use candle_core::{
    backprop::GradStore, CpuStorage, CustomOp3, DType, Error, InplaceOp1, Layout, Result, Shape,
    Tensor, Var,
};
use nxd::layers::{self, ColumnLinearOptions, In, Out, RowLinearOptions};
use nxd::{Array, Axis, Context, Ddp, DdpOptions, FinishOptions, Optimizer, Placement};

/// Candle's operations must be free to move to other threads; without a pool of threads they run on
/// the one that calls, which is the context's.
#[derive(Clone, Copy)]
pub struct Shared(pub &'static Context);
unsafe impl Send for Shared {}
unsafe impl Sync for Shared {}

pub fn to_candle(error: nxd::Error) -> Error {
    Error::Msg(error.to_string())
}

/// Elements in C order, as the library reads them.
fn elements<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    let (start, end) = layout
        .contiguous_offsets()
        .ok_or_else(|| Error::Msg("expected a contiguous tensor; call contiguous()".into()))?;
    Ok(&storage.as_slice::<f32>()?[start..end])
}

fn sizes(shape: &Shape) -> Vec<i64> {
    shape.dims().iter().map(|&n| n as i64).collect()
}

#[derive(Clone, Copy)]
enum Kind {
    Column,
    Row,
}

/// y = x weight^T + bias, of weights that are split over tensor-parallel ranks.
struct Linear {
    ctx: Shared,
    kind: Kind,
}

impl Linear {
    /// The arguments of a call. The layer's peers are told where this rank cannot give them.
    fn agree<T>(&self, arguments: impl FnOnce() -> Result<T>) -> Result<T> {
        arguments().or_else(|error| {
            let group = self.ctx.0.parallel_group(Axis::TENSOR).map_err(to_candle)?;
            Err(to_candle(group.reject("", error.to_string())))
        })
    }

    fn backward(&self, x: &Tensor, w: &Tensor, dy: &Tensor) -> nxd::Result<[Vec<f32>; 3]> {
        let read = |t: &Tensor| t.flatten_all().and_then(|t| t.to_vec1::<f32>());
        let foreign = |e: Error| nxd::Error::new(nxd::Status::USER, e.to_string());
        let (xs, ws, dys) = self.agree(|| Ok((read(x)?, read(w)?, read(dy)?))).map_err(foreign)?;
        let (x_shape, w_shape, y_shape) = (sizes(x.shape()), sizes(w.shape()), sizes(dy.shape()));
        let bias_shape = [w_shape[0]];
        let mut dx = vec![0f32; xs.len()];
        let mut dw = vec![0f32; ws.len()];
        let mut db = vec![0f32; w_shape[0] as usize];
        let (x, w, dy) = (In::new(&xs, &x_shape), In::new(&ws, &w_shape), In::new(&dys, &y_shape));
        let outputs = (
            Some(&mut Out::new(&mut dx, &x_shape)),
            Some(&mut Out::new(&mut dw, &w_shape)),
            Some(&mut Out::new(&mut db, &bias_shape)),
        );
        let (ctx, (dx_out, dw_out, db_out)) = (self.ctx.0, outputs);
        match self.kind {
            Kind::Column => {
                let o = ColumnLinearOptions::default();
                layers::column_linear_backward(ctx, &x, &w, &dy, &o, dx_out, dw_out, db_out)?
            }
            Kind::Row => {
                let o = RowLinearOptions::default();
                layers::row_linear_backward(ctx, &x, &w, &dy, &o, dx_out, dw_out, db_out)?
            }
        }
        Ok([dx, dw, db])
    }
}

impl CustomOp3 for Linear {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Column => "column-linear",
            Kind::Row => "row-linear",
        }
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        w: &CpuStorage,
        w_layout: &Layout,
        bias: &CpuStorage,
        bias_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (x_shape, w_shape) = (sizes(x_layout.shape()), sizes(w_layout.shape()));
        let (rows, width) = (x_layout.dims()[0], w_layout.dims()[0]);
        let bias_shape = [width as i64];
        let y_shape = [rows as i64, width as i64];
        let mut y = vec![0f32; rows * width];
        let (x, w, bias) = self.agree(|| {
            Ok((elements(x, x_layout)?, elements(w, w_layout)?, elements(bias, bias_layout)?))
        })?;
        let (x, w, bias) = (In::new(x, &x_shape), In::new(w, &w_shape), In::new(bias, &bias_shape));
        let mut out = Out::new(&mut y, &y_shape);
        match self.kind {
            Kind::Column => {
                let o = ColumnLinearOptions::default();
                layers::column_linear_forward(self.ctx.0, &x, &w, Some(&bias), &o, &mut out)
            }
            Kind::Row => {
                let o = RowLinearOptions::default();
                layers::row_linear_forward(self.ctx.0, &x, &w, Some(&bias), &o, &mut out)
            }
        }
        .map_err(to_candle)?;
        Ok((CpuStorage::F32(y), (rows, width).into()))
    }

    fn bwd(
        &self,
        x: &Tensor,
        w: &Tensor,
        bias: &Tensor,
        _: &Tensor,
        dy: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let [dx, dw, db] = self.backward(x, w, dy).map_err(to_candle)?;
        let tensor = |values, like: &Tensor| Tensor::from_vec(values, like.shape(), like.device());
        Ok((Some(tensor(dx, x)?), Some(tensor(dw, w)?), Some(tensor(db, bias)?)))
    }
}

/// Every rank has x, and gets its own features of y; the gradient of x is summed over ranks.
pub fn column_linear(ctx: Shared, x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    x.apply_op3(weight, bias, Linear { ctx, kind: Kind::Column })
}

/// Every rank has its own features of x; y is the sum over ranks.
pub fn row_linear(ctx: Shared, x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    x.apply_op3(weight, bias, Linear { ctx, kind: Kind::Row })
}

/// Where the elements of a tensor are. Candle keeps them there until the last tensor of the storage
/// is dropped, or `Var::set` puts others in their place.
struct Address(std::cell::Cell<*mut f32>);
impl InplaceOp1 for Address {
    fn name(&self) -> &'static str {
        "address"
    }
    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let (start, _) = layout
            .contiguous_offsets()
            .ok_or_else(|| Error::Msg("expected a contiguous tensor".into()))?;
        match storage {
            CpuStorage::F32(values) => self.0.set(unsafe { values.as_mut_ptr().add(start) }),
            _ => return Err(Error::Msg("expected f32".into())),
        }
        Ok(())
    }
}

fn address(tensor: &Tensor) -> Result<*mut f32> {
    let found = Address(std::cell::Cell::new(std::ptr::null_mut()));
    tensor.inplace_op1(&found)?;
    Ok(found.0.get())
}

/// AdamW whose state is divided over the data-parallel ranks. It updates candle's variables in place.
pub struct AdamW {
    // Dropped in this order: the library uses the memory of the last two.
    pub optimizer: Optimizer,
    ddp: Ddp,
    gradients: Vec<Tensor>,
    params: Vec<Var>,
}

impl AdamW {
    pub fn new(
        ctx: Shared,
        params: &[Var],
        placements: &[Placement],
        options: &nxd::AdamwOptions,
    ) -> Result<AdamW> {
        let mut arrays = Vec::new();
        let mut gradients = Vec::new();
        for (i, p) in params.iter().enumerate() {
            let gradient = Tensor::zeros(p.shape(), DType::F32, p.device())?;
            let (values, memory) = (address(p)?, address(&gradient)?);
            let array = unsafe {
                Array::over_memory(&format!("p{}", i), &sizes(p.shape()), values, memory)
            };
            arrays.push(array.map_err(to_candle)?);
            gradients.push(gradient);
        }
        let ddp_options = DdpOptions { zero_stage: 1, ..Default::default() };
        let ddp = Ddp::over_arrays(ctx.0, None, arrays, &ddp_options).map_err(to_candle)?;
        ddp.set_placements(placements).map_err(to_candle)?;
        let optimizer = Optimizer::adamw(&ddp, options).map_err(to_candle)?;
        Ok(AdamW { optimizer, ddp, gradients, params: params.to_vec() })
    }

    fn bind(&mut self, gradients: &GradStore) -> Result<()> {
        for (i, p) in self.params.iter().enumerate() {
            let gradient = gradients
                .get(p)
                .ok_or_else(|| Error::Msg(format!("parameter {} has no gradient", i)))?
                .contiguous()?;
            let memory = Some(address(&gradient)?);
            unsafe { self.ddp.rebind::<f32, f32>(i, None, memory) }.map_err(to_candle)?;
            self.gradients[i] = gradient; // until the next step
        }
        Ok(())
    }

    /// Reduces the gradients where they are and updates the variables; gives the gradients' norm.
    /// Where one rank has no gradient of a parameter, the step fails on all.
    pub fn step(&mut self, gradients: &GradStore) -> Result<f64> {
        if let Err(error) = self.bind(gradients) {
            // The peers are in the step, or come to it. One with a factor that no rank takes fails on
            // all of them; it uses the gradients that were bound last.
            let none = FinishOptions { scale: f64::NAN, ..Default::default() };
            drop(self.optimizer.step(&none));
            return Err(error);
        }
        let report = self.optimizer.step(&FinishOptions::default()).map_err(to_candle)?;
        Ok(report.norm)
    }
}
