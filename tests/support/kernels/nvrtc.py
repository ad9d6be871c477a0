"""Compiles CUDA sources that include templates/ by their virtual names, with the NVRTC that Kiln
itself uses."""

import ctypes
import functools
import os
import pathlib

CHECKOUT = pathlib.Path(__file__).parents[3]
TEMPLATES = pathlib.Path(os.environ.get("KILN_TEMPLATE_DIR") or CHECKOUT / "templates")
OPTIONS = (b"-std=c++17", b"-default-device", b"--no-source-include")


@functools.cache
def library():
    import kiln

    facts = kiln.diagnose()["nvrtc"]
    if not facts["loaded"]:
        raise RuntimeError(facts["problem"])
    return ctypes.CDLL(facts["path"])


@functools.cache
def headers():
    """Names and texts of all templates, as arrays of C strings."""
    paths = [path for path in sorted(TEMPLATES.rglob("*")) if path.suffix in (".cuh", ".h")]
    names = [b"/kiln/" + path.relative_to(TEMPLATES).as_posix().encode() for path in paths]
    array = ctypes.c_char_p * len(paths)
    return array(*(path.read_bytes() for path in paths)), array(*names), len(paths)


def text_of(program, what):
    size = ctypes.c_size_t()
    getattr(library(), f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(library(), f"nvrtcGet{what}")(program, text)
    return text.raw


@functools.cache
def compiled(source, target, what):
    """The "PTX", as text, or of an sm_ target the "CUBIN", as bytes; and the compiler's log."""
    texts, names, count = headers()
    program = ctypes.c_void_p()
    library().nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), b"/test/kernel.cu", count, texts, names
    )
    try:
        options = (*OPTIONS, f"--gpu-architecture={target}".encode())
        array = (ctypes.c_char_p * len(options))(*options)
        status = library().nvrtcCompileProgram(program, len(options), array)
        log = text_of(program, "ProgramLog").rstrip(b"\0").decode()
        if status:
            raise RuntimeError(f"NVRTC could not compile ({status}):\n{log}\n{source}")
        result = text_of(program, what)
        return (result.rstrip(b"\0").decode() if what == "PTX" else result), log
    finally:
        library().nvrtcDestroyProgram(ctypes.byref(program))
