"""
Model cards, written from results files: `README.md` of a checkpoint, or a file of `model_cards/`.

The numbers and names of a card are those of the JSON that `training.train` and `evaluation.evaluate_model` write, so
that a card can be made again and compared (`check_card`). What those do not know stands in the key `card` of the JSON:
`name`, `model_id` (what users load), `description`, `license`, `language` (of documents and summaries, whose columns tell
none), `datasets` (Hub names), `limitations` (sentences) and `citation` (BibTeX), all optional.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from huggingface_hub import EvalResult, ModelCardData
from transformers import PreTrainedConfig

from .metrics import ROUGE_KINDS
from .models import ARCHITECTURES, Architecture
from .provenance import plain_number, portable_argument, write_text
from .tasks import TASKS


METRIC_NAMES = {
    "bleu": "BLEU",
    "chrf": "chrF2",
    "ter": "TER",
    "tokenized_bleu": "tokenised lower-cased BLEU",
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
}
METRIC_TYPES = {"bleu": "sacrebleu", "chrf": "chrf", "ter": "ter", "tokenized_bleu": "bleu"}
METRIC_TYPES |= dict.fromkeys(ROUGE_KINDS, "rouge")
CONFIG_FIELDS = {
    "encoder_layers": "Encoder layers",
    "decoder_layers": "Decoder layers",
    "d_model": "Model width",
    "encoder_attention_heads": "Attention heads",
    "encoder_ffn_dim": "Feed-forward width",
    "norm_style": "Layer norm",
    "vocab_size": "Source vocabulary",
    "decoder_vocab_size": "Target vocabulary",
    "dropout": "Dropout",
    "label_smoothing": "Label smoothing",
}
HARDWARE_FIELDS = {
    "cpu": "CPU",
    "cores": "Cores",
    "threads": "Threads",
    "ram_gib": "RAM (GiB)",
    "gpu": "GPU",
    "gpus": "GPUs",
}


@dataclass(frozen=True)
class Words:
    """
    What a card says of a task.

    Args:
        title: the task's name in a sentence.
        function: what the pipeline is called in the example.
        options: arguments of the example.
        limitations: sentences that hold for every model of the task.
    """

    title: str
    function: str
    options: str
    limitations: tuple[str, ...]


WORDS = {
    "translation": Words(
        title="Translation",
        function="translate",
        options="num_beams=5",
        limitations=(
            "It translates sentence by sentence; what a sentence owes to those before it is lost.",
            "It knows one direction and the kind of text it was trained on. On other text, quality falls without notice.",
            "Translations can be fluent and wrong: words may be missing, added, or have the opposite meaning.",
            "Biases of the training text, such as the gender of occupations, come back in the translations.",
        ),
    ),
    "summarization": Words(
        title="Summarization",
        function="summarize",
        options="truncation=True, num_beams=5, no_repeat_ngram_size=3",
        limitations=(
            "It reads a document up to its length limit; what stands behind is not in the summary.",
            "It knows the kind of text it was trained on. On other text, quality falls without notice.",
            "Summaries can be fluent and wrong: names and numbers may be mixed up, and statements added or turned round.",
            "ROUGE counts words that the reference has too; it does not see whether a summary is true.",
        ),
    ),
}

Results = Mapping[str, Any]


def render_model_card(
    results: Results | Sequence[Results], config: PreTrainedConfig | Mapping[str, Any] | None = None, **card: Any
) -> str:
    """
    The text of a card.

    ```python
    >>> card = render_model_card(json.load(open("results.json")), model.config, name="tiny-de-en")  # doctest: +SKIP
    ```

    Args:
        results: one or several results; further ones, for instance of more test sets, only add scores.
        config: of the model; unset, it is the key `config` of the results, or the fields that the recipe sets.
        card: replaces fields of the key `card`.

    Raises:
        ValueError: the results hold no scores, or no languages are known.
    """
    runs = [results] if isinstance(results, Mapping) else list(results)
    # In the order that a results file has, so that both give the same card.
    runs = json.loads(json.dumps(runs, sort_keys=True, default=plain_number))
    if not any(run.get("scores") for run in runs):
        raise ValueError("These results hold no `scores`: evaluate the model first")
    facts = CardFacts(runs, config, {**(runs[0].get("card") or {}), **card})
    sections = [section for section in body(facts) if section]
    return f"---\n{front_matter(facts)}\n---\n\n" + "\n\n".join(sections) + "\n"


def write_model_card(path: str | Path, results: Results | Sequence[Results], config=None, **card: Any):
    """`render_model_card` into a file, whole or not at all."""
    write_text(Path(path), render_model_card(results, config, **card))


def check_card(card_path: str | Path, results_path: str | Path | Sequence[str | Path]) -> str:
    """The difference between a card and what its results give now, as a unified diff; empty where there is none."""
    paths = [results_path] if isinstance(results_path, (str, Path)) else results_path
    results = [json.loads(Path(path).read_text(encoding="utf-8")) for path in paths]
    written = Path(card_path).read_text(encoding="utf-8").splitlines(keepends=True)
    rendered = render_model_card(results).splitlines(keepends=True)
    return "".join(difflib.unified_diff(written, rendered, Path(card_path).name, "from the results"))


class CardFacts:
    """What a card says, read from results."""

    def __init__(self, runs: list[Results], config: Any, card: dict[str, Any]):
        self.runs, self.card, self.main = runs, card, runs[0]
        self.recipe = self.main.get("recipe") or {}
        self.config = self.config_fields(config)
        self.model = self.main.get("model") or known_size(self.config)
        self.model_type = self.config.get("model_type") or self.model.get("model_type") or "deepnmt"
        self.task = self.recipe.get("task") or self.main.get("task") or "translation"
        self.words = WORDS[self.task]
        # a summary is in the language of its document, and the names of their columns are no languages
        self.pair = "-".join(self.language_pair()) if self.task == "translation" else None
        self.name = card.get("name") or self.model.get("name") or f"{self.model_type}-{self.pair or self.task}"

    def config_fields(self, config: Any) -> dict[str, Any]:
        if isinstance(config, PreTrainedConfig):
            config = config.to_dict()
        return dict(config or self.main.get("config") or self.recipe.get("model") or {})

    def language_pair(self) -> tuple[str, str]:
        data = [self.recipe.get("data") or {}]
        data += [
            facts for run in self.runs for facts in (run.get("data") or {}).values() if isinstance(facts, Mapping)
        ]
        for facts in data:
            if facts.get("source_lang") and facts.get("target_lang"):
                return facts["source_lang"], facts["target_lang"]
        raise ValueError("The results name no languages: give `source_lang` and `target_lang` when evaluating")

    @property
    def languages(self) -> list[str]:
        stated = self.card.get("language")
        if stated is not None:
            return [stated] if isinstance(stated, str) else list(stated)
        return list(dict.fromkeys(self.language_pair())) if self.pair else []

    def scores(self) -> Iterator[tuple[Results, str, str, dict[str, Any]]]:
        """Run, name of the test set, metric and its score, of all results."""
        for run in self.runs:
            for name, scores in (run.get("scores") or {}).items():
                for metric in METRIC_NAMES:
                    if metric in scores:
                        yield run, name, metric, scores[metric]

    def datasets(self) -> list[str]:
        return list(self.card.get("datasets") or [])


def known_size(config: Mapping[str, Any]) -> dict[str, Any]:
    """Type and parameter count of a model of this package, from its whole config alone."""
    architecture = ARCHITECTURES.get(config.get("model_type"))
    if architecture is None or "vocab_size" not in config:
        return {}
    with torch.device("meta"):
        model = architecture.head(architecture.config(**config))
    return {"model_type": config["model_type"], "parameters": model.num_parameters()}


def front_matter(facts: CardFacts) -> str:
    datasets, pair = facts.datasets(), facts.pair
    evaluations = [
        EvalResult(
            task_type=facts.task,
            task_name=" ".join(filter(None, (facts.words.title, pair))),
            dataset_type=datasets[0] if datasets else name,
            dataset_name=name,
            metric_type=METRIC_TYPES[metric],
            metric_name=METRIC_NAMES[metric],
            metric_value=round(score["score"], 2),
            metric_args={"signature": score["signature"]},
        )
        for _, name, metric, score in facts.scores()
    ]
    data = ModelCardData(
        language=facts.languages or None,
        license=facts.card.get("license", "apache-2.0"),
        library_name="transformers",
        pipeline_tag=facts.task,
        tags=list(filter(None, (facts.task, "hf_deepnmt", facts.model_type, pair))),
        datasets=datasets or None,
        metrics=list(dict.fromkeys(METRIC_TYPES[metric] for _, _, metric, _ in facts.scores())),
        model_name=facts.name,
        eval_results=evaluations,
    )
    return data.to_yaml()


def body(facts: CardFacts) -> list[str]:
    return [
        f"# {facts.name}",
        facts.card.get("description") or facts.recipe.get("description") or "",
        architecture_section(facts),
        usage_section(facts),
        results_section(facts),
        significance_section(facts),
        decoding_section(facts),
        data_section(facts),
        training_section(facts),
        hardware_section(facts),
        limitations_section(facts),
        provenance_section(facts),
        f"## Citation\n\n```bibtex\n{facts.card['citation'].strip()}\n```" if facts.card.get("citation") else "",
    ]


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell(value) for value in line) + " |" for line in lines)


def cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return text.replace("|", "\\|")


def architecture_section(facts: CardFacts) -> str:
    architecture = ARCHITECTURES.get(facts.model_type)
    text = f"{architecture.title}. Paper: {architecture.paper}." if architecture else f"`{facts.model_type}`."
    rows = [(label, facts.config[name]) for name, label in CONFIG_FIELDS.items() if facts.config.get(name) is not None]
    if "parameters" in facts.model:
        rows.insert(0, ("Parameters", facts.model["parameters"]))
    parts = [f"## Architecture\n\n{text}", table(("", ""), rows) if rows else "", readings(facts, architecture)]
    return "\n\n".join(part for part in parts if part)


def readings(facts: CardFacts, architecture: Architecture | None) -> str:
    """What the paper leaves open and this model's config decides."""
    known = {} if architecture is None else architecture.readings
    values = {name: "unset" if value is None else value for name, value in facts.config.items()}
    rows = [(f"`{name}`", values[name], why) for name, why in known.items() if name in values]
    if not rows:
        return ""
    return (
        "Where the paper is silent or contradicts itself, a field of the config decides. These are readings:\n\n"
        + table(("Field", "Value", "What is open"), rows)
    )


def usage_section(facts: CardFacts) -> str:
    model, task, words = facts.card.get("model_id") or facts.name, facts.task, facts.words
    return f"""## How to use

With the package `hf_deepnmt`, which makes the task `{task}` known:

```python
import hf_deepnmt
from transformers import pipeline

{words.function} = pipeline("{task}", model="{model}")
{words.function}("...", {words.options})
```

Without it, with the code that lies in the checkpoint:

```python
from transformers import pipeline

{words.function} = pipeline("{task}", model="{model}", trust_remote_code=True)
{words.function}("...", {words.options})
```"""


def results_section(facts: CardFacts) -> str:
    rows = [
        (name, METRIC_NAMES[metric], f"{score['score']:.2f}", run["scores"][name].get("sentences", ""))
        for run, name, metric, score in facts.scores()
    ]
    signatures = dict.fromkeys((METRIC_NAMES[metric], score["signature"]) for _, _, metric, score in facts.scores())
    lines = [f"- {name}: `{signature}`" for name, signature in signatures]
    ratios = [
        f"- Length ratio on {name}: {scores['length_ratio']:.3f}"
        for run in facts.runs
        for name, scores in (run.get("scores") or {}).items()
        if scores.get("length_ratio") is not None
    ]
    listing = "\n".join([*lines, *ratios])
    return f"## Results\n\n{table(('Test set', 'Metric', 'Score', 'Sentences'), rows)}\n\nSignatures:\n\n{listing}"


def significance_section(facts: CardFacts) -> str:
    rows, tests = [], {}
    for run in facts.runs:
        for name, test in (run.get("significance") or {}).items():
            tests[f"{test['test']}, n = {test['n']}, seed {test['seed']}"] = None
            rows += [
                (name, test["baseline"] or "", METRIC_NAMES[metric], f"{result['delta']:+.2f}", p_value(result))
                for metric, result in test["metrics"].items()
            ]
    if not rows:
        return ""
    header = ("Test set", "Baseline", "Metric", "Difference", "p")
    return f"## Comparison\n\n{table(header, rows)}\n\nTwo-sided {'; '.join(tests)}."


def p_value(result: Mapping[str, Any]) -> str:
    return f"{result['p_value']:.4f}"


def decoding_section(facts: CardFacts) -> str:
    settings = {
        json.dumps(run["decoding"], sort_keys=True): run["decoding"] for run in facts.runs if run.get("decoding")
    }
    blocks = [table(("Decoding setting", "Value"), sorted(decoding.items())) for decoding in settings.values()]
    return "\n\n".join(["## Decoding", *blocks]) if blocks else ""


def data_section(facts: CardFacts) -> str:
    reports = {name: report for name, report in (facts.main.get("data") or {}).items() if "kept" in report}
    rows = [(name, report["read"], report["kept"], dropped(report)) for name, report in reports.items()]
    names = ", ".join(f"`{name}`" for name in facts.datasets())
    corpus = (facts.recipe.get("data") or {}).get("corpus")
    origin = f"Data sets: {names}." if names else f"Corpus: `{corpus}`." if corpus else ""
    pairs = table(("Part", "Pairs read", "Pairs used", "Left out"), rows) if rows else ""
    return "\n\n".join(["## Data", *filter(None, (origin, pairs))]) if origin or pairs else ""


def dropped(report: Mapping[str, Any]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in report.get("dropped", {}).items()) or "none"


def training_section(facts: CardFacts) -> str:
    if not facts.recipe:
        return ""
    sections = {
        name: stated_values(facts.recipe[name])
        for name in ("data", "tokenizer", "model", "training", "evaluation")
        if facts.recipe.get(name)
    }
    recipe = yaml.safe_dump(sections, sort_keys=False, allow_unicode=True).strip()
    return f"## Training\n\nThe recipe:\n\n```yaml\n{recipe}\n```" + "".join(
        f"\n\n{sentence}" for sentence in training_outcome(facts.main.get("training") or {})
    )


def training_outcome(training: Mapping[str, Any]) -> Iterator[str]:
    if "steps" in training:
        yield f"Steps: {training['steps']:,}."
    for metric in dict.fromkeys(task.best for task in TASKS.values()):
        logged = f"eval_{metric}"
        validation = [entry for entry in training.get("history") or [] if logged in entry]
        if validation:
            best = max(validation, key=lambda entry: entry[logged])
            name = METRIC_NAMES[metric]
            yield f"Best validation {name} while training: {best[logged]:.2f}, at step {best['step']:,}."


def stated_values(value: Any) -> Any:
    """Without unset fields and folders of this machine."""
    if isinstance(value, Mapping):
        return {key: stated_values(item) for key, item in value.items() if item is not None and item != {}}
    if isinstance(value, (list, tuple)):
        return [stated_values(item) for item in value]
    return portable_argument(value) if isinstance(value, str) else value


def hardware_section(facts: CardFacts) -> str:
    hardware = (facts.main.get("run") or {}).get("hardware") or {}
    labels = {
        "cpu": "CPU",
        "cores": "Cores",
        "threads": "Threads",
        "ram_gib": "RAM (GiB)",
        "gpu": "GPU",
        "gpus": "GPUs",
    }
    rows = [(label, hardware[key]) for key, label in labels.items() if hardware.get(key)]
    seconds = (facts.main.get("training") or {}).get("train_runtime")
    if seconds is not None:
        rows.append(("Training time", f"{seconds:.0f} s"))
    for name, value in (facts.main.get("time") or {}).items():
        rows.append((f"Decoding: {name.replace('_', ' ')}", value))
    return f"## Hardware and time\n\n{table(('', ''), rows)}" if rows else ""


def limitations_section(facts: CardFacts) -> str:
    sentences = [*(facts.card.get("limitations") or []), *facts.words.limitations]
    return "## Limitations\n\n" + "\n".join(f"- {sentence}" for sentence in sentences)


def provenance_section(facts: CardFacts) -> str:
    run = facts.main.get("run") or {}
    rows = [(name, run[name]) for name in ("date", "seed", "command", "commit") if run.get(name) is not None]
    if run.get("dirty"):
        rows.append(("uncommitted changes", True))
    rows += [(name, version) for name, version in (run.get("versions") or {}).items() if version]
    return f"## Provenance\n\n{table(('', ''), [(name, plain(value)) for name, value in rows])}" if rows else ""


def plain(value: Any) -> Any:
    # A seed is a name, not a quantity.
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


__all__ = ["check_card", "render_model_card", "write_model_card"]
