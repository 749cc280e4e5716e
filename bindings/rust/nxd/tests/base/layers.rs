use crate::common::on_ranks;
use nxd::layers::*;
use nxd::{
    Array, Bf16, Context, Ddp, DdpOptions, FinishOptions, ParallelOptions, Result, ShardedParameter,
    Status,
};

const ROWS: usize = 5;

fn tensor_parallel(ctx: &Context) -> Result<(usize, usize)> {
    let size = ctx.size()?;
    ctx.init_model_parallel(&ParallelOptions { tensor_parallel_size: size, ..Default::default() })?;
    Ok((ctx.rank()? as usize, size as usize))
}

fn numbers(count: usize, phase: f64) -> Vec<f64> {
    (0..count).map(|i| (i as f64 + phase).sin()).collect()
}

/// `a [n, k]` by `b [m, k]`, transposed.
fn product(a: &[f64], b: &[f64], k: usize) -> Vec<f64> {
    a.chunks(k)
        .flat_map(|row| b.chunks(k).map(move |col| row.iter().zip(col).map(|(x, y)| x * y).sum()))
        .collect()
}

fn near(a: &[f64], b: &[f64]) {
    assert_eq!(a.len(), b.len());
    for (x, y) in a.iter().zip(b) {
        assert!((x - y).abs() < 1e-12 * (1.0 + y.abs()), "{} is not {}", x, y);
    }
}

/// The results of one rank are those of two.
#[test]
fn an_mlp_of_slices() {
    let run = |ranks: i32| {
        on_ranks(ranks, |ctx| {
            tensor_parallel(&ctx)?;
            let mut up = ColumnLinear::<f64>::new(&ctx, "up", 6, 8, 0.5, true)?;
            let mut down = RowLinear::<f64>::new(&ctx, "down", 8, 4, 0.5, true)?;
            down.bias.as_mut().unwrap().fill(0.25);
            let x = numbers(ROWS * 6, 0.0);
            let hidden = up.forward(&ctx, &x)?;
            let y = down.forward(&ctx, &hidden)?;
            let grad_hidden = down.backward(&ctx, &hidden, &numbers(ROWS * 4, 1.0))?;
            let grad_x = up.backward(&ctx, &x, &grad_hidden)?;
            let mut whole = vec![0.0; 8 * 6];
            // A dimension that is not 0 counts without its flag.
            let rows = ShardOptions { dim: -2, ..Default::default() };
            let shape = [up.out_features as i64, 6];
            let part = In::new(&up.grad_weight, &shape);
            shard_gather_full(&ctx, &part, &rows, &mut Out::new(&mut whole, &[8, 6]))?;
            ctx.finalize()?;
            Ok((y, grad_x, whole, down.grad_bias.unwrap()))
        })
    };
    let one = run(1).remove(0);
    for many in run(2) {
        near(&many.0, &one.0);
        near(&many.1, &one.1);
        near(&many.2, &one.2);
        near(&many.3, &one.3);
    }
}

/// The column layer of a weight whose columns are further apart, against plain loops.
#[test]
fn slices_with_strides() {
    on_ranks(2, |ctx| {
        let (rank, _) = tensor_parallel(&ctx)?;
        let (x, weight) = (numbers(ROWS * 3, 0.0), numbers(8 * 3, 2.0));
        let whole = product(&x, &weight, 3);
        let own = &weight[rank * 12..];
        // The transpose of y.
        let mut y = vec![0.0; 4 * ROWS];
        column_linear_forward(
            &ctx,
            &In::new(&x, &[ROWS as i64, 3]),
            &In::new(&own[..12], &[4, 3]),
            None,
            &ColumnLinearOptions::default(),
            &mut Out::strided(&mut y, &[ROWS as i64, 4], &[1, ROWS as i64]),
        )?;
        for (i, row) in whole.chunks(8).enumerate() {
            let column: Vec<f64> = (0..4).map(|j| y[j * ROWS + i]).collect();
            near(&column, &row[rank * 4..rank * 4 + 4]);
        }
        ctx.finalize()
    });
}

/// Two weights of one input, of which the ranks have parts: the gradient of the input is one sum.
#[test]
fn several_weights_of_one_input() {
    on_ranks(2, |ctx| {
        let (rank, _) = tensor_parallel(&ctx)?;
        let (x, w1, w2) = (numbers(4 * 3, 0.0), numbers(8 * 3, 1.0), numbers(4 * 3, 2.0));
        let (x_shape, part) = ([2i64, 3], In::new(&x[rank * 6..rank * 6 + 6], &[2, 3]));
        let own = || {
            [
                In::new(&w1[rank * 12..rank * 12 + 12], &[4, 3]),
                In::new(&w2[rank * 6..rank * 6 + 6], &[2, 3]),
            ]
        };
        let options = ColumnLinearOptions { sequence_parallel: 1, ..Default::default() };
        let (mut a, mut b) = (vec![0.0; 16], vec![0.0; 8]);
        let mut ys = [Out::new(&mut a, &[4, 4]), Out::new(&mut b, &[4, 2])];
        column_linears_forward(&ctx, &part, &own(), &[], &options, &mut ys)?;
        let (whole_a, whole_b) = (product(&x, &w1, 3), product(&x, &w2, 3));
        for row in 0..4 {
            let at = row * 8 + rank * 4;
            near(&a[row * 4..row * 4 + 4], &whole_a[at..at + 4]);
            let at = row * 4 + rank * 2;
            near(&b[row * 2..row * 2 + 2], &whole_b[at..at + 2]);
        }
        // dy = y: grad_x = x (w1^T w1 + w2^T w2) of this rank's rows.
        let (mut dx, mut dw) = (vec![0.0; 6], vec![0.0; 6]);
        column_linears_backward(
            &ctx,
            &part,
            &own(),
            &[In::new(&a, &[4, 4]), In::new(&b, &[4, 2])],
            &options,
            Some(&mut Out::new(&mut dx, &x_shape)),
            &mut [None, Some(Out::new(&mut dw, &[2, 3]))],
            &mut [],
        )?;
        for row in 0..2 {
            for k in 0..3 {
                let r = rank * 2 + row;
                let sum: f64 = (0..8).map(|j| whole_a[r * 8 + j] * w1[j * 3 + k]).sum::<f64>()
                    + (0..4).map(|j| whole_b[r * 4 + j] * w2[j * 3 + k]).sum::<f64>();
                near(&dx[row * 3 + k..row * 3 + k + 1], &[sum]);
            }
        }
        let first: f64 = (0..4).map(|r| whole_b[r * 4 + rank * 2] * x[r * 3]).sum();
        near(&dw[..1], &[first]);
        let error = column_linears_forward(&ctx, &part, &own(), &[], &options, &mut []);
        let error = error.unwrap_err();
        assert!(error.message().contains("ys: expected one for each of 2 weights"), "{}", error);
        ctx.finalize()
    });
}

#[test]
fn norms_dropout_and_losses() {
    on_ranks(2, |ctx| {
        let (rank, _) = tensor_parallel(&ctx)?;
        let (x, weight) = (numbers(4 * 6, 0.0), vec![1.0; 6]);
        let (mut y, mut inv, mut dw) = (vec![0.0; 24], vec![0.0; 4], vec![0.0; 6]);
        let norm = NormalizationOptions { sequence_parallel: 1, ..Default::default() };
        let (rows, shape) = (In::new(&x, &[4, 6]), [4i64, 6]);
        let w = In::new(&weight, &[6]);
        let mut out = Out::new(&mut y, &shape);
        rms_norm_forward(
            &ctx,
            &rows,
            Some(&w),
            &norm,
            &mut out,
            Some(&mut Out::new(&mut inv, &[4])),
        )?;
        let mean: f64 = x[..6].iter().map(|v| v * v).sum::<f64>() / 6.0;
        assert!((inv[0] - 1.0 / (mean + 1e-5).sqrt()).abs() < 1e-12);
        near(&y[..6], &x[..6].iter().map(|v| v * inv[0]).collect::<Vec<_>>());
        let statistics = In::new(&inv, &[4]);
        let mut grad = Out::new(&mut dw, &[6]);
        rms_norm_backward(&ctx, &rows, Some(&w), &statistics, &rows, &norm, None, Some(&mut grad))?;
        let sum: f64 = (0..4).map(|r| x[r * 6] * x[r * 6] * inv[r]).sum();
        assert!((dw[0] - 2.0 * sum).abs() < 1e-12, "of both ranks");

        let (mut whole, mut part) = (vec![0.0; 24], vec![0.0; 12]);
        let drop = DropoutOptions { p: 0.5, ..Default::default() };
        dropout_forward(&ctx, "drop", &rows, &drop, &mut Out::new(&mut whole, &[4, 6]))?;
        let half = DropoutOptions { has_shard_dim: 1, ..drop };
        let own = In::new(&x[rank * 12..rank * 12 + 12], &[2, 6]);
        dropout_forward(&ctx, "drop", &own, &half, &mut Out::new(&mut part, &[2, 6]))?;
        assert_eq!(part, whole[rank * 12..rank * 12 + 12]);

        // The loss of both ranks' columns.
        let head = numbers(8 * 6, 3.0);
        let logits = product(&x, &head, 6);
        let (labels, mut loss) = (vec![1i64, 7, -100, 4], vec![0.0]);
        linear_cross_entropy_forward(
            &ctx,
            &rows,
            &In::new(&head[rank * 24..rank * 24 + 24], &[4, 6]),
            None,
            &In::new(&labels, &[4]),
            &LinearCrossEntropyOptions::default(),
            None,
            &mut Out::new(&mut loss, &[]),
        )?;
        let expected = [0usize, 1, 3].iter().map(|&r| {
            let z = &logits[r * 8..r * 8 + 8];
            z.iter().map(|v| v.exp()).sum::<f64>().ln() - z[labels[r] as usize]
        });
        near(&loss, &[expected.sum::<f64>() / 3.0]);
        ctx.finalize()
    });
}

/// A vocabulary of five rows, three on each of two ranks, and a norm whose gradients are partial.
#[test]
fn shards_of_a_ddp() {
    on_ranks(2, |ctx| {
        let (rank, _) = tensor_parallel(&ctx)?;
        let real = if rank == 0 { 6 } else { 4 }; // the sixth row is padding
        let grads = (0..6).map(|i| if i < real { 1.0 } else { 0.0 }).collect();
        let arrays = vec![
            Array::with_gradient("vocabulary", &[3, 2], vec![0.5f64; 6], grads)?,
            Array::with_gradient("norm", &[2], vec![1.0f64; 2], vec![1.0f64; 2])?,
        ];
        let ddp = Ddp::over_arrays(&ctx, None, arrays, &DdpOptions::default())?;
        let rows = ShardOptions { has_dim: 1, size: 5, ..Default::default() };
        let of = |shard| [
            ShardedParameter { shard: Some(shard), ..Default::default() },
            ShardedParameter { partial_grad: true, ..Default::default() },
        ];
        let error = ddp.set_shards(&of(ShardOptions { num_fused: 2, ..rows })).unwrap_err();
        assert!(error.message().contains("shards[0] (vocabulary): num_fused"), "{}", error);
        ddp.set_shards(&of(rows))?;
        near(&[ddp.finish(&FinishOptions::default())?], &[18f64.sqrt()]);
        ctx.finalize()
    });
}

/// An array that is bad on one rank is an error on both, and the next call goes well.
#[test]
fn bad_arrays_of_one_rank() {
    on_ranks(2, |ctx| {
        let (rank, _) = tensor_parallel(&ctx)?;
        let (x, w) = (vec![Bf16::from_f32(1.0); 6], vec![Bf16::from_f32(2.0); 12]);
        let mut y = vec![Bf16::default(); 8];
        let mut call = |length: usize, shape: &[i64]| {
            column_linear_forward(
                &ctx,
                &In::new(&x[..length], &[2, 3]),
                &In::new(&w, &[4, 3]),
                None,
                &ColumnLinearOptions::default(),
                &mut Out::new(&mut y, shape),
            )
        };
        for (length, shape) in [(5, [2, 4]), (6, [4, 2]), (6, [2, -4])] {
            let error = match rank {
                0 => call(6, &[2, 4]),
                _ => call(length, &shape),
            };
            let error = error.unwrap_err();
            assert_eq!(error.status(), Status::INVALID_ARGUMENT);
            assert!(error.message().contains("expected"), "{}", error);
            call(6, &[2, 4])?;
        }
        assert!(y.iter().all(|v| v.to_f32() == 6.0));
        let strided = In::strided(&x, &[2, 3], &[4, 1]);
        let mut out = vec![Bf16::default(); 6];
        let error = region_mapping_forward(
            &ctx,
            RegionMapping::REDUCE_FROM,
            0,
            &strided,
            &mut Out::new(&mut out, &[2, 3]),
        );
        assert!(error.unwrap_err().message().contains("expected more than 6 elements"));
        // Also where there are no elements.
        for strides in [&[][..], &[1], &[1, 1, 1]] {
            let error = region_mapping_forward(
                &ctx,
                RegionMapping::COPY_TO,
                0,
                &In::strided::<Bf16>(&[], &[0, 3], strides),
                &mut Out::new::<Bf16>(&mut [], &[0, 3]),
            );
            assert!(error.unwrap_err().message().contains("a stride for each of [0, 3]"));
        }
        let error = ColumnLinear::<f32>::new(&ctx, "odd", 3, 5, 0.1, false).err().unwrap();
        assert!(error.message().contains("2 ranks divide, got 5"), "{}", error);
        ctx.finalize()
    });
}
