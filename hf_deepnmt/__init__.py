"""Deep neural machine translation architectures for Hugging Face Transformers."""

from .models import register_architectures


__version__ = "0.1.0"

register_architectures()
