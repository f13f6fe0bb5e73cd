"""Mutations of files, as in hostile and in damaged files."""

import io
import json
import struct
import zipfile

# What a reader may take for a size, an offset, a count or a rate.
NUMBERS = (0, 1, -1, 2, 255, 2**16, 2**31 - 1, 2**32, 10**12, 2**63 - 1, 2**64)
VALUES = (
    *(
        None,
        True,
        False,
        "",
        "x",
        "\ud800",
        "a" * 10**4,
        "../../x",
        "/dev/zero",
    ),
    *([], {}, [[]], [None], {"": None}, [1, "2"], 0.5, -1e308, 1e-320),
    *(float("nan"), float("inf"), 10**30, *NUMBERS),
)


def mutated_bytes(content, generator):
    """Content with flipped bits, or cut, repeated, moved or overwritten parts.

    Args:
        content: bytes.
        generator: random.Random.

    Returns:
        bytes.
    """
    content = bytearray(content)
    for _ in range(generator.choice((1, 1, 1, 2, 4, 16))):
        if not content:
            return bytes(content)
        begin = generator.randrange(len(content))
        # Headers are at the beginning or the end, and are short.
        if generator.random() < 0.4:
            begin = min(begin, generator.randrange(256))
        elif generator.random() < 0.3:
            begin = max(begin, len(content) - 1 - generator.randrange(256))
        end = begin + generator.choice((1, 2, 4, 8, 64, 4096))
        kind = generator.randrange(8)
        if kind == 0:
            del content[begin:]
        elif kind == 1:
            del content[begin:end]
        elif kind == 2:
            content[begin:begin] = content[begin:end]
        elif kind == 3:
            to = generator.randrange(len(content))
            content[to : to + end - begin] = content[begin:end]
        elif kind == 4:
            content[begin:end] = generator.randbytes(end - begin)
        elif kind == 5:
            order = generator.choice("<>")
            number = generator.choice(NUMBERS) % 2**64
            size, code = generator.choice(((2, "H"), (4, "I"), (8, "Q")))
            content[begin : begin + size] = struct.pack(
                order + code, number % 2 ** (8 * size)
            )
        elif kind == 6:
            content[begin:end] = bytes([generator.choice((0, 255))]) * 8
        else:
            content[begin] ^= 1 << generator.randrange(8)
    return bytes(content)


def mutated_json(content, generator):
    """JSON with other values, keys or nesting in places, or invalid JSON.

    Args:
        content: bytes.
        generator: random.Random.

    Returns:
        bytes.
    """
    if generator.random() < 0.15:
        return mutated_bytes(content, generator)
    value = json.loads(content)
    for _ in range(generator.choice((1, 1, 1, 2, 5))):
        value = edited(value, generator)
    try:
        text = json.dumps(value)
    except RecursionError:  # nested too often to be written
        return mutated_bytes(content, generator)
    if generator.random() < 0.02:
        text = text.replace("1", "[" * 10**5, 1)
    return text.encode()


def edited(value, generator):
    """A JSON value in which another value replaces a part."""
    if not value or not isinstance(value, (dict, list)):
        return _replaced(value, generator)
    if generator.random() < 0.03:
        return _replaced(value, generator)
    if isinstance(value, dict):
        value = dict(value)
        key = generator.choice(list(value))
        kind = generator.randrange(12)
        if kind == 0:
            del value[key]
        elif kind == 1:
            value[key[:-1] + generator.choice("xyz_")] = value.pop(key)
        elif kind == 2:
            other = generator.choice(list(value))
            value[key], value[other] = value[other], value[key]
        elif kind == 3:
            value[generator.choice(("x", "", key * 100))] = value[key]
        else:
            value[key] = edited(value[key], generator)
        return value
    value = list(value)
    place = generator.randrange(len(value))
    kind = generator.randrange(8)
    if kind == 0:
        del value[place]
    elif kind == 1:
        value.insert(0, value[place])
    elif kind == 2:
        value = value * generator.choice((2, 100)) if len(value) < 99 else value
    else:
        value[place] = edited(value[place], generator)
    return value


def _replaced(value, generator):
    kind = generator.randrange(8)
    if kind == 0:
        return [value]
    if kind == 1:
        return {"config": value}
    if kind == 2 and isinstance(value, (int, float)):
        return value * generator.choice((-1, 10**9, 2, 0.5))
    if kind == 3:
        for _ in range(generator.choice((5, 50, 900))):
            value = [value]
        return value
    return generator.choice(VALUES)


def mutated_safetensors(content, generator):
    """A safetensors file with another header, or with other bytes."""
    if generator.random() < 0.3:
        return mutated_bytes(content, generator)
    size = int.from_bytes(content[:8], "little")
    header = mutated_json(content[8 : 8 + size], generator)
    length = len(header)
    if generator.random() < 0.1:
        length = generator.choice(NUMBERS) % 2**64
    return length.to_bytes(8, "little") + header + content[8 + size :]


def mutated_zip(content, generator, changes=()):
    """A zip file with other members, or with other bytes.

    Args:
        content: bytes.
        generator: random.Random.
        changes: dict from the name of a member to the function that mutates it,
            with the arguments of `mutated_bytes`.

    Returns:
        bytes.
    """
    if generator.random() < 0.3:
        return mutated_bytes(content, generator)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = generator.choice(list(members))
    kind = generator.randrange(10)
    if kind == 0:
        del members[name]
    elif kind == 1:
        members[generator.choice(("../x", "/tmp/x", "x", f"{name}x"))] = b"x"
    elif kind == 2:
        other = generator.choice(list(members))
        members[name], members[other] = members[other], members[name]
    else:
        change = dict(changes).get(name, mutated_bytes)
        members[name] = change(members[name], generator)
    file = io.BytesIO()
    method = generator.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()
