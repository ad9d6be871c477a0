"""What the cases of matrix instructions share: number formats, fragments in registers, layouts of
wgmma's operands in shared memory. Written from the shapes' pictures, not from the emulator."""

import numpy as np

BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4}
INTEGERS = ("s8", "u8", "s4", "u4")
LANE = np.arange(32)


def fp8_table(exponent_bits, bias):
    mantissa_bits = 7 - exponent_bits
    code = np.arange(256)
    exponent = (code >> mantissa_bits) & ((1 << exponent_bits) - 1)
    mantissa = (code & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    value = np.where(
        exponent == 0,
        mantissa * 2.0 ** (1 - bias),
        (1 + mantissa) * 2.0 ** (exponent.astype(float) - bias),
    )
    value = np.where(code >= 128, -value, value)
    special = exponent == (1 << exponent_bits) - 1
    if exponent_bits == 4:
        special &= (code & 7) == 7
    return np.where(special, np.nan, value)


FP8 = {"e4m3": fp8_table(4, 7), "e5m2": fp8_table(5, 15)}


def encode(kind, values):
    """Numbers to codes, to nearest for floating-point kinds."""
    values = np.asarray(values, dtype=np.float64)
    if kind == "f16":
        return values.astype(np.float16).view(np.uint16).astype(np.uint32)
    if kind in ("bf16", "tf32"):
        drop = 16 if kind == "bf16" else 13
        bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
        bits = (bits + (1 << (drop - 1)) - 1 + ((bits >> drop) & 1)) >> drop
        return (bits if kind == "bf16" else bits << drop).astype(np.uint32)
    if kind in FP8:
        table = np.where(np.isnan(FP8[kind]), np.inf, FP8[kind])
        table = np.where(np.isinf(FP8[kind]), np.nan, table)
        distance = np.abs(values[..., None] - table)
        return np.nanargmin(distance, axis=-1).astype(np.uint32)
    return (values.astype(np.int64) & ((1 << BITS[kind]) - 1)).astype(np.uint32)


def decode(kind, codes):
    codes = np.asarray(codes, dtype=np.uint32)
    if kind == "f16":
        return codes.astype(np.uint16).view(np.float16).astype(np.float64)
    if kind in ("bf16", "tf32"):
        bits = codes << 16 if kind == "bf16" else codes & 0xFFFFE000
        return bits.astype(np.uint32).view(np.float32).astype(np.float64)
    if kind in FP8:
        return FP8[kind][codes]
    sign = 1 << (BITS[kind] - 1)
    signed = codes.astype(np.int64)
    return (signed ^ sign) - sign if kind[0] == "s" else signed


# Of random numbers: sums that are exact in any order; of like magnitudes; of all magnitudes,
# subnormals among them, where most terms lose bits.
SPREADS = ("exact", "any", "far")


def numbers(rng, kind, shape, spread):
    """Codes of finite random numbers."""
    if kind in INTEGERS:
        return rng.integers(0, 1 << BITS[kind], shape).astype(np.uint32)
    if spread == "exact":
        return encode(kind, rng.integers(-4, 5, shape))
    if spread == "any":
        return encode(kind, rng.normal(size=shape))
    if kind in ("bf16", "tf32"):
        return encode(kind, scattered(rng, shape, -40, 40))
    codes = rng.integers(0, 1 << BITS[kind], shape).astype(np.uint32)
    return np.where(np.isfinite(decode(kind, codes)), codes, 1).astype(np.uint32)


def scattered(rng, shape, low, high):
    """Numbers of random sign and of exponents from low to high."""
    magnitude = rng.uniform(1, 2, shape) * 2.0 ** rng.integers(low, high + 1, shape)
    return magnitude * rng.choice([-1, 1], shape)


def summands(rng, kinds, accumulator, shape, spread):
    """Accumulators, as f64, to go with numbers of these kinds."""
    if spread == "exact":
        c = rng.integers(-100, 100, shape)
    elif spread == "any":
        c = rng.normal(size=shape)
    else:
        c = scattered(rng, shape, *((-26, 14) if accumulator == "f16" else (-60, 30)))
    return c.astype(np.float16 if accumulator == "f16" else np.float32).astype(np.float64)


def pack(codes, kind):
    """Codes whose last axis runs along k to 32-bit words."""
    per_word = 32 // BITS[kind]
    codes = codes.reshape(*codes.shape[:-1], -1, per_word).astype(np.uint64)
    shifts = np.arange(per_word, dtype=np.uint64) * np.uint64(BITS[kind])
    return (codes << shifts).sum(axis=-1).astype(np.uint32)


def fragment_a(codes, kind):
    """[rows, k] to the registers of 32 lanes, [32, registers]."""
    words = pack(codes, kind)
    columns = [
        words[half * 8 + LANE // 4, chunk * 4 + LANE % 4]
        for chunk in range(words.shape[1] // 4)
        for half in range(words.shape[0] // 8)
    ]
    return np.stack(columns, axis=1)


def fragment_b(codes, kind):
    """[k, 8] to [32, registers]."""
    words = pack(codes.T, kind)
    return np.stack(
        [words[LANE // 4, chunk * 4 + LANE % 4] for chunk in range(words.shape[1] // 4)], axis=1
    )


def fragment_c(values, half):
    """Accumulators [rows, columns] to [32, registers]; `half`: f16 pairs."""
    rows, columns = values.shape
    registers = []
    for block in range(columns // 8):
        for top in range(0, rows, 8):
            at = top + LANE // 4
            pair = [values[at, block * 8 + LANE % 4 * 2 + e] for e in range(2)]
            if half:
                low, high = (p.astype(np.float16).view(np.uint16).astype(np.uint32) for p in pair)
                registers.append(low | high << 16)
            else:
                registers += pair
    return np.stack(registers, axis=1)


SWIZZLES = {0: 0, 128: 1, 64: 2, 32: 3}  # bytes to a descriptor's mode


def swizzled(image, span):
    """Exchanges the 16-byte chunks of an image as the mode of `span` bytes does."""
    if span == 0:
        return image
    at = np.arange(image.size // 16)
    chunks = image.reshape(-1, 16)
    out = np.empty_like(chunks)
    out[at ^ ((at >> 3) & (span // 16 - 1))] = chunks
    return out.reshape(-1)


def operand_bytes(codes, kind):
    return codes.astype({8: np.uint8, 16: np.uint16, 32: np.uint32}[BITS[kind]])


def shared_k_major(codes, kind, span):
    """[rows, k] codes, any multiple of 32 bytes of k: the image and (leading, stride)."""
    data = operand_bytes(codes, kind)
    raw = np.ascontiguousarray(data).view(np.uint8)
    rows, width = raw.shape
    if span == 0:
        cores = raw.reshape(rows // 8, 8, width // 16, 16).transpose(0, 2, 1, 3)
        return np.ascontiguousarray(cores).reshape(-1), (128, width * 8)
    image = np.zeros((rows, span), np.uint8)
    image[:, :width] = raw
    return swizzled(image.reshape(-1), span), (16, span * 8)


def shared_mn_major(codes, span):
    """[rows, 16] codes of 16 bits."""
    raw = codes.astype(np.uint16).T  # [k, rows]
    k, rows = raw.shape
    if span == 0:
        cores = raw.reshape(k // 8, 8, rows // 8, 8).transpose(0, 2, 1, 3)
        return np.ascontiguousarray(cores).reshape(-1).view(np.uint8), (rows // 8 * 128, 128)
    wide = span // 2
    blocks = -(-rows // wide)
    padded = np.zeros((k, blocks * wide), np.uint16)
    padded[:, :rows] = raw
    image = np.ascontiguousarray(padded.reshape(k, blocks, wide).transpose(1, 0, 2))
    return swizzled(image.reshape(-1).view(np.uint8), span), (k * span, span * 8)


def descriptor(span, strides):
    """All but the address."""
    leading, stride = strides
    return SWIZZLES[span] << 62 | (stride >> 4) << 32 | (leading >> 4) << 16
