# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""The `summarization` task, which Transformers 5 no longer has, for every encoder-decoder model of the library."""

from typing import Any

import torch

from .pipeline_seq2seq import CallReport, Seq2SeqPipeline, stated


class SummarizationPipeline(Seq2SeqPipeline):
    """
    Summarises documents with a sequence-to-sequence model.

    ```python
    >>> summarize = pipeline("summarization", model="checkpoint")
    >>> summarize(article, truncation=True, num_beams=5, no_repeat_ngram_size=3, max_new_tokens=60)
    [{'summary_text': '...'}]
    >>> summarize([article, ""], batch_size=8)
    [{'summary_text': '...'}, {'summary_text': ''}]
    ```

    Inputs are one `str`, or a list, tuple or `datasets` column of `str`: all of it is checked and encoded before the
    first document is summarised, and the result is a list. An iterator, `KeyDataset`, other torch `Dataset` or
    `datasets.Dataset` is streamed instead: the result is an iterator of one list of summaries for each document. Rows of
    a `datasets.Dataset` are read in the column `text`, `document`, `article` or `dialogue`, or in their only one.

    Documents without a visible character are not sent to the model; their summary is empty, its score 0.
    A document gets the same summary alone and in a batch, whatever the padding side of the tokenizer.

    **Document length.** Nothing is cut unless asked for. Where the model has a fixed table of positions, a longer
    document raises a `ValueError`. `truncation=True` keeps the first tokens, as many as the table, as
    `tokenizer.model_max_length` or as `max_position_embeddings`, whichever is smallest, and warns with counts.

    **Summary length.** If neither call, pipeline nor model states `max_new_tokens` or `max_length`, a document of n tokens
    gets at most n, and never more than a fixed table of positions holds. A stated limit that is not below the length of a
    document lets its summary become longer than itself; a warning counts those, and the summaries that ended at a limit
    instead of an end-of-sentence token.

    Everything below may be given to the pipeline or to a call; a call does not change later calls.

    Args:
        prefix (`str`, *optional*):
            Text put before each document. Unset, it comes from the model's config (`summarize: ` for T5).
        truncation (`bool`, *optional*, defaults to `False`):
            Whether documents longer than the limit are cut instead of refused.
        return_scores (`bool`, *optional*, defaults to `False`):
            Adds `score`. Beam search: log-probability / (summary tokens ** length_penalty), or the form that
            `length_penalty_form` says, as `generate` ranks.
            Otherwise: mean log-probability of the summary tokens. Both count the end of the summary.
        return_tensors (`bool`, *optional*, defaults to `False`):
            Gives `summary_token_ids`, without padding, instead of `summary_text`.
        return_text (`bool`, *optional*):
            `True` with `return_tensors=True` gives both.
        clean_up_tokenization_spaces (`bool`, *optional*):
            Handed to `tokenizer.decode`.
        batch_size (`int`, *optional*, defaults to 1):
            Documents per call of the model.
        generate_kwargs:
            Anything else goes to `model.generate`: `num_beams`, `min_new_tokens`, `max_new_tokens`, `length_penalty`;
            `no_repeat_ngram_size=3` keeps trigrams of tokens from coming twice (Paulus et al., 2018).

    Raises:
        TypeError: an input is no string; the message has its index.
        ValueError: a document is too long, or options contradict each other, as a least length above the largest.
    """

    task_name, verb, item, output = "Summarization", "summarize", "document", "summary"
    result_name = "summary"
    unfinished_remedy = "Raise `max_new_tokens`"
    default_limit = "n"
    text_columns = ("text", "document", "article", "dialogue")

    def task_names(self) -> list[str]:
        return ["summarization"]

    @staticmethod
    def unstated_limits(source_lengths: torch.Tensor | int) -> torch.Tensor | int:
        return source_lengths

    @classmethod
    def new_report(cls, streaming: bool) -> "SummaryReport":
        return SummaryReport(streaming, cls.item, cls.output, cls.unfinished_remedy)

    def check_settings(self, settings: dict[str, Any]):
        # `generate` itself warns where one of the two is the model's
        bounds = {
            name: stated(name, settings) for name in ("min_length", "max_length", "min_new_tokens", "max_new_tokens")
        }
        for kind in ("length", "new_tokens"):
            least, most = bounds[f"min_{kind}"], bounds[f"max_{kind}"]
            if None not in (least, most) and least > most:
                raise ValueError(
                    f"`min_{kind}` ({least}) is above `max_{kind}` ({most}): lower the one or raise the other"
                )

    def _forward(self, model_inputs: dict[str, torch.Tensor], **kwargs) -> dict[str, torch.Tensor]:
        outputs = super()._forward(model_inputs, **kwargs)
        lengths, limit = model_inputs["attention_mask"].sum(dim=1), self.limit_of_call(kwargs)
        is_short = (lengths > 0) & (lengths <= (0 if limit is None else limit))
        return {**outputs, "is_short": is_short, "stated_limit": torch.full_like(lengths, limit or 0)}

    def limit_of_call(self, kwargs: dict[str, Any]) -> int | None:
        generate_kwargs = {name: value for name, value in kwargs.items() if name != "return_scores"}
        added = self.task_generation_parameters(generate_kwargs)
        return self.stated_limit(self._prepare_generate_kwargs(generate_kwargs, **added))


class SummaryReport(CallReport):
    """Also counts the documents that are no longer than the limit of their summaries."""

    def __init__(self, *args):
        super().__init__(*args)
        self.short = self.limit = 0

    def add(self, outputs: dict[str, torch.Tensor]):
        self.short += int(outputs["is_short"])
        self.limit = int(outputs["stated_limit"])
        super().add(outputs)

    def warn(self):
        super().warn()
        if self.short:
            self.tell(
                "short",
                f"Summaries may have {self.limit} tokens, but {self.short} of {self.inputs} documents{self.so_far} have "
                "no more themselves: lower `max_new_tokens` or `max_length` where they are to become shorter.",
            )


__all__ = ["SummarizationPipeline"]
