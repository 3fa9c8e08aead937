"""Pretrained encoders with random weights, a few kilobytes each."""

from __future__ import annotations

import json

import pytest

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

TEXT = "the quick brown fox jumps over the lazy dog and 12 other dogs , undogmatically speaking . an apple isn't a day"
TINY = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}
WIDTH, POSITIONS = 16, 40


def make_bert(directory):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=70, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {f"{name[1:-1].lower()}_token": name for name in special}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    fast.save_pretrained(directory)
    config = transformers.BertConfig(vocab_size=len(fast), max_position_embeddings=POSITIONS, **TINY)
    transformers.BertModel(config).save_pretrained(directory)


def make_roberta(directory):
    """With the tokeniser class of its own and its default, which adds no space before words."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train_from_iterator([f" {TEXT}"] * 9, vocab_size=320, special_tokens=special, show_progress=False)
    tokenizer.save_model(str(directory))
    sizes = {"vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": POSITIONS + 2, **TINY}
    config = transformers.RobertaConfig(pad_token_id=1, bos_token_id=0, eos_token_id=2, **sizes)
    transformers.RobertaModel(config).save_pretrained(directory)
    transformers.AutoTokenizer.from_pretrained(directory).save_pretrained(directory)


def make_t5(directory):
    """An encoder with a decoder; and no token begins a sentence."""
    make_bert(directory)
    path = directory / "tokenizer.json"
    described = json.loads(path.read_text())
    described["post_processor"] = None
    path.write_text(json.dumps(described))
    config = transformers.T5Config(
        vocab_size=100, d_model=WIDTH, d_kv=8, d_ff=24, num_layers=3, num_heads=2, decoder_start_token_id=0
    )
    transformers.T5Model(config).save_pretrained(directory)


MAKERS = {"bert": make_bert, "roberta": make_roberta, "t5": make_t5}
