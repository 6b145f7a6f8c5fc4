"""The section `data` of a recipe: what is trained on, in which proportions, and how it becomes rows."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from cairn.config.section import Section

Positive = Annotated[int, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
FormatChoice = str | dict[str, Any]


class Dataset(Section):
    """One of several datasets: a path, or an entry of a LlamaFactory catalogue, with settings of its own."""

    path: str | None = Field(None, description="a file, folder or glob, local or on hf://, s3://, gs://")
    catalog: str | None = Field(None, description="a dataset_info.json; with name, in place of path")
    name: str | tuple[str, ...] | None = Field(None, description="entries of the catalogue")
    format: FormatChoice | None = Field(None, description="as data.format, which it overrides")
    limit: Positive | None = Field(None, description="as data.limit, which it overrides")
    weight: float | None = Field(None, gt=0, description="its share of an epoch beside the others; none: its rows")


class SubsetMixture(Section):
    """In which proportions the subsets of the documents are trained on; each fills rows of its own."""

    by: Literal["documents", "bytes", "tokens", "epochs"] = Field(
        "documents", description="what the weights weigh; epochs: how often each subset's rows come, fractions too"
    )
    weights: dict[str, Annotated[float, Field(gt=0)]] = Field(
        {}, description="subset → weight; none: the Pile's own (documents: documents × epochs, as it was drawn)"
    )


class Data(Section):
    """What is trained on, how it becomes tokens, and how tokens become rows."""

    train: tuple[str | Dataset, ...] = Field(
        min_length=1, description="files, folders or globs, local or on hf://, s3://, gs://; or data.train entries"
    )
    validation: tuple[str | Dataset, ...] = Field(
        (), description="what is evaluated during training: files and entries as for data.train"
    )
    hold_out: float = Field(
        0.0,
        ge=0,
        description="keep records of data.train for evaluation only: a share of them (below 1), or so many in all",
    )
    format: FormatChoice = Field(
        "auto", description="a format's name, a YAML of your own, {like: NAME, rename: {…}}, or auto to detect it"
    )
    subsets: tuple[str, ...] = Field(
        (),
        description="keep only these: tags, a kind (prose, academic …), pile-uncopyrighted, source:GLOB; with - before "
        "it, all but these",
    )
    mixture: SubsetMixture | None = Field(None, description="proportions of the subsets; none: as they come")
    limit: Positive | None = Field(None, description="use at most this many records of each file")
    sequence_length: Positive = Field(1024, description="tokens in a row, the most a model sees at once")
    truncation: Literal["drop", "keep_start", "keep_end"] = Field(
        "drop", description="what is kept of a conversation longer than a row; headers and answers stay whole"
    )
    template: str | None = Field(
        None, description="a chat template by name, for a base model whose tokenizer has none; saved with the adapter"
    )
    train_on: Literal["all", "last", "chosen"] = Field(
        "all",
        description="train every answer by its message's weight, or of these only a conversation's last; "
        "or of a preference set the chosen answers",
    )
    packing: bool = Field(True, description="put several samples into one row, isolated from each other")
    arrangement: Literal["shuffled", "interleaved", "concatenated"] = Field(
        "shuffled", description="order of the rows of several datasets in an epoch"
    )
    epoch_ends: Literal["first", "all"] = Field(
        "first", description="with weights: when the first dataset was seen whole, or when all were"
    )
    streaming: bool = Field(
        False, description="train while the files are still being read; nothing is prepared, and little is kept on disk"
    )
    shuffle_rows: int = Field(
        16384, ge=0, description="with streaming: shuffle so many rows at a time; 0 keeps the order of the files"
    )
    max_bad_fraction: Fraction = Field(0.01, description="stop when more than this share of records is unusable")

    @model_validator(mode="after")
    def _mixes_one_way(self) -> Self:
        if self.mixture is None:
            return self
        if self.streaming:
            raise ValueError("mixture needs to know how much there is of each subset: set streaming to false")
        if any(isinstance(entry, Dataset) and entry.weight is not None for entry in self.train):
            raise ValueError("mixture weighs subsets and data.train weighs datasets: use one of them")
        return self
