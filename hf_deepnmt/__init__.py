"""
Deep neural machine translation architectures for Hugging Face Transformers.

Importing the package is enough for `AutoModelForSeq2SeqLM.from_pretrained` to load its models, and for `pipeline` and
`evaluate.evaluator` to know the tasks `translation` and `summarization`, for every encoder-decoder model.
"""

from .evaluator import register_evaluator
from .models import register_architectures
from .pipelines import register_pipelines
from .version import __version__


register_architectures()
register_pipelines()
register_evaluator()

__all__ = ["__version__", "register_architectures", "register_evaluator", "register_pipelines"]
