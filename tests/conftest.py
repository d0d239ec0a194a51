"""What all tests share: an offline environment, a fixed seed, and the architectures as a fixture."""

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
    """Six test sentences, since an untrained model translates each up to its length limit."""
    import hf_deepnmt.toy_corpus as module

    whole = module.toy_corpus
    monkeypatch.setattr(module, "toy_corpus", lambda **options: whole(**options, validation=6, test=6))
