"""Ways to spoil a file: bytes, JSON values, and headers of safetensors."""
import copy
import json
import struct

# What stands where something else is expected.
ODD_NUMBERS = [0, -1, 1, 2, 3, 7, 255, 65535, 65536, 2**31 - 1, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64,
               10**30, -2**63, 0.5, -0.0, 1e-300, 1e38, 1e308, 1.0000000001]
ODD_TEXTS = ["", " ", "auto", "null", "true", "0", "-1", "a" * 5000, "\u0000", "\u001b[2J", "\ud83d\ude42", "é" * 100,
             "../../x", "/", "%s%n", "{}", "\n", "\u202e"]
# Written as it stands, for what Python's JSON would not write.
RAW = ["NaN", "-Infinity", "1e999999", "0" * 3000, "1" * 3000, "-", "\"\\ud800\"", "\"\\x\"", "[" * 5000, "[" * 200 + "]" * 200,
       "{\"a\":" * 300 + "1" + "}" * 300, "\"\xff\"", "tru", "1.e5", "+1", "0x10", "/* */1", "'a'"]
MARKED = "zeepo-soak-raw-value"


def spoil_bytes(random, data):
    """Another string of bytes, by a few random changes."""
    data = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 5, 20))):
        size = len(data)
        at = random.randrange(size + 1)
        span = min(random.choice((1, 2, 8, 100, 4096)), size - at)
        kind = random.randrange(9)
        if kind == 0 and size:
            at = min(at, size - 1)
            data[at] ^= 1 << random.randrange(8)
        elif kind == 1 and size:
            data[min(at, size - 1)] = random.randrange(256)
        elif kind == 2:
            del data[at:]
        elif kind == 3:
            del data[at:at + span]
        elif kind == 4:
            data[at:at] = random.randbytes(random.choice((1, 2, 8, 100)))
        elif kind == 5:
            data[at:at + span] = bytes([random.choice((0, 255))]) * span
        elif kind == 6:
            data[at:at] = data[at:at + span]
        elif kind == 7:
            other = random.randrange(size + 1)
            data[at:at + span], data[other:other + span] = data[other:other + span], data[at:at + span]
        elif kind == 8:
            data[at:at + 8] = struct.pack("<Q", random.choice([n for n in ODD_NUMBERS if isinstance(n, int) and
                                                               0 <= n < 2**64]))
    return bytes(data)


def places_in(value, found=None):
    """All (container, key) of a JSON value."""
    found = [] if found is None else found
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found.append((value, key))
        places_in(inner, found)
    return found


def spoil_value(random, value):
    """One value in the place of another."""
    kind = random.randrange(7)
    if kind == 0:
        return random.choice(ODD_NUMBERS)
    if kind == 1:
        return random.choice(ODD_TEXTS)
    if kind == 2:
        return random.choice([None, True, False, [], {}, [[]], {"": {}}, [value], {"a": value}, [1, 2, 3], [value] * 1000])
    if kind == 3 and isinstance(value, int) and not isinstance(value, bool):
        return value + random.choice((-1, 1, value, -value, 7))
    if kind == 4 and isinstance(value, (int, float)):
        return value * random.choice((2, 0.5, -1, 1e10))
    if kind == 5 and isinstance(value, str):
        return value[:random.randrange(len(value) + 1)] + random.choice(ODD_TEXTS)
    return MARKED + str(random.randrange(len(RAW)))


def put_raw(text):
    for number in range(len(RAW) - 1, -1, -1):
        text = text.replace(f'"{MARKED}{number}"', RAW[number])
    return text


def spoil_json(random, text):
    """JSON with other values, keys missing, swapped, doubled or added; or no JSON at all."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # it has been spoiled before
        value = None
    if value is None or random.random() < 0.15:
        return spoil_bytes(random, text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")
    doubled = ""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        places = places_in(value)
        if not places:
            return random.choice(RAW)
        container, key = random.choice(places)
        kind = random.randrange(10)
        if kind < 6:
            container[key] = spoil_value(random, container[key])
        elif kind == 6:
            del container[key]
        elif kind == 7:
            other, other_key = random.choice(places)
            if other_key in other if isinstance(other, dict) else other_key < len(other):
                container[key], other[other_key] = copy.deepcopy(other[other_key]), copy.deepcopy(container[key])
        elif kind == 8 and isinstance(container, dict):
            container[random.choice(ODD_TEXTS)] = container[key]
        elif kind == 9 and isinstance(value, dict) and value:
            name = random.choice(list(value))
            doubled = json.dumps({name: spoil_value(random, value[name])})[1:-1] + ","
    written = put_raw(json.dumps(value))
    return "{" + put_raw(doubled) + written[1:] if doubled and written.startswith("{") else written


def spoil_safetensors(random, data):
    """Another header, with the length that belongs to it or not; or other bytes."""
    if random.random() < 0.3:
        return spoil_bytes(random, data)
    length = struct.unpack("<Q", data[:8])[0]
    header, rest = data[8:8 + length], data[8 + length:]
    if random.random() < 0.2:
        entries = json.loads(header)
        names = [name for name in entries if name != "__metadata__"]
        one, other = random.choice(names), random.choice(names)
        entries[one]["data_offsets"], entries[other]["data_offsets"] = (entries[other]["data_offsets"],
                                                                        entries[one]["data_offsets"])
        changed = json.dumps(entries)
    else:
        changed = spoil_json(random, header.decode())
    changed = changed.encode("utf-8", "surrogateescape")
    size = len(changed) if random.random() < 0.9 else random.choice((0, 1, length, len(data), 2**63, 2**64 - 1, 2**40))
    if random.random() < 0.1:
        rest = spoil_bytes(random, rest)
    return struct.pack("<Q", size) + changed + rest


def spoil_lines(random, text):
    """JSON lines with some of them spoiled."""
    lines = text.splitlines()
    for _ in range(random.choice((1, 3))):
        at = random.randrange(len(lines))
        lines[at] = spoil_json(random, lines[at]) if lines[at].startswith("{") else lines[at]
    return random.choice(("\n", "\n", "\r\n", "\n\n", "")).join(lines)
