"""The cases of tests/cases: what a report states about each before backward, without a recorder."""

import importlib.util
import pathlib
import re
import warnings

import pytest

import torchgraphdbg

CASES = {p.stem: p for p in sorted((pathlib.Path(__file__).resolve().parents[1] / "cases").glob("*.py"))}
ACCEPTED = {  # kind of case -> finding kinds that state its fault
    "inplace": {"modified-in-place", "silently-modified", "in-place-refused"},
    "double_backward": {"graph-freed", "not-differentiable"},
    "no_grad_fn": {"no-grad-fn"},
    "unreachable_param": {"unreached-parameter", "no-grad-fn"},
    "vanishing": {"vanishing-gradient", "zero-gradient", "gradient-underflow"},
    "dead_relu": {"zero-gradient"},
    "exploding": {"exploding-gradient", "inf-gradient", "nan-gradient"},
    "nan": {"nan-gradient", "inf-gradient", "nan-forward", "inf-forward"},
    "freed_storage": {"storage-freed", "storage-changed"},
    "custom_function": {"custom-function", "modified-in-place", "silently-modified", "gradient-modified"},
    "leak": {"retained-graph"},
    "slow": {"slow-node"},
}


def bare(name):
    return (name or "").split("::")[-1].split(".")[0]


def build(name):
    spec = importlib.util.spec_from_file_location(name, CASES[name])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return module.build()


def facets_of(name):
    """{fact: is it stated?}; "fault found" is the first, the others say more about it."""
    case = build(name)
    expect = case["expect"]
    report = torchgraphdbg.inspect(case["loss"], params=case.get("params"))
    loud = [f for f in report.findings if f.severity in ("error", "warning")]
    kind = expect["kind"]
    if kind == "healthy":
        return {"no false alarm": not loud}
    hits = [f for f in loud if f.kind in ACCEPTED[kind]]
    facets = {
        "fault found": bool(hits),
        "no unrelated error": not [
            f
            for f in loud
            if f.severity == "error" and f.kind not in ACCEPTED[kind] and f.kind != "unreached-parameter"
        ],
    }
    forward = expect.get("stage") == "forward"
    node = (
        expect.get("nonfinite_at")
        or expect.get("nan_at")
        or expect.get("vanish_at")
        or expect.get("explode_at")
        or expect.get("node")
    )
    if node and not forward and kind not in ("no_grad_fn", "unreachable_param", "leak"):
        names = {bare(node), *map(bare, expect.get("node_alt", [])), bare(expect.get("nan_at") or node)}
        facets["node"] = any(f.node is not None and bare(f.node.name) in names for f in hits)
    if expect.get("saved"):
        facets["saved tensor"] = any(f.saved in {expect["saved"], *expect.get("saved_alt", [])} for f in hits)
    if expect.get("culprit_op"):
        ops = {bare(expect["culprit_op"]), *map(bare, expect.get("culprit_op_alt", []))}
        facets["op"] = any(f.op is not None and bare(f.op) in ops for f in hits)
    if expect.get("culprit_reason"):
        facets["reason"] = any(
            f.reason in {expect["culprit_reason"], *expect.get("culprit_reason_alt", [])} for f in hits
        )
    if expect.get("culprit_line_marker"):
        facets["line"] = any(f.where is not None for f in hits)
    if expect.get("none_grad_params"):
        facets["parameters"] = {f.parameter for f in loud if f.kind == "unreached-parameter" and f.parameter} == set(
            expect["none_grad_params"]
        )
    return facets


@pytest.mark.parametrize("name", [n for n in CASES if n.startswith("h")])
def test_healthy(name):
    assert facets_of(name) == {"no false alarm": True}


@pytest.mark.parametrize("name", [n for n in CASES if not n.startswith("h")])
def test_stated(name):
    """Each fact is stated, or listed as one that takes a recorder; a listed one that is stated fails as well."""
    left = {facet for facet, stated in facets_of(name).items() if not stated}
    assert left == set(RECORDER.get(name, "").split(", ")) - {""}


def test_table_names_cases():
    assert set(RECORDER) <= set(CASES)


def test_error_before_backward_raises():
    """Where a case says what the real backward raises, and it is an error of the graph, the verdict is not good."""
    for name in CASES:
        text = CASES[name].read_text()
        if (
            re.search(r'kind="(inplace|double_backward|freed_storage)"', text)
            and "silent=True" not in text
            and 'stage="forward"' not in text
        ):
            case = build(name)
            report = torchgraphdbg.inspect(case["loss"], params=case.get("params"))
            assert [f for f in report.findings if f.severity == "error"], name


# case -> facts that a report alone cannot state: the op and line that did it, the reason of a cut that the graph does
# not prove, values of gradients, time, memory over steps, and faults that happen only while backward runs.
RECORDER = {
    "c01_gradient_for_option_missing": "fault found, node, line",
    "c03_backward_edits_incoming_gradient": "fault found, node, op, line",
    "c04_backward_edits_saved_tensor": "op, line",
    "c06_intermediate_kept_on_ctx": "fault found, node, line",
    "d01_rnn_state_not_detached": "line",
    "d02_backward_cell_rerun": "line",
    "d04_detach_result_thrown_away": "line",
    "d05_inner_grad_frees_features": "line",
    "d08_penalty_through_compiled_model": "line",
    "f01_sharded_weight_released": "line",
    "f02_activation_storage_released": "line",
    "i01_gan_step_between": "op, line",
    "i02_ddp_buffer_sync": "op, line",
    "i04_residual_relu_then_iadd": "op, line",
    "i05_sigmoid_setitem": "op, line",
    "i06_negative_queue": "op, line",
    "i07_mask_after_softmax": "op, line",
    "i12_batch_buffer_reused": "op, line",
    "i15_data_edit_silent": "fault found, node, saved tensor, op, line",
    "i16_clamp_on_chunk": "fault found, op, line",
    "i17_normalise_unbound_rows": "fault found, op, line",
    "i19_leaf_slice_update": "fault found, op, line",
    "i20_shared_activation_scaled": "op, line",
    "i21_checkpoint_hides_mask": "fault found, node, saved tensor, op, line",
    "l02_create_graph_cycle": "fault found, line",
    "l03_eval_outputs_keep_graph": "fault found, line",
    "m01_std_of_one_sample": "fault found, node, op, line",
    "m05_rsqrt_of_zero_norm": "fault found, node, op, line",
    "m08_attention_row_fully_masked": "fault found, node, op, line",
    "m09_log_of_softmax": "fault found, node, op, line",
    "m10_entropy_nan_to_num": "fault found, node, op, line",
    "m11_svd_repeated_values": "fault found, node, op, line",
    "m12_fractional_power_of_silence": "fault found, node, op, line",
    "m13_logsumexp_no_paths": "fault found, node, op, line",
    "n01_argmax_prediction": "op, line",
    "n03_reentrant_checkpoint_frozen_input": "reason, line",
    "n05_cast_to_long": "op, line",
    "r02_relu_on_output_all_negative": "fault found, node, op, line",
    "r03_hidden_layer_killed_by_step": "fault found, node, op, line",
    "s02_dense_embedding_gradient": "fault found, node, op, line",
    "s04_strided_gradient_accumulated": "fault found, node, op, line",
    "s05_identity_reindexing_each_step": "fault found, node, op, line",
    "s06_python_loop_over_rows": "fault found, node, op, line",
    "u01_losses_rewrapped": "op, line",
    "u02_as_tensor_of_pair": "op, line",
    "u04_rotary_under_no_grad": "reason, line",
    "u06_output_weight_never_read": "reason",
    "u07_branch_not_taken": "reason",
    "u08_loss_marked_as_leaf": "line",
    "u09_score_used_only_for_topk": "op, line",
    "v02_long_tanh_recurrence": "fault found, node",
    "v04_round_quantiser": "fault found, node, op, line",
    "v06_half_precision_underflow": "fault found, node, line",
    "v07_sign_binariser": "fault found, node, op, line",
    "x02_normalise_zero_vector": "fault found, node, op, line",
}
