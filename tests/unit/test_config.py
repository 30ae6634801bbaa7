"""Settings: one list of options, converted, checked, and put back as they were; and the errors they raise."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from umpteen import errors
from umpteen.config import (
    CalibrationConfig,
    EncoderConfig,
    LinearConfig,
    ModelConfig,
    NetworkConfig,
    NeuralConfig,
    SearchConfig,
    StoreConfig,
    TfidfConfig,
    TrainingConfig,
    TreeConfig,
    describe,
    describe_all,
    difference,
    from_dict,
    to_dict,
    update,
)
from umpteen.errors import BadConfig, MissingExtra, UmpteenError, nearest

NOUNS = {
    "tfidf": TfidfConfig,
    "tree": TreeConfig,
    "linear": LinearConfig,
    "search": SearchConfig,
    "calibration": CalibrationConfig,
    "store": StoreConfig,
    "encoder": EncoderConfig,
    "network": NetworkConfig,
    "training": TrainingConfig,
}


def test_unknown_settings_suggest_the_nearest():
    with pytest.raises(BadConfig, match=r"unknown setting 'branchin'; did you mean 'branching'\?"):
        update(ModelConfig(), {"tree.branchin": 3})
    with pytest.raises(BadConfig, match=r"unknown setting 'branching'; did you mean 'tree.branching'\?"):
        update(ModelConfig(), {"branching": 3})
    with pytest.raises(BadConfig, match=r"unknown setting 'leaf_sise'; did you mean 'leaf_size'\?"):
        update(ModelConfig(), {"tree": {"leaf_sise": 3}})
    with pytest.raises(BadConfig, match=r"unknown setting 'xyzzy'$"):
        update(ModelConfig(), {"xyzzy": 3})


def test_a_setting_without_parts_has_no_dotted_key():
    with pytest.raises(BadConfig, match=r"'seed' has no parts, so 'seed.x' does not exist"):
        update(ModelConfig(), {"seed.x": 3})


@pytest.mark.parametrize("values", [{"training.epochs": "abc"}, {"training": {"epochs": "abc"}}])
def test_a_wrong_setting_is_named_in_full(values):
    with pytest.raises(BadConfig, match=r"^training\.epochs must be a number, but is 'abc'"):
        update(NeuralConfig(), values)
    with pytest.raises(BadConfig, match=r"^training\.epochs must be"):
        NeuralConfig(training={"epochs": "abc"})
    with pytest.raises(BadConfig, match=r"^network\.head full has one level"):  # a sentence that does so itself
        update(NeuralConfig(), {"network.head": "full", "training.order": "own-reader"})


def test_a_noun_takes_a_dict_or_its_own_class():
    assert ModelConfig(tree={"branching": 8}).tree == TreeConfig(branching=8)
    assert update(ModelConfig(), {"tree": TreeConfig(branching=8)}).tree.branching == 8
    with pytest.raises(BadConfig, match="tree must be a TreeConfig or a dict, but is 5"):
        ModelConfig(tree=5)
    with pytest.raises(BadConfig, match="tree must be a TreeConfig or a dict"):
        ModelConfig(tree=SearchConfig())


@pytest.mark.parametrize(
    ("cls", "key", "text", "value"),
    [
        (TreeConfig, "branching", "16", 16),
        (TreeConfig, "branching", "1e2", 100),
        (TreeConfig, "branching", 16.0, 16),
        (LinearConfig, "cost", "0.5", 0.5),
        (LinearConfig, "cost", 2, 2.0),
        (TfidfConfig, "lowercase", "no", False),
        (TfidfConfig, "lowercase", "On", True),
        (TfidfConfig, "lowercase", 0, False),
        (SearchConfig, "beams", "4, 8 16", (4, 8, 16)),
        (SearchConfig, "beams", [4, "8"], (4, 8)),
        (SearchConfig, "beams", "", ()),
        (StoreConfig, "weights", "float16", "float16"),
    ],
)
def test_values_are_converted_to_the_type_of_the_field(cls, key, text, value):
    found = getattr(cls(**{key: text}), key)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("cls", "key", "value", "message"),
    [
        (TreeConfig, "branching", 1, "branching must be at least 2, but is 1"),
        (TreeConfig, "branching", 2.5, "branching must be a whole number, but is 2.5"),
        (TreeConfig, "branching", "many", "branching must be a number, but is 'many'"),
        (TreeConfig, "branching", True, "branching must be a number, but is True"),
        (TreeConfig, "branching", None, "branching must be a number, but is None"),
        (TreeConfig, "kind", "kmean", r"kind must be one of .*, but is 'kmean'; did you mean 'kmeans'\?"),
        (TreeConfig, "kind", 3, "kind must be text, but is 3"),
        (LinearConfig, "cost", -1, "cost must be at least 0.0, but is -1.0"),
        (LinearConfig, "cost", float("nan"), "cost must be a number, but is nan"),
        (TfidfConfig, "max_df", 1.5, "max_df must be at most 1.0, but is 1.5"),
        (TfidfConfig, "lowercase", "maybe", "lowercase must be true or false, but is 'maybe'"),
        (TfidfConfig, "lowercase", 2, "lowercase must be true or false, but is 2"),
        (SearchConfig, "beams", None, "beams must be a list, but is None"),
        (SearchConfig, "beams", "4,x", "beams must be a number, but is 'x'"),
    ],
)
def test_bad_values_name_the_rule_and_the_value(cls, key, value, message):
    with pytest.raises(BadConfig, match=message):
        cls(**{key: value})


def test_ngrams_must_not_be_upside_down():
    with pytest.raises(BadConfig, match=r"ngram_max must be at least ngram_min \(3\), but is 2"):
        TfidfConfig(ngram_min=3, ngram_max=2)


def test_settings_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TreeConfig().branching = 3


def test_a_number_that_may_be_none():
    assert NeuralConfig(head_weight="none").head_weight is None
    assert NeuralConfig(head_weight="0.25").head_weight == 0.25
    with pytest.raises(BadConfig, match="head_weight must be at most 1"):
        NeuralConfig(head_weight=2)
    with pytest.raises(BadConfig, match="head_weight must be a number"):
        NeuralConfig(head_weight="")


def bounded(spec: dataclasses.Field) -> st.SearchStrategy:
    """Draw what a field may be, from its own rules."""
    low, high, choices, form = (spec.metadata.get(rule) for rule in ("low", "high", "choices", "form"))
    default = spec.default
    if choices:
        return st.sampled_from(choices)
    if isinstance(default, bool):
        return st.booleans()
    if isinstance(default, int):
        return st.integers(int(low), int(high or 1000))
    if isinstance(default, float):
        return st.floats(low, high or 1e6)
    if default is None:
        return st.none() | st.floats(low, high or 1e6)
    if isinstance(default, tuple):
        return st.lists(st.integers(1, 99), max_size=4)
    return st.from_regex(form.pattern, fullmatch=True, alphabet=st.characters(codec="ascii")) if form else st.text()


@st.composite
def changes(draw: st.DrawFn) -> dict:
    """Draw dotted keys with values in range."""
    keys = {spec.name: spec for spec in dataclasses.fields(NeuralConfig) if spec.name not in NOUNS}
    for noun, cls in NOUNS.items():
        keys |= {f"{noun}.{spec.name}": spec for spec in dataclasses.fields(cls)}
    bound = ("tfidf.ngram_min", "network.levels", "training.epochs", "network.dropout", "network.beam")
    bound += ("network.reader", "network.head", "training.order", "training.negatives", "fusion")
    bound += ("encoder.max_length",)
    for key in bound:  # to ngram_max; to an order; not empty; to each other; 0 or at least 4
        del keys[key]
    chosen = draw(st.lists(st.sampled_from(sorted(keys)), unique=True, max_size=6))
    return {key: draw(bounded(keys[key])) for key in chosen}


@settings(max_examples=60, deadline=None)
@given(changes())
def test_settings_survive_json_and_differ_by_what_was_changed(changed):
    config = update(NeuralConfig(), changed)
    stored = json.loads(json.dumps(to_dict(config)))
    assert from_dict(NeuralConfig, stored) == config
    short = difference(config, NeuralConfig())
    assert set(short) <= set(changed)
    assert update(NeuralConfig(), short) == config
    for key, value in changed.items():
        noun, _, name = key.rpartition(".")
        found = getattr(getattr(config, noun) if noun else config, name)
        assert found == (tuple(value) if isinstance(value, list) else value)


def test_dotted_and_nested_keys_add_up():
    config = update(ModelConfig(), {"tree.branching": 4, "tree": {"leaf_size": 9}, "tree.depth": 2})
    assert (config.tree.branching, config.tree.leaf_size, config.tree.depth) == (4, 9, 2)


def test_difference_of_equal_settings_is_empty():
    assert difference(ModelConfig(), ModelConfig()) == {}
    assert difference(ModelConfig(seed=3), ModelConfig()) == {"seed": 3}


def test_settings_of_linear_recipes_come_first_among_those_with_an_encoder():
    linear, neural = describe(ModelConfig), describe(NeuralConfig)
    assert neural[: len(linear)] == linear
    assert len(neural) > len(linear)


def test_a_name_stands_for_an_encoder():
    config = update(NeuralConfig(), {"encoder": "some/model", "training.epochs": "1, 2.5"})
    assert config.encoder == EncoderConfig(name="some/model")
    assert config.training.epochs == (1.0, 2.5)
    with pytest.raises(BadConfig, match="encoder must be a EncoderConfig or a dict, but is 5"):
        update(NeuralConfig(), {"encoder": 5})


@pytest.mark.parametrize(
    ("epochs", "n_levels", "expected"),
    [
        ((4.0,), 3, [4, 4, 4]),
        ((1.0, 4.0), 1, [4]),
        ((1.0, 4.0), 3, [1, 1, 4]),
        ((1.0, 2.0, 4.0), 3, [1, 2, 4]),
        ((1.0, 2.0, 4.0), 2, [1, 4]),
    ],
)
def test_the_last_number_of_epochs_serves_the_finest_resolution(epochs, n_levels, expected):
    config = TrainingConfig(epochs=epochs)
    assert [config.epochs_at(level, n_levels) for level in range(n_levels)] == expected


def test_epochs_and_levels_must_make_sense():
    with pytest.raises(
        BadConfig, match="levels must grow from coarse to fine, each to at least twice the one above, but are 64, 8"
    ):
        NetworkConfig(levels=(64, 8))


def test_the_numbers_of_a_network_must_make_sense():
    with pytest.raises(BadConfig, match="beam is empty; name at least one number"):
        NetworkConfig(beam=())
    with pytest.raises(BadConfig, match="dropout is empty"):
        NetworkConfig(dropout=())
    with pytest.raises(
        BadConfig, match="levels must grow from coarse to fine, each to at least twice the one above, but are 64, 8"
    ):
        NetworkConfig(levels=(64, 8))


def test_all_settings_are_listed_once():
    keys = [key for key, *_ in describe_all()]
    assert len(keys) == len(set(keys))
    assert set(keys) == {key for key, *_ in describe(NeuralConfig)}


def test_describe_covers_every_field():
    rows = {key: rest for key, *rest in describe(NeuralConfig)}
    expected = {spec.name for spec in dataclasses.fields(NeuralConfig)} - set(NOUNS)
    expected |= {f"{noun}.{spec.name}" for noun, cls in NOUNS.items() for spec in dataclasses.fields(cls)}
    assert set(rows) == expected
    assert all(doc for _, _, doc in rows.values())
    assert rows["tree.branching"][:2] == ["int", TreeConfig().branching]
    assert rows["tfidf.lowercase"][:2] == ["bool", True]


def test_every_default_is_allowed_by_its_own_rules():
    for cls in NOUNS.values():
        for spec in dataclasses.fields(cls):
            assert getattr(cls(**{spec.name: spec.default}), spec.name) == spec.default


@pytest.mark.parametrize(
    ("error", "builtins"),
    [
        (errors.BadInput, (ValueError,)),
        (errors.BadConfig, (ValueError,)),
        (errors.NotFitted, (ValueError, AttributeError)),
        (errors.BadModelFile, (ValueError,)),
        (errors.MissingExtra, (ImportError,)),
        (errors.OutOfMemory, (MemoryError,)),
    ],
)
def test_errors_are_also_the_builtins_a_caller_expects(error, builtins):
    assert issubclass(error, (UmpteenError,))
    assert all(issubclass(error, builtin) for builtin in builtins)


def test_missing_extra_says_what_to_install():
    assert str(MissingExtra("torch", "transformers", "an encoder")) == (
        "an encoder needs the package 'torch': pip install 'umpteen[transformers]'"
    )


def test_nearest_names_one_word_or_none():
    assert nearest("brnching", ["depth", "branching"]) == "; did you mean 'branching'?"
    assert nearest("zzz", ["depth", "branching"]) == ""
    assert nearest("zzz", []) == ""


@pytest.mark.parametrize(
    ("cls", "key", "value", "message"),
    [
        (ModelConfig, "seed", float("inf"), "seed must be a number, but is inf"),
        (ModelConfig, "seed", "inf", "seed must be a number, but is 'inf'"),
        (LinearConfig, "cost", "inf", "cost must be a number, but is 'inf'"),
        (ModelConfig, "seed", 10**400, "seed must be a number"),
        (SearchConfig, "beams", (4, 0), "beams must be at least 1, but is 0"),
    ],
)
def test_numbers_without_bound_and_beams_without_room_are_refused(cls, key, value, message):
    with pytest.raises(BadConfig, match=message):
        cls(**{key: value})


def test_large_whole_numbers_keep_their_digits():
    assert ModelConfig(seed="9007199254740993").seed == 2**53 + 1


def test_margins_cannot_be_factors():
    with pytest.raises(BadConfig, match="post 'identity' gives raw margins"):
        SearchConfig(post="identity", leaf_post="l3-hinge")
    assert SearchConfig(post="identity", leaf_post="identity").leaf_post == "identity"
