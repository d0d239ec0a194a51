"""
Deep neural machine translation architectures for Hugging Face Transformers.

Importing the package is enough for `AutoModelForSeq2SeqLM.from_pretrained` to load its models and for
`pipeline("translation")` to work, for every encoder-decoder model.
"""

from .models import register_architectures
from .pipelines import register_pipelines
from .version import __version__


register_architectures()
register_pipelines()

__all__ = ["__version__", "register_architectures", "register_pipelines"]
