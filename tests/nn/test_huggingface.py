"""Pretrained encoders: tiny models with random weights and tokenisers trained here."""

from __future__ import annotations

import json
import os
import socket
import sys
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpuparse.config import Config
from gpuparse.data.artificial import artificial_treebank
from gpuparse.data.vocab import Vocabulary
from gpuparse.models.parser import Parser
from gpuparse.nn.huggingface import PretrainedEncoder, _windows
from tests.decoding.refusals import refuses
from tests.nn.tiny_models import MAKERS, POSITIONS, WIDTH

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

SENTENCES = [["the", "undogmatically", "quick", "apple"], ["speaking"]]
SENTENCES.append(["dogs", ",", "over", "lazy", "foxes", ",", "isn't", "12"])
# Sums of another order than the reference's: float32, a few layers, values of order one.
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    torch.manual_seed(0)
    directory = tmp_path_factory.mktemp("models")
    for name, make in MAKERS.items():
        (directory / name).mkdir()
        make(directory / name)
    return directory


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*arguments):
        raise AssertionError("a test went to the network")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(socket.socket, "connect", refuse)


kinds = pytest.mark.parametrize("kind", MAKERS)


def sizes(encoder, words):
    """How many pieces each word has."""
    return [int(encoder._pieces.prepare([[word]], first_only=False).nodes.eq(1).sum()) for word in words]


def reference(directory, words, layers, pooling="mean"):
    """One sentence, word by word, with the library's own calls; without a root."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory, add_prefix_space=True)
    model = transformers.AutoModel.from_pretrained(directory).eval()
    model = model.get_encoder() if model.config.is_encoder_decoder else model
    given = tokenizer([words], is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        states = model(given["input_ids"], output_hidden_states=True).hidden_states
    mixed = torch.stack(states[-layers:]).mean(0)[0]
    word_of = given.word_ids(0)
    vectors = []
    for word in range(len(words)):
        pieces = mixed[[place for place, at in enumerate(word_of) if at == word]]
        vectors.append(pieces[0] if pooling == "first" else pieces.mean(0))
    return torch.stack(vectors), mixed[0]


@kinds
@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_vectors_are_those_of_the_pieces(models, kind, pooling, layers):
    encoder = PretrainedEncoder(models / kind, layers=layers, pooling=pooling).eval()
    found = encoder(SENTENCES)
    assert found.shape == (3, 9, WIDTH) and encoder.out_features == WIDTH
    cut = set()
    for sentence, vectors in zip(SENTENCES, found, strict=True):
        expected, root = reference(models / kind, sentence, layers, pooling)
        end = len(sentence) + 1
        torch.testing.assert_close(vectors[1:end], expected, **CLOSE)
        torch.testing.assert_close(vectors[0], root if kind != "t5" else encoder.root, **CLOSE)
        assert not vectors[end:].any()
        cut.update(sizes(encoder, sentence))
    assert min(cut) == 1 and len(cut) > 2  # words of one piece and of several


def test_the_mix_of_layers_is_learned(models):
    encoder = PretrainedEncoder(models / "bert", layers=3).eval()
    with torch.no_grad():
        encoder.mix.copy_(torch.tensor([0.0, 50.0, 0.0]))
        alone = transformers.AutoModel.from_pretrained(models / "bert").eval()
        given = encoder._pieces.prepare(SENTENCES[:1], first_only=False)
        second = alone(given.ids, output_hidden_states=True).hidden_states[2]
        torch.testing.assert_close(encoder(SENTENCES[:1])[0, 0], second[0, 0], **CLOSE)
    assert len(PretrainedEncoder(models / "bert", layers=99).mix) == 3


@kinds
def test_every_weight_is_trained(models, kind):
    torch.manual_seed(1)
    encoder = PretrainedEncoder(models / kind, layers=2, dropout=0.1).train()
    (encoder(SENTENCES) * torch.randn(3, 9, WIDTH)).sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None and parameter.grad.any(), name


def test_frozen(models):
    encoder = PretrainedEncoder(models / "bert", freeze=True).train()
    assert encoder.training and not encoder.model.training
    found = encoder(SENTENCES)
    torch.testing.assert_close(found, encoder(SENTENCES), rtol=0, atol=0)
    found.square().sum().backward()
    assert encoder.mix.grad is not None and encoder.mix.grad.any()
    assert all(parameter.grad is None for parameter in encoder.model.parameters())
    thawed = PretrainedEncoder(models / "bert").train()
    assert not torch.equal(thawed(SENTENCES), thawed(SENTENCES))


@pytest.mark.parametrize("nothing", ["\u200b", "\x00", " ", "\u3000", ""])
def test_words_without_pieces_are_unknown(models, nothing):
    encoder = PretrainedEncoder(models / "bert").eval()
    assert not encoder._pieces.backend.encode([nothing], is_pretokenized=True, add_special_tokens=False).ids
    words = ["the", nothing, "quick", nothing, nothing]
    unknown = [word if word.isalpha() else "☃" for word in words]
    torch.testing.assert_close(encoder([words]), encoder([unknown]))
    assert encoder._pieces.prepare([words], first_only=False).ids.eq(encoder.tokenizer.unk_token_id).sum() == 3


def test_words_are_words(models):
    """With a space before each where the model wants one; and those that read as special tokens, too."""
    encoder = PretrainedEncoder(models / "roberta")
    ids = encoder._pieces.prepare([["the", "dog", ","]], first_only=False).ids[0]
    assert encoder.tokenizer.convert_ids_to_tokens(ids) == ["<s>", "Ġthe", "Ġdog", "Ġ,", "</s>"]
    for kind, word in (("bert", "[SEP]"), ("roberta", "</s>")):
        encoder = PretrainedEncoder(models / kind)
        ids = encoder._pieces.prepare([["the", word]], first_only=False).ids
        assert ids.eq(encoder.tokenizer.sep_token_id).sum() == 1


@kinds
def test_odd_words_no_sentences_and_no_words(models, kind):
    encoder = PretrainedEncoder(models / kind).eval()
    odd = ["\ud800", "𝒳", "\u0301", "[SEP]", "<s>", "</s>", "[CLS]", "a b", "\t", "x" * 300]
    found = encoder([odd, ["the"]])
    assert found.shape == (2, 11, WIDTH) and found.isfinite().all() and found[0].any(1).all()
    assert encoder([]).shape == (0, 1, WIDTH)
    only_roots = encoder([[], []])
    assert only_roots.shape == (2, 1, WIDTH) and only_roots.isfinite().all() and only_roots.any()
    torch.testing.assert_close(encoder([[], ["the"]])[0, 0], only_roots[0, 0], **CLOSE)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_long_sentences_are_read_in_windows(models, kind):
    """Each word as in its window read alone, in batches with short sentences too."""
    encoder = PretrainedEncoder(models / kind, layers=2).eval()
    words = (["the", "dog", "a", "12"] * 40)[:150]
    assert set(sizes(encoder, words)) == {1}  # so that pieces are words here
    room = POSITIONS - 2
    assert encoder._pieces.room == room
    found = encoder([SENTENCES[0], words])
    torch.testing.assert_close(found[0, :5], encoder(SENTENCES[:1])[0], **CLOSE)
    for begin, end, own_begin, own_end in _windows(150, room):
        alone = encoder([words[begin:end]])[0]
        torch.testing.assert_close(
            found[1, own_begin + 1 : own_end + 1], alone[own_begin - begin + 1 : own_end - begin + 1], **CLOSE
        )
    torch.testing.assert_close(found[1, 0], encoder([words[:room]])[0, 0], **CLOSE)
    longer = PretrainedEncoder(models / kind, max_pieces=8).eval()([["the", "undogmatically" * 4, "dog"]])
    assert longer.shape == (1, 4, WIDTH) and longer.isfinite().all() and longer[0].any(1).all()


@given(st.integers(0, 300), st.integers(1, 40))
def test_windows(pieces, room):
    windows = _windows(pieces, room)
    assert [own for *_, own, _ in windows] == [0, *(end for *_, end in windows[:-1])]
    assert windows[-1][3] == pieces
    for begin, end, own_begin, own_end in windows:
        assert 0 <= begin <= own_begin <= own_end <= end <= pieces and end - begin <= room
        # A quarter of the window, rounded, is seen on either side.
        assert own_begin == 0 or own_begin - begin >= room // 4
        assert own_end == pieces or end - own_end >= room // 4


@kinds
def test_saved_and_made_again(models, kind, tmp_path):
    torch.manual_seed(2)
    encoder = PretrainedEncoder(models / kind, layers=2, max_pieces=30, pooling="first", freeze=True, dropout=0.25)
    with torch.no_grad():
        encoder.mix.normal_()
    directory = tmp_path / "model" / "encoder"
    encoder.save(directory)
    encoder.save(directory)  # over itself
    assert os.listdir(directory.parent) == ["encoder"]
    assert not [name for name in os.listdir(directory) if name.endswith((".safetensors", ".bin"))]
    again = PretrainedEncoder.from_directory(directory)
    assert again.config_dict() == encoder.config_dict()
    assert json.loads(json.dumps(again.config_dict())) == again.config_dict()
    state = encoder.state_dict()
    assert not torch.equal(next(again.model.parameters()), next(encoder.model.parameters()))
    again.load_state_dict(state)
    assert len({tensor.data_ptr() for tensor in state.values()}) == len(state)  # safetensors want none shared
    words = [*SENTENCES, ["undogmatically"] * 30]
    torch.testing.assert_close(again.eval()(words), encoder.eval()(words), rtol=0, atol=0)


def test_precisions_and_silence(models, tmp_path, capfd):
    encoder = PretrainedEncoder(models / "bert").eval()
    with torch.autocast("cpu", torch.bfloat16):
        found = encoder(SENTENCES)
    assert found.dtype == torch.float32
    # bfloat16 has 8 bits; a few layers of it.
    torch.testing.assert_close(found, encoder(SENTENCES), rtol=0.05, atol=0.05)
    encoder([["the"] * 200])
    assert tuple(capfd.readouterr()) == ("", "")
    transformers.AutoModel.from_pretrained(models / "bert").half().save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(models / "bert").save_pretrained(tmp_path)
    assert {parameter.dtype for parameter in PretrainedEncoder(tmp_path).parameters()} == {torch.float32}


@pytest.fixture
def without_weights(models, tmp_path):
    """All of a model but its weights."""
    for file in (models / "bert").glob("*.json"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layers": 0}, "layers: 0"),
        ({"pooling": "last"}, "pooling: 'last'"),
        ({"max_pieces": 2}, "max_pieces: 2; wanted more than 2"),
        ({"max_pieces": 400}, "max_pieces: 400; the model takes 40"),
    ],
)
def test_wrong_arguments(models, arguments, message):
    refuses(message, PretrainedEncoder, models / "bert", **arguments)


def test_weights_whole_and_from_safetensors_only(models, without_weights):
    from safetensors.torch import load_file, save_file

    model = transformers.AutoModel.from_pretrained(models / "bert")
    torch.save(model.state_dict(), without_weights / "pytorch_model.bin")
    refuses("safetensors", PretrainedEncoder, without_weights)
    weights = load_file(models / "bert" / "model.safetensors")
    absent = "encoder.layer.1.output.dense.weight"
    del weights[absent]
    save_file(weights, without_weights / "model.safetensors", metadata={"format": "pt"})
    refuses(f"1 weights are absent, such as {absent}", PretrainedEncoder, without_weights)


def test_models_that_are_not_there(tmp_path, monkeypatch, models):
    for name in ("no-such/model", tmp_path / "none", tmp_path):
        refuses(f"pretrained encoder {name}: ", PretrainedEncoder, name)
    saved = partial(PretrainedEncoder.from_directory, tmp_path)
    refuses(r"encoder\.json: not there", saved)
    for text, message in (("[1]", "not the settings"), ("{", "not JSON")):
        (tmp_path / "encoder.json").write_text(text)
        refuses(rf"encoder\.json: {message}", saved)
    PretrainedEncoder(models / "bert").save(tmp_path)
    change(tmp_path / "encoder.json", novelty=1)
    refuses("not the settings of this version", saved)
    monkeypatch.setitem(sys.modules, "transformers", None)
    refuses(r"pip install 'gpuparse\[transformers\]'", PretrainedEncoder, models / "bert")


def test_the_reference_is_one(models):
    """The vectors differ among words and sentences, so that comparing them says something."""
    found = PretrainedEncoder(models / "bert").eval()(SENTENCES).detach().flatten(0, 1)
    distinct = np.unique(found.numpy().round(3), axis=0)
    assert len(distinct) == 3 + 13 + 1  # roots, words, padding


@pytest.fixture
def saved(models, tmp_path):
    """The files of an encoder within a model."""
    PretrainedEncoder(models / "bert", layers=2).save(tmp_path / "encoder")
    return tmp_path / "encoder"


def refused(directory):
    with pytest.raises(ValueError) as caught, torch.device("meta"):
        PretrainedEncoder.from_directory(directory)
    line = str(caught.value)
    assert line.isprintable() and len(line) < 1000
    return line


def change(file, **changes):
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("layers", (0, 10**9, 1.5, True, None, "2")),
        ("max_pieces", (0, -1, 2**40, 1.5, "x", [])),
        ("dropout", (1, -0.5, None, "0")),
        ("freeze", (0, None, "x")),
        *((name, (None, 3)) for name in ("pooling", "name_or_path")),
    ],
)
def test_settings_of_strangers(saved, name, values):
    for value in values:
        change(saved / "encoder.json", **{name: value})
        assert refused(saved) == f"{saved / 'encoder.json'}: {name} is {value!r}; save the model again"


@pytest.mark.parametrize(
    ("name", "value", "most"),
    [
        *(("num_hidden_layers", value, "500") for value in (10**9, 501)),
        ("hidden_size", 10**12, "2,147,483,648"),
        ("vocab_size", -(10**12), "2,147,483,648"),
    ],
)
def test_configurations_that_would_never_end(saved, name, value, most):
    change(saved / "config.json", **{name: value})
    assert refused(saved) == f"{saved / 'config.json'}: {name!r} is {value}; wanted at most {most}"


def test_names_of_files_elsewhere_and_code_that_comes_along(saved):
    file = saved / "tokenizer_config.json"
    content = file.read_bytes()
    for value in ("/etc/passwd", "../x", "a/b", "a\\b"):
        change(file, vocab_file=value)
        assert refused(saved) == f"{file}: 'vocab_file' is {value!r}, a file elsewhere; wanted one beside it"
    file.write_bytes(content)
    (saved / "code.py").write_text("raise SystemExit('run')\n")
    change(saved / "config.json", model_type="mine", auto_map={"AutoConfig": "code.Config", "AutoModel": "code.Model"})
    assert refused(saved).startswith(f"pretrained encoder {saved}: ")


def test_files_of_an_encoder(saved, tmp_path):
    file, more, outside = saved / "tokenizer.json", saved / "more", tmp_path / "outside"
    content = file.read_bytes()
    outside.write_bytes(content)
    for put, line in (
        (lambda: os.mkfifo(file), f"{file}: a pipe; wanted a file"),
        (lambda: file.symlink_to(outside), f"{file}: a link out of {saved}; put the file itself there"),
        (
            lambda: (file.touch(), os.truncate(file, 1 << 40)),
            f"{file}: 1,099,511,627,776 bytes; at most 134,217,728 are read",
        ),
    ):
        file.unlink()
        put()
        assert refused(saved) == line
    file.write_bytes(content)
    more.symlink_to("/")
    assert refused(saved) == f"{more}: a link; put the directory itself there"
    more.unlink()
    PretrainedEncoder.from_directory(saved)
    saved.rename(tmp_path / "elsewhere")
    saved.symlink_to("elsewhere")
    assert refused(saved) == f"{saved}: a link; put the directory itself there"


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "encoder.json"])
def test_broken_files_of_an_encoder(saved, name):
    file = saved / name
    content = file.read_bytes()
    for broken in (b"", b"[" * 10**5, b"null", b"[]", b'{"a": 1}', content[: len(content) // 2], b"\xff" + content):
        file.write_bytes(broken)
        if name != "tokenizer_config.json" or broken[:1] not in b"{n":  # which may be nearly anything
            assert str(saved) in refused(saved)


def test_an_encoder_of_another_size(models, tmp_path):
    """Its weights do not fit, which is seen before they are made."""
    treebank = list(artificial_treebank(10, seed=1))
    overrides = ["scorer.hidden=4", "scorer.layers=1", "scorer.arc=4", "scorer.label=4"]
    config = Config.load(None, [f"scorer.pretrained={models / 'bert'}", *overrides])
    Parser.new(config, Vocabulary.build(treebank)).save(tmp_path / "model")
    change(tmp_path / "model" / "encoder" / "config.json", vocab_size=2**30, hidden_size=2**20, num_hidden_layers=99)
    refuses(r"model\.safetensors: not the weights of this model: 'pretrained\.", Parser.load, tmp_path / "model")
