"""The chunked loss and the cheap dropout give what the plain formulas give."""

import pytest
import torch
from tiny import labels, sentences, tiny_model
from torch.utils._python_dispatch import TorchDispatchMode

from hf_deepnmt.models import functional_deepnmt as functional
from hf_deepnmt.models.functional_deepnmt import cross_entropy, drop_out, linear_cross_entropy


ROWS, WIDTH, VOCABULARY = 37, 12, 101


class LargestTensor(TorchDispatchMode):
    """Remembers the most elements that a result had."""

    largest = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.largest = max(self.largest, tensor.numel())
        return result


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of 5 rows, so that several whole ones and a rest are needed."""
    monkeypatch.setitem(functional.CHUNK_ELEMENTS, "cpu", 5 * VOCABULARY)


def problem(dtype, bias=True):
    generator = torch.Generator().manual_seed(1)
    shapes = [(ROWS, WIDTH), (VOCABULARY, WIDTH), *[(VOCABULARY,)] * bias]
    tensors = [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]
    return tensors, torch.randint(VOCABULARY, (ROWS,), generator=generator)


def both(tensors, targets, smoothing, scale=3.0):
    """Loss, likelihoods and gradients of the chunked and of the plain form."""
    states, weight, *bias = tensors
    outcomes = []
    for chunked in (True, False):
        if chunked:
            loss, nll = linear_cross_entropy(states, weight, bias[0] if bias else None, targets, smoothing)
        else:
            loss, nll = cross_entropy(torch.nn.functional.linear(states, weight, *bias), targets, smoothing)
        outcomes.append([loss.detach(), nll, *torch.autograd.grad(loss * scale, tensors)])
    return outcomes


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_chunks_equal_plain_path(small_chunks, dtype, tolerance, smoothing, bias):
    tensors, targets = problem(dtype, bias)
    for chunked, plain in zip(*both(tensors, targets, smoothing), strict=True):
        assert chunked.dtype == plain.dtype
        torch.testing.assert_close(chunked, plain, atol=tolerance, rtol=tolerance)


def test_plain_path_is_torchs_cross_entropy():
    (states, weight, _), targets = problem(torch.float64)
    logits = states @ weight.t()
    loss, nll = cross_entropy(logits, targets, 0.1)
    expected = torch.nn.functional.cross_entropy(logits, targets, label_smoothing=0.1, reduction="sum")
    torch.testing.assert_close(loss, expected, atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(nll, torch.nn.functional.cross_entropy(logits, targets, reduction="none"))


def test_chunks_under_autocast_are_as_near_as_bf16_allows(small_chunks):
    tensors, targets = problem(torch.float32)
    exact = both(tensors, targets, 0.1)[1]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = both(tensors, targets, 0.1)[0]
    for value, reference in zip(rounded, exact, strict=True):
        assert value.dtype == torch.float32
        assert (value - reference).norm() < 0.02 * reference.norm()


def test_extreme_logits_stay_finite(small_chunks):
    tensors, targets = problem(torch.float32)
    with torch.no_grad():
        tensors[0].mul_(1e4)
    for chunked, plain in zip(*both(tensors, targets, 0.1), strict=True):
        assert chunked.isfinite().all()
        torch.testing.assert_close(chunked, plain, atol=1e-2, rtol=1e-3)


def test_frozen_projection_gets_no_gradient(small_chunks):
    (states, weight, bias), targets = problem(torch.float32)
    linear_cross_entropy(states, weight.detach(), bias.detach(), targets)[0].backward()
    assert states.grad.norm() > 0
    assert weight.grad is None
    assert bias.grad is None


def test_no_rows_give_zero_loss_and_gradients():
    (states, weight, bias), targets = problem(torch.float32)
    loss, nll = linear_cross_entropy(states[:0], weight, bias, targets[:0], 0.1)
    loss.backward()
    assert loss == 0
    assert nll.shape == (0,)
    assert weight.grad.abs().max() == 0


def test_logits_are_never_whole_in_memory(small_chunks):
    tensors, targets = problem(torch.float32)
    with LargestTensor() as seen:
        linear_cross_entropy(*tensors, targets, 0.1)[0].backward()
    assert seen.largest <= max(5 * VOCABULARY, VOCABULARY * WIDTH)
    with LargestTensor() as seen:
        cross_entropy(torch.nn.functional.linear(*tensors), targets, 0.1)[0].backward()
    assert seen.largest == ROWS * VOCABULARY


def test_training_step_leaves_logits_out_unless_asked(model_type):
    model = tiny_model(model_type, dropout=0.0, attention_dropout=0.0, label_smoothing=0.1).double().train()
    batch = {**sentences(7, 5), "labels": labels(6, 4)}
    lean, full = model(**batch), model(**batch, output_logits=True)
    assert lean.logits is None
    assert full.logits.shape == (2, 6, 61)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = [torch.autograd.grad(output.loss, parameters, allow_unused=True) for output in (lean, full)]
    torch.testing.assert_close(lean.loss, full.loss, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(lean.nll_loss, full.nll_loss, atol=1e-9, rtol=1e-9)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-9)
    assert model.eval()(**batch).logits is not None
    assert model(**batch, output_logits=False).logits is None


def test_wrapped_projection_is_called_as_a_module():
    """An adapter around the projection takes part in the loss."""
    model = tiny_model(label_smoothing=0.0)
    batch = {**sentences(7, 5), "labels": labels(6, 4)}
    plain = model(**batch, output_logits=False).loss
    model.lm_head = torch.nn.Sequential(model.lm_head, torch.nn.Softshrink(0.5))
    wrapped = model(**batch, output_logits=False).loss
    torch.testing.assert_close(wrapped, model(**batch, output_logits=True).loss)
    assert (wrapped - plain).abs() > 1e-3


# --- dropout ---


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.3, 0.77])
def test_dropout_rate_and_scale(p, dtype):
    torch.manual_seed(3)
    dropped = drop_out(torch.ones(1000, 1000, dtype=dtype), p, training=True)
    share = (dropped == 0).double().mean().item()
    deviation = (p * (1 - p) / dropped.numel()) ** 0.5
    assert abs(share - p) < 5 * deviation
    kept = dropped[dropped != 0]
    torch.testing.assert_close(
        kept, torch.full_like(kept, 1 / (1 - p)), atol=1e-4 if dtype == torch.float32 else 1e-2, rtol=0
    )


def test_dropped_elements_are_independent():
    """No correlation between neighbours in a row (which share random words), rows, columns, or calls."""
    torch.manual_seed(4)
    one, other = (drop_out(torch.ones(1024, 1024), 0.25, training=True).eq(0).double() for _ in range(2))
    pairs = {f"lag {lag}": (one[:, :-lag], one[:, lag:]) for lag in (1, 2, 3, 4, 5, 8, 64)}
    pairs |= {"rows": (one[:-1], one[1:]), "calls": (one, other), "halves": (one[:512], one[512:])}
    for name, (left, right) in pairs.items():
        left, right = left.flatten() - left.mean(), right.flatten() - right.mean()
        correlation = (left @ right / (left.norm() * right.norm())).item()
        assert abs(correlation) < 5 / len(left) ** 0.5, name


def test_dropout_gradient_is_its_mask():
    states = torch.randn(33, 7, requires_grad=True)
    torch.manual_seed(5)
    dropped = drop_out(states, 0.4, training=True)
    (slope,) = torch.autograd.grad(dropped.sum(), states)
    torch.testing.assert_close(dropped, states * slope)
    torch.manual_seed(5)
    torch.testing.assert_close(drop_out(states, 0.4, training=True), dropped)


@pytest.mark.parametrize(("p", "training"), [(0.3, False), (0.0, True), (1e-9, True)])
def test_dropout_that_drops_nothing(p, training):
    states = torch.randn(4, 4)
    assert torch.equal(drop_out(states, p, training), states)


def test_dropout_that_drops_all():
    assert drop_out(torch.ones(4, 4), 1.0, training=True).abs().max() == 0


def test_dropout_of_transposed_states_keeps_their_places():
    states = torch.arange(1.0, 61.0).view(3, 20).t()
    dropped = drop_out(states, 0.5, training=True)
    kept = dropped != 0
    assert 0 < kept.sum() < 60
    torch.testing.assert_close(dropped[kept], 2 * states[kept])
