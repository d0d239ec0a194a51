"""Token-budget batches and the collator."""

import time

import numpy as np
import pytest
import torch
from datasets import Dataset

from hf_deepnmt.batching import Seq2SeqCollator, TokenBudgetBatchSampler, column_lengths


def corpus(rows, seed=0, mean=27, spread=0.6):
    """Lengths like those of subword-split text: log-normal targets, sources that follow them."""
    generator = np.random.default_rng(seed)
    target = np.clip(generator.lognormal(np.log(mean) - spread**2 / 2, spread, rows), 2, 200).astype(int)
    source = np.clip(target * generator.normal(1.0, 0.18, rows) + generator.normal(0, 1.5, rows), 2, 200).astype(int)
    return source, target


def epoch_of(sampler, epoch=0):
    sampler.set_epoch(epoch)
    return [batch.tolist() for batch in sampler.batches()]


@pytest.mark.parametrize("group_size", [1, 2, 7, 48])
@pytest.mark.parametrize("shuffle", [True, False])
def test_every_pair_comes_once_per_epoch_within_the_budget(group_size, shuffle):
    source, target = corpus(1003)
    sampler = TokenBudgetBatchSampler(source, target, 512, group_size=group_size, shuffle=shuffle)
    for epoch in range(3):
        batches = epoch_of(sampler, epoch)
        assert len(batches) == len(sampler)
        assert len(batches) % group_size == 0
        assert sorted(sum(batches, [])) == list(range(1003))
        assert max(len(batch) * max(source[batch].max(), target[batch].max()) for batch in batches) <= 512


def test_as_many_batches_as_pairs_is_possible():
    sampler = TokenBudgetBatchSampler([3] * 7, [4] * 7, 100, group_size=7)
    assert [len(batch) for batch in epoch_of(sampler)] == [1] * 7


def test_max_sentences_limits_batches():
    source, target = corpus(300)
    sizes = [len(batch) for batch in epoch_of(TokenBudgetBatchSampler(source, target, 4096, max_sentences=13))]
    assert max(sizes) == 13


def test_batches_of_one_update_are_neighbours_in_length():
    source, target = corpus(20000)
    batches = epoch_of(TokenBudgetBatchSampler(source, target, 1024, group_size=4))
    widths = np.array([source[batch].max() + target[batch].max() for batch in batches]).reshape(-1, 4)
    assert np.median(np.ptp(widths, axis=1)) < 0.05 * widths.std()


def test_both_sides_of_a_batch_are_of_similar_length():
    generator = np.random.default_rng(0)
    source = generator.poisson(12, 29_000) + 3
    target = (source * generator.normal(1.0, 0.2, len(source))).astype(int).clip(3)
    sampler = TokenBudgetBatchSampler(source, target, 4096)
    assert sampler.padding_share() < 0.04
    real = (np.maximum(source, target)).sum() / 4096
    assert len(sampler) < 1.25 * real


def test_order_depends_on_seed_and_epoch_only():
    source, target = corpus(2000)
    first, same = (TokenBudgetBatchSampler(source, target, 512, seed=3) for _ in range(2))
    epoch_of(first, 5)
    assert epoch_of(first, 1) == epoch_of(same, 1)
    assert epoch_of(first, 1) != epoch_of(same, 2)
    assert epoch_of(first, 1) != epoch_of(TokenBudgetBatchSampler(source, target, 512, seed=4), 1)


def test_equally_long_pairs_meet_others_in_each_epoch():
    sampler = TokenBudgetBatchSampler([5] * 60, [5] * 60, 50)
    assert {frozenset(batch) for batch in epoch_of(sampler, 0)} != {frozenset(batch) for batch in epoch_of(sampler, 1)}


def test_without_shuffling_epochs_are_equal_and_sorted():
    source, target = corpus(500)
    sampler = TokenBudgetBatchSampler(source, target, 512, shuffle=False)
    assert epoch_of(sampler, 0) == epoch_of(sampler, 1)
    means = [target[batch].mean() for batch in epoch_of(sampler)]
    assert np.corrcoef(np.argsort(np.argsort(means)), np.arange(len(means)))[0, 1] > 0.9


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_processes_and_accumulation_share_the_same_updates(world_size):
    source, target = corpus(1003)
    options = {"group_size": 4, "world_size": world_size}
    ranks = [list(TokenBudgetBatchSampler(source, target, 512, rank=rank, **options)) for rank in range(world_size)]
    joined = [batch for step in zip(*ranks, strict=True) for batch in step]
    assert joined == epoch_of(TokenBudgetBatchSampler(source, target, 512, group_size=4))


def test_padding_is_below_three_percent_on_a_corpus_like_iwslt14():
    source, target = corpus(160_000)
    sampler = TokenBudgetBatchSampler(source, target, 4096)
    batches = epoch_of(sampler)
    padded = sum(len(batch) * (source[batch].max() + target[batch].max()) for batch in batches)
    assert sampler.padding_share() == pytest.approx(1 - (source.sum() + target.sum()) / padded)
    assert sampler.padding_share() < 0.03


def test_a_million_pairs_take_seconds():
    source, target = corpus(1_000_000)
    start = time.process_time()
    assert sum(1 for _ in TokenBudgetBatchSampler(source, target, 4096)) > 1000
    assert time.process_time() - start < 20


def test_rounding_up_counts_in_the_budget():
    sampler = TokenBudgetBatchSampler([9] * 10, [3] * 10, 32, pad_to_multiple_of=8)
    assert [len(batch) for batch in epoch_of(sampler)] == [2] * 5
    assert sampler.padding_share() == pytest.approx(1 - 12 / 24)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source_lengths": [3, 90, 4]}, r"row 1 .* 90 source tokens.*max_tokens to at least 90"),
        ({"target_lengths": [3, 4, 91]}, r"row 2 .* 91 target tokens"),
        ({"target_lengths": [3, 4]}, "3 source lengths but 2 target lengths"),
        ({"group_size": 4}, "3 sentence pairs cannot fill 4 batches"),
        ({"group_size": 3, "world_size": 2}, "does not fit group_size=3"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"max_sentences": 0}, "max_sentences must be at least 1"),
        ({"source_lengths": [], "target_lengths": []}, "0 sentence pairs"),
    ],
)
def test_impossible_batches_are_refused_at_once(options, message):
    defaults = {"source_lengths": [3, 4, 5], "target_lengths": [3, 4, 5], "max_tokens": 50}
    with pytest.raises(ValueError, match=message):
        TokenBudgetBatchSampler(**{**defaults, **options})


def test_column_lengths_follow_a_selection():
    rows = [{"input_ids": list(range(n))} for n in (3, 0, 5, 1)]
    dataset = Dataset.from_list(rows)
    assert column_lengths(dataset, "input_ids").tolist() == column_lengths(rows, "input_ids").tolist() == [3, 0, 5, 1]
    assert column_lengths(dataset.select([3, 0]), "input_ids").tolist() == [1, 3]
    for data in (dataset, rows):
        with pytest.raises(ValueError, match="'labels'"):
            column_lengths(data, "labels")


def test_collator_pads_on_the_right():
    batch = Seq2SeqCollator(1)([{"input_ids": [7, 2], "labels": [8, 9, 2]}, {"input_ids": [7, 1, 2], "labels": [2]}])
    assert batch["input_ids"].tolist() == [[7, 2, 1], [7, 1, 2]]
    assert batch["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert batch["labels"].tolist() == [[8, 9, 2], [2, -100, -100]]
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}


def test_collator_takes_tensors_arrays_and_masks():
    rows = [
        {"input_ids": torch.tensor([7, 2]), "attention_mask": torch.tensor([0, 1])},
        {"input_ids": np.array([3, 4, 2]), "attention_mask": [1, 1, 1]},
    ]
    batch = Seq2SeqCollator(1, pad_to_multiple_of=4)(rows)
    assert batch["input_ids"].tolist() == [[7, 2, 1, 1], [3, 4, 2, 1]]
    assert batch["attention_mask"].tolist() == [[0, 1, 0, 0], [1, 1, 1, 0]]
    assert "labels" not in batch


def test_collator_pads_further_columns_of_any_depth():
    collator = Seq2SeqCollator(
        1, extra_columns={"order": -1, "links": -7, "weight": 0.0, "size": lambda values, batch: torch.tensor(values)}
    )
    rows = [
        {"input_ids": [5], "labels": [5], "order": [0], "links": [], "weight": 0.5, "size": 4},
        {"input_ids": [5], "labels": [5], "order": [1, 0], "links": [[0, 1], [1, 0]], "weight": 2, "size": 3},
    ]
    batch = collator(rows)
    assert batch["order"].tolist() == [[0, -1], [1, 0]]
    assert batch["links"].tolist() == [[[-7, -7], [-7, -7]], [[0, 1], [1, 0]]]
    assert batch["weight"].tolist() == [0.5, 2.0]
    assert batch["size"].tolist() == [4, 3]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"input_ids": [5], "note": "x"}], "column 'note' is not known"),
        ([{"input_ids": [5], "order": [0]}, {"input_ids": [5]}], "column 'order' is in some rows"),
        ([{"input_ids": [5], "order": "abc"}], "column 'order' holds .*not numbers"),
        ([{"input_ids": [5], "order": [[1], [1, 2]]}], "column 'order'.*padding function"),
    ],
)
def test_collator_names_the_column_it_cannot_pad(rows, message):
    with pytest.raises(ValueError, match=message):
        Seq2SeqCollator(1, extra_columns={"order": 0})(rows)


def test_collator_leaves_ignored_columns_out():
    rows = [
        {"input_ids": [5], "labels": [5], "translation": {"de": "a", "en": "b"}},
        {"input_ids": [5], "labels": [5]},
    ]
    assert set(Seq2SeqCollator(1, ignored_columns=["translation"])(rows)) == {"input_ids", "attention_mask", "labels"}
