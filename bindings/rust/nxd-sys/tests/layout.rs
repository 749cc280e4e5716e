//! Generated from nxd.h by scripts/bindings.
#![cfg_attr(rustfmt, rustfmt_skip)]

use nxd_sys::*;
use std::mem::{align_of, size_of, MaybeUninit};
use std::ptr::addr_of;

/// Offset and size of a field, which is not read.
macro_rules! place {
    ($kind:ty, $field:ident) => {{
        fn size<T>(_: *const T) -> usize {
            size_of::<T>()
        }
        let value = MaybeUninit::<$kind>::uninit();
        let start = value.as_ptr();
        // Addresses alone: nothing is read through them.
        let field = unsafe { addr_of!((*start).$field) };
        (field as usize - start as usize, size(field))
    }};
}

#[test]
fn layout_of_nxd_error_info_t() {
    assert_eq!((size_of::<nxd_error_info_t>(), align_of::<nxd_error_info_t>()), (56, 8));
    assert_eq!(place!(nxd_error_info_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_error_info_t, status), (8, 4), "status");
    assert_eq!(place!(nxd_error_info_t, root_rank), (12, 4), "root_rank");
    assert_eq!(place!(nxd_error_info_t, sequence), (16, 8), "sequence");
    assert_eq!(place!(nxd_error_info_t, group), (24, 8), "group");
    assert_eq!(place!(nxd_error_info_t, operation), (32, 8), "operation");
    assert_eq!(place!(nxd_error_info_t, step), (40, 8), "step");
    assert_eq!(place!(nxd_error_info_t, parameters), (48, 4), "parameters");
    assert_eq!(place!(nxd_error_info_t, reserved), (52, 4), "reserved");
}

#[test]
fn layout_of_dlpackversion() {
    assert_eq!((size_of::<DLPackVersion>(), align_of::<DLPackVersion>()), (8, 4));
    assert_eq!(place!(DLPackVersion, major), (0, 4), "major");
    assert_eq!(place!(DLPackVersion, minor), (4, 4), "minor");
}

#[test]
fn layout_of_dldevice() {
    assert_eq!((size_of::<DLDevice>(), align_of::<DLDevice>()), (8, 4));
    assert_eq!(place!(DLDevice, device_type), (0, 4), "device_type");
    assert_eq!(place!(DLDevice, device_id), (4, 4), "device_id");
}

#[test]
fn layout_of_dldatatype() {
    assert_eq!((size_of::<DLDataType>(), align_of::<DLDataType>()), (4, 2));
    assert_eq!(place!(DLDataType, code), (0, 1), "code");
    assert_eq!(place!(DLDataType, bits), (1, 1), "bits");
    assert_eq!(place!(DLDataType, lanes), (2, 2), "lanes");
}

#[test]
fn layout_of_dltensor() {
    assert_eq!((size_of::<DLTensor>(), align_of::<DLTensor>()), (48, 8));
    assert_eq!(place!(DLTensor, data), (0, 8), "data");
    assert_eq!(place!(DLTensor, device), (8, 8), "device");
    assert_eq!(place!(DLTensor, ndim), (16, 4), "ndim");
    assert_eq!(place!(DLTensor, dtype), (20, 4), "dtype");
    assert_eq!(place!(DLTensor, shape), (24, 8), "shape");
    assert_eq!(place!(DLTensor, strides), (32, 8), "strides");
    assert_eq!(place!(DLTensor, byte_offset), (40, 8), "byte_offset");
}

#[test]
fn layout_of_dlmanagedtensor() {
    assert_eq!((size_of::<DLManagedTensor>(), align_of::<DLManagedTensor>()), (64, 8));
    assert_eq!(place!(DLManagedTensor, dl_tensor), (0, 48), "dl_tensor");
    assert_eq!(place!(DLManagedTensor, manager_ctx), (48, 8), "manager_ctx");
    assert_eq!(place!(DLManagedTensor, deleter), (56, 8), "deleter");
}

#[test]
fn layout_of_dlmanagedtensorversioned() {
    assert_eq!((size_of::<DLManagedTensorVersioned>(), align_of::<DLManagedTensorVersioned>()), (80, 8));
    assert_eq!(place!(DLManagedTensorVersioned, version), (0, 8), "version");
    assert_eq!(place!(DLManagedTensorVersioned, manager_ctx), (8, 8), "manager_ctx");
    assert_eq!(place!(DLManagedTensorVersioned, deleter), (16, 8), "deleter");
    assert_eq!(place!(DLManagedTensorVersioned, flags), (24, 8), "flags");
    assert_eq!(place!(DLManagedTensorVersioned, dl_tensor), (32, 48), "dl_tensor");
}

#[test]
fn layout_of_nxd_store_callbacks_t() {
    assert_eq!((size_of::<nxd_store_callbacks_t>(), align_of::<nxd_store_callbacks_t>()), (48, 8));
    assert_eq!(place!(nxd_store_callbacks_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_store_callbacks_t, user_data), (8, 8), "user_data");
    assert_eq!(place!(nxd_store_callbacks_t, destroy), (16, 8), "destroy");
    assert_eq!(place!(nxd_store_callbacks_t, set), (24, 8), "set");
    assert_eq!(place!(nxd_store_callbacks_t, get), (32, 8), "get");
    assert_eq!(place!(nxd_store_callbacks_t, add), (40, 8), "add");
}

#[test]
fn layout_of_nxd_context_options_t() {
    assert_eq!((size_of::<nxd_context_options_t>(), align_of::<nxd_context_options_t>()), (88, 8));
    assert_eq!(place!(nxd_context_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_context_options_t, rendezvous), (8, 4), "rendezvous");
    assert_eq!(place!(nxd_context_options_t, rank), (12, 4), "rank");
    assert_eq!(place!(nxd_context_options_t, size), (16, 4), "size");
    assert_eq!(place!(nxd_context_options_t, local_rank), (20, 4), "local_rank");
    assert_eq!(place!(nxd_context_options_t, store), (24, 8), "store");
    assert_eq!(place!(nxd_context_options_t, timeout_ms), (32, 8), "timeout_ms");
    assert_eq!(place!(nxd_context_options_t, interface_name), (40, 8), "interface_name");
    assert_eq!(place!(nxd_context_options_t, seed), (48, 8), "seed");
    assert_eq!(place!(nxd_context_options_t, plain_kernels), (56, 4), "plain_kernels");
    assert_eq!(place!(nxd_context_options_t, transport), (60, 4), "transport");
    assert_eq!(place!(nxd_context_options_t, host_id), (64, 8), "host_id");
    assert_eq!(place!(nxd_context_options_t, interrupt), (72, 8), "interrupt");
    assert_eq!(place!(nxd_context_options_t, interrupt_data), (80, 8), "interrupt_data");
}

#[test]
fn layout_of_nxd_parallel_options_t() {
    assert_eq!((size_of::<nxd_parallel_options_t>(), align_of::<nxd_parallel_options_t>()), (40, 8));
    assert_eq!(place!(nxd_parallel_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_parallel_options_t, tensor_parallel_size), (8, 4), "tensor_parallel_size");
    assert_eq!(place!(nxd_parallel_options_t, pipeline_parallel_size), (12, 4), "pipeline_parallel_size");
    assert_eq!(place!(nxd_parallel_options_t, context_parallel_size), (16, 4), "context_parallel_size");
    assert_eq!(place!(nxd_parallel_options_t, expert_parallel_size), (20, 4), "expert_parallel_size");
    assert_eq!(place!(nxd_parallel_options_t, platform), (24, 4), "platform");
    assert_eq!(place!(nxd_parallel_options_t, lnc_size), (28, 4), "lnc_size");
    assert_eq!(place!(nxd_parallel_options_t, local_world_size), (32, 4), "local_world_size");
    assert_eq!(place!(nxd_parallel_options_t, reduce_dtype), (36, 4), "reduce_dtype");
}

#[test]
fn layout_of_nxd_column_linear_options_t() {
    assert_eq!((size_of::<nxd_column_linear_options_t>(), align_of::<nxd_column_linear_options_t>()), (48, 8));
    assert_eq!(place!(nxd_column_linear_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_column_linear_options_t, gather_output), (8, 4), "gather_output");
    assert_eq!(place!(nxd_column_linear_options_t, sequence_parallel), (12, 4), "sequence_parallel");
    assert_eq!(place!(nxd_column_linear_options_t, sequence_dim), (16, 4), "sequence_dim");
    assert_eq!(place!(nxd_column_linear_options_t, transposed_weight), (20, 4), "transposed_weight");
    assert_eq!(place!(nxd_column_linear_options_t, accumulate_grads), (24, 4), "accumulate_grads");
    assert_eq!(place!(nxd_column_linear_options_t, reserved), (28, 4), "reserved");
    assert_eq!(place!(nxd_column_linear_options_t, workspace), (32, 8), "workspace");
    assert_eq!(place!(nxd_column_linear_options_t, workspace_bytes), (40, 8), "workspace_bytes");
}

#[test]
fn layout_of_nxd_row_linear_options_t() {
    assert_eq!((size_of::<nxd_row_linear_options_t>(), align_of::<nxd_row_linear_options_t>()), (48, 8));
    assert_eq!(place!(nxd_row_linear_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_row_linear_options_t, input_is_parallel), (8, 4), "input_is_parallel");
    assert_eq!(place!(nxd_row_linear_options_t, sequence_parallel), (12, 4), "sequence_parallel");
    assert_eq!(place!(nxd_row_linear_options_t, sequence_dim), (16, 4), "sequence_dim");
    assert_eq!(place!(nxd_row_linear_options_t, transposed_weight), (20, 4), "transposed_weight");
    assert_eq!(place!(nxd_row_linear_options_t, accumulate_grads), (24, 4), "accumulate_grads");
    assert_eq!(place!(nxd_row_linear_options_t, reserved), (28, 4), "reserved");
    assert_eq!(place!(nxd_row_linear_options_t, workspace), (32, 8), "workspace");
    assert_eq!(place!(nxd_row_linear_options_t, workspace_bytes), (40, 8), "workspace_bytes");
}

#[test]
fn layout_of_nxd_vocab_parallel_embedding_options_t() {
    assert_eq!((size_of::<nxd_vocab_parallel_embedding_options_t>(), align_of::<nxd_vocab_parallel_embedding_options_t>()), (56, 8));
    assert_eq!(place!(nxd_vocab_parallel_embedding_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_vocab_parallel_embedding_options_t, num_embeddings), (8, 8), "num_embeddings");
    assert_eq!(place!(nxd_vocab_parallel_embedding_options_t, padding_idx), (16, 8), "padding_idx");
    assert_eq!(place!(nxd_vocab_parallel_embedding_options_t, has_padding_idx), (24, 4), "has_padding_idx");
    assert_eq!(place!(nxd_vocab_parallel_embedding_options_t, sequence_parallel), (28, 4), "sequence_parallel");
    assert_eq!(place!(nxd_vocab_parallel_embedding_options_t, sequence_dim), (32, 4), "sequence_dim");
    assert_eq!(place!(nxd_vocab_parallel_embedding_options_t, accumulate_grads), (36, 4), "accumulate_grads");
    assert_eq!(place!(nxd_vocab_parallel_embedding_options_t, workspace), (40, 8), "workspace");
    assert_eq!(place!(nxd_vocab_parallel_embedding_options_t, workspace_bytes), (48, 8), "workspace_bytes");
}

#[test]
fn layout_of_nxd_parallel_cross_entropy_options_t() {
    assert_eq!((size_of::<nxd_parallel_cross_entropy_options_t>(), align_of::<nxd_parallel_cross_entropy_options_t>()), (64, 8));
    assert_eq!(place!(nxd_parallel_cross_entropy_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_parallel_cross_entropy_options_t, label_smoothing), (8, 8), "label_smoothing");
    assert_eq!(place!(nxd_parallel_cross_entropy_options_t, smoothing), (16, 4), "smoothing");
    assert_eq!(place!(nxd_parallel_cross_entropy_options_t, reduction), (20, 4), "reduction");
    assert_eq!(place!(nxd_parallel_cross_entropy_options_t, vocab_size), (24, 8), "vocab_size");
    assert_eq!(place!(nxd_parallel_cross_entropy_options_t, ignore_index), (32, 8), "ignore_index");
    assert_eq!(place!(nxd_parallel_cross_entropy_options_t, has_ignore_index), (40, 4), "has_ignore_index");
    assert_eq!(place!(nxd_parallel_cross_entropy_options_t, reserved), (44, 4), "reserved");
    assert_eq!(place!(nxd_parallel_cross_entropy_options_t, workspace), (48, 8), "workspace");
    assert_eq!(place!(nxd_parallel_cross_entropy_options_t, workspace_bytes), (56, 8), "workspace_bytes");
}

#[test]
fn layout_of_nxd_normalization_options_t() {
    assert_eq!((size_of::<nxd_normalization_options_t>(), align_of::<nxd_normalization_options_t>()), (40, 8));
    assert_eq!(place!(nxd_normalization_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_normalization_options_t, eps), (8, 8), "eps");
    assert_eq!(place!(nxd_normalization_options_t, sequence_parallel), (16, 4), "sequence_parallel");
    assert_eq!(place!(nxd_normalization_options_t, accumulate_grads), (20, 4), "accumulate_grads");
    assert_eq!(place!(nxd_normalization_options_t, workspace), (24, 8), "workspace");
    assert_eq!(place!(nxd_normalization_options_t, workspace_bytes), (32, 8), "workspace_bytes");
}

#[test]
fn layout_of_nxd_dropout_options_t() {
    assert_eq!((size_of::<nxd_dropout_options_t>(), align_of::<nxd_dropout_options_t>()), (64, 8));
    assert_eq!(place!(nxd_dropout_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_dropout_options_t, p), (8, 8), "p");
    assert_eq!(place!(nxd_dropout_options_t, step), (16, 8), "step");
    assert_eq!(place!(nxd_dropout_options_t, microbatch), (24, 8), "microbatch");
    assert_eq!(place!(nxd_dropout_options_t, has_position), (32, 4), "has_position");
    assert_eq!(place!(nxd_dropout_options_t, has_shard_dim), (36, 4), "has_shard_dim");
    assert_eq!(place!(nxd_dropout_options_t, shard_dim), (40, 4), "shard_dim");
    assert_eq!(place!(nxd_dropout_options_t, transposed), (44, 4), "transposed");
    assert_eq!(place!(nxd_dropout_options_t, workspace), (48, 8), "workspace");
    assert_eq!(place!(nxd_dropout_options_t, workspace_bytes), (56, 8), "workspace_bytes");
}

#[test]
fn layout_of_nxd_linear_cross_entropy_options_t() {
    assert_eq!((size_of::<nxd_linear_cross_entropy_options_t>(), align_of::<nxd_linear_cross_entropy_options_t>()), (80, 8));
    assert_eq!(place!(nxd_linear_cross_entropy_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_linear_cross_entropy_options_t, label_smoothing), (8, 8), "label_smoothing");
    assert_eq!(place!(nxd_linear_cross_entropy_options_t, smoothing), (16, 4), "smoothing");
    assert_eq!(place!(nxd_linear_cross_entropy_options_t, reduction), (20, 4), "reduction");
    assert_eq!(place!(nxd_linear_cross_entropy_options_t, vocab_size), (24, 8), "vocab_size");
    assert_eq!(place!(nxd_linear_cross_entropy_options_t, ignore_index), (32, 8), "ignore_index");
    assert_eq!(place!(nxd_linear_cross_entropy_options_t, has_ignore_index), (40, 4), "has_ignore_index");
    assert_eq!(place!(nxd_linear_cross_entropy_options_t, sequence_parallel), (44, 4), "sequence_parallel");
    assert_eq!(place!(nxd_linear_cross_entropy_options_t, sequence_dim), (48, 4), "sequence_dim");
    assert_eq!(place!(nxd_linear_cross_entropy_options_t, transposed_weight), (52, 4), "transposed_weight");
    assert_eq!(place!(nxd_linear_cross_entropy_options_t, accumulate_grads), (56, 4), "accumulate_grads");
    assert_eq!(place!(nxd_linear_cross_entropy_options_t, block_tokens), (60, 4), "block_tokens");
    assert_eq!(place!(nxd_linear_cross_entropy_options_t, workspace), (64, 8), "workspace");
    assert_eq!(place!(nxd_linear_cross_entropy_options_t, workspace_bytes), (72, 8), "workspace_bytes");
}

#[test]
fn layout_of_nxd_data_loader_options_t() {
    assert_eq!((size_of::<nxd_data_loader_options_t>(), align_of::<nxd_data_loader_options_t>()), (48, 8));
    assert_eq!(place!(nxd_data_loader_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_data_loader_options_t, vocab_size), (8, 8), "vocab_size");
    assert_eq!(place!(nxd_data_loader_options_t, seed), (16, 8), "seed");
    assert_eq!(place!(nxd_data_loader_options_t, has_seed), (24, 4), "has_seed");
    assert_eq!(place!(nxd_data_loader_options_t, format), (28, 4), "format");
    assert_eq!(place!(nxd_data_loader_options_t, shuffle), (32, 4), "shuffle");
    assert_eq!(place!(nxd_data_loader_options_t, next_labels), (36, 4), "next_labels");
    assert_eq!(place!(nxd_data_loader_options_t, prefetch), (40, 4), "prefetch");
    assert_eq!(place!(nxd_data_loader_options_t, reserved), (44, 4), "reserved");
}

#[test]
fn layout_of_nxd_shard_options_t() {
    assert_eq!((size_of::<nxd_shard_options_t>(), align_of::<nxd_shard_options_t>()), (32, 8));
    assert_eq!(place!(nxd_shard_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_shard_options_t, size), (8, 8), "size");
    assert_eq!(place!(nxd_shard_options_t, has_dim), (16, 4), "has_dim");
    assert_eq!(place!(nxd_shard_options_t, dim), (20, 4), "dim");
    assert_eq!(place!(nxd_shard_options_t, num_fused), (24, 4), "num_fused");
    assert_eq!(place!(nxd_shard_options_t, num_heads), (28, 4), "num_heads");
}

#[test]
fn layout_of_nxd_ddp_options_t() {
    assert_eq!((size_of::<nxd_ddp_options_t>(), align_of::<nxd_ddp_options_t>()), (40, 8));
    assert_eq!(place!(nxd_ddp_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_ddp_options_t, bucket_bytes), (8, 8), "bucket_bytes");
    assert_eq!(place!(nxd_ddp_options_t, reduce), (16, 4), "reduce");
    assert_eq!(place!(nxd_ddp_options_t, zero_stage), (20, 4), "zero_stage");
    assert_eq!(place!(nxd_ddp_options_t, fp32_grads), (24, 4), "fp32_grads");
    assert_eq!(place!(nxd_ddp_options_t, overlap), (28, 4), "overlap");
    assert_eq!(place!(nxd_ddp_options_t, broadcast), (32, 4), "broadcast");
    assert_eq!(place!(nxd_ddp_options_t, reserved), (36, 4), "reserved");
}

#[test]
fn layout_of_nxd_finish_options_t() {
    assert_eq!((size_of::<nxd_finish_options_t>(), align_of::<nxd_finish_options_t>()), (40, 8));
    assert_eq!(place!(nxd_finish_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_finish_options_t, scale), (8, 8), "scale");
    assert_eq!(place!(nxd_finish_options_t, max_norm), (16, 8), "max_norm");
    assert_eq!(place!(nxd_finish_options_t, norm_type), (24, 8), "norm_type");
    assert_eq!(place!(nxd_finish_options_t, data_parallel_reduce), (32, 4), "data_parallel_reduce");
    assert_eq!(place!(nxd_finish_options_t, check_finite), (36, 4), "check_finite");
}

#[test]
fn layout_of_nxd_spawn_options_t() {
    assert_eq!((size_of::<nxd_spawn_options_t>(), align_of::<nxd_spawn_options_t>()), (24, 8));
    assert_eq!(place!(nxd_spawn_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_spawn_options_t, num_processes), (8, 4), "num_processes");
    assert_eq!(place!(nxd_spawn_options_t, omp_num_threads), (12, 4), "omp_num_threads");
    assert_eq!(place!(nxd_spawn_options_t, argv), (16, 8), "argv");
}

#[test]
fn layout_of_nxd_phase_stats_t() {
    assert_eq!((size_of::<nxd_phase_stats_t>(), align_of::<nxd_phase_stats_t>()), (48, 8));
    assert_eq!(place!(nxd_phase_stats_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_phase_stats_t, name), (8, 8), "name");
    assert_eq!(place!(nxd_phase_stats_t, seconds), (16, 8), "seconds");
    assert_eq!(place!(nxd_phase_stats_t, operations), (24, 8), "operations");
    assert_eq!(place!(nxd_phase_stats_t, calls), (32, 8), "calls");
    assert_eq!(place!(nxd_phase_stats_t, waiting_seconds), (40, 8), "waiting_seconds");
}

#[test]
fn layout_of_nxd_memory_stats_t() {
    assert_eq!((size_of::<nxd_memory_stats_t>(), align_of::<nxd_memory_stats_t>()), (72, 8));
    assert_eq!(place!(nxd_memory_stats_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_memory_stats_t, bytes_in_use), (8, 8), "bytes_in_use");
    assert_eq!(place!(nxd_memory_stats_t, bytes_reserved), (16, 8), "bytes_reserved");
    assert_eq!(place!(nxd_memory_stats_t, peak_bytes_in_use), (24, 8), "peak_bytes_in_use");
    assert_eq!(place!(nxd_memory_stats_t, allocations), (32, 8), "allocations");
    assert_eq!(place!(nxd_memory_stats_t, system_allocations), (40, 8), "system_allocations");
    assert_eq!(place!(nxd_memory_stats_t, cap_bytes), (48, 8), "cap_bytes");
    assert_eq!(place!(nxd_memory_stats_t, arena_bytes_in_use), (56, 8), "arena_bytes_in_use");
    assert_eq!(place!(nxd_memory_stats_t, arena_bytes_reserved), (64, 8), "arena_bytes_reserved");
}

#[test]
fn layout_of_nxd_lr_schedule_options_t() {
    assert_eq!((size_of::<nxd_lr_schedule_options_t>(), align_of::<nxd_lr_schedule_options_t>()), (40, 8));
    assert_eq!(place!(nxd_lr_schedule_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_lr_schedule_options_t, kind), (8, 4), "kind");
    assert_eq!(place!(nxd_lr_schedule_options_t, reserved), (12, 4), "reserved");
    assert_eq!(place!(nxd_lr_schedule_options_t, warmup_steps), (16, 8), "warmup_steps");
    assert_eq!(place!(nxd_lr_schedule_options_t, total_steps), (24, 8), "total_steps");
    assert_eq!(place!(nxd_lr_schedule_options_t, final_factor), (32, 8), "final_factor");
}

#[test]
fn layout_of_nxd_adamw_options_t() {
    assert_eq!((size_of::<nxd_adamw_options_t>(), align_of::<nxd_adamw_options_t>()), (56, 8));
    assert_eq!(place!(nxd_adamw_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_adamw_options_t, learning_rate), (8, 8), "learning_rate");
    assert_eq!(place!(nxd_adamw_options_t, beta1), (16, 8), "beta1");
    assert_eq!(place!(nxd_adamw_options_t, beta2), (24, 8), "beta2");
    assert_eq!(place!(nxd_adamw_options_t, eps), (32, 8), "eps");
    assert_eq!(place!(nxd_adamw_options_t, weight_decay), (40, 8), "weight_decay");
    assert_eq!(place!(nxd_adamw_options_t, formula), (48, 4), "formula");
    assert_eq!(place!(nxd_adamw_options_t, bf16_update), (52, 4), "bf16_update");
}

#[test]
fn layout_of_nxd_sgd_options_t() {
    assert_eq!((size_of::<nxd_sgd_options_t>(), align_of::<nxd_sgd_options_t>()), (48, 8));
    assert_eq!(place!(nxd_sgd_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_sgd_options_t, learning_rate), (8, 8), "learning_rate");
    assert_eq!(place!(nxd_sgd_options_t, momentum), (16, 8), "momentum");
    assert_eq!(place!(nxd_sgd_options_t, dampening), (24, 8), "dampening");
    assert_eq!(place!(nxd_sgd_options_t, weight_decay), (32, 8), "weight_decay");
    assert_eq!(place!(nxd_sgd_options_t, nesterov), (40, 4), "nesterov");
    assert_eq!(place!(nxd_sgd_options_t, bf16_update), (44, 4), "bf16_update");
}

#[test]
fn layout_of_nxd_update_t() {
    assert_eq!((size_of::<nxd_update_t>(), align_of::<nxd_update_t>()), (96, 8));
    assert_eq!(place!(nxd_update_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_update_t, parameter), (8, 8), "parameter");
    assert_eq!(place!(nxd_update_t, begin), (16, 8), "begin");
    assert_eq!(place!(nxd_update_t, count), (24, 8), "count");
    assert_eq!(place!(nxd_update_t, dtype), (32, 4), "dtype");
    assert_eq!(place!(nxd_update_t, grad_dtype), (36, 4), "grad_dtype");
    assert_eq!(place!(nxd_update_t, param), (40, 8), "param");
    assert_eq!(place!(nxd_update_t, grad), (48, 8), "grad");
    assert_eq!(place!(nxd_update_t, grad_scale), (56, 8), "grad_scale");
    assert_eq!(place!(nxd_update_t, states), (64, 8), "states");
    assert_eq!(place!(nxd_update_t, learning_rate), (72, 8), "learning_rate");
    assert_eq!(place!(nxd_update_t, weight_decay), (80, 8), "weight_decay");
    assert_eq!(place!(nxd_update_t, step), (88, 8), "step");
}

#[test]
fn layout_of_nxd_custom_optimizer_options_t() {
    assert_eq!((size_of::<nxd_custom_optimizer_options_t>(), align_of::<nxd_custom_optimizer_options_t>()), (56, 8));
    assert_eq!(place!(nxd_custom_optimizer_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_custom_optimizer_options_t, update), (8, 8), "update");
    assert_eq!(place!(nxd_custom_optimizer_options_t, user_data), (16, 8), "user_data");
    assert_eq!(place!(nxd_custom_optimizer_options_t, destroy), (24, 8), "destroy");
    assert_eq!(place!(nxd_custom_optimizer_options_t, learning_rate), (32, 8), "learning_rate");
    assert_eq!(place!(nxd_custom_optimizer_options_t, weight_decay), (40, 8), "weight_decay");
    assert_eq!(place!(nxd_custom_optimizer_options_t, num_states), (48, 4), "num_states");
    assert_eq!(place!(nxd_custom_optimizer_options_t, bf16_update), (52, 4), "bf16_update");
}

#[test]
fn layout_of_nxd_step_report_t() {
    assert_eq!((size_of::<nxd_step_report_t>(), align_of::<nxd_step_report_t>()), (40, 8));
    assert_eq!(place!(nxd_step_report_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_step_report_t, norm), (8, 8), "norm");
    assert_eq!(place!(nxd_step_report_t, learning_rate), (16, 8), "learning_rate");
    assert_eq!(place!(nxd_step_report_t, updates), (24, 8), "updates");
    assert_eq!(place!(nxd_step_report_t, skipped), (32, 4), "skipped");
    assert_eq!(place!(nxd_step_report_t, reserved), (36, 4), "reserved");
}

#[test]
fn layout_of_nxd_pp_task_t() {
    assert_eq!((size_of::<nxd_pp_task_t>(), align_of::<nxd_pp_task_t>()), (12, 4));
    assert_eq!(place!(nxd_pp_task_t, kind), (0, 4), "kind");
    assert_eq!(place!(nxd_pp_task_t, microbatch), (4, 4), "microbatch");
    assert_eq!(place!(nxd_pp_task_t, chunk), (8, 4), "chunk");
}

#[test]
fn layout_of_nxd_pp_costs_t() {
    assert_eq!((size_of::<nxd_pp_costs_t>(), align_of::<nxd_pp_costs_t>()), (40, 8));
    assert_eq!(place!(nxd_pp_costs_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_pp_costs_t, forward), (8, 8), "forward");
    assert_eq!(place!(nxd_pp_costs_t, backward_input), (16, 8), "backward_input");
    assert_eq!(place!(nxd_pp_costs_t, backward_weight), (24, 8), "backward_weight");
    assert_eq!(place!(nxd_pp_costs_t, transfer), (32, 8), "transfer");
}

#[test]
fn layout_of_nxd_pp_report_t() {
    assert_eq!((size_of::<nxd_pp_report_t>(), align_of::<nxd_pp_report_t>()), (40, 8));
    assert_eq!(place!(nxd_pp_report_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_pp_report_t, makespan), (8, 8), "makespan");
    assert_eq!(place!(nxd_pp_report_t, critical_path), (16, 8), "critical_path");
    assert_eq!(place!(nxd_pp_report_t, bubble_share), (24, 8), "bubble_share");
    assert_eq!(place!(nxd_pp_report_t, peak_activations), (32, 4), "peak_activations");
    assert_eq!(place!(nxd_pp_report_t, fullest_rank), (36, 4), "fullest_rank");
}

#[test]
fn layout_of_nxd_pp_value_t() {
    assert_eq!((size_of::<nxd_pp_value_t>(), align_of::<nxd_pp_value_t>()), (32, 8));
    assert_eq!(place!(nxd_pp_value_t, name), (0, 8), "name");
    assert_eq!(place!(nxd_pp_value_t, shape), (8, 8), "shape");
    assert_eq!(place!(nxd_pp_value_t, ndim), (16, 4), "ndim");
    assert_eq!(place!(nxd_pp_value_t, dtype), (20, 4), "dtype");
    assert_eq!(place!(nxd_pp_value_t, needs_grad), (24, 4), "needs_grad");
    assert_eq!(place!(nxd_pp_value_t, reserved), (28, 4), "reserved");
}

#[test]
fn layout_of_nxd_pp_call_t() {
    assert_eq!((size_of::<nxd_pp_call_t>(), align_of::<nxd_pp_call_t>()), (24, 8));
    assert_eq!(place!(nxd_pp_call_t, stage), (0, 4), "stage");
    assert_eq!(place!(nxd_pp_call_t, chunk), (4, 4), "chunk");
    assert_eq!(place!(nxd_pp_call_t, microbatch), (8, 4), "microbatch");
    assert_eq!(place!(nxd_pp_call_t, last), (12, 4), "last");
    assert_eq!(place!(nxd_pp_call_t, loss_weight), (16, 8), "loss_weight");
}

#[test]
fn layout_of_nxd_pp_stage_callbacks_t() {
    assert_eq!((size_of::<nxd_pp_stage_callbacks_t>(), align_of::<nxd_pp_stage_callbacks_t>()), (56, 8));
    assert_eq!(place!(nxd_pp_stage_callbacks_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_pp_stage_callbacks_t, user_data), (8, 8), "user_data");
    assert_eq!(place!(nxd_pp_stage_callbacks_t, destroy), (16, 8), "destroy");
    assert_eq!(place!(nxd_pp_stage_callbacks_t, forward), (24, 8), "forward");
    assert_eq!(place!(nxd_pp_stage_callbacks_t, backward), (32, 8), "backward");
    assert_eq!(place!(nxd_pp_stage_callbacks_t, backward_input), (40, 8), "backward_input");
    assert_eq!(place!(nxd_pp_stage_callbacks_t, backward_weight), (48, 8), "backward_weight");
}

#[test]
fn layout_of_nxd_pp_callbacks_options_t() {
    assert_eq!((size_of::<nxd_pp_callbacks_options_t>(), align_of::<nxd_pp_callbacks_options_t>()), (32, 8));
    assert_eq!(place!(nxd_pp_callbacks_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_pp_callbacks_options_t, num_microbatches), (8, 4), "num_microbatches");
    assert_eq!(place!(nxd_pp_callbacks_options_t, virtual_size), (12, 4), "virtual_size");
    assert_eq!(place!(nxd_pp_callbacks_options_t, schedule), (16, 4), "schedule");
    assert_eq!(place!(nxd_pp_callbacks_options_t, broadcast_and_average_loss), (20, 4), "broadcast_and_average_loss");
    assert_eq!(place!(nxd_pp_callbacks_options_t, custom_schedule), (24, 8), "custom_schedule");
}

#[test]
fn layout_of_nxd_plan_model_t() {
    assert_eq!((size_of::<nxd_plan_model_t>(), align_of::<nxd_plan_model_t>()), (112, 8));
    assert_eq!(place!(nxd_plan_model_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_plan_model_t, hidden_size), (8, 8), "hidden_size");
    assert_eq!(place!(nxd_plan_model_t, num_layers), (16, 8), "num_layers");
    assert_eq!(place!(nxd_plan_model_t, num_heads), (24, 8), "num_heads");
    assert_eq!(place!(nxd_plan_model_t, num_kv_heads), (32, 8), "num_kv_heads");
    assert_eq!(place!(nxd_plan_model_t, head_dim), (40, 8), "head_dim");
    assert_eq!(place!(nxd_plan_model_t, intermediate_size), (48, 8), "intermediate_size");
    assert_eq!(place!(nxd_plan_model_t, vocab_size), (56, 8), "vocab_size");
    assert_eq!(place!(nxd_plan_model_t, max_positions), (64, 8), "max_positions");
    assert_eq!(place!(nxd_plan_model_t, gated_mlp), (72, 4), "gated_mlp");
    assert_eq!(place!(nxd_plan_model_t, attention_bias), (76, 4), "attention_bias");
    assert_eq!(place!(nxd_plan_model_t, mlp_bias), (80, 4), "mlp_bias");
    assert_eq!(place!(nxd_plan_model_t, norm_bias), (84, 4), "norm_bias");
    assert_eq!(place!(nxd_plan_model_t, tied_embeddings), (88, 4), "tied_embeddings");
    assert_eq!(place!(nxd_plan_model_t, num_token_types), (92, 4), "num_token_types");
    assert_eq!(place!(nxd_plan_model_t, sliding_window), (96, 8), "sliding_window");
    assert_eq!(place!(nxd_plan_model_t, num_window_layers), (104, 8), "num_window_layers");
}

#[test]
fn layout_of_nxd_plan_machine_t() {
    assert_eq!((size_of::<nxd_plan_machine_t>(), align_of::<nxd_plan_machine_t>()), (96, 8));
    assert_eq!(place!(nxd_plan_machine_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_plan_machine_t, ranks_per_host), (8, 4), "ranks_per_host");
    assert_eq!(place!(nxd_plan_machine_t, reserved), (12, 4), "reserved");
    assert_eq!(place!(nxd_plan_machine_t, memory_bytes), (16, 8), "memory_bytes");
    assert_eq!(place!(nxd_plan_machine_t, gemm_rate_f32), (24, 8), "gemm_rate_f32");
    assert_eq!(place!(nxd_plan_machine_t, gemm_rate_bf16), (32, 8), "gemm_rate_bf16");
    assert_eq!(place!(nxd_plan_machine_t, attention_share_f32), (40, 8), "attention_share_f32");
    assert_eq!(place!(nxd_plan_machine_t, attention_share_bf16), (48, 8), "attention_share_bf16");
    assert_eq!(place!(nxd_plan_machine_t, memory_bandwidth), (56, 8), "memory_bandwidth");
    assert_eq!(place!(nxd_plan_machine_t, host_bandwidth), (64, 8), "host_bandwidth");
    assert_eq!(place!(nxd_plan_machine_t, host_latency), (72, 8), "host_latency");
    assert_eq!(place!(nxd_plan_machine_t, link_bandwidth), (80, 8), "link_bandwidth");
    assert_eq!(place!(nxd_plan_machine_t, link_latency), (88, 8), "link_latency");
}

#[test]
fn layout_of_nxd_plan_layout_t() {
    assert_eq!((size_of::<nxd_plan_layout_t>(), align_of::<nxd_plan_layout_t>()), (64, 8));
    assert_eq!(place!(nxd_plan_layout_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_plan_layout_t, tensor_parallel_size), (8, 4), "tensor_parallel_size");
    assert_eq!(place!(nxd_plan_layout_t, pipeline_parallel_size), (12, 4), "pipeline_parallel_size");
    assert_eq!(place!(nxd_plan_layout_t, data_parallel_size), (16, 4), "data_parallel_size");
    assert_eq!(place!(nxd_plan_layout_t, virtual_size), (20, 4), "virtual_size");
    assert_eq!(place!(nxd_plan_layout_t, schedule), (24, 4), "schedule");
    assert_eq!(place!(nxd_plan_layout_t, num_microbatches), (28, 4), "num_microbatches");
    assert_eq!(place!(nxd_plan_layout_t, microbatch_size), (32, 4), "microbatch_size");
    assert_eq!(place!(nxd_plan_layout_t, sequence_length), (36, 4), "sequence_length");
    assert_eq!(place!(nxd_plan_layout_t, dtype), (40, 4), "dtype");
    assert_eq!(place!(nxd_plan_layout_t, zero_stage), (44, 4), "zero_stage");
    assert_eq!(place!(nxd_plan_layout_t, sequence_parallel), (48, 4), "sequence_parallel");
    assert_eq!(place!(nxd_plan_layout_t, recompute), (52, 4), "recompute");
    assert_eq!(place!(nxd_plan_layout_t, partition), (56, 4), "partition");
    assert_eq!(place!(nxd_plan_layout_t, reserved), (60, 4), "reserved");
}

#[test]
fn layout_of_nxd_plan_prediction_t() {
    assert_eq!((size_of::<nxd_plan_prediction_t>(), align_of::<nxd_plan_prediction_t>()), (176, 8));
    assert_eq!(place!(nxd_plan_prediction_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_plan_prediction_t, step_seconds), (8, 8), "step_seconds");
    assert_eq!(place!(nxd_plan_prediction_t, tokens_per_second), (16, 8), "tokens_per_second");
    assert_eq!(place!(nxd_plan_prediction_t, gemm_share), (24, 8), "gemm_share");
    assert_eq!(place!(nxd_plan_prediction_t, bubble_share), (32, 8), "bubble_share");
    assert_eq!(place!(nxd_plan_prediction_t, pipeline_seconds), (40, 8), "pipeline_seconds");
    assert_eq!(place!(nxd_plan_prediction_t, busiest_rank), (48, 4), "busiest_rank");
    assert_eq!(place!(nxd_plan_prediction_t, fits), (52, 4), "fits");
    assert_eq!(place!(nxd_plan_prediction_t, gemm_seconds), (56, 8), "gemm_seconds");
    assert_eq!(place!(nxd_plan_prediction_t, attention_seconds), (64, 8), "attention_seconds");
    assert_eq!(place!(nxd_plan_prediction_t, elementwise_seconds), (72, 8), "elementwise_seconds");
    assert_eq!(place!(nxd_plan_prediction_t, tensor_parallel_seconds), (80, 8), "tensor_parallel_seconds");
    assert_eq!(place!(nxd_plan_prediction_t, transfer_seconds), (88, 8), "transfer_seconds");
    assert_eq!(place!(nxd_plan_prediction_t, data_parallel_seconds), (96, 8), "data_parallel_seconds");
    assert_eq!(place!(nxd_plan_prediction_t, exposed_seconds), (104, 8), "exposed_seconds");
    assert_eq!(place!(nxd_plan_prediction_t, optimizer_seconds), (112, 8), "optimizer_seconds");
    assert_eq!(place!(nxd_plan_prediction_t, fullest_rank), (120, 4), "fullest_rank");
    assert_eq!(place!(nxd_plan_prediction_t, reserved), (124, 4), "reserved");
    assert_eq!(place!(nxd_plan_prediction_t, parameter_bytes), (128, 8), "parameter_bytes");
    assert_eq!(place!(nxd_plan_prediction_t, grad_bytes), (136, 8), "grad_bytes");
    assert_eq!(place!(nxd_plan_prediction_t, optimizer_bytes), (144, 8), "optimizer_bytes");
    assert_eq!(place!(nxd_plan_prediction_t, activation_bytes), (152, 8), "activation_bytes");
    assert_eq!(place!(nxd_plan_prediction_t, buffer_bytes), (160, 8), "buffer_bytes");
    assert_eq!(place!(nxd_plan_prediction_t, total_bytes), (168, 8), "total_bytes");
}

#[test]
fn layout_of_nxd_plan_search_options_t() {
    assert_eq!((size_of::<nxd_plan_search_options_t>(), align_of::<nxd_plan_search_options_t>()), (32, 8));
    assert_eq!(place!(nxd_plan_search_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_plan_search_options_t, world_size), (8, 4), "world_size");
    assert_eq!(place!(nxd_plan_search_options_t, sequence_length), (12, 4), "sequence_length");
    assert_eq!(place!(nxd_plan_search_options_t, batch_size), (16, 8), "batch_size");
    assert_eq!(place!(nxd_plan_search_options_t, dtype), (24, 4), "dtype");
    assert_eq!(place!(nxd_plan_search_options_t, max_virtual_size), (28, 4), "max_virtual_size");
}

#[test]
fn layout_of_nxd_function_options_t() {
    assert_eq!((size_of::<nxd_function_options_t>(), align_of::<nxd_function_options_t>()), (64, 8));
    assert_eq!(place!(nxd_function_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_function_options_t, name), (8, 8), "name");
    assert_eq!(place!(nxd_function_options_t, num_outputs), (16, 8), "num_outputs");
    assert_eq!(place!(nxd_function_options_t, forward), (24, 8), "forward");
    assert_eq!(place!(nxd_function_options_t, backward), (32, 8), "backward");
    assert_eq!(place!(nxd_function_options_t, shape), (40, 8), "shape");
    assert_eq!(place!(nxd_function_options_t, user_data), (48, 8), "user_data");
    assert_eq!(place!(nxd_function_options_t, destroy), (56, 8), "destroy");
}

#[test]
fn layout_of_nxd_device_loader_options_t() {
    assert_eq!((size_of::<nxd_device_loader_options_t>(), align_of::<nxd_device_loader_options_t>()), (16, 8));
    assert_eq!(place!(nxd_device_loader_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_device_loader_options_t, batches_per_execution), (8, 4), "batches_per_execution");
    assert_eq!(place!(nxd_device_loader_options_t, prefetch), (12, 4), "prefetch");
}

#[test]
fn layout_of_nxd_device_metrics_t() {
    assert_eq!((size_of::<nxd_device_metrics_t>(), align_of::<nxd_device_metrics_t>()), (128, 8));
    assert_eq!(place!(nxd_device_metrics_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_device_metrics_t, recorded), (8, 8), "recorded");
    assert_eq!(place!(nxd_device_metrics_t, steps), (16, 8), "steps");
    assert_eq!(place!(nxd_device_metrics_t, graphs), (24, 8), "graphs");
    assert_eq!(place!(nxd_device_metrics_t, compiles), (32, 8), "compiles");
    assert_eq!(place!(nxd_device_metrics_t, cache_hits), (40, 8), "cache_hits");
    assert_eq!(place!(nxd_device_metrics_t, executions), (48, 8), "executions");
    assert_eq!(place!(nxd_device_metrics_t, implicit_syncs), (56, 8), "implicit_syncs");
    assert_eq!(place!(nxd_device_metrics_t, fallbacks), (64, 8), "fallbacks");
    assert_eq!(place!(nxd_device_metrics_t, compile_seconds), (72, 8), "compile_seconds");
    assert_eq!(place!(nxd_device_metrics_t, execute_seconds), (80, 8), "execute_seconds");
    assert_eq!(place!(nxd_device_metrics_t, loads), (88, 8), "loads");
    assert_eq!(place!(nxd_device_metrics_t, load_seconds), (96, 8), "load_seconds");
    assert_eq!(place!(nxd_device_metrics_t, argument_bytes), (104, 8), "argument_bytes");
    assert_eq!(place!(nxd_device_metrics_t, result_bytes), (112, 8), "result_bytes");
    assert_eq!(place!(nxd_device_metrics_t, copied_bytes), (120, 8), "copied_bytes");
}

#[test]
fn layout_of_nxd_cross_entropy_options_t() {
    assert_eq!((size_of::<nxd_cross_entropy_options_t>(), align_of::<nxd_cross_entropy_options_t>()), (40, 8));
    assert_eq!(place!(nxd_cross_entropy_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_cross_entropy_options_t, label_smoothing), (8, 8), "label_smoothing");
    assert_eq!(place!(nxd_cross_entropy_options_t, smoothing), (16, 4), "smoothing");
    assert_eq!(place!(nxd_cross_entropy_options_t, reduction), (20, 4), "reduction");
    assert_eq!(place!(nxd_cross_entropy_options_t, has_ignore_index), (24, 4), "has_ignore_index");
    assert_eq!(place!(nxd_cross_entropy_options_t, reserved), (28, 4), "reserved");
    assert_eq!(place!(nxd_cross_entropy_options_t, ignore_index), (32, 8), "ignore_index");
}

#[test]
fn layout_of_nxd_parameter_options_t() {
    assert_eq!((size_of::<nxd_parameter_options_t>(), align_of::<nxd_parameter_options_t>()), (48, 8));
    assert_eq!(place!(nxd_parameter_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_parameter_options_t, dtype), (8, 4), "dtype");
    assert_eq!(place!(nxd_parameter_options_t, has_shard_dim), (12, 4), "has_shard_dim");
    assert_eq!(place!(nxd_parameter_options_t, sequence_parallel), (16, 4), "sequence_parallel");
    assert_eq!(place!(nxd_parameter_options_t, init), (20, 4), "init");
    assert_eq!(place!(nxd_parameter_options_t, init_a), (24, 8), "init_a");
    assert_eq!(place!(nxd_parameter_options_t, init_b), (32, 8), "init_b");
    assert_eq!(place!(nxd_parameter_options_t, device), (40, 4), "device");
    assert_eq!(place!(nxd_parameter_options_t, shard_dim), (44, 4), "shard_dim");
}

#[test]
fn layout_of_nxd_embedding_options_t() {
    assert_eq!((size_of::<nxd_embedding_options_t>(), align_of::<nxd_embedding_options_t>()), (72, 8));
    assert_eq!(place!(nxd_embedding_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_embedding_options_t, name), (8, 8), "name");
    assert_eq!(place!(nxd_embedding_options_t, dtype), (16, 4), "dtype");
    assert_eq!(place!(nxd_embedding_options_t, device), (20, 4), "device");
    assert_eq!(place!(nxd_embedding_options_t, init), (24, 4), "init");
    assert_eq!(place!(nxd_embedding_options_t, has_padding_idx), (28, 4), "has_padding_idx");
    assert_eq!(place!(nxd_embedding_options_t, init_a), (32, 8), "init_a");
    assert_eq!(place!(nxd_embedding_options_t, init_b), (40, 8), "init_b");
    assert_eq!(place!(nxd_embedding_options_t, padding_idx), (48, 8), "padding_idx");
    assert_eq!(place!(nxd_embedding_options_t, shard_across_embedding), (56, 4), "shard_across_embedding");
    assert_eq!(place!(nxd_embedding_options_t, sequence_parallel), (60, 4), "sequence_parallel");
    assert_eq!(place!(nxd_embedding_options_t, sequence_dim), (64, 4), "sequence_dim");
    assert_eq!(place!(nxd_embedding_options_t, reserved), (68, 4), "reserved");
}

#[test]
fn layout_of_nxd_linear_options_t() {
    assert_eq!((size_of::<nxd_linear_options_t>(), align_of::<nxd_linear_options_t>()), (88, 8));
    assert_eq!(place!(nxd_linear_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_linear_options_t, name), (8, 8), "name");
    assert_eq!(place!(nxd_linear_options_t, dtype), (16, 4), "dtype");
    assert_eq!(place!(nxd_linear_options_t, device), (20, 4), "device");
    assert_eq!(place!(nxd_linear_options_t, bias), (24, 4), "bias");
    assert_eq!(place!(nxd_linear_options_t, gather_output), (28, 4), "gather_output");
    assert_eq!(place!(nxd_linear_options_t, reduce_output), (32, 4), "reduce_output");
    assert_eq!(place!(nxd_linear_options_t, input_is_parallel), (36, 4), "input_is_parallel");
    assert_eq!(place!(nxd_linear_options_t, sequence_parallel), (40, 4), "sequence_parallel");
    assert_eq!(place!(nxd_linear_options_t, sequence_dim), (44, 4), "sequence_dim");
    assert_eq!(place!(nxd_linear_options_t, skip_bias_add), (48, 4), "skip_bias_add");
    assert_eq!(place!(nxd_linear_options_t, keep_master_weight), (52, 4), "keep_master_weight");
    assert_eq!(place!(nxd_linear_options_t, stride), (56, 4), "stride");
    assert_eq!(place!(nxd_linear_options_t, init), (60, 4), "init");
    assert_eq!(place!(nxd_linear_options_t, init_a), (64, 8), "init_a");
    assert_eq!(place!(nxd_linear_options_t, init_b), (72, 8), "init_b");
    assert_eq!(place!(nxd_linear_options_t, pad), (80, 4), "pad");
    assert_eq!(place!(nxd_linear_options_t, reserved), (84, 4), "reserved");
}

#[test]
fn layout_of_nxd_norm_options_t() {
    assert_eq!((size_of::<nxd_norm_options_t>(), align_of::<nxd_norm_options_t>()), (48, 8));
    assert_eq!(place!(nxd_norm_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_norm_options_t, name), (8, 8), "name");
    assert_eq!(place!(nxd_norm_options_t, dtype), (16, 4), "dtype");
    assert_eq!(place!(nxd_norm_options_t, device), (20, 4), "device");
    assert_eq!(place!(nxd_norm_options_t, eps), (24, 8), "eps");
    assert_eq!(place!(nxd_norm_options_t, affine), (32, 4), "affine");
    assert_eq!(place!(nxd_norm_options_t, bias), (36, 4), "bias");
    assert_eq!(place!(nxd_norm_options_t, sequence_parallel), (40, 4), "sequence_parallel");
    assert_eq!(place!(nxd_norm_options_t, reserved), (44, 4), "reserved");
}

#[test]
fn layout_of_nxd_rope_options_t() {
    assert_eq!((size_of::<nxd_rope_options_t>(), align_of::<nxd_rope_options_t>()), (80, 8));
    assert_eq!(place!(nxd_rope_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_rope_options_t, r#type), (8, 4), "type");
    assert_eq!(place!(nxd_rope_options_t, rotary_dim), (12, 4), "rotary_dim");
    assert_eq!(place!(nxd_rope_options_t, theta), (16, 8), "theta");
    assert_eq!(place!(nxd_rope_options_t, factor), (24, 8), "factor");
    assert_eq!(place!(nxd_rope_options_t, low_freq_factor), (32, 8), "low_freq_factor");
    assert_eq!(place!(nxd_rope_options_t, high_freq_factor), (40, 8), "high_freq_factor");
    assert_eq!(place!(nxd_rope_options_t, beta_fast), (48, 8), "beta_fast");
    assert_eq!(place!(nxd_rope_options_t, beta_slow), (56, 8), "beta_slow");
    assert_eq!(place!(nxd_rope_options_t, attention_factor), (64, 8), "attention_factor");
    assert_eq!(place!(nxd_rope_options_t, original_max_position_embeddings), (72, 8), "original_max_position_embeddings");
}

#[test]
fn layout_of_nxd_attention_options_t() {
    assert_eq!((size_of::<nxd_attention_options_t>(), align_of::<nxd_attention_options_t>()), (88, 8));
    assert_eq!(place!(nxd_attention_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_attention_options_t, name), (8, 8), "name");
    assert_eq!(place!(nxd_attention_options_t, dtype), (16, 4), "dtype");
    assert_eq!(place!(nxd_attention_options_t, device), (20, 4), "device");
    assert_eq!(place!(nxd_attention_options_t, num_kv_heads), (24, 8), "num_kv_heads");
    assert_eq!(place!(nxd_attention_options_t, head_dim), (32, 8), "head_dim");
    assert_eq!(place!(nxd_attention_options_t, rope), (40, 8), "rope");
    assert_eq!(place!(nxd_attention_options_t, causal), (48, 4), "causal");
    assert_eq!(place!(nxd_attention_options_t, qkv_bias), (52, 4), "qkv_bias");
    assert_eq!(place!(nxd_attention_options_t, output_bias), (56, 4), "output_bias");
    assert_eq!(place!(nxd_attention_options_t, sequence_parallel), (60, 4), "sequence_parallel");
    assert_eq!(place!(nxd_attention_options_t, init), (64, 4), "init");
    assert_eq!(place!(nxd_attention_options_t, reserved), (68, 4), "reserved");
    assert_eq!(place!(nxd_attention_options_t, init_a), (72, 8), "init_a");
    assert_eq!(place!(nxd_attention_options_t, init_b), (80, 8), "init_b");
}

#[test]
fn layout_of_nxd_qkv_options_t() {
    assert_eq!((size_of::<nxd_qkv_options_t>(), align_of::<nxd_qkv_options_t>()), (72, 8));
    assert_eq!(place!(nxd_qkv_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_qkv_options_t, name), (8, 8), "name");
    assert_eq!(place!(nxd_qkv_options_t, dtype), (16, 4), "dtype");
    assert_eq!(place!(nxd_qkv_options_t, device), (20, 4), "device");
    assert_eq!(place!(nxd_qkv_options_t, num_kv_heads), (24, 8), "num_kv_heads");
    assert_eq!(place!(nxd_qkv_options_t, head_dim), (32, 8), "head_dim");
    assert_eq!(place!(nxd_qkv_options_t, fusion), (40, 4), "fusion");
    assert_eq!(place!(nxd_qkv_options_t, bias), (44, 4), "bias");
    assert_eq!(place!(nxd_qkv_options_t, sequence_parallel), (48, 4), "sequence_parallel");
    assert_eq!(place!(nxd_qkv_options_t, init), (52, 4), "init");
    assert_eq!(place!(nxd_qkv_options_t, init_a), (56, 8), "init_a");
    assert_eq!(place!(nxd_qkv_options_t, init_b), (64, 8), "init_b");
}

#[test]
fn layout_of_nxd_mlp_options_t() {
    assert_eq!((size_of::<nxd_mlp_options_t>(), align_of::<nxd_mlp_options_t>()), (56, 8));
    assert_eq!(place!(nxd_mlp_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_mlp_options_t, name), (8, 8), "name");
    assert_eq!(place!(nxd_mlp_options_t, dtype), (16, 4), "dtype");
    assert_eq!(place!(nxd_mlp_options_t, device), (20, 4), "device");
    assert_eq!(place!(nxd_mlp_options_t, activation), (24, 4), "activation");
    assert_eq!(place!(nxd_mlp_options_t, bias), (28, 4), "bias");
    assert_eq!(place!(nxd_mlp_options_t, sequence_parallel), (32, 4), "sequence_parallel");
    assert_eq!(place!(nxd_mlp_options_t, init), (36, 4), "init");
    assert_eq!(place!(nxd_mlp_options_t, init_a), (40, 8), "init_a");
    assert_eq!(place!(nxd_mlp_options_t, init_b), (48, 8), "init_b");
}

#[test]
fn layout_of_nxd_model_options_t() {
    assert_eq!((size_of::<nxd_model_options_t>(), align_of::<nxd_model_options_t>()), (24, 8));
    assert_eq!(place!(nxd_model_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_model_options_t, dtype), (8, 4), "dtype");
    assert_eq!(place!(nxd_model_options_t, device), (12, 4), "device");
    assert_eq!(place!(nxd_model_options_t, sequence_parallel), (16, 4), "sequence_parallel");
    assert_eq!(place!(nxd_model_options_t, reserved), (20, 4), "reserved");
}

#[test]
fn layout_of_nxd_pp_options_t() {
    assert_eq!((size_of::<nxd_pp_options_t>(), align_of::<nxd_pp_options_t>()), (184, 8));
    assert_eq!(place!(nxd_pp_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_pp_options_t, num_microbatches), (8, 4), "num_microbatches");
    assert_eq!(place!(nxd_pp_options_t, virtual_size), (12, 4), "virtual_size");
    assert_eq!(place!(nxd_pp_options_t, schedule), (16, 4), "schedule");
    assert_eq!(place!(nxd_pp_options_t, partition), (20, 4), "partition");
    assert_eq!(place!(nxd_pp_options_t, custom_schedule), (24, 8), "custom_schedule");
    assert_eq!(place!(nxd_pp_options_t, transformer_layer_class), (32, 8), "transformer_layer_class");
    assert_eq!(place!(nxd_pp_options_t, pipeline_cuts), (40, 8), "pipeline_cuts");
    assert_eq!(place!(nxd_pp_options_t, num_cuts), (48, 8), "num_cuts");
    assert_eq!(place!(nxd_pp_options_t, leaf_modules), (56, 8), "leaf_modules");
    assert_eq!(place!(nxd_pp_options_t, num_leaf_modules), (64, 8), "num_leaf_modules");
    assert_eq!(place!(nxd_pp_options_t, input_names), (72, 8), "input_names");
    assert_eq!(place!(nxd_pp_options_t, num_input_names), (80, 8), "num_input_names");
    assert_eq!(place!(nxd_pp_options_t, num_outputs), (88, 4), "num_outputs");
    assert_eq!(place!(nxd_pp_options_t, loss_output), (92, 4), "loss_output");
    assert_eq!(place!(nxd_pp_options_t, loss), (96, 4), "loss");
    assert_eq!(place!(nxd_pp_options_t, has_labels_input), (100, 4), "has_labels_input");
    assert_eq!(place!(nxd_pp_options_t, labels_input), (104, 4), "labels_input");
    assert_eq!(place!(nxd_pp_options_t, has_ignore_index), (108, 4), "has_ignore_index");
    assert_eq!(place!(nxd_pp_options_t, ignore_index), (112, 8), "ignore_index");
    assert_eq!(place!(nxd_pp_options_t, labels_shifted), (120, 4), "labels_shifted");
    assert_eq!(place!(nxd_pp_options_t, broadcast_and_average_loss), (124, 4), "broadcast_and_average_loss");
    assert_eq!(place!(nxd_pp_options_t, return_mb_loss), (128, 4), "return_mb_loss");
    assert_eq!(place!(nxd_pp_options_t, keep_outputs), (132, 4), "keep_outputs");
    assert_eq!(place!(nxd_pp_options_t, param_init), (136, 8), "param_init");
    assert_eq!(place!(nxd_pp_options_t, param_init_data), (144, 8), "param_init_data");
    assert_eq!(place!(nxd_pp_options_t, trace_file_path), (152, 8), "trace_file_path");
    assert_eq!(place!(nxd_pp_options_t, leaf_rule), (160, 8), "leaf_rule");
    assert_eq!(place!(nxd_pp_options_t, leaf_rule_data), (168, 8), "leaf_rule_data");
    assert_eq!(place!(nxd_pp_options_t, loss_path), (176, 8), "loss_path");
}

#[test]
fn layout_of_nxd_save_options_t() {
    assert_eq!((size_of::<nxd_save_options_t>(), align_of::<nxd_save_options_t>()), (40, 8));
    assert_eq!(place!(nxd_save_options_t, struct_size), (0, 8), "struct_size");
    assert_eq!(place!(nxd_save_options_t, master_only), (8, 4), "master_only");
    assert_eq!(place!(nxd_save_options_t, each_host), (12, 4), "each_host");
    assert_eq!(place!(nxd_save_options_t, keys), (16, 8), "keys");
    assert_eq!(place!(nxd_save_options_t, values), (24, 8), "values");
    assert_eq!(place!(nxd_save_options_t, num_values), (32, 8), "num_values");
}

#[test]
fn constants() {
    assert_eq!(i64::from(NXD_ABI_VERSION), 0);
    assert_eq!(i64::from(NXD_VERSION_MAJOR), 0);
    assert_eq!(i64::from(NXD_VERSION_MINOR), 1);
    assert_eq!(i64::from(NXD_VERSION_PATCH), 0);
    assert_eq!(nxd_status_t::OK.0, 0);
    assert_eq!(nxd_status_t::INVALID_ARGUMENT.0, -1);
    assert_eq!(nxd_status_t::INVALID_STATE.0, -2);
    assert_eq!(nxd_status_t::UNSUPPORTED.0, -3);
    assert_eq!(nxd_status_t::OUT_OF_MEMORY.0, -4);
    assert_eq!(nxd_status_t::TIMEOUT.0, -5);
    assert_eq!(nxd_status_t::PEER_LOST.0, -6);
    assert_eq!(nxd_status_t::ABORTED.0, -7);
    assert_eq!(nxd_status_t::IO.0, -8);
    assert_eq!(nxd_status_t::CORRUPT.0, -9);
    assert_eq!(nxd_status_t::INTERNAL.0, -10);
    assert_eq!(nxd_status_t::ABI_MISMATCH.0, -11);
    assert_eq!(nxd_status_t::USER.0, -12);
    assert_eq!(nxd_dtype_t::INVALID.0, -1);
    assert_eq!(nxd_dtype_t::F32.0, 0);
    assert_eq!(nxd_dtype_t::F64.0, 1);
    assert_eq!(nxd_dtype_t::BF16.0, 2);
    assert_eq!(nxd_dtype_t::F16.0, 3);
    assert_eq!(nxd_dtype_t::I32.0, 4);
    assert_eq!(nxd_dtype_t::I64.0, 5);
    assert_eq!(nxd_dtype_t::U8.0, 6);
    assert_eq!(nxd_dtype_t::I8.0, 7);
    assert_eq!(nxd_dtype_t::I16.0, 8);
    assert_eq!(nxd_dtype_t::BOOL.0, 9);
    assert_eq!(nxd_toggle_t::INVALID.0, -1);
    assert_eq!(nxd_toggle_t::DEFAULT.0, 0);
    assert_eq!(nxd_toggle_t::ON.0, 1);
    assert_eq!(nxd_toggle_t::OFF.0, 2);
    assert_eq!(nxd_parameter_state_t::INVALID.0, -1);
    assert_eq!(nxd_parameter_state_t::NONE.0, 0);
    assert_eq!(nxd_parameter_state_t::OLD.0, 1);
    assert_eq!(nxd_parameter_state_t::NEW.0, 2);
    assert_eq!(nxd_parameter_state_t::PARTIAL.0, 3);
    assert_eq!(nxd_log_level_t::INVALID.0, -1);
    assert_eq!(nxd_log_level_t::DEBUG.0, 0);
    assert_eq!(nxd_log_level_t::INFO.0, 1);
    assert_eq!(nxd_log_level_t::WARN.0, 2);
    assert_eq!(nxd_log_level_t::ERROR.0, 3);
    assert_eq!(nxd_log_level_t::OFF.0, 4);
    assert_eq!(nxd_device_t::INVALID.0, -1);
    assert_eq!(nxd_device_t::CPU.0, 0);
    assert_eq!(nxd_device_t::NEURON.0, 1);
    assert_eq!(nxd_device_t::META.0, 2);
    assert_eq!(nxd_device_t::XLA.0, 3);
    assert_eq!(nxd_rendezvous_t::INVALID.0, -1);
    assert_eq!(nxd_rendezvous_t::ENVIRONMENT.0, 0);
    assert_eq!(nxd_rendezvous_t::STORE.0, 1);
    assert_eq!(nxd_transport_t::INVALID.0, -1);
    assert_eq!(nxd_transport_t::AUTO.0, 0);
    assert_eq!(nxd_transport_t::GLOO.0, 1);
    assert_eq!(nxd_transport_t::SHARED_MEMORY.0, 2);
    assert_eq!(nxd_transport_t::HIERARCHICAL.0, 3);
    assert_eq!(nxd_axis_t::INVALID.0, -1);
    assert_eq!(nxd_axis_t::WORLD.0, 0);
    assert_eq!(nxd_axis_t::TENSOR.0, 1);
    assert_eq!(nxd_axis_t::PIPELINE.0, 2);
    assert_eq!(nxd_axis_t::DATA.0, 3);
    assert_eq!(nxd_axis_t::CONTEXT.0, 4);
    assert_eq!(nxd_axis_t::EXPERT_MODEL.0, 5);
    assert_eq!(nxd_axis_t::EXPERT_DATA.0, 6);
    assert_eq!(nxd_platform_t::INVALID.0, -1);
    assert_eq!(nxd_platform_t::NEUTRAL.0, 0);
    assert_eq!(nxd_platform_t::TRN1.0, 1);
    assert_eq!(nxd_platform_t::TRN2.0, 2);
    assert_eq!(nxd_reduction_t::INVALID.0, -1);
    assert_eq!(nxd_reduction_t::MEAN.0, 0);
    assert_eq!(nxd_reduction_t::SUM.0, 1);
    assert_eq!(nxd_reduction_t::NONE.0, 2);
    assert_eq!(nxd_smoothing_t::INVALID.0, -1);
    assert_eq!(nxd_smoothing_t::TORCH.0, 0);
    assert_eq!(nxd_smoothing_t::MEGATRON.0, 1);
    assert_eq!(nxd_region_mapping_t::INVALID.0, -1);
    assert_eq!(nxd_region_mapping_t::COPY_TO.0, 0);
    assert_eq!(nxd_region_mapping_t::REDUCE_FROM.0, 1);
    assert_eq!(nxd_region_mapping_t::SCATTER_TO.0, 2);
    assert_eq!(nxd_region_mapping_t::GATHER_FROM.0, 3);
    assert_eq!(nxd_region_mapping_t::GATHER_FOR_SHARDS.0, 4);
    assert_eq!(nxd_region_mapping_t::REDUCE_SCATTER_TO.0, 5);
    assert_eq!(nxd_token_format_t::INVALID.0, -1);
    assert_eq!(nxd_token_format_t::DEFAULT.0, 0);
    assert_eq!(nxd_token_format_t::UINT16.0, 1);
    assert_eq!(nxd_token_format_t::UINT32.0, 2);
    assert_eq!(nxd_token_format_t::BYTES.0, 3);
    assert_eq!(nxd_reduce_t::INVALID.0, -1);
    assert_eq!(nxd_reduce_t::SUM.0, 0);
    assert_eq!(nxd_reduce_t::AVG.0, 1);
    assert_eq!(nxd_reduce_t::MAX.0, 2);
    assert_eq!(nxd_reduce_t::MIN.0, 3);
    assert_eq!(nxd_reduce_t::PROD.0, 4);
    assert_eq!(nxd_init_t::INVALID.0, -1);
    assert_eq!(nxd_init_t::DEFAULT.0, 0);
    assert_eq!(nxd_init_t::NORMAL.0, 1);
    assert_eq!(nxd_init_t::UNIFORM.0, 2);
    assert_eq!(nxd_init_t::CONSTANT.0, 3);
    assert_eq!(nxd_init_t::KAIMING_UNIFORM.0, 4);
    assert_eq!(nxd_placement_t::INVALID.0, -1);
    assert_eq!(nxd_placement_t::SHARDED.0, 0);
    assert_eq!(nxd_placement_t::REPLICATED.0, 1);
    assert_eq!(nxd_placement_t::PARTIAL_GRAD.0, 2);
    assert_eq!(nxd_phase_t::INVALID.0, -1);
    assert_eq!(nxd_phase_t::GEMM_FORWARD.0, 0);
    assert_eq!(nxd_phase_t::GEMM_INPUT_GRAD.0, 1);
    assert_eq!(nxd_phase_t::GEMM_WEIGHT_GRAD.0, 2);
    assert_eq!(nxd_phase_t::ATTENTION.0, 3);
    assert_eq!(nxd_phase_t::CROSS_ENTROPY.0, 4);
    assert_eq!(nxd_phase_t::ELEMENTWISE.0, 5);
    assert_eq!(nxd_phase_t::OPTIMIZER.0, 6);
    assert_eq!(nxd_phase_t::COMMUNICATION.0, 7);
    assert_eq!(nxd_lr_schedule_t::INVALID.0, -1);
    assert_eq!(nxd_lr_schedule_t::CONSTANT.0, 0);
    assert_eq!(nxd_lr_schedule_t::LINEAR.0, 1);
    assert_eq!(nxd_lr_schedule_t::COSINE.0, 2);
    assert_eq!(nxd_bf16_update_t::INVALID.0, -1);
    assert_eq!(nxd_bf16_update_t::MASTER.0, 0);
    assert_eq!(nxd_bf16_update_t::STOCHASTIC.0, 1);
    assert_eq!(nxd_bf16_update_t::NEAREST.0, 2);
    assert_eq!(nxd_adamw_formula_t::INVALID.0, -1);
    assert_eq!(nxd_adamw_formula_t::TORCH.0, 0);
    assert_eq!(nxd_adamw_formula_t::NXD.0, 1);
    assert_eq!(nxd_hyperparameter_t::INVALID.0, -1);
    assert_eq!(nxd_hyperparameter_t::LEARNING_RATE.0, 0);
    assert_eq!(nxd_hyperparameter_t::WEIGHT_DECAY.0, 1);
    assert_eq!(nxd_hyperparameter_t::BETA1.0, 2);
    assert_eq!(nxd_hyperparameter_t::BETA2.0, 3);
    assert_eq!(nxd_hyperparameter_t::EPS.0, 4);
    assert_eq!(nxd_hyperparameter_t::MOMENTUM.0, 5);
    assert_eq!(nxd_hyperparameter_t::DAMPENING.0, 6);
    assert_eq!(nxd_pp_schedule_kind_t::INVALID.0, -1);
    assert_eq!(nxd_pp_schedule_kind_t::DEFAULT.0, 0);
    assert_eq!(nxd_pp_schedule_kind_t::_1F1B.0, 1);
    assert_eq!(nxd_pp_schedule_kind_t::INTERLEAVED.0, 2);
    assert_eq!(nxd_pp_schedule_kind_t::GPIPE.0, 3);
    assert_eq!(nxd_pp_schedule_kind_t::ZERO_BUBBLE.0, 4);
    assert_eq!(nxd_pp_schedule_kind_t::INFERENCE.0, 5);
    assert_eq!(nxd_pp_task_kind_t::INVALID.0, -1);
    assert_eq!(nxd_pp_task_kind_t::FORWARD.0, 0);
    assert_eq!(nxd_pp_task_kind_t::BACKWARD.0, 1);
    assert_eq!(nxd_pp_task_kind_t::INPUT_GRAD.0, 2);
    assert_eq!(nxd_pp_task_kind_t::WEIGHT_GRAD.0, 3);
    assert_eq!(nxd_pp_loss_t::INVALID.0, -1);
    assert_eq!(nxd_pp_loss_t::DEFAULT.0, 0);
    assert_eq!(nxd_pp_loss_t::MICROBATCHES.0, 1);
    assert_eq!(nxd_pp_loss_t::TOKENS.0, 2);
    assert_eq!(nxd_pp_partition_t::INVALID.0, -1);
    assert_eq!(nxd_pp_partition_t::DEFAULT.0, 0);
    assert_eq!(nxd_pp_partition_t::EVEN.0, 1);
    assert_eq!(nxd_pp_partition_t::COST.0, 2);
    assert_eq!(nxd_graph_format_t::INVALID.0, -1);
    assert_eq!(nxd_graph_format_t::TEXT.0, 0);
    assert_eq!(nxd_graph_format_t::DOT.0, 1);
    assert_eq!(nxd_graph_format_t::STABLEHLO.0, 2);
    assert_eq!(nxd_mismatch_t::INVALID.0, -1);
    assert_eq!(nxd_mismatch_t::MISSING.0, 0);
    assert_eq!(nxd_mismatch_t::UNEXPECTED.0, 1);
    assert_eq!(nxd_mismatch_t::SHAPE.0, 2);
    assert_eq!(nxd_rope_t::INVALID.0, -1);
    assert_eq!(nxd_rope_t::DEFAULT.0, 0);
    assert_eq!(nxd_rope_t::LINEAR.0, 1);
    assert_eq!(nxd_rope_t::DYNAMIC.0, 2);
    assert_eq!(nxd_rope_t::YARN.0, 3);
    assert_eq!(nxd_rope_t::LLAMA3.0, 4);
    assert_eq!(nxd_qkv_fusion_t::INVALID.0, -1);
    assert_eq!(nxd_qkv_fusion_t::SEPARATE.0, 0);
    assert_eq!(nxd_qkv_fusion_t::BY_PART.0, 1);
    assert_eq!(nxd_qkv_fusion_t::BY_HEAD.0, 2);
    assert_eq!(nxd_activation_t::INVALID.0, -1);
    assert_eq!(nxd_activation_t::SILU.0, 0);
    assert_eq!(nxd_activation_t::GELU.0, 1);
    assert_eq!(nxd_activation_t::GELU_TANH.0, 2);
    assert_eq!(nxd_activation_t::RELU.0, 3);
}
