"""This finds branches in sm_90's machine code, read from a cubin without a disassembler.

NVIDIA documents no encodings; these were read off what nvdisasm 13.5 prints. An instruction has 16
bytes. The low twelve bits tell what it is.
"""

import struct

BRANCH = 0x947
PRODUCT, PRODUCT_BITS = 0x9F0, 0xBF0  # HGMMA and QGMMA, with A from registers or not
DIVERGENT = 1 << 27  # of the upper word of a branch: nvdisasm prints BRA.DIV

KIND_BITS = 0x1FF  # without those that tell what the operands are
MULTIPLY_ADD, MULTIPLY, ADD = 0x23, 0x20, 0x21  # FFMA, FMUL, FADD
STAYS = 1 << 45  # of the upper word: the warp does not yield

# e_shoff, e_shentsize and e_shnum of an ELF header: where its sections are listed.
SECTIONS = (("<Q", 0x28), ("<H", 0x3A), ("<H", 0x3C))


def instructions(cubin):
    """Yields each instruction of an ELF file's functions as its lower and its upper 64 bits."""
    at, size, count = (struct.unpack_from(kind, cubin, where)[0] for kind, where in SECTIONS)
    for number in range(count):
        name, _, _, _, begin, length = struct.unpack_from("<IIQQQQ", cubin, at + number * size)
        if section_name(cubin, at, size, name).startswith(b".text."):
            yield from struct.iter_unpack("<QQ", cubin[begin : begin + length])


def section_name(cubin, at, size, name):
    (names,) = struct.unpack_from("<H", cubin, 0x3E)
    (begin,) = struct.unpack_from("<Q", cubin, at + names * size + 0x18)
    return cubin[begin + name : cubin.index(b"\0", begin + name)]


def divergent_branches_among_products(cubin):
    """Returns how many branches between the first and the last product ptxas takes for divergent.

    A warp of a loop with wgmma never diverges. Where ptxas does not see that, it keeps addresses
    and descriptors out of uniform registers, and may spill.
    """
    code = list(instructions(cubin))
    products = [i for i, (low, _) in enumerate(code) if low & PRODUCT_BITS == PRODUCT]
    if not products:
        return 0
    among = code[products[0] : products[-1]]
    return sum(low & 0xFFF == BRANCH and high & DIVERGENT != 0 for low, high in among)


def longest_stay(cubin, kind):
    """Returns the most instructions of a kind in a row at which the warp does not yield."""
    longest = current = 0
    for low, high in instructions(cubin):
        current = current + 1 if low & KIND_BITS == kind and high & STAYS else 0
        longest = max(longest, current)
    return longest
