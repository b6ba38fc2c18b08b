"""Pictures: the pixels of Pillow's images. Those of 16 bits and of floats keep their range, as float32."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError

if TYPE_CHECKING:
    from PIL import Image

DEEP = ("I;16", "I;16L", "I;16B", "I", "F")
"""Pillow's modes with more than 8 bits: whole numbers up to `MOST`, or floats."""
MOST = 2**16 - 1


def common_mode(modes: Iterable[str]) -> str:
    """Mode for pictures of several modes: L if all are L, F if all are grey and one is deep, and otherwise RGB."""
    present = set(modes)
    if present == {"L"}:
        return "L"
    return "F" if present <= {"1", "L", *DEEP} and present & {*DEEP} else "RGB"


def pixels(image: "Image.Image", mode: str, size: int) -> NDArray[Any]:
    """Pixels of a picture in a `common_mode`, scaled to `size` x `size` pixels if `size` is above 0.

    L: uint8 (H, W). RGB: uint8 (H, W, 3). F: float32 (H, W), in [0, 1] unless the picture has floats itself.

    A picture is turned as its EXIF tag says. What is transparent lies on white.

    Raises ConfigError if the pixels are not finite, or are floats that would have to become RGB, or if the file has
    several pictures.
    """
    from PIL import Image, ImageOps

    if (pages := getattr(image, "n_frames", 1)) > 1 and image.format != "MPO":  # MPO: a photograph and its preview
        raise ConfigError(f"its file has {pages} pictures (pages or frames), of which it could only be the first")
    image = ImageOps.exif_transpose(image)
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    if image.mode in DEEP:
        values = np.asarray(image, np.float32)
        if not np.isfinite(values).all():
            raise ConfigError("it has pixels that are not finite")
        if mode == "RGB" and image.mode == "F":
            raise ConfigError("its pixels are floats, and others have colours")
        values = values if image.mode == "F" else values / np.float32(MOST)
        image = Image.fromarray(values if mode == "F" else np.rint(values * 255).astype(np.uint8))
    elif mode == "F":
        image = Image.fromarray(np.asarray(image.convert("L"), np.float32) / np.float32(255))
    if image.mode != mode:
        image = image.convert(mode)
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR) if size else image)
