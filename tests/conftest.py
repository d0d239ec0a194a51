"""What all tests share: an offline environment, a fixed seed, and the architectures as a fixture."""

import functools
import os


os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest  # noqa: E402
import torch  # noqa: E402

from hf_deepnmt.models import ARCHITECTURES  # noqa: E402


@pytest.fixture(params=list(ARCHITECTURES))
def model_type(request):
    return request.param


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(0)


@pytest.fixture
def few_held_out(monkeypatch):
    """Six test sentences or documents, since an untrained model goes on up to its length limit for each."""
    from hf_deepnmt import toy_corpus, toy_summaries

    for module, name in ((toy_corpus, "toy_corpus"), (toy_summaries, "toy_summaries")):
        whole = getattr(module, name)
        monkeypatch.setattr(module, name, functools.partial(whole, validation=6, test=6))
