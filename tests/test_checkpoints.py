"""Averaging checkpoints and choosing them."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import tiny_config, tiny_model
from transformers import AutoModelForSeq2SeqLM, MarianConfig, MarianMTModel

from hf_deepnmt.checkpoints import PROVENANCE, average_checkpoints, best_checkpoints, last_checkpoints


def constant(folder, value, config=None, **options):
    model = tiny_model() if config is None else type(tiny_model())(config)
    for parameter in model.parameters():
        parameter.data.fill_(value)
    model.save_pretrained(folder, **options)
    return folder


def values(folder):
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    return {float(value) for parameter in model.parameters() for value in parameter.detach().unique()}


def test_average_counts_tied_weights_once_and_loads(tmp_path):
    folders = [constant(tmp_path / str(value), float(value)) for value in (1, 2, 3)]
    average_checkpoints(folders, tmp_path / "average")
    assert values(tmp_path / "average") == {2.0}
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "average")
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert len(load_file(tmp_path / "average" / "model.safetensors")) == len(
        load_file(folders[0] / "model.safetensors")
    )


def test_untied_models_stay_untied(tmp_path):
    config = tiny_config(tie="none")
    folders = [constant(tmp_path / str(value), float(value), config) for value in (1, 3)]
    model = AutoModelForSeq2SeqLM.from_pretrained(average_checkpoints(folders, tmp_path / "average"))
    assert model.get_output_embeddings().weight is not model.get_input_embeddings().weight
    assert values(tmp_path / "average") == {2.0}


def test_average_of_marian_checkpoints_loads(tmp_path):
    config = MarianConfig(
        vocab_size=40, d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16, decoder_ffn_dim=16,
        encoder_attention_heads=2, decoder_attention_heads=2, pad_token_id=1, eos_token_id=2, decoder_start_token_id=0,
        max_position_embeddings=32,
    )  # fmt: skip
    models = [MarianMTModel(config) for _ in range(2)]
    for place, model in enumerate(models):
        model.save_pretrained(tmp_path / str(place))
    average_checkpoints([tmp_path / "0", tmp_path / "1"], tmp_path / "average")
    loaded = MarianMTModel.from_pretrained(tmp_path / "average").state_dict()
    for key, value in models[0].state_dict().items():
        torch.testing.assert_close(loaded[key], (value + models[1].state_dict()[key]) / 2, atol=1e-7, rtol=0)


def test_weights_are_scaled_to_one(tmp_path):
    folders = [constant(tmp_path / str(value), float(value)) for value in (1, 5)]
    assert values(average_checkpoints(folders, tmp_path / "average", weights=[3, 1])) == {2.0}


def test_sharded_checkpoints_are_averaged_with_whole_ones(tmp_path):
    folders = [constant(tmp_path / "whole", 1.0), constant(tmp_path / "sharded", 3.0, max_shard_size="8KB")]
    assert (folders[1] / "model.safetensors.index.json").is_file()
    for place, order in enumerate((folders, folders[::-1])):
        assert values(average_checkpoints(order, tmp_path / f"average{place}")) == {2.0}


def test_half_precision_is_summed_in_double_and_kept(tmp_path):
    folders = []
    for place in range(64):
        folder = tmp_path / str(place)
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        value = torch.tensor([256.0, 1.0]) if place == 0 else torch.tensor([1.0, 1.0])
        save_file({"w": value.bfloat16(), "steps": torch.tensor([7])}, folder / "model.safetensors")
        folders.append(folder)
    tensors = load_file(average_checkpoints(folders, tmp_path / "average") / "model.safetensors")
    assert tensors["w"].dtype == torch.bfloat16
    assert tensors["steps"].tolist() == [7]
    assert tensors["w"].tolist() == torch.tensor([319 / 64, 1.0]).bfloat16().tolist()


def test_everything_but_the_training_state_is_copied(tmp_path):
    folders = [constant(tmp_path / str(value), float(value)) for value in (1, 3)]
    (folders[1] / "vocabulary").mkdir()
    extra = (
        "tokenizer.json",
        "source.spm",
        "trainer_state.json",
        "optimizer.pt",
        "training_args.bin",
        "vocabulary/v.txt",
    )
    for name in extra:
        (folders[1] / name).write_text("{}")
    output = average_checkpoints(folders, tmp_path / "average")
    copied = {str(path.relative_to(output)) for path in output.rglob("*") if path.is_file()}
    assert {"config.json", "generation_config.json", "tokenizer.json", "source.spm", "vocabulary/v.txt"} <= copied
    assert {path.name for path in folders[1].glob("*.py")} <= copied
    assert not copied & {"trainer_state.json", "optimizer.pt", "training_args.bin"}


def test_provenance_names_folders_without_their_place(tmp_path):
    folders = [constant(tmp_path / f"checkpoint-{value}", float(value)) for value in (1, 3)]
    text = (average_checkpoints(folders, tmp_path / "average") / PROVENANCE).read_text()
    assert json.loads(text)["folders"] == ["checkpoint-1", "checkpoint-3"]
    assert str(tmp_path) not in text


def change(folder, name, tensor):
    tensors = load_file(folder / "model.safetensors")
    if tensor is None:
        del tensors[name]
    else:
        tensors[name] = tensor
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (None, "is missing in .*two"),
        (torch.zeros(3), r"\(3,\) in .*two"),
        (torch.zeros(16, dtype=torch.float64), "float64"),
    ],
)
def test_other_tensors_are_refused_with_name_and_folder(tmp_path, tensor, message):
    folders = [constant(tmp_path / name, 1.0) for name in ("one", "two")]
    change(folders[1], "model.encoder.layers.0.final_layer_norm.bias", tensor)
    with pytest.raises(ValueError, match=rf"final_layer_norm.bias.*{message}"):
        average_checkpoints(folders, tmp_path / "average")
    assert not (tmp_path / "average").exists()


def test_integer_tensors_must_agree(tmp_path):
    folders = [constant(tmp_path / name, 1.0) for name in ("one", "two")]
    for place, folder in enumerate(folders):
        change(folder, "steps", torch.tensor([place]))
    with pytest.raises(ValueError, match="integer tensor 'steps'"):
        average_checkpoints(folders, tmp_path / "average")


def test_models_of_other_structure_are_refused_though_shapes_agree(tmp_path):
    folders = [
        constant(tmp_path / str(heads), 1.0, tiny_config(encoder_attention_heads=heads, dropout=0.01 * heads))
        for heads in (2, 4)
    ]
    with pytest.raises(ValueError, match="'encoder_attention_heads' is 4"):
        average_checkpoints(folders, tmp_path / "average")


def test_outputs_are_not_overwritten_unless_they_are_averages(tmp_path):
    folders = [constant(tmp_path / str(value), float(value)) for value in (1, 3)]
    other = constant(tmp_path / "other", 9.0)
    for output, message in ((folders[0], "one of the checkpoints"), (other, "not empty")):
        with pytest.raises(ValueError, match=message):
            average_checkpoints(folders, output)
    average_checkpoints(folders, tmp_path / "average")
    assert values(average_checkpoints(folders[:1], tmp_path / "average")) == {1.0}


@pytest.mark.parametrize("weights", [[1], [1, -1], [0, 0], [1, float("nan")]])
def test_weights_that_are_none_are_refused(tmp_path, weights):
    with pytest.raises(ValueError, match="weights"):
        average_checkpoints([constant(tmp_path / name, 1.0) for name in "ab"], tmp_path / "average", weights=weights)


def run_with(tmp_path, scores, unfinished=()):
    history = []
    for step, score in scores.items():
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        history.append({"eval_bleu": score, "eval_loss": 10 - score, "step": step})
        if step not in unfinished:
            (folder / "model.safetensors").touch()
        (folder / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    return tmp_path


def names(folders):
    return [folder.name for folder in folders]


def test_last_checkpoints_are_by_step_and_complete(tmp_path):
    run = run_with(tmp_path, {5: 1, 90: 2, 100: 3, 1000: 4}, unfinished={1000})
    (run / "checkpoint-x").mkdir()
    assert names(last_checkpoints(run, 2)) == ["checkpoint-90", "checkpoint-100"]
    assert names(last_checkpoints(run, 9)) == ["checkpoint-5", "checkpoint-90", "checkpoint-100"]
    assert last_checkpoints(run / "nowhere", 1) == []


def test_best_checkpoints_are_by_metric_and_the_later_of_equals(tmp_path):
    run = run_with(tmp_path, {1: 2.0, 2: 7.0, 3: 5.0, 4: 5.0, 5: float("nan")})
    assert names(best_checkpoints(run, 3)) == ["checkpoint-2", "checkpoint-4", "checkpoint-3"]
    assert names(best_checkpoints(run, 1, "eval_loss")) == ["checkpoint-2"]
    assert names(best_checkpoints(run, 1, "eval_loss", greater_is_better=True)) == ["checkpoint-1"]
    with pytest.raises(ValueError, match="'eval_ter'"):
        best_checkpoints(run, 1, "eval_ter")
