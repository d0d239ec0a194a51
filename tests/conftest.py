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
