# Copyright 2026 The hf_deepnmt authors. Apache-2.0 licence.
"""
Explicit reordering of the source (arXiv:2004.03818): every encoder layer predicts for each token its place in the order of
the target language, and adds an embedding of that place. ExGRE encodes the sentence once, reordered; ReFSR also in its own
order, and fuses both. A reordering loss compares the positions of the last layer with those that word alignments give.

Equations 1 to 12 are missing from the text that this follows; `ReorderingConfig` names every reading.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqModelOutput
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple
from transformers.utils.deprecation import deprecate_kwarg

from .configuration_reordering import ReorderingConfig
from .modeling_deepnmt import (
    IGNORED_LABEL,
    DeepNMTEncoder,
    DeepNMTEncoderLayer,
    DeepNMTForConditionalGeneration,
    DeepNMTModel,
    DeepNMTPreTrainedModel,
    DeepNMTSeq2SeqLMOutput,
    positions_from_mask,
)


NO_POSITION = -100.0


@dataclass
class ReorderingEncoderOutput(BaseModelOutput):
    """
    `hidden_states` but the last, and `attentions`, are those of the reordered pass.

    Args:
        reordered_positions (`torch.FloatTensor` of shape `(batch, layers, source)`, *optional*):
            b_j of each reordering layer in the sentence's own scale, 0 for its first place and J - 1 for its last; -100
            at padding.
    """

    reordered_positions: torch.FloatTensor | None = None


@dataclass
class ReorderingModelOutput(Seq2SeqModelOutput):
    """
    Args:
        reordered_positions (`torch.FloatTensor` of shape `(batch, layers, source)`, *optional*):
            As in `ReorderingEncoderOutput`, where asked for or needed by the loss.
        target_positions (`torch.FloatTensor` of shape `(batch, source)`, *optional*):
            As given.
    """

    reordered_positions: torch.FloatTensor | None = None
    target_positions: torch.FloatTensor | None = None


@dataclass
class ReorderingSeq2SeqLMOutput(DeepNMTSeq2SeqLMOutput):
    """
    Args:
        reordered_positions (`torch.FloatTensor` of shape `(batch, layers, source)`, *optional*):
            As in `ReorderingEncoderOutput`, with `output_positions=True`.
    """

    reordered_positions: torch.FloatTensor | None = None


class SourcePlaces(NamedTuple):
    """
    Where the tokens of a batch stand, each sentence counted from its first token.

    Args:
        own: (batch, source), the places 0 to J - 1 of the tokens, -100 at padding before and behind.
        lengths: (batch, 1), J, tokens with the end of the sentence.
        table: (source, d_model), the embeddings of places 0, 1, ...
        oracle: (batch, source), positions to use instead of predicted ones, -100 where predicted ones stay.
    """

    own: torch.Tensor
    lengths: torch.Tensor
    table: torch.Tensor
    oracle: torch.Tensor | None = None

    def positions(self, logits: torch.Tensor) -> torch.Tensor:
        """b_j = J * sigmoid(logit), at most the last place: (batch, source), -100 at padding."""
        positions = torch.minimum(self.lengths * logits.sigmoid(), (self.lengths - 1).to(logits.dtype))
        if self.oracle is not None:
            positions = torch.where(self.oracle == NO_POSITION, positions, self.oracle.to(positions.dtype))
        return positions.masked_fill(self.own == NO_POSITION, NO_POSITION)


def check_positions(name: str, positions: torch.Tensor, lengths: torch.Tensor, source: int):
    """
    Refuse positions of the wrong shape or outside their sentence; -100 stands for none.

    Raises:
        ValueError: names the input and the first wrong row.
    """
    expected = (lengths.shape[0], source)
    if tuple(positions.shape) != expected:
        raise ValueError(
            f"`{name}` has shape {tuple(positions.shape)}, but the source is {expected}: give one position for each source "
            "token, padded with -100 as `input_ids` is padded"
        )
    if torch.compiler.is_compiling():
        return
    wrong = (positions != NO_POSITION) & ~((positions >= 0) & (positions <= lengths - 1))
    if wrong.any():
        row, token = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"`{name}` of row {row} of the batch is {positions[row, token].item():g} at token {token}, but the sentence has "
            f"{int(lengths[row])} tokens: positions run from 0 to {int(lengths[row]) - 1}, and -100 stands for none"
        )


def reordered_embeddings(
    positions: torch.Tensor, lengths: torch.Tensor, table: torch.Tensor, config: ReorderingConfig
) -> torch.Tensor:
    """
    pr_j = sum_s pe_s exp(-(s - b_j)^2 / (2 sigma^2)), sigma = D / 2, over the places s of the window: (batch, source, d_model).

    Args:
        positions: b, (batch, source); pr is 0 where it is -100.
        lengths: (batch, 1); no place at or behind it is in a window.
        table: pe, (source, d_model).
    """
    places = torch.arange(table.shape[0], device=positions.device)
    distance = places - positions[..., None]
    inside = (places < lengths)[:, None] & (positions != NO_POSITION)[..., None]
    if config.window == "hard":
        inside = inside & (distance.abs() <= config.window_size)
    # results too small for a normal number take a CPU ten times as long, and count for nothing beside the nearest place
    smallest = 0.99 * math.log(torch.finfo(distance.dtype).tiny)
    exponents = (-0.5 * (distance / (config.window_size / 2)) ** 2).clamp(min=smallest)
    weights = exponents.exp().masked_fill(~inside, 0.0)
    if config.normalise_window:
        weights = weights / weights.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
    return weights.to(table.dtype) @ table


class TokenScore(nn.Linear):
    """
    One number a token, in fp32 or more: (batch, source, d_model) to (batch, source, 1).

    bf16 could not tell places apart far into a sentence. As a matrix-vector product the result would depend on how the
    weights lie in memory, hence change a little when a checkpoint is loaded.
    """

    def __init__(self, width: int, bias: bool = False):
        super().__init__(width, 1, bias=bias)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        dtype = torch.promote_types(states.dtype, torch.float32)
        scores = (states.to(dtype) * self.weight[0].to(dtype)).sum(dim=-1, keepdim=True)
        return scores if self.bias is None else scores + self.bias.to(dtype)


class LuongPositionNet(nn.Module):
    """v^T tanh(W h_j^n), the predictive local attention of Luong et al. (2015)."""

    def __init__(self, config: ReorderingConfig):
        super().__init__()
        self.hidden = nn.Linear(config.d_model, config.d_model, bias=False)
        self.score = TokenScore(config.d_model)

    def forward(self, below: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        return self.score(self.hidden(states).tanh())[..., 0]


class ScalarPositionNet(nn.Module):
    """W^T h_j^{n-1} + U^T h_j^n."""

    def __init__(self, config: ReorderingConfig):
        super().__init__()
        self.below = TokenScore(config.d_model)
        self.own = TokenScore(config.d_model)

    def forward(self, below: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        return (self.below(below) + self.own(states))[..., 0]


class LinearPositionNet(nn.Module):
    """w^T h_j^n + c."""

    def __init__(self, config: ReorderingConfig):
        super().__init__()
        self.score = TokenScore(config.d_model, bias=True)

    def forward(self, below: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        return self.score(states)[..., 0]


POSITION_NETS = {"luong": LuongPositionNet, "scalar": ScalarPositionNet, "linear": LinearPositionNet}


class ReorderingEncoderLayer(DeepNMTEncoderLayer):
    """A layer that predicts the target-order positions of its tokens and adds embeddings of them (equations 4 to 8)."""

    def __init__(self, config: ReorderingConfig, layer_idx: int):
        super().__init__(config, layer_idx)
        self.position_net = POSITION_NETS[config.position_net](config)
        self.reorder_norm = self.make_norm() if config.reorder_norm else None

    def reorder(
        self, below: torch.Tensor, states: torch.Tensor, places: SourcePlaces | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """
        `states` with pr added, and b, (batch, source).

        Args:
            below, states: the layer's input and the states to reorder, (batch, source, d_model), or (2 * batch, source,
                d_model) with a plain pass first, which is left alone.
            places: None where all of it is a plain pass.
        """
        if places is None:
            return states, None
        plain = states.shape[0] - places.lengths.shape[0]
        own = states[plain:]
        positions = places.positions(self.position_net(below[plain:], own))
        reordered = own + reordered_embeddings(positions, places.lengths, places.table, self.config).to(own.dtype)
        if self.reorder_norm is not None:
            reordered = self.reorder_norm(reordered)
        return torch.cat([states[:plain], reordered]) if plain else reordered, positions

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        places: SourcePlaces | None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        output = self.attended(hidden_states, attention_mask, **kwargs)
        if self.config.reorder_site == "post_attn":
            output, positions = self.reorder(hidden_states, output, places)
        output = self.residual(output, self.final_layer_norm, self.feed_forward)
        if self.config.reorder_site == "post_ffn":
            output, positions = self.reorder(hidden_states, output, places)
        return output, positions


class ReorderingGate(nn.Module):
    """g * H + (1 - g) * H_reordered with g = sigmoid(W_g H + U_g H_reordered), or 1/2 (equations 11 and 12)."""

    def __init__(self, config: ReorderingConfig):
        super().__init__()
        self.plain, self.reordered = self.make_map(config), self.make_map(config)

    @staticmethod
    def make_map(config: ReorderingConfig) -> nn.Linear | None:
        if config.gate == "scalar":
            return TokenScore(config.d_model)
        return nn.Linear(config.d_model, config.d_model, bias=False) if config.gate == "vector" else None

    def weight(self, plain: torch.Tensor, reordered: torch.Tensor) -> torch.Tensor | float:
        if self.plain is None:
            return 0.5
        return torch.sigmoid(self.plain(plain) + self.reordered(reordered)).to(plain.dtype)

    def forward(self, plain: torch.Tensor, reordered: torch.Tensor) -> torch.Tensor:
        weight = self.weight(plain, reordered)
        return weight * plain + (1 - weight) * reordered


class ReorderingPreTrainedModel(DeepNMTPreTrainedModel):
    config: ReorderingConfig
    _no_split_modules = [*DeepNMTPreTrainedModel._no_split_modules, "ReorderingEncoderLayer"]


class ReorderingEncoder(ReorderingPreTrainedModel, DeepNMTEncoder):
    def __init__(self, config: ReorderingConfig):
        super().__init__(config)
        self.gate = ReorderingGate(config) if config.fusion == "gate" else None
        self.post_init()

    def make_layer(self, layer_idx: int) -> nn.Module:
        if layer_idx in self.config.reordering_layers:
            return ReorderingEncoderLayer(self.config, layer_idx)
        return super().make_layer(layer_idx)

    def places(self, attention_mask: torch.Tensor | None, inputs_embeds: torch.Tensor) -> SourcePlaces:
        """Places of the tokens; padding may stand before or behind, and tokens masked in between keep their place."""
        batch, source = inputs_embeds.shape[:2]
        device = inputs_embeds.device
        positions = positions_from_mask(attention_mask, source, 0, device).expand(batch, -1)
        inside = torch.ones(batch, source, dtype=torch.bool, device=device)
        if attention_mask is not None and attention_mask.dim() == 2:
            seen = attention_mask.ne(0).int()
            inside = seen.cumsum(-1).bool() & seen.flip(-1).cumsum(-1).flip(-1).bool()
        own = positions.float().masked_fill(~inside, NO_POSITION)
        table = self.embed_positions(torch.arange(source, device=device)[None], bound=source)[0]
        return SourcePlaces(own, inside.sum(dim=-1, keepdim=True), table)

    def run_layers(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        places: SourcePlaces | None,
        predicted: list[torch.Tensor],
        **kwargs,
    ) -> list[torch.Tensor]:
        """z^L; the positions of each reordering layer go into `predicted`. A dropped layer repeats those before it."""
        positions = None if places is None else places.own
        for index, layer in enumerate(self.layers):
            reorders = index in self.config.reordering_layers
            if self.skips_layer():
                pass
            elif reorders:
                hidden_states, positions = layer(hidden_states, attention_mask, places=places, **kwargs)
            else:
                hidden_states = layer(hidden_states, attention_mask, **kwargs)
            if reorders:
                predicted.append(positions)
        return [hidden_states]

    def records(self, **kwargs) -> bool:
        """Whether the caller wants states or weights of the layers."""
        names = ("output_hidden_states", "output_attentions")
        return any(kwargs.get(name, getattr(self.config, name, False)) for name in names)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        oracle_positions: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> ReorderingEncoderOutput:
        """
        Args:
            input_ids, attention_mask, inputs_embeds: as the baseline's.
            oracle_positions: (batch, source), positions that every layer uses instead of its own, in the scale of
                `reordered_positions`, -100 where the predicted ones stay; for analysis, not for training.
        """
        if input_ids is not None and inputs_embeds is None:
            if attention_mask is None:
                attention_mask = input_ids.ne(self.config.pad_token_id)
            input_ids, inputs_embeds = None, self.embed_tokens(input_ids)
        if input_ids is not None or inputs_embeds is None:
            raise ValueError("Give the encoder exactly one of `input_ids` and `inputs_embeds`")
        places = self.places(attention_mask, inputs_embeds)
        if oracle_positions is not None:
            check_positions("oracle_positions", oracle_positions, places.lengths, inputs_embeds.shape[1])
            places = places._replace(oracle=oracle_positions)
        predicted: list[torch.Tensor] = []
        base, inputs = super().forward, {"inputs_embeds": inputs_embeds, "attention_mask": attention_mask}
        reordering = {"places": places, "predicted": predicted, "return_dict": True, **kwargs}
        if self.gate is None:
            outputs = base(**inputs, **reordering)
        elif not self.records(**kwargs):
            doubled = {name: None if value is None else torch.cat([value, value]) for name, value in inputs.items()}
            outputs = base(**doubled, **reordering)
            outputs.last_hidden_state = self.gate(*outputs.last_hidden_state.chunk(2))
        else:
            # one after the other, so that what is recorded is what the output is computed from
            silent = {"output_hidden_states": False, "output_attentions": False}
            plain = base(**inputs, **{**reordering, "places": None, "predicted": [], **silent})
            outputs = base(**inputs, **reordering)
            outputs.last_hidden_state = self.gate(plain.last_hidden_state, outputs.last_hidden_state)
            if outputs.hidden_states and outputs.hidden_states[-1] is not None:
                outputs.hidden_states = (*outputs.hidden_states[:-1], outputs.last_hidden_state)
        positions = torch.stack(predicted, dim=1) if predicted else None
        return ReorderingEncoderOutput(**outputs, reordered_positions=positions)


class ReorderingModel(ReorderingPreTrainedModel, DeepNMTModel):
    """Encoder and decoder without the output projection."""

    encoder_class = ReorderingEncoder

    @can_return_tuple
    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: tuple | BaseModelOutput | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        target_positions: torch.Tensor | None = None,
        oracle_positions: torch.Tensor | None = None,
        output_positions: bool = False,
        **kwargs: Unpack[TransformersKwargs],
    ) -> ReorderingModelOutput:
        """As the baseline's; the further inputs are those of `ReorderingForConditionalGeneration.forward`."""
        encoder_outputs, attention_mask = self.encode(
            encoder_outputs, input_ids, attention_mask, inputs_embeds, oracle_positions=oracle_positions, **kwargs
        )
        outputs = super().forward(
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            cache=cache,
            decoder_inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            return_dict=True,
            **kwargs,
        )
        wanted = output_positions or target_positions is not None
        positions = getattr(encoder_outputs, "reordered_positions", None) if wanted else None
        return ReorderingModelOutput(**outputs, reordered_positions=positions, target_positions=target_positions)


class ReorderingForConditionalGeneration(ReorderingPreTrainedModel, DeepNMTForConditionalGeneration, GenerationMixin):
    """The translation model with the reordering loss (equations 9 and 10)."""

    model_class = ReorderingModel

    def position_distances(self, positions: torch.Tensor, targets: torch.Tensor, kind: str) -> torch.Tensor:
        """
        How far positions are from the supervised ones, in fp32: (batch, source), 0 where there is no supervision.

        Args:
            positions: b, (batch, source), -100 at padding.
            targets: (batch, source), -100 where there is no supervision. Fractions are rounded for an embedding.
            kind: as `reorder_loss` of the config.
        """
        lengths = positions.ne(NO_POSITION).sum(dim=-1, keepdim=True)
        check_positions("target_positions", targets, lengths, positions.shape[-1])
        if kind == "position":
            distances = nn.functional.smooth_l1_loss(positions / lengths, targets / lengths, reduction="none")
        else:
            distances = self.embedding_distances(positions, targets, lengths, kind)
        return distances.masked_fill(targets == NO_POSITION, 0.0)

    def embedding_distances(
        self, positions: torch.Tensor, targets: torch.Tensor, lengths: torch.Tensor, kind: str
    ) -> torch.Tensor:
        source = torch.arange(positions.shape[-1], device=positions.device)
        table = self.model.encoder.embed_positions(source[None], bound=source.shape[0])[0]
        with torch.autocast(device_type=positions.device.type, enabled=False):
            table = table.to(positions.dtype)
            predicted = reordered_embeddings(positions, lengths, table, self.config)
            supervised = table[targets.clamp(min=0).round().long()]
            if kind == "l2":
                return (predicted - supervised).square().mean(dim=-1)
            return 1 - nn.functional.cosine_similarity(predicted, supervised, dim=-1)

    def auxiliary_loss(
        self,
        outputs: ReorderingModelOutput,
        num_items_in_batch: torch.Tensor | int | None = None,
        labels: torch.LongTensor | None = None,
        **kwargs,
    ) -> torch.Tensor | None:
        """
        lambda times the reordering loss of the last reordering layer; None without `target_positions`.

        A sentence without supervision adds 0, and a batch without any gives 0.
        """
        targets, positions = outputs.target_positions, outputs.reordered_positions
        if targets is None or positions is None:
            return None
        distances = self.position_distances(positions[:, -1], targets, self.config.reorder_loss).sum(dim=-1)
        words = labels.ne(IGNORED_LABEL).sum(dim=-1)
        if self.config.reorder_reduction == "mean":
            distances = words * distances / targets.ne(NO_POSITION).sum(dim=-1).clamp(min=1)
        count = words.sum().clamp(min=1) if num_items_in_batch is None else num_items_in_batch
        return self.config.reorder_weight * distances.sum() / count

    @can_return_tuple
    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: tuple | BaseModelOutput | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        target_positions: torch.Tensor | None = None,
        oracle_positions: torch.Tensor | None = None,
        output_positions: bool = False,
        output_logits: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> ReorderingSeq2SeqLMOutput:
        """
        As the baseline's, with three inputs more. Positions are (batch, source) in the scale of `reordered_positions`.

        Args:
            target_positions: the place of each source token in the order of the target, 0 to J - 1 with J the tokens of
                its sentence, -100 where there is no supervision. With `labels`, the reordering loss is part of `loss`.
            oracle_positions: positions to use instead of predicted ones, -100 where those stay.
            output_positions: return `reordered_positions`.
        """
        if output_positions and encoder_outputs is None:
            encoder_outputs, attention_mask = self.model.encode(
                None, input_ids, attention_mask, inputs_embeds, oracle_positions=oracle_positions, **kwargs
            )
        outputs = super().forward(
            input_ids=input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            cache=cache,
            inputs_embeds=inputs_embeds,
            decoder_inputs_embeds=decoder_inputs_embeds,
            labels=labels,
            use_cache=use_cache,
            num_items_in_batch=num_items_in_batch,
            output_logits=output_logits,
            target_positions=target_positions,
            oracle_positions=oracle_positions,
            return_dict=True,
            **kwargs,
        )
        positions = getattr(encoder_outputs, "reordered_positions", None) if output_positions else None
        return ReorderingSeq2SeqLMOutput(**outputs, reordered_positions=positions)


__all__ = ["ReorderingForConditionalGeneration", "ReorderingModel"]
