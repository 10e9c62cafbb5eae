"""Pictures: some that are drawn here, noise to put on them, and picture files.

Section 5.1 of the paper denoises 4 black-and-white pictures of 64x64 pixels, 50 noisy versions of
each (the set of Kumar & Hebert 2004). The pictures below are this package's own, drawn from
formulas, and so are the noise draws, all seeded: ``gaussian``, ``flipped``, and ``bimodal``, each
class an equal mixture of two normal distributions, one of which lies among the other class.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer.basics.checks import (
    check_choice,
    check_number,
    check_type,
    check_whole,
    load,
    real_numbers,
)
from minfer.errors import FormatError, ModelError, RefusedError, visible
from minfer.io.text import atomic_write, check_path, path_text

if TYPE_CHECKING:
    from minfer.certified.result import Intervals
    from minfer.reduction.compare import Tradeoff

#: The colour of marked pixels.
MARK = (240, 120, 30)
SIDE = 64

#: The bimodal noise: mean and standard deviation of the two parts of each class.
BIMODAL = {0: ((0.08, 0.03), (0.46, 0.03)), 1: ((0.55, 0.02), (0.42, 0.10))}

_FIRST_SEED = 2010

#: Pixels that a picture file may declare: this many, or so many for each of its bytes. Blank pages
#: compress to almost nothing, a scan of A4 at 800 dpi fits into the first number.
_PIXELS, _PIXELS_PER_BYTE = 1 << 26, 10_000
_TEXT = (
    "a few factors of the model matter and most do not so that we may leave them out when a query "
    "asks for one marginal only Good graphs Keep their Beliefs, messages. (Pairs) 1 20 357 -- i; j?"
)


# ---------------------------------------------------------------------- drawn and noisy


def base_pictures(side: int = SIDE) -> dict[str, NDArray[np.bool_]]:
    """Four black-and-white pictures by name, each (side, side); True is foreground."""
    check_whole("side", side, 1)
    y, x = (np.mgrid[0:side, 0:side] + 0.5) / side
    r = np.hypot(x - 0.5, y - 0.5)
    turn = np.arctan2(y - 0.5, x - 0.5)
    wall = (np.abs(x - 0.4) < 0.25) & (y > 0.5) & (y < 0.85)
    roof = (y > 0.2) & (y <= 0.5) & (np.abs(x - 0.4) < 1.05 * (y - 0.2))
    door = (np.abs(x - 0.4) < 0.06) & (y > 0.65)
    sun = np.hypot(x - 0.85, y - 0.15) < 0.1
    house = ((wall | roof) & ~door) | sun | (y >= 0.85)
    flower = (r < 0.28 + 0.13 * np.cos(5 * turn)) & (r > 0.1)
    rings = np.floor(r * 9) % 2 == 1
    column = (np.abs(x - 0.25) < 0.07) | (np.abs(x - 0.75) < 0.07)
    letter = (column | (np.abs(y - 0.5) < 0.07) & (x > 0.2) & (x < 0.8)) & (np.abs(y - 0.5) < 0.38)
    return {"house": house, "flower": flower, "rings": rings, "letter": letter}


def night(side: int = 256) -> NDArray[np.bool_]:
    """A mostly dark drawing, (side, side): a moon, stars, and the outlines of hills and a house."""
    y, x = (np.mgrid[0:side, 0:side] + 0.5) / side
    moon = (np.hypot(x - 0.78, y - 0.2) < 0.09) & (np.hypot(x - 0.74, y - 0.17) > 0.08)
    line = 0.008
    hills = np.zeros((side, side), dtype=bool)
    for base, height, waves, shift in ((0.72, 0.06, 1.7, 0.3), (0.82, 0.04, 2.6, 2.0)):
        ridge = base + height * np.sin(2 * np.pi * waves * x + shift)
        hills |= np.abs(y - ridge) < line
    wall = np.maximum(np.abs(x - 0.3) / 0.09, np.abs(y - 0.58) / 0.06)
    house = np.abs(wall - 1) < line / 0.075
    roof = (np.abs(np.abs(x - 0.3) - 0.9 * (y - 0.42)) < line) & (y > 0.42) & (y < 0.52)
    stars = np.zeros((side, side), dtype=bool)
    rng = np.random.default_rng([_FIRST_SEED, 2])
    for a, b, size in zip(rng.random(24), 0.45 * rng.random(24), 0.004 + 0.008 * rng.random(24)):
        stars |= np.abs(x - a) + np.abs(y - b) < size
    return moon | hills | house | roof | stars


def text_page(height: int = 400, width: int = 400, scale: int = 2) -> NDArray[np.bool_]:
    """A page of black text on white, (height, width), in Pillow's letters ``scale`` times enlarged.

    The words are drawn at random, always the same. Needs the extra ``image`` (Pillow).
    """
    image_module = _pillow()
    from PIL import ImageDraw, ImageFont

    # older versions have one font, the small one of fixed pixels
    font = getattr(ImageFont, "load_default_imagefont", ImageFont.load_default)()
    rng = np.random.default_rng([_FIRST_SEED, 3])
    rows, columns = -(-height // scale), -(-width // scale)
    page = image_module.new("1", (columns, rows), 1)
    draw = ImageDraw.Draw(page)
    letters = max((columns - 12) // 6, 0)
    for number, top in enumerate(range(6, rows - 16, 14)):
        words = rng.choice(_TEXT.split(), size=letters // 2 + 1)
        line = " ".join(words)[: letters if number % 6 < 5 else letters // 2]
        draw.text((6, top), line, font=font, fill=0)
    ink = np.kron(np.asarray(page), np.ones((scale, scale), dtype=bool))
    return ink[:height, :width]


def gaussian(
    clean: NDArray[np.bool_], sigma: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """A picture with independent normal noise of standard deviation ``sigma``."""
    clean = real_numbers(clean, "pixels")
    check_number("sigma", sigma, 0.0)
    _check_rng(rng)
    return clean + sigma * rng.standard_normal(clean.shape)


def bimodal(clean: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.float64]:
    """A picture seen through the bimodal noise of :data:`BIMODAL`."""
    clean = real_numbers(clean, "pixels")
    if not np.isin(clean, (0, 1)).all():
        raise ModelError("the clean picture must be black and white: bools, or 0 and 1")
    _check_rng(rng)
    table = np.array([BIMODAL[0], BIMODAL[1]])  # (class, part, mean and deviation)
    part = rng.integers(0, 2, clean.shape)
    mean, deviation = np.moveaxis(table[clean.astype(int), part], -1, 0)
    return mean + deviation * rng.standard_normal(clean.shape)


def _check_rng(rng: object) -> None:
    check_type(rng, np.random.Generator, "rng must be a numpy Generator, as default_rng(0)")


def flipped(clean: NDArray[np.bool_], share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """A picture whose pixels are each flipped with probability ``share``."""
    _check_rng(rng)
    return clean ^ (rng.random(clean.shape) < share)


# ---------------------------------------------------------------------- files


class LoadedPicture(NamedTuple):
    """A picture file as grey values, and what was done to get them."""

    values: NDArray[np.float64]  # (H, W), 0 black to 1 white; or (H, W, 3)
    notes: tuple[str, ...]


def read_picture(path: str | Path, colour: bool = False) -> LoadedPicture:
    """Read a picture file as grey values between 0 (black) and 1 (white).

    Colours become their luminance or, if asked for, red, green and blue (H, W, 3); transparent
    pixels are laid over white, with a note; a file of several frames is refused. Needs the extra
    ``image`` (Pillow).
    """
    image_module = _pillow()
    path_text(path)
    check_path(path)
    try:
        with image_module.open(path) as image:
            frames = getattr(image, "n_frames", 1)
            if frames != 1:
                raise RefusedError(f"{path}: it has {frames} frames; save one of them as a file")
            _check_size(image, path)
            return _values(image, image_module, colour)
    except image_module.UnidentifiedImageError:
        raise FormatError(f"{path}: this is not a picture file that Pillow can read") from None
    except image_module.DecompressionBombError:
        raise RefusedError(
            f"{path}: more pixels than Pillow opens; pass an array instead"
        ) from None
    except (RefusedError, MemoryError):
        raise
    except Exception as error:  # Pillow's readers raise almost anything over a damaged file
        if isinstance(error, OSError) and (
            error.filename is not None or error.errno not in (None, errno.EINVAL)
        ):  # an impossible place to seek is damage, too
            raise  # no such file, no permission: the operating system says it best
        raise FormatError(f"{path}: the picture file is damaged: {error}") from None


def _check_size(image: Any, path: str | Path) -> None:
    """Refuse a size that the bytes of the file can hardly fill, before memory is asked for."""
    n_bytes, pixels = os.path.getsize(path), image.width * image.height
    if pixels > max(_PIXELS, _PIXELS_PER_BYTE * n_bytes):
        raise RefusedError(
            f"{path}: {image.width:,} x {image.height:,} pixels in {n_bytes:,} bytes: the file is "
            "damaged or blank; if the size is right, pass an array instead"
        )


def _values(image: Any, pillow: Any, colour: bool) -> LoadedPicture:
    notes, mode = [], image.mode
    if image.mode in ("PA", "La") or "transparency" in image.info:
        image = image.convert("RGBA")
    if image.mode in ("LA", "RGBA", "RGBa"):
        image = image.convert("RGBA")
        if image.getchannel("A").getextrema()[0] < 255:
            notes.append("transparent pixels were laid over white")
        white = pillow.new("RGBA", image.size, "white")
        image = pillow.alpha_composite(white, image)
    if image.mode.startswith("I;16"):
        values = np.asarray(image).astype(np.float64) / 65535
    elif image.mode in ("I", "F"):
        values = np.asarray(image).astype(np.float64)
        if image.mode == "I" and values.size and values.min() >= 0 and values.max() <= 65535:
            values /= 65535  # how Pillow hands out 16-bit files of some formats
        else:
            values = _stretch(values)
            notes.append("the values were stretched to 0 to 1")
    elif colour and mode not in ("1", "L", "LA", "La"):
        values = np.asarray(image.convert("RGB")).astype(np.float64) / 255
        if (values == values[..., :1]).all():
            values = values[..., 0]
    else:
        if mode not in ("1", "L", "LA", "La", "P", "PA"):
            notes.append(f"colours ({mode}) became their luminance")
        values = np.asarray(image.convert("L")).astype(np.float64) / 255
    return LoadedPicture(values, tuple(notes))


def _stretch(values: NDArray[np.float64]) -> NDArray[np.float64]:
    if not np.isfinite(values).all():
        raise FormatError("the picture has pixels that are not finite numbers")
    low, high = values.min(initial=0.0), values.max(initial=0.0)
    return (values - low) / (high - low) if high > low else values * 0.0


def write_picture(path: str | Path, values: NDArray, bits: int = 16) -> None:
    """Write grey values between 0 and 1, or bools, (H, W), or colours (H, W, 3); the suffix sets
    the format.

    Grey values have 16 bits a pixel if ``bits`` says so and the suffix is ``.png`` or ``.tif``, or
    else 8.
    """
    path_text(path)
    kind = check_suffix(path)
    check_choice("bits", str(bits), ("8", "16"))
    with atomic_write(str(path)) as file:
        _image(values, Path(path).suffix.lower(), bits).save(file, format=kind)


def write_marked(path: str | Path, values: NDArray, marked: NDArray) -> None:
    """Write bools, grey values (H, W) or colours (H, W, 3) of 0 to 1, some pixels (H, W) marked."""
    path_text(path)
    kind = check_suffix(path)
    grey = np.round(np.clip(np.asarray(values, dtype=np.float64), 0, 1) * 255)
    pixels = grey[..., None] * np.ones(3) if grey.ndim == 2 else grey
    pixels[np.asarray(marked, dtype=bool)] = MARK
    with atomic_write(str(path)) as file:
        _pillow().fromarray(pixels.astype(np.uint8)).save(file, format=kind)


def write_figure(path: str | Path, figure: Any) -> None:
    """A figure of matplotlib as a file, complete or not at all; PNG has the same bytes always."""
    kind = Path(path).suffix[1:].lower() or "png"
    with atomic_write(path) as file:
        figure.savefig(file, format=kind, metadata={"Software": None} if kind == "png" else None)


def draw_intervals(
    path: str | Path, found: Intervals, variables: Sequence[int] | None = None, title: str = ""
) -> None:
    from minfer import plots

    left, right = _two_axes()
    plots.intervals(found, variables=variables, ax=left)
    plots.narrowing(found, right)
    _write_axes(path, left, title)


def draw_tradeoff(path: str | Path, found: Tradeoff, title: str = "") -> None:
    from minfer import plots

    left, right = _two_axes(sharey=True)
    plots.tradeoff(found, "seconds", left).get_legend().remove()
    plots.tradeoff(found, "kept_share", right).set_ylabel("")
    _write_axes(path, left, title)


def _two_axes(**options: Any) -> Any:
    from minfer.plots import pyplot

    plt = pyplot("a picture needs", headless=True)
    return plt.subplots(1, 2, figsize=(10, 4.2), dpi=110, layout="constrained", **options)[1]


def _write_axes(path: str | Path, axes: Any, title: str) -> None:
    """The figure of some axes under a title, in which a dollar sign is one."""
    from minfer.plots import pyplot

    axes.figure.suptitle(visible(title), fontsize=10, parse_math=False)
    write_figure(path, axes.figure)
    pyplot().close(axes.figure)


def encode_picture(values: NDArray) -> bytes:
    """What :func:`write_picture` writes to a ``.png`` file with 8 bits."""
    file = BytesIO()
    _image(values, ".png", 8).save(file, format="PNG")
    return file.getvalue()


def _image(values: NDArray, suffix: str, bits: int) -> Any:
    image_module = _pillow()
    v = real_numbers(values, "pixels")
    if (v.ndim != 2 and v.shape[2:] != (3,)) or not v.size or np.isnan(v).any():
        raise ModelError(
            f"a picture has shape (H, W), or (H, W, 3), no side 0, and no NaN; not {v.shape}"
        )
    if v.ndim == 3:
        return image_module.fromarray(np.round(np.clip(v, 0, 1) * 255).astype(np.uint8))
    if v.dtype == bool:
        image = image_module.fromarray(np.where(v, 255, 0).astype(np.uint8))
        return image.convert("1") if suffix in (".png", ".tif", ".tiff") else image
    if bits == 16 and suffix in (".png", ".tif", ".tiff"):
        return image_module.fromarray(np.round(np.clip(v, 0, 1) * 65535).astype(np.uint16))
    return image_module.fromarray(np.round(np.clip(v, 0, 1) * 255).astype(np.uint8))


def check_suffix(path: str | Path) -> str:
    """The name of the picture format that a file name's suffix stands for."""
    kind = _pillow().registered_extensions().get(Path(path).suffix.lower())
    if kind not in _pillow().SAVE:
        raise FormatError(f"{path}: no picture can be written under this suffix; use .png")
    return str(kind)


def _pillow() -> Any:
    return load("PIL.Image", "picture files need Pillow", "image")


# ---------------------------------------------------------------------- as text

HALF_BLOCKS = " ▀▄█"
_ASCII = " '.:"
# Dots of a braille character, row by row: the bit of each in its code point.
_BRAILLE = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])


def drawn(pixels: NDArray, width: int, plain: bool = False) -> list[str]:
    """A binary picture as lines of text that fit the width: half blocks, or braille if narrow."""
    if plain:
        return _pairs_of_rows(pixels, _ASCII)
    if pixels.shape[1] <= width:
        return _pairs_of_rows(pixels, HALF_BLOCKS)
    return _braille(pixels)


def side_by_side(
    titles: Sequence[str], pictures: Sequence[NDArray], width: int, plain: bool = False
) -> list[str]:
    """Lines with binary pictures of one size in a row, under their titles, or below each other."""
    gap = "   "
    room = (width - len(gap) * (len(pictures) - 1)) // len(pictures)
    shown = [drawn(one, room, plain) for one in pictures]
    wide = len(shown[0][0])
    if wide > room:  # not even so: below each other
        return [line for title, lines in zip(titles, shown) for line in [title[:wide], *lines]]
    rows = zip(*([title[:wide], *lines] for title, lines in zip(titles, shown)))
    return [gap.join(part.ljust(wide) for part in row).rstrip() for row in rows]


def _pairs_of_rows(pixels: NDArray, characters: str) -> list[str]:
    """Two pixels above each other per character."""
    on = np.pad(pixels.astype(int), ((0, len(pixels) % 2), (0, 0)))
    cells = on[0::2] + 2 * on[1::2]
    return ["".join(characters[c] for c in row) for row in cells]


def _braille(pixels: NDArray) -> list[str]:
    """Two by four pixels per character."""
    height, width = pixels.shape
    on = np.pad(pixels.astype(int), ((0, -height % 4), (0, -width % 2)))
    blocks = on.reshape(on.shape[0] // 4, 4, on.shape[1] // 2, 2)
    codes = 0x2800 + np.einsum("aibj,ij->ab", blocks, _BRAILLE)
    return ["".join(map(chr, row)) for row in codes]
