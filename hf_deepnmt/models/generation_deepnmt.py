# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""The two forms of the length penalty that beam search divides a hypothesis's log-probability by."""

FAIRSEQ, GNMT = LENGTH_PENALTY_FORMS = ("fairseq", "gnmt")


class GNMTLengthPenalty(float):
    """
    An exponent alpha for which `length**alpha` is ((5 + length) / (5 + 1))^alpha (Wu et al., 2016, equation 14).

    Given as `length_penalty`, it reaches every place where Transformers compares hypotheses or decides to stop.
    """

    def __rpow__(self, length: int) -> float:
        return ((5 + length) / 6) ** float(self)


def check_length_penalty_form(form: str):
    """
    Raises:
        ValueError: there is no such form.
    """
    if form not in LENGTH_PENALTY_FORMS:
        raise ValueError(f"`length_penalty_form` is {form!r}: choose one of {', '.join(LENGTH_PENALTY_FORMS)}")


def length_penalty_in_form(exponent: float, form: str) -> float:
    """
    What `generate` takes as `length_penalty`: length^exponent for `fairseq`, or the form of GNMT.

    Raises:
        ValueError: there is no such form.
    """
    check_length_penalty_form(form)
    return GNMTLengthPenalty(exponent) if form == GNMT else exponent


__all__ = ["FAIRSEQ", "GNMT", "LENGTH_PENALTY_FORMS", "check_length_penalty_form", "length_penalty_in_form"]
