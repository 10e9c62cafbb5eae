"""Arc probabilities on a device: the CUDA sources on this processor, and (-m device) on a card.

The oracle is the parser's own :func:`minfer.parsing.tree_marginals`.
"""

from __future__ import annotations

import numpy as np
import pytest

from host_device import Host
from minfer.device.trees import tree_sums
from minfer.errors import ContradictionError, ModelError
from minfer.parsing import trees

torch = pytest.importorskip("torch", reason="torch is not installed")
minfer_torch = pytest.importorskip("minfer.torch")

RNG = np.random.default_rng(2)
KINDS = [{"projective": p, "single_root": s} for p in (False, True) for s in (False, True)]


@pytest.fixture
def put(there, monkeypatch):
    """Scores as a tensor on the device."""
    if not isinstance(there, Host):
        if not torch.cuda.is_available():
            pytest.skip("torch has no card here")
        return lambda scores: torch.tensor(scores, device="cuda")
    monkeypatch.setattr("minfer.torch.trees._device_of", lambda values: there)
    return torch.tensor


def sums(device, scores, words, **how):
    """All that the kernel says: probabilities, log Z, whether they are fine."""
    batch = len(scores)
    out = [device.empty(s, t) for s, t in
           ((scores.shape, np.float64), ((batch,), np.float64), ((batch,), np.int32))]  # fmt: skip
    tree_sums(device, device.put(scores), device.put(words.astype(np.int32)), *out, **how)
    return [device.get(x) for x in out]


@pytest.mark.parametrize("how", KINDS, ids=repr)
def test_what_kernels_say(there, how):
    for nodes, scale in ((2, 1.0), (7, 1.0), (12, 3.0), (19, 8.0), (45, 1.0)):
        scores = scale * RNG.normal(size=(4, nodes, nodes))
        scores[0, 1, nodes - 1] = -np.inf
        words = RNG.integers(1, nodes, 4)
        mu, log_z, fine = sums(there, scores, words, **how)
        wanted, value = trees.tree_marginals(scores, words, **how)
        assert (fine == 1).any()
        assert fine.all() or scale > 3.0
        np.testing.assert_allclose(mu[fine == 1], wanted[fine == 1], atol=1e-10)
        np.testing.assert_allclose(log_z[fine == 1], value[fine == 1], atol=1e-9)


@pytest.mark.parametrize("how", KINDS, ids=repr)
def test_what_is_not_safe_is_told(there, how):
    scores = RNG.normal(size=(5, 4, 4))
    scores[0, 1, 2] = np.nan
    scores[1, 0, 3] = np.inf
    scores[2, :, 1] = -np.inf  # no head for a word
    scores[3, 0, 1:] = -np.inf  # none from the root
    _, _, fine = sums(there, scores, np.full(5, 3), **how)
    assert fine.tolist() == [0, 0, 0, 0, 1]
    scores = RNG.normal(size=(1, 4, 4))
    scores[0, 2, 3] = scores[0, 3, 2] = 60.0  # two words that want one another: a cancellation
    mu, _, fine = sums(there, scores, np.full(1, 3), **how)
    wanted, _ = trees.tree_marginals(scores, **how)
    assert not fine[0] or np.abs(mu - wanted).max() < 1e-10


@pytest.mark.parametrize("how", KINDS, ids=repr)
def test_tensors_there_have_answers_and_gradients(put, how):
    scores = RNG.normal(size=(3, 6, 6))
    scores[1, 2, 3] = scores[1, 3, 2] = 60.0  # the processor's
    lengths, along = [5, 4, 2], RNG.normal(size=(3, 6, 6))
    found, wanted = [], []
    for out, tensor in ((found, put(scores)), (wanted, None)):
        if tensor is None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("minfer.torch.trees._device_of", lambda values: None)
                out += answers(torch.tensor(scores), lengths, along, how)
        else:
            out += answers(tensor, lengths, along, how)
    for a, b, atol in zip(found, wanted, (1e-10, 1e-9, 2e-7, 1e-10), strict=True):
        np.testing.assert_allclose(a, b, atol=atol)
    single = put(scores[0])
    assert minfer_torch.tree_log_partition(single, **how).shape == ()
    assert minfer_torch.tree_marginals(single.float(), **how).dtype == torch.float32


def answers(scores, lengths, along, how) -> list:
    """Probabilities, log Z, and a gradient of each."""
    scores.requires_grad_()
    mu = minfer_torch.tree_marginals(scores, lengths, **how)
    log_z = minfer_torch.tree_log_partition(scores, lengths, **how)
    assert mu.device == log_z.device == scores.device
    loss = (mu * torch.tensor(along, device=scores.device)).sum()
    (first,) = torch.autograd.grad(loss, scores)
    (second,) = torch.autograd.grad((log_z * log_z).sum(), scores)
    return [x.detach().cpu().numpy() for x in (mu, log_z, first, second)]


def test_improbable_arcs_and_errors_that_name_the_sentence(put):
    scores = 20.0 * np.random.default_rng(3).normal(size=(2, 5, 5))
    tensor = put(scores).requires_grad_()
    arcs = minfer_torch.tree_marginals(tensor, [4, 3], projective=True)
    (-torch.log(arcs[0, 0, 1])).backward()
    assert torch.isfinite(tensor.grad).all()
    scores[1, :, 2] = -np.inf
    with pytest.raises(ContradictionError, match="sentence 1"):
        minfer_torch.tree_marginals(put(scores), projective=False)
    with pytest.raises(ModelError, match="lengths must be 2"):
        minfer_torch.tree_marginals(put(scores), [4])
    with pytest.raises(ModelError, match=r"sentence 0: 5 words"):
        minfer_torch.tree_marginals(put(scores), [5, 4])


def both_ways(right: str = "", wrong: str = "", projective: bool = False) -> list:
    scores = np.random.default_rng(0).normal(size=(2, 9, 9))
    words, how = np.full(2, 8), {"projective": projective, "single_root": True}
    return [sums(Host(way, right, wrong), scores, words, **how)[0] for way in (False, True)]


@pytest.mark.parametrize("projective", [False, True])
def test_threads_may_run_in_any_order(projective):
    np.testing.assert_array_equal(*both_ways(projective=projective))


@pytest.mark.parametrize("after", [
    "column[m] = m == k ? 0 : q[m * width + c];\n    ",
    "reach = higher(column[m], reach);\n      }\n    ",
    "half[i * N + i + d] = sum;\n    }\n    ",
    "lead[m] = own - others < CUT ? own - others : -endless();\n  }\n  ",
])  # fmt: skip
def test_a_missing_barrier_is_found(after):
    projective = "half" in after
    right, _ = both_ways(projective=projective)
    wrong = both_ways(after + "BARRIER();", after, projective)  # room that nobody wrote is NaN
    assert not all(np.array_equal(mu, right) for mu in wrong)


def test_threads_that_end_before_a_barrier_are_found():
    begin = "int b = blockIdx.x, n = words[b], width"
    with pytest.raises(AssertionError, match="wait where others have ended"):
        both_ways(begin, f"if (threadIdx.x == 1) return;\n  {begin}")


def test_an_index_out_of_range_is_found():
    with pytest.raises(AssertionError, match="out of range"):
        both_ways("half[i * N + i + d] = sum", "half[i * N * N + i + d] = sum", projective=True)
