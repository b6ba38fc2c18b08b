"""Pictures: the pixels of Pillow's images."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError

if TYPE_CHECKING:
    from PIL import Image


def pixels(image: "Image.Image", mode: str, size: int) -> NDArray[Any]:
    """Pixels of a picture, scaled to `size` x `size` pixels if `size` is above 0; mode L: uint8 (H, W), RGB: (H, W, 3).

    A picture is turned as its EXIF tag says. What is transparent lies on white.

    Raises ConfigError if the pixels have more than 8 bits, or if the file has several pictures.
    """
    from PIL import Image, ImageOps

    if (pages := getattr(image, "n_frames", 1)) > 1 and image.format != "MPO":  # MPO: a photograph and its preview
        raise ConfigError(f"its file has {pages} pictures (pages or frames), of which it could only be the first")
    if image.mode.startswith(("I", "F")):
        raise ConfigError(f"its pixels have more than 8 bits (mode {image.mode}). Scale it to 8 bits, or use data=npz")
    image = ImageOps.exif_transpose(image)
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    image = image.convert(mode)
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR) if size else image)
