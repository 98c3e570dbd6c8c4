"""Writes tokenizer_cases.json: variants of the golden gpt2-bpe tokenizer, and what the tokenizers library makes of them.

A variant is a set of top-level keys of tokenizer.json to replace ("model" keys one by one). Run with the `tokenizers`
package installed; the output is committed, so that the tests need no Python.
"""
import json
import pathlib
import random

from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).parent
BASE = json.loads((HERE / "golden/tokenizers/gpt2-bpe/tokenizer.json").read_text())
random.seed(20)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
          r"|\s+(?!\S)|\s")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level(prefix=False, regex=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(*steps):
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": list(steps)}}


def added(token_id, content, *flags):
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return {"id": token_id, "content": content, **{name: name in flags for name in names}}


def template(before, after):
    token = lambda name: {"SpecialToken": {"id": name, "type_id": 0}}
    single = [token("<|endoftext|>")] * before + [{"Sequence": {"id": "A", "type_id": 0}}] + [token("!")] * after
    ids = {"<|endoftext|>": 0, "!": 1}
    return {"type": "TemplateProcessing", "single": single, "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {name: {"id": name, "ids": [i], "tokens": [name]} for name, i in ids.items()}}


NFC = {"normalizer": {"type": "NFC"}}


def added_tokens(*tokens):
    """Each (content, flags...) with its id: the vocabulary's, or the next one after it."""
    fresh, result = len(BASE["model"]["vocab"]), []
    for content, *flags in tokens:
        token_id = BASE["model"]["vocab"].get(content, fresh)
        fresh += token_id == fresh
        result.append(added(token_id, content, *flags))
    return {"added_tokens": result}


ADDED = added_tokens(
    ("<|endoftext|>", "special"), ("<|lr|>", "special", "lstrip", "rstrip"), ("<|l|>", "special", "lstrip"),
    ("<|r|>", "special", "rstrip"), ("<|norm|>", "special", "normalized"), ("word", "single_word"), ("wordy",),
    ("  ", "normalized"), ("   ",), ("é", "normalized"), ("the", "single_word", "lstrip", "normalized"),
    ("naïve", "rstrip"), ("\u212b!", "normalized"), ("<|",), ("Ġx",))

VARIANTS = {
    "prefix space": {"pre_tokenizer": byte_level(prefix=True, regex=True)},
    "llama 3": sequence(split(LLAMA3), byte_level()) | {"post_processor": {"type": "Sequence", "processors": [
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}, template(1, 0)]}},
    "llama 3, prefix space": sequence(split(LLAMA3), byte_level(prefix=True)),
    "llama 3, ignore_merges": sequence(split(LLAMA3), byte_level()) | {"model": {"ignore_merges": True}},
    "qwen 2": sequence(split(QWEN2), byte_level()) | NFC,
    "cl100k": sequence(split(CL100K), byte_level()),
    "o200k": sequence(split(O200K), byte_level()),
    "deepseek": sequence(split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK), byte_level()),
    "single digits": sequence({"type": "Digits", "individual_digits": True}, byte_level(regex=True)),
    "digits": sequence({"type": "Digits", "individual_digits": False}, byte_level(regex=True)),
    "string": sequence(split(" ", "MergedWithNext", kind="String"), byte_level()),
    "string with metacharacters": sequence(split("a.", "Removed", kind="String"), byte_level(regex=True)),
    "words": sequence(split(r"\w+|[^\w\s]+|\s+"), byte_level()),
    "word boundaries": sequence(split(r"\b"), byte_level()),
    "lines": sequence(split(r"^.*$|\n"), byte_level()),
    "scripts": sequence(split(r"[\p{Han}]+|\p{Hiragana}+|\p{^L}"), byte_level()),
    "oniguruma's own": sequence(split(r"\h+|[\h\-x]{,3}y|(?m:a.b)|\v|\x{3b1}+|\u03b2|[^\S\r\n]+"), byte_level()),
    "NFD": {"normalizer": {"type": "NFD"}},
    "NFKC": {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "NFC"}]}},
    "template": {"post_processor": template(2, 1)},
    "added tokens": ADDED,
    "added tokens, NFC": ADDED | NFC | sequence(split(QWEN2), byte_level()),
    "added tokens, prefix space": ADDED | {"pre_tokenizer": byte_level(prefix=True, regex=True)},
}
for behavior in ("Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"):
    for invert in (False, True):
        VARIANTS[f"{behavior}, invert {invert}"] = sequence(split(r"\s+|\p{P}|\d*", behavior, invert), byte_level())

PARTS = ["the", "word", "wordy", " the ", "don't", "IT'S", "'ſ", "'K", "'VE", "naïve", "nai\u0308ve", "<|endoftext|>",
         "<|lr|>", "<|l|>", "<|r|>", "<|norm|>", "é", "e\u0301", "Å", "A\u030a", "\u212b!", "Å!", " ", "  ", "   ", "\n",
         "\r\n", "\n\n", "\t", "12", "4567", "½", "Ⅷ", "١٢", "你好", "メモリ", "한국어", "\u1100\u1161\u11a8", "тест",
         "👨\u200d👩\u200d👧", "\u200b", "\u180e", "\x85", "\xa0", "\u3000", "\x1c", "\x0b", "<|", "Ġx", "a.", "a\nb",
         "αα", "β", "1a-fy", "$%^", "...", "_x", "x_y", "\U00031350", "\U0001e030", "\U00010d50", "\u08cd", "\u0316",
         "ﬁ", "①"]


def text():
    if random.random() < 0.6:
        return "".join(random.choice(PARTS) for _ in range(random.randrange(1, 16)))
    planes = [(0x20, 0x7F), (0xA0, 0x250), (0x250, 0x3300), (0x3300, 0xD800), (0x10000, 0x20000), (0x20000, 0x33000)]
    return "".join(chr(random.randrange(*random.choice(planes))) for _ in range(random.randrange(1, 12)))


def cases(tokenizer):
    result = []
    for number in range(16):
        sample = text()
        ids = tokenizer.encode(sample, add_special_tokens=False).ids
        with_special = tokenizer.encode(sample).ids
        if number % 4 == 3:  # ids that no text gives: broken UTF-8, ids without a token
            shown = [random.randrange(tokenizer.get_vocab_size() + 2) for _ in range(12)]
        else:
            shown = ids
        result.append({"text": sample, "ids": ids, "with_special": with_special, "decode": shown,
                       "decoded": tokenizer.decode(shown, skip_special_tokens=False),
                       "without_special": tokenizer.decode(shown, skip_special_tokens=True)})
    return result


variants = []
for name, patch in VARIANTS.items():
    document = {**BASE, **patch, "model": {**BASE["model"], **patch.get("model", {})}}
    variants.append({"name": name, "patch": patch, "cases": cases(Tokenizer.from_str(json.dumps(document)))})
lines = ",\n".join(json.dumps(variant, separators=(",", ":")) for variant in variants)
(HERE / "tokenizer_cases.json").write_text(f"[\n{lines}\n]\n")
